//! Guards of one path: networks, passwords and other servers, of the route that the path has.

use std::io;

use sealion_http::Status;
use sealion_http::path::SitePath;
use tokio::task::spawn_blocking;

use super::Answering;
use super::rehearsal::{Networks, Refusal};
use crate::files::resolve::SiteFile;
use crate::placeholders::Asked;
use crate::response::Response;
use crate::site::basic_auth::{Decision, Verdict};
use crate::site::explain::client_in_words;
use crate::site::route::{self, Disk, Route};

impl<'a> Answering<'a> {
    /// The route for a path of this request.
    ///
    /// # Errors
    /// The status of a request that does not say clearly enough which route it is for.
    pub(super) fn route_of(&self, path: &SitePath<'_>) -> Result<&'a Route, Status> {
        match &self.site.routes {
            None => Ok(&self.site.root),
            Some(_) => {
                let asked = self.site.asked(self.request, path, self.query(), self.client);
                self.site.choose(&Asked { led: self.led, ..asked }, Disk::Waits)
            }
        }
    }

    /// If `path` names a compressed sibling, the route of its original, unless `own` has the same guards.
    fn route_of_original(&self, path: &SitePath<'_>, own: &Route) -> Result<Option<&'a Route>, Status> {
        if !self.site.routes.as_ref().is_some_and(|routes| routes.guards_differ()) {
            return Ok(None);
        }
        let Some(original) = route::original(path) else { return Ok(None) };
        let other = self.route_of(&original)?;
        // `/docs.gz` is an archive beside the directory `/docs/`, and no compressed form of it.
        Ok(Some(other).filter(|other| !other.is_guarded_as(own, false) && !other.is_directory(&original)))
    }

    /// The routes whose guards a path has to pass.
    fn guarding(&self, path: &SitePath<'_>) -> Result<[Option<&'a Route>; 2], Status> {
        let own = self.route_of(path)?;
        Ok([Some(own), self.route_of_original(path, own)?])
    }

    /// The same for the path that the route was chosen by.
    fn guarding_here(&self, path: &SitePath<'_>) -> Result<[Option<&'a Route>; 2], Status> {
        Ok([Some(self.route), self.route_of_original(path, self.route)?])
    }

    /// Whether guards of another route count too, because the path may name a sibling.
    pub(super) fn is_guarded_elsewhere(&self, path: &SitePath<'_>) -> bool {
        !matches!(self.route_of_original(path, self.route), Ok(None))
    }

    /// Whether networks permit the path that the route was chosen by.
    pub(super) fn is_allowed_here(&self, path: &SitePath<'_>) -> bool {
        !self.site.has_guards() || self.allow(self.guarding_here(path), true)
    }

    /// Whether networks permit a path, and its route does not withhold it.
    pub(super) fn is_allowed(&self, path: &SitePath<'_>) -> bool {
        !self.site.has_guards() || self.allow(self.guarding(path), false)
    }

    fn allow(&self, routes: Result<[Option<&'a Route>; 2], Status>, is_here: bool) -> bool {
        let Ok(routes) = routes else { return false };
        routes.into_iter().flatten().enumerate().all(|(place, route)| {
            let is_withheld = !(is_here && place == 0) && route.withholds().is_some_and(|_| !route.is_internal);
            // A password may stand for the network.
            let is_open = route.features.access.is_none();
            !is_withheld && (is_open || route.may_authenticate_instead() || self.is_in_networks(route))
        })
    }

    fn is_in_networks(&self, route: &Route) -> bool {
        let Some(access) = &route.features.access else { return true };
        if let Some(rehearsal) = self.rehearsal.filter(|_| self.client.address.is_none()) {
            let is_required = !route.may_authenticate_instead();
            rehearsal.note_networks(if is_required { Networks::Required } else { Networks::OrElse });
            return true;
        }
        access.allows(self.client.address)
    }

    /// Notes a refusal, if the answer is rehearsed.
    pub(super) fn note_refusal(&self, status: Status, why: impl FnOnce() -> String) {
        if let Some(rehearsal) = self.rehearsal {
            rehearsal.note_refusal(|| Refusal { status, why: why(), route: self.route.number });
        }
    }

    /// The same for a path that networks or a closed route refuse.
    pub(super) fn note_forbidden(&self, path: &SitePath<'_>) {
        self.note_refusal(Status::FORBIDDEN, || {
            let shown = String::from_utf8_lossy(path.full());
            let Ok(routes) = self.guarding(path) else {
                return format!("a condition of {shown} can be read in several ways");
            };
            let closed = |route: &&Route| route.withholds().is_some();
            let route = routes.into_iter().flatten().find(|route| closed(route) || !self.is_in_networks(route));
            let Some(route) = route else { return format!("{shown} is closed") };
            let named = self.site.named_in_words(route);
            if closed(&route) {
                return format!("{shown} is of {named}, which is closed");
            }
            match route.number == self.route.number {
                true => self.refused_by_networks(),
                false => {
                    let client = client_in_words(self.client.address);
                    format!("{shown} is of {named}, whose networks refuse {client}")
                }
            }
        });
    }

    /// The reason in words where networks of the request's own route refuse the client.
    fn refused_by_networks(&self) -> String {
        let client = client_in_words(self.client.address);
        format!("networks of {} refuse {client}", self.site.origin_of_networks(self.route))
    }

    /// Whether the network of the client stands for a password.
    fn needs_no_password(&self, route: &Route) -> bool {
        route.may_authenticate_instead() && self.is_in_networks(route)
    }

    /// The refusal if the request may not access `path`, which the route was chosen by, for want of a password or another server's consent. Networks were
    /// asked before.
    pub(super) async fn guard_here(&self, path: &SitePath<'_>, user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        match self.guarding_here(path) {
            Ok(routes) => self.authenticate(routes, user).await,
            Err(status) => Some(Response::plain(status).into()),
        }
    }

    /// The refusal if the request may not access the file at `path`.
    pub(super) async fn guard(&self, path: &SitePath<'_>, user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        if !self.site.has_guards() {
            return None;
        }
        if !self.is_allowed(path) {
            self.note_forbidden(path);
            return Some(Response::plain(Status::FORBIDDEN).into());
        }
        match self.guarding(path) {
            Ok(routes) => self.authenticate(routes, user).await,
            Err(status) => Some(Response::plain(status).into()),
        }
    }

    /// The refusal if the request may not go on in a route that a name led to.
    pub(super) async fn guard_named(&self, user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        let routes = [Some(self.route), None];
        if !self.allow(Ok(routes), true) {
            self.note_refusal(Status::FORBIDDEN, || self.refused_by_networks());
            return Some(Response::plain(Status::FORBIDDEN).into());
        }
        self.authenticate(routes, user).await
    }

    async fn authenticate(&self, routes: [Option<&'a Route>; 2], user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        for route in routes.into_iter().flatten() {
            if self.needs_no_password(route) {
                continue;
            }
            if route.features.basic_auth.is_some()
                && let Some(refusal) = Box::pin(self.check_password(route, user)).await
            {
                self.note_refusal(refusal.status, || {
                    let from = self.site.origin_of_password(route);
                    match self.request.fields.first("authorization") {
                        Some(_) => format!("{from} asks for another password"),
                        None => format!("{from} asks for a password: add -H 'Authorization: …' to go on"),
                    }
                });
                return Some(refusal);
            }
            if let (Some(rehearsal), Some(auth)) = (self.rehearsal, &route.features.forward_auth) {
                rehearsal.note_consent(auth.url());
            }
            if let (Some(asking), Some(auth)) = (self.auth, &route.features.forward_auth)
                && let Some(refusal) = Box::pin(asking.refusal(auth)).await
            {
                return Some(refusal);
            }
        }
        None
    }

    /// The refusal if the request lacks the password of `route`.
    async fn check_password(&self, route: &Route, user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        let basic_auth = route.features.basic_auth.as_ref()?;
        let authorization = self.request.fields.singleton("authorization");
        let address = self.client.address;
        let decision: Decision = match basic_auth.check(authorization.value()) {
            Verdict::Decided(decision) => decision,
            Verdict::Verify(verification) => match Box::pin(spawn_blocking(move || verification.run(address))).await {
                Ok(decision) => decision,
                Err(error) => {
                    let cause = io::Error::other(format!("blocking task panicked: {error}"));
                    return Some(Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)).into());
                }
            },
        };
        match decision {
            Ok(passes) => {
                *user = passes.or(user.take());
                None
            }
            Err(response) => Some(response),
        }
    }

    /// Whether `file` has a name of its own that guards may refuse: it is a precompressed sibling.
    pub(super) fn may_withhold(&self, file: &SiteFile) -> bool {
        file.is_sibling && self.site.has_guards()
    }

    /// Whether the request may access a precompressed sibling. `original`: the file whose passwords the request has; `None`: none was checked.
    ///
    /// No password is checked only for a sibling. Whether the response is the sibling or the original would tell whether the password is right,
    /// or known from another request, at no cost and without a line for a wrong one.
    pub(super) fn may_have_sibling(&self, sibling: &SitePath<'_>, original: Option<&SitePath<'_>>) -> bool {
        !self.site.has_guards() || self.is_allowed(sibling) && !self.needs_more(sibling, original)
    }

    /// Whether a path needs a password or a server's consent that `passed` does not need.
    pub(super) fn needs_more(&self, path: &SitePath<'_>, passed: Option<&SitePath<'_>>) -> bool {
        let Ok(routes) = self.guarding(path) else { return true };
        let of_passed = match passed.map(|passed| self.route_of(passed)) {
            Some(Err(_)) => return true,
            Some(Ok(route)) => Some(route),
            None => None,
        };
        routes.into_iter().flatten().any(|route| {
            let is_asked = route.features.authenticates() && !self.needs_no_password(route);
            is_asked && !of_passed.is_some_and(|passed| passed.authenticates_for(route))
        })
    }
}
