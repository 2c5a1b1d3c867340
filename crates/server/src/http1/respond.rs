//! Sending a response over HTTP/1.1: choose the path, write the head, send the body.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use sealion_http::HttpTime;
use sealion_http::http1::framing::{LAST_CHUNK, ResponseFraming, write_chunk_size};
use sealion_http::http1::write::{Connection, insert_lines, write_head};
use sealion_tls::{Part, Pipe, Source, TlsStream};
use tokio::task::yield_now;

use super::buffer::Buffer;
use super::content::ContentReader;
use super::stream::Stream;
use crate::exchange::{Alternative, Error, PathChoice, PathPolicy, Shared};
use crate::in_box::in_box;
use crate::passing::{Link, Passes, Refused, Turn, TurnWait};
use crate::response::{self, Body, Cursor, LeasedPipe, Piece, Response, Segment, SourceError};

/// The content of a response, and how much of it has been sent. It can be read when the sending was dropped.
pub(super) struct Progress {
    pub(super) content: Cursor,
    /// Bytes that the connection had sent before, interim responses included.
    before: u64,
    /// Bytes of head and framing.
    overhead: u64,
    /// Bytes of the head that were not sent, if the response goes on in another process.
    lead: Vec<u8>,
}

impl Progress {
    /// Nothing is sent of a response whose content is not known yet.
    pub(super) fn new(stream: &TlsStream) -> Self {
        Progress { content: Cursor::default(), before: stream.payload_sent(), overhead: 0, lead: Vec::new() }
    }

    /// The rest of a response: `before` and `overhead` as [`Self::start`] gave them.
    pub(super) fn resume(content: Cursor, (before, overhead): (u64, u64)) -> Self {
        Progress { content, before, overhead, lead: Vec::new() }
    }

    /// Bytes that the connection had sent before, and bytes of head and framing.
    pub(super) fn start(&self) -> (u64, u64) {
        (self.before, self.overhead)
    }

    /// The bytes of the head that were not sent.
    pub(super) fn lead(&self) -> &[u8] {
        &self.lead
    }

    /// Bytes of the body that were sent, and all bytes, including head and framing.
    pub(super) fn sent(&self, stream: &TlsStream) -> (u64, u64) {
        let wire = stream.payload_sent() - self.before;
        (wire.saturating_sub(self.overhead), wire)
    }
}

/// The parts of a head beside status and fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) framing: ResponseFraming,
    pub(super) connection: Connection,
    /// The value of Date.
    pub(super) date: HttpTime,
    /// Where the listener has HTTP/3.
    pub(super) alternative: Option<&'a Alternative>,
}

/// How sending a response ended.
pub(super) enum Sent {
    Whole,
    /// The rest goes on in the process that has taken over.
    Paused(Departure),
}

/// The departure of a connection within a response.
pub(super) struct Departure {
    /// Its turn to pass.
    pub(super) turn: Turn,
    pub(super) framing: ResponseFraming,
    /// `None`: the rest is known.
    pub(super) relay: Option<Relay>,
}

/// The socket over which another process gets the rest from its source.
pub(super) enum Relay {
    /// Yet another process has the source.
    Further(OwnedFd),
    /// This process has the source, and keeps the first end.
    Own(Link, OwnedFd),
}

impl Relay {
    /// # Errors
    /// No descriptor is free.
    fn new(source: &dyn response::Source) -> io::Result<Self> {
        match source.relay() {
            Some(end) => Ok(Relay::Further(end?)),
            None => Link::pair().map(|(near, far)| Relay::Own(near, far)),
        }
    }
}

/// Says why an exchange does not pass, and counts its connection.
pub(super) fn stays(error: &io::Error, shared: &Shared) {
    tracing::warn!("a response stays with this process: {error}");
    if let Some(giver) = shared.giver.get() {
        giver.stays(Refused::OwnDescriptors);
    }
}

/// Why the sending of what a source gives stopped.
enum Stop {
    Failed(Error),
    Leaves(Departure),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

/// Sends a response; its content moves into `progress`. The path is chosen by the known length of the body. The content of the request that is still
/// coming is read meanwhile.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn respond(
    stream: &mut Stream<'_>,
    response: &mut Response,
    head: Head<'_>,
    (policy, leave): (PathPolicy<'_>, Leave<'_>),
    progress: &mut Progress,
) -> Result<Sent, Error> {
    progress.content = Cursor::new(std::mem::replace(&mut response.body, Body::Empty));
    progress.before = stream.tls.payload_sent();
    let result = send(stream, response, head, (policy, leave), progress).await;
    note_unreadable(&result, progress);
    result
}

/// Sends a response whose head another process has made.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn respond_with(
    stream: &mut Stream<'_>,
    head: Buffer,
    framing: ResponseFraming,
    (policy, leave): (PathPolicy<'_>, Leave<'_>),
    progress: &mut Progress,
) -> Result<Sent, Error> {
    progress.before = stream.tls.payload_sent();
    send_with(stream, head, framing, (policy, leave), progress).await
}

/// Sends the rest of a response that another process began, and feeds.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn go_on_with(
    stream: &mut Stream<'_>,
    framing: ResponseFraming,
    (policy, leave): (PathPolicy<'_>, Leave<'_>),
    progress: &mut Progress,
) -> Result<Sent, Error> {
    let Stream { tls, path, content, .. } = stream;
    let mut sending = Sending { stream: tls, path, policy, framing, progress, content: content.as_mut(), leave };
    let result = Box::pin(sending.go_on()).await;
    sending.stopped(result)
}

/// Sends the rest of a response that another process began.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn send_rest(tls: &mut TlsStream, leave: Leave<'_>, progress: &mut Progress) -> Result<Sent, Error> {
    let parts: Vec<_> = progress.content.segments().map(Segment::part).collect();
    let stopped = send_ready(tls, &parts, leave, |tls, cx, source| {
        ready!(tls.poll_send(cx, source))?;
        Poll::Ready(tls.finish())
    });
    let result = stopped.await.map(|stopped| progress.pause(0, ResponseFraming::Nothing, stopped));
    note_unreadable(&result, progress);
    result
}

fn note_unreadable<T>(result: &Result<T, Error>, progress: &Progress) {
    if let Err(Error::Tls(error)) = &result
        && error.is_of_file()
    {
        progress.content.note_unreadable();
    }
}

/// Whether a response that waits for its client may go on in the process that has taken over. `None`: it ends here.
#[derive(Clone, Copy)]
pub(super) struct Leave<'g>(Option<&'g Shared>);

impl<'g> Leave<'g> {
    pub(super) fn of(shared: &'g Shared, passes: Passes) -> Self {
        Leave(Some(shared).filter(|_| passes == Passes::WhenItCan))
    }

    /// It ends here.
    pub(super) fn never() -> Self {
        Leave(None)
    }

    /// No descriptor is free for a relay: it ends here.
    pub(super) fn stay(&mut self, error: &io::Error) {
        if let Some(shared) = self.0.take() {
            stays(error, shared);
        }
    }

    /// Waits for the turn to pass, if another process has taken over.
    pub(super) fn poll(self, turn: &mut TurnWait<'g>, cx: &mut Context<'_>) -> Poll<Turn> {
        match self.0.and_then(|shared| shared.heir(Passes::WhenItCan)) {
            Some(giver) => turn.poll(giver, cx),
            None => Poll::Pending,
        }
    }
}

/// A send of what a source gave that was stopped: after so many bytes of its parts.
struct Unsent {
    after: u64,
    departure: Departure,
}

/// A send that was stopped: after so many bytes, when its connection's turn to pass had come.
struct Stopped {
    after: u64,
    turn: Turn,
}

/// Sends `parts` by `poll`, and stops if they wait for the client while another process takes over. `None`: all is sent.
async fn send_ready(
    tls: &mut TlsStream,
    parts: &[Part<'_>],
    leave: Leave<'_>,
    mut poll: impl FnMut(&mut TlsStream, &mut Context<'_>, &mut Source<'_>) -> Poll<Result<(), sealion_tls::Error>>,
) -> Result<Option<Stopped>, Error> {
    let mut source = Source::new(parts);
    let mut turn = TurnWait::default();
    let stopped = poll_fn(|cx| {
        if let Poll::Ready(sent) = poll(tls, cx, &mut source) {
            return Poll::Ready(sent.map(|()| None));
        }
        leave.poll(&mut turn, cx).map(|turn| Ok(Some(turn)))
    });
    let Some(turn) = stopped.await? else { return Ok(None) };
    Ok(Some(Stopped { after: tls.pause(source), turn }))
}

impl Progress {
    /// Keeps the unsent rest if the send was stopped. Its parts began with `head` bytes before the content.
    fn pause(&mut self, head: u64, framing: ResponseFraming, stopped: Option<Stopped>) -> Sent {
        let Some(Stopped { after, turn }) = stopped else { return Sent::Whole };
        self.content.take(after.saturating_sub(head) as usize, |_, _| {});
        Sent::Paused(Departure { turn, framing, relay: None })
    }
}

async fn send(
    stream: &mut Stream<'_>,
    response: &Response,
    head: Head<'_>,
    (policy, leave): (PathPolicy<'_>, Leave<'_>),
    progress: &mut Progress,
) -> Result<Sent, Error> {
    let Head { framing, connection, date, alternative } = head;
    let mut head = Buffer::take();
    write_head(&mut head, response.status, &response.fields, framing, connection, &date);
    if let Some(alternative) = alternative {
        insert_lines(&mut head, alternative.line());
    }
    send_with(stream, head, framing, (policy, leave), progress).await
}

/// Chooses the path, and sends.
async fn send_with(
    stream: &mut Stream<'_>,
    head: Buffer,
    framing: ResponseFraming,
    (policy, leave): (PathPolicy<'_>, Leave<'_>),
    progress: &mut Progress,
) -> Result<Sent, Error> {
    let Stream { tls, path, content, .. } = stream;
    let has_content = framing.has_content();
    let known = if has_content { progress.content.announced().unwrap_or_else(|| progress.content.len()) } else { 0 };
    path.make(*tls, HEAD_ESTIMATE.saturating_add(known), policy).await?;
    progress.overhead = head.len() as u64;
    if has_content && progress.content.source().is_some() {
        let mut sending = Sending { stream: tls, path, policy, framing, progress, content: content.as_mut(), leave };
        let result = in_box(|| sending.send(head)).await;
        return sending.stopped(result);
    }
    let first = Part::Bytes(&head);
    let stopped = match progress.content.only_segment() {
        Some(only) if has_content => send_ready(tls, &[first, only.part()], leave, TlsStream::poll_respond).await?,
        None if has_content => {
            let segments = progress.content.segments().map(Segment::part);
            let parts: Vec<_> = std::iter::once(first).chain(segments).collect();
            send_ready(tls, &parts, leave, TlsStream::poll_respond).await?
        }
        _ => {
            tls.respond(&[first]).await?;
            None
        }
    };
    if let Some(Stopped { after, .. }) = &stopped {
        progress.lead = head[(*after as usize).min(head.len())..].to_vec();
    }
    Ok(progress.pause(head.len() as u64, framing, stopped))
}

/// The number of bytes after which a response by a pipe yields to the other connections of its thread.
const TURN: usize = 512 << 10;

/// Usual length of a head, for the choice of path.
const HEAD_ESTIMATE: u64 = 256;

/// The state of sending the pieces of a source.
struct Sending<'a> {
    stream: &'a mut TlsStream,
    path: &'a mut PathChoice,
    policy: PathPolicy<'a>,
    framing: ResponseFraming,
    progress: &'a mut Progress,
    /// The content of the request, if it is forwarded.
    content: Option<&'a mut ContentReader>,
    leave: Leave<'a>,
}

impl<'a> Sending<'a> {
    /// Sends the head, then every piece as it arrives. The response is finished only if the source ended after the announced
    /// length.
    async fn send(&mut self, head: Buffer) -> Result<(), Stop> {
        self.stream.begin().await?;
        self.send_pieces(head).await
    }

    /// Sends what another process left, then every piece as it arrives.
    async fn go_on(&mut self) -> Result<(), Stop> {
        let left: Vec<_> = std::iter::from_fn(|| self.progress.content.pop_segment()).collect();
        let parts: Vec<_> = left.iter().map(Segment::part).collect();
        if let Some(unsent) = self.send_parts(&parts).await? {
            return Err(self.keep(left, unsent));
        }
        self.send_pieces(Buffer::take()).await
    }

    fn stopped(&self, result: Result<(), Stop>) -> Result<Sent, Error> {
        match result {
            Ok(()) => Ok(Sent::Whole),
            Err(Stop::Leaves(departure)) => Ok(Sent::Paused(departure)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn send_pieces(&mut self, mut head: Buffer) -> Result<(), Stop> {
        loop {
            if head.is_empty() && self.may_pipe() {
                self.send_by_pipe().await?;
            }
            let Some(piece) = self.next(&mut head).await? else { break };
            let len = piece.len();
            if len > 0 {
                self.send_piece(&mut head, piece, len).await?;
            }
        }
        if self.framing == ResponseFraming::Chunked {
            let before = head.len();
            match self.progress.content.trailers() {
                None => head.extend_from_slice(LAST_CHUNK),
                Some(trailers) => {
                    let (last, end) = LAST_CHUNK.split_at(LAST_CHUNK.len() - 2);
                    head.extend_from_slice(last);
                    head.extend_from_slice(trailers.lines());
                    head.extend_from_slice(end);
                }
            }
            self.progress.overhead += (head.len() - before) as u64;
        }
        self.progress.content.end_source();
        self.send_framing(&mut head).await?;
        Ok(self.stream.finish()?)
    }

    /// The next piece. If it is ready, the pending bytes of head and framing are sent together with it.
    async fn next(&mut self, head: &mut Buffer) -> Result<Option<Piece>, Stop> {
        if let Poll::Ready(piece) = poll_fn(|cx| Poll::Ready(self.progress.content.poll_source(cx))).await {
            return Ok(piece?);
        }
        // The task that makes the piece may be ready to run: then head and piece leave together.
        yield_now().await;
        if let Poll::Ready(piece) = poll_fn(|cx| Poll::Ready(self.progress.content.poll_source(cx))).await {
            return Ok(piece?);
        }
        self.send_framing(head).await?;
        self.wait_for_piece().await
    }

    /// Whether content can go on to the client without being read: nothing is put between it, and this process does not seal it.
    fn may_pipe(&self) -> bool {
        self.framing != ResponseFraming::Chunked && self.stream.takes_pipes() && self.progress.content.fills_pipes()
    }

    /// Sends content by a pipe, as far as the source allows and if there is a pipe.
    async fn send_by_pipe(&mut self) -> Result<(), Stop> {
        let Some(mut leased) = LeasedPipe::take() else { return Ok(()) };
        let mut turn = 0;
        while let Some(moved) = self.fill(&mut leased.pipe).await? {
            self.empty(&mut leased.pipe).await?;
            turn += moved;
            if turn >= TURN {
                turn = 0;
                yield_now().await;
            }
        }
        // If the rest has to be read, a record is open.
        poll_fn(|cx| self.stream.poll_flush_record(cx)).await?;
        leased.give_back();
        Ok(())
    }

    /// Moves content that comes into the pipe. Before a wait, the bytes that were sent leave in a record of their own.
    async fn fill(&mut self, pipe: &mut Pipe) -> Result<Option<usize>, Stop> {
        if let Poll::Ready(moved) = poll_fn(|cx| Poll::Ready(self.progress.content.poll_fill_pipe(cx, pipe))).await {
            return Ok(moved?);
        }
        poll_fn(|cx| self.stream.poll_flush_record(cx)).await?;
        self.wait_for(|content, cx| content.poll_fill_pipe(cx, pipe)).await
    }

    /// Sends the content of the pipe.
    async fn empty(&mut self, pipe: &mut Pipe) -> Result<(), Stop> {
        let mut turn = TurnWait::default();
        let more_follow = self.progress.content.left() != Some(0);
        let departure = poll_fn(|cx| {
            let Sending { stream, content, .. } = self;
            if let Poll::Ready(Err(error)) = poll_content(content, cx, stream) {
                return Poll::Ready(Err(error));
            }
            match stream.poll_send_pipe(cx, pipe, more_follow).map_err(Error::from) {
                Poll::Ready(sent) => Poll::Ready(sent.map(|()| None)),
                Poll::Pending => self.poll_leave(&mut turn, cx).map(|departure| Ok(Some(departure))),
            }
        });
        let Some(departure) = departure.await? else { return Ok(()) };
        let rest = pipe.take().map_err(SourceError::Failed)?;
        self.progress.content.push_segment(Segment::of_bytes(rest.into()));
        Err(Stop::Leaves(departure))
    }

    /// Waits for the next piece.
    async fn wait_for_piece(&mut self) -> Result<Option<Piece>, Stop> {
        self.wait_for(Cursor::poll_source).await
    }

    /// Waits for content, and reads the content of the request meanwhile. Fails if the client goes away.
    async fn wait_for<T>(
        &mut self,
        mut poll: impl FnMut(&mut Cursor, &mut Context<'_>) -> Poll<Result<T, SourceError>>,
    ) -> Result<T, Stop> {
        let (mut is_here, mut turn) = (true, TurnWait::default());
        poll_fn(|cx| {
            let Sending { stream, content, progress, .. } = self;
            if let Poll::Ready(came) = poll(&mut progress.content, cx) {
                return Poll::Ready(came.map_err(Stop::from));
            }
            if poll_content(content, cx, stream)?.is_ready()
                && is_here
                && let Poll::Ready(gone) = stream.poll_peer_gone(cx)
            {
                match gone {
                    // A half-close after the head of the response is tolerated: the client may still read.
                    Ok(()) | Err(sealion_tls::Error::Truncated) => is_here = false,
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            self.poll_leave(&mut turn, cx).map(|departure| Err(Stop::Leaves(departure)))
        })
        .await
    }

    /// Waits for the turn to pass, with a relay if there is a source.
    fn poll_leave(&mut self, turn: &mut TurnWait<'a>, cx: &mut Context<'_>) -> Poll<Departure> {
        let has_come = ready!(self.leave.poll(turn, cx));
        match self.progress.content.source().map(Relay::new).transpose() {
            Ok(relay) => Poll::Ready(Departure { turn: has_come, framing: self.framing, relay }),
            Err(error) => {
                self.leave.stay(&error);
                Poll::Pending
            }
        }
    }

    /// Sends the pending bytes of head and framing.
    async fn send_framing(&mut self, bytes: &mut Buffer) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(unsent) = self.send_parts(&[Part::Bytes(bytes)]).await? {
            return Err(self.keep([Segment::of_bytes(bytes.to_vec().into())], unsent));
        }
        bytes.clear();
        Ok(())
    }

    /// Sends, and reads the content of the request meanwhile: a client that reads only when all of its content is taken is not waited for.
    async fn send_parts(&mut self, parts: &[Part<'_>]) -> Result<Option<Unsent>, Error> {
        let (mut source, mut turn) = (Source::new(parts), TurnWait::default());
        let departure = poll_fn(|cx| {
            let Sending { stream, content, .. } = self;
            if let Poll::Ready(Err(error)) = poll_content(content, cx, stream) {
                return Poll::Ready(Err(error));
            }
            match stream.poll_send(cx, &mut source).map_err(Error::from) {
                Poll::Ready(sent) => Poll::Ready(sent.map(|()| None)),
                Poll::Pending => self.poll_leave(&mut turn, cx).map(|departure| Ok(Some(departure))),
            }
        });
        let Some(departure) = departure.await? else { return Ok(None) };
        Ok(Some(Unsent { after: self.stream.pause(source), departure }))
    }

    /// Keeps the rest of `segments`, whose sending was stopped.
    fn keep(&mut self, segments: impl IntoIterator<Item = Segment>, Unsent { after, departure }: Unsent) -> Stop {
        segments.into_iter().for_each(|segment| self.progress.content.push_segment(segment));
        self.progress.content.take(after as usize, |_, _| {});
        Stop::Leaves(departure)
    }

    /// Sends a piece after the pending bytes of head and framing. The path is reconsidered first.
    async fn send_piece(&mut self, before: &mut Buffer, piece: Piece, len: u64) -> Result<(), Stop> {
        self.path.weigh(self.stream, len, self.policy).await?;
        let chunked = self.framing == ResponseFraming::Chunked;
        if chunked {
            let end = before.len();
            write_chunk_size(before, len as usize);
            self.progress.overhead += (before.len() - end + 2) as u64;
        }
        let content = match &piece {
            Piece::Bytes(bytes) => Part::Bytes(bytes),
            Piece::File { file, range } => file.part(range),
        };
        let after: &'static [u8] = if chunked { b"\r\n" } else { b"" };
        let sent = self.send_parts(&[Part::Bytes(before), content, Part::Bytes(after)]).await;
        if let (Piece::File { file, .. }, Err(Error::Tls(error))) = (&piece, &sent)
            && error.is_of_file()
        {
            file.note_unreadable();
        }
        if let Some(unsent) = sent? {
            let content = match piece {
                Piece::Bytes(bytes) => Segment::of_bytes(Vec::from(bytes).into()),
                Piece::File { file, range } => Segment::File(file, range),
            };
            let before = Segment::of_bytes(before.to_vec().into());
            return Err(self.keep([before, content, Segment::of_bytes(after.into())], unsent));
        }
        before.clear();
        Ok(())
    }
}

/// Reads the content of a request. Ready: there is no more to read.
fn poll_content(
    content: &mut Option<&mut ContentReader>,
    cx: &mut Context<'_>,
    stream: &mut TlsStream,
) -> Poll<Result<(), Error>> {
    match content {
        Some(content) => content.poll(cx, stream).map_ok(drop),
        None => Poll::Ready(Ok(())),
    }
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;
