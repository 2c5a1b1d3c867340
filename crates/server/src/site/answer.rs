//! Answering a request: the order of the steps.
//!
//! ```text
//! limits ─► network ─► preflight ─► method ─► redirect ─► password ─► rewrite ─► mount ─► file ─► other indexes ─► listing ─► fallback
//!                                                                                                                        │
//!                                                                fields, CORS ◄─ error page ◄───────────────────────────┘
//! ```
//!
//! The network check comes first, since it costs least. Preflight requests carry no password. A file sent under another path (a
//! rewritten path, an index, the fallback) must pass networks and passwords under its own name too, so that neither can be
//! bypassed. A client over its limits is refused before all this, with the site's fields and error page.
//!
//! A step that waits (for a disk, a password, a directory) suspends only its own request.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;

use sealion_http::accept::prefers_json;
use sealion_http::path::{SitePath, Unnameable};
use sealion_http::request::FieldLines;
use sealion_http::{HttpTime, Method, Request, Status, Target};
use tokio::task::spawn_blocking;

use super::basic_auth::Verdict;
use super::listing::{Listing, Order, ReadDirectory};
use super::listing_page::ShowDirectory;
use super::pages::Page;
use super::{Site, fallback};
use crate::files::cache::Files;
use crate::files::resolve::{Found, Unresolved};
use crate::limits::Refusal;
use crate::response::{Body, Response, of_file};

/// The client that sent a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Client {
    /// The client's address; `None` over a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The limit that the client exceeds.
    pub(crate) refusal: Option<Refusal>,
}

/// Answers a request for `site`. `now` is the value of Date.
pub(crate) async fn answer(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> Response {
    let answering = Answering { site, request, client, now };
    let path = answering.path();
    let name = path.as_ref().map_or(&b""[..], SitePath::as_bytes);
    let Answer { response, name } = match (&path, client.refusal) {
        (_, Some(refusal)) => Answer { response: refused(refusal), name: Cow::Borrowed(name) },
        (Err(status), None) => Answer::plain(*status, b""),
        (Ok(path), None) => answering.respond(path).await,
    };
    answering.complete(response, &name).await
}

/// The response to a request for `site` that could not be parsed, or whose content could not be read.
pub(crate) async fn refuse(site: &Site, status: Status) -> Response {
    let mut response = Response::plain(status);
    site.add_error_page(&mut response, &FieldLines::default()).await;
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
}

/// A response, and the file name that the site's response rules match.
struct Answer<'p> {
    response: Response,
    /// The path of the file that is sent, or else of the request; decoded, without leading slash. Empty if no rule depends on it.
    name: Cow<'p, [u8]>,
}

impl<'p> Answer<'p> {
    fn plain(status: Status, name: &'p [u8]) -> Self {
        Answer { response: Response::plain(status), name: Cow::Borrowed(name) }
    }

    fn into_owned(self) -> Answer<'static> {
        Answer { response: self.response, name: Cow::Owned(self.name.into_owned()) }
    }
}

impl<'a> Answering<'a> {
    /// The requested path, or the status for an unservable one.
    fn path(&self) -> Result<SitePath<'a>, Status> {
        match self.request.target {
            Target::Path { path, .. } => match SitePath::parse(path, self.site.options.show_dotfiles) {
                Ok(path) => Ok(path),
                Err(Unnameable::Malformed(_)) => Err(Status::BAD_REQUEST),
                Err(Unnameable::NotFound) => Err(Status::NOT_FOUND),
            },
            Target::Asterisk => Err(Status::METHOD_NOT_ALLOWED),
        }
    }

    /// Adds the site's error page and header fields.
    async fn complete(&self, mut response: Response, name: &[u8]) -> Response {
        let accept = &self.request.conditions.accept_encoding;
        self.site.add_error_page(&mut response, accept).await;
        let features = &self.site.features;
        let fields = &mut response.fields;
        fields.anonymous = features.anonymous;
        if let Some(headers) = &features.headers {
            headers.add(name, fields);
        }
        // A preflight response has its CORS fields already.
        if let Some(cors) = features.cors.as_ref().filter(|_| response.status != Status::NO_CONTENT) {
            cors.add(self.request, name, fields);
        }
        response
    }

    async fn respond<'p>(&self, path: &'p SitePath<'_>) -> Answer<'p> {
        let features = &self.site.features;
        let name = path.as_bytes();
        let answer = |response| Answer { response, name: Cow::Borrowed(name) };
        if !self.is_allowed(name) {
            return Answer::plain(Status::FORBIDDEN, name);
        }
        if let Some(response) = features.cors.as_ref().and_then(|cors| cors.preflight(self.request, name)) {
            return answer(response);
        }
        match self.request.method {
            Method::Get | Method::Head => {}
            Method::Other(_) => return Answer::plain(Status::METHOD_NOT_ALLOWED, name),
            Method::Unknown(_) => return Answer::plain(Status::NOT_IMPLEMENTED, name),
        }
        let query = self.query();
        let redirected = features.redirects.as_ref();
        if let Some(response) = redirected.and_then(|rules| rules.answer(path, query, self.request.authority)) {
            return answer(response);
        }
        let mut user = None;
        if let Some(refusal) = self.check_password(name, &mut user).await {
            return answer(refusal);
        }
        let rewritten = features.rewrites.as_ref().and_then(|rewrites| rewrites.apply(path));
        let mut answer = match &rewritten {
            None => self.serve(path, path, &mut user).await,
            Some(rewritten) => match SitePath::parse(rewritten, self.site.options.show_dotfiles) {
                Ok(to) => match self.guard(to.as_bytes(), &mut user).await {
                    Some(refusal) => answer(refusal),
                    None => self.serve(&to, path, &mut user).await.into_owned(),
                },
                Err(_) => Answer::plain(Status::NOT_FOUND, name),
            },
        };
        answer.response.user = user;
        answer
    }

    fn query(&self) -> Option<&'a str> {
        match self.request.target {
            Target::Path { query, .. } => query,
            Target::Asterisk => None,
        }
    }

    fn is_allowed(&self, name: &[u8]) -> bool {
        self.site.features.access.as_ref().is_none_or(|access| access.allows(self.client.address, name))
    }

    /// The refusal if the request may not access the file `name`.
    async fn guard(&self, name: &[u8], user: &mut Option<Box<str>>) -> Option<Response> {
        if self.is_allowed(name) {
            self.check_password(name, user).await
        } else {
            Some(Response::plain(Status::FORBIDDEN))
        }
    }

    /// The refusal if the request lacks the password for `name`.
    async fn check_password(&self, name: &[u8], user: &mut Option<Box<str>>) -> Option<Response> {
        let basic_auth = self.site.features.basic_auth.as_ref()?;
        let authorization = self.request.fields.singleton("authorization");
        let mut verdict = basic_auth.check(name, authorization.value(), None);
        if let Verdict::Verify(verification) = verdict {
            let verified = match Box::pin(spawn_blocking(|| verification.run())).await {
                Ok(verified) => verified,
                Err(error) => {
                    let cause = io::Error::other(format!("blocking task panicked: {error}"));
                    return Some(Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)));
                }
            };
            verdict = basic_auth.check(name, authorization.value(), Some(verified));
        }
        match verdict {
            Verdict::Pass(passes) => {
                *user = passes.map(Into::into).or(user.take());
                None
            }
            Verdict::Refuse(response) => Some(*response),
            Verdict::Verify(_) => unreachable!("a verified password is right, wrong or refused"),
        }
    }

    /// Answers with the file or directory at `path`. `asked`: the path before rewriting.
    async fn serve<'p>(&self, path: &'p SitePath<'_>, asked: &SitePath<'_>, user: &mut Option<Box<str>>) -> Answer<'p> {
        let (site, features) = (self.site, &self.site.features);
        let mount = features.mounts.as_ref().and_then(|mounts| mounts.find(path.as_bytes()));
        let (files, mounted_at) = mount.unwrap_or((&site.files, 0));
        // The root of a mount is always a directory.
        let found = if mounted_at == path.as_bytes().len() && mounted_at > 0 && !path.names_directory() {
            Ok((Found::Directory, ""))
        } else {
            self.find_with_indexes(files, &path.beneath(mounted_at)).await
        };
        let missing = match found {
            Ok((Found::File(file), index)) => {
                let mut name = Cow::Borrowed(path.as_bytes());
                if path.names_directory() && features.depend_on_names() {
                    name = Cow::Owned(path.child(index).as_bytes().to_vec());
                    if let Some(refusal) = self.guard(&name, user).await {
                        return Answer { response: refusal, name };
                    }
                }
                return Answer { response: of_file(self.request, file, site.options.max_ranges, self.now), name };
            }
            Ok((Found::Directory, _)) => {
                let shown = if asked.names_directory() { path } else { asked };
                let mut answer = Answer::plain(Status::MOVED_PERMANENTLY, path.as_bytes());
                answer.response.fields.location = Some(shown.with_slash(self.query()));
                return answer;
            }
            Err(missing) => missing,
        };
        if missing.status == Status::NOT_FOUND && path.names_directory() {
            let covers = |listing: &&Listing| listing.covers(path.as_bytes());
            if let Some(listing) = features.listing.as_ref().filter(covers)
                && let Some(response) = self.list(listing, files, &path.beneath(mounted_at), asked).await
            {
                return Answer { response, name: Cow::Borrowed(path.as_bytes()) };
            }
        }
        let response = Response::plain(missing.status).because(missing.cause);
        self.or_fallback(response, path, asked, user).await
    }

    /// The listing of a directory. `None`: the directory does not exist.
    async fn list(
        &self,
        listing: &Listing,
        files: &Files,
        beneath: &SitePath<'_>,
        asked: &SitePath<'_>,
    ) -> Option<Response> {
        let directory = ShowDirectory {
            directory: ReadDirectory {
                root: files.root(),
                name: beneath.as_bytes().into(),
                max_entries: listing.max_entries(),
                show_dotfiles: self.site.options.show_dotfiles,
            },
            asked: asked.as_bytes().into(),
            order: Order::from_query(self.query()),
            json: prefers_json(self.request.fields.singleton("accept").value()),
        };
        match Box::pin(spawn_blocking(|| directory.run())).await {
            Ok(Ok(response)) => Some(*response),
            Ok(Err(unresolved)) if unresolved.status == Status::NOT_FOUND => None,
            Ok(Err(unresolved)) => Some(Response::plain(unresolved.status).because(unresolved.cause)),
            Err(error) => {
                let cause = io::Error::other(format!("blocking task panicked: {error}"));
                Some(Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)))
            }
        }
    }

    /// Replaces a 404 by the fallback where it applies.
    async fn or_fallback<'p>(
        &self,
        mut response: Response,
        path: &'p SitePath<'_>,
        asked: &SitePath<'_>,
        user: &mut Option<Box<str>>,
    ) -> Answer<'p> {
        let mut name = Cow::Borrowed(path.as_bytes());
        let fallback = self.site.features.fallback.as_ref().and_then(Page::path);
        if let (Status::NOT_FOUND, Some(page)) = (response.status, fallback) {
            if fallback::applies(asked.as_bytes(), self.request.fields.singleton("accept").value()) {
                if let Some(refusal) = self.guard(page.as_bytes(), user).await {
                    return Answer { response: refusal, name };
                }
                if let Ok(Found::File(file)) = self.find(&self.site.files, &page).await {
                    response = of_file(self.request, file, self.site.options.max_ranges, self.now);
                    name = Cow::Owned(page.as_bytes().to_vec());
                }
            }
            // The response for this path depends on Accept.
            response.fields.extra.add("Vary", "Accept");
        }
        Answer { response, name }
    }

    async fn find(&self, files: &Files, path: &SitePath<'_>) -> Result<Found, Unresolved> {
        files.find(path, &self.request.conditions.accept_encoding).await
    }

    /// Finds the file at `path`, trying every index of a directory. Returns the name of the index too.
    async fn find_with_indexes<'f>(&self, files: &'f Files, path: &SitePath<'_>) -> Result<(Found, &'f str), Unresolved>
    where
        'a: 'f,
    {
        let missing = match self.find(files, path).await {
            Ok(found) => return Ok((found, files.index())),
            Err(missing) => missing,
        };
        if missing.status == Status::NOT_FOUND && path.names_directory() {
            for index in &self.site.features.more_indexes {
                if let Ok(Found::File(file)) = self.find(files, &path.child(index)).await {
                    return Ok((Found::File(file), index));
                }
            }
        }
        Err(missing)
    }
}

impl Site {
    /// Replaces the content with the site's page for the status. If the page cannot be opened, the plain content stays.
    async fn add_error_page(&self, response: &mut Response, accept: &FieldLines<'_>) {
        let pages = self.features.error_pages.as_ref();
        let Some(path) = pages.and_then(|pages| pages.get(response.status)).and_then(Page::path) else { return };
        let Ok(Found::File(file)) = self.files.find(&path, accept).await else { return };
        response.fields.content_type = Some(file.content_type.clone());
        response.fields.content_encoding = file.coding;
        response.fields.varies = file.varies;
        response.body = Body::File { range: 0..file.len, file };
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
