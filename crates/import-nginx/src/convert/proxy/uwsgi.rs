//! Locations that pass requests to a server of uwsgi, as the action `proxy` to an `[[upstream]]` with `protocol = "uwsgi"`.

use super::gateway::{self, Made};
use super::upstreams::{self, Options};
use super::{NotPassed, Place, cache, fields, keys_of_all};
use crate::convert::context::Context;
use crate::convert::path::Path;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The modifier that has uwsgi remove SCRIPT_NAME from PATH_INFO, as `strip_prefix` does.
const MANAGE_SCRIPT_NAME: i64 = 30;

/// Both of nginx' variables for UWSGI_SCHEME are the scheme, and so is REQUEST_SCHEME.
const MADE: Made = Made { always: &["HTTP_HOST"], otherwise: &["UWSGI_SCHEME"] };

/// Writes the action of a location whose requests an application answers.
pub(super) fn write(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    pass: &Directive,
) -> Result<(), NotPassed> {
    let level = place.level;
    let to = place.variables.template(context, pass.first())?;
    if to.contains('{') {
        return Err("its server depends on the request: name an [[upstream]]".into());
    }
    if to.starts_with("suwsgi://") {
        return Err("uwsgi is not spoken over TLS: let the program listen without it, on this machine".into());
    }
    let options = options(context, place);
    let target = upstreams::target(context, to.strip_prefix("uwsgi://").unwrap_or(&to), options)?;
    let own = variables(context, place);
    let proxy = table.table("proxy");
    proxy.set("to", target.name);
    if own.strips {
        proxy.set("strip_prefix", true);
    }
    if !own.keys.is_empty() {
        proxy.set("uwsgi", own.keys);
    }
    let all = |name: &str| level.all(&name.replacen("proxy_", "uwsgi_", 1));
    let (cache, hidden) = (cache::of_rule(context, &all), fields::of_responses(context, &all("proxy_hide_header")));
    keys_of_all(context, table.table("proxy"), place, &all, (hidden, cache));
    Ok(())
}

/// The `uwsgi` of a rule.
#[derive(Default)]
struct Own {
    keys: toml::Table,
    /// Whether the path of the location is no part of PATH_INFO.
    strips: bool,
}

/// Variables and modifiers.
fn variables(context: &mut Context, place: Place<'_, '_>) -> Own {
    let mut own = Own::default();
    let mut params = toml::Table::new();
    let modifier = |name: &str| place.level.last(name).and_then(|directive| directive.first().parse::<i64>().ok());
    let mut modifier1 = modifier("uwsgi_modifier1").unwrap_or(0);
    for param in place.level.all("uwsgi_param") {
        let [name, value, ..] = param.arguments.as_slice() else { continue };
        if name == "SCRIPT_NAME" && !value.is_empty() {
            let is_own =
                matches!(place.path, Path::Prefix { text, .. } if text.strip_suffix('/') == Some(value.as_str()));
            match is_own && modifier1 == MANAGE_SCRIPT_NAME {
                true => (own.strips, modifier1) = (true, 0),
                false => context.report_with(param, "set strip_prefix = true in a route whose path ends in a slash"),
            }
            continue;
        }
        gateway::add_param(context, place, &mut params, param, &MADE);
    }
    if !params.is_empty() {
        own.keys.insert("params".to_owned(), params.into());
    }
    for (name, modifier) in [("modifier1", modifier1), ("modifier2", modifier("uwsgi_modifier2").unwrap_or(0))] {
        if (1..=255).contains(&modifier) {
            own.keys.insert(name.to_owned(), modifier.into());
        }
    }
    own
}

/// Times and tries of the upstream.
fn options(context: &mut Context, place: Place<'_, '_>) -> Options {
    let mut keys = gateway::options(context, place, "uwsgi");
    if place.level.last("uwsgi_next_upstream").is_some_and(|next| next.first() == "off") {
        keys.push(("tries", 1.into()));
    }
    Options { scheme: "uwsgi", keys, ..Options::default() }
}
