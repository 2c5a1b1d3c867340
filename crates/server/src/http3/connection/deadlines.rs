//! The deadlines of a client.

use std::pin::Pin;
use std::task::Context as TaskContext;
use std::time::Instant;

use sealion_h3::{ErrorCode, StreamId};
use sealion_http::Status;
use sealion_quic::Endpoint;
use tokio::time::{Sleep, sleep_until};

use super::Http3;
use crate::observe::metrics;

/// Deadlines of the connection. Those of a stream lie beside it.
#[derive(Default)]
pub(super) struct Deadlines {
    /// When the client's SETTINGS have to have come.
    settings: Option<Instant>,
    /// The first request whose head is incomplete.
    head: Option<(StreamId, Instant)>,
    /// When the connection's rate lets more be sent.
    pub(super) paced: Option<Instant>,
    /// When the client has read the last GOAWAY.
    pub(super) farewell: Farewell,
    /// The connection ends for this reason.
    pub(super) failed: Option<&'static str>,
    /// Wakes the connection. It may go off earlier.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The end of an idle connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    #[default]
    None,
    /// The last GOAWAY is under way.
    Until(Instant),
    Over,
}

impl Http3<'_> {
    /// Handles deadlines that have passed, and waits for the next.
    pub(super) fn poll_deadlines(&mut self, cx: &mut TaskContext<'_>, endpoint: &mut Endpoint) {
        loop {
            let now = Instant::now();
            let Some(first) = self.first_deadline(now) else {
                self.deadlines.timer = None;
                return;
            };
            if first <= now {
                self.expire(endpoint, now);
                continue;
            }
            let timer = self.deadlines.timer.get_or_insert_with(|| Box::pin(sleep_until(first.into())));
            if timer.deadline() != first.into() {
                timer.as_mut().reset(first.into());
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }

    fn first_deadline(&mut self, now: Instant) -> Option<Instant> {
        if self.deadlines.failed.is_some() {
            return None;
        }
        let (request_timeout, stall_timeout) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration())
        };
        let settings = match self.protocol.peer_settings() {
            Some(_) => None,
            None => Some(*self.deadlines.settings.get_or_insert(now + request_timeout)),
        };
        let awaited = self.protocol.awaiting_heads().next();
        self.deadlines.head = awaited.map(|stream| match self.deadlines.head {
            Some((other, deadline)) if other == stream => (stream, deadline),
            _ => (stream, now + request_timeout),
        });
        let head = self.deadlines.head.map(|(_, deadline)| deadline);
        let contents = self.receiving.iter().map(|receiving| receiving.deadline);
        let pieces = self.streamed.iter().filter_map(|streamed| Some(streamed.owed_since()? + request_timeout));
        let stalled = self.sending.iter().filter(|sending| sending.is_blocked);
        let stalls = stalled.map(|sending| sending.progress + stall_timeout);
        let paced = self.deadlines.paced;
        let farewell = match self.deadlines.farewell {
            Farewell::Until(due) => Some(due),
            Farewell::None | Farewell::Over => None,
        };
        settings.into_iter().chain(farewell).chain(head).chain(contents).chain(pieces).chain(stalls).chain(paced).min()
    }

    fn expire(&mut self, endpoint: &mut Endpoint, now: Instant) {
        self.deadlines.paced = self.deadlines.paced.filter(|until| *until > now);
        if let Farewell::Until(due) = self.deadlines.farewell
            && due <= now
        {
            self.deadlines.farewell = Farewell::Over;
        }
        let (request_timeout, stall_timeout) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration())
        };
        if self.protocol.peer_settings().is_none() && self.deadlines.settings.is_some_and(|due| due <= now) {
            metrics::timed_out(metrics::Deadline::Request);
            self.deadlines.failed = Some("the client did not send SETTINGS in time");
            return;
        }
        if let Some((stream, _)) = self.deadlines.head.take_if(|(_, deadline)| *deadline <= now) {
            metrics::timed_out(metrics::Deadline::Request);
            self.protocol.reset(stream, ErrorCode::H3_REQUEST_INCOMPLETE);
            self.protocol.release(stream);
        }
        let late: Vec<_> = self.receiving.extract_if(.., |receiving| receiving.deadline <= now).collect();
        for receiving in late {
            metrics::timed_out(metrics::Deadline::Request);
            self.refuse(receiving.stream, Status::REQUEST_TIMEOUT, receiving.head);
        }
        for streamed in &mut self.streamed {
            if streamed.owed_since().is_some_and(|since| since + request_timeout <= now) {
                metrics::timed_out(metrics::Deadline::Request);
                streamed.upload.time_out();
            }
        }
        if let Some(before) = now.checked_sub(stall_timeout) {
            let why = format!("the client read nothing for {} s", stall_timeout.as_secs_f32());
            self.abort_stalled(endpoint, before, &why);
        }
    }
}
