//! A connection: bytes in, events out; responses in, frames out.

mod frames;
mod receive;
mod rest;
mod send;

pub use receive::{MAX_BLOCK, MAX_CONTINUATIONS};
pub use rest::Rest;
pub use send::DataFrame;

use sealion_http::multiplexed::{By, Priority};
use serde::{Deserialize, Serialize};

use crate::abuse::{Abuse, SMALL_UPDATE};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{MAX_WINDOW, write_go_away, write_ping, write_reset, write_settings, write_window_update};
use crate::hpack::Decoder;
use crate::request::Repeated;
use crate::resets::{Resets, place};
use crate::schedule::{Bounds, Turns};
use crate::settings::{DEFAULT_WINDOW, Limits, PeerSettings};
use crate::stream::{Closed, Receiving, RecentlyClosed, Sending, State, Stream, StreamId};
use crate::windows::{BandwidthDelay, Progress, ReceiveWindow, SendWindow, WantedWindow, Window};

use receive::Reader;

/// The server's side of an HTTP/2 connection, without I/O and without a clock.
///
/// Invariants, after which the tests are named: no DATA exceeds a window; a stream keeps its slot until the driver
/// releases it; input of a client costs memory only within [`Limits`]; an incomplete response never ends with
/// END_STREAM.
#[derive(Debug)]
pub struct Connection {
    kept: Kept,
    reader: Reader,
    decoder: Decoder,
    repeated: Repeated,
    /// Sorted by number.
    streams: Vec<Stream>,
    /// Frames that wait for the driver, except responses.
    control: Vec<u8>,
    turns: Turns,
    drain: Drain,
    settings_acknowledged: bool,
    failed: Option<ConnectionError>,
    /// Counts since the last [`Connection::take_resets`].
    resets: Option<Box<Resets>>,
}

/// The members that a connection keeps when another process continues with it ([`Rest`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    /// As announced to the client.
    limits: Limits,
    peer: PeerSettings,
    closed: RecentlyClosed,
    /// The highest stream that the client opened.
    highest: u32,
    /// Priorities of streams that are not open yet.
    early_priorities: Vec<(u32, Priority)>,
    send_window: SendWindow,
    /// Bytes of content in the frames that were made.
    sent: u64,
    receive_window: ReceiveWindow,
    /// The target of the streams' windows. The connection's is twice as large, beside what is held.
    window_target: u32,
    /// Bytes that all streams together may hold, or have room for.
    permitted_window: u32,
    bandwidth_delay: BandwidthDelay,
    abuse: Abuse,
    /// No header block was sent yet.
    first_block: bool,
}

/// The end of a connection by two GOAWAY frames (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// The client was told, and may have opened more streams in the meantime.
    Announced,
    /// Streams above this one are not processed.
    Final(u32),
}

/// The number of streams for which an idle connection keeps memory.
const KEPT_STREAMS: usize = 4;

/// The content of PINGs that the connection itself sends.
const PING_BANDWIDTH: [u8; 8] = *b"sealion0";
const PING_DRAIN: [u8; 8] = *b"sealion1";

impl Connection {
    /// A connection whose TLS handshake has just ended. The server's preface is queued.
    pub fn new(limits: Limits) -> Self {
        let mut control = Vec::with_capacity(64);
        let settings: Vec<_> = limits.announced().collect();
        write_settings(&mut control, &settings);
        let connection_window = limits.connection_window.clamp(DEFAULT_WINDOW, MAX_WINDOW);
        if connection_window > DEFAULT_WINDOW {
            write_window_update(&mut control, 0, connection_window - DEFAULT_WINDOW);
        }
        let kept = Kept {
            peer: PeerSettings::default(),
            closed: RecentlyClosed::default(),
            highest: 0,
            early_priorities: Vec::new(),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            sent: 0,
            receive_window: ReceiveWindow::new(connection_window),
            window_target: limits.stream_window.min(MAX_WINDOW),
            permitted_window: connection_window,
            bandwidth_delay: BandwidthDelay::default(),
            abuse: Abuse::new(&limits),
            first_block: true,
            limits,
        };
        Connection {
            kept,
            reader: Reader::default(),
            decoder: Decoder::new(),
            repeated: Repeated::default(),
            streams: Vec::new(),
            control,
            turns: Turns::default(),
            drain: Drain::No,
            settings_acknowledged: false,
            failed: None,
            resets: None,
        }
    }

    /// Whether [`receive`](Self::receive) should get more input. It is false while replies wait to be written, so that
    /// a client that sends without reading stops itself.
    pub fn wants_read(&self) -> bool {
        self.failed.is_none() && !self.kept.abuse.replies_wait()
    }

    /// Whether [`write_control`](Self::write_control) has something to write.
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Appends the pending frames: SETTINGS, replies, window updates, resets, GOAWAY. Send all output in the order of
    /// the calls.
    pub fn write_control(&mut self, out: &mut Vec<u8>) {
        if !self.control.is_empty() {
            out.extend_from_slice(&self.control);
            self.control.clear();
            self.kept.abuse.replies_written();
        }
    }

    /// Whether no stream has a slot.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// The number of streams that have a slot.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether a frame, a header block, or the client's preface has begun and not ended. The driver sets its deadline.
    pub fn is_within_frame(&self) -> bool {
        self.reader.is_within_frame()
    }

    /// The number of frames begun, which shows whether the same frame is still incomplete.
    pub fn frames_begun(&self) -> u64 {
        self.kept.abuse.frames()
    }

    /// Whether the client has acknowledged our settings.
    pub fn settings_acknowledged(&self) -> bool {
        self.settings_acknowledged
    }

    /// Frees memory that an idle connection does not need. Call it before waiting for a new request. Room for a few
    /// streams stays.
    pub fn shrink(&mut self) {
        self.streams.shrink_to(KEPT_STREAMS);
        if self.control.is_empty() {
            self.control = Vec::new();
        }
    }

    /// The memory of the connection in bytes, including itself.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.reader.memory()
            + self.decoder.memory()
            + self.repeated.memory()
            + self.streams.capacity() * size_of::<Stream>()
            + self.control.capacity()
            + self.resets.as_ref().map_or(0, |_| size_of::<Resets>())
    }

    /// Tells the client to open no more streams, and continues with streams opened before it has read that (RFC 9113
    /// §6.8): the acknowledgement of a PING after the first GOAWAY shows it, and causes the second GOAWAY.
    pub fn drain(&mut self) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            write_go_away(&mut self.control, MAX_WINDOW, ErrorCode::NO_ERROR);
            write_ping(&mut self.control, false, PING_DRAIN);
        }
    }

    /// Refuses all streams above the highest so far, without waiting for the client to read the GOAWAY of
    /// [`drain`](Self::drain).
    pub fn drain_now(&mut self) {
        if !matches!(self.drain, Drain::Final(_)) {
            self.drain = Drain::Final(self.kept.highest);
            write_go_away(&mut self.control, self.kept.highest, ErrorCode::NO_ERROR);
        }
    }

    /// Whether the connection drains and has no streams left: close it once everything is written.
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::Final(_)) && self.streams.is_empty()
    }

    /// Ends the connection by GOAWAY with `code`, for instance at a deadline.
    pub fn close(&mut self, code: ErrorCode, why: &'static str) {
        self.fail(ConnectionError::new(code, why));
    }

    /// The counts of RST_STREAM frames sent or received on open streams since the last call, for metrics. `None`: there
    /// were no such frames.
    pub fn take_resets(&mut self) -> Option<Box<Resets>> {
        self.resets.take()
    }

    fn count_reset(&mut self, by: By, code: ErrorCode) {
        self.resets.get_or_insert_default().count(by, place(code));
    }

    /// Queues RST_STREAM.
    fn write_reset(&mut self, stream: u32, code: ErrorCode) {
        write_reset(&mut self.control, stream, code);
        self.count_reset(By::Server, code);
    }

    /// Resets a stream: its response cannot be completed, or its request is not wanted. Its slot stays until [`release`](Self::release).
    ///
    /// Also call this for a stream whose last frame was [withdrawn](Self::withdraw).
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if let Some(index) = self.index(stream.0)
            && let State::Live { .. } = self.streams[index].state
        {
            self.interrupt(index);
            self.write_reset(stream.0, code);
        }
    }

    /// The server resets a stream that has a slot: frames that the client has already sent on it will be dropped.
    fn interrupt(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if stream.is_receiving() {
            self.kept.abuse.interrupted(stream.receive_window.open());
        }
        stream.state = State::Reset(By::Server);
    }

    /// Frees the slot of a stream, because the driver's work for it has ended. Call it exactly once for each
    /// [`Event::Request`] and [`Event::TooLarge`].
    ///
    /// A response that has not ended is reset (INTERNAL_ERROR), so that it never looks complete. A request whose content has not ended is
    /// no longer needed (NO_ERROR, RFC 9113 §8.1).
    ///
    /// [`Event::Request`]: crate::Event::Request
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub fn release(&mut self, stream: StreamId) {
        let Some(index) = self.index(stream.0) else { return };
        let how = match self.streams[index].state {
            State::Live { receiving: Receiving::Ended, sending: Sending::Ended } => {
                self.kept.abuse.completed();
                Closed::Ended
            }
            State::Live { sending, .. } => {
                let code = match sending {
                    Sending::Ended => {
                        self.kept.abuse.completed();
                        ErrorCode::NO_ERROR
                    }
                    _ => ErrorCode::INTERNAL_ERROR,
                };
                self.interrupt(index);
                self.write_reset(stream.0, code);
                Closed::Reset(By::Server)
            }
            State::Reset(by) => Closed::Reset(by),
        };
        let held = self.streams[index].receive_window.held();
        self.streams.remove(index);
        self.kept.closed.remember(stream.0, how);
        self.discard(held);
    }

    /// Reports that `bytes` of a stream's content were consumed, so that the client may send more.
    pub fn consume(&mut self, stream: StreamId, bytes: usize) {
        let Some(index) = self.index(stream.0) else { return };
        let target = self.stream_target();
        let stream = &mut self.streams[index];
        let consumed = stream.receive_window.consume(u32::try_from(bytes).unwrap_or(u32::MAX));
        if stream.is_receiving()
            && let Some(increment) = stream.receive_window.renew(target)
        {
            write_window_update(&mut self.control, stream.id, increment);
        }
        self.discard(consumed);
    }

    /// The priority of a stream's response.
    pub fn priority(&self, stream: StreamId) -> Priority {
        self.index(stream.0).map_or(Priority::default(), |index| self.streams[index].priority)
    }

    /// Sets the priority of a stream's response, if the server knows better than the client (RFC 9218 §8).
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        if let Some(index) = self.index(stream.0) {
            self.streams[index].priority = priority;
        }
    }

    /// The bytes of content in all frames made so far. A driver that waits for a window measures progress by it: a client
    /// that opens the window byte by byte makes little progress.
    pub fn progress(&self, stream: StreamId) -> Progress {
        let of_stream = self.index(stream.0).map_or(0, |index| self.streams[index].sent);
        Progress { stream: of_stream, connection: self.kept.sent }
    }

    /// Bytes of a stream's content that the windows have room for, beyond what [is ready](Self::offer): its own window, and its part of the connection's if
    /// so many streams share that.
    pub fn room(&self, stream: StreamId, sharing: u64) -> u64 {
        self.index(stream.0).map_or(0, |index| self.bounds().room(&self.streams[index], sharing))
    }

    /// Whether the windows have room for more of a stream's content than [is ready](Self::offer).
    pub fn has_room(&self, stream: StreamId) -> bool {
        self.index(stream.0).is_some_and(|index| self.bounds().without_room(&self.streams[index]).is_none())
    }

    /// The window that has no room for more of a stream's content than [is ready](Self::offer).
    pub fn window_without_room(&self, stream: StreamId) -> Option<Window> {
        self.index(stream.0).and_then(|index| self.bounds().without_room(&self.streams[index]))
    }

    /// The streams whose content is ready and held back, in the order of their numbers, and by which window.
    pub fn stalled(&self) -> impl Iterator<Item = (StreamId, Window)> {
        let bounds = self.bounds();
        self.streams.iter().filter_map(move |stream| Some((StreamId(stream.id), bounds.hold_back(stream)?)))
    }

    /// Whether the window of the connection lets the client send no content that is worth a frame.
    pub fn is_receive_window_closed(&self) -> bool {
        self.kept.receive_window.open() < SMALL_UPDATE
    }

    /// The window that the connection should have, if more than half of it is used up and [permitted](Self::permit_window) bytes do not suffice.
    /// Streams whose content waits then leave room to the others.
    pub fn wanted_window(&self) -> Option<WantedWindow> {
        let (goal, held) = (self.window_goal(), self.kept.receive_window.held());
        let with_held = |goal: u32| goal.saturating_add(held).min(MAX_WINDOW);
        let is_short = self.kept.receive_window.open() <= goal / 2 && with_held(goal) > self.kept.permitted_window;
        let least = self.least_window();
        is_short.then(|| WantedWindow { measured: with_held(goal), least: with_held(least) })
    }

    /// Bytes that all streams together may hold, or have room for. At first they are [`Limits::connection_window`].
    pub fn permitted_window(&self) -> u32 {
        self.kept.permitted_window
    }

    /// Bytes of these beyond the first ones.
    pub fn extra_window(&self) -> u32 {
        self.kept.permitted_window.saturating_sub(self.least_window())
    }

    /// Permits so many bytes, unless more are permitted already, and announces windows that they allow.
    pub fn permit_window(&mut self, bytes: u32) {
        self.kept.permitted_window = self.kept.permitted_window.max(bytes.min(MAX_WINDOW));
        self.announce_larger_windows();
    }

    /// Permits no more bytes than are in use, or will be soon. Returns by how many fewer: `worthwhile`, or all that were permitted beyond the first window.
    pub fn reduce_window(&mut self, worthwhile: u32) -> u32 {
        let (open, held) = (self.kept.receive_window.open(), self.kept.receive_window.held());
        let goal = if self.streams.iter().any(Stream::is_receiving) { self.window_goal() } else { 0 };
        let needed = open.max(goal).saturating_add(held).max(self.least_window());
        let surplus = self.kept.permitted_window.saturating_sub(needed);
        if surplus < worthwhile && needed > self.least_window() {
            return 0;
        }
        self.kept.permitted_window -= surplus;
        surplus
    }

    /// Bytes of content that the client may send on the connection at best.
    fn window_goal(&self) -> u32 {
        self.kept.window_target.saturating_mul(2).clamp(self.least_window(), MAX_WINDOW)
    }

    /// The connection's first window.
    fn least_window(&self) -> u32 {
        self.kept.limits.connection_window.clamp(DEFAULT_WINDOW, MAX_WINDOW)
    }

    /// The target of a stream's window, within what the connection is permitted.
    fn stream_target(&self) -> u32 {
        self.kept.window_target.min((self.kept.permitted_window / 2).max(self.kept.limits.stream_window))
    }

    /// `bytes` of the streams' content no longer occupy memory.
    fn discard(&mut self, bytes: u32) {
        self.kept.receive_window.consume(bytes);
        let goal = self.window_goal().min(self.kept.permitted_window.saturating_sub(self.kept.receive_window.held()));
        if let Some(increment) = self.kept.receive_window.open_to(goal, self.least_window().div_ceil(2)) {
            write_window_update(&mut self.control, 0, increment);
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            window: self.kept.send_window,
            max_frame_size: self.kept.peer.max_frame_size,
            initial_window: self.kept.peer.initial_window,
        }
    }

    /// The index of a stream that has a slot.
    fn index(&self, stream: u32) -> Option<usize> {
        self.streams.binary_search_by_key(&stream, |stream| stream.id).ok()
    }

    fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_none() {
            self.failed = Some(error);
            // The number in GOAWAY never increases (RFC 9113 §6.8).
            let last = if let Drain::Final(last) = self.drain { last } else { self.kept.highest };
            write_go_away(&mut self.control, last, error.code);
        }
    }
}
