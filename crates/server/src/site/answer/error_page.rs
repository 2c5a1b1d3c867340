//! Error pages: a file in place of the text of an error, another path, a named route, or a redirect.

use percent_encoding::percent_encode;
use sealion_http::path::{OUTSIDE_PCHAR, SitePath};
use sealion_http::request::{Conditions, FieldLines};
use sealion_http::{Fields, Method, Request, Status};

use super::turns::{Place, Turn};
use super::{Answer, Answering, Guards};
use crate::files::resolve::Found;
use crate::placeholders::Led;
use crate::response::{Body, Response};
use crate::site::forwarded_path::ForwardedPath;
use crate::site::locate::path_of;
use crate::site::pages::{ErrorPage, ErrorTarget, Page, PageStatus, Whereto};
use crate::site::route::{Action, Route};
use crate::upstream::Inbound;

impl<'a> Answering<'a> {
    /// The file in place of the text of this status.
    fn page_file(&self, status: Status) -> Option<(&'a Page, PageStatus)> {
        if status == Status::SERVICE_UNAVAILABLE
            && let Some(page) = self.maintenance().and_then(|maintenance| maintenance.page())
        {
            return Some((page, PageStatus::Error));
        }
        match self.route.error_page(status)? {
            ErrorPage::File(page, shown) => Some((page, *shown)),
            ErrorPage::Elsewhere(_) => None,
        }
    }

    /// Replaces the content with the error page of the route that answered, if that is a file. No password is checked for it.
    pub(super) async fn add_page_file(&self, response: &mut Response) {
        let Some((page, shown)) = self.page_file(response.status) else { return };
        let Some(path) = page.path() else { return };
        let may_send = |sibling: &SitePath<'_>| self.may_have_sibling(sibling, None);
        let accept = &self.request.conditions.accept_encoding;
        if self.route.add_error_page(response, &path, accept, may_send).await
            && let Some(status) = shown.of(response.status, Status::OK).filter(|status| *status != response.status)
        {
            response.status = status;
            // They describe the error.
            response.fields.allow = None;
            response.fields.retry_after = None;
        }
    }

    /// Goes on where the error page of the route that answered leads, if it leads elsewhere. `path`: the path that was requested.
    pub(super) async fn lead_elsewhere(&self, answer: Answer, path: &SitePath<'_>, inbound: &mut Inbound) -> Answer {
        let own = self.at(&answer);
        let status = answer.response.status;
        let is_maintained =
            status == Status::SERVICE_UNAVAILABLE && own.maintenance().is_some_and(|own| own.page().is_some());
        let Some(ErrorPage::Elsewhere(target)) = own.route.error_page(status).filter(|_| !is_maintained) else {
            return answer;
        };
        let here = Answering { turns: answer.turns, ..own };
        let Some(found) = Box::pin(here.follow(target, &answer, path, inbound)).await else { return answer };
        let Answer { mut response, name, route, turns, is_counted, is_final, .. } = found;
        let first = answer.response;
        // As in nginx, a response of its own takes the status, and a refusal keeps its own.
        let takes_status = is_final || response.status.code() / 100 == 2 && response.status != Status::PARTIAL_CONTENT;
        if takes_status
            && let Some(shown) = target.status.of(status, response.status)
            && (shown, response.status) != (Status::OK, Status::OK)
        {
            response.status = shown;
            remove_validators(&mut response);
            if shown.has_no_content() {
                response.body = Body::Empty;
                response.fields = Fields { extra: std::mem::take(&mut response.fields.extra), ..Fields::default() };
            }
        }
        keep_fields(&first, status, &mut response);
        response.user = response.user.or(first.user);
        response.cause = response.cause.or(first.cause);
        response.upstream = response.upstream.or(first.upstream);
        Answer { response, name, route, turns, is_final: true, guards: Guards::Passed, is_counted }
    }

    /// The response of a target. `None`: the target is not for this request, which gets the error.
    async fn follow(
        &self,
        target: &ErrorTarget,
        answer: &Answer,
        path: &SitePath<'_>,
        inbound: &mut Inbound,
    ) -> Option<Answer> {
        let mut user = answer.response.user.clone();
        let (asked, requested) = (path, ForwardedPath::requested(self.raw_path(), path));
        let mut found: Answer = match &target.to {
            Whereto::Url(to) => {
                let PageStatus::Given(status) = target.status else { return None };
                let mut response = Response::plain(status);
                response.fields.location = Some(to.render_url(&self.asked(path)).ok()?);
                response.into()
            }
            Whereto::Path(to) => {
                let place = Place::of(to, &self.asked(path)).ok()?;
                let method = if self.request.method == Method::Head { Method::Head } else { Method::Get };
                let request = Request { method, ..self.for_page(target.status) };
                // The content was for the path that had the error.
                let interim = inbound.interim.take();
                drop(inbound.take_for_server());
                inbound.interim = interim;
                let turn = Turn { path: requested, asked: path, user: &mut user, inbound };
                Answering { request: &request, ..*self }.go_on(place, Led::InternalRedirect, turn).await
            }
            Whereto::Named(name) => {
                // As in nginx, it gets the path that a route before it led to.
                let raw = answer.name.as_ref().map(|name| format!("/{}", percent_encode(name, OUTSIDE_PCHAR)));
                let led = raw.as_deref().and_then(|raw| path_of(raw).ok());
                let (path, own) = match (&raw, &led) {
                    (Some(raw), Some((led, _))) => (led, ForwardedPath::rewritten(raw, led)),
                    _ => (path, requested),
                };
                let route = self.named(name, path)?.ok()?;
                if !self.may_follow(route, answer.guards, inbound) {
                    return None;
                }
                if answer.guards == Guards::Unasked
                    && let Some(refusal) = self.guard_here(path, &mut user).await
                {
                    return Some(Response { user, ..*refusal }.into());
                }
                let request = self.for_page(target.status);
                let here = Answering { request: &request, ..*self };
                here.turn_by_name(route, Turn { path: own, asked, user: &mut user, inbound }).await
            }
        };
        found.response.user = user;
        Some(found)
    }

    /// Whether a named route may answer in place of an error. A request that a guard refused gets only a response of the route's own.
    fn may_follow(&self, route: &Route, guards: Guards, inbound: &Inbound) -> bool {
        if matches!(&*route.action, Action::Respond(_) | Action::Redirect(_) | Action::Deny) {
            return true;
        }
        let is_traced = self.request.method.as_str() == "TRACE";
        guards != Guards::Refused && !is_traced && !inbound.content_is_gone
    }

    /// The request for an error page. Conditions and ranges are about a successful response.
    fn for_page(&self, status: PageStatus) -> Request<'a> {
        if matches!(status, PageStatus::Target | PageStatus::Given(Status::OK)) {
            return self.request.clone();
        }
        let accept_encoding = self.request.conditions.accept_encoding.clone();
        Request { conditions: Conditions { accept_encoding, ..Conditions::default() }, ..self.request.clone() }
    }
}

/// Keeps the fields that tell a client what to do about an error. `status`: of the error.
fn keep_fields(error: &Response, status: Status, response: &mut Response) {
    const CHALLENGE: &str = "WWW-Authenticate";
    if !response.fields.extra.has(CHALLENGE) {
        let challenges = error.fields.extra.iter().filter(|(name, _)| name.eq_ignore_ascii_case(CHALLENGE));
        for challenge in challenges.filter_map(|(_, challenge)| std::str::from_utf8(challenge).ok()) {
            response.fields.extra.add(CHALLENGE, challenge);
        }
    }
    if response.status == status {
        response.fields.retry_after = response.fields.retry_after.or(error.fields.retry_after);
        response.fields.allow = response.fields.allow.or(error.fields.allow);
    }
}

/// Removes the validators of a response that is sent for another path than its own.
fn remove_validators(response: &mut Response) {
    response.fields.etag = None;
    response.fields.last_modified = None;
    response.fields.accept_ranges = false;
}

impl Route {
    /// The route's page for this status.
    pub(super) fn error_page(&self, status: Status) -> Option<&ErrorPage> {
        self.features.error_pages.as_ref()?.get(status)
    }

    /// The same, if it is a file.
    pub(super) fn error_file(&self, status: Status) -> Option<SitePath<'_>> {
        match self.error_page(status)? {
            ErrorPage::File(page, _) => page.path(),
            ErrorPage::Elsewhere(_) => None,
        }
    }

    /// Replaces the content with `page`, and returns whether it did: if it cannot be opened, the plain content stays. `may_send`: whether a
    /// precompressed sibling may be sent, by its path.
    pub(super) async fn add_error_page(
        &self,
        response: &mut Response,
        page: &SitePath<'_>,
        accept: &FieldLines<'_>,
        may_send: impl Fn(&SitePath<'_>) -> bool,
    ) -> bool {
        let files = &self.error_files;
        let Ok(Found::File(mut file)) = files.find(page, accept).await else { return false };
        let sibling = file.coding.filter(|_| file.is_sibling).map(|coding| page.sibling(coding));
        if sibling.is_some_and(|sibling| !may_send(&sibling)) {
            match files.find(page, &FieldLines::default()).await {
                Ok(Found::File(original)) => file = original,
                _ => return false,
            }
        }
        response.fields.content_type = Some(file.content_type.clone());
        response.fields.content_encoding = file.coding.map(Into::into);
        response.fields.varies = file.varies;
        response.body = Body::File { range: 0..file.len, file };
        true
    }
}
