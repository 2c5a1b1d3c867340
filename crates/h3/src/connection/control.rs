//! The client's unidirectional streams (RFC 9114 §6.2): control, QPACK, and unknown ones.

use sealion_http::multiplexed::Priority;

use crate::error::{ConnectionError, ErrorCode, Flood};
use crate::event::{Command, Event};
use crate::frame::{FrameHead, HeadReader, PriorityUpdate, is_of_http2, kind, single_integer};
use crate::qpack::{DecoderStream, EncoderStream};
use crate::settings::{MAX_SETTINGS_LEN, PeerSettings};
use crate::stream::{Receiving, StreamId};
use crate::varint;

use super::Connection;

/// Types of unidirectional streams (RFC 9114 §11.2.4).
pub(super) mod stream_kind {
    pub(in super::super) const CONTROL: u64 = 0x0;
    pub(super) const PUSH: u64 = 0x1;
    pub(super) const QPACK_ENCODER: u64 = 0x2;
    pub(super) const QPACK_DECODER: u64 = 0x3;
}

/// A unidirectional stream of the client.
#[derive(Debug)]
pub(super) struct UniStream {
    id: StreamId,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The type is incomplete.
    Unknown {
        bytes: [u8; 8],
        len: u8,
    },
    Control(Box<ControlReader>),
    QpackEncoder,
    QpackDecoder(DecoderStream),
    /// Of a type that is not known: it was stopped.
    Ignored,
}

/// The part of the current frame of the control stream that was read.
#[derive(Debug, Default)]
struct ControlReader {
    head: HeadReader,
    state: Reading,
    /// The beginning of a payload that arrived in pieces.
    payload: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reading {
    #[default]
    Head,
    /// The payload of a frame that is handled as a whole.
    Payload(FrameHead),
    Skip {
        left: u64,
    },
}

/// The number of unidirectional streams at a time. The transport permits fewer.
const MAX_UNI_STREAMS: usize = 128;

/// The longest PRIORITY_UPDATE. Two parameters are defined (RFC 9218 §4).
const MAX_PRIORITY_UPDATE_LEN: u64 = 1024;

/// The number of PRIORITY_UPDATE frames kept for streams that are not open yet. A client sends one, just before the
/// request.
const MAX_EARLY_PRIORITIES: usize = 8;

impl UniStream {
    pub(super) fn memory(&self) -> usize {
        let control = match &self.kind {
            Kind::Control(reader) => size_of::<ControlReader>() + reader.payload.capacity(),
            _ => 0,
        };
        size_of::<Self>() + control
    }
}

impl Connection {
    pub(super) fn open_uni(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        if stream.is_own() || self.uni(stream).is_some() {
            return Ok(());
        }
        if self.uni_streams.len() >= MAX_UNI_STREAMS {
            return Err(ConnectionError::flood(Flood::UnknownStreams));
        }
        self.uni_streams.push(UniStream { id: stream, kind: Kind::Unknown { bytes: [0; 8], len: 0 } });
        Ok(())
    }

    /// Reads `input` of a unidirectional stream.
    pub(super) fn read_uni<'a>(
        &mut self,
        stream: StreamId,
        input: &mut &[u8],
        fin: bool,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        while !input.is_empty() {
            let Some(index) = self.uni(stream) else {
                *input = &[];
                break;
            };
            match &mut self.uni_streams[index].kind {
                Kind::Unknown { bytes, len } => {
                    let (first, rest) = (input[0], &input[1..]);
                    *input = rest;
                    bytes[usize::from(*len)] = first;
                    *len += 1;
                    if let Some((kind, _)) = varint::read(&bytes[..usize::from(*len)]) {
                        self.begin_uni(index, kind)?;
                    }
                }
                Kind::Control(_) => {
                    if let Some(event) = self.read_control(index, input)? {
                        return Ok(Some(event));
                    }
                }
                Kind::QpackEncoder => {
                    let instructions = EncoderStream::read(std::mem::take(input))?;
                    self.abuse.idle_frames(instructions)?;
                }
                Kind::QpackDecoder(reader) => {
                    let instructions = reader.read(std::mem::take(input))?;
                    self.abuse.idle_frames(instructions)?;
                }
                Kind::Ignored => *input = &[],
            }
        }
        if fin {
            self.end_uni(stream)?;
        }
        Ok(None)
    }

    /// The type of a stream is known.
    fn begin_uni(&mut self, index: usize, kind: u64) -> Result<(), ConnectionError> {
        let kind = match kind {
            stream_kind::CONTROL => Kind::Control(Box::default()),
            stream_kind::QPACK_ENCODER => Kind::QpackEncoder,
            stream_kind::QPACK_DECODER => Kind::QpackDecoder(DecoderStream::default()),
            stream_kind::PUSH => {
                return Err(ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, "a push stream of a client"));
            }
            _ => {
                self.abuse.unknown_stream()?;
                let (stream, code) = (self.uni_streams[index].id, ErrorCode::H3_STREAM_CREATION_ERROR);
                self.commands.push_back(Command::Stop { stream, code });
                Kind::Ignored
            }
        };
        let is_same = |other: &UniStream| std::mem::discriminant(&other.kind) == std::mem::discriminant(&kind);
        if !matches!(kind, Kind::Ignored) && self.uni_streams.iter().any(is_same) {
            let why = "a second control stream, or a second stream of QPACK";
            return Err(ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, why));
        }
        self.uni_streams[index].kind = kind;
        Ok(())
    }

    /// A unidirectional stream ended, or was reset, or the client reads the server's no more.
    pub(super) fn end_uni(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        let is_critical = match self.uni(stream) {
            None => stream.is_own(),
            Some(index) => {
                let ended = self.uni_streams.swap_remove(index);
                matches!(ended.kind, Kind::Control(_) | Kind::QpackEncoder | Kind::QpackDecoder(_))
            }
        };
        match is_critical {
            true => Err(ConnectionError::new(
                ErrorCode::H3_CLOSED_CRITICAL_STREAM,
                "the control stream or a stream of QPACK was closed",
            )),
            false => Ok(()),
        }
    }

    fn uni(&self, stream: StreamId) -> Option<usize> {
        self.uni_streams.iter().position(|uni| uni.id == stream)
    }

    // ---- the control stream

    fn read_control<'a>(&mut self, index: usize, input: &mut &[u8]) -> Result<Option<Event<'a>>, ConnectionError> {
        let Kind::Control(reader) = &mut self.uni_streams[index].kind else { return Ok(None) };
        match reader.state {
            Reading::Head => {
                let Some(frame) = reader.head.read(input) else { return Ok(None) };
                let state = begin_control_frame(frame, self.peer.is_none())?;
                if let Reading::Skip { .. } = state {
                    self.abuse.idle_frames(1)?;
                }
                match state {
                    Reading::Payload(frame) if frame.length == 0 => return self.on_control_frame(frame.kind, &[]),
                    Reading::Skip { left: 0 } => {}
                    state => reader.state = state,
                }
                Ok(None)
            }
            Reading::Skip { left } => {
                let skipped = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                *input = &input[skipped..];
                let left = left - skipped as u64;
                reader.state = if left == 0 { Reading::Head } else { Reading::Skip { left } };
                Ok(None)
            }
            Reading::Payload(frame) => {
                let missing = frame.length as usize - reader.payload.len();
                let (bytes, rest) = input.split_at(missing.min(input.len()));
                *input = rest;
                reader.payload.extend_from_slice(bytes);
                if bytes.len() < missing {
                    return Ok(None);
                }
                reader.state = Reading::Head;
                let payload = std::mem::take(&mut reader.payload);
                self.on_control_frame(frame.kind, &payload)
            }
        }
    }

    fn on_control_frame<'a>(&mut self, kind: u64, payload: &[u8]) -> Result<Option<Event<'a>>, ConnectionError> {
        match kind {
            kind::SETTINGS => {
                self.peer = Some(PeerSettings::parse(payload)?);
                Ok(Some(Event::Settings))
            }
            kind::PRIORITY_UPDATE => self.on_priority_update(PriorityUpdate::parse(payload)?),
            kind::GOAWAY => {
                let push = single_integer(payload)?;
                self.abuse.idle_frames(1)?;
                if self.go_away.replace(push).is_some_and(|before| push > before) {
                    return Err(ConnectionError::id("a GOAWAY with a larger ID than before"));
                }
                Ok(Some(Event::GoAway))
            }
            kind::MAX_PUSH_ID => {
                let push = single_integer(payload)?;
                self.abuse.idle_frames(1)?;
                if self.max_push.replace(push).is_some_and(|before| push < before) {
                    return Err(ConnectionError::id("a MAX_PUSH_ID that is smaller than before"));
                }
                Ok(None)
            }
            // Nothing was promised (RFC 9114 §7.2.3, RFC 9218 §7.2).
            _ => Err(ConnectionError::id("a push that was not promised")),
        }
    }

    /// RFC 9218 §7.2.
    fn on_priority_update<'a>(&mut self, update: PriorityUpdate<'_>) -> Result<Option<Event<'a>>, ConnectionError> {
        self.abuse.priority_update()?;
        let stream = StreamId(update.element);
        if !stream.is_request() {
            return Err(ConnectionError::id("PRIORITY_UPDATE of a stream that is no request"));
        }
        let priority = Priority::parse(update.value);
        if let Some(index) = self.index(stream) {
            let request = &mut self.requests[index];
            request.priority = Some(priority);
            let is_known = request.receiving() != Some(Receiving::Head);
            self.prioritize();
            return Ok(is_known.then_some(Event::PriorityChanged { stream, priority }));
        }
        if stream.0 >= self.next_request && self.early_priorities.len() < MAX_EARLY_PRIORITIES {
            self.early_priorities.retain(|(early, _)| *early != stream.0);
            self.early_priorities.push((stream.0, priority));
        }
        Ok(None)
    }

    /// Removes the priority that a PRIORITY_UPDATE set before its stream was opened.
    pub(super) fn take_early_priority(&mut self, stream: StreamId) -> Option<Priority> {
        if self.early_priorities.is_empty() {
            return None;
        }
        let early = self.early_priorities.iter().find(|(early, _)| *early == stream.0).map(|(_, priority)| *priority);
        self.early_priorities.retain(|(early, _)| *early > stream.0);
        early
    }
}

/// Checks the beginning of a frame of the control stream, and decides how its payload is read. `is_first`: SETTINGS has
/// not arrived.
fn begin_control_frame(frame: FrameHead, is_first: bool) -> Result<Reading, ConnectionError> {
    if is_first && frame.kind != kind::SETTINGS {
        return Err(ConnectionError::new(ErrorCode::H3_MISSING_SETTINGS, "the first frame is not SETTINGS"));
    }
    match frame.kind {
        kind::SETTINGS if !is_first => Err(ConnectionError::unexpected("SETTINGS twice")),
        kind::SETTINGS if frame.length > MAX_SETTINGS_LEN => Err(ConnectionError::flood(Flood::Settings)),
        kind::PRIORITY_UPDATE if frame.length > MAX_PRIORITY_UPDATE_LEN => {
            Err(ConnectionError::flood(Flood::PriorityUpdates))
        }
        kind::CANCEL_PUSH | kind::GOAWAY | kind::MAX_PUSH_ID if frame.length > 8 => {
            Err(ConnectionError::frame("a frame of a length that its type does not have"))
        }
        // Its payload does not matter: nothing was promised.
        kind::PRIORITY_UPDATE_OF_PUSH => Err(ConnectionError::id("a push that was not promised")),
        kind::SETTINGS | kind::PRIORITY_UPDATE | kind::CANCEL_PUSH | kind::GOAWAY | kind::MAX_PUSH_ID => {
            Ok(Reading::Payload(frame))
        }
        kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
            Err(ConnectionError::unexpected("a frame of a request on the control stream"))
        }
        kind if is_of_http2(kind) => Err(ConnectionError::unexpected("a frame of HTTP/2")),
        _ => Ok(Reading::Skip { left: frame.length }),
    }
}
