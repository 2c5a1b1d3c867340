//! The guards of an error page. nginx takes a request with an error to the location of the page, whose guards it asks; here a page is sent without.

use super::context::Context;
use super::guards;
use super::level::Level;
use super::path::Path;
use crate::syntax::Directive;

/// The guards that apply in a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Guards {
    /// Each guard's directives.
    all: Vec<String>,
    /// Whether one of them suffices.
    is_any: bool,
}

impl Guards {
    fn of(level: &Level<'_>) -> Self {
        let groups: [&[&str]; 3] = [&["allow", "deny"], &["auth_basic"], &["auth_request"]];
        let text =
            |directives: Vec<&Directive>| directives.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let mut all = Vec::new();
        for names in groups {
            let own = level.any_of(names);
            let guards =
                own.iter().any(|guard| !(guard.name == "allow" && guard.first() == "all") && guard.first() != "off");
            if guards {
                let users = if names == ["auth_basic"] { level.all("auth_basic_user_file") } else { Vec::new() };
                all.push(text([own, users].concat()));
            }
        }
        Guards { all, is_any: level.last("satisfy").is_some_and(|satisfy| satisfy.first() == "any") }
    }

    /// Whether a client that passed `other` passes these.
    fn are_passed_by(&self, other: &Guards) -> bool {
        let asks_each = !other.is_any || other.all.len() < 2;
        self.all.is_empty() || self == other || asks_each && self.all.iter().all(|own| other.all.contains(own))
    }
}

/// The paths of a server's locations, those within others too, and their guards.
pub(super) fn of_locations<'d>(level: &Level<'d>, found: &mut Vec<(Path, Guards)>) {
    for location in level.own().iter().copied().filter(|inner| inner.name == "location") {
        let within = level.within(location);
        if let Ok(path) = Path::of(location) {
            found.push((path, Guards::of(&within)));
        }
        of_locations(&within, found);
    }
}

/// The guards of every location that may have a page.
fn of_page(context: &Context, level: &Level<'_>, page: &str) -> Vec<Guards> {
    let of = |is_wanted: &dyn Fn(&Path) -> bool| {
        let found = context.guards.iter().filter(|(path, _)| is_wanted(path));
        found.map(|(_, guards)| guards.clone()).collect::<Vec<_>>()
    };
    let exact = of(&|path| matches!(path, Path::Exact(own) if own == page));
    if !exact.is_empty() {
        return exact;
    }
    let length = |path: &Path| path.prefix().filter(|prefix| page.starts_with(prefix)).map(str::len);
    let longest = context.guards.iter().filter_map(|(path, _)| length(path)).max();
    let mut all = of(&|path| path.is_expression() && path.has(page) || longest.is_some() && length(path) == longest);
    if longest.is_none() {
        all.push(Guards::of(&level.of_locations()));
    }
    all
}

/// Whether nginx may withhold a page from a client that gets a status in a block, or in one within it that has no pages of its own.
pub(super) fn is_withheld(context: &Context, level: &Level<'_>, (page, status): (&str, &str)) -> bool {
    let guards = of_page(context, level, page);
    let is_open = guards.iter().all(|guards| guards.all.is_empty());
    !is_open && guards.iter().any(|guards| may_lack(level, status, guards))
}

/// Whether a guard of a block, or of one within it that has no pages of its own, refuses clients with a status.
pub(super) fn refuses(level: &Level<'_>, status: &str) -> bool {
    let guards = Guards::of(level).all;
    let has = |names: &[&str]| guards.iter().any(|guard| names.iter().any(|name| guard.starts_with(name)));
    let is_refused = match status {
        "401" => has(&["auth_basic", "auth_request"]),
        "403" => has(&["allow", "deny", "auth_request"]),
        "429" | "503" => has_limits(level),
        _ => false,
    };
    is_refused || without_pages(level).any(|location| refuses(&level.within(location), status))
}

fn has_limits(level: &Level<'_>) -> bool {
    !level.any_of(&["limit_req", "limit_conn"]).is_empty()
}

/// The locations in a block that have its error pages.
fn without_pages<'d>(level: &Level<'d>) -> impl Iterator<Item = &'d Directive> {
    let has_pages = |location: &Directive| location.children().iter().any(|inner| inner.name == "error_page");
    let own: Vec<_> = level.own().to_vec();
    own.into_iter().filter(move |inner| inner.name == "location" && !has_pages(inner))
}

/// Whether a client may get a status in a block before it passed some guards.
fn may_lack(level: &Level<'_>, status: &str, guards: &Guards) -> bool {
    let comes_before = match status {
        "400" | "401" | "403" | "413" | "429" => true,
        "503" => has_limits(level),
        _ => false,
    };
    let is_it = |inner: &Directive| inner.name == "return" && inner.first() == status;
    let returns =
        level.own().iter().any(|inner| is_it(inner) || inner.name == "if" && inner.children().iter().any(is_it));
    let passed = if returns { Guards::default() } else { Guards::of(level) };
    // A block that returns another status has no such error.
    let fails = returns || !guards::returns_first(level);
    if fails && (comes_before || !guards.are_passed_by(&passed)) {
        return true;
    }
    without_pages(level).any(|location| may_lack(&level.within(location), status, guards))
}

/// Whether the location of an error page has error pages of its own.
pub(super) fn has_pages(server: &Directive, page: &str) -> bool {
    let is_it = |location: &&Directive| match Path::of(location) {
        Ok(Path::Named(name)) => page.starts_with('@') && name == super::path::name(page),
        Ok(path) => path.has(page),
        Err(_) => false,
    };
    let locations = server.children().iter().filter(|inner| inner.name == "location");
    locations.filter(is_it).any(|location| location.children().iter().any(|inner| inner.name == "error_page"))
}
