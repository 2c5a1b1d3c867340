//! Conditions of a route: the key `match`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use regex::bytes::Regex;
use schemars::JsonSchema;
use sealion_http::Method;
use sealion_http::extra_fields::is_name;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize, Serializer};

use super::Route;
use super::action::path_template;
use crate::files::resolve::{NotOpened, Root, Wait};
use crate::placeholders::{
    Asked, Form, Groups, Known, Tables, Template, ValueGroups, cookies, expression, in_bytes, parameters,
};
use crate::site::access::{names, network};
use crate::site::look_around::{LookAround, SIGN, TooManySteps};
use crate::values::{At, Problems, Secret, Short};

/// Conditions of a route: all keys must hold. One of the values of a key must. A route whose conditions fail is passed over as if it were not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MatchConfig {
    /// Methods; `GET` has HEAD too.
    pub method: At<Texts>,
    /// `http` or `https`.
    pub scheme: At<Texts>,
    /// Hosts without port: `example.org`, `*.example.org`, or `~ expression`, whose groups are placeholders.
    pub host: At<Texts>,
    /// Networks of clients, for instance `10.0.0.0/8`.
    pub client: Vec<At<String>>,
    /// Fields of the request by name: a text, `~ expression`, `~* expression`, `true` (present) or `false` (absent).
    pub header: BTreeMap<String, At<Wanted>>,
    /// Parameters of the query, as `header`.
    pub query: BTreeMap<String, At<Wanted>>,
    /// Cookies, as `header`.
    pub cookie: BTreeMap<String, At<Wanted>>,
    /// Hosts of Referer, as `host`; `none`: the field is missing or empty; `blocked`: it has no URL.
    pub referer: At<Texts>,
    /// Texts with placeholders and their wanted values, as `header`: `{ "{map.plan}" = "pro" }`. Groups of an expression are placeholders.
    pub value: BTreeMap<String, At<Wanted>>,
    /// A file or a directory beneath the root of the route: `exists = "{path}"`, or a table.
    pub exists: Option<At<Short<String, ExistsTable>>>,
    /// Conditions that must not hold together.
    pub not: Option<Box<MatchConfig>>,
    /// One of these conditions must hold.
    pub any: Vec<MatchConfig>,
    /// Conditions that must all hold.
    pub all: Vec<MatchConfig>,
}

/// Paths beneath the root of the route, with placeholders. All must exist.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExistsTable {
    /// Path of a file.
    pub file: Option<String>,
    /// Path of a directory.
    pub directory: Option<String>,
    /// Path of either.
    pub any: Option<String>,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Default for Texts {
    fn default() -> Self {
        Texts::Many(Vec::new())
    }
}

impl Texts {
    fn all(&self) -> &[String] {
        match self {
            Texts::One(text) => std::slice::from_ref(text),
            Texts::Many(texts) => texts,
        }
    }
}

/// The wanted value. No message shows texts: the token of a client may be among them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Wanted {
    Present(bool),
    Texts(Texts),
}

impl Serialize for Wanted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Wanted::Present(is_present) => serializer.serialize_bool(*is_present),
            Wanted::Texts(texts) => Secret::from(texts.all().to_vec()).serialize(serializer),
        }
    }
}

/// Whether conditions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// The request has several values, and only some meet the condition: an application may take any of them.
    Unclear,
}

impl Holds {
    fn from_bool(holds: bool) -> Self {
        if holds { Holds::Yes } else { Holds::No }
    }

    fn not(self) -> Self {
        match self {
            Holds::Yes => Holds::No,
            Holds::No => Holds::Yes,
            Holds::Unclear => Holds::Unclear,
        }
    }

    fn all(holds: impl IntoIterator<Item = Holds>) -> Self {
        let mut result = Holds::Yes;
        for holds in holds {
            match holds {
                Holds::No => return Holds::No,
                Holds::Unclear => result = Holds::Unclear,
                Holds::Yes => {}
            }
        }
        result
    }

    fn any(holds: impl IntoIterator<Item = Holds>) -> Self {
        Self::all(holds.into_iter().map(Holds::not)).not()
    }
}

/// The conditions of a route.
#[derive(Debug)]
pub(super) enum Condition {
    Method(Vec<String>),
    /// Whether it is `http`.
    Plain(bool),
    Host(Vec<HostPattern>),
    Client(Vec<IpNet>),
    Field(String, Test),
    Parameter(String, Test),
    Cookie(String, Test),
    Referer {
        hosts: Vec<HostPattern>,
        none: bool,
        blocked: bool,
    },
    /// The text of the template, the template, and the wanted value.
    Value(Box<str>, Template, Test),
    Exists(Exists),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// Whether a path exists.
#[derive(Debug)]
pub(super) struct Exists {
    /// The text of the path.
    pub(super) text: Box<str>,
    path: Template,
    pub(super) kind: EntryKind,
    /// Whether the text itself has a hidden name, such as `/.maintenance`: it is no secret then.
    names_hidden: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    Any,
}

#[derive(Debug)]
pub(super) enum HostPattern {
    Exact(String),
    /// `.example.org` for `*.example.org`.
    Beneath(String),
    Matching(Regex),
}

#[derive(Debug)]
pub(super) enum Test {
    Present(bool),
    OneOf(Vec<ValuePattern>),
}

#[derive(Debug)]
pub(super) enum ValuePattern {
    Text(String),
    Matching(Regex),
    LookAround(LookAround),
}

impl MatchConfig {
    /// Validates the conditions. `groups`: gets the expressions of hosts.
    pub(super) fn build(&self, groups: &mut Groups, tables: &Tables, key: &str, problems: &mut Problems) -> Condition {
        let mut all = Vec::new();
        let methods = self.method.all();
        if !methods.is_empty() {
            for method in methods.iter().filter(|method| !is_name(method) || **method != method.to_ascii_uppercase()) {
                let what = format_args!("{method:?} is not a method: write for instance [\"GET\", \"POST\"]");
                problems.add(&self.method.span, &format!("{key}.method"), what);
            }
            all.push(Condition::Method(methods.to_vec()));
        }
        match self.scheme.all() {
            [] => {}
            [scheme] if scheme == "http" || scheme == "https" => all.push(Condition::Plain(scheme == "http")),
            _ => problems.add(&self.scheme.span, &format!("{key}.scheme"), "write http or https"),
        }
        if !self.host.all().is_empty() {
            let hosts = host_patterns(&self.host, &format!("{key}.host"), problems);
            groups.hosts.extend(hosts.iter().filter_map(|host| match host {
                HostPattern::Matching(regex) => Some(regex.clone()),
                HostPattern::Exact(_) | HostPattern::Beneath(_) => None,
            }));
            all.push(Condition::Host(hosts));
        }
        if !self.client.is_empty() {
            let key = format!("{key}.client");
            all.push(Condition::Client(self.client.iter().filter_map(|text| network(text, &key, problems)).collect()));
        }
        let tests = |of: &BTreeMap<String, At<Wanted>>, family: &str, problems: &mut Problems| {
            let build = |(name, wanted): (&String, &At<Wanted>)| {
                let key = format!("{key}.{family}.{name}");
                if family != "query" && !is_name(name) {
                    problems.add(&wanted.span, &key, "is not a name: use letters, digits and hyphens");
                }
                (name.clone(), wanted.build(&wanted.span, &key, problems))
            };
            of.iter().map(build).collect::<Vec<_>>()
        };
        all.extend(
            tests(&self.header, "header", problems).into_iter().map(|(name, test)| Condition::Field(name, test)),
        );
        all.extend(
            tests(&self.query, "query", problems).into_iter().map(|(name, test)| Condition::Parameter(name, test)),
        );
        all.extend(
            tests(&self.cookie, "cookie", problems).into_iter().map(|(name, test)| Condition::Cookie(name, test)),
        );
        if !self.referer.all().is_empty() {
            let is_word = |word: &str| self.referer.all().iter().any(|text| text == word);
            let hosts = self.referer.all().iter().filter(|text| !matches!(&***text, "none" | "blocked"));
            let hosts = At { value: Texts::Many(hosts.cloned().collect()), span: self.referer.span.clone() };
            let hosts = host_patterns(&hosts, &format!("{key}.referer"), problems);
            all.push(Condition::Referer { hosts, none: is_word("none"), blocked: is_word("blocked") });
        }
        for (text, wanted) in &self.value {
            let key = format!("{key}.value");
            let known = Known::of_request(Some(groups), tables);
            let template = Template::parse_text(text, &wanted.span, known, &key, problems);
            let test = wanted.build(&wanted.span, &key, problems);
            let Some(template) = template else { continue };
            let before = Arc::new(groups.clone());
            groups.values.extend(test.expressions().map(|regex| ValueGroups {
                value: template.clone(),
                expression: regex.clone(),
                before: Arc::clone(&before),
            }));
            all.push(Condition::Value(text.as_str().into(), template, test));
        }
        if let Some(exists) = &self.exists {
            let known = Known::of_request(Some(groups), tables);
            all.extend(Exists::build(exists, known, &format!("{key}.exists"), problems));
        }
        let inner = |all: &[MatchConfig], name: &str, groups: &mut Groups, problems: &mut Problems| {
            let key = format!("{key}.{name}");
            all.iter().map(|one| one.build(groups, tables, &key, problems)).collect::<Vec<_>>()
        };
        if let Some(not) = &self.not {
            all.push(Condition::Not(Box::new(not.build(
                &mut Groups { path: groups.path.clone(), ..Groups::default() },
                tables,
                &format!("{key}.not"),
                problems,
            ))));
        }
        if !self.any.is_empty() {
            all.push(Condition::Any(inner(&self.any, "any", groups, problems)));
        }
        all.extend(inner(&self.all, "all", groups, problems));
        Condition::All(all)
    }
}

impl Wanted {
    fn build(&self, span: &std::ops::Range<usize>, key: &str, problems: &mut Problems) -> Test {
        let texts = match self {
            Wanted::Present(present) => return Test::Present(*present),
            Wanted::Texts(texts) => texts.all(),
        };
        if texts.is_empty() {
            problems.add(span, key, "is empty: write a text, \"~ expression\", true or false");
        }
        let pattern = |text: &String| match (expression(text), text.strip_prefix(SIGN)) {
            (Some(expression), _) => regex(&expression, span, key, problems).map(ValuePattern::Matching),
            (None, Some(expression)) => match LookAround::new(expression) {
                Ok(built) => Some(ValuePattern::LookAround(built)),
                Err(error) => {
                    problems.add(span, key, format_args!("is not a regular expression: {error}"));
                    None
                }
            },
            (None, None) => Some(ValuePattern::Text(text.clone())),
        };
        Test::OneOf(texts.iter().filter_map(pattern).collect())
    }
}

fn regex(text: &str, span: &std::ops::Range<usize>, key: &str, problems: &mut Problems) -> Option<Regex> {
    let problem = |error| problems.add(span, key, format_args!("is not a regular expression: {error}"));
    in_bytes(text).map_err(problem).ok()
}

fn host_patterns(texts: &At<Texts>, key: &str, problems: &mut Problems) -> Vec<HostPattern> {
    let is_host = |host: &str| {
        !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'[' | b']' | b':'))
    };
    let mut patterns = Vec::new();
    for text in texts.all() {
        if let Some(expression) = expression(text) {
            patterns.extend(regex(&expression, &texts.span, key, problems).map(HostPattern::Matching));
        } else if let Some(parent) = text.strip_prefix("*.").filter(|parent| is_host(parent)) {
            patterns.push(HostPattern::Beneath(format!(".{}", parent.to_ascii_lowercase())));
        } else if is_host(text) {
            patterns.push(HostPattern::Exact(text.to_ascii_lowercase()));
        } else {
            let what = format_args!(
                "{text:?} is not a host: write for instance example.org, *.example.org or \"~ expression\""
            );
            problems.add(&texts.span, key, what);
        }
    }
    patterns
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(own) => own == host,
            HostPattern::Beneath(parent) => host.ends_with(parent.as_str()),
            HostPattern::Matching(regex) => regex.is_match(host.as_bytes()),
        }
    }
}

impl Test {
    /// Whether values meet it: all of them, none, or some.
    fn holds<V: AsRef<[u8]>>(&self, values: impl Iterator<Item = V>) -> Holds {
        let mut met = 0;
        let mut all = 0;
        for value in values {
            all += 1;
            let meets = match self {
                Test::Present(present) => Ok(*present),
                Test::OneOf(patterns) => Test::is_one_of(patterns, value.as_ref()),
            };
            let Ok(meets) = meets else { return Holds::Unclear };
            met += usize::from(meets);
        }
        match self {
            Test::Present(present) => Holds::from_bool((all > 0) == *present),
            Test::OneOf(_) if met == 0 => Holds::No,
            Test::OneOf(_) if met == all => Holds::Yes,
            Test::OneOf(_) => Holds::Unclear,
        }
    }
}

impl Test {
    fn is_one_of(patterns: &[ValuePattern], value: &[u8]) -> Result<bool, TooManySteps> {
        for pattern in patterns {
            if pattern.matches(value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_text(&self) -> bool {
        matches!(self, Test::OneOf(_))
    }

    fn expressions(&self) -> impl Iterator<Item = &Regex> {
        let patterns = match self {
            Test::OneOf(patterns) => patterns.as_slice(),
            Test::Present(_) => &[],
        };
        patterns.iter().filter_map(|pattern| match pattern {
            ValuePattern::Matching(regex) => Some(regex),
            ValuePattern::Text(_) | ValuePattern::LookAround(_) => None,
        })
    }
}

impl ValuePattern {
    fn matches(&self, value: &[u8]) -> Result<bool, TooManySteps> {
        match self {
            ValuePattern::Text(text) => Ok(text.as_bytes() == value),
            ValuePattern::Matching(regex) => Ok(regex.is_match(value)),
            ValuePattern::LookAround(look_around) => look_around.is_match(value),
        }
    }
}

impl Exists {
    fn build(
        config: &At<Short<String, ExistsTable>>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Vec<Condition> {
        let table = match &config.value {
            Short::Short(path) => &ExistsTable { any: Some(path.clone()), ..ExistsTable::default() },
            Short::Table(table) => table,
        };
        let paths =
            [(EntryKind::File, &table.file), (EntryKind::Directory, &table.directory), (EntryKind::Any, &table.any)];
        if paths.iter().all(|(_, path)| path.is_none()) {
            problems.add(&config.span, key, "is empty: write for instance \"{path}\" or { file = \"{path}\" }");
        }
        let paths = paths.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)));
        let built = paths.filter_map(|(kind, text)| {
            let path = path_template(text, &config.span, known, key, problems)?;
            Some(Condition::Exists(Exists {
                text: text.as_str().into(),
                path,
                kind,
                names_hidden: text.contains("/."),
            }))
        });
        built.collect()
    }

    /// Whether the path exists.
    fn holds(&self, asked: &Asked<'_>, route: &Route, disk: Disk<'_>) -> Holds {
        let Ok(url) = self.path.render_url(asked) else { return Holds::No };
        let raw = url.split('?').next().unwrap_or_default();
        let Ok(path) = SitePath::parse(raw, route.options.show_dotfiles || self.names_hidden) else { return Holds::No };
        let Some(located) = route.locate(&path, || Asked { path: &path, ..*asked }) else { return Holds::No };
        let root = located.files.root();
        let metadata = match (root.metadata(located.path.as_bytes(), disk.wait()), disk) {
            (Ok(metadata), _) => metadata,
            (Err(NotOpened::Waits), Disk::AtHand(cold)) => {
                let here = ColdPath { root, path: located.path.as_bytes().into() };
                cold.set(Some(cold.take().unwrap_or(here)));
                return Holds::No;
            }
            (Err(_), _) => return Holds::No,
        };
        // As of nginx' -f: a slash at the end names a directory.
        let is_file = metadata.is_file() && !path.names_directory();
        Holds::from_bool(match self.kind {
            EntryKind::File => is_file,
            EntryKind::Directory => metadata.is_dir(),
            EntryKind::Any => is_file || metadata.is_dir(),
        })
    }
}

/// A path whose entry the kernel has to read from the disk.
#[derive(Debug, Clone)]
pub(in crate::site) struct ColdPath {
    root: Arc<Root>,
    path: Box<[u8]>,
}

impl ColdPath {
    /// Reads the entry, so that the kernel has it at hand next time. May block.
    pub(in crate::site) fn look_up(&self) {
        let _ = self.root.metadata(&self.path, Wait::Yes);
    }

    pub(in crate::site) fn is_same(&self, other: &ColdPath) -> bool {
        Arc::ptr_eq(&self.root, &other.root) && self.path == other.path
    }
}

/// How conditions learn whether a path exists.
#[derive(Clone, Copy)]
pub(in crate::site) enum Disk<'a> {
    /// They wait for the disk.
    Waits,
    /// From what the kernel has at hand. The first path that it has not goes here, and what was chosen means nothing.
    AtHand(&'a Cell<Option<ColdPath>>),
}

impl Disk<'_> {
    fn wait(self) -> Wait {
        match self {
            Disk::Waits => Wait::Yes,
            Disk::AtHand(_) => Wait::No,
        }
    }
}

impl Condition {
    /// Whether it may ask for the client's address.
    pub(super) fn asks_for_client(&self, tables: &Tables) -> bool {
        match self {
            Condition::Client(_) => true,
            Condition::Value(_, template, _) => template.names_client(tables),
            Condition::All(all) | Condition::Any(all) => all.iter().any(|one| one.asks_for_client(tables)),
            Condition::Not(inner) => inner.asks_for_client(tables),
            _ => false,
        }
    }

    /// Whether the request meets it. `route`: the route whose condition it is.
    pub(super) fn holds(&self, asked: &Asked<'_>, route: &Route, disk: Disk<'_>) -> Holds {
        let request = asked.request;
        match self {
            Condition::Method(methods) => {
                let own = request.method.as_str();
                // HEAD shows the same as GET.
                let is_read = matches!(request.method, Method::Head);
                Holds::from_bool(methods.iter().any(|method| method == own || is_read && method == "GET"))
            }
            Condition::Plain(is_plain) => Holds::from_bool(*is_plain == asked.is_plain),
            Condition::Host(hosts) => {
                let host = asked.host();
                Holds::from_bool(hosts.iter().any(|pattern| pattern.matches(&host)))
            }
            Condition::Client(networks) => {
                Holds::from_bool(names(networks, asked.client.map(|address| address.to_canonical())))
            }
            Condition::Field(name, test) => test.holds(request.fields.all(name)),
            Condition::Parameter(name, test) => test.holds(parameters(asked.query, name)),
            Condition::Cookie(name, test) => test.holds(cookies(asked, name)),
            Condition::Referer { hosts, none, blocked } => {
                let referer = request.fields.first("referer").unwrap_or_default();
                let url = std::str::from_utf8(referer).ok().and_then(|text| text.split_once("://"));
                let url = url.filter(|(scheme, _)| matches!(&*scheme.to_ascii_lowercase(), "http" | "https"));
                Holds::from_bool(match url {
                    _ if referer.is_empty() => *none,
                    None => *blocked,
                    Some((_, rest)) => {
                        // As in nginx, a slash alone ends the host: `good.test?x` is another host.
                        let authority = rest.split('/').next().unwrap_or_default();
                        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_ascii_lowercase();
                        hosts.iter().any(|pattern| pattern.matches(&host))
                    }
                })
            }
            Condition::Value(_, template, test) => match template.render(asked, Form::Plain) {
                // A value that is empty is absent, and equals the empty text.
                Ok(value) => test.holds(Some(value).filter(|value| !value.is_empty() || test.is_text()).into_iter()),
                Err(_) => Holds::Unclear,
            },
            Condition::Exists(exists) => exists.holds(asked, route, disk),
            Condition::All(all) => Holds::all(all.iter().map(|one| one.holds(asked, route, disk))),
            Condition::Any(all) => Holds::any(all.iter().map(|one| one.holds(asked, route, disk))),
            Condition::Not(inner) => inner.holds(asked, route, disk).not(),
        }
    }
}
