//! A client that writes any frames that a test requests.

use sealion_h2::{
    By, Connection, ConnectionError, ErrorCode, Event, HEADER_LEN, HeadBuffer, HeaderBlock, Limits, PREFACE, Priority,
    RECORD_PAYLOAD, StreamId,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const END: u8 = END_STREAM | END_HEADERS;

/// A whole record.
pub(crate) const RECORD: usize = HEADER_LEN + RECORD_PAYLOAD;

/// A header block of GET https://a.example/
pub(crate) const GET: &[u8] = b"\x82\x84\x87\x01\x09a.example";
/// The same with POST.
pub(crate) const POST: &[u8] = b"\x83\x84\x87\x01\x09a.example";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END, stream, GET)
}

/// GET with more fields.
pub(crate) fn get_with(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = HeaderBlock::default();
    fields.iter().for_each(|(name, value)| block.field(name, value.as_bytes()));
    frame(HEADERS, END, stream, &[GET, block.as_bytes()].concat())
}

pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes())
}

pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// An event that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Request { stream: u32, end: bool, fields: Vec<(String, String)> },
    TooLarge(u32),
    Data { stream: u32, data: Vec<u8>, end: bool },
    Trailers { stream: u32, fields: Vec<(String, String)> },
    Reset { stream: u32, code: ErrorCode, by: By },
    Malformed(u32),
    Refused(u32),
    WindowOpened(Option<u32>),
    PriorityChanged(u32, Priority),
    GoAway(ErrorCode),
    SettingsAcknowledged,
}

impl Seen {
    fn new(event: Event<'_>, head: &HeadBuffer) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = || head.fields().iter().map(|(name, value)| (text(name), text(value))).collect();
        match event {
            Event::Request { stream, end } => Seen::Request { stream: stream.get(), end, fields: fields() },
            Event::TooLarge { stream, .. } => Seen::TooLarge(stream.get()),
            Event::Data { stream, data, end } => Seen::Data { stream: stream.get(), data: data.to_vec(), end },
            Event::Trailers { stream } => Seen::Trailers { stream: stream.get(), fields: fields() },
            Event::Reset { stream, code, by } => Seen::Reset { stream: stream.get(), code, by },
            Event::Malformed { stream, .. } => Seen::Malformed(stream.get()),
            Event::Refused { stream } => Seen::Refused(stream.get()),
            Event::WindowOpened { stream } => Seen::WindowOpened(stream.map(StreamId::get)),
            Event::PriorityChanged { stream, priority } => Seen::PriorityChanged(stream.get(), priority),
            Event::GoAway { code } => Seen::GoAway(code),
            Event::SettingsAcknowledged => Seen::SettingsAcknowledged,
        }
    }
}

/// A frame that the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The number in RST_STREAM and WINDOW_UPDATE, and the first one in GOAWAY.
    pub(crate) fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }

    pub(crate) fn code(&self) -> ErrorCode {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        ErrorCode(u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap()))
    }
}

pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, d, e, f, g, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*d, *e, *f, *g]);
        frames.push(Frame { kind: *kind, flags: *flags, stream, payload: rest[..length].to_vec() });
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    frames
}

/// A server's connection whose client has sent its preface.
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) head: HeadBuffer,
    /// Maps numbers to streams, which only events contain.
    streams: Vec<StreamId>,
}

impl Server {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with_settings(limits, &[])
    }

    pub(crate) fn with_settings(limits: Limits, of_client: &[(u16, u32)]) -> Self {
        let mut server =
            Server { connection: Connection::new(limits), head: HeadBuffer::default(), streams: Vec::new() };
        let mut opening = PREFACE.to_vec();
        opening.extend(settings(of_client));
        assert_eq!(server.receive(&opening).unwrap(), []);
        server.control();
        server
    }

    pub(crate) fn receive(&mut self, mut input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let mut events = Vec::new();
        while let Some(event) = self.connection.receive(&mut input, &mut self.head)? {
            if let Event::Request { stream, .. } | Event::TooLarge { stream, .. } = event {
                self.streams.push(stream);
            }
            events.push(Seen::new(event, &self.head));
        }
        assert!(input.is_empty());
        Ok(events)
    }

    /// The events that `frames` cause together.
    pub(crate) fn receive_all(&mut self, frames: &[Vec<u8>]) -> Result<Vec<Seen>, ConnectionError> {
        self.receive(&frames.concat())
    }

    pub(crate) fn control(&mut self) -> Vec<Frame> {
        let mut out = Vec::new();
        self.connection.write_control(&mut out);
        assert!(!self.connection.has_control());
        frames(&out)
    }

    pub(crate) fn id(&self, stream: u32) -> StreamId {
        *self.streams.iter().find(|id| id.get() == stream).expect("no such request")
    }

    /// Responds with a head, and offers `content` bytes.
    pub(crate) fn respond(&mut self, stream: u32, content: u64) {
        let id = self.id(stream);
        let mut out = Vec::new();
        let block = HeaderBlock::response(200);
        self.connection.respond(id, &[block.as_bytes()], false, &mut out).unwrap();
        self.connection.offer(id, content, true).unwrap();
    }

    /// The content frames that can be sent now: stream, length, end. Releases streams that end.
    pub(crate) fn content(&mut self) -> Vec<(u32, usize, bool)> {
        let mut content = Vec::new();
        while let Some(frame) = self.connection.next_frame(RECORD) {
            content.push((frame.stream.get(), frame.length, frame.end));
            if frame.end {
                self.connection.release(frame.stream);
            }
        }
        content
    }

    /// Permits the window that the connection wants.
    pub(crate) fn permit(&mut self) {
        if let Some(wanted) = self.connection.wanted_window() {
            self.connection.permit_window(wanted.measured);
        }
    }

    /// Responds to and releases a stream without content.
    pub(crate) fn complete(&mut self, stream: u32) {
        let (id, mut out) = (self.id(stream), Vec::new());
        let block = HeaderBlock::response(204);
        self.connection.respond(id, &[block.as_bytes()], true, &mut out).unwrap();
        self.connection.release(id);
    }
}
