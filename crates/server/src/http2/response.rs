//! A response that is being sent on a stream.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use sealion_h2::{Connection, DataFrame, HeaderBlock, Progress, StreamClosed, StreamId, Window};
use sealion_http::ExtraFields;

use super::batch::{Batch, COPIED, RECORD};
use crate::exchange::{Answered, PathChoice, fields};
use crate::passing::{Ends, Files, StreamUnderWay};
use crate::response::{Body, BodyStream, Cursor, Piece, Segment, SourceError};
use crate::upstream::HeadRoom;

/// A response that is sent, or will be when its head is written. It is boxed, so that it is not moved from list to list.
pub(super) struct Sending<'a> {
    pub(super) stream: StreamId,
    /// Goes before `answered`, which has the place for its descriptors.
    content: Cursor,
    pub(super) answered: Box<Answered<'a>>,
    /// Bytes of content that were put into batches.
    pub(super) body: u64,
    /// Bytes of frames that were put into batches.
    pub(super) wire: u64,
    /// The frame with END_STREAM is made.
    pub(super) ended: bool,
    /// It is in the last batch.
    pub(super) filled: bool,
    /// Since when a window holds the content back.
    stall: Option<Stall>,
    /// Fields that follow the content.
    trailers: Option<Box<ExtraFields>>,
}

/// A wait for the client to open a window.
#[derive(Debug, Clone, Copy)]
struct Stall {
    /// Bytes of content that were sent before.
    progress: Progress,
    deadline: Instant,
}

/// Bytes of content that end a stall: a client that opens windows byte by byte makes no progress.
const PROGRESS: u64 = 16 << 10;

impl<'a> Sending<'a> {
    /// Takes the content out of the response.
    pub(super) fn new(stream: StreamId, mut answered: Box<Answered<'a>>) -> Box<Self> {
        let body = match answered.framing.has_content() {
            true => std::mem::replace(&mut answered.response.body, Body::Empty),
            false => Body::Empty,
        };
        Box::new(Self {
            stream,
            answered,
            content: Cursor::new(body),
            body: 0,
            wire: 0,
            ended: false,
            filled: false,
            stall: None,
            trailers: None,
        })
    }

    /// The rest of a response that another process began. `source`: of more.
    pub(super) fn resume(
        answered: Box<Answered<'a>>,
        under_way: StreamUnderWay,
        files: &Files,
        source: Option<BodyStream>,
    ) -> Box<Self> {
        let StreamUnderWay { stream, line, ended, filled, rest, trailers, stall, request: _, ends: _, relayed: _ } =
            under_way;
        let (body, wire) = line.counts;
        let ready = files.unpack_content(rest);
        let content = match source {
            Some(source) => ready.with_source(source),
            None => ready,
        };
        let trailers = trailers.map(|lines| Box::new(fields(&lines)));
        let stall = stall.map(|(progress, left)| Stall { progress, deadline: Instant::now() + left });
        Box::new(Self { stream, answered, content, body, wire, ended, filled, stall, trailers })
    }

    /// Whether the connection may pass while it is under way.
    pub(super) fn can_leave(&self) -> bool {
        self.answered.can_leave()
    }

    /// Whether a source has more.
    pub(super) fn has_source(&self) -> bool {
        self.content.source().is_some()
    }

    /// Whether this process has the source of more.
    pub(super) fn is_fed_here(&self) -> bool {
        self.content.source().is_some_and(|source| !source.is_relayed())
    }

    /// The socket over which another process feeds it, for yet another one.
    pub(super) fn relay(&self) -> Option<io::Result<OwnedFd>> {
        self.content.source()?.relay()
    }

    /// The rest of the response for another process, which writes the line.
    #[expect(clippy::boxed_local, reason = "it is kept in its box")]
    pub(super) fn pack(mut self: Box<Self>, path: &PathChoice, files: &mut Files) -> (StreamUnderWay, Option<Cursor>) {
        let rest = self.content.segments().map(|segment| files.pack_segment(segment)).collect();
        let source = self.content.take_source();
        let Sending { stream, answered, body, wire, ended, filled, stall, trailers, .. } = *self;
        let ends = if answered.is_tunnel { Ends::Tunnel } else { Ends::Usual };
        let (request, line) = answered.leave(path, (body, wire));
        let trailers = trailers.map(|trailers| trailers.lines().to_vec());
        let stall = stall.map(|stall| (stall.progress, stall.deadline.saturating_duration_since(Instant::now())));
        let relayed = None;
        (StreamUnderWay { stream, request, line, ended, filled, ends, rest, trailers, stall, relayed }, source)
    }

    /// Length of the content in bytes. `None`: not known in advance.
    pub(super) fn length(&self) -> Option<u64> {
        match self.content.source() {
            Some(_) => self.content.announced(),
            None => Some(self.content.len()),
        }
    }

    /// Tells the connection how much content is ready from the start.
    pub(super) fn offer(&self, connection: &mut Connection) -> Result<(), StreamClosed> {
        connection.offer(self.stream, self.content.len(), self.content.source().is_none())
    }

    /// All content, if it is short and in memory, so that it can leave with its head.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.content.whole().filter(|content| !content.is_empty() && content.len() <= COPIED)
    }

    /// All content is in frames with the head.
    pub(super) fn took_whole(&mut self, length: u64) {
        self.content = Cursor::default();
        (self.body, self.ended) = (length, true);
    }

    /// Whether the content that is ready does not fit a record.
    pub(super) fn is_long(&self) -> bool {
        self.content.len() >= RECORD as u64
    }

    /// Puts the next `length` bytes of content into `batch`.
    pub(super) fn take(&mut self, length: usize, batch: &mut Batch) {
        self.content.take(length, |segment, length| put(segment, length, batch));
        self.body += length as u64;
    }

    /// A frame that was put into a batch is not sent.
    pub(super) fn withdraw(&mut self, frame: &DataFrame) {
        self.body -= frame.length as u64;
        self.wire -= (frame.header.len() + frame.length) as u64;
    }

    /// The closed window that holds back content that the source was not asked for. A source that was asked and has nothing waits for no window.
    pub(super) fn awaits_window(&self, connection: &Connection, ahead: &Ahead) -> Option<Window> {
        let source = self.content.source().filter(|_| self.content.waiting() == 0)?;
        let is_held_back = match self.content.announced() {
            Some(length) => self.content.given() < length,
            // Else it is asked for a piece: see `poll_source`.
            None => ahead.is_full() || source.held().is_some(),
        };
        if is_held_back { connection.window_without_room(self.stream) } else { None }
    }

    /// Notes whether a window holds the content back. `held`: the window and the progress so far; `None`: no window does. `sharing`: streams that wait
    /// for the connection's window. `deadline`: of a stall that begins now. Returns true if one begins now, and false while it lasts.
    pub(super) fn note_window(&mut self, held: Option<(Window, Progress)>, sharing: u64, deadline: Instant) -> bool {
        let Some((window, progress)) = held else {
            self.stall = None;
            return false;
        };
        // The window that closed first does not matter: a client that closes one and the other in turns gains nothing.
        let needed = match window {
            Window::Stream => PROGRESS,
            Window::Connection => PROGRESS * sharing,
        };
        let begins = self.stall.is_none_or(|stall| progress.by(window) >= stall.progress.by(window) + needed);
        if begins {
            self.stall = Some(Stall { progress, deadline });
        }
        begins
    }

    /// No window holds the content back.
    pub(super) fn end_stall(&mut self) {
        self.stall = None;
    }

    /// Tells the source of the content which part is not sent.
    pub(super) fn take_back(&self) {
        self.content.take_back(self.body);
    }

    /// When the client has to have opened a window.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stall.map(|stall| stall.deadline)
    }

    /// Writes the trailers into `heads` if all content before them is in frames. `true`: the stream has ended.
    pub(super) fn end_with_trailers(&mut self, connection: &mut Connection, heads: &mut Vec<u8>) -> bool {
        let Some(trailers) = self.trailers.take_if(|_| self.content.waiting() == 0) else { return false };
        let mut block = HeaderBlock::default();
        trailers.iter().for_each(|(name, value)| block.field(name, value));
        let before = heads.len();
        // A stream that was reset takes none.
        let _ = connection.trailers(self.stream, &[block.as_bytes()], heads);
        self.wire += (heads.len() - before) as u64;
        self.ended = true;
        true
    }

    /// Bytes of the source that wait in memory.
    pub(super) fn ahead(&self) -> u64 {
        let trailers = self.trailers.as_ref().map_or(0, |trailers| trailers.lines().len() as u64);
        let trailers = trailers + self.content.source().and_then(|source| source.held()).unwrap_or(0);
        // Others are in memory for all connections.
        if self.content.given() == 0 { trailers } else { trailers + self.content.in_memory() }
    }

    /// Asks the source for more content, unless enough is ready. Ready: it failed.
    ///
    /// A stream whose window is closed is asked for one piece at most.
    pub(super) fn poll_source(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
        asking: &mut Asking<'_>,
    ) -> Poll<SourceError> {
        // Most responses have none, and need no look at their windows.
        if !self.has_source() {
            return Poll::Pending;
        }
        loop {
            let room = connection.room(self.stream, asking.sharing);
            self.content.set_room(room);
            let Some(source) = self.content.source() else { return Poll::Pending };
            let announced = self.content.announced();
            let most = match (room > 0, asking.ahead.is_full()) {
                (true, false) => source.ahead(),
                (true, true) => 1,
                // The end takes neither memory nor a window. It may come unless a length says that content comes before.
                (false, is_full) => match announced {
                    Some(length) => usize::from(self.content.given() >= length),
                    None => usize::from(!is_full),
                },
            };
            if self.content.waiting() >= most {
                return Poll::Pending;
            }
            match self.content.poll_source(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Ready(Ok(Some(piece))) => {
                    if announced.is_none() {
                        *asking.upcoming += piece.len();
                    }
                    if let Piece::Bytes(bytes) = &piece {
                        asking.ahead.add(bytes.len());
                    }
                    // A stream that was reset takes nothing.
                    let _ = connection.offer(self.stream, piece.len(), false);
                    self.content.push(piece);
                }
                Poll::Ready(Ok(None)) => {
                    self.trailers = self.content.trailers();
                    asking.ahead.add(self.trailers.as_ref().map_or(0, |trailers| trailers.lines().len()));
                    self.content.end_source();
                    match self.trailers {
                        Some(_) => drop(self.end_with_trailers(connection, asking.heads)),
                        None => drop(connection.offer(self.stream, 0, true)),
                    }
                }
            }
        }
    }
}

/// The parts of a connection that a source fills.
pub(super) struct Asking<'a> {
    /// Grows by content whose length was not known.
    pub(super) upcoming: &'a mut u64,
    /// Gets trailers that no content goes before.
    pub(super) heads: &'a mut Vec<u8>,
    pub(super) ahead: &'a mut Ahead,
    /// Streams that share the connection's window.
    pub(super) sharing: u64,
}

/// Bytes of sources and heads that wait in memory until a connection sends them, and all connections together.
pub(super) struct Ahead {
    contents: u64,
    /// Bytes of heads that wait.
    heads: u64,
    /// Bytes of heads in the batch that is being sent.
    batched: u64,
    /// The sum that `all` includes for this connection.
    counted: u64,
    all: Arc<AtomicU64>,
    room: Arc<HeadRoom>,
}

/// Bytes of sources that wait on a connection, beyond which streams with closed windows get none.
const MAX_AHEAD: u64 = 1 << 20;

/// Bytes of heads that wait on a connection, beyond which no further ones are read from servers where little is read, and no further requests from the
/// client.
const MAX_HEADS_AHEAD: u64 = 64 << 10;

/// Bytes of heads that are not counted: they leave with the next batch.
const FREE_HEADS: u64 = 16 << 10;

// GUESS: as much as contents that wait take by default (`limits.max_buffered`).
/// The same for all connections together.
const MAX_AHEAD_IN_ALL: u64 = 256 << 20;

impl Ahead {
    /// `all`: of all connections.
    pub(super) fn new(all: &Arc<AtomicU64>) -> Self {
        let room = Arc::default();
        Ahead { contents: 0, heads: 0, batched: 0, counted: 0, all: Arc::clone(all), room }
    }

    /// Bytes of sources.
    pub(super) fn set_contents(&mut self, contents: u64) {
        self.contents = contents;
        self.count();
    }

    /// Bytes of heads that are not in a batch.
    pub(super) fn set_heads(&mut self, heads: usize) {
        self.heads = heads as u64;
        self.count();
    }

    /// Bytes of heads that are taken into a batch; 0: it was sent.
    pub(super) fn batched(&mut self, heads: usize) {
        (self.batched, self.heads) = (heads as u64, 0);
        self.count();
    }

    fn count(&mut self) {
        let heads = self.heads + self.batched;
        self.room.set_full(heads >= MAX_HEADS_AHEAD);
        let now = self.contents + if heads > FREE_HEADS { heads } else { 0 };
        if now != self.counted {
            // Wraps around where it falls.
            self.all.fetch_add(now.wrapping_sub(self.counted), Ordering::Relaxed);
            self.counted = now;
        }
    }

    fn add(&mut self, bytes: usize) {
        self.set_contents(self.contents + bytes as u64);
    }

    /// Whether streams with closed windows get no more of their sources.
    fn is_full(&self) -> bool {
        self.counted >= MAX_AHEAD || self.all.load(Ordering::Relaxed) >= MAX_AHEAD_IN_ALL
    }

    /// For requests to servers.
    pub(super) fn head_room(&self) -> &Arc<HeadRoom> {
        &self.room
    }

    /// Whether the client does not read the heads that are written.
    pub(super) fn has_many_heads(&self) -> bool {
        self.room.is_full()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.set_contents(0);
        self.batched(0);
    }
}

/// Puts the first `length` bytes of a segment into `batch`.
fn put(segment: &Segment, length: usize, batch: &mut Batch) {
    let first = |range: &Range<usize>| range.start..range.start + length;
    match segment {
        Segment::Bytes(Cow::Borrowed(bytes), range) => batch.stay(&bytes[first(range)]),
        Segment::Bytes(Cow::Owned(bytes), range) => batch.copy(&bytes[first(range)]),
        Segment::Shared(shared, range) => batch.shared(shared, first(range)),
        Segment::File(file, range) => batch.file(file, range.start..range.start + length as u64),
    }
}

/// The error of a stream that the client reset.
pub(super) fn reset_by_client(code: sealion_h2::ErrorCode) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, format!("the client reset the stream: {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_count_until_their_batch_is_sent() {
        let all = Arc::new(AtomicU64::new(0));
        let counted = || all.load(Ordering::Relaxed);
        let mut ahead = Ahead::new(&all);
        ahead.set_heads(FREE_HEADS as usize);
        assert_eq!(counted(), 0);
        ahead.set_heads(MAX_HEADS_AHEAD as usize);
        ahead.set_contents(5);
        assert!(ahead.has_many_heads());
        ahead.batched(MAX_HEADS_AHEAD as usize);
        assert!(ahead.has_many_heads());
        assert_eq!(counted(), MAX_HEADS_AHEAD + 5);
        ahead.batched(0);
        assert!(!ahead.has_many_heads());
        assert_eq!(counted(), 5);
        drop(ahead);
        assert_eq!(counted(), 0);
    }
}
