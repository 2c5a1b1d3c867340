//! Reading texts with placeholders.

use std::ops::Range;

use http::HeaderName;
use regex::bytes::Regex;
use sealion_http::extra_fields::is_name;

use super::source::Source;
use super::{Groups, Piece, Tables, Template};
use crate::values::{At, Problems};

/// The names that a text may use beside the names of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) groups: Option<&'a Groups>,
    pub(crate) tables: &'a Tables,
    pub(crate) stage: Stage,
}

/// How far a request has come when a text is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its head is known.
    Request,
    /// Its guards let it pass to a server.
    Forwarded,
    /// The server's response is there.
    Response,
}

/// Names without a parameter.
const PLAIN: [(&str, Source); 17] = [
    ("host", Source::Host),
    ("path", Source::Path),
    ("path.decoded", Source::DecodedPath),
    ("query", Source::Query),
    ("uri", Source::Uri),
    ("uri.encoded", Source::EncodedUri),
    ("scheme", Source::Scheme),
    ("method", Source::Method),
    ("client", Source::Client),
    ("remote", Source::Remote),
    ("port", Source::Port),
    ("authority", Source::Authority),
    ("is_args", Source::QueryMark(b'?')),
    ("and_args", Source::QueryMark(b'&')),
    ("type", Source::MediaType),
    ("time", Source::Time),
    ("time.unix", Source::UnixTime),
];

/// Names of other servers, and what they are called here.
const OF_OTHERS: [(&str, &str); 15] = [
    ("args", "query"),
    ("client_ip", "client"),
    ("document_uri", "path"),
    ("http.auth.user.id", "user"),
    ("http_host", "authority"),
    ("query_string", "query"),
    ("raw_query", "query"),
    ("remote_addr", "client"),
    ("remote_host", "client"),
    ("remote_user", "user"),
    ("request_method", "method"),
    ("request_uri", "uri"),
    ("server_name", "host"),
    ("server_port", "port"),
    ("uri.decoded", "path.decoded"),
];

/// Names with a parameter.
const WITH_PARAMETER: [&str; 8] = ["query", "raw_query", "header", "cookie", "map", "split", "env", "upstream.header"];

impl Template {
    /// The text as it stands.
    pub(crate) fn literal(text: &str) -> Self {
        Template(Box::new([Piece::Text(text.into())]))
    }

    /// Parses a text, and adds errors to `problems`.
    ///
    /// `{{` and `}}` stand for braces, and so does `{` before anything but a letter, a digit or `_`, as in JSON.
    pub(crate) fn parse(text: &At<String>, known: Known<'_>, key: &str, problems: &mut Problems) -> Option<Self> {
        Self::parse_text(text, &text.span, known, key, problems)
    }

    /// The same for a text with this place in the file.
    pub(crate) fn parse_text(
        text: &str,
        span: &Range<usize>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        let mut is_right = true;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            let is_placeholder =
                brace == "{" && behind.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_');
            if behind.starts_with(brace) || !is_placeholder {
                literal.push_str(brace);
                rest = behind.strip_prefix(brace).unwrap_or(behind);
                continue;
            }
            let Some((name, behind)) = behind.split_once('}') else {
                problems.add(span, key, "has { without }: close the placeholder, or write {{ for a brace");
                return None;
            };
            rest = behind;
            match known.piece(name) {
                Ok(Piece::Text(text)) => literal.push_str(&text),
                Ok(value) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                    }
                    pieces.push(value);
                }
                Err(what) => {
                    problems.add(span, key, what);
                    is_right = false;
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        is_right.then(|| Template(pieces.into()))
    }
}

impl<'a> Known<'a> {
    /// The names of a text that is filled from the head of a request.
    pub(crate) fn of_request(groups: Option<&'a Groups>, tables: &'a Tables) -> Self {
        Known { groups, tables, stage: Stage::Request }
    }

    /// The same, and the user: for a field of the request that a server gets.
    pub(crate) fn of_forwarded(groups: &'a Groups, tables: &'a Tables) -> Self {
        Known { groups: Some(groups), tables, stage: Stage::Forwarded }
    }

    /// The same, and fields of the server's response: for a field of the response.
    pub(crate) fn of_response(groups: &'a Groups, tables: &'a Tables) -> Self {
        Known { groups: Some(groups), tables, stage: Stage::Response }
    }

    /// The piece for a name, or the reason why the name is wrong.
    fn piece(&self, name: &str) -> Result<Piece, String> {
        if let Some((_, source)) = PLAIN.iter().find(|(own, _)| *own == name) {
            return Ok(Piece::Value(source.clone()));
        }
        if name == "hostname" {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            return Ok(Piece::Text(name.into()));
        }
        if let Ok(number) = name.parse::<usize>() {
            let expressions = self.groups.into_iter().flat_map(Groups::expressions);
            let groups = expressions.map(|regex| regex.captures_len()).max().unwrap_or(0);
            return match number {
                0 => Ok(Piece::Value(Source::Path)),
                _ if number < groups => Ok(Piece::Value(Source::Group(number))),
                _ => Err(format!(
                    "names group {number}, which the route's expression does not have: write path = '~ …' with as many groups, or {{{{{number}}}}} for the text itself"
                )),
            };
        }
        let upstream = name.strip_prefix("upstream.header.").map(|field| ("upstream.header", field));
        let source = match upstream.or_else(|| name.split_once('.')) {
            Some(("query", parameter)) if !parameter.is_empty() => Source::Parameter(parameter.into()),
            Some(("raw_query", parameter)) if !parameter.is_empty() => Source::RawParameter(parameter.into()),
            Some(("header", field)) if is_name(field) => Source::Field(field.to_ascii_lowercase().into()),
            Some(("cookie", cookie)) if is_name(cookie) => Source::Cookie(cookie.into()),
            Some(("map", map)) => Source::Map(self.tables.map(map).ok_or_else(|| self.unknown(name))?),
            Some(("split", split)) => Source::Split(self.tables.split(split).ok_or_else(|| self.unknown(name))?),
            Some(("env", variable)) => {
                let value = std::env::var(variable).ok();
                let value =
                    value.ok_or_else(|| format!("{{{name}}}: the environment has no variable {variable}: set it"))?;
                return Ok(Piece::Text(value.into()));
            }
            Some(("upstream.header", field)) if self.stage == Stage::Response => match HeaderName::try_from(field) {
                Ok(field) => Source::UpstreamField(field),
                Err(_) => return Err(self.unknown(name)),
            },
            Some(("upstream.header", _)) => {
                return Err(format!("{{{name}}} is known only in fields of the response of a proxy: remove it here"));
            }
            _ if self.groups.is_some_and(|groups| groups.has(name)) => Source::NamedGroup(name.into()),
            _ if name == "user" && self.stage == Stage::Forwarded => Source::User,
            _ if name == "user" => {
                let what = "{user} is known only in request_headers of a proxy, behind basic_auth: remove it here";
                return Err(what.to_owned());
            }
            _ => return Err(self.unknown(name)),
        };
        Ok(Piece::Value(source))
    }

    /// Says that a name is unknown, and which one resembles it.
    fn unknown(&self, name: &str) -> String {
        match name.split_once('.') {
            Some((family, "")) if WITH_PARAMETER.contains(&family) => {
                return format!("{{{name}}} has no name behind the dot: write {{{family}.NAME}}");
            }
            Some((table @ ("map" | "split"), _)) => {
                let own = self.tables.names().filter(|own| own.starts_with(table));
                let own: Vec<_> = own.map(|own| format!("{{{own}}}")).collect();
                let all =
                    if own.is_empty() { "there is none".to_owned() } else { format!("there is {}", own.join(", ")) };
                return format!("{{{name}}} names no [[{table}]]: {all}");
            }
            _ => {}
        }
        if let Some((_, own)) = OF_OTHERS.iter().find(|(other, _)| *other == name) {
            return format!("{{{name}}} is not a placeholder: write {{{own}}}");
        }
        let user = (self.stage == Stage::Forwarded).then_some("user");
        let plain = PLAIN.iter().map(|(own, _)| *own).chain(user).map(str::to_owned);
        let parameter = name.rsplit_once('.').map_or("NAME", |(_, parameter)| parameter);
        let known = WITH_PARAMETER.iter().filter(|family| !matches!(**family, "map" | "split"));
        let families = known.map(|family| format!("{family}.{parameter}"));
        let groups = self.groups.into_iter().flat_map(Groups::names).map(str::to_owned);
        let all = plain.chain(self.tables.names()).chain(groups).chain(families);
        let near = all.map(|own| (strsim::normalized_damerau_levenshtein(name, &own), own));
        let nearest = near.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, own)| own);
        let nearest = nearest.unwrap_or_else(|| "host".to_owned());
        format!("{{{name}}} is not a placeholder: the nearest is {{{nearest}}}; write {{{{ for a brace")
    }
}

impl Groups {
    /// Whether an expression has a group of this name.
    fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.expressions().flat_map(|regex| regex.capture_names().flatten())
    }

    fn expressions(&self) -> impl Iterator<Item = &Regex> {
        self.path.iter().chain(&self.hosts).chain(self.values.iter().map(|own| &own.expression))
    }
}
