//! Limits per client: `limit_req`, `limit_conn`, `limit_rate`.

use super::context::Context;
use super::level::Level;
use super::path::Path;
use super::route::Block;
use super::values;
use super::variables::Variables;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The zones of `limit_req_zone` and `limit_conn_zone`.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// Name, key and rate.
    rates: Vec<(String, String, Rate)>,
    /// Name and key.
    connections: Vec<(String, String)>,
    /// The zone and the burst of each `limit_req`.
    uses: Vec<(String, i64)>,
}

/// A rate of requests.
#[derive(Debug, Clone, Copy)]
enum Rate {
    PerSecond(i64),
    PerMinute(i64),
}

impl Rate {
    /// `10r/s` or `5r/m`
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once("r/")?;
        let number: i64 = number.parse().ok().filter(|number| *number > 0)?;
        Some(match unit {
            "m" if number % 60 == 0 => Rate::PerSecond(number / 60),
            "m" => Rate::PerMinute(number),
            _ => Rate::PerSecond(number),
        })
    }

    fn per_minute(self) -> i64 {
        match self {
            Rate::PerSecond(number) => number.saturating_mul(60),
            Rate::PerMinute(number) => number,
        }
    }

    /// The key of `limits` and its value.
    fn key(self) -> (&'static str, i64) {
        match self {
            Rate::PerSecond(number) => ("requests_per_second", number),
            Rate::PerMinute(number) => ("requests_per_minute", number),
        }
    }
}

impl Zones {
    /// Adds a `limit_req_zone` or `limit_conn_zone`.
    pub(super) fn take(&mut self, directive: &Directive) {
        let Some(zone) = argument(directive, "zone=") else { return };
        let zone = zone.split(':').next().unwrap_or(zone).to_owned();
        let key = directive.first().to_owned();
        if directive.name == "limit_conn_zone" {
            return self.connections.push((zone, key));
        }
        let rate = argument(directive, "rate=").and_then(Rate::parse);
        self.rates.extend(rate.map(|rate| (zone, key, rate)));
    }

    /// Notes a `limit_req`.
    pub(super) fn note_use(&mut self, directive: &Directive) {
        self.uses.extend(argument(directive, "zone=").map(|zone| (zone.to_owned(), burst(directive))));
    }

    /// Whether all `limit_req` of a zone have one burst.
    fn has_one_burst(&self, zone: &str) -> bool {
        let mut bursts = self.uses.iter().filter(|(own, _)| own == zone).map(|(_, burst)| *burst);
        let first = bursts.next();
        bursts.all(|burst| Some(burst) == first)
    }
}

/// The requests that a `limit_req` admits at once: one, and as many as `burst` beside it.
fn burst(directive: &Directive) -> i64 {
    let burst = argument(directive, "burst=").and_then(|burst| burst.parse::<i64>().ok()).unwrap_or(0);
    burst.max(0).saturating_add(1)
}

fn argument<'a>(directive: &'a Directive, name: &str) -> Option<&'a str> {
    directive.arguments.iter().find_map(|argument| argument.strip_prefix(name))
}

fn is_client(key: &str) -> bool {
    matches!(key, "$binary_remote_addr" | "$remote_addr")
}

/// The variables of the current server, whose name is a constant: a client may name others.
fn of_server(context: &Context) -> Variables {
    let mut variables = context.variables.clone();
    variables.server_name.clone_from(&context.site);
    variables
}

/// The key of a zone in this server; within, `None`: the client. `None`: it has no counterpart, and is reported.
fn count_key(context: &mut Context, directive: &Directive, key: &str) -> Option<Option<String>> {
    if is_client(key) {
        return Some(None);
    }
    match of_server(context).template(context, key) {
        Ok(key) => Some(Some(key)),
        Err(lost) => {
            context.report_unguarded(directive, format!("{lost}: set limits of the route"));
            None
        }
    }
}

/// The lowest rate that the server paces responses at, in bytes a second.
const MIN_RATE: u64 = 4096;

/// Writes `limits` if the innermost block of a level sets any.
pub(super) fn write(context: &mut Context, table: &mut Table, level: &Level<'_>) {
    if !level.sets(&["limit_req", "limit_conn", "limit_rate"]) {
        return;
    }
    let mut limits = toml::Table::new();
    let mut set = |key: &str, value: toml::Value| drop(limits.insert(key.to_owned(), value));
    if let Some(directive) = level.last("limit_rate") {
        match values::size(directive.first()) {
            Some(rate) if rate.0 > 0 => {
                if rate.0 < MIN_RATE {
                    context.note(directive, "the lowest rate here is 4096 bytes a second");
                }
                set("bandwidth", values::Size(rate.0.max(MIN_RATE)).to_string().into());
            }
            Some(_) => {}
            None => context.report_with(directive, "its rate depends on the request: set bandwidth of limits"),
        }
    }
    let counts = !level.is_on("limit_conn_dry_run");
    let mut concurrent = Vec::new();
    for directive in level.all("limit_conn").into_iter().filter(|_| counts) {
        let number = directive.arguments.get(1).and_then(|number| number.parse::<i64>().ok()).filter(|n| *n > 0);
        let zone = context.zones.connections.iter().find(|(zone, _)| zone == directive.first()).cloned();
        let (Some(number), Some((zone, key))) = (number, zone) else {
            context
                .report_unguarded(directive, "no limit_conn_zone has its name: set concurrent in limits of the route");
            continue;
        };
        let Some(key) = count_key(context, directive, &key) else { continue };
        let mut limit = toml::Table::new();
        limit.insert("requests".to_owned(), number.into());
        limit.extend(key.map(|key| ("key".to_owned(), key.into())));
        limit.insert("zone".to_owned(), zone.into());
        concurrent.push(toml::Value::Table(limit));
    }
    if !concurrent.is_empty() {
        set("concurrent", concurrent.into());
    }
    let mut strictest: Option<(Rate, i64, String)> = None;
    let mut counted: Option<Option<String>> = None;
    let is_dry = level.is_on("limit_req_dry_run");
    for directive in level.all("limit_req").into_iter().filter(|_| !is_dry) {
        let zone = argument(directive, "zone=");
        let found = context.zones.rates.iter().find(|(name, ..)| Some(name.as_str()) == zone).cloned();
        let Some((zone, key, rate)) = found else {
            context.report_unguarded(directive, "no limit_req_zone has its name: set limits of the route");
            continue;
        };
        let Some(key) = count_key(context, directive, &key) else { continue };
        if counted.as_ref().is_some_and(|known| *known != key) {
            context.report_unguarded(directive, "a route counts requests by one key: another limit_req has its own");
            continue;
        }
        if let Some(key) = &key {
            set("key", key.as_str().into());
        }
        counted = Some(key);
        if strictest.is_some() {
            context.note(directive, "a route has one rate per address: the lowest is used");
        }
        if strictest.as_ref().is_none_or(|(strictest, ..)| rate.per_minute() < strictest.per_minute()) {
            strictest = Some((rate, burst(directive), zone));
        }
    }
    if let Some((rate, burst, zone)) = strictest {
        // Other routes and sites count with it, also those that inherit it.
        let has_one_burst = context.zones.has_one_burst(&zone);
        set("zone", if has_one_burst { zone } else { format!("{zone}-{burst}") }.into());
        if let Some(directive) = level.last("limit_req").filter(|_| !has_one_burst) {
            context
                .report_with(directive, "routes of one zone have one burst: each burst of this one counts by itself");
        }
        let (key, number) = rate.key();
        set(key, number.into());
        set("burst", burst.into());
    }
    if !limits.is_empty() {
        table.set("limits", limits);
    }
}

/// Reports `limit_conn` of a named location: a route that others lead to has its rate and its bandwidth, and counts no requests in progress.
pub(super) fn report_led(context: &mut Context, block: &Block<'_, '_>) {
    if !matches!(block.path, Path::Named(_)) {
        return;
    }
    for limit in block.level.own().iter().copied().filter(|inner| inner.name == "limit_conn") {
        context.report_with(
            limit,
            "requests in progress are counted where the client asks for the route: set concurrent in limits of that one",
        );
    }
}
