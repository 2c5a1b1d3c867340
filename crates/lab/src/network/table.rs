//! The table that `sealion-lab network` prints.

use std::fmt::Write;

use super::inside::Row;

/// A row per path, page and visit; per arm the first byte, median and 99th percentile, then the last byte, in ms.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut arms: Vec<&str> = Vec::new();
    let mut cells: Vec<[&str; 3]> = Vec::new();
    for row in rows {
        let cell = [row.path.as_str(), row.page.as_str(), row.visit.as_str()];
        if !arms.contains(&row.arm.as_str()) {
            arms.push(&row.arm);
        }
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    let mut text = String::new();
    for (byte, times) in TIMES {
        let _ = write!(text, "\n{:<42}", format!("{byte} byte, ms: p50 / p99"));
        for arm in &arms {
            let _ = write!(text, "{arm:>20}");
        }
        text.push('\n');
        for cell in &cells {
            let _ = write!(text, "{:<28} {:<6} {:<6}", cell[0], cell[1], cell[2]);
            for arm in &arms {
                let is_cell = |row: &&Row| [&row.path, &row.page, &row.visit] == *cell && row.arm == *arm;
                let shown = rows.iter().find(is_cell).map(times);
                let shown = shown.map_or("–".to_owned(), |[p50, p99]| format!("{p50:.1} / {p99:.1}"));
                let _ = write!(text, "{shown:>20}");
            }
            text.push('\n');
        }
    }
    text
}

/// Median and 99th percentile of a row.
type OfRow = fn(&Row) -> [f64; 2];

const TIMES: [(&str, OfRow); 2] =
    [("first", |row| [row.first_p50, row.first_p99]), ("last", |row| [row.last_p50, row.last_p99])];
