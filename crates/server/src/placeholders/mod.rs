//! Texts of the configuration with placeholders, such as `https://{host}{uri}`.
//!
//! A text is parsed at start into pieces. A request fills them in; a text without placeholders is borrowed. A value that would break a line, or that
//! could become part of a host, makes the request an error ([`Unfit`]).
//!
//! ```text
//! "https://{host}/v/{1}" ─parse─► [Text, Host, Text, Group(1)] ─render(Asked, Form)─► "https://a.example/v/x%20y"
//! ```

mod parse;
mod source;
mod tables;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use regex::bytes::Regex;
use sealion_http::path::{OUTSIDE_PCHAR, SitePath};
use sealion_http::{Request, Target};

pub(crate) use parse::Known;
pub(crate) use source::{cookies, parameters};
pub(crate) use tables::{MapConfig, SplitConfig, Tables, WHOLE, expression, in_bytes, share_of};

use source::Source;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Box<[Piece]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Value(Source),
}

/// The form of the text that a template makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A field value, a key, a body: values stand as they are.
    Plain,
    /// A path or a URL: values that are not URLs themselves are percent-encoded.
    Url,
    /// A part of a query: they begin no further parameter either.
    Query,
}

/// A value of the request is not allowed where the placeholder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfit;

/// The request whose values replace placeholders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request<'a>,
    /// The path that the route was chosen by.
    pub(crate) path: &'a SitePath<'a>,
    /// The query that goes with the path.
    pub(crate) query: Option<&'a str>,
    /// The client's address; `None` over a Unix socket.
    pub(crate) client: Option<IpAddr>,
    /// The other end of the connection: the client, or the proxy before it.
    pub(crate) remote: Option<IpAddr>,
    pub(crate) is_plain: bool,
    pub(crate) groups: Option<&'a Groups>,
    pub(crate) tables: &'a Tables,
    /// How another route led to the path. `None`: the client asked for it.
    pub(crate) led: Option<Led>,
    /// The user whose password was checked.
    pub(crate) user: Option<&'a str>,
    /// The fields of a server's response.
    pub(crate) upstream: Option<&'a HeaderMap>,
    /// The media type of the response, without parameters.
    pub(crate) media_type: Option<&'a [u8]>,
    /// The value that a table looks up: `groups` are of the expression that matches it, and not the path.
    pub(crate) looked_up: Option<&'a [u8]>,
    /// The values of the first conditions of `groups`, if they are known already. `None`: the request has no such value.
    pub(crate) known: &'a [Option<Vec<u8>>],
}

impl<'a> Asked<'a> {
    /// Without the client and the groups of a route.
    pub(crate) fn new(
        request: &'a Request<'a>,
        path: &'a SitePath<'a>,
        query: Option<&'a str>,
        is_plain: bool,
        tables: &'a Tables,
    ) -> Self {
        Asked {
            request,
            path,
            query,
            client: None,
            remote: None,
            is_plain,
            groups: None,
            tables,
            led: None,
            user: None,
            upstream: None,
            media_type: None,
            looked_up: None,
            known: &[],
        }
    }
}

/// How a route leads to the path of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Led {
    /// By a rewrite.
    Rewrite,
    /// By an internal redirect: an index, the last entry of `try`, an error page, X-Accel-Redirect.
    InternalRedirect,
    /// By a rewrite that stays in the route: the path names its files, and no client sees it.
    Stay,
}

/// The expression that matches the value of a condition.
#[derive(Debug, Clone)]
pub(crate) struct ValueGroups {
    pub(crate) value: Template,
    pub(crate) expression: Regex,
    /// The expressions before it, whose groups the value may name.
    pub(crate) before: Arc<Groups>,
}

/// The expressions of a route whose groups placeholders name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    /// Matches the path, or the value of a table.
    pub(crate) path: Option<Regex>,
    /// Whether that is a part of URLs as it stands.
    pub(crate) is_of_url: bool,
    /// Match the host.
    pub(crate) hosts: Vec<Regex>,
    /// Match the values of conditions.
    pub(crate) values: Vec<ValueGroups>,
}

impl<'a> Asked<'a> {
    /// The scheme of the request.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_plain { "http" } else { "https" }
    }

    /// The host of the request in lower case, without port.
    pub(crate) fn host(&self) -> Cow<'a, str> {
        let authority = self.request.authority.unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => host.to_ascii_lowercase().into(),
            false => host.into(),
        }
    }

    /// The path and query as the client wrote them.
    fn target(&self) -> (&'a str, Option<&'a str>) {
        match self.request.target {
            // A rewrite changes the query of the request alone.
            Target::Path { path, .. } => (path, self.request.raw_target.split_once('?').map(|(_, query)| query)),
            Target::Asterisk => ("*", None),
        }
    }

    /// The same as one text.
    fn uri(&self) -> impl Iterator<Item = u8> {
        let (path, query) = self.target();
        path.bytes().chain(query.into_iter().flat_map(|query| "?".bytes().chain(query.bytes())))
    }
}

/// Texts that one template becomes, beyond which they are not looked at one by one.
const MAX_TEXTS: usize = 1000;

/// Bytes that clients send and no URL has.
const OUTSIDE_URL: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The same for a path, which they would end.
const OUTSIDE_PATH: &AsciiSet = &OUTSIDE_URL.add(b'?').add(b'#');

/// Bytes outside a parameter of a query: there they would end it, or begin another.
const OUTSIDE_PARAMETER: &AsciiSet = &OUTSIDE_PCHAR.add(b'&').add(b'+').add(b';').add(b'=');

impl Template {
    /// The text itself, if it has no placeholders.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &*self.0 {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the text ends with a slash of its own.
    pub(crate) fn ends_with_slash(&self) -> bool {
        matches!(self.0.last(), Some(Piece::Text(text)) if text.ends_with('/'))
    }

    /// Whether it may be the path of a directory: by a slash of its own, or by a path or group at its end.
    pub(crate) fn may_name_directory(&self) -> bool {
        use Source::{DecodedPath, EncodedUri, Group, NamedGroup, Path, Uri};
        let is_path =
            |source: &Source| matches!(source, DecodedPath | EncodedUri | Group(_) | NamedGroup(_) | Path | Uri);
        self.ends_with_slash() || matches!(self.0.last(), Some(Piece::Value(source)) if is_path(source))
    }

    /// All texts that it can become, if only tables decide. `None`: a client does.
    pub(crate) fn all_texts(&self, tables: &Tables) -> Option<Vec<String>> {
        let mut texts = vec![String::new()];
        for piece in &self.0 {
            let ends = match piece {
                Piece::Text(text) => vec![text.to_string()],
                Piece::Value(Source::Map(place)) => tables.texts(*place)?,
                Piece::Value(Source::Split(place)) => tables.shares(*place).into_iter().map(str::to_owned).collect(),
                Piece::Value(_) => return None,
            };
            texts = texts.iter().flat_map(|text| ends.iter().map(move |end| format!("{text}{end}"))).collect();
            if texts.len() > MAX_TEXTS {
                return None;
            }
        }
        texts.sort_unstable();
        texts.dedup();
        Some(texts)
    }

    /// Whether its values depend on an address, by tables too.
    pub(crate) fn names_client(&self, tables: &Tables) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Value(Source::Client | Source::Remote) => true,
            Piece::Value(Source::Map(place)) => tables.map_templates(*place).any(|own| own.names_client(tables)),
            Piece::Value(Source::Split(place)) => tables.split_template(*place).names_client(tables),
            Piece::Value(_) | Piece::Text(_) => false,
        })
    }

    /// Whether its values are parts of URLs as they stand.
    pub(super) fn is_url(&self) -> bool {
        self.0.iter().all(|piece| match piece {
            Piece::Text(_) => true,
            // A table may pass on a value of the client.
            Piece::Value(Source::Map(_) | Source::Split(_)) => false,
            Piece::Value(source) => source.is_url(),
        })
    }

    /// Whether the text has a query, or values that may bring one.
    pub(crate) fn may_have_query(&self) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Text(text) => text.contains('?'),
            Piece::Value(source) => source.may_have_query(),
        })
    }

    /// The text for a request.
    ///
    /// # Errors
    /// A value cannot stand there.
    pub(crate) fn render(&self, asked: &Asked<'_>, form: Form) -> Result<Cow<'_, [u8]>, Unfit> {
        if let Some(text) = self.as_text() {
            return Ok(text.as_bytes().into());
        }
        let mut rendered = Vec::new();
        let mut value = Vec::new();
        for (n, piece) in self.0.iter().enumerate() {
            match piece {
                Piece::Text(text) => rendered.extend_from_slice(text.as_bytes()),
                Piece::Value(source) => {
                    value.clear();
                    let is_query = form == Form::Url && rendered.contains(&b'?');
                    let form = if is_query { Form::Query } else { form };
                    let is_url = source.append(asked, form, &mut value)?;
                    if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) && form == Form::Plain
                    {
                        return Err(Unfit);
                    }
                    if form == Form::Url && in_authority(&rendered) {
                        let ends_host = ends_host(self.0.get(n + 1), asked.tables);
                        if append_to_host(&mut rendered, &value, (source, ends_host), asked.tables)? {
                            continue;
                        }
                    }
                    append(&mut rendered, &value, (source, is_url), form);
                }
            }
        }
        Ok(rendered.into())
    }

    /// The directory for a request, beneath another one and without slashes at its ends.
    ///
    /// # Errors
    /// A value is empty, hidden, or names a directory that is not beneath. Only tables may name several directories at once.
    pub(crate) fn render_directory(&self, asked: &Asked<'_>) -> Result<Vec<u8>, Unfit> {
        let mut rendered = Vec::new();
        let mut value = Vec::new();
        for piece in &self.0 {
            let source = match piece {
                Piece::Text(text) => {
                    rendered.extend_from_slice(text.as_bytes());
                    continue;
                }
                Piece::Value(source) => source,
            };
            value.clear();
            source.append(asked, Form::Plain, &mut value)?;
            let has_slash = value.contains(&b'/') && !source.is_constant(asked.tables);
            let is_hidden = value.starts_with(b".") && matches!(rendered.last(), None | Some(b'/'));
            if value.is_empty() || value.contains(&0) || has_slash || is_hidden {
                return Err(Unfit);
            }
            rendered.extend_from_slice(&value);
        }
        let is_directory = rendered.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
        if is_directory { Ok(rendered) } else { Err(Unfit) }
    }

    /// The URL or path for a request. It names another host only where the template does.
    ///
    /// # Errors
    /// A value cannot stand there, or the result is no URL.
    pub(crate) fn render_url(&self, asked: &Asked<'_>) -> Result<String, Unfit> {
        let url = String::from_utf8(self.render(asked, Form::Url)?.into_owned()).map_err(|_| Unfit)?;
        let is_path = url.starts_with('/');
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['\\', '"', '<', '>']) {
            return Err(Unfit);
        }
        match is_path {
            // `//host` would name another host, and a value can begin with a slash.
            true => Ok(format!("/{}", url.trim_start_matches('/'))),
            false if self.names_scheme(asked.tables) && (url.starts_with("https://") || url.starts_with("http://")) => {
                Ok(url)
            }
            false => Err(Unfit),
        }
    }

    /// Whether the template, and no client, says how a URL begins.
    fn names_scheme(&self, tables: &Tables) -> bool {
        match self.0.first() {
            Some(Piece::Value(source)) => source.may_begin_url(tables),
            Some(Piece::Text(_)) | None => true,
        }
    }
}

/// Appends a value to the text before it. `is_url`: whether it is a part of URLs as it stands.
fn append(before: &mut Vec<u8>, value: &[u8], (source, is_url): (&Source, bool), form: Form) {
    match form {
        Form::Plain => before.extend_from_slice(value),
        // A parameter has both, and no path.
        Form::Url if matches!(source, Source::RawParameter(_)) => {
            before.extend(percent_encode(value, OUTSIDE_PATH).flat_map(str::bytes));
        }
        Form::Url | Form::Query if is_url => before.extend(percent_encode(value, OUTSIDE_URL).flat_map(str::bytes)),
        Form::Url => before.extend(percent_encode(value, OUTSIDE_PCHAR).flat_map(str::bytes)),
        Form::Query => before.extend(percent_encode(value, OUTSIDE_PARAMETER).flat_map(str::bytes)),
    }
}

/// Appends a value to the host of a URL, and says whether it did. `false`: the value ends the host and begins the path or the query. `ends_host`: whether
/// nothing of the host can stand behind the value.
///
/// # Errors
/// The value would extend the host, or is no part of one.
fn append_to_host(
    before: &mut Vec<u8>,
    value: &[u8],
    (source, ends_host): (&Source, bool),
    tables: &Tables,
) -> Result<bool, Unfit> {
    let has_host = !before.ends_with(b"/");
    let is_behind_host = before.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b']');
    match value.first() {
        // `https://example.org{1}`
        None if has_host && ends_host => return Ok(true),
        Some(b'/') if has_host && ends_host => return Ok(false),
        Some(b'?') if is_behind_host && matches!(source, Source::QueryMark(_)) => return Ok(false),
        // A client would choose the end of the host.
        _ if is_behind_host && ends_host && !source.is_constant(tables) => return Err(Unfit),
        _ => {}
    }
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    if value.is_empty() || !value.iter().all(is_host) {
        return Err(Unfit);
    }
    before.extend_from_slice(value);
    Ok(true)
}

/// Whether a URL has no more of its host in the piece behind a value.
fn ends_host(next: Option<&Piece>, tables: &Tables) -> bool {
    match next {
        Some(Piece::Text(text)) => text.starts_with(['/', '?', '#']),
        // A table may have the end of the host.
        Some(Piece::Value(source)) => !source.is_constant(tables),
        None => true,
    }
}

/// Whether the text behind `before` is part of the host of a URL.
fn in_authority(before: &[u8]) -> bool {
    let rest = before.strip_prefix(b"https://").or_else(|| before.strip_prefix(b"http://"));
    rest.is_some_and(|rest| !rest.iter().any(|byte| matches!(byte, b'/' | b'?' | b'#')))
}

#[cfg(test)]
mod tests;
