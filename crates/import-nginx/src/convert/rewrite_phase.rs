//! The rewrite phase of nginx (`if`, `set`, `rewrite`) as routes within the location's own.
//!
//! They stand in the order of the file. Each has a condition or an expression, and the first that admits the request is taken.

use super::asked::{self, Asked};
use super::condition::Condition;
use super::context::Context;
use super::path::Path;
use super::proxy::{self, ItsPath, NotPassed, Place};
use super::route::{Block, act, place};
use super::variables::Variables;
use super::{action, limits, pcre, settings, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

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
            "set" => set(context, variables, inner, &Condition::Always),
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
                        // nginx tries no files there.
                        if block.level.sets(&["try_files"]) {
                            last.extend(of_if(context, table, block, variables, (inner, asked.and(&unless), rest)));
                        }
                        unless = unless.and(whole.not());
                    }
                    Ok(asked) => {
                        let whole = asked.whole();
                        let asked = asked.and(&unless);
                        let route = of_if(context, table, block, variables, (inner, asked, rest));
                        match inner.children().iter().any(|inner| inner.name == "return") {
                            true => route.into_iter().for_each(|route| push(table, route)),
                            false => last.extend(route),
                        }
                        if inner.children().iter().any(|inner| inner.name == "break") {
                            unless = unless.and(whole.not());
                        }
                    }
                    Err(_) if asks_certificate(inner) => push(table, closed(context, inner)),
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
fn push(table: &mut Table, route: Table) {
    let has_all = |known: &Table| {
        known.get("path") == route.get("path") && known.get("match").is_none() && known.get("once") == route.get("once")
    };
    if route.get("path").is_none() || !table.list("route").any(has_all) {
        table.push("route", route);
    }
}

/// Reads the condition of an `if` in a block.
fn read(
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
    let mut settled = variables.clone();
    for inner in own {
        match inner.name.as_str() {
            "set" => set(context, &mut settled, inner, &Condition::Always),
            "if" if inner.children().iter().any(|inner| inner.name == "set") => {
                let Ok(asked) = asked::read(context, inner, &settled, &[]) else { continue };
                let condition = asked.whole();
                let sets = inner.children().iter().filter(|inner| inner.name == "set");
                sets.for_each(|inner| set(context, &mut settled, inner, &condition));
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

/// The route of an `if` that nginx guards the rest of its block by: it has all requests, and refuses them.
fn closed(context: &mut Context, block: &Directive) -> Table {
    let remedy = "no condition asks for the certificate of a client, so the part is closed: write client_auth, which refuses connections without one";
    context.report_closed(block, remedy);
    let mut route = Table::default();
    route.comment(&block.place);
    route.set("path", "~ ^/");
    route.set("deny", true);
    route
}

/// Reports an `if` without counterpart. One that refuses requests would be missed.
fn lost_if(context: &mut Context, block: &Directive, why: &str) {
    let refuses = block
        .children()
        .iter()
        .any(|inner| inner.name == "return" && inner.first().parse::<u16>().is_ok_and(|status| status >= 400));
    match refuses {
        true => context.report_unguarded(block, format!("{why}: write a route with match")),
        false => context.report_with(block, format!("{why}: write a route with match")),
    }
}

/// Whether an expression may match a path that begins so.
fn may_have(expression: &str, start: &str) -> bool {
    let Some(own) = expression.strip_prefix('^') else { return true };
    let end = own.find(|c: char| "\\.[]()*+?{}|$^".contains(c)).unwrap_or(own.len());
    // A quantifier is about the character before it.
    let end = if own[end..].starts_with(['*', '?', '{']) { end.saturating_sub(1) } else { end };
    let own = own.get(..end).unwrap_or_default();
    own.starts_with(start) || start.starts_with(own)
}

/// The path of a rewrite. Its query goes before the query of the request.
fn target(context: &mut Context, variables: &Variables, to: &str) -> Result<String, String> {
    let own = action::target(context, variables, to).map_err(NotPassed::into_reason)?;
    if let Some((_, query)) = variables.led_to().and_then(|path| path.split_once('?')).filter(|_| !to.ends_with('?')) {
        // The query of the rewrite before it.
        return Ok(match own.split_once('?') {
            None => format!("{own}?{query}"),
            Some((path, "")) => format!("{path}?{query}"),
            Some(_) if query.is_empty() => own,
            Some(_) => format!("{own}&{query}"),
        });
    }
    Ok(match (own.contains('?'), to.ends_with('?')) {
        (false, true) => format!("{own}?"),
        (true, false) if !own.ends_with("{query}") => format!("{own}{{and_args}}{{query}}"),
        _ => own,
    })
}

/// How a rewrite stands in its block.
struct Rewrite<'r, 'd> {
    condition: Option<Condition>,
    /// Whether the block passes requests to a server, which gets the path of a `break`.
    has_pass: bool,
    is_only: bool,
    /// Whether a rewrite before it led to the address as the client wrote it, with its query.
    is_raw: bool,
    /// The directives behind it.
    rest: &'r [&'d Directive],
}

/// Expressions whose first group is the whole path.
const WHOLE_PATH: [&str; 6] = ["(.*)", "^(.*)", "^(.*)$", "^(.+)$", "^(/.*)$", "^(/.*)"];

/// `rewrite`
fn of_rewrite(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &Variables,
    (directive, rewrite, behind): (&Directive, Rewrite<'_, '_>, &mut Option<String>),
) {
    let Some((expression, to, flag)) = parts(directive, block) else { return context.report(directive) };
    let goes_on = flag.is_empty() && !rewrite.rest.is_empty();
    let mut route = Table::default();
    route.comment(&directive.place);
    let path = match Path::of_expression(expression, false).or_else(|why| Path::of_rewrite(expression).ok_or(why)) {
        Ok(path) => path,
        Err(why) => {
            context.report_closed(directive, format!("{why}: its paths answer 501"));
            let wider = values::regex_of_pcre(&pcre::wider(expression), false);
            route.set("path", wider.map_or("~ ^/".to_owned(), |own| format!("~ {own}")));
            route.set("respond", 501);
            return push(table, route);
        }
    };
    let is_everything = is_everything(expression, to);
    let mut inner = variables.clone();
    let (groups, names) = path.groups();
    inner.groups = groups;
    inner.named.extend(names);
    if WHOLE_PATH.contains(&expression) {
        // The whole path, which may stand behind a host.
        inner.groups = vec!["{path}".to_owned()];
    }
    let in_place =
        is_everything && rewrite.is_only && rewrite.condition.is_none() && !matches!(block.path, Path::Inherited)
            || matches!(block.path, Path::Named(_)) && is_everything && !goes_on;
    if !in_place {
        route.set("path", path.key().filter(|_| !is_everything).unwrap_or_else(|| "~ ^/".to_owned()));
    }
    if let Some(condition) = rewrite.condition.clone() {
        route.set("match", condition.into_table());
    }
    // It comes before the limits, which the location of the new path decides.
    if flag != "break" && !in_place && block.level.last("limit_req").is_some() {
        route.set("limits", toml::Table::new());
    }
    if let Err(why) = lead(context, &mut route, block, (variables, &inner), (to, flag, &rewrite, behind)) {
        context.report_closed(directive, format!("its paths answer 501: {why}"));
        route.take_list("route");
        route.set("respond", 501);
    }
    match in_place {
        true => table.append(route),
        false => push(table, route),
    }
}

/// Whether a rewrite has every path, and uses none of its groups.
fn is_everything(expression: &str, to: &str) -> bool {
    let matches_all = matches!(expression, "^" | ".*" | "^.*$" | "^/.*$" | "^/" | "/" | "^.*");
    let finds_all = matches!(expression, "(.*)" | "^(.*)" | "^(.*)$" | "^(.+)$" | "^/(.*)" | "^/(.*)$");
    matches_all || finds_all && !to.contains("$1")
}

/// Writes where a rewrite leads. `inner`: the variables with the groups of its expression. `behind`: the prefix of the paths of the block's server, once made.
fn lead(
    context: &mut Context,
    route: &mut Table,
    block: &Block<'_, '_>,
    (variables, inner): (&Variables, &Variables),
    (to, flag, rewrite, behind): (&str, &str, &Rewrite<'_, '_>, &mut Option<String>),
) -> Result<(), String> {
    if matches!(flag, "redirect" | "permanent") || to.starts_with("http") || to.starts_with("$scheme") {
        let status = if flag == "permanent" { 301 } else { 302 };
        let with_query = match inner.changed_query() {
            _ if to.ends_with('?') || to.contains("$request_uri") => to.trim_end_matches('?').to_owned(),
            Some("") => to.to_owned(),
            Some(_) => format!("{to}?$args"),
            None => format!("{to}$is_args$args"),
        };
        return action::redirect(context, route, inner, &with_query, status).map_err(NotPassed::into_reason);
    }
    if flag != "break" && to == "/$1" && inner.groups == ["{path}"] {
        return lead_to_everything(context, route, block, inner);
    }
    // A group has the slash that the path begins with.
    let begins_with_slash = to.starts_with('/');
    let to = target(context, inner, to)?;
    if flag.is_empty() {
        let led = inner.behind_rewrite(&to);
        if led.led.len() > MAX_LED {
            return Err("too many rewrites without a flag follow one another: use the flag last".to_owned());
        }
        let mut steps = Steps { block, variables, rewrite, behind };
        match steps.run(context, route, (&led, &Condition::Always), (rewrite.rest, &[]))? {
            true => return Ok(()),
            false => return steps.end(context, route, &led, (&to, "last", begins_with_slash)),
        }
    }
    let mut steps = Steps { block, variables, rewrite, behind };
    steps.end(context, route, inner, (&to, flag, begins_with_slash))
}

/// Rewrites without a flag that are followed one within another.
const MAX_LED: usize = 3;

/// How nginx goes on behind a rewrite without a flag: with the rest of the rewrite phase, for the new path. Its routes lie within the route of the rewrite, and
/// have conditions in place of paths, so that the groups of that route stay known.
struct Steps<'s, 'b, 'd> {
    block: &'s Block<'b, 'd>,
    /// The variables before the rewrite.
    variables: &'s Variables,
    rewrite: &'s Rewrite<'s, 's>,
    /// The prefix of the paths of the block's server, once made.
    behind: &'s mut Option<String>,
}

impl Steps<'_, '_, '_> {
    /// Writes directives for the requests of a condition; `rest` follows the block that they are in. `true`: none of these requests gets further.
    fn run(
        &mut self,
        context: &mut Context,
        route: &mut Table,
        (led, condition): (&Variables, &Condition),
        (steps, rest): (&[&Directive], &[&Directive]),
    ) -> Result<bool, String> {
        let mut variables = led.clone();
        for (number, inner) in steps.iter().copied().enumerate() {
            let rest = [&steps[number + 1..], rest].concat();
            match inner.name.as_str() {
                "set" => set(context, &mut variables, inner, &Condition::Always),
                "break" | "return" => {
                    branch(route, inner, condition, |route| match inner.name.as_str() {
                        "return" => action::returns(context, route, place(self.block, &variables), inner)
                            .map_err(NotPassed::into_reason),
                        _ => {
                            let to = variables.led_to().unwrap_or_default().to_owned();
                            let flag = if self.block.directive.name == "server" { "last" } else { "break" };
                            self.end(context, route, &variables, (&to, flag, true))
                        }
                    })?;
                    return Ok(true);
                }
                "rewrite" => {
                    let Some((found, own)) = found(inner, &variables)? else { continue };
                    let Some((_, to, flag)) = parts(inner, self.block) else { return Err("it is unknown".to_owned()) };
                    let rewrite = Rewrite { condition: None, rest: &rest, ..*self.rewrite };
                    branch(route, inner, &condition.clone().and(found.clone()), |route| {
                        lead(context, route, self.block, (self.variables, &own), (to, flag, &rewrite, self.behind))
                    })?;
                    if found == Condition::Always {
                        return Ok(true);
                    }
                }
                "if" if asked::is_of_script(inner, &self.block.level) => {}
                "if" => {
                    let asked = read(context, inner, &variables, self.block);
                    let asked = asked.and_then(|asked| match asked.path {
                        None => Ok(asked),
                        Some(_) => Err("it takes the path apart".to_owned()),
                    });
                    let ends =
                        |inner: &Directive| matches!(inner.name.as_str(), "return" | "rewrite" | "break" | "set");
                    let asked = match asked {
                        Err(_) if !inner.children().iter().any(ends) => continue,
                        Err(why) => return Err(format!("the if at {} has no counterpart here, as {why}", inner.place)),
                        Ok(asked) => asked,
                    };
                    let whole = asked.whole();
                    if whole == Condition::Always.not() {
                        continue;
                    }
                    let mut own = variables.clone();
                    if let Some((groups, names)) = asked.groups {
                        own.groups = groups;
                        own.named.extend(names);
                    }
                    for set in inner.children().iter().filter(|inner| inner.name == "set") {
                        variables.set_beside(context, &own, set, &whole);
                    }
                    let within: Vec<&Directive> = inner.children().iter().collect();
                    let both = condition.clone().and(whole.clone());
                    if self.run(context, route, (&own, &both), (&within, &rest))? && whole == Condition::Always {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Has a route lead to a path.
    fn end(
        &mut self,
        context: &mut Context,
        route: &mut Table,
        inner: &Variables,
        (to, flag, begins_with_slash): (&str, &str, bool),
    ) -> Result<(), String> {
        let (block, rewrite) = (self.block, self.rewrite);
        match (flag, rewrite.has_pass) {
            ("break", true) => {
                let pass = block.level.own().iter().copied().find(|inner| proxy::is_pass(inner));
                let pass = pass.ok_or("there is no server")?;
                let prefix = match &self.behind {
                    Some(prefix) => prefix.clone(),
                    None => proxy::elsewhere(context, place(block, self.variables), pass, ItsPath::Rewritten)
                        .map_err(NotPassed::into_reason)?,
                };
                let own = if begins_with_slash { to } else { to.trim_start_matches('/') };
                let sent = proxy::sent_rewritten(context, inner, pass, (own, rewrite.is_raw))
                    .map_err(NotPassed::into_reason)?;
                route.set("rewrite", format!("{prefix}{}", sent.as_deref().unwrap_or(to)));
                *self.behind = Some(prefix);
            }
            ("break", false) => match block.level.own().iter().copied().find(|inner| inner.name == "try_files") {
                Some(tries) => action::try_rewritten(context, route, place(block, inner), (tries, to))?,
                None => {
                    if let Some(directive) = block.level.own().iter().find(|inner| inner.name == "rewrite") {
                        let remedy = "a folder without its slash is redirected to the path of the client, not to the rewritten one";
                        context.note(directive, remedy);
                    }
                    route.set("rewrite", inline_table([("to", to.into()), ("stay", true.into())]));
                }
            },
            _ => {
                let own = block.level.own().iter().copied().find(|inner| inner.name == "client_max_body_size");
                if let Some(size) = own.filter(|_| block.directive.name == "location") {
                    let remedy = "the location that a rewrite leads to has its own limit alone: write it there";
                    context.report_with(size, remedy);
                }
                route.set("rewrite", to)
            }
        }
        Ok(())
    }
}

/// Writes a route for the requests of a condition, which is the route itself where all have it.
fn branch(
    route: &mut Table,
    directive: &Directive,
    condition: &Condition,
    write: impl FnOnce(&mut Table) -> Result<(), String>,
) -> Result<(), String> {
    if *condition == Condition::Always {
        return write(route);
    }
    let mut own = Table::default();
    own.comment(&directive.place);
    own.set("match", condition.clone().into_table());
    write(&mut own)?;
    route.push("route", own);
    Ok(())
}

/// Whether a rewrite has the path that another one led to, and the variables with its groups. `None`: it never has.
fn found(rewrite: &Directive, variables: &Variables) -> Result<Option<(Condition, Variables)>, String> {
    let led = variables.led_to().unwrap_or_default();
    let path = led.split('?').next().unwrap_or_default();
    let mut own = variables.clone();
    own.groups.clear();
    if is_everything(rewrite.first(), "") {
        if WHOLE_PATH.contains(&rewrite.first()) {
            own.groups = vec![path.to_owned()];
        }
        return Ok(Some((Condition::Always, own)));
    }
    if !may_have(rewrite.first(), path.split('{').next().unwrap_or_default()) {
        return Ok(None);
    }
    let expression = super::path::expression(rewrite.first())
        .ok_or_else(|| format!("the expression {} behind it has no counterpart", rewrite.first()))?;
    let (expression, (groups, names)) = values::with_named_groups(&expression, &format!("led{}_", variables.led.len()));
    own.groups = groups;
    own.named.extend(names);
    Ok(Some((Condition::of_value(path, format!("~ {expression}")), own)))
}

/// The expression, the target and the flag of a rewrite.
fn parts<'d>(directive: &'d Directive, block: &Block<'_, '_>) -> Option<(&'d str, &'d str, &'d str)> {
    let (expression, to, flag) = match directive.arguments.as_slice() {
        [expression, to] => (expression, to, ""),
        [expression, to, flag] => (expression, to, flag.as_str()),
        _ => return None,
    };
    // The location is looked for behind the rewrites of a server.
    Some((expression, to, if flag == "break" && block.directive.name == "server" { "last" } else { flag }))
}

/// Writes where a rewrite of a path to the same behind another slash leads: two slashes begin the path of no location but `/`.
fn lead_to_everything(
    context: &mut Context,
    route: &mut Table,
    block: &Block<'_, '_>,
    variables: &Variables,
) -> Result<(), String> {
    let everything = block.server.locations.iter().copied().find(|location| location.arguments == ["/"]);
    let pass = everything.and_then(|of| Some((of, of.children().iter().find(|inner| proxy::is_pass(inner))?)));
    let Some((everything, pass)) = pass else {
        return Err(
            "it leads to the location / behind two slashes, which no path has: write a rewrite to its path".to_owned()
        );
    };
    // Its conditions would be missed.
    if everything.children().iter().any(action::has_conditions) {
        return Err("it leads to the location / behind two slashes, whose conditions do not follow: write a rewrite to its path".to_owned());
    }
    let level = block.level.of_server().within(everything);
    let own = Place { level: &level, path: &Path::Inherited, ..place(block, variables) };
    let prefix = proxy::elsewhere(context, own, pass, ItsPath::Rewritten).map_err(NotPassed::into_reason)?;
    route.set("rewrite", format!("{prefix}{{path}}"));
    Ok(())
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

/// `if`: its rewrites as routes, or a route for its other directives.
fn of_if(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &mut Variables,
    (directive, asked, rest): (&Directive, Asked, &[&Directive]),
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
    if (others.is_empty() || is_only_led) && !drops_tries {
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
