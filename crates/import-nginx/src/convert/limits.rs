//! Limits per client: `limit_req`, `limit_conn`, `limit_rate`.

use super::Context;
use super::site::Settings;
use super::values;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Zones keyed by client address.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// `limit_req_zone`: name and requests per second.
    rates: Vec<(String, f64)>,
    /// `limit_conn_zone`: names.
    connections: Vec<String>,
}

impl Zones {
    /// Adds a `limit_req_zone` or `limit_conn_zone`. `false`: its key is not the client address.
    pub(super) fn take(&mut self, directive: &Directive) -> bool {
        let zone = argument(directive, "zone=").map(|zone| zone.split(':').next().unwrap_or(zone).to_owned());
        let (true, Some(zone)) = (matches!(directive.first(), "$binary_remote_addr" | "$remote_addr"), zone) else {
            return false;
        };
        if directive.name == "limit_conn_zone" {
            self.connections.push(zone);
            return true;
        }
        let rate = argument(directive, "rate=").and_then(|rate| {
            let (number, unit) = rate.split_once("r/")?;
            let number: f64 = number.parse().ok()?;
            Some(if unit == "m" { number / 60.0 } else { number })
        });
        self.rates.extend(rate.map(|rate| (zone, rate)));
        rate.is_some()
    }
}

fn argument<'a>(directive: &'a Directive, name: &str) -> Option<&'a str> {
    directive.arguments.iter().find_map(|argument| argument.strip_prefix(name))
}

/// `limit_req`, `limit_conn`, `limit_rate`
pub(super) fn convert(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
    if let Some(directive) = settings.last("limit_rate") {
        match values::size(directive.first()) {
            Some(rate) if rate.0 > 0 => site.table("limits").set("bandwidth", rate.to_string()),
            Some(_) => {}
            None => context.report(directive),
        }
    }
    for directive in settings.all("limit_conn") {
        let number = directive.arguments.get(1).and_then(|number| number.parse::<i64>().ok()).filter(|n| *n > 0);
        match number {
            Some(number) if context.zones.connections.iter().any(|zone| zone == directive.first()) => {
                context.process_wide(directive, "limits", "max_connections_per_address", number);
            }
            _ => context.report_with(
                directive,
                "its zone is not keyed by client address: to limit a whole site, set connections in [site.limits]",
            ),
        }
    }
    let mut strictest: Option<f64> = None;
    for directive in settings.all("limit_req") {
        let zone = argument(directive, "zone=");
        let rate = context.zones.rates.iter().find(|(name, _)| Some(name.as_str()) == zone).map(|(_, rate)| *rate);
        let Some(rate) = rate else {
            context.report_with(directive, "its zone is not keyed by client address");
            continue;
        };
        if rate.fract() > 0.0 {
            context.report_with(
                directive,
                format!("requests_per_second is a whole number: rounded up to {}", rate.ceil()),
            );
        }
        if strictest.is_some() {
            context.report_with(directive, "a site has one rate per address: the lowest is used");
        }
        if strictest.is_none_or(|strictest| rate < strictest) {
            strictest = Some(rate);
            let burst = argument(directive, "burst=").and_then(|burst| burst.parse::<i64>().ok());
            let table = site.table("limits");
            table.set("requests_per_second", rate.ceil() as i64);
            // Without `burst`, nginx admits one request at a time.
            table.set("burst", burst.unwrap_or(1).max(1));
        }
    }
}
