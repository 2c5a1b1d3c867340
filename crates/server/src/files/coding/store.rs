//! Files compressed on request, shared by all workers and bounded in bytes.
//!
//! The key of an entry is the state of the file, not its entity tag, which two files may share. A changed file is a new
//! entry, and the old entry is evicted in time. Concurrent requests share one compression, and waiting costs no thread.
//! Few compressions run at a time, so that workers keep their processors. If all permits are taken, a request gets the
//! original at once, and its file is compressed in the background for later requests.
//!
//! The entity tag of a compressed file is a digest of its bytes. It is strong without relying on deterministic encoders: if two
//! processes, or two versions of the server, produce different bytes from one file, their tags differ.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use lru::LruCache;
use sealion_http::Coding;
use sealion_http::content_type::ContentType;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::encoder::{Effort, encode};
use crate::files::resolve::{SiteFile, State};
use crate::values::Mutex;

/// The state of the compressed variant of a file.
#[derive(Debug, Clone)]
pub(crate) enum Made {
    /// Not requested yet.
    NotYet,
    /// Not smaller than the original, or not configured.
    Never,
    /// Compressed, in memory.
    Here(Arc<SiteFile>),
}

impl Made {
    /// The variant if it exists, otherwise `original`.
    pub(crate) fn or(self, original: Arc<SiteFile>) -> Arc<SiteFile> {
        match self {
            Made::Here(file) => file,
            Made::NotYet | Made::Never => original,
        }
    }
}

/// The compressed files of a site.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Mutex<Slots>,
    limit: u64,
    permits: Arc<Semaphore>,
    /// A permit for each compression in the background queue.
    queue: Arc<Semaphore>,
}

#[derive(Debug)]
struct Slots {
    by_use: LruCache<Key, Slot>,
    bytes: u64,
}

/// The content type is part of the key, because a file can have several names with different extensions.
type Key = (State, ContentType, Coding);

#[derive(Debug)]
struct Slot {
    making: Arc<Making>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Making {
    made: OnceCell<Made>,
    /// The compression waits in the background.
    is_queued: AtomicBool,
}

/// The reason why there is no result.
enum Unmade {
    /// All permits are taken.
    Busy,
    Failed(io::Error),
}

impl Store {
    /// A store of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self::with_permits(limit, Arc::clone(&PERMITS), Arc::clone(&QUEUE))
    }

    fn with_permits(limit: u64, permits: Arc<Semaphore>, queue: Arc<Semaphore>) -> Self {
        let slots = Mutex::new(Slots { by_use: LruCache::unbounded(), bytes: 0 });
        Store { slots, limit, permits, queue }
    }

    /// The result for `original`, if known. Does not wait.
    pub(crate) fn get(&self, original: &SiteFile, coding: Coding) -> Option<Made> {
        self.slots.lock().by_use.get(&key(original, coding))?.making.made.get().cloned()
    }

    /// Compresses `original`, or waits for its compression in progress. [`Made::NotYet`]: all permits are taken; this
    /// file is compressed in the background, if the queue has room.
    ///
    /// # Errors
    /// The file could not be read, or changed in the meantime. Nothing is stored.
    pub(crate) async fn make(self: &Arc<Self>, original: &Arc<SiteFile>, coding: Coding) -> io::Result<Made> {
        let key = key(original, coding);
        let making = self.making(key.clone());
        let permit = || std::future::ready(Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Unmade::Busy));
        match self.make_with(permit, &key, &making, original, coding).await {
            Err(Unmade::Busy) => {
                self.make_behind(key, making, original, coding);
                Ok(Made::NotYet)
            }
            Err(Unmade::Failed(error)) => Err(error),
            Ok(made) => Ok(made),
        }
    }

    /// Waits for a permit in a separate task, then compresses.
    fn make_behind(self: &Arc<Self>, key: Key, making: Arc<Making>, original: &Arc<SiteFile>, coding: Coding) {
        if making.is_queued.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(place) = Arc::clone(&self.queue).try_acquire_owned() else {
            making.is_queued.store(false, Ordering::Relaxed);
            return;
        };
        let (store, original) = (Arc::clone(self), Arc::clone(original));
        tokio::spawn(async move {
            let permit = Arc::clone(&store.permits).acquire_owned().await;
            drop(place);
            let permit = || std::future::ready(permit.map_err(|error| Unmade::Failed(io::Error::other(error))));
            // An error is reported to the next request, which tries again.
            let _ = store.make_with(permit, &key, &making, &original, coding).await;
            making.is_queued.store(false, Ordering::Relaxed);
        });
    }

    async fn make_with<P: Future<Output = Result<OwnedSemaphorePermit, Unmade>>>(
        &self,
        permit: impl FnOnce() -> P,
        key: &Key,
        making: &Arc<Making>,
        original: &Arc<SiteFile>,
        coding: Coding,
    ) -> Result<Made, Unmade> {
        let compressed = || async {
            let permit = permit().await?;
            let original = Arc::clone(original);
            // The permit moves to the thread, which finishes even if all requests are gone.
            let done = spawn_blocking(move || (compress(&original, coding), permit).0).await;
            done.map_err(io::Error::other).and_then(|made| made).map_err(Unmade::Failed)
        };
        let made = making.made.get_or_try_init(compressed).await?;
        self.account(key, making, made);
        Ok(made.clone())
    }

    fn making(&self, key: Key) -> Arc<Making> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.by_use.get(&key) {
            return Arc::clone(&slot.making);
        }
        let making = Arc::<Making>::default();
        slots.bytes += SLOT;
        slots.by_use.push(key, Slot { making: Arc::clone(&making), bytes: SLOT });
        slots.shrink_to(self.limit);
        making
    }

    /// Counts the bytes of a result, unless they were counted before or the slot was evicted.
    fn account(&self, key: &Key, making: &Arc<Making>, result: &Made) {
        let Made::Here(file) = result else { return };
        let mut slots = self.slots.lock();
        let bytes = match slots.by_use.peek_mut(key) {
            Some(slot) if slot.bytes == SLOT && Arc::ptr_eq(&slot.making, making) => {
                slot.bytes += file.len;
                file.len
            }
            _ => return,
        };
        slots.bytes += bytes;
        slots.shrink_to(self.limit);
    }
}

impl Slots {
    fn shrink_to(&mut self, limit: u64) {
        while self.bytes > limit {
            match self.by_use.pop_lru() {
                Some((_, slot)) => self.bytes -= slot.bytes,
                None => return,
            }
        }
    }
}

fn key(original: &SiteFile, coding: Coding) -> Key {
    (*original.state(), original.content_type.clone(), coding)
}

fn compress(original: &SiteFile, coding: Coding) -> io::Result<Made> {
    let bytes = original.read_as_it_was()?;
    let encoded = encode(coding, Effort::Now, &bytes)?;
    Ok(encoded.map_or(Made::Never, |encoded| Made::Here(original.encoded(encoded, coding))))
}

/// Permits to compress, for all sites together: half of the processors, so that the workers keep the other half.
static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Concurrent tests must not wait for each other.
    Arc::new(Semaphore::new(if cfg!(test) { 1000 } else { processors.div_ceil(2) }))
});

/// The number of compressions that may wait in the background, for all sites together: the files of a few pages. Each
/// of them keeps its original open.
static QUEUE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(64)));

/// The approximate size of a slot in bytes.
const SLOT: u64 = 256;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::coding::encoder::tests::decode;
    use crate::files::resolve::{Found, Root, Wait};

    fn file(root: &Root, name: &str, keep: u64) -> Arc<SiteFile> {
        match root.resolve(name.as_bytes(), keep, Wait::Yes) {
            Ok(Found::File(file)) => file,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn here(made: Made) -> Arc<SiteFile> {
        match made {
            Made::Here(file) => file,
            other => panic!("{other:?}"),
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn concurrent_requests_share_one_compression() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let text = "a text of which there is a lot. ".repeat(20_000);
        fs::write(directory.path().join("a.txt"), &text).unwrap();
        for keep in [0, u64::MAX] {
            let original = file(&root, "a.txt", keep);
            let store = Arc::new(Store::new(1 << 20));
            let files = runtime().block_on(async {
                let all = (0..50).map(|_| store.make(&original, Coding::Brotli));
                let mut files = Vec::new();
                for made in all.map(Box::pin).collect::<Vec<_>>() {
                    files.push(here(made.await.unwrap()));
                }
                files
            });
            assert!(files.iter().all(|file| Arc::ptr_eq(file, &files[0])));
            assert!(decode(Coding::Brotli, &files[0].read(0..files[0].len)) == text.as_bytes());
            assert_eq!((files[0].coding, &files[0].content_type), (Some(Coding::Brotli), &original.content_type));
            assert_ne!(files[0].etag, original.etag);
            assert_eq!(store.slots.lock().bytes, SLOT + files[0].len, "counted once");
            assert!(Arc::ptr_eq(&here(store.get(&original, Coding::Brotli).unwrap()), &files[0]));
            assert!(store.get(&original, Coding::Gzip).is_none());
        }
    }

    #[test]
    fn files_that_share_an_entity_tag_do_not_share_a_result() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let store = Arc::new(Store::new(1 << 20));
        let mut tags = Vec::new();
        for (name, letter) in [("a.txt", "a"), ("b.txt", "b")] {
            fs::write(directory.path().join(name), letter.repeat(1000)).unwrap();
            let written = fs::File::options().write(true).open(directory.path().join(name)).unwrap();
            written.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777)).unwrap();
            let original = file(&root, name, u64::MAX);
            tags.push(original.etag);
            let made = here(runtime().block_on(store.make(&original, Coding::Gzip)).unwrap());
            assert_eq!(decode(Coding::Gzip, &made.read(0..made.len)), letter.repeat(1000).as_bytes(), "{name}");
        }
        assert_eq!(tags[0], tags[1]);
    }

    /// A compression started by one worker's runtime is awaited by others.
    #[test]
    fn runtimes_share_one_compression() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let words: String = (0..100_000).map(|n| format!("{} ", n * 7919 % 100_003)).collect();
        fs::write(directory.path().join("a.txt"), &words).unwrap();
        let original = file(&root, "a.txt", 0);
        let store = Arc::new(Store::new(1 << 20));
        let files: Vec<_> = std::thread::scope(|scope| {
            let ask = || here(runtime().block_on(store.make(&original, Coding::Zstd)).unwrap());
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(files.iter().all(|file| Arc::ptr_eq(file, &files[0])));
    }

    #[test]
    fn the_store_is_bounded_and_evicts_the_least_recently_used() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut originals = Vec::new();
        for n in 0..20 {
            let name = format!("{n}.txt");
            let text: String = (0..500).map(|line| format!("{} ", (line * 7919 + n) % 503)).collect();
            fs::write(directory.path().join(&name), text).unwrap();
            originals.push(file(&root, &name, u64::MAX));
        }
        let store = Arc::new(Store::new(5000));
        runtime().block_on(async {
            for original in &originals {
                store.make(original, Coding::Gzip).await.unwrap();
                store.make(&originals[0], Coding::Gzip).await.unwrap();
                let slots = store.slots.lock();
                assert!(slots.bytes <= 5000);
                assert_eq!(slots.bytes, slots.by_use.iter().map(|(_, slot)| slot.bytes).sum::<u64>());
            }
        });
        assert!(store.get(&originals[0], Coding::Gzip).is_some(), "most recently used");
        assert!(store.get(&originals[19], Coding::Gzip).is_some());
        assert!(store.get(&originals[1], Coding::Gzip).is_none());
    }

    #[test]
    fn a_request_does_not_wait_for_the_compression_of_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut originals = Vec::new();
        for n in 0..4 {
            let name = format!("{n}.txt");
            fs::write(directory.path().join(&name), format!("{n} is a text. ").repeat(500)).unwrap();
            originals.push(file(&root, &name, u64::MAX));
        }
        let (permits, queue) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(2)));
        let store = Arc::new(Store::with_permits(1 << 20, Arc::clone(&permits), Arc::clone(&queue)));
        runtime().block_on(async {
            let other = Arc::clone(&permits).acquire_owned().await.unwrap();
            for original in originals.iter().chain(&originals) {
                assert!(matches!(store.make(original, Coding::Gzip).await, Ok(Made::NotYet)));
                assert!(store.get(original, Coding::Gzip).is_none());
            }
            assert_eq!(queue.available_permits(), 0, "two wait, each once");
            drop(other);
            for original in &originals[..2] {
                while store.get(original, Coding::Gzip).is_none() {
                    tokio::task::yield_now().await;
                }
                assert!(matches!(store.make(original, Coding::Gzip).await, Ok(Made::Here(_))));
            }
            assert_eq!(queue.available_permits(), 2);
            while permits.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
            assert!(store.get(&originals[3], Coding::Gzip).is_none(), "the queue had no room for it");
            assert!(matches!(store.make(&originals[3], Coding::Gzip).await, Ok(Made::Here(_))));
        });
    }

    #[test]
    fn noise_is_left_alone_and_a_changed_file_is_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut noise = vec![0; 5000];
        aws_lc_rs::rand::fill(&mut noise).unwrap();
        fs::write(directory.path().join("noise.txt"), noise).unwrap();
        fs::write(directory.path().join("b.txt"), "b".repeat(5000)).unwrap();
        let (noise, changed) = (file(&root, "noise.txt", 0), file(&root, "b.txt", 0));
        fs::write(directory.path().join("b.txt"), "c".repeat(5001)).unwrap();
        let store = Arc::new(Store::new(1 << 20));
        runtime().block_on(async {
            assert!(matches!(store.make(&noise, Coding::Gzip).await, Ok(Made::Never)));
            assert!(matches!(store.get(&noise, Coding::Gzip), Some(Made::Never)));
            assert!(store.make(&changed, Coding::Gzip).await.is_err());
            assert!(store.get(&changed, Coding::Gzip).is_none());
        });
    }
}
