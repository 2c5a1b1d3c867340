//! What stands behind a rewrite without a flag. nginx goes on with the rewrite phase there, under the new path.

use std::collections::HashSet;

use super::condition::Condition;
use super::context::Context;
use super::rewrite_phase::{is_everything, may_have, of_if, read, set};
use super::route::Block;
use super::variables::Variables;
use super::{guards, tables, variables};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// What nginx does behind a rewrite with the requests that it has.
#[derive(Default)]
pub(super) struct Then<'d> {
    /// The conditions that get requests first. None of them asks for the path.
    pub(super) routes: Vec<Table>,
    /// The `return` that gets the others.
    pub(super) returned: Option<&'d Directive>,
    /// `break`: the others stay in the location.
    stays: bool,
    /// Something asks for the new path.
    pub(super) is_unknown: bool,
}

impl Then<'_> {
    /// With the flag that has the same effect.
    pub(super) fn into_flag(self) -> (&'static str, Self) {
        (if self.stays { "break" } else { "" }, self)
    }

    /// A route without a path would stand behind the others.
    fn with_paths(mut self) -> Self {
        if self.routes.iter().any(|route| route.get("path").is_some()) {
            let others = self.routes.iter_mut().filter(|route| route.get("path").is_none());
            others.for_each(|route| route.set("path", "~ ^/"));
        }
        self
    }
}

/// Whether a directive of the rewrite phase decides where requests get.
pub(super) fn decides(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "return" | "rewrite" | "break" => true,
        "if" => directive.children().iter().any(|inner| decides(inner) || guards::passes_to_program(inner)),
        "set" => true,
        _ => false,
    }
}

/// Follows the directives behind a rewrite to `to`.
pub(super) fn of<'d>(
    context: &mut Context,
    block: &Block<'_, '_>,
    variables: &Variables,
    (to, rest): (&str, &[&'d Directive]),
) -> Then<'d> {
    let start = to.split('$').next().unwrap_or_default();
    let is_met = |rewrite: &Directive| rewrite.name == "rewrite" && may_have(rewrite.first(), start);
    let mut path = OfPath::default();
    let mut own = variables.clone();
    let mut then = Then::default();
    for (at, inner) in rest.iter().copied().enumerate() {
        let is_unknown = match inner.name.as_str() {
            "set" => {
                path.set(context, inner);
                set(context, &mut own, inner, &Condition::Always);
                false
            }
            "break" => {
                then.stays = true;
                break;
            }
            "return" => {
                then.returned = Some(inner);
                then.is_unknown = path.is_asked(context, inner);
                break;
            }
            "rewrite" => is_met(inner),
            "if" => {
                let children = inner.children();
                children.iter().filter(|inner| inner.name == "set").for_each(|inner| path.set(context, inner));
                let ends = |inner: &Directive| inner.name == "return" || is_met(inner);
                let is_break = children.iter().any(|inner| inner.name == "break");
                if !is_break && !children.iter().any(ends) {
                    continue;
                }
                let is_constant = |inner: &Directive| {
                    inner.name != "rewrite"
                        || matches!(inner.arguments.as_slice(), [own, to, ..] if is_everything(own, to))
                };
                let is_known = !is_break && children.iter().all(is_constant) && !path.is_asked(context, inner);
                match is_known.then(|| read(context, inner, &own, block)) {
                    Some(Ok(asked)) => {
                        let mut routes = Table::default();
                        let route = of_if(context, &mut routes, block, &mut own, (inner, asked, &rest[at + 1..]));
                        then.routes.extend(routes.into_list("route"));
                        then.routes.extend(route);
                        false
                    }
                    _ => true,
                }
            }
            _ => false,
        };
        if is_unknown {
            then.is_unknown = true;
            break;
        }
    }
    then.with_paths()
}

/// The variables that a rewrite changes.
#[derive(Default)]
struct OfPath {
    /// Those that `set` makes of others behind it.
    set: HashSet<String>,
}

impl OfPath {
    /// `set`
    fn set(&mut self, context: &Context, directive: &Directive) {
        let name = directive.first().trim_start_matches('$').to_owned();
        match directive.arguments.get(1).is_some_and(|value| self.has(context, value)) {
            true => self.set.insert(name),
            false => self.set.remove(&name),
        };
    }

    /// Whether a directive or one in it asks for the path.
    fn is_asked(&self, context: &Context, directive: &Directive) -> bool {
        directive.arguments.iter().any(|text| self.has(context, text))
            || directive.children().iter().any(|inner| self.is_asked(context, inner))
    }

    /// Whether a text has a value of the path or of the query.
    fn has(&self, context: &Context, text: &str) -> bool {
        text.split('$').skip(1).any(|behind| {
            let (name, _) = variables::name(behind);
            let is_own =
                matches!(name, "uri" | "document_uri" | "request_filename" | "args" | "query_string" | "is_args");
            is_own
                || ["arg_", "fastcgi_"].iter().any(|start| name.starts_with(start))
                || name.starts_with(|c: char| c.is_ascii_digit())
                || self.set.contains(name)
                || tables::table_of(context, name).is_some_and(|table| {
                    self.has(context, table.first()) || table.children().iter().any(|case| self.is_asked(context, case))
                })
        })
    }
}
