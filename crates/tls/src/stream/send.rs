//! Sending a response that lies in several places, on either path.
//!
//! User space: the parts are copied and read straight into the payload slots of up to
//! [`RECORDS_PER_SEND`] records in one buffer, sealed in place and sent by one call.
//! Kernel: what lies in memory is sent by one call, and so is what fits one record; longer files go by sendfile, after
//! a record of their own for what comes before them.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use sealion_ktls::{More, Operation};
use tokio::task::{JoinHandle, yield_now};

use super::cold::{self, Read, Wait};
use super::key_update::most_records;
use super::{MOVING, Outgoing, Sender, Sending, TlsStream};
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
    /// Sends a response that is known whole: [`Self::begin`], one [`Self::send`], [`Self::finish`]. A response that fits
    /// one record is one record and one system call.
    ///
    /// The peer may stall for at most [`crate::Limits::stall`] at a time.
    ///
    /// # Errors
    /// Any [`Error`]; the stream is then unfinished. End it with [`Self::abort`].
    pub async fn respond(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        let mut source = Source::new(parts);
        poll_fn(|cx| {
            if !source.started {
                ready!(self.poll_begin(cx))?;
            }
            ready!(self.poll_send(cx, &mut source))?;
            Poll::Ready(self.finish())
        })
        .await
    }

    /// Begins a response: answers a key update that is due and gives TCP what is left of earlier writes. From here to
    /// [`Self::finish`] the stream is unfinished: it sends no `close_notify`.
    ///
    /// # Errors
    /// [`Error::Unfinished`] when another response has begun, otherwise any [`Error`].
    pub async fn begin(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_begin(cx)).await
    }

    /// [`Self::begin`] for a caller that polls. A begin that is dropped has begun nothing.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.sending != Sending::Open {
            return Poll::Ready(Err(Error::Unfinished));
        }
        ready!(self.poll_answer_key_update(cx))?;
        ready!(self.poll_drain(cx))?;
        self.sending = Sending::Responding;
        Poll::Ready(Ok(()))
    }

    /// Sends the next parts of the response that [`Self::begin`] began, and returns when TCP, or the kernel's record
    /// layer, has all of them. Nothing is held back for a later send.
    ///
    /// # Errors
    /// Any [`Error`]; the response can then not be finished. End the stream with [`Self::abort`].
    pub async fn send(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        let mut source = Source::new(parts);
        poll_fn(|cx| self.poll_send(cx, &mut source)).await
    }

    /// [`Self::send`] for a caller that polls, so that one task can receive while TCP is full:
    ///
    /// ```no_run
    /// # use std::future::poll_fn;
    /// # use std::task::Poll;
    /// # use sealion_tls::{Error, Part, Source, TlsStream};
    /// # async fn example(stream: &mut TlsStream, parts: &[Part<'_>]) -> Result<(), Error> {
    /// let mut source = Source::new(parts);
    /// poll_fn(|cx| {
    ///     while let Poll::Ready(came) = stream.poll_read_more(cx) {
    ///         if came? == 0 {
    ///             break;
    ///         }
    ///         // A WINDOW_UPDATE, say: look at `stream.buffered()`.
    ///     }
    ///     stream.poll_send(cx, &mut source)
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// The progress is in `source`. A source that is dropped before it is sent leaves the response unfinishable: the
    /// stream accepts no other. One that is sent must not be polled again.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn poll_send(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        match self.sending {
            Sending::Responding if !source.started => {
                self.sending = Sending::Midway;
                source.started = true;
            }
            Sending::Midway if source.started => {}
            _ => return Poll::Ready(Err(Error::Unfinished)),
        }
        let sent = ready!(match self.sender {
            Sender::User { .. } => self.poll_send_from_user(cx, source),
            Sender::Kernel(_) => self.poll_send_from_kernel(cx, source),
            Sender::Moving => unreachable!("{MOVING}"),
        });
        self.sending = if sent.is_ok() { Sending::Responding } else { Sending::Unfinished };
        Poll::Ready(sent)
    }

    /// Declares the response complete: the next one may begin, and [`Self::shutdown`] may send `close_notify`.
    ///
    /// # Errors
    /// [`Error::Unfinished`] when no response has begun, or a send failed or was dropped.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.sending != Sending::Responding {
            return Err(Error::Unfinished);
        }
        self.sending = Sending::Open;
        Ok(())
    }

    fn poll_send_from_user(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        loop {
            if let Stage::Sealed { bytes, batch } = source.stage {
                ready!(self.poll_drain(cx))?;
                source.stage = Stage::Next;
                if self.batch == batch {
                    self.batch = (2 * batch).min(RECORDS_PER_SEND);
                }
                self.progressed(bytes);
                ready!(source.poll_turn(cx, bytes));
            }
            if source.rest.len == 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(source.poll_fetched(cx));
            ready!(self.poll_answer_key_update(cx))?;
            ready!(self.poll_key_for(cx, 1))?;
            ready!(self.poll_drain(cx))?;
            let Sender::User { sealer, .. } = &mut self.sender else {
                unreachable!("a connection does not enter the kernel during a send");
            };
            let before = source.rest.len;
            match seal_batch(sealer, &mut source.rest, self.batch, source.wait)? {
                Batch::Sealed(outgoing) => {
                    self.outgoing = Some(outgoing);
                    source.stage = Stage::Sealed { bytes: before - source.rest.len, batch: self.batch };
                    source.wait = Wait::No;
                }
                Batch::Cold { file, range } => source.fetch = Some(cold::fetch(file, range)?),
            }
        }
    }

    fn poll_send_from_kernel(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        if matches!(source.stage, Stage::New) {
            let one_record = source.rest.len <= MAX_PLAINTEXT as u64 && !source.rest.is_in_memory();
            source.stage = if one_record { Stage::Record(Record::new()) } else { Stage::Next };
        }
        if matches!(source.stage, Stage::Record(_)) {
            return self.poll_send_record(cx, source);
        }
        loop {
            ready!(source.poll_fetched(cx));
            let Some(piece) = source.rest.piece() else {
                return Poll::Ready(Ok(()));
            };
            let sent = match piece {
                Part::Bytes(_) => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let (count, bytes) = source.rest.leading_memory(&mut slices);
                    // What comes before a file gets a record of its own: the file's pages then fill whole records, and no
                    // block of the cipher lies across two pages.
                    ready!(self.poll_reserve(cx, source, most_records(bytes)))?;
                    ready!(self.poll_kernel(cx, |tx| tx.send_vectored(&slices[..count], More::No)))? as u64
                }
                Part::File { file, range } => {
                    let left = range.end - range.start;
                    // A call that is satisfied closes its record: let it end where a full one does, or the file.
                    let count = if left <= 2 * TURN { left } else { TURN };
                    let asked = range.start..range.start + count;
                    if !source.reserved && source.wait == Wait::No && cold::is_cold(file, &asked) {
                        source.fetch = Some(cold::fetch(file, asked)?);
                        continue;
                    }
                    ready!(self.poll_reserve(cx, source, most_records(count)))?;
                    ready!(self.poll_sendfile(cx, file, range, count))?
                }
            };
            source.reserved = false;
            source.wait = Wait::No;
            source.rest.advance(sent);
            self.progressed(sent);
            ready!(source.poll_turn(cx, sent));
        }
    }

    /// One record, one system call.
    fn poll_send_record(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        loop {
            ready!(source.poll_fetched(cx));
            let Stage::Record(record) = &mut source.stage else {
                unreachable!("only called in this stage");
            };
            match record.fill(&mut source.rest, source.wait)? {
                Some((file, range)) => source.fetch = Some(cold::fetch(file, range)?),
                None => break,
            }
        }
        loop {
            ready!(self.poll_reserve(cx, source, 1))?;
            let Stage::Record(record) = &mut source.stage else {
                unreachable!("only called in this stage");
            };
            let sent = ready!(self.poll_kernel(cx, |tx| tx.send(record.unsent(), More::No)))?;
            record.sent += sent;
            self.progressed(sent as u64);
            if record.unsent().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// `count` bytes from the start of `range`, or as many as TCP takes now.
    fn poll_sendfile(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        range: Range<u64>,
        count: u64,
    ) -> Poll<Result<u64, Error>> {
        let mut offset = range.start;
        let sent = ready!(self.poll_kernel(cx, |tx| tx.send_file(file, &mut offset, count as usize)));
        Poll::Ready(match sent {
            Ok(0) => Err(Error::FileShrank { at: range.start, end: range.end }),
            Ok(sent) => Ok(sent as u64),
            Err(Error::Kernel(e)) if e.operation() == Operation::SendFile && is_of_the_file(e.errno()) => {
                Err(Error::File(e.into()))
            }
            Err(error) => Err(error),
        })
    }

    /// Makes sure, once for each operation of the kernel, that its key may seal what the operation sends. An update that
    /// the peer asks for while the operation waits is answered before it.
    fn poll_reserve(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>, records: u64) -> Poll<Result<(), Error>> {
        if self.key_update_due && self.can_update_keys() {
            ready!(self.poll_update_sending_key(cx))?;
            source.reserved = false;
        }
        if !source.reserved {
            ready!(self.poll_key_for(cx, records))?;
            source.reserved = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Seals `bytes`, or the beginning of them, into [`Self::outgoing`]; for the poll interface.
    pub(super) fn seal_bytes(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let Sender::User { sealer, .. } = &mut self.sender else {
            unreachable!("only called on the user path");
        };
        let parts = [Part::Bytes(bytes)];
        let mut rest = Rest::new(&parts);
        match seal_batch(sealer, &mut rest, self.batch, Wait::Yes)? {
            Batch::Sealed(outgoing) => self.outgoing = Some(outgoing),
            Batch::Cold { .. } => unreachable!("memory is never cold"),
        }
        Ok(bytes.len() - rest.len as usize)
    }
}

/// Parts on their way through [`TlsStream::poll_send`], and how far they have come.
///
/// While it waits it may hold a buffer of one record, or a read of the disk that another thread makes.
pub struct Source<'a> {
    rest: Rest<'a>,
    started: bool,
    stage: Stage,
    /// Bytes since other connections last had a turn.
    turn: u64,
    /// Whether the next read may wait for the disk.
    wait: Wait,
    /// Brings pages into memory; the next step waits for it.
    fetch: Option<JoinHandle<()>>,
    /// The records of the kernel's next operation are counted against its key.
    reserved: bool,
}

enum Stage {
    New,
    /// All that was taken from the rest is with TCP or the kernel.
    Next,
    /// User space has sealed so many bytes, in a batch of that many records at most, which TCP does not have yet.
    Sealed {
        bytes: u64,
        batch: usize,
    },
    /// The kernel gets everything as one record, which is put together here.
    Record(Record),
}

/// The plaintext of a record, some of it sent.
struct Record {
    buffer: SendBuffer,
    len: usize,
    sent: usize,
}

impl<'a> Source<'a> {
    /// All of `parts`, from their beginning.
    pub fn new(parts: &'a [Part<'a>]) -> Self {
        Self {
            rest: Rest::new(parts),
            started: false,
            stage: Stage::New,
            turn: 0,
            wait: Wait::No,
            fetch: None,
            reserved: false,
        }
    }

    /// Waits for pages that are being fetched. What is read next is there, or may be waited for.
    fn poll_fetched(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(fetch) = &mut self.fetch {
            // It neither panics nor is it cancelled but with the runtime.
            let _ = ready!(Pin::new(fetch).poll(cx));
            self.fetch = None;
            self.wait = Wait::Yes;
        }
        Poll::Ready(())
    }

    /// Counts what was sent, and pauses for the other connections of this thread when a turn is over.
    fn poll_turn(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        self.turn += bytes;
        if self.turn < TURN || self.rest.len == 0 {
            return Poll::Ready(());
        }
        self.turn = 0;
        // Its first poll arranges the wake-up, after the sockets have been asked; a plain `wake` would come before that.
        pin!(yield_now()).poll(cx)
    }
}

impl Record {
    fn new() -> Self {
        Self { buffer: SendBuffer::take(), len: 0, sent: 0 }
    }

    /// Takes all of `rest`, which fits. Returns what has to be fetched from a disk before that can go on.
    fn fill<'a>(&mut self, rest: &mut Rest<'a>, wait: Wait) -> Result<Option<(&'a File, Range<u64>)>, Error> {
        while let Some(piece) = rest.piece() {
            let taken = match piece {
                Part::Bytes(bytes) => {
                    self.buffer[self.len..][..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Part::File { file, range } => {
                    let wanted = (range.end - range.start) as usize;
                    let mut slot = [IoSliceMut::new(&mut self.buffer[self.len..][..wanted])];
                    match cold::read(file, &mut slot, &range, wait)? {
                        Read::Bytes(read) => read,
                        Read::Cold => return Ok(Some((file, range))),
                    }
                }
            };
            rest.advance(taken as u64);
            self.len += taken;
        }
        Ok(None)
    }

    fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.len]
    }
}

/// What became of a batch of records.
enum Batch<'a> {
    Sealed(Outgoing),
    /// Nothing was taken from the rest: these bytes have to come from a disk first.
    Cold {
        file: &'a File,
        range: Range<u64>,
    },
}

/// Fills and seals as many records as are wanted, at `most`, and the key allows.
fn seal_batch<'a>(sealer: &mut Sealer, rest: &mut Rest<'a>, most: usize, wait: Wait) -> Result<Batch<'a>, Error> {
    let records = sealer.records_left().min(most as u64);
    let payload = rest.len.min(records * MAX_PLAINTEXT as u64) as usize;
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
    let mut filled = rest.clone();
    if let Some((file, range)) = filled.fill(&mut slots[..records], wait)? {
        return Ok(Batch::Cold { file, range });
    }
    *rest = filled;
    for record in buffer[..len].chunks_mut(full) {
        sealer.seal(ContentType::ApplicationData, record)?;
    }
    Ok(Batch::Sealed(Outgoing { buffer, unsent: 0..len }))
}

/// What of the parts nobody has taken yet.
#[derive(Clone)]
struct Rest<'a> {
    parts: &'a [Part<'a>],
    /// How much of the first part is done.
    done: u64,
    /// Bytes left in all parts.
    len: u64,
}

impl<'a> Rest<'a> {
    fn new(parts: &'a [Part<'a>]) -> Self {
        let len = parts.iter().map(Part::len).sum();
        let mut rest = Self { parts, done: 0, len };
        rest.advance(0);
        rest
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
        self.len -= bytes;
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
