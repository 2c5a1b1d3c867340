//! The pages of listings: responses with the same page share it, and the pages that are made and sent at a time are bounded.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::listing_page::{PageKey, ShowDirectory};
use crate::files::resolve::Unresolved;
use crate::response::SharedBytes;
use crate::values::Mutex;

/// The pages of one site that are being sent.
#[derive(Debug)]
pub(super) struct Pages {
    sent: Mutex<HashMap<PageKey, Sent>>,
    bounds: Arc<Bounds>,
}

#[derive(Debug)]
struct Sent {
    page: Weak<SharedBytes>,
    /// When the directory was read.
    read: Instant,
}

/// The bounds of the pages of all sites together.
#[derive(Debug)]
struct Bounds {
    making: Arc<Semaphore>,
    waiting: Semaphore,
    /// A permit for each KiB of a page that is being sent.
    memory: Arc<Semaphore>,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum NoPage {
    /// The directory cannot be read.
    Unresolved(Unresolved),
    /// Too many pages are being made or sent: try again later.
    Busy,
}

impl Default for Pages {
    fn default() -> Self {
        Pages::within(Arc::clone(&BOUNDS))
    }
}

impl Pages {
    fn within(bounds: Arc<Bounds>) -> Self {
        Pages { sent: Mutex::default(), bounds }
    }

    /// The page of a directory. A page that is being sent is shared, if it was read a moment ago or reads the same again.
    pub(super) async fn get(&self, directory: Arc<ShowDirectory>) -> Result<Arc<SharedBytes>, NoPage> {
        let key = directory.key();
        if let Some(page) = self.fresh(&key) {
            return Ok(page);
        }
        let _waits = self.bounds.waiting.try_acquire().map_err(|_| NoPage::Busy)?;
        let turn = Arc::clone(&self.bounds.making).acquire_owned().await.map_err(|_| NoPage::Busy)?;
        // Made while this request waited.
        if let Some(page) = self.fresh(&key) {
            return Ok(page);
        }
        // The turn moves to the thread, which finishes even if the request is gone.
        let made = spawn_blocking(move || (directory.run(), turn).0).await;
        let text = made.unwrap_or_else(|error| Err(Unresolved::panicked(&error))).map_err(NoPage::Unresolved)?;
        self.keep(key, text.into_bytes())
    }

    /// A page that is being sent, read at most [`FRESH`] ago.
    fn fresh(&self, key: &PageKey) -> Option<Arc<SharedBytes>> {
        let sent = self.sent.lock();
        sent.get(key).filter(|sent| sent.read.elapsed() < FRESH)?.page.upgrade()
    }

    fn keep(&self, key: PageKey, bytes: Vec<u8>) -> Result<Arc<SharedBytes>, NoPage> {
        let mut sent = self.sent.lock();
        if let Some(before) = sent.get_mut(&key)
            && let Some(page) = before.page.upgrade()
            && *page.bytes == *bytes
        {
            before.read = Instant::now();
            return Ok(page);
        }
        let size = u32::try_from(bytes.len().div_ceil(1024)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bounds.memory).try_acquire_many_owned(size).map_err(|_| NoPage::Busy)?;
        let page = Arc::new(SharedBytes { bytes: bytes.into_boxed_slice(), _room: room });
        sent.retain(|_, sent| sent.page.strong_count() > 0);
        sent.insert(key, Sent { page: Arc::downgrade(&page), read: Instant::now() });
        Ok(page)
    }
}

/// How long a page that is being sent stands for the state of its directory: as long as a cached file does.
const FRESH: Duration = Duration::from_secs(1);

/// Half of the processors make pages, so that the workers keep the other half. A usual page takes milliseconds, so that the last of 64 waits
/// less than a second. A page of a directory with 100,000 entries takes a tenth of a second. 64 MiB hold more than two hundred pages of 1000 entries.
static BOUNDS: LazyLock<Arc<Bounds>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Bounds {
        making: Arc::new(Semaphore::new(processors.div_ceil(2))),
        waiting: Semaphore::new(64),
        memory: Arc::new(Semaphore::new(64 << 10)),
    })
});

#[cfg(test)]
mod tests {
    use super::super::listing::{Bounds as PageBounds, ReadDirectory};
    use super::super::listing_view::View;
    use super::*;
    use crate::files::resolve::Root;

    fn bounds(waiting: usize, kibibytes: usize) -> Arc<Bounds> {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Arc::new(Bounds { making: semaphore(1), waiting: Semaphore::new(waiting), memory: semaphore(kibibytes) })
    }

    fn show(root: &Arc<Root>, query: &str) -> Arc<ShowDirectory> {
        let (root, name) = (Arc::clone(root), Box::default());
        let bounds = PageBounds { page: 100, entries: 100 };
        let directory = ReadDirectory { root, name, bounds, show_dotfiles: false };
        let view = View::from_query(Some(query));
        Arc::new(ShowDirectory {
            directory,
            asked: Box::default(),
            view,
            archives: false,
            stylesheet: None,
            notes: None,
            json: false,
        })
    }

    #[tokio::test]
    async fn responses_share_a_page_for_as_long_as_it_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "a").unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap());
        let pages = Pages::within(bounds(64, 64));
        let first = pages.get(show(&root, "")).await.unwrap();
        let second = pages.get(show(&root, "")).await.unwrap();
        assert!(Arc::ptr_eq(&first, &second), "read a moment ago");
        assert!(!Arc::ptr_eq(&first, &pages.get(show(&root, "order=desc")).await.unwrap()));
        let make_old = || {
            let ago = Instant::now().checked_sub(FRESH).unwrap();
            pages.sent.lock().values_mut().for_each(|sent| sent.read = ago);
        };
        make_old();
        assert!(Arc::ptr_eq(&first, &pages.get(show(&root, "")).await.unwrap()), "unchanged");
        std::fs::write(directory.path().join("b"), "b").unwrap();
        make_old();
        assert!(!Arc::ptr_eq(&first, &pages.get(show(&root, "")).await.unwrap()), "changed");
        drop((first, second));
        let only = pages.get(show(&root, "sort=size")).await.unwrap();
        assert_eq!(pages.sent.lock().len(), 1, "the others are forgotten");
        drop(only);
        assert_eq!(pages.bounds.memory.available_permits(), 64);
    }

    #[tokio::test]
    async fn routes_that_list_a_directory_differently_share_no_page() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".hidden"), "").unwrap();
        std::fs::write(directory.path().join("a"), "").unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap());
        let pages = Pages::within(bounds(64, 64));
        let with = |page, show_dotfiles| {
            let mut own = Arc::into_inner(show(&root, "")).unwrap();
            (own.directory.bounds.page, own.directory.show_dotfiles) = (page, show_dotfiles);
            pages.get(Arc::new(own))
        };
        let text = |page: &Arc<SharedBytes>| String::from_utf8_lossy(&page.bytes).into_owned();
        let all = with(100, true).await.unwrap();
        let plain = with(100, false).await.unwrap();
        assert!(text(&all).contains(".hidden") && !text(&plain).contains(".hidden"));
        assert!(!Arc::ptr_eq(&all, &with(1, true).await.unwrap()));
    }

    #[tokio::test]
    async fn pages_beyond_the_bounds_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap());
        let length = Pages::within(bounds(1, 64)).get(show(&root, "")).await.unwrap().bytes.len();
        let pages = Pages::within(bounds(1, length.div_ceil(1024)));
        let held = pages.get(show(&root, "")).await.unwrap();
        assert!(matches!(pages.get(show(&root, "order=desc")).await, Err(NoPage::Busy)), "no memory");
        drop(held);
        pages.get(show(&root, "order=desc")).await.unwrap();

        let turn = Arc::clone(&pages.bounds.making).acquire_owned().await.unwrap();
        let mut waits = Box::pin(pages.get(show(&root, "")));
        assert!(futures_poll(&mut waits).is_none(), "it waits for its turn");
        assert!(matches!(pages.get(show(&root, "")).await, Err(NoPage::Busy)), "one too many");
        drop(turn);
        waits.await.unwrap();
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
