//! The configuration as a document, before its values have types: several files are merged, and environment variables
//! are substituted.
//!
//! The texts of all files form one sequence of bytes, so that a span identifies a position in any of them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::key_at;
use super::remedy::explain_syntax;
use crate::values::Problems;

/// A document whose values have no types yet.
pub(super) type Document<'t> = Spanned<DeTable<'t>>;

/// The texts of the main file and of the included files. Each text is preceded by as many blanks as the texts before it
/// have bytes.
pub(super) struct Texts(Vec<String>);

impl Texts {
    /// Reads the files included by `text`, the main file at `path`.
    pub(super) fn read(path: &Path, text: &str, problems: &mut Problems) -> Self {
        let mut texts = vec![text.to_owned()];
        let (document, _) = DeTable::parse_recoverable(text);
        for file in included(document.get_ref(), path, problems) {
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let start = problems.add_file(&file, &text);
                    texts.push(" ".repeat(start) + &text);
                }
                Err(error) => {
                    let what = format_args!("{} cannot be read: {error}", file.display());
                    problems.add(&span_of(document.get_ref(), INCLUDE), INCLUDE, what);
                }
            }
        }
        Texts(texts)
    }

    /// The merged document of all files. Adds syntax errors, and tables in two files, to `problems`.
    pub(super) fn document(&self, problems: &mut Problems) -> Document<'_> {
        let mut all = Spanned::new(0..0, DeTable::new());
        for (place, text) in self.0.iter().enumerate() {
            let (document, errors) = DeTable::parse_recoverable(text);
            for error in errors {
                let span = visible(error.span().unwrap_or(0..0));
                let key = key_at(document.get_ref(), &span).unwrap_or_default();
                problems.add(&span, &key, explain_syntax(error.message()));
            }
            if place == 0 {
                all = document;
            } else {
                merge(all.get_mut(), document.into_inner(), problems);
            }
        }
        fill_in(all.get_mut(), &mut Vec::new(), &|name| std::env::var(name).ok(), problems);
        all
    }
}

/// The included files, sorted by name for each pattern.
fn included(document: &DeTable<'_>, main: &Path, problems: &mut Problems) -> Vec<PathBuf> {
    let Some(DeValue::Array(patterns)) = document.get(INCLUDE).map(Spanned::get_ref) else { return Vec::new() };
    let mut files = Vec::new();
    for pattern in patterns {
        let DeValue::String(text) = pattern.get_ref() else { continue };
        match matching(&problems.resolve(Path::new(&**text))) {
            Ok(found) => {
                let new: Vec<_> = found.into_iter().filter(|file| file != main && !files.contains(file)).collect();
                files.extend(new);
            }
            Err(error) => problems.add(&pattern.span(), INCLUDE, error),
        }
    }
    files
}

/// The files for a path: itself, the files `*.toml` of a directory, or the files that match a wildcard in the last
/// segment.
fn matching(path: &Path) -> Result<Vec<PathBuf>, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (directory, pattern) = match name {
        _ if path.is_dir() => (path, "*.toml"),
        _ if name.contains('*') => (path.parent().unwrap_or(Path::new(".")), name),
        _ => return Ok(vec![path.to_owned()]),
    };
    let pattern = GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| error.to_string())?;
    let pattern = pattern.compile_matcher();
    let entries = fs::read_dir(directory)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("{} cannot be read: {error}: name a file or a directory", directory.display()))?;
    let is_shown = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
    let names = entries.into_iter().map(|entry| entry.file_name());
    let mut files: Vec<_> =
        names.filter(|name| is_shown(name) && pattern.is_match(name)).map(|name| directory.join(name)).collect();
    files.sort();
    Ok(files)
}

/// Adds a file's tables to the tables of earlier files. Lists of tables are joined; any other key may be in one file
/// only.
fn merge<'t>(all: &mut DeTable<'t>, more: DeTable<'t>, problems: &mut Problems) {
    for (key, value) in more {
        let name = key.get_ref().to_string();
        if name == INCLUDE {
            problems.add(&key.span(), INCLUDE, "an included file includes no others: move the line to the main file");
            continue;
        }
        match (all.get_mut(&*name).map(Spanned::get_mut), value.get_ref()) {
            (None, _) => {
                all.insert(key, value);
            }
            (Some(DeValue::Array(before)), DeValue::Array(_)) => {
                let DeValue::Array(values) = value.into_inner() else { continue };
                values.into_iter().for_each(|value| before.push(value));
            }
            (Some(_), _) => {
                problems.add(&key.span(), &name, "stands in another file too: write it in one of them");
            }
        }
    }
}

/// Substitutes variables in all strings: `${NAME}`, or `${NAME:-text}` with a default. `$${` stands for `${`.
fn fill_in(
    table: &mut DeTable<'_>,
    path: &mut Vec<String>,
    variable: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    for (key, value) in table.iter_mut() {
        path.push(key.get_ref().to_string());
        fill_in_value(value, path, variable, problems);
        path.pop();
    }
}

fn fill_in_value(
    value: &mut Spanned<DeValue<'_>>,
    path: &mut Vec<String>,
    variable: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    let span = value.span();
    match value.get_mut() {
        DeValue::Table(table) => fill_in(table, path, variable, problems),
        DeValue::Array(values) => {
            values.iter_mut().for_each(|value| fill_in_value(value, path, variable, problems));
        }
        DeValue::String(text) if text.contains("${") => match filled(text, variable) {
            Ok(filled) => *text = filled.into(),
            Err(error) => problems.add(&span, &path.join("."), error),
        },
        _ => {}
    }
}

fn filled(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        if filled.ends_with('$') {
            filled.push('{');
            continue;
        }
        let end = rest.find('}').ok_or("`${` without `}`: write ${NAME}, or $${ for the text ${")?;
        let (name, default) = match rest[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&rest[..end], None),
        };
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() || !is_name(name) {
            return Err(format!(
                "{name:?} is not the name of an environment variable: write ${{NAME}}, or $${{ for the text ${{"
            ));
        }
        match (variable(name).filter(|value| !value.is_empty()), default) {
            (Some(value), _) => filled.push_str(&value),
            (None, Some(default)) => filled.push_str(default),
            (None, None) => {
                return Err(format!(
                    "the environment variable {name} is not set: set it, or write ${{{name}:-default}}"
                ));
            }
        }
        rest = &rest[end + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// A span that is not empty: the parser reports a missing part as an empty span.
pub(super) fn visible(span: Range<usize>) -> Range<usize> {
    if span.is_empty() { span.start.saturating_sub(1)..span.start.max(1) } else { span }
}

fn span_of(document: &DeTable<'_>, key: &str) -> Range<usize> {
    document.get(key).map(Spanned::span).unwrap_or_default()
}

const INCLUDE: &str = "include";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let variable = |name: &str| match name {
            "HOME" => Some("/home".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expected) in [
            ("none", Ok("none")),
            ("$HOME costs 5$", Ok("$HOME costs 5$")),
            ("${HOME}/x", Ok("/home/x")),
            ("${HOME}${HOME:-/y}", Ok("/home/home")),
            ("${NONE:-/y}/${EMPTY:-}", Ok("/y/")),
            ("$${HOME} ${HOME}", Ok("${HOME} /home")),
            ("${NONE}", Err("NONE is not set")),
            ("${EMPTY}", Err("EMPTY is not set")),
            ("${HOME", Err("without `}`")),
            ("${}", Err("is not the name")),
            ("${a b}", Err("is not the name")),
        ] {
            let found = filled(text, &variable);
            match expected {
                Ok(expected) => assert_eq!(found.as_deref(), Ok(expected), "{text}"),
                Err(words) => assert!(found.as_ref().is_err_and(|error| error.contains(words)), "{text}: {found:?}"),
            }
        }
    }
}
