//! The bytes that the client sends, and the meaning of each event for its request.

use std::task::Context as TaskContext;

use bytes::Bytes;
use sealion_h3::{ConnectionError, ErrorCode, HeadBuffer, Opened, StreamId};
use sealion_http::{Protocol, Status};
use sealion_quic::{CloseReason, Endpoint, Event, Read};

use super::Http3;
use crate::exchange::{Delivery, Generation, MAX_BEHIND_THE_LAST, Receiving, Step, free_head, keep_head, may_keep};
use crate::http3::content::Streamed;
use crate::observe::metrics::{self, StreamResult};

impl Http3<'_> {
    pub(super) fn on_event(&mut self, endpoint: &mut Endpoint, event: Event) -> Result<(), ConnectionError> {
        let id = |stream: sealion_quic::StreamId| StreamId::new(stream.get());
        match event {
            Event::Connected | Event::StreamAvailable => {}
            Event::Opened(stream) => {
                if self.protocol.open(id(stream))? == Opened::Refused {
                    opened(StreamResult::Refused);
                }
            }
            Event::Readable(stream) => self.read(endpoint, id(stream))?,
            Event::Writable(stream) => {
                self.sending.iter_mut().filter(|sending| sending.stream == id(stream)).for_each(|sending| {
                    sending.is_blocked = false;
                });
            }
            Event::Finished(stream) => self.link.unacknowledged.retain(|other| *other != id(stream)),
            Event::Stopped { stream, code } => {
                self.link.unacknowledged.retain(|other| *other != id(stream));
                self.cancelled(id(stream), code)?;
            }
            Event::Closed(reason) => self.ended = Some(why_closed(&reason)),
        }
        Ok(())
    }

    fn cancelled(&mut self, stream: StreamId, code: u64) -> Result<(), ConnectionError> {
        if let Some(event) = self.protocol.cancelled(stream, ErrorCode(code))? {
            self.on_request_event(event, &mut Box::default());
        }
        Ok(())
    }

    /// Reads a stream, as far as its content is wanted. Bytes are handed on with the end of the stream, if it has come.
    pub(super) fn read(&mut self, endpoint: &mut Endpoint, stream: StreamId) -> Result<(), ConnectionError> {
        let (Some(mut quic), Some(id)) = (endpoint.connection(self.key), sealion_quic::StreamId::new(stream.get()))
        else {
            return Ok(());
        };
        let (mut head, mut held, mut result) = (free_head(), None, Ok(()));
        let finished = quic.read(id, |read| {
            let (bytes, fin, reset) = match read {
                Read::Data(bytes) => {
                    self.receive_window.read(bytes.len() as u64);
                    (held.replace(bytes), false, None)
                }
                Read::End => (Some(held.take().unwrap_or_default()), true, None),
                Read::Blocked => (held.take(), false, None),
                Read::Reset(code) => (held.take(), false, Some(code)),
            };
            if let Some(bytes) = bytes {
                result = self.receive(stream, &bytes, fin, &mut head);
            }
            if let (Ok(()), Some(code)) = (&result, reset) {
                result = self.cancelled(stream, code);
            }
            result.is_ok() && !self.pause(stream)
        });
        if let (Ok(()), Some(bytes)) = (&result, held) {
            result = self.receive(stream, &bytes, false, &mut head);
        }
        let _ = finished;
        keep_head(head);
        result
    }

    /// Whether the content of the stream has to wait for its upstream.
    fn pause(&mut self, stream: StreamId) -> bool {
        let Some(streamed) = self.streamed.iter_mut().find(|streamed| streamed.stream == stream) else { return false };
        streamed.is_paused = streamed.is_full();
        streamed.is_paused
    }

    fn receive(
        &mut self,
        stream: StreamId,
        bytes: &Bytes,
        fin: bool,
        head: &mut Box<HeadBuffer>,
    ) -> Result<(), ConnectionError> {
        let mut input = &bytes[..];
        while let Some(event) = self.protocol.receive(stream, &mut input, fin, head)? {
            self.on_request_event(event, head);
        }
        Ok(())
    }

    /// Notes how much upstreams have taken, and reads on there.
    pub(super) fn poll_streamed(
        &mut self,
        cx: &mut TaskContext<'_>,
        endpoint: &mut Endpoint,
    ) -> Result<(), ConnectionError> {
        let mut resumed = Vec::new();
        for streamed in &mut self.streamed {
            let mut out = Vec::new();
            streamed.poll(cx, &mut self.protocol, &mut out);
            if let Some(waiting) = self.answering.iter_mut().find(|waiting| waiting.stream == streamed.stream) {
                waiting.out.append(&mut out);
            }
            if streamed.is_paused && !streamed.is_full() {
                streamed.is_paused = false;
                resumed.push(streamed.stream);
            }
        }
        let is_held = self.is_window_held();
        self.streamed.iter_mut().for_each(|streamed| streamed.upload.hold(is_held && !streamed.is_paused));
        self.fit_receive_window(endpoint);
        resumed.into_iter().try_for_each(|stream| self.read(endpoint, stream))
    }

    /// Whether streams that are not read may hold the window of all: the client may be unable to send.
    pub(super) fn is_window_held(&self) -> bool {
        self.receive_window.may_be_held(self.streamed.iter().filter(|streamed| streamed.is_paused).count())
    }

    /// Opens the window for content that servers take, and closes it behind the last.
    fn fit_receive_window(&mut self, endpoint: &mut Endpoint) {
        let window = if self.streamed.is_empty() {
            self.receive_window.shrink()
        } else if self.streamed.iter().any(|streamed| streamed.upload.is_large()) {
            let current = self.context.shared.generations.current();
            self.receive_window.grow(current.http3.receive_window, &current.buffered, &current.limits)
        } else {
            None
        };
        if let Some((window, mut quic)) = window.zip(endpoint.connection(self.key)) {
            quic.set_receive_window(window);
        }
    }

    fn on_request_event(&mut self, event: sealion_h3::Event<'_>, head: &mut Box<HeadBuffer>) {
        use sealion_h3::Event;
        match event {
            Event::Request { stream, end } => self.request(stream, end, head),
            Event::TooLarge { stream, .. } => {
                self.count_request(&self.context.shared.generations.current());
                let head =
                    if may_keep(head, || self.kept()) { std::mem::replace(head, free_head()) } else { Box::default() };
                self.refuse(stream, Status::REQUEST_HEADER_FIELDS_TOO_LARGE, head);
            }
            Event::Data { stream, data, end } => {
                match self.streamed.iter_mut().find(|streamed| streamed.stream == stream) {
                    Some(streamed) => streamed.upload.receive(data, end),
                    None => self.discard(stream, data.len() as u64, end),
                }
            }
            Event::Trailers { stream } => match self.streamed.iter_mut().find(|streamed| streamed.stream == stream) {
                Some(streamed) => streamed.upload.end(head.fields()),
                None => self.discard(stream, 0, true),
            },
            Event::Reset { stream, code, .. } => self.was_reset(stream, code),
            Event::Malformed { stream, why } => {
                tracing::debug!("{}: stream {stream}: malformed request: {why}", self.context.remote);
                opened(StreamResult::Malformed);
                let path = sealion_tls::SealedBy::User;
                let choice = &mut self.path;
                let delivery = Delivery { stream: stream.get(), body: 0, wire: 0, path, choice, aborted: Some(&why) };
                delivery.of_reset(self.context, Protocol::Http3, Status::BAD_REQUEST, Some(&self.link.info));
            }
            // Its ID is a push's (RFC 9114 §5.2): requests that were sent before it, on other streams, may come after it.
            Event::GoAway => self.protocol.drain(),
            Event::PriorityChanged { .. } | Event::Settings => {}
        }
    }

    /// The head of a request has come. It is answered now, or when its content has come. Content that may be forwarded is passed on.
    fn request(&mut self, stream: StreamId, end: bool, head: &mut Box<HeadBuffer>) {
        let current = self.context.shared.generations.current();
        self.count_request(&current);
        match self.answers().step(head, end, &current, || self.kept()) {
            Step::Refuse(status, head) => self.refuse(stream, status, head),
            Step::Answer(passed) => {
                let (upload, content) = passed.unzip();
                self.streamed.extend(upload.map(|upload| Streamed::new(stream, upload)));
                self.answer(stream, head, content, current);
            }
            Step::Discard => self.receiving.push(Receiving::new(stream, head, current)),
        }
    }

    /// Discards content, which files do not need. Its end, or too much of it, brings the response.
    fn discard(&mut self, stream: StreamId, length: u64, end: bool) {
        let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == stream) else { return };
        if self.receiving[index].discard(length, end) {
            let Receiving { mut head, current, .. } = self.receiving.swap_remove(index);
            self.answer(stream, &mut head, None, current);
            keep_head(head);
        }
    }

    /// The stream was reset by the client, or by its fault.
    fn was_reset(&mut self, stream: StreamId, code: ErrorCode) {
        if let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == stream) {
            keep_head(self.receiving.swap_remove(index).head);
            self.protocol.release(stream);
        }
        self.streamed.retain(|streamed| streamed.stream != stream);
        // A response that is being made goes on, unless it is forwarded: its stream keeps its slot until then.
        if let Some(waiting) = self.answering.iter_mut().find(|waiting| waiting.stream == stream) {
            waiting.wait.cancel = None;
        }
        if let Some(index) = self.sending.iter().position(|sending| sending.stream == stream) {
            let sending = self.sending.swap_remove(index);
            self.finish(sending, Some(&format_args!("the client reset the stream: {code}")));
        }
    }

    fn count_request(&mut self, current: &Generation) {
        opened(StreamResult::Accepted);
        self.requests += 1;
        self.permit.is_shared = self.protocol.open_streams() > 1;
        if !self.idle.begin() {
            // Its slot is promised to another connection.
            self.closing = true;
            self.protocol.drain_now();
        }
        let Some(most) = current.limits.max_requests else { return };
        if self.requests >= most.get() {
            self.protocol.drain();
        }
        if self.requests >= most.get().saturating_add(MAX_BEHIND_THE_LAST) {
            self.protocol.drain_now();
            self.closing = true;
        }
    }
}

fn opened(result: StreamResult) {
    if let Some(worker) = metrics::worker() {
        worker.http3.streams.opened(result);
    }
}

fn why_closed(reason: &CloseReason) -> String {
    match reason {
        CloseReason::TimedOut => "the client sent nothing for too long".to_owned(),
        CloseReason::HandshakeTimedOut => "the handshake did not end in time".to_owned(),
        CloseReason::Reset => "the client lost the connection's state".to_owned(),
        CloseReason::ClosedByApplication { code, .. } => format!("the client closed: {}", ErrorCode(*code)),
        CloseReason::ClosedByTransport { code, .. } => format!("the client closed: QUIC error {code:#x}"),
        CloseReason::Violation { why, .. } => why.clone(),
        CloseReason::Failed => "QUIC failed".to_owned(),
    }
}
