//! Goes on where an application's answer leads: to a path or a route of the site, or to a file.

use std::io;
use std::time::Duration;

use sealion_http::path::SitePath;
use sealion_http::{Method, Request, Status, Target};
use tokio::time::timeout;

use super::turns::Place;
use super::{Answer, Answering};
use crate::files::resolve::Found;
use crate::response::{Body, BodyStream, Response, discard, of_file_as};
use crate::site::accel::{AccelRedirect, AccelTarget, KeptFields};
use crate::upstream::Inbound;

impl Answering<'_> {
    /// Answers with the target of an application's answer. `first`: that answer. `asked`: the path that the client asked for; `path`: the path that the
    /// application had.
    pub(super) async fn follow_accel(
        &self,
        redirect: AccelRedirect,
        mut first: Response,
        (path, asked): (&SitePath<'_>, &SitePath<'_>),
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Answer {
        if let Body::Stream(BodyStream { source, .. }) = std::mem::replace(&mut first.body, Body::Empty) {
            drop(tokio::spawn(timeout(DISCARD_TIMEOUT, discard(source))));
        }
        let AccelRedirect { target, kept } = redirect;
        let method = if self.request.method == Method::Head { Method::Head } else { Method::Get };
        let mut request = Request { method, ..self.request.clone() };
        if kept.refuses_ranges {
            request.conditions.range = Default::default();
        }
        let here = Answering { request: &request, accel: Some(&kept), ..*self };
        let mut answer = match target {
            AccelTarget::Path { raw, query } => {
                here.go_on_without_query(Place::new(raw, query), asked, user, inbound).await
            }
            AccelTarget::Named(name) => here.turn_to_named(&name, path, asked, (user, inbound)).await,
            AccelTarget::File(path) => here.send_file(&path, &kept).await,
            AccelTarget::Unsafe(uri) => not_found(format!("X-Accel-Redirect names no path of the site: {uri}")),
        };
        kept.add_to(&mut answer.response);
        let own = &mut answer.response;
        own.rate = own.rate.or(first.rate);
        own.upstream = own.upstream.take().or(first.upstream);
        own.cache = own.cache.take().or(first.cache);
        answer
    }

    /// Goes on with a path whose query is its own, or none.
    async fn go_on_without_query(
        &self,
        place: Place,
        asked: &SitePath<'_>,
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Answer {
        let Target::Path { path, .. } = self.request.target else { return Response::plain(Status::BAD_REQUEST).into() };
        let request = Request { target: Target::Path { path, query: None }, ..self.request.clone() };
        Answering { request: &request, ..*self }.go_on(place, false, asked, user, inbound).await
    }

    async fn turn_to_named(
        &self,
        name: &str,
        path: &SitePath<'_>,
        asked: &SitePath<'_>,
        (user, inbound): (&mut Option<Box<str>>, &mut Inbound),
    ) -> Answer {
        let Some(route) = self.named(name, path).and_then(Result::ok) else {
            let cause = io::Error::other(format!("X-Accel-Redirect names no route: {}", name.escape_default()));
            return Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)).into();
        };
        self.turn_by_name(route, path, asked, None, (user, inbound)).await
    }

    /// The file of X-Sendfile, which an application names by its path in the file system.
    async fn send_file(&self, path: &[u8], kept: &KeptFields) -> Answer {
        let accel = self.route.features.accel.as_deref();
        let Some((files, beneath)) = accel.and_then(|accel| accel.files_of(path)) else {
            let path = path.escape_ascii();
            return not_found(format!("X-Sendfile names no file beneath a directory of sendfile_from: {path}"));
        };
        if !self.route.shows(&beneath) {
            return Response::plain(Status::NOT_FOUND).into();
        }
        match self.find(files, &beneath).await {
            Ok(Found::File(file)) => {
                let own = kept.type_of(&file.content_type);
                of_file_as(self.request, file, own, self.route.options.max_ranges, self.now).into()
            }
            Ok(Found::Directory) => Response::plain(Status::NOT_FOUND).into(),
            Err(unresolved) => Response::plain(unresolved.status).because(unresolved.cause).into(),
        }
    }
}

fn not_found(why: String) -> Answer {
    Response::plain(Status::NOT_FOUND).because(Some(io::Error::other(why))).into()
}

/// Time to read an answer that is discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
