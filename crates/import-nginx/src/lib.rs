//! Converts an nginx configuration to sealion.toml, and reports directives it cannot convert. Depends only on the format of
//! the server's configuration, not on its code.
//!
//! ```text
//! tokens ─► syntax (blocks, includes) ─► convert ─► site ─► location ─► toml_text
//!                                           │        │    guards, limits, path_rules, proxy, targets
//!                                           └────────┴─────────┴──► Unconverted: directive, place, remedy
//!        syntax ─► on_loopback: what `--compare` starts nginx with
//! ```

mod convert;
mod directives;
mod on_loopback;
mod syntax;
mod tokens;
mod toml_text;

use std::fmt;
use std::path::Path;
use std::rc::Rc;

pub use directives::{counterparts, markdown};
pub use on_loopback::{Moved, OnLoopback, on_loopback};

/// Converts the main configuration file of nginx and the files it includes. `is_reserved`: whether the server sets a
/// response field itself, so that no rule may set it.
///
/// # Errors
/// The configuration cannot be read or parsed; the message names file and line.
pub fn convert(file: &Path, is_reserved: fn(&str) -> bool) -> Result<Conversion, String> {
    convert::convert(file, is_reserved)
}

/// File and line of a directive.
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

/// A directive that was not converted, or not exactly. Displays as one line with place and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconverted {
    place: Place,
    directive: String,
    remedy: String,
    /// Whether it refused requests that are now answered.
    pub unguarded: bool,
}

impl fmt::Display for Unconverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.unguarded { "UNGUARDED: " } else { "" };
        write!(f, "{}: {}: {mark}{}", self.place, self.directive, self.remedy)
    }
}

/// A converted configuration.
#[derive(Debug)]
pub struct Conversion {
    root: toml_text::Table,
    /// Directives that were not converted, in source order.
    pub unconverted: Vec<Unconverted>,
}

impl Conversion {
    /// The text of sealion.toml, with unconverted directives as comments at the top. TOML allows no control character in a comment.
    pub fn text(&self) -> String {
        let mut text = String::from("# Made by sealion import-nginx. Check it with: sealion check --config FILE\n");
        if !self.unconverted.is_empty() {
            text.push_str("#\n# Not converted:\n");
        }
        for directive in &self.unconverted {
            text.push_str(&format!("# - {}\n", directive.to_string().replace(char::is_control, " ")));
        }
        text + &self.root.to_string()
    }
}

/// A syntax error, which nginx would report too.
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
