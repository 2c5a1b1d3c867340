//! The rewrite phase of nginx (`if`, `set`, `rewrite`) as routes within the location's own.
//!
//! They stand in the order of the file. Each has a condition or an expression, and the first that admits the request is taken.

use toml::Value;

use super::asked::{self, Asked};
use super::condition::Condition;
use super::context::Context;
use super::path::{self, Path};
use super::proxy::{self, NotPassed};
use super::route::{Block, act, place};
use super::variables::Variables;
use super::{action, guards, pcre, settings, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Writes the rewrite phase of a block as routes within it. Returns the `try` of a check whether the file is there.
pub(super) fn write(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &mut Variables,
) -> Option<Vec<Value>> {
    let own: Vec<&Directive> = block.level.own().to_vec();
    let has_rewrites = own.iter().any(|inner| inner.name == "rewrite");
    let mut behind: Option<String> = None;
    let mut tries: Option<Vec<Value>> = None;
    for inner in own {
        match inner.name.as_str() {
            "set" => set(context, variables, inner, &Condition::Always),
            "return" | "break" => break,
            "rewrite" => {
                if let Some(tries) = tries.take() {
                    return finish_tries(context, tries, block, variables, inner);
                }
                let rewrite =
                    Rewrite { condition: None, has_pass: block.passes(), is_only: block.level.own().len() == 1 };
                of_rewrite(context, table, block, variables, (inner, rewrite, &mut behind));
            }
            "if" => {
                let referers = block.level.all("valid_referers");
                match asked::read(context, inner, variables, &referers) {
                    Ok(Asked::File { is_there, or_directory }) => {
                        let mut paths: Vec<Value> = vec!["{path}".into()];
                        paths.extend(or_directory.then(|| Value::from("{path}/")));
                        let body: Vec<_> = inner.children().iter().collect();
                        match (is_there, body.as_slice()) {
                            (true, [only]) if only.name == "break" => tries = Some(paths),
                            (true, _) => lost_if(context, inner, "whether a file is there chooses no route"),
                            (false, _) => return finish_tries_of(context, paths, block, variables, inner),
                        }
                    }
                    Ok(asked) => of_if(context, table, block, variables, (inner, asked, has_rewrites)),
                    Err(why) => lost_if(context, inner, &why),
                }
            }
            _ => {}
        }
    }
    tries.map(|mut tries| {
        tries.push("=404".into());
        tries
    })
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
                let condition = match asked {
                    Asked::Holds { condition, .. } => condition,
                    Asked::Path { path, .. } => Condition::wanted("{path}", path),
                    Asked::File { .. } => continue,
                };
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
        variables.set(context, name, value, condition);
    }
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

/// The `try` for a file that is missing, by a rewrite of all paths.
fn finish_tries(
    context: &mut Context,
    mut tries: Vec<Value>,
    block: &Block<'_, '_>,
    variables: &Variables,
    rewrite: &Directive,
) -> Option<Vec<Value>> {
    let [expression, to, ..] = rewrite.arguments.as_slice() else { return None };
    let mut own = variables.clone();
    own.groups = match expression.as_str() {
        "^" | ".*" | "^.*$" | "^/.*$" | "." => Vec::new(),
        "^(.*)$" | "^(.+)$" | "(.*)" | "^(.*)" | "^/(.*)$" | "^/(.+)$" | "^/(.*)" | "/(.*)" => {
            vec!["{path}".to_owned()]
        }
        _ => {
            context.report_closed(rewrite, "the expression leads elsewhere where no file is there: write try");
            tries.push("=501".into());
            return Some(tries);
        }
    };
    match target(context, &own, to) {
        Ok(to) => tries.push(to.replace("/{path}", "{path}").into()),
        Err(why) => {
            context.report_closed(
                rewrite,
                format!("{block_text} answers 501 where no file is there: {why}", block_text = block.directive),
            );
            tries.push("=501".into());
        }
    }
    Some(tries)
}

/// The same for the body of `if (!-f $request_filename)`.
fn finish_tries_of(
    context: &mut Context,
    mut tries: Vec<Value>,
    block: &Block<'_, '_>,
    variables: &Variables,
    condition: &Directive,
) -> Option<Vec<Value>> {
    let find = |wanted: fn(&Directive) -> bool| condition.children().iter().find(|inner| wanted(inner));
    if let Some(rewrite) = find(|inner| inner.name == "rewrite") {
        return finish_tries(context, tries, block, variables, rewrite);
    }
    let status = find(|inner| inner.name == "return").and_then(|inner| inner.first().parse::<u16>().ok());
    if let Some(status) = status.filter(|status| *status >= 400 && *status != 444) {
        tries.push(format!("={status}").into());
        return Some(tries);
    }
    let name = format!("@import-{}", context.next_number());
    let mut named = Table::default();
    named.comment(format!("{}, where no file is there", condition.place));
    named.set("name", name.as_str());
    let level = block.level.flattened();
    if guards::write(context, &mut named, &level, &block.server.locations) {
        settings::write(context, &mut named, &level, variables);
        let level = level.within(condition);
        let inner = Block { level, path: Path::Inherited, directive: condition, ..*block };
        act(context, &mut named, &inner, variables);
    }
    context.further.push(named);
    tries.push(name.into());
    Some(tries)
}

/// The path of a rewrite. Its query goes before that of the request.
fn target(context: &mut Context, variables: &Variables, to: &str) -> Result<String, String> {
    let own = action::target(context, variables, to).map_err(NotPassed::into_reason)?;
    Ok(match (own.contains('?'), to.ends_with('?')) {
        (false, true) => format!("{own}?"),
        (true, false) if !own.ends_with("{query}") => format!("{own}{{and_args}}{{query}}"),
        _ => own,
    })
}

/// How a rewrite stands in its block.
struct Rewrite {
    condition: Option<Condition>,
    /// Whether the block passes requests to a server, which gets the path of a `break`.
    has_pass: bool,
    is_only: bool,
}

/// `rewrite`
fn of_rewrite(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &Variables,
    (directive, rewrite, behind): (&Directive, Rewrite, &mut Option<String>),
) {
    let (expression, to, flag) = match directive.arguments.as_slice() {
        [expression, to] => (expression, to, ""),
        [expression, to, flag] => (expression, to, flag.as_str()),
        _ => return context.report(directive),
    };
    let mut route = Table::default();
    route.comment(&directive.place);
    let Some(own) = path::expression(expression) else {
        context.report_closed(directive, format!("the expression {expression} is not supported: its paths answer 501"));
        route.set(
            "path",
            values::regex_of_pcre(&pcre::without_look_around(expression), false)
                .map_or("~ ^/".to_owned(), |own| format!("~ {own}")),
        );
        route.set("respond", 501);
        return table.push("route", route);
    };
    let matches_all = matches!(own.as_str(), "^" | ".*" | "^.*$" | "^/.*$" | "^/" | "/" | "^.*");
    let finds_all = matches!(own.as_str(), "(.*)" | "^(.*)" | "^(.*)$" | "^(.+)$" | "^/(.*)" | "^/(.*)$");
    let is_everything = matches_all || finds_all && !to.contains("$1");
    let mut inner = variables.clone();
    let (groups, names) = path::groups(&own);
    inner.groups = groups;
    inner.named.extend(names);
    let in_place =
        is_everything && rewrite.is_only && rewrite.condition.is_none() && !matches!(block.path, Path::Inherited)
            || matches!(block.path, Path::Named(_)) && is_everything;
    if !in_place {
        route.set("path", if is_everything { "~ ^/".to_owned() } else { format!("~ {own}") });
    }
    if let Some(condition) = rewrite.condition.clone() {
        route.set("match", condition.into_table());
    }
    let written = if matches!(flag, "redirect" | "permanent") || to.starts_with("http") || to.starts_with("$scheme") {
        let status = if flag == "permanent" { 301 } else { 302 };
        let with_query = if to.ends_with('?') || to.contains("$request_uri") {
            to.trim_end_matches('?').to_owned()
        } else {
            format!("{to}$is_args$args")
        };
        action::redirect(context, &mut route, &inner, &with_query, status).map_err(|why| format!("{why:?}"))
    } else {
        target(context, &inner, to).and_then(|to| match (flag, rewrite.has_pass) {
            ("break", true) => {
                let prefix = match behind {
                    Some(prefix) => Ok(prefix.clone()),
                    None => behind_another(context, block, variables),
                }?;
                *behind = Some(prefix.clone());
                route.set("rewrite", format!("{prefix}{to}"));
                Ok(())
            }
            ("break", false) => {
                let rewrite = [("to".to_owned(), Value::from(to)), ("stay".to_owned(), true.into())];
                route.set("rewrite", rewrite.into_iter().collect::<toml::Table>());
                Ok(())
            }
            _ => {
                route.set("rewrite", to);
                Ok(())
            }
        })
    };
    if let Err(why) = written {
        context.report_closed(directive, format!("its paths answer 501: {why}"));
        route.set("respond", 501);
    }
    match in_place {
        true => table.append(route),
        false if matches!(block.path, Path::Named(_)) => {
            context.report_closed(directive, "a named route has no expressions: its paths answer 501");
            table.set("respond", 501);
        }
        false => table.push("route", route),
    }
}

/// The prefix behind which the server of a block gets rewritten paths.
fn behind_another(context: &mut Context, block: &Block<'_, '_>, variables: &Variables) -> Result<String, String> {
    let pass = block.level.own().iter().copied().find(|inner| proxy::is_pass(inner)).ok_or("there is no server")?;
    proxy::elsewhere(context, place(block, variables), pass).map_err(NotPassed::into_reason)
}

/// `if`
fn of_if(
    context: &mut Context,
    table: &mut Table,
    block: &Block<'_, '_>,
    variables: &mut Variables,
    (directive, asked, has_rewrites): (&Directive, Asked, bool),
) {
    let (condition, path, groups) = match asked {
        Asked::Holds { condition, groups } => (condition, None, groups),
        Asked::Path { path, groups } => (Condition::Always, Some(path), Some(groups)),
        Asked::File { .. } => return,
    };
    if condition == Condition::Always.not() {
        return;
    }
    let sets = directive.children().iter().filter(|inner| inner.name == "set");
    let mut own = variables.clone();
    if let Some((groups, names)) = groups {
        own.groups = groups;
        own.named.extend(names);
    }
    for inner in sets {
        set(context, &mut own, inner, &Condition::Always);
        match &path {
            None => set(context, variables, inner, &condition),
            Some(path) => set(context, variables, inner, &Condition::wanted("{path}", path.as_str())),
        }
    }
    let others: Vec<_> = directive.children().iter().filter(|inner| inner.name != "set").collect();
    if others.is_empty() {
        return;
    }
    let rewrites: Vec<_> = others.iter().filter(|inner| inner.name == "rewrite").collect();
    for rewrite in &rewrites {
        let condition = match &path {
            None => condition.clone(),
            Some(path) => Condition::wanted("{path}", path.as_str()),
        };
        let how = Rewrite { condition: Some(condition), has_pass: block.passes(), is_only: false };
        let everything = Block { level: block.level.clone(), path: Path::Inherited, ..*block };
        of_rewrite(context, table, &everything, &own, (rewrite, how, &mut None));
    }
    if !rewrites.is_empty() {
        return;
    }
    let mut route = Table::default();
    route.comment(&directive.place);
    match path {
        Some(path) => route.set("path", path),
        None if block.path.is_expression() => {}
        // In the order of the rewrites, which are expressions.
        None if has_rewrites => route.set("path", "~ ^/"),
        None => {}
    }
    if condition != Condition::Always {
        route.set("match", condition.into_table());
    }
    let level = block.level.within(directive);
    settings::write(context, &mut route, &level, &own);
    let inner = Block { level, path: Path::Inherited, directive, acts_around: true, ..*block };
    act(context, &mut route, &inner, &own);
    table.push("route", route);
}
