//! The part of a fill that lies in memory, and a bound for all fills together.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes in memory above which the origin is not read on for a response that is not stored.
pub(super) const MAX_UNWRITTEN: usize = 1 << 20;

/// The same where all tails together have more than [`MAX_IN_ALL`]: a few pieces, so that each response goes on.
const MAX_WHERE_ALL_ARE_LARGE: usize = 64 << 10;

/// GUESS: bytes of all tails, of which few are large unless a disk fails or hangs.
const MAX_IN_ALL: usize = 64 << 20;

/// Bytes of all tails of the process.
static IN_ALL: AtomicUsize = AtomicUsize::new(0);

/// Pieces that are not written, in their order.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Tail {
    /// Bytes of all pieces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the origin is read on before readers have taken some of it.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_among(IN_ALL.load(Ordering::Relaxed))
    }

    fn has_room_among(&self, in_all: usize) -> bool {
        self.len < if in_all < MAX_IN_ALL { MAX_UNWRITTEN } else { MAX_WHERE_ALL_ARE_LARGE }
    }

    pub(super) fn iter(&self) -> Iter<'_, Bytes> {
        self.pieces.iter()
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        IN_ALL.fetch_add(piece.len(), Ordering::Relaxed);
        self.pieces.push_back(piece);
    }

    /// Removes the first pieces; their bytes.
    pub(super) fn remove(&mut self, pieces: usize) -> usize {
        let bytes = self.pieces.drain(..pieces).map(|piece| piece.len()).sum();
        self.len -= bytes;
        IN_ALL.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        IN_ALL.fetch_sub(self.len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_get_shorter_where_all_of_them_are_large() {
        let mut tail = Tail::default();
        (0..16).for_each(|_| tail.push(Bytes::from(vec![0; 64 << 10])));
        assert_eq!(tail.len(), MAX_UNWRITTEN);
        assert!(!tail.has_room());
        assert_eq!(tail.remove(14), 14 << 16);
        assert!(tail.has_room_among(MAX_IN_ALL - 1) && !tail.has_room_among(MAX_IN_ALL));
        assert_eq!(tail.remove(2), 2 << 16);
        assert!(tail.has_room_among(MAX_IN_ALL), "it goes on");
    }

    #[test]
    fn bytes_count_until_they_are_removed_or_dropped() {
        // Other tests have fills meanwhile: a length that none of theirs together has.
        const LENGTH: usize = 1 << 30;
        let mut tail = Tail::default();
        // The pages are never touched.
        tail.push(Bytes::from(vec![0; LENGTH]));
        assert!(IN_ALL.load(Ordering::Relaxed) >= LENGTH);
        tail.remove(1);
        assert!(IN_ALL.load(Ordering::Relaxed) < LENGTH);
        tail.push(Bytes::from(vec![0; LENGTH]));
        drop(tail);
        assert!(IN_ALL.load(Ordering::Relaxed) < LENGTH);
    }
}
