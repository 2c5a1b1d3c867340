//! The whole configuration: process-wide directives, then each server of `http`.

mod auth_request;
mod extensions;
mod guards;
mod limits;
mod listeners;
mod location;
mod log;
mod path_rules;
mod pcre;
mod plain;
mod proxy;
mod real_ip;
mod site;
mod targets;
mod tls;
mod values;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use toml::Value;

use limits::Zones;
use listeners::Listeners;
use proxy::{CacheZones, Upstreams};
use targets::Targets;

use crate::directives::{Handling, handling};
use crate::syntax::{self, Directive};
use crate::toml_text::Table;
use crate::{Conversion, Unconverted};

/// Converts the main configuration file of nginx.
pub(super) fn convert(file: &Path, is_reserved: fn(&str) -> bool) -> Result<Conversion, String> {
    let configuration = syntax::read(file)?;
    let mut context = Context {
        is_reserved,
        directory: file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
        root: Table::default(),
        unconverted: Vec::new(),
        workers: None,
        names: HashSet::new(),
        plain: Vec::new(),
        zones: Zones::default(),
        targets: Targets::default(),
        upstreams: Upstreams::default(),
        cache_zones: CacheZones::default(),
        drafts: Vec::new(),
    };
    for missing in &configuration.missing {
        context.unconverted.push(Unconverted {
            place: missing.place.clone(),
            directive: "include".to_owned(),
            remedy: format!(
                "{}: run the conversion where the file is readable, as it may restrict access",
                missing.what
            ),
            unguarded: !missing.is_known(),
        });
    }
    let mut http = Vec::new();
    for directive in &configuration.directives {
        match directive.name.as_str() {
            "http" => http.extend(directive.children()),
            "events" => directive.children().iter().for_each(|inner| context.process(inner)),
            // A file from conf.d, converted on its own.
            "server" => http.push(directive),
            _ => context.process(directive),
        }
    }
    let (servers, shared): (Vec<_>, Vec<_>) = http.into_iter().partition(|directive| directive.name == "server");
    for directive in &shared {
        context.shared(directive);
    }
    let mut listeners = Listeners::of(&servers);
    let mut sites = Vec::new();
    let mut converted = Vec::new();
    for server in servers {
        if let Some(site) = site::convert(&mut context, &mut listeners, server, &shared) {
            listeners.bind(server, &site);
            sites.push(site);
            converted.push(server);
        }
    }
    listeners.restrict(&mut context, &mut sites);
    let converted = listeners.read_client_addresses(&converted, &shared);
    real_ip::report(&mut context, &shared, &converted);
    if sites.is_empty() {
        context.root.comment("No server with `listen … ssl` or with content was found, so there is no site.");
    }
    if !listeners.can_be_https() {
        for (site, (server, _)) in sites.iter_mut().zip(&converted) {
            if site.remove("hsts") {
                let remedy = "Strict-Transport-Security is not sent without TLS: name the proxy in front by client_address and trusted_proxies of the listener, and set hsts";
                context.report_with(server, remedy);
            }
        }
    }
    if let ([_, _, ..], Some((site, _))) =
        (sites.as_slice(), converted.iter().enumerate().find(|(_, (server, _))| listeners.is_default(server)))
    {
        sites[site].set("default", true);
    }
    context.report_names_without_site();
    listeners.write(&mut context.root);
    for site in sites {
        context.root.push("site", site);
    }
    let Context { root, mut unconverted, .. } = context;
    unconverted.sort_by(|a, b| a.place.cmp(&b.place));
    unconverted.dedup();
    Ok(Conversion { root, unconverted })
}

/// State of a conversion.
pub(super) struct Context {
    /// Whether the server sets a response field itself.
    pub(super) is_reserved: fn(&str) -> bool,
    /// Base of relative paths: the directory of the main file.
    directory: PathBuf,
    pub(super) root: Table,
    pub(super) unconverted: Vec<Unconverted>,
    workers: Option<u64>,
    names: HashSet<String>,
    /// Servers without TLS, with their names.
    pub(super) plain: Vec<(Directive, Vec<String>)>,
    zones: Zones,
    /// The locations of the current server, to check targets against.
    targets: Targets,
    /// The `upstream` blocks.
    upstreams: Upstreams,
    /// The directories of nginx' caches.
    cache_zones: CacheZones,
    /// The locations of the current server that are forwarded.
    drafts: Vec<proxy::Draft>,
}

impl Context {
    /// Reports an unconverted directive with the remedy for its kind, marked if it restricted access.
    pub(super) fn report(&mut self, directive: &Directive) {
        let remedy = match handling(&directive.name) {
            Some(Handling::Unsupported(remedy)) => remedy,
            Some(Handling::NotNeeded(_)) => return,
            Some(Handling::Converted(_)) => "unsupported in this form or place: see docs/migrate-from-nginx.md",
            None => "unknown directive: check its documentation for its effect",
        };
        self.record(directive, remedy.to_owned(), guards::guards(directive));
    }

    /// Reports an unconverted directive whose loss grants no access.
    pub(super) fn report_with(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy.into(), false);
    }

    /// Reports an unconverted directive that restricted access.
    pub(super) fn report_unguarded(&mut self, directive: &Directive, remedy: impl Into<String>) {
        self.record(directive, remedy.into(), true);
    }

    fn record(&mut self, directive: &Directive, remedy: String, unguarded: bool) {
        let (place, directive) = (directive.place.clone(), directive.to_string());
        self.unconverted.push(Unconverted { place, directive, remedy, unguarded });
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
                self.report_with(
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

    /// Claims a host name. `false`: an earlier server has it.
    pub(super) fn take_name(&mut self, name: &str) -> bool {
        self.names.insert(name.to_owned())
    }

    /// Reports names of plain HTTP servers that no site has: plain HTTP redirects only names of sites.
    fn report_names_without_site(&mut self) {
        for (server, names) in std::mem::take(&mut self.plain) {
            let is_known = |name: &String| {
                let wildcard = name.split_once('.').map(|(_, domain)| format!("*.{domain}"));
                self.names.contains(name) || wildcard.is_some_and(|wildcard| self.names.contains(&wildcard))
            };
            let unknown: Vec<String> = names.into_iter().filter(|name| !is_known(name)).collect();
            if !unknown.is_empty() {
                let names = unknown.join(", ");
                self.report_with(
                    &server,
                    format!("no HTTPS site has the names {names}: add a site with a certificate for them"),
                );
            }
        }
    }

    /// A directive outside `http`.
    fn process(&mut self, directive: &Directive) {
        let number = directive.first().parse::<u64>().ok();
        match (directive.name.as_str(), directive.first()) {
            ("worker_processes", "auto") => {}
            ("worker_processes", _) => match number {
                Some(workers @ 1..=1024) => {
                    self.workers = Some(workers);
                    self.root.table("server").set("workers", workers as i64);
                }
                _ => self.report(directive),
            },
            ("worker_connections", _) => match number {
                Some(connections @ 1..=1_000_000) => {
                    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
                    let all = connections * self.workers.unwrap_or_else(cores);
                    self.root.table("limits").set("max_connections", all as i64);
                }
                _ => self.report(directive),
            },
            ("worker_shutdown_timeout", _) => self.limit_time(directive, "grace"),
            ("error_log", _) => self.error_log(directive),
            _ => self.report(directive),
        }
    }

    /// A directive of `http`, or a directive of a server that is process-wide here.
    pub(super) fn shared(&mut self, directive: &Directive) {
        match directive.name.as_str() {
            "keepalive_timeout" => self.limit_time(directive, "idle_timeout"),
            "client_header_timeout" | "client_body_timeout" => self.limit_time(directive, "request_timeout"),
            "send_timeout" => self.limit_time(directive, "stall_timeout"),
            "lingering_timeout" => self.limit_time(directive, "linger_timeout"),
            "ssl_handshake_timeout" => self.limit_time(directive, "handshake_timeout"),
            "keepalive_requests" => match directive.first().parse::<i64>() {
                Ok(requests @ 1..) => self.process_wide(directive, "limits", "max_requests", requests),
                _ => self.report(directive),
            },
            "large_client_header_buffers" => self.header_buffers(directive),
            "open_file_cache_valid" => match values::time(directive.first()) {
                Some(age) => self.process_wide(directive, "server", "file_cache_age", age.to_string()),
                None => self.report(directive),
            },
            // Handled with the servers.
            name if real_ip::is_real_ip_directive(name) => {}
            "open_file_cache" | "open_file_cache_min_uses" | "open_file_cache_errors" => {}
            "error_log" => self.error_log(directive),
            "access_log" => log::of_all(self, directive),
            "limit_req_zone" | "limit_conn_zone" => {
                if !self.zones.take(directive) {
                    self.report_with(directive, "only limits per client address are supported");
                }
            }
            "ssl_session_tickets" if directive.first() == "on" => {}
            "ssl_session_tickets" => {
                self.report_with(
                    directive,
                    "sessions resume by tickets only; to turn them off, set enabled = false in [tls.session_tickets]",
                );
            }
            "ssl_protocols" => tls::protocols(self, directive),
            "ssl_conf_command" => tls::command(self, directive),
            "upstream" => self.upstreams.take(directive),
            "proxy_cache_path" => self.cache_zones.take(directive),
            // `Connection` of an upgrade, which is passed on anyway.
            "map" if directive.first() == "$http_upgrade" => {}
            _ if proxy::is_off(directive) => {}
            // Inherited by the servers.
            name if site::inherits(name) => {}
            _ => self.report(directive),
        }
    }

    fn limit_time(&mut self, directive: &Directive, key: &str) {
        match values::time(directive.first()) {
            Some(time) if !time.0.is_zero() => self.process_wide(directive, "limits", key, time.to_string()),
            _ => self.report_with(directive, format!("set [limits] {key} to a time above 0")),
        }
    }

    fn header_buffers(&mut self, directive: &Directive) {
        let [number, size] = directive.arguments.as_slice() else { return self.report(directive) };
        match (number.parse::<u64>(), values::size(size)) {
            (Ok(number @ 1..), Some(size)) if (256..=1 << 20).contains(&size.0) => {
                self.root.table("limits").set("max_request_line", size.0 as i64);
                self.root.table("limits").set("max_head", (number * size.0).min(1 << 20) as i64);
            }
            _ => self.report(directive),
        }
    }

    fn error_log(&mut self, directive: &Directive) {
        let level = match directive.arguments.get(1).map_or("error", String::as_str) {
            "debug" => "debug",
            "info" => "info",
            "crit" | "alert" | "emerg" => "error",
            // Failures of servers behind a rule are errors in nginx, and warnings here.
            _ => "warn",
        };
        self.root.table("server").set("log", level);
    }
}

#[cfg(test)]
mod tests;
