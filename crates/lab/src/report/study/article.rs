//! nginx-article: ministat's tables.

use super::super::arm;
use super::super::chart::{Point, Ratio, Ratios, Strip};
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::compared::{Compared, changes};
use super::{Beside, PEERS, conditions, cost, of_arm, of_condition, pairs, said, sizes};
use crate::statistics::{Difference, Summary};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let (metric, name, format): (_, _, fn(f64) -> String) = if instructions {
        (cost(true), "instructions per request", units::count)
    } else {
        (Metric::Throughput, "throughput", units::rate)
    };
    let (mut blocks, mut findings) = (Vec::new(), Vec::new());
    let mut verdicts = Table::new(
        &format!(
            "Difference in {name} beside the published one: times at 95 % confidence by Welch's test on logarithms, counts with \
             the spread of rounds"
        ),
        2,
        &["where", "compared", "verdict", "Student, pooled (ministat)", "N"],
    );
    for condition in conditions(cells) {
        for size in sizes(&of_condition(cells, &condition)) {
            let chosen: Vec<&Measured> =
                of_condition(cells, &condition).into_iter().filter(|measured| measured.size == size).collect();
            let caption = format!("{}, {}, {name}", units::size(size as f64), said(&chosen));
            blocks.push(Block::Table(ministat(&caption, &chosen, metric, format)));
            if chosen.iter().any(|measured| !measured.rounds.is_empty()) {
                blocks.push(Block::Strip(strip(&chosen, metric, name, format)));
            }
            blocks.extend(gains(&chosen, metric).map(Block::Table));
            let peers = PEERS.into_iter().map(|(ours, peer)| (peer, ours));
            for (user, kernel) in pairs(&chosen).into_iter().chain(peers) {
                let (Some(base), Some(sample)) = (of_arm(&chosen, user), of_arm(&chosen, kernel)) else { continue };
                let Some(found) = Compared::between(base, sample, metric) else { continue };
                let student = base.summary(metric).zip(sample.summary(metric));
                let student = student.and_then(|(base, sample)| Difference::between(&base, &sample));
                let student = student.filter(|_| !metric.is_count());
                findings.push(format!("{name} of {kernel} against {user}, {}: {found}", units::size(size as f64)));
                verdicts.rows.push(vec![
                    "here".into(),
                    format!("{kernel} against {user}"),
                    found.to_string(),
                    student.map(|found| found.student.to_string()).unwrap_or_default(),
                    format!("{} and {}", base.rounds.len(), sample.rounds.len()),
                ]);
            }
        }
    }
    let published = published::NGINX_ARTICLE;
    if !findings.is_empty() {
        let each = published.map(|gain| format!("{:+.1} % ± {:.1} % on {}", gain.percent, gain.welch, gain.system));
        findings
            .push(format!("by the rows published in 2021 for nginx-ktls against nginx: {} (Welch)", each.join(", ")));
    }
    for gain in published {
        verdicts.rows.push(vec![
            "published 2021".into(),
            format!("nginx-ktls against nginx, {}", gain.system),
            format!("{:+.1} % ± {:.1} %", gain.percent, gain.welch),
            format!("{:+.1} % ± {:.1} %", gain.percent, gain.student),
            "10 and 10".into(),
        ]);
    }
    blocks.insert(0, Block::Table(verdicts));
    blocks.extend(gain_over_size(cells, instructions).map(Block::Ratios));
    (blocks, findings)
}

fn strip(cells: &[&Measured], metric: Metric, name: &str, format: fn(f64) -> String) -> Strip {
    let values = |measured: &Measured| measured.rounds.iter().filter_map(|row| metric.of(row)).collect();
    Strip {
        title: format!("{}, all rounds", if metric == Metric::Throughput { "Throughput" } else { "Instructions" }),
        x_title: name.to_owned(),
        x_format: format,
        samples: cells
            .iter()
            .map(|measured| (measured.arm.clone(), arm::style(&measured.arm), values(measured)))
            .collect(),
    }
}

/// The change by kernel TLS on each server, by size, beside the published gains; `None` without two arms of one server.
/// Instructions have no published change.
pub(super) fn gain_over_size(cells: &[&Measured], instructions: bool) -> Option<Ratios> {
    let metric = if instructions { cost(true) } else { Metric::Throughput };
    let mut groups = Vec::new();
    for condition in conditions(cells) {
        let of_condition = of_condition(cells, &condition);
        for size in sizes(&of_condition) {
            let chosen: Vec<&Measured> =
                of_condition.iter().filter(|measured| measured.size == size).copied().collect();
            let rows = pairs(&chosen).into_iter().filter_map(|(user, kernel)| {
                let found = Compared::between(of_arm(&chosen, user)?, of_arm(&chosen, kernel)?, metric)?;
                Some(found.row(format!("{kernel} / {user}"), arm::style(kernel)))
            });
            groups.push((format!("{}, {}", units::body(size as f64), said(&chosen)), rows.collect::<Vec<_>>()));
        }
    }
    if groups.iter().all(|(_, rows)| rows.is_empty()) {
        return None;
    }
    if !instructions {
        let rows = published::NGINX_ARTICLE.map(|gain| {
            let [y, low, high] = [0.0, -gain.welch, gain.welch].map(|error| 1.0 + (gain.percent + error) / 100.0);
            let name = format!("nginx-ktls / nginx, {}", gain.system);
            Ratio { name, style: arm::style("nginx-ktls"), point: Point { x: 0.0, y, low, high } }
        });
        groups.push(("1 GB, published 2021".to_owned(), rows.into()));
    }
    let (title, better) = if instructions {
        ("Instructions per request, kernel TLS to user space", "below 1: kernel cheaper; bars: the spread of counts")
    } else {
        ("Throughput, kernel TLS to user space", "above 1: kernel faster; bars: 95 %, none below 5 rounds")
    };
    Some(Ratios { title: title.to_owned(), subtitle: better.to_owned(), x_title: "ratio".to_owned(), groups })
}

/// The published gains beside a run's.
pub(super) fn beside(cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    let metric = if instructions { cost(true) } else { Metric::Throughput };
    let here = changes(cells, metric);
    if here.is_empty() {
        return Vec::new();
    }
    let published =
        published::NGINX_ARTICLE.map(|gain| format!("{:+.1} % ± {:.1} % on {}", gain.percent, gain.welch, gain.system));
    vec![Beside { name: "1 GB, nginx-ktls against nginx".into(), published: published.join(", "), here }]
}

/// The gain of kernel TLS in each figure of the article's tables; `None` without two arms of one server.
fn gains(cells: &[&Measured], metric: Metric) -> Option<Table> {
    let caption = "Gain in each figure that the article prints; minimum and maximum are single runs";
    let mut table = Table::new(caption, 1, &["compared", "min", "max", "median", "average"]);
    for (user, kernel) in pairs(cells) {
        let summary = |arm: &str| of_arm(cells, arm)?.summary(metric);
        let Some((base, sample)) = summary(user).zip(summary(kernel)) else { continue };
        let figures = |summary: &Summary| [summary.min, summary.max, summary.median, summary.mean];
        let mut row = vec![format!("{kernel} against {user}")];
        row.extend(figures(&base).iter().zip(figures(&sample)).map(|(base, sample)| units::change(sample / base)));
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The table as printed by ministat.
fn ministat(caption: &str, cells: &[&Measured], metric: Metric, format: fn(f64) -> String) -> Table {
    let mut table =
        Table::new(caption, 1, &["arm", "N", "min", "max", "median", "mean", "standard deviation", "void runs"]);
    for measured in cells {
        let mut row = vec![measured.arm.clone(), measured.rounds.len().to_string()];
        match measured.summary(metric) {
            Some(Summary { min, max, median, mean, deviation, .. }) => {
                row.extend([min, max, median, mean, deviation].map(format));
            }
            None => row.extend(["–"; 5].map(str::to_owned)),
        }
        row.push(measured.voids.len().to_string());
        table.rows.push(row);
    }
    table
}
