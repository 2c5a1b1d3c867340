//! Answers of connections that have several at a time, where one process has the client and another one the upstream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use sealion_http::Status;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::multiplexed::HeadBuffer;

use super::multiplexed::{SharedHead, as_seen, leave_out_page};
use super::{
    Answered, Answering, Answers, Current, Exchange, Home, Later, Owed, PathChoice, RelayedAnswer, RelayedSource,
};
use crate::limits::{ConnectionStreams, Permit};
use crate::passing::{Ends, Line, RelayedHead};
use crate::response::{Body, BodyStream, Cursor, Response};

impl<'a> Answers<'_, 'a> {
    /// Awaits the response to the request in `head`, whose upstream another process has. `line`: as far as that process knew it.
    pub(crate) fn go_on(
        &self,
        head: Box<HeadBuffer>,
        line: &Line,
        relayed: RelayedAnswer,
        permit: &mut Permit,
    ) -> (Answering<'a>, Later) {
        let Answers { context, protocol, streams } = *self;
        let current = context.shared.generations.current();
        let decoded = head.request();
        let request = as_seen(&decoded);
        let peer = context.peer(decoded.fields, protocol);
        let mut exchange = Exchange::continued(context, &current, peer, request.as_ref(), line);
        exchange.keep_place(permit);
        let later = exchange.later();
        let owed = exchange.park();
        let (head, later) = later.sharing(head);
        (Box::pin(relayed_answer(head, current, owed, relayed, Arc::clone(streams))), later)
    }
}

async fn relayed_answer(
    head: SharedHead,
    current: Current,
    owed: Owed<'_>,
    mut relayed: RelayedAnswer,
    streams: Arc<ConnectionStreams>,
) -> Box<Answered<'_>> {
    let decoded = head.request();
    let request = as_seen(&decoded);
    let exchange = Exchange::resume(&current, request.as_ref(), owed);
    let came = poll_fn(|cx| relayed.poll(cx)).await;
    let place = streams.try_take_shared();
    let (response, framing, is_tunnel, block) = match came {
        Ok(Some((begun, block))) => {
            let RelayedHead { mut line, framing, length, ends } = *begun;
            let mut response = exchange.response_of(&mut line);
            response.is_withheld = ends == Ends::Withheld;
            if framing.has_content() {
                let RelayedAnswer { link, demand, .. } = relayed;
                let source = Box::pin(RelayedSource::new(link, demand));
                response.body = Body::Stream(BodyStream { length, source });
            }
            (response, framing, ends == Ends::Tunnel, Some(block))
        }
        none => {
            let mut response = match none {
                Err(error) => exchange.refuse(Status::BAD_GATEWAY).await.because(Some(error)),
                Ok(_) => Response::plain(Status::CLIENT_CLOSED_REQUEST),
            };
            if place.is_none() {
                leave_out_page(&mut response);
            }
            let framing = exchange.answered(&mut response);
            (response, framing, false, None)
        }
    };
    let owed = exchange.park();
    let place = place.filter(|_| response.body.holds_descriptor());
    let head = Arc::into_inner(head);
    Box::new(Answered { head, current, owed, response, framing, is_tunnel, block, _place: place })
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
    let (_, line) = answered.leave(&PathChoice::default(), (0, 0));
    home.send_head(RelayedHead { line, framing, length, ends }, block).await;
    let content = if framing.has_content() { body } else { Body::Empty };
    home.send_content(Cursor::new(content)).await;
}
