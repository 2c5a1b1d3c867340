//! The state of a conversion, and its reports.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use toml::Value;

use super::guards::AskedLocations;
use super::limits::Zones;
use super::proxy::{CacheZones, Upstreams};
use super::variables::Variables;
use crate::directives::{Handling, handling};
use crate::report::{Loss, Unconverted};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// State of a conversion.
pub(super) struct Context {
    /// Whether the server sets a response field itself.
    pub(super) is_reserved: fn(&str) -> bool,
    /// Base of relative paths: the directory of the main file.
    directory: PathBuf,
    pub(super) root: Table,
    pub(super) unconverted: Vec<Unconverted>,
    pub(super) workers: Option<u64>,
    pub(super) zones: Zones,
    /// The `upstream` blocks.
    pub(super) upstreams: Upstreams,
    /// The directories of nginx' caches.
    pub(super) cache_zones: CacheZones,
    /// The blocks `map`, `geo` and `split_clients`.
    pub(super) tables: Vec<Directive>,
    /// The placeholders of those that were written; `None`: they have no counterpart.
    pub(super) tables_written: Vec<(String, Option<String>)>,
    /// The formats of `log_format`.
    pub(super) formats: Vec<Directive>,
    /// The variables of `http`.
    pub(super) variables: Variables,
    /// Whether a server takes the client's address from the PROXY protocol.
    pub(super) takes_proxy_protocol: bool,
    /// Whether the current server has TLS.
    pub(super) is_tls: bool,
    /// The site that is being converted.
    pub(super) site: Option<String>,
    /// The error pages of the current server whose locations have error pages of their own.
    pub(super) chained: HashSet<String>,
    /// The named routes that redirect to a page to sign in.
    pub(super) sign_ins: Vec<String>,
    /// The locations of the current server that `auth_request` asks.
    pub(super) asked: AskedLocations,
    /// The named locations of the current server, and whether they return a response of their own.
    pub(super) named: HashMap<String, bool>,
    /// The routes that stand for a named location where contents may have another size: its name, the size, and theirs.
    pub(super) sized: Vec<(String, u64, String)>,
    /// The routes of the current site that no location has: parts of locations that need a path of their own.
    pub(super) further: Vec<Table>,
    /// Number of such routes so far.
    number: usize,
}

impl Context {
    pub(super) fn new(file: &std::path::Path, is_reserved: fn(&str) -> bool) -> Self {
        let directory =
            file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        Context {
            is_reserved,
            directory: directory.to_owned(),
            root: Table::default(),
            unconverted: Vec::new(),
            workers: None,
            zones: Zones::default(),
            upstreams: Upstreams::default(),
            cache_zones: CacheZones::default(),
            tables: Vec::new(),
            tables_written: Vec::new(),
            formats: Vec::new(),
            variables: Variables::default(),
            site: None,
            takes_proxy_protocol: false,
            is_tls: false,
            chained: HashSet::new(),
            sign_ins: Vec::new(),
            asked: AskedLocations::default(),
            named: HashMap::new(),
            sized: Vec::new(),
            further: Vec::new(),
            number: 0,
        }
    }

    /// A number for a route that no location has.
    pub(super) fn next_number(&mut self) -> usize {
        self.number += 1;
        self.number
    }

    /// Reports a directive without counterpart, with the remedy for its kind.
    pub(super) fn report(&mut self, directive: &Directive) {
        let (remedy, loss) = match handling(&directive.name) {
            Some(Handling::Guard(harmless, _)) if directive.first() == harmless => return,
            Some(Handling::Guard(_, remedy)) => (remedy, Loss::Unguarded),
            Some(Handling::Unsupported(remedy)) => (remedy, Loss::Part),
            Some(Handling::Minor(remedy)) => (remedy, Loss::Cosmetic),
            Some(Handling::NotNeeded(_)) => return,
            // Limits of time and size hold for all sites.
            Some(Handling::Converted(keys)) if keys.split(' ').all(|key| key.starts_with("limits.")) => {
                ("it holds for all sites here: set [limits]", Loss::Cosmetic)
            }
            Some(Handling::Converted(_)) => {
                ("unsupported in this form or place: see docs/migrate-from-nginx.md", Loss::Part)
            }
            None => ("unknown directive: check its documentation for its effect", Loss::Part),
        };
        self.record(directive, remedy, loss);
    }

    /// Reports an unconverted directive whose loss changes responses.
    pub(super) fn report_with(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy, Loss::Part);
    }

    /// Reports a difference that no client depends on.
    pub(super) fn note(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy, Loss::Cosmetic);
    }

    /// Reports a directive whose part of the site answers 501 or 403 now.
    pub(super) fn report_closed(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy, Loss::Closed);
    }

    /// Reports an unconverted directive that restricted access.
    pub(super) fn report_unguarded(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy, Loss::Unguarded);
    }

    pub(super) fn record(&mut self, directive: &Directive, remedy: impl Into<String>, loss: Loss) {
        let (place, shown) = (directive.place.clone(), directive.to_string());
        let one = Unconverted { place, directive: shown, remedy: remedy.into(), loss, site: self.site.clone() };
        // A directive may stand behind several.
        if !self.unconverted.contains(&one) {
            self.unconverted.push(one);
        }
    }

    /// Whether a directive was reported.
    pub(super) fn is_reported(&self, directive: &Directive) -> bool {
        let shown = directive.to_string();
        self.unconverted.iter().any(|one| one.place == directive.place && one.directive == shown)
    }

    /// Sets a process-wide key. The first value wins.
    pub(super) fn process_wide(&mut self, directive: &Directive, table: &str, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.root.table(table).get(key).cloned() {
            Some(known) if known != value => {
                self.note(
                    directive,
                    format!("[{table}] {key} applies to all servers: an earlier directive set it to {known}"),
                );
            }
            _ => self.root.table(table).set(key, value),
        }
    }

    /// Resolves the path of a certificate or password file as nginx does.
    pub(super) fn resolve(&self, name: &str) -> String {
        let path = self.directory.join(name);
        std::path::absolute(&path).unwrap_or(path).display().to_string()
    }
}
