//! Sending a response that lies in several places, on either path.
//!
//! User space: the parts are copied and read straight into the payload slots of up to
//! [`RECORDS_PER_SEND`] records in one buffer, sealed in place and sent by one call.
//! Kernel: what lies in memory is sent by one call, and so is what fits one record; longer files go by sendfile, after
//! a record of their own for what comes before them.

use std::fs::File;
use std::future::poll_fn;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use rustix::io::Errno;
use sealion_ktls::{More, Operation};

use super::cold::{self, Read, Wait};
use super::key_update::most_records;
use super::{Outgoing, Sender, Sending, TlsStream};
use crate::buffers::{RECORDS_PER_SEND, SendBuffer};
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT, Sealer};

/// A stretch of a response.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// Bytes of a file, which must be there: see [`Error::FileShrank`].
    File {
        /// A regular file.
        file: &'a File,
        /// The offsets of the first byte and behind the last.
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

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// After how many bytes a response lets the other connections of its thread run.
/// GUESS: about a sixth of a millisecond in user space, and one batch of records there.
pub(super) const TURN: u64 = 512 << 10;

/// Parts in memory that one call sends. A response has two; several ranges of a small file have more, and take more calls.
const SLICES: usize = 2;

impl TlsStream {
    /// Sends the parts as one response and returns when TCP, or the kernel's record layer, has all of
    /// it. A response that fits one record is one record and one system call.
    ///
    /// The peer may stall for at most [`crate::Limits::stall`] at a time.
    ///
    /// # Errors
    /// Any [`Error`]; the stream is then unfinished. End it with [`Self::abort`].
    pub async fn send(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        if self.sending != Sending::Open {
            return Err(Error::Unfinished);
        }
        self.sending = Sending::Unfinished;
        poll_fn(|cx| self.poll_answer_key_update(cx)).await?;
        self.drain().await?;
        let mut source = Source::new(parts);
        match self.sender {
            Sender::User { .. } => self.send_from_user(&mut source).await?,
            Sender::Kernel(_) => self.send_from_kernel(&mut source).await?,
        }
        self.sending = Sending::Open;
        Ok(())
    }

    async fn send_from_user(&mut self, source: &mut Source<'_>) -> Result<(), Error> {
        let mut turn = 0;
        let mut wait = Wait::No;
        while source.remaining > 0 {
            self.key_for(1).await?;
            self.drain().await?;
            let Sender::User { sealer, .. } = &mut self.sender else {
                unreachable!("a connection does not enter the kernel during a send");
            };
            let before = source.remaining;
            match seal_batch(sealer, source, self.batch, wait)? {
                Batch::Sealed(outgoing) => self.outgoing = Some(outgoing),
                Batch::Cold { file, range } => {
                    Box::pin(cold::fetch(file, range)).await?;
                    wait = Wait::Yes;
                    continue;
                }
            }
            wait = Wait::No;
            let batch = self.batch;
            self.drain().await?;
            if self.batch == batch {
                self.batch = (2 * batch).min(RECORDS_PER_SEND);
            }
            self.progressed(before - source.remaining);
            turn += before - source.remaining;
            if turn >= TURN && source.remaining > 0 {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn send_from_kernel(&mut self, source: &mut Source<'_>) -> Result<(), Error> {
        if source.remaining <= MAX_PLAINTEXT as u64 && !source.is_in_memory() {
            return self.send_one_record(source).await;
        }
        let mut turn = 0;
        while let Some(piece) = source.piece() {
            let sent = match piece {
                Part::Bytes(_) => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let (count, bytes) = source.leading_memory(&mut slices);
                    // What comes before a file gets a record of its own: the file's pages then fill whole records, and no
                    // block of the cipher lies across two pages.
                    self.key_for(most_records(bytes)).await?;
                    self.kernel(|tx, io| tx.send_vectored(io, &slices[..count], More::No)).await? as u64
                }
                Part::File { file, range } => {
                    let left = range.end - range.start;
                    // A call that is satisfied closes its record: let it end where a full one does, or the file.
                    let count = if left <= 2 * TURN { left } else { TURN };
                    let asked = range.start..range.start + count;
                    if cold::is_cold(file, &asked) {
                        Box::pin(cold::fetch(file, asked)).await?;
                    }
                    self.key_for(most_records(count)).await?;
                    self.sendfile(file, range, count).await?
                }
            };
            source.advance(sent);
            self.progressed(sent);
            turn += sent;
            if turn >= TURN && source.remaining > 0 {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// One record, one system call.
    async fn send_one_record(&mut self, source: &mut Source<'_>) -> Result<(), Error> {
        let mut buffer = SendBuffer::take();
        let mut len = 0;
        let mut wait = Wait::No;
        while let Some(piece) = source.piece() {
            let read = match piece {
                Part::Bytes(bytes) => {
                    buffer[len..][..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Part::File { file, range } => {
                    let wanted = (range.end - range.start) as usize;
                    let mut slot = [IoSliceMut::new(&mut buffer[len..][..wanted])];
                    match cold::read(file, &mut slot, &range, wait)? {
                        Read::Bytes(read) => read,
                        Read::Cold => {
                            Box::pin(cold::fetch(file, range)).await?;
                            wait = Wait::Yes;
                            0
                        }
                    }
                }
            };
            source.advance(read as u64);
            len += read;
        }
        self.key_for(1).await?;
        self.progressed(len as u64);
        let mut sent = 0;
        while sent < len {
            sent += self.kernel(|tx, io| tx.send(io, &buffer[sent..len], More::No)).await?;
        }
        Ok(())
    }

    /// `count` bytes from the start of `range`, or as many as TCP takes now.
    async fn sendfile(&mut self, file: &File, range: Range<u64>, count: u64) -> Result<u64, Error> {
        let mut offset = range.start;
        let sent = self.kernel(|tx, io| tx.send_file(io, file, &mut offset, count as usize)).await;
        let sent = sent.map_err(|error| match error {
            Error::Kernel(e) if e.operation() == Operation::SendFile && is_of_the_file(e.errno()) => {
                Error::File(e.into())
            }
            other => other,
        })?;
        match sent {
            0 => Err(Error::FileShrank { at: range.start, end: range.end }),
            sent => Ok(sent as u64),
        }
    }

    async fn key_for(&mut self, records: u64) -> Result<(), Error> {
        poll_fn(|cx| self.poll_key_for(cx, records)).await
    }

    /// Seals `bytes`, or the beginning of them, into [`Self::outgoing`]; for the poll interface.
    pub(super) fn seal_bytes(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let Sender::User { sealer, .. } = &mut self.sender else {
            unreachable!("only called on the user path");
        };
        let parts = [Part::Bytes(bytes)];
        let mut source = Source::new(&parts);
        match seal_batch(sealer, &mut source, self.batch, Wait::Yes)? {
            Batch::Sealed(outgoing) => self.outgoing = Some(outgoing),
            Batch::Cold { .. } => unreachable!("memory is never cold"),
        }
        Ok(bytes.len() - source.remaining as usize)
    }
}

/// What became of a batch of records.
enum Batch<'a> {
    Sealed(Outgoing),
    /// Nothing was taken from the source: these bytes have to come from a disk first.
    Cold {
        file: &'a File,
        range: Range<u64>,
    },
}

/// Fills and seals as many records as are wanted, at `most`, and the key allows.
fn seal_batch<'a>(sealer: &mut Sealer, source: &mut Source<'a>, most: usize, wait: Wait) -> Result<Batch<'a>, Error> {
    let records = sealer.records_left().min(most as u64);
    let payload = source.remaining.min(records * MAX_PLAINTEXT as u64) as usize;
    let records = payload.div_ceil(MAX_PLAINTEXT);
    let prefix = sealer.prefix_len();
    let overhead = sealer.sealed_len(0);
    let len = payload + records * overhead;
    let full = MAX_PLAINTEXT + overhead;

    let mut buffer = SendBuffer::take();
    let mut slots: [IoSliceMut<'_>; RECORDS_PER_SEND] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    for (slot, record) in slots.iter_mut().zip(buffer[..len].chunks_mut(full)) {
        let end = prefix + record.len() - overhead;
        *slot = IoSliceMut::new(&mut record[prefix..end]);
    }
    let mut filled = source.clone();
    if let Some((file, range)) = filled.fill(&mut slots[..records], wait)? {
        return Ok(Batch::Cold { file, range });
    }
    *source = filled;
    for record in buffer[..len].chunks_mut(full) {
        sealer.seal(ContentType::ApplicationData, record)?;
    }
    Ok(Batch::Sealed(Outgoing { buffer, unsent: 0..len }))
}

/// The parts from where the last send ended.
#[derive(Clone)]
struct Source<'a> {
    parts: &'a [Part<'a>],
    /// How much of the first part is done.
    done: u64,
    /// Bytes left in all parts.
    remaining: u64,
}

impl<'a> Source<'a> {
    fn new(parts: &'a [Part<'a>]) -> Self {
        let remaining = parts.iter().map(Part::len).sum();
        let mut source = Self { parts, done: 0, remaining };
        source.advance(0);
        source
    }

    /// The rest of the first part that has any.
    fn piece(&self) -> Option<Part<'a>> {
        Some(match self.parts.first()? {
            Part::Bytes(bytes) => Part::Bytes(&bytes[self.done as usize..]),
            Part::File { file, range } => Part::File { file, range: range.start + self.done..range.end },
        })
    }

    /// Whether what remains lies in memory.
    fn is_in_memory(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Bytes(_)))
    }

    /// The parts in memory before the first file: how many slices, and how many bytes.
    fn leading_memory(&self, slices: &mut [IoSlice<'a>; SLICES]) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        let mut skip = self.done as usize;
        for (slice, part) in slices.iter_mut().zip(self.parts) {
            let Part::Bytes(part) = part else { break };
            // More than a turn is not asked for at once.
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

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.remaining -= bytes;
        while let Some((first, rest)) = self.parts.split_first()
            && self.done >= first.len()
        {
            self.done -= first.len();
            self.parts = rest;
        }
    }

    /// Fills all slots, which are no longer than what remains. Returns what has to be fetched from a disk instead: then
    /// neither the slots nor this source are of use.
    fn fill(&mut self, mut slots: &mut [IoSliceMut<'_>], wait: Wait) -> Result<Option<(&'a File, Range<u64>)>, Error> {
        let mut room: u64 = slots.iter().map(|slot| slot.len() as u64).sum();
        while room > 0 {
            let piece = self.piece().expect("the slots are no longer than what remains");
            let filled = match piece {
                Part::Bytes(bytes) => {
                    let len = bytes.len().min(slots[0].len());
                    slots[0][..len].copy_from_slice(&bytes[..len]);
                    len
                }
                Part::File { file, ref range } => {
                    let read = if piece.len() >= room {
                        cold::read(file, slots, range, wait)?
                    } else {
                        // The part ends inside the slots: not beyond it in one call.
                        let len = slots[0].len().min((range.end - range.start) as usize);
                        cold::read(file, &mut [IoSliceMut::new(&mut slots[0][..len])], range, wait)?
                    };
                    match read {
                        Read::Bytes(read) => read,
                        Read::Cold => return Ok(Some((file, range.start..range.end.min(range.start + room)))),
                    }
                }
            };
            self.advance(filled as u64);
            room -= filled as u64;
            IoSliceMut::advance_slices(&mut slots, filled);
        }
        Ok(None)
    }
}

/// Whether `sendfile` failed because of its input: the disk, or a file that cannot be sent.
fn is_of_the_file(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [Errno::IO, Errno::INVAL, Errno::ISDIR].contains(&Errno::from_raw_os_error(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_goes_on_where_a_send_ended_in_any_part() {
        let parts = [Part::Bytes(b"head"), Part::Bytes(b""), Part::Bytes(b"body"), Part::Bytes(b"end")];
        for first in 0..=11 {
            let mut source = Source::new(&parts);
            source.advance(first);
            let mut rest = Vec::new();
            while source.remaining > 0 {
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
