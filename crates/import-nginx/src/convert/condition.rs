//! Conditions of a route: the key `match`, made of the conditions of `if`.

use toml::{Table, Value};

use super::values;

/// A condition of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    /// It always holds.
    Always,
    /// A table of `match` with one key.
    Is(Table),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

impl Condition {
    /// `match.KEY = value`
    pub(super) fn key(key: &str, value: impl Into<Value>) -> Self {
        Condition::Is([(key.to_owned(), value.into())].into_iter().collect())
    }

    /// `match.exists`. `kind`: `file`, `directory` or `any`.
    pub(super) fn exists(kind: &str, path: &str) -> Self {
        // Paths are encoded there.
        let path = path.replace(' ', "%20");
        Condition::key("exists", [(kind.to_owned(), path.into())].into_iter().collect::<Table>())
    }

    /// The value of a template: under the key of its family where it is one placeholder, else under `value`.
    pub(super) fn wanted(template: &str, wanted: impl Into<Value>) -> Self {
        let wanted = wanted.into();
        if template == "{host}" && wanted.as_str().is_some_and(|text| !text.is_empty()) {
            return Condition::key("host", wanted);
        }
        match family(template) {
            // A missing field is an empty text, which `match.header` does not compare.
            Some(_) if wanted.as_str().is_some_and(values::matches_nothing) => Condition::of_value(template, wanted),
            Some((family, name)) => Condition::key(family, [(name.to_owned(), wanted)].into_iter().collect::<Table>()),
            None => Condition::of_value(template, wanted),
        }
    }

    /// `match.value`. nginx compares paths decoded.
    pub(super) fn of_value(template: &str, wanted: impl Into<Value>) -> Self {
        Condition::key("value", [(decoded(template), wanted.into())].into_iter().collect::<Table>())
    }

    /// Whether a template is neither empty nor `0`, as `if ($name)` asks.
    pub(super) fn is_set(template: &str) -> Self {
        let is_unset = Condition::wanted(template, vec!["", "0"]);
        match family(template) {
            Some(_) => Condition::wanted(template, true).and(is_unset.not()),
            None => is_unset.not(),
        }
    }

    /// Whether a template equals a text.
    pub(super) fn equals(template: &str, text: &str) -> Self {
        match (family(template), text) {
            // A field that is there may be empty, which nginx does not tell from a missing one.
            (Some(_), "") => {
                Condition::Any(vec![Condition::wanted(template, false), Condition::wanted(template, text)])
            }
            _ => Condition::wanted(template, text),
        }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Condition::Not(inner) => *inner,
            other => Condition::Not(Box::new(other)),
        }
    }

    pub(super) fn and(self, other: Condition) -> Self {
        match (self, other) {
            (Condition::Always, other) | (other, Condition::Always) => other,
            (Condition::All(mut all), other) => {
                all.push(other);
                Condition::All(all)
            }
            (one, other) => Condition::All(vec![one, other]),
        }
    }

    /// A condition that holds where one of these does. `None`: there is no condition.
    pub(super) fn any(mut all: Vec<Condition>) -> Option<Self> {
        match all.len() {
            0 => None,
            1 => all.pop(),
            _ if all.contains(&Condition::Always) => Some(Condition::Always),
            _ => Some(Condition::Any(all)),
        }
    }

    /// The value of `match`.
    pub(super) fn into_table(self) -> Table {
        let list = |all: Vec<Condition>| Value::Array(all.into_iter().map(|one| one.into_table().into()).collect());
        let (key, value): (&str, Value) = match self {
            Condition::Always => return Table::new(),
            Condition::Is(table) => return table,
            Condition::All(all) => ("all", list(all)),
            Condition::Any(all) => ("any", list(all)),
            Condition::Not(inner) => ("not", inner.into_table().into()),
        };
        [(key.to_owned(), value)].into_iter().collect()
    }
}

/// The template with the decoded path in place of the path.
pub(super) fn decoded(template: &str) -> String {
    template.replace("{path}", "{path.decoded}")
}

/// `{header.x}` is of the family `header`, with the name `x`.
fn family(template: &str) -> Option<(&'static str, &str)> {
    let inner = template.strip_prefix('{')?.strip_suffix('}')?;
    if inner.contains(['{', '}']) {
        return None;
    }
    let (family, name) = inner.split_once('.')?;
    ["header", "cookie"].into_iter().find(|known| *known == family).map(|known| (known, name))
}
