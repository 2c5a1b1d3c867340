//! `raw.csv`: each measurement is on disk before the next begins.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::{Context, Result};

use crate::row::Row;

/// The file, open for appending.
#[derive(Debug)]
pub(crate) struct Raw {
    writer: csv::Writer<File>,
}

impl Raw {
    /// Name of the file in a run's directory.
    pub(crate) const FILE: &str = "raw.csv";

    /// Opens the file and returns its rows. An incomplete row at the end is cut off.
    ///
    /// # Errors
    /// It cannot be written, or has other content.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<Row>)> {
        let path = directory.join(Self::FILE);
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = open.with_context(|| format!("cannot write {}", path.display()))?;
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).with_context(|| format!("cannot cut {}", path.display()))?;
        let rows: Result<Vec<Row>, csv::Error> = csv::Reader::from_reader(&text[..whole]).deserialize().collect();
        let rows = rows.with_context(|| format!("{} is of another version: name another --out", path.display()))?;
        let writer = csv::WriterBuilder::new().has_headers(whole == 0).from_writer(file);
        Ok((Self { writer }, rows))
    }

    /// Appends a row and waits until it is on disk.
    ///
    /// # Errors
    /// The disk is full, or gone.
    pub(crate) fn add(&mut self, row: &Row) -> Result<()> {
        self.writer.serialize(one_line(row))?;
        self.writer.flush().and_then(|()| self.writer.get_ref().sync_data()).context("cannot write raw.csv")
    }
}

/// Replaces line ends in texts, so that a row is one line.
fn one_line(row: &Row) -> Row {
    let line = |text: &str| text.replace(['\n', '\r'], " ");
    Row { void: line(&row.void), first_error: line(&row.first_error), ..row.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_an_interrupt_in_the_middle_of_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let row = |round| Row { study: "netdev".into(), round, void: "a\nb".into(), calls: Some(1), ..Row::default() };
        let (mut raw, rows) = Raw::open(directory.path()).expect("a new file");
        assert!(rows.is_empty());
        raw.add(&row(0)).expect("room");
        raw.add(&row(1)).expect("room");
        drop(raw);
        let path = directory.path().join(Raw::FILE);
        let text = std::fs::read(&path).expect("a file");
        std::fs::write(&path, &text[..text.len() - 5]).expect("a file");
        let (mut raw, rows) = Raw::open(directory.path()).expect("a cut file");
        assert_eq!(rows, [Row { void: "a b".into(), ..row(0) }]);
        raw.add(&row(1)).expect("room");
        drop(raw);
        assert_eq!(std::fs::read(&path).expect("a file"), text);
    }
}
