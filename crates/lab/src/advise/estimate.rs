//! The change that kernel TLS would make on another kernel, from counts of instructions in guests.

use sealion_guest::Series;

use super::mix::Mix;

/// The cost of a response on both paths of a kernel, in instructions, by size.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// Sizes with the costs in user space and in the kernel, on connections that stay open.
    points: Vec<(u64, [f64; 2])>,
    /// The costs of a connection, with handshake and move.
    connection: [f64; 2],
}

/// The counts of a kernel that the guard of the benchmarks records.
pub fn counts(series: Series) -> Option<Counts> {
    let text = RECORDED.iter().find(|(name, _)| *name == series.name())?.1;
    parse(text)
}

/// The names of kernels with counts.
pub fn known() -> Vec<&'static str> {
    RECORDED.iter().map(|(name, _)| *name).collect()
}

fn parse(text: &str) -> Option<Counts> {
    let cost = |arm: &str, cell: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.split(',');
            (fields.next() == Some(arm) && fields.next() == Some(cell)).then(|| fields.next()?.parse::<f64>().ok())?
        })
    };
    let both = |cell: &str| Some([cost("user", cell)?, cost("kernel", cell)?]);
    let points: Vec<(u64, [f64; 2])> = SIZES.iter().filter_map(|(size, name)| Some((*size, both(name)?))).collect();
    let (once, open) = (both("1k × 1")?, both("1k")?);
    let connection = [once[0] - open[0], once[1] - open[1]];
    (points.len() > 1).then_some(Counts { points, connection })
}

impl Counts {
    /// The costs of a response of this size in user space and in the kernel, its share of the connection included.
    fn of(&self, size: u64, calls: f64) -> [f64; 2] {
        let at = self.points.windows(2).position(|pair| size < pair[1].0).unwrap_or(self.points.len() - 2);
        let (low, high) = (self.points[at], self.points[at + 1]);
        // A cost is a fixed part and a part for each byte.
        let along = (size as f64 - low.0 as f64) / (high.0 as f64 - low.0 as f64);
        [0, 1].map(|path| {
            let open = low.1[path] + along * (high.1[path] - low.1[path]);
            open.max(low.1[path] * 0.5) + self.connection[path] / calls.max(1.0)
        })
    }

    /// The cost of the mix on the cheaper path, and by the kernel alone, each as a ratio to user space: `auto` chooses by
    /// response, `always` does not.
    pub fn ratios(&self, mix: &Mix) -> [f64; 2] {
        let (mut user, mut kernel, mut better) = (0.0, 0.0, 0.0);
        for class in &mix.classes {
            let weight = class.share * class.weight;
            let [here, there] = self.of(class.size, mix.calls);
            user += weight * here;
            kernel += weight * there;
            better += weight * here.min(there);
        }
        [better / user, kernel / user]
    }
}

const SIZES: [(u64, &str); 5] =
    [(1 << 10, "1k"), (16 << 10, "16k"), (64 << 10, "64k"), (256 << 10, "256k"), (1 << 20, "1m")];

/// Counts in guests, as `cargo xtask bench-guard` records them.
const RECORDED: [(&str, &str); 2] = [
    ("6.1", include_str!("../../../../bench/guard/6.1.csv")),
    ("7.2", include_str!("../../../../bench/guard/7.2.csv")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::mix;

    fn of_one(size: u64, calls: f64) -> Mix {
        let line = format!("time=2026-11-21T15:00:00Z peer=192.0.2.7:1 status=200 bytes={size} tls=1.3");
        mix::read([line].into_iter(), Some(calls)).expect("a mix")
    }

    #[test]
    fn every_named_kernel_has_counts() {
        for name in known() {
            let series = <Series as clap::ValueEnum>::from_str(name, false).expect("a kernel");
            let counts = counts(series).expect("counts");
            let [better, kernel] = counts.ratios(&of_one(1 << 20, 100.0));
            assert!(kernel < 0.9 && (kernel - better).abs() < 1e-9, "{name}: large bodies gain: {better} {kernel}");
            let [better, kernel] = counts.ratios(&of_one(1 << 10, 1.0));
            assert!(kernel > 1.0 && (better - 1.0).abs() < 1e-9, "{name}: small ones do not: {better} {kernel}");
        }
    }

    #[test]
    fn costs_between_sizes_are_on_a_line() {
        let text =
            "user,1k,100,\nkernel,1k,200,\nuser,16k,1600,\nkernel,16k,800,\nuser,1k × 1,1100,\nkernel,1k × 1,1300,\n";
        let counts = parse(text).expect("counts");
        assert_eq!(counts.of((1024 + 16384) / 2, 1.0), [850.0 + 1000.0, 500.0 + 1100.0]);
        assert_eq!(counts.of(16384, 10.0), [1600.0 + 100.0, 800.0 + 110.0]);
        assert_eq!(counts.of(2 * 16384 - 1024, 1000.0), [3100.0 + 1.0, 1400.0 + 1.1]);
    }
}
