//! Buffers for heads, kept by each thread, so that a steady state allocates none and an idle connection holds none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A buffer for the head of a request or a response.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty one.
    pub(super) fn take() -> Self {
        Buffer(FREE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if bytes.capacity() > LONGEST_KEPT {
            return;
        }
        bytes.clear();
        FREE.with_borrow_mut(|free| {
            if free.len() < MOST_KEPT {
                free.push(bytes);
            }
        });
    }
}

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Twice as many exchanges as one worker has under way in a moment of ordinary load: each has two buffers.
const MOST_KEPT: usize = 16;

/// Above the usual head with long cookies; a longer buffer goes back to the allocator.
const LONGEST_KEPT: usize = 8 << 10;
