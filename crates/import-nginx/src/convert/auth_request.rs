//! `auth_request` and `auth_request_set`, as `[[site.forward_auth]]`. What the server is asked with, nginx takes from the location that is named.

use toml::Value;

use super::location::Scope;
use super::site::Settings;
use super::{Context, proxy};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Fields that a request to the server has here, and the values that say the same.
const SENT: [(&str, &[&str]); 6] = [
    ("content-length", &[""]),
    ("x-original-uri", &["$request_uri"]),
    ("x-original-method", &["$request_method"]),
    ("x-original-url", &["$scheme://$http_host$request_uri", "$scheme://$host$request_uri"]),
    ("x-forwarded-uri", &["$request_uri"]),
    ("x-forwarded-method", &["$request_method"]),
];

/// `auth_request` of a location or a server. `copy`: fields of the answer that forwarded requests get.
pub(super) fn convert(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: &Scope,
    directive: &Directive,
    copy: Vec<String>,
) {
    let Some((key, paths)) = scope.guarded() else {
        return context.report_unguarded(directive, "the expression of its location is not supported");
    };
    let url = match asked(context, settings, directive.first()) {
        Ok(url) => url,
        Err(why) => return context.report_unguarded(directive, why),
    };
    let mut rule = Table::default();
    rule.comment(&directive.place);
    rule.set(key, paths);
    let (upstream, to) = url;
    if let Some(name) = upstream {
        rule.set("upstream", name);
    }
    rule.set("to", to);
    if *scope == Scope::Everything {
        let except = exceptions(context, settings);
        if !except.is_empty() {
            rule.set("except", except);
        }
    }
    if !copy.is_empty() {
        rule.set("copy", copy);
    }
    site.push("forward_auth", rule);
}

/// The URL that is asked, or the name of an upstream and a path.
fn asked(context: &mut Context, settings: &Settings<'_>, path: &str) -> Result<(Option<String>, String), String> {
    const WRITE: &str = "write forward_auth, with to = the URL that is asked";
    let is_it = |location: &&Directive| matches!(Scope::of(location), Some(Scope::Exact(own) | Scope::Prefix(own)) if own == path);
    let Some(location) = settings.all("location").into_iter().find(is_it) else {
        return Err(format!("no location has the path {path} alone: {WRITE}"));
    };
    for inner in location.children() {
        let is_known = match inner.name.as_str() {
            "internal" | "proxy_pass" | "proxy_http_version" => true,
            "proxy_pass_request_body" => inner.first() == "off",
            "proxy_set_header" => is_sent(inner),
            name => matches!(name, "access_log" | "log_not_found") || proxy::is_off(inner),
        };
        if !is_known {
            return Err(format!("{inner} at {} is no part of what is asked here: {WRITE}", inner.place));
        }
    }
    let Some(pass) = location.children().iter().find(|inner| inner.name == "proxy_pass") else {
        return Err(format!("{location} is not passed to a server over HTTP: {WRITE}"));
    };
    proxy::url_of(context, pass, path).map_err(|why| format!("{why}: {WRITE}"))
}

/// Whether a request to the server has the field with the same value.
fn is_sent(directive: &Directive) -> bool {
    let [name, value] = directive.arguments.as_slice() else { return false };
    let value = value.replace("${", "$").replace('}', "");
    let name = name.to_ascii_lowercase();
    let same = |(own, values): &(&str, &[&str])| *own == name && values.contains(&value.as_str());
    SENT.iter().any(same) || (name == "host" && value == "$proxy_host") || proxy::is_made_here(&name, &value)
}

/// Parts of a site without the `auth_request` of its server.
fn exceptions(context: &mut Context, settings: &Settings<'_>) -> Vec<Value> {
    let mut except = Vec::new();
    for location in settings.all("location") {
        let off = location.children().iter().rfind(|inner| inner.name == "auth_request" && inner.first() == "off");
        let Some(off) = off else { continue };
        match Scope::of(location) {
            Some(Scope::Prefix(path)) if path.ends_with('/') && !path.contains(['%', '?', '#', '*']) => {
                except.push(path.into());
            }
            _ => context.report_with(
                off,
                "only a path with a slash at its end can be an exception: the server is asked here too",
            ),
        }
    }
    except
}

/// The fields that requests get from the answer: `auth_request_set $user $upstream_http_x_user` with `proxy_set_header X-User $user`.
pub(super) fn copied(sets: &[&Directive], fields: &[&Directive]) -> Vec<String> {
    let is_copied = |field: &&&Directive| {
        let [name, value] = field.arguments.as_slice() else { return false };
        let value = value.replace("${", "$").replace('}', "");
        let of_answer = format!("$upstream_http_{}", name.to_ascii_lowercase().replace('-', "_"));
        sets.iter().any(|set| set.arguments == [value.as_str(), of_answer.as_str()])
    };
    fields.iter().filter(is_copied).map(|field| field.arguments[0].clone()).collect()
}

/// `auth_request` of a location.
pub(super) fn of_location(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: &Scope,
    location: &Directive,
) {
    let all = |name: &str| location.children().iter().filter(|inner| inner.name == name).collect::<Vec<_>>();
    let Some(directive) = all("auth_request").pop().filter(|directive| directive.first() != "off") else { return };
    if let Some(of_server) = settings.last("auth_request").filter(|other| other.first() != "off") {
        context.report_with(directive, format!("servers that are asked add up: the one at {} too", of_server.place));
    }
    let or_of_server = |name: &str| Some(all(name)).filter(|own| !own.is_empty()).unwrap_or_else(|| settings.all(name));
    let copy = copied(&or_of_server("auth_request_set"), &or_of_server("proxy_set_header"));
    convert(context, site, settings, scope, directive, copy);
}

/// `auth_request` of a server.
pub(super) fn of_server(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
    let Some(directive) = settings.last("auth_request").filter(|directive| directive.first() != "off") else { return };
    let locations = settings.all("location");
    let of_locations =
        |name: &str| locations.iter().flat_map(|location| location.children()).filter(|i| i.name == name).collect();
    let both = |name: &str| [settings.all(name), of_locations(name)].concat();
    let mut copy = copied(&both("auth_request_set"), &both("proxy_set_header"));
    copy.sort();
    copy.dedup();
    convert(context, site, settings, &Scope::Everything, directive, copy);
}
