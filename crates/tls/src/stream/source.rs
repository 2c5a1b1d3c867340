//! The parts of a response, and the progress of sending them.

use std::fs::File;
use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::task::yield_now;

use super::cold::{self, Fetch, Read, Wait};
use crate::buffers::{RECORDS_PER_SEND, SendBuffer};
use crate::error::Error;
use crate::record::MAX_PLAINTEXT;

/// A segment of a response.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// A range of a file, which must exist: see [`Error::FileShrank`].
    File {
        /// A regular file.
        file: &'a File,
        /// The offset of the first byte, and the offset after the last byte.
        range: Range<u64>,
    },
}

impl Part<'_> {
    /// Bytes of this part.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { range, .. } => range.end.saturating_sub(range.start),
        }
    }

    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number of bytes after which a response yields to the other connections of its thread. It is one batch of records
/// in user space, about a sixth of a millisecond. A smaller number would cut batches, and a larger one makes small
/// responses wait.
pub(super) const TURN: u64 = 512 << 10;

/// Bytes of a page of the page cache.
const PAGE: u64 = 4096;

/// The number of parts in memory that one call sends. A response has two; several ranges of a small file have more, and
/// take more calls.
pub(super) const SLICES: usize = 2;

/// The number of parts in memory that one call sends of frames: a head and content for each record of a batch.
pub(super) const SLICES_OF_FRAMES: usize = 2 * (RECORDS_PER_SEND + 1);

/// Parts being sent by [`crate::TlsStream::poll_send`], and the progress.
///
/// While it waits, it may hold a buffer of one record, or a disk read in another thread.
pub struct Source<'a> {
    pub(super) rest: Rest<'a>,
    pub(super) form: Form,
    pub(super) started: bool,
    pub(super) stage: Stage,
    /// Bytes sent since other connections last had a turn.
    pub(super) turn: u64,
    /// Whether the next read may wait for the disk.
    pub(super) wait: Wait,
    /// A fetch that brings pages into memory; the next step waits for it.
    pub(super) fetch: Option<(&'a File, Fetch)>,
    /// The pages of this file up to this offset were in memory at the last check.
    pub(super) warm: Option<(&'a File, u64)>,
    /// The records of the kernel's next operation are already counted against its key.
    pub(super) reserved: bool,
    /// TCP holds back partial segments.
    pub(super) corked: bool,
    /// The file that could not be read: the send has failed.
    pub(super) unreadable: Option<&'a File>,
}

/// The progress of a send that failed because of a file.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a> {
    /// The file.
    pub file: &'a File,
    /// Bytes of the source that were sent, or that the kernel has.
    pub sent: u64,
}

/// The reason why filling a buffer stopped.
pub(super) enum Stop<'a> {
    /// These bytes have to come from a disk first.
    Cold(&'a File, Range<u64>),
    /// These bytes cannot be read.
    Unreadable(&'a File, Error),
}

/// The kind of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Response,
    Frames {
        /// The number of bytes in the first record, if the frames leave it short.
        first: usize,
    },
}

pub(super) enum Stage {
    New,
    /// All bytes taken from the rest are with TCP or the kernel.
    Next,
    /// User space has sealed this many bytes, which TCP does not have yet.
    Sealed {
        bytes: u64,
    },
    /// The kernel gets everything as one record, which is assembled here.
    Record(Record),
}

/// The plaintext of a record, part of it sent.
pub(super) struct Record {
    buffer: SendBuffer,
    len: usize,
    /// The maximum length.
    limit: usize,
    pub(super) sent: usize,
}

impl<'a> Source<'a> {
    /// Starts at the beginning of `parts`.
    pub fn new(parts: &'a [Part<'a>]) -> Self {
        Self::of(parts, Form::Response)
    }

    /// Frames of a protocol with many responses in one connection, such as HTTP/2. Parts in memory before a file
    /// segment are the head of its frame. A frame that fits a record is one record on either path, if the frames before
    /// it fill theirs.
    ///
    /// `first`: the number of bytes in the first record, at most a full record. A short record reaches a peer sooner.
    pub fn frames(parts: &'a [Part<'a>], first: usize) -> Self {
        Self::of(parts, Form::Frames { first: first.clamp(1, MAX_PLAINTEXT) })
    }

    fn of(parts: &'a [Part<'a>], form: Form) -> Self {
        Self {
            rest: Rest::new(parts),
            form,
            started: false,
            stage: Stage::New,
            turn: 0,
            wait: Wait::No,
            fetch: None,
            warm: None,
            reserved: false,
            corked: false,
            unreadable: None,
        }
    }

    /// The bytes that were sent, if the send failed because of a file.
    pub(super) fn unread(&self) -> Option<Unread<'a>> {
        let file = self.unreadable?;
        // A record that was being assembled here was not sent.
        let taken = if let Stage::Record(record) = &self.stage { record.len as u64 } else { 0 };
        Some(Unread { file, sent: self.rest.total() - self.rest.len - taken })
    }

    /// Waits for pages that are being fetched. Afterwards the next read finds its pages, or may wait for them.
    ///
    /// # Errors
    /// The disk does not respond.
    pub(super) fn poll_fetched(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Some((file, fetch)) = &mut self.fetch {
            let fetched = ready!(fetch.poll(cx));
            if fetched.is_err() {
                self.unreadable = Some(*file);
            }
            self.fetch = None;
            self.wait = Wait::Yes;
            return Poll::Ready(fetched);
        }
        Poll::Ready(Ok(()))
    }

    /// Counts sent bytes, and yields to the other connections of this thread when a turn is over.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        self.turn += bytes;
        if self.turn < TURN || self.rest.len == 0 {
            return Poll::Ready(());
        }
        self.turn = 0;
        // The first poll of `yield_now` arranges the wake-up after the sockets have been polled; a plain `wake` would
        // come before that.
        pin!(yield_now()).poll(cx)
    }
}

impl Record {
    /// `limit`: the maximum length, at most a full record.
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: SendBuffer::small(), len: 0, limit, sent: 0 }
    }

    /// Takes as much of `rest` as the limit allows.
    ///
    /// # Errors
    /// [`Stop::Cold`]: it can continue when those bytes are in memory.
    pub(super) fn fill<'a>(&mut self, rest: &mut Rest<'a>, wait: Wait) -> Result<(), Stop<'a>> {
        while self.len < self.limit
            && let Some(piece) = rest.piece()
        {
            let room = self.limit - self.len;
            let taken = match piece {
                Part::Bytes(bytes) => {
                    let bytes = &bytes[..bytes.len().min(room)];
                    self.buffer[self.len..][..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Part::File { file, range } => {
                    let wanted = (range.end - range.start).min(room as u64) as usize;
                    let range = range.start..range.start + wanted as u64;
                    let mut slot = [IoSliceMut::new(&mut self.buffer[self.len..][..wanted])];
                    match cold::read(file, &mut slot, &range, wait) {
                        Ok(Read::Bytes(read)) => read,
                        Ok(Read::Cold) => return Err(Stop::Cold(file, range)),
                        Err(error) => return Err(Stop::Unreadable(file, error)),
                    }
                }
            };
            rest.advance(taken as u64);
            self.len += taken;
        }
        Ok(())
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.len]
    }
}

/// The part of a response that is still to be sent.
#[derive(Clone)]
pub(super) struct Rest<'a> {
    parts: &'a [Part<'a>],
    /// How much of the first part is done.
    done: u64,
    /// Bytes left in all parts.
    pub(super) len: u64,
    /// Bytes of all parts.
    total: u64,
}

impl<'a> Rest<'a> {
    pub(super) fn new(parts: &'a [Part<'a>]) -> Self {
        let len = parts.iter().map(Part::len).sum();
        let mut rest = Self { parts, done: 0, len, total: len };
        rest.advance(0);
        rest
    }

    /// Bytes of all parts, including those already sent.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The rest of the first part that is not empty.
    pub(super) fn piece(&self) -> Option<Part<'a>> {
        Some(match self.parts.first()? {
            Part::Bytes(bytes) => Part::Bytes(&bytes[self.done as usize..]),
            Part::File { file, range } => Part::File { file, range: range.start + self.done..range.end },
        })
    }

    /// The end of the consecutive segments of `file` from here, at most `most` bytes, regardless of parts in memory
    /// between them.
    pub(super) fn end_of_run(&self, file: &File, start: u64, most: u64) -> u64 {
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

    /// Bytes up to a page boundary of the first file: the parts before the file, and the rest of the page in which it
    /// begins.
    pub(super) fn until_page_of_file(&self) -> Option<u64> {
        let mut skip = self.done;
        let mut before = 0;
        for part in self.parts {
            match part {
                Part::Bytes(bytes) => before += bytes.len() as u64 - skip,
                Part::File { range, .. } => return Some(before + PAGE - (range.start + skip) % PAGE),
            }
            skip = 0;
        }
        None
    }

    /// Whether the first `count` parts, of `bytes`, and the file segment after them fit one record.
    pub(super) fn is_frame(&self, count: usize, bytes: u64) -> bool {
        matches!(self.parts.get(count), Some(part @ Part::File { .. }) if bytes + part.len() <= MAX_PLAINTEXT as u64)
    }

    /// The first file segment, after the parts in memory.
    pub(super) fn next_stretch(&self) -> Option<(&'a File, Range<u64>)> {
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

    /// Whether exactly one part in memory precedes a file.
    pub(super) fn has_file_second(&self) -> bool {
        matches!(self.parts.get(1), Some(Part::File { .. }))
    }

    /// Whether all remaining parts are in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Bytes(_)))
    }

    /// As [`Self::leading_memory`], for frames. Leaves out the head of the frame before a file, unless it is the only
    /// part before the file.
    pub(super) fn leading_frames(&self, slices: &mut [IoSlice<'a>]) -> (usize, u64) {
        let (count, bytes) = self.leading_memory(slices);
        if count > 1 && matches!(self.parts.get(count), Some(Part::File { .. })) && !self.is_frame(count, bytes) {
            return (count - 1, bytes - slices[count - 1].len() as u64);
        }
        (count, bytes)
    }

    /// The parts in memory before the first file: the number of slices, and of bytes.
    pub(super) fn leading_memory(&self, slices: &mut [IoSlice<'a>]) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        let mut skip = self.done as usize;
        for (slice, part) in slices.iter_mut().zip(self.parts) {
            let Part::Bytes(part) = part else { break };
            // At most one turn is requested at once.
            let rest = &part[skip..];
            let rest = &rest[..rest.len().min(2 * TURN as usize - bytes)];
            *slice = IoSlice::new(rest);
            skip = 0;
            count += 1;
            bytes += rest.len();
            if bytes == 2 * TURN as usize {
                break;
            }
        }
        (count, bytes as u64)
    }

    pub(super) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.len -= bytes;
        while let Some((first, rest)) = self.parts.split_first()
            && self.done >= first.len()
        {
            self.done -= first.len();
            self.parts = rest;
        }
    }

    /// Fills all slots, which are together no longer than the rest.
    ///
    /// # Errors
    /// [`Stop`]: neither the slots nor this source can be used afterwards.
    ///
    /// One call reads consecutive segments of a file, even with memory between them: each frame of a file has a header.
    pub(super) fn fill<const N: usize>(&mut self, mut slots: [&mut [u8]; N], wait: Wait) -> Result<(), Stop<'a>> {
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
    fn the_rest_goes_on_where_a_send_ended_in_any_part() {
        let parts = [Part::Bytes(b"head"), Part::Bytes(b""), Part::Bytes(b"body"), Part::Bytes(b"end")];
        for first in 0..=11 {
            let mut source = Rest::new(&parts);
            source.advance(first);
            let mut rest = Vec::new();
            while source.len > 0 {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let (count, bytes) = source.leading_memory(&mut slices);
                slices[..count].iter().for_each(|slice| rest.extend_from_slice(slice));
                source.advance(bytes);
            }
            assert_eq!(rest, b"headbodyend"[first as usize..], "{first}");
            assert!(source.piece().is_none(), "{first}");
        }
    }

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
