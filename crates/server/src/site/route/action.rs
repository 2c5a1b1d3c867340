//! Actions of a route beside files and servers: the keys `respond`, `redirect`, `rewrite`, `try` and `deny`.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use sealion_http::extra_fields::is_value;
use sealion_http::{ContentType, Fields, Status};
use serde::{Deserialize, Serialize};

use super::forward::Forward;
use crate::placeholders::{Asked, Form, Known, Template, Unfit};
use crate::response::{Body, Response};
use crate::values::{At, Problems, Secret, SecretUrl, Short};

/// A response that the route has itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RespondTable {
    /// Status, from 200 to 599 [default: 200]
    pub status: Option<At<u16>>,
    /// Content, with placeholders [default: the text of an error, else none]
    pub text: Option<At<Secret>>,
    /// Content in Base64.
    pub base64: Option<At<String>>,
    /// File with the content, read at start.
    pub file: Option<At<PathBuf>>,
    /// Content type, or `by-name`: the type of files with the name in the path [default: `text/plain`]
    #[serde(rename = "type")]
    pub media_type: Option<At<String>>,
}

/// `respond`: a status or `"close"`, or a table.
pub(crate) type RespondConfig = Short<ShortRespond, RespondTable>;

/// The short forms of `respond`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "write a status, for instance 204, or \"close\"")]
pub(crate) enum ShortRespond {
    Status(u16),
    Word(RespondWord),
}

/// A word instead of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RespondWord {
    /// No response.
    Close,
}

/// `redirect`: only the target, or a table.
pub(crate) type RedirectConfig = Short<SecretUrl, RedirectTable>;

/// `rewrite`: only the new path, or a table.
pub(crate) type RewriteConfig = Short<SecretUrl, RewriteTable>;

/// Which query a redirect leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RedirectQuery {
    /// The query of the request, unless `to` has one.
    #[default]
    Keep,
    /// The query of `to`, then the query of the request.
    Append,
    /// Only the query of `to`.
    Drop,
}

/// A redirect, by any method.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedirectTable {
    /// Target with placeholders: a path, or `https://…`.
    pub to: SecretUrl,
    /// Status: 301 or 308 (permanent), 302 or 307 (temporary), or 303 (fetched with GET) [default: 308]
    #[serde(default)]
    pub status: Option<u16>,
    /// The query of the target.
    #[serde(default)]
    pub query: RedirectQuery,
}

/// A new path, under which the request is answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewriteTable {
    /// New path with placeholders; with a query, that replaces the query of the request.
    pub to: SecretUrl,
    /// Whether the files of this route answer. Otherwise a route is chosen again by the new path, ten times at most.
    #[serde(default)]
    pub stay: bool,
}

/// The action of a route.
#[derive(Debug)]
pub(in crate::site) enum Action {
    /// Sends files.
    Files,
    /// Forwards to servers.
    Forward(Forward),
    Respond(Respond),
    Redirect(Redirect),
    Rewrite(Rewrite),
    Try(Try),
    /// Answers 403.
    Deny,
}

#[derive(Debug)]
pub(in crate::site) struct Respond {
    pub(in crate::site) status: Status,
    content: Content,
    /// `None`: the type of files with the name in the path.
    media_type: Option<ContentType>,
}

#[derive(Debug)]
enum Content {
    /// The text of the status, which error pages replace.
    OfStatus,
    Text(Template),
    Bytes(std::sync::Arc<Vec<u8>>),
    /// No response: the connection closes.
    Withheld,
}

#[derive(Debug)]
pub(in crate::site) struct Redirect {
    to: Template,
    status: Status,
    query: RedirectQuery,
}

#[derive(Debug)]
pub(in crate::site) struct Rewrite {
    pub(in crate::site) to: Template,
    pub(in crate::site) stays: bool,
}

/// Paths to try, one after another, and the last resort.
#[derive(Debug)]
pub(in crate::site) struct Try {
    pub(in crate::site) paths: Vec<Template>,
    pub(in crate::site) last: Last,
}

/// The last resort when no path has a file.
#[derive(Debug)]
pub(in crate::site) enum Last {
    Status(Status),
    /// A named route, with the path as it is.
    Named(String),
    /// Another path; it chooses a route again.
    Path(Template),
}

/// The `type` of a response whose path tells it.
const BY_NAME: &str = "by-name";

/// Bytes of a file that `respond` keeps in memory.
const MAX_FILE: u64 = 1 << 20;

/// The status with this number, if a response may have it.
fn status_of(code: u16) -> Option<Status> {
    (200..=599).contains(&code).then(|| Status::new(code)).flatten()
}

impl Respond {
    pub(super) fn build(
        config: &At<RespondConfig>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let span = &config.span;
        let table = match &config.value {
            Short::Short(ShortRespond::Word(RespondWord::Close)) => return Some(Self::withheld()),
            Short::Short(ShortRespond::Status(code)) => {
                &RespondTable { status: Some((*code).into()), ..RespondTable::default() }
            }
            Short::Table(table) => table,
        };
        let code = table.status.as_ref().map_or(200, |status| status.value);
        let status = status_of(code);
        if status.is_none() {
            problems.add(
                span,
                &format!("{key}.status"),
                format_args!("{code} is not a status of a response: write one from 200 to 599"),
            );
        }
        let content = match (&table.text, &table.file, &table.base64) {
            (Some(text), None, None) => {
                Template::parse_text(text.reveal(), span, known, &format!("{key}.text"), problems).map(Content::Text)
            }
            (None, None, Some(text)) => match BASE64_STANDARD.decode(text.as_str()) {
                Ok(bytes) => Some(Content::Bytes(bytes.into())),
                Err(error) => {
                    problems.add(&text.span, &format!("{key}.base64"), format_args!("is not Base64: {error}"));
                    None
                }
            },
            (None, Some(file), None) => {
                let path = problems.resolve(file);
                let read = fs::metadata(&path).and_then(|metadata| match metadata.len() {
                    0..=MAX_FILE => fs::read(&path),
                    _ => Err(std::io::Error::other("more than 1 MiB, which is kept in memory: serve it from a root")),
                });
                match read {
                    Ok(bytes) => Some(Content::Bytes(bytes.into())),
                    Err(error) => {
                        problems.add(
                            span,
                            &format!("{key}.file"),
                            format_args!("cannot read {}: {error}", path.display()),
                        );
                        None
                    }
                }
            }
            (None, None, None) => Some(Content::OfStatus),
            _ => {
                problems.add(span, key, "has several contents: keep one of text, base64 and file");
                None
            }
        };
        let media_type = table.media_type.as_ref().map_or("text/plain; charset=utf-8", |own| own.as_str());
        let is_by_name = media_type == BY_NAME;
        if !is_by_name && (!is_value(media_type) || !media_type.contains('/')) {
            problems.add(span, &format!("{key}.type"), "is not a media type: write for instance application/json");
            return None;
        }
        let media_type = (!is_by_name).then(|| ContentType::Custom(media_type.into()));
        Some(Respond { status: status?, content: content?, media_type })
    }

    /// No response. The log has nginx' status for that.
    fn withheld() -> Self {
        let media_type = ContentType::Text("text/plain");
        Respond {
            status: Status::new(444).unwrap_or(Status::BAD_REQUEST),
            content: Content::Withheld,
            media_type: Some(media_type),
        }
    }

    /// Whether no response is sent.
    pub(in crate::site) fn is_withheld(&self) -> bool {
        matches!(self.content, Content::Withheld)
    }

    /// Whether the content is the route's own, and no error page replaces it.
    pub(in crate::site) fn has_content(&self) -> bool {
        !matches!(self.content, Content::OfStatus)
    }

    /// `by_name`: the type of files with the name in the path.
    pub(in crate::site) fn response(
        &self,
        asked: &Asked<'_>,
        by_name: impl FnOnce() -> ContentType,
    ) -> Result<Response, Unfit> {
        let bytes = match &self.content {
            Content::OfStatus if self.status.code() >= 400 => return Ok(Response::plain(self.status)),
            Content::OfStatus => return Ok(Response::new(self.status, Fields::default(), Body::Empty)),
            Content::Text(text) => match text.render(asked, Form::Plain)? {
                Cow::Borrowed(text) => text.to_vec(),
                Cow::Owned(text) => text,
            },
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::Withheld => {
                let response = Response::new(self.status, Fields::default(), Body::Empty);
                return Ok(Response { is_withheld: true, ..response });
            }
        };
        let media_type = self.media_type.clone().unwrap_or_else(by_name);
        let fields = Fields { content_type: Some(media_type), ..Fields::default() };
        Ok(Response::new(self.status, fields, Body::Bytes(bytes.into())))
    }
}

impl Redirect {
    pub(super) fn build(
        config: &At<RedirectConfig>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let span = &config.span;
        let table = match &config.value {
            Short::Short(to) => &RedirectTable { to: to.clone(), ..RedirectTable::default() },
            Short::Table(table) => table,
        };
        let status = match table.status.unwrap_or(308) {
            301 => Some(Status::MOVED_PERMANENTLY),
            302 => Some(Status::FOUND),
            303 => Some(Status::SEE_OTHER),
            307 => Some(Status::TEMPORARY_REDIRECT),
            308 => Some(Status::PERMANENT_REDIRECT),
            _ => None,
        };
        if status.is_none() {
            let what = "write 301 or 308 (permanent), 302 or 307 (temporary), or 303 (fetched with GET)";
            problems.add(span, &format!("{key}.status"), what);
        }
        let to = url_template(table.to.reveal(), span, known, key, problems)?;
        Some(Redirect { to, status: status?, query: table.query })
    }
}

/// Parses the target of a redirect: a path, or a URL.
pub(in crate::site) fn url_template(
    text: &str,
    span: &std::ops::Range<usize>,
    known: Known<'_>,
    key: &str,
    problems: &mut Problems,
) -> Option<Template> {
    let template = Template::parse_text(text, span, known, key, problems)?;
    let is_url = text.starts_with("https://") || text.starts_with("http://");
    let what = if text.starts_with("//") {
        "begins with two slashes, which names another host: write one, or https://"
    } else if !(text.starts_with('/') || text.starts_with('{') || is_url) {
        "write a path that begins with a slash, or https://…"
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains(['\\', '"', '<', '>']) {
        "percent-encode everything but visible ASCII, and \\ \" < >"
    } else {
        return Some(template);
    };
    problems.add(span, key, what);
    None
}

impl Redirect {
    /// The path of this site that it leads to, without query, if every request is led there.
    pub(super) fn path(&self) -> Option<&str> {
        let path = self.to.as_text()?.split(['?', '#']).next()?;
        path.starts_with('/').then_some(path)
    }

    pub(in crate::site) fn response(&self, asked: &Asked<'_>) -> Result<Response, Unfit> {
        let mut location = self.to.render_url(asked)?;
        let query = asked.query.filter(|query| !query.is_empty());
        let adds = match self.query {
            RedirectQuery::Keep => !self.to.may_have_query() && !location.contains('?'),
            RedirectQuery::Append => true,
            RedirectQuery::Drop => false,
        };
        if let Some(query) = query.filter(|_| adds) {
            let (before, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
            let separator = if before.contains('?') { '&' } else { '?' };
            location = format!("{before}{separator}{query}{fragment}");
        }
        let mut response = Response::plain(self.status);
        response.fields.location = Some(location);
        Ok(response)
    }
}

impl Rewrite {
    pub(super) fn build(
        config: &At<RewriteConfig>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let (to, stays) = match &config.value {
            Short::Short(to) => (to, false),
            Short::Table(table) => (&table.to, table.stay),
        };
        let to = path_template(to.reveal(), &config.span, known, key, problems)?;
        Some(Rewrite { to, stays })
    }
}

/// Parses a path with placeholders.
pub(in crate::site) fn path_template(
    text: &str,
    span: &std::ops::Range<usize>,
    known: Known<'_>,
    key: &str,
    problems: &mut Problems,
) -> Option<Template> {
    let template = Template::parse_text(text, span, known, key, problems)?;
    let begins = text.starts_with('/') || text.starts_with('{');
    if !begins || text.starts_with("//") || text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        problems.add(
            span,
            key,
            "write an encoded path that begins with a slash, for instance /index.html or {path}/index.html",
        );
        return None;
    }
    Some(template)
}

impl Try {
    /// Parses the key `try`.
    pub(super) fn build(texts: &[At<String>], known: Known<'_>, key: &str, problems: &mut Problems) -> Option<Self> {
        let (last, paths) = texts.split_last()?;
        let paths: Option<Vec<Template>> =
            paths.iter().map(|text| path_template(text, &text.span, known, key, problems)).collect();
        let end = if let Some(code) = last.strip_prefix('=') {
            let status = code.parse().ok().and_then(status_of);
            if status.is_none() {
                problems.add(
                    &last.span,
                    key,
                    format_args!("{:?} is not a status: write for instance \"=404\"", last.value),
                );
            }
            Last::Status(status?)
        } else if last.starts_with('@') {
            Last::Named(last.value.clone())
        } else {
            Last::Path(path_template(last, &last.span, known, key, problems)?)
        };
        Some(Try { paths: paths?, last: end })
    }
}

impl Action {
    /// The status of every request, if the action serves none. It then guards the path, whichever path leads here.
    pub(in crate::site) fn withholds(&self) -> Option<Status> {
        match self {
            Action::Deny => Some(Status::FORBIDDEN),
            Action::Respond(respond) if respond.is_withheld() => Some(Status::FORBIDDEN),
            Action::Respond(respond) if respond.status.code() >= 400 => Some(respond.status),
            _ => None,
        }
    }
}
