//! Reading the configuration file.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use crate::values::Problems;

impl Config {
    /// Reads and parses a file. Its values are checked later.
    ///
    /// # Errors
    /// [`Problems`], with the line and the key.
    pub(crate) fn read(path: &Path) -> Result<(Self, Problems), Problems> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let mut problems = Problems::of_file(path, "");
            problems.add(&(0..0), "", format_args!("cannot be read: {error}: name an existing file in UTF-8"));
            problems
        })?;
        Self::parse(path, &text)
    }

    /// Parses `text` as the contents of the file `path`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn parse(path: &Path, text: &str) -> Result<(Self, Problems), Problems> {
        let mut problems = Problems::of_file(path, text);
        match toml::from_str(text) {
            Ok(config) => Ok((config, problems)),
            Err(error) => {
                let mut span = error.span().unwrap_or(0..0);
                if span.is_empty() {
                    // A missing field has no position; report the end of the table it is missing from.
                    span = span.start.saturating_sub(1)..span.start.max(1);
                }
                problems.add(&span, &key_at(text, &span).unwrap_or_default(), explain(error.message()));
                Err(problems)
            }
        }
    }
}

/// The parser's message, with a remedy where it lacks one.
fn explain(message: &str) -> String {
    match message {
        _ if message.starts_with("unknown field") => format!("{message}: correct or remove the key"),
        _ if message.starts_with("missing field") => format!("{message}: add it"),
        _ if message.starts_with("unknown variant") => format!("{message}: write one of these words"),
        _ => {
            match message.strip_suffix(", expected a sequence").map(|begin| begin.strip_prefix("invalid type: string "))
            {
                Some(Some(value)) => format!("{message}: write a list, [{value}]"),
                Some(None) => format!("{message}: write a list in brackets"),
                None => message.to_owned(),
            }
        }
    }
}

/// The dotted key whose value or table contains `span`.
fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    find_in_table(document.get_ref(), span, &mut path);
    (!path.is_empty()).then(|| path.join("."))
}

fn find_in_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if covers(&key.span(), span) || find_in_value(value, span, path) {
            return true;
        }
        path.pop();
    }
    false
}

fn find_in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let inside = match value.get_ref() {
        DeValue::Table(table) => find_in_table(table, span, path),
        DeValue::Array(values) => values.iter().any(|value| find_in_value(value, span, path)),
        _ => false,
    };
    inside || covers(&value.span(), span)
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_form_is_said_with_line_and_key() {
        for (text, words) in [
            ("[limits]\nidle_timeout = \"10\"", &["x.toml:2: limits.idle_timeout: ", "write for instance 500ms"][..]),
            ("[limits]\nidle_timeout = \"0s\"", &["x.toml:2: limits.idle_timeout: ", "longer than zero"]),
            (
                "[limits]\nidle_timeout = 10",
                &["x.toml:2: limits.idle_timeout: ", "invalid type", "a time with its unit, for instance \"250ms\""],
            ),
            (
                "[access_log]\nflush_after = 250",
                &["x.toml:2: access_log.flush_after: ", "a time with its unit, for instance \"250ms\""],
            ),
            ("[access_log]\nflush_after = '0'", &["x.toml:2: access_log.flush_after: ", "has no unit: write 0s"]),
            ("[access_log]\nsample = '1/0'", &["x.toml:2: access_log.sample: ", "N from 1 to 4294967295"]),
            (
                "[limits]\nmin_send_rate = '240B'",
                &["x.toml:2: limits.min_send_rate: ", "a number from 0 to 2048, without quotes and unit"],
            ),
            (
                "[[site]]\nlisten = '127.0.0.1:443'",
                &["x.toml:2: site.listen: ", "expected a sequence: write a list, [\"127.0.0.1:443\"]"],
            ),
            (
                "[tls]\nrequire_extended_master_secret = 'yes'",
                &["`always`, `with-client-auth`, `never`: write one of these words"],
            ),
            ("[limits]\n\nmax_fields = 1000", &["x.toml:3: limits.max_fields: ", "from 1 to 256"]),
            (
                "[limits]\nidle_timout = \"10s\"",
                &["x.toml:2: limits.idle_timout: ", "unknown field", "correct or remove"],
            ),
            ("[sites]\n", &["x.toml:1: sites: ", "unknown field `sites`", "`site`"]),
            ("[[site]]\nroot = \".\"\n[[site]]\nroot = 3", &["x.toml:4: site.root: ", "invalid type"]),
            ("[limits\n", &["x.toml:1: "]),
            ("# \u{449}\n[limits]\ngrace = \u{449}", &["x.toml:3: "]),
            ("\n\u{449}", &["x.toml:2: "]),
            ("a\u{449}", &["x.toml:1: "]),
            ("[server]\nworkers = 0", &["x.toml:2: server.workers: ", "1..=1024"]),
        ] {
            let problems = Config::parse(Path::new("x.toml"), text).unwrap_err().to_string();
            for word in words {
                assert!(problems.contains(word), "{word:?} is not in {problems:?}");
            }
        }
    }
}
