//! `proxy_set_header`, `proxy_hide_header`, and the fields that a location adds to answers.

use sealion_http::HOP_BY_HOP;
use sealion_http::extra_fields::{is_name, is_value};
use toml::Value;

use super::FOLLOWED;
use crate::convert::context::Context;
use crate::convert::variables::Variables;
use crate::syntax::Directive;
use crate::toml_text::inline_table;

/// Fields that Sealion makes for each request, and the values that say the same.
const MADE_HERE: [(&str, &[&str]); 6] = [
    ("x-real-ip", &["$remote_addr", "$http_x_real_ip"]),
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
        self.0.push(inline_table([("name", name.into()), ("value", value.into())]).into());
    }

    pub(super) fn into_value(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }
}

/// The fields that requests get, and the rule's `host`. `proxy_host`: the value of `$proxy_host`, as a `host`. `is_cached`: whether responses are stored,
/// whose requests all have the same fields. `has_user`: whether each request has a password that was checked.
pub(super) fn of_requests(
    context: &mut Context,
    directives: &[&Directive],
    proxy_host: &str,
    (variables, is_cached, has_user): (&Variables, bool, bool),
) -> (Fields, String) {
    let (mut fields, mut host) = (Fields::default(), proxy_host.to_owned());
    let mut sent = std::collections::HashSet::new();
    for directive in directives {
        let [name, value] = directive.arguments.as_slice() else {
            context.report(directive);
            continue;
        };
        let lower = name.to_ascii_lowercase();
        let plain = value.replace("${", "$").replace('}', "");
        if lower == "host" {
            host = of_host(context, directive, &plain, proxy_host, variables).unwrap_or("client".to_owned());
            continue;
        }
        // Behind a proxy that ends TLS, the scheme is another one.
        let is_scheme = plain != "https" || variables.scheme == Some("https");
        if is_made_here(&lower, &plain) && is_scheme {
            continue;
        }
        if HOP_BY_HOP.contains(&lower.as_str()) {
            // Upgrades are passed on, and connections are kept.
            let is_usual = matches!(lower.as_str(), "connection" | "upgrade" | "keep-alive")
                || plain.is_empty() && !matches!(lower.as_str(), "content-length" | "proxy-authorization");
            if !is_usual {
                let remedy = format!("{name} belongs to the connection and is made by the server");
                context.note(directive, remedy);
            }
            continue;
        }
        if !is_name(name) {
            context.note(directive, format!("{name:?} is no name of a field"));
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
        if !sent.insert(lower.clone()) {
            context.report_with(
                directive,
                "a field is sent once: write one list, or let the application read another name",
            );
        }
        if plain == "$remote_user" && has_user && !is_cached {
            fields.set(name, "{user}");
            continue;
        }
        match variables.value_of(context, &value_of(&plain)) {
            Ok(value) if is_value(&value) && !(is_cached && value.contains('{')) => fields.set(name, &value),
            _ if MADE_HERE.iter().any(|(made, _)| *made == lower) => {
                context
                    .note(directive, format!("{name} is made by the server, from the connection or a trusted proxy"));
            }
            Ok(value) if is_cached && value.contains("{time") => fields.set(name, ""),
            Ok(_) if is_cached => {
                fields.set(name, "");
                let remedy = format!(
                    "{name} differs from request to request, and stored answers are for many: it is removed from requests"
                );
                context.report_with(directive, remedy);
            }
            _ => {
                // The application may trust the field, which a client must not set.
                fields.set(name, "");
                let remedy =
                    format!("its value has no placeholder: {name} is removed from requests, so that no client sets it");
                context.report_with(directive, remedy);
            }
        }
    }
    (fields, host)
}

/// A value with the query and its question mark, or without both.
fn value_of(value: &str) -> String {
    if value.ends_with("$uri$is_args$args") {
        value.replace("$uri$is_args$args", "$request_uri")
    } else {
        value.to_owned()
    }
}

/// The rule's `host`. `None`: reported.
pub(super) fn of_host(
    context: &mut Context,
    directive: &Directive,
    value: &str,
    proxy_host: &str,
    variables: &Variables,
) -> Option<String> {
    match value {
        // Without its port, which no client names at a usual one.
        "$host" if !variables.has_usual_ports => return Some("{host}".to_owned()),
        // A usual port says nothing.
        "$host:$server_port" if variables.has_usual_ports => return Some("{host}".to_owned()),
        "$host:$server_port" if variables.port.is_some() => return variables.template(context, value).ok(),
        "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port" | "$host:$http_port" => {
            return Some("client".to_owned());
        }
        "$proxy_host" => return Some(proxy_host.to_owned()),
        _ => {}
    }
    let fixed = variables.template(context, value).ok();
    let fixed = fixed.filter(|host| is_value(host) && !host.is_empty() && !host.contains([' ', '/', '{']));
    if fixed.is_none() {
        context.report_with(directive, "the server gets the Host of the client: set host of the rule to another");
    }
    fixed
}

/// The fields of a server's responses that clients do not get.
pub(super) fn of_responses(context: &mut Context, hidden: &[&Directive]) -> Fields {
    let mut fields = Fields::default();
    for directive in hidden {
        // nginx follows it, and passes on none.
        if FOLLOWED.iter().any(|own| own.eq_ignore_ascii_case(directive.first())) {
            continue;
        }
        match is_name(directive.first()) && !is_of_connection(directive.first()) {
            true => fields.set(directive.first(), ""),
            false => context.note(directive, "the field belongs to the connection, and is never passed on"),
        }
    }
    fields
}

fn is_of_connection(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|own| own.eq_ignore_ascii_case(name)) || name.eq_ignore_ascii_case("host")
}
