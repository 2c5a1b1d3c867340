//! Compares two arms in a cell, and over all cells: times are tested, counts state their spread.

use std::fmt;

use super::super::arm::Style;
use super::super::chart::{Point, Ratio as Row};
use super::super::figures::{Measured, Metric};
use super::{count, of_arm, pairs};
use crate::statistics::{CLAIM_ROUNDS, Difference, Ratio, Spread, holm, percent};
use crate::units;

/// The ratio of an arm's metric to a baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Compared {
    /// Times: Welch's test on the logarithms.
    Tested(Ratio),
    /// Counts of instructions: the spread of rounds.
    Counted(Spread),
    /// A time of a single round.
    Single(f64),
}

impl Compared {
    /// `None`: an arm has no value of this metric.
    pub(crate) fn between(base: &Measured, sample: &Measured, metric: Metric) -> Option<Self> {
        let (base, sample) = (base.summary(metric)?, sample.summary(metric)?);
        if metric.is_count() {
            return Spread::between(&base, &sample).map(Self::Counted);
        }
        match Difference::between(&base, &sample) {
            Some(found) => Some(Self::Tested(found.welch)),
            None => Some(Self::Single((sample.log_mean - base.log_mean).exp())).filter(|_| base.mean > 0.0),
        }
    }

    pub(crate) fn ratio(&self) -> f64 {
        match self {
            Self::Tested(Ratio { ratio, .. }) | Self::Counted(Spread { ratio, .. }) | Self::Single(ratio) => *ratio,
        }
    }

    /// The interval of a test, or the spread of a count.
    pub(crate) fn ends(&self) -> Option<[f64; 2]> {
        match self {
            Self::Tested(tested) => tested.has_rounds().then_some([tested.low, tested.high]),
            Self::Counted(spread) => Some([spread.low, spread.high]),
            Self::Single(_) => None,
        }
    }

    /// The row of a drawing. Without an interval it has no bar.
    pub(super) fn row(&self, name: String, style: Style) -> Row {
        let [low, high] = self.ends().unwrap_or([self.ratio(); 2]);
        Row { name, style, point: Point { x: 0.0, y: self.ratio(), low, high } }
    }

    /// Whether the difference may be claimed.
    pub(crate) fn is_apart(&self) -> bool {
        match self {
            Self::Tested(tested) => tested.is_proven(),
            Self::Counted(spread) => spread.is_apart(),
            Self::Single(_) => false,
        }
    }

    /// A change with its ends for a table: `−28 % (−29 to −28 %)`, or without ends where there is no claim.
    pub(crate) fn short(&self) -> String {
        let change = units::change(self.ratio());
        let Some(ends) = self.ends() else { return format!("{change} (no claim)") };
        let [low, high] = ends.map(units::change);
        format!("{change} ({} to {high})", low.trim_end_matches(" %"))
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tested(tested) => tested.fmt(f),
            Self::Counted(spread) => spread.fmt(f),
            Self::Single(ratio) => write!(f, "{}, no claim: 1 round, {CLAIM_ROUNDS} are needed", percent(*ratio)),
        }
    }
}

/// The cells that both arms have, as pairs of base and arm.
pub(crate) fn in_both<'a>(cells: &[&'a Measured], base: &str, arm: &str) -> Vec<(&'a Measured, &'a Measured)> {
    cells
        .iter()
        .filter(|measured| measured.arm == arm)
        .filter_map(|measured| {
            let base = cells.iter().find(|other| other.arm == base && other.cell == measured.cell)?;
            Some((*base, *measured))
        })
        .collect()
}

/// Compares two arms over all cells that both have: the geometric mean of the ratios, the same mean for each size, and the
/// numbers of cells where the metric is lower, higher, or not apart. No cell is picked out.
pub(super) fn verdict(cells: &[&Measured], base: &str, arm: &str, metric: Metric) -> Option<String> {
    let pairs = in_both(cells, base, arm);
    let found: Vec<(u64, Compared)> = pairs
        .iter()
        .filter_map(|(base, sample)| Some((sample.size, Compared::between(base, sample, metric)?)))
        .collect();
    let mean = geometric_mean(found.iter().map(|(_, compared)| compared.ratio()))?;
    let what = match metric {
        Metric::Instructions => "instructions per request",
        Metric::Requests => "requests/s",
        _ => "CPU per request",
    };
    Some(format!(
        "{what} of {arm} against {base}: {}× in the geometric mean of {}{}; {}",
        units::ratio(mean),
        count(found.len(), "cell"),
        by_size(&found),
        outcome(&found, metric)
    ))
}

/// The geometric mean for each size, if there are several: the mean over all of them hides what depends on the size.
fn by_size(found: &[(u64, Compared)]) -> String {
    let means = means_by_size(found);
    if means.len() < 2 {
        return String::new();
    }
    let each: Vec<String> =
        means.iter().map(|(size, mean)| format!("{} {}×", units::size(*size as f64), units::ratio(*mean))).collect();
    format!(" ({})", each.join(", "))
}

/// The geometric mean of the ratios of each size, by ascending size.
pub(crate) fn means_by_size(found: &[(u64, Compared)]) -> Vec<(u64, f64)> {
    let mut sizes: Vec<u64> = found.iter().map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of_size =
        |size: u64| found.iter().filter(move |(other, _)| *other == size).map(|(_, compared)| compared.ratio());
    sizes.into_iter().filter_map(|size| Some((size, geometric_mean(of_size(size))?))).collect()
}

/// In how many cells the arms are apart.
fn outcome(found: &[(u64, Compared)], metric: Metric) -> String {
    if metric.is_count() {
        let apart = |lower: bool| {
            found.iter().filter(|(_, compared)| compared.is_apart() && (compared.ratio() < 1.0) == lower).count()
        };
        let (lower, higher) = (apart(true), apart(false));
        let within = found.len() - lower - higher;
        return format!("lower in {lower}, higher in {higher}, within the spread of rounds in {within}");
    }
    let tested: Vec<&Ratio> = found
        .iter()
        .filter_map(|(_, compared)| match compared {
            Compared::Tested(ratio) if ratio.has_rounds() => Some(ratio),
            _ => None,
        })
        .collect();
    if tested.len() < found.len() {
        return format!("no claim: fewer than {CLAIM_ROUNDS} rounds");
    }
    let adjusted = holm(&tested.iter().map(|found| found.probability).collect::<Vec<_>>());
    let proven = |lower: bool| {
        let proven = tested.iter().zip(&adjusted).filter(|(_, probability)| **probability < 0.05);
        proven.filter(|(found, _)| (found.ratio < 1.0) == lower).count()
    };
    let (lower, higher) = (proven(true), proven(false));
    let open = tested.len() - lower - higher;
    format!("lower in {lower}, higher in {higher}, no difference proven in {open} (Welch, Holm)")
}

/// Arms of Sealion that cost more than user space, with every such cell: a policy is as good as its worst cell.
pub(super) fn dearer(cells: &[&Measured], metric: Metric) -> Vec<String> {
    let ours = pairs(cells).into_iter().filter(|(user, _)| *user == "user");
    ours.filter_map(|(user, arm)| {
        let both = in_both(cells, user, arm);
        let found: Vec<(&Measured, Compared)> = both
            .iter()
            .filter_map(|(base, sample)| Some((*sample, Compared::between(base, sample, metric)?)))
            .collect();
        let mut worse: Vec<&(&Measured, Compared)> =
            found.iter().filter(|(_, compared)| compared.ratio() > 1.0 + EQUAL).collect();
        worse.sort_by(|one, other| other.1.ratio().total_cmp(&one.1.ratio()));
        if worse.is_empty() {
            return None;
        }
        let each: Vec<String> = worse
            .iter()
            .map(|(cell, compared)| {
                let size = units::size(cell.size as f64);
                let calls = cell.calls.map(|calls| format!(" × {calls}")).unwrap_or_default();
                format!("{size}{calls} {}", compared.short())
            })
            .collect();
        Some(format!(
            "{arm} costs more than {user} in {} of {}: {}",
            worse.len(),
            count(found.len(), "cell"),
            each.join(", ")
        ))
    })
    .collect()
}

/// A difference below this does not matter.
const EQUAL: f64 = 0.01;

/// `None`: there are no ratios.
pub(crate) fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = ratios.into_iter().map(f64::ln).collect();
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

/// The change by the kernel's path on each server in one cell, in words.
pub(super) fn changes(cells: &[&Measured], metric: Metric) -> String {
    let change = |(user, arm): (&str, &str)| {
        let compared = Compared::between(of_arm(cells, user)?, of_arm(cells, arm)?, metric)?;
        Some(format!("{arm} {}", compared.short()))
    };
    pairs(cells).into_iter().filter_map(change).collect::<Vec<_>>().join(", ")
}
