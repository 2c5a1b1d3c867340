//! The deadlines of a client.

use std::pin::Pin;
use std::task::Context as TaskContext;
use std::time::{Duration, Instant};

use sealion_h3::{ErrorCode, StreamId};
use sealion_http::Status;
use sealion_quic::Endpoint;
use sealion_tls::LeastRate;
use tokio::time::{Sleep, sleep_until};

use super::Http3;
use crate::observe::metrics;

/// Deadlines of the connection. Each stream has its own beside it.
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
    /// How fast the client reads while responses wait for it.
    pace: ReadPace,
    /// The connection ends for this reason.
    pub(super) failed: Option<&'static str>,
    /// Wakes the connection. It may go off earlier.
    timer: Option<Pin<Box<Sleep>>>,
}

/// As the access log has it.
const TOO_SLOW: &str = "the client read less than limits.min_send_rate";

/// The end of an idle connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    #[default]
    None,
    /// The last GOAWAY is under way.
    Until(Instant),
    Over,
}

/// The rate at which a client reads: the bytes that streams took in a window of `limits.min_send_rate_window`. Time counts only while responses wait
/// for the client.
#[derive(Debug, Default)]
struct ReadPace {
    /// When the present wait began, or its part in the window.
    since: Option<Instant>,
    /// The time waited in the window, without the present wait.
    waited: Duration,
    /// Bytes that streams had taken when the window began.
    taken: u64,
}

impl ReadPace {
    /// Notes whether responses wait. Returns when the window ends if they go on to wait.
    fn note(&mut self, is_waiting: bool, now: Instant, least: Option<&LeastRate>) -> Option<Instant> {
        match (self.since, is_waiting) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.since = None;
                self.waited += now.saturating_duration_since(since);
            }
            (None, false) | (Some(_), true) => {}
        }
        Some(self.since? + least?.window.saturating_sub(self.waited))
    }

    /// Whether a window has ended with too little reading of the client. `taken`: bytes that streams took so far.
    fn is_too_slow(&mut self, now: Instant, taken: u64, least: &LeastRate) -> bool {
        let Some(since) = self.since else { return false };
        if self.waited + now.saturating_duration_since(since) < least.window {
            return false;
        }
        let came = taken.saturating_sub(self.taken);
        *self = ReadPace { since: Some(now), waited: Duration::ZERO, taken };
        came < least.bytes()
    }
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
        let (request_timeout, stall_timeout, least_rate) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration(), limits.least_rate())
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
        if self.is_window_held() {
            self.receiving.iter_mut().for_each(|receiving| receiving.deadline = now + request_timeout);
        }
        let contents = self.receiving.iter().map(|receiving| receiving.deadline);
        let pieces = self.streamed.iter().filter_map(|streamed| Some(streamed.owed_since()? + request_timeout));
        let stalled = self.sending.iter().filter(|sending| sending.is_blocked);
        let stalls = stalled.map(|sending| sending.progress + stall_timeout);
        let is_waiting = self.sending.iter().any(|sending| sending.is_blocked);
        let slow = self.deadlines.pace.note(is_waiting, now, least_rate.as_ref());
        let paced = self.deadlines.paced;
        let farewell = match self.deadlines.farewell {
            Farewell::Until(due) => Some(due),
            Farewell::None | Farewell::Over => None,
        };
        let of_client = settings.into_iter().chain(head).chain(contents).chain(pieces).chain(stalls).chain(slow);
        of_client.chain(farewell).chain(paced).min()
    }

    fn expire(&mut self, endpoint: &mut Endpoint, now: Instant) {
        self.deadlines.paced = self.deadlines.paced.filter(|until| *until > now);
        if let Farewell::Until(due) = self.deadlines.farewell
            && due <= now
        {
            self.deadlines.farewell = Farewell::Over;
        }
        let (request_timeout, stall_timeout, least_rate) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration(), limits.least_rate())
        };
        if least_rate.is_some_and(|least| self.deadlines.pace.is_too_slow(now, self.link.sent, &least)) {
            metrics::timed_out(metrics::Deadline::Stall);
            self.deadlines.failed = Some(TOO_SLOW);
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_too_little_while_responses_wait_is_found() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let least = LeastRate { bytes_per_second: 100, window: 60 * second };
        let mut pace = ReadPace::default();
        assert_eq!(pace.note(false, start, Some(&least)), None);
        assert_eq!(pace.note(true, start, Some(&least)), Some(start + 60 * second));
        assert_eq!(pace.note(true, start, None), None, "any rate will do");
        assert!(!pace.is_too_slow(start + 59 * second, 0, &least));
        assert!(!pace.is_too_slow(start + 60 * second, 6000, &least), "just enough");
        // Time in which nothing waits does not count.
        assert_eq!(pace.note(false, start + 70 * second, Some(&least)), None);
        assert!(!pace.is_too_slow(start + 500 * second, 6000, &least));
        let again = start + 500 * second;
        assert_eq!(pace.note(true, again, Some(&least)), Some(again + 50 * second));
        assert!(pace.is_too_slow(again + 50 * second, 11_999, &least));
    }
}
