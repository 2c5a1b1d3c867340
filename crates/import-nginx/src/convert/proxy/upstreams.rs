//! `upstream` blocks and servers that locations name, as `[[upstream]]`. The times and TLS of a location are keys of the upstream here, so that
//! a block may become several.

use toml::Value;

use crate::convert::context::Context;
use crate::convert::values;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The `upstream` blocks of `http`, and the tables made of them.
#[derive(Debug, Default)]
pub(in crate::convert) struct Upstreams {
    blocks: Vec<Directive>,
    written: Vec<Written>,
}

#[derive(Debug)]
struct Written {
    authority: String,
    options: Options,
    name: String,
}

/// The settings of a location for its upstream: keys and values of `[[upstream]]`, and of `[upstream.tls]`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::convert) struct Options {
    /// The scheme of the servers' URLs: `http`, `https`, `fastcgi` or `uwsgi`.
    pub(super) scheme: &'static str,
    pub(super) keys: Vec<(&'static str, Value)>,
    pub(super) tls_keys: Vec<(&'static str, Value)>,
}

impl Default for Options {
    fn default() -> Self {
        Options { scheme: "http", keys: Vec::new(), tls_keys: Vec::new() }
    }
}

/// An upstream as a rule names it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    /// The `$proxy_host` of nginx.
    pub(super) host: String,
}

impl Upstreams {
    pub(in crate::convert) fn take(&mut self, block: &Directive) {
        self.blocks.push(block.clone());
    }
}

/// Whether an authority is the name of an `upstream`.
pub(super) fn is_block(context: &Context, authority: &str) -> bool {
    context.upstreams.blocks.iter().any(|block| block.first() == authority)
}

/// The upstream for the authority of a URL: the name of a block, an address, or `unix:` with a path.
pub(super) fn target(context: &mut Context, authority: &str, options: Options) -> Result<Target, String> {
    let block = context.upstreams.blocks.iter().find(|block| block.first() == authority).cloned();
    let host = match (&block, authority.starts_with("unix:")) {
        (Some(_), _) => authority.to_owned(),
        (None, _) => "upstream".to_owned(),
    };
    let is_plain = options.keys.is_empty() && options.tls_keys.is_empty();
    if block.is_none() && is_plain {
        return Ok(Target { name: url(authority, options.scheme, None)?, host });
    }
    let known = |one: &&Written| one.authority == authority && one.options == options;
    if let Some(written) = context.upstreams.written.iter().find(known) {
        return Ok(Target { name: written.name.clone(), host });
    }
    let name = free_name(context, authority);
    let mut table = Table::default();
    match &block {
        Some(block) => {
            table.comment(&block.place);
            table.set("name", name.as_str());
            of_block(context, &mut table, block, options.scheme)?;
        }
        None => {
            table.set("name", name.as_str());
            table.set("servers", vec![server(url(authority, options.scheme, None)?)]);
        }
    }
    options.keys.iter().for_each(|(key, value)| table.set(key, value.clone()));
    options.tls_keys.iter().for_each(|(key, value)| table.table("tls").set(key, value.clone()));
    context.root.push("upstream", table);
    context.upstreams.written.push(Written { authority: authority.to_owned(), options, name: name.clone() });
    Ok(Target { name, host })
}

/// The name of the block, or a number behind it. The path of a socket is no name.
fn free_name(context: &Context, authority: &str) -> String {
    let word = match authority.strip_prefix("unix:") {
        Some(path) => path.rsplit('/').next().unwrap_or(path),
        None => authority,
    };
    let is_free = |name: &String| !context.upstreams.written.iter().any(|written| written.name == *name);
    let mut names = std::iter::once(word.to_owned()).chain((2..).map(|number| format!("{word}-{number}")));
    names.find(is_free).unwrap_or_default()
}

fn server(url: String) -> Value {
    Value::Table([("url".to_owned(), Value::from(url))].into_iter().collect())
}

/// The URL of a server. `port`: if it has none.
fn url(authority: &str, scheme: &str, port: Option<u16>) -> Result<String, String> {
    if let Some(path) = authority.strip_prefix("unix:") {
        return match (scheme == "https", path.starts_with('/')) {
            (true, _) => Err("a Unix socket is asked without TLS".to_owned()),
            (_, false) => Err("write the full path of the socket".to_owned()),
            _ => Ok(authority.to_owned()),
        };
    }
    let (host, given) = match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((_, rest)) => (&authority[..authority.len() - rest.len()], rest.strip_prefix(':')),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_host = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:[]".contains(&octet);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || !host.bytes().all(is_host) || given.is_some_and(|port| !is_port(port)) {
        return Err(format!("{authority} is no host with a port"));
    }
    let port = given.map(str::to_owned).or(port.map(|port| port.to_string()));
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}"))
}

/// The servers of a block and how they are chosen.
fn of_block(context: &mut Context, table: &mut Table, block: &Directive, scheme: &str) -> Result<(), String> {
    let mut servers = Vec::new();
    let mut failures = Failures::default();
    let mut balance = None;
    for inner in block.children() {
        let first = inner.first();
        match inner.name.as_str() {
            "server" => servers.extend(of_server(context, inner, scheme, &mut failures)?),
            "least_conn" => balance = Some("least-connections"),
            "least_time" => {
                if first == "last_byte" {
                    context.note(inner, "the time to the head of responses is compared");
                }
                balance = Some("least-time");
            }
            "ip_hash" => balance = Some("hash-address"),
            "hash" => match first {
                "$remote_addr" | "$binary_remote_addr" => balance = Some("hash-address"),
                "$request_uri" | "$uri" | "$uri$is_args$args" | "$scheme$proxy_host$request_uri" => {
                    balance = Some("hash-uri");
                }
                _ => context.note(
                    inner,
                    "servers are chosen by the client's address or by path and query: set balance of the [[upstream]]",
                ),
            },
            "random" => balance = Some("two-choices"),
            "keepalive" | "keepalive_timeout" if scheme == "uwsgi" => {
                context.note(inner, "each request of uwsgi has a connection of its own");
            }
            "keepalive" | "keepalive_timeout" if scheme == "fastcgi" => {
                context.note(
                    inner,
                    "connections to scripts are kept with max_idle of the [[upstream]], each with a process",
                );
            }
            "keepalive" => match first.parse::<i64>() {
                Ok(number @ 0..=10_000) => table.set("max_idle", number),
                _ => context.note(inner, "set max_idle of the [[upstream]] to 10000 at most"),
            },
            "keepalive_timeout" => match values::time(first).filter(|time| !time.0.is_zero()) {
                Some(time) => table.set("idle_timeout", time.to_string()),
                None => context.note(inner, "set idle_timeout of the [[upstream]] to a time above 0"),
            },
            // Names are resolved for each connection, and connections are kept by number and time.
            "zone" | "keepalive_requests" | "keepalive_time" | "resolver" | "resolver_timeout" => {}
            "sticky" => match sticky(context, inner) {
                Some(config) => table.set("sticky", config),
                None => context.note(inner, "a cookie made here chooses servers: set sticky = true"),
            },
            _ => context.note(inner, "unknown in an [[upstream]]: check its documentation for its effect"),
        }
    }
    if servers.is_empty() {
        return Err(format!("upstream {} has no server that can be asked", block.first()));
    }
    table.set("servers", servers);
    if let Some(balance) = balance {
        table.set("balance", balance);
    }
    failures.write(context, table);
    Ok(())
}

/// The cookie that names a client's server. `None`: nginx takes another one.
fn sticky(context: &mut Context, directive: &Directive) -> Option<Value> {
    let [kind, name, parameters @ ..] = directive.arguments.as_slice() else { return None };
    if kind != "cookie" || name.contains('$') {
        return None;
    }
    let mut config = toml::Table::new();
    config.insert("cookie".to_owned(), name.as_str().into());
    for parameter in parameters {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let lower = value.to_ascii_lowercase();
        let converted = match key {
            // It always is.
            "httponly" | "secure" => continue,
            "path" if !value.contains('$') => Some(("path", value.to_owned())),
            "samesite" if matches!(lower.as_str(), "lax" | "strict" | "none") => Some(("same_site", lower)),
            "expires" => values::time(value).map(|time| ("max_age", time.to_string())),
            _ => None,
        };
        match converted {
            Some((key, value)) => drop(config.insert(key.to_owned(), value.into())),
            None => context.note(directive, format!("{parameter} has no counterpart in sticky of an [[upstream]]")),
        }
    }
    Some(config.into())
}

/// `max_fails` and `fail_timeout` of servers: an upstream has one of each here.
#[derive(Debug, Default)]
struct Failures {
    each: Vec<(Directive, Option<u64>, Option<String>)>,
}

impl Failures {
    fn write(self, context: &mut Context, table: &mut Table) {
        let Some((_, number, time)) = self.each.first().cloned() else { return };
        for (server, ..) in self.each.iter().filter(|(_, other, until)| (other, until) != (&number, &time)) {
            let remedy =
                "max_fails and fail_timeout apply to all servers of an [[upstream]]: those of the first are taken";
            context.note(server, remedy);
        }
        match number {
            None => {}
            Some(number @ 1..=1000) => table.set("max_fails", number as i64),
            Some(_) => {
                let remedy = "a server that fails is always left out for a while: set max_fails from 1 to 1000";
                context.note(&self.each[0].0, remedy);
            }
        }
        if let Some(time) = time {
            table.set("fail_time", time);
        }
    }
}

/// A server of a block. `None`: it is never asked.
fn of_server(
    context: &mut Context,
    directive: &Directive,
    scheme: &str,
    failures: &mut Failures,
) -> Result<Option<Value>, String> {
    let (mut weight, mut is_backup, mut drains, mut number, mut time) = (None, false, false, None, None);
    for parameter in directive.arguments.iter().skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "down" => return Ok(None),
            "drain" => drains = true,
            "backup" => is_backup = true,
            "weight" => match value.parse::<i64>() {
                Ok(given @ 1..=1000) => weight = Some(given),
                _ => context.note(directive, "set its weight from 1 to 1000"),
            },
            "max_fails" => number = value.parse::<u64>().ok(),
            "fail_timeout" => {
                time = values::time(value).filter(|time| !time.0.is_zero()).map(|time| time.to_string());
            }
            // A name is resolved for each connection.
            "resolve" => {}
            "max_conns" => context.note(directive, "the connections to a server are not limited"),
            "slow_start" => context.note(directive, "a server that answers again gets its whole share at once"),
            _ => context.note(directive, format!("{name} has no counterpart in an [[upstream]]")),
        }
    }
    failures.each.push((directive.clone(), number, time));
    // nginx asks port 80 even with TLS.
    let mut table = toml::Table::new();
    table.insert("url".to_owned(), url(directive.first(), scheme, (scheme == "https").then_some(80))?.into());
    if let Some(weight) = weight {
        table.insert("weight".to_owned(), weight.into());
    }
    if is_backup {
        table.insert("backup".to_owned(), true.into());
    }
    if drains {
        table.insert("state".to_owned(), "drain".into());
    }
    Ok(Some(Value::Table(table)))
}
