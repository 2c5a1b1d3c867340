//! Access logs: the log of `http` is the common one, and a server's log its site's own.

use toml::Value;

use super::context::Context;
use super::variables;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// `access_log` of `http`.
pub(super) fn of_all(context: &mut Context, directive: &Directive) {
    if context.root.table("access_log").get("to").is_some() {
        return context.note(directive, "there is one access log for all sites: the first is used");
    }
    if directive.first() == "off" {
        return context.root.table("access_log").set("to", "off");
    }
    if let Some(to) = destination(context, directive) {
        let format = format(context, directive);
        let table = context.root.table("access_log");
        table.set("to", to);
        format.into_iter().for_each(|(key, value)| table.set(key, value));
    }
}

/// `access_log` of a server or a location.
pub(super) fn of_block(context: &mut Context, site: &mut Table, directive: &Directive) {
    if directive.first() == "off" {
        return site.set("access_log", false);
    }
    if site.table_if("log").is_some() || site.get("access_log").is_some() {
        return context.note(directive, "a site has one access log: the first is used");
    }
    if site.get("path").is_some() || site.get("name").is_some() || site.get("match").is_some() {
        return context.note(directive, "a site has one access log: filter when reading the log");
    }
    let common = context.root.table("access_log").get("to").and_then(Value::as_str).map(str::to_owned);
    let Some(to) = destination(context, directive) else { return };
    if common.is_none_or(|common| common != to) {
        let format = format(context, directive);
        let table = site.table("log");
        table.set("to", to);
        format.into_iter().for_each(|(key, value)| table.set(key, value));
    }
}

/// The file of a log. Options without counterpart are reported.
fn destination(context: &mut Context, directive: &Directive) -> Option<String> {
    let to = directive.first();
    if to.contains('$') || to.starts_with("syslog:") {
        context.note(directive, "name a file, \"journald\" or \"syslog\" in `to` of [access_log] or site.log");
        return None;
    }
    for option in directive.arguments.iter().skip(1) {
        match option.split_once('=') {
            None => {}
            Some(("if", _)) => {
                context.note(directive, "every response is logged: filter when reading the log");
            }
            Some(("gzip", _)) => {
                context.note(directive, "lines are written as text: rotate compresses what it moves away");
            }
            // Lines are collected here too.
            Some(_) => {}
        }
    }
    Some(to.to_owned())
}

/// The keys for the format that a log names.
fn format(context: &mut Context, directive: &Directive) -> Vec<(&'static str, String)> {
    let combined = vec![("format", "combined".to_owned())];
    let name = directive.arguments.get(1).filter(|name| !name.contains('=') && *name != "combined");
    let Some(name) = name else { return combined };
    let Some(own) = context.formats.iter().find(|own| own.first() == name).cloned() else {
        context.note(directive, format!("no log_format has the name {name}: lines are written as `combined`"));
        return combined;
    };
    let is_json = own.arguments.iter().any(|argument| argument == "escape=json");
    let texts: String = own.arguments.iter().skip(1).filter(|text| !text.starts_with("escape=")).cloned().collect();
    let mut text = String::new();
    let mut unknown = Vec::new();
    let mut rest = texts.as_str();
    while let Some(at) = rest.find(['$', '{', '}']) {
        text.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if !rest[at..].starts_with('$') {
            text.push_str(&rest[at..=at].repeat(2));
            rest = behind;
            continue;
        }
        let (name, end) = variables::name(behind);
        rest = &behind[end..];
        match field(name) {
            Some(field) => text.push_str(&field),
            None => {
                text.push('-');
                unknown.push(format!("${name}"));
            }
        }
    }
    text.push_str(rest);
    if !unknown.is_empty() {
        context.note(&own, format!("lines have `-` in place of {}", unknown.join(", ")));
    }
    let format = if is_json { "json" } else { "combined" };
    vec![("format", format.to_owned()), ("text", text)]
}

/// The field of a line for a variable.
fn field(variable: &str) -> Option<String> {
    let own = match variable {
        "remote_addr" | "realip_remote_addr" | "binary_remote_addr" => "{address}",
        "remote_user" => "{user}",
        "time_local" => "{time_local}",
        "time_iso8601" => "{time}",
        "request" => "{method} {target} {protocol}",
        "request_method" => "{method}",
        "request_uri" => "{target}",
        "server_protocol" => "{protocol}",
        "status" => "{status}",
        "body_bytes_sent" | "bytes_sent" => "{bytes}",
        "request_time" => "{seconds}",
        "upstream_response_time" | "upstream_header_time" => "{upstream_seconds}",
        "upstream_addr" => "{upstream}",
        "upstream_status" => "{upstream_status}",
        "upstream_cache_status" => "{cache}",
        "host" | "http_host" => "{host}",
        "server_name" => "{site}",
        "ssl_protocol" => "TLSv{tls}",
        "ssl_cipher" => "{suite}",
        "ssl_curve" => "{group}",
        "ssl_server_name" => "{sni}",
        _ => {
            let families = [("http_", "header"), ("cookie_", "cookie")];
            return families.into_iter().find_map(|(start, family)| {
                let own = variable.strip_prefix(start).filter(|own| !own.is_empty())?;
                let own = if family == "header" { own.replace('_', "-") } else { own.to_owned() };
                Some(format!("{{{family}.{own}}}"))
            });
        }
    };
    Some(own.to_owned())
}
