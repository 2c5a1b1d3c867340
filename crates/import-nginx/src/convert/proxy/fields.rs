//! `proxy_set_header`, `proxy_hide_header`, and the fields that a location adds to answers.

use sealion_http::HOP_BY_HOP;
use sealion_http::extra_fields::{is_name, is_value};
use toml::Value;

use crate::convert::{Context, path_rules};
use crate::syntax::Directive;

/// What the constants of a server are, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants<'a> {
    /// First name of the site.
    pub(super) name: Option<&'a str>,
    /// Its only port.
    pub(super) port: Option<u16>,
}

/// Fields that Sealion makes for each request, and the values that say the same.
const MADE_HERE: [(&str, &[&str]); 6] = [
    ("x-real-ip", &["$remote_addr", "$realip_remote_addr", "$http_x_real_ip"]),
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr", "$http_x_forwarded_for"]),
    ("x-forwarded-proto", &["$scheme", "https", "$http_x_forwarded_proto"]),
    ("x-forwarded-host", &["$host", "$http_host", "$host:$server_port", "$http_x_forwarded_host"]),
    ("x-request-id", &["$request_id", "$http_x_request_id"]),
    ("forwarded", &["$proxy_add_forwarded", "$http_forwarded"]),
];

/// Whether a field that is made for each request has the same value. `name`: in lower case.
pub(super) fn is_made_here(name: &str, value: &str) -> bool {
    MADE_HERE.iter().any(|(made, same)| *made == name && same.contains(&value))
}

/// Fields of a request or response as a rule sets them.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<Value>);

impl Fields {
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let pair = [("name".to_owned(), Value::from(name)), ("value".to_owned(), Value::from(value))];
        self.0.push(Value::Table(pair.into_iter().collect()));
    }

    pub(super) fn into_value(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }
}

/// The fields that requests get, and the rule's `host`. `proxy_host`: what `$proxy_host` is, as a `host`.
pub(super) fn of_requests(
    context: &mut Context,
    directives: &[&Directive],
    proxy_host: &str,
    constants: Constants<'_>,
) -> (Fields, String) {
    let (mut fields, mut host) = (Fields::default(), proxy_host.to_owned());
    for directive in directives {
        let [name, value] = directive.arguments.as_slice() else {
            context.report(directive);
            continue;
        };
        let lower = name.to_ascii_lowercase();
        let plain = value.replace("${", "$").replace('}', "");
        if lower == "host" {
            host = of_host(context, directive, &plain, proxy_host, constants).unwrap_or("client".to_owned());
            continue;
        }
        if is_made_here(&lower, &plain) {
            continue;
        }
        if HOP_BY_HOP.contains(&lower.as_str()) {
            // Upgrades are passed on, and connections are kept.
            let is_usual = matches!(lower.as_str(), "connection" | "upgrade" | "keep-alive")
                || plain.is_empty() && !matches!(lower.as_str(), "content-length" | "proxy-authorization");
            if !is_usual {
                let remedy = format!("{name} belongs to the connection and is made by the server");
                context.report_with(directive, remedy);
            }
            continue;
        }
        if !is_name(name) {
            context.report_with(directive, format!("{name:?} is no name of a field"));
            continue;
        }
        // A rule with slices asks for them.
        if lower == "range" && plain == "$slice_range" {
            continue;
        }
        // The field as the client sent it.
        if plain == format!("$http_{}", lower.replace('-', "_")) {
            continue;
        }
        match constant(&plain, constants) {
            Some(value) if is_value(&value) => fields.set(name, &value),
            _ if MADE_HERE.iter().any(|(made, _)| *made == lower) => {
                context.report_with(
                    directive,
                    format!("{name} is made by the server, from the connection or a trusted proxy"),
                );
            }
            _ => {
                // The application may trust the field, which a client must not set.
                fields.set(name, "");
                let remedy = format!(
                    "variables are not supported in values: {name} is removed from requests, so that no client sets it"
                );
                context.report_with(directive, remedy);
            }
        }
    }
    (fields, host)
}

/// The rule's `host`. `None`: reported.
fn of_host(
    context: &mut Context,
    directive: &Directive,
    value: &str,
    proxy_host: &str,
    constants: Constants<'_>,
) -> Option<String> {
    match value {
        "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port" => return Some("client".to_owned()),
        "$proxy_host" => return Some(proxy_host.to_owned()),
        _ => {}
    }
    let fixed =
        constant(value, constants).filter(|host| is_value(host) && !host.is_empty() && !host.contains([' ', '/']));
    if fixed.is_none() {
        context.report_with(directive, "the server gets the Host of the client: set host of the rule to another");
    }
    fixed
}

/// A value whose variables are constants of the site. `None`: it has others.
fn constant(value: &str, constants: Constants<'_>) -> Option<String> {
    let mut value = value.replace("$scheme", "https").replace("$https", "on");
    if let Some(name) = constants.name {
        value = value.replace("$server_name", name);
    }
    if let Some(port) = constants.port {
        value = value.replace("$server_port", &port.to_string());
    }
    (!value.contains('$')).then_some(value)
}

/// The fields that answers get.
pub(super) fn of_answers(context: &mut Context, hidden: &[&Directive], added: &[&Directive]) -> Fields {
    let mut fields = Fields::default();
    for directive in hidden {
        match is_name(directive.first()) && !is_of_connection(directive.first()) {
            true => fields.set(directive.first(), ""),
            false => context.report(directive),
        }
    }
    for directive in added {
        match directive.arguments.as_slice() {
            [_, value, ..] if value == "$upstream_cache_status" => {
                context.report_with(directive, path_rules::CACHE_STATUS);
            }
            [name, value, ..]
                if value.contains('$') || !is_name(name) || !is_value(value) || is_of_connection(name) =>
            {
                context.report_with(directive, "variables are not supported in values");
            }
            [name, value, ..] => fields.set(name, value),
            _ => context.report(directive),
        }
    }
    fields
}

/// The Cache-Control of a rule's answers, by `expires` and `add_header`. nginx sets it on answers without an error alone, and a rule on all: what
/// would make clients keep errors is reported.
pub(super) fn cache_control<'a>(context: &mut Context, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Option<String> {
    let expires = all("expires").pop();
    let mut added = all("add_header");
    added.retain(|directive| directive.first().eq_ignore_ascii_case("cache-control"));
    let of_expires = expires.map_or(Some(None), path_rules::expires_value);
    let of_added = added.iter().map(|directive| {
        let value = directive.arguments.get(1).filter(|value| !value.contains('$') && is_value(value));
        value.cloned()
    });
    // nginx adds the fields to those of the application; here they replace them, as `expires` does in nginx.
    let is_safe = |value: &String| value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-store"));
    let is_safe_alone = |value: &String| matches!(value.as_str(), "no-cache" | "max-age=0");
    let values: Option<Vec<String>> = match of_expires {
        Some(of_expires) => of_expires.into_iter().map(Some).chain(of_added).collect(),
        None => None,
    };
    let remedy = match values {
        Some(values) if values.is_empty() => return None,
        Some(values) if values.iter().any(is_safe) || added.is_empty() && values.iter().all(is_safe_alone) => {
            return Some(values.join(", "));
        }
        Some(values) => {
            let value = values.join(", ");
            format!(
                "not set on forwarded answers: let the application send Cache-Control: {value}, or write response_headers = [{{ name = \
                 \"Cache-Control\", value = {value:?} }}] in the rule, which clients get with errors too"
            )
        }
        None => "variables are not supported in values: let the application send Cache-Control, or set it by response_headers of the \
                 rule"
            .to_owned(),
    };
    let first = expires.into_iter().chain(added).find(|directive| directive.first() != "off")?;
    if !context.is_reported(first) {
        context.report_with(first, remedy);
    }
    None
}

fn is_of_connection(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|own| own.eq_ignore_ascii_case(name)) || name.eq_ignore_ascii_case("host")
}
