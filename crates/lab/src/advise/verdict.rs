//! The answer: turn it on, leave it, or it does not matter, with the CPU that it saves.

use std::fmt::{self, Write};

use super::mix::Mix;
use crate::row::Row;
use crate::statistics::{CLAIM_ROUNDS, Difference, Ratio, Summary, percent};
use crate::study::Cell;
use crate::units;

/// The advised setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Kernel TLS saves CPU.
    TurnOn,
    /// It costs CPU.
    Leave,
    /// The difference is small, or not proven.
    DoesNotMatter,
}

/// The ground of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// A replay on both paths: the interval is of 95 %.
    Replay,
    /// Counts of another kernel: the interval is the difference between kernels, without a confidence.
    Counts,
}

/// The answer with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The advised setting.
    pub answer: Answer,
    /// The setting of Sealion that costs least, as on its command line.
    pub setting: &'static str,
    /// The CPU of the setting over the CPU of user space, with the ends of its interval.
    pub ratio: [f64; 3],
    /// The ground of the ratio.
    pub basis: Basis,
    /// CPU of a response in user space, ns.
    pub user: f64,
    /// Cost of a response of the mix on each arm, in ns, with the ratio to user space in words.
    pub arms: Vec<(String, f64, String)>,
    /// Responses in a second.
    pub rate: Option<f64>,
    /// A reservation, in words; empty: none.
    pub reservation: String,
}

/// Judges a replay's rows. `None`: `user`, or both of `auto` and `kernel`, have no round that counts.
pub fn judge(rows: &[Row], mix: &Mix, cells: &[Cell]) -> Option<Advice> {
    let user = costs(rows, mix, cells, "user")?;
    let mut arms = Vec::new();
    let mut best: Option<(&'static str, Ratio)> = None;
    for (arm, setting) in ARMS {
        let Some(cost) = costs(rows, mix, cells, arm) else { continue };
        let found = Difference::between(&user, &cost).map(|found| found.welch);
        let said = if arm == "user" { String::new() } else { found.map(|ratio| ratio.to_string()).unwrap_or_default() };
        arms.push((arm.to_owned(), cost.log_mean.exp(), said));
        if let Some(found) =
            found.filter(|found| !setting.is_empty() && best.is_none_or(|(_, best)| found.ratio < best.ratio))
        {
            best = Some((setting, found));
        }
    }
    let (setting, best) = best?;
    let answer = match best.is_proven() {
        true if best.ratio < 1.0 - MATTERS => Answer::TurnOn,
        true if best.ratio > 1.0 + MATTERS => Answer::Leave,
        _ => Answer::DoesNotMatter,
    };
    let few = format!("{} rounds; a claim takes {CLAIM_ROUNDS}", best.rounds);
    Some(Advice {
        answer,
        setting,
        ratio: [best.ratio, best.low, best.high],
        basis: Basis::Replay,
        user: user.log_mean.exp(),
        arms,
        rate: mix.rate,
        reservation: if best.has_rounds() { String::new() } else { few },
    })
}

/// The estimate where this kernel has no kernel TLS: the measured cost in user space, and the ratio of counts elsewhere.
pub fn estimate(rows: &[Row], mix: &Mix, cells: &[Cell], ratio: f64, kernel: &str) -> Option<Advice> {
    let user = costs(rows, mix, cells, "user")?;
    let answer = match ratio {
        _ if ratio < 1.0 - MATTERS => Answer::TurnOn,
        _ if ratio > 1.0 + MATTERS => Answer::Leave,
        _ => Answer::DoesNotMatter,
    };
    Some(Advice {
        answer,
        setting: "auto",
        ratio: [ratio, ratio - UNCERTAIN, ratio + UNCERTAIN],
        basis: Basis::Counts,
        user: user.log_mean.exp(),
        arms: vec![("user".to_owned(), user.log_mean.exp(), String::new())],
        rate: mix.rate,
        reservation: format!(
            "estimated by instruction counts of Linux {kernel} in a guest, not by times of this processor"
        ),
    })
}

/// CPU of a response of the mix on an arm, round by round. A round counts if it has every cell.
fn costs(rows: &[Row], mix: &Mix, cells: &[Cell], arm: &str) -> Option<Summary> {
    let rounds = rows.iter().map(|row| row.round).max()? + 1;
    let of_round = |round: u32| -> Option<f64> {
        cells.iter().try_fold(0.0, |sum, cell| {
            let name = cell.name();
            let row = rows.iter().find(|row| row.round == round && row.arm == arm && row.cell == name)?;
            let counts = row.void.is_empty() && row.requests > 0;
            let cpu = row.server_cpu.filter(|_| counts)? + row.kernel_threads.unwrap_or(0);
            Some(sum + mix.weight(cell) * cpu as f64 / row.requests as f64)
        })
    };
    let each: Vec<f64> = (0..rounds).filter_map(of_round).collect();
    Summary::of(&each)
}

impl Advice {
    /// Core-seconds saved a day, with the interval: least, expected, most. `None`: the log has no times.
    pub fn saved_a_day(&self) -> Option<[f64; 3]> {
        let a_day = self.rate? * DAY * self.user / 1e9;
        let [ratio, low, high] = self.ratio;
        Some([high, ratio, low].map(|ratio| a_day * (1.0 - ratio)))
    }

    /// The first line.
    pub fn headline(&self) -> String {
        let Self { setting, ratio: [ratio, low, high], .. } = self;
        let kind = match self.basis {
            Basis::Replay => "95 %: ",
            Basis::Counts => "an estimate, ",
        };
        let change = format!("{} of the server's CPU ({kind}{} to {})", percent(*ratio), percent(*low), percent(*high));
        let saved = self.saved_a_day().map(|[least, saved, most]| {
            let [least, saved, most] = [least, saved, most].map(core_time);
            format!(", {saved} of a core a day ({least} to {most})")
        });
        let saved = saved.unwrap_or_else(|| ", for a rate that the log does not tell".to_owned());
        match self.answer {
            Answer::TurnOn => format!("Turn it on (ktls = \"{setting}\"): {change}{saved}."),
            Answer::Leave => {
                format!("Leave it off (ktls = \"never\"): the cheapest setting with kernel TLS is {change}{saved}.")
            }
            Answer::DoesNotMatter => format!("It does not matter: {change}{saved}."),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if !self.reservation.is_empty() {
            writeln!(f, "  But: {}.", self.reservation)?;
        }
        for (arm, cost, compared) in &self.arms {
            writeln!(f, "  {arm:<12} {:>10} CPU a response  {compared}", units::time(*cost))?;
        }
        Ok(())
    }
}

/// The mix in words.
pub fn described(mix: &Mix) -> String {
    let mut text = format!("{} responses with TLS", mix.responses);
    if mix.plain + mix.skipped > 0 {
        let _ = write!(text, " ({} without TLS and {} lines of another format left out)", mix.plain, mix.skipped);
    }
    if let Some(rate) = mix.rate {
        let _ = write!(text, ", {} a second", units::count(rate));
    }
    let guess = if mix.knows_connections { "" } else { ", guessed by addresses: --calls sets it" };
    let _ = writeln!(
        text,
        "; {} requests a connection{guess}; {:.0} % HTTP/2",
        units::significant(mix.calls),
        100.0 * mix.http2
    );
    for class in &mix.classes {
        let _ = writeln!(
            text,
            "  {:>8}  {:>5.1} % of responses",
            units::bytes(class.size as f64 * class.weight),
            100.0 * class.share
        );
    }
    text
}

/// Seconds of a core as hours, minutes or seconds; `−` for more CPU.
fn core_time(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "" };
    let size = seconds.abs();
    let text = match size {
        _ if size >= 3600.0 => format!("{:.1} h", size / 3600.0),
        _ if size >= 60.0 => format!("{:.1} min", size / 60.0),
        _ => format!("{size:.1} s"),
    };
    format!("{sign}{text}")
}

/// A change of a server's CPU below this is not worth a setting.
const MATTERS: f64 = 0.02;

/// MEASURED: counts of 6.1 and 7.2 differ by up to this at one size (bench/guard).
const UNCERTAIN: f64 = 0.1;

/// Seconds.
const DAY: f64 = 86_400.0;

/// Arms of a replay, each with its value of `ktls`; empty: it is not a setting that is compared.
const ARMS: [(&str, &str); 5] =
    [("user", ""), ("auto", "auto"), ("kernel", "always"), ("nginx", ""), ("nginx-ktls", "")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::mix;
    use crate::load::Extent;

    fn mix() -> Mix {
        let line = |second: u32, bytes: u64| {
            format!("time=2026-11-21T15:00:{second:02}Z peer=192.0.2.7:1 status=200 bytes={bytes} tls=1.3")
        };
        mix::read([line(0, 1_000), line(1, 1_000), line(2, 1_000_000)].into_iter(), None).expect("a mix")
    }

    fn rows(mix: &Mix, arm: &str, rounds: u32, costs: [u64; 2]) -> Vec<Row> {
        let cells = mix.cells(Extent::Requests(1));
        let row = |round: u32, cell: &Cell, cost: u64| Row {
            arm: arm.into(),
            cell: cell.name(),
            round,
            requests: 100,
            server_cpu: Some(100 * (cost + u64::from(round % 2) * cost / 1000)),
            ..Row::default()
        };
        (0..rounds).flat_map(|round| cells.iter().zip(costs).map(move |(cell, cost)| row(round, cell, cost))).collect()
    }

    fn advice(rounds: u32, auto: [u64; 2], kernel: [u64; 2]) -> Advice {
        let mix = mix();
        let user = rows(&mix, "user", rounds, [10_000, 400_000]);
        let all = [user, rows(&mix, "auto", rounds, auto), rows(&mix, "kernel", rounds, kernel)].concat();
        judge(&all, &mix, &mix.cells(Extent::Requests(1))).expect("two paths")
    }

    #[test]
    fn a_saving_is_advised_with_its_cpu_a_day() {
        let advice = advice(5, [10_000, 300_000], [20_000, 290_000]);
        assert_eq!((advice.answer, advice.setting), (Answer::TurnOn, "auto"));
        // (2 × 10 + 400) / 3 = 140 µs, and (2 × 10 + 300) / 3 = 106.7 µs: 24 % less. 1.5 responses a second.
        assert!((advice.ratio[0] - 320.0 / 420.0).abs() < 1e-3, "{:?}", advice.ratio);
        let [least, saved, most] = advice.saved_a_day().expect("a rate");
        assert!((saved - 1.5 * 86_400.0 * 100.0 / 3.0 * 1e-6).abs() < 0.01 && least < saved && saved < most, "{saved}");
        assert!(
            advice.headline().starts_with("Turn it on (ktls = \"auto\"): −23.8 % of the server's CPU (95 %: −2"),
            "{}",
            advice.headline()
        );
        assert!(advice.headline().contains("of a core a day ("), "{}", advice.headline());
    }

    #[test]
    fn a_loss_is_left_and_a_trifle_does_not_matter() {
        let loss = advice(5, [12_000, 500_000], [20_000, 500_000]);
        assert_eq!(loss.answer, Answer::Leave);
        assert!(loss.headline().starts_with("Leave it off") && loss.headline().contains("+24"), "{}", loss.headline());
        let trifle = advice(5, [10_000, 399_000], [20_000, 500_000]);
        assert_eq!(trifle.answer, Answer::DoesNotMatter);
        let few = advice(2, [10_000, 300_000], [20_000, 290_000]);
        assert_eq!(few.answer, Answer::DoesNotMatter);
        assert!(few.to_string().contains("2 rounds; a claim takes 5"), "{few}");
    }

    #[test]
    fn a_void_cell_voids_its_round() {
        let mix = mix();
        let mut all = rows(&mix, "user", 5, [10_000, 400_000]);
        all.extend(rows(&mix, "auto", 5, [10_000, 300_000]));
        all.iter_mut().filter(|row| row.arm == "auto").for_each(|row| row.void = "why".into());
        assert!(judge(&all, &mix, &mix.cells(Extent::Requests(1))).is_none());
    }

    #[test]
    fn an_estimate_says_that_it_is_one() {
        let mix = mix();
        let all = rows(&mix, "user", 5, [10_000, 400_000]);
        let advice = estimate(&all, &mix, &mix.cells(Extent::Requests(1)), 0.8, "7.2").expect("a cost");
        assert_eq!(advice.answer, Answer::TurnOn);
        assert!(
            advice.headline().contains("−20.0 % of the server's CPU (an estimate, −30.0 % to −10.0 %)"),
            "{advice}"
        );
        assert!(advice.to_string().contains("estimated by instruction counts of Linux 7.2"), "{advice}");
    }
}
