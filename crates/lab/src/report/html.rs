//! A report as one self-contained HTML page: no script, no external font or picture.

use std::fmt::Write;

use super::chart::escape;
use super::document::{Block, Document, Table};

pub(crate) fn page(document: &Document) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<header>\n<h1>{title}</h1>\n",
        title = escape(&document.title)
    );
    blocks(&mut page, &document.front);
    page.push_str("</header>\n");
    if document.sections.len() > 1 {
        page.push_str("<nav>");
        for (index, section) in document.sections.iter().enumerate() {
            let _ = write!(page, "<a href=\"#s{index}\">{}</a> ", escape(&section.title));
        }
        page.push_str("</nav>\n");
    }
    for (index, section) in document.sections.iter().enumerate() {
        let _ = writeln!(page, "<section id=\"s{index}\">\n<h2>{}</h2>", escape(&section.title));
        blocks(&mut page, &section.blocks);
        page.push_str("</section>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn blocks(page: &mut String, blocks: &[Block]) {
    for block in blocks {
        let _ = match block {
            Block::Heading(title) => writeln!(page, "<h3>{}</h3>", escape(title)),
            Block::Text(text) => writeln!(page, "<p>{}</p>", escape(text)),
            Block::List(items) => writeln!(page, "<ul>{}</ul>", list(items)),
            Block::Caution(items) => writeln!(page, "<ul class=\"caution\">{}</ul>", list(items)),
            Block::Facts(facts) => {
                page.push_str("<dl>");
                for (name, value) in facts {
                    let _ = write!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
                }
                writeln!(page, "</dl>")
            }
            Block::Table(found) => writeln!(page, "{}", table(found)),
            Block::Charts(charts) => {
                page.push_str("<div class=\"charts\">\n");
                for chart in charts {
                    let _ = writeln!(page, "<figure>{}</figure>", chart.svg());
                }
                writeln!(page, "</div>")
            }
            Block::Strip(strip) => writeln!(page, "<div class=\"charts\"><figure>{}</figure></div>", strip.svg()),
            Block::Ratios(ratios) => writeln!(page, "<div class=\"charts\"><figure>{}</figure></div>", ratios.svg()),
            Block::Code(code) => writeln!(page, "<pre>{}</pre>", escape(code)),
            Block::Fold(title, inner) => {
                let _ = writeln!(page, "<details><summary>{}</summary>", escape(title));
                self::blocks(page, inner);
                writeln!(page, "</details>")
            }
        };
    }
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("<li>{}</li>", escape(item))).collect()
}

fn table(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| -> String {
        let cells = cells.iter().enumerate().map(|(column, cell)| {
            let class = if column < table.names { " class=\"name\"" } else { "" };
            // On a narrow screen a row becomes a list, whose items state their columns.
            let head = table.head.get(column).filter(|head| tag == "td" && !head.is_empty() && !cell.is_empty());
            let label = head.map(|head| format!(" data-head=\"{}\"", escape(head))).unwrap_or_default();
            format!("<{tag}{class}{label}>{}</{tag}>", escape(cell))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let caption =
        if table.caption.is_empty() { String::new() } else { format!("<caption>{}</caption>", escape(&table.caption)) };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<div class=\"wide\"><table>{caption}<thead>{}</thead><tbody>\n{rows}</tbody></table></div>",
        row(&table.head, "th")
    )
}

/// The colours of text and background follow the reader's choice of light or dark; lines keep theirs, which are visible
/// on both.
const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fff; --text: #1a1a1a; --quiet: #5c5c5c; --rule: #dcdcdc; --box: #f6f6f4;
  --caution: #fff4dc; --caution-edge: #d99a1c; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181b; --text: #e8e8e6; --quiet: #a9a9a5; --rule: #3a3d42;
  --box: #1f2226; --caution: #33290f; --caution-edge: #c78f22; } }
body { background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, 'DejaVu Sans', sans-serif;
  max-width: 1360px; margin: 0 auto; padding: 20px 28px 60px; }
h1 { font-size: 21px; margin: 0 0 10px; line-height: 1.25; }
h2 { font-size: 20px; margin: 44px 0 8px; padding-top: 10px; border-top: 2px solid var(--rule); }
h3 { font-size: 16px; margin: 26px 0 6px; }
p { margin: 8px 0; max-width: 90ch; }
ul { margin: 8px 0; padding-left: 20px; } li { margin: 3px 0; max-width: 110ch; }
header > ul:not(.caution) { columns: 2 520px; column-gap: 40px; } header > ul > li { break-inside: avoid; }
.caution { list-style: none; background: var(--caution); border-left: 4px solid var(--caution-edge);
  padding: 8px 14px; margin: 12px 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 6px 24px; margin: 12px 0;
  background: var(--box); padding: 12px 14px; }
dt { color: var(--quiet); font-size: 12px; } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--box); padding: 10px 14px; font: 12.5px/1.5 ui-monospace, 'DejaVu Sans Mono', monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: 8px 0; }
nav { margin: 14px 0; } nav a { color: inherit; margin-right: 14px; }
.wide { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: 4px; }
th, td { text-align: right; padding: 3px 10px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 600; border-bottom-width: 2px; } .name { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(560px, 100%), 1fr)); gap: 18px 26px;
  margin: 14px 0; }
figure { margin: 0; break-inside: avoid; } svg.chart { width: 100%; height: auto; display: block; color: var(--text); }
svg text { fill: var(--text); stroke: none; font-family: system-ui, 'DejaVu Sans', sans-serif; }
svg .title { font-weight: 600; } svg .quiet, svg .tick { fill: var(--quiet); }
svg .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--rule); stroke-width: 1; } svg .axis { stroke: var(--quiet); stroke-width: 1; }
svg .level { stroke: var(--quiet); stroke-width: 1.2; stroke-dasharray: 3 3; }
summary { cursor: pointer; margin: 10px 0 4px; font-weight: 600; }
@media screen and (max-width: 640px) { body { padding: 12px; }
  table, tbody, tr, td { display: block; } thead { display: none; } tr { border-bottom: 2px solid var(--rule); padding: 6px 0; }
  td { border: none; text-align: left; white-space: normal; padding: 1px 0; overflow-wrap: anywhere; } td:empty { display: none; }
  td[data-head]::before { content: attr(data-head) \": \"; color: var(--quiet); } td.name { font-weight: 600; } }
@media print { body { max-width: none; padding: 0; font-size: 11px; } .wide { overflow: visible; }
  .charts { grid-template-columns: 1fr 1fr; } h2, h3 { break-after: avoid; } th, td { white-space: normal; padding: 2px 5px; } }
";
