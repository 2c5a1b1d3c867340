//! A location as a route, with those within it.

use std::cell::OnceCell;
use std::collections::HashMap;

use toml::Value;

use super::action;
use super::condition::Condition;
use super::context::Context;
use super::level::Level;
use super::path::{self, Path};
use super::proxy::{self, MaxBody, NotPassed, Place};
use super::variables::Variables;
use super::{error_pages, guards, limits, pcre, real_ip, rewrite_phase, settings, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// Cases of variables that are followed one within another.
const MAX_DEPTH: usize = 3;

/// The part that all routes of a server share.
pub(super) struct Server<'d> {
    /// All its locations, for references from one to another.
    pub(super) locations: Vec<&'d Directive>,
    /// The largest contents that locations permit which lead to a named one.
    pub(super) bodies: HashMap<String, MaxBody>,
    /// The patterns of the locations that are expressions, once they are asked for.
    expressions: OnceCell<Vec<String>>,
}

/// A block that becomes a route.
pub(super) struct Block<'a, 'd> {
    pub(super) server: &'a Server<'d>,
    pub(super) level: Level<'d>,
    pub(super) path: Path,
    /// The directive, for reports.
    pub(super) directive: &'d Directive,
    /// Whether a route around it does something else than to send files.
    pub(super) acts_around: bool,
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
        Server { locations, bodies, expressions: OnceCell::new() }
    }

    /// The location of all paths that no other has.
    pub(super) fn everything(&self) -> Option<&'d Directive> {
        let has_all = |location: &&Directive| Path::of(location).is_ok_and(|path| path.prefix() == Some("/"));
        self.locations.iter().copied().find(has_all)
    }

    fn expressions(&self) -> &[String] {
        self.expressions.get_or_init(|| self.locations.iter().filter_map(|location| pattern_of(location)).collect())
    }

    /// The patterns of the expressions that go before a location, or before the paths that the server has itself.
    fn expressions_before(&self, directive: &Directive) -> Vec<String> {
        let found = self.locations.iter().find_map(|location| expressions_within(location, directive));
        match found {
            None => self.expressions().to_vec(),
            Some((found, true)) => [self.expressions(), &found].concat(),
            Some((found, false)) => found,
        }
    }
}

/// The patterns of the expressions within a location that go before one in it, and whether those beside the location do: `^~` goes before the expressions of
/// its own level alone. `None`: it is not in it.
fn expressions_within(location: &Directive, wanted: &Directive) -> Option<(Vec<String>, bool)> {
    let is_passed_over = matches!(Path::of(location), Ok(Path::Prefix { is_final: false, .. }));
    if std::ptr::eq(location, wanted) {
        return Some((Vec::new(), is_passed_over));
    }
    let within = || location.children().iter().filter(|inner| inner.name == "location");
    let (mut found, goes_before) = within().find_map(|inner| expressions_within(inner, wanted))?;
    if goes_before {
        found.extend(within().filter_map(pattern_of));
    }
    Some((found, is_passed_over))
}

/// The pattern of a location that is an expression.
fn pattern_of(location: &Directive) -> Option<String> {
    Path::of(location).ok().filter(Path::is_expression)?.pattern()
}

impl Block<'_, '_> {
    /// Whether it passes requests to a server.
    pub(super) fn passes(&self) -> bool {
        self.level.own().iter().any(|inner| proxy::is_pass(inner))
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
    if context.asked.are_alone_with(location) {
        // `forward_auth` asks its server itself.
        table.set("respond", 404);
        table.remove("internal");
        return table;
    }
    let block = Block { server, level: around.within(location), path, directive: location, acts_around };
    fill(context, &mut table, &block, variables);
    table
}

/// The name of the route of a named location for requests from a location that permits smaller contents than others that lead there.
///
/// # Errors
/// No location has the name.
pub(super) fn named(context: &mut Context, place: Place<'_, '_>, name: &str) -> Result<String, NotPassed> {
    let own = path::name(name);
    let Some(location) = place.locations.iter().copied().find(|location| location.arguments == [name]) else {
        return Err(format!("no location has the name {name}").into());
    };
    let server = Server::of(place.locations);
    let around = place.level.of_server();
    let size = proxy::own_max_body(context, place.level);
    let of_location = proxy::own_max_body(context, &around.within(location));
    let most = match server.bodies.get(&own) {
        Some(MaxBody::AtLeast(other)) if of_location != 0 && *other != 0 => of_location.max(*other),
        Some(_) => 0,
        None => of_location,
    };
    if size == 0 || most != 0 && most <= size {
        return Ok(own);
    }
    if let Some((_, _, sized)) = context.sized.iter().find(|(other, limit, _)| *other == own && *limit == size) {
        return Ok(sized.clone());
    }
    let sized = format!("@import-{}", context.next_number());
    context.sized.push((own.clone(), size, sized.clone()));
    let bodies = [(own, MaxBody::Exactly(size))].into_iter().collect();
    let server = Server { bodies, ..server };
    let mut table = self::of_location(context, &server, &around, place.variables, (location, false));
    table.set("name", sized.as_str());
    context.further.push(table);
    Ok(sized)
}

/// Has the routes that a location becomes beside its own leave the paths of other locations to these. An expression within a prefix would go before them.
fn leave_to_locations(table: &mut Table, block: &Block<'_, '_>) {
    if table.list("route").next().is_none() {
        return;
    }
    let is_location = block.directive.name == "location";
    let within = block.directive.children().iter().filter(|inner| is_location && inner.name == "location");
    let within: Vec<Path> = within.filter_map(|location| Path::of(location).ok()).collect();
    let is_inherited_first = block.path.is_expression()
        || within.iter().any(|path| path.prefix().is_some() && path.prefix() == block.path.prefix());
    let mut all: Vec<String> = within.iter().filter_map(Path::pattern).collect();
    if block.path.prefix().is_some() {
        all.extend(block.server.expressions_before(block.directive));
    }
    all.sort();
    all.dedup();
    for route in table.list_mut("route") {
        let goes_before = match route.get("path").and_then(Value::as_str) {
            Some(path) => path.starts_with('~'),
            None => is_inherited_first,
        };
        if !goes_before || all.is_empty() {
            continue;
        }
        let others: Vec<Value> = all.iter().map(|other| other.as_str().into()).collect();
        let except = Condition::of_value("{path.decoded}", others).not();
        let condition = match route.get("match").and_then(Value::as_table) {
            Some(own) => Condition::Is(own.clone()).and(except),
            None => except,
        };
        route.set("match", condition.into_table());
    }
}

/// nginx redirects the path of a folder that a location forwards to the same with a slash, before it asks a guard.
fn redirect_to_slash(table: &mut Table, block: &Block<'_, '_>) {
    let (Some(text), Some(key)) = (block.path.prefix(), block.path.key_with_folder()) else { return };
    let Some(folder) = text.strip_suffix('/').filter(|folder| !folder.is_empty() && block.passes()) else { return };
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte));
    let to = if is_plain { text } else { "{path}/" };
    table.set("path", key);
    let mut inner = Table::default();
    inner.set("path", format!("= {folder}"));
    guards::take_away(&mut inner, &block.level.within(block.directive));
    if table.get("deny").is_some() {
        inner.set("deny", false);
    }
    inner.set("redirect", inline_table([("to", to.into()), ("status", 301.into())]));
    table.push("route", inner);
}

/// An expression for the paths of a location whose own has no counterpart, and for more. `None`: no expression covers them.
fn covering(location: &Directive) -> Option<String> {
    let text = location.arguments.last().map_or("", String::as_str);
    if path::ends_in_star(text) {
        return Some(format!("~ ^{}", values::literally(text)));
    }
    let wider = values::regex_of_pcre(&pcre::wider(text), false).filter(|_| location.first().starts_with('~'))?;
    Some(format!("~{} {wider}", if location.first().starts_with("~*") { "*" } else { "" }))
}

/// Whether a request or another route can lead to a route.
fn is_found(route: &Table) -> bool {
    route.get("path").is_some() || route.get("name").is_some()
}

/// Whether a location restricts its paths, or a block in it does: none of them may be missed.
fn restricts(block: &Directive) -> bool {
    block.children().iter().any(|inner| {
        guards::is_guard(inner)
            || inner.name == "return" && inner.first().parse::<u16>().is_ok_and(|status| status >= 400)
            || matches!(inner.name.as_str(), "if" | "limit_except") && restricts(inner)
            || inner.name == "try_files" && inner.arguments.last().is_some_and(|last| last == "=401" || last == "=403")
    })
}

/// Writes everything of a block but its paths.
fn fill<'d>(context: &mut Context, table: &mut Table, block: &Block<'_, 'd>, mut variables: Variables) {
    let mut settled = rewrite_phase::settled(context, block.level.own().iter().copied(), &variables);
    if let Some(root) = block.level.last("root") {
        variables.root = settings::directory(context, root, &settled).ok();
        settled.root = variables.root.clone();
    }
    let is_open = match guards::returns_first(&block.level) {
        true => guards::take_away(table, &block.level),
        false => guards::write(context, table, &block.level, &block.server.locations),
    };
    settings::write(context, table, &block.level, &settled);
    let inner: Vec<&'d Directive> =
        block.level.own().iter().copied().filter(|inner| inner.name == "location").collect();
    limits::report_led(context, block);
    let (mut acts, mut sends_files) = (block.acts_around, false);
    let mut within = Within::default();
    if is_open {
        rewrite_phase::write(context, table, block, &mut variables);
        within.asked = limits_except(context, block, &variables);
        within.asked.extend(table.take_list("route"));
        // A named location whose rewrite has every path leads to its server by that.
        let is_led = block.passes() && table.get("rewrite").is_some();
        sends_files = !is_led && !act(context, table, block, &variables);
        within.sent = table.take_list("route");
        acts |= !sends_files;
    } else {
        acts = true;
        let has_pages = |inner: &&&Directive| inner.name == "if" && error_pages::sets_pages(inner);
        if let Some(pages) = block.level.own().iter().find(has_pages) {
            let remedy =
                "its error pages do not replace those around it where all clients are refused: write them there";
            context.report_unguarded(pages, remedy);
        }
    }
    let is_within = inner.iter().any(|location| {
        Path::of(location).is_ok_and(|path| path.prefix() == block.path.prefix() && path.prefix().is_some())
    });
    let mut last = Table::default();
    if sends_files && !is_within {
        action::last_index(context, &mut last, place(block, &variables));
    }
    within.write(table, block, last.list("route").next().is_some());
    redirect_to_slash(table, block);
    leave_to_locations(table, block);
    for location in inner {
        let route = of_location(context, block.server, &block.level, &variables, (location, acts));
        if is_found(&route) {
            table.push("route", route);
        }
    }
    // Behind the expressions within.
    leave_to_locations(&mut last, block);
    last.into_list("route").into_iter().for_each(|route| table.push("route", route));
    report_others(context, block);
}

/// The routes that a block becomes beside its own. Its locations have others.
#[derive(Default)]
struct Within {
    /// Of `limit_except`, whose methods know no conditions and rewrites of the location; then of these, in the order of the file.
    asked: Vec<Table>,
    /// Of its action.
    sent: Vec<Table>,
}

/// The keys of a route that acts by itself.
const ACTIONS: [&str; 10] =
    ["alias", "deny", "fastcgi", "files", "proxy", "redirect", "respond", "rewrite", "root", "try"];

impl Within {
    /// Writes them, in the order of nginx' phases. `is_followed`: whether expressions follow.
    ///
    /// A route without a path has the paths of the block, and any expression or prefix beside it would go before it. So it becomes an expression
    /// where there is one.
    fn write(mut self, table: &mut Table, block: &Block<'_, '_>, is_followed: bool) {
        let is_beside = is_followed || self.asked.iter().chain(&self.sent).any(|route| route.get("path").is_some());
        for route in &mut self.asked {
            // It leads to what the block sends.
            if !ACTIONS.iter().any(|key| route.get(key).is_some() || route.table_if(key).is_some()) {
                self.sent.iter().for_each(|sent| route.push("route", sent.clone()));
            }
            if is_beside && !block.path.is_expression() && route.get("path").is_none() {
                route.set("path", "~ ^/");
            }
        }
        self.asked.into_iter().chain(self.sent).for_each(|route| table.push("route", route));
    }
}

/// Writes the action of a block. `true`: it has one besides files.
pub(super) fn act(context: &mut Context, table: &mut Table, block: &Block<'_, '_>, variables: &Variables) -> bool {
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
    let own = place.variables.cases(&name).map(<[_]>::to_vec);
    let cases = own.unwrap_or_else(|| if name == "scheme" { Variables::schemes() } else { Vec::new() });
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

pub(super) fn place<'a, 'd>(block: &'a Block<'_, 'd>, variables: &'a Variables) -> Place<'a, 'd> {
    let max_body = match &block.path {
        Path::Named(name) => block.server.bodies.get(name).copied(),
        _ => None,
    };
    Place { level: &block.level, variables, path: &block.path, locations: &block.server.locations, max_body }
}

/// Has a route answer 501: nginx does something there that has no counterpart.
fn close(context: &mut Context, table: &mut Table, of: &Directive, directive: &Directive, why: &str) {
    context.report_closed(directive, format!("{of} answers 501: {why}"));
    table.set("respond", 501);
}

/// `limit_except`: the other methods have a route within the location, with the guards of this block, and its server or the action of the location.
fn limits_except(context: &mut Context, block: &Block<'_, '_>, variables: &Variables) -> Vec<Table> {
    let mut limits = Vec::new();
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
        if guards::write(context, &mut inner, &level, &block.server.locations) && level.sets(&["proxy_pass"]) {
            let own = Block { level, path: Path::Inherited, directive: limit, ..*block };
            act(context, &mut inner, &own, variables);
        }
        limits.push(inner);
    }
    limits
}

/// Whether the server of a location is asked without the content of requests, whatever the location says.
fn is_asked_without_content(context: &Context, block: &Block<'_, '_>) -> bool {
    let locations = &block.server.locations;
    context.asked.has(block.directive) || proxy::is_mirror(block.directive, locations)
}

/// Reports the directives of a block that nothing has converted.
fn report_others(context: &mut Context, block: &Block<'_, '_>) {
    if let Some(mirror) = block.level.last("mirror").filter(|mirror| mirror.first() != "off")
        && !proxy::passes(block.directive)
        && !block.passes()
        && !context.is_reported(mirror)
    {
        context.report_with(mirror, "requests that are forwarded over HTTP are copied, and no others");
    }
    for inner in block.level.own() {
        match inner.name.as_str() {
            "location" | "if" | "set" | "rewrite" | "return" | "break" | "internal" | "try_files" | "alias"
            | "access_log" | "empty_gif" => {}
            "limit_except" => {}
            name if super::level::inherits(name) || real_ip::is_real_ip_directive(name) => {}
            _ if guards::passes_to_program(inner) || guards::is_guard(inner) || proxy::is_off(inner) => {}
            // The server is asked without content.
            "proxy_pass_request_body" if is_asked_without_content(context, block) => {}
            "mirror" | "mirror_request_body" => {}
            _ => context.report(inner),
        }
    }
}

/// The routes of a server. Its own rewrite phase stands before all locations, which then lie in one route.
pub(super) fn of_server<'d>(
    context: &mut Context,
    server: &Server<'d>,
    level: &Level<'d>,
    directive: &'d Directive,
    variables: &mut Variables,
) -> Vec<Table> {
    let block = Block {
        server,
        level: level.clone(),
        // Conditions of a server go before every path.
        path: Path::Expression { text: "^/".to_owned(), ignores_case: false },
        directive,
        acts_around: false,
    };
    let mut before = before_locations(context, &block, variables);
    rewrite_phase::forget_changed(context, directive, variables);
    let mut routes = Vec::new();
    let returns = level.own().iter().copied().find(|inner| inner.name == "return");
    let leads_past = guards::leads_past_return(level.own());
    if let Some(returns) = returns {
        let everything = of_return(context, &block, (returns, leads_past), variables);
        match leads_past {
            true => before.push(everything),
            false => routes.push(everything),
        }
    }
    if returns.is_none() || leads_past {
        if server.everything().is_none() {
            routes.extend(of_everything(context, &block, variables));
        }
        for location in &server.locations {
            if !context.sign_ins.iter().any(|name| name == location.first()) {
                routes.push(of_location(context, server, level, variables, (location, false)));
            }
        }
        routes.retain(is_found);
    }
    behind(before, routes)
}

/// The routes of a server's rewrite phase.
fn before_locations(context: &mut Context, block: &Block<'_, '_>, variables: &mut Variables) -> Vec<Table> {
    let mut all = Table::default();
    rewrite_phase::write(context, &mut all, block, variables);
    let mut before: Vec<Table> = all.into_list("route");
    for route in &mut before {
        if route.get("path").is_none() {
            route.set("path", "~ ^/");
        }
        // As in nginx, rewritten paths do not come here again. A part is closed for them too: a guard of it was lost.
        let is_closed = route.get("deny").is_some() && route.get("match").is_none();
        if route.get("once").is_none() && !is_closed {
            route.set("unless_rewritten", true);
        }
    }
    before
}

/// The route of a server's `return`. `leads_past`: whether a rewrite before it leads to the locations.
fn of_return<'d>(
    context: &mut Context,
    block: &Block<'_, 'd>,
    (returns, leads_past): (&'d Directive, bool),
    variables: &Variables,
) -> Table {
    let mut everything = Table::default();
    everything.comment(&returns.place);
    // The locations behind it have another spelling of all paths.
    everything.set("path", if leads_past { "~ /" } else { "/" });
    let own = Block { path: Path::Inherited, level: block.level.clone(), ..*block };
    act(context, &mut everything, &own, variables);
    if leads_past {
        // A rewritten request does not come to it, nor a returned one to the guards.
        everything.set("unless_rewritten", true);
        guards::take_away(&mut everything, &block.level.within(returns));
    }
    everything
}

/// The route of all paths that no location has. `None`: it only sends files.
fn of_everything(context: &mut Context, block: &Block<'_, '_>, variables: &Variables) -> Option<Table> {
    let mut everything = Table::default();
    everything.comment(&block.directive.place);
    everything.set("path", "/");
    let path = Path::Prefix { text: "/".to_owned(), is_final: false };
    let block = Block { path, level: block.level.without("return"), ..*block };
    if !act(context, &mut everything, &block, variables) {
        action::last_index(context, &mut everything, place(&block, variables));
    }
    leave_to_locations(&mut everything, &block);
    let acts = everything.get("try").is_some() || everything.get("respond").is_some();
    (acts || everything.list("route").next().is_some()).then_some(everything)
}

/// The routes of a server, with the routes of its locations behind the routes of its rewrite phase.
fn behind(mut before: Vec<Table>, routes: Vec<Table>) -> Vec<Table> {
    if before.is_empty() {
        return routes;
    }
    let (named, routes): (Vec<_>, Vec<_>) = routes.into_iter().partition(|route| route.get("path").is_none());
    if let Some(last) = before.iter().position(answers_everything) {
        // No request gets behind it.
        before.truncate(last + 1);
        before.extend(named);
        return before;
    }
    let mut within = Table::default();
    within.comment("The locations, behind the conditions of the server.");
    within.set("path", "~ ^/");
    routes.into_iter().for_each(|route| within.push("route", route));
    before.push(within);
    before.extend(named);
    before
}

/// Whether a route of a server's conditions answers every request.
fn answers_everything(route: &Table) -> bool {
    let is_everything = route.get("path").and_then(Value::as_str) == Some("~ ^/") && route.get("match").is_none();
    is_everything
        && route.get("once").is_none()
        && ["redirect", "respond", "deny"].iter().any(|action| route.get(action).is_some())
}
