//! Answers of connections that have several at a time, where one process has the client and another one the upstream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::Version;
use sealion_http::{Method, Protocol, Status};

use super::{Answered, Answering, Context, Home, PathChoice, RelayedAnswer, RelayedSource};
use crate::limits::ConnectionStreams;
use crate::passing::{Ends, Line, RelayedHead};
use crate::response::{Body, BodyStream, Cursor, Response};

/// Awaits the response to a request whose upstream another process has.
pub(crate) async fn relayed_answer<'a>(
    context: &'a Context<'a>,
    protocol: Protocol,
    mut answer: RelayedAnswer,
    mut line: Line,
    streams: Arc<ConnectionStreams>,
) -> Box<Answered<'a>> {
    let answered = poll_fn(|cx| answer.poll(cx)).await;
    let place = streams.try_take_shared();
    let (head, block) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            let mut answered = Answered::continued(context, protocol, (None, &mut line), Ends::Usual, None);
            answered.response = Response::plain(Status::BAD_GATEWAY).because(Some(error));
            let length = answered.response.body.len();
            answered.framing = ResponseFraming::of(Version::Http11, Method::Get, Status::BAD_GATEWAY, length);
            return answered;
        }
    };
    let RelayedHead { mut line, framing, length, ends, request } = *head;
    let mut answered = Answered::continued(context, protocol, (request, &mut line), ends, place);
    if framing.has_content() {
        let RelayedAnswer { link, demand, .. } = answer;
        answered.response.body =
            Body::Stream(BodyStream { length, source: Box::pin(RelayedSource::new(link, demand)) });
    }
    answered.response.is_withheld = ends == Ends::Withheld;
    (answered.framing, answered.block) = (framing, Some(block));
    answered
}

/// Feeds a response that is awaited to the process that has the client. `make`: the header block of a response.
pub(crate) async fn feed_answer(
    mut home: Home,
    mut answer: Answering<'_>,
    make: impl FnOnce(&mut Response, ResponseFraming) -> Vec<u8>,
) {
    let mut answered = home.wait_for(Pin::new(&mut answer)).await;
    let framing = answered.framing;
    let ends = match (answered.response.is_withheld, answered.is_tunnel) {
        (true, _) => Ends::Withheld,
        (false, true) => Ends::Tunnel,
        (false, false) => Ends::Usual,
    };
    let block = make(&mut answered.response, framing);
    let body = std::mem::replace(&mut answered.response.body, Body::Empty);
    let length = body.len();
    let (request, line) = answered.leave(&PathChoice::default(), (0, 0));
    home.send_head(RelayedHead { line, framing, length, ends, request }, block).await;
    let content = if framing.has_content() { body } else { Body::Empty };
    home.send_content(Cursor::new(content)).await;
}
