//! Reads the configuration file.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::Config;
use super::document::{Texts, visible};
use super::reference;
use super::remedy::{explain, quoted};
use crate::listen::{Listen, ListenConfig};
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
        let texts = Texts::read(path, text, &mut problems);
        let mut document = texts.document(&mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        // An entry at fault is removed, so that the next error shows.
        for (span, key) in reference::lists_for_tables(document.get_ref()) {
            problems.add(&span, &key, explain("invalid type: sequence, expected struct", &key));
            remove(document.get_mut(), &span);
        }
        // Each error ends the deserialization.
        let mut removed = Vec::new();
        loop {
            match Config::deserialize(toml::Deserializer::from(document.clone())) {
                Ok(mut config) if problems.is_empty() => {
                    if config.listen.is_empty() {
                        config.listen.push(ListenConfig::from(Listen::development()));
                    }
                    return Ok((config, problems));
                }
                Ok(_) => return Err(problems),
                Err(error) => {
                    // A missing field has no position; report the end of the table it is missing from.
                    let span = visible(error.span().unwrap_or_default());
                    let missing = quoted(error.message(), "missing field");
                    if !missing.is_some_and(|name| removed.iter().any(|key| key == name)) {
                        let key = key_at(document.get_ref(), &span).unwrap_or_default();
                        problems.add(&span, &key, explain(error.message(), &key));
                    }
                    match remove(document.get_mut(), &span) {
                        Some(key) => removed.push(key),
                        None => return Err(problems),
                    }
                }
            }
        }
    }
}

/// Removes the innermost entry that has `span`. Returns its key; empty for an element of a list.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let names: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    for name in names {
        let value = table.get_mut(&*name)?;
        if let Some(removed) = remove_in_value(value, span) {
            return Some(removed);
        }
        let is_value = covers(&value.span(), span);
        let is_key = table.get_key_value(&*name).is_some_and(|(key, _)| covers(&key.span(), span));
        if is_value || is_key {
            table.remove(&*name);
            return Some(name);
        }
    }
    None
}

fn remove_in_value(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    match value.get_mut() {
        DeValue::Table(table) => remove(table, span),
        DeValue::Array(values) => {
            if let Some(removed) = values.iter_mut().find_map(|value| remove_in_value(value, span)) {
                return Some(removed);
            }
            let at = values.iter().position(|value| covers(&value.span(), span))?;
            let kept =
                std::mem::replace(values, DeArray::new()).into_iter().enumerate().filter(|(place, _)| *place != at);
            *values = kept.map(|(_, value)| value).collect();
            Some(String::new())
        }
        _ => None,
    }
}

/// The dotted key whose value or table contains `span`.
pub(super) fn key_at(document: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let mut path = Vec::new();
    find_in_table(document, span, &mut path);
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
    use crate::values::Short;

    #[test]
    fn all_errors_of_form_are_found_at_once() {
        let text = "[limits]\nidle_timeout = 10\ngrce = '1s'\n[[site]]\nroot = 3\nindex = ['a', 1]\n[[listen]]\n[server]\nworkers = 'x'\n\
                    [[listen]]\naddress = 7\n";
        let problems = Config::parse(Path::new("x.toml"), text).unwrap_err().to_string();
        let begins: Vec<&str> = problems.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
        let expected = [
            "limits.idle_timeout",
            "limits.grce",
            "site.root",
            "site.index",
            "listen",
            "server.workers",
            "listen.address",
        ];
        assert_eq!(begins, expected, "{problems}");
        let problems = Config::parse(Path::new("x.toml"), "a = \n[limits]\nb = ]\n").unwrap_err().to_string();
        assert!(problems.contains("x.toml:1: ") && problems.contains("x.toml:3: "), "{problems}");
    }

    #[test]
    fn a_file_without_listeners_is_served_at_localhost() {
        let listeners = |text: &str| -> Vec<String> {
            let (config, _) = Config::parse(Path::new("x.toml"), text).expect("it is right");
            config.listen.into_iter().map(|listen| listen.address.value.name).collect()
        };
        assert_eq!(listeners("[[site]]\nroot = '/srv'"), ["localhost:8443"]);
        assert_eq!(listeners("[[listen]]\naddress = '[::1]:443'\n[[site]]\nroot = '/srv'"), ["[::1]:443"]);
    }

    #[test]
    fn short_forms_stand_for_tables() {
        let parse =
            |text: &str| Config::parse(Path::new("x.toml"), text).map(|(config, _)| config).map_err(|e| e.to_string());
        let config =
            parse("[[site]]\nlisting = true\ncompress = true\n[[site]]\nlisting = false\ncompress = false\n").unwrap();
        assert_eq!((&config.site[0].listing, &config.site[0].compress), (&Short::Short(true), &Short::Short(true)));
        assert_eq!((&config.site[1].listing, &config.site[1].compress), (&Short::Short(false), &Short::Short(false)));
    }

    /// Values that may be secrets are left out: they are printed as marks.
    #[test]
    fn routes_are_read_again_as_they_are_printed() {
        let text = r#"
            [[map]]
            name = "m"
            from = "{host}"
            [[site]]
            root = "."
            [[site.route]]
            path = "/a/"
            match = { method = "GET", header = { x-a = true, x-b = false }, any = [{ scheme = "http" }], not = { query = { q = true } } }
            try = ["{path}", "=404"]
            compress = false
            listing = true
            basic_auth = false
            [[site.route.route]]
            path = "/a/b"
            respond = { status = 201, type = "text/html" }
            [[site.route]]
            path = "= /c"
            respond = 204
            [[site.route]]
            path = "/d/"
            rewrite = { to = "/e", stay = true }
            access = { allow = ["10.0.0.0/8"] }
            [[site.route]]
            name = "@f"
            redirect = "/g"
        "#;
        let parse = |text: &str| Config::parse(Path::new("x.toml"), text).map(|(config, _)| config);
        let config = parse(text).unwrap_or_else(|problems| panic!("{problems}"));
        let printed = toml::to_string(&config).unwrap();
        let again = parse(&printed).unwrap_or_else(|problems| panic!("{problems}: {printed}"));
        let differences = super::super::changes(&config, &again);
        assert!(differences.is_empty() && config == again, "{printed}");
        assert_eq!(config.site[0].route.iter().map(|route| route.all().len()).sum::<usize>(), 5);
    }

    #[test]
    fn included_files_add_their_tables() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        };
        write("sites/b.toml", "[[site]]\nroot = 'b'\n");
        write("sites/a.toml", "[[site]]\nroot = 'a'\n");
        write("sites/.hidden.toml", "no TOML");
        write("sites/notes.txt", "no TOML");
        write("limits", "[limits]\ngrace = '7s'\n");
        let main = directory.path().join("main.toml");
        let parse =
            |text: &str| Config::parse(&main, text).map(|(config, _)| config).map_err(|error| error.to_string());
        for pattern in ["sites", "sites/*.toml", "sites/?*.toml"] {
            let config = parse(&format!("include = ['{pattern}', 'limits']\n[[site]]\nroot = 'main'\n")).unwrap();
            let roots: Vec<_> = config.site.iter().map(|site| site.root.as_ref().unwrap().to_str().unwrap()).collect();
            assert_eq!(roots, ["main", "a", "b"], "{pattern}");
            assert_eq!(config.limits.grace.to_string(), "7s");
        }
        assert!(parse("include = ['none/*.toml']\n").unwrap_err().contains("none cannot be read"));
        assert!(parse("include = ['none.toml']\n").unwrap_err().contains("main.toml:1: include: "));
        std::fs::create_dir(directory.path().join("empty")).unwrap();
        assert!(parse("include = ['empty/*.toml']\n").unwrap().site.is_empty());
        write("sites/c.toml", "\n[[site]]\nroots = 'c'\n[limits]\ngrace = 1\n");
        let error = parse("include = ['sites']\n").unwrap_err();
        assert!(error.contains("sites/c.toml:3: site.roots: unknown field `roots`: did you mean `root`?"), "{error}");
        assert!(error.contains("sites/c.toml:5: limits.grace: "), "{error}");
        let error = parse("include = ['limits']\n[limits]\n").unwrap_err();
        assert!(error.contains("limits:1: limits: stands in another file too"), "{error}");
        write("more", "include = ['limits']\n");
        assert!(parse("include = ['more']\n").unwrap_err().contains("more:1: include: an included file includes no"));
    }

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
                &["x.toml:2: limits.idle_timout: ", "unknown field", "did you mean `idle_timeout`?"],
            ),
            ("[sites]\n", &["x.toml:1: sites: ", "unknown field `sites`", "`site`"]),
            ("[site]\nroot = '.'\n", &["x.toml:1: site: is a list: write [[site]] with two brackets"]),
            ("root = '.'\n", &["x.toml:1: root: unknown field `root`: it belongs in [[site]]"]),
            ("[limits]\nxyzzy = 1\n", &["x.toml:2: limits.xyzzy: ", "expected one of", "correct or remove"]),
            ("[server]\nktls = 'awto'\n", &["did you mean `auto`?"]),
            ("[limits]\nidle_timeout = 30", &["write \"30s\" for seconds"]),
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
