//! Output: responses.

use crate::error::StreamClosed;
use crate::frame::{FrameHead, kind, write_headers};
use crate::qpack::SECTION_PREFIX;
use crate::schedule::SHORT;
use crate::stream::{Sending, State, StreamId};

use super::Connection;

impl Connection {
    /// Appends an informational response (1xx) to `out`, which goes to the stream. `block` is the header block, in parts.
    ///
    /// # Errors
    /// [`StreamClosed`]: the request was cancelled, or its response has begun.
    pub fn informational(&mut self, stream: StreamId, block: &[&[u8]], out: &mut Vec<u8>) -> Result<(), StreamClosed> {
        self.expect(stream, |sending| sending == Sending::Head)?;
        self.write_section(block, out);
        Ok(())
    }

    /// Appends the head of a response to `out`, which goes to the stream. `block` is the header block in parts, for
    /// instance a part kept with a file and a part with the date. With `end` the response has no content: end the
    /// stream after `out` (FIN).
    ///
    /// # Errors
    /// [`StreamClosed`]: the request was cancelled, or its response has begun.
    pub fn respond(
        &mut self,
        stream: StreamId,
        block: &[&[u8]],
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Head)?;
        if end {
            self.end_shortly(index);
        }
        let next = if end { Sending::Ended } else { Sending::Content { left: 0, last: false } };
        self.requests[index].set_sending(next);
        self.write_section(block, out);
        if end {
            self.prioritize();
        }
        Ok(())
    }

    /// Appends the beginning of a DATA frame of `length` bytes to `out`. The driver sends these bytes on the stream after
    /// `out`, and reports them by [`sent`](Self::sent). A frame may be as long as the whole content. With `last` it
    /// ends the response: end the stream after it (FIN).
    ///
    /// Without `length` nothing is appended.
    ///
    /// # Errors
    /// [`StreamClosed`]: the request was cancelled, or its head is not written, or the frame before is incomplete, or
    /// the response has ended.
    pub fn data(&mut self, stream: StreamId, length: u64, last: bool, out: &mut Vec<u8>) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Content { left: 0, last: false })?;
        if length > 0 {
            FrameHead { kind: kind::DATA, length }.write(out);
            self.requests[index].set_sending(Sending::Content { left: length, last });
            if last && length <= SHORT {
                self.end_shortly(index);
            }
        } else if last {
            self.requests[index].set_sending(Sending::Ended);
            self.prioritize();
        }
        Ok(())
    }

    /// The transport took `bytes` of the content of the current DATA frame.
    pub fn sent(&mut self, stream: StreamId, bytes: u64) {
        let Some(index) = self.index(stream) else { return };
        let Some(Sending::Content { left, last }) = self.requests[index].sending() else { return };
        self.abuse.useful(bytes);
        debug_assert!(bytes <= left, "{bytes} bytes of {left}");
        let left = left.saturating_sub(bytes);
        if left == 0 && last {
            self.requests[index].set_sending(Sending::Ended);
            self.prioritize();
        } else {
            self.requests[index].set_sending(Sending::Content { left, last });
            if last && left <= SHORT {
                self.end_shortly(index);
            }
        }
    }

    /// Bytes of content that are missing from the current DATA frame.
    pub fn missing(&self, stream: StreamId) -> u64 {
        match self.index(stream).and_then(|index| self.requests[index].sending()) {
            Some(Sending::Content { left, .. }) => left,
            _ => 0,
        }
    }

    /// Appends trailers to `out`, which end the response: end the stream after `out` (FIN).
    ///
    /// # Errors
    /// [`StreamClosed`]: the request was cancelled, or a DATA frame is incomplete, or the response has ended.
    pub fn trailers(&mut self, stream: StreamId, block: &[&[u8]], out: &mut Vec<u8>) -> Result<(), StreamClosed> {
        let index = self.expect(stream, |sending| sending == Sending::Content { left: 0, last: false })?;
        self.requests[index].set_sending(Sending::Ended);
        self.write_section(block, out);
        self.prioritize();
        Ok(())
    }

    /// The rest of a response is short.
    fn end_shortly(&mut self, index: usize) {
        if !std::mem::replace(&mut self.requests[index].is_short, true) {
            self.prioritize();
        }
    }

    /// The index of a stream whose sending state is as `expected`.
    fn expect(&self, stream: StreamId, expected: impl Fn(Sending) -> bool) -> Result<usize, StreamClosed> {
        let index = self.index(stream).ok_or(StreamClosed)?;
        let request = &self.requests[index];
        match request.state {
            State::Live { sending, .. } if request.has_request() && expected(sending) => Ok(index),
            _ => Err(StreamClosed),
        }
    }

    fn write_section(&mut self, block: &[&[u8]], out: &mut Vec<u8>) {
        let before = out.len();
        write_headers(out, SECTION_PREFIX, block);
        self.abuse.useful((out.len() - before) as u64);
    }
}
