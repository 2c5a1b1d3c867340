//! From a request to its response, at once or when it is ready, and to the stream.

use std::cell::RefCell;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use sealion_h3::{ErrorCode, HeadBuffer, HeaderBlock, StreamId};
use sealion_http::{ExtraFields, Protocol, Status};
use sealion_quic::Endpoint;

use super::Http3;
use crate::exchange::{
    Answer, Answered, Answering, Answers, Current, HeadBlocks, MAX_AHEAD_STREAMS, UpstreamSide, Wait, now,
};
use crate::http3::link::{Stream, write_interim};
use crate::http3::response::{Failure, Sending, Sent};
use crate::upstream::RequestContent;

thread_local! {
    static HEADS: RefCell<HeadBlocks<HeaderBlock>> = RefCell::default();
}

/// A request whose response is being made.
pub(super) struct Waiting<'a> {
    pub(super) stream: StreamId,
    /// Bytes of its head.
    pub(super) memory: usize,
    pub(super) answer: Answering<'a>,
    pub(super) wait: Wait,
    /// Interim responses that the stream has not taken.
    pub(super) out: Vec<u8>,
}

impl<'a> Http3<'a> {
    /// Answers the request in `head`, which began under `current`. `content`: if it is passed on.
    pub(super) fn answer(
        &mut self,
        id: StreamId,
        head: &mut Box<HeadBuffer>,
        content: Option<RequestContent>,
        current: Current,
    ) {
        let memory = head.memory();
        let mut stream = Stream {
            id,
            link: &self.link,
            protocol: &mut self.protocol,
            out: Vec::new(),
            is_busy: self.answering.len() + self.sending.len() >= MAX_AHEAD_STREAMS,
            upstream: UpstreamSide::new(head, content, &self.head_room),
        };
        let answers = Answers { context: self.context, protocol: Protocol::Http3, streams: &self.streams };
        match answers.answer(head, &mut stream, &mut self.permit, current) {
            Answer::Now(answered) => {
                let out = stream.out;
                self.respond(id, answered, out);
            }
            Answer::Later(answer, _) => {
                let Stream { upstream: UpstreamSide { wait, .. }, out, .. } = stream;
                self.answering.push(Waiting { stream: id, memory, answer, wait, out });
            }
        }
    }

    /// Rejects a request; `head` holds what was decoded.
    pub(super) fn refuse(&mut self, stream: StreamId, status: Status, head: Box<HeadBuffer>) {
        let memory = head.memory();
        let answer = self.answers().refuse(status, head);
        self.answering.push(Waiting { stream, memory, answer, wait: Wait::default(), out: Vec::new() });
    }

    /// Writes the head of a response behind `out`, and makes its content ready.
    fn respond(&mut self, id: StreamId, mut answered: Box<Answered<'a>>, mut out: Vec<u8>) {
        if answered.response.is_withheld {
            // Nothing can be written to the stream behind that.
            self.protocol.reset(id, ErrorCode::H3_INTERNAL_ERROR);
        }
        let (response, framing) = (&answered.response, answered.framing);
        let length = if framing.has_content() { response.body.len() } else { Some(0) };
        let is_empty = length == Some(0);
        let head = (response.status, &response.fields, framing);
        let written = HEADS.with_borrow_mut(|heads| {
            heads.with_head(head, &now(), &[], |head| self.protocol.respond(id, head, is_empty, &mut out))
        });
        // The log needs only the rest of the response.
        answered.response.fields.extra = ExtraFields::default();
        let mut sending = Sending::new(id, answered, out, is_empty);
        match written.and_then(|()| sending.begin(&mut self.protocol)) {
            Ok(()) => {
                if self.sending.capacity() == 0 {
                    // Most connections have one response at a time, and idle ones keep the place.
                    self.sending.reserve_exact(1);
                }
                self.sending.push(sending);
            }
            // The client reset the stream while the response was made.
            Err(error) => self.finish(sending, Some(&error)),
        }
    }

    /// Looks whether answers are ready.
    pub(super) fn poll_answers(&mut self, cx: &mut TaskContext<'_>) {
        let mut index = 0;
        while index < self.answering.len() {
            let Waiting { stream, answer, wait, out, .. } = &mut self.answering[index];
            let polled = answer.as_mut().poll(cx);
            wait.poll_interims(cx, |interim| write_interim(*stream, interim, &mut self.protocol, out));
            match polled {
                Poll::Ready(answered) => {
                    let Waiting { stream, wait, out, .. } = self.answering.swap_remove(index);
                    if wait.is_cancelled() && answered.response.status == Status::CLIENT_CLOSED_REQUEST {
                        // It was cancelled here: its status is for the log.
                        self.protocol.reset(stream, ErrorCode::H3_REQUEST_CANCELLED);
                    }
                    self.respond(stream, answered, out);
                }
                Poll::Pending => index += 1,
            }
        }
    }

    /// Sends interim responses of requests that wait.
    pub(super) fn write_waiting(&mut self, endpoint: &mut Endpoint) {
        for Waiting { stream, out, .. } in self.answering.iter_mut().filter(|waiting| !waiting.out.is_empty()) {
            let Some(mut quic) = endpoint.connection(self.key) else { return };
            if let Some(id) = sealion_quic::StreamId::new(stream.get())
                && let Ok(taken) = quic.write_copy(id, out)
            {
                out.drain(..taken);
            }
        }
    }

    /// Writes responses, by priority.
    pub(super) fn poll_sending(&mut self, cx: &mut TaskContext<'_>, endpoint: &mut Endpoint) {
        if self.sending.is_empty() {
            return;
        }
        if let Some(mut quic) = endpoint.connection(self.key) {
            let current = self.context.shared.generations.current();
            let max = current.http3.send_window;
            let window = self.window.fit(quic.congestion_window(), max, &current.buffered, &current.limits);
            quic.set_send_window(window);
        }
        if self.sending.len() > 1 {
            let protocol = &self.protocol;
            self.sending.sort_by_key(|sending| (protocol.priority(sending.stream).urgency, sending.stream));
        }
        let mut index = 0;
        while index < self.sending.len() {
            // Levels apply to bytes that are written from now on.
            self.carry_out(endpoint);
            let Some(mut quic) = endpoint.connection(self.key) else { return };
            let sending = &mut self.sending[index];
            let polled = match sending.is_blocked {
                true => Poll::Pending,
                false => sending.poll(cx, &mut self.protocol, &mut quic, (&mut self.link, &mut self.paced)),
            };
            match polled {
                Poll::Pending => index += 1,
                Poll::Ready(Ok(Sent::Paced(until))) => {
                    self.deadlines.paced = Some(until);
                    index += 1;
                }
                Poll::Ready(Ok(Sent::All)) => {
                    let sending = self.sending.remove(index);
                    self.link.unacknowledged.push(sending.stream);
                    self.finish(sending, None);
                }
                Poll::Ready(Err(failure)) => {
                    let sending = self.sending.remove(index);
                    if let Failure::File(_) | Failure::Source(_) = &failure {
                        tracing::debug!("{}: stream {}: {failure}", self.context.remote, sending.stream);
                    }
                    let is_tunnel = sending.answered.is_tunnel;
                    let code = if is_tunnel { ErrorCode::H3_REQUEST_CANCELLED } else { ErrorCode::H3_INTERNAL_ERROR };
                    self.abort(endpoint, sending, code, &failure);
                }
            }
        }
    }

    /// Ends a response before its end: the stream is reset, and never finished.
    fn abort(&mut self, endpoint: &mut Endpoint, sending: Sending<'_>, code: ErrorCode, why: &dyn std::fmt::Display) {
        self.protocol.reset(sending.stream, code);
        // The protocol may think that all of it was sent.
        if let (Some(mut quic), Some(id)) =
            (endpoint.connection(self.key), sealion_quic::StreamId::new(sending.stream.get()))
        {
            quic.reset(id, code.0);
        }
        self.finish(sending, Some(why));
    }

    /// Ends responses that the client has not read for too long.
    pub(super) fn abort_stalled(&mut self, endpoint: &mut Endpoint, before: Instant, why: &str) {
        let is_stalled = |sending: &Sending<'_>| sending.is_blocked && sending.progress <= before;
        while let Some(index) = self.sending.iter().position(is_stalled) {
            let sending = self.sending.remove(index);
            self.abort(endpoint, sending, ErrorCode::H3_REQUEST_CANCELLED, &why);
        }
    }
}
