//! Goes on where an application's answer leads: to a path or a route of the site, or to a file.

use std::io;
use std::time::Duration;

use sealion_http::{Method, Request, Status, Target};
use tokio::time::timeout;

use super::turns::{Place, Turn};
use super::{Answer, Answering};
use crate::files::resolve::Found;
use crate::placeholders::Led;
use crate::response::{Body, BodyStream, Response, discard, of_file_as};
use crate::site::accel::{AccelRedirect, AccelTarget, KeptFields};

impl Answering<'_> {
    /// Answers with the target of an application's response, `first`. `turn`: of the application.
    pub(super) async fn follow_accel(
        &self,
        redirect: AccelRedirect,
        mut first: Box<Response>,
        turn: Turn<'_>,
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
            AccelTarget::Path { raw, query } => here.go_on_without_query(Place::new(raw, query), turn).await,
            AccelTarget::Named(name) => match here.named(&name, turn.path.decoded()) {
                Some(Ok(route)) => here.turn_by_name(route, turn).await,
                Some(Err(status)) => Response::plain(status).into(),
                None => {
                    let cause = io::Error::other(format!("X-Accel-Redirect names no route: {}", name.escape_default()));
                    Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(cause)).into()
                }
            },
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
    async fn go_on_without_query(&self, place: Place, turn: Turn<'_>) -> Answer {
        let Target::Path { path, .. } = self.request.target else { return Response::plain(Status::BAD_REQUEST).into() };
        let request = Request { target: Target::Path { path, query: None }, ..self.request.clone() };
        Answering { request: &request, ..*self }.go_on(place, Led::InternalRedirect, turn).await
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

/// Time to read a response that is discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
