//! Access logs: that of `http` is the common one, that of a server its site's own.

use toml::Value;

use super::context::Context;
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
        let table = context.root.table("access_log");
        table.set("to", to);
        table.set("format", "combined");
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
        let table = site.table("log");
        table.set("to", to);
        table.set("format", "combined");
    }
}

/// The file of a log. What its lines lack is reported.
fn destination(context: &mut Context, directive: &Directive) -> Option<String> {
    let to = directive.first();
    if to.contains('$') || to.starts_with("syslog:") {
        context.note(directive, "name a file, \"journald\" or \"syslog\" in `to` of [access_log] or site.log");
        return None;
    }
    for option in directive.arguments.iter().skip(1) {
        match option.split_once('=') {
            None if option == "combined" => {}
            None => {
                let remedy = format!(
                    "lines are written as `combined`: choose the fields of `{option}` with fields of [access_log] or site.log"
                );
                context.note(directive, remedy);
            }
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
