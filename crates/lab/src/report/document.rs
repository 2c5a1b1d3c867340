//! A report's content, independent of its format.

use super::chart::{Chart, Ratios, Strip};

/// A report, before it becomes HTML or Markdown.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Study, machine and date.
    pub title: String,
    /// The first screen: findings, machine, limits.
    pub front: Vec<Block>,
    /// A section for each study.
    pub sections: Vec<Section>,
}

impl Document {
    /// Titles and SVG elements of all drawings, in their order.
    pub(crate) fn drawings(&self) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        drawings(&self.front, &mut found);
        self.sections.iter().for_each(|section| drawings(&section.blocks, &mut found));
        found
    }
}

fn drawings<'a>(blocks: &'a [Block], found: &mut Vec<(&'a str, String)>) {
    for block in blocks {
        match block {
            Block::Charts(charts) => found.extend(charts.iter().map(|chart| (chart.title.as_str(), chart.svg()))),
            Block::Strip(strip) => found.push((&strip.title, strip.svg())),
            Block::Ratios(ratios) => found.push((&ratios.title, ratios.svg())),
            Block::Fold(_, inner) => drawings(inner, found),
            _ => (),
        }
    }
}

/// A heading and the blocks below it.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A piece of a report.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    /// A heading below the section's heading.
    Heading(String),
    /// A paragraph of plain text.
    Text(String),
    /// Statements, one per line.
    List(Vec<String>),
    /// Warnings that qualify the figures.
    Caution(Vec<String>),
    /// Names with their descriptions.
    Facts(Vec<(String, String)>),
    /// A table of figures.
    Table(Table),
    /// Charts side by side; left out of text files.
    Charts(Vec<Chart>),
    /// Every value of a few samples; left out of text files.
    Strip(Strip),
    /// Ratios with their intervals; left out of text files, whose tables have them.
    Ratios(Ratios),
    /// Lines as typed.
    Code(String),
    /// Details, collapsed if the format supports it.
    Fold(String, Vec<Block>),
}

/// A table of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The caption, above the table.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
    /// The number of columns from the left that contain names, not numbers.
    pub names: usize,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(caption: &str, names: usize, head: &[&str]) -> Self {
        Self {
            caption: caption.to_owned(),
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            names,
        }
    }

    /// The table without empty columns, except columns of names.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let keep: Vec<bool> = (0..self.head.len())
            .map(|column| column < self.names || self.rows.iter().any(|row| !row[column].is_empty()))
            .collect();
        for row in std::iter::once(&mut self.head).chain(&mut self.rows) {
            let mut kept = keep.iter();
            row.retain(|_| kept.next().copied().unwrap_or(true));
        }
        self
    }
}
