//! Output: responses and DATA.

use sealion_http::multiplexed::Priority;

use crate::error::StreamClosed;
use crate::frame::{FrameHead, HEADER_LEN, flag, kind, write_headers};
use crate::hpack::NO_DYNAMIC_TABLE;
use crate::stream::{Sending, State, StreamId};

use super::Connection;

/// A DATA frame to send: its header, followed by `length` bytes of the stream's content. Send frames in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFrame {
    /// The stream.
    pub stream: StreamId,
    /// The frame header.
    pub header: [u8; HEADER_LEN],
    /// Bytes of content, at most [`RECORD_PAYLOAD`](crate::RECORD_PAYLOAD).
    pub length: usize,
    /// Whether the frame ends the stream.
    pub end: bool,
}

impl DataFrame {
    /// The frame with this header, if it is DATA. For a driver that keeps its output as bytes and takes a frame back.
    pub fn of(header: [u8; HEADER_LEN]) -> Option<Self> {
        let head = FrameHead::parse(&header);
        let (stream, length, end) = (StreamId(head.stream), head.length, head.has(flag::END_STREAM));
        (head.kind == kind::DATA).then_some(DataFrame { stream, header, length, end })
    }
}

impl Connection {
    /// Appends an informational response (1xx) to `out`, after the pending control frames. `block` is the header block,
    /// in parts.
    ///
    /// # Errors
    /// [`StreamClosed`]: the stream was reset, or its response has begun.
    pub fn informational(&mut self, stream: StreamId, block: &[&[u8]], out: &mut Vec<u8>) -> Result<(), StreamClosed> {
        self.expect(stream, |sending| sending == Sending::Head)?;
        self.write_block(stream, false, block, out);
        Ok(())
    }

    /// Appends the head of a response to `out`, after the pending control frames. `block` is the header block in parts,
    /// for instance a part kept with a file and a part with the date. With `end` the response has no content.
    ///
    /// # Errors
    /// [`StreamClosed`]: the stream was reset, or its response has begun.
    pub fn respond(
        &mut self,
        stream: StreamId,
        block: &[&[u8]],
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Head)?;
        let next = if end { Sending::Ended } else { Sending::Content { offered: 0, last: false } };
        self.streams[index].set_sending(next);
        self.write_block(stream, end, block, out);
        Ok(())
    }

    /// Appends a whole response to `out`: its head as [`respond`](Self::respond) does, and its content in one frame. `false`: the windows, or the client's
    /// largest frame, have no room for the content, and nothing was written.
    ///
    /// The response goes before content that waits, whatever its priority: call this only where little waits.
    ///
    /// # Errors
    /// [`StreamClosed`]: the stream was reset, or its response has begun.
    pub fn respond_whole(
        &mut self,
        stream: StreamId,
        block: &[&[u8]],
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Head)?;
        if !self.bounds().permit_whole(&self.streams[index], content.len()) {
            return Ok(false);
        }
        self.streams[index].set_sending(Sending::Ended);
        self.write_block(stream, false, block, out);
        let header = self.take_windows(index, content.len() as u32, true);
        out.reserve(HEADER_LEN + content.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(content);
        Ok(true)
    }

    /// Reports that `bytes` more of a response's content are ready; with `last` they end it.
    /// [`next_frame`](Self::next_frame) requests them.
    ///
    /// # Errors
    /// [`StreamClosed`]: the stream was reset, or its head is not written, or its end is already known.
    pub fn offer(&mut self, stream: StreamId, bytes: u64, last: bool) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| matches!(sending, Sending::Content { last: false, .. }))?;
        if let Some(Sending::Content { offered, .. }) = self.streams[index].sending() {
            self.streams[index].set_sending(Sending::Content { offered: offered.saturating_add(bytes), last });
        }
        Ok(())
    }

    /// Appends trailers to `out`, which end the response, after the pending control frames. All content offered must
    /// have been sent.
    ///
    /// # Errors
    /// [`StreamClosed`]: the stream was reset, or has content to be sent, or has ended.
    pub fn trailers(&mut self, stream: StreamId, block: &[&[u8]], out: &mut Vec<u8>) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Content { offered: 0, last: false })?;
        self.streams[index].set_sending(Sending::Ended);
        self.write_block(stream, true, block, out);
        Ok(())
    }

    /// The next DATA frame, of at most `room` bytes including its header. `None`: no stream has content that the
    /// windows allow.
    ///
    /// Frames follow the order of RFC 9218. Several calls fill a batch of TLS records from several streams. If the room
    /// and the stream's content suffice, the frame fills a whole record.
    pub fn next_frame(&mut self, room: usize) -> Option<DataFrame> {
        let pick = self.turns.pick(&self.streams, self.bounds(), room)?;
        let stream = &mut self.streams[pick.index];
        let id = stream.id;
        self.turns.took(pick, id);
        let Some(Sending::Content { offered, last }) = stream.sending() else { return None };
        stream.set_sending(if pick.end {
            Sending::Ended
        } else {
            Sending::Content { offered: offered - u64::from(pick.length), last }
        });
        let header = self.take_windows(pick.index, pick.length, pick.end);
        Some(DataFrame { stream: StreamId(id), header, length: pick.length as usize, end: pick.end })
    }

    /// The header of DATA with `length` bytes, which the windows permit. They are taken from the windows.
    fn take_windows(&mut self, index: usize, length: u32, end: bool) -> [u8; HEADER_LEN] {
        let stream = &mut self.streams[index];
        stream.send_window.take(length);
        stream.sent += u64::from(length);
        self.kept.send_window.take(length);
        self.kept.sent += u64::from(length);
        self.kept.abuse.sent_data(length);
        let flags = if end { flag::END_STREAM } else { 0 };
        FrameHead { length: length as usize, kind: kind::DATA, flags, stream: stream.id }.encode()
    }

    /// Whether [`next_frame`](Self::next_frame) has a frame.
    pub fn has_frame(&self) -> bool {
        let bounds = self.bounds();
        self.streams.iter().any(|stream| bounds.permit_frame(stream))
    }

    /// Whether the client has given a response that is under way a priority (RFC 9218), so that others may overtake it.
    pub fn has_priorities(&self) -> bool {
        self.streams.iter().any(|stream| stream.priority != Priority::UNSIGNALLED)
    }

    /// Takes back a frame that was not sent, because its content cannot be read: its bytes count as not sent, and the
    /// response as not ended. This also takes back later frames of the stream. Then [`reset`](Self::reset) or
    /// [`release`](Self::release) the stream.
    pub fn withdraw(&mut self, frame: DataFrame) {
        let bytes = frame.length as u32;
        self.kept.send_window.give_back(bytes);
        self.kept.sent = self.kept.sent.saturating_sub(u64::from(bytes));
        let Some(index) = self.index(frame.stream.0) else { return };
        let stream = &mut self.streams[index];
        stream.send_window.give_back(bytes);
        stream.sent = stream.sent.saturating_sub(u64::from(bytes));
        stream.set_sending(Sending::Content { offered: 0, last: false });
    }

    /// The index of a stream whose sending state is as `expected`.
    fn expect(&self, stream: StreamId, expected: impl Fn(Sending) -> bool) -> Result<usize, StreamClosed> {
        let index = self.index(stream.0).ok_or(StreamClosed)?;
        match self.streams[index].state {
            State::Live { sending, .. } if expected(sending) => Ok(index),
            _ => Err(StreamClosed),
        }
    }

    fn write_block(&mut self, stream: StreamId, end: bool, block: &[&[u8]], out: &mut Vec<u8>) {
        self.write_control(out);
        let prefix = if std::mem::take(&mut self.kept.first_block) { NO_DYNAMIC_TABLE } else { &[] };
        let before = out.len();
        write_headers(out, stream.0, end, prefix, block);
        self.kept.abuse.useful((out.len() - before) as u64);
    }
}
