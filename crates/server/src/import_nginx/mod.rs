//! An nginx configuration, turned into ours as far as it can be, with the rest named.
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
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;

use crate::cli::print;

/// What `sealion import-nginx` can be told.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// The configuration that nginx is started with; files that it includes are read too
    #[arg(default_value = "/etc/nginx/nginx.conf")]
    pub file: PathBuf,

    /// Where to write the configuration [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print the table of directives of docs/migrate-from-nginx.md
    #[arg(long, hide = true)]
    pub table: bool,
}

/// The exit code when something was left.
const SOME_LEFT: u8 = 3;

/// Converts, prints the result, and names on standard error what could not be converted: exit code 3 if there is any.
///
/// # Errors
/// The configuration cannot be read, or the result not be written.
pub fn run(args: &ImportArgs) -> Result<ExitCode, String> {
    if args.table {
        return print(&directives::markdown()).map(|()| ExitCode::SUCCESS);
    }
    let conversion = convert::convert(&args.file)?;
    let text = conversion.text();
    match &args.output {
        Some(output) => {
            std::fs::write(output, text).map_err(|e| format!("cannot write {}: {e}", output.display()))?;
        }
        None => print(&text)?,
    }
    for left in &conversion.left {
        eprintln!("{left}");
    }
    let open = conversion.left.iter().filter(|left| left.unguarded).count();
    match (conversion.left.len(), open) {
        (0, _) => return Ok(ExitCode::SUCCESS),
        (n, 0) => eprintln!("sealion: {n} not converted; the rest is. See docs/migrate-from-nginx.md"),
        (n, open) => eprintln!(
            "sealion: {n} not converted, and {open} of them kept somebody out: do not start before each UNGUARDED is mended. \
             See docs/migrate-from-nginx.md"
        ),
    }
    Ok(ExitCode::from(SOME_LEFT))
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

/// A directive that could not be converted, or not as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    place: Place,
    directive: String,
    remedy: String,
    /// It kept somebody out, and nothing does now.
    unguarded: bool,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.unguarded { "UNGUARDED: " } else { "" };
        write!(f, "{}: {}: {mark}{}", self.place, self.directive, self.remedy)
    }
}

/// What a configuration became.
struct Conversion {
    root: toml_text::Table,
    left: Vec<Left>,
}

impl Conversion {
    /// The file, with what is left at its top.
    fn text(&self) -> String {
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
