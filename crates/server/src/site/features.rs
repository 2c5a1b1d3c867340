//! The order of steps on a site that has more than files.
//!
//! ```text
//! limits ─► network ─► preflight ─► method ─► redirect ─► password ─► rewrite ─► mount ─► file ─► other indexes ─► listing ─► fallback
//!                                                                                                                        │
//!                                                                fields, CORS ◄─ error page ◄───────────────────────────┘
//! ```
//!
//! Networks come first, since they cost least. A preflight request has no password. What is sent in the place of what was asked for (a rewritten
//! path, an index, the fallback) has to pass networks and passwords under its own name too, so that none leads around them. A client that asks for too
//! much is refused before all this, with the fields and the page that errors have here.

use super::access::Access;
use super::basic_auth::{BasicAuth, Verdict};
use super::cors::Cors;
use super::fallback;
use super::headers::{Headers, HeadersConfig};
use super::listing::{Listing, Order, ReadDirectory};
use super::listing_page::ShowDirectory;
use super::mounts::Mounts;
use super::moves::{Redirects, Rewrites};
use super::negotiation::prefers_json;
use super::pages::{ErrorPages, Page};
use super::{Site, SiteConfig};
use crate::config::Problems;
use crate::errand::{Errand, Findings};
use crate::file_cache::Files;
use crate::handler::{Client, send};
use crate::http_time::HttpTime;
use crate::request::{Method, Request, Target};
use crate::resolve::{Found, Root, Unresolved};
use crate::response::{Body, Response, Status};
use crate::target::{SitePath, Unnameable};

/// What a site has besides files.
#[derive(Debug, Default)]
pub struct Features {
    /// Whether Server is left out.
    pub anonymous: bool,
    /// Who may ask.
    pub access: Option<Access>,
    /// What other sites' scripts may read.
    pub cors: Option<Cors>,
    /// Where clients are sent.
    pub redirects: Option<Redirects>,
    /// Who needs a password.
    pub basic_auth: Option<BasicAuth>,
    /// Paths that stand for others.
    pub rewrites: Option<Rewrites>,
    /// Other directories.
    pub mounts: Option<Mounts>,
    /// Names beside the first that stand for a directory.
    pub more_indexes: Vec<String>,
    /// Directories that are shown.
    pub listing: Option<Listing>,
    /// The page of paths without a file.
    pub fallback: Option<Page>,
    /// The pages of errors.
    pub error_pages: Option<ErrorPages>,
    /// Fields of responses.
    pub headers: Option<Headers>,
}

impl SiteConfig {
    /// Builds what the keys of a site say. `None`: they say nothing.
    pub(super) fn features(
        &self,
        root: &Root,
        files: impl FnMut(Root) -> Files,
        plain: bool,
        problems: &mut Problems,
    ) -> Option<Box<Features>> {
        for index in &self.index {
            if index.is_empty() || index.contains('/') || matches!(index.as_str(), "." | "..") {
                problems.add(&index.span, "site.index", format!("{:?} is no name of a file", index.value));
            }
        }
        if self.index.is_empty() {
            problems.add(&(0..0), "site.index", "is empty: leave it out, or name a file, for instance index.html");
        }
        let fields = HeadersConfig {
            rules: &self.headers,
            cache_control: &self.cache_control,
            security: self.security_headers,
            hsts: &self.hsts,
            plain,
        };
        let fallback = self.fallback.as_ref();
        let features = Features {
            anonymous: !self.server_header,
            access: Access::build(&self.access, "site.access", problems),
            cors: self.cors.build("site.cors", problems),
            redirects: Redirects::build(&self.redirects, "site.redirects", problems),
            basic_auth: BasicAuth::build(&self.basic_auth, "site.basic_auth", problems),
            rewrites: Rewrites::build(&self.rewrites, "site.rewrites", problems),
            mounts: Mounts::build(&self.mounts, "site.mounts", problems, files),
            more_indexes: self.index.iter().skip(1).map(|index| index.value.clone()).collect(),
            listing: self.listing.build("site.listing", problems),
            fallback: fallback.and_then(|page| Page::build(page, root, "site.fallback", problems)),
            error_pages: ErrorPages::build(&self.error_pages, root, "site.error_pages", problems),
            headers: fields.build("site", problems),
        };
        features.has_any().then(|| Box::new(features))
    }
}

impl Features {
    fn has_any(&self) -> bool {
        let Features {
            anonymous,
            access,
            cors,
            redirects,
            basic_auth,
            rewrites,
            mounts,
            more_indexes,
            listing,
            fallback,
            error_pages,
            headers,
        } = self;
        *anonymous
            || access.is_some()
            || cors.is_some()
            || redirects.is_some()
            || basic_auth.is_some()
            || rewrites.is_some()
            || mounts.is_some()
            || !more_indexes.is_empty()
            || listing.is_some()
            || fallback.is_some()
            || error_pages.is_some()
            || headers.is_some()
    }
}

/// A request and what it is answered with.
pub(crate) struct Exchange<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) site: &'a Site,
    pub(crate) features: &'a Features,
    pub(crate) client: Client<'a>,
    pub(crate) now: HttpTime,
    pub(crate) findings: &'a mut Findings,
}

/// A response, and the name that the site's rules for responses look at.
struct Answer {
    response: Response,
    /// What is sent, or what the request named: decoded, without a slash at its beginning.
    name: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// Answers the request.
    ///
    /// # Errors
    /// Something for another thread to do first.
    pub(crate) fn answer(mut self) -> Result<Response, Errand> {
        let Answer { response, name } = self.respond()?;
        let mut response = self.with_error_page(response)?;
        let fields = &mut response.fields;
        fields.anonymous = self.features.anonymous;
        if let Some(headers) = &self.features.headers {
            headers.add(&name, fields);
        }
        // A preflight's answer has said it all.
        if let Some(cors) = self.features.cors.as_ref().filter(|_| response.status != Status::NoContent) {
            cors.add(&self.request.asks, &name, fields);
        }
        Ok(response)
    }

    fn respond(&mut self) -> Result<Answer, Errand> {
        let Features { cors, redirects, rewrites, .. } = self.features;
        let (raw, query) = match self.request.target {
            Target::Path { path, query } => (path, query),
            Target::Asterisk => return Ok(Answer::plain(Status::MethodNotAllowed, b"")),
        };
        let path = match SitePath::parse(raw, self.site.options.show_dotfiles) {
            Ok(path) => path,
            Err(Unnameable::Malformed(_)) => return Ok(Answer::plain(Status::BadRequest, b"")),
            Err(Unnameable::NotFound) => return Ok(Answer::plain(Status::NotFound, b"")),
        };
        let name = path.as_bytes();
        if let Some(refusal) = self.client.refusal {
            return Ok(Answer { response: refusal.response(), name: name.to_vec() });
        }
        if !self.is_allowed(name) {
            return Ok(Answer::plain(Status::Forbidden, name));
        }
        if let Some(response) =
            cors.as_ref().and_then(|cors| cors.preflight(self.request.method, &self.request.asks, name))
        {
            return Ok(Answer { response, name: name.to_vec() });
        }
        match self.request.method {
            Method::Get | Method::Head => {}
            Method::Other(_) => return Ok(Answer::plain(Status::MethodNotAllowed, name)),
            Method::Unknown(_) => return Ok(Answer::plain(Status::NotImplemented, name)),
        }
        let redirected =
            redirects.as_ref().and_then(|redirects| redirects.answer(&path, query, self.request.authority));
        if let Some(response) = redirected {
            return Ok(Answer { response, name: name.to_vec() });
        }
        let mut user = None;
        if let Some(refusal) = self.ask_for_password(name, &mut user)? {
            return Ok(Answer { response: refusal, name: name.to_vec() });
        }
        let rewritten = rewrites.as_ref().and_then(|rewrites| rewrites.apply(&path));
        let mut answer = match &rewritten {
            None => self.serve(&path, &path, query, &mut user)?,
            Some(rewritten) => match SitePath::parse(rewritten, self.site.options.show_dotfiles) {
                Ok(to) => match self.guard(to.as_bytes(), &mut user)? {
                    Some(refusal) => Answer { response: refusal, name: name.to_vec() },
                    None => self.serve(&to, &path, query, &mut user)?,
                },
                Err(_) => Answer::plain(Status::NotFound, name),
            },
        };
        answer.response.user = user;
        Ok(answer)
    }

    fn is_allowed(&self, name: &[u8]) -> bool {
        self.features.access.as_ref().is_none_or(|access| access.allows(self.client.address, name))
    }

    /// The answer of a request that may not have what `name` names.
    fn guard(&mut self, name: &[u8], user: &mut Option<Box<str>>) -> Result<Option<Response>, Errand> {
        if self.is_allowed(name) {
            self.ask_for_password(name, user)
        } else {
            Ok(Some(Response::plain(Status::Forbidden)))
        }
    }

    /// The answer of a request without the password that it needs.
    fn ask_for_password(&mut self, name: &[u8], user: &mut Option<Box<str>>) -> Result<Option<Response>, Errand> {
        let Some(basic_auth) = &self.features.basic_auth else { return Ok(None) };
        let verified = self.findings.verified(name);
        match basic_auth.check(name, self.request.asks.authorization.value(), verified) {
            Verdict::Pass(passes) => {
                *user = passes.map(Into::into).or(user.take());
                Ok(None)
            }
            Verdict::Refuse(response) => Ok(Some(*response)),
            Verdict::Verify(verification) => Err(Findings::verify(name, verification)),
        }
    }

    /// Sends what is at `path`. `asked`: the path before it was rewritten.
    fn serve(
        &mut self,
        path: &SitePath<'_>,
        asked: &SitePath<'_>,
        query: Option<&str>,
        user: &mut Option<Box<str>>,
    ) -> Result<Answer, Errand> {
        let site = self.site;
        let features = self.features;
        let mount = features.mounts.as_ref().and_then(|mounts| mounts.find(path.as_bytes()));
        let (files, mounted_at) = mount.unwrap_or((&site.files, 0));
        // The root of a mount is a directory whatever is in it.
        let found = if mounted_at == path.as_bytes().len() && mounted_at > 0 && !path.names_directory() {
            Ok((Found::Directory, ""))
        } else {
            self.find_with_indexes(files, &path.beneath(mounted_at))?
        };
        let missing = match found {
            Ok((Found::File(file), index)) => {
                let name = match path.names_directory() {
                    true => path.child(index).as_bytes().to_vec(),
                    false => path.as_bytes().to_vec(),
                };
                if path.names_directory()
                    && let Some(refusal) = self.guard(&name, user)?
                {
                    return Ok(Answer { response: refusal, name });
                }
                return Ok(Answer { response: send(self.request, file, &site.options, self.now), name });
            }
            Ok((Found::Directory, _)) => {
                let shown = if asked.names_directory() { path } else { asked };
                let mut answer = Answer::plain(Status::MovedPermanently, path.as_bytes());
                answer.response.fields.location = Some(shown.with_slash(query));
                return Ok(answer);
            }
            Err(missing) => missing,
        };
        if missing.status == Status::NotFound && path.names_directory() {
            let covers = |listing: &&Listing| listing.covers(path.as_bytes());
            if let Some(listing) = features.listing.as_ref().filter(covers) {
                let beneath = path.beneath(mounted_at);
                let directory = || ShowDirectory {
                    directory: ReadDirectory {
                        root: files.root(),
                        name: beneath.as_bytes().into(),
                        max_entries: listing.max_entries(),
                        show_dotfiles: site.options.show_dotfiles,
                    },
                    asked: asked.as_bytes().into(),
                    order: Order::from_query(query),
                    json: prefers_json(self.request.asks.accept.value()),
                };
                match self.findings.list(files, &beneath, directory)? {
                    Ok(response) => return Ok(Answer { response: *response, name: path.as_bytes().to_vec() }),
                    Err(unresolved) if unresolved.status != Status::NotFound => {
                        let response = Response::plain(unresolved.status).because(unresolved.cause);
                        return Ok(Answer { response, name: path.as_bytes().to_vec() });
                    }
                    Err(_) => {}
                }
            }
        }
        let mut name = path.as_bytes().to_vec();
        let mut response = Response::plain(missing.status).because(missing.cause);
        if response.status == Status::NotFound
            && let Some(page) = features.fallback.as_ref().and_then(Page::path)
        {
            if fallback::applies(asked.as_bytes(), self.request.asks.accept.value()) {
                if let Some(refusal) = self.guard(page.as_bytes(), user)? {
                    return Ok(Answer { response: refusal, name });
                }
                if let Ok(Found::File(file)) = self.findings.find(self.request, &site.files, &page)? {
                    response = send(self.request, file, &site.options, self.now);
                    name = page.as_bytes().to_vec();
                }
            }
            // To a client that wants something else, the same path may be missing, or not.
            response.fields.more.add("Vary", "Accept");
        }
        Ok(Answer { response, name })
    }

    /// What is at `path`, and, where that names a directory, which index stands for it.
    fn find_with_indexes(
        &mut self,
        files: &'a Files,
        path: &SitePath<'_>,
    ) -> Result<Result<(Found, &'a str), Unresolved>, Errand> {
        let missing = match self.findings.find(self.request, files, path)? {
            Ok(found) => return Ok(Ok((found, files.index()))),
            Err(missing) => missing,
        };
        if missing.status == Status::NotFound && path.names_directory() {
            for index in &self.features.more_indexes {
                if let Ok(Found::File(file)) = self.findings.find(self.request, files, &path.child(index))? {
                    return Ok(Ok((Found::File(file), index)));
                }
            }
        }
        Ok(Err(missing))
    }

    fn with_error_page(&mut self, response: Response) -> Result<Response, Errand> {
        let pages = self.features.error_pages.as_ref();
        let Some(path) = pages.and_then(|pages| pages.get(response.status)).and_then(Page::path) else {
            return Ok(response);
        };
        // One that is gone leaves the plain answer.
        let Ok(Found::File(file)) = self.findings.find(self.request, &self.site.files, &path)? else {
            return Ok(response);
        };
        let mut response = response;
        response.fields.content_type = Some(file.content_type);
        response.fields.content_encoding = file.coding;
        response.fields.varies = file.varies;
        response.content_length = Some(file.len);
        response.body = Body::File { range: 0..file.len, file };
        Ok(response)
    }
}

impl Answer {
    fn plain(status: Status, name: &[u8]) -> Self {
        Answer { response: Response::plain(status), name: name.to_vec() }
    }
}
