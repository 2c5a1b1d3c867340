//! Problems of a configuration, all reported together, each with file, line, key and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Collects problems while a configuration is read and checked.
#[derive(Debug)]
pub(crate) struct Problems {
    /// The main file, then the included files; empty for a configuration without a file.
    files: Vec<Source>,
    found: Vec<Problem>,
}

/// A file of the configuration.
#[derive(Debug, Clone)]
struct Source {
    path: PathBuf,
    text: String,
    /// The number of bytes of the files before it.
    start: usize,
}

#[derive(Debug)]
struct Problem {
    span: Range<usize>,
    key: String,
    what: String,
}

/// Something was not built: its errors are among the problems.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported;

impl Problems {
    /// Starts without problems, for the configuration `text` of `file`.
    pub(crate) fn of_file(file: &Path, text: &str) -> Self {
        let main = Source { path: file.to_owned(), text: text.to_owned(), start: 0 };
        Problems { files: vec![main], found: Vec::new() }
    }

    /// Starts without problems, for a configuration from the command line and the environment.
    pub(crate) fn of_arguments() -> Self {
        Problems { files: Vec::new(), found: Vec::new() }
    }

    /// Starts without problems, for the same files.
    pub(crate) fn emptied(&self) -> Self {
        Problems { files: self.files.clone(), found: Vec::new() }
    }

    /// Adds an included file. Returns the position of its first byte among the bytes of all files, which its spans
    /// count from.
    pub(crate) fn add_file(&mut self, file: &Path, text: &str) -> usize {
        // Leaves a byte between two files, so that the end of one is not the start of the next.
        let start = self.files.last().map_or(0, |last| last.start + last.text.len() + 1);
        self.files.push(Source { path: file.to_owned(), text: text.to_owned(), start });
        start
    }

    /// Adds a problem. `span`: the bytes of the value in the file ([`super::At`]), empty if it is not from a file.
    /// `key`: the dotted key, for instance `site.root`. `what`: the problem and the remedy.
    pub(crate) fn add(&mut self, span: &Range<usize>, key: &str, what: impl fmt::Display) {
        let problem = Problem { span: span.clone(), key: key.to_owned(), what: what.to_string() };
        // The parser reports a table in the wrong place twice.
        let line = |problem: &Problem| self.place(&problem.span).map(|(file, line)| (file.to_owned(), line));
        let is_same = |other: &&Problem| (&other.key, &other.what) == (&problem.key, &problem.what);
        if !self.found.iter().filter(is_same).any(|other| line(other) == line(&problem)) {
            self.found.push(problem);
        }
    }

    /// Resolves a path: relative ones start at the directory of the main configuration file.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        match self.files.first().and_then(|file| file.path.parent()) {
            Some(directory) => directory.join(path),
            None => path.to_owned(),
        }
    }

    /// The files of the configuration: the main file, then the included files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Line, key and text of each problem; line 0: it has none.
    #[cfg(feature = "import-nginx")]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let line = |problem: &Problem| self.place(&problem.span).and_then(|(_, line)| line).unwrap_or_default();
        self.found.iter().map(move |problem| (line(problem), &*problem.key, &*problem.what))
    }

    /// The file of a span, and its line. Without a line, the span is empty.
    fn place(&self, span: &Range<usize>) -> Option<(&Path, Option<usize>)> {
        let source = self.files.iter().rev().find(|source| source.start <= span.start)?;
        // Uses bytes, because the parser may report a position inside a character.
        let before = source.text.as_bytes().get(..span.start - source.start);
        let line = |before: &[u8]| before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Some((&source.path, before.filter(|_| !span.is_empty()).map(line)))
    }
}

impl fmt::Display for Problems {
    /// Writes a line for each problem, in the order of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut found: Vec<_> = self.found.iter().collect();
        found.sort_by_key(|problem| problem.span.start);
        for (n, problem) in found.into_iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            let place = self.place(&problem.span);
            if let Some((file, line)) = place {
                write!(f, "{}:", file.display())?;
                if let Some(line) = line {
                    write!(f, "{line}:")?;
                }
                f.write_str(" ")?;
            }
            // Keys mean nothing to an operator who used arguments.
            if place.is_some() && !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            f.write_str(&problem.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_an_included_file_has_its_name_and_line() {
        let mut problems = Problems::of_file(Path::new("main"), "a = 1\n");
        let start = problems.add_file(Path::new("more"), "b = 2\nc = 3");
        assert_eq!(start, 7);
        problems.add(&(start + 6..start + 7), "c", "is wrong");
        problems.add(&(0..1), "a", "is wrong too");
        assert_eq!(problems.to_string(), "main:1: a: is wrong too\nmore:2: c: is wrong");
    }

    #[test]
    fn each_problem_has_file_line_and_key_in_the_order_of_the_file() {
        let mut problems = Problems::of_file(Path::new("sealion.toml"), "a = 1\n\nb = 2\n");
        problems.add(&(11..12), "b", "too small: write 3 or more");
        problems.add(&(4..5), "a", "too large");
        problems.add(&(0..0), "", "no site");
        assert_eq!(
            problems.to_string(),
            "sealion.toml: no site\nsealion.toml:1: a: too large\nsealion.toml:3: b: too small: write 3 or more"
        );
    }
}
