//! The answer of a server.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http_body::Body;
use hyper::body::Incoming;
use sealion_http::{ExtraFields, Status};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::InProgress;
use super::connect::Connected;
use super::head::trailers_of_answer;
use crate::response::{Piece, Source};

/// The answer of a server, of which the content may still come.
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) fields: HeaderMap,
    pub(crate) body: ReplyContent,
    /// Whether its protocol tells the end of the content, whatever the fields say: HTTP/2.
    pub(crate) ends_with_stream: bool,
}

/// The content of an answer, or the octets of a tunnel.
pub(crate) struct ReplyContent(Pin<Box<dyn Source>>);

impl<S: Source + 'static> From<S> for ReplyContent {
    fn from(source: S) -> Self {
        ReplyContent(Box::pin(source))
    }
}

impl From<ReplyContent> for Pin<Box<dyn Source>> {
    fn from(content: ReplyContent) -> Self {
        content.0
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The content of an answer. When its end has come, its connection is kept for the next request; dropped before, it is closed.
pub(super) struct ReplyBody {
    in_progress: InProgress,
    connected: Option<Connected>,
    body: Incoming,
    patience: Patience,
    /// Goes off when the answer must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
    ends: Ends,
    /// Whether its end has come. Of an answer without a length, the library does not say so beforehand.
    has_ended: bool,
    /// Whether the client takes trailers.
    takes_trailers: bool,
    trailers: Option<Box<ExtraFields>>,
}

impl ReplyBody {
    /// `connected`: its connection, if it may be kept. `takes_trailers`: whether the client does.
    pub(super) fn new(
        in_progress: InProgress,
        connected: Option<Connected>,
        body: Incoming,
        ends: Ends,
        takes_trailers: bool,
    ) -> Self {
        let patience = Patience::new(in_progress.upstream.stall_timeout);
        let deadline = in_progress.deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        ReplyBody {
            in_progress,
            connected,
            body,
            patience,
            deadline,
            ends,
            has_ended: false,
            takes_trailers,
            trailers: None,
        }
    }
}

/// What says that an answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// The library: its length, the last chunk, or the end of the connection.
    AsFramed,
    /// END_STREAM of HTTP/2.
    WithStream,
}

impl Source for ReplyBody {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            this.connected = None;
            let limit = this.in_progress.upstream.timeout.unwrap_or_default();
            let late =
                format!("the answer of {} did not end within {} s", this.in_progress.name(), limit.as_secs_f32());
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, late))));
        }
        loop {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.patience.moved();
                    match frame.into_data() {
                        Ok(content) => return Poll::Ready(Some(Ok(Piece::Bytes(content)))),
                        Err(frame) if this.takes_trailers => {
                            this.trailers = frame.trailers_ref().and_then(trailers_of_answer);
                        }
                        // As RFC 9110 §6.5.1 allows.
                        Err(_) => {}
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    this.connected = None;
                    let error =
                        io::Error::other(format!("the answer of {} broke off: {error}", this.in_progress.name()));
                    return Poll::Ready(Some(Err(error)));
                }
                // The library takes a reset without an error for the end (RST_STREAM, GOAWAY).
                Poll::Ready(None) if this.ends == Ends::WithStream && !this.body.is_end_stream() => {
                    this.connected = None;
                    let server = this.in_progress.name();
                    let error = format!("the answer of {server} broke off: its stream was reset before its end");
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
                Poll::Ready(None) => {
                    this.has_ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    return this.patience.poll(cx).map(|limit| {
                        this.connected = None;
                        let server = this.in_progress.name();
                        let stalled = format!("{server} sent nothing of its answer for {} s", limit.as_secs_f32());
                        Some(Err(io::Error::new(io::ErrorKind::TimedOut, stalled)))
                    });
                }
            }
        }
    }

    fn trailers(self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        self.get_mut().trailers.take()
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Some(connected) = self.connected.take()
            && (self.has_ended || self.body.is_end_stream())
        {
            self.in_progress.keep(connected);
        }
    }
}

/// A deadline that moves with each piece. The timer is set once in a while, not for each of them.
pub(crate) struct Patience {
    limit: Duration,
    has_moved: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Patience { limit, has_moved: false, timer: None }
    }

    /// Something came.
    pub(crate) fn moved(&mut self) {
        self.has_moved = true;
    }

    /// Ready when nothing has come for the limit, or up to twice as long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.has_moved) {
                return Poll::Ready(limit);
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}
