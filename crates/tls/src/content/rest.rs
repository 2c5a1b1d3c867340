//! The unread rest of the parts of some content.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;

use super::Part;
use super::cold::{self, Read, Wait};
use crate::error::Error;

/// The reason why filling a buffer stopped.
pub(crate) enum Stop<'a> {
    /// These bytes have to come from a disk first.
    Cold(&'a File, Range<u64>),
    /// These bytes cannot be read.
    Unreadable(&'a File, Error),
}

/// The part of the content that is still to be sent.
#[derive(Clone)]
pub(crate) struct Rest<'a> {
    pub(crate) parts: &'a [Part<'a>],
    /// How much of the first part is done.
    pub(crate) done: u64,
    /// Bytes left in all parts.
    pub(crate) len: u64,
    /// Bytes of all parts.
    total: u64,
}

impl<'a> Rest<'a> {
    pub(crate) fn new(parts: &'a [Part<'a>]) -> Self {
        let len = parts.iter().map(Part::len).sum();
        let mut rest = Self { parts, done: 0, len, total: len };
        rest.advance(0);
        rest
    }

    /// Bytes of all parts, including those already sent.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The rest of the first part that is not empty.
    pub(crate) fn piece(&self) -> Option<Part<'a>> {
        Some(match self.parts.first()? {
            Part::Bytes(bytes) => Part::Bytes(&bytes[self.done as usize..]),
            Part::File { file, range } => Part::File { file, range: range.start + self.done..range.end },
        })
    }

    /// The end of the consecutive segments of `file` from here, at most `most` bytes, regardless of parts in memory
    /// between them.
    pub(crate) fn end_of_run(&self, file: &File, start: u64, most: u64) -> u64 {
        let (mut end, mut skip) = (start, self.done);
        for part in self.parts {
            match part {
                Part::File { file: other, range } if std::ptr::eq(file, *other) && range.start + skip == end => {
                    end = range.end
                }
                Part::File { .. } => break,
                Part::Bytes(_) => {}
            }
            skip = 0;
        }
        end.min(start + most)
    }

    /// The first file segment, after the parts in memory.
    pub(crate) fn next_stretch(&self) -> Option<(&'a File, Range<u64>)> {
        let mut skip = self.done;
        for part in self.parts {
            match part {
                Part::File { file, range } if range.start + skip < range.end => {
                    return Some((file, range.start + skip..range.end));
                }
                _ => skip = 0,
            }
        }
        None
    }

    /// Whether all remaining parts are in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Bytes(_)))
    }

    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.len -= bytes;
        while let Some((first, rest)) = self.parts.split_first()
            && self.done >= first.len()
        {
            self.done -= first.len();
            self.parts = rest;
        }
    }

    /// Fills `buffer` from `filled` on, which grows, as far as the rest goes.
    ///
    /// # Errors
    /// [`Stop::Cold`]: it can continue when those bytes are in memory.
    pub(crate) fn read(&mut self, buffer: &mut [u8], filled: &mut usize, wait: Wait) -> Result<(), Stop<'a>> {
        while *filled < buffer.len()
            && let Some(piece) = self.piece()
        {
            let room = &mut buffer[*filled..];
            let taken = match piece {
                Part::Bytes(bytes) => {
                    let bytes = &bytes[..bytes.len().min(room.len())];
                    room[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Part::File { file, range } => {
                    let wanted = (range.end - range.start).min(room.len() as u64) as usize;
                    let range = range.start..range.start + wanted as u64;
                    match cold::read(file, &mut [IoSliceMut::new(&mut room[..wanted])], &range, wait) {
                        Ok(Read::Bytes(read)) => read,
                        Ok(Read::Cold) => return Err(Stop::Cold(file, range)),
                        Err(error) => return Err(Stop::Unreadable(file, error)),
                    }
                }
            };
            self.advance(taken as u64);
            *filled += taken;
        }
        Ok(())
    }

    /// Fills all slots, which are together no longer than the rest.
    ///
    /// # Errors
    /// [`Stop`]: neither the slots nor this source can be used afterwards.
    ///
    /// One call reads consecutive segments of a file, even with memory between them: each frame of a file has a header.
    pub(crate) fn fill<const N: usize>(&mut self, mut slots: [&mut [u8]; N], wait: Wait) -> Result<(), Stop<'a>> {
        let mut at = 0;
        while next_slot(&slots, &mut at) {
            match self.piece().expect("the slots are no longer than what remains") {
                Part::Bytes(bytes) => self.copy(bytes, &mut slots[at]),
                Part::File { file, range } => {
                    let mut targets: [IoSliceMut<'_>; N] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
                    let (count, end) = self.gather(file, range.start, &mut slots, &mut at, &mut targets);
                    let mut missing = range.start..end;
                    let mut targets = &mut targets[..count];
                    let promised = range.end.max(end);
                    while !missing.is_empty() {
                        match cold::read(file, targets, &missing, wait) {
                            Ok(Read::Bytes(read)) => {
                                missing.start += read as u64;
                                IoSliceMut::advance_slices(&mut targets, read);
                            }
                            Ok(Read::Cold) => return Err(Stop::Cold(file, missing)),
                            Err(Error::FileShrank { at, .. }) => {
                                return Err(Stop::Unreadable(file, Error::FileShrank { at, end: promised }));
                            }
                            Err(error) => return Err(Stop::Unreadable(file, error)),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes consecutive segments of `file` from `start`, and copies the memory between them. Returns the number of
    /// targets of the segments, and the end of the last one.
    fn gather<'s>(
        &mut self,
        file: &File,
        start: u64,
        slots: &mut [&'s mut [u8]],
        at: &mut usize,
        targets: &mut [IoSliceMut<'s>],
    ) -> (usize, u64) {
        let (mut count, mut end) = (0, start);
        while count < targets.len() && next_slot(slots, at) {
            match self.piece() {
                Some(Part::Bytes(bytes)) => self.copy(bytes, &mut slots[*at]),
                Some(Part::File { file: other, range }) if std::ptr::eq(file, other) && range.start == end => {
                    let len = (range.end - range.start).min(slots[*at].len() as u64);
                    targets[count] = IoSliceMut::new(take_front(&mut slots[*at], len as usize));
                    (count, end) = (count + 1, end + len);
                    self.advance(len);
                }
                _ => break,
            }
        }
        (count, end)
    }

    /// Copies as much of `bytes`, the current piece, as fits.
    fn copy(&mut self, bytes: &[u8], slot: &mut &mut [u8]) {
        let len = bytes.len().min(slot.len());
        take_front(slot, len).copy_from_slice(&bytes[..len]);
        self.advance(len as u64);
    }
}

/// Moves `at` to the next slot with room.
fn next_slot(slots: &[&mut [u8]], at: &mut usize) -> bool {
    while slots.get(*at).is_some_and(|slot| slot.is_empty()) {
        *at += 1;
    }
    *at < slots.len()
}

fn take_front<'s>(slot: &mut &'s mut [u8], len: usize) -> &'s mut [u8] {
    let (front, rest) = std::mem::take(slot).split_at_mut(len);
    *slot = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_from_memory_and_any_order_of_stretches() {
        let path = std::env::temp_dir().join(format!("sealion-source-{}", std::process::id()));
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        std::fs::write(&path, &content).unwrap();
        let (file, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let stretch = |file, range| Part::File { file, range };
        let parts = [
            Part::Bytes(b"one"),
            stretch(&file, 0..100),
            Part::Bytes(b"two"),
            Part::Bytes(b"three"),
            stretch(&file, 100..250),
            stretch(&file, 250..251),
            Part::Bytes(b"gap"),
            stretch(&file, 300..310),
            stretch(&other, 310..320),
            Part::Bytes(b"end"),
        ];
        let mut expected = Vec::new();
        for part in &parts {
            match part {
                Part::Bytes(bytes) => expected.extend_from_slice(bytes),
                Part::File { range, .. } => {
                    expected.extend_from_slice(&content[range.start as usize..range.end as usize])
                }
            }
        }
        for first in [1, 2, 3, 50, 103, 104, 110, 200, 270, expected.len() - 1] {
            for second in [0, 1, 3, 20] {
                let mut rest = Rest::new(&parts);
                let mut filled = vec![0; expected.len()];
                let (one, behind) = filled.split_at_mut(first);
                let (two, three) = behind.split_at_mut(second.min(behind.len()));
                assert!(rest.fill([one, two, three], Wait::Yes).is_ok());
                assert!(rest.len == 0 && filled == expected, "{first} {second}");
            }
        }
        let shrunk = [Part::Bytes(b"x"), stretch(&file, 900..1001)];
        let mut slot = [0; 102];
        let stop = Rest::new(&shrunk).fill([&mut slot[..]], Wait::Yes);
        assert!(matches!(stop, Err(Stop::Unreadable(_, Error::FileShrank { at: 1000, end: 1001 }))));
        let shrunk = [stretch(&file, 900..5000)];
        let stop = Rest::new(&shrunk).fill([&mut slot[..]], Wait::Yes);
        let is_all = matches!(stop, Err(Stop::Unreadable(_, Error::FileShrank { at: 1000, end: 5000 })));
        assert!(is_all, "what was promised is all of the stretch");
    }
}
