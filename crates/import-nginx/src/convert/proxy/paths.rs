//! The paths that a rule covers: those for which nginx takes its location, and no path of another one.

use super::remainder::{Without, remainder};
use super::{Draft, Kind, is_left_to_front, only_purges};
use crate::convert::location::Scope;
use crate::convert::site::Settings;
use crate::convert::{guards, pcre, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// A location beside those that are forwarded.
#[derive(Debug)]
pub(super) struct Other {
    /// Its number among the locations of the server.
    order: usize,
    kind: Kind,
    scope: Scope,
    shown: String,
    ignores_case: bool,
}

/// The locations that answer with files, which no rule may forward.
pub(super) fn files(site: &Table, settings: &Settings<'_>, drafts: &[Draft]) -> Vec<Other> {
    let is_forwarded = |location: &Directive| drafts.iter().any(|draft| draft.location == *location);
    let has_files = |location: &&Directive, scope: &Scope| {
        let is_answered = guards::returns(location);
        let is_other = is_answered
            || is_left_to_front(settings, location)
            || is_forwarded(location)
            || only_purges(location).is_some();
        !is_other && !guards::is_closed_scope(site, scope)
    };
    let others = settings.all("location").into_iter().enumerate().filter_map(|(order, location)| {
        let scope = Scope::of(location)?;
        has_files(&location, &scope).then(|| Other {
            order,
            kind: Kind::of(location),
            scope,
            shown: format!("{location} at {}", location.place),
            ignores_case: location.first().starts_with("~*"),
        })
    });
    others.collect()
}

/// The key and value of a rule that covers the paths for which nginx takes this location, but for those of rules before it.
pub(super) fn paths(draft: &Draft, drafts: &[Draft], others: &[Other]) -> Result<(&'static str, String), String> {
    let is_regex = draft.kind == Kind::Regex;
    match (&draft.scope, is_regex) {
        (Scope::Exact(path), false) => Ok(("regex", format!("^{}$", values::literally(path)))),
        (Scope::Everything, false) => of_prefix("/", draft, drafts, others),
        (Scope::Prefix(prefix), false) => of_prefix(prefix, draft, drafts, others),
        (scope, _) => of_regex(scope, draft, others),
    }
}

fn of_prefix(
    prefix: &str,
    draft: &Draft,
    drafts: &[Draft],
    others: &[Other],
) -> Result<(&'static str, String), String> {
    let mut without = Without::default();
    for other in others {
        match (other.kind, &other.scope) {
            (Kind::Exact, Scope::Exact(path)) if path.starts_with(prefix) => without.exact.push(path.clone()),
            (Kind::Preferred | Kind::Prefix, Scope::Prefix(path)) if path.starts_with(prefix) => {
                without.prefixes.push(path.clone());
            }
            (Kind::Regex, Scope::Prefix(path)) if draft.kind == Kind::Prefix && path.starts_with(prefix) => {
                without.prefixes.push(path.clone());
            }
            (Kind::Regex, _) if draft.kind == Kind::Prefix && may_meet(&start(&other.scope), prefix) => {
                let ends = ends(&other.scope).ok_or_else(|| beside(other))?;
                without.ends.extend(ends.into_iter().map(|end| (end, other.ignores_case)));
            }
            _ => {}
        }
    }
    // Their rules come later, behind those of expressions.
    if draft.kind == Kind::Preferred {
        let longer = drafts.iter().filter(|other| other.kind == Kind::Prefix);
        let longer = longer.filter_map(|other| match &other.scope {
            Scope::Prefix(path) if path.starts_with(prefix) => Some(path.clone()),
            _ => None,
        });
        without.prefixes.extend(longer);
    }
    let is_plain = !prefix.contains(['%', '?', '#', '*']) && (prefix == "/" || !prefix.contains("//"));
    let without_slash = prefix.trim_end_matches('/');
    // A path covers itself without its slash, too.
    let covers_no_more = prefix == "/"
        || !others
            .iter()
            .map(|other| &other.scope)
            .chain(drafts.iter().map(|other| &other.scope))
            .any(|scope| matches!(scope, Scope::Exact(path) | Scope::Prefix(path) if path == without_slash));
    let is_whole = without.exact.is_empty() && without.prefixes.is_empty() && without.ends.is_empty();
    if is_whole && is_plain && prefix.ends_with('/') && covers_no_more {
        return Ok(("path", prefix.to_owned()));
    }
    if draft.strips {
        return Err(
            "its prefix is left out, and other locations are beneath it or beside it: write rules for each".to_owned()
        );
    }
    match remainder(prefix, &without) {
        Some(regex) => Ok(("regex", regex)),
        None => {
            Err("files of other locations beneath it cannot be left out of its rule: write a rule for each part"
                .to_owned())
        }
    }
}

fn of_regex(scope: &Scope, draft: &Draft, others: &[Other]) -> Result<(&'static str, String), String> {
    let unsupported = || "its expression is not supported: write one without look-around".to_owned();
    let regex = scope.regex().ok_or_else(unsupported)?;
    let has_dot = pcre::items(&regex).is_some_and(|items| items.iter().any(|item| item.text == "."));
    let regex = values::with_end_of_pcre(&regex).ok_or_else(unsupported)?;
    // In PCRE a dot is no newline.
    let regex = if has_dot { format!("(?-s){regex}") } else { regex };
    let built = regex::bytes::RegexBuilder::new(&regex).unicode(false).dot_matches_new_line(true).build();
    let built = built.map_err(|_| unsupported())?;
    for other in others {
        let goes_before = match (other.kind, &other.scope) {
            (Kind::Exact, Scope::Exact(path)) => built.is_match(path.as_bytes()),
            (Kind::Preferred, other) => may_meet(&start(other), &start(scope)),
            (Kind::Regex, of_other) => other.order < draft.order && may_meet(&start(of_other), &start(scope)),
            _ => false,
        };
        if goes_before {
            return Err(beside(other));
        }
    }
    Ok(("regex", regex))
}

/// The beginning that all paths of a location have.
pub(super) fn start(scope: &Scope) -> String {
    match scope {
        Scope::Everything => "/".to_owned(),
        Scope::Exact(path) | Scope::Prefix(path) => path.clone(),
        Scope::Regex { regex: Some(regex), .. } => literal_start(regex).unwrap_or_default(),
        Scope::Regex { regex: None, .. } => String::new(),
    }
}

/// The text that paths begin with, which an expression matches.
fn literal_start(regex: &str) -> Option<String> {
    let items = pcre::items(regex.strip_prefix('^')?)?;
    if items.iter().any(|item| matches!(item.kind, pcre::Kind::Or | pcre::Kind::Flags)) {
        return None;
    }
    let mut start = String::new();
    for (at, item) in items.iter().enumerate() {
        let is_repeated = items.get(at + 1).is_some_and(|next| next.kind == pcre::Kind::Quantifier);
        let literal = match item.text.as_bytes() {
            [octet] if item.kind == pcre::Kind::Atom && !b".^".contains(octet) => *octet,
            [b'\\', octet] if item.kind == pcre::Kind::Atom && octet.is_ascii_punctuation() => *octet,
            _ => break,
        };
        if is_repeated {
            break;
        }
        start.push(char::from(literal));
    }
    Some(start)
}

/// Whether a path may begin with both.
fn may_meet(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The ends of names, if an expression is about them alone.
fn ends(scope: &Scope) -> Option<Vec<String>> {
    let Scope::Regex { pattern: Some(pattern), .. } = scope else { return None };
    let extensions = pattern.strip_prefix("*.")?;
    let extensions = extensions.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(extensions);
    Some(extensions.split(',').map(|extension| format!(".{extension}")).collect())
}

fn beside(other: &Other) -> String {
    format!(
        "{} takes a part of its paths, which cannot be left out of its rule: write a rule for each part",
        other.shown
    )
}
