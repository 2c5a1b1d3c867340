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
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use sealion_ktls::{More, Operation};

use super::cold::{self, Wait};
use super::key_update::most_records;
use super::source::{Part, Record, Rest, SLICES, Source, Stage, TURN};
use super::{MOVING, Outgoing, Sender, Sending, TlsStream};
use crate::buffers::{RECORDS_PER_SEND, SendBuffer};
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT, Sealer};

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
        let mut begun = ready!(self.poll_answer_key_update(cx));
        // What is held back leaves along with the response.
        let held = self.outgoing.as_ref().is_some_and(|out| out.held);
        if begun.is_ok() && !held {
            // What earlier writes left.
            begun = ready!(self.poll_drain(cx));
        }
        self.sending = if begun.is_ok() { Sending::Responding } else { Sending::Unfinished };
        Poll::Ready(begun)
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
            if let Stage::Sealed { bytes } = source.stage {
                ready!(self.poll_drain(cx))?;
                source.stage = Stage::Next;
                self.progressed(bytes);
                ready!(source.poll_turn(cx, bytes));
            }
            if source.rest.len == 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(source.poll_fetched(cx));
            ready!(self.poll_answer_key_update(cx))?;
            ready!(self.poll_key_for(cx, 1))?;
            let before = source.rest.len;
            let lead = match self.held_for(before) {
                Some(held) => held,
                None => {
                    ready!(self.poll_drain(cx))?;
                    0
                }
            };
            let most = self.batch(before);
            let Sender::User { sealer, .. } = &mut self.sender else {
                unreachable!("a connection does not enter the kernel during a send");
            };
            match seal_batch(sealer, &mut source.rest, most, source.wait, lead)? {
                Batch::Sealed(mut outgoing) => {
                    if let Some(held) = self.outgoing.take() {
                        outgoing.buffer[..lead].copy_from_slice(&held.buffer[held.unsent]);
                        outgoing.unsent.start = 0;
                    }
                    self.outgoing = Some(outgoing);
                    source.stage = Stage::Sealed { bytes: before - source.rest.len };
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
        let most = self.batch(bytes.len() as u64);
        let Sender::User { sealer, .. } = &mut self.sender else {
            unreachable!("only called on the user path");
        };
        let parts = [Part::Bytes(bytes)];
        let mut rest = Rest::new(&parts);
        match seal_batch(sealer, &mut rest, most, Wait::Yes, 0)? {
            Batch::Sealed(outgoing) => self.outgoing = Some(outgoing),
            Batch::Cold { .. } => unreachable!("memory is never cold"),
        }
        Ok(bytes.len() - rest.len as usize)
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

/// Fills and seals as many records as are wanted, at `most`, and the key allows, behind `lead` free bytes.
fn seal_batch<'a>(
    sealer: &mut Sealer,
    rest: &mut Rest<'a>,
    most: usize,
    wait: Wait,
    lead: usize,
) -> Result<Batch<'a>, Error> {
    let records = sealer.records_left().min(most as u64);
    let payload = rest.len.min(records * MAX_PLAINTEXT as u64) as usize;
    let records = payload.div_ceil(MAX_PLAINTEXT);
    let prefix = sealer.prefix_len();
    let overhead = sealer.sealed_len(0);
    let len = payload + records * overhead;
    let full = MAX_PLAINTEXT + overhead;

    let mut buffer = SendBuffer::take(lead + len);
    let mut filled = rest.clone();
    // Most responses are short: the slots of a whole batch would cost them a hundred instructions.
    let cold = match records {
        0..=FEW => fill_slots::<FEW>(&mut filled, &mut buffer[lead..lead + len], prefix, overhead, wait)?,
        _ => fill_slots::<RECORDS_PER_SEND>(&mut filled, &mut buffer[lead..lead + len], prefix, overhead, wait)?,
    };
    if let Some((file, range)) = cold {
        return Ok(Batch::Cold { file, range });
    }
    *rest = filled;
    for record in buffer[lead..lead + len].chunks_mut(full) {
        sealer.seal(ContentType::ApplicationData, record)?;
    }
    Ok(Batch::Sealed(Outgoing { buffer, unsent: lead..lead + len, held: false }))
}

/// Records of a batch that needs few slots.
const FEW: usize = 4;

/// Fills the payload of up to `N` records in `records`, which have `overhead` bytes around it, `prefix` of them before it.
fn fill_slots<'a, const N: usize>(
    rest: &mut Rest<'a>,
    records: &mut [u8],
    prefix: usize,
    overhead: usize,
    wait: Wait,
) -> Result<Option<(&'a File, Range<u64>)>, Error> {
    let mut slots: [IoSliceMut<'_>; N] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let mut count = 0;
    for (slot, record) in slots.iter_mut().zip(records.chunks_mut(MAX_PLAINTEXT + overhead)) {
        let end = prefix + record.len() - overhead;
        *slot = IoSliceMut::new(&mut record[prefix..end]);
        count += 1;
    }
    rest.fill(&mut slots[..count], wait)
}

/// Whether `sendfile` failed because of its input: the disk, or a file that cannot be sent.
fn is_of_the_file(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [Errno::IO, Errno::INVAL, Errno::ISDIR].contains(&Errno::from_raw_os_error(errno)))
}
