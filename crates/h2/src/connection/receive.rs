//! Input: the preface, frames split anywhere, and the content of DATA.

use sealion_http::multiplexed::HeadBuffer;

use crate::error::{ConnectionError, Flood};
use crate::event::Event;
use crate::frame::{DEFAULT_MAX_FRAME_SIZE, FrameHead, HEADER_LEN, PREFACE, flag, kind};
use crate::stream::StreamId;

use super::Connection;

/// The part of the current frame that was read. Between frames it uses no memory.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: Reading,
    /// The beginning of a frame header.
    head: [u8; HEADER_LEN],
    head_len: u8,
    /// The beginning of a payload that arrived in pieces.
    payload: Vec<u8>,
    /// The header block that CONTINUATION frames complete.
    pub(super) block: Option<Box<PartialBlock>>,
}

/// A header block whose last frame has not arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) self_dependent: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) continuations: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The number of bytes of the client's preface received.
    Preface(u8),
    /// The first frame must be SETTINGS.
    FirstHead,
    Head,
    /// The payload of a frame that is handled as a whole.
    Payload(FrameHead),
    /// DATA, before the length of its padding.
    PadLength(Data),
    Data(Data),
    /// Padding, or the payload of a frame that is ignored.
    Skip(usize),
}

impl Default for Reading {
    fn default() -> Self {
        Reading::Preface(0)
    }
}

/// DATA whose content is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Data {
    /// The stream that gets the content. `None`: the content is discarded.
    pub(super) stream: Option<StreamId>,
    pub(super) left: usize,
    pub(super) padding: usize,
    pub(super) end: bool,
}

impl Reader {
    /// A reader between two frames, behind the client's preface and its first SETTINGS.
    pub(super) fn between_frames() -> Self {
        Reader { state: Reading::Head, ..Reader::default() }
    }

    pub(super) fn is_within_frame(&self) -> bool {
        self.block.is_some() || self.head_len > 0 || !matches!(self.state, Reading::Head)
    }

    pub(super) fn memory(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| size_of::<PartialBlock>() + block.bytes.capacity());
        self.payload.capacity() + block
    }
}

impl Connection {
    /// Reads `input` up to the next event, and removes the bytes read. `None`: it has read everything.
    ///
    /// The input may be split anywhere: at most 16 KiB of an incomplete frame are kept. Heads are decoded into `head`.
    ///
    /// # Errors
    /// The connection ends: write the output of [`write_control`](Self::write_control), and close.
    pub fn receive<'a>(
        &mut self,
        input: &mut &'a [u8],
        head: &mut HeadBuffer,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        match self.failed {
            None => self.read(input, head).inspect_err(|error| self.fail(*error)),
            Some(error) => Err(error),
        }
    }

    fn read<'a>(&mut self, input: &mut &'a [u8], head: &mut HeadBuffer) -> Result<Option<Event<'a>>, ConnectionError> {
        loop {
            match self.reader.state {
                Reading::Head | Reading::FirstHead => {
                    let Some(frame) = self.read_head(input) else { return Ok(None) };
                    if let Some(event) = self.begin_frame(frame)? {
                        return Ok(Some(event));
                    }
                }
                Reading::Payload(frame) => {
                    if self.reader.payload.is_empty()
                        && let Some((payload, rest)) = input.split_at_checked(frame.length)
                    {
                        *input = rest;
                        self.reader.state = Reading::Head;
                        if let Some(event) = self.frame(frame, payload, head)? {
                            return Ok(Some(event));
                        }
                        continue;
                    }
                    let missing = frame.length - self.reader.payload.len();
                    let more = take(input, missing);
                    self.reader.payload.extend_from_slice(more);
                    if more.len() < missing {
                        return Ok(None);
                    }
                    let payload = std::mem::take(&mut self.reader.payload);
                    self.reader.state = Reading::Head;
                    if let Some(event) = self.frame(frame, &payload, head)? {
                        return Ok(Some(event));
                    }
                }
                Reading::Data(data) => match self.read_data(data, input)? {
                    Progress::Event(event) => return Ok(Some(event)),
                    Progress::Starved => return Ok(None),
                    Progress::Done => {}
                },
                Reading::PadLength(data) => {
                    let Some((padding, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    let padding = usize::from(*padding);
                    let Some(left) = (data.left - 1).checked_sub(padding) else {
                        return Err(ConnectionError::protocol("more padding than payload"));
                    };
                    let data = Data { left, padding, ..data };
                    self.reader.state = Reading::Data(data);
                    if let Some(event) = self.begin_content(data, padding + 1)? {
                        return Ok(Some(event));
                    }
                }
                Reading::Skip(left) => {
                    let skipped = take(input, left).len();
                    if skipped < left {
                        self.reader.state = Reading::Skip(left - skipped);
                        return Ok(None);
                    }
                    self.reader.state = Reading::Head;
                }
                Reading::Preface(seen) => {
                    let expected = &PREFACE[usize::from(seen)..];
                    let bytes = take(input, expected.len());
                    if !expected.starts_with(bytes) {
                        return Err(ConnectionError::protocol("no preface of HTTP/2"));
                    }
                    if bytes.len() < expected.len() {
                        self.reader.state = Reading::Preface(seen + bytes.len() as u8);
                        return Ok(None);
                    }
                    self.reader.state = Reading::FirstHead;
                }
            }
        }
    }

    /// The next frame header, if it is complete.
    fn read_head(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        if self.reader.head_len == 0
            && let Some((head, rest)) = input.split_first_chunk::<HEADER_LEN>()
        {
            *input = rest;
            return Some(FrameHead::parse(head));
        }
        let seen = usize::from(self.reader.head_len);
        let bytes = take(input, HEADER_LEN - seen);
        self.reader.head[seen..seen + bytes.len()].copy_from_slice(bytes);
        self.reader.head_len += bytes.len() as u8;
        if usize::from(self.reader.head_len) < HEADER_LEN {
            return None;
        }
        self.reader.head_len = 0;
        Some(FrameHead::parse(&self.reader.head))
    }

    /// Checks a frame header, and decides how its payload is read.
    fn begin_frame<'a>(&mut self, frame: FrameHead) -> Result<Option<Event<'a>>, ConnectionError> {
        if frame.length > DEFAULT_MAX_FRAME_SIZE {
            return Err(ConnectionError::frame_size("a frame larger than 16,384 bytes"));
        }
        if self.reader.state == Reading::FirstHead && (frame.kind != kind::SETTINGS || frame.has(flag::ACK)) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        self.kept.abuse.frame(HEADER_LEN + frame.length)?;
        match &self.reader.block {
            Some(block) if frame.kind != kind::CONTINUATION || frame.stream != block.stream => {
                return Err(ConnectionError::protocol("another frame within a header block"));
            }
            None if frame.kind == kind::CONTINUATION => {
                return Err(ConnectionError::protocol("CONTINUATION without a header block"));
            }
            _ => {}
        }
        match frame.kind {
            kind::DATA => return self.begin_data_frame(frame),
            kind::HEADERS..=kind::CONTINUATION | kind::PRIORITY_UPDATE => {
                check_length(frame)?;
                self.reader.state = Reading::Payload(frame);
            }
            _ => self.reader.state = Reading::Skip(frame.length),
        }
        Ok(None)
    }

    fn begin_data_frame<'a>(&mut self, frame: FrameHead) -> Result<Option<Event<'a>>, ConnectionError> {
        if frame.has(flag::PADDED) && frame.length == 0 {
            return Err(ConnectionError::frame_size("padded DATA without a padding length"));
        }
        let (data, event) = self.begin_data(frame)?;
        if frame.has(flag::PADDED) {
            self.reader.state = Reading::PadLength(data);
            return Ok(event);
        }
        self.reader.state = Reading::Data(data);
        match event {
            None => self.begin_content(data, 0),
            event => Ok(event),
        }
    }

    fn read_data<'a>(&mut self, data: Data, input: &mut &'a [u8]) -> Result<Progress<'a>, ConnectionError> {
        let bytes = take(input, data.left);
        let left = data.left - bytes.len();
        let ended = left == 0;
        self.reader.state = if !ended {
            Reading::Data(Data { left, ..data })
        } else if data.padding > 0 {
            Reading::Skip(data.padding)
        } else {
            Reading::Head
        };
        // The stream may have been reset since, and then accepts no more content.
        let taker = data.stream.filter(|stream| self.takes_content(*stream));
        match taker {
            Some(stream) if !bytes.is_empty() || (ended && data.end) => {
                let end = ended && data.end;
                if end {
                    self.end_content(stream);
                }
                Ok(Progress::Event(Event::Data { stream, data: bytes, end }))
            }
            Some(_) => Ok(if ended { Progress::Done } else { Progress::Starved }),
            None => {
                self.drop_content(data.stream, bytes.len());
                Ok(if ended { Progress::Done } else { Progress::Starved })
            }
        }
    }

    /// A header block grows by a fragment (RFC 9113 §6.10).
    pub(super) fn grow_block(&mut self, fragment: &[u8]) -> Result<(), ConnectionError> {
        let Some(block) = &mut self.reader.block else { return Ok(()) };
        block.continuations += 1;
        if block.continuations > MAX_CONTINUATIONS || block.bytes.len() + fragment.len() > MAX_BLOCK {
            return Err(ConnectionError::flood(Flood::HeaderBlock));
        }
        block.bytes.extend_from_slice(fragment);
        Ok(())
    }
}

/// Rejects invalid lengths before any payload is read (RFC 9113 §4.2).
fn check_length(frame: FrameHead) -> Result<(), ConnectionError> {
    let wrong = match frame.kind {
        kind::RST_STREAM | kind::WINDOW_UPDATE => frame.length != 4,
        kind::PING => frame.length != 8,
        kind::GOAWAY => frame.length < 8,
        kind::SETTINGS => frame.has(flag::ACK) && frame.length > 0,
        _ => false,
    };
    if wrong { Err(ConnectionError::frame_size("a frame of a length that its type does not have")) } else { Ok(()) }
}

enum Progress<'a> {
    Event(Event<'a>),
    /// The frame continues after the input.
    Starved,
    Done,
}

/// The maximum number of CONTINUATION frames of a header block (CVE-2024-27316 and similar attacks).
pub const MAX_CONTINUATIONS: u32 = 4;

/// The maximum length of a header block in several frames: the maximum of a single frame.
pub const MAX_BLOCK: usize = DEFAULT_MAX_FRAME_SIZE;

/// Takes up to `most` bytes from the beginning of `input`.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (bytes, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    bytes
}
