//! `error_page`. nginx takes a request with an error to the location of the page, whose guards and fields apply, and so does a route here.

use percent_encoding::percent_encode;
use sealion_http::path::OUTSIDE_PCHAR;
use toml::Value;

use super::condition::Condition;
use super::context::Context;
use super::guards;
use super::level::Level;
use super::path::Path;
use super::variables::Variables;
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// Writes the error pages of a block.
pub(super) fn write(context: &mut Context, table: &mut Table, level: &Level<'_>, variables: &Variables) {
    if !level.sets(&["error_page"]) {
        return;
    }
    let mut pages = toml::Table::new();
    // `auth_request_set` sets variables of the request, too.
    let mut own = variables.clone();
    for set in level.all("auth_request_set") {
        if let [name, value] = set.arguments.as_slice()
            && !value.contains("$upstream_")
        {
            own.set(context, name, value, &Condition::Always);
        }
    }
    let variables = &own;
    for directive in level.all("error_page") {
        let Some((page, rest)) = directive.arguments.split_last() else { continue };
        if context.sign_ins.contains(page) || guards::is_sign_in(level, directive) {
            continue;
        }
        if level.is_on("recursive_error_pages") && context.chained.contains(page) {
            context.report_with(directive, "the error pages of its location are not followed: name the last page");
        }
        let (codes, change): (Vec<&String>, Vec<&String>) = rest.iter().partition(|word| !word.starts_with('='));
        let status = change.first().map(|change| &change[1..]);
        let found = match page.as_bytes().first() {
            Some(b'/' | b'$') => {
                // The redirect of the location keeps its status.
                let status = status.map(|code| if redirects(level, code, page) { "" } else { code });
                page_of_path(context, page, status, variables)
            }
            Some(b'@') => named_page(context, page, status),
            _ => page_of_url(context, page, status, variables),
        };
        let Some(target) = found else {
            let remedy =
                "an error page is a path, a named location or a URL, with a status that it can have: write error_pages";
            context.report_with(directive, remedy);
            continue;
        };
        let codes: Vec<_> = codes.into_iter().filter(|code| has_page(code)).collect();
        if context.named.get(page) == Some(&false)
            && let Some(code) = codes.iter().find(|code| refuses(level, code))
        {
            let remedy = format!(
                "clients that a guard refuses get {code} without {page}, which would show them files or an application: have {page} return a response, \
                 or name a file"
            );
            context.report_with(directive, remedy);
        }
        // The first one of a status counts.
        for code in codes {
            pages.entry(code.clone()).or_insert_with(|| target.clone());
        }
    }
    if !pages.is_empty() {
        table.set("error_pages", pages);
    }
}

/// The value of `status`. `None`: no error page has the status.
fn status_of(status: Option<&str>) -> Option<Value> {
    match status {
        None => Some("error".into()),
        Some("") => Some("target".into()),
        Some(code) => match code.parse::<i64>().ok()? {
            code @ (200..=205 | 207..=299 | 400..=599) => Some(code.into()),
            _ => None,
        },
    }
}

fn target(to: String, status: Value) -> Value {
    inline_table([("to", to.into()), ("status", status)]).into()
}

/// A path that chooses a route. The question mark says so: no file has it in its name.
fn page_of_path(context: &mut Context, page: &str, status: Option<&str>, variables: &Variables) -> Option<Value> {
    // The name of the file as it is, which paths have encoded.
    let (path, query) = page.split_once('?').map_or((page, None), |(path, query)| (path, Some(query)));
    let encoded = match path.contains('$') {
        true => path.to_owned(),
        false => percent_encode(path.as_bytes(), OUTSIDE_PCHAR).to_string(),
    };
    let encoded = [Some(encoded.as_str()), query].into_iter().flatten().collect::<Vec<_>>().join("?");
    let mut to = variables.template(context, &encoded).ok().filter(|to| to.starts_with(['/', '{']))?;
    if !to.contains('?') {
        to.push('?');
    }
    match status {
        None => Some(to.into()),
        status => Some(target(to, status_of(status)?)),
    }
}

/// A named location.
fn named_page(context: &Context, page: &str, status: Option<&str>) -> Option<Value> {
    context.named.contains_key(page).then_some(())?;
    Some(target(super::path::name(page), status_of(status)?))
}

/// A URL: clients are redirected there.
fn page_of_url(context: &mut Context, page: &str, status: Option<&str>, variables: &Variables) -> Option<Value> {
    let status = match status {
        None | Some("") => 302,
        Some(code) => code.parse::<i64>().ok()?,
    };
    let is_url = page.starts_with("http://") || page.starts_with("https://");
    if !is_url || !is_redirect(status) {
        return None;
    }
    Some(target(variables.template(context, page).ok()?, status.into()))
}

/// Whether a status has an error page here.
fn has_page(code: &str) -> bool {
    code.parse::<u16>().is_ok_and(|code| (400..=599).contains(&code) && !WITHOUT_PAGE.contains(&code))
}

/// Statuses without an error page here: no site decides on them, or only nginx has them.
const WITHOUT_PAGE: [u16; 11] = [408, 414, 421, 431, 494, 495, 496, 497, 498, 499, 505];

/// Whether a guard of a block, or of one within it that has no pages of its own, refuses clients with a status.
fn refuses(level: &Level<'_>, status: &str) -> bool {
    let names: &[&str] = match status {
        "401" => &["auth_basic", "auth_request"],
        "403" => &["allow", "deny", "auth_request"],
        "429" | "503" => &["limit_req", "limit_conn"],
        _ => return false,
    };
    // A closed path stays so.
    let returns = |inner: &&Directive| inner.name == "return" && inner.first() == status && inner.arguments.len() == 1;
    let has_return =
        |inner: &&Directive| returns(inner) || inner.name == "if" && inner.children().iter().any(|own| returns(&own));
    if matches!(status, "401" | "403") && level.own().iter().any(has_return) {
        return true;
    }
    let is_guard = |guard: &&Directive| guard.first() != "off" && !(guard.name == "allow" && guard.first() == "all");
    if names.iter().any(|name| level.all(name).iter().any(is_guard)) {
        return true;
    }
    let mut within = level.own().iter().filter(|inner| inner.name == "location" && !sets_pages(inner));
    within.any(|location| refuses(&level.within(location), status))
}

/// Whether the location of an error page has error pages of its own.
pub(super) fn has_pages(server: &Directive, page: &str) -> bool {
    let is_it = |location: &&Directive| match Path::of(location) {
        Ok(Path::Named(name)) => page.starts_with('@') && name == super::path::name(page),
        Ok(path) => path.has(page),
        Err(_) => false,
    };
    let locations = server.children().iter().filter(|inner| inner.name == "location");
    locations.filter(is_it).any(sets_pages)
}

/// Whether the status of an error page is the status of a redirect, and its location redirects.
fn redirects(level: &Level<'_>, status: &str, page: &str) -> bool {
    let is_redirect = |status: &str| status.parse().is_ok_and(is_redirect);
    let leads = |inner: &Directive| inner.name == "location" && Path::of(inner).is_ok_and(|path| path.has(page));
    let returns = |inner: &Directive| inner.name == "return" && is_redirect(inner.first());
    is_redirect(status)
        && level.of_locations().own().iter().any(|inner| leads(inner) && inner.children().iter().any(returns))
}

/// Whether a status leads to another address.
fn is_redirect(status: i64) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

pub(super) fn sets_pages(location: &Directive) -> bool {
    location.children().iter().any(|inner| inner.name == "error_page")
}
