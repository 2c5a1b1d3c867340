//! Pages that name files, tests and items of the code. The named things must exist.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Pages whose files are checked, and the directories that paths in them may begin at.
const PAGES: [(&str, &[&str]); 3] = [
    ("ARCHITECTURE.md", &["", "crates/server/src", "crates/lab/src"]),
    ("CONTRIBUTING.md", &["", "crates/server/src", "crates/lab"]),
    ("docs/security.md", &["", "crates/server"]),
];

/// Pages whose tables name tests in the second column.
const TESTS: [&str; 2] = ["docs/kernel.md", "docs/security.md"];

/// The page whose prose and tables name items of the code.
const ITEMS: &str = "ARCHITECTURE.md";

/// Checks every page.
///
/// # Errors
/// Each name without a file or test, with its page.
pub(crate) fn check() -> Result<()> {
    let root = workspace::root();
    let read = |page: &str| std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"));
    let mut missing = Vec::new();
    for (page, bases) in PAGES {
        let text = read(page)?;
        let is_there = |path: &str| bases.iter().any(|base| root.join(base).join(path).exists());
        missing.extend(
            quoted(&text).filter(|path| is_path(path) && !is_there(path)).map(|path| format!("{page}: {path}")),
        );
    }
    let mut sources = String::new();
    read_sources(&root.join("crates"), &mut sources)?;
    let is_test = |name: &str| sources.contains(&format!("fn {name}("));
    for page in TESTS {
        let text = read(page)?;
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let names = rows.filter_map(|row| row.split('|').nth(2)).flat_map(quoted).filter(|name| is_identifier(name));
        missing.extend(names.filter(|name| !is_test(name)).map(|name| format!("{page}: the test {name}")));
    }
    let words: HashSet<&str> = sources.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let text = read(ITEMS)?;
    let names = quoted(&text).filter(|name| is_item(name));
    let is_missing = |name: &&str| name.split("::").any(|segment| !words.contains(segment));
    missing.extend(names.filter(is_missing).map(|name| format!("{ITEMS}: {name}")));
    ensure!(missing.is_empty(), "these pages name what does not exist:\n{}", missing.join("\n"));
    Ok(())
}

/// The pieces of a text in backticks, outside code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// A source file or a directory with its parent; patterns and placeholders (`NAME.rs`) do not count.
fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let inside = name.trim_end_matches('/').contains('/');
    plain
        && inside
        && !name.contains("NAME")
        && !name.starts_with('/')
        && (name.ends_with(".rs") || name.ends_with('/'))
}

fn is_identifier(name: &str) -> bool {
    name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// An identifier of more than one word, or a path of identifiers (`Type::function`).
fn is_item(name: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_identifier(name) || (name.contains("::") && name.split("::").all(is_word))
}

fn read_sources(directory: &Path, into: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read_sources(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_prose_and_tables() {
        let text = "see `a/b.rs`, `NAME/x.rs`, `c.rs`\n```text\n`d/e.rs`\n```\n| x | `a_test`, `other` | `f/` |";
        assert_eq!(quoted(text).filter(|name| is_path(name)).collect::<Vec<_>>(), ["a/b.rs"]);
        assert_eq!(quoted(text).filter(|name| is_identifier(name)).collect::<Vec<_>>(), ["a_test"]);
    }

    #[test]
    fn items_are_identifiers_of_several_words_and_paths() {
        let items = ["poll_send", "Exchange::begin", "a::B::c_d"];
        let others = ["send", "a/b.rs", "a::", "shared.idle.register()", "SIGUSR2", "--file-cache-age"];
        assert!(items.iter().all(|name| is_item(name)));
        assert!(!others.iter().any(|name| is_item(name)));
    }
}
