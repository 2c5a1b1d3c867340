//! Contents that wait for the slower side: in memory up to a bound, then in files without a name.
//!
//! ```text
//! server ─► a task that reads ─► Queue (memory, file) ─► Buffered, the response's body ─► client
//! client ─► collect ─► Queue (memory, file) ─► a task that writes ─► RequestContent ─► server
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use rustix::fs::{CWD, Mode, OFlags, openat};
use schemars::JsonSchema;
use sealion_http::{ExtraFields, FieldSection, Status};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;

use super::content::{ContentWriter, Incomplete, RequestContent, Room, pipe};
use super::pieces::Pieces;
use crate::files::resolve::{Content, SiteFile};
use crate::response::{Piece, Source};
use crate::values::{At, Problems, Size};

/// Where contents wait for the slower side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BufferConfig {
    /// Bytes in memory, of each content.
    #[serde(default = "memory")]
    pub(crate) memory: Size,
    /// Bytes in files, of all contents of the rule together: what does not fit into memory [default: none]
    #[serde(default)]
    pub(crate) disk: Option<Size>,
    /// Directory of these files. They have no names, and end with the process.
    #[serde(default)]
    pub(crate) directory: Option<At<PathBuf>>,
}

fn memory() -> Size {
    Size(1 << 20)
}

/// The memory of all contents that wait. Each configuration has its own: while requests from before a reload end, theirs counts there.
#[derive(Debug)]
pub(crate) struct Waiting {
    most: usize,
    used: AtomicUsize,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting { most: usize::MAX, used: AtomicUsize::new(0) }
    }
}

impl Waiting {
    pub(super) fn new(most: Size) -> Self {
        Waiting { most: usize::try_from(most.0).unwrap_or(usize::MAX), ..Waiting::default() }
    }

    /// Whether there is room. Threads that ask at the same time may each get the last piece of it.
    fn has_room(&self, octets: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(octets) <= self.most
    }

    fn add(&self, octets: usize) {
        self.used.fetch_add(octets, Ordering::Relaxed);
    }

    fn remove(&self, octets: usize) {
        self.used.fetch_sub(octets, Ordering::Relaxed);
    }
}

/// The bounds of what waits.
#[derive(Debug)]
pub(crate) struct Spooling {
    memory: usize,
    /// Bounds the memory of all rules together.
    waiting: Arc<Waiting>,
    disk: u64,
    directory: PathBuf,
    /// Octets in files.
    used: AtomicU64,
    /// Whether it was said that a file cannot be written.
    has_warned: AtomicBool,
}

impl BufferConfig {
    /// `None`: there are problems.
    pub(crate) fn build(&self, waiting: &Arc<Waiting>, key: &str, problems: &mut Problems) -> Option<Arc<Spooling>> {
        let directory = match (&self.directory, self.disk) {
            (None, None) => PathBuf::new(),
            (None, Some(_)) => {
                let what = "names no directory for what does not fit into memory: add directory = \"/var/tmp\", or remove disk";
                problems.add(&(0..0), key, what);
                return None;
            }
            (Some(directory), None) => {
                problems.add(
                    &directory.span,
                    key,
                    "has a directory that nothing uses: add disk = \"1GiB\", or remove it",
                );
                return None;
            }
            (Some(directory), Some(_)) => {
                let path = problems.resolve(directory);
                if let Err(error) = create(&path) {
                    let what = format_args!("no file can be made in {}: {error}", path.display());
                    problems.add(&directory.span, &format!("{key}.directory"), what);
                    return None;
                }
                path
            }
        };
        Some(Arc::new(Spooling {
            memory: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            waiting: Arc::clone(waiting),
            disk: self.disk.map_or(0, |disk| disk.0),
            directory,
            used: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }))
    }
}

/// A file that no other process can open by a name.
fn create(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Spooling {
    /// In memory alone.
    pub(crate) fn in_memory(memory: usize, waiting: &Arc<Waiting>) -> Arc<Self> {
        let waiting = Arc::clone(waiting);
        let (used, has_warned) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Spooling { memory, waiting, disk: 0, directory: PathBuf::new(), used, has_warned })
    }

    fn reserve(&self, octets: u64) -> bool {
        let before = self.used.fetch_add(octets, Ordering::Relaxed);
        let has_room = before.saturating_add(octets) <= self.disk;
        if !has_room {
            self.used.fetch_sub(octets, Ordering::Relaxed);
        }
        has_room
    }

    fn warn(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: cannot keep contents that wait for a slow side: {error}: they are passed on as they are taken",
                self.directory.display()
            );
        }
    }
}

/// A share of the bound of a rule's files, given back when it is dropped.
#[derive(Debug)]
struct Share {
    octets: u64,
    spooling: Arc<Spooling>,
}

impl Share {
    fn of(spooling: &Arc<Spooling>, octets: u64) -> Option<Self> {
        spooling.reserve(octets).then(|| Share { octets, spooling: Arc::clone(spooling) })
    }

    fn add(&mut self, mut other: Share) {
        self.octets += std::mem::take(&mut other.octets);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.spooling.used.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// A file, and its share of the bound.
#[derive(Debug)]
struct Spool {
    file: Arc<File>,
    written: u64,
    share: Share,
}

/// What waits, in order.
#[derive(Debug)]
struct Queue {
    spooling: Arc<Spooling>,
    parts: VecDeque<Part>,
    /// Octets in memory.
    in_memory: usize,
    /// Parts in the file.
    in_file: usize,
    spool: Option<Spool>,
    /// Whether something is being written to the file.
    is_writing: bool,
    /// A file could not be written.
    has_failed: bool,
}

#[derive(Debug)]
enum Part {
    Memory(Pieces),
    File { file: Arc<File>, range: Range<u64> },
}

/// What comes next.
enum Taken {
    Memory(Bytes),
    File { file: Arc<File>, range: Range<u64> },
}

/// Where a content goes.
enum Place {
    Memory,
    File {
        file: Option<Arc<File>>,
        at: u64,
        share: Share,
    },
    /// There is none, until something was taken.
    Nowhere,
}

impl Queue {
    fn new(spooling: &Arc<Spooling>) -> Self {
        Queue {
            spooling: Arc::clone(spooling),
            parts: VecDeque::new(),
            in_memory: 0,
            in_file: 0,
            spool: None,
            is_writing: false,
            has_failed: false,
        }
    }

    /// Whether so many octets more fit into memory.
    fn has_memory(&self, octets: usize) -> bool {
        self.in_memory + octets <= self.spooling.memory && self.spooling.waiting.has_room(octets)
    }

    /// The place for so many octets. An empty queue takes any number, so that each content goes on, unless it is refused.
    fn place(&mut self, octets: usize, rest: Rest) -> Place {
        if self.has_memory(octets) || (self.parts.is_empty() && rest == Rest::Passed) {
            return Place::Memory;
        }
        let share = if self.has_failed { None } else { Share::of(&self.spooling, octets as u64) };
        let Some(share) = share else { return Place::Nowhere };
        self.is_writing = true;
        match &self.spool {
            Some(spool) => Place::File { file: Some(Arc::clone(&spool.file)), at: spool.written, share },
            None => Place::File { file: None, at: 0, share },
        }
    }

    fn push(&mut self, content: Bytes) {
        self.in_memory += content.len();
        self.spooling.waiting.add(content.len());
        match self.parts.back_mut() {
            Some(Part::Memory(pieces)) => pieces.push(content),
            _ => {
                let mut pieces = Pieces::default();
                pieces.push(content);
                self.parts.push_back(Part::Memory(pieces));
            }
        }
    }

    /// Takes note of what was written to the file.
    fn wrote(&mut self, file: Arc<File>, range: Range<u64>, share: Share) {
        self.in_file += 1;
        self.is_writing = false;
        match &mut self.spool {
            Some(spool) => {
                spool.written = range.end;
                spool.share.add(share);
            }
            None => self.spool = Some(Spool { file: Arc::clone(&file), written: range.end, share }),
        }
        self.parts.push_back(Part::File { file, range });
    }

    fn failed(&mut self, error: &io::Error) {
        self.is_writing = false;
        self.spooling.warn(error);
        self.has_failed = true;
    }

    fn pop(&mut self) -> Option<Taken> {
        if let Part::Memory(pieces) = self.parts.front_mut()? {
            let content = pieces.pop()?;
            self.in_memory -= content.len();
            self.spooling.waiting.remove(content.len());
            if pieces.is_empty() {
                self.parts.pop_front();
            }
            return Some(Taken::Memory(content));
        }
        let Some(Part::File { file, range }) = self.parts.pop_front() else { return None };
        self.in_file -= 1;
        if self.in_file == 0 && !self.is_writing {
            // The next content begins another file: this one may still be sent.
            self.spool = None;
        }
        Some(Taken::File { file, range })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.spooling.waiting.remove(self.in_memory);
    }
}

/// Writes to the file, or to a new one.
async fn write(
    spooling: &Arc<Spooling>,
    file: Option<Arc<File>>,
    at: u64,
    content: Bytes,
) -> io::Result<(Arc<File>, Range<u64>)> {
    let directory = file.is_none().then(|| spooling.directory.clone());
    let written = spawn_blocking(move || {
        let file = match (file, directory) {
            (Some(file), _) => file,
            (None, directory) => Arc::new(create(&directory.unwrap_or_default())?),
        };
        file.write_all_at(&content, at)?;
        Ok((file, at..at + content.len() as u64))
    });
    written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The body of a response that is read at the server's speed.
pub(crate) struct Buffered {
    shared: Arc<Mutex<Shared>>,
    _reading: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    /// How the answer ended.
    end: Option<io::Result<()>>,
    trailers: Option<Box<ExtraFields>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffered {
    pub(crate) fn new(source: Pin<Box<dyn Source>>, spooling: &Arc<Spooling>) -> Self {
        let queue = Queue::new(spooling);
        let shared = Shared { queue, end: None, trailers: None, reader: None, writer: None };
        let shared = Arc::new(Mutex::new(shared));
        let reading = tokio::spawn(read(source, Arc::clone(&shared), Arc::clone(spooling)));
        Buffered { shared, _reading: AbortOnDropHandle::new(reading) }
    }
}

/// Reads an answer, as far as there is room.
async fn read(mut source: Pin<Box<dyn Source>>, shared: Arc<Mutex<Shared>>, spooling: Arc<Spooling>) {
    let end = loop {
        let content = match poll_fn(|cx| source.as_mut().poll_piece(cx)).await {
            None => break Ok(()),
            Some(Err(error)) => break Err(error),
            Some(Ok(Piece::Bytes(content))) => content,
            Some(Ok(Piece::File { .. })) => break Err(io::Error::other("the answer of a server is no file")),
        };
        if content.is_empty() {
            continue;
        }
        loop {
            let place = poll_fn(|cx| {
                let mut shared = lock(&shared);
                match shared.queue.place(content.len(), Rest::Passed) {
                    Place::Nowhere => {
                        shared.writer = Some(cx.waker().clone());
                        Poll::Pending
                    }
                    place => Poll::Ready(place),
                }
            });
            let (file, at, share) = match place.await {
                Place::File { file, at, share } => (file, at, share),
                Place::Memory | Place::Nowhere => {
                    let mut shared = lock(&shared);
                    shared.queue.push(content);
                    shared.wake_reader();
                    break;
                }
            };
            let written = write(&spooling, file, at, content.clone()).await;
            let mut shared = lock(&shared);
            match written {
                Ok((file, range)) => {
                    shared.queue.wrote(file, range, share);
                    shared.wake_reader();
                    break;
                }
                Err(error) => shared.queue.failed(&error),
            }
        }
    };
    let trailers = source.as_mut().trailers();
    // The server's connection is free for the next request.
    drop(source);
    let mut shared = lock(&shared);
    (shared.end, shared.trailers) = (Some(end), trailers);
    shared.wake_reader();
}

impl Shared {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Source for Buffered {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let mut shared = lock(&self.shared);
        if let Some(taken) = shared.queue.pop() {
            if let Some(writer) = shared.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(match taken {
                Taken::Memory(content) => Piece::Bytes(content),
                Taken::File { file, range } => {
                    Piece::File { file: SiteFile::of_content(Content::File(file), range.end), range }
                }
            })));
        }
        match shared.end.take() {
            Some(Ok(())) => {
                shared.end = Some(Ok(()));
                Poll::Ready(None)
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                shared.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn trailers(self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        lock(&self.shared).trailers.take()
    }
}

/// What becomes of a content's end for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It is passed on as it comes, behind what waits.
    Passed,
    /// The request is answered 413.
    Refused,
}

/// Takes the content of a request, whole if there is room for it.
///
/// # Errors
/// The client did not send all of it, or it is refused.
pub(crate) async fn collect(
    mut content: RequestContent,
    spooling: &Arc<Spooling>,
    rest: Rest,
) -> Result<RequestContent, Incomplete> {
    let announced = content.length();
    let mut queue = Queue::new(spooling);
    let (mut length, mut trailers) = (0, None);
    let refused = || Incomplete { status: Status::CONTENT_TOO_LARGE };
    if rest == Rest::Refused && announced.is_some_and(|length| length > spooling.memory as u64 + spooling.disk) {
        return Err(refused());
    }
    // Which of them the server gets is decided when they are sent.
    content.pass_trailers(&Arc::from([]));
    let rest = 'all: loop {
        let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await else { break None };
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                // Scripts learn none, and need the length.
                trailers = frame.into_trailers().ok().filter(|_| rest == Rest::Passed);
                continue;
            }
        };
        length += data.len() as u64;
        loop {
            match queue.place(data.len(), rest) {
                Place::Nowhere if rest == Rest::Refused => {
                    // The disk may be full or fail, and other contents may take the room.
                    let fits = length <= spooling.memory as u64 + spooling.disk;
                    // Waiting for others, each of many contents could hold a part of the memory, and none would be whole.
                    return Err(if fits { Incomplete { status: Status::SERVICE_UNAVAILABLE } } else { refused() });
                }
                Place::Memory => queue.push(data),
                Place::Nowhere => {
                    queue.push(data);
                    break 'all Some(content);
                }
                Place::File { file, at, share } => match write(spooling, file, at, data.clone()).await {
                    Ok((file, range)) => queue.wrote(file, range, share),
                    Err(error) => {
                        queue.failed(&error);
                        continue;
                    }
                },
            }
            break;
        }
    };
    // Trailers follow chunks alone.
    let known = if rest.is_none() && trailers.is_none() { Some(length) } else { announced };
    let (writer, collected) = pipe(known);
    tokio::spawn(feed(writer, queue, rest, trailers));
    Ok(collected)
}

/// Octets of a file that are read at a time.
const READ: u64 = 64 << 10;

/// Writes what waits, and then the rest as it comes.
async fn feed(
    mut writer: ContentWriter,
    mut queue: Queue,
    rest: Option<RequestContent>,
    mut trailers: Option<HeaderMap>,
) {
    while let Some(taken) = queue.pop() {
        match taken {
            Taken::Memory(content) => {
                if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                    return;
                }
                writer.write(content);
            }
            Taken::File { file, mut range } => {
                while range.start < range.end {
                    if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                        return;
                    }
                    let (file, at) = (Arc::clone(&file), range.start);
                    let length = (range.end - at).min(READ);
                    let read = spawn_blocking(move || {
                        let mut octets = vec![0; length as usize];
                        file.read_exact_at(&mut octets, at).map(|()| octets)
                    });
                    // Dropped, the writer makes the content incomplete.
                    let Ok(Ok(octets)) = read.await else { return };
                    writer.write(octets.into());
                    range.start += length;
                }
            }
        }
    }
    if let Some(mut rest) = rest {
        loop {
            if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                return;
            }
            match poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
                None => break,
                Some(Err(incomplete)) => return writer.fail(incomplete.status),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => writer.write(data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    }
    let mut lines = Vec::new();
    for (name, value) in trailers.iter().flatten() {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    writer.finish_with(FieldSection::from_lines(&lines));
}
