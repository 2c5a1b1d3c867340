//! The route of a request, and the common part of all routes of a site.

use std::cell::Cell;

use http::HeaderName;
use sealion_http::path::{SitePath, Unnameable};
use sealion_http::{Request, Status, Target};

use super::route::{ColdPath, Disk, Route};
use super::{Client, Site, readings};
use crate::limits::SiteLimits;
use crate::placeholders::{Asked, Template};

/// The route and the path of a request; an error is the status of a path that cannot be served.
pub(super) type Located<'s, 'r> = (&'s Route, Result<SitePath<'r>, Status>);

/// A route of a site, by its number; the root has the largest one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitedBy(u32);

impl LimitedBy {
    const ROOT: Self = LimitedBy(u32::MAX);
}

/// The path, of files or of an application, and whether a file can have it.
///
/// # Errors
/// The status of a path that neither can have.
pub(super) fn path_of(raw: &str) -> Result<(SitePath<'_>, bool), Status> {
    match SitePath::parse(raw, true) {
        Ok(path) => Ok((path, true)),
        Err(Unnameable::Malformed(_)) => Err(Status::BAD_REQUEST),
        // An encoded slash: no file can have it, and an application may.
        Err(Unnameable::NotFound) => {
            SitePath::parse_forwarded(raw).map(|path| (path, false)).map_err(|_| Status::NOT_FOUND)
        }
    }
}

/// The path of a file.
fn path_of_file<'r>(raw: &'r str, route: &Route) -> Result<SitePath<'r>, Status> {
    SitePath::parse(raw, route.options.show_dotfiles).map_err(|unnameable| match unnameable {
        Unnameable::Malformed(_) => Status::BAD_REQUEST,
        Unnameable::NotFound => Status::NOT_FOUND,
    })
}

impl Site {
    /// The route whose limits a request of this client is counted against. Where limits differ by route, conditions wait for the disk here.
    #[inline]
    pub(crate) fn limited_by(&self, request: &Request<'_>, client: impl FnOnce() -> Client) -> LimitedBy {
        match &self.routes {
            Some(routes) if routes.has_limits() => {
                let route = self.locate(request, client(), Disk::Waits).0;
                route.shown_number().map_or(LimitedBy::ROOT, LimitedBy)
            }
            _ => LimitedBy::ROOT,
        }
    }

    /// The limits of that route.
    #[inline]
    pub(crate) fn limits(&self, by: LimitedBy) -> Option<&SiteLimits> {
        let number = usize::try_from(by.0).ok().filter(|_| by.0 != LimitedBy::ROOT.0);
        self.route(number).limits.as_deref()
    }

    /// The value of a key that the limits of the route count a request by. `None`: the request has no such value.
    pub(crate) fn limit_value(&self, key: &Template, request: &Request<'_>, client: Client) -> Option<Vec<u8>> {
        let (route, path) = self.locate(request, client, Disk::Waits);
        let path = path.ok()?;
        let query = match request.target {
            Target::Path { query, .. } => query,
            Target::Asterisk => None,
        };
        route.limit_value(key, &self.asked(request, &path, query, client))
    }

    /// Whether a route asks another server whether requests may pass.
    pub(crate) fn asks(&self) -> bool {
        match &self.routes {
            None => self.root.features.forward_auth.is_some(),
            Some(routes) => routes.asks(),
        }
    }

    /// Fields that other servers set where they let a request pass.
    pub(super) fn copied_fields(&self) -> impl Iterator<Item = &HeaderName> {
        let own = self.root.features.forward_auth.iter().filter(|_| self.routes.is_none());
        own.flat_map(|auth| auth.copied()).chain(self.routes.iter().flat_map(|routes| routes.copied()))
    }

    pub(super) fn has_early_hints(&self) -> bool {
        match &self.routes {
            None => self.root.features.early_hints.is_some(),
            Some(routes) => routes.has_early_hints(),
        }
    }

    /// Whether a route may refuse a request by a path.
    pub(super) fn has_guards(&self) -> bool {
        match &self.routes {
            None => self.root.has_guards(),
            Some(routes) => routes.has_guards(),
        }
    }

    /// The route for a path of a request.
    ///
    /// # Errors
    /// 400: the request does not say clearly enough which route it is for.
    pub(super) fn choose(&self, asked: &Asked<'_>, disk: Disk<'_>) -> Result<&Route, Status> {
        match &self.routes {
            None => Ok(&self.root),
            Some(routes) => Ok(routes.choose(asked, disk)?.unwrap_or(&self.root)),
        }
    }

    /// The route and the path of a request as it came, without waiting for the disk.
    ///
    /// # Errors
    /// A condition asks about a path whose entry would have to be waited for.
    pub(super) fn locate_at_hand<'s, 'r>(
        &'s self,
        request: &Request<'r>,
        client: Client,
    ) -> Result<Located<'s, 'r>, ColdPath> {
        let cold = Cell::new(None);
        let located = self.locate(request, client, Disk::AtHand(&cold));
        match cold.take() {
            None => Ok(located),
            Some(cold) => Err(cold),
        }
    }

    /// The route and the path of a request as it came.
    pub(super) fn locate<'s, 'r>(&'s self, request: &Request<'r>, client: Client, disk: Disk<'_>) -> Located<'s, 'r> {
        let root = &self.root;
        let Target::Path { path: raw, query } = request.target else {
            return (root, Err(Status::METHOD_NOT_ALLOWED));
        };
        if self.routes.is_none() && root.is_of_files() && !root.has_guards() {
            return (root, path_of_file(raw, root));
        }
        // Nearly no path has a hidden name, and then no route asks about it.
        let (path, is_file, is_shown) = match SitePath::parse(raw, false) {
            Ok(path) => (path, true, true),
            Err(_) => match path_of(raw) {
                Ok((path, is_file)) => (path, is_file, false),
                Err(status) => return (root, Err(status)),
            },
        };
        let chosen = match &self.routes {
            Some(routes) if !routes.has_conditions() => routes.choose_by_path(&path).map(|found| found.unwrap_or(root)),
            _ => self.choose(&self.asked(request, &path, query, client), disk),
        };
        let route = match chosen {
            Ok(route) => route,
            Err(status) => return (root, Err(status)),
        };
        let is_of_files = route.is_of_files();
        let is_read_by_others = !is_of_files || self.has_guards();
        if memchr::memchr(b';', raw.as_bytes()).is_some() && readings::hides_slash(raw) && is_read_by_others {
            return (route, Err(Status::BAD_REQUEST));
        }
        if is_of_files && !(is_file && (is_shown || route.shows(&path))) {
            return (route, Err(Status::NOT_FOUND));
        }
        (route, Ok(path))
    }

    /// The values for placeholders and conditions, without the groups of a route.
    pub(super) fn asked<'a>(
        &'a self,
        request: &'a Request<'a>,
        path: &'a SitePath<'a>,
        query: Option<&'a str>,
        client: Client,
    ) -> Asked<'a> {
        let asked = Asked::new(request, path, query, client.is_plain, &self.tables);
        Asked { client: client.address, remote: client.remote, ..asked }
    }
}
