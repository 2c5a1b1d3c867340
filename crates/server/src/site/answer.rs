//! Answering a request: the order of the steps.
//!
//! ```text
//! limits ─► maintenance ─► HTTPS ─► network ─► preflight ─► redirect ─► method ─► password ─► forward_auth ─► rewrite ─► proxy ─► mount ─► file ─► other indexes ─► listing ─► fallback
//!                                                                                                                                                                  │
//!                                                                                                          fields, CORS ◄─ error page ◄───────────────────────────┘
//! ```
//!
//! Maintenance goes before everything that tells a path or a client from another, so that nothing of the site shows. The network check follows, since it costs least. Preflight requests carry no password. A file sent under another path (a
//! rewritten path, an index, the fallback) must pass networks and passwords under its own name too, so that neither can be
//! bypassed. A precompressed sibling gives way to its original where a network refuses it, or where it needs a password that was not
//! checked for the original. An error page is sent whatever networks and passwords say of it, since a refusal may have a page. A client over its limits is refused before all this, with the site's fields and error page.
//!
//! A step that waits (for a disk, a password, a directory) suspends only its own request.

mod archive;
mod digest;
mod file;
mod guards;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use sealion_http::path::{SitePath, Unnameable};
use sealion_http::request::FieldLines;
use sealion_http::{Fields, HttpTime, Method, Request, Status, Target};
use tokio::task::spawn_blocking;

use super::basic_auth::{BasicAuth, Decision, Verdict};
use super::forward_auth::Asking;
use super::maintenance::Maintenance;
use super::{Site, error_text, plain_http, proxy, readings};
use crate::files::cache::Files;
use crate::files::resolve::{Found, SiteFile, Unresolved};
use crate::limits::Refusal;
use crate::response::{Body, Response, of_file};
use crate::upstream::Inbound;

/// What a site's rules ask of the client that sent a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Client {
    /// The client's address; `None` over a Unix socket.
    pub(crate) address: Option<IpAddr>,
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

/// Answers a request for `site` where [`answer_from_cache`] does not. `now` is the value of Date.
///
/// `inbound`: what a server learns if the request is forwarded.
pub(crate) async fn answer(
    site: &Site,
    request: &Request<'_>,
    client: Client,
    now: HttpTime,
    mut inbound: Inbound,
) -> Response {
    let auth = site.features.forward_auth.as_ref().map(|auth| Asking::new(auth, site, request, &inbound));
    Answering { site, request, client, now, auth: auth.as_ref() }.answer(&mut inbound).await
}

/// Answers with a cached file or, where a proxy rule has a cache, with a stored response of this worker; without waiting. `None`: [`answer`] has to, in a box: every request would pay for the memory of its future.
pub(crate) fn answer_from_cache(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> Option<Response> {
    Answering { site, request, client, now, auth: None }.answer_from_cache()
}

/// Whether the response needs no file and no server: a refusal or a redirect. An error page may.
pub(crate) fn is_refused_or_redirected(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> bool {
    let answering = Answering { site, request, client, now, auth: None };
    answering.path().map_or(true, |path| answering.refuse_or_redirect(&path).is_some())
}

/// The links that the client gets while it waits for [`answer`], in a response 103. `None`: none, or the request will be refused or redirected.
pub(crate) fn early_hints<'a>(
    site: &'a Site,
    request: &Request<'_>,
    client: Client,
    now: HttpTime,
) -> Option<&'a [String]> {
    let hints = site.features.early_hints.as_ref()?;
    let answering = Answering { site, request, client, now, auth: None };
    let path = answering.path().ok()?;
    let links = hints.find(request, &path)?;
    (!site.features.guard(&path) && answering.refuse_or_redirect(&path).is_none()).then_some(links)
}

/// The response to a request for `site` that could not be parsed, or whose content could not be read.
pub(crate) async fn refuse(site: &Site, status: Status) -> Response {
    let mut response = Response::plain(status);
    if let Some(page) = site.error_page(status) {
        site.add_error_page(&mut response, &page, &FieldLines::default(), |_| false).await;
    }
    response.fields.anonymous = site.features.anonymous;
    if let Some(headers) = &site.features.headers {
        headers.add(b"", &mut response.fields);
    }
    response
}

/// The response to a client that exceeds a limit.
fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::TooMany(wait) => {
            let mut response = Response::plain(Status::TOO_MANY_REQUESTS);
            // Rounded up: a retry within the same second would be refused again.
            response.fields.retry_after = Some(u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX));
            response
        }
        Refusal::NoPlace => Response::plain(Status::SERVICE_UNAVAILABLE),
    }
}

/// A request being answered.
struct Answering<'a> {
    site: &'a Site,
    request: &'a Request<'a>,
    client: Client,
    now: HttpTime,
    /// Asks other servers whether the request may pass.
    auth: Option<&'a Asking<'a>>,
}

/// A response, and the file name that the site's response rules match.
struct Answer {
    response: Response,
    /// The path of the file that is sent: decoded, without leading slash. `None`: the path that was requested.
    name: Option<Vec<u8>>,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Answer { response, name: None }
    }
}

impl<'a> Answering<'a> {
    /// The requested path, or the status for an unservable one.
    fn path(&self) -> Result<SitePath<'a>, Status> {
        let raw = match self.request.target {
            Target::Path { path, .. } => path,
            Target::Asterisk => return Err(Status::METHOD_NOT_ALLOWED),
        };
        let features = &self.site.features;
        let is_read_by_others = || features.has_guards() || self.path_to_forward(raw).is_some();
        if memchr::memchr(b';', raw.as_bytes()).is_some() && readings::hides_slash(raw) && is_read_by_others() {
            return Err(Status::BAD_REQUEST);
        }
        match SitePath::parse(raw, self.site.options.show_dotfiles) {
            Ok(path) => Ok(path),
            Err(Unnameable::Malformed(_)) => Err(Status::BAD_REQUEST),
            Err(Unnameable::NotFound) => self.path_to_forward(raw).ok_or(Status::NOT_FOUND),
        }
    }

    /// A path, where it is forwarded.
    fn path_to_forward(&self, path: &str) -> Option<SitePath<'a>> {
        let proxies = self.site.features.proxies.as_ref()?;
        SitePath::parse_forwarded(path).ok().filter(|path| proxies.find(path).is_some())
    }

    /// The response with a cached file, or with a stored response ([`Self::answer_from_store`]). `None`: [`Self::answer`] makes the response,
    /// because a step before it may wait, neither is in the cache, or there is another answer.
    fn answer_from_cache(&self) -> Option<Response> {
        let features = &self.site.features;
        let path = self.path().ok()?;
        if let Some(proxies) = &features.proxies {
            if let Some(rule) = proxies.find(&path) {
                return self.answer_from_store(rule, &path);
            }
            // Content may be on its way to a rule that covers the path in another reading.
            self.client.arrival?;
        }
        let name_decides = path.names_directory() && (features.depend_on_names() || self.removes_slash_of(&path));
        if features.need_steps_before_files()
            || name_decides
            || self.wants_digest()
            || self.refuse_or_redirect(&path).is_some()
        {
            return None;
        }
        let file = self.site.files.find_cached(&path, &self.request.conditions.accept_encoding)?;
        if self.site.may_withhold(&file) || self.image(&path).is_some() {
            return None;
        }
        let mut response = of_file(self.request, file, self.site.options.max_ranges, self.now);
        if self.site.error_page(response.status).is_some() {
            return None;
        }
        self.add_fields(&mut response.fields, response.status, path.as_bytes());
        Some(response)
    }

    /// The response of an upstream that is stored. `None`: [`Self::answer`] makes the response.
    fn answer_from_store(&self, rule: &proxy::Rule, path: &SitePath<'_>) -> Option<Response> {
        if self.site.features.need_steps_before_proxies() || self.refuse_or_redirect(path).is_some() {
            return None;
        }
        if !rule.answers_from_cache() || !self.permits_readings(rule, path) {
            return None;
        }
        let mut response = rule.answer_at_once(self.request, self.client.arrival?, self.now)?;
        if rule.intercept_errors && self.site.error_page(response.status).is_some() {
            return None;
        }
        self.add_fields(&mut response.fields, response.status, path.as_bytes());
        Some(response)
    }

    /// Takes all steps, in order.
    async fn answer(&self, inbound: &mut Inbound) -> Response {
        let path = match self.path() {
            Ok(path) => path,
            Err(status) => {
                let response = self.refuse_client().unwrap_or_else(|| Response::plain(status));
                return Box::pin(self.finish(response, b"")).await;
            }
        };
        let Answer { response, name } = match self.refuse_or_redirect(&path) {
            Some(response) => response.into(),
            None => self.respond(&path, inbound).await,
        };
        self.finish(response, name.as_deref().unwrap_or(path.as_bytes())).await
    }

    /// Adds the site's error page and header fields. `name`: the file that is sent, or the path that was requested.
    async fn finish(&self, mut response: Response, name: &[u8]) -> Response {
        if !response.fields.forwarded
            && let Some(page) = self.error_page(response.status)
        {
            self.add_error_page(&mut response, &page).await;
        }
        error_text::show_as_page(&mut response, || self.request.fields.singleton("accept").value());
        self.add_fields(&mut response.fields, response.status, name);
        response
    }

    /// Replaces the content with `page`, for which no password is checked.
    async fn add_error_page(&self, response: &mut Response, page: &SitePath<'_>) {
        let may_send = |sibling: &SitePath<'_>| self.may_have_sibling(sibling, None);
        self.site.add_error_page(response, page, &self.request.conditions.accept_encoding, may_send).await;
    }

    /// Adds the site's header fields. `name`: the file that is sent, or the path that was requested.
    fn add_fields(&self, fields: &mut Fields, status: Status, name: &[u8]) {
        let features = &self.site.features;
        fields.anonymous = features.anonymous;
        if let Some(headers) = &features.headers {
            headers.add(name, fields);
        }
        // A preflight response has its CORS fields already.
        if let Some(cors) = features.cors.as_ref().filter(|_| status != Status::NO_CONTENT) {
            cors.add(self.request, name, fields);
        }
    }

    /// Takes the steps before files: password, rewrite, mount. Then answers with the file.
    async fn respond(&self, path: &SitePath<'_>, inbound: &mut Inbound) -> Answer {
        let features = &self.site.features;
        let mut user = None;
        if features.basic_auth.is_some()
            && let Some(refusal) = Box::pin(self.check_password(path, &mut user)).await
        {
            return refusal.into();
        }
        if let Some(auth) = self.auth
            && let Some(refusal) = Box::pin(auth.refusal(path)).await
        {
            return Response { user, ..refusal }.into();
        }
        let rewritten = features.rewrites.as_ref().and_then(|rewrites| rewrites.apply(path));
        let mut answer = match &rewritten {
            None => self.serve_or_forward(path, path, None, &mut user, inbound).await,
            Some(rewritten) => Box::pin(self.respond_rewritten(path, rewritten, &mut user, inbound)).await,
        };
        answer.response.user = user;
        answer
    }

    /// Goes on with the path `rewritten` that a rule made of `path`.
    async fn respond_rewritten(
        &self,
        path: &SitePath<'_>,
        rewritten: &str,
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Answer {
        let Ok(target) = SitePath::parse(rewritten, self.site.options.show_dotfiles) else {
            return Response::plain(Status::NOT_FOUND).into();
        };
        if let Some(refusal) = self.guard(&target, user).await {
            return refusal.into();
        }
        let mut answer = self.serve_or_forward(&target, path, Some(rewritten), user, inbound).await;
        answer.name.get_or_insert_with(|| target.as_bytes().to_vec());
        answer
    }

    /// The site's maintenance, if this client does not see the site meanwhile.
    fn maintenance(&self) -> Option<&'a Maintenance> {
        self.site.features.maintenance.as_ref().filter(|maintenance| !maintenance.admits(self.client.address))
    }

    /// The path of the page for this status.
    fn error_page(&self, status: Status) -> Option<SitePath<'a>> {
        let of_maintenance = || self.maintenance()?.page()?.path();
        (status == Status::SERVICE_UNAVAILABLE).then(of_maintenance).flatten().or_else(|| self.site.error_page(status))
    }

    /// The response to a client that gets none, whatever it asks for.
    fn refuse_client(&self) -> Option<Response> {
        if let Some(refusal) = self.client.refusal {
            return Some(refused(refusal));
        }
        self.maintenance().map(|maintenance| {
            let mut response = Response::plain(Status::SERVICE_UNAVAILABLE);
            response.fields.retry_after = Some(maintenance.retry_after);
            response
        })
    }

    /// The response to a request that needs no file.
    fn refuse_or_redirect(&self, path: &SitePath<'_>) -> Option<Response> {
        let features = &self.site.features;
        if let Some(refusal) = self.refuse_client() {
            return Some(refusal);
        }
        if let Some(redirect) = self.redirect_to_https() {
            return Some(redirect);
        }
        if !self.is_allowed(path) {
            return Some(Response::plain(Status::FORBIDDEN));
        }
        if let Some(response) = features.cors.as_ref().and_then(|cors| cors.preflight(self.request, path.as_bytes())) {
            return Some(response);
        }
        let redirects = features.redirects.as_ref();
        let refusal = match self.request.method {
            Method::Get | Method::Head => return redirects?.answer(path, self.query(), self.origin()),
            // What a server makes of a method is its own affair; TRACE would show the client fields that are made here.
            method if method.as_str() != "TRACE" && self.is_forwarded(path) => None,
            Method::Other(_) => Some(Status::METHOD_NOT_ALLOWED),
            Method::Unknown(_) => Some(Status::NOT_IMPLEMENTED),
        };
        let redirect = redirects.and_then(|redirects| redirects.answer_any_method(path, self.query(), self.origin()));
        redirect.or_else(|| refusal.map(Response::plain))
    }

    /// The response to a request by `http` for a site that answers HTTPS alone. A request of HTTP/1.0 without Host has no other address.
    fn redirect_to_https(&self) -> Option<Response> {
        let port = self.site.https_only.filter(|_| self.client.is_plain)?;
        let (Target::Path { path, query }, Some(authority)) = (self.request.target, self.request.authority) else {
            return Some(Response::plain(Status::BAD_REQUEST));
        };
        let mut response = Response::plain(Status::PERMANENT_REDIRECT);
        response.fields.location = Some(plain_http::over_https(authority, port, path, query));
        Some(response)
    }

    /// The beginning of the URL that was asked for: with its scheme and host.
    fn origin(&self) -> Option<(&'static str, &'a str)> {
        Some((if self.client.is_plain { "http://" } else { "https://" }, self.request.authority?))
    }

    /// Whether a rule forwards the path, after rewrites.
    fn is_forwarded(&self, path: &SitePath<'_>) -> bool {
        let features = &self.site.features;
        let Some(proxies) = &features.proxies else { return false };
        match features.rewrites.as_ref().and_then(|rewrites| rewrites.apply(path)) {
            None => proxies.find(path).is_some(),
            Some(rewritten) => SitePath::parse(&rewritten, self.site.options.show_dotfiles)
                .is_ok_and(|path| proxies.find(&path).is_some()),
        }
    }

    fn query(&self) -> Option<&'a str> {
        match self.request.target {
            Target::Path { query, .. } => query,
            Target::Asterisk => None,
        }
    }

    fn is_allowed(&self, path: &SitePath<'_>) -> bool {
        self.site.features.access.as_ref().is_none_or(|access| access.allows(self.client.address, path))
    }

    /// The refusal if the request may not access the file at `path`.
    async fn guard(&self, path: &SitePath<'_>, user: &mut Option<Box<str>>) -> Option<Response> {
        if !self.is_allowed(path) {
            return Some(Response::plain(Status::FORBIDDEN));
        }
        if self.site.features.basic_auth.is_some()
            && let Some(refusal) = Box::pin(self.check_password(path, user)).await
        {
            return Some(refusal);
        }
        Box::pin(self.auth?.refusal(path)).await
    }

    /// The refusal if the request lacks the password for `path`.
    async fn check_password(&self, path: &SitePath<'_>, user: &mut Option<Box<str>>) -> Option<Response> {
        let basic_auth = self.site.features.basic_auth.as_ref()?;
        let authorization = self.request.fields.singleton("authorization");
        let address = self.client.address;
        let decision: Decision = match basic_auth.check(path, authorization.value()) {
            Verdict::Decided(decision) => decision,
            Verdict::Verify(verification) => match Box::pin(spawn_blocking(move || verification.run(address))).await {
                Ok(decision) => decision,
                Err(error) => {
                    let cause = io::Error::other(format!("blocking task panicked: {error}"));
                    return Some(Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)));
                }
            },
        };
        match decision {
            Ok(passes) => {
                *user = passes.or(user.take());
                None
            }
            Err(response) => Some(*response),
        }
    }

    /// `file`, or its original if it is a precompressed sibling that the request may not access. `path`: that of the original, which the
    /// request may access; `beneath`: the same beneath the root of `files`.
    async fn sibling_or_original(
        &self,
        file: Arc<SiteFile>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
    ) -> Result<Arc<SiteFile>, Unresolved> {
        let Some(coding) = file.coding.filter(|_| self.site.may_withhold(&file)) else { return Ok(file) };
        if self.may_have_sibling(&path.sibling(coding), Some(path)) {
            return Ok(file);
        }
        match files.find(beneath, &FieldLines::default()).await? {
            Found::File(original) => Ok(original),
            Found::Directory => Err(Unresolved::not_found(None)),
        }
    }

    /// Whether the request may access a precompressed sibling. `original`: the file whose passwords the request has; `None`: none was checked.
    ///
    /// No password is checked for a sibling alone. Whether the response is the sibling or the original would tell whether the password is right,
    /// or known from another request, at no cost and without a line for a wrong one.
    fn may_have_sibling(&self, sibling: &SitePath<'_>, original: Option<&SitePath<'_>>) -> bool {
        let needs_more = |basic_auth: &BasicAuth| basic_auth.needs_more(sibling, original);
        let asks_more = |auth: &Asking<'_>| auth.needs_more(sibling, original);
        self.is_allowed(sibling)
            && !self.site.features.basic_auth.as_ref().is_some_and(needs_more)
            && !self.auth.is_some_and(asks_more)
    }

    /// Forwards the request where a rule says so, and answers with a file otherwise. `rewritten`: `path`, encoded, if it was rewritten from
    /// `asked`.
    async fn serve_or_forward(
        &self,
        path: &SitePath<'_>,
        asked: &SitePath<'_>,
        rewritten: Option<&str>,
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Answer {
        let rule = self.site.features.proxies.as_ref().and_then(|proxies| proxies.find(path));
        let Some(rule) = rule else { return self.serve(path, asked, user).await };
        if let Some(refusal) = rule.refusal(self.request) {
            return refusal.into();
        }
        let takes_file = matches!(self.request.method, Method::Get | Method::Head) && !inbound.upgrade;
        let takes_file = takes_file && rule.files_first && self.may_be_file(rewritten, path);
        if takes_file && !Box::pin(self.index_is_script(rule, path)).await {
            let answer = Box::pin(self.serve(path, asked, user)).await;
            if answer.response.status != Status::NOT_FOUND {
                return answer;
            }
        }
        let raw = rewritten.unwrap_or(self.raw_path());
        let readings = match self.is_read_alike(raw, path) {
            true => Vec::new(),
            false => match Box::pin(self.guard_readings(rule, raw, path, user)).await {
                Ok(readings) => readings,
                Err(refusal) => return (*refusal).into(),
            },
        };
        if let Some(auth) = self.auth {
            inbound.fields = auth.fields();
        }
        if rule.runs_scripts() {
            let asked = rewritten.map(|_| asked);
            if let Err(refusal) = Box::pin(self.add_script(rule, path, &readings, asked, user, inbound)).await {
                return (*refusal).into();
            }
        }
        let inbound = std::mem::take(inbound);
        let mut response = Box::pin(rule.forward(self.request, path, rewritten, inbound)).await;
        if rule.intercept_errors && self.site.error_page(response.status).is_some() {
            response = Response { upstream: response.upstream, ..Response::plain(response.status) };
        }
        response.into()
    }

    /// Finds the script that answers, if it is permitted. `asked`: the path before it was rewritten. An error is the refusal.
    async fn add_script(
        &self,
        rule: &proxy::Rule,
        path: &SitePath<'_>,
        readings: &[SitePath<'_>],
        asked: Option<&SitePath<'_>>,
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Result<(), Box<Response>> {
        let plain = |status| Box::new(Response::plain(status));
        let script = match rule.script(path).await {
            None => return Ok(()),
            Some(found) => found.map_err(plain)?,
        };
        // What is run must be permitted under its own name too.
        let name = SitePath::of_octets(&script.name).map_err(|_| plain(Status::NOT_FOUND))?;
        if let Some(refusal) = self.guard_in_all_readings(&name, user).await {
            return Err(Box::new(refusal));
        }
        if let Some(refusal) = self.guard_path_info(rule, &script.name, path, readings, user).await {
            return Err(Box::new(refusal));
        }
        // REQUEST_URI is the path that was asked for, whatever it was rewritten to.
        if let Some(asked) = asked {
            let readings = self.guard_readings(rule, self.raw_path(), asked, user).await?;
            if let Some(refusal) = self.guard_path_info(rule, &script.name, asked, &readings, user).await {
                return Err(Box::new(refusal));
            }
        }
        rule.add_script(script, self.request, inbound);
        Ok(())
    }

    /// Whether the index of a directory is a script that goes before the files that are named after it in the site's `index`.
    async fn index_is_script(&self, rule: &proxy::Rule, path: &SitePath<'_>) -> bool {
        let Some(script) = rule.index_script().filter(|_| path.names_directory()) else { return false };
        let names: Vec<&str> = self.indexes().collect();
        // Files alone, or none after it: a script runs where there is no file.
        if names.iter().position(|name| *name == script).is_none_or(|at| at + 1 == names.len()) {
            return false;
        }
        let (files, mounted_at) = self.mount_of(path);
        let beneath = path.beneath(mounted_at);
        for name in names {
            if name == script {
                let own = path.child(script);
                return rule
                    .script(path)
                    .await
                    .is_some_and(|found| found.is_ok_and(|found| found.name == own.as_bytes()));
            }
            if let Ok(Found::File(_)) = self.find(files, &beneath.child(name)).await {
                return false;
            }
        }
        false
    }
}

impl Site {
    /// Whether `file` has a name of its own that networks or passwords may refuse: it is a precompressed sibling.
    fn may_withhold(&self, file: &SiteFile) -> bool {
        file.is_sibling && self.features.has_guards()
    }

    /// The path of the site's page for this status.
    fn error_page(&self, status: Status) -> Option<SitePath<'_>> {
        self.features.error_pages.as_ref()?.get(status)?.path()
    }

    /// Replaces the content with `page`. If it cannot be opened, the plain content stays. `may_send`: whether a precompressed sibling may be
    /// sent, by its path.
    async fn add_error_page(
        &self,
        response: &mut Response,
        page: &SitePath<'_>,
        accept: &FieldLines<'_>,
        may_send: impl Fn(&SitePath<'_>) -> bool,
    ) {
        let Ok(Found::File(mut file)) = self.files.find(page, accept).await else { return };
        let sibling = file.coding.filter(|_| self.may_withhold(&file)).map(|coding| page.sibling(coding));
        if sibling.is_some_and(|sibling| !may_send(&sibling)) {
            match self.files.find(page, &FieldLines::default()).await {
                Ok(Found::File(original)) => file = original,
                _ => return,
            }
        }
        response.fields.content_type = Some(file.content_type.clone());
        response.fields.content_encoding = file.coding;
        response.fields.varies = file.varies;
        response.body = Body::File { range: 0..file.len, file };
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
