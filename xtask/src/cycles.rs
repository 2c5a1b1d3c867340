//! Import cycles inside a crate.
//!
//! A *room* is a first-level module of the crate: a directory, or a file directly in src/. Room A imports room B when a
//! path in one of A's files (`crate::…`, `super::…`, `self::…`) leads into B. Rooms that import each other in a circle
//! can only be understood, tested and moved together, so their number is limited.
//!
//! The paths are found in the tokens of the source, without resolving names: a re-export counts as an import of the module
//! that re-exports. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

/// Check that few modules of a crate import each other in a circle
///
/// Prints each crate's circles, and the imports that make them where there are more than the crate's limit.
#[derive(Args, Default)]
pub(crate) struct Cycles {
    /// Directories of crates, with all imports of their circles [default: every crate of the workspace]
    crates: Vec<PathBuf>,
}

/// Rooms of one circle that a crate may have.
const LIMITS: Limits = Limits { of_crates: &[("crates/http", 2)], of_others: 1 };

struct Limits {
    of_crates: &'static [(&'static str, usize)],
    of_others: usize,
}

impl Limits {
    fn of(&self, name: &str) -> usize {
        self.of_crates.iter().find(|(of, _)| *of == name).map_or(self.of_others, |(_, limit)| *limit)
    }
}

impl Cycles {
    /// Prints what was found; true if every crate is within its limit.
    pub(crate) fn run(self) -> Result<bool> {
        if !self.crates.is_empty() {
            for directory in &self.crates {
                let imports = Imports::of_crate(directory)?;
                println!("{}: {imports}", directory.display());
                imports.circles().first().into_iter().for_each(|circle| print!("{}", imports.within(circle)));
            }
            return Ok(true);
        }
        let mut held = true;
        for name in crates()? {
            let imports = Imports::of_crate(&workspace::root().join(&name))?;
            let (limit, circles) = (LIMITS.of(&name), imports.circles());
            println!("cycles: {name}: {imports}");
            if let Some(largest) = circles.first().filter(|circle| circle.len() > limit) {
                println!("cycles: {name}: at most {limit} rooms may form a circle; these imports do:");
                print!("{}", imports.within(largest));
                held = false;
            }
        }
        Ok(held)
    }
}

/// The workspace's crates by their directories.
fn crates() -> Result<Vec<String>> {
    let mut names = vec!["xtask".to_owned()];
    for entry in std::fs::read_dir(workspace::root().join("crates")).context("cannot read crates/")? {
        let name = entry?.file_name();
        names.push(format!("crates/{}", name.display()));
    }
    names.sort();
    Ok(names)
}

/// Imports between rooms.
struct Imports {
    files: usize,
    rooms: BTreeSet<String>,
    /// By importing and imported room: the paths, without their first segment.
    arrows: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Imports {
    fn of_crate(directory: &Path) -> Result<Self> {
        let root = directory.join("src");
        let mut sources = Vec::new();
        let mut pending = vec![root.clone()];
        while let Some(next) = pending.pop() {
            for entry in std::fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    pending.push(path);
                } else if is_source(&path) {
                    let text =
                        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                    let below = path.strip_prefix(&root).expect("it was found below");
                    sources.push((below.to_owned(), text));
                }
            }
        }
        Ok(Self::of_sources(&sources))
    }

    /// `sources`: path below `src`, text.
    fn of_sources(sources: &[(PathBuf, String)]) -> Self {
        let modules: Vec<Vec<String>> = sources.iter().map(|(path, _)| module(path)).collect();
        let rooms: Vec<String> = sources.iter().map(|(path, _)| room(path)).collect();
        let by_module: BTreeMap<&[String], &String> = modules.iter().map(Vec::as_slice).zip(&rooms).collect();
        let mut arrows: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (((_, text), module), from) in sources.iter().zip(&modules).zip(&rooms) {
            for path in imported(text, module) {
                // The longest prefix that is a module. The crate's root is not a room.
                let to = (1..=path.len()).rev().find_map(|len| by_module.get(&path[..len]));
                if let Some(&to) = to.filter(|to| **to != from) {
                    let names = arrows.entry(from.clone()).or_default().entry(to.clone()).or_default();
                    names.insert(if path.len() > 1 { path[1..].join("::") } else { "*".to_owned() });
                }
            }
        }
        Self { files: sources.len(), rooms: rooms.into_iter().collect(), arrows }
    }

    /// Strongly connected sets of rooms, the largest first.
    fn circles(&self) -> Vec<BTreeSet<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.rooms.iter().map(|room| (room.as_str(), self.reached_from(room))).collect();
        let mut circles: Vec<BTreeSet<&str>> = Vec::new();
        for (&room, from_here) in &reached {
            let circle: BTreeSet<&str> =
                from_here.iter().filter(|other| reached[**other].contains(room)).copied().collect();
            if circle.len() > 1 && circle.first() == Some(&room) {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The rooms that `room` imports, directly or indirectly.
    fn reached_from(&self, room: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut pending = vec![room];
        while let Some(next) = pending.pop() {
            for to in self.arrows.get(next).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(to.as_str()) {
                    pending.push(to);
                }
            }
        }
        reached
    }

    /// The imports within a circle, a line for each pair of rooms.
    fn within(&self, circle: &BTreeSet<&str>) -> String {
        let mut lines = String::new();
        for (from, arrows) in self.arrows.iter().filter(|(from, _)| circle.contains(from.as_str())) {
            for (to, names) in arrows.iter().filter(|(to, _)| circle.contains(to.as_str())) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                lines += &format!("  {from} -> {to}: {}\n", names.join(", "));
            }
        }
        lines
    }
}

impl fmt::Display for Imports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let circles = self.circles();
        write!(f, "{} files in {} rooms, largest circle ", self.files, self.rooms.len())?;
        write!(f, "{} rooms", circles.first().map_or(0, BTreeSet::len))?;
        for circle in circles {
            write!(f, "\n  {} rooms: {}", circle.len(), circle.into_iter().collect::<Vec<_>>().join(" "))?;
        }
        Ok(())
    }
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".rs") && !name.ends_with("_tests.rs") && name != "tests.rs"
}

/// The module path of a file below `src`; empty for the crate's root.
fn module(path: &Path) -> Vec<String> {
    let mut segments: Vec<String> =
        path.with_extension("").iter().map(|segment| segment.to_string_lossy().into_owned()).collect();
    segments.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    segments
}

/// The room of a file below `src`. `lib` and `main` are rooms that nothing can import.
fn room(path: &Path) -> String {
    module(path).into_iter().next().unwrap_or_else(|| path.with_extension("").to_string_lossy().into_owned())
}

/// Every path in the text of `module` that begins with `crate`, `super` or `self`, resolved from the crate's root.
fn imported(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    // Inline modules around the current token, each with the number of braces open inside.
    let mut inside: Vec<(String, usize)> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match (*token, tokens.get(at + 1), tokens.get(at + 2)) {
            ("mod", Some(name), Some(&"{")) => {
                if is_test(&tokens[..at]) {
                    at = closing_brace(&tokens, at + 2);
                } else {
                    inside.push(((*name).to_owned(), 1));
                    at += 2;
                }
            }
            ("{", ..) => inside.last_mut().into_iter().for_each(|(_, open)| *open += 1),
            ("}", ..) => {
                inside.last_mut().into_iter().for_each(|(_, open)| *open -= 1);
                inside.pop_if(|(_, open)| *open == 0);
            }
            ("crate" | "super" | "self", Some(&"::"), _) => {
                let here = module.iter().chain(inside.iter().map(|(name, _)| name)).cloned();
                let mut base: Vec<String> = if *token == "crate" { Vec::new() } else { here.collect() };
                if *token == "super" {
                    base.pop();
                }
                at = paths(&tokens, at + 2, base, &mut found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads the path or group of paths that continues `base` at `at`. Returns the index of the first token after it.
fn paths(tokens: &[&str], mut at: usize, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    let next = paths(tokens, at, base.clone(), found);
                    // Skip `as name` and the comma.
                    at = next.max(at + 1);
                    while tokens.get(at).is_some_and(|token| !matches!(*token, "," | "}")) {
                        at += 1;
                    }
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            Some(&"super") => drop(base.pop()),
            Some(name) if name.starts_with(is_identifier) => base.push((*name).to_owned()),
            _ => {
                found.push(base);
                return at;
            }
        }
        at += 1;
        if tokens.get(at) != Some(&"::") {
            found.push(base);
            return at;
        }
        at += 1;
    }
}

/// Whether the tokens before a module end with `#[cfg(test)]`.
fn is_test(before: &[&str]) -> bool {
    before.ends_with(&["#", "[", "cfg", "(", "test", ")", "]"])
}

/// The index of the brace that closes the one at `open`.
fn closing_brace(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Identifiers, `::`, and every other character as a token of its own. Skips comments, string and character literals,
/// and spaces.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| literal(rest));
        let len = skipped.unwrap_or_else(|| match first {
            _ if is_identifier(first) => rest.find(|c| !is_identifier(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        });
        if skipped.is_none() && !first.is_whitespace() {
            tokens.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    tokens
}

/// The length of the comment at the start of `text`.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut depth = 0;
    let mut at = 0;
    loop {
        match text.get(at..at + 2) {
            Some("/*") => (depth, at) = (depth + 1, at + 2),
            Some("*/") => (depth, at) = (depth - 1, at + 2),
            _ if depth == 0 => return None,
            _ => at += 1,
        }
        if depth == 0 || at >= text.len() {
            return Some(at.min(text.len()));
        }
    }
}

/// The length of the string or character literal, or of a lifetime's quote, at the start of `text`.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].iter().find(|prefix| {
        let behind = text.strip_prefix(**prefix);
        behind.is_some_and(|behind| behind.trim_start_matches('#').starts_with('"') || behind.starts_with('\''))
    });
    let start = prefix.map_or(0, |prefix| prefix.len());
    if prefix.is_some_and(|prefix| prefix.ends_with('r')) {
        let hashes = text[start..].len() - text[start..].trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let content = start + hashes + 1;
        return Some(text[content..].find(&end).map_or(text.len(), |len| content + len + end.len()));
    }
    let quote = text[start..].chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut characters = text[start + 1..].char_indices();
    if quote == '\'' {
        let (mut first, mut second) = (characters.clone(), characters.clone().skip(1));
        let closed = second.next().is_some_and(|(_, c)| c == '\'');
        if !closed && first.next().is_none_or(|(_, c)| c != '\\') {
            // A lifetime: its name is an identifier like any other.
            return Some(start + 1);
        }
    }
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            _ if c == quote => return Some(start + 1 + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let sources: Vec<_> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        Imports::of_sources(&sources)
    }

    fn of(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|&segment| segment.to_owned()).collect();
        imported(text, &module).iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn groups_globs_and_renames_are_paths() {
        assert_eq!(of("use crate::a::{B, c::{D as E, self}, f::*};", &[]), ["a::B", "a::c::D", "a::c::self", "a::f"]);
        assert_eq!(of("pub use crate::{a, b::C};", &[]), ["a", "b::C"]);
        assert_eq!(of("let x = crate::a::b(crate::c::D { e });", &[]), ["a::b", "c::D"]);
    }

    #[test]
    fn super_and_self_are_relative_to_the_module() {
        assert_eq!(of("use super::x; use super::super::y; use self::z;", &["a", "b"]), ["a::x", "y", "a::b::z"]);
        assert_eq!(of("mod inner { use super::x; fn f() {} } use super::y;", &["a"]), ["a::x", "y"]);
        assert_eq!(of("use super::{super::x, y};", &["a", "b"]), ["x", "a::y"]);
    }

    #[test]
    fn comments_literals_and_tests_are_no_imports() {
        for text in [
            "// crate::a\n/* crate::a /* crate::b */ crate::c */",
            "//! [`crate::a::B`]",
            r##"let s = ("crate::a \" crate::b", r#"crate::" "#, b"crate::c", '"', b'\'', '\\', "crate::d");"##,
            "pub(crate) fn f<'a>(self, x: &'a str) {}",
            "#[cfg(test)]\nmod tests { use super::*; mod inner { use crate::x; } }",
        ] {
            assert!(of(text, &["m"]).is_empty(), "{text}: {:?}", of(text, &["m"]));
        }
        let behind = "#[cfg(test)] mod tests { fn f() { crate::a::b() } }\nuse crate::c;";
        assert_eq!(of(behind, &[]), ["c"]);
        assert_eq!(of("fn f<'a>(x: &'a str) { crate::a::b('x', 'y') }", &[]), ["a::b"]);
    }

    #[test]
    fn rooms_that_import_each_other_are_a_circle() {
        let imports = imports(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::X;"),
            ("a/mod.rs", "mod deep; use crate::b::Y;"),
            ("a/deep.rs", "use super::X;"),
            ("b.rs", "use crate::c::z;"),
            ("c.rs", "fn z() { crate::a::deep::f() }"),
            ("d.rs", "use crate::{a, b, X};"),
        ]);
        assert_eq!(imports.circles(), [BTreeSet::from(["a", "b", "c"])]);
        assert_eq!(imports.within(&imports.circles()[0]), "  a -> b: Y\n  b -> c: z\n  c -> a: deep::f\n");
        assert_eq!(imports.to_string(), "6 files in 5 rooms, largest circle 3 rooms\n  3 rooms: a b c");
    }

    #[test]
    fn a_room_may_import_itself_and_nothing_back() {
        let imports = imports(&[("a.rs", "use crate::a::X; use crate::b;"), ("b.rs", "use super::b::Y;")]);
        assert!(imports.circles().is_empty());
    }

    #[test]
    fn limits_are_by_crate() {
        assert_eq!((LIMITS.of("crates/http"), LIMITS.of("crates/new")), (2, 1));
    }
}
