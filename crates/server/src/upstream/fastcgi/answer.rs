//! The answer of an application: the head as CGI has it (RFC 3875 §6), then the content.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sealion_http::Status;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf};
use tokio::time::{Sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::record::{Ended, Event, Records};
use crate::response::{Piece, Source};
use crate::upstream::InProgress;
use crate::upstream::connect::{Io, MOST_HEAD};
use crate::upstream::content::Incomplete;
use crate::upstream::reply::Patience;

/// Octets that are read at a time.
const READ: usize = 16 << 10;

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
    /// Never locked: it makes the type `Sync`.
    from: Mutex<ReadHalf<Box<dyn Io>>>,
    /// Writes the request meanwhile. `None`: it has ended.
    writer: Option<AbortOnDropHandle<Result<(), Incomplete>>>,
    records: Records,
    buffer: BytesMut,
    /// Content that came with the head.
    first: BytesMut,
    patience: Patience,
    /// Goes off when the answer must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    pub(super) fn new(
        in_progress: InProgress,
        from: ReadHalf<Box<dyn Io>>,
        writer: AbortOnDropHandle<Result<(), Incomplete>>,
    ) -> Self {
        let patience = Patience::new(in_progress.upstream.stall_timeout);
        let deadline = in_progress.deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        Answer {
            in_progress,
            from: Mutex::new(from),
            writer: Some(writer),
            records: Records::default(),
            buffer: BytesMut::new(),
            first: BytesMut::new(),
            patience,
            deadline,
        }
    }

    /// Reads the head.
    pub(super) async fn head(&mut self) -> Result<(Status, HeaderMap), Broken> {
        let mut head = BytesMut::new();
        loop {
            match std::future::poll_fn(|cx| self.poll_event(cx)).await? {
                Event::Stdout(part) => {
                    // The end may lie across two parts.
                    let from = head.len().saturating_sub(2);
                    head.extend_from_slice(&part);
                    if let Some(end) = end_of_head(&head, from) {
                        self.first = head.split_off(end);
                        return parse(&head).map_err(Broken::Server);
                    }
                    if head.len() > MOST_HEAD {
                        return Err(Broken::Server(format!("its head has more than {MOST_HEAD} octets")));
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
            match self.records.next(&mut self.buffer) {
                Ok(Some(event)) => return Poll::Ready(Ok(event)),
                Ok(None) => {}
                Err(bad) => return Poll::Ready(Err(Broken::Server(bad.to_string()))),
            }
            let from = self.from.get_mut().unwrap_or_else(PoisonError::into_inner);
            // An idle answer has no buffer.
            let mut space = [0; READ];
            let mut read = ReadBuf::new(&mut space);
            match Pin::new(from).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    return Poll::Ready(Err(Broken::Server("the connection was closed before its end".to_owned())));
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
        let name = &server.name;
        match server.warnings.take(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!("{name}: {what}"),
            Some(others) => {
                tracing::warn!("{name}: {what}; {others} more lines about this server were left out");
            }
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
            return Poll::Ready(Some(Ok(Piece::Bytes(this.first.split().freeze()))));
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

/// Where the content begins: behind an empty line, which may end as in Unix. It does not begin before `from`.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    // A head without a field.
    if let [b'\n', ..] | [b'\r', b'\n', ..] = head {
        return Some(if head[0] == b'\n' { 1 } else { 2 });
    }
    let mut lines = memchr::memchr_iter(b'\n', &head[from..]).map(|at| from + at);
    lines.find_map(|at| match &head[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Status and fields of a head.
fn parse(head: &[u8]) -> Result<(Status, HeaderMap), String> {
    let mut parsed = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let fields = match httparse::parse_headers(head, &mut parsed) {
        Ok(httparse::Status::Complete((_, fields))) => fields,
        Ok(httparse::Status::Partial) => return Err("its head has no end".to_owned()),
        Err(error) => return Err(format!("its head is none of CGI: {error}")),
    };
    let mut found = HeaderMap::with_capacity(fields.len());
    let mut status = None;
    for field in fields {
        if field.name.eq_ignore_ascii_case("status") {
            let text = String::from_utf8_lossy(field.value).into_owned();
            let code = text.split(' ').next().and_then(|code| code.parse().ok()).filter(|code| *code >= 200);
            let given = code.and_then(Status::new).ok_or_else(|| format!("{text:?} is no status of an answer"))?;
            status.get_or_insert(given);
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|error| format!("{name}: {error}"))?;
        found.append(name, value);
    }
    let lengths: Vec<_> = found.get_all(header::CONTENT_LENGTH).iter().collect();
    let is_length = |value: &HeaderValue| {
        let text = value.as_bytes();
        !text.is_empty() && text.len() < 19 && text.iter().all(u8::is_ascii_digit)
    };
    if lengths.len() > 1 || !lengths.iter().all(|length| is_length(length)) {
        return Err("its Content-Length is no single number".to_owned());
    }
    let of_location = if found.contains_key(header::LOCATION) { Status::FOUND } else { Status::OK };
    Ok((status.unwrap_or(of_location), found))
}

/// Fields of an answer.
const MOST_FIELDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_cgi_tells_status_and_fields() {
        for (head, expected) in [
            ("Content-Type: text/html\r\n\r\n", Ok((200, "content-type"))),
            ("Content-Type: text/html\n\n", Ok((200, "content-type"))),
            ("Status: 404 Not Found\r\nX-A: 1\r\n\r\n", Ok((404, "x-a"))),
            ("Location: /x\r\n\r\n", Ok((302, "location"))),
            ("Status: 201\r\nLocation: /x\r\n\r\n", Ok((201, "location"))),
            ("Status: 101 Switching\r\n\r\n", Err("no status of an answer")),
            ("Status: 999\r\n\r\n", Err("no status of an answer")),
            ("Status: x\r\n\r\n", Err("no status of an answer")),
            ("no field\r\n\r\n", Err("none of CGI")),
            ("Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Err("no single number")),
            ("Content-Length: -1\r\n\r\n", Err("no single number")),
        ] {
            assert_eq!(end_of_head(head.as_bytes(), 0), Some(head.len()), "{head:?}");
            match (parse(head.as_bytes()), expected) {
                (Ok((status, fields)), Ok((code, name))) => {
                    assert_eq!(status.code(), code, "{head:?}");
                    assert_eq!(fields.keys().map(HeaderName::as_str).collect::<Vec<_>>(), [name], "{head:?}");
                }
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{head:?}: {error}"),
                (found, expected) => panic!("{head:?}: {found:?}, expected {expected:?}"),
            }
        }
        for head in [&b"\r\nline\n\nrest"[..], b"\nline\n\nrest"] {
            let end = end_of_head(head, 0).unwrap();
            assert_eq!(&head[end..], b"line\n\nrest");
            assert!(parse(&head[..end]).unwrap().1.is_empty());
        }
        assert_eq!(end_of_head(b"A: b\r\n", 0), None);
        assert_eq!(end_of_head(b"A: b\n\nx", 3), Some(6));
    }
}
