//! Writes a TOML file with comments, which serializers do not support.

use std::fmt::{self, Display, Write};

use toml::Value;

/// A table; keys keep their order of insertion.
#[derive(Debug, Default, Clone)]
pub(super) struct Table {
    comments: Vec<String>,
    values: Vec<(String, Value)>,
    tables: Vec<(String, Many, Table)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Many {
    /// `[name]`
    One,
    /// `[[name]]`
    List,
}

impl Table {
    /// Adds a comment line above the table.
    pub(super) fn comment(&mut self, line: impl Display) {
        self.comments.push(line.to_string());
    }

    /// Sets a key, replacing an earlier value.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.values.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key.to_owned(), value)),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(key, _)| key.as_str())
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The subtable `[name]`, created if missing.
    pub(super) fn table(&mut self, name: &str) -> &mut Table {
        let at = self.tables.iter().position(|(existing, many, _)| existing == name && *many == Many::One);
        let at = at.unwrap_or_else(|| {
            self.tables.push((name.to_owned(), Many::One, Table::default()));
            self.tables.len() - 1
        });
        &mut self.tables[at].2
    }

    /// The subtable `[name]`, if there is one.
    pub(super) fn table_if(&self, name: &str) -> Option<&Table> {
        let is_it = |(existing, many, _): &&(String, Many, Table)| existing == name && *many == Many::One;
        self.tables.iter().find(is_it).map(|(.., table)| table)
    }

    /// Removes a key or the subtable `[name]`. `false`: there was none.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let before = self.tables.len() + self.values.len();
        self.tables.retain(|(existing, many, _)| existing != name || *many != Many::One);
        self.values.retain(|(key, _)| key != name);
        self.tables.len() + self.values.len() < before
    }

    /// Leaves out everything but some keys.
    pub(super) fn keep(&mut self, keys: &[&str]) {
        self.values.retain(|(key, _)| keys.contains(&key.as_str()));
        self.tables.retain(|(name, many, _)| *many == Many::One && keys.contains(&name.as_str()));
    }

    /// The first comment, which says where the table comes from.
    pub(super) fn place(&self) -> Option<&str> {
        self.comments.first().map(|comment| comment.split(", ").next().unwrap_or(comment))
    }

    /// Takes over everything of another table.
    pub(super) fn append(&mut self, other: Table) {
        self.comments.extend(other.comments);
        other.values.into_iter().for_each(|(key, value)| self.set(&key, value));
        self.tables.extend(other.tables);
    }

    /// All its `[[name]]`.
    pub(super) fn into_list(self, name: &str) -> Vec<Table> {
        self.tables
            .into_iter()
            .filter(|(own, many, _)| own == name && *many == Many::List)
            .map(|(.., table)| table)
            .collect()
    }

    /// All `[[name]]`, to change them.
    pub(super) fn list_mut<'a>(&'a mut self, name: &'a str) -> impl Iterator<Item = &'a mut Table> {
        self.tables
            .iter_mut()
            .filter(move |(existing, many, _)| existing == name && *many == Many::List)
            .map(|(.., table)| table)
    }

    /// Takes over the tables of another one, and returns its keys and values, in order.
    pub(super) fn append_tables(&mut self, other: Table) -> Vec<(String, Value)> {
        self.tables.extend(other.tables);
        other.values
    }

    /// Takes all `[[name]]` away.
    pub(super) fn take_list(&mut self, name: &str) -> Vec<Table> {
        let is_it = |(own, many, _): &mut (String, Many, Table)| own == name && *many == Many::List;
        self.tables.extract_if(.., is_it).map(|(.., table)| table).collect()
    }

    /// Appends a `[[name]]`.
    pub(super) fn push(&mut self, name: &str, table: Table) {
        self.tables.push((name.to_owned(), Many::List, table));
    }

    /// All `[[name]]`.
    pub(super) fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Table> {
        self.tables
            .iter()
            .filter(move |(existing, many, _)| existing == name && *many == Many::List)
            .map(|(.., table)| table)
    }

    fn write(&self, path: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.values {
            writeln!(f, "{} = {value}", bare_or_quoted(key))?;
        }
        for (name, many, table) in &self.tables {
            let path = if path.is_empty() { bare_or_quoted(name) } else { format!("{path}.{}", bare_or_quoted(name)) };
            f.write_char('\n')?;
            for comment in &table.comments {
                writeln!(f, "# {}", comment.replace('\n', " "))?;
            }
            let inner_only = table.values.is_empty() && *many == Many::One && !table.tables.is_empty();
            match many {
                _ if inner_only => {}
                Many::One => writeln!(f, "[{path}]")?,
                Many::List => writeln!(f, "[[{path}]]")?,
            }
            table.write(&path, f)?;
        }
        Ok(())
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(f, "# {}", comment.replace('\n', " "))?;
        }
        self.write("", f)
    }
}

/// A table within a line.
pub(super) fn inline_table<const N: usize>(pairs: [(&str, Value); N]) -> toml::Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn bare_or_quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare {
        return key.to_owned();
    }
    // A value with both quotes would take several lines, which no key may.
    let line = toml::Table::from_iter([(key.to_owned(), Value::from(0))]).to_string();
    line.strip_suffix(" = 0\n").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_tables_parse_back() {
        let mut root = Table::default();
        root.comment("made of\nx");
        root.table("limits").set("grace", "9s");
        root.table("limits").set("grace", "10s");
        let mut site = Table::default();
        site.comment("nginx.conf:3");
        site.set("names", vec!["a.example", "b \"quoted\" \\"]);
        site.table("error_pages").set("404", "/404.html");
        let mut rule = Table::default();
        rule.table("set").set("X-Frame-Options", "DENY");
        site.push("headers", rule);
        root.push("site", site);
        let text = root.to_string();
        assert!(
            text.starts_with("# made of x\n\n[limits]\ngrace = \"10s\"\n\n# nginx.conf:3\n[[site]]\nnames = "),
            "{text}"
        );
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["site"][0]["names"][1].as_str(), Some("b \"quoted\" \\"));
        assert_eq!(read["site"][0]["error_pages"]["404"].as_str(), Some("/404.html"));
        assert_eq!(read["site"][0]["headers"][0]["set"]["X-Frame-Options"].as_str(), Some("DENY"));
    }
}
