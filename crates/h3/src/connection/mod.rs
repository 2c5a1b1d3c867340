//! A connection: bytes of streams in, events out; responses in, bytes for streams out.

mod control;
mod receive;
mod send;

use std::collections::VecDeque;

use sealion_http::multiplexed::{By, Priority};

use crate::abuse::Abuse;
use crate::error::{ConnectionError, ErrorCode};
use crate::event::{Command, Event};
use crate::frame::write_go_away;
use crate::resets::{Resets, place};
use crate::schedule::prioritize;
use crate::settings::{Limits, PeerSettings};
use crate::stream::{Receiving, RequestStream, Sending, State, StreamId};

use control::UniStream;

/// The server's side of an HTTP/3 connection, without I/O and without a clock.
///
/// Invariants, after which the tests are named: a request keeps its slot until the driver releases it; input of a
/// client costs memory only within [`Limits`]; an incomplete response never ends as if it were complete.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    /// `None` until the client's SETTINGS arrive.
    peer: Option<PeerSettings>,
    /// Sorted by number.
    requests: Vec<RequestStream>,
    /// The client's unidirectional streams.
    uni_streams: Vec<UniStream>,
    /// One more than the highest request stream that was opened, in steps of 4.
    next_request: u64,
    /// Priorities of streams that are not open yet.
    early_priorities: Vec<(u64, Priority)>,
    /// The lowest push ID of a GOAWAY, and the highest of MAX_PUSH_ID.
    go_away: Option<u64>,
    max_push: Option<u64>,
    /// Bytes for the server's control stream.
    control: Vec<u8>,
    commands: VecDeque<Command>,
    /// Bytes of incomplete field sections of all streams.
    partial_heads: usize,
    abuse: Abuse,
    drain: Drain,
    failed: Option<ConnectionError>,
    /// Counts since the last [`Connection::take_resets`].
    resets: Option<Box<Resets>>,
}

/// The end of a connection by two GOAWAY frames (RFC 9114 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// The client was told, and may have opened more streams in the meantime.
    Announced,
    /// Streams from this one on are not processed.
    Final(u64),
}

/// The result of opening a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// Read it.
    Accepted,
    /// Too many requests are open, or the connection drains. It was reset by [commands](Connection::next_command).
    Refused,
}

/// The number of streams for which an idle connection keeps memory.
const KEPT_STREAMS: usize = 4;

/// The bytes that incomplete field sections of all streams may occupy, as a multiple of [`Limits::head`].
const PARTIAL_HEADS: usize = 4;

impl Connection {
    /// A connection whose TLS handshake has just ended. The bytes of the server's control stream are queued.
    pub fn new(limits: Limits) -> Self {
        let mut control = Vec::with_capacity(16);
        control.push(control::stream_kind::CONTROL as u8);
        limits.write_settings(&mut control);
        Connection {
            peer: None,
            requests: Vec::new(),
            uni_streams: Vec::new(),
            next_request: 0,
            early_priorities: Vec::new(),
            go_away: None,
            max_push: None,
            control,
            commands: VecDeque::new(),
            partial_heads: 0,
            abuse: Abuse::new(&limits),
            drain: Drain::No,
            failed: None,
            resets: None,
            limits,
        }
    }

    /// Whether [`write_control`](Self::write_control) has something to write.
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Appends the bytes that are queued for the server's control stream: its type, SETTINGS, GOAWAY. The driver opens
    /// one unidirectional stream for them, and never ends it. Streams of QPACK are not needed (RFC 9204 §4.2).
    pub fn write_control(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.control);
        self.control.clear();
    }

    /// The next order for the transport.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The client's settings. `None`: they have not arrived.
    pub fn peer_settings(&self) -> Option<&PeerSettings> {
        self.peer.as_ref()
    }

    /// Whether no request has a slot.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The number of requests that have a slot, including those whose head is incomplete.
    pub fn open_streams(&self) -> usize {
        self.requests.len()
    }

    /// The streams whose request is incomplete: the driver sets a deadline for each.
    pub fn awaiting_heads(&self) -> impl Iterator<Item = StreamId> {
        self.requests.iter().filter(|stream| !stream.has_request()).map(|stream| stream.id)
    }

    /// Frees memory that an idle connection does not need. Call it before waiting for a new request.
    pub fn shrink(&mut self) {
        if self.requests.is_empty() {
            self.requests = Vec::new();
        }
        self.requests.shrink_to(KEPT_STREAMS);
        self.early_priorities.shrink_to_fit();
        if self.control.is_empty() {
            self.control = Vec::new();
        }
        if self.commands.is_empty() {
            self.commands = VecDeque::new();
        }
    }

    /// The memory of the connection in bytes, including itself.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.requests.capacity() * size_of::<RequestStream>()
            + self.requests.iter().map(|stream| stream.reader.block.capacity()).sum::<usize>()
            + self.uni_streams.iter().map(UniStream::memory).sum::<usize>()
            + self.control.capacity()
            + self.commands.capacity() * size_of::<Command>()
            + self.resets.as_ref().map_or(0, |_| size_of::<Resets>())
    }

    /// Tells the client to send no more requests, and continues with those that it sends before it has read that (RFC
    /// 9114 §5.2). Call [`drain_now`](Self::drain_now) about a round trip later.
    pub fn drain(&mut self) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            write_go_away(&mut self.control, HIGHEST_REQUEST);
        }
    }

    /// Refuses all streams that were not opened so far.
    pub fn drain_now(&mut self) {
        if !matches!(self.drain, Drain::Final(_)) {
            self.drain = Drain::Final(self.next_request);
            write_go_away(&mut self.control, self.next_request);
        }
    }

    /// Whether the connection drains and has no streams left: close it with [`ErrorCode::H3_NO_ERROR`] once everything
    /// is delivered.
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::Final(_)) && self.requests.is_empty()
    }

    /// The counts of requests cancelled since the last call, for metrics. `None`: there were none.
    pub fn take_resets(&mut self) -> Option<Box<Resets>> {
        self.resets.take()
    }

    /// Cancels a request: its response cannot be completed, or its content is not wanted. Its slot stays until
    /// [`release`](Self::release).
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if let Some(index) = self.index(stream)
            && let State::Live { .. } = self.requests[index].state
        {
            self.interrupt(index, code, By::Server);
        }
    }

    /// Frees the slot of a request, because the driver's work for it has ended. Call it exactly once for each
    /// [`Event::Request`] and [`Event::TooLarge`].
    ///
    /// A response that has not ended is reset (H3_INTERNAL_ERROR), so that it never looks complete. A request whose
    /// content has not ended is no longer needed (H3_NO_ERROR, RFC 9114 §4.1).
    pub fn release(&mut self, stream: StreamId) {
        let Some(index) = self.index(stream) else { return };
        if let State::Live { receiving, sending } = self.requests[index].state {
            let is_complete = sending == Sending::Ended;
            if is_complete {
                self.abuse.completed();
            }
            if !is_complete || !matches!(receiving, Receiving::Ended | Receiving::Trailers) {
                let code = if is_complete { ErrorCode::H3_NO_ERROR } else { ErrorCode::H3_INTERNAL_ERROR };
                self.interrupt(index, code, By::Server);
            }
        }
        self.remove(index);
    }

    /// The priority of a request's response.
    pub fn priority(&self, stream: StreamId) -> Priority {
        self.index(stream).and_then(|index| self.requests[index].priority).unwrap_or_default()
    }

    /// Sets the priority of a request's response, if the server knows better than the client (RFC 9218 §8).
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        if let Some(index) = self.index(stream) {
            self.requests[index].priority = Some(priority);
            self.prioritize();
        }
    }

    /// RESET_STREAM or STOP_SENDING of the client arrived on `stream`. Either cancels the request, unless its stream has
    /// ended in that direction already. For STOP_SENDING of the server's control stream call it, too.
    ///
    /// # Errors
    /// A critical stream was closed, or the client cancels too many requests. Close the connection.
    pub fn cancelled(&mut self, stream: StreamId, code: ErrorCode) -> Result<Option<Event<'static>>, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = if stream.is_request() { self.cancel(stream, code) } else { self.end_uni(stream).map(|()| None) };
        result.inspect_err(|error| self.failed = Some(*error))
    }

    fn cancel(&mut self, stream: StreamId, code: ErrorCode) -> Result<Option<Event<'static>>, ConnectionError> {
        let Some(index) = self.index(stream) else { return Ok(None) };
        match self.requests[index].state {
            State::Reset(_) => Ok(None),
            State::Live { receiving: Receiving::Ended | Receiving::Trailers, sending: Sending::Ended } => Ok(None),
            State::Live { receiving, .. } => {
                self.abuse.reset()?;
                self.interrupt(index, ErrorCode::H3_REQUEST_CANCELLED, By::Client);
                if receiving == Receiving::Head {
                    self.remove(index);
                    return Ok(None);
                }
                Ok(Some(Event::Reset { stream, code, by: By::Client }))
            }
        }
    }

    /// Ends both directions of a stream that has a slot, as far as they are open.
    fn interrupt(&mut self, index: usize, code: ErrorCode, by: By) {
        let stream = &mut self.requests[index];
        let State::Live { receiving, sending } = stream.state else { return };
        stream.state = State::Reset(by);
        let stream = stream.id;
        self.drop_partial_head(index);
        if sending != Sending::Ended {
            self.commands.push_back(Command::Reset { stream, code });
        }
        if receiving != Receiving::Ended {
            self.commands.push_back(Command::Stop { stream, code });
        }
        self.resets.get_or_insert_default().count(by, place(code));
        self.prioritize();
    }

    /// Forgets a stream.
    fn remove(&mut self, index: usize) {
        self.drop_partial_head(index);
        self.requests.remove(index);
    }

    fn drop_partial_head(&mut self, index: usize) {
        let block = std::mem::take(&mut self.requests[index].reader.block);
        self.partial_heads -= block.len();
    }

    /// The index of a stream that has a slot.
    #[inline]
    fn index(&self, stream: StreamId) -> Option<usize> {
        self.requests.binary_search_by_key(&stream, |stream| stream.id).ok()
    }

    fn prioritize(&mut self) {
        prioritize(&mut self.requests, &mut self.commands);
    }
}

/// The highest request stream (RFC 9114 §5.2).
const HIGHEST_REQUEST: u64 = (1 << 62) - 4;
