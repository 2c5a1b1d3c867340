//! The variables of nginx: constants are folded, values of a request become placeholders, and a variable that an `if` sets has a value for each case.

use std::collections::BTreeMap;

use super::condition::Condition;
use super::context::Context;
use super::tables;
use crate::syntax::Directive;

/// Cases of one variable, beyond which it is not followed.
const MAX_CASES: usize = 16;

/// The variables at a place of the configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// The cases of each variable that `set` makes; exactly one case holds. Values are templates.
    set: BTreeMap<String, Vec<(Condition, String)>>,
    /// The placeholders for `$1`, `$2`, …
    pub(super) groups: Vec<String>,
    /// Groups with names, of the location or of the server's names.
    pub(super) named: Vec<String>,
    /// First name of the server.
    pub(super) server_name: Option<String>,
    /// All its names.
    pub(super) server_names: Vec<String>,
    /// Its only port.
    pub(super) port: Option<u16>,
    /// Whether it listens only at 80 and 443.
    pub(super) has_usual_ports: bool,
    pub(super) root: Option<String>,
    /// The file of an `alias`, as a path beneath its directory. `None`: the path of the request.
    pub(super) file: Option<String>,
    /// The scheme of all its requests.
    pub(super) scheme: Option<&'static str>,
    /// Where rewrites without a flag led, one behind another.
    pub(super) led: Vec<String>,
    /// Those that the server makes of what its rewrites change: here, they would be made again behind a rewrite.
    changed: Vec<String>,
}

/// Why a text has no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The variable has no counterpart.
    Unknown(String),
    /// The variable has several cases.
    Cases(String),
    /// The variable is of another path or query than the one that is known.
    Changed(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Unknown(name) => write!(f, "${name} has no placeholder"),
            Lost::Cases(name) => write!(f, "${name} has another value in each case of an if"),
            Lost::Changed(name) => {
                write!(f, "${name} does not follow a change of the path or the query as in nginx")
            }
        }
    }
}

impl Variables {
    /// `set $name value`, where a condition holds. A value without counterpart leaves the variable without one.
    pub(super) fn set(&mut self, context: &mut Context, name: &str, value: &str, condition: &Condition) {
        let name = name.trim_start_matches('$').to_owned();
        let before = self.set.get(&name).cloned();
        let before = before.unwrap_or_else(|| vec![(Condition::Always, of_request(&name).unwrap_or_default())]);
        let mut cases: Vec<(Condition, String)> = Vec::new();
        for (case, old) in before {
            let mut own = self.clone();
            own.set.insert(name.clone(), vec![(Condition::Always, old.clone())]);
            let Ok(new) = own.value_of(context, value) else {
                self.set.insert(name, Vec::new());
                return;
            };
            cases.push((case.clone().and(condition.clone()), new));
            if *condition != Condition::Always {
                cases.push((case.and(condition.clone().not()), old));
            }
        }
        if cases.len() > MAX_CASES {
            cases.clear();
        }
        if *condition == Condition::Always {
            self.changed.retain(|own| *own != name);
        }
        self.set.insert(name, cases);
    }

    /// `set` in a condition, whose groups `beside` has.
    pub(super) fn set_beside(
        &mut self,
        context: &mut Context,
        beside: &Variables,
        directive: &Directive,
        condition: &Condition,
    ) {
        let [name, value] = directive.arguments.as_slice() else { return };
        let (groups, named) = (self.groups.clone(), self.named.clone());
        (self.groups, self.named) = (beside.groups.clone(), beside.named.clone());
        self.set(context, name, value, condition);
        (self.groups, self.named) = (groups, named);
    }

    /// `$server_port` of a server with another port for each scheme.
    pub(super) fn set_ports(&mut self, of_tls: u16, of_plain: u16) {
        let schemes = Self::schemes().into_iter().zip([of_tls, of_plain]);
        let cases = schemes.map(|((scheme, _), port)| (scheme, port.to_string()));
        self.set.insert("server_port".to_owned(), cases.collect());
    }

    /// The cases of the scheme of a server with and without TLS.
    pub(super) fn schemes() -> Vec<(Condition, String)> {
        ["https", "http"].map(|scheme| (Condition::key("scheme", scheme), scheme.to_owned())).into()
    }

    /// The variables of requests over TLS, where the scheme decides about their values.
    pub(super) fn over_tls(&self) -> Self {
        let mut own = self.clone();
        for cases in own.set.values_mut() {
            if let Some((_, value)) = cases.iter().find(|(case, _)| *case == Condition::key("scheme", "https")) {
                *cases = vec![(Condition::Always, value.clone())];
            }
        }
        own
    }

    /// Whether an expression finds in the full name of a file what it finds in the path: it ends there, and the root has nothing of it.
    pub(super) fn is_file_name(&self, variable: &str, expression: &str) -> bool {
        let is_end = expression.ends_with('$') && (!expression.starts_with('^') || expression.starts_with("^.*"));
        let root = self.root.as_deref().filter(|root| !root.contains('{'));
        variable == "request_filename"
            && self.led.is_empty()
            && is_end
            && root.is_some_and(|root| regex::Regex::new(expression).is_ok_and(|own| !own.is_match(root)))
    }

    /// The variables behind a rewrite to a path, which may have a query.
    pub(super) fn behind_rewrite(&self, to: &str) -> Self {
        let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
        let mut own = self.in_case("uri", path).in_case("document_uri", path);
        for name in query.iter().flat_map(|_| ["args", "query_string"]) {
            own = own.in_case(name, query.unwrap_or_default());
        }
        own.led.push(to.to_owned());
        // The root has nothing of another path.
        (own.groups, own.file) = (Vec::new(), None);
        own
    }

    /// The path that rewrites without a flag led to last.
    pub(super) fn led_to(&self) -> Option<&str> {
        self.led.last().map(String::as_str)
    }

    /// Forgets the variables that are made of the path or, if `to_query`, of the query: a rewrite of the server leads to other ones.
    pub(super) fn forget_changed(&mut self, context: &Context, to_query: bool) {
        let changes = |cases: &[(Condition, String)]| {
            let text = format!("{cases:?}");
            tables::names(context, &text, &PATH) || to_query && tables::names(context, &text, &QUERY)
        };
        let own = self.set.iter().filter(|(name, cases)| *name != "args" && changes(cases));
        self.changed = own.map(|(name, _)| name.clone()).collect();
    }

    /// Whether a text of a directive is of another path or query than the one that is known.
    pub(super) fn is_changed(&self, context: &mut Context, directive: &Directive) -> bool {
        let mut texts = directive.arguments.iter().flat_map(|text| text.split('$').skip(1));
        texts.any(|behind| matches!(self.value(context, name(behind).0), Err(Lost::Changed(_))))
    }

    /// The query that `set $args` makes. `None`: it is the query of the request, or there are several.
    pub(super) fn changed_query(&self) -> Option<&str> {
        match self.set.get("args").map(Vec::as_slice) {
            Some([(_, value)]) if value != "{query}" => Some(value),
            _ => None,
        }
    }

    /// The same where a condition decides about no query.
    pub(super) fn own_query(&self) -> Result<Option<&str>, Lost> {
        match self.cases("args") {
            Some(_) => Err(Lost::Cases("args".to_owned())),
            None => Ok(self.changed_query()),
        }
    }

    /// Whether the query may be another one than the query of the request.
    pub(super) fn has_other_query(&self) -> bool {
        self.changed_query().is_some() || self.cases("args").is_some()
    }

    /// The cases of a variable, if it has more than one.
    pub(super) fn cases(&self, name: &str) -> Option<&[(Condition, String)]> {
        let is_known = !self.changed.iter().any(|own| own == name);
        self.set.get(name).map(Vec::as_slice).filter(|cases| is_known && cases.len() > 1)
    }

    /// The same variables in one case of a variable.
    pub(super) fn in_case(&self, name: &str, value: &str) -> Self {
        let mut own = self.clone();
        own.set.insert(name.to_owned(), vec![(Condition::Always, value.to_owned())]);
        own
    }

    /// The text with placeholders, in which a table has the value of a variable with several cases.
    pub(super) fn value_of(&self, context: &mut Context, text: &str) -> Result<String, Lost> {
        let mut own = self.clone();
        loop {
            match own.template(context, text) {
                Err(Lost::Cases(name)) => {
                    let cases = own.cases(&name).map(<[_]>::to_vec).unwrap_or_default();
                    match tables::of_cases(context, &cases) {
                        Some(value) => own = own.in_case(&name, &value),
                        None => return Err(Lost::Cases(name)),
                    }
                }
                other => return other,
            }
        }
    }

    /// The text with placeholders for variables.
    pub(super) fn template(&self, context: &mut Context, text: &str) -> Result<String, Lost> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['$', '{', '}']) {
            out.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            match &rest[at..=at] {
                "$" => {
                    let (name, end) = name(behind);
                    rest = &behind[end..];
                    match name {
                        "" => out.push('$'),
                        name => out.push_str(&self.value(context, name)?),
                    }
                }
                brace => {
                    out.push_str(brace);
                    out.push_str(brace);
                    rest = behind;
                }
            }
        }
        Ok(out + rest)
    }

    /// The template of a variable.
    fn value(&self, context: &mut Context, name: &str) -> Result<String, Lost> {
        if self.changed.iter().any(|own| own == name) {
            return Err(Lost::Changed(name.to_owned()));
        }
        if let Some(cases) = self.set.get(name) {
            return match cases.as_slice() {
                [] => Err(Lost::Unknown(name.to_owned())),
                [(_, value)] => Ok(value.clone()),
                _ => Err(Lost::Cases(name.to_owned())),
            };
        }
        if let Ok(number) = name.parse::<usize>() {
            let group = number.checked_sub(1).and_then(|at| self.groups.get(at));
            return group.cloned().ok_or_else(|| Lost::Unknown(name.to_owned()));
        }
        if self.named.iter().any(|own| own == name) {
            return Ok(format!("{{{name}}}"));
        }
        let constant = match name {
            "server_name" => self.server_name.clone(),
            "document_root" | "realpath_root" => self.root.clone(),
            "server_port" => self.port.map(|port| port.to_string()),
            // A trusted proxy may name another.
            "scheme" => self.scheme.filter(|scheme| *scheme == "http").map(str::to_owned),
            _ => None,
        };
        if let Some(constant) = constant {
            return Ok(constant);
        }
        // The PROXY protocol names the client before there is a request.
        if name == "realip_remote_addr" && context.takes_proxy_protocol {
            return Err(Lost::Unknown(name.to_owned()));
        }
        // Of the client's query.
        let is_of_query = name.starts_with("arg_") || matches!(name, "is_args" | "query_string");
        if is_of_query && self.has_other_query() {
            return Err(Lost::Changed(name.to_owned()));
        }
        if let Some(own) = of_request(name) {
            return Ok(own);
        }
        let own = tables::placeholder(context, name).ok_or_else(|| Lost::Unknown(name.to_owned()))?;
        // Tables know the path and the query of the request.
        let is_of_other = self.has_other_query() && tables::names(context, &own, &QUERY)
            || !self.led.is_empty() && tables::names(context, &own, &PATH);
        if is_of_other { Err(Lost::Changed(name.to_owned())) } else { Ok(own) }
    }
}

/// The beginnings of placeholders for the path, and for the query.
const PATH: [&str; 1] = ["{path"];
const QUERY: [&str; 4] = ["{query", "{raw_query", "{is_args", "{and_args"];

/// The placeholder of a variable that every request has.
fn of_request(name: &str) -> Option<String> {
    let plain = match name {
        "host" | "server_name" => "{host}",
        // With its port, as the client wrote it.
        "http_host" => "{authority}",
        "uri" | "document_uri" => "{path}",
        "request_uri" => "{uri}",
        "args" | "query_string" => "{query}",
        "is_args" => "{is_args}",
        "scheme" => "{scheme}",
        "request_method" => "{method}",
        "remote_addr" | "binary_remote_addr" => "{client}",
        "realip_remote_addr" => "{remote}",
        "sent_http_content_type" => "{type}",
        "content_type" => "{header.content-type}",
        "content_length" => "{header.content-length}",
        "hostname" => "{hostname}",
        "time_iso8601" => "{time}",
        "msec" => "{time.unix}",
        _ => "",
    };
    if !plain.is_empty() {
        return Some(plain.to_owned());
    }
    let families =
        [("http_", "header"), ("arg_", "raw_query"), ("cookie_", "cookie"), ("upstream_http_", "upstream.header")];
    families.into_iter().find_map(|(start, family)| {
        let own = name.strip_prefix(start).filter(|own| !own.is_empty())?;
        let is_field = family.ends_with("header");
        Some(format!("{{{family}.{}}}", if is_field { own.replace('_', "-") } else { own.to_owned() }))
    })
}

/// The name of a variable at the start of a text, and where it ends.
pub(super) fn name(text: &str) -> (&str, usize) {
    if let Some((name, _)) = text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return (name, name.len() + 2);
    }
    // A group has one digit.
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return (&text[..1], 1);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    (&text[..end], end)
}
