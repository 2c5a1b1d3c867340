//! The effect of each received frame (RFC 9113 §6).

use sealion_http::multiplexed::{By, HeadBuffer, Priority, Section, SectionKind as Kind};

use crate::error::{ConnectionError, ErrorCode};
use crate::event::Event;
use crate::frame::{
    FrameHead, MAX_WINDOW, PriorityUpdate, flag, kind, split_headers, u32_at, write_ping, write_settings_ack,
    write_window_update,
};
use crate::request;
use crate::stream::{Closed, Receiving, Sending, State, Stream, StreamId};
use crate::windows::{ReceiveWindow, SendWindow};

use super::receive::{Data, PartialBlock};
use super::{Connection, Drain, PING_BANDWIDTH, PING_DRAIN};

type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;

impl Connection {
    /// Handles a frame other than DATA.
    pub(super) fn frame<'a>(&mut self, frame: FrameHead, payload: &[u8], buffer: &mut HeadBuffer) -> Outcome<'a> {
        match frame.kind {
            kind::HEADERS => self.on_headers(frame, payload, buffer),
            kind::CONTINUATION => self.on_continuation(frame, payload, buffer),
            kind::WINDOW_UPDATE => self.on_window_update(frame, u32_at(payload, 0) & MAX_WINDOW),
            kind::RST_STREAM => self.on_reset(frame, ErrorCode(u32_at(payload, 0))),
            kind::SETTINGS => self.on_settings(frame, payload),
            kind::PING => self.on_ping(frame, payload),
            kind::PRIORITY => self.on_priority(frame, payload),
            kind::PRIORITY_UPDATE => self.on_priority_update(frame, payload),
            kind::GOAWAY if frame.stream != 0 => Err(ON_A_STREAM),
            kind::GOAWAY => Ok(Some(Event::GoAway { code: ErrorCode(u32_at(payload, 4)) })),
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE from a client")),
            _ => Ok(None),
        }
    }

    // ---- DATA (§6.1)

    /// The header of a DATA frame: applies flow control, and finds the stream that gets the content.
    pub(super) fn begin_data<'a>(&mut self, frame: FrameHead) -> Result<(Data, Option<Event<'a>>), ConnectionError> {
        if frame.stream == 0 {
            return Err(ON_THE_CONNECTION);
        }
        let (bytes, end) = (frame.length as u32, frame.has(flag::END_STREAM));
        if !self.kept.receive_window.receive(bytes) {
            return Err(ConnectionError::flow_control("more content than the connection's window"));
        }
        let mut data = Data { stream: None, left: frame.length, padding: 0, end };
        let Some(index) = self.index(frame.stream) else {
            self.on_data_of_closed_stream(frame.stream, bytes)?;
            return Ok((data, None));
        };
        let stream = &mut self.streams[index];
        match stream.state {
            State::Live { receiving: Receiving::Content { .. }, .. } => {
                if !stream.receive_window.receive(bytes) {
                    let event = self.stream_error(index, ErrorCode::FLOW_CONTROL_ERROR)?;
                    return Ok((data, event));
                }
                data.stream = Some(StreamId(frame.stream));
                self.kept.abuse.useful(u64::from(bytes));
                if bytes > 0
                    && self.kept.window_target < self.kept.limits.largest_window
                    && self.kept.bandwidth_delay.receive(bytes)
                {
                    write_ping(&mut self.control, false, PING_BANDWIDTH);
                }
                Ok((data, None))
            }
            State::Live { receiving: Receiving::Ended, .. } => {
                let event = self.stream_error(index, ErrorCode::STREAM_CLOSED)?;
                Ok((data, event))
            }
            State::Reset(by) => {
                self.on_data_of_reset_stream(frame.stream, bytes, by)?;
                Ok((data, None))
            }
        }
    }

    /// The length of a DATA frame's content is known. It has to fit content-length (§8.1.1). `padding` is consumed at
    /// once.
    pub(super) fn begin_content<'a>(&mut self, data: Data, padding: usize) -> Outcome<'a> {
        if data.left == 0 && !data.end {
            self.kept.abuse.empty_data()?;
        }
        if padding > 0 {
            self.drop_content(data.stream, padding);
        }
        let Some(index) = data.stream.and_then(|stream| self.index(stream.0)) else { return Ok(None) };
        let State::Live { receiving: Receiving::Content { left: Some(left) }, .. } = &mut self.streams[index].state
        else {
            return Ok(None);
        };
        match left.checked_sub(data.left as u64) {
            Some(rest) if rest == 0 || !data.end => {
                *left = rest;
                Ok(None)
            }
            _ => self.stream_error(index, ErrorCode::PROTOCOL_ERROR),
        }
    }

    /// Whether a stream accepts content: it was not reset since the header of its DATA frame.
    pub(super) fn takes_content(&self, stream: StreamId) -> bool {
        self.index(stream.0).is_some_and(|index| self.streams[index].is_receiving())
    }

    pub(super) fn end_content(&mut self, stream: StreamId) {
        if let Some(index) = self.index(stream.0)
            && let State::Live { receiving, .. } = &mut self.streams[index].state
        {
            *receiving = Receiving::Ended;
        }
    }

    /// Discarded content opens the windows again, except for a stream that was released: releasing it did that.
    pub(super) fn drop_content(&mut self, stream: Option<StreamId>, bytes: usize) {
        match stream {
            Some(stream) => self.consume(stream, bytes),
            None => self.discard(bytes as u32),
        }
    }

    // ---- HEADERS and CONTINUATION (§6.2, §6.10)

    fn on_headers<'a>(&mut self, frame: FrameHead, payload: &[u8], buffer: &mut HeadBuffer) -> Outcome<'a> {
        if frame.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol("HEADERS on a stream that no client opens"));
        }
        let (fragment, self_dependent) = split_headers(frame, payload)?;
        let end_stream = frame.has(flag::END_STREAM);
        if frame.has(flag::END_HEADERS) {
            return self.on_block(Block { stream: frame.stream, end_stream, self_dependent, bytes: fragment }, buffer);
        }
        self.reader.block = Some(Box::new(PartialBlock {
            stream: frame.stream,
            end_stream,
            self_dependent,
            bytes: fragment.to_vec(),
            continuations: 0,
        }));
        Ok(None)
    }

    fn on_continuation<'a>(&mut self, frame: FrameHead, payload: &[u8], buffer: &mut HeadBuffer) -> Outcome<'a> {
        self.grow_block(payload)?;
        if !frame.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(block) = self.reader.block.take() else { return Ok(None) };
        let PartialBlock { stream, end_stream, self_dependent, bytes, .. } = &*block;
        self.on_block(
            Block { stream: *stream, end_stream: *end_stream, self_dependent: *self_dependent, bytes },
            buffer,
        )
    }

    /// A header block is complete: a request, trailers, or fields to discard. It is always decoded, to update the
    /// dynamic table.
    fn on_block<'a>(&mut self, block: Block<'_>, buffer: &mut HeadBuffer) -> Outcome<'a> {
        if let Some(index) = self.index(block.stream) {
            return self.on_trailers(index, block, buffer);
        }
        if block.stream > self.kept.highest {
            return self.on_request(block, buffer);
        }
        match self.kept.closed.get(block.stream) {
            Some(Closed::Reset(by)) => {
                self.decode(Kind::Trailers, block, buffer)?;
                self.on_block_of_reset_stream(block.stream, by)?;
                Ok(None)
            }
            Some(Closed::Ended) => Err(AFTER_THE_END),
            None => Err(ConnectionError::protocol("HEADERS on a stream below one that is open or closed")),
        }
    }

    fn on_request<'a>(&mut self, block: Block<'_>, buffer: &mut HeadBuffer) -> Outcome<'a> {
        self.kept.highest = block.stream;
        let stream = StreamId(block.stream);
        let section = self.decode(Kind::Request, block, buffer)?;
        if let Drain::Final(_) = self.drain {
            // The client repeats the request elsewhere (§6.8).
            self.kept.abuse.reset()?;
            self.remember_refused(block);
            return Ok(Some(Event::Refused { stream }));
        }
        let malformed = match section {
            Section::Malformed(why) => Some(why),
            _ if block.self_dependent => Some("a stream that depends on itself"),
            Section::Good if block.end_stream && buffer.content_length().is_some_and(|length| length > 0) => {
                Some("content-length without content")
            }
            _ => None,
        };
        if let Some(why) = malformed {
            self.refuse(block, ErrorCode::PROTOCOL_ERROR)?;
            return Ok(Some(Event::Malformed { stream, why }));
        }
        if self.streams.len() >= self.kept.limits.streams as usize {
            self.refuse(block, ErrorCode::REFUSED_STREAM)?;
            return Ok(Some(Event::Refused { stream }));
        }
        let early = self.take_early_priority(stream.0);
        let receiving =
            if block.end_stream { Receiving::Ended } else { Receiving::Content { left: buffer.content_length() } };
        self.streams.push(Stream {
            id: stream.0,
            priority: early.or(buffer.priority()).unwrap_or_default(),
            state: State::Live { receiving, sending: Sending::Head },
            send_window: SendWindow::new(self.kept.peer.initial_window),
            receive_window: ReceiveWindow::new(self.kept.limits.stream_window),
            sent: 0,
        });
        self.kept.abuse.useful(block.bytes.len() as u64);
        let end = block.end_stream;
        Ok(Some(match section {
            Section::TooLarge => Event::TooLarge { stream, end },
            _ => Event::Request { stream, end },
        }))
    }

    fn on_trailers<'a>(&mut self, index: usize, block: Block<'_>, buffer: &mut HeadBuffer) -> Outcome<'a> {
        let section = self.decode(Kind::Trailers, block, buffer)?;
        match self.streams[index].state {
            State::Live { receiving: Receiving::Content { left }, .. } => {
                let whole = left.is_none_or(|left| left == 0);
                if section != Section::Good || !block.end_stream || !whole || block.self_dependent {
                    return self.stream_error(index, ErrorCode::PROTOCOL_ERROR);
                }
                let stream = StreamId(block.stream);
                self.end_content(stream);
                self.kept.abuse.useful(block.bytes.len() as u64);
                Ok(Some(Event::Trailers { stream }))
            }
            State::Live { .. } => self.stream_error(index, ErrorCode::STREAM_CLOSED),
            State::Reset(by) => {
                self.on_block_of_reset_stream(block.stream, by)?;
                Ok(None)
            }
        }
    }

    fn decode(&mut self, kind: Kind, block: Block<'_>, buffer: &mut HeadBuffer) -> Result<Section, ConnectionError> {
        match kind {
            Kind::Request => {
                request::decode_request(&mut self.repeated, &mut self.decoder, block.bytes, buffer, &self.kept.limits)
            }
            Kind::Trailers => request::decode(kind, &mut self.decoder, block.bytes, buffer, &self.kept.limits),
        }
    }

    // ---- the other frames

    fn on_reset<'a>(&mut self, frame: FrameHead, code: ErrorCode) -> Outcome<'a> {
        self.check_not_idle(frame.stream)?;
        let Some(index) = self.index(frame.stream) else { return Ok(None) };
        let State::Live { .. } = self.streams[index].state else { return Ok(None) };
        self.kept.abuse.reset()?;
        self.streams[index].state = State::Reset(By::Client);
        self.count_reset(By::Client, code);
        Ok(Some(Event::Reset { stream: StreamId(frame.stream), code, by: By::Client }))
    }

    fn on_window_update<'a>(&mut self, frame: FrameHead, increment: u32) -> Outcome<'a> {
        self.kept.abuse.window_update(increment)?;
        if frame.stream == 0 {
            return self.on_connection_window_update(increment);
        }
        self.check_not_idle(frame.stream)?;
        let Some(index) = self.index(frame.stream) else { return Ok(None) };
        let State::Live { .. } = self.streams[index].state else { return Ok(None) };
        if increment == 0 {
            return self.stream_error(index, ErrorCode::PROTOCOL_ERROR);
        }
        let bounds = self.bounds();
        let was_held_back = bounds.hold_back(&self.streams[index]).is_some();
        if self.streams[index].send_window.grow(increment).is_err() {
            return self.stream_error(index, ErrorCode::FLOW_CONTROL_ERROR);
        }
        let opened = was_held_back && bounds.hold_back(&self.streams[index]).is_none();
        Ok(opened.then_some(Event::WindowOpened { stream: Some(StreamId(frame.stream)) }))
    }

    fn on_connection_window_update<'a>(&mut self, increment: u32) -> Outcome<'a> {
        if increment == 0 {
            return Err(ConnectionError::protocol("WINDOW_UPDATE by 0"));
        }
        let held_back = self.stalled().count();
        if self.kept.send_window.grow(increment).is_err() {
            return Err(ConnectionError::flow_control("a connection's window above 2^31 - 1"));
        }
        let opened = held_back > 0 && self.stalled().count() < held_back;
        Ok(opened.then_some(Event::WindowOpened { stream: None }))
    }

    fn on_settings<'a>(&mut self, frame: FrameHead, payload: &[u8]) -> Outcome<'a> {
        if frame.stream != 0 {
            return Err(ON_A_STREAM);
        }
        if frame.has(flag::ACK) {
            if self.settings_acknowledged {
                return Ok(None);
            }
            self.settings_acknowledged = true;
            self.decoder.set_limit(self.kept.limits.header_table as usize);
            return Ok(Some(Event::SettingsAcknowledged));
        }
        let before = self.kept.peer.initial_window;
        self.kept.peer.apply(payload)?;
        let opened = self.shift_windows(i64::from(self.kept.peer.initial_window) - i64::from(before))?;
        self.kept.abuse.reply()?;
        write_settings_ack(&mut self.control);
        Ok(opened.then_some(Event::WindowOpened { stream: None }))
    }

    /// A new initial window changes the windows of all streams (§6.9.2). Returns whether more content can be sent than
    /// before.
    fn shift_windows(&mut self, difference: i64) -> Result<bool, ConnectionError> {
        if difference == 0 {
            return Ok(false);
        }
        let held_back = self.stalled().count();
        for stream in &mut self.streams {
            if stream.send_window.shift(difference).is_err() {
                return Err(ConnectionError::flow_control(
                    "an initial window that makes a window larger than 2^31 - 1",
                ));
            }
        }
        Ok(self.stalled().count() < held_back)
    }

    fn on_ping<'a>(&mut self, frame: FrameHead, payload: &[u8]) -> Outcome<'a> {
        if frame.stream != 0 {
            return Err(ON_A_STREAM);
        }
        let Ok(opaque) = <[u8; 8]>::try_from(payload) else { return Ok(None) };
        if !frame.has(flag::ACK) {
            self.kept.abuse.reply()?;
            write_ping(&mut self.control, true, opaque);
        } else if opaque == PING_BANDWIDTH {
            let measured = self.kept.bandwidth_delay.measured(self.kept.window_target, self.kept.limits.largest_window);
            if let Some(target) = measured {
                // Windows grow when the driver permits it.
                self.kept.window_target = target;
            }
        } else if opaque == PING_DRAIN && self.drain == Drain::Announced {
            self.drain_now();
        }
        Ok(None)
    }

    /// Announces larger windows for uploads at once.
    pub(super) fn announce_larger_windows(&mut self) {
        self.discard(0);
        let target = self.stream_target();
        // An upload that waits for a server, or for its turn, would only hold more of the connection's window.
        let carries = |stream: &&mut Stream| {
            let window = &stream.receive_window;
            stream.is_receiving() && window.is_consumed() && window.held() <= window.open()
        };
        for stream in self.streams.iter_mut().filter(carries) {
            if let Some(increment) = stream.receive_window.renew(target) {
                write_window_update(&mut self.control, stream.id, increment);
            }
        }
    }

    /// The deprecated priorities (§5.3) are checked and otherwise ignored.
    fn on_priority<'a>(&mut self, frame: FrameHead, payload: &[u8]) -> Outcome<'a> {
        if frame.stream == 0 {
            return Err(ON_THE_CONNECTION);
        }
        self.kept.abuse.priority_update()?;
        let code = if frame.length != 5 {
            ErrorCode::FRAME_SIZE_ERROR
        } else if u32_at(payload, 0) & MAX_WINDOW == frame.stream {
            ErrorCode::PROTOCOL_ERROR
        } else {
            return Ok(None);
        };
        match self.index(frame.stream) {
            Some(index) if self.streams[index].sending().is_some() => self.stream_error(index, code),
            Some(_) => Ok(None),
            // An idle stream cannot be reset (§6.4).
            None => Err(ConnectionError::new(code, "an invalid PRIORITY frame")),
        }
    }

    /// RFC 9218 §7.1.
    fn on_priority_update<'a>(&mut self, frame: FrameHead, payload: &[u8]) -> Outcome<'a> {
        if frame.stream != 0 {
            return Err(ON_A_STREAM);
        }
        self.kept.abuse.priority_update()?;
        let update = PriorityUpdate::parse(payload)?;
        if update.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol("PRIORITY_UPDATE of a stream that no client opens"));
        }
        let priority = Priority::parse(update.value);
        if let Some(index) = self.index(update.stream) {
            self.streams[index].priority = priority;
            return Ok(Some(Event::PriorityChanged { stream: StreamId(update.stream), priority }));
        }
        if update.stream > self.kept.highest && self.kept.early_priorities.len() < MAX_EARLY_PRIORITIES {
            self.kept.early_priorities.retain(|(stream, _)| *stream != update.stream);
            self.kept.early_priorities.push((update.stream, priority));
        }
        Ok(None)
    }

    /// Removes the priority that a PRIORITY_UPDATE set before its stream was opened.
    fn take_early_priority(&mut self, stream: u32) -> Option<Priority> {
        if self.kept.early_priorities.is_empty() {
            return None;
        }
        let early =
            self.kept.early_priorities.iter().find(|(early, _)| *early == stream).map(|(_, priority)| *priority);
        self.kept.early_priorities.retain(|(early, _)| *early > stream);
        if self.kept.early_priorities.is_empty() {
            self.kept.early_priorities = Vec::new();
        }
        early
    }

    // ---- errors of streams (§5.4.2)

    /// Resets a stream that has a slot because of a client error.
    fn stream_error<'a>(&mut self, index: usize, code: ErrorCode) -> Outcome<'a> {
        self.kept.abuse.reset()?;
        let stream = StreamId(self.streams[index].id);
        self.interrupt(index);
        self.write_reset(stream.0, code);
        Ok(Some(Event::Reset { stream, code, by: By::Server }))
    }

    /// Resets a stream that gets no slot.
    fn refuse(&mut self, block: Block<'_>, code: ErrorCode) -> Result<(), ConnectionError> {
        self.kept.abuse.reset()?;
        self.write_reset(block.stream, code);
        self.remember_refused(block);
        Ok(())
    }

    fn remember_refused(&mut self, block: Block<'_>) {
        if !block.end_stream {
            self.kept.abuse.interrupted(self.kept.limits.stream_window);
        }
        self.kept.closed.remember(block.stream, Closed::Reset(By::Server));
    }

    /// DATA on a stream without a slot.
    fn on_data_of_closed_stream(&mut self, stream: u32, bytes: u32) -> Result<(), ConnectionError> {
        self.check_not_idle(stream)?;
        match self.kept.closed.get(stream) {
            Some(Closed::Ended) => Err(AFTER_THE_END),
            Some(Closed::Reset(by)) => self.on_data_of_reset_stream(stream, bytes, by),
            None => self.on_data_of_reset_stream(stream, bytes, By::Client),
        }
    }

    /// DATA on a stream that was reset. If the server reset it, the frame may have been in flight.
    fn on_data_of_reset_stream(&mut self, stream: u32, bytes: u32, by: By) -> Result<(), ConnectionError> {
        match by {
            By::Client => self.on_frame_behind_reset(stream),
            By::Server => {
                self.kept.abuse.late_content(bytes);
                Ok(())
            }
        }
    }

    /// A decoded header block on a stream that was reset. If the server reset it, the block may have been in flight.
    fn on_block_of_reset_stream(&mut self, stream: u32, by: By) -> Result<(), ConnectionError> {
        match by {
            By::Client => self.on_frame_behind_reset(stream),
            By::Server => self.kept.abuse.late_block(),
        }
    }

    /// The client sent a frame on a stream that it had reset.
    fn on_frame_behind_reset(&mut self, stream: u32) -> Result<(), ConnectionError> {
        self.kept.abuse.reset()?;
        self.write_reset(stream, ErrorCode::STREAM_CLOSED);
        Ok(())
    }

    fn check_not_idle(&self, stream: u32) -> Result<(), ConnectionError> {
        if stream == 0 {
            return Err(ON_THE_CONNECTION);
        }
        if stream.is_multiple_of(2) || stream > self.kept.highest {
            return Err(ConnectionError::protocol("a frame on a stream that was not opened"));
        }
        Ok(())
    }
}

/// A complete header block.
#[derive(Clone, Copy)]
struct Block<'a> {
    stream: u32,
    end_stream: bool,
    self_dependent: bool,
    bytes: &'a [u8],
}

/// The number of PRIORITY_UPDATE frames kept for streams that are not open yet. A client sends one, just before the
/// request.
const MAX_EARLY_PRIORITIES: usize = 8;

const ON_A_STREAM: ConnectionError = ConnectionError::protocol("a frame of the connection on a stream");
const ON_THE_CONNECTION: ConnectionError = ConnectionError::protocol("a frame of a stream on the connection");
const AFTER_THE_END: ConnectionError =
    ConnectionError::new(ErrorCode::STREAM_CLOSED, "a frame after the end of a stream");
