//! Buffers shared by the connections of a thread, so that an idle connection holds none.
//!
//! Sealed bytes stay in user memory until TCP takes them, so a peer that stops reading pins a buffer. It pins only a
//! small one, [`SMALL_LEN`]: larger batches are sealed only if TCP has room ([`crate::TlsStream`]'s `batch`), and the
//! rest of a large buffer moves to a small one.
//!
//! Buffers are mapped from the system, not allocated: unmapping returns the memory at once, but the allocator would
//! keep it.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

use crate::record::{MAX_CIPHERTEXT_TLS12, MAX_PLAINTEXT};

/// The maximum length of a full record in bytes; TLS 1.2 GCM adds the most, 29 bytes.
pub(crate) const FULL_RECORD: usize = MAX_PLAINTEXT + 29;

/// Records sealed into one buffer and sent by one call.
///
/// MEASURED: how many? 1 MiB bodies, 64 connections of `sealion-lab load --read drain`, server CPU a response, medians of
/// five interleaved runs on an AMD EPYC (Zen 4), Linux 6.18, 2026-11-21: 417 µs with 16, 326 µs with 33. 33 and not 32,
/// because a head makes 65 records of 1 MiB. Void where a core's own cache is below a mebibyte.
pub(crate) const RECORDS_PER_SEND: usize = 33;

/// Records of a batch that is sealed without asking TCP for its room: 13 pages, the most that a peer pins by not
/// reading. Four records would need 17 pages.
pub(crate) const RECORDS_UNASKED: usize = 3;

/// Bytes of a large send buffer. If the first record is short, the same payload may need one more record.
const LARGE_LEN: usize = RECORDS_PER_SEND * FULL_RECORD + (FULL_RECORD - MAX_PLAINTEXT);

/// Bytes of a small send buffer, as above.
pub(crate) const SMALL_LEN: usize = RECORDS_UNASKED * FULL_RECORD + (FULL_RECORD - MAX_PLAINTEXT);

/// Bytes of the receive buffer: two records of the maximum length, so that few reads end inside their only record.
const RECEIVE_LEN: usize = 2 * (MAX_CIPHERTEXT_TLS12 + 5);

/// Free large buffers kept per thread. One is enough: no connection holds one while it waits.
const LARGE_KEPT: usize = 1;

/// Free small buffers, and free vectors for received data, kept per thread: 0.6 MB at most.
const KEPT: usize = 8;

/// Capacity above which a vector for received data is freed, not stored. Request heads are usually below 1 KiB.
const KEPT_PLAINTEXT: usize = 4096;

thread_local! {
    /// Small buffers of this thread in use, including those that have moved to another thread.
    static OUT: Arc<AtomicUsize> = Arc::default();
    static SMALL: RefCell<Vec<Pages>> = const { RefCell::new(Vec::new()) };
    static LARGE: RefCell<Vec<Pages>> = const { RefCell::new(Vec::new()) };
    static PLAINTEXT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static RECEIVE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Anonymous pages that hold records.
enum Pages {
    Mapped(MmapMut),
    /// Fallback when the process has reached its limit of mappings (`vm.max_map_count`).
    Allocated(Box<[u8]>),
}

impl Pages {
    fn new(len: usize) -> Self {
        MmapMut::map_anon(len).map_or_else(|_| Self::Allocated(vec![0; len].into()), Self::Mapped)
    }
}

/// A send buffer. On drop it returns to its thread's store.
pub(crate) struct SendBuffer {
    pages: Option<Pages>,
    size: Size,
}

enum Size {
    /// Holds the counter of the thread that took the buffer.
    Small(Arc<AtomicUsize>),
    Large,
    /// A buffer longer than a small one; on drop it is freed, not stored.
    Odd,
}

impl SendBuffer {
    /// A buffer for up to `len` bytes, at most [`RECORDS_PER_SEND`] records and a short one.
    pub(crate) fn take(len: usize) -> Self {
        if len <= SMALL_LEN {
            return Self::small();
        }
        let pages = LARGE.with_borrow_mut(Vec::pop).unwrap_or_else(|| Pages::new(LARGE_LEN));
        Self { pages: Some(pages), size: Size::Large }
    }

    /// A buffer of [`SMALL_LEN`].
    pub(crate) fn small() -> Self {
        let pages = SMALL.with_borrow_mut(Vec::pop).unwrap_or_else(|| Pages::new(SMALL_LEN));
        let out = OUT.with(Arc::clone);
        out.fetch_add(1, Ordering::Relaxed);
        Self { pages: Some(pages), size: Size::Small(out) }
    }

    /// A buffer of at least `len` bytes, however many these are, that may be kept while TCP takes nothing.
    pub(crate) fn of_length(len: usize) -> Self {
        match len {
            0..=SMALL_LEN => Self::small(),
            // The kernel took less than it had room for, because it is short of memory for sockets.
            _ => Self { pages: Some(Pages::new(len)), size: Size::Odd },
        }
    }

    /// Moves the bytes in `range` from a large buffer to a small one. Call this before waiting for TCP.
    pub(crate) fn keep_only(&mut self, range: &mut Range<usize>) {
        if !matches!(self.size, Size::Large) {
            return;
        }
        let mut kept = Self::of_length(range.len());
        kept[..range.len()].copy_from_slice(&self[range.clone()]);
        *range = 0..range.len();
        *self = kept;
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else { return };
        // A thread that is ending no longer has a store, so the buffer is freed.
        let _ = match &self.size {
            Size::Small(out) => {
                // Keeps as many free buffers as are in use, so that a thread with many waiting connections does not map
                // a buffer for each wait.
                let most = (out.fetch_sub(1, Ordering::Relaxed) - 1).max(KEPT);
                SMALL.try_with(|kept| keep(&mut kept.borrow_mut(), pages, most))
            }
            Size::Large => LARGE.try_with(|kept| keep(&mut kept.borrow_mut(), pages, LARGE_KEPT)),
            Size::Odd => Ok(()),
        };
    }
}

fn keep(kept: &mut Vec<Pages>, pages: Pages, most: usize) {
    kept.push(pages);
    kept.truncate(most);
}

impl std::ops::Deref for SendBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.pages {
            Some(Pages::Mapped(pages)) => pages,
            Some(Pages::Allocated(bytes)) => bytes,
            None => &[],
        }
    }
}

impl std::ops::DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.pages {
            Some(Pages::Mapped(pages)) => pages,
            Some(Pages::Allocated(bytes)) => bytes,
            None => &mut [],
        }
    }
}

/// Takes a vector for received data from the thread's store.
pub(crate) fn take_plaintext() -> Vec<u8> {
    PLAINTEXT.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Returns a vector to the thread's store.
pub(crate) fn keep_plaintext(mut plaintext: Vec<u8>) {
    plaintext.clear();
    if plaintext.capacity() > KEPT_PLAINTEXT {
        return;
    }
    PLAINTEXT.with_borrow_mut(|kept| {
        if kept.len() < KEPT {
            kept.push(plaintext);
        }
    });
}

/// Lends out the thread's receive buffer. `use_buffer` must not call this function.
pub(crate) fn with_receive_buffer<T>(use_buffer: impl FnOnce(&mut [u8]) -> T) -> T {
    RECEIVE.with_borrow_mut(|buffer| {
        buffer.resize(RECEIVE_LEN, 0);
        use_buffer(buffer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> (usize, usize) {
        (SMALL.with_borrow(Vec::len), LARGE.with_borrow(Vec::len))
    }

    #[test]
    fn what_waits_moves_to_a_small_buffer() {
        let mut buffer = SendBuffer::take(SMALL_LEN + 1);
        assert_eq!(buffer.len(), LARGE_LEN);
        buffer[10..15].copy_from_slice(b"abcde");
        let mut range = 10..15;
        buffer.keep_only(&mut range);
        assert_eq!((&buffer[range.clone()], range.clone(), buffer.len()), (&b"abcde"[..], 0..5, SMALL_LEN));
        assert_eq!(stored(), (0, 1), "the large one is free again");

        // The buffer is already small: nothing is copied.
        buffer[100..105].copy_from_slice(b"fghij");
        range = 100..105;
        buffer.keep_only(&mut range);
        assert_eq!((&buffer[range.clone()], range), (&b"fghij"[..], 100..105));

        // More bytes are left than the kernel's room promised: they are kept in a buffer of exactly that length.
        let mut buffer = SendBuffer::take(LARGE_LEN);
        let mut range = 1..SMALL_LEN + 2;
        buffer.keep_only(&mut range);
        assert_eq!((buffer.len(), range), (SMALL_LEN + 1, 0..SMALL_LEN + 1));
    }

    #[test]
    fn free_buffers_are_kept_for_as_many_as_wait() {
        let buffers: Vec<_> = (0..100).map(|_| SendBuffer::small()).collect();
        let mut most = 0;
        for buffer in buffers {
            drop(buffer);
            most = most.max(stored().0);
        }
        assert_eq!((most, stored().0), (50, KEPT));
        let large: Vec<_> = (0..3).map(|_| SendBuffer::take(LARGE_LEN)).collect();
        drop(large);
        assert_eq!((stored().1, OUT.with(|out| out.load(Ordering::Relaxed))), (LARGE_KEPT, 0));
    }
}
