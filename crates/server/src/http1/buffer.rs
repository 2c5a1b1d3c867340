//! Per-thread pool of head buffers: a steady state allocates none, and an idle connection holds none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A pooled buffer for the head of a request or a response.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty buffer, from the pool if it has one.
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

/// Buffers kept per thread. Each exchange uses two, and a worker under ordinary load has about four exchanges in progress;
/// this is twice that.
const MOST_KEPT: usize = 16;

/// Capacity above which a buffer is freed: more than a usual head with long cookies.
const LONGEST_KEPT: usize = 8 << 10;
