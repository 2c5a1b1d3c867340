//! The rewrite phase of nginx (`if`, `set`, `rewrite`) as routes within the location's own.
//!
//! They stand in the order of the file. Each has a condition or an expression, and the first that admits the request is taken.

use super::asked::{self, Asked};
use super::condition::Condition;
use super::context::Context;
use super::path::Path;
use super::proxy;
use super::rewrites::{Rewrite, is_everything, of_rewrite, redirects};
use super::route::{Block, act, place};
use super::variables::Variables;
use super::{action, guards, limits, settings};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Writes the rewrite phase of a block as routes within it.
pub(super) fn write(context: &mut Context, table: &mut Table, block: &Block<'_, '_>, variables: &mut Variables) {
    let own: Vec<&Directive> = block.level.own().to_vec();
    let has_break =
        own.iter().any(|inner| inner.name == "rewrite" && inner.arguments.last().is_some_and(|flag| flag == "break"));
    let mut behind: Option<String> = None;
    // Whether `$uri` has the query too.
    let mut is_raw = false;
    // The condition of all that stands behind `if (…) { break; }`.
    let mut unless = Condition::Always;
    // nginx goes on behind an `if` that ends nothing, and the last of several gives the settings and the server.
    let mut last: Vec<Table> = Vec::new();
    for (number, inner) in own.iter().copied().enumerate() {
        let rest = &own[number + 1..];
        match inner.name.as_str() {
            "set" => set(context, variables, inner, &unless),
            "return" => {
                match unless {
                    // It answers the requests of the conditions before it.
                    Condition::Always => last.clear(),
                    _ => context.report_with(inner, "it applies behind break too: write a route with match"),
                }
                break;
            }
            // The address as the client wrote it, which the next rewrite takes apart.
            "rewrite" if inner.arguments == ["^", "$request_uri"] && has_break => {
                context.note(inner, "the server gets encoded slashes of the path decoded");
                is_raw = true;
            }
            "rewrite" => {
                if !last.is_empty() && inner.arguments.get(2).is_some_and(|flag| flag == "break") {
                    let remedy =
                        "its paths miss the settings and the server of the if before it: write a route with match";
                    context.report_with(inner, remedy);
                }
                let condition = Some(unless.clone()).filter(|unless| *unless != Condition::Always);
                let is_only = block.level.own().len() == 1;
                let rewrite = Rewrite { condition, has_pass: block.passes(), is_only, is_raw, rest };
                of_rewrite(context, table, block, variables, (inner, rewrite, &mut behind));
            }
            "if" if asked::is_of_script(inner, &block.level) => {}
            "if" => {
                match read(context, inner, variables, block) {
                    Ok(asked) if matches!(inner.children(), [only] if only.name == "break") => {
                        let whole = asked.whole();
                        let follows = !last.is_empty();
                        // nginx tries no files there.
                        if follows || block.level.sets(&["try_files"]) {
                            let how = (inner, asked.and(&unless), rest, follows);
                            last.extend(of_if(context, table, block, variables, how));
                        }
                        unless = unless.and(whole.not());
                    }
                    Ok(asked) => {
                        let whole = asked.whole();
                        let asked = asked.and(&unless);
                        let route = of_if(context, table, block, variables, (inner, asked, rest, !last.is_empty()));
                        match inner.children().iter().any(|inner| inner.name == "return") {
                            true => route.into_iter().for_each(|route| push(table, route)),
                            false => last.extend(route),
                        }
                        if inner.children().iter().any(|inner| inner.name == "break") {
                            unless = unless.and(whole.not());
                        }
                    }
                    Err(_) if asks_certificate(inner) => push(table, closed(context, inner, CERTIFICATE)),
                    Err(why) if refuses(inner) && variables.is_changed(context, inner) => {
                        push(
                            table,
                            closed(context, inner, &format!("{why}, so the part is closed: write a route with match")),
                        );
                    }
                    Err(why) => lost_if(context, inner, &why),
                }
                // Its expression takes the place of the location's, whether it matches or not.
                if inner.arguments.get(1).is_some_and(|operator| operator.contains('~')) {
                    variables.groups.clear();
                }
            }
            _ => {}
        }
    }
    last.into_iter().rev().for_each(|route| push(table, route));
}

/// Adds a route, unless one before it has all its requests.
pub(super) fn push(table: &mut Table, route: Table) {
    let path = |of: &Table| of.get("path").and_then(|path| path.as_str()).map(str::to_owned);
    let has_all = |known: &Table| {
        let has_path = path(known).is_some_and(|own| own == "~ ^/" || path(&route).is_some_and(|path| path == own));
        has_path && known.get("match").is_none() && known.get("once") == route.get("once")
    };
    if !table.list("route").any(has_all) {
        table.push("route", route);
    }
}

/// Reads the condition of an `if` in a block.
pub(super) fn read(
    context: &mut Context,
    directive: &Directive,
    variables: &Variables,
    block: &Block<'_, '_>,
) -> Result<Asked, String> {
    let referers = block.level.all("valid_referers");
    if block.level.all("alias").is_empty() {
        return asked::read(context, directive, variables, &referers);
    }
    // The names of its files are no paths beneath a root.
    let alias = block.level.own().iter().copied().find(|inner| inner.name == "alias");
    let file = alias.and_then(|alias| action::file_of_alias(context, place(block, variables), alias));
    let mut own = variables.clone();
    (own.root, own.file) = (None, file);
    asked::read(context, directive, &own, &referers)
}

/// The variables behind the `set` of a block and of its conditions.
pub(super) fn settled<'d>(
    context: &mut Context,
    own: impl Iterator<Item = &'d Directive>,
    variables: &Variables,
) -> Variables {
    let (mut settled, mut unless) = (variables.clone(), Condition::Always);
    for inner in own {
        match inner.name.as_str() {
            "set" => set(context, &mut settled, inner, &unless),
            "if" if inner.children().iter().any(|inner| matches!(inner.name.as_str(), "set" | "break")) => {
                let Ok(asked) = asked::read(context, inner, &settled, &[]) else { continue };
                let condition = unless.clone().and(asked.whole());
                let sets = inner.children().iter().filter(|inner| inner.name == "set");
                sets.for_each(|inner| set(context, &mut settled, inner, &condition));
                if inner.children().iter().any(|inner| inner.name == "break") {
                    unless = unless.and(asked.whole().not());
                }
            }
            _ => {}
        }
    }
    settled
}

pub(super) fn set(context: &mut Context, variables: &mut Variables, directive: &Directive, condition: &Condition) {
    if let [name, value] = directive.arguments.as_slice() {
        if matches!(name.as_str(), "$limit_rate" | "${limit_rate}") {
            context
                .report_with(directive, "no variable has this effect: write a route with match and limits.bandwidth");
        }
        variables.set(context, name, value, condition);
    }
}

/// Whether an `if` decides by the certificate of a client which requests get no further.
fn asks_certificate(block: &Directive) -> bool {
    let asks = block.arguments.iter().any(|word| word.contains("$ssl_client_") || word.contains("${ssl_client_"));
    asks && block.children().iter().any(|inner| matches!(inner.name.as_str(), "return" | "rewrite"))
}

const CERTIFICATE: &str = "no condition asks for the certificate of a client, so the part is closed: write client_auth, which refuses connections without one";

/// The route of an `if` that nginx guards the rest of its block by: it has all requests, and refuses them.
fn closed(context: &mut Context, block: &Directive, remedy: &str) -> Table {
    context.report_closed(block, remedy);
    let mut route = Table::default();
    route.comment(&block.place);
    route.set("path", "~ ^/");
    route.set("deny", true);
    route
}

/// Reports an `if` without counterpart. One that refuses requests would be missed.
fn lost_if(context: &mut Context, block: &Directive, why: &str) {
    match refuses(block) {
        true => context.report_unguarded(block, format!("{why}: write a route with match")),
        false => context.report_with(block, format!("{why}: write a route with match")),
    }
}

/// Whether a block answers with an error.
fn refuses(block: &Directive) -> bool {
    let is_error = |status: &str| status.parse::<u16>().is_ok_and(|status| status >= 400);
    block.children().iter().any(|inner| inner.name == "return" && is_error(inner.first()))
}

/// Has the locations of a server forget the variables that one of its rewrites changes.
pub(super) fn forget_changed(context: &Context, server: &Directive, variables: &mut Variables) {
    let mut rewrites = Vec::new();
    guards::walk(server.children(), &mut |inner| rewrites.extend((inner.name == "rewrite").then_some(inner)));
    let to = |rewrite: &&&Directive| rewrite.arguments.get(1).map_or("", String::as_str).to_owned();
    rewrites.retain(|rewrite| !redirects(rewrite.arguments.get(2).map_or("", String::as_str), &to(&rewrite)));
    if !rewrites.is_empty() {
        variables.forget_changed(context, rewrites.iter().any(|rewrite| to(&rewrite).contains('?')));
    }
}

/// nginx tries no files where a condition of a location holds, unless it has its own `try_files`.
fn drop_tries(context: &mut Context, route: &mut Table, block: &Block<'_, '_>, directive: &Directive) {
    let own = block.level.own();
    let pass = own.iter().find(|inner| proxy::is_pass(inner));
    match pass {
        None if own.iter().any(|inner| inner.name == "alias") && !block.path.is_folder() => {}
        None => return route.set("files", true),
        Some(pass) if own.iter().any(|inner| action::is_try_of_script(inner, pass)) => return,
        Some(_) => {}
    }
    context.report_with(directive, "nginx leaves try_files out where the condition holds: write a route with match");
}

/// `if`: its rewrites as routes, or a route for its other directives. `follows`: whether one before it has a route, whose settings its requests do not have.
fn of_if(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &mut Variables,
    (directive, asked, rest, follows): (&Directive, Asked, &[&Directive], bool),
) -> Option<Table> {
    let whole = asked.whole();
    let Asked { condition, path, is_of_client, groups } = asked;
    if condition == Condition::Always.not() {
        return None;
    }
    let mut own = variables.clone();
    if let Some((groups, names)) = groups {
        own.groups = groups;
        own.named.extend(names);
    }
    for inner in directive.children().iter().filter(|inner| inner.name == "set") {
        variables.set_beside(context, &own, inner, &whole);
        set(context, &mut own, inner, &Condition::Always);
    }
    let others: Vec<_> = directive.children().iter().filter(|inner| inner.name != "set").collect();
    if rest.iter().any(|inner| inner.name == "return") && others.iter().any(|inner| inner.name == "error_page") {
        context.report_with(directive, "a return behind it does not have its error pages: write a route with match");
    }
    // Behind these, nginx runs no rewrite of the block.
    let end = others.iter().position(|inner| matches!(inner.name.as_str(), "return" | "break")).unwrap_or(others.len());
    let rewrites: Vec<_> = others[..end].iter().filter(|inner| inner.name == "rewrite").collect();
    for (number, rewrite) in others[..end].iter().enumerate().filter(|(_, inner)| inner.name == "rewrite") {
        let rest: Vec<&Directive> = others[number + 1..].iter().chain(rest).copied().collect();
        // nginx tries no files where a condition of a location holds, and asks the server of the condition.
        let passes = directive.children().iter().any(proxy::is_pass);
        let level = if passes { block.level.within(directive) } else { block.level.without("try_files") };
        let everything = Block { level, path: Path::Inherited, ..*block };
        let has_pass = everything.passes();
        let how = Rewrite { condition: Some(whole.clone()), has_pass, is_only: false, is_raw: false, rest: &rest };
        of_rewrite(context, table, &everything, &own, (rewrite, how, &mut None));
    }
    // Other directives beside rewrites are for the requests that no rewrite has.
    let is_only_led =
        !rewrites.is_empty() && others.iter().all(|inner| matches!(inner.name.as_str(), "rewrite" | "break"));
    // A rewrite of every path leaves no request to the rest.
    let is_left = rewrites.iter().any(|rewrite| is_everything(rewrite.first(), ""));
    let drops_tries = !is_left && block.directive.name == "location" && block.level.sets(&["try_files"]);
    if (others.is_empty() || is_only_led) && !drops_tries && (!follows || is_left) {
        return None;
    }
    let mut route = Table::default();
    route.comment(&directive.place);
    if is_of_client {
        route.set("once", true);
    }
    match path {
        Some(path) => route.set("path", path),
        // A condition that always holds needs a path.
        None if condition == Condition::Always => route.set("path", "~ ^/"),
        None => {}
    }
    if condition != Condition::Always {
        route.set("match", condition.into_table());
    }
    let level = block.level.within(directive);
    settings::write(context, &mut route, &level, &own);
    limits::write(context, &mut route, &level);
    // Its server answers where the condition has none.
    if block.passes()
        && !directive.children().iter().any(action::is_action)
        && let Some(own) = route.get("cache_control").cloned()
    {
        route.set("forwarded_cache_control", own);
    }
    let inner = Block { level, path: Path::Inherited, directive, acts_around: true, ..*block };
    act(context, &mut route, &inner, &own);
    if drops_tries && !directive.children().iter().any(action::is_action) {
        drop_tries(context, &mut route, block, directive);
    }
    Some(route)
}
