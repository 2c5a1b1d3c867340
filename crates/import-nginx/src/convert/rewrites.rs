//! `rewrite`, and the rest of the rewrite phase behind one without a flag.

use super::asked;
use super::condition::Condition;
use super::context::Context;
use super::path::Path;
use super::proxy::{self, ItsPath, NotPassed, Place};
use super::rewrite_phase::{push, read, set};
use super::route::{Block, place};
use super::variables::Variables;
use super::{action, pcre, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

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
    // The query of `set`, or of a rewrite before it.
    let query = if to.ends_with('?') { None } else { variables.own_query().map_err(|lost| lost.to_string())? };
    if let Some(query) = query {
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
pub(super) struct Rewrite<'r, 'd> {
    pub(super) condition: Option<Condition>,
    /// Whether the block passes requests to a server, which gets the path of a `break`.
    pub(super) has_pass: bool,
    pub(super) is_only: bool,
    /// Whether a rewrite before it led to the address as the client wrote it, with its query.
    pub(super) is_raw: bool,
    /// The directives behind it.
    pub(super) rest: &'r [&'d Directive],
}

/// Expressions whose first group is the whole path.
const WHOLE_PATH: [&str; 6] = ["(.*)", "^(.*)", "^(.*)$", "^(.+)$", "^(/.*)$", "^(/.*)"];

/// `rewrite`
pub(super) fn of_rewrite(
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
pub(super) fn is_everything(expression: &str, to: &str) -> bool {
    let matches_all = matches!(expression, "^" | ".*" | "^.*$" | "^/.*$" | "^/" | "/" | "^.*");
    let finds_all = matches!(expression, "(.*)" | "^(.*)" | "^(.*)$" | "^(.+)$" | "^/(.*)" | "^/(.*)$");
    matches_all || finds_all && !to.contains("$1")
}

/// Whether a rewrite sends a redirect.
pub(super) fn redirects(flag: &str, to: &str) -> bool {
    matches!(flag, "redirect" | "permanent") || to.starts_with("http") || to.starts_with("$scheme")
}

/// Writes where a rewrite leads. `inner`: the variables with the groups of its expression. `behind`: the prefix of the paths of the block's server, once made.
fn lead(
    context: &mut Context,
    route: &mut Table,
    block: &Block<'_, '_>,
    (variables, inner): (&Variables, &Variables),
    (to, flag, rewrite, behind): (&str, &str, &Rewrite<'_, '_>, &mut Option<String>),
) -> Result<(), String> {
    if redirects(flag, to) {
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
        if flag == "break" && !inner.led.is_empty() && block.level.own().iter().any(|one| gives_settings(one, block)) {
            return Err("a condition before its break has settings, or leaves try_files out".to_owned());
        }
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

/// Whether requests go on behind an `if` with settings of its own, or without the files that its block tries.
fn gives_settings(directive: &Directive, block: &Block<'_, '_>) -> bool {
    let goes_on = |inner: &Directive| matches!(inner.name.as_str(), "set" | "rewrite" | "break");
    let inner = directive.children();
    directive.name == "if"
        && !inner.iter().any(|inner| inner.name == "return")
        && (block.level.sets(&["try_files"]) || !inner.iter().all(goes_on))
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
    let pass =
        block.server.everything().and_then(|of| Some((of, of.children().iter().find(|inner| proxy::is_pass(inner))?)));
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
