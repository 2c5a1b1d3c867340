//! A response on its way from the origin into the store. All requests that wait for it read it as it comes.
//!
//! ```text
//! Requested ─► Flowing(head) ─► Ended(Stored)      the body is whole, and an object
//!   │               ├───────────► Ended(Passed)      it is whole, and nothing was stored: the disk failed, or it is too large
//!   │               └───────────► Ended(Failed)      it broke off: no reader's response ends as if it were whole
//!   └─► Ended(NotShared)        the answer is for one request only
//! ```
//!
//! The first bytes lie in a file, and readers send them from there; the others lie in memory until they are written. If writing fails, they stay there
//! until all readers have them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sealion_http::ExtraFields;
use slab::Slab;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::timeout;

use super::fetch::FetchPlace;
use super::key::{NUMBER, url_of};
use super::now_ms;
use super::object::{Head, Object};
use super::tail::Tail;
use crate::files::resolve::SiteFile;
use crate::observe::access_log::UpstreamTrace;
use crate::response::{Piece, Source};
use crate::upstream::{Failure, Reply, without_room};
use crate::values::Mutex;

/// A response on its way.
#[derive(Debug)]
pub(super) struct Fill {
    /// The URL, as keys begin with it.
    pub(super) url: Box<[u8]>,
    /// The number of the rule that fetches it: a rule of another configuration may change the fields otherwise.
    pub(super) rules: [u8; NUMBER],
    /// When it was made: its response is asked for then or later.
    pub(super) began: u64,
    state: Mutex<State>,
    /// Something came, or the fill ended.
    moved: Arc<Notify>,
    /// A reader has read on, or left.
    taken: Notify,
    /// Requests that wait for it or read it.
    interested: AtomicUsize,
    /// The fields for the request that the origin answered, if they are not the stored ones.
    own: OnceLock<ExtraFields>,
    /// The hash of the key with its variant, if it was found by the key without.
    pub(super) variant: OnceLock<u128>,
    /// Nothing of it is to be written any more.
    pub(super) is_over: AtomicBool,
    /// The fills whose places it took, by the hashes under which they were found: their objects may be waiting to be written.
    pub(super) before: Mutex<Vec<(u128, Arc<Fill>)>>,
}

/// The state of a fill, for a request that looks up its key.
pub(super) enum Known {
    /// It has ended.
    Object(Arc<Object>),
    /// Its head is known.
    Flowing(Arc<Flowing>),
}

/// The outcome of asking for a fill after no object was found.
pub(super) enum Joined {
    /// The fill of another request.
    Shared(Arc<Fill>),
    /// A new fill, which the caller has to run.
    New(Arc<Fill>, FetchPlace),
    /// The limit of fetches is reached.
    Full,
    /// A fetch has ended since the caller looked: the object may be there.
    Ended,
}

impl Joined {
    /// A fill that no other request finds.
    pub(super) fn alone(key: &[u8], rules: [u8; NUMBER]) -> Self {
        match FetchPlace::take(key) {
            Some(place) => Joined::New(Fill::new(key, rules), place),
            None => Joined::Full,
        }
    }
}

/// A request that waits for a fill, or reads it.
#[derive(Debug)]
pub(super) struct Interest(Arc<Fill>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.interested.fetch_sub(1, Ordering::Relaxed);
        self.0.taken.notify_waiters();
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The response that is for one request only, until that request takes it.
    reply: Option<(Reply, UpstreamTrace)>,
    /// The file that is being written.
    file: Option<Arc<SiteFile>>,
    /// Bytes in it.
    written: u64,
    /// The bytes in memory.
    tail: Tail,
    /// Where they begin: at `written`, unless writing has failed.
    tail_begin: u64,
    /// Where each reader is.
    readers: Slab<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum Phase {
    Requested,
    Flowing(Arc<Flowing>),
    Ended(End),
}

/// The head of a response whose body is on its way.
#[derive(Debug)]
pub(super) struct Flowing {
    /// The key of the object that it becomes, its variant included.
    pub(super) key: Box<[u8]>,
    pub(super) head: Head,
    /// Length of the body, if the origin says it.
    pub(super) length: Option<u64>,
    /// Whether the disk takes it, as far as is known when the head comes.
    pub(super) is_stored: bool,
    pub(super) trace: Option<UpstreamTrace>,
}

#[derive(Debug, Clone)]
pub(super) enum End {
    Stored {
        object: Arc<Object>,
        outcome: FetchOutcome,
        trace: Option<UpstreamTrace>,
    },
    /// The body was whole, and is no object.
    Passed(Arc<Flowing>),
    /// The response is for the request that was asked with; the others ask for themselves.
    NotShared(&'static str),
    /// No server answered, or the body broke off.
    Failed(Arc<Failed>),
}

/// How an object came to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// It was fetched.
    Fetched,
    /// The origin says that the stored one is valid.
    Validated,
    /// The same, but the response is for the request that asked only.
    ValidatedForOne,
    /// The origin failed, and the stored one may be sent in its place.
    StaleOnError,
}

/// Why a fill has no whole response.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) trace: Option<UpstreamTrace>,
}

impl Fill {
    /// `key`: of the response, with or without its variant.
    pub(super) fn new(key: &[u8], rules: [u8; NUMBER]) -> Arc<Self> {
        let state = State {
            phase: Phase::Requested,
            reply: None,
            file: None,
            written: 0,
            tail: Tail::default(),
            tail_begin: 0,
            readers: Slab::new(),
        };
        Arc::new(Fill {
            url: url_of(key).into(),
            rules,
            began: now_ms(),
            state: Mutex::new(state),
            moved: Arc::default(),
            taken: Notify::new(),
            interested: AtomicUsize::new(0),
            own: OnceLock::new(),
            variant: OnceLock::new(),
            is_over: AtomicBool::new(false),
            before: Mutex::default(),
        })
    }

    /// The phase after [`Phase::Requested`].
    pub(super) async fn answered(&self) -> Phase {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            match self.state.lock().phase.clone() {
                Phase::Requested => {}
                phase => return phase,
            }
            moved.await;
        }
    }

    /// Whether it is over.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Ended(_))
    }

    /// The object that it became, or will become.
    pub(super) fn known(&self) -> Option<Known> {
        match &self.state.lock().phase {
            Phase::Ended(End::Stored { object, outcome, .. }) if *outcome != FetchOutcome::ValidatedForOne => {
                Some(Known::Object(Arc::clone(object)))
            }
            Phase::Flowing(flowing) => Some(Known::Flowing(Arc::clone(flowing))),
            _ => None,
        }
    }

    /// The request that the origin answered gets other fields than the stored ones.
    pub(super) fn set_own(&self, fields: ExtraFields) {
        let _ = self.own.set(fields);
    }

    /// The fields for the request that the origin answered, if they are not the stored ones.
    pub(super) fn own(&self) -> Option<&ExtraFields> {
        self.own.get()
    }

    /// The response that is for one request only.
    pub(super) fn take_reply(&self) -> Option<(Reply, UpstreamTrace)> {
        self.state.lock().reply.take()
    }

    pub(super) fn flows(&self, flowing: Arc<Flowing>) {
        self.state.lock().phase = Phase::Flowing(flowing);
        self.moved.notify_waiters();
    }

    pub(super) fn not_shared(&self, why: &'static str, reply: Reply, trace: UpstreamTrace) {
        let mut state = self.state.lock();
        state.reply = Some((reply, trace));
        state.phase = Phase::Ended(End::NotShared(why));
        drop(state);
        self.moved.notify_waiters();
    }

    /// Ends the fill, unless it has ended.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Ended(_)) {
            state.phase = Phase::Ended(end);
        }
        drop(state);
        self.moved.notify_waiters();
    }

    /// A piece came.
    pub(super) fn push(&self, piece: Bytes) {
        let piece = without_room(piece);
        self.state.lock().tail.push(piece);
        self.moved.notify_waiters();
    }

    /// The pieces that are not written, and where the first begins.
    pub(super) fn unwritten(&self) -> (Vec<Bytes>, u64) {
        let state = self.state.lock();
        (state.tail.iter().cloned().collect(), state.tail_begin)
    }

    /// Bytes that are not written.
    pub(super) fn unwritten_octets(&self) -> usize {
        self.state.lock().tail.len()
    }

    /// The first `pieces` of the tail are written to `file`.
    pub(super) fn wrote(&self, file: &Arc<SiteFile>, pieces: usize) {
        let mut state = self.state.lock();
        state.written += state.tail.remove(pieces) as u64;
        state.tail_begin = state.written;
        state.file.get_or_insert_with(|| Arc::clone(file));
    }

    /// After storing has failed: waits until the readers have freed memory. `false`: no request wants the body.
    pub(super) async fn drain(&self) -> bool {
        self.drain_within(PATIENCE).await
    }

    /// `most`: how long the slowest reader may keep a reader waiting that has read everything so far.
    async fn drain_within(&self, most: Duration) -> bool {
        // Where the slowest reader is, and since when.
        let mut slowest = (0, Instant::now());
        loop {
            let mut taken = std::pin::pin!(self.taken.notified());
            taken.as_mut().enable();
            let patience = {
                if !self.is_wanted() {
                    return false;
                }
                let mut state = self.state.lock();
                // A request that has not begun to read begins at 0.
                let has_all = state.readers.len() >= self.interested.load(Ordering::Relaxed);
                let at = if has_all { state.slowest(0) } else { state.tail_begin };
                if at != slowest.0 {
                    slowest = (at, Instant::now());
                }
                let patience = most.saturating_sub(slowest.1.elapsed());
                // A reader that reads nothing must not hold up another that has read everything so far: the slow response breaks off. While no other waits,
                // the fetch does.
                let freed = if patience.is_zero() && state.has_reader_at_end() { state.slowest(at + 1) } else { at };
                state.free(freed);
                if state.tail.has_room() {
                    return true;
                }
                if patience.is_zero() { most.max(LOOK) } else { patience }
            };
            let _ = timeout(patience, taken).await;
        }
    }

    pub(super) fn interest(self: &Arc<Self>) -> Interest {
        self.interested.fetch_add(1, Ordering::Relaxed);
        Interest(Arc::clone(self))
    }

    /// Whether a request reads the body, or waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.interested.load(Ordering::Relaxed) > 0
    }

    /// Reads the body from `start` to `end`, or to its end. `None`: it is not there any more.
    pub(super) fn read(self: &Arc<Self>, start: u64, end: Option<u64>) -> Option<Reader> {
        let mut state = self.state.lock();
        if state.tail_begin > state.written && start < state.tail_begin {
            return None;
        }
        let slot = state.readers.insert(start);
        drop(state);
        let moved = Box::pin(Arc::clone(&self.moved).notified_owned());
        Some(Reader { fill: self.interest(), at: start, end, slot, moved })
    }
}

impl State {
    /// Position of the slowest reader at or past `from`, or the end of the content that is there. Readers of content that was dropped are not counted.
    fn slowest(&self, from: u64) -> u64 {
        // Before the first piece is dropped, the content goes on where the file ends.
        let first = if self.tail_begin > self.written { self.tail_begin } else { 0 };
        let readers = self.readers.iter().map(|(_, at)| *at);
        let end = self.tail_begin + self.tail.len() as u64;
        readers.filter(|at| *at >= from.max(first)).min().unwrap_or(end)
    }

    /// Whether a reader has read all that is there, and waits for more.
    fn has_reader_at_end(&self) -> bool {
        let end = self.tail_begin + self.tail.len() as u64;
        self.readers.iter().any(|(_, at)| *at >= end)
    }

    /// Drops the pieces that end before this byte.
    fn free(&mut self, before: u64) {
        let ends = self.tail.iter().scan(self.tail_begin, |end, piece| {
            *end += piece.len() as u64;
            Some(*end)
        });
        let pieces = ends.take_while(|end| *end <= before).count();
        self.tail_begin += self.tail.remove(pieces) as u64;
    }

    /// The bytes at `at`, up to `end`. `Ready(None)`: there are no more.
    fn piece(&self, at: u64, end: u64) -> Poll<Option<io::Result<Piece>>> {
        if at >= end {
            return Poll::Ready(None);
        }
        if let Phase::Ended(End::Stored { object, .. }) = &self.phase {
            let end = end.min(object.body.len);
            let piece = Piece::File { file: Arc::clone(&object.body), range: at..end };
            return Poll::Ready((at < end).then_some(Ok(piece)));
        }
        if let Some(file) = self.file.as_ref().filter(|_| at < self.written) {
            let range = at..self.written.min(end);
            return Poll::Ready(Some(Ok(Piece::File { file: Arc::clone(file), range })));
        }
        if at < self.tail_begin {
            return Poll::Ready(Some(Err(io::Error::other(
                "the client is slower than others that share the response",
            ))));
        }
        let mut begin = self.tail_begin;
        for piece in self.tail.iter() {
            let len = piece.len() as u64;
            if at < begin + len {
                let from = (at - begin) as usize;
                let to = (end - begin).min(len) as usize;
                return Poll::Ready(Some(Ok(Piece::Bytes(piece.slice(from..to)))));
            }
            begin += len;
        }
        match &self.phase {
            Phase::Ended(End::Failed(failed)) => Poll::Ready(Some(Err(io::Error::other(failed.failure.to_string())))),
            Phase::Ended(_) => Poll::Ready(None),
            Phase::Requested | Phase::Flowing(_) => Poll::Pending,
        }
    }
}

/// Reads the body of a fill.
pub(super) struct Reader {
    fill: Interest,
    at: u64,
    end: Option<u64>,
    slot: usize,
    moved: Pin<Box<OwnedNotified>>,
}

impl Source for Reader {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        loop {
            this.moved.as_mut().enable();
            let found = {
                let mut state = this.fill.0.state.lock();
                let found = state.piece(this.at, this.end.unwrap_or(u64::MAX));
                if let Poll::Ready(Some(Ok(piece))) = &found {
                    this.at += piece.len();
                    if let Some(at) = state.readers.get_mut(this.slot) {
                        *at = this.at;
                    }
                }
                found
            };
            if found.is_ready() {
                this.fill.0.taken.notify_waiters();
                return found;
            }
            ready!(this.moved.as_mut().poll(cx));
            this.moved.set(Arc::clone(&this.fill.0.moved).notified_owned());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.fill.0.state.lock().readers.try_remove(self.slot);
    }
}

/// How long the slowest reader of a response that is not stored may read nothing while others wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time after which a fetch that waits for its slowest reader looks whether another waits for it too.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::tail::MAX_UNWRITTEN;
    use super::*;
    use crate::files::disk_threads::DiskThreads;

    const LENGTH: u64 = MAX_UNWRITTEN as u64;

    fn full() -> Arc<Fill> {
        let fill = Fill::new(b"https://example.org/", [0; NUMBER]);
        fill.push(vec![b'a'; MAX_UNWRITTEN / 2].into());
        fill.push(vec![b'b'; MAX_UNWRITTEN / 2].into());
        fill
    }

    /// As if all time had passed that a reader has.
    fn drain(fill: &Fill) -> Poll<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut drained = std::pin::pin!(fill.drain_within(Duration::ZERO));
        drained.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn read(reader: &mut Reader) -> Option<io::Result<u64>> {
        match Pin::new(reader).poll_piece(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(piece) => piece.map(|piece| piece.map(|piece| piece.len())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_reader_that_is_alone_has_any_time() {
        let fill = full();
        let mut reader = fill.read(0, None).unwrap();
        assert!(drain(&fill).is_pending() && drain(&fill).is_pending());
        assert_eq!(read(&mut reader).unwrap().unwrap(), LENGTH / 2);
        assert_eq!(drain(&fill), Poll::Ready(true), "what it has read makes room");
        assert_eq!(read(&mut reader).unwrap().unwrap(), LENGTH / 2);
        drop(reader);
        assert_eq!(drain(&fill), Poll::Ready(false));
    }

    #[test]
    fn a_reader_that_is_still_in_the_file_loses_nothing() {
        let fill = full();
        let file = Arc::<DiskThreads>::default().site_file(Arc::new(tempfile::tempfile().unwrap()), u64::MAX);
        fill.wrote(&file, 1);
        let [mut slow, mut slower] = [0; 2].map(|at| fill.read(at, None).unwrap());
        fill.push(vec![b'c'; MAX_UNWRITTEN / 2].into());
        assert!(drain(&fill).is_pending(), "storing has failed");
        for _ in 0..3 {
            assert_eq!(read(&mut slow).unwrap().unwrap(), LENGTH / 2);
            assert_eq!(read(&mut slower).unwrap().unwrap(), LENGTH / 2);
        }
        assert_eq!(drain(&fill), Poll::Ready(true));
    }

    #[test]
    fn readers_that_are_all_slow_lose_nothing() {
        let fill = full();
        let [mut first, mut second] = [0; 2].map(|at| fill.read(at, None).unwrap());
        read(&mut second).unwrap().unwrap();
        assert!(drain(&fill).is_pending());
        for reader in [&mut first, &mut second] {
            assert_eq!(read(reader).unwrap().unwrap(), LENGTH / 2);
        }
    }

    #[test]
    fn a_reader_that_holds_up_another_is_left_behind() {
        let fill = full();
        let [mut slow, mut fast] = [0; 2].map(|at| fill.read(at, None).unwrap());
        for _ in 0..2 {
            read(&mut fast).unwrap().unwrap();
        }
        assert_eq!(drain(&fill), Poll::Ready(true));
        assert!(read(&mut slow).unwrap().is_err());
        fill.push(vec![b'c'; 10].into());
        assert_eq!(read(&mut fast).unwrap().unwrap(), 10);
    }
}
