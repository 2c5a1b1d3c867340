//! A report as Markdown.

use std::fmt::Write;

use super::document::{Block, Document, Table};

pub(crate) fn document(document: &Document) -> String {
    let mut text = format!("# {}\n\n", document.title);
    blocks(&mut text, &document.front);
    for section in &document.sections {
        let _ = write!(text, "## {}\n\n", section.title);
        blocks(&mut text, &section.blocks);
    }
    format!("{}\n", text.trim_end())
}

/// A table. Cells are not padded, so that a changed number changes one line.
pub(crate) fn table(table: &Table) -> String {
    let line = |cells: &[String]| -> String {
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> =
        (0..table.head.len()).map(|column| if column < table.names { "---" } else { "---:" }.to_owned()).collect();
    let mut text = line(&table.head) + &line(&rule);
    for row in &table.rows {
        text += &line(row);
    }
    text
}

fn blocks(text: &mut String, blocks: &[Block]) {
    for block in blocks {
        let _ = match block {
            Block::Heading(title) => write!(text, "### {title}\n\n"),
            Block::Text(paragraph) => write!(text, "{paragraph}\n\n"),
            Block::List(items) | Block::Caution(items) => {
                for item in items {
                    let _ = writeln!(text, "- {item}");
                }
                text.write_char('\n')
            }
            Block::Facts(facts) => {
                for (name, value) in facts {
                    let _ = writeln!(text, "- {name}: {value}");
                }
                text.write_char('\n')
            }
            Block::Table(found) => {
                let caption = if found.caption.is_empty() { String::new() } else { format!("{}\n\n", found.caption) };
                writeln!(text, "{caption}{}", table(found))
            }
            Block::Charts(charts) if charts.is_empty() => Ok(()),
            Block::Charts(charts) => {
                let titles: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
                write!(text, "Plots, in report.html: {}.\n\n", titles.join("; "))
            }
            Block::Strip(strip) => write!(text, "Plot, in report.html: {}.\n\n", strip.title),
            Block::Ratios(ratios) => write!(text, "Plot, in report.html: {}.\n\n", ratios.title),
            Block::Code(code) => write!(text, "```text\n{code}\n```\n\n"),
            Block::Fold(title, inner) => {
                let _ = write!(text, "### {title}\n\n");
                self::blocks(text, inner);
                Ok(())
            }
        };
    }
}
