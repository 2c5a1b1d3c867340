//! The deadlines of a client.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use sealion_h2::{ErrorCode, Window};
use sealion_http::Status;
use sealion_tls::TlsStream;
use tokio::time::{Sleep, sleep_until};

use super::Http2;
use crate::http2::response::Sending;
use crate::observe::metrics;

/// Deadlines of the connection. Each stream has its own beside it.
#[derive(Default)]
pub(super) struct Deadlines {
    /// The frame or header block that is waited for.
    frame: Option<PartialFrame>,
    /// When the client has to have acknowledged our settings: set by the first wait.
    settings: Option<Instant>,
    /// Our window of the connection was closed: the client could send no content.
    is_closed: bool,
    /// Fires when the client is late. It may fire early.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A frame or a header block whose end has not come.
#[derive(Debug, Clone, Copy)]
struct PartialFrame {
    /// As of [`sealion_h2::Connection::frames_begun`].
    number: u64,
    deadline: Instant,
}

impl Deadlines {
    /// The connection is idle. The deadline of our settings stays.
    pub(super) fn rest(&mut self) {
        (self.timer, self.frame) = (None, None);
    }

    fn poll_at(&mut self, cx: &mut TaskContext<'_>, first: Instant, now: Instant) -> Poll<()> {
        if first > now {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(first.into())));
            if timer.deadline() != first.into() {
                timer.as_mut().reset(first.into());
            }
            ready!(timer.as_mut().poll(cx));
        }
        self.timer = None;
        Poll::Ready(())
    }
}

impl Http2<'_> {
    /// Waits for the client's deadline, if there is one. Ready: a deadline passed, and its consequence is queued.
    pub(super) fn poll_deadline(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream) -> Poll<()> {
        let within_frame = self.is_within_frame(stream);
        if !within_frame {
            self.deadlines.frame = None;
        }
        let awaits_window = |sending: &Sending<'_>| sending.awaits_window(&self.protocol, &self.ahead).is_some();
        let stalled =
            self.protocol.stalled().next().is_some() || self.sending.iter().any(|sending| awaits_window(sending));
        let unacknowledged = !self.protocol.settings_acknowledged() && !self.finished;
        let is_closed = self.protocol.is_receive_window_closed();
        let was_closed = std::mem::replace(&mut self.deadlines.is_closed, is_closed);
        // Since the last wait.
        let may_send = !is_closed && !was_closed;
        self.streamed.iter_mut().for_each(|streamed| streamed.upload.hold(!may_send));
        if self.finished && stalled {
            self.reset_stalled(stream);
            return Poll::Ready(());
        }
        let owes_content = self.streamed.iter().any(|streamed| streamed.upload.owed_since().is_some());
        if !within_frame && !stalled && !unacknowledged && !owes_content && self.receiving.is_empty() {
            self.deadlines.timer = None;
            // The time of a stall that comes later begins then.
            self.sending.iter_mut().for_each(|sending| sending.end_stall());
            return Poll::Pending;
        }
        let now = Instant::now();
        let (request_timeout, stall_timeout) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration())
        };
        if !may_send {
            self.receiving.iter_mut().for_each(|receiving| receiving.deadline = now + request_timeout);
        }
        if within_frame {
            let number = self.protocol.frames_begun();
            if self.deadlines.frame.is_none_or(|frame| frame.number != number) {
                self.deadlines.frame = Some(PartialFrame { number, deadline: now + request_timeout });
            }
        }
        self.note_stalls(now + stall_timeout);
        let settings = unacknowledged.then(|| *self.deadlines.settings.get_or_insert(now + request_timeout));
        let frame = self.deadlines.frame.map(|frame| frame.deadline);
        let contents = self.receiving.iter().filter(|_| !is_closed).map(|receiving| receiving.deadline);
        let pieces = self.streamed.iter().filter_map(|streamed| Some(streamed.upload.owed_since()? + request_timeout));
        let windows = self.sending.iter().filter_map(|sending| sending.deadline());
        let all = frame.into_iter().chain(settings).chain(contents).chain(pieces).chain(windows);
        let Some(first) = all.min() else { return Poll::Pending };
        ready!(self.deadlines.poll_at(cx, first, now));
        self.expire(first, stream, request_timeout, stall_timeout);
        Poll::Ready(())
    }

    /// Starts the time of windows that hold a response back, and ends the time of the others. `deadline`: for the windows that start.
    fn note_stalls(&mut self, deadline: Instant) {
        // In the order of their numbers.
        let stalled: Vec<_> = self.protocol.stalled().collect();
        let window_of = |sending: &Sending<'_>| match stalled.binary_search_by_key(&sending.stream, |(id, _)| *id) {
            Ok(index) => Some(stalled[index].1),
            Err(_) => sending.awaits_window(&self.protocol, &self.ahead),
        };
        let windows: Vec<_> = self.sending.iter().map(|sending| window_of(sending)).collect();
        let sharing = windows.iter().filter(|window| **window == Some(Window::Connection)).count() as u64;
        for (sending, window) in self.sending.iter_mut().zip(windows) {
            let held = window.map(|window| (window, self.protocol.progress(sending.stream)));
            let begins = sending.note_window(held, sharing, deadline);
            if begins && let Some(worker) = metrics::worker() {
                worker.http2_stalls.add(1);
            }
        }
    }

    /// The client has closed its direction: it opens no window any more.
    fn reset_stalled(&mut self, stream: &TlsStream) {
        self.note_stalls(Instant::now());
        while let Some(index) = self.sending.iter().position(|sending| sending.deadline().is_some()) {
            let sending = self.sending.swap_remove(index);
            self.protocol.reset(sending.stream, ErrorCode::CANCEL);
            self.finish(sending, stream, Some(&"the client closed its direction, and opens no window any more"));
        }
    }

    /// Ends the waits that were due at `first`, which has passed.
    fn expire(&mut self, first: Instant, stream: &TlsStream, request_timeout: Duration, stall_timeout: Duration) {
        if self.deadlines.frame.is_some_and(|frame| frame.deadline <= first) {
            return self.give_up(ErrorCode::ENHANCE_YOUR_CALM, "a frame did not come to its end in time");
        }
        let unacknowledged = !self.protocol.settings_acknowledged() && !self.finished;
        if unacknowledged && self.deadlines.settings.is_some_and(|due| due <= first) {
            return self.give_up(ErrorCode::SETTINGS_TIMEOUT, "the client did not acknowledge SETTINGS in time");
        }
        let late: Vec<_> = self.receiving.extract_if(.., |receiving| receiving.deadline <= first).collect();
        for receiving in late {
            metrics::timed_out(metrics::Deadline::Request);
            self.refuse(receiving.stream, Status::REQUEST_TIMEOUT, receiving.head);
        }
        for streamed in &mut self.streamed {
            if streamed.upload.owed_since().is_some_and(|since| since + request_timeout <= first) {
                metrics::timed_out(metrics::Deadline::Request);
                streamed.upload.time_out();
            }
        }
        let late = |sending: &Sending<'_>| sending.deadline().is_some_and(|deadline| deadline <= first);
        while let Some(index) = self.sending.iter().position(|sending| late(sending)) {
            let sending = self.sending.swap_remove(index);
            self.protocol.reset(sending.stream, ErrorCode::CANCEL);
            let why = format!("the client opened no window for {} s", stall_timeout.as_secs_f32());
            self.finish(sending, stream, Some(&why));
        }
    }

    /// The connection ends, because the client is late with something that is no stream's.
    fn give_up(&mut self, code: ErrorCode, why: &'static str) {
        metrics::timed_out(metrics::Deadline::Request);
        self.protocol.close(code, why);
        self.failed = true;
    }
}
