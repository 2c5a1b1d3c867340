//! Conditions as text: for the explanation of a request, which names the condition that decides.

use std::fmt::{self, Display, Formatter};

use super::Route;
use super::condition::{Condition, Disk, EntryKind, Exists, Holds, HostPattern, Test, ValuePattern};
use crate::placeholders::Asked;
use crate::site::look_around::SIGN;

/// Characters of a wanted text that are shown. A longer text may be the token of a client.
const MAX_SHOWN: usize = 12;

impl Condition {
    /// The first condition that decides that these do not hold. `None`: they hold.
    pub(super) fn deciding(&self, asked: &Asked<'_>, route: &Route) -> Option<&Condition> {
        let holds = self.holds(asked, route, Disk::Waits);
        match self {
            _ if holds == Holds::Yes => None,
            Condition::All(all) => {
                let own = all.iter().find(|one| one.holds(asked, route, Disk::Waits) == holds);
                own.and_then(|one| one.deciding(asked, route))
            }
            other => Some(other),
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Method(methods) => write!(f, "method = {}", list(methods)),
            Condition::Plain(is_plain) => write!(f, "scheme = {:?}", if *is_plain { "http" } else { "https" }),
            Condition::Host(hosts) => write!(f, "host = {}", list(hosts)),
            Condition::Client(networks) => write!(f, "client = {}", list(networks)),
            Condition::Field(name, test) => write!(f, "header.{name} = {test}"),
            Condition::Parameter(name, test) => write!(f, "query.{name} = {test}"),
            Condition::Cookie(name, test) => write!(f, "cookie.{name} = {test}"),
            Condition::Referer { hosts, none, blocked } => {
                let words = [("none", *none), ("blocked", *blocked)].into_iter().filter(|(_, is_named)| *is_named);
                let hosts = hosts.iter().map(HostPattern::to_string);
                let all: Vec<String> = words.map(|(word, _)| word.to_owned()).chain(hosts).collect();
                write!(f, "referer = {}", list(&all))
            }
            Condition::Value(text, _, test) => write!(f, "value.{text:?} = {test}"),
            Condition::Exists(exists) => exists.fmt(f),
            Condition::All(all) => write!(f, "{{ {} }}", joined(all)),
            Condition::Any(all) => write!(f, "any = [{}]", joined(all)),
            Condition::Not(inner) => write!(f, "not = {inner}"),
        }
    }
}

impl Display for Exists {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Any => "any",
        };
        write!(f, "exists.{kind} = {:?}", self.text)
    }
}

impl Display for HostPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(host) => f.write_str(host),
            HostPattern::Beneath(parent) => write!(f, "*{parent}"),
            HostPattern::Matching(regex) => write!(f, "~ {regex}"),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Present(is_present) => is_present.fmt(f),
            Test::OneOf(patterns) => f.write_str(&list(patterns)),
        }
    }
}

impl Display for ValuePattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ValuePattern::Text(text) if text.chars().count() > MAX_SHOWN => {
                write!(f, "{}…", text.chars().take(MAX_SHOWN / 3).collect::<String>())
            }
            ValuePattern::Text(text) => f.write_str(text),
            ValuePattern::Matching(regex) => write!(f, "~ {regex}"),
            ValuePattern::LookAround(look_around) => write!(f, "{SIGN}{}", look_around.as_str()),
        }
    }
}

/// One text, or the list of several.
fn list(all: &[impl Display]) -> String {
    let texts: Vec<String> = all.iter().map(|one| format!("\"{one}\"")).collect();
    match &texts[..] {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

fn joined(all: &[Condition]) -> String {
    all.iter().map(Condition::to_string).collect::<Vec<_>>().join(", ")
}
