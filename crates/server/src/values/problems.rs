//! Problems of a configuration, all reported at once, each with file, line, key and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Collects problems while a configuration is read and checked.
#[derive(Debug)]
pub(crate) struct Problems {
    file: Option<PathBuf>,
    text: String,
    found: Vec<Problem>,
}

#[derive(Debug)]
struct Problem {
    span: Range<usize>,
    key: String,
    what: String,
}

impl Problems {
    /// Empty, for the configuration `text` of `file`.
    pub(crate) fn of_file(file: &Path, text: &str) -> Self {
        Problems { file: Some(file.to_owned()), text: text.to_owned(), found: Vec::new() }
    }

    /// Empty, for a configuration from the command line and the environment.
    pub(crate) fn of_arguments() -> Self {
        Problems { file: None, text: String::new(), found: Vec::new() }
    }

    /// Adds a problem. `span`: the bytes of the value in the file ([`super::At`]), empty if the file does not have it. `key`: the dotted
    /// key, for instance `site.root`. `what`: the problem and the remedy.
    pub(crate) fn add(&mut self, span: &Range<usize>, key: &str, what: impl fmt::Display) {
        self.found.push(Problem { span: span.clone(), key: key.to_owned(), what: what.to_string() });
    }

    /// Resolves a path: relative ones start at the directory of the configuration file.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        match self.file.as_ref().and_then(|file| file.parent()) {
            Some(directory) => directory.join(path),
            None => path.to_owned(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    fn line(&self, span: &Range<usize>) -> Option<usize> {
        // Octets, because the parser may name a place inside a character.
        let before = self.text.as_bytes().get(..span.start)?;
        (!span.is_empty()).then(|| before.iter().filter(|octet| **octet == b'\n').count() + 1)
    }
}

impl fmt::Display for Problems {
    /// A line for each problem, in the order of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut found: Vec<_> = self.found.iter().collect();
        found.sort_by_key(|problem| problem.span.start);
        for (n, problem) in found.into_iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            if let Some(file) = &self.file {
                write!(f, "{}:", file.display())?;
                if let Some(line) = self.line(&problem.span) {
                    write!(f, "{line}:")?;
                }
                f.write_str(" ")?;
            }
            // Keys mean nothing to an operator who set arguments.
            if self.file.is_some() && !problem.key.is_empty() {
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
