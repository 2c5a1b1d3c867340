//! Closes the parts of a conversion that the server refuses, so that the rest starts.

use toml::Value;

use super::report::{Loss, Unconverted};
use super::toml_text::Table;
use super::{Conversion, Place};

/// An error of the server about the converted text.
#[derive(Debug, Clone)]
pub struct Refused<'a> {
    /// Line of the text, from 1.
    pub line: usize,
    /// The key, for instance `site.route.proxy.host`.
    pub key: &'a str,
    /// The fault and its remedy.
    pub what: &'a str,
}

/// Keys that choose a route: a closed route keeps them.
const CHOSEN_BY: [&str; 5] = ["path", "name", "match", "internal", "once"];

/// Settings of a site without which its responses differ, and nothing is opened.
const LEFT_OUT: [&str; 9] = [
    "headers",
    "hsts",
    "cache_control",
    "forwarded_cache_control",
    "compress",
    "media_types",
    "index",
    "log",
    "error_pages",
];

/// The same of a route, which has the site's instead.
const LEFT_OUT_OF_ROUTE: [&str; 5] = ["hsts", "cache_control", "forwarded_cache_control", "compress", "media_types"];

impl Conversion {
    /// Closes the route that an error is about, or leaves out the setting of its site. `false`: the error stays, as it is about neither, or about a file that
    /// may be there where the server starts.
    pub fn close(&mut self, refused: &Refused<'_>) -> bool {
        let text = self.text();
        let Some(number) = number_of_list(&text, refused.line) else { return false };
        if refused.what.contains("No such file") || refused.what.contains("no such file") {
            return false;
        }
        let key = refused.key.strip_prefix("site.route.").unwrap_or(refused.key.trim_start_matches("site."));
        let key = key.split('.').next().unwrap_or_default();
        let mut count = 0;
        let mut site = None;
        let Some(table) = nth(&mut self.root, "", number, &mut count, &mut site) else { return false };
        let is_site = !refused.key.starts_with("site.route");
        let place = table.place().and_then(|text| text.rsplit_once(':')).map(|(file, line)| Place {
            file: std::path::Path::new(file).into(),
            line: line.parse().unwrap_or_default(),
        });
        let loss = match () {
            () if is_site && LEFT_OUT.contains(&key) || !is_site && LEFT_OUT_OF_ROUTE.contains(&key) => {
                table.remove(key);
                Loss::Part
            }
            () if is_site || CHOSEN_BY.contains(&key) => return false,
            () => {
                table.keep(&CHOSEN_BY);
                table.set("respond", Value::from(501));
                Loss::Closed
            }
        };
        self.unconverted.push(Unconverted {
            place: place
                .unwrap_or_else(|| Place { file: std::path::Path::new("sealion.toml").into(), line: refused.line }),
            directive: refused.key.to_owned(),
            remedy: refused.what.to_owned(),
            loss,
            site: site.and_then(|site| self.names.get(site).cloned()),
        });
        self.unconverted.sort_by(|one, other| one.place.cmp(&other.place));
        self.unconverted.dedup();
        self.summarize();
        true
    }
}

/// The number of the list table `[[site…]]` that a line is about, among all in their order.
fn number_of_list(text: &str, line: usize) -> Option<usize> {
    let lists: Vec<&str> = text.lines().take(line).filter(|line| line.starts_with("[[site")).collect();
    let header = text.lines().take(line).filter(|line| line.starts_with('[')).last()?;
    let mut name = header.trim_matches(['[', ']']);
    if !name.starts_with("site") {
        return None;
    }
    loop {
        let wanted = format!("[[{name}]]");
        if let Some(number) = lists.iter().rposition(|list| *list == wanted) {
            return Some(number);
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// The list table with a number. `site`: gets the number of its site.
fn nth<'t>(
    table: &'t mut Table,
    within: &str,
    number: usize,
    count: &mut usize,
    site: &mut Option<usize>,
) -> Option<&'t mut Table> {
    let name = if within.is_empty() { "site" } else { "route" };
    for inner in table.list_mut(name) {
        if within.is_empty() {
            *site = Some(site.map_or(0, |site| site + 1));
        }
        if *count == number {
            return Some(inner);
        }
        *count += 1;
        if let Some(found) = nth(inner, name, number, count, site) {
            return Some(found);
        }
    }
    None
}
