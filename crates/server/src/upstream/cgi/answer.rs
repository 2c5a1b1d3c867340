//! The response of an application, as it comes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use sealion_http::Status;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf};
use tokio::time::{Sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::fastcgi::{Ended, Event, RequestId};
use super::framing::{Framing, Gateway};
use crate::response::{Piece, Source};
use crate::tls_client::Io;
use crate::upstream::InProgress;
use crate::upstream::content::Incomplete;
use crate::upstream::head_room::{HeadBytes, HeadRoom};
use crate::upstream::http1::{Connection, Past, Released};
use crate::upstream::message::Reading;
use crate::upstream::reply::Patience;

/// Bytes that are read at a time.
const READ: usize = 16 << 10;

/// The same up to the end of the head, where little is read before the client takes it: bytes behind the head stay in memory until then.
const SPARING_READ: usize = 4 << 10;

/// Bytes of a message of the application that are logged.
const MOST_MESSAGE: usize = 2048;

/// Why there is no whole response.
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

/// A response that is being read.
pub(super) struct Answer {
    in_progress: InProgress,
    /// `None`: the connection was kept for another request.
    from: Option<ReadHalf<Box<dyn Io>>>,
    writer: Writer,
    /// The past of the connection, if it may be kept.
    kept: Option<Past>,
    gateway: Gateway,
    framing: Framing,
    /// Bytes that are read at a time.
    read: usize,
    buffer: BytesMut,
    /// Whether a part of the response has come.
    has_begun: bool,
    /// Content that came with the head.
    first: Bytes,
    patience: Patience,
    /// Goes off when the response must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    pub(super) fn new(
        in_progress: InProgress,
        from: ReadHalf<Box<dyn Io>>,
        writer: AbortOnDropHandle<Written>,
        reading: Reading,
        (gateway, id, kept): (Gateway, RequestId, Option<Past>),
    ) -> Self {
        let patience = Patience::new(in_progress.upstream.stall_timeout);
        let deadline = in_progress.deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        Answer {
            in_progress,
            from: Some(from),
            writer: Writer::Writing(writer),
            kept: kept.map(|past| past.with_id(id.number)),
            gateway,
            framing: Framing::new(gateway, id),
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

    /// The next event of the response. The request is written meanwhile.
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
            let Some(from) = &mut self.from else {
                return Poll::Ready(Err(Broken::Server("the response has ended".to_owned())));
            };
            match Pin::new(from).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    let closed = || Broken::Server("the connection was closed before its end".to_owned());
                    return Poll::Ready(self.framing.closed().ok_or_else(closed));
                }
                Poll::Ready(Ok(())) => self.buffer.extend_from_slice(read.filled()),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Server(error.to_string()))),
                Poll::Pending => {
                    if let Err(incomplete) = ready!(self.writer.poll_end(cx)) {
                        return Poll::Ready(Err(Broken::Client(incomplete)));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Keeps the connection for another request, if the response and the request have ended.
    fn release(&mut self) {
        let (Some(past), true) = (self.kept.take(), self.buffer.is_empty() && self.framing.may_go_on()) else { return };
        let _ = self.writer.poll_end(&mut Context::from_waker(Waker::noop()));
        let written = std::mem::replace(&mut self.writer, Writer::Ended(None));
        if let (Writer::Ended(Some(to)), Some(from)) = (written, self.from.take()) {
            let connection = Connection::from_parts(from.unsplit(to), past);
            self.in_progress.keep(Released::Open(connection));
        }
    }

    /// Logs the application's output to its standard error.
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
            this.in_progress.received(this.first.len());
            return Poll::Ready(Some(Ok(Piece::Bytes(std::mem::take(&mut this.first)))));
        }
        loop {
            match this.poll_event(cx) {
                Poll::Ready(Ok(Event::Stdout(content))) => {
                    this.patience.moved();
                    this.in_progress.received(content.len());
                    return Poll::Ready(Some(Ok(Piece::Bytes(content))));
                }
                Poll::Ready(Ok(Event::Stderr(text))) => this.log_stderr(&text),
                Poll::Ready(Ok(Event::End(Ended::Complete(0)))) => {
                    this.release();
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(Event::End(ended @ Ended::Complete(_)))) => {
                    // The response is whole all the same: nginx does not look at the status.
                    this.log(ended);
                    this.release();
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

impl Drop for Answer {
    /// A content of a known length is not read beyond that: the end of the response may have come with it.
    fn drop(&mut self) {
        if self.kept.is_some()
            && let Ok(Some(Event::End(Ended::Complete(_)))) = self.framing.next(&mut self.buffer)
        {
            self.release();
        }
    }
}

/// Writes the request while the response is read.
enum Writer {
    Writing(AbortOnDropHandle<Written>),
    /// All of the request was written; or the server takes no more, and may answer all the same.
    Ended(Option<WriteHalf<Box<dyn Io>>>),
}

/// The connection, if the server took the whole request.
///
/// # Errors
/// The client did not send all of its content.
pub(super) type Written = Result<Option<WriteHalf<Box<dyn Io>>>, Incomplete>;

impl Writer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Incomplete>> {
        let Writer::Writing(task) = self else { return Poll::Ready(Ok(())) };
        let (to, result) = match ready!(Pin::new(task).poll(cx)) {
            Ok(Ok(to)) => (to, Ok(())),
            Ok(Err(incomplete)) => (None, Err(incomplete)),
            Err(_) => (None, Ok(())),
        };
        *self = Writer::Ended(to);
        Poll::Ready(result)
    }
}

/// The content of a response that has none.
pub(super) struct Nothing;

impl Source for Nothing {
    fn poll_piece(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        Poll::Ready(None)
    }
}
