//! A connection, and one request on it.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use sealion_tls::Pipe;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::task::unconstrained;
use tokio_util::io::poll_read_buf;
use tokio_util::task::AbortOnDropHandle;

use super::answer::Head;
use super::body::AnswerBody;
use super::content::{Unwritten, Written, write};
use super::request::head_octets;
use crate::tls_client::{BareSocket, Io};
use crate::upstream::content::{Incomplete, RequestContent};
use crate::upstream::head_room::HeadBytes;
use crate::upstream::lazy_timer::LazyTimer;
use crate::upstream::message::{AnswerHead, Reading, RequestError, RequestHead};

/// Room for reading a head, in bytes. Most responses fit whole, and leave in one send.
const HEAD_ROOM: usize = 20 << 10;

/// The same where little is read before the client takes it: bytes behind the head stay in memory until then.
const SPARING_HEAD_ROOM: usize = 4 << 10;

thread_local! {
    /// The first bytes of a response.
    static FIRST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection without a request in progress.
pub(in crate::upstream) struct Connection {
    io: Box<dyn Io>,
    pub(in crate::upstream) past: Past,
    /// Of the waits for a response. It belongs to the worker's runtime, as the connection does.
    timer: LazyTimer,
}

/// The responses that a connection has carried.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct Past {
    /// When the connection was opened.
    since: Instant,
    /// The last response had no content, whatever its fields announce: to HEAD, or by its status.
    pub(in crate::upstream) is_behind_head: bool,
    /// Any response had none. Content that came late may have been taken for a later response: then each response answers the request before.
    pub(in crate::upstream) was_behind_head: bool,
    /// The last request was HEAD: content that comes all the same, and late, answers at most another HEAD.
    pub(in crate::upstream) is_for_head: bool,
    /// The number of its last request, where requests are numbered: FastCGI.
    pub(in crate::upstream) last_id: u16,
}

impl Past {
    /// The same with another request, of this number.
    pub(in crate::upstream) fn with_id(self, last_id: u16) -> Self {
        Past { last_id, ..self }
    }

    /// Another response has ended. `is_without_content`: whatever its fields announce.
    pub(super) fn responded(&mut self, is_without_content: bool, is_for_head: bool) {
        self.is_behind_head = is_without_content;
        self.was_behind_head |= is_without_content;
        self.is_for_head = is_for_head;
    }
}

/// The bytes of a server that belong to no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Unasked {
    Nothing,
    Bytes,
    /// The connection was closed, or is lost.
    End,
}

/// A connection at the end of a response.
#[derive(Debug)]
pub(in crate::upstream) enum Released {
    /// It may have another request.
    Open(Connection),
    /// It cannot: bytes follow its last response, and it has carried one without content.
    Unasked,
    /// It cannot, for any other reason.
    Closed,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("past", &self.past).finish_non_exhaustive()
    }
}

impl Connection {
    pub(in crate::upstream) fn new(io: Box<dyn Io>) -> Self {
        let past = Past {
            since: Instant::now(),
            is_behind_head: false,
            was_behind_head: false,
            is_for_head: false,
            last_id: 0,
        };
        Self::from_parts(io, past)
    }

    /// Takes the timer of the waits on the connection.
    pub(in crate::upstream) fn take_timer(&mut self) -> LazyTimer {
        std::mem::take(&mut self.timer)
    }

    /// For a request in another protocol.
    pub(in crate::upstream) fn into_parts(self) -> (Box<dyn Io>, Past) {
        (self.io, self.past)
    }

    /// The connection of [`Self::into_parts`], whose request has ended.
    pub(in crate::upstream) fn from_parts(io: Box<dyn Io>, past: Past) -> Self {
        Connection { io, past, timer: LazyTimer::default() }
    }

    pub(in crate::upstream) fn age(&self, now: Instant) -> Duration {
        now - self.past.since
    }

    /// Looks for bytes that belong to no request. Wakes `cx` when some come.
    pub(in crate::upstream) fn unasked(&mut self, cx: &mut Context<'_>) -> Unasked {
        let mut space = [0; 1];
        let mut space = ReadBuf::new(&mut space);
        let read = poll_fn(|cx| Pin::new(&mut self.io).poll_read(cx, &mut space));
        // A task that has used up its budget is told to wait, whatever has come.
        match pin!(unconstrained(read)).poll(cx) {
            Poll::Pending => Unasked::Nothing,
            Poll::Ready(Ok(())) if !space.filled().is_empty() => Unasked::Bytes,
            Poll::Ready(_) => Unasked::End,
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(in crate::upstream) async fn ask(
        self,
        request: RequestHead<'_>,
        content: Option<RequestContent>,
    ) -> Result<(AnswerHead, AnswerBody), RequestError> {
        let Connection { mut io, past, timer } = self;
        let octets = head_octets(&request, content.as_ref());
        let mut sent = 0;
        while sent < octets.len() {
            match io.write(&octets[sent..]).await {
                Ok(0) => {
                    return Err(RequestError::Closed(
                        "the connection was closed while the request was written".to_owned(),
                    ));
                }
                Ok(written) => sent += written,
                Err(error) if sent == 0 => return Err(RequestError::NotSent(error.to_string(), content)),
                Err(error) => return Err(RequestError::Closed(error.to_string())),
            }
        }
        io.flush().await.map_err(|error| RequestError::Closed(error.to_string()))?;
        let ends = match content {
            None => Ends::Both(io),
            Some(content) => {
                let (from, to) = tokio::io::split(io);
                Ends::Apart { from, writer: Writer::Writing(AbortOnDropHandle::new(tokio::spawn(write(content, to)))) }
            }
        };
        let mut exchange = Exchange { ends, input: BytesMut::new(), past, timer };
        let head_room = match request.reading {
            Reading::Ahead => HEAD_ROOM,
            Reading::Sparing => SPARING_HEAD_ROOM,
        };
        let mut in_memory = HeadBytes::new(request.heads);
        let (mut searched, mut has_begun) = (0, false);
        let broken = |has_begun: bool, error: String| match has_begun {
            true => RequestError::BadAnswer(error),
            false => RequestError::Closed(error),
        };
        loop {
            match Head::take(&mut exchange.input, &mut searched, request.method).map_err(RequestError::BadAnswer)? {
                Some(answer) if answer.status.is_interim() && answer.status.code() != 101 => {
                    if let Some(interim) = request.interim {
                        interim.pass(answer.status.code(), &answer.fields);
                    }
                }
                Some(answer) => {
                    exchange.release_head(answer.fields.octets());
                    let body = AnswerBody::new(exchange, &answer, *request.method == Method::HEAD);
                    return Ok((AnswerHead { status: answer.status, fields: answer.fields }, body));
                }
                None => match poll_fn(|cx| in_memory.poll(cx, |cx| exchange.poll_head(cx, head_room))).await {
                    Ok(0) => return Err(broken(has_begun, "the connection was closed before an answer".to_owned())),
                    Ok(_) => {
                        has_begun = true;
                        in_memory.set(exchange.input.len());
                    }
                    Err(Broken::Client(incomplete)) => return Err(RequestError::Client(incomplete)),
                    Err(Broken::Server(error)) => return Err(broken(has_begun, error.to_string())),
                },
            }
        }
    }
}

/// A connection whose response is being read.
pub(super) struct Exchange {
    ends: Ends,
    /// Bytes that were read and not used yet.
    pub(super) input: BytesMut,
    pub(super) past: Past,
    pub(super) timer: LazyTimer,
}

enum Ends {
    Both(Box<dyn Io>),
    /// A task writes the content of the request.
    Apart {
        from: ReadHalf<Box<dyn Io>>,
        writer: Writer,
    },
}

enum Writer {
    Writing(AbortOnDropHandle<Written>),
    /// All of the content was written; or the server takes no more, and may answer all the same.
    Ended(Option<WriteHalf<Box<dyn Io>>>),
}

impl Ends {
    fn reader(&mut self) -> &mut (dyn AsyncRead + Unpin) {
        match self {
            Ends::Both(io) => io,
            Ends::Apart { from, .. } => from,
        }
    }
}

/// Why nothing more can be read.
#[derive(Debug)]
pub(super) enum Broken {
    Client(Incomplete),
    Server(io::Error),
}

impl Exchange {
    /// Reads the bytes that have come, at most `room`. 0: the server has closed the connection.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Result<usize, Broken>> {
        self.input.reserve(room);
        // The buffer may have more: one read becomes one record.
        let mut space = (&mut self.input).limit(room);
        let read = poll_read_buf(Pin::new(self.ends.reader()), cx, &mut space);
        if read.is_pending() && self.input.is_empty() {
            // A response that is waited for has no buffer.
            self.input = BytesMut::new();
        }
        self.poll_writer(cx, read)
    }

    /// The same for a head, and what comes with it. Most responses are much smaller than `room`: they are read into memory of the worker, and copied.
    fn poll_head(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Result<usize, Broken>> {
        let read = FIRST.with_borrow_mut(|first| {
            first.resize(HEAD_ROOM, 0);
            let mut space = ReadBuf::new(&mut first[..room]);
            let read = Pin::new(self.ends.reader()).poll_read(cx, &mut space);
            self.input.extend_from_slice(space.filled());
            read.map_ok(|()| space.filled().len())
        });
        self.poll_writer(cx, read)
    }

    /// The result of a read, or the failure of the content of the request where the read waits.
    fn poll_writer(&mut self, cx: &mut Context<'_>, read: Poll<io::Result<usize>>) -> Poll<Result<usize, Broken>> {
        if let Poll::Ready(read) = read {
            return Poll::Ready(read.map_err(Broken::Server));
        }
        if let Ends::Apart { writer, .. } = &mut self.ends
            && let Err(incomplete) = ready!(writer.poll_end(cx))
        {
            return Poll::Ready(Err(Broken::Client(incomplete)));
        }
        Poll::Pending
    }

    /// Whether the bytes that come next can be moved into a pipe: none were read before them, and nothing lies between them and the socket.
    pub(super) fn fills_pipes(&self) -> bool {
        self.input.is_empty() && self.bare_socket().is_some()
    }

    /// Moves bytes that come into a pipe, at most `most`. 0: the server has closed the connection.
    pub(super) fn poll_fill_pipe(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        match self.bare_socket() {
            Some(socket) => socket.poll_fill(cx, pipe, most),
            None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn bare_socket(&self) -> Option<BareSocket<'_>> {
        match &self.ends {
            Ends::Both(io) => io.bare_socket(),
            Ends::Apart { .. } => None,
        }
    }

    /// Copies the bytes behind a head of `octets`, so that they do not keep the memory of a large one.
    fn release_head(&mut self, octets: usize) {
        if octets > SPARING_HEAD_ROOM {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// The connection, for another request, unless not all of this one was written, or bytes follow the response.
    pub(super) fn end(self) -> Released {
        let Exchange { ends, input, past, timer } = self;
        if !input.is_empty() {
            return if past.was_behind_head { Released::Unasked } else { Released::Closed };
        }
        let io = match ends {
            Ends::Both(io) => io,
            Ends::Apart { from, mut writer } => {
                let _ = writer.poll_end(&mut Context::from_waker(Waker::noop()));
                let Writer::Ended(Some(to)) = writer else { return Released::Closed };
                from.unsplit(to)
            }
        };
        Released::Open(Connection { io, past, timer })
    }

    /// The connection, for another protocol, with the bytes that have been read of it. `None`: a content is being written.
    pub(super) fn upgrade(self) -> Option<(Box<dyn Io>, Bytes)> {
        // Empty bytes of the buffer would hold all of its memory.
        let first = if self.input.is_empty() { Bytes::new() } else { self.input.freeze() };
        match self.ends {
            Ends::Both(io) => Some((io, first)),
            Ends::Apart { .. } => None,
        }
    }
}

impl Writer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Incomplete>> {
        let Writer::Writing(task) = self else { return Poll::Ready(Ok(())) };
        let written = ready!(Pin::new(task).poll(cx));
        let (to, result) = match written {
            Ok(Ok(to)) => (Some(to), Ok(())),
            Ok(Err(Unwritten::Client(incomplete))) => (None, Err(incomplete)),
            Ok(Err(Unwritten::Server)) | Err(_) => (None, Ok(())),
        };
        *self = Writer::Ended(to);
        Poll::Ready(result)
    }
}
