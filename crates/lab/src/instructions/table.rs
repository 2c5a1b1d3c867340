//! The table of counts that `sealion-lab instructions` prints.

use std::fmt::Write;

use super::floor::FLOOR;
use crate::row::Row;

/// The tables of both counts: the server's, with its distance to the floor, and the whole guest's.
pub(crate) fn tables(rows: &[Row]) -> String {
    let mut text = table(rows, per_request);
    for row in rows.iter().filter(|row| row.arm == FLOOR) {
        if let Some(distance) = distance(rows, &row.cell) {
            let _ = writeln!(text, "{}: kernel is {:.2}k above the bare sender", row.cell, distance / 1e3);
        }
    }
    if rows.iter().any(|row| all_per_request(row).is_some()) {
        let _ = writeln!(text, "everything that the guest executes, client included:");
        text += &table(rows, all_per_request);
    }
    text
}

/// Thousands of instructions per request: a row per cell, a column per arm, then ratios.
fn table(rows: &[Row], per_request: fn(&Row) -> Option<f64>) -> String {
    let mut arms: Vec<&str> = Vec::new();
    let mut cells: Vec<&str> = Vec::new();
    for row in rows {
        if !arms.contains(&row.arm.as_str()) {
            arms.push(&row.arm);
        }
        if !cells.contains(&row.cell.as_str()) {
            cells.push(&row.cell);
        }
    }
    let ratios: Vec<_> =
        RATIOS.iter().filter(|(of, to)| arms.contains(of) && to.iter().any(|arm| arms.contains(arm))).collect();
    let mut text = format!("{:<16}", "");
    for arm in &arms {
        let _ = write!(text, "{arm:>16}");
    }
    for (of, to) in &ratios {
        let _ = write!(text, "  {of}/{}", to[0]);
    }
    text.push('\n');
    for cell in cells {
        let cost = |arm: &str| rows.iter().find(|row| row.cell == cell && row.arm == arm).and_then(per_request);
        let _ = write!(text, "{cell:<16}");
        for arm in &arms {
            let is_void = rows.iter().any(|row| row.cell == cell && row.arm == *arm && !row.void.is_empty());
            match cost(arm) {
                Some(cost) => _ = write!(text, "{:>15.2}k", cost / 1e3),
                None => _ = write!(text, "{:>16}", if is_void { "void" } else { "–" }),
            }
        }
        for (of, to) in &ratios {
            let width = of.len() + to[0].len() + 3;
            let least = to.iter().filter_map(|arm| cost(arm)).reduce(f64::min);
            match cost(of).zip(least) {
                Some((of, to)) => _ = write!(text, "{:>width$.3}", of / to),
                None => _ = write!(text, "{:>width$}", "–"),
            }
        }
        text.push('\n');
    }
    text
}

/// The number of instructions per request by which the kernel path exceeds the bare sender.
pub(super) fn distance(rows: &[Row], cell: &str) -> Option<f64> {
    let of = |arm: &str| rows.iter().find(|row| row.cell == cell && row.arm == arm).and_then(per_request);
    Some(of("kernel")? - of(FLOOR)?)
}

/// Instructions of the whole guest per request; `None` for a void row, or if the client ran for a fixed time.
pub(super) fn all_per_request(row: &Row) -> Option<f64> {
    (row.void.is_empty() && row.requests > 0 && row.elapsed > 0).then(|| row.elapsed as f64 / row.requests as f64)
}

/// Instructions of the server per request; `None` for a void row.
pub(super) fn per_request(row: &Row) -> Option<f64> {
    (row.void.is_empty() && row.requests > 0).then_some(row.server_instructions? as f64 / row.requests as f64)
}

/// An arm, and the arms to whose cheapest it is compared. The first of them names the column.
const RATIOS: &[(&str, &[&str])] = &[
    ("user", &["nginx"]),
    ("user-log", &["nginx-log"]),
    ("kernel", &["nginx-ktls"]),
    ("kernel", &["user"]),
    ("auto", &["best", "user", "kernel"]),
    ("auto-observed", &["best", "user-observed", "kernel-observed"]),
];
