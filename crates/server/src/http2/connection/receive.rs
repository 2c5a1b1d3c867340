//! The client's frames, and the effect of each event on its stream.

use std::fmt::Display;
use std::task::{Context as TaskContext, Poll};

use sealion_h2::{By, ErrorCode, Event, HeadBuffer, StreamId};
use sealion_http::{Protocol, Status};
use sealion_tls::TlsStream;

use super::Http2;
use crate::exchange::{
    Awaited, Delivery, End, Error, Generation, MAX_BEHIND_THE_LAST, Receiving, Step, free_head, keep_head, may_keep,
};
use crate::http2::content::Streamed;
use crate::http2::response::reset_by_client;
use crate::observe::metrics::{self, StreamResult};

impl Http2<'_> {
    /// Reads all frames that have come.
    pub(super) fn receive(&mut self, cx: &mut TaskContext<'_>, stream: &mut TlsStream) -> Result<(), Error> {
        if !self.context.shared.goes_on(self.passes) {
            self.protocol.drain();
        }
        let mut head = free_head();
        let result = loop {
            // A client that reads no heads has no further request read.
            if self.failed || !self.protocol.wants_read() || self.ahead.has_many_heads() {
                break Ok(());
            }
            if !stream.buffered().is_empty() {
                self.frames(stream, &mut head);
                continue;
            }
            if self.finished {
                break Ok(());
            }
            stream.set_responding(!self.is_idle());
            match stream.poll_read_more(cx) {
                Poll::Pending => break Ok(()),
                Poll::Ready(Ok(0)) => {
                    self.finished = true;
                    // The rest of their content will not come.
                    self.streamed.clear();
                    // Nor is it known whether the client has left.
                    for waiting in self.answering.iter_mut().filter(|waiting| waiting.wait.awaited != Awaited::None) {
                        waiting.wait.cancel = None;
                    }
                }
                Poll::Ready(Ok(_)) => {
                    if stream.should_close() {
                        self.protocol.drain();
                    }
                }
                // Between requests no data can be lost, and many clients close without close_notify.
                Poll::Ready(Err(sealion_tls::Error::Truncated)) if self.protocol.is_idle() => self.finished = true,
                Poll::Ready(Err(error)) => break Err(error.into()),
            }
        };
        keep_head(head);
        if self.finished && !self.receiving.is_empty() {
            self.abandon_receiving();
        }
        result
    }

    /// The rest of these contents will not come: the client has closed its direction. Its other requests are answered.
    fn abandon_receiving(&mut self) {
        for Receiving { stream, head, .. } in std::mem::take(&mut self.receiving) {
            self.protocol.reset(stream, ErrorCode::CANCEL);
            self.protocol.release(stream);
            keep_head(head);
        }
    }

    /// Takes the frames in the stream's buffer.
    fn frames(&mut self, stream: &mut TlsStream, head: &mut Box<HeadBuffer>) {
        let buffered = stream.buffered();
        let mut input = buffered;
        while !self.ahead.has_many_heads() {
            match self.protocol.receive(&mut input, head) {
                Ok(Some(event)) => self.event(event, stream, head),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("{}: closed with GOAWAY: {error}", self.context.remote);
                    if let (Some(flood), Some(worker)) = (error.flood, metrics::worker()) {
                        worker.http2.flooded(flood as usize);
                    }
                    self.failed = true;
                    input = &[];
                    break;
                }
            }
        }
        self.begun = true;
        let consumed = buffered.len() - input.len();
        stream.consume(consumed);
    }

    fn event(&mut self, event: Event<'_>, stream: &TlsStream, head: &mut Box<HeadBuffer>) {
        match event {
            Event::Request { stream: id, end } => self.request(id, end, stream, head),
            Event::TooLarge { stream: id, .. } => {
                self.count_request(&self.context.shared.generations.current());
                let head =
                    if may_keep(head, || self.kept()) { std::mem::replace(head, free_head()) } else { Box::default() };
                self.refuse(id, Status::REQUEST_HEADER_FIELDS_TOO_LARGE, head);
            }
            Event::Data { stream: id, data, end } => self.content(id, data, end, stream),
            Event::Trailers { stream: id } => match self.streamed.iter_mut().find(|other| other.stream == id) {
                Some(streamed) => streamed.upload.end(head.fields()),
                None => self.discard(id, 0, true, stream),
            },
            Event::Reset { stream: id, code, by } => self.was_reset(id, code, by, stream),
            Event::Malformed { stream: id, why } => {
                tracing::debug!("{}: stream {id}: malformed request: {why}", self.context.remote);
                opened(StreamResult::Malformed);
                self.log_refusal(id, Status::BAD_REQUEST, stream, why);
            }
            Event::Refused { stream: id } => {
                tracing::debug!("{}: stream {id} refused", self.context.remote);
                let why = "more streams than are allowed, or GOAWAY was sent";
                opened(StreamResult::Refused);
                self.log_refusal(id, Status::SERVICE_UNAVAILABLE, stream, why);
            }
            Event::GoAway { .. } => self.protocol.drain_now(),
            Event::WindowOpened { .. } | Event::PriorityChanged { .. } | Event::SettingsAcknowledged => {}
        }
    }

    /// The head of a request has come. It is answered now, or when its content has come. Content that may be forwarded is passed on.
    fn request(&mut self, id: StreamId, end: bool, stream: &TlsStream, head: &mut Box<HeadBuffer>) {
        let current = self.context.shared.generations.current();
        self.count_request(&current);
        match self.answers().step(head, end, &current, || self.kept()) {
            Step::Refuse(status, head) => self.refuse(id, status, head),
            Step::Answer(passed) => {
                let (upload, content) = passed.unzip();
                self.streamed.extend(upload.map(|upload| Streamed::new(id, upload)));
                self.answer(id, head, stream, content, current);
            }
            Step::Discard => self.receiving.push(Receiving::new(id, head, current)),
        }
    }

    /// Content of a request has come, or its end.
    fn content(&mut self, id: StreamId, data: &[u8], end: bool, stream: &TlsStream) {
        match self.streamed.iter_mut().find(|other| other.stream == id) {
            Some(streamed) => streamed.upload.receive(data, end),
            None => self.discard(id, data.len() as u64, end, stream),
        }
    }

    /// The stream was reset by the client, or by its fault.
    fn was_reset(&mut self, id: StreamId, code: ErrorCode, by: By, stream: &TlsStream) {
        if let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) {
            keep_head(self.receiving.swap_remove(index).head);
            self.protocol.release(id);
        }
        self.streamed.retain(|streamed| streamed.stream != id);
        // A response that is being made goes on, unless it is forwarded: its stream keeps its slot until then.
        if let Some(waiting) = self.answering.iter_mut().find(|waiting| waiting.stream == id) {
            waiting.wait.cancel = None;
        }
        if let Some(index) = self.sending.iter().position(|sending| sending.stream == id) {
            let why: &dyn Display = match by {
                By::Client => &reset_by_client(code),
                By::Server => &code,
            };
            let sending = self.sending.swap_remove(index);
            self.finish(sending, stream, Some(why));
        }
    }

    /// Discards `length` bytes of a request's content, which files do not need. The end of the content, or too much of it, brings the response. After too
    /// much content, the client is told that the rest is not wanted.
    fn discard(&mut self, id: StreamId, length: u64, end: bool, stream: &TlsStream) {
        let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) else { return };
        let receiving = &mut self.receiving[index];
        let is_over = receiving.discard(length, end);
        // Behind the response no more is taken than the window has room for.
        self.protocol.consume(id, length as usize);
        if is_over {
            let Receiving { mut head, current, .. } = self.receiving.swap_remove(index);
            self.answer(id, &mut head, stream, None, current);
            keep_head(head);
        }
    }

    fn count_request(&mut self, current: &Generation) {
        opened(StreamResult::Accepted);
        self.requests += 1;
        self.permit.is_shared = self.protocol.open_streams() > 1;
        if !self.idle.begin() {
            // Its slot is promised to another connection. It closes as any connection that has sent a response: not before the client has it.
            if let Some(worker) = metrics::worker() {
                worker.evicted.add(1);
            }
            self.closing = Some(End::Usual);
            self.protocol.drain_now();
        }
        let Some(most) = current.limits.max_requests else { return };
        if self.requests >= most.get() {
            self.protocol.drain();
        }
        if self.requests >= most.get().saturating_add(MAX_BEHIND_THE_LAST) {
            // The client does not reply to the PING that would tell which requests it had sent before it knew.
            self.protocol.drain_now();
        }
    }

    /// Writes the line of a request that was reset before it had a stream.
    fn log_refusal(&mut self, id: StreamId, status: Status, stream: &TlsStream, why: &str) {
        let delivery = Delivery {
            stream: id.get().into(),
            body: 0,
            wire: 0,
            path: stream.path(),
            choice: &mut self.path,
            aborted: Some(&why),
        };
        delivery.of_reset(self.context, Protocol::Http2, status, stream.info());
    }

    /// Bytes of heads that wait for content, a response's end or the log.
    fn kept(&self) -> usize {
        let receiving: usize = self.receiving.iter().map(|receiving| receiving.head.memory()).sum();
        let answering: usize = self.answering.iter().map(|waiting| waiting.memory).sum();
        receiving + answering + self.sending.iter().map(|sending| sending.answered.memory()).sum::<usize>()
    }
}

fn opened(result: StreamResult) {
    if let Some(worker) = metrics::worker() {
        worker.http2.opened(result);
    }
}
