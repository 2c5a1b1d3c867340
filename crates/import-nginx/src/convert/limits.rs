//! Limits per client: `limit_req`, `limit_conn`, `limit_rate`.

use super::context::Context;
use super::level::Level;
use super::values;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The zones of `limit_req_zone` and `limit_conn_zone`.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// Name, key and rate.
    rates: Vec<(String, String, Rate)>,
    /// Name and key.
    connections: Vec<(String, String)>,
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
}

fn argument<'a>(directive: &'a Directive, name: &str) -> Option<&'a str> {
    directive.arguments.iter().find_map(|argument| argument.strip_prefix(name))
}

fn is_client(key: &str) -> bool {
    matches!(key, "$binary_remote_addr" | "$remote_addr")
}

/// Writes `limits` if the innermost block of a level sets any.
pub(super) fn write(context: &mut Context, table: &mut Table, level: &Level<'_>) {
    if !level.sets(&["limit_req", "limit_conn", "limit_rate"]) {
        return;
    }
    let mut limits = toml::Table::new();
    let mut set = |key: &str, value: toml::Value| drop(limits.insert(key.to_owned(), value));
    if let Some(directive) = level.last("limit_rate") {
        match values::size(directive.first()) {
            Some(rate) if rate.0 > 0 => set("bandwidth", rate.to_string().into()),
            Some(_) => {}
            None => context.report_with(directive, "its rate depends on the request: set bandwidth of limits"),
        }
    }
    for directive in level.all("limit_conn") {
        let number = directive.arguments.get(1).and_then(|number| number.parse::<i64>().ok()).filter(|n| *n > 0);
        let zone = context.zones.connections.iter().find(|(zone, _)| zone == directive.first());
        match (number, zone) {
            (Some(number), Some((_, key))) if is_client(key) => {
                context.process_wide(directive, "limits", "max_connections_per_address", number);
            }
            (Some(number), Some((_, key))) if key == "$server_name" => set("connections", number.into()),
            _ => context.report_with(
                directive,
                "its zone is not keyed by client address: to limit a whole site, set connections in limits",
            ),
        }
    }
    let mut strictest: Option<(Rate, i64)> = None;
    let mut counted: Option<Option<String>> = None;
    for directive in level.all("limit_req") {
        let zone = argument(directive, "zone=");
        let found = context.zones.rates.iter().find(|(name, ..)| Some(name.as_str()) == zone).cloned();
        let Some((_, key, rate)) = found else {
            context.report_unguarded(directive, "no limit_req_zone has its name: set limits of the route");
            continue;
        };
        let key = match is_client(&key) {
            true => None,
            false => match context.variables.clone().template(context, &key) {
                Ok(key) => Some(key),
                Err(lost) => {
                    context.report_unguarded(directive, format!("{lost}: set limits of the route"));
                    continue;
                }
            },
        };
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
        if strictest.is_none_or(|(strictest, _)| rate.per_minute() < strictest.per_minute()) {
            let burst = argument(directive, "burst=").and_then(|burst| burst.parse::<i64>().ok()).unwrap_or(0);
            // nginx admits a request, and as many as `burst` beside it.
            strictest = Some((rate, burst.max(0).saturating_add(1)));
        }
    }
    if let Some((rate, burst)) = strictest {
        let (key, number) = rate.key();
        set(key, number.into());
        set("burst", burst.into());
    }
    if !limits.is_empty() {
        table.set("limits", limits);
    }
}
