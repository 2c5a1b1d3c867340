//! The counterpart of each directive, for the converter's messages and the table in docs/migrate-from-nginx.md: directives.txt has a line for each.
//!
//! - `NAMES | converted | KEYS | NOTE`: they become these keys.
//! - `NAMES | not needed | WHY`: the same happens without a key.
//! - `NAMES | minor | REMEDY`: no counterpart, and no response depends on it.
//! - `NAMES | guard WORD | REMEDY`: with another argument than this, what they refuse is answered.
//! - `NAMES | none | REMEDY`: no counterpart.

/// How a directive is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    /// Converted to these keys, with spaces between them.
    Converted(&'static str),
    /// No counterpart needed, and why.
    NotNeeded(&'static str),
    /// No counterpart, and no response depends on it; with the remedy.
    Minor(&'static str),
    /// No counterpart for any argument but the first text, and something is no longer refused; with the remedy.
    Guard(&'static str, &'static str),
    /// No counterpart; with the remedy.
    Unsupported(&'static str),
}

use Handling::{Converted, Guard, Minor, NotNeeded, Unsupported};

/// The lines: names, how they are handled, and a note on the conversion.
fn lines() -> impl Iterator<Item = (&'static str, Handling, &'static str)> {
    include_str!("directives.txt").lines().filter_map(|line| {
        let mut parts = line.splitn(4, " | ");
        let (names, kind) = (parts.next()?, parts.next()?);
        let (text, note) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let handling = match kind {
            "converted" => Converted(text),
            "not needed" => NotNeeded(text),
            "minor" => Minor(text),
            guard if guard.starts_with("guard ") => Guard(&guard["guard ".len()..], text),
            _ => Unsupported(text),
        };
        Some((names, handling, note))
    })
}

/// How a directive is handled; `None`: it is unknown, for instance from a third-party module.
pub(super) fn handling(name: &str) -> Option<Handling> {
    lines().find(|(names, ..)| names.split(' ').any(|known| known == name)).map(|(_, handling, _)| handling)
}

/// Whether a directive becomes keys, or needs none.
pub(super) fn is_converted(name: &str) -> bool {
    matches!(handling(name), Some(Converted(_) | NotNeeded(_)))
}

/// The table of docs/migrate-from-nginx.md.
pub fn markdown() -> String {
    let mut table = String::from("| nginx | Sealion | |\n|---|---|---|\n");
    let marked = |words: &str| words.split(' ').map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    for (names, handling, note) in lines() {
        let (ours, more) = match handling {
            Converted(keys) => (marked(keys), note),
            NotNeeded(why) => ("not needed".to_owned(), why),
            Minor(remedy) => ("none".to_owned(), remedy),
            Guard(harmless, remedy) => (format!("none but for `{harmless}`"), remedy),
            Unsupported(remedy) => ("**none**".to_owned(), remedy),
        };
        table.push_str(&format!("| {} | {ours} | {} |\n", marked(names), more.replace('|', "\\|")));
    }
    table
}

/// The keys of sealion.toml that directives convert to, for instance `site.root`.
pub fn counterparts() -> impl Iterator<Item = &'static str> {
    lines()
        .filter_map(|(_, handling, _)| if let Converted(keys) = handling { Some(keys) } else { None })
        .flat_map(|keys| keys.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        for name in lines().flat_map(|(names, ..)| names.split(' ')) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
        assert_eq!(lines().count(), include_str!("directives.txt").lines().count());
    }

    #[test]
    fn the_migration_page_has_the_table() {
        let page = include_str!("../../../docs/migrate-from-nginx.md");
        let table = markdown();
        assert!(page.contains(&table), "put this into docs/migrate-from-nginx.md:\n{table}");
    }
}
