//! The part of a fill that lies in memory, and a bound for all fills together.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes in memory above which the origin is not read on for a response that is not stored.
pub(super) const MAX_UNWRITTEN: usize = 1 << 20;

/// The same where all tails together have more than [`MAX_IN_ALL`]: a few pieces, so that each response goes on.
const MAX_WHERE_ALL_ARE_LARGE: usize = 64 << 10;

/// GUESS: bytes of all tails. Few tails are large unless a disk fails or hangs.
const MAX_IN_ALL: usize = 64 << 20;

/// Bytes of all tails of the process.
static IN_ALL: AtomicUsize = AtomicUsize::new(0);

/// Pieces that are not written, in their order.
#[derive(Debug)]
pub(super) struct Tail {
    pieces: VecDeque<Bytes>,
    len: usize,
    /// The bytes of all tails with it.
    in_all: &'static AtomicUsize,
}

impl Default for Tail {
    fn default() -> Self {
        Self::among(&IN_ALL)
    }
}

impl Tail {
    fn among(in_all: &'static AtomicUsize) -> Self {
        Self { pieces: VecDeque::new(), len: 0, in_all }
    }

    /// Bytes of all pieces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the origin is read on before readers have taken some of it.
    pub(super) fn has_room(&self) -> bool {
        let is_little = self.in_all.load(Ordering::Relaxed) < MAX_IN_ALL;
        self.len < if is_little { MAX_UNWRITTEN } else { MAX_WHERE_ALL_ARE_LARGE }
    }

    pub(super) fn iter(&self) -> Iter<'_, Bytes> {
        self.pieces.iter()
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        self.in_all.fetch_add(piece.len(), Ordering::Relaxed);
        self.pieces.push_back(piece);
    }

    /// Removes the first pieces; their bytes.
    pub(super) fn remove(&mut self, pieces: usize) -> usize {
        let bytes = self.pieces.drain(..pieces).map(|piece| piece.len()).sum();
        self.len -= bytes;
        self.in_all.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.in_all.fetch_sub(self.len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_get_shorter_where_all_of_them_are_large() {
        static IN_ALL: AtomicUsize = AtomicUsize::new(0);
        let mut tail = Tail::among(&IN_ALL);
        (0..16).for_each(|_| tail.push(Bytes::from(vec![0; 64 << 10])));
        assert!(tail.len() == MAX_UNWRITTEN && !tail.has_room());
        assert_eq!(tail.remove(14), 14 << 16);
        assert!(tail.has_room());
        let mut other = Tail::among(&IN_ALL);
        // The pages are never touched.
        other.push(Bytes::from(vec![0; MAX_IN_ALL]));
        assert!(!tail.has_room());
        assert_eq!(tail.remove(2), 2 << 16);
        assert!(tail.has_room(), "it goes on");
        assert_eq!(IN_ALL.load(Ordering::Relaxed), MAX_IN_ALL);
        drop(other);
        assert_eq!(IN_ALL.load(Ordering::Relaxed), 0);
    }
}
