//! The host names of a listener, each with its site.
//!
//! ```text
//! exact ─► the longest `*.parent` ─► the longest `beginning.*` ─► the first expression ─► the default site
//! ```
//!
//! If names are equal, a site that names the listener goes before a site that is served on all. So a plain site can have the name of a site with
//! TLS. Expressions of sites that name the listener go first too; then the order of the file counts.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use sealion_tls::NameFinder;

use super::SiteConfig;
use crate::placeholders::expression;
use crate::values::{At, Problems, Short};

/// The sites of a listener, found by host name.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    exact: Names,
    /// `example.org` for `*.example.org`.
    beneath: Names,
    /// `www.example` for `www.example.*`.
    beginning: Names,
    /// First the expressions of sites that name the listener, then in the order of the file.
    expressions: Vec<(Regex, Owner)>,
    default: Option<Owner>,
    /// Whether no site there has a name.
    is_nameless: bool,
    /// The sites that are served there, in the order of the file.
    sites: Vec<usize>,
}

/// Names in lower case. They are of the configuration, so that no client chooses names with the same hash.
type Names = HashMap<Box<str>, Owner, foldhash::fast::FixedState>;

/// The site that has a name on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    site: usize,
    claim: Claim,
}

/// How a site has its names on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It is served on all listeners.
    Everywhere,
    /// It names the listener.
    Here,
}

/// A host name of a site.
enum HostName {
    Exact(Box<str>),
    Beneath(Box<str>),
    Beginning(Box<str>),
    Expression(Regex),
}

impl HostName {
    fn parse(name: &At<String>, problems: &mut Problems) -> Option<Self> {
        if let Some(text) = expression(name) {
            let built = RegexBuilder::new(&text).unicode(false).size_limit(REGEX_SIZE).build();
            return built
                .map_err(|error| {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().to_owned();
                    problems.add(&name.span, KEY, format_args!("is not a regular expression: {why}"));
                })
                .ok()
                .map(Self::Expression);
        }
        let (kind, plain): (fn(Box<str>) -> Self, &str) = match (name.strip_prefix("*."), name.strip_suffix(".*")) {
            (Some(parent), _) => (Self::Beneath, parent),
            (None, Some(beginning)) => (Self::Beginning, beginning),
            (None, None) => (Self::Exact, name),
        };
        if !is_host(plain) {
            let hint = "is not a host name: write for instance example.org, *.example.org, www.example.*, 192.0.2.1 or [::1], without port, or ~ and an expression";
            problems.add(&name.span, KEY, format_args!("{:?} {hint}", name.value));
            return None;
        }
        Some(kind(plain.trim_end_matches('.').to_ascii_lowercase().into()))
    }
}

/// The expression of a name, if it is one.
pub(super) fn expression_of(name: &str) -> Option<Regex> {
    RegexBuilder::new(&expression(name)?).unicode(false).size_limit(REGEX_SIZE).build().ok()
}

/// Bytes of a name that is looked up in other spellings.
const MAX_NAME: usize = 256;

/// Bound on a compiled expression, in bytes; usual ones have a few thousand.
const REGEX_SIZE: usize = 1 << 20;

const KEY: &str = "site.names";

impl Hosts {
    /// The tables of listeners, by their place. `listeners`: their addresses. Errors are added to `problems`, each once. Listeners with the same sites share
    /// one table.
    pub(crate) fn of_listeners(sites: &[&SiteConfig], listeners: &[String], problems: &mut Problems) -> Vec<Arc<Self>> {
        check_reachable(sites, problems);
        let parsed: Vec<Vec<(&At<String>, HostName)>> = sites
            .iter()
            .map(|site| site.names.iter().filter_map(|name| Some((name, HostName::parse(name, problems)?))).collect())
            .collect();
        let mut building = Building { sites, reported: HashSet::new(), problems };
        let mut tables: Vec<(Vec<Served>, Arc<Self>)> = Vec::new();
        for listener in listeners {
            let served = served_on(sites, listener);
            let table = match tables.iter().find(|(known, _)| *known == served) {
                Some((_, table)) => Arc::clone(table),
                None => Arc::new(building.hosts(&parsed, &served)),
            };
            tables.push((served, table));
        }
        tables.into_iter().map(|(_, table)| table).collect()
    }

    /// The place of the site with this host, without port, in any case. `None`: no site has the name.
    pub(crate) fn find(&self, host: &str) -> Option<usize> {
        if self.is_nameless {
            return None;
        }
        // As clients usually write it.
        if let Some(owner) = self.exact.get(host) {
            return Some(owner.site);
        }
        let is_normal = !host.bytes().any(|byte| byte.is_ascii_uppercase()) && !host.as_bytes().ends_with(b".");
        match is_normal {
            true => self.find_pattern(host),
            false => self.find_in_lower_case(host),
        }
    }

    fn find_in_lower_case(&self, host: &str) -> Option<usize> {
        // A name has at most 253 bytes (RFC 1035 §2.3.4).
        let mut lower = [0; MAX_NAME];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let name = std::str::from_utf8(lower).ok()?;
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Some(owner) = self.exact.get(name) {
            return Some(owner.site);
        }
        self.find_pattern(name)
    }

    fn find_pattern(&self, name: &str) -> Option<usize> {
        let has_patterns = !self.beneath.is_empty() || !self.beginning.is_empty() || !self.expressions.is_empty();
        if !has_patterns || name.len() > MAX_NAME {
            return None;
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.').filter(|_| !self.beneath.is_empty()) {
            if let Some(owner) = self.beneath.get(parent) {
                return Some(owner.site);
            }
            rest = parent;
        }
        let mut rest = name;
        while let Some((beginning, _)) = rest.rsplit_once('.').filter(|_| !self.beginning.is_empty()) {
            if let Some(owner) = self.beginning.get(beginning) {
                return Some(owner.site);
            }
            rest = beginning;
        }
        self.expressions
            .iter()
            .find(|(expression, _)| expression.is_match(name.as_bytes()))
            .map(|(_, owner)| owner.site)
    }

    /// The place of the site that answers unknown names.
    pub(crate) fn default_site(&self) -> Option<usize> {
        self.default.map(|owner| owner.site)
    }

    /// The places of the sites that are served there, that for unknown names first, and which of them has a name.
    pub(crate) fn for_handshakes(self: &Arc<Self>) -> (Vec<usize>, NameFinder) {
        let mut places = self.sites.clone();
        if let Some(index) = places.iter().position(|place| Some(*place) == self.default_site()) {
            places.swap(0, index);
        }
        let numbers: HashMap<usize, usize> =
            places.iter().enumerate().map(|(number, place)| (*place, number)).collect();
        let hosts = Arc::clone(self);
        (places, NameFinder::new(move |name| numbers.get(&hosts.find(name)?).copied()))
    }
}

/// The tables of listeners while they are built.
struct Building<'a> {
    sites: &'a [&'a SiteConfig],
    /// Begins of the names and keys with errors.
    reported: HashSet<usize>,
    problems: &'a mut Problems,
}

impl Building<'_> {
    fn hosts(&mut self, parsed: &[Vec<(&At<String>, HostName)>], served: &[Served]) -> Hosts {
        let mut hosts = Hosts::default();
        for &Served { owner, is_default } in served {
            hosts.sites.push(owner.site);
            for (name, parsed) in &parsed[owner.site] {
                let table = match parsed {
                    HostName::Exact(_) => &mut hosts.exact,
                    HostName::Beneath(_) => &mut hosts.beneath,
                    HostName::Beginning(_) => &mut hosts.beginning,
                    HostName::Expression(expression) => {
                        let is_same = |(other, by): &(Regex, Owner)| {
                            other.as_str() == expression.as_str() && by.claim == owner.claim
                        };
                        if hosts.expressions.iter().any(is_same) {
                            self.report_twice(name);
                        }
                        hosts.expressions.push((expression.clone(), owner));
                        continue;
                    }
                };
                let (HostName::Exact(text) | HostName::Beneath(text) | HostName::Beginning(text)) = parsed else {
                    continue;
                };
                self.claim(table, name, text, owner);
            }
            if is_default {
                self.claim_default(&mut hosts, owner);
            }
        }
        hosts.expressions.sort_by_key(|(_, owner)| Reverse(owner.claim));
        hosts.is_nameless = served.iter().all(|served| parsed[served.owner.site].is_empty());
        hosts
    }

    fn claim(&mut self, table: &mut Names, name: &At<String>, text: &str, owner: Owner) {
        match table.get(text) {
            Some(other) if other.claim == owner.claim => self.report_twice(name),
            Some(other) if other.claim > owner.claim => {}
            _ => {
                table.insert(text.into(), owner);
            }
        }
    }

    fn report_twice(&mut self, name: &At<String>) {
        if self.reported.insert(name.span.start) || name.span.is_empty() {
            let what = "is listed twice: keep it in one site only, or name different listeners in their `listen`";
            self.problems.add(&name.span, KEY, format_args!("{} {what}", name.value));
        }
    }

    fn claim_default(&mut self, hosts: &mut Hosts, owner: Owner) {
        match hosts.default {
            Some(other) if other.claim == owner.claim => {
                // Once for two sites, however many listeners both have.
                if self.reported.insert(usize::MAX - owner.site) {
                    let [first, second] = [other, owner].map(|owner| self.sites[owner.site].label());
                    let what = format_args!("both {first} and {second} are the default: choose one");
                    self.problems.add(&self.sites[owner.site].span_of_default(), "site.default", what);
                }
            }
            Some(other) if other.claim > owner.claim => {}
            _ => hosts.default = Some(owner),
        }
    }
}

/// A site that is served on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Served {
    owner: Owner,
    is_default: bool,
}

/// The sites that are served on the listener with this address, in the order of the file.
fn served_on(sites: &[&SiteConfig], listener: &str) -> Vec<Served> {
    let served = |(site, config): (usize, &&SiteConfig)| {
        let claim = match &config.listen {
            None => Claim::Everywhere,
            Some(named) if named.iter().any(|name| name.value == listener) => Claim::Here,
            Some(_) => return None,
        };
        let is_default = sites.len() == 1 || config.is_default_at(listener);
        Some(Served { owner: Owner { site, claim }, is_default })
    };
    sites.iter().enumerate().filter_map(served).collect()
}

/// Adds an error for each site that no request can reach.
fn check_reachable(sites: &[&SiteConfig], problems: &mut Problems) {
    for site in sites.iter().filter(|site| sites.len() > 1 && site.names.is_empty() && !site.is_default()) {
        problems.add(
            &site.span_of_default(),
            KEY,
            "a site has neither names nor `default = true`, so no request can reach it",
        );
    }
}

impl SiteConfig {
    /// Whether it answers unknown names on some listener.
    pub(crate) fn is_default(&self) -> bool {
        match &self.default {
            Short::Short(is_default) => *is_default,
            Short::Table(listeners) => !listeners.is_empty(),
        }
    }

    /// The place in the file of its `default`, if that names listeners, otherwise of its first name.
    fn span_of_default(&self) -> Range<usize> {
        let listener = self.default.table().and_then(|named| named.first());
        listener.or(self.names.first()).map_or(0..0, |text| text.span.clone())
    }

    /// Whether it answers unknown names on the listener of this name.
    fn is_default_at(&self, listener: &str) -> bool {
        match &self.default {
            Short::Short(is_default) => *is_default,
            Short::Table(listeners) => listeners.iter().any(|name| name.value == listener),
        }
    }
}

fn is_host(name: &str) -> bool {
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let labels = name.strip_suffix('.').unwrap_or(name);
            labels.len() <= 253
                && labels.split('.').all(|label| {
                    (1..=63).contains(&label.len())
                        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                })
        }
    }
}
