//! A location as a route, with those within it.
//!
//! What nginx does in its rewrite phase (`if`, `rewrite`) becomes routes within the location's own, in the order of the file; each has a condition or an
//! expression, and the first that admits the request is taken.

use std::collections::HashMap;

use toml::Value;

use super::action;
use super::asked::{self, Asked};
use super::condition::Condition;
use super::context::Context;
use super::level::Level;
use super::path::{self, Path};
use super::proxy::{self, MaxBody, NotPassed, Place};
use super::variables::Variables;
use super::{guards, pcre, real_ip, settings, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Cases of variables that are followed one within another.
const MAX_DEPTH: usize = 3;

/// What all routes of a server have in common.
pub(super) struct Server<'d> {
    /// All its locations, for what leads from one to another.
    pub(super) locations: Vec<&'d Directive>,
    /// The largest contents that locations permit which lead to a named one.
    pub(super) bodies: HashMap<String, MaxBody>,
}

/// A block that becomes a route.
struct Block<'a, 'd> {
    server: &'a Server<'d>,
    level: Level<'d>,
    path: Path,
    /// The directive, for what is reported.
    directive: &'d Directive,
    /// Whether a route around it does something else than to send files.
    acts_around: bool,
}

impl<'d> Server<'d> {
    pub(super) fn new(server: &'d Directive) -> Self {
        let locations: Vec<&Directive> = server.children().iter().filter(|inner| inner.name == "location").collect();
        Self::of(&locations)
    }

    fn of(locations: &[&'d Directive]) -> Self {
        let locations = locations.to_vec();
        let mut bodies: HashMap<String, u64> = HashMap::new();
        for location in &locations {
            let of = |name: &str| location.children().iter().rfind(|inner| inner.name == name);
            let (Some(size), Some(tries)) = (of("client_max_body_size"), of("try_files")) else { continue };
            let Some(named) = tries.arguments.last().filter(|last| last.starts_with('@')) else { continue };
            let size = values::size(size.first()).map_or(0, |size| size.0);
            let known = bodies.entry(path::name(named)).or_insert(size);
            *known = if *known == 0 || size == 0 { 0 } else { size.max(*known) };
        }
        let bodies = bodies.into_iter().map(|(name, size)| (name, MaxBody::AtLeast(size))).collect();
        Server { locations, bodies }
    }
}

/// Converts a location. `around`: the level that it lies in. `acts_around`: whether the route there does something else than to send files.
pub(super) fn of_location<'d>(
    context: &mut Context,
    server: &Server<'d>,
    around: &Level<'d>,
    variables: &Variables,
    (location, acts_around): (&'d Directive, bool),
) -> Table {
    let mut table = Table::default();
    table.comment(&location.place);
    let path = match Path::of(location) {
        Ok(path) => path,
        Err(why) => {
            match covering(location) {
                Some(wider) => {
                    context.report_closed(location, format!("{why}. All paths that it may have answer 501 until then"));
                    table.set("path", wider);
                    table.set("respond", 501);
                }
                None => context.report_unguarded(location, format!("{why}: what is around it answers its paths")),
            }
            return table;
        }
    };
    let path = if restricts(location) { path.with_newline() } else { path };
    if let Some(key) = path.key() {
        table.set("path", key);
    }
    if let Path::Named(name) = &path {
        table.set("name", name.as_str());
    }
    let mut variables = variables.clone();
    let (groups, names) = path.groups();
    if path.is_expression() {
        variables.groups = groups;
        variables.named.extend(names);
    }
    if location.children().iter().any(|inner| inner.name == "internal") {
        table.set("internal", true);
    }
    let block = Block { server, level: around.within(location), path, directive: location, acts_around };
    fill(context, &mut table, &block, variables);
    table
}

/// The name of the route of a named location for requests from a location that permits smaller contents than others that lead there.
pub(super) fn named(context: &mut Context, place: Place<'_, '_>, name: &str) -> String {
    let own = path::name(name);
    let Some(location) = place.locations.iter().copied().find(|location| location.arguments == [name]) else {
        return own;
    };
    let Server { locations, bodies } = Server::of(place.locations);
    let around = place.level.of_server();
    let size = proxy::own_max_body(context, place.level);
    let of_location = proxy::own_max_body(context, &around.within(location));
    let most = match bodies.get(&own) {
        Some(MaxBody::AtLeast(other)) if of_location != 0 && *other != 0 => of_location.max(*other),
        Some(_) => 0,
        None => of_location,
    };
    if size == 0 || most != 0 && most <= size {
        return own;
    }
    if let Some((_, _, sized)) = context.sized.iter().find(|(other, limit, _)| *other == own && *limit == size) {
        return sized.clone();
    }
    let sized = format!("@import-{}", context.next_number());
    context.sized.push((own.clone(), size, sized.clone()));
    let bodies = [(own, MaxBody::Exactly(size))].into_iter().collect();
    let server = Server { locations, bodies };
    let mut table = self::of_location(context, &server, &around, place.variables, (location, false));
    table.set("name", sized.as_str());
    context.further.push(table);
    sized
}

/// Has the parts of a prefix location leave the paths of expressions to these: an expression within a prefix would go before them.
fn leave_to_expressions(table: &mut Table, block: &Block<'_, '_>) {
    let Path::Prefix { is_final: false, .. } = block.path else { return };
    let all: Vec<String> = block
        .server
        .locations
        .iter()
        .filter_map(|location| match Path::of(location) {
            Ok(path @ Path::Expression { .. }) => path.key(),
            _ => None,
        })
        .collect();
    // The placeholder of the path is encoded.
    if all.iter().any(|other| !other.is_ascii() || other.contains("\\x")) {
        table.retain("route", |route| route.get("path").and_then(Value::as_str) != Some("~ /$"));
    }
    for route in table.list_mut("route") {
        let path = route.get("path").and_then(Value::as_str).map(str::to_owned);
        let Some(path) = path.filter(|path| path.starts_with('~')) else { continue };
        let others: Vec<Value> = all
            .iter()
            .filter(|other| path != "~ /$" || !action::ends_with_name(other))
            .map(|other| other.as_str().into())
            .collect();
        if others.is_empty() {
            continue;
        }
        let except = Condition::wanted("{path}", others).not();
        let condition = match route.get("match").and_then(Value::as_table) {
            Some(own) => Condition::Is(own.clone()).and(except),
            None => except,
        };
        route.set("match", condition.into_table());
    }
}

/// nginx redirects the path of a forwarded directory to itself with a slash, where no location has it.
fn redirect_to_slash(table: &mut Table, block: &Block<'_, '_>) {
    let Path::Prefix { text, .. } = &block.path else { return };
    let Some(without) = text.strip_suffix('/').filter(|without| !without.is_empty() && has_pass(block)) else { return };
    let is_it = |location: &&Directive| matches!(Path::of(location), Ok(Path::Exact(own) | Path::Prefix { text: own, .. }) if own == without);
    let is_plain = without.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte));
    if !is_plain || block.server.locations.iter().any(is_it) {
        return;
    }
    let mut inner = Table::default();
    // The directory that the route is, without its slash.
    inner.set("path", format!("~ ^{}$", values::literally(without)));
    let redirect = [("to".to_owned(), Value::from(text.as_str())), ("status".to_owned(), 301.into())];
    inner.set("redirect", redirect.into_iter().collect::<toml::Table>());
    table.push("route", inner);
}

/// An expression for the paths of a location whose own has no counterpart, and for more. `None`: there is none.
fn covering(location: &Directive) -> Option<String> {
    let text = location.arguments.last().map_or("", String::as_str);
    let wider =
        values::regex_of_pcre(&pcre::without_look_around(text), false).filter(|_| location.first().starts_with('~'))?;
    Some(format!("~{} {wider}", if location.first().starts_with("~*") { "*" } else { "" }))
}

/// Whether a request or another route can lead to a route.
fn is_found(route: &Table) -> bool {
    route.get("path").is_some() || route.get("name").is_some()
}

/// Whether a location restricts its paths: none of them may be missed.
fn restricts(location: &Directive) -> bool {
    location.children().iter().any(|inner| {
        guards::is_guard(inner)
            || inner.name == "return" && inner.first().parse::<u16>().is_ok_and(|status| status >= 400)
    })
}

/// Writes everything of a block but its paths.
fn fill<'d>(context: &mut Context, table: &mut Table, block: &Block<'_, 'd>, mut variables: Variables) {
    if let Some(root) = block.level.last("root") {
        variables.root = settings::directory(context, root, &variables).ok();
    }
    let is_open = guards::write(context, table, &block.level, &block.server.locations);
    settings::write(context, table, &block.level, &variables);
    let inner: Vec<&'d Directive> =
        block.level.own().iter().copied().filter(|inner| inner.name == "location").collect();
    let mut acts = block.acts_around;
    if is_open {
        let file = phase(context, table, block, &mut variables);
        match file {
            Some(tries) => table.set("try", tries),
            None => acts = act(context, table, block, &variables) || acts,
        }
        limit_except(context, table, block);
        redirect_to_slash(table, block);
    } else {
        acts = true;
    }
    leave_to_expressions(table, block);
    for location in inner {
        let route = of_location(context, block.server, &block.level, &variables, (location, acts));
        if is_found(&route) {
            table.push("route", route);
        }
    }
    report_others(context, block);
}

/// Writes the action of a block. `true`: it has one besides files.
fn act(context: &mut Context, table: &mut Table, block: &Block<'_, '_>, variables: &Variables) -> bool {
    let place = place(block, variables);
    match write(context, table, place, MAX_DEPTH) {
        Ok(true) => true,
        Ok(false) => {
            // Files need a directory that is known.
            if let Some(root) = block.level.last("root").filter(|_| block.level.all("alias").is_empty())
                && let Err(why) = settings::directory(context, root, variables)
            {
                close(context, table, block.directive, root, &why);
                return true;
            }
            let has_rewrite = table.get("rewrite").is_some() || table.get("redirect").is_some();
            if block.acts_around && !matches!(block.path, Path::Inherited) && !has_rewrite {
                table.set("files", true);
            }
            if !has_rewrite && !matches!(block.path, Path::Inherited) {
                action::index(context, table, place);
                if table.list("route").next().is_none() {
                    action::index_elsewhere(table, place);
                }
            }
            has_rewrite
        }
        Err(why) => {
            let why = match why {
                NotPassed::Cases(name) => format!("${name} has too many values"),
                NotPassed::Other(why) => why,
            };
            let own = block.level.own();
            let directive = own
                .iter()
                .copied()
                .find(|inner| action::is_action(inner))
                .or_else(|| own.iter().copied().find(|inner| matches!(inner.name.as_str(), "alias" | "root")));
            close(context, table, block.directive, directive.unwrap_or(block.directive), &why);
            true
        }
    }
}

/// The action for each case of a variable that it depends on.
fn write(context: &mut Context, table: &mut Table, place: Place<'_, '_>, depth: usize) -> Result<bool, NotPassed> {
    let mut own = Table::default();
    let name = match action::write(context, &mut own, place) {
        Err(NotPassed::Cases(name)) if depth > 0 => name,
        Ok(acts) => {
            table.append(own);
            return Ok(acts);
        }
        Err(why) => return Err(why),
    };
    let cases = place.variables.cases(&name).map(<[_]>::to_vec).unwrap_or_default();
    let Some(((_, last), others)) = cases.split_last() else { return Err(NotPassed::Cases(name)) };
    for (condition, value) in others {
        let mut inner = Table::default();
        inner.set("match", condition.clone().into_table());
        let variables = place.variables.in_case(&name, value);
        write(context, &mut inner, Place { variables: &variables, ..place }, depth - 1)?;
        table.push("route", inner);
    }
    let variables = place.variables.in_case(&name, last);
    write(context, table, Place { variables: &variables, ..place }, depth - 1)
}

fn place<'a, 'd>(block: &'a Block<'_, 'd>, variables: &'a Variables) -> Place<'a, 'd> {
    let max_body = match &block.path {
        Path::Named(name) => block.server.bodies.get(name).copied(),
        _ => None,
    };
    Place { level: &block.level, variables, path: &block.path, locations: &block.server.locations, max_body }
}

/// Has a route answer 501: what nginx does there has no counterpart.
fn close(context: &mut Context, table: &mut Table, of: &Directive, directive: &Directive, why: &str) {
    context.report_closed(directive, format!("{of} answers 501: {why}"));
    table.set("respond", 501);
}

/// Writes the rewrite phase of a block as routes within it. Returns the `try` of a check whether the file is there.
fn phase(
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
                    Rewrite { condition: None, has_pass: has_pass(block), is_only: block.level.own().len() == 1 };
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

fn has_pass(block: &Block<'_, '_>) -> bool {
    block.level.own().iter().any(|inner| proxy::is_pass(inner))
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
    let template = |context: &mut Context| {
        action::target(context, variables, to).map_err(|why| match why {
            NotPassed::Cases(name) => format!("${name} has several values"),
            NotPassed::Other(why) => why,
        })
    };
    let own = template(context)?;
    Ok(match (own.contains('?'), to.ends_with('?')) {
        (false, true) => format!("{own}?"),
        (true, false) if !own.ends_with("{query}") => format!("{own}&{{query}}"),
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
    let is_everything = matches!(own.as_str(), "^" | ".*" | "^.*$" | "^/.*$" | "^/" | "/" | "^.*");
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
            ("break", false) if !matches!(block.path, Path::Named(_)) => {
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
    proxy::elsewhere(context, place(block, variables), pass).map_err(|why| match why {
        NotPassed::Cases(name) => format!("${name} has several values"),
        NotPassed::Other(why) => why,
    })
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
        let how = Rewrite { condition: Some(condition), has_pass: has_pass(block), is_only: false };
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

/// `limit_except`: the other methods have a route within the location, with the guards of this block and the action of the location.
fn limit_except(context: &mut Context, table: &mut Table, block: &Block<'_, '_>) {
    for limit in block.level.own().iter().copied().filter(|inner| inner.name == "limit_except") {
        if matches!(block.path, Path::Named(_)) {
            context.report_unguarded(limit, "a named route has all methods: restrict them where it is named");
            continue;
        }
        let mut inner = Table::default();
        inner.comment(&limit.place);
        let methods: Vec<Value> = limit.arguments.iter().map(|method| method.as_str().into()).collect();
        inner.set("match", Condition::key("method", methods).not().into_table());
        let level = block.level.within(limit);
        guards::write(context, &mut inner, &level, &block.server.locations);
        table.push("route", inner);
    }
}

/// Reports the directives of a block that nothing has converted.
fn report_others(context: &mut Context, block: &Block<'_, '_>) {
    for inner in block.level.own() {
        match inner.name.as_str() {
            "location" | "if" | "set" | "rewrite" | "return" | "break" | "internal" | "try_files" | "alias"
            | "access_log" => {}
            "limit_except" => {}
            name if super::level::inherits(name) || real_ip::is_real_ip_directive(name) => {}
            _ if guards::passes_to_program(inner) || guards::is_guard(inner) || proxy::is_off(inner) => {}
            _ => context.report(inner),
        }
    }
}

/// The routes of a server. What it does itself before it chooses a location stands before all locations, which then lie in one route.
pub(super) fn of_server<'d>(
    context: &mut Context,
    server: &Server<'d>,
    level: &Level<'d>,
    directive: &'d Directive,
    variables: &mut Variables,
) -> Vec<Table> {
    let mut all = Table::default();
    let own: Vec<&'d Directive> = level.own().to_vec();
    let block = Block {
        server,
        level: level.clone(),
        // Conditions of a server go before every path.
        path: Path::Expression { text: "^/".to_owned(), ignores_case: false },
        directive,
        acts_around: false,
    };
    let tries = phase(context, &mut all, &block, variables);
    let mut before: Vec<Table> = all.into_list("route");
    for route in &mut before {
        if route.get("path").is_none() {
            route.set("path", "~ ^/");
        }
        guard_against_loops(context, directive, route);
    }
    let mut routes = Vec::new();
    if let Some(returns) = own.iter().find(|inner| inner.name == "return") {
        let mut everything = Table::default();
        everything.comment(&returns.place);
        everything.set("path", "/");
        act(context, &mut everything, &Block { path: Path::Inherited, ..block }, variables);
        routes.push(everything);
    } else {
        let has_everything = server.locations.iter().any(|location| location.arguments == ["/"]);
        if !has_everything {
            let mut everything = Table::default();
            everything.comment(&directive.place);
            everything.set("path", "/");
            match tries {
                Some(tries) => everything.set("try", tries),
                None => {
                    let path = Path::Prefix { text: "/".to_owned(), is_final: false };
                    let block = Block { path, level: level.clone(), ..block };
                    act(context, &mut everything, &block, variables);
                    leave_to_expressions(&mut everything, &block);
                }
            }
            if everything.get("try").is_some()
                || everything.get("respond").is_some()
                || everything.list("route").next().is_some()
            {
                routes.push(everything);
            }
        }
        for location in &server.locations {
            routes.push(of_location(context, server, level, variables, (location, false)));
        }
        routes.retain(is_found);
    }
    if before.is_empty() {
        return routes;
    }
    let (named, routes): (Vec<_>, Vec<_>) = routes.into_iter().partition(|route| route.get("name").is_some());
    let mut within = Table::default();
    within.comment("The locations, behind the conditions of the server.");
    within.set("path", "~ ^/");
    routes.into_iter().for_each(|route| within.push("route", route));
    before.push(within);
    before.extend(named);
    before
}

/// A rewrite of a server applies once, and a route's each time: it leaves out its own target.
fn guard_against_loops(context: &mut Context, server: &Directive, route: &mut Table) {
    let Some(to) = route.get("rewrite").and_then(Value::as_str).map(str::to_owned) else { return };
    let Some(own) =
        route.get("path").and_then(Value::as_str).map(|path| path.trim_start_matches(['~', '*', ' ']).to_owned())
    else {
        return;
    };
    let to = to.split('?').next().unwrap_or(&to).to_owned();
    let sample: String = to
        .split('{')
        .enumerate()
        .map(|(at, part)| match at {
            0 => part.to_owned(),
            _ => format!("x{}", part.split_once('}').map_or("", |(_, rest)| rest)),
        })
        .collect();
    if !regex::Regex::new(&own).is_ok_and(|regex| regex.is_match(&sample)) {
        return;
    }
    if to.contains('{') {
        return context.report_with(
            server,
            format!("the rewrite to {to} matches its own target, and would be applied again: write it in a location"),
        );
    }
    let mut except = toml::Table::new();
    except.insert("value".to_owned(), toml::Table::from_iter([("{path}".to_owned(), Value::from(to))]).into());
    let mut conditions = route.get("match").and_then(Value::as_table).cloned().unwrap_or_default();
    let not = match conditions.remove("not") {
        None => except,
        Some(other) => toml::Table::from_iter([("any".to_owned(), Value::Array(vec![other, except.into()]))]),
    };
    conditions.insert("not".to_owned(), not.into());
    route.set("match", conditions);
}
