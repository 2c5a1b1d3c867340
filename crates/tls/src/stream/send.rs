//! Sends a response from several sources, on any path.
//!
//! User space: the parts are copied or read straight into the payload slots of up to [`RECORDS_PER_SEND`] records in
//! one buffer, sealed in place, and sent by one call. Kernel: one call sends parts in memory, or everything if it fits
//! one record. Longer files are sent by sendfile. Before that, a separate record takes the parts before the file and
//! the rest of its first page. Without TLS: as for the kernel, but without filling records. With TLS the first record
//! of a larger response is short: the peer cannot open a record before its last packet, and a full record is longer
//! than TCP's initial window (RFC 6928: 10 segments).

use std::fs::File;
use std::future::poll_fn;
use std::io::IoSlice;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_cork;
use sealion_ktls::{More, Operation};

use super::key_update::most_records;
use super::source::{Form, Record, SLICES, SLICES_OF_FRAMES, Source, Stage, TURN, Unread};
use super::{MOVING, Outgoing, Sender, Sending, TlsStream};
use crate::buffers::{RECORDS_PER_SEND, SendBuffer};
use crate::content::cold::{self, Pages, Wait};
use crate::content::{Part, Rest, Stop};
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT, Sealer};

impl TlsStream {
    /// Sends a complete response: [`Self::begin`], one [`Self::send`], [`Self::finish`]. A response that fits one
    /// record costs one record and one system call.
    ///
    /// The peer may stall for at most [`crate::Limits::stall`] at a time.
    ///
    /// # Errors
    /// Any [`Error`]; the stream is then unfinished. End it with [`Self::abort`].
    pub async fn respond(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        let mut source = Source::new(parts);
        poll_fn(|cx| self.poll_respond(cx, &mut source)).await
    }

    /// [`Self::respond`] for a caller that polls.
    ///
    /// # Errors
    /// As [`Self::respond`].
    #[inline]
    pub fn poll_respond(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        if !source.started {
            ready!(self.poll_begin(cx))?;
        }
        ready!(self.poll_send(cx, source))?;
        Poll::Ready(self.finish())
    }

    /// Whether a response has begun, and no send is under way: after [`Self::begin`], [`Self::pause`], or [`Self::thaw`] of such a stream.
    pub fn has_begun(&self) -> bool {
        self.sending == Sending::Responding
    }

    /// Stops a send that waits, between two records or within one. Returns the bytes of its parts that were sent, or are sealed and wait here for TCP. The response
    /// goes on with a [`Self::send`] of the bytes behind them, here or, after [`Self::freeze`], in another process.
    pub fn pause(&mut self, source: Source<'_>) -> u64 {
        if self.sending != Sending::Midway || !source.started {
            return 0;
        }
        if let Stage::Sealed { bytes } = source.stage {
            self.progressed(bytes);
        }
        self.sending = Sending::Responding;
        source.taken()
    }

    /// Why nothing can be sent: a read found that the connection is lost, or a response has not ended.
    pub(super) fn not_open(&self) -> Error {
        let lost = self.receiver.failure().filter(|_| self.sending == Sending::Closed);
        lost.unwrap_or(Error::Unfinished)
    }

    /// Begins a response: sends a key update that is due, and passes the rest of earlier writes to TCP. Until
    /// [`Self::finish`] the stream is unfinished and sends no `close_notify`.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if another response has begun, otherwise any [`Error`]. If a read has lost the connection,
    /// its error.
    pub async fn begin(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_begin(cx)).await
    }

    /// [`Self::begin`] for a caller that polls. If it is dropped, no response has begun.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.sending != Sending::Open {
            return Poll::Ready(Err(self.not_open()));
        }
        let mut begun = ready!(self.poll_answer_key_update(cx));
        // Bytes held back leave with the response.
        let held = self.outgoing.as_ref().is_some_and(|out| out.held);
        if begun.is_ok() && !held {
            // The rest of earlier writes.
            begun = ready!(self.poll_drain(cx));
        }
        self.sending = if begun.is_ok() { Sending::Responding } else { Sending::Unfinished };
        self.response_from = self.payload_sent;
        Poll::Ready(begun)
    }

    /// Sends the next parts of the response that [`Self::begin`] began. It returns when TCP or the kernel's record
    /// layer has all of them. Nothing is held back for a later send.
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
    ///         // For instance, a WINDOW_UPDATE: look at `stream.buffered()`.
    ///     }
    ///     stream.poll_send(cx, &mut source)
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// `source` holds the progress. Dropping it before it is sent makes the response impossible to finish: the stream
    /// accepts no other. Do not poll it again after it is sent.
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
            _ => return Poll::Ready(Err(self.not_open())),
        }
        let sent = ready!(match self.sender {
            Sender::User { .. } => self.poll_send_from_user(cx, source),
            Sender::Kernel(_) | Sender::Plain(_) => self.poll_send_unsealed(cx, source),
            Sender::Moving => unreachable!("{MOVING}"),
        });
        self.sending = if sent.is_ok() { Sending::Responding } else { Sending::Unfinished };
        Poll::Ready(sent)
    }

    /// Recovers from a send that failed because a file could not be read ([`Error::FileShrank`], [`Error::File`]), for
    /// a protocol with many responses in one connection. The next [`Self::send`] may send other data. `None`: the send
    /// failed for another reason.
    ///
    /// Only the caller knows whether the peer can be told about the missing data: that is impossible in the middle of a
    /// frame whose length was announced.
    pub fn resume<'a>(&mut self, failed: &Source<'a>) -> Option<Unread<'a>> {
        let unread = failed.unread().filter(|_| self.sending == Sending::Unfinished)?;
        self.sending = Sending::Responding;
        Some(unread)
    }

    /// Declares the response complete: the next one may begin, and [`Self::shutdown`] may send `close_notify`.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if no response has begun, or a send failed or was dropped.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.sending != Sending::Responding {
            return Err(Error::Unfinished);
        }
        self.sending = Sending::Open;
        self.small_window = false;
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
            if source.reader.rest.len == 0 {
                // A send that was paused may have left the end of a response.
                return self.poll_drain(cx);
            }
            ready!(source.reader.poll_fetched(cx))?;
            ready!(self.poll_answer_key_update(cx))?;
            ready!(self.poll_key_for(cx, 1))?;
            let before = source.reader.rest.len;
            let lead = match self.held_for(before) {
                Some(held) => held,
                None => {
                    ready!(self.poll_drain(cx))?;
                    0
                }
            };
            let most = self.batch(before);
            let first = match source.form {
                Form::Response if self.begins_short(source.form, before) => FIRST_RECORD,
                Form::Frames { first } if matches!(source.stage, Stage::New) => first,
                _ => MAX_PLAINTEXT,
            };
            let Sender::User { sealer, .. } = &mut self.sender else {
                unreachable!("a connection does not enter the kernel during a send");
            };
            match seal_batch(sealer, &mut source.reader.rest, most, Lengths { lead, first }, source.reader.wait)? {
                Batch::Sealed(mut outgoing) => {
                    if let Some(held) = self.outgoing.take() {
                        outgoing.buffer[..lead].copy_from_slice(&held.buffer[held.unsent]);
                        outgoing.unsent.start = 0;
                    }
                    self.outgoing = Some(outgoing);
                    source.stage = Stage::Sealed { bytes: before - source.reader.rest.len };
                    source.reader.wait = Wait::No;
                }
                Batch::Stopped(stop) => source.reader.stopped(stop)?,
            }
        }
    }

    /// Sends data that this process does not seal: the kernel seals it, or it has no TLS.
    fn poll_send_unsealed(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        let sent = self.poll_send_parts_unsealed(cx, source);
        if std::mem::take(&mut source.corked) {
            self.cork(false);
        }
        sent
    }

    /// Makes TCP hold back partial segments, or send them (tcp(7), TCP_CORK). A failure only costs packets.
    fn cork(&self, corked: bool) {
        let _ = set_tcp_cork(self.socket(), corked);
    }

    fn poll_send_parts_unsealed(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        if matches!(source.stage, Stage::New) {
            source.stage = self.first_stage(source.form, &source.reader.rest);
        }
        if matches!(source.stage, Stage::Record(_)) {
            ready!(self.poll_send_record(cx, source))?;
            source.stage = Stage::Next;
            source.reserved = false;
            source.reader.wait = Wait::No;
        }
        loop {
            ready!(source.reader.poll_fetched(cx))?;
            let Some(piece) = source.reader.rest.piece() else {
                return Poll::Ready(Ok(()));
            };
            let sent = match piece {
                Part::Bytes(_) => {
                    if source.form != Form::Response && !source.reserved && !self.look_ahead(source)? {
                        continue;
                    }
                    // Each sendfile ends with a push, so that each frame would have separate packets. Nothing is held
                    // back while this waits. MEASURED: h2load at 1 MB, `sealion-lab instructions`, Linux 6.1,
                    // 2026-11-22: 10.0 M instructions of the whole guest without, 9.5 M with; at 64 kB 660 k and 634 k.
                    if source.form != Form::Response && !source.corked && source.reader.rest.len > MAX_PLAINTEXT as u64
                    {
                        source.corked = true;
                        self.cork(true);
                    }
                    let (mut few, mut many);
                    // Filling an empty slot for each part of a batch costs a frame more than everything else here.
                    let is_short = source.form == Form::Response || source.reader.rest.has_file_second();
                    let (slices, (count, bytes)): (&[IoSlice<'_>], _) = match is_short {
                        true => {
                            few = [IoSlice::new(&[]); SLICES];
                            let leading = source.reader.rest.leading_memory(&mut few);
                            (&few, leading)
                        }
                        false => {
                            many = [IoSlice::new(&[]); SLICES_OF_FRAMES];
                            let leading = source.reader.rest.leading_frames(&mut many);
                            (&many, leading)
                        }
                    };
                    // Bytes before a file get a separate record: the file's pages then fill whole records, and no
                    // cipher block spans two pages.
                    ready!(self.poll_reserve(cx, &mut source.reserved, most_records(bytes)))?;
                    // A frame is one record, though, and without records the packets should be full.
                    let is_joined = match self.sender {
                        Sender::Plain(_) => bytes < source.reader.rest.len,
                        _ => source.form != Form::Response && source.reader.rest.is_frame(count, bytes),
                    };
                    let more = if is_joined { More::Yes } else { More::No };
                    ready!(self.poll_write_slices(cx, &slices[..count], more))? as u64
                }
                Part::File { file, range } => {
                    let left = range.end - range.start;
                    // A call that completes closes its record: let the call end where a full record or the file ends.
                    let count = if left <= 2 * TURN { left } else { TURN };
                    let end = range.start + count;
                    if !source.warm_up(file, range.start..end)? {
                        continue;
                    }
                    ready!(self.poll_reserve(cx, &mut source.reserved, most_records(count)))?;
                    let sent = ready!(self.poll_sendfile(cx, file, range, count));
                    if matches!(sent, Err(Error::FileShrank { .. } | Error::File(_))) {
                        source.reader.unreadable = Some(file);
                    }
                    sent?
                }
            };
            source.reserved = false;
            source.reader.wait = Wait::No;
            source.reader.rest.advance(sent);
            self.progressed(sent);
            ready!(source.poll_turn(cx, sent));
        }
    }

    /// Before the head of a frame announces its length: whether the frames can be sent at once. `false`: their pages
    /// have to come from a disk first.
    fn look_ahead(&self, source: &mut Source<'_>) -> Result<bool, Error> {
        let Some((file, range)) = source.reader.rest.next_stretch() else { return Ok(true) };
        if source.warm.is_some_and(|(warm, to)| std::ptr::eq(warm, file) && range.end <= to) {
            return Ok(true);
        }
        let asked = range.start..source.reader.rest.end_of_run(file, range.start, TURN).max(range.end);
        let is_gone = match cold::look(file, &asked) {
            Pages::Cold if source.reader.wait == Wait::No => {
                source.reader.fetch(file, asked)?;
                return Ok(false);
            }
            Pages::Unknown => file.metadata().is_ok_and(|metadata| metadata.len() < asked.end),
            pages => pages == Pages::Gone,
        };
        if is_gone {
            source.reader.unreadable = Some(file);
            return Err(Error::FileShrank { at: asked.start, end: asked.end });
        }
        source.warm = Some((file, asked.end));
        Ok(true)
    }

    /// Whether the next record, of `len` remaining bytes, begins a response that should begin with a short record.
    ///
    /// For most responses of several records a short first record adds no record, because their head precedes full
    /// records of the body. While the window may be small, the extra record is worth it for a response that almost
    /// fills the window.
    fn begins_short(&self, form: Form, len: u64) -> bool {
        form == Form::Response
            && self.session.is_some()
            && self.payload_sent == self.response_from
            && (len > MAX_PLAINTEXT as u64 || (self.small_window && len > NEAR_INITIAL_WINDOW))
    }

    /// The first step of a response: all of it in one record, a short record, or the same as [`Stage::Next`].
    fn first_stage(&self, form: Form, rest: &Rest<'_>) -> Stage {
        let in_memory = rest.is_in_memory();
        if !self.begins_short(form, rest.len) {
            let one_record = rest.len <= MAX_PLAINTEXT as u64 && !in_memory;
            return if one_record { Stage::Record(Record::new(MAX_PLAINTEXT)) } else { Stage::Next };
        }
        match rest.until_page_of_file() {
            // The bytes before the file have a separate record anyway.
            Some(bytes) if bytes <= MAX_PLAINTEXT as u64 => Stage::Record(Record::new(bytes as usize)),
            // This costs one more system call.
            None if self.small_window => Stage::Record(Record::new(FIRST_RECORD)),
            _ => Stage::Next,
        }
    }

    /// Sends one record, or as many bytes without TLS, by one system call.
    fn poll_send_record(&mut self, cx: &mut Context<'_>, source: &mut Source<'_>) -> Poll<Result<(), Error>> {
        if let Stage::Record(record) = &mut source.stage {
            ready!(record.poll_fill(cx, &mut source.reader))?;
        }
        loop {
            ready!(self.poll_reserve(cx, &mut source.reserved, 1))?;
            let Stage::Record(record) = &mut source.stage else {
                unreachable!("only called in this stage");
            };
            let sent = ready!(self.poll_write_bytes(cx, record.unsent(), More::No))?;
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
        let sent = ready!(self.poll_write_file(cx, file, range.start, count as usize));
        Poll::Ready(match sent {
            Ok(0) => Err(Error::FileShrank { at: range.start, end: range.end }),
            Ok(sent) => Ok(sent as u64),
            Err(Error::Kernel(e)) if e.operation() == Operation::SendFile && is_of_the_file(e.errno()) => {
                Err(Error::File(e.into()))
            }
            Err(Error::Io(e)) if matches!(self.sender, Sender::Plain(_)) && is_of_the_file(e.raw_os_error()) => {
                Err(Error::File(e))
            }
            Err(error) => Err(error),
        })
    }

    /// Ensures, once for each kernel operation, that the key may seal the operation's records. If the peer requests an
    /// update while the operation waits, the update goes first.
    pub(super) fn poll_reserve(
        &mut self,
        cx: &mut Context<'_>,
        reserved: &mut bool,
        records: u64,
    ) -> Poll<Result<(), Error>> {
        if self.is_key_update_due() && self.can_update_keys() {
            ready!(self.poll_update_sending_key(cx))?;
            *reserved = false;
        }
        if !*reserved {
            ready!(self.poll_key_for(cx, records))?;
            *reserved = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Seals `bytes`, or the beginning of it, into [`Self::outgoing`]; for the poll interface.
    pub(super) fn seal_bytes(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let most = self.batch(bytes.len() as u64);
        let Sender::User { sealer, .. } = &mut self.sender else {
            unreachable!("only called on the user path");
        };
        let parts = [Part::Bytes(bytes)];
        let mut rest = Rest::new(&parts);
        match seal_batch(sealer, &mut rest, most, Lengths { lead: 0, first: MAX_PLAINTEXT }, Wait::Yes)? {
            Batch::Sealed(outgoing) => self.outgoing = Some(outgoing),
            Batch::Stopped(_) => unreachable!("memory is never cold"),
        }
        Ok(bytes.len() - rest.len as usize)
    }
}

/// The result of sealing a batch of records.
enum Batch<'a> {
    Sealed(Outgoing),
    /// Nothing was taken from the rest.
    Stopped(Stop<'a>),
}

/// Lengths at the beginning of a batch.
#[derive(Clone, Copy)]
struct Lengths {
    /// Bytes left free for a record that is already sealed.
    lead: usize,
    /// The maximum plaintext of the first record.
    first: usize,
}

/// Fills and seals the wanted number of records, at most `most` full ones, as far as the key allows.
fn seal_batch<'a>(
    sealer: &mut Sealer,
    rest: &mut Rest<'a>,
    most: usize,
    Lengths { lead, first }: Lengths,
    wait: Wait,
) -> Result<Batch<'a>, Error> {
    let records = sealer.records_left().min(most as u64);
    // A short record may be one more than the key allows.
    let first = if sealer.records_left() > most as u64 { first } else { MAX_PLAINTEXT };
    // Unless the batch is the last, its last record is full.
    let full = records * MAX_PLAINTEXT as u64;
    let payload = if rest.len <= full { rest.len } else { full - (MAX_PLAINTEXT - first) as u64 } as usize;
    let first = first.min(payload);
    let records = usize::from(payload > 0) + (payload - first).div_ceil(MAX_PLAINTEXT);
    let prefix = sealer.prefix_len();
    let overhead = sealer.sealed_len(0);
    let len = payload + records * overhead;
    let first = (first + overhead).min(len);

    let mut buffer = SendBuffer::take(lead + len);
    let mut filled = rest.clone();
    // Most responses are short: the slots of a whole batch would cost them a hundred instructions.
    let stopped = match records {
        1 => fill_slots::<1>(&mut filled, [&mut buffer[lead..lead + len]].into_iter(), prefix, overhead, wait),
        0..=FEW => {
            let records = records_in(&mut buffer[lead..lead + len], first, overhead);
            fill_slots::<FEW>(&mut filled, records, prefix, overhead, wait)
        }
        _ => {
            let records = records_in(&mut buffer[lead..lead + len], first, overhead);
            fill_slots::<MAX_RECORDS>(&mut filled, records, prefix, overhead, wait)
        }
    };
    if let Err(stop) = stopped {
        return Ok(Batch::Stopped(stop));
    }
    *rest = filled;
    for record in records_in(&mut buffer[lead..lead + len], first, overhead) {
        sealer.seal(ContentType::ApplicationData, record)?;
    }
    Ok(Batch::Sealed(Outgoing { buffer, unsent: lead..lead + len, held: false }))
}

/// The records of a batch: one of `first` bytes, then full ones, then the rest.
fn records_in(batch: &mut [u8], first: usize, overhead: usize) -> impl Iterator<Item = &mut [u8]> {
    let (first, others) = batch.split_at_mut(first);
    let first = (!first.is_empty()).then_some(first);
    first.into_iter().chain(others.chunks_mut(MAX_PLAINTEXT + overhead))
}

/// The number of records of a batch that needs few slots.
const FEW: usize = 5;

/// The maximum number of records of a batch: full ones and a short one.
const MAX_RECORDS: usize = RECORDS_PER_SEND + 1;

/// The plaintext of the first record of a response longer than a record: three packets instead of twelve. MEASURED:
/// docs/networks.md.
pub const FIRST_RECORD: usize = 4096;

/// A response longer than this begins with a short record while the window is small. Ten segments of 1,200 bytes, less
/// than the initial window.
const NEAR_INITIAL_WINDOW: u64 = 12_000;

/// Fills the payload of up to `N` records. Each has `overhead` bytes around the payload, `prefix` of them before it.
fn fill_slots<'a, 'b, const N: usize>(
    rest: &mut Rest<'a>,
    records: impl Iterator<Item = &'b mut [u8]>,
    prefix: usize,
    overhead: usize,
    wait: Wait,
) -> Result<(), Stop<'a>> {
    let mut slots: [&'b mut [u8]; N] = std::array::from_fn(|_| &mut [][..]);
    for (slot, record) in slots.iter_mut().zip(records) {
        let end = prefix + record.len() - overhead;
        *slot = &mut record[prefix..end];
    }
    rest.fill(slots, wait)
}

/// Whether `sendfile` failed because of its input: the disk, or a file that cannot be sent.
fn is_of_the_file(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [Errno::IO, Errno::INVAL, Errno::ISDIR].contains(&Errno::from_raw_os_error(errno)))
}
