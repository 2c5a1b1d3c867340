//! `mirror`: a copy of each request of a location, which another location sends to a server.

use toml::Value;

use super::fields::Fields;
use super::upstreams::Options;
use super::url::{Sent, Url};
use super::{Place, fields, own_max_body, target};
use crate::convert::context::Context;
use crate::convert::guards;
use crate::syntax::Directive;

/// Whether `mirror` sends requests to a location.
pub(in crate::convert) fn is_mirror(location: &Directive, locations: &[&Directive]) -> bool {
    let Some(path) = location.arguments.last() else { return false };
    let mut is_it = false;
    for other in locations {
        guards::walk(other.children(), &mut |inner| is_it |= inner.name == "mirror" && inner.first() == path);
    }
    is_it
}

/// The requests of a rule.
pub(super) struct Requests<'a> {
    /// The directives `mirror` of the location.
    pub(super) mirrors: &'a [&'a Directive],
    /// Whether their servers get the path of the client.
    pub(super) sent: &'a Sent,
    /// The fields that they get.
    pub(super) fields: &'a [&'a Directive],
}

/// The key `mirror` of a rule. `None`: it has none, or that was reported.
pub(super) fn of_rule(context: &mut Context, place: Place<'_, '_>, requests: &Requests<'_>) -> Option<toml::Table> {
    let (first, others) = requests.mirrors.split_first()?;
    if first.first() == "off" {
        return None;
    }
    for other in others {
        context.report_with(other, "a rule copies requests to one upstream");
    }
    match mirror(context, place, first, requests) {
        Ok(table) => Some(table),
        Err(why) => {
            context.report_with(first, format!("{why}: set mirror of the rule"));
            None
        }
    }
}

fn mirror(
    context: &mut Context,
    place: Place<'_, '_>,
    directive: &Directive,
    requests: &Requests<'_>,
) -> Result<toml::Table, String> {
    let path = directive.first();
    let is_it = |location: &&&Directive| {
        !location.first().starts_with('~') && location.arguments.last().is_some_and(|own| own == path)
    };
    let location =
        *place.locations.iter().find(is_it).ok_or_else(|| format!("no location has the path {path} alone"))?;
    let level = place.level.of_server().within(location);
    let pass = level.last("proxy_pass").ok_or_else(|| format!("{location} is not passed to a server over HTTP"))?;
    if location.children().iter().any(|inner| inner.name == "if") {
        return Err(format!("{location} has conditions"));
    }
    let template = place.variables.template(context, pass.first()).map_err(|lost| lost.to_string())?;
    let url = Url::of(&template, true)?;
    // The path of a location that is asked without one is the location's own.
    if url.path.is_some() || !pass.first().ends_with("$request_uri") || *requests.sent != Sent::Same {
        return Err("copies have the path that the first server gets".to_owned());
    }
    let all = |name: &str| level.all(name);
    let options = Options { scheme: if url.tls { "https" } else { "http" }, ..super::options(context, url.tls, &all) };
    let server = target(context, &url, options).map_err(super::NotPassed::into_reason)?;
    let mut table = toml::Table::new();
    table.insert("to".to_owned(), server.name.into());
    let own: Vec<_> = level.all("proxy_set_header").into_iter().filter(|field| !is_of_content(field)).collect();
    let (of_copy, host) = fields::of_requests(context, &own, &server.host, (place.variables, false, false));
    table.insert("host".to_owned(), host.into());
    if let Some(fields) = without_others(of_copy, requests.fields, &own) {
        table.insert("request_headers".to_owned(), fields);
    }
    let is_off = |name: &str, level: &super::Level<'_>| level.last(name).is_some_and(|last| last.first() == "off");
    if is_off("mirror_request_body", place.level) || is_off("proxy_pass_request_body", &level) {
        table.insert("content".to_owned(), false.into());
    }
    let most = own_max_body(context, place.level);
    if most > DEFAULT_COPIED {
        table.insert("max_body".to_owned(), crate::convert::values::Size(most).to_string().into());
    }
    Ok(table)
}

/// Bytes of a content that are copied where `mirror` does not say.
const DEFAULT_COPIED: u64 = 1 << 20;

/// Whether a field says that a request has no content.
fn is_of_content(field: &Directive) -> bool {
    field.first().eq_ignore_ascii_case("content-length")
}

/// The fields of copies, without those that only the first server gets.
fn without_others(mut own: Fields, first: &[&Directive], set: &[&Directive]) -> Option<Value> {
    for field in first {
        let name = field.first();
        let is_set = set.iter().any(|other| other.first().eq_ignore_ascii_case(name));
        let is_made =
            field.arguments.get(1).is_some_and(|value| fields::is_made_here(&name.to_ascii_lowercase(), value));
        let is_usual = ["host", "connection", "upgrade"].iter().any(|usual| name.eq_ignore_ascii_case(usual));
        if !is_made && !is_usual && !is_set {
            own.set(name, "");
        }
    }
    own.into_value()
}
