//! The common part of FastCGI and uwsgi locations.

use sealion_http::cgi;
use toml::Value;

use super::{Place, values};
use crate::convert::context::Context;
use crate::syntax::Directive;

/// Variables, beside the variables of CGI, that the server makes itself or never passes on.
pub(super) struct Made {
    pub(super) always: &'static [&'static str],
    /// Where the configuration has no constant for them.
    pub(super) otherwise: &'static [&'static str],
}

/// The variables of CGI that tell of the client and the server, and the values that are made for them.
const TOLD: [(&str, &[&str]); 10] = [
    ("HTTPS", &["$https"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("SERVER_PORT", &["$server_port"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("QUERY_STRING", &["$query_string", "$args"]),
];

/// Whether a variable that the server makes has another value in the configuration.
fn is_other(context: &Context, name: &str, value: &str) -> bool {
    let value = value.replace("${", "$").replace('}', "");
    let told = TOLD.iter().find(|(own, _)| *own == name);
    let is_tls = name == "HTTPS" && value == "on" && context.is_tls
        || name == "REQUEST_SCHEME" && value == "https" && context.is_tls;
    told.is_some_and(|(_, made)| !made.contains(&value.as_str())) && !is_tls
}

/// Adds a further variable to `params`, unless the server makes it itself.
pub(super) fn add_param(
    context: &mut Context,
    place: Place<'_, '_>,
    params: &mut toml::Table,
    param: &Directive,
    made: &Made,
) {
    let [name, value, ..] = param.arguments.as_slice() else { return };
    let has_user = place.level.last("auth_basic").is_some_and(|realm| realm.first() != "off");
    if name == "SERVER_NAME"
        && let Ok(value) = place.variables.template(context, value)
        && !value.contains('{')
    {
        drop(params.insert(name.clone(), value.into()));
        return;
    }
    if (is_other(context, name, value) || name == "REMOTE_USER" && has_user) && !context.is_reported(param) {
        context.report_with(
            param,
            "the server makes this variable for each request, and no rule sets it: let the program do without it",
        );
    }
    if cgi::VARIABLES.contains(&name.as_str()) || name.is_empty() || made.always.contains(&name.as_str()) {
        return;
    }
    match place.variables.template(context, value) {
        Ok(value) if !value.contains('{') && !name.starts_with("HTTP_") => {
            drop(params.insert(name.clone(), value.into()));
        }
        _ if made.otherwise.contains(&name.as_str()) || context.is_reported(param) => {}
        _ => context.note(param, "params are constants, and no fields of clients"),
    }
}

/// The protocol and the times of the upstream, by the directives whose names begin with the protocol's.
pub(super) fn options(
    context: &mut Context,
    place: Place<'_, '_>,
    protocol: &'static str,
) -> Vec<(&'static str, Value)> {
    let mut keys = vec![("protocol", protocol.into())];
    for (name, own) in
        [("connect_timeout", &["connect_timeout"][..]), ("read_timeout", &["answer_timeout", "stall_timeout"])]
    {
        let Some(directive) = place.level.last(&format!("{protocol}_{name}")) else { continue };
        match values::time(directive.first()).filter(|time| !time.0.is_zero()) {
            Some(time) => keys.extend(own.iter().map(|key| (*key, Value::from(time.to_string())))),
            None => context.note(directive, "a time is above 0"),
        }
    }
    keys
}
