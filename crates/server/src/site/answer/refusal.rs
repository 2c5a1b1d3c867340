//! The steps before the password: what needs no file and no other server.

use sealion_http::path::SitePath;
use sealion_http::{Method, Status, Target};

use super::{Action, Answering, Guards, Maintenance, plain_http};
use crate::limits::Refusal;
use crate::response::Response;

impl<'a> Answering<'a> {
    /// The response to a request that needs no file, except the response of the route's action.
    pub(super) fn refuse_or_redirect(&self, path: &SitePath<'_>) -> Option<Response> {
        let features = &self.route.features;
        if let Some(refusal) = self.refuse_client() {
            return Some(refusal);
        }
        if let Some(redirect) = self.redirect_to_https() {
            return Some(redirect);
        }
        if self.route.is_internal {
            let words = || "the route is internal: only other routes lead there".to_owned();
            self.note_refusal(Status::NOT_FOUND, words);
            return Some(Response::plain(Status::NOT_FOUND));
        }
        if !self.is_allowed_here(path) {
            self.note_forbidden(path);
            return Some(Response::plain(Status::FORBIDDEN));
        }
        if let Some(response) = features.cors.as_ref().and_then(|cors| cors.preflight(self.request)) {
            return Some(response);
        }
        match &*self.route.action {
            Action::Deny => {
                self.note_refusal(Status::FORBIDDEN, || "the route denies every request".to_owned());
                return Some(Response::plain(Status::FORBIDDEN));
            }
            Action::Respond(_) | Action::Redirect(_) => return None,
            // The path that it leads to decides.
            Action::Rewrite(_) | Action::Try(_) if self.request.method.as_str() != "TRACE" => return None,
            Action::Files if self.request.method.as_str() != "TRACE" && self.may_run_index(path) => return None,
            Action::Files if self.posts_where_page_leads() => return None,
            Action::Files | Action::Forward(_) | Action::Rewrite(_) | Action::Try(_) => {}
        }
        let refusal = match self.request.method {
            Method::Get | Method::Head => return None,
            // The application decides which methods it supports. TRACE would show the client the fields that are added here.
            method if method.as_str() != "TRACE" && self.route.rule().is_some() => return None,
            Method::Other(_) => Status::METHOD_NOT_ALLOWED,
            Method::Unknown(_) => Status::NOT_IMPLEMENTED,
        };
        self.note_method(refusal);
        Some(Response::plain(refusal))
    }

    /// The response to a client that gets none, whatever it asks for.
    pub(super) fn refuse_client(&self) -> Option<Response> {
        if let Some(refusal) = self.client.refusal {
            return Some(refused(refusal));
        }
        self.maintenance().map(|maintenance| {
            self.note_refusal(Status::SERVICE_UNAVAILABLE, || "maintenance".to_owned());
            let mut response = Response::plain(Status::SERVICE_UNAVAILABLE);
            response.fields.retry_after = Some(maintenance.retry_after);
            response
        })
    }

    /// The site's maintenance, if this client does not see the site meanwhile.
    pub(super) fn maintenance(&self) -> Option<&'a Maintenance> {
        self.route.features.maintenance.as_deref().filter(|maintenance| !maintenance.admits(self.client.address))
    }

    /// Notes the refusal of a method, if the answer is rehearsed.
    pub(super) fn note_method(&self, status: Status) {
        self.note_refusal(status, || match status {
            Status::NOT_IMPLEMENTED => "the method is unknown".to_owned(),
            _ => "files answer GET and HEAD alone".to_owned(),
        });
    }

    /// The response to a request by `http` for a site that only answers HTTPS. A request of HTTP/1.0 without Host has no other address.
    fn redirect_to_https(&self) -> Option<Response> {
        if !self.site.https_only || !self.client.is_plain {
            return None;
        }
        let port = self.site.https.unwrap_or(443);
        let (Target::Path { path, query }, Some(authority)) = (self.request.target, self.request.authority) else {
            return Some(Response::plain(Status::BAD_REQUEST));
        };
        let mut response = Response::plain(Status::PERMANENT_REDIRECT);
        let to = plain_http::over_https(authority, port, path, query);
        self.note_refusal(response.status, || format!("https_only redirects to {to}"));
        response.fields.location = Some(to);
        Some(response)
    }
}

/// The response to a client that exceeds a limit.
pub(super) fn refused(refusal: Refusal) -> Response {
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

/// The outcome of the guards for a response that needs no file.
pub(super) fn refused_by(response: &Response) -> Guards {
    match response.status {
        Status::METHOD_NOT_ALLOWED | Status::NOT_IMPLEMENTED => Guards::Unasked,
        _ => Guards::Refused,
    }
}
