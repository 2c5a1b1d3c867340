//! Answering a request: the order of the steps.
//!
//! ```text
//! route ─► limits ─► maintenance ─► HTTPS ─► network ─► preflight ─► method ─► password ─► forward_auth ─► action ─► file ─► other indexes ─► listing ─► fallback
//!                                                                                                                                                  │
//!                                                                                          fields, CORS ◄─ error page ◄───────────────────────────┘
//! ```
//!
//! The route comes first (`route/`): each step has the settings of the route that the path belongs to. After an action that leads elsewhere
//! (`turns.rs`: rewrite, try), the guards and the action of the next route follow.
//!
//! Maintenance goes before everything that tells paths or clients apart, so that nothing of the site shows. The network check follows, since it costs least.
//! Preflight requests carry no password. A file sent under another path (a rewritten path, an index, the fallback) must pass networks and passwords under its
//! own name too, so that neither can be bypassed. A precompressed sibling gives way to its original where a network refuses it, or where it needs a password
//! that was not checked for the original. The file of an error page is sent even if networks or passwords refuse its path, since a refusal may have a page; one
//! that another route has passes that route's guards. A client over its limits is refused before all this, with the site's fields and error page.
//!
//! A step that waits (for a disk, a password, a directory) suspends only its own request.

mod accel;
mod archive;
mod at_once;
mod dictionary;
mod digest;
mod error_page;
mod file;
mod forward;
mod guards;
mod permit;
mod refusal;
mod rehearsal;
mod turns;

use std::net::IpAddr;
use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::request::FieldLines;
use sealion_http::{Fields, HttpTime, Request, Status, Target};
use tokio::task::spawn_blocking;

pub(crate) use self::at_once::answer_at_once;
use self::refusal::{refused, refused_by};
use self::rehearsal::Rehearsal;
pub(super) use self::rehearsal::{Networks, Rehearsed, rehearse};
use self::turns::Turn;
pub(super) use self::turns::query_behind;
use super::accel::KeptFields;
use super::early_hints::is_navigation;
use super::forward_auth::Asking;
use super::forwarded_path::ForwardedPath;
use super::headers::Headers;
use super::locate::path_of;
use super::maintenance::Maintenance;
use super::route::{Action, ColdPath, Disk, FileLocation, Route};
use super::{Site, error_text, plain_http, proxy};
use crate::files::cache::Files;
use crate::files::resolve::{Found, SiteFile, Unresolved};
use crate::limits::{Refusal, SiteLimits};
use crate::placeholders::{Asked, Led};
use crate::response::Response;
use crate::upstream::Inbound;

/// The facts about a client that a site's rules use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Client {
    /// The client's address; `None` over a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The other end of the connection: the client, or the proxy before it. `None` over a Unix socket.
    pub(crate) remote: Option<IpAddr>,
    /// The limit that the client exceeds.
    pub(crate) refusal: Option<Refusal>,
    /// How the request came, if the cache of responses may answer it at once: it has no content, and asks for no other protocol.
    pub(crate) arrival: Option<Arrival>,
    /// Whether its scheme is `http`.
    pub(crate) is_plain: bool,
}

/// How a request came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    /// Whether a trusted proxy sent it.
    pub(crate) is_trusted: bool,
}

/// Answers a request for `site` where [`answer_at_once`] does not. `now` is the value of Date.
///
/// `inbound`: the facts for a server, if the request is forwarded.
pub(crate) async fn answer(
    site: &Site,
    request: &Request<'_>,
    client: Client,
    now: HttpTime,
    mut inbound: Inbound,
) -> Box<Response> {
    let (answering, path) = match Answering::at_hand(site, request, client, now) {
        Ok(found) => found,
        Err(cold) => {
            Box::pin(look_up(site, request, client, cold)).await;
            Answering::new(site, request, client, now)
        }
    };
    let auth = site.asks().then(|| Asking::new(site, answering.route, (request, client), &mut inbound));
    let mut response = Answering { auth: auth.as_ref(), ..answering }.answer(path, &mut inbound).await;
    if let Some(auth) = &auth {
        auth.add_cookies(&mut response.fields);
    }
    response
}

/// Waits for the disk, so that the choice of a route does not. A file system may keep no entry at hand, such as tmpfs for a missing name: it was asked just now.
async fn look_up(site: &Site, request: &Request<'_>, client: Client, first: ColdPath) {
    let mut cold = first;
    for _ in 0..MAX_LOOKUPS {
        let own = cold.clone();
        if spawn_blocking(move || own.look_up()).await.is_err() {
            return;
        }
        match site.locate_at_hand(request, client) {
            Err(next) if !next.is_same(&cold) => cold = next,
            _ => return,
        }
    }
}

/// Paths that are looked up for the choice of a route, before it waits for the disk itself.
const MAX_LOOKUPS: usize = 16;

/// Whether the response needs no file and no server: a refusal or a redirect. An error page may.
pub(crate) fn is_refused_or_redirected(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> bool {
    let Ok((answering, path)) = Answering::at_hand(site, request, client, now) else { return false };
    let redirects = answering.route.redirects() && !answering.route.features.authenticates();
    path.map_or(true, |path| redirects || answering.refuse_or_redirect(&path).is_some())
}

/// The links that the client gets while it waits for [`answer`], in a response 103. `None`: none, or the request will be refused or redirected.
pub(crate) fn early_hints<'a>(
    site: &'a Site,
    request: &Request<'_>,
    client: Client,
    now: HttpTime,
) -> Option<&'a [String]> {
    if !site.has_early_hints() {
        return None;
    }
    let (answering, path) = Answering::at_hand(site, request, client, now).ok()?;
    let path = path.ok()?;
    let links = site.route(answering.route.number).features.early_hints.as_ref().filter(|_| is_navigation(request))?;
    let is_answered_at_once = || {
        answering.needs_more(&path, None)
            || answering.route.has_own_answer()
            || answering.refuse_or_redirect(&path).is_some()
    };
    (!is_answered_at_once()).then_some(links)
}

/// The response to a request for `site` that could not be parsed, or whose content could not be read.
pub(crate) async fn refuse(site: &Site, status: Status) -> Response {
    let mut response = Response::plain(status);
    let route = &site.root;
    if let Some(page) = route.error_file(status) {
        route.add_error_page(&mut response, &page, &FieldLines::default(), |_| false).await;
    }
    response.fields.anonymous = route.features.anonymous;
    if let Some(headers) = &route.features.headers {
        headers.add(status, None, &mut response.fields);
    }
    response
}

/// A request being answered.
#[derive(Clone, Copy)]
struct Answering<'a> {
    site: &'a Site,
    route: &'a Route,
    request: &'a Request<'a>,
    client: Client,
    now: HttpTime,
    /// Asks other servers whether the request may pass.
    auth: Option<&'a Asking<'a>>,
    /// Stands for other servers. `None`: they are asked.
    rehearsal: Option<&'a Rehearsal>,
    /// Times that another path or route was gone on with.
    turns: usize,
    /// The limits that have counted the request.
    counted: Counted<'a>,
    /// How a route led to the path. `None`: the client asked for it.
    led: Option<Led>,
    /// Fields for the file, if an application leads here.
    accel: Option<&'a KeptFields>,
}

/// A response, and the rules that add fields to it.
struct Answer {
    response: Box<Response>,
    /// The path of the file that is sent: decoded, without leading slash. `None`: the path that was requested.
    name: Option<Vec<u8>>,
    /// The number of the route that adds the fields. `None`: the route that was chosen first.
    route: Option<Option<usize>>,
    /// Whether no error page replaces the content.
    is_final: bool,
    /// How often the request went on with another path or route.
    turns: usize,
    /// The outcome of the guards of the requested path.
    guards: Guards,
    /// Whether limits of a route on the way counted the request.
    is_counted: bool,
}

/// The limits that counted a request on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Counted<'a> {
    /// Whether any did.
    is_any: bool,
    /// Whether an internal redirect followed: no other limits count the request.
    is_settled: bool,
    /// The last ones, if they are known.
    by: Option<&'a SiteLimits>,
}

/// The outcome of the guards of the requested path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guards {
    /// The request may have the content of the path.
    Passed,
    /// Networks permit the request; passwords and other servers were not asked.
    Unasked,
    /// The request may not have the content of the path.
    Refused,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Box::new(response).into()
    }
}

impl From<Box<Response>> for Answer {
    fn from(response: Box<Response>) -> Self {
        Answer {
            response,
            name: None,
            route: None,
            is_final: false,
            turns: 0,
            guards: Guards::Passed,
            is_counted: false,
        }
    }
}

impl Answer {
    /// The refusal of a guard of a route, whose error pages it gets.
    fn refused(refusal: impl Into<Box<Response>>, route: &Route) -> Self {
        let response = refusal.into();
        Answer { route: Some(route.number), guards: refused_by(&response), ..response.into() }
    }
}

impl<'a> Answering<'a> {
    /// With the path of the request, or the status for a path that cannot be served.
    fn new(
        site: &'a Site,
        request: &'a Request<'a>,
        client: Client,
        now: HttpTime,
    ) -> (Self, Result<SitePath<'a>, Status>) {
        let (route, path) = site.locate(request, client, Disk::Waits);
        (Self::at_route(site, route, (request, client, now)), path)
    }

    /// The same without waiting for the disk.
    fn at_hand(
        site: &'a Site,
        request: &'a Request<'a>,
        client: Client,
        now: HttpTime,
    ) -> Result<(Self, Result<SitePath<'a>, Status>), ColdPath> {
        let (route, path) = site.locate_at_hand(request, client)?;
        Ok((Self::at_route(site, route, (request, client, now)), path))
    }

    /// At the beginning of the request's way.
    fn at_route(site: &'a Site, route: &'a Route, (request, client, now): (&'a Request<'a>, Client, HttpTime)) -> Self {
        let counted = Counted::default();
        Answering {
            site,
            route,
            request,
            client,
            now,
            auth: None,
            rehearsal: None,
            turns: 0,
            counted,
            led: None,
            accel: None,
        }
    }

    /// Adds the fields of the route that answered, and says for the log which it is. `name`: the file that is sent, or the path that was requested.
    fn dress(&self, response: &mut Response, own: &Self, name: &[u8]) {
        error_text::show_as_page(response, || self.request.fields.singleton("accept").value());
        own.add_fields(response, name);
        own.compress(response);
        self.sign(response, own);
    }

    /// Says for the log and for Alt-Svc which route answered.
    fn sign(&self, response: &mut Response, own: &Self) {
        let (first, last) = (&self.route.features, &own.route.features);
        response.is_unlogged = first.is_unlogged || last.is_unlogged;
        response.route = own.route.shown_number();
        response.is_unannounced = first.is_unannounced || last.is_unannounced;
    }

    /// Compresses the response of an application, if the route says so.
    fn compress(&self, response: &mut Response) {
        if let Some(compression) = &self.route.features.compression {
            compression.apply(response, self.request, self.client.address);
        }
    }

    /// Whether the server, or the cache, must not see the range that is asked for, because of compression.
    fn hides_range(&self) -> bool {
        self.route.features.compression.as_ref().is_some_and(|compression| compression.hides_range(self.request))
    }

    /// Takes all steps, in order.
    async fn answer(&self, path: Result<SitePath<'_>, Status>, inbound: &mut Inbound) -> Box<Response> {
        let path = match path {
            Ok(path) => path,
            Err(status) => {
                let response = self.refuse_client().unwrap_or_else(|| Response::plain(status));
                return Box::pin(self.finish(response.into(), b"")).await;
            }
        };
        let mut answer = match self.refuse_or_redirect(&path) {
            Some(response) => Answer { guards: refused_by(&response), ..response.into() },
            None => self.respond(&path, inbound).await,
        };
        if answer.response.status.code() >= 400 && !answer.response.fields.forwarded && !answer.is_final {
            answer = Box::pin(self.lead_elsewhere(answer, &path, inbound)).await;
        }
        self.finish(answer, path.as_bytes()).await
    }

    /// As the route that answered.
    fn at(&self, answer: &Answer) -> Self {
        let route = answer.route.map_or(self.route, |number| self.site.route(number));
        let counted = Counted { is_any: self.counted.is_any || answer.is_counted, ..self.counted };
        Answering { route, counted, ..*self }
    }

    /// Adds the error page and the header fields of the route that answered. `asked`: the path that was requested.
    async fn finish(&self, answer: Answer, asked: &[u8]) -> Box<Response> {
        let own = self.at(&answer);
        let Answer { mut response, name, is_final, .. } = answer;
        if !response.fields.forwarded && !is_final {
            own.add_page_file(&mut response).await;
        }
        // The connection is paced by the route that was chosen first.
        let (first, last) = (self.route.limits.as_ref(), own.route.limits.as_ref());
        let limits = last.filter(|last| first.is_none_or(|first| !Arc::ptr_eq(first, last)));
        response.rate = response.rate.or(limits.and_then(|limits| limits.bandwidth()));
        self.dress(&mut response, &own, name.as_deref().unwrap_or(asked));
        response
    }

    /// Adds the route's header fields. `name`: the file that is sent, or the path that was requested.
    fn add_fields(&self, response: &mut Response, name: &[u8]) {
        let features = &self.route.features;
        let Response { fields, status, is_refusal, .. } = response;
        let status = *status;
        let add = |headers: &Headers, asked: Option<&Asked<'_>>, fields: &mut Fields| {
            headers.add(status, asked, fields);
            // A refusal and its cookies are for one client.
            if !*is_refusal {
                headers.replace_cache_control(status, asked, fields);
                if matches!(&*self.route.action, Action::Respond(_) | Action::Redirect(_)) {
                    headers.add_cache_control(status, asked, fields);
                }
            }
        };
        fields.anonymous = features.anonymous;
        if let Some(headers) = &features.headers {
            match SitePath::of_octets(name).ok().filter(|_| headers.have_placeholders()) {
                None => add(headers, None, fields),
                Some(path) => {
                    let mut media_type = Vec::new();
                    fields.content_type.iter().for_each(|own| own.write(&mut media_type));
                    let media_type = media_type.split(|byte| *byte == b';').next();
                    let path = self.path_of_groups(path);
                    add(headers, Some(&Asked { media_type, ..self.asked(&path) }), fields);
                }
            }
        }
        if let Some(value) = &features.use_as_dictionary
            && !self.client.is_plain
            && matches!(status, Status::OK | Status::NOT_MODIFIED)
            && !fields.extra.has("use-as-dictionary")
        {
            fields.extra.add("Use-As-Dictionary", value);
        }
        // A preflight response has its CORS fields already.
        if let Some(cors) = features.cors.as_ref().filter(|_| status != Status::NO_CONTENT) {
            cors.add(self.request, fields);
        }
    }

    /// The path that the expression of the route matches: of the file or, where that has another name, the requested one.
    fn path_of_groups<'p>(&'p self, file: SitePath<'p>) -> SitePath<'p> {
        let Some(expression) = &self.route.groups.path else { return file };
        let requested = || path_of(self.raw_path()).ok().map(|(path, _)| path);
        match expression.is_match(file.full()) {
            true => file,
            false => requested().filter(|path| expression.is_match(path.full())).unwrap_or(file),
        }
    }

    /// Takes the steps before the action: password, other servers. Then does the route's action.
    async fn respond(&self, path: &SitePath<'_>, inbound: &mut Inbound) -> Answer {
        let mut user = None;
        if let Some(refusal) = self.guard_here(path, &mut user).await {
            let mut refused = Answer { guards: Guards::Refused, ..refusal.into() };
            refused.response.user = user;
            return refused;
        }
        let requested = ForwardedPath::requested(self.raw_path(), path);
        let mut answer = self.act(Turn { path: requested, asked: path, user: &mut user, inbound }).await;
        answer.response.user = user;
        answer
    }

    fn query(&self) -> Option<&'a str> {
        match self.request.target {
            Target::Path { query, .. } => query,
            Target::Asterisk => None,
        }
    }

    /// `file`, or its original if it is a precompressed sibling that the request may not access. `path`: the path of the original, which the request
    /// may access; `beneath`: the same beneath the root of `files`.
    async fn sibling_or_original(
        &self,
        file: Arc<SiteFile>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
    ) -> Result<Arc<SiteFile>, Unresolved> {
        let Some(coding) = file.coding.filter(|_| self.may_withhold(&file)) else { return Ok(file) };
        if self.may_have_sibling(&path.sibling(coding), Some(path)) {
            return Ok(file);
        }
        match files.find(beneath, &FieldLines::default()).await? {
            Found::File(original) => Ok(original),
            Found::Directory => Err(Unresolved::not_found(None)),
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
