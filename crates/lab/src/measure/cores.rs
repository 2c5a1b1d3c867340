//! Busy time of each core, from /proc/stat.

use anyhow::{Context, Result};

use super::TICK;

/// Time of each core since the machine started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cores(Vec<Core>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Core {
    number: usize,
    /// In ticks: user, nice, system, irq, softirq. Excludes time taken by a hypervisor (steal).
    busy: u64,
    softirq: u64,
}

impl Cores {
    /// The current times.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub(crate) fn now() -> Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?))
    }

    /// Busy time of each core since `earlier`, including softirq and irq, in ns, separated by `;`.
    pub(crate) fn busy_since(&self, earlier: &Self) -> String {
        self.list(earlier, |core| core.busy)
    }

    /// Softirq time of each core since `earlier`, in ns, separated by `;`.
    pub(crate) fn softirq_since(&self, earlier: &Self) -> String {
        self.list(earlier, |core| core.softirq)
    }

    /// Softirq time since `earlier` of all cores except `these`, ns.
    pub(crate) fn softirq_outside(&self, earlier: &Self, these: &[usize]) -> u64 {
        let outside = |cores: &Self| -> u64 {
            cores.0.iter().filter(|core| !these.contains(&core.number)).map(|core| core.softirq).sum()
        };
        outside(self).saturating_sub(outside(earlier)) * TICK.as_nanos() as u64
    }

    /// The busy share of the cores `numbers` (empty: all) since `earlier`, relative to `elapsed`.
    pub(crate) fn load_since(&self, earlier: &Self, numbers: &[usize], elapsed: std::time::Duration) -> f64 {
        let wanted = |core: &&Core| numbers.is_empty() || numbers.contains(&core.number);
        let busy = |cores: &Self| cores.0.iter().filter(wanted).map(|core| core.busy).sum::<u64>();
        let count = self.0.iter().filter(wanted).count().max(1) as f64;
        busy(self).saturating_sub(busy(earlier)) as f64 * TICK.as_secs_f64() / elapsed.as_secs_f64() / count
    }

    fn list(&self, earlier: &Self, field: impl Fn(&Core) -> u64) -> String {
        let each = self.0.iter().map(|core| {
            let before = earlier.0.iter().find(|e| e.number == core.number).map_or(0, &field);
            (field(core).saturating_sub(before) * TICK.as_nanos() as u64).to_string()
        });
        each.collect::<Vec<_>>().join(";")
    }

    fn parse(text: &str) -> Self {
        let cores = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let number = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| times.get(index).copied().unwrap_or(0);
            Some(Core { number, busy: at(0) + at(1) + at(2) + at(5) + at(6), softirq: at(6) })
        });
        Self(cores.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_each_core() {
        let before =
            Cores::parse("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 100 7 1 1 9 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n");
        let after = Cores::parse("cpu  0\ncpu0 11 1 6 200 7 1 4 9 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(after.busy_since(&before), "180000000;1000000000");
        assert_eq!(after.softirq_since(&before), "30000000;0");
        assert_eq!([after.softirq_outside(&before, &[1]), after.softirq_outside(&before, &[0])], [30_000_000, 0]);
        let load = |cores: &[usize]| after.load_since(&before, cores, std::time::Duration::from_secs(1));
        assert!((load(&[1]) - 1.0).abs() < 1e-9);
        assert!((load(&[]) - 0.59).abs() < 1e-9);
    }
}
