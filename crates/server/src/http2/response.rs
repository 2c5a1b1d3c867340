//! A response that is being sent on a stream.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use sealion_h2::{Connection, DataFrame, HeaderBlock, Progress, StreamClosed, StreamId, Window};
use sealion_http::ExtraFields;

use super::batch::{Batch, RECORD};
use super::request::Answered;
use crate::exchange::Error;
use crate::files::resolve::SiteFile;
use crate::response::{Body, BodyStream, Piece, SharedBytes};
use crate::upstream::HeadRoom;

/// A response whose head is written.
pub(super) struct Sending<'a> {
    pub(super) stream: StreamId,
    /// Goes before `answered`, which has the place for its descriptors.
    content: Pieces,
    pub(super) answered: Box<Answered<'a>>,
    /// Octets of content that were put into batches.
    pub(super) body: u64,
    /// Octets of frames that were put into batches.
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
    /// Octets of content that were sent before.
    progress: Progress,
    deadline: Instant,
}

/// Octets of content that end a stall: a client that opens windows octet by octet makes no progress.
const PROGRESS: u64 = 16 << 10;

/// Content that is ready to be sent, and the source of more.
struct Pieces {
    /// The first piece that is ready: most responses have no other.
    front: Option<ContentPiece>,
    behind: VecDeque<ContentPiece>,
    source: Option<BodyStream>,
    /// Octets that `source` gave.
    given: u64,
}

enum ContentPiece {
    Bytes(Cow<'static, [u8]>, Range<usize>),
    Shared(Arc<SharedBytes>, Range<usize>),
    File(Arc<SiteFile>, Range<u64>),
}

impl<'a> Sending<'a> {
    /// Takes the content out of the response. `head`: octets of the frames of its head.
    pub(super) fn new(stream: StreamId, mut answered: Box<Answered<'a>>, head: u64) -> Self {
        let body = match answered.framing.has_content() {
            true => std::mem::replace(&mut answered.response.body, Body::Empty),
            false => Body::Empty,
        };
        Self {
            stream,
            answered,
            content: Pieces::of(body),
            body: 0,
            wire: head,
            ended: false,
            filled: false,
            stall: None,
            trailers: None,
        }
    }

    /// Tells the connection what content is ready from the start.
    pub(super) fn offer(&self, connection: &mut Connection) -> Result<(), StreamClosed> {
        connection.offer(self.stream, self.content.len(), self.content.source.is_none())
    }

    /// Whether the content that is ready does not fit a record.
    pub(super) fn is_long(&self) -> bool {
        self.content.len() >= RECORD as u64
    }

    /// Puts the next `length` octets of content into `batch`.
    pub(super) fn take(&mut self, length: usize, batch: &mut Batch) {
        self.content.take(length, batch);
        self.body += length as u64;
    }

    /// A frame that was put into a batch is not sent.
    pub(super) fn withdraw(&mut self, frame: &DataFrame) {
        self.body -= frame.length as u64;
        self.wire -= (frame.header.len() + frame.length) as u64;
    }

    /// The closed window that holds back content that the source was not asked for. A source that was asked and has nothing waits for no window.
    pub(super) fn awaits_window(&self, connection: &Connection, ahead: &Ahead) -> Option<Window> {
        let source = self.content.source.as_ref().filter(|_| self.content.waiting() == 0)?;
        let is_held_back = match source.length {
            Some(length) => self.content.given < length,
            // Else it is asked for a piece: see `poll_source`.
            None => ahead.is_full(),
        };
        if is_held_back { connection.window_without_room(self.stream) } else { None }
    }

    /// Notes whether a window holds the content back. `held`: by which window, and what was sent by then; `None`: no window does. `sharing`: streams that wait
    /// for the connection's window. `deadline`: of a stall that begins now. Returns true if one begins now, and false while it lasts.
    pub(super) fn note_window(&mut self, held: Option<(Window, Progress)>, sharing: u64, deadline: Instant) -> bool {
        let Some((window, progress)) = held else {
            self.stall = None;
            return false;
        };
        // Whichever window closed first: a client that closes one and the other in turns gains nothing.
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

    /// Lets go of the content, and tells its source what is not sent.
    pub(super) fn drop_content(&mut self) {
        if let Some(source) = &self.content.source {
            source.source.take_back(self.content.given.saturating_sub(self.body));
        }
        self.content = Pieces::of(Body::Empty);
    }

    /// When the client has to have opened a window.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stall.map(|stall| stall.deadline)
    }

    /// Writes the trailers into `heads` if all content before them is in frames. `true`: the stream has ended.
    pub(super) fn end_with_trailers(&mut self, connection: &mut Connection, heads: &mut Vec<u8>) -> bool {
        let Some(trailers) = self.trailers.take_if(|_| self.content.front.is_none()) else { return false };
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
        // Others are in memory for all connections.
        if self.content.given == 0 { trailers } else { trailers + self.content.in_memory() }
    }

    /// Asks the source for more content, unless enough is ready. Ready: it failed.
    ///
    /// A stream whose window is closed is asked for one piece at most.
    pub(super) fn poll_source(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
        asking: &mut Asking<'_>,
    ) -> Poll<Error> {
        loop {
            let waiting = self.content.waiting();
            let Some(source) = &mut self.content.source else { return Poll::Pending };
            let most = match (connection.has_room(self.stream), asking.ahead.is_full()) {
                (true, false) => source.source.ahead(),
                (true, true) => 1,
                // The end takes neither memory nor a window. It may come unless a length says that content comes before.
                (false, is_full) => match source.length {
                    Some(length) => usize::from(self.content.given >= length),
                    None => usize::from(!is_full),
                },
            };
            if waiting >= most {
                return Poll::Pending;
            }
            let Poll::Ready(piece) = source.source.as_mut().poll_piece(cx) else { return Poll::Pending };
            let announced = source.length;
            match piece {
                Some(Ok(piece)) => {
                    self.content.given += piece.len();
                    if announced.is_none() {
                        *asking.upcoming += piece.len();
                    }
                    if let Piece::Bytes(bytes) = &piece {
                        asking.ahead.add(bytes.len());
                    }
                    let given = self.content.given;
                    if let Some(announced) = announced.filter(|announced| given > *announced) {
                        return Poll::Ready(Error::SourceLength { announced, given });
                    }
                    // A stream that was reset takes nothing.
                    let _ = connection.offer(self.stream, piece.len(), false);
                    self.content.push(piece);
                }
                Some(Err(error)) => return Poll::Ready(Error::Source(error)),
                None => {
                    let given = self.content.given;
                    if let Some(announced) = announced.filter(|announced| given < *announced) {
                        return Poll::Ready(Error::SourceLength { announced, given });
                    }
                    self.trailers = source.source.as_mut().trailers();
                    asking.ahead.add(self.trailers.as_ref().map_or(0, |trailers| trailers.lines().len()));
                    self.content.source = None;
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

impl Pieces {
    /// Bytes of pieces in memory.
    fn in_memory(&self) -> u64 {
        let pieces = self.front.iter().chain(&self.behind);
        pieces.filter(|piece| matches!(piece, ContentPiece::Bytes(..))).map(ContentPiece::len).sum()
    }

    /// Pieces that are not sent to their end.
    fn waiting(&self) -> usize {
        self.behind.len() + usize::from(self.front.is_some())
    }

    fn of(body: Body) -> Self {
        let mut pieces = Pieces { front: None, behind: VecDeque::new(), source: None, given: 0 };
        match body {
            Body::Empty => {}
            Body::Bytes(bytes) => pieces.push_bytes(bytes),
            Body::Shared(shared) => {
                let all = 0..shared.bytes.len();
                pieces.push_piece(ContentPiece::Shared(shared, all));
            }
            Body::File { file, range } => pieces.push_piece(ContentPiece::File(file, range)),
            Body::Multipart { file, parts, closing } => {
                for part in parts {
                    pieces.push_bytes(part.head.into());
                    pieces.push_piece(ContentPiece::File(Arc::clone(&file), part.range));
                }
                pieces.push_bytes(closing.into());
            }
            Body::Stream(stream) => pieces.source = Some(stream),
        }
        pieces
    }

    fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(bytes) => self.push_bytes(Vec::from(bytes).into()),
            Piece::File { file, range } => self.push_piece(ContentPiece::File(file, range)),
        }
    }

    fn push_bytes(&mut self, bytes: Cow<'static, [u8]>) {
        let all = 0..bytes.len();
        self.push_piece(ContentPiece::Bytes(bytes, all));
    }

    fn push_piece(&mut self, piece: ContentPiece) {
        match &self.front {
            None => self.front = Some(piece),
            Some(_) => self.behind.push_back(piece),
        }
    }

    fn len(&self) -> u64 {
        self.front.iter().chain(&self.behind).map(ContentPiece::len).sum()
    }

    fn take(&mut self, mut length: usize, batch: &mut Batch) {
        while length > 0
            && let Some(piece) = &mut self.front
        {
            length -= piece.take(length, batch);
            if piece.len() == 0 {
                self.front = self.behind.pop_front();
            }
        }
        debug_assert_eq!(length, 0, "a frame has no more than was offered");
    }
}

impl ContentPiece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(_, range) | Self::Shared(_, range) => range.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }

    /// Puts at most `most` octets into `batch`. Returns how many.
    fn take(&mut self, most: usize, batch: &mut Batch) -> usize {
        let length = usize::try_from(self.len()).unwrap_or(usize::MAX).min(most);
        let next = |range: &mut Range<usize>| {
            let start = range.start;
            range.start += length;
            start..range.start
        };
        match self {
            Self::Bytes(Cow::Borrowed(bytes), range) => batch.stay(&bytes[next(range)]),
            Self::Bytes(Cow::Owned(bytes), range) => batch.copy(&bytes[next(range)]),
            Self::Shared(shared, range) => batch.shared(shared, next(range)),
            Self::File(file, range) => {
                let start = range.start;
                range.start += length as u64;
                batch.file(file, start..range.start);
            }
        }
        length
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
