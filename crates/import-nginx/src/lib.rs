//! Converts an nginx configuration to sealion.toml, and reports directives it cannot convert. Depends only on the format of
//! the server's configuration, not on its code.
//!
//! ```text
//! tokens ─► syntax (blocks, includes) ─► convert: a server is a site, a location a route ─► toml_text
//!                                           └─► report: what has no counterpart, and how each site is
//!        syntax ─► on_loopback: what `--compare` starts nginx with
//! ```

mod convert;
mod directives;
mod on_loopback;
mod refused;
mod report;
mod syntax;
mod tokens;
mod toml_text;

use std::fmt;
use std::path::Path;
use std::rc::Rc;

pub use directives::{counterparts, markdown};
pub use on_loopback::{Moved, OnLoopback, on_loopback};
pub use refused::Refused;
pub use report::{Loss, Summary, Unconverted, Verdict};

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

/// A converted configuration.
#[derive(Debug)]
pub struct Conversion {
    root: toml_text::Table,
    /// The names of the sites, in their order.
    names: Vec<String>,
    /// Directives that were not converted, in source order.
    pub unconverted: Vec<Unconverted>,
    /// How each site is, the worst first.
    pub summaries: Vec<Summary>,
}

impl Conversion {
    /// `names`: of the sites, in their order.
    fn new(root: toml_text::Table, unconverted: Vec<Unconverted>, names: Vec<String>) -> Self {
        let mut conversion = Conversion { root, names, unconverted, summaries: Vec::new() };
        conversion.summarize();
        conversion
    }

    /// Says how each site is, here and in the configuration.
    fn summarize(&mut self) {
        let sites = self.names.iter().cloned().zip(self.root.list("site"));
        let sites: Vec<(String, bool)> = sites.map(|(name, site)| (name, answers(site))).collect();
        self.summaries = report::summaries(&self.unconverted, &sites);
        let lines = self.summaries.iter().filter(|summary| summary.verdict != Verdict::Works);
        let lines: Vec<String> = lines.map(Summary::to_string).collect();
        self.root.remove("import");
        if !lines.is_empty() {
            let import = self.root.table("import");
            import.comment("`sealion check` repeats this until acknowledged = true.");
            import.set("acknowledged", false);
            import.set("summary", lines);
        }
    }

    /// The text of sealion.toml, with unconverted directives as comments at the top. TOML allows no control character in a comment.
    pub fn text(&self) -> String {
        let mut text = String::from("# Made by sealion import-nginx. Check it with: sealion check --config FILE\n");
        let mut named = self.unconverted.iter().filter(|one| one.loss > Loss::Cosmetic).peekable();
        if named.peek().is_some() {
            text.push_str("#\n# Not converted:\n");
        }
        for directive in named {
            text.push_str(&format!("# - {}\n", directive.to_string().replace(char::is_control, " ")));
        }
        text + &self.root.to_string()
    }
}

/// Whether the root of a site answers anything but 501.
fn answers(site: &toml_text::Table) -> bool {
    fn is_everything(route: &toml_text::Table) -> bool {
        let path = route.get("path").and_then(toml::Value::as_str);
        matches!(path, Some("/" | "^~ /" | "~ ^/" | "~ .*" | "~ /")) && route.get("match").is_none()
    }
    fn is_closed(route: &toml_text::Table) -> bool {
        let is_501 = route.get("respond").and_then(toml::Value::as_integer) == Some(501);
        // The routes within it that are chosen by a condition may answer.
        is_everything(route) && (is_501 || route.list("route").any(is_closed))
    }
    !site.list("route").any(is_closed)
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
