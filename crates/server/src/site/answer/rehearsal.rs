//! The answer to a request that is explained, without another server: the steps are the steps of [`super::answer`].
//!
//! A server's consent, a server's response and the network of an unknown client are assumed, and noted.

use sealion_http::{HttpTime, Request, Status};

use super::{Answering, Client, Site};
use crate::response::Response;
use crate::site::route::RouteNumber;
use crate::upstream::Inbound;
use crate::values::Mutex;

/// The notes of an answer that is rehearsed.
#[derive(Debug, Default)]
pub(super) struct Rehearsal(Mutex<Notes>);

/// The assumptions and refusals on the way to an answer.
#[derive(Debug, Default)]
pub(in crate::site) struct Notes {
    /// The upstream that would get the request. `None`: the server answers itself.
    pub(in crate::site) upstream: Option<Box<str>>,
    /// The URLs that have to consent.
    pub(in crate::site) consents: Vec<String>,
    /// Whether networks decide about a client whose address is unknown.
    pub(in crate::site) networks: Networks,
    /// The first refusal by a guard.
    pub(in crate::site) refusal: Option<Refusal>,
}

/// An answer in place of all that the route of a request does.
#[derive(Debug)]
pub(in crate::site) struct Refusal {
    pub(in crate::site) status: Status,
    pub(in crate::site) why: String,
    /// The route whose error pages apply.
    pub(in crate::site) route: Option<RouteNumber>,
}

/// The part of networks in an answer to a client whose address is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::site) enum Networks {
    /// No guard asked for the network.
    #[default]
    Unasked,
    /// A client of another network has to authenticate.
    OrElse,
    /// A client of another network is refused.
    Required,
}

/// The answer to a request that is explained.
pub(in crate::site) struct Rehearsed {
    pub(in crate::site) status: Status,
    /// Whether the client gets no response.
    pub(in crate::site) is_withheld: bool,
    pub(in crate::site) notes: Notes,
}

impl Rehearsal {
    /// Notes the first refusal.
    pub(super) fn note_refusal(&self, refusal: impl FnOnce() -> Refusal) {
        self.0.lock().refusal.get_or_insert_with(refusal);
    }

    /// Notes that another server has to consent.
    pub(super) fn note_consent(&self, url: String) {
        let consents = &mut self.0.lock().consents;
        if !consents.contains(&url) {
            consents.push(url);
        }
    }

    /// Notes that networks decide.
    pub(super) fn note_networks(&self, networks: Networks) {
        let notes = &mut self.0.lock().networks;
        *notes = networks.max(*notes);
    }

    /// The response in place of a server's response.
    pub(super) fn forward(&self, upstream: &str) -> Response {
        self.0.lock().upstream = Some(upstream.into());
        let mut response = Response::plain(Status::OK);
        response.fields.forwarded = true;
        response
    }
}

/// Answers a request as [`super::answer`] does, but for the parts of other servers.
pub(in crate::site) async fn rehearse(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> Rehearsed {
    let rehearsal = Rehearsal::default();
    let (answering, path) = Answering::new(site, request, client, now);
    let answering = Answering { rehearsal: Some(&rehearsal), ..answering };
    let Response { status, is_withheld, .. } = *answering.answer(path, &mut Inbound::default()).await;
    Rehearsed { status, is_withheld, notes: rehearsal.0.into_inner() }
}
