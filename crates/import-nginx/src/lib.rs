//! Converts an nginx configuration to sealion.toml, and names what it cannot convert. Needs nothing of the server but the form of its configuration.
//!
//! ```text
//! tokens ─► syntax (blocks, includes) ─► convert ─► site ─► location ─► toml_text
//!                                           │        │    guards, limits, path_rules, targets, indirect
//!                                           └────────┴─────────┴──► Left: what has no counterpart, where it stands, what to do
//! ```

mod convert;
mod directives;
mod guards;
mod indirect;
mod limits;
mod listeners;
mod location;
mod path_rules;
mod real_ip;
mod site;
mod syntax;
mod targets;
mod tls;
mod tokens;
mod toml_text;
mod values;

use std::fmt;
use std::path::Path;
use std::rc::Rc;

pub use directives::{counterparts, markdown};

/// Converts the configuration that nginx is started with; files that it includes are read too. `is_reserved`: whether the server sets a response
/// field itself, so that no rule may.
///
/// # Errors
/// A line that says why the configuration cannot be read.
pub fn convert(file: &Path, is_reserved: fn(&str) -> bool) -> Result<Conversion, String> {
    convert::convert(file, is_reserved)
}

/// Where a directive stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: Rc<Path>,
    /// From 1.
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A directive that was not converted, or not as it stands. Displayed, it is a line with its place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    place: Place,
    directive: String,
    remedy: String,
    /// Whether it refused requests that are answered now.
    pub unguarded: bool,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.unguarded { "UNGUARDED: " } else { "" };
        write!(f, "{}: {}: {mark}{}", self.place, self.directive, self.remedy)
    }
}

/// What a configuration became.
#[derive(Debug)]
pub struct Conversion {
    root: toml_text::Table,
    /// What was not converted, in the order of the files.
    pub left: Vec<Left>,
}

impl Conversion {
    /// The text of sealion.toml, with what was not converted as comments at its top.
    pub fn text(&self) -> String {
        let mut text = String::from("# Made by sealion import-nginx. Check it with: sealion check --config FILE\n");
        if !self.left.is_empty() {
            text.push_str("#\n# Not converted:\n");
        }
        for left in &self.left {
            text.push_str(&format!("# - {}\n", left.to_string().replace('\n', " ")));
        }
        text + &self.root.to_string()
    }
}

/// A text that nginx would not read either.
#[derive(Debug)]
struct SyntaxError {
    line: usize,
    what: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}
