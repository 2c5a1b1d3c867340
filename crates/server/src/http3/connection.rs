//! The driver of a connection: events of its streams, requests, responses.
//!
//! A request is in one of three lists: `receiving`, while its content comes; `answering`, while its response is made; `sending`, from the head of
//! its response to the end.

mod answer;
mod deadlines;
mod receive;

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use sealion_h3::{Command, Connection, ConnectionError, ErrorCode, StreamId};
use sealion_http::Protocol;
use sealion_quic::{ConnectionKey, Endpoint, Event};
use sealion_tls::HandshakeInfo;

use super::content::Streamed;
use super::link::Link;
use super::response::Sending;
use super::window::{MIN_SEND_WINDOW, ReceiveWindow, SendWindow};
use crate::exchange::{Answered, Answers, Context, Cut, Delivery, End, PathChoice, Receiving, poll_idle_end};
use crate::limits::{ConnectionStreams, Idle, Permit};
use crate::observe::metrics;
use crate::path::policy::PathReason;
use crate::upstream::HeadRoom;
use answer::Waiting;
use deadlines::{Deadlines, Farewell};

/// A connection whose handshake has ended.
pub(super) struct Http3<'a> {
    context: &'a Context<'a>,
    key: ConnectionKey,
    idle: Idle<'a>,
    link: Link,
    protocol: Connection,
    permit: Permit,
    /// Places of the responses that hold descriptors.
    streams: Arc<ConnectionStreams>,
    path: PathChoice,
    head_room: Arc<HeadRoom>,
    window: SendWindow,
    receive_window: ReceiveWindow,
    /// The server's control stream, and bytes that it has not taken.
    control: Option<sealion_quic::StreamId>,
    control_bytes: Vec<u8>,
    receiving: Vec<Receiving<StreamId>>,
    streamed: Vec<Streamed>,
    answering: Vec<Waiting<'a>>,
    sending: Vec<Sending<'a>>,
    /// Until when the rate of the connection lets nothing be sent.
    paced: Option<Instant>,
    requests: u64,
    deadlines: Deadlines,
    closing: bool,
    /// The connection is closed, for this reason.
    ended: Option<String>,
}

impl<'a> Http3<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        key: ConnectionKey,
        idle: Idle<'a>,
        link: Link,
        (limits, stream_window): (sealion_h3::Limits, u64),
    ) -> Self {
        let client = context.listener.one_client(context.remote);
        Http3 {
            context,
            key,
            idle,
            link,
            protocol: Connection::new(limits),
            permit: Permit::default(),
            streams: context.shared.streams.connection(client),
            path: PathChoice::constant(PathReason::Quic),
            head_room: Arc::default(),
            window: SendWindow::new(client),
            receive_window: ReceiveWindow::new(client, stream_window),
            control: None,
            control_bytes: Vec::new(),
            receiving: Vec::new(),
            streamed: Vec::new(),
            answering: Vec::new(),
            sending: Vec::new(),
            paced: None,
            requests: 0,
            deadlines: Deadlines::default(),
            closing: false,
            ended: None,
        }
    }

    /// Handles all events. Ready: the connection is closed, and [`Self::finish_all`] ends its requests.
    pub(super) fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        endpoint: &mut Endpoint,
        events: &mut VecDeque<Event>,
    ) -> Poll<()> {
        if !self.context.shared.is_serving() {
            self.protocol.drain();
        }
        while let Some(event) = events.pop_front() {
            if let Err(error) = self.on_event(endpoint, event) {
                self.fail(endpoint, &error);
            }
            if self.ended.is_some() {
                return Poll::Ready(());
            }
        }
        if let Err(error) = self.poll_streamed(cx, endpoint) {
            self.fail(endpoint, &error);
            return Poll::Ready(());
        }
        self.poll_answers(cx);
        self.write_control(endpoint);
        self.write_waiting(endpoint);
        self.poll_sending(cx, endpoint);
        // After the steps that it depends on: a stream that has just been blocked has a deadline.
        self.poll_deadlines(cx, endpoint);
        self.poll_answers(cx);
        self.poll_sending(cx, endpoint);
        self.carry_out(endpoint);
        self.count_resets();
        self.write_control(endpoint);
        if let Some(why) = self.deadlines.failed.take() {
            self.close(endpoint, ErrorCode::H3_EXCESSIVE_LOAD, why);
            return Poll::Ready(());
        }
        if self.is_idle() {
            if self.sending.is_empty() {
                self.sending = Vec::new();
            }
            *events = VecDeque::new();
            if self.window.shrink()
                && let Some(mut quic) = endpoint.connection(self.key)
            {
                quic.set_send_window(MIN_SEND_WINDOW);
            }
            if self.poll_end().is_ready() && self.poll_farewell(cx, endpoint).is_ready() {
                self.close(endpoint, ErrorCode::H3_NO_ERROR, "");
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Whether no request waits for a response or a part of one, and the client has all of them.
    fn is_idle(&self) -> bool {
        self.protocol.is_idle() && self.answering.is_empty() && self.link.unacknowledged.is_empty()
    }

    /// Whether an idle connection should be closed.
    fn poll_end(&mut self) -> Poll<()> {
        if self.closing {
            return Poll::Ready(());
        }
        self.protocol.shrink();
        poll_idle_end(&mut self.link, &mut self.idle).map(|end| {
            if let (End::Evicted, Some(worker)) = (end, metrics::worker()) {
                worker.evicted.add(1);
            }
        })
    }

    /// Tells the client which requests are served, and waits for a round trip: requests that come meanwhile are rejected, so that the client can repeat them
    /// (RFC 9114 §5.2).
    fn poll_farewell(&mut self, cx: &mut TaskContext<'_>, endpoint: &mut Endpoint) -> Poll<()> {
        self.closing = true;
        if self.deadlines.farewell == Farewell::None {
            self.protocol.drain_now();
            self.write_control(endpoint);
            let round_trip = endpoint.connection(self.key).map(|quic| quic.round_trip()).unwrap_or_default();
            self.deadlines.farewell = Farewell::Until(Instant::now() + round_trip);
            self.poll_deadlines(cx, endpoint);
        }
        if self.deadlines.farewell == Farewell::Over { Poll::Ready(()) } else { Poll::Pending }
    }

    fn fail(&mut self, endpoint: &mut Endpoint, error: &ConnectionError) {
        tracing::debug!("{}: HTTP/3: closed: {error}", self.context.remote);
        if let (Some(flood), Some(worker)) = (error.flood, metrics::worker()) {
            worker.http3.streams.flooded(flood as usize);
        }
        self.close(endpoint, error.code, error.why);
    }

    fn close(&mut self, endpoint: &mut Endpoint, code: ErrorCode, why: &str) {
        endpoint.close(Instant::now(), self.key, code.0, why.as_bytes());
        self.ended = Some(if why.is_empty() { "the connection ended".to_owned() } else { why.to_owned() });
    }

    fn count_resets(&mut self) {
        if let Some(resets) = self.protocol.take_resets()
            && let Some(worker) = metrics::worker()
        {
            worker.http3.streams.reset(&resets);
        }
    }

    /// Carries out the orders of the protocol.
    fn carry_out(&mut self, endpoint: &mut Endpoint) {
        let id = |stream: StreamId| sealion_quic::StreamId::new(stream.get());
        while let Some(command) = self.protocol.next_command() {
            let Some(mut quic) = endpoint.connection(self.key) else { return };
            match command {
                Command::Reset { stream, code } => id(stream).into_iter().for_each(|id| quic.reset(id, code.0)),
                Command::Stop { stream, code } => id(stream).into_iter().for_each(|id| quic.stop(id, code.0)),
                Command::Prioritize { stream, level } => {
                    id(stream).into_iter().for_each(|id| quic.set_level(id, level));
                }
            }
        }
    }

    /// Writes the frames of the protocol itself: SETTINGS, GOAWAY.
    fn write_control(&mut self, endpoint: &mut Endpoint) {
        if !self.protocol.has_control() && self.control_bytes.is_empty() {
            return;
        }
        let Some(mut quic) = endpoint.connection(self.key) else { return };
        if self.control.is_none() {
            self.control = quic.open_uni();
            self.control.into_iter().for_each(|stream| quic.set_level(stream, i32::MAX));
        }
        self.protocol.write_control(&mut self.control_bytes);
        if let Some(stream) = self.control
            && let Ok(taken) = quic.write_copy(stream, &self.control_bytes)
        {
            self.control_bytes.drain(..taken);
        }
    }

    /// Asks for responses.
    fn answers(&self) -> Answers<'_, 'a> {
        Answers { context: self.context, protocol: Protocol::Http3, streams: &self.streams }
    }

    /// Releases the stream and writes the line in the access log. `aborted`: why the response is incomplete.
    fn finish(&mut self, mut sending: Sending<'_>, aborted: Option<&dyn Display>) {
        self.streamed.retain(|streamed| streamed.stream != sending.stream);
        self.protocol.release(sending.stream);
        // Goes before `answered`, which has the place for its descriptors.
        sending.drop_content();
        let Sending { stream, mut answered, body, wire, .. } = sending;
        let path = sealion_tls::SealedBy::User;
        let delivery = Delivery { stream: stream.get(), body, wire, path, choice: &mut self.path, aborted };
        answered.finish(Some(&self.link.info), delivery);
        if let Some(worker) = metrics::worker() {
            worker.http3.responses.add(1);
        }
    }

    /// Logs the responses that the end of the connection cut short. Responses that are being made are waited for: their requests are logged, a wrong password
    /// too.
    pub(super) async fn finish_all(&mut self) {
        let why = self.ended.take().unwrap_or_default();
        self.streamed.clear();
        self.streams.close();
        self.answering.iter_mut().for_each(|waiting| waiting.wait.cancel = None);
        // All at once: a response that takes long keeps none of the others, whose applications learn now that their client is gone.
        while !self.answering.is_empty() {
            let (place, answered) = poll_fn(|context| poll_any(&mut self.answering, context)).await;
            let stream = self.answering.remove(place).stream;
            self.finish(Sending::new(stream, answered, Vec::new(), true), Some(&why));
        }
        for sending in std::mem::take(&mut self.sending) {
            self.finish(sending, Some(&why));
        }
    }
}

/// The first response that is made, by its place.
fn poll_any<'a>(answering: &mut [Waiting<'a>], context: &mut TaskContext<'_>) -> Poll<(usize, Box<Answered<'a>>)> {
    let mut all = answering.iter_mut().enumerate();
    let ready = all.find_map(|(place, waiting)| match waiting.answer.as_mut().poll(context) {
        Poll::Ready(answered) => Some((place, answered)),
        Poll::Pending => None,
    });
    ready.map_or(Poll::Pending, Poll::Ready)
}

/// Responses under way get their line too when the connection is dropped, with the worker's runtime at the end of the grace time.
impl Drop for Http3<'_> {
    fn drop(&mut self) {
        let cut = Cut::of(self.context.shared);
        for Waiting { stream, mut answer, wait, .. } in std::mem::take(&mut self.answering) {
            // A request that is forwarded is answered at once when its client is gone.
            if wait.cancel.map(drop).is_some()
                && let Poll::Ready(answered) = answer.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
            {
                self.finish(Sending::new(stream, answered, Vec::new(), true), Some(&cut));
            }
        }
        for sending in std::mem::take(&mut self.sending) {
            self.finish(sending, Some(&cut));
        }
    }
}

/// The result of the handshake, once it has ended.
pub(super) fn handshake_info(endpoint: &mut Endpoint, key: ConnectionKey) -> Option<HandshakeInfo> {
    endpoint.connection(key)?.handshake_result()
}

impl Http3<'_> {
    /// Bytes of heads that wait for content, a response's end or the log.
    fn kept(&self) -> usize {
        self.receiving.iter().map(|receiving| receiving.head.memory()).sum::<usize>()
            + self.answering.iter().map(|waiting| waiting.memory).sum::<usize>()
            + self.sending.iter().map(|sending| sending.answered.memory()).sum::<usize>()
    }
}
