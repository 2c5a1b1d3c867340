//! Sending a response that lies in several places, on either path.
//!
//! User space: the parts are copied and read straight into the payload slots of up to
//! [`RECORDS_PER_SEND`] records in one buffer, sealed in place and sent by one call.
//! Kernel: what fits one record is gathered and sent by one call; anything longer goes as memory with
//! MSG_MORE and files by sendfile, so that records stay full.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;

use rustix::io::Errno;
use sealion_ktls::{More, Operation};

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
/// GUESS: about a fifth of a millisecond of sealing in user space.
pub(super) const TURN: u64 = 1 << 20;

/// Parts in memory that one call sends. A response has two; several ranges of a small file have more.
const SLICES: usize = 16;

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
        while source.remaining > 0 {
            self.key_for(1).await?;
            self.drain().await?;
            let Sender::User { sealer, .. } = &mut self.sender else {
                unreachable!("a connection does not enter the kernel during a send");
            };
            let before = source.remaining;
            self.outgoing = Some(seal_batch(sealer, source)?);
            self.drain().await?;
            self.payload_sent += before - source.remaining;
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
        // How full the open record is, as far as MSG_MORE has kept it open.
        let mut open = 0;
        let mut turn = 0;
        while let Some(piece) = source.piece() {
            let sent = match piece {
                Part::Bytes(_) => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let (count, bytes) = source.leading_memory(&mut slices);
                    let more = if bytes == source.remaining { More::No } else { More::Yes };
                    self.key_for(most_records(bytes)).await?;
                    self.kernel(|tx, io| tx.send_vectored(io, &slices[..count], more)).await? as u64
                }
                Part::File { file, range } => {
                    let left = range.end - range.start;
                    // A call that is satisfied closes its record: let it end where a full one does, or the file.
                    let count = if left < 2 * TURN { left } else { TURN - open };
                    self.key_for(most_records(count)).await?;
                    self.sendfile(file, range, count).await?
                }
            };
            source.advance(sent);
            self.payload_sent += sent;
            open = (open + sent) % MAX_PLAINTEXT as u64;
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
        while let Some(piece) = source.piece() {
            let read = match piece {
                Part::Bytes(bytes) => {
                    buffer[len..][..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Part::File { file, range } => {
                    let wanted = (range.end - range.start) as usize;
                    read_file(file, &mut [IoSliceMut::new(&mut buffer[len..][..wanted])], &range)?
                }
            };
            source.advance(read as u64);
            len += read;
        }
        self.key_for(1).await?;
        self.payload_sent += len as u64;
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
        self.outgoing = Some(seal_batch(sealer, &mut source)?);
        Ok(bytes.len() - source.remaining as usize)
    }
}

/// Fills and seals as many records as a buffer and the key allow.
fn seal_batch(sealer: &mut Sealer, source: &mut Source<'_>) -> Result<Outgoing, Error> {
    let records = sealer.records_left().min(RECORDS_PER_SEND as u64);
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
    source.fill(&mut slots[..records])?;
    for record in buffer[..len].chunks_mut(full) {
        sealer.seal(ContentType::ApplicationData, record)?;
    }
    Ok(Outgoing { buffer, unsent: 0..len })
}

/// The parts from where the last send ended.
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

    /// Fills all slots, which are no longer than what remains.
    fn fill(&mut self, mut slots: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        let mut room: u64 = slots.iter().map(|slot| slot.len() as u64).sum();
        while room > 0 {
            let piece = self.piece().expect("the slots are no longer than what remains");
            let filled = match piece {
                Part::Bytes(bytes) => {
                    let len = bytes.len().min(slots[0].len());
                    slots[0][..len].copy_from_slice(&bytes[..len]);
                    len
                }
                Part::File { file, ref range } if piece.len() >= room => read_file(file, slots, range)?,
                // The part ends inside the slots: not beyond it in one call.
                Part::File { file, ref range } => {
                    let len = slots[0].len().min((range.end - range.start) as usize);
                    read_file(file, &mut [IoSliceMut::new(&mut slots[0][..len])], range)?
                }
            };
            self.advance(filled as u64);
            room -= filled as u64;
            IoSliceMut::advance_slices(&mut slots, filled);
        }
        Ok(())
    }
}

/// Whether `sendfile` failed because of its input: the disk, or a file that cannot be sent.
fn is_of_the_file(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [Errno::IO, Errno::INVAL, Errno::ISDIR].contains(&Errno::from_raw_os_error(errno)))
}

/// Reads from the start of `range`; at least one byte.
fn read_file(file: &File, into: &mut [IoSliceMut<'_>], range: &Range<u64>) -> Result<usize, Error> {
    loop {
        match rustix::io::preadv(file, into, range.start) {
            Ok(0) => return Err(Error::FileShrank { at: range.start, end: range.end }),
            Ok(read) => return Ok(read),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::File(io::Error::from(e))),
        }
    }
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
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (count, bytes) = source.leading_memory(&mut slices);
            let rest: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(rest, b"headbodyend"[first as usize..], "{first}");
            assert_eq!((bytes, source.remaining), (11 - first, 11 - first));
            source.advance(bytes);
            assert!(source.piece().is_none(), "{first}");
        }
    }
}
