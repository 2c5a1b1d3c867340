//! The parts of a response, and the progress of sending them.

use std::fs::File;
use std::future::Future;
use std::io::IoSlice;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::task::yield_now;

use crate::buffers::{RECORDS_PER_SEND, SendBuffer};
use crate::content::cold::{self, Pages, Wait};
use crate::content::{Part, Reader, Rest};
use crate::error::Error;
use crate::record::MAX_PLAINTEXT;

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
    pub(super) reader: Reader<'a>,
    pub(super) form: Form,
    pub(super) started: bool,
    pub(super) stage: Stage,
    /// Bytes sent since other connections last had a turn.
    pub(super) turn: u64,
    /// The pages of this file up to this offset were in memory at the last check.
    pub(super) warm: Option<(&'a File, u64)>,
    /// The records of the kernel's next operation are already counted against its key.
    pub(super) reserved: bool,
    /// TCP holds back partial segments.
    pub(super) corked: bool,
}

/// The progress of a send that failed because of a file.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a> {
    /// The file.
    pub file: &'a File,
    /// Bytes of the source that were sent, or that the kernel has.
    pub sent: u64,
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
            reader: Reader::new(parts),
            form,
            started: false,
            stage: Stage::New,
            turn: 0,
            warm: None,
            reserved: false,
            corked: false,
        }
    }

    /// The bytes that were sent, if the send failed because of a file.
    pub(super) fn unread(&self) -> Option<Unread<'a>> {
        let file = self.reader.unreadable()?;
        Some(Unread { file, sent: self.taken() })
    }

    /// The bytes that were sent, or are sealed. A record that was being assembled here was not sent, but for its beginning.
    pub(super) fn taken(&self) -> u64 {
        let unsent = if let Stage::Record(record) = &self.stage { record.unsent().len() as u64 } else { 0 };
        self.reader.rest.total() - self.reader.rest.len - unsent
    }

    /// Before sendfile: whether the pages of `range` and of the frames behind it are in memory. `false`: they are
    /// being fetched.
    pub(super) fn warm_up(&mut self, file: &'a File, range: Range<u64>) -> Result<bool, Error> {
        let is_warm = self.warm.is_some_and(|(warm, to)| std::ptr::eq(warm, file) && range.end <= to);
        if self.reserved || self.reader.wait == Wait::Yes || is_warm {
            return Ok(true);
        }
        let asked = range.start..self.reader.rest.end_of_run(file, range.start, TURN).max(range.end);
        // sendfile reports where the file ends.
        if cold::look(file, &asked) == Pages::Cold {
            self.reader.fetch(file, asked)?;
            return Ok(false);
        }
        self.warm = Some((file, asked.end));
        Ok(true)
    }

    /// Counts sent bytes, and yields to the other connections of this thread when a turn is over.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        self.turn += bytes;
        if self.turn < TURN || self.reader.rest.len == 0 {
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

    /// Takes as much of `reader` as the limit allows.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, reader: &mut Reader<'_>) -> Poll<Result<(), Error>> {
        reader.poll_fill(cx, &mut self.buffer[..self.limit], &mut self.len)
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.len]
    }
}

/// The parts as records and frames.
impl<'a> Rest<'a> {
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

    /// Whether exactly one part in memory precedes a file.
    pub(super) fn has_file_second(&self) -> bool {
        matches!(self.parts.get(1), Some(Part::File { .. }))
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
}
