//! Buffers shared by the connections of a thread, so that an idle connection holds none.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::record::{MAX_CIPHERTEXT_TLS12, MAX_PLAINTEXT};

/// Records sealed into one buffer and sent by one call.
///
/// MEASURED: how many? 1 MiB bodies, 64 connections of `sealion-lab load --read drain`, server CPU a response, medians of
/// five interleaved runs on an AMD EPYC (Zen 4), Linux 6.18, 2026-11-21: 417 µs with 16, 326 µs with 33. 33 and not 32,
/// because a head makes 65 records of 1 MiB. Void where a core's own cache is below a mebibyte.
pub(crate) const RECORDS_PER_SEND: usize = 33;

/// Records of a connection's next send after TCP did not take all of one: fewer, down to this. GUESS: 64 KiB keep a slow
/// reader's TCP busy.
pub(crate) const FEWEST_RECORDS_PER_SEND: usize = 4;

/// Bytes of a send buffer: full records with the most a version adds (TLS 1.2 GCM: 29 bytes).
const SEND_LEN: usize = RECORDS_PER_SEND * (MAX_PLAINTEXT + 29);

/// Bytes of the receive buffer: one record of the longest kind, twice over, so that a read seldom
/// ends inside the only record it brought.
const RECEIVE_LEN: usize = 2 * (MAX_CIPHERTEXT_TLS12 + 5);

/// Send buffers kept for reuse by a thread. GUESS: as many as connections of one worker are blocked
/// in a moment of ordinary load.
const KEPT: usize = 8;

/// The longest vector for received data that is kept. GUESS: a browser's request head is 500 to 900 bytes.
const KEPT_PLAINTEXT: usize = 4096;

thread_local! {
    /// Buffers of full length that were taken here and are in use, wherever that is now.
    static OUT: Arc<AtomicUsize> = Arc::default();
    static SEND: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static PLAINTEXT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static RECEIVE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A send buffer; it goes back to a thread's store when dropped.
pub(crate) struct SendBuffer {
    bytes: Box<[u8]>,
    /// Counts this buffer for the thread that took it; `None` for one that was cut to length.
    out: Option<Arc<AtomicUsize>>,
}

impl SendBuffer {
    pub(crate) fn take() -> Self {
        let kept = SEND.with_borrow_mut(Vec::pop);
        let bytes = kept.unwrap_or_else(|| vec![0; SEND_LEN].into_boxed_slice());
        let out = OUT.with(Arc::clone);
        out.fetch_add(1, Ordering::Relaxed);
        Self { bytes, out: Some(out) }
    }

    /// Keeps what is in `range`, in a buffer of just that length if so many connections wait for TCP that whole ones would
    /// add up: thousands of slow readers are not to cost half a mebibyte each.
    pub(crate) fn keep_only(&mut self, range: &mut Range<usize>) {
        if self.out.as_ref().is_some_and(|out| out.load(Ordering::Relaxed) > KEPT) {
            *self = Self { bytes: self.bytes[range.clone()].into(), out: None };
            *range = 0..range.len();
        }
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        let Some(out) = &self.out else { return };
        out.fetch_sub(1, Ordering::Relaxed);
        let bytes = std::mem::take(&mut self.bytes);
        // A thread that is ending has no store left; the buffer is then simply freed.
        let _ = SEND.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(bytes);
            }
        });
    }
}

impl std::ops::Deref for SendBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A vector for what a connection has received and not read, from the thread's store.
pub(crate) fn take_plaintext() -> Vec<u8> {
    PLAINTEXT.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Takes a vector back that is no longer needed.
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

/// Lends the thread's receive buffer. `use_buffer` must not call this again.
pub(crate) fn with_receive_buffer<T>(use_buffer: impl FnOnce(&mut [u8]) -> T) -> T {
    RECEIVE.with_borrow_mut(|buffer| {
        buffer.resize(RECEIVE_LEN, 0);
        use_buffer(buffer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_wait_are_cut_to_length_when_there_are_many() {
        let mut buffers: Vec<SendBuffer> = (0..KEPT).map(|_| SendBuffer::take()).collect();
        let mut range = 10..15;
        buffers[0].keep_only(&mut range);
        assert_eq!((buffers[0].len(), range.clone()), (SEND_LEN, 10..15), "few wait");

        buffers.push(SendBuffer::take());
        buffers[0][10..15].copy_from_slice(b"abcde");
        buffers[0].keep_only(&mut range);
        assert_eq!((&buffers[0][..], range.clone()), (&b"abcde"[..], 0..5));
        buffers[0].keep_only(&mut range);
        assert_eq!((OUT.with(|out| out.load(Ordering::Relaxed)), range), (KEPT, 0..5), "once");

        drop(buffers);
        assert_eq!((OUT.with(|out| out.load(Ordering::Relaxed)), SEND.with_borrow(Vec::len)), (0, KEPT));
        assert_eq!(SendBuffer::take().len(), SEND_LEN);
    }
}
