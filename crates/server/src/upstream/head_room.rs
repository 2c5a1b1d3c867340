//! Memory for the heads of responses that a client's connection waits for.
//!
//! A client may ask for many responses on one connection of HTTP/2, and read none. Heads that are written wait for it in the memory of the connection,
//! which says when they are too many ([`HeadRoom::set_full`]). Heads that are being read are counted here. No further head is begun when either bound is
//! reached; one that has begun goes on, unless written ones are too many. So a head that is counted here never waits for itself.
//!
//! The task of the connection polls its requests whenever it has sent something, or a request has ended. A request that waits for room need not be woken.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Bytes of heads that are being read for a connection, beyond which no further one is begun.
pub(super) const MAX_BEGUN: usize = 256 << 10;

/// The room of a connection.
#[derive(Debug, Default)]
pub(crate) struct HeadRoom {
    /// Heads that are written, and that the client does not read, are too many.
    is_full: AtomicBool,
    /// Bytes of heads that are being read.
    begun: AtomicUsize,
    /// How often a read was withheld.
    held: AtomicU64,
}

impl HeadRoom {
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether the client does not read the written heads.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Changes when a read of a head is withheld.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn may_begin(&self) -> bool {
        !self.is_full() && self.begun.load(Ordering::Relaxed) < MAX_BEGUN
    }
}

/// A head that is being read, until dropped.
pub(super) struct HeadBytes<'a> {
    /// `None`: it is not bounded.
    room: Option<&'a HeadRoom>,
    /// As it is counted in `room`.
    bytes: usize,
}

impl<'a> HeadBytes<'a> {
    /// A head of which nothing has come.
    pub(super) fn new(room: Option<&'a HeadRoom>) -> Self {
        HeadBytes { room, bytes: 0 }
    }

    /// A head that a library reads by itself, if there is room. `bytes`: its likely size.
    pub(super) fn expected(room: Option<&'a HeadRoom>, bytes: usize) -> Option<Self> {
        let mut head = Self::new(room);
        head.may_read().then(|| {
            head.set(bytes);
            head
        })
    }

    /// Waits until there is room for a head. It takes none.
    pub(super) async fn room(room: Option<&'a HeadRoom>) {
        let head = Self::new(room);
        poll_fn(|cx| head.poll(cx, |_| Poll::Ready(()))).await;
    }

    /// Whether more of it may be read.
    fn may_read(&self) -> bool {
        self.room.is_none_or(|room| if self.bytes == 0 { room.may_begin() } else { !room.is_full() })
    }

    /// Polls `read` if more of the head may be read. Otherwise the room counts that it was withheld.
    pub(super) fn poll<T>(&self, cx: &mut Context<'_>, read: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if self.may_read() {
            return read(cx);
        }
        if let Some(room) = self.room {
            room.held.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Pending
    }

    /// How much of it is in memory.
    pub(super) fn set(&mut self, bytes: usize) {
        if let Some(room) = self.room {
            // Wraps around where it falls.
            room.begun.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for HeadBytes<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_have_begun_go_on_until_the_client_does_not_read() {
        let room = HeadRoom::default();
        let (mut first, second) = (HeadBytes::new(Some(&room)), HeadBytes::new(Some(&room)));
        first.set(MAX_BEGUN);
        assert!(first.may_read() && !second.may_read());
        room.set_full(true);
        assert!(!first.may_read());
        room.set_full(false);
        first.set(MAX_BEGUN - 1);
        assert!(second.may_read());
        drop(first);
        assert_eq!(room.begun.load(Ordering::Relaxed), 0);
    }
}
