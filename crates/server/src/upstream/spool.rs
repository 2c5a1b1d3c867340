//! Contents that wait for the slower side: in memory up to a bound, then in files without a name.
//!
//! ```text
//! server ─► a task that reads ─► Queue (memory, file) ─► Buffered, the response's body ─► client
//! ```

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use schemars::JsonSchema;
use sealion_http::ExtraFields;
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;

use super::pieces::Pieces;
use super::spool_disk::{DiskError, SpoolDisk};
use super::waiting::Waiting;
use crate::files::disk_threads::DiskFile;
use crate::files::resolve::{Content, SiteFile};
use crate::limits::{NoRoom, Reservation};
use crate::response::{Piece, Source};
use crate::values::{At, Mutex, Problems, Size};

/// Where contents wait for the slower side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BufferConfig {
    /// Bytes in memory, of each content.
    #[serde(default = "memory")]
    pub(crate) memory: Size,
    /// Bytes in files, of all contents of the rule together, for content that does not fit into memory [default: none]
    #[serde(default)]
    pub(crate) disk: Option<Size>,
    /// Directory of these files. They have no names, and end with the process.
    #[serde(default)]
    pub(crate) directory: Option<At<PathBuf>>,
}

fn memory() -> Size {
    Size(1 << 20)
}

/// The bounds of waiting content.
#[derive(Debug)]
pub(crate) struct Spooling {
    pub(super) memory: usize,
    /// Bounds the memory of all rules together.
    pub(super) waiting: Arc<Waiting>,
    pub(super) disk: u64,
    /// Where the files are.
    pub(super) files: Arc<SpoolDisk>,
    /// Bytes in files.
    used: AtomicU64,
}

impl BufferConfig {
    /// `None`: there are problems.
    pub(crate) fn build(&self, waiting: &Arc<Waiting>, key: &str, problems: &mut Problems) -> Option<Arc<Spooling>> {
        let files = match (&self.directory, self.disk) {
            (None, None) => Arc::default(),
            (None, Some(_)) => {
                let what = "names no directory for content that does not fit into memory: add directory = \"/var/tmp\", or remove disk";
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
                let files = SpoolDisk::of(&path);
                if let Err(error) = files.probe() {
                    let what = format_args!("no file can be made in {}: {error}", path.display());
                    problems.add(&directory.span, &format!("{key}.directory"), what);
                    return None;
                }
                files
            }
        };
        Some(Arc::new(Spooling {
            memory: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            waiting: Arc::clone(waiting),
            disk: self.disk.map_or(0, |disk| disk.0),
            files,
            used: AtomicU64::new(0),
        }))
    }
}

/// Directory of contents for scripts, unless the rule names another.
pub(crate) const DIRECTORY_FOR_SCRIPTS: &str = "/var/tmp";

/// Bytes in that directory, of all contents of a rule.
const DISK_FOR_SCRIPTS: u64 = 1 << 30;

impl Spooling {
    /// For contents of scripts without a setting in the rule: in memory, then in [`DIRECTORY_FOR_SCRIPTS`] if a file can be made there.
    pub(crate) fn for_scripts(waiting: &Arc<Waiting>) -> Arc<Self> {
        let files = SpoolDisk::of(Path::new(DIRECTORY_FOR_SCRIPTS));
        let disk = if files.probe().is_ok() { DISK_FOR_SCRIPTS } else { 0 };
        let (memory, waiting) = (usize::try_from(memory().0).unwrap_or(usize::MAX), Arc::clone(waiting));
        Arc::new(Spooling { memory, waiting, disk, files, used: AtomicU64::new(0) })
    }

    /// Only in memory.
    #[cfg(test)]
    pub(crate) fn in_memory(memory: usize, waiting: &Arc<Waiting>) -> Arc<Self> {
        let waiting = Arc::clone(waiting);
        Arc::new(Spooling { memory, waiting, disk: 0, files: Arc::default(), used: AtomicU64::new(0) })
    }

    fn reserve(&self, octets: u64) -> bool {
        let before = self.used.fetch_add(octets, Ordering::Relaxed);
        let has_room = before.saturating_add(octets) <= self.disk;
        if !has_room {
            self.used.fetch_sub(octets, Ordering::Relaxed);
        }
        has_room
    }
}

/// A share of the bound of a rule's files, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    octets: AtomicU64,
    spooling: Arc<Spooling>,
}

impl Share {
    fn of(spooling: &Arc<Spooling>, octets: u64) -> Option<Self> {
        spooling.reserve(octets).then(|| Share { octets: octets.into(), spooling: Arc::clone(spooling) })
    }

    fn add(&self, mut other: Share) {
        self.octets.fetch_add(std::mem::take(other.octets.get_mut()), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.spooling.used.fetch_sub(*self.octets.get_mut(), Ordering::Relaxed);
    }
}

/// A file, and its share of the bound: both end when the last sender leaves the file.
#[derive(Debug)]
pub(super) struct SpoolFile {
    pub(super) on_disk: DiskFile,
    share: Share,
}

/// The file that is being written to.
#[derive(Debug)]
struct Spool {
    file: Arc<SpoolFile>,
    written: u64,
}

/// The content that waits, in order.
#[derive(Debug)]
pub(super) struct Queue {
    spooling: Arc<Spooling>,
    parts: VecDeque<Part>,
    memory: Reservation,
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
    File { file: Arc<SpoolFile>, range: Range<u64> },
}

/// The next part of the content.
pub(super) enum Taken {
    Memory(Bytes),
    File { file: Arc<SpoolFile>, range: Range<u64> },
}

/// Where a content goes.
pub(super) enum Place {
    Memory,
    File(Slot),
    /// There is no room, until something was taken.
    Nowhere,
}

/// A place in a file.
pub(super) struct Slot {
    /// `None`: a new one.
    file: Option<Arc<SpoolFile>>,
    at: u64,
    share: Share,
}

/// A content in a file.
pub(super) struct Written {
    pub(super) file: Arc<SpoolFile>,
    range: Range<u64>,
}

/// The treatment of content that has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The end of the content is passed on as it comes, behind the waiting part.
    Passed,
    /// The request is refused.
    Refused,
}

impl Queue {
    pub(super) fn new(spooling: &Arc<Spooling>, client: Option<IpAddr>) -> Self {
        Queue {
            spooling: Arc::clone(spooling),
            parts: VecDeque::new(),
            memory: spooling.waiting.reservation(client),
            in_file: 0,
            spool: None,
            is_writing: false,
            has_failed: false,
        }
    }

    /// Whether so many bytes more fit into memory.
    fn has_memory(&self, octets: usize) -> bool {
        self.memory.bytes() + octets <= self.spooling.memory && self.spooling.waiting.room(&self.memory, octets).is_ok()
    }

    /// Whether it is the client's other contents that leave no memory for so many bytes more.
    pub(super) fn is_clients_share_taken(&self, octets: usize) -> bool {
        self.spooling.waiting.room(&self.memory, octets) == Err(NoRoom::Client)
    }

    /// The place for so many bytes. An empty queue takes any number, so that each content goes on, unless it is refused.
    pub(super) fn place(&mut self, octets: usize, rest: Rest) -> Place {
        if self.has_memory(octets) || (self.parts.is_empty() && rest == Rest::Passed) {
            return Place::Memory;
        }
        let share = if self.has_failed { None } else { Share::of(&self.spooling, octets as u64) };
        let Some(share) = share else { return Place::Nowhere };
        self.is_writing = true;
        Place::File(match &self.spool {
            Some(spool) => Slot { file: Some(Arc::clone(&spool.file)), at: spool.written, share },
            None => Slot { file: None, at: 0, share },
        })
    }

    pub(super) fn push(&mut self, content: Bytes) {
        self.memory.add(content.len());
        match self.parts.back_mut() {
            Some(Part::Memory(pieces)) => pieces.push(content),
            _ => {
                let mut pieces = Pieces::default();
                pieces.push(content);
                self.parts.push_back(Part::Memory(pieces));
            }
        }
    }

    /// Takes note of content that was written to the file.
    pub(super) fn wrote(&mut self, written: Written) {
        let Written { file, range } = written;
        self.in_file += 1;
        self.is_writing = false;
        self.spool = Some(Spool { file: Arc::clone(&file), written: range.end });
        self.parts.push_back(Part::File { file, range });
    }

    /// Takes note that nothing could be written to the file: no more is.
    pub(super) fn failed(&mut self, error: &DiskError) {
        self.is_writing = false;
        if let DiskError::Failed(error) = error {
            self.spooling.files.warn(error);
        }
        self.has_failed = true;
    }

    /// Whether a part is in the file.
    pub(super) fn needs_file(&self) -> bool {
        self.in_file > 0
    }

    pub(super) fn pop(&mut self) -> Option<Taken> {
        if let Part::Memory(pieces) = self.parts.front_mut()? {
            let content = pieces.pop()?;
            self.memory.remove(content.len());
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

impl Spooling {
    /// Writes to a file. The share of a write that fails, or is waited for no more, is given back when the disk is done with it.
    pub(super) async fn write(&self, slot: Slot, content: Bytes) -> Result<Written, DiskError> {
        let files = Arc::clone(&self.files);
        let write = move || {
            let Slot { file, at, share } = slot;
            let range = at..at + content.len() as u64;
            let file = match file {
                Some(file) => {
                    file.on_disk.file.write_all_at(&content, at)?;
                    file.share.add(share);
                    file
                }
                None => {
                    let on_disk = files.create()?;
                    on_disk.file.write_all_at(&content, at)?;
                    Arc::new(SpoolFile { on_disk, share })
                }
            };
            Ok(Written { file, range })
        };
        self.files.run(write).await
    }

    /// Reads a part of a file.
    pub(super) async fn read(&self, file: &Arc<SpoolFile>, range: Range<u64>) -> Result<Vec<u8>, DiskError> {
        let file = Arc::clone(file);
        let read = move || {
            let mut octets = vec![0; (range.end - range.start) as usize];
            file.on_disk.file.read_exact_at(&mut octets, range.start).map(|()| octets)
        };
        self.files.run(read).await
    }
}

/// The body of a response that is read at the server's speed.
pub(crate) struct Buffered {
    shared: Arc<Mutex<Shared>>,
    _reading: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    /// How the response ended.
    end: Option<io::Result<()>>,
    trailers: Option<Box<ExtraFields>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Buffered {
    /// `client`: see [`Waiting::reservation`].
    pub(crate) fn new(source: Pin<Box<dyn Source>>, spooling: &Arc<Spooling>, client: Option<IpAddr>) -> Self {
        let queue = Queue::new(spooling, client);
        let shared = Shared { queue, end: None, trailers: None, reader: None, writer: None };
        let shared = Arc::new(Mutex::new(shared));
        let reading = tokio::spawn(read(source, Arc::clone(&shared), Arc::clone(spooling)));
        Buffered { shared, _reading: AbortOnDropHandle::new(reading) }
    }
}

/// Reads a response, as far as there is room.
async fn read(mut source: Pin<Box<dyn Source>>, shared: Arc<Mutex<Shared>>, spooling: Arc<Spooling>) {
    let end = loop {
        let content = match poll_fn(|cx| source.as_mut().poll_piece(cx)).await {
            None => break Ok(()),
            Some(Err(error)) => break Err(error),
            Some(Ok(Piece::Bytes(content))) => content,
            Some(Ok(Piece::File { .. })) => break Err(io::Error::other("the response of a server is not a file")),
        };
        if content.is_empty() {
            continue;
        }
        loop {
            let place = poll_fn(|cx| {
                let mut shared = shared.lock();
                match shared.queue.place(content.len(), Rest::Passed) {
                    Place::Nowhere => {
                        shared.writer = Some(cx.waker().clone());
                        Poll::Pending
                    }
                    place => Poll::Ready(place),
                }
            });
            let slot = match place.await {
                Place::File(slot) => slot,
                Place::Memory | Place::Nowhere => {
                    let mut shared = shared.lock();
                    shared.queue.push(content);
                    shared.wake_reader();
                    break;
                }
            };
            let written = spooling.write(slot, content.clone()).await;
            let mut shared = shared.lock();
            match written {
                Ok(written) => {
                    shared.queue.wrote(written);
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
    let mut shared = shared.lock();
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
        let mut shared = self.shared.lock();
        if let Some(taken) = shared.queue.pop() {
            if let Some(writer) = shared.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(match taken {
                Taken::Memory(content) => Piece::Bytes(content),
                Taken::File { file, range } => {
                    let content = Content::File(Arc::clone(&file.on_disk.file));
                    Piece::File { file: SiteFile::of_content_until_closed(content, range.end, file), range }
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
        self.shared.lock().trailers.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_until_nobody_sends_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = BufferConfig {
            memory: Size(0),
            disk: Some(Size(100)),
            directory: Some(directory.path().to_owned().into()),
        };
        let spooling = config.build(&Arc::default(), "buffer", &mut Problems::of_arguments()).unwrap();
        let used = || spooling.used.load(Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut queue = Queue::new(&spooling, None);
        let put = |queue: &mut Queue| {
            let Place::File(slot) = queue.place(30, Rest::Refused) else { panic!("there is room") };
            queue.wrote(runtime.block_on(spooling.write(slot, Bytes::from_static(&[7; 30]))).unwrap());
        };
        put(&mut queue);
        put(&mut queue);
        assert_eq!(used(), 60);
        let taken = [queue.pop().unwrap(), queue.pop().unwrap()];
        assert_eq!(used(), 60, "it is being sent");
        // The next content begins another file.
        put(&mut queue);
        assert_eq!(used(), 90);
        assert!(matches!(queue.place(30, Rest::Refused), Place::Nowhere));
        drop(taken);
        assert_eq!(used(), 30);
        drop(queue);
        assert_eq!(used(), 0);
    }
}
