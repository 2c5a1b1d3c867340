//! Bytes that wait. Small pieces are merged: each alone would take many times its length.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A piece with fewer bytes is copied behind others.
const SMALL: usize = 2 << 10;

/// Small pieces are merged up to this size, in bytes.
const MERGED: usize = 16 << 10;

/// A kept piece with fewer bytes is copied: it may be a part of a read buffer, which it would keep whole.
const MAY_WASTE: usize = 12 << 10;

/// A piece to keep, without the room of its read buffer.
pub(crate) fn without_room(piece: Bytes) -> Bytes {
    if piece.len() < MAY_WASTE { Bytes::copy_from_slice(&piece) } else { piece }
}

/// Pieces in their order.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    whole: VecDeque<Bytes>,
    /// Small ones behind them.
    merged: BytesMut,
}

impl Pieces {
    /// A lone piece is not copied: it is taken at once, most of the time.
    pub(super) fn push(&mut self, piece: Bytes) {
        let is_small = piece.len() < SMALL && !self.is_empty();
        let piece = if is_small || self.is_empty() { piece } else { without_room(piece) };
        if !is_small || self.merged.len() + piece.len() > MERGED {
            self.end_merged();
        }
        match is_small {
            true => self.merged.extend_from_slice(&piece),
            false => self.whole.push_back(piece),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.end_merged();
        }
        self.whole.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.merged.is_empty()
    }

    fn end_merged(&mut self) {
        if !self.merged.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.merged).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes on the heap, but for the headers of allocations.
    fn memory(pieces: &Pieces) -> usize {
        let whole: usize = pieces.whole.iter().map(Bytes::len).sum();
        whole + pieces.whole.capacity() * size_of::<Bytes>() + pieces.merged.capacity()
    }

    #[test]
    fn small_pieces_take_little_more_than_their_length_and_keep_their_order() {
        let octets: Vec<u8> = (0..1 << 20).map(|at| (at * 7 + at / 251) as u8).collect();
        for length in [1, 2, 100, SMALL - 1, SMALL, MERGED, MERGED + 1] {
            let mut pieces = Pieces::default();
            octets.chunks(length).for_each(|piece| pieces.push(Bytes::copy_from_slice(piece)));
            assert!(memory(&pieces) < octets.len() * 5 / 4, "{length}: {}", memory(&pieces));
            let mut all = Vec::new();
            while let Some(piece) = pieces.pop() {
                all.extend_from_slice(&piece);
            }
            assert!(all == octets && pieces.is_empty(), "{length}");
        }
        let mut pieces = Pieces::default();
        let mut expected = Vec::new();
        for (at, length) in [1, 5000, 3, 4, 20_000, 2047, 2047, 1, 16_000, 7].into_iter().enumerate() {
            let piece = vec![at as u8; length];
            expected.extend_from_slice(&piece);
            pieces.push(piece.into());
        }
        let all: Vec<u8> = std::iter::from_fn(|| pieces.pop()).flatten().collect();
        assert!(all == expected);
    }
}
