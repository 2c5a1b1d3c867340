//! From a request to its response: at once, or when it is ready.

use std::cell::RefCell;
use std::task::{Context as TaskContext, Poll};

use sealion_h2::{ErrorCode, HeadBuffer, HeaderBlock, StreamClosed, StreamId};
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::{ExtraFields, Protocol, Status};
use sealion_tls::TlsStream;

use super::Http2;
use crate::exchange::{
    Alternative, Answer, Answered, Answering, Answers, Awaited, Current, HeadBlocks, Later, Listener,
    MAX_AHEAD_STREAMS, UpstreamSide, Wait, now,
};
use crate::http2::request::{Stream, send_interim};
use crate::http2::response::{Asking, Sending};
use crate::passing::Link;
use crate::response::Response;
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
    pub(super) later: Later,
    /// To the process that has the upstream. `None`: this one has it.
    pub(super) link: Option<Link>,
}

impl Waiting<'_> {
    /// Whether the connection may pass while it waits.
    pub(super) fn can_leave(&self) -> bool {
        self.wait.awaited != Awaited::None && !self.wait.is_cancelled() && !self.later.is_traced
    }
}

impl<'a> Http2<'a> {
    /// Answers the request in `head`, which began under `current`. `content`: if it is passed on.
    pub(super) fn answer(
        &mut self,
        id: StreamId,
        head: &mut Box<HeadBuffer>,
        tls: &TlsStream,
        content: Option<RequestContent>,
        current: Current,
    ) {
        let memory = head.memory();
        let mut stream = Stream {
            id,
            connection: tls,
            is_busy: self.answering.len() + self.sending.len() >= MAX_AHEAD_STREAMS,
            protocol: &mut self.protocol,
            heads: &mut self.heads,
            upstream: UpstreamSide::new(head, content, self.ahead.head_room()),
        };
        let answers = Answers { context: self.context, protocol: Protocol::Http2, streams: &self.streams };
        match answers.answer(head, &mut stream, &mut self.permit, current) {
            Answer::Now(answered) => self.respond(Sending::new(id, answered), tls),
            Answer::Later(answer, later) => {
                let wait = stream.upstream.wait;
                self.answering.push(Waiting { stream: id, memory, answer, wait, later, link: None });
            }
        }
    }

    /// Rejects a request; `head` holds what was decoded.
    pub(super) fn refuse(&mut self, id: StreamId, status: Status, head: Box<HeadBuffer>) {
        let memory = head.memory();
        let answer = self.answers().refuse(status, head);
        let (wait, later) = (Wait::default(), Later::default());
        self.answering.push(Waiting { stream: id, memory, answer, wait, later, link: None });
    }

    /// Writes the head of a response and makes its content ready.
    fn respond(&mut self, mut sending: Box<Sending<'a>>, stream: &TlsStream) {
        let (id, length) = (sending.stream, sending.length());
        if sending.answered.response.is_withheld {
            self.protocol.reset(id, ErrorCode::INTERNAL_ERROR);
            return self.finish(sending, stream, None);
        }
        let before = self.heads.len();
        let block = sending.answered.block.take();
        let written = match &block {
            Some(block) => self.write_head(&sending, &[block]),
            None => {
                let Answered { response, framing, .. } = &*sending.answered;
                with_head(self.context.listener, response, *framing, |head| self.write_head(&sending, head))
            }
        };
        // The log needs the rest of the response alone.
        sending.answered.response.fields.extra = ExtraFields::default();
        self.ahead.set_heads(self.heads.len());
        sending.wire = (self.heads.len() - before) as u64;
        let offered = written.and_then(|written| match written {
            Written::All => {
                sending.took_whole(length.unwrap_or(0));
                Ok(())
            }
            Written::Head => sending.offer(&mut self.protocol),
        });
        match offered {
            Ok(()) => {
                self.upcoming = self.upcoming.saturating_add(HEAD_ESTIMATE).saturating_add(length.unwrap_or(0));
                self.has_backlog |= !sending.ended;
                self.sending.push(sending);
            }
            // The client reset the stream while the response was made.
            Err(error) => self.finish(sending, stream, Some(&error)),
        }
        if stream.should_close() {
            self.protocol.drain();
        }
    }

    /// Writes the head of a response. A short content leaves with it where no other content waits: it needs neither a turn nor a frame of its own in the batch.
    fn write_head(&mut self, sending: &Sending<'_>, head: &[&[u8]]) -> Result<Written, StreamClosed> {
        let (id, heads) = (sending.stream, &mut self.heads);
        if let Some(content) = sending.whole().filter(|_| !self.has_backlog && heads.len() < MAX_WHOLE)
            && self.protocol.respond_whole(id, head, content, heads)?
        {
            return Ok(Written::All);
        }
        let is_empty = sending.length() == Some(0);
        self.protocol.respond(id, head, is_empty, heads)?;
        Ok(if is_empty { Written::All } else { Written::Head })
    }

    /// Looks whether answers are ready, and whether sources have more.
    pub(super) fn poll_answers(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream) {
        for streamed in &mut self.streamed {
            streamed.poll(cx, &mut self.protocol, &mut self.heads);
        }
        let contents = if self.has_backlog { self.sending.iter().map(|sending| sending.ahead()).sum() } else { 0 };
        self.ahead.set_contents(contents);
        self.ahead.set_heads(self.heads.len());
        self.window.fit(&mut self.protocol, &self.context.shared.generations);
        let mut index = 0;
        while index < self.answering.len() {
            let Waiting { stream: id, answer, wait, .. } = &mut self.answering[index];
            let polled = answer.as_mut().poll(cx);
            wait.poll_interims(cx, |interim| send_interim(*id, interim, &mut self.protocol, &mut self.heads));
            match polled {
                Poll::Ready(answered) => {
                    let waiting = self.answering.swap_remove(index);
                    let (id, is_cancelled) = (waiting.stream, waiting.wait.is_cancelled());
                    if is_cancelled && answered.response.status == Status::CLIENT_CLOSED_REQUEST {
                        // It was cancelled here: its status is for the log.
                        self.protocol.reset(id, ErrorCode::CANCEL);
                    }
                    self.respond(Sending::new(id, answered), stream);
                }
                Poll::Pending => index += 1,
            }
        }
        // Without a backlog all are in frames.
        let mut index = if self.has_backlog { 0 } else { self.sending.len() };
        while index < self.sending.len() {
            let sharing = self.sending.len() as u64;
            let mut asking =
                Asking { upcoming: &mut self.upcoming, heads: &mut self.heads, ahead: &mut self.ahead, sharing };
            match self.sending[index].poll_source(&mut self.protocol, cx, &mut asking) {
                Poll::Ready(error) => {
                    let sending = self.sending.swap_remove(index);
                    // RFC 8441 §5: a tunnel that is reset.
                    let is_tunnel = sending.answered.is_tunnel;
                    let code = if is_tunnel { ErrorCode::CANCEL } else { ErrorCode::INTERNAL_ERROR };
                    self.protocol.reset(sending.stream, code);
                    self.finish(sending, stream, Some(&error));
                }
                Poll::Pending => index += 1,
            }
        }
    }
}

/// Calls `write` with the header block of a response, in parts.
fn with_head<T>(
    listener: &Listener,
    response: &Response,
    framing: ResponseFraming,
    write: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    let more = listener.alternative(response).map_or(&[][..], Alternative::http2);
    let head = (response.status, &response.fields, framing);
    HEADS.with_borrow_mut(|heads| heads.with_head(head, &now(), more, write))
}

/// The header block of a response.
pub(super) fn block_of(listener: &Listener, response: &Response, framing: ResponseFraming) -> Vec<u8> {
    with_head(listener, response, framing, |head| head.concat())
}

/// The part of a response that is in frames.
enum Written {
    /// Its content waits, or its end does.
    Head,
    All,
}

// GUESS: half of a turn, which holds 16 responses of 1 kB.
/// Bytes of frames with whole responses, beyond which content waits for its turn.
const MAX_WHOLE: usize = 32 << 10;

/// Usual length of a header block, for the choice of path.
const HEAD_ESTIMATE: u64 = 128;
