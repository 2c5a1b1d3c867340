//! The answer of an application, as it comes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use sealion_http::Status;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf};
use tokio::time::{Sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::fastcgi::{Ended, Event};
use super::framing::{Framing, Gateway};
use crate::response::{Piece, Source};
use crate::tls_client::Io;
use crate::upstream::InProgress;
use crate::upstream::content::Incomplete;
use crate::upstream::head_room::{HeadBytes, HeadRoom};
use crate::upstream::message::Reading;
use crate::upstream::reply::Patience;

/// Octets that are read at a time.
const READ: usize = 16 << 10;

/// The same up to the end of the head, where little is read before the client takes it: what comes behind the head stays in memory until then.
const SPARING_READ: usize = 4 << 10;

/// Octets of a message of the application that are logged.
const MOST_MESSAGE: usize = 2048;

/// Why there is no answer, or no whole one.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client did not send all of its request.
    Client(Incomplete),
    Server(String),
    /// The server did not take the request.
    Refused(Ended),
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Client(incomplete) => io::Error::other(incomplete),
            Broken::Server(what) => io::Error::other(what),
            Broken::Refused(ended) => io::Error::other(ended),
        }
    }
}

/// An answer that is being read.
pub(super) struct Answer {
    in_progress: InProgress,
    from: ReadHalf<Box<dyn Io>>,
    /// Writes the request meanwhile. `None`: it has ended.
    writer: Option<AbortOnDropHandle<Result<(), Incomplete>>>,
    gateway: Gateway,
    framing: Framing,
    /// Octets that are read at a time.
    read: usize,
    buffer: BytesMut,
    /// Whether a part of it came.
    has_begun: bool,
    /// Content that came with the head.
    first: Bytes,
    patience: Patience,
    /// Goes off when the answer must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    pub(super) fn new(
        in_progress: InProgress,
        from: ReadHalf<Box<dyn Io>>,
        writer: AbortOnDropHandle<Result<(), Incomplete>>,
        reading: Reading,
        gateway: Gateway,
    ) -> Self {
        let patience = Patience::new(in_progress.upstream.stall_timeout);
        let deadline = in_progress.deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        Answer {
            in_progress,
            from,
            writer: Some(writer),
            gateway,
            framing: gateway.into(),
            read: match reading {
                Reading::Ahead => READ,
                Reading::Sparing => SPARING_READ,
            },
            buffer: BytesMut::new(),
            has_begun: false,
            first: Bytes::new(),
            patience,
            deadline,
        }
    }

    /// Whether the server has begun with the request for certain.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun || !self.buffer.is_empty()
    }

    /// Reads the head, when there is room for it.
    pub(super) async fn head(&mut self, heads: Option<&HeadRoom>) -> Result<(Status, HeaderMap), Broken> {
        let mut head = self.gateway.response_head();
        let mut in_memory = HeadBytes::new(heads);
        loop {
            in_memory.set(head.len() + self.buffer.len());
            let event = poll_fn(|cx| in_memory.poll(cx, |cx| self.poll_event(cx))).await?;
            self.has_begun = true;
            match event {
                Event::Stdout(part) => {
                    if let Some(whole) = head.add(&part).map_err(Broken::Server)? {
                        let first = self.framing.begin_content(&whole.fields, whole.content);
                        self.first = first.map_err(Broken::Server)?;
                        self.read = READ;
                        return Ok((whole.status, whole.fields));
                    }
                }
                Event::Stderr(text) => self.log_stderr(&text),
                Event::End(Ended::Complete(0)) => {
                    return Err(Broken::Server("it ends before its head does".to_owned()));
                }
                Event::End(ended @ Ended::Complete(_)) => {
                    return Err(Broken::Server(format!("it ends before its head does: {ended}")));
                }
                Event::End(refused) => return Err(Broken::Refused(refused)),
            }
        }
    }

    /// The next event of the answer. The request is written meanwhile.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Broken>> {
        loop {
            match self.framing.next(&mut self.buffer) {
                Ok(Some(event)) => {
                    if self.buffer.is_empty() {
                        // It would keep the memory of the event.
                        self.buffer = BytesMut::new();
                    }
                    return Poll::Ready(Ok(event));
                }
                Ok(None) => {}
                Err(bad) => return Poll::Ready(Err(Broken::Server(bad))),
            }
            // An idle answer has no buffer.
            let mut space = [0; READ];
            let mut read = ReadBuf::new(&mut space[..self.read]);
            match Pin::new(&mut self.from).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    let closed = || Broken::Server("the connection was closed before its end".to_owned());
                    return Poll::Ready(self.framing.closed().ok_or_else(closed));
                }
                Poll::Ready(Ok(())) => self.buffer.extend_from_slice(read.filled()),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Server(error.to_string()))),
                Poll::Pending => {
                    if let Some(writer) = &mut self.writer {
                        let written = ready!(Pin::new(writer).poll(cx));
                        self.writer = None;
                        if let Ok(Err(incomplete)) = written {
                            return Poll::Ready(Err(Broken::Client(incomplete)));
                        }
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Logs what the application wrote to its standard error.
    fn log_stderr(&self, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(MOST_MESSAGE)]);
        self.log(format_args!("the application says: {}", text.trim_end().escape_debug()));
    }

    fn log(&self, what: impl fmt::Display) {
        let server = &self.in_progress.upstream.servers[self.in_progress.server];
        let what = format_args!("{}: {what}", server.name);
        if let Some(line) = server.warnings.line(what, "more lines about this server were left out") {
            tracing::warn!("{line}");
        }
    }

    fn broken(&self, broken: Broken) -> Option<io::Result<Piece>> {
        let error = format!("the answer of {} broke off: {}", self.in_progress.name(), io::Error::from(broken));
        Some(Err(io::Error::other(error)))
    }
}

impl Source for Answer {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            let limit = this.in_progress.upstream.timeout.unwrap_or_default();
            let late =
                format!("the answer of {} did not end within {} s", this.in_progress.name(), limit.as_secs_f32());
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, late))));
        }
        if !this.first.is_empty() {
            return Poll::Ready(Some(Ok(Piece::Bytes(std::mem::take(&mut this.first)))));
        }
        loop {
            match this.poll_event(cx) {
                Poll::Ready(Ok(Event::Stdout(content))) => {
                    this.patience.moved();
                    return Poll::Ready(Some(Ok(Piece::Bytes(content))));
                }
                Poll::Ready(Ok(Event::Stderr(text))) => this.log_stderr(&text),
                Poll::Ready(Ok(Event::End(Ended::Complete(0)))) => return Poll::Ready(None),
                Poll::Ready(Ok(Event::End(ended @ Ended::Complete(_)))) => {
                    // The answer is whole all the same: nginx does not look at the status.
                    this.log(ended);
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(Event::End(refused))) => return Poll::Ready(this.broken(Broken::Refused(refused))),
                Poll::Ready(Err(broken)) => return Poll::Ready(this.broken(broken)),
                Poll::Pending => {
                    return this.patience.poll(cx).map(|limit| {
                        let server = this.in_progress.name();
                        let stalled = format!("{server} sent nothing of its answer for {} s", limit.as_secs_f32());
                        Some(Err(io::Error::new(io::ErrorKind::TimedOut, stalled)))
                    });
                }
            }
        }
    }
}

/// The content of an answer that has none.
pub(super) struct Nothing;

impl Source for Nothing {
    fn poll_piece(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        Poll::Ready(None)
    }
}
