//! The request of `auth_request`: the Host and the fields that its location sends.

use sealion_http::HOP_BY_HOP;
use sealion_http::extra_fields::{is_name, is_value};
use toml::Value;

use super::context::Context;
use super::level::Level;
use super::proxy;
use super::variables::Variables;
use crate::syntax::Directive;
use crate::toml_text::inline_table;

/// Fields that tell the server of the request, and the values that say the same.
const SENT: [(&str, &[&str]); 6] = [
    ("content-length", &[""]),
    ("x-original-uri", &["$request_uri"]),
    ("x-original-method", &["$request_method"]),
    ("x-original-url", &["$scheme://$http_host$request_uri", "$scheme://$host$request_uri"]),
    ("x-forwarded-uri", &["$request_uri"]),
    ("x-forwarded-method", &["$request_method"]),
];

/// Placeholders whose variables have other values in the request of `auth_request`, which has a path of its own.
const OF_ITS_PATH: [&str; 4] = ["{path}", "{query}", "{and_args}", "{raw_query."];

/// Writes `host`, `pass_fields` and `request_headers` of `forward_auth`. `host`: the value of `$proxy_host`, as a `host`.
pub(super) fn write(
    context: &mut Context,
    auth: &mut toml::Table,
    (level, location): (&Level<'_>, &Directive),
    host: String,
) {
    let variables = proxy::variables_of(context, level, location);
    let around = level.of_locations();
    let of = |name: &str| {
        let own: Vec<&Directive> = location.children().iter().filter(|inner| inner.name == name).collect();
        if own.is_empty() { around.all(name) } else { own }
    };
    let (mut host, mut fields) = (host, Vec::new());
    for directive in of("proxy_set_header") {
        let [name, value] = directive.arguments.as_slice() else {
            context.report(directive);
            continue;
        };
        let value = value.replace("${", "$").replace('}', "");
        if name.eq_ignore_ascii_case("host") {
            host = proxy::host_of(context, directive, (&value, &host), &variables).unwrap_or(host);
            continue;
        }
        if let Some(value) = value_of(context, directive, (name, &value), &variables) {
            fields.push(Value::from(inline_table([("name", name.as_str().into()), ("value", value.into())])));
        }
    }
    if host != "upstream" {
        auth.insert("host".to_owned(), host.into());
    }
    if of("proxy_pass_request_headers").last().is_some_and(|passes| passes.first() == "off") {
        auth.insert("pass_fields".to_owned(), false.into());
    }
    if !fields.is_empty() {
        auth.insert("request_headers".to_owned(), fields.into());
    }
}

/// The value that a field is set to. `None`: the server gets it so in any case, or nothing can be set.
fn value_of(
    context: &mut Context,
    directive: &Directive,
    (name, value): (&str, &str),
    variables: &Variables,
) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let told = SENT.iter().find(|(own, _)| *own == lower);
    let is_same = told.is_some_and(|(_, values)| values.contains(&value)) || proxy::is_made_here(&lower, value);
    let is_of_client = value == format!("$http_{}", lower.replace('-', "_"));
    if is_same || is_of_client || HOP_BY_HOP.contains(&lower.as_str()) {
        return None;
    }
    if !is_name(name) {
        context.note(directive, format!("{name:?} is no name of a field"));
        return None;
    }
    let set = variables.value_of(context, value).ok();
    let set = set.filter(|set| is_value(set) && !OF_ITS_PATH.iter().any(|placeholder| set.contains(placeholder)));
    match (set, told) {
        (Some(set), _) => Some(set),
        (None, Some(_)) => {
            let remedy = "the server is asked with X-Original-URL, X-Forwarded-Uri and X-Forwarded-Method instead";
            context.note(directive, remedy);
            None
        }
        (None, None) => {
            let remedy = format!(
                "its value has no placeholder, so that the server is asked without {name}: set it in request_headers of forward_auth"
            );
            context.report_with(directive, remedy);
            Some(String::new())
        }
    }
}
