//! Conclusions of a run about kernel TLS, by the size of a response: a table, and a sentence that a reader can act on.

use super::cost;
use super::document::Table;
use super::figures::{Measured, Metric};
use super::study::compared::{Compared, geometric_mean, in_both, means_by_size};
use crate::units;

/// The cost of kernel TLS and of Sealion's choice by size, over all studies of a run.
pub(crate) struct Conclusion {
    /// Columns of the table: arm against arm.
    compared: Vec<Pair>,
    metric: Metric,
}

struct Pair {
    user: &'static str,
    arm: &'static str,
    /// The geometric mean of the ratios of each size.
    means: Vec<(u64, f64)>,
    /// The greatest ratio of a cell, and the cell's size.
    worst: (f64, u64),
    /// Whether every cell may be claimed.
    claimed: bool,
}

/// `None`: no kernel arm was measured beside user space.
pub(crate) fn conclude(cells: &[&Measured], instructions: bool) -> Option<Conclusion> {
    let metric = cost(instructions);
    let pair = |(user, arm): (&'static str, &'static str)| {
        let mut found: Vec<(u64, Compared)> = Vec::new();
        for study in studies(cells) {
            let of_study: Vec<&Measured> = cells.iter().filter(|measured| measured.study == study).copied().collect();
            let both = in_both(&of_study, user, arm);
            found.extend(
                both.iter().filter_map(|(base, sample)| Some((sample.size, Compared::between(base, sample, metric)?))),
            );
        }
        let worst =
            found.iter().map(|(size, compared)| (compared.ratio(), *size)).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let claimed = found.iter().all(|(_, compared)| compared.ends().is_some());
        Some(Pair { user, arm, means: means_by_size(&found), worst, claimed })
    };
    let has_kernel = cells.iter().any(|measured| measured.total(|row| row.tls_tx_opened.unwrap_or(0)) > 0);
    let compared: Vec<Pair> = PAIRS.into_iter().filter(|_| has_kernel).filter_map(pair).collect();
    (!compared.is_empty()).then_some(Conclusion { compared, metric })
}

impl Conclusion {
    /// The change of each pair by size.
    pub(crate) fn table(&self) -> Table {
        let mut sizes: Vec<u64> =
            self.compared.iter().flat_map(|pair| pair.means.iter().map(|(size, _)| *size)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut head = vec!["size".to_owned()];
        head.extend(self.compared.iter().map(|pair| format!("{} / {}", pair.arm, pair.user)));
        let row = |size: u64| {
            let change = |pair: &Pair| {
                let mean = pair.means.iter().find(|(other, _)| *other == size)?.1;
                Some(units::change(mean))
            };
            let name = std::iter::once(units::size(size as f64));
            name.chain(self.compared.iter().map(|pair| change(pair).unwrap_or_default())).collect()
        };
        let rows = sizes.into_iter().map(row).collect();
        Table { caption: String::new(), head, rows, names: 1 }
    }

    /// A sentence for each pair.
    pub(crate) fn sentences(&self) -> Vec<String> {
        self.compared.iter().map(|pair| self.sentence(pair)).collect()
    }

    /// The most useful sentence: on our own kernel path.
    pub(crate) fn verdict(&self) -> String {
        self.compared
            .iter()
            .find(|pair| pair.arm == "kernel")
            .map_or_else(|| self.sentence(&self.compared[0]), |pair| self.sentence(pair))
    }

    fn sentence(&self, pair: &Pair) -> String {
        let Pair { user, arm, means, worst, claimed } = pair;
        let what = if self.metric == Metric::Instructions { "instructions" } else { "CPU" };
        let claim = if *claimed { "" } else { " (too few rounds for a claim)" };
        if *arm == "auto" {
            let of_all = geometric_mean(means.iter().map(|(_, mean)| *mean)).unwrap_or(1.0);
            let at = units::size(worst.1 as f64);
            let worst = if worst.0 > 1.0 + EQUAL {
                format!("its worst cell is {} at {at}", units::change(worst.0))
            } else {
                "it loses in no cell".to_owned()
            };
            return format!(
                "auto changes the {what} of {user} by {} in the mean over sizes, and {worst}{claim}.",
                units::change(of_all)
            );
        }
        let dearer: Vec<&(u64, f64)> = means.iter().filter(|(_, mean)| *mean > 1.0 + EQUAL).collect();
        let cheaper: Vec<&(u64, f64)> = means.iter().filter(|(_, mean)| *mean < 1.0 - EQUAL).collect();
        let range = |found: &[&(u64, f64)]| {
            let sizes = [found[0].0, found[found.len() - 1].0].map(|size| units::size(size as f64));
            let ends = [
                found.iter().map(|(_, mean)| *mean).fold(f64::INFINITY, f64::min),
                found.iter().map(|(_, mean)| *mean).fold(0.0, f64::max),
            ];
            let [low, high] = ends.map(units::change);
            let change = if low == high { low } else { format!("{low} to {high}") };
            if sizes[0] == sizes[1] {
                format!("at {} ({change})", sizes[0])
            } else {
                format!("at {} to {} ({change})", sizes[0], sizes[1])
            }
        };
        let text = match (cheaper.is_empty(), dearer.is_empty()) {
            (true, true) => format!("{arm} and {user} take the same {what} at every size"),
            (true, false) => format!("{arm} takes more {what} than {user} {}, and nowhere less", range(&dearer)),
            (false, true) => format!("{arm} takes less {what} than {user} {}, and nowhere more", range(&cheaper)),
            (false, false) => {
                format!("{arm} takes more {what} than {user} {} and less {}", range(&dearer), range(&cheaper))
            }
        };
        format!("{text}{claim}.")
    }
}

fn studies<'a>(cells: &[&'a Measured]) -> Vec<&'a str> {
    let mut studies: Vec<&str> = Vec::new();
    for measured in cells {
        if !studies.contains(&measured.study.as_str()) {
            studies.push(&measured.study);
        }
    }
    studies
}

/// A mean within this of 1 does not matter.
const EQUAL: f64 = 0.02;

const PAIRS: [(&str, &str); 3] = [("user", "kernel"), ("user", "auto"), ("nginx", "nginx-ktls")];

#[cfg(test)]
mod tests {
    use super::super::figures::gather;
    use super::*;
    use crate::row::Row;

    fn rows(arm: &str, costs: [u64; 3]) -> Vec<Row> {
        let sizes = [1 << 10, 64 << 10, 1 << 20];
        let row = |(size, cost): (u64, u64)| Row {
            study: "netdev".into(),
            cell: format!("size={size}"),
            arm: arm.into(),
            size,
            requests: 10,
            elapsed: 1,
            server_instructions: Some(10 * cost),
            tls_tx_opened: (arm != "user").then_some(2),
            ..Row::default()
        };
        sizes.into_iter().zip(costs).map(row).collect()
    }

    fn said(kernel: [u64; 3], auto: [u64; 3]) -> (Vec<String>, Table) {
        let all = [rows("user", [100, 100, 100]), rows("kernel", kernel), rows("auto", auto)].concat();
        let cells = gather(all);
        let found = conclude(&cells.iter().collect::<Vec<_>>(), true).expect("two paths");
        (found.sentences(), found.table())
    }

    #[test]
    fn where_kernel_tls_pays_and_where_it_does_not_is_said() {
        let (said, table) = said([110, 80, 70], [100, 90, 145]);
        assert_eq!(
            said[0],
            "kernel takes more instructions than user at 1k (+10 %) and less at 64k to 1M (−30 % to −20 %)."
        );
        assert!(said[1].ends_with("and its worst cell is +45 % at 1M."), "{said:?}");
        assert_eq!(table.head, ["size", "kernel / user", "auto / user"]);
        assert_eq!(table.rows[2], ["1M", "−30 %", "+45 %"]);
    }

    #[test]
    fn a_path_that_never_wins_is_said_to() {
        assert_eq!(
            said([110, 120, 130], [100; 3]).0[0],
            "kernel takes more instructions than user at 1k to 1M (+10 % to +30 %), and nowhere less."
        );
        assert_eq!(said([100; 3], [100; 3]).0[0], "kernel and user take the same instructions at every size.");
        assert!(said([100; 3], [100; 3]).0[1].contains("it loses in no cell"));
    }

    #[test]
    fn a_run_without_kernel_tls_concludes_nothing_about_it() {
        let cells = gather([rows("user", [100; 3]), rows("nginx", [200; 3])].concat());
        let mut cells: Vec<&Measured> = cells.iter().collect();
        cells.retain(|measured| measured.arm == "user");
        assert!(conclude(&cells, true).is_none());
    }
}
