//! The paths of a location, and the key `path` of its route.

use super::{pcre, values};
use crate::syntax::Directive;

/// Which paths a location has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Path {
    /// `= /a`
    Exact(String),
    /// `/a` or `^~ /a`
    Prefix { text: String, is_final: bool },
    /// `~ \.php$` or `~* \.php$`
    Expression { text: String, ignores_case: bool },
    /// An expression with look-around, with its flags.
    LookAround(String),
    /// `@app`
    Named(String),
    /// An `if` has the paths of its location.
    Inherited,
}

impl Path {
    /// The paths of a location. An error says why a route cannot have them.
    pub(super) fn of(location: &Directive) -> Result<Self, String> {
        let (modifier, text) = match location.arguments.as_slice() {
            [text] if text.starts_with('@') => return Ok(Path::Named(name(text))),
            // The modifier may stand before the path without a space.
            [text] => {
                let signs = ["~*", "^~", "~", "="];
                signs.into_iter().find_map(|sign| Some((sign, text.strip_prefix(sign)?))).unwrap_or(("", text))
            }
            [modifier, text] => (modifier.as_str(), text.as_str()),
            _ => return Err("its arguments are unknown".to_owned()),
        };
        if modifier.starts_with('~') {
            return Self::of_expression(text, modifier == "~*");
        }
        let is_plain = text.starts_with('/') && !text.contains(['%', '?', '#']) && !text.contains("//");
        if !is_plain || text.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(format!("no request has the path {text}"));
        }
        if modifier != "=" && ends_in_star(text) {
            return Err(format!("the star of {text} stands for itself in nginx: end the path with its slash"));
        }
        Ok(match modifier {
            "=" => Path::Exact(text.to_owned()),
            _ => Path::Prefix { text: text.to_owned(), is_final: modifier == "^~" },
        })
    }

    /// The paths that match an expression of nginx. An error says why a route cannot have them.
    pub(super) fn of_expression(text: &str, ignores_case: bool) -> Result<Self, String> {
        if let Some(text) = values::look_around(text).filter(|_| expression(text).is_none()) {
            return Ok(Path::LookAround(format!("{}{text}", if ignores_case { "(?i)" } else { "" })));
        }
        let text = expression(text).ok_or_else(|| {
            let (part, remedy) = pcre::fault(text).unwrap_or((text, "write another expression"));
            format!("the expression {text} is not supported, as {part} has no counterpart: {remedy}")
        })?;
        // Bytes outside ASCII have no case in nginx.
        if ignores_case && (!text.is_ascii() || text.contains("\\x")) {
            return Ok(Path::Expression { text: format!("(?i){text}"), ignores_case: false });
        }
        Ok(Path::Expression { text, ignores_case })
    }

    /// The paths of a rewrite whose `$` stands before more items: only paths with a newline at their end, which no rewrite is written for, are missed.
    pub(super) fn of_rewrite(text: &str) -> Option<Self> {
        let items = pcre::items(text)?;
        let text: String = items.into_iter().map(|item| item.text).collect();
        values::is_regex(&text).then_some(Path::Expression { text, ignores_case: false })
    }

    /// The value of the key `path`.
    pub(super) fn key(&self) -> Option<String> {
        match self {
            Path::Exact(text) => Some(format!("= {text}")),
            // `location /api/` has not the path `/api`.
            Path::Prefix { text, .. } if text.len() > 1 && text.ends_with('/') => {
                self.key_with_folder().map(|key| key + "*")
            }
            Path::Prefix { .. } => self.key_with_folder(),
            Path::Expression { text, ignores_case } => Some(format!("~ {}{text}", flag_of_case(*ignores_case))),
            Path::LookAround(text) => Some(format!("~~ {text}")),
            Path::Named(_) | Path::Inherited => None,
        }
    }

    /// The key of a prefix that has the path of its folder too. `None`: it is another form.
    pub(super) fn key_with_folder(&self) -> Option<String> {
        let Path::Prefix { text, is_final } = self else { return None };
        Some(format!("{}{text}", if *is_final { "^~ " } else { "" }))
    }

    /// An expression for its paths as `{path.decoded}` has them. `None`: its paths are exact, or none.
    pub(super) fn pattern(&self) -> Option<String> {
        match self.clone().with_newline() {
            Path::Prefix { text, .. } => Some(format!("~ ^{}", values::literally(&text))),
            // In bytes, as routes match.
            Path::Expression { text, ignores_case } => Some(format!("~ (?s-u){}{text}", flag_of_case(ignores_case))),
            Path::LookAround(text) => Some(format!("~~ {text}")),
            Path::Exact(_) | Path::Named(_) | Path::Inherited => None,
        }
    }

    /// Whether it has a path, as far as its text tells.
    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Path::Exact(text) => text == path,
            Path::Prefix { text, .. } => text != "/" && path.starts_with(text.as_str()),
            Path::Expression { text, ignores_case } => {
                let built =
                    regex::bytes::RegexBuilder::new(text).unicode(false).case_insensitive(*ignores_case).build();
                built.is_ok_and(|regex| regex.is_match(path.as_bytes()))
            }
            // It has more paths without look-around.
            Path::LookAround(text) => {
                let wider = regex::bytes::Regex::new(&pcre::without_look_around(text));
                wider.is_ok_and(|regex| regex.is_match(path.as_bytes()))
            }
            Path::Named(_) | Path::Inherited => false,
        }
    }

    /// Whether it is a prefix that ends with a slash.
    pub(super) fn is_folder(&self) -> bool {
        self.prefix().is_some_and(|text| text.ends_with('/'))
    }

    /// The text of a prefix.
    pub(super) fn prefix(&self) -> Option<&str> {
        match self {
            Path::Prefix { text, .. } => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_expression(&self) -> bool {
        matches!(self, Path::Expression { .. } | Path::LookAround(_))
    }

    /// The same paths with those that end in a newline, which `$` of nginx lets pass: a guard must not miss them.
    pub(super) fn with_newline(self) -> Self {
        match self {
            Path::Expression { text, ignores_case } => {
                Path::Expression { text: values::with_end_of_pcre(&text).unwrap_or(text), ignores_case }
            }
            Path::LookAround(text) => Path::LookAround(pcre::with_newlines(&text)),
            other => other,
        }
    }

    /// The placeholders of a group that ends where the path ends: its number, and its name.
    pub(super) fn last_group(&self) -> Vec<String> {
        let Path::Expression { text, .. } = self else { return Vec::new() };
        if !text.trim_end_matches('$').ends_with(')') {
            return Vec::new();
        }
        let (mut numbered, named) = groups(text);
        numbered.pop().into_iter().chain(named.last().map(|name| format!("{{{name}}}"))).collect()
    }

    /// The placeholders for the groups of an expression, and the names of those that have one.
    pub(super) fn groups(&self) -> (Vec<String>, Vec<String>) {
        match self {
            Path::Expression { text, .. } => groups(text),
            _ => (Vec::new(), Vec::new()),
        }
    }
}

/// The flag of an expression that may ignore case. `~*` of a route is meant for guards: it has more paths, such as those with a dot behind the ending.
pub(super) fn flag_of_case(ignores_case: bool) -> &'static str {
    if ignores_case { "(?i)" } else { "" }
}

/// Whether the star at the end of a prefix would stand for all paths beneath it.
pub(super) fn ends_in_star(text: &str) -> bool {
    text.starts_with('/') && text.ends_with("/*")
}

/// The name of a named location, in the letters that a route's may have.
pub(super) fn name(text: &str) -> String {
    let rest = text.trim_start_matches('@');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    format!("@{}", rest.replace(|c| !is_plain(c), "-"))
}

/// An expression of nginx in the syntax of a route.
pub(super) fn expression(text: &str) -> Option<String> {
    values::regex_of_pcre(text, false).or_else(|| values::regex_of_pcre(&values::without_well_known(text)?, false))
}

/// The placeholders for the groups of an expression, and the names of those that have one.
pub(super) fn groups(expression: &str) -> (Vec<String>, Vec<String>) {
    let Some(items) = pcre::items(expression) else { return (Vec::new(), Vec::new()) };
    let opens = items.iter().filter(|item| item.kind == pcre::Kind::Open);
    let mut numbered = Vec::new();
    let mut named = Vec::new();
    for open in opens {
        let name = pcre::name_of_group(&open.text);
        if name.is_some() || !open.text.starts_with("(?") {
            numbered.push(format!("{{{}}}", numbered.len() + 1));
        }
        named.extend(name.map(str::to_owned));
    }
    (numbered, named)
}
