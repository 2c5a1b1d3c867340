use super::*;
use crate::path::costs::curve::Point;
use crate::path::costs::set_up::SetUpCost;

/// Saves nothing up to 1,000 bytes, and a nanosecond for each further byte.
fn curve() -> Curve {
    curve_of(&[(1_000, 1_500, 1_500), (2_000, 3_000, 2_000)])
}

fn curve_of(points: &[(u64, u64, u64)]) -> Curve {
    let point = |&(bytes, user_ns, kernel_ns)| Point { bytes, user_ns, kernel_ns };
    Curve::new(points.iter().map(point).collect()).unwrap()
}

#[test]
fn decisions() {
    use Decision::{Move, Stay};
    use KtlsMode::{Always, Auto, Never};
    use Offer::{Absent, NoCipher, Quarantined, Ready, Suspended};
    const SET_UP: u64 = 500;
    let curve = curve();
    let (small, large) = (1_499, 1_500);
    for (mode, path, forgone, upcoming, kernel, expected, then) in [
        (Auto, SealedBy::User, 0, small, Ready, Stay(PathReason::Small), 499),
        (Auto, SealedBy::User, 0, large, Ready, Move, 0),
        (Auto, SealedBy::User, 1, small, Ready, Move, 0),
        (Auto, SealedBy::User, 499, 900, Ready, Stay(PathReason::Small), 499),
        (Auto, SealedBy::User, 0, large, Absent, Stay(PathReason::Absent), 0),
        (Auto, SealedBy::User, 0, small, Absent, Stay(PathReason::Absent), 0),
        (Auto, SealedBy::User, 0, large, NoCipher, Stay(PathReason::NoCipher), 0),
        (Auto, SealedBy::User, 7, large, Suspended, Stay(PathReason::Suspended), 507),
        (Auto, SealedBy::User, 0, large, Quarantined, Stay(PathReason::Quarantined), 0),
        (Always, SealedBy::User, 0, large, Quarantined, Stay(PathReason::Quarantined), 0),
        (Auto, SealedBy::User, 0, small, Suspended, Stay(PathReason::Small), 499),
        (Auto, SealedBy::Kernel, 0, 0, Ready, Stay(PathReason::MovedBefore), 0),
        (Auto, SealedBy::Kernel, 0, large, Suspended, Stay(PathReason::MovedBefore), 0),
        (Always, SealedBy::User, 0, 0, Ready, Move, 0),
        (Always, SealedBy::User, 0, 0, NoCipher, Stay(PathReason::NoCipher), 0),
        (Always, SealedBy::User, 0, 1 << 40, Suspended, Stay(PathReason::Suspended), (1 << 40) - 1_000),
        (Never, SealedBy::User, 0, u64::MAX, Ready, Stay(PathReason::Never), 0),
        (Never, SealedBy::User, 0, u64::MAX, Absent, Stay(PathReason::Never), 0),
    ] {
        let situation = Situation { path, kernel, upcoming, forgone: Forgone(forgone), curve: &curve, set_up: SET_UP };
        assert_eq!(decide(mode, &situation), (expected, Forgone(then)), "{mode:?} {situation:?}");
    }
}

#[test]
fn where_the_kernel_never_wins_nothing_moves() {
    let curve = curve_of(&[(1_000, 1_000, 1_500), (1_000_000, 100_000, 101_000)]);
    for upcoming in [0, 1_000, 1 << 20, 1 << 40, u64::MAX] {
        let forgone = Forgone::default();
        let situation =
            Situation { path: SealedBy::User, kernel: Offer::Ready, upcoming, forgone, curve: &curve, set_up: 1 };
        assert_eq!(decide(KtlsMode::Auto, &situation), (Decision::Stay(PathReason::NoGain), forgone), "{upcoming}");
    }
}

/// The cost of a connection with these responses if it moves before response `moves_at`.
fn cost(curve: &Curve, set_up: u64, responses: &[u64], moves_at: Option<usize>) -> i128 {
    // By its curve, a response costs as many nanoseconds as bytes in user space, and less by its saving in the kernel.
    let user: i128 = responses.iter().map(|bytes| user_cost(*bytes)).sum();
    let saved: i128 = responses[moves_at.unwrap_or(responses.len())..].iter().map(|b| curve.saving(*b) as i128).sum();
    user - saved + if moves_at.is_some() { set_up.into() } else { 0 }
}

fn user_cost(bytes: u64) -> i128 {
    i128::from(2_000 + bytes / 10)
}

/// The response before which the policy moves.
fn moves_at(curve: &Curve, set_up: u64, responses: &[u64]) -> Option<usize> {
    let mut forgone = Forgone::default();
    responses.iter().position(|&upcoming| {
        let situation = Situation { path: SealedBy::User, kernel: Offer::Ready, upcoming, forgone, curve, set_up };
        let (decision, after) = decide(KtlsMode::Auto, &situation);
        forgone = after;
        decision == Decision::Move
    })
}

/// A curve with the user side of [`user_cost`], and a kernel side of at most twice that.
fn random_curve(random: &mut Random) -> Curve {
    let sizes = [1_000, 16_000, 64_000, 1_000_000];
    let points = sizes.map(|bytes| {
        let user = user_cost(bytes) as u64;
        (bytes, user, user * (30 + random.below(160)) / 100)
    });
    curve_of(&points)
}

/// xorshift64: the same sequences in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn never_twice_the_best_in_hindsight() {
    let mut random = Random(0x5EA1_1013);
    let (mut moved, mut worst) = (0, 0.0_f64);
    for round in 0..20_000 {
        let curve = random_curve(&mut random);
        let (largest_set_up, usual) = (2 << random.below(24), 256 << random.below(13));
        let set_up = 1 + random.below(largest_set_up);
        let responses: Vec<u64> = (0..1 + random.below(60)).map(|_| 200 + random.below(usual)).collect();
        let at = moves_at(&curve, set_up, &responses);
        let auto = cost(&curve, set_up, &responses, at);
        let moves = (0..responses.len()).map(Some).chain([None]);
        let best = moves.map(|at| cost(&curve, set_up, &responses, at)).min().expect("there are some");
        assert!(auto <= 2 * best, "round {round}: {auto} and {best}: {curve:?} {set_up} {responses:?}");
        let alone = cost(&curve, set_up, &responses, None);
        // A move is final: small responses that cost more in the kernel are its risk.
        let behind = &responses[at.unwrap_or(responses.len())..];
        let lost: i128 = behind.iter().map(|bytes| -i128::from(curve.saving(*bytes).min(0))).sum();
        assert!(auto <= alone + i128::from(set_up) + lost, "round {round}");
        if at.is_some() {
            moved += 1;
            worst = worst.max(auto as f64 / best as f64);
        }
    }
    assert!((4_000..16_000).contains(&moved), "{moved} of 20,000 move: both sides are tried");
    assert!(worst > 1.5, "the bound is nearly met somewhere: {worst}");
}

/// The netdev talk's costs of TLS_TX, with and without a network card that seals, and savings of 1 µs per KiB.
#[test]
fn a_network_card_that_takes_milliseconds_raises_the_threshold_by_itself() {
    const SOFTWARE: u64 = 37_000;
    const OFFLOAD: u64 = 3_857_000;
    const RECEIVING: [u64; 2] = [10_000, 1_207_000];
    let curve = curve_of(&[(1 << 10, 3_000, 2_000), (1 << 20, 1_500_000, 476_000)]);
    let first = |set_up: u64| curve.shortest_saving(set_up).expect("long responses move");
    assert_eq!(first(SOFTWARE).div_ceil(1 << 10), 37);
    assert_eq!(first(OFFLOAD).div_ceil(1 << 10), 3_857);
    assert_eq!(RECEIVING.map(|set_up| first(set_up).div_ceil(1 << 10)), [10, 1_207]);
    // Of equal responses of 64 KiB, the first or the 61st moves.
    let responses = [64 << 10; 100];
    assert_eq!(moves_at(&curve, SOFTWARE, &responses), Some(0));
    assert_eq!(moves_at(&curve, OFFLOAD, &responses), Some(60));

    // A server that starts with the cost in software, on a machine with such a card.
    let running = SetUpCost::new(SOFTWARE);
    let thresholds: Vec<u64> = (0..40)
        .map(|_| {
            let threshold = first(running.nanoseconds());
            running.observe(std::time::Duration::from_nanos(OFFLOAD));
            threshold
        })
        .collect();
    assert!(thresholds.is_sorted(), "{thresholds:?}");
    assert_eq!(thresholds[0].div_ceil(1 << 10), 37);
    assert!(thresholds[39] > 3_700 << 10, "{thresholds:?}");
    assert_eq!(moves_at(&curve, running.nanoseconds(), &responses[..40]), None);
}

/// The page has a table whose first two columns are the words and the path.
#[test]
fn the_page_has_a_row_for_each_reason() {
    let page = "docs/logs.md";
    let text = std::fs::read_to_string(format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for reason in PathReason::ALL {
        let word = format!("`{}`", reason.label());
        let path = format!("| {} |", reason.sealed_by().as_str());
        let row = text
            .lines()
            .find(|line| line.split('|').nth(1).is_some_and(|words| words.split(", ").any(|one| one.trim() == word)));
        assert!(row.is_some_and(|row| row.contains(&path)), "{page} has no row for {word} with {path}: {row:?}");
    }
}
