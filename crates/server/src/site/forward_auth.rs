//! Authentication by another server: a request without content asks it whether a request may pass.
//!
//! ```text
//! request ─► GET /verify, the client's fields, X-Forwarded-Method, X-Forwarded-Uri ─► server
//!              2xx: the request goes on, with fields of the response         other: the response is sent to the client
//! ```

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Uri, header};
use schemars::JsonSchema;
use sealion_http::extra_fields::is_name;
use sealion_http::{Fields, Request, Status, Target};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::request::{AuthRequest, Values};
use super::proxy::{self, FieldChange, FieldRule, apply, failed, of_reply};
use super::route::Route;
use super::{Client, Site};
use crate::placeholders::Known;
use crate::response::{Response, discard};
use crate::upstream::{
    Forwarded, Hop, Inbound, Reply, Upstream, Upstreams, forward, is_hop_by_hop, is_loop, poll_gone,
};
use crate::values::{At, Mutex, Problems, SecretUrl};

mod request;

/// Authentication by another server.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForwardAuthConfig {
    /// URL that is asked for each request, for instance `http://127.0.0.1:9091/verify`, or `unix:/run/auth.sock:/verify`; with `upstream`, a path.
    pub to: At<SecretUrl>,
    /// Name of an `[[upstream]]`, whose servers are asked.
    pub upstream: Option<At<SecretUrl>>,
    /// Host that the server gets: `client`, the host of the request; `{host}`, the same without its port; `upstream`, the host of the URL; or another
    /// [default: upstream]
    pub host: Option<At<String>>,
    /// Whether the server gets the fields of the request. Otherwise it gets the fields that are made for each request, and `request_headers`.
    #[default(true)]
    pub pass_fields: bool,
    /// Fields to set in the request to the server, for instance `[{ name = "X-Api-Key", value = "…" }]`; an empty value removes the field. Values may have
    /// placeholders, which stand for values of the client's request.
    pub request_headers: At<Vec<FieldRule>>,
    /// Fields of the response that a forwarded request gets, for instance `Remote-User`. Fields with these names from a client are dropped,
    /// on every path of the site.
    pub copy: At<Vec<String>>,
    /// The same under other names: `{ X-User = "Remote-User" }` is the field X-User, with the value of Remote-User in the response.
    pub copy_as: At<BTreeMap<String, String>>,
    /// Response to a client that may not pass. `response`: the response of the server. `status`: its status alone, as by nginx; error pages apply then.
    /// `redirect`: a redirect to the Location of a 401.
    pub refusal: AuthRefusal,
    /// Responses that set the cookies of the server's answer: responses to requests that may not pass (`refused`), or `all`. With `none`, the response of
    /// `refusal = "response"` still has them.
    pub cookies: AuthCookies,
}

/// The response to a client that another server does not let pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthRefusal {
    /// The response of the server.
    #[default]
    Response,
    /// Its status, 401 with the challenge (WWW-Authenticate) or 403; 500 for any other.
    Status,
    /// A redirect (302) to the Location of a 401, such as a page to sign in; without a Location, its status.
    Redirect,
}

/// Responses that set the cookies of another server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthCookies {
    /// No response.
    #[default]
    None,
    /// Responses to requests that may not pass.
    Refused,
    /// All responses.
    All,
}

/// The server that is asked about the requests for a route.
#[derive(Debug)]
pub(crate) struct ForwardAuth {
    upstream: Arc<Upstream>,
    target: Uri,
    request: AuthRequest,
    /// Names of requests, and of responses.
    copy: Vec<(HeaderName, HeaderName)>,
    refusal: AuthRefusal,
    cookies: AuthCookies,
}

impl ForwardAuthConfig {
    /// `None`: there are problems.
    pub(super) fn build(
        &self,
        upstreams: &mut Upstreams,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<ForwardAuth> {
        let before = problems.len();
        let to_key = format!("{key}.to");
        let (server, target) = match &self.upstream {
            Some(name) => (upstreams.find(name, &format!("{key}.upstream"), problems), self.to.reveal()),
            None => {
                let (url, target) = split(self.to.reveal());
                let url = At { value: SecretUrl::from(url.to_owned()), span: self.to.span.clone() };
                // A word is the name of no upstream here.
                match url.reveal().contains(':') {
                    true => (upstreams.find(&url, &to_key, problems), target),
                    false => {
                        let what = "is not a URL: write for instance http://127.0.0.1:9091/verify, or name an upstream and write a path";
                        problems.add(&self.to.span, &to_key, what);
                        (None, "/")
                    }
                }
            }
        };
        let is_path = target.starts_with('/') && !target.contains('#');
        let target = Uri::try_from(target).ok().filter(|_| is_path);
        if target.is_none() {
            problems.add(&self.to.span, &to_key, "has no path: write for instance http://127.0.0.1:9091/verify");
        }
        let mut field = |name: &str, span: &Range<usize>, of: &str| {
            let lower = name.to_ascii_lowercase();
            let field = HeaderName::try_from(&lower).ok();
            let field = field.filter(|_| is_name(name) && !is_hop_by_hop(&lower) && lower != "host");
            if field.is_none() {
                let what = format!("{name:?} cannot be copied: name a field, for instance Remote-User");
                problems.add(span, &format!("{key}.{of}"), what);
            }
            field
        };
        let mut copy = Vec::new();
        for name in self.copy.iter() {
            copy.extend(field(name, &self.copy.span, "copy").map(|field| (field.clone(), field)));
        }
        for (name, source) in self.copy_as.iter() {
            let span = &self.copy_as.span;
            copy.extend(field(name, span, "copy_as").zip(field(source, span, "copy_as")));
        }
        let request = AuthRequest::build(self, known, key, problems);
        if problems.len() > before {
            return None;
        }
        let (refusal, cookies) = (self.refusal, self.cookies);
        Some(ForwardAuth { upstream: server?, target: target?, request: request?, copy, refusal, cookies })
    }
}

/// The server and the path of a URL. Without a path, it is the root, or empty behind a Unix socket.
fn split(url: &str) -> (&str, &str) {
    if let Some(rest) = url.strip_prefix("unix:") {
        let end = rest.rfind(":/").map(|at| at + "unix:".len());
        return end.map_or((url, ""), |end| (&url[..end], &url[end + 1..]));
    }
    let authority = url.find("://").map_or(0, |at| at + 3);
    url[authority..].find('/').map_or((url, "/"), |at| url.split_at(authority + at))
}

impl ForwardAuth {
    /// The fields that it copies.
    pub(super) fn copied(&self) -> impl Iterator<Item = &HeaderName> {
        self.copy.iter().map(|(name, _)| name)
    }

    /// The URL that is asked, without its query, which may hold a secret.
    pub(super) fn url(&self) -> String {
        format!("{}{}", self.upstream.name, self.target.path())
    }

    /// Whether a server learns the ends of a client's connection.
    pub(super) fn names_endpoints(&self) -> bool {
        self.upstream.names_endpoints()
    }

    /// Whether the client gets the cookies of a response.
    fn sets_cookies_of(&self, reply: &Reply) -> bool {
        match self.cookies {
            AuthCookies::None => false,
            AuthCookies::Refused => !is_consent(reply),
            AuthCookies::All => true,
        }
    }

    /// Asks whether a request for `uri` may pass: the fields that it gets then, or the answer for the client. `cookies`: gets the cookies for the client.
    async fn ask(
        &self,
        values: &Values<'_>,
        uri: &str,
        hop: &Hop<'_>,
        cookies: &mut Vec<HeaderValue>,
    ) -> Result<Vec<FieldChange>, Box<Response>> {
        let request = values.request;
        let refuse = |status| Err(Box::new(Response::plain(status)));
        if is_loop(request) {
            let what = "the request has come back: the server that is asked whether it may pass leads here again";
            return Err(Box::new(Response::plain(Status::LOOP_DETECTED).because(Some(io::Error::other(what)))));
        }
        let url = format!("{}://{}{uri}", hop.scheme, hop.host.unwrap_or_default());
        let (Ok(method), Ok(uri), Ok(url)) =
            (HeaderValue::from_str(request.method.as_str()), HeaderValue::try_from(uri), HeaderValue::try_from(url))
        else {
            return refuse(Status::BAD_REQUEST);
        };
        let mut fields = self.request.fields(request, hop);
        // These fields concern the requested resource, not the one that is asked for here.
        for name in OF_THE_RESOURCE {
            fields.map_mut().remove(name);
        }
        let about = [
            (METHOD, Some(method.clone())),
            (URI, Some(uri.clone())),
            (ORIGINAL_METHOD, Some(method)),
            (ORIGINAL_URI, Some(uri)),
            (ORIGINAL_URL, Some(url)),
        ];
        apply(&about, fields.map_mut());
        let Ok(host) = self.request.change(values, fields.map_mut()) else { return refuse(Status::BAD_REQUEST) };
        let mut forwarded =
            Forwarded { endpoints: hop.endpoints.map(Box::new), ..Forwarded::get(self.target.clone(), fields, host) };
        let (trace, result) = Box::pin(forward(&self.upstream, &mut forwarded)).await;
        if let Ok(reply) = &result
            && self.sets_cookies_of(reply)
            && (is_consent(reply) || self.refusal != AuthRefusal::Response)
        {
            cookies.extend(reply.fields.get_all(header::SET_COOKIE).iter().cloned());
        }
        match result {
            Err(failure) => Err(Box::new(failed(&failure, Some(trace), &self.upstream))),
            Ok(reply) if is_consent(&reply) => {
                let changes = self.copy.iter();
                let changes = changes.map(|(name, source)| (name.clone(), value(&reply.fields, source))).collect();
                drain(reply).await;
                Ok(changes)
            }
            Ok(reply) if self.refusal != AuthRefusal::Response => {
                let mut response = refused(&reply, self.refusal);
                drain(reply).await;
                response.upstream = Some(Box::new(trace));
                Err(Box::new(response))
            }
            Ok(reply) => {
                let upstream = Some(Box::new(trace));
                Err(Box::new(Response { upstream, is_refusal: true, ..*of_reply(reply) }))
            }
        }
    }
}

/// Reads the rest of a short answer, so that its connection is used again.
async fn drain(reply: Reply) {
    drop(timeout(DRAIN, discard(reply.body.into())).await);
}

/// Whether a response lets the request pass.
fn is_consent(reply: &Reply) -> bool {
    (200..300).contains(&reply.status.code())
}

/// The response to a client by the status, and the Location, of a server's answer.
fn refused(reply: &Reply, refusal: AuthRefusal) -> Response {
    let location = reply.fields.get(header::LOCATION).filter(|_| refusal == AuthRefusal::Redirect);
    if let (Status::UNAUTHORIZED, Some(location)) = (reply.status, location.and_then(|value| value.to_str().ok())) {
        let mut response = Response::plain(Status::FOUND);
        response.fields.location = Some(location.to_owned());
        return response;
    }
    match reply.status {
        Status::FORBIDDEN => Response::plain(Status::FORBIDDEN),
        Status::UNAUTHORIZED => {
            let mut response = Response::plain(Status::UNAUTHORIZED);
            for challenge in reply.fields.get_all(header::WWW_AUTHENTICATE) {
                response.fields.extra.add_octets("WWW-Authenticate", challenge.as_bytes());
            }
            response
        }
        other => {
            let what = format!("the server that is asked whether requests may pass answered {}", other.code());
            Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(io::Error::other(what)))
        }
    }
}

const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
// INHERITED: the names that configurations of nginx give to the same.
const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// Fields that would have a server answer another question than whether the request may pass.
const OF_THE_RESOURCE: [HeaderName; 9] = [
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    HeaderName::from_static("digest"),
];

/// The value of a field, whose lines are one list. `None`: the response has none.
fn value(fields: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = fields.get_all(name).iter();
    let first = lines.next()?;
    let list = lines.fold(first.as_bytes().to_vec(), |list, line| [&list, &b", "[..], line.as_bytes()].concat());
    HeaderValue::from_bytes(&list).ok()
}

/// Time for the content of a response that lets a request pass. Beyond it, the connection is closed.
const DRAIN: Duration = Duration::from_millis(100);

/// A request, for routes of its site that want to know whether it may pass. Each server is asked once, under whatever paths it is met, and once more about
/// the path that is forwarded, if a rewrite made it.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    site: &'a Site,
    /// The route of the path that was requested.
    route: &'a Route,
    request: &'a Request<'a>,
    client: Client,
    hop: Hop<'a>,
    /// Servers that let it pass, by their addresses.
    passed: Mutex<BTreeMap<usize, Passed>>,
    /// The cookies that the client gets, by the addresses of the servers that set them: an entry for each answer.
    cookies: Mutex<Vec<(usize, Vec<HeaderValue>)>>,
    /// See [`Inbound::gone`]. `None`: the request that is forwarded has it.
    gone: Mutex<Option<oneshot::Receiver<()>>>,
}

/// A server that lets a request pass.
#[derive(Debug)]
struct Passed {
    by: Arc<ForwardAuth>,
    /// The path and query that it was last asked about.
    uri: String,
    /// The fields that are copied from its response.
    fields: Vec<FieldChange>,
}

impl<'a> Asking<'a> {
    /// Takes the end of the client from `inbound`, until [`Self::prepare`].
    pub(super) fn new(
        site: &'a Site,
        route: &'a Route,
        (request, client): (&'a Request<'a>, Client),
        inbound: &mut Inbound,
    ) -> Self {
        let hop = inbound.hop(request.authority);
        let (passed, cookies, gone) = (Mutex::default(), Mutex::default(), Mutex::new(inbound.gone.take()));
        Asking { site, route, request, client, hop, passed, cookies, gone }
    }

    /// Gives a request that is forwarded the fields of the answers, and the end of the client.
    pub(super) fn prepare(&self, inbound: &mut Inbound) {
        inbound.fields = self.fields();
        inbound.gone = self.gone.lock().take();
    }

    /// Takes back the end of the client when the request was forwarded: another route may ask.
    pub(super) fn resume(&self, inbound: &mut Inbound) {
        *self.gone.lock() = inbound.gone.take();
    }

    /// The refusal if the server of `auth` does not let the request pass.
    pub(super) async fn refusal(&self, auth: &Arc<ForwardAuth>) -> Option<Box<Response>> {
        if self.passed.lock().contains_key(&Arc::as_ptr(auth).addr()) {
            return None;
        }
        let Target::Path { path, query } = self.request.target else {
            return Some(Response::plain(Status::BAD_REQUEST).into());
        };
        let uri = self.site.path_asked(path, self.route).and_then(|path| uri(&path, query));
        match uri {
            Some(uri) => self.ask(auth, uri).await,
            None => Some(Response::plain(Status::BAD_REQUEST).into()),
        }
    }

    /// The refusal if a server that let the request pass does not let it pass with the path and query that are forwarded.
    pub(super) async fn refusal_of_forwarded(&self, path: &str, query: Option<&str>) -> Option<Box<Response>> {
        let Some(uri) = uri(path, query) else { return Some(Response::plain(Status::BAD_REQUEST).into()) };
        let others: Vec<_> = {
            let passed = self.passed.lock();
            passed.values().filter(|passed| passed.uri != uri).map(|passed| Arc::clone(&passed.by)).collect()
        };
        for auth in &others {
            if let Some(refusal) = self.ask(auth, uri.clone()).await {
                return Some(refusal);
            }
        }
        None
    }

    async fn ask(&self, auth: &Arc<ForwardAuth>, uri: String) -> Option<Box<Response>> {
        let mut cookies = Vec::new();
        let answer = {
            let values = Values { site: self.site, request: self.request, client: self.client };
            let mut answer = pin!(auth.ask(&values, &uri, &self.hop, &mut cookies));
            poll_fn(|cx| match poll_gone(&mut self.gone.lock(), cx) {
                Poll::Ready(()) => Poll::Ready(Err(Box::new(Response::plain(Status::CLIENT_CLOSED_REQUEST)))),
                Poll::Pending => answer.as_mut().poll(cx),
            })
            .await
        };
        let server = Arc::as_ptr(auth).addr();
        {
            // A server that is asked again, about the path that is forwarded, may change its cookies.
            let mut all = self.cookies.lock();
            for (_, earlier) in all.iter_mut().filter(|(other, _)| *other == server) {
                earlier.retain(|earlier| !cookies.iter().any(|cookie| cookie_name(cookie) == cookie_name(earlier)));
            }
            all.push((server, cookies));
        }
        match answer {
            Ok(fields) => {
                self.passed.lock().insert(server, Passed { by: Arc::clone(auth), uri, fields });
                None
            }
            Err(refusal) => Some(refusal),
        }
    }

    /// Adds the cookies that servers set.
    pub(super) fn add_cookies(&self, fields: &mut Fields) {
        for cookie in self.cookies.lock().drain(..).flat_map(|(_, cookies)| cookies) {
            fields.extra.add_octets("Set-Cookie", cookie.as_bytes());
        }
    }

    /// The fields that a forwarded request gets instead of the client's.
    fn fields(&self) -> Vec<FieldChange> {
        let passed = self.passed.lock();
        let mut fields: Vec<FieldChange> = self.site.copied_fields().map(|name| (name.clone(), None)).collect();
        let copied = passed.values().flat_map(|passed| &passed.fields);
        fields.extend(copied.filter(|(_, value)| value.is_some()).cloned());
        fields
    }
}

/// The name in a value of Set-Cookie.
fn cookie_name(line: &HeaderValue) -> &[u8] {
    let pair = line.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

/// A path and query as they are forwarded.
fn uri(path: &str, query: Option<&str>) -> Option<String> {
    let uri = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    proxy::uri(&uri).map(|uri| uri.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_server_and_a_path() {
        for (url, expected) in [
            ("http://127.0.0.1:9091/verify?x=/1", ("http://127.0.0.1:9091", "/verify?x=/1")),
            ("https://auth.internal", ("https://auth.internal", "/")),
            ("unix:/run/auth.sock:/verify", ("unix:/run/auth.sock", "/verify")),
            ("unix:/run/auth.sock", ("unix:/run/auth.sock", "")),
            ("auth", ("auth", "/")),
        ] {
            assert_eq!(split(url), expected, "{url}");
        }
    }

    #[test]
    fn lines_of_a_field_are_one_list() {
        let mut fields = HeaderMap::new();
        let name = HeaderName::from_static("remote-groups");
        assert_eq!(value(&fields, &name), None);
        fields.append(&name, HeaderValue::from_static("a"));
        fields.append(&name, HeaderValue::from_static("b"));
        assert_eq!(value(&fields, &name).unwrap(), "a, b");
    }
}
