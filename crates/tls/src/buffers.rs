//! Buffers shared by the connections of a thread, so that an idle connection holds none.

use std::cell::RefCell;

use crate::record::{MAX_CIPHERTEXT_TLS12, MAX_PLAINTEXT};

/// Records sealed into one buffer and sent by one call.
///
/// INHERITED from a bare probe (file read into record slots, sealed in place by aws-lc-rs, 1 MB
/// bodies, 2 cores of an AMD EPYC Zen 4, loopback): 1 record a send cost 0.64 s/GB, 2 0.48, 4 0.51, 16 0.39,
/// 32 0.37. Sixteen keep a stalled connection at a quarter of a mebibyte.
pub(crate) const RECORDS_PER_SEND: usize = 16;

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
    static SEND: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static PLAINTEXT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static RECEIVE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A send buffer; it goes back to its thread when dropped.
pub(crate) struct SendBuffer(Box<[u8]>);

impl SendBuffer {
    pub(crate) fn take() -> Self {
        let kept = SEND.with_borrow_mut(Vec::pop);
        Self(kept.unwrap_or_else(|| vec![0; SEND_LEN].into_boxed_slice()))
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        // A thread that is ending has no store left; the buffer is then simply freed.
        let _ = SEND.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

impl std::ops::Deref for SendBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
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
