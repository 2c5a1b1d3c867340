//! Groups rows: all rounds of a cell on an arm, and their figures.

use std::fmt;

use hdrhistogram::Histogram;

use crate::histogram;
use crate::row::Row;
use crate::statistics::{self, CLAIM_ROUNDS, Summary};
use crate::units;

/// All rounds of one cell on one arm.
#[derive(Debug)]
pub(crate) struct Measured {
    pub study: String,
    /// The cell, as named by the study.
    pub cell: String,
    pub arm: String,
    /// Bytes of the file.
    pub size: u64,
    /// Requests on a connection; `None`: unlimited.
    pub calls: Option<u64>,
    /// The cell's conditions without its size: cells that share them form a line in a chart.
    pub condition: String,
    /// The cell without size and calls.
    pub setting: String,
    /// Rounds that are not void.
    pub rounds: Vec<Row>,
    pub voids: Vec<Row>,
}

/// A figure of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Requests per second.
    Requests,
    /// Body bytes per second.
    Throughput,
    /// Run time of the server's threads per request, ns.
    CpuPerRequest,
    /// Run time of the server's threads per gigabyte (10^9) of bodies, s.
    CpuPerGigabyte,
    /// Run time of the client's threads per request, ns.
    ClientCpuPerRequest,
    /// Instructions of the server's threads per request.
    Instructions,
    /// Instructions per body byte.
    InstructionsPerByte,
    /// Return on investment in throughput, see [`statistics::roi`].
    Roi,
    /// Return on investment in requests.
    RoiRequests,
    /// Cores that application and I/O took, the Σ Cᵢ of the return on investment.
    Cores,
    /// Softirq time of all cores per request, ns.
    Softirq,
    /// Run time of the kernel's own threads per request: ns, or instructions in a guest that counts them.
    KernelThreads,
    /// Context switches of the server per request.
    Switches,
    /// Proportional set size of the server's processes, bytes.
    Memory,
    /// Growth of that memory per idle connection, bytes.
    IdleMemory,
}

impl Metric {
    /// Whether it is a count that repeats, not a time.
    pub(crate) fn is_count(self) -> bool {
        matches!(self, Self::Instructions | Self::InstructionsPerByte)
    }

    /// Its value in a round as a cost: the inverse where more is better.
    pub(crate) fn cost(self, row: &Row) -> Option<f64> {
        let value = self.of(row)?;
        Some(match self {
            Self::Requests | Self::Throughput | Self::Roi | Self::RoiRequests => 1.0 / value,
            _ => value,
        })
    }

    /// Its value in a round; `None` if it was not measured.
    pub(crate) fn of(self, row: &Row) -> Option<f64> {
        let requests = row.requests as f64;
        let bytes = row.body_bytes as f64;
        let seconds = row.elapsed as f64 / 1e9;
        let value = match self {
            Self::Requests => requests / seconds,
            Self::Throughput => bytes / seconds,
            Self::CpuPerRequest => row.server_cpu? as f64 / requests,
            Self::CpuPerGigabyte => row.server_cpu? as f64 / bytes,
            Self::ClientCpuPerRequest => row.client_cpu as f64 / requests,
            Self::Instructions => row.server_instructions? as f64 / requests,
            Self::InstructionsPerByte => row.server_instructions? as f64 / bytes,
            Self::Roi => statistics::roi(bytes / 1e9 / seconds, application_and_io(row)?, row.elapsed)?,
            Self::RoiRequests => statistics::roi(requests / 1e3 / seconds, application_and_io(row)?, row.elapsed)?,
            Self::Cores => application_and_io(row)? as f64 / row.elapsed as f64,
            Self::Softirq => softirq(row)? / requests,
            Self::KernelThreads => row.kernel_threads? as f64 / requests,
            Self::Switches => (row.server_switches? + row.server_preemptions?) as f64 / requests,
            Self::Memory => row.server_memory? as f64,
            Self::IdleMemory => row.idle_memory? as f64 / requests,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

impl Measured {
    /// Whether too few rounds of an open loop are left for an interval, because the client was late in the others.
    pub(crate) fn is_mostly_late(&self) -> bool {
        self.rounds.len() < CLAIM_ROUNDS && self.voids.iter().any(|row| row.rate.is_some())
    }

    /// The metric over the rounds.
    pub(crate) fn summary(&self, metric: Metric) -> Option<Summary> {
        let values: Vec<f64> = self.rounds.iter().filter_map(|row| metric.of(row)).collect();
        Summary::of(&values)
    }

    /// Median of the metric over the rounds.
    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        self.summary(metric).map(|summary| summary.median)
    }

    /// A percentile of latency over the rounds; `None` with fewer rounds than a claim needs: the percentiles of a few
    /// rounds reverse between two recordings.
    pub(crate) fn percentile(&self, quantile: f64) -> Option<Percentile> {
        let of_rounds = self.percentiles(quantile)?;
        of_rounds.interval().map(|[low, value, high]| Percentile { value, low, high })
    }

    /// A percentile of latency in each round.
    pub(crate) fn percentiles(&self, quantile: f64) -> Option<Summary> {
        let at = |row: &Row| {
            let latency = histogram::decode(&row.latency).ok().flatten().filter(|latency| !latency.is_empty())?;
            Some(latency.value_at_quantile(quantile) as f64)
        };
        Summary::of(&self.rounds.iter().filter_map(at).collect::<Vec<_>>())
    }

    /// Latencies of all rounds in one histogram.
    pub(crate) fn latency(&self) -> Option<Histogram<u64>> {
        self.merged(|row| &row.latency)
    }

    /// A column of histograms, with all rounds merged. Columns were checked when the rows were read; a malformed
    /// histogram counts as not measured.
    pub(crate) fn merged(&self, column: impl Fn(&Row) -> &String) -> Option<Histogram<u64>> {
        let each: Vec<_> = self.rounds.iter().filter_map(|row| histogram::decode(column(row)).ok().flatten()).collect();
        histogram::merge(&each).ok().flatten().filter(|all| !all.is_empty())
    }

    /// The relative difference between the means of even and of odd rounds, for the same arm; `None` with fewer than four
    /// rounds.
    pub(crate) fn difference_of_halves(&self, metric: Metric) -> Option<f64> {
        let half = |odd: u32| {
            let rows = self.rounds.iter().filter(|row| row.round % 2 == odd);
            let values: Vec<f64> = rows.filter_map(|row| metric.of(row)).collect();
            Summary::of(&values).filter(|half| half.n >= 2)
        };
        let (even, odd) = (half(0)?, half(1)?);
        Some((odd.log_mean - even.log_mean).abs().exp() - 1.0)
    }

    /// Sum of a column over the rounds.
    pub(crate) fn total(&self, column: impl Fn(&Row) -> u64) -> u64 {
        self.rounds.iter().map(column).sum()
    }

    /// Negotiated suites, each once.
    pub(crate) fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<_> =
            self.rounds.iter().map(|row| row.suite.as_str()).filter(|suite| !suite.is_empty()).collect();
        suites.sort_unstable();
        suites.dedup();
        suites
    }
}

/// A percentile: the geometric mean over the rounds, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentile {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [value, low, high] = [self.value, self.low, self.high].map(units::time);
        write!(f, "{value} ({low} to {high})")
    }
}

/// CPU of the server, of the kernel's own threads, and of softirqs on other cores than the server's, ns: "application"
/// and "I/O" over all cores in the netdev talk. Interrupts during the server's run time are part of the first.
fn application_and_io(row: &Row) -> Option<u64> {
    Some(row.server_cpu? + row.kernel_threads.unwrap_or(0) + row.softirq_elsewhere.unwrap_or(0))
}

/// Softirq time of all cores, ns.
fn softirq(row: &Row) -> Option<f64> {
    let cores: Vec<f64> = row.cores_softirq.split(';').filter_map(|core| core.parse().ok()).collect();
    (!cores.is_empty()).then(|| cores.iter().sum())
}

/// Groups rows by study in the order of the file, then by setting, calls, size, and arm in the order of [`super::arm`].
pub(crate) fn gather(rows: Vec<Row>) -> Vec<Measured> {
    let mut studies: Vec<String> = Vec::new();
    let mut all: Vec<Measured> = Vec::new();
    for row in rows {
        if !studies.contains(&row.study) {
            studies.push(row.study.clone());
        }
        let found = all
            .iter_mut()
            .find(|measured| measured.study == row.study && measured.cell == row.cell && measured.arm == row.arm);
        let measured = match found {
            Some(measured) => measured,
            None => {
                all.push(Measured {
                    study: row.study.clone(),
                    cell: row.cell.clone(),
                    arm: row.arm.clone(),
                    size: row.size,
                    calls: row.calls,
                    condition: without(&name(&row), &["size"]),
                    setting: without(&name(&row), &["size", "calls"]),
                    rounds: Vec::new(),
                    voids: Vec::new(),
                });
                all.last_mut().expect("just pushed")
            }
        };
        if row.void.is_empty() { measured.rounds.push(row) } else { measured.voids.push(row) }
    }
    all.sort_by_cached_key(|measured| {
        (
            studies.iter().position(|study| *study == measured.study),
            measured.setting.clone(),
            measured.calls.unwrap_or(u64::MAX),
            measured.size,
            super::arm::order(&measured.arm),
            measured.arm.clone(),
        )
    });
    all
}

/// Whether `auto` sent anything through the kernel. If not, it did the same as `user`.
pub(crate) fn chose_kernel<'a>(mut cells: impl Iterator<Item = &'a Measured>) -> bool {
    cells.any(|measured| measured.arm == "auto" && measured.total(|row| row.tls_tx_opened.unwrap_or(0)) > 0)
}

/// The cell's name as words of `key=value`: its own name, or a name made of the row's columns.
fn name(row: &Row) -> String {
    if row.cell.contains("size=") {
        return row.cell.clone();
    }
    let resume = if row.resume { " resume" } else { "" };
    format!("calls={} connections={}{resume}", crate::units::calls(row.calls), row.connections)
}

/// The words of a cell's name, except those with the given keys.
fn without(cell: &str, keys: &[&str]) -> String {
    let words = cell.split_whitespace();
    words.filter(|word| !keys.iter().any(|key| word.split('=').next() == Some(key))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cell: &str, arm: &str, round: u32, void: &str) -> Row {
        Row {
            study: "size-by-calls".into(),
            cell: cell.into(),
            arm: arm.into(),
            round,
            void: void.into(),
            size: 65536,
            elapsed: 2_000_000_000,
            requests: 1_000,
            body_bytes: 65_536_000,
            server_cpu: Some(77_000_000),
            ..Row::default()
        }
    }

    #[test]
    fn figures_of_a_round() {
        let row = row("size=65536 calls=10", "user", 0, "");
        assert_eq!(Metric::Requests.of(&row), Some(500.0));
        assert_eq!(Metric::Throughput.of(&row), Some(32_768_000.0));
        assert_eq!(Metric::CpuPerRequest.of(&row), Some(77_000.0));
        assert_eq!(Metric::CpuPerGigabyte.of(&row), Some(77_000_000.0 / 65_536_000.0));
        assert_eq!(Metric::Instructions.of(&row), None);
        let roi = Metric::Roi.of(&row).unwrap();
        assert!((roi - 0.032768f64.powi(2) / 0.0385).abs() < 1e-12, "{roi}");
        assert_eq!(Metric::Softirq.of(&row), None);
        let row = Row { kernel_threads: Some(23_000_000), cores_softirq: "10000000;20000000".into(), ..row };
        assert_eq!(Metric::Softirq.of(&row), Some(30_000.0));
        assert_eq!(Metric::KernelThreads.of(&row), Some(23_000.0));
        let roi = Metric::RoiRequests.of(&row).unwrap();
        assert!((roi - 0.5f64.powi(2) / 0.05).abs() < 1e-12, "the kernel's threads are part of the cost: {roi}");
        // 77 ms of the server, 23 ms of kernel threads and 100 ms of softirqs on other cores, in 2 s.
        let row = Row { softirq_elsewhere: Some(100_000_000), ..row };
        assert_eq!(Metric::Cores.of(&row), Some(0.1));
        let roi = Metric::RoiRequests.of(&row).unwrap();
        assert!((roi - 0.5f64.powi(2) / 0.1).abs() < 1e-12, "softirqs on other cores are part of the cost: {roi}");
        assert_eq!(Metric::CpuPerRequest.of(&Row { requests: 0, ..row }), None);
    }

    #[test]
    fn a_percentile_has_an_interval_or_is_none() {
        let of = |rounds: u32| {
            let rows = (0..rounds).map(|round| {
                let mut times = histogram::of_times();
                histogram::record(&mut times, std::time::Duration::from_micros(900 + 50 * u64::from(round)));
                Row { latency: histogram::encode(&times).unwrap(), ..row("size=1", "user", round, "") }
            });
            gather(rows.collect()).remove(0).percentile(0.99)
        };
        assert_eq!(of(4), None);
        let found = of(5).expect("five rounds");
        assert!(found.low < found.value && found.value < found.high && (found.value / 1e6 - 1.0).abs() < 0.02);
        assert!(found.to_string().contains(" to 1.1"), "{found}");
    }

    #[test]
    fn rounds_of_a_cell_come_together_and_void_ones_apart() {
        let all = gather(vec![
            row("size=65536 calls=10 suite=aes-128-gcm", "kernel", 0, ""),
            row("size=65536 calls=10 suite=aes-128-gcm", "user", 0, ""),
            row("size=65536 calls=10 suite=aes-128-gcm", "kernel", 1, "TlsTxSw did not rise"),
            row("size=65536 calls=10 suite=aes-128-gcm", "user", 1, ""),
        ]);
        assert_eq!(all.iter().map(|measured| measured.arm.as_str()).collect::<Vec<_>>(), ["user", "kernel"]);
        assert_eq!((all[0].rounds.len(), all[1].rounds.len(), all[1].voids.len()), (2, 1, 1));
        assert_eq!(all[0].condition, "calls=10 suite=aes-128-gcm");
        assert_eq!(all[0].setting, "suite=aes-128-gcm");
    }
}
