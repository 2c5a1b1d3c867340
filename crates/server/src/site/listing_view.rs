//! The order, search and page of a listing, read from the query of a request.

use std::cmp::Ordering;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use regex::{Regex, RegexBuilder};

/// The part of a directory that a listing shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub order: Order,
    /// Names to show; empty: all.
    pub search: String,
    /// The page, counted from 0.
    pub page: usize,
}

/// The order of a listing. Directories always come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Order {
    pub by: Column,
    /// Whether the largest, newest or alphabetically last entry comes first.
    pub descending: bool,
}

/// The column to sort by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Column {
    #[default]
    Name,
    Size,
    Modified,
}

impl View {
    /// Parses a query such as `q=*.iso&sort=size&order=desc&page=2`. Parameters that are unknown or malformed are ignored.
    pub(super) fn from_query(query: Option<&str>) -> Self {
        let mut view = View::default();
        for (name, value) in parameters(query) {
            match (name, value) {
                ("sort", "name") => view.order.by = Column::Name,
                ("sort", "size") => view.order.by = Column::Size,
                ("sort", "modified") => view.order.by = Column::Modified,
                ("order", "asc") => view.order.descending = false,
                ("order", "desc") => view.order.descending = true,
                ("page", number) => view.page = number.parse::<usize>().unwrap_or(1).saturating_sub(1),
                ("q", text) => view.search = decode(text),
                _ => {}
            }
        }
        view
    }

    /// The query of this view, with its question mark.
    pub(super) fn query(&self) -> String {
        let mut query = String::new();
        let mut add = |name: &str, value: &str| {
            query.push(if query.is_empty() { '?' } else { '&' });
            query.extend([name, "=", value]);
        };
        if !self.search.is_empty() {
            add("q", &utf8_percent_encode(&self.search, OUTSIDE_UNRESERVED).to_string());
        }
        add("sort", self.order.by.name());
        add("order", self.order.direction());
        if self.page > 0 {
            add("page", &(self.page + 1).to_string());
        }
        query
    }
}

impl Order {
    /// The word for the direction in a query.
    pub(super) fn direction(self) -> &'static str {
        if self.descending { "desc" } else { "asc" }
    }

    /// The order of two values of the column.
    pub(super) fn apply(self, ascending: Ordering) -> Ordering {
        if self.descending { ascending.reverse() } else { ascending }
    }
}

impl Column {
    /// The word for the column in a query.
    pub(super) fn name(self) -> &'static str {
        match self {
            Column::Name => "name",
            Column::Size => "size",
            Column::Modified => "modified",
        }
    }
}

/// The value of the last parameter `name` of a query, decoded.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    parameters(query).filter(|(other, _)| *other == name).last().map(|(_, value)| decode(value))
}

fn parameters(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='))
}

/// Decodes the value of a form's field (application/x-www-form-urlencoded).
fn decode(value: &str) -> String {
    percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Selects names by a search text: a part of the name, or a pattern with `*` and `?` for the whole name, in any case.
#[derive(Debug)]
pub(super) enum Search {
    Every,
    Matching(Regex),
    /// The text is longer than [`LONGEST_SEARCH`].
    Nothing,
}

impl Search {
    pub(super) fn new(text: &str) -> Self {
        if text.is_empty() {
            return Search::Every;
        }
        if text.chars().count() > LONGEST_SEARCH {
            return Search::Nothing;
        }
        // An expression takes time in proportion to the names, which backtracking does not.
        let expression = match text.contains(['*', '?']) {
            true => format!("^{}$", regex::escape(text).replace("\\*", ".*").replace("\\?", ".")),
            false => regex::escape(text),
        };
        match RegexBuilder::new(&expression).case_insensitive(true).dot_matches_new_line(true).build() {
            Ok(expression) => Search::Matching(expression),
            Err(_) => Search::Nothing,
        }
    }

    /// Whether the name is selected. Bytes that are not UTF-8 count as a character each.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Search::Every => true,
            Search::Matching(expression) => expression.is_match(&String::from_utf8_lossy(name)),
            Search::Nothing => false,
        }
    }
}

/// The bytes to percent-encode in links: all but unreserved (RFC 3986 §2.3).
pub(super) const OUTSIDE_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters of a search text. It bounds the work for each name.
const LONGEST_SEARCH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_written() {
        for (query, expected) in [
            ("", "?sort=name&order=asc"),
            ("sort=size&order=desc", "?sort=size&order=desc"),
            ("page=0", "?sort=name&order=asc"),
            ("page=1", "?sort=name&order=asc"),
            ("page=3&sort=modified", "?sort=modified&order=asc&page=3"),
            ("page=-1&sort=x&order=y&z", "?sort=name&order=asc"),
            ("q=a+b%26%C3%BC&page=2", "?q=a%20b%26%C3%BC&sort=name&order=asc&page=2"),
            ("page=18446744073709551616", "?sort=name&order=asc"),
        ] {
            let view = View::from_query(Some(query));
            assert_eq!(view.query(), expected, "{query}");
            assert_eq!(View::from_query(Some(&expected[1..])), view, "{query}");
        }
        assert_eq!(View::from_query(None), View::default());
        assert_eq!(parameter(Some("archive=tar.zst&x"), "archive").as_deref(), Some("tar.zst"));
        assert_eq!(parameter(Some("archives=tar&archive"), "archive"), None);
    }

    #[test]
    fn names_are_found_by_a_part_or_a_pattern() {
        for (text, name, expected) in [
            ("", "anything", true),
            ("ISO", "debian-12.iso", true),
            ("deb*.iso", "debian-12.iso", true),
            ("*.iso", "debian-12.iso.sha256", false),
            ("debian-1?.iso", "debian-12.iso", true),
            ("?", "ü", true),
            ("?", "üü", false),
            ("[a]", "x[a]y", true),
            ("[a]", "a", false),
            (".", "a", false),
            ("(", "a(b", true),
            ("ÜB", "über", true),
            ("*\\*", "a\\b", true),
        ] {
            assert_eq!(Search::new(text).matches(name.as_bytes()), expected, "{text} {name}");
        }
        assert!(Search::new("a?b").matches(b"a\xffb"));
        let long = "a".repeat(LONGEST_SEARCH + 1);
        assert!(!Search::new(&long).matches(long.as_bytes()));
        assert!(Search::new(&long[1..]).matches(long.as_bytes()));
    }
}
