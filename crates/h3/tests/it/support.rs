//! A client that writes any bytes that a test requests.

use sealion_h3::{
    By, Command, Connection, ConnectionError, ErrorCode, Event, HeadBuffer, HeaderBlock, Limits, Opened, Priority,
    StreamId,
};

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
pub(crate) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf_0701;
/// A reserved type (RFC 9114 §7.2.8).
pub(crate) const RESERVED: u64 = 0x1f * 7 + 0x21;

/// The client's control stream, and its other unidirectional streams.
pub(crate) const CONTROL: u64 = 2;
pub(crate) const UNI: u64 = 6;

pub(crate) fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [varint(kind), varint(payload.len() as u64), payload.to_vec()].concat()
}

/// A HEADERS frame.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = HeaderBlock::default();
    fields.iter().for_each(|(name, value)| block.field(name, value.as_bytes()));
    frame(HEADERS, &[&[0, 0], block.as_bytes()].concat())
}

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];

pub(crate) fn get() -> Vec<u8> {
    headers(&GET)
}

pub(crate) fn get_with(fields: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&GET, fields].concat())
}

pub(crate) fn post_with(fields: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&POST, fields].concat())
}

pub(crate) fn priority_update(stream: u64, value: &str) -> Vec<u8> {
    frame(PRIORITY_UPDATE, &[&varint(stream), value.as_bytes()].concat())
}

/// An event that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Request { stream: u64, end: bool, fields: Vec<(String, String)> },
    TooLarge { stream: u64, end: bool },
    Data { stream: u64, data: Vec<u8>, end: bool },
    Trailers { stream: u64, fields: Vec<(String, String)> },
    Reset { stream: u64, code: ErrorCode, by: By },
    Malformed(u64),
    PriorityChanged(u64, Priority),
    GoAway,
    Settings,
}

impl Seen {
    pub(crate) fn new(event: Event<'_>, head: &HeadBuffer) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = || head.fields().iter().map(|(name, value)| (text(name), text(value))).collect();
        match event {
            Event::Request { stream, end } => Seen::Request { stream: stream.get(), end, fields: fields() },
            Event::TooLarge { stream, end } => Seen::TooLarge { stream: stream.get(), end },
            Event::Data { stream, data, end } => Seen::Data { stream: stream.get(), data: data.to_vec(), end },
            Event::Trailers { stream } => Seen::Trailers { stream: stream.get(), fields: fields() },
            Event::Reset { stream, code, by } => Seen::Reset { stream: stream.get(), code, by },
            Event::Malformed { stream, .. } => Seen::Malformed(stream.get()),
            Event::PriorityChanged { stream, priority } => Seen::PriorityChanged(stream.get(), priority),
            Event::GoAway => Seen::GoAway,
            Event::Settings => Seen::Settings,
        }
    }
}

pub(crate) fn request(stream: u64, end: bool) -> Seen {
    Seen::Request { stream, end, fields: Vec::new() }
}

pub(crate) fn data(stream: u64, data: &[u8], end: bool) -> Seen {
    Seen::Data { stream, data: data.to_vec(), end }
}

pub(crate) fn reset(stream: u64, code: ErrorCode) -> Command {
    Command::Reset { stream: StreamId::new(stream), code }
}

pub(crate) fn stop(stream: u64, code: ErrorCode) -> Command {
    Command::Stop { stream: StreamId::new(stream), code }
}

pub(crate) fn prioritize(stream: u64, level: i32) -> Command {
    Command::Prioritize { stream: StreamId::new(stream), level }
}

/// A server's connection.
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) head: HeadBuffer,
}

impl Server {
    /// A connection that has received empty SETTINGS.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut server = Self::without_settings(limits);
        assert_eq!(server.open(CONTROL), Ok(Opened::Accepted));
        let control = [varint(0), frame(SETTINGS, &[])].concat();
        assert_eq!(server.receive(CONTROL, &control), Ok(vec![Seen::Settings]));
        server
    }

    pub(crate) fn without_settings(limits: Limits) -> Self {
        let mut server = Server { connection: Connection::new(limits), head: HeadBuffer::default() };
        server.connection.write_control(&mut Vec::new());
        server
    }

    pub(crate) fn open(&mut self, stream: u64) -> Result<Opened, ConnectionError> {
        self.connection.open(StreamId::new(stream))
    }

    /// Bytes of a stream that goes on.
    pub(crate) fn receive(&mut self, stream: u64, input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        self.read(stream, input, false)
    }

    /// The last bytes of a stream.
    pub(crate) fn finish(&mut self, stream: u64, input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        self.read(stream, input, true)
    }

    pub(crate) fn read(&mut self, stream: u64, mut input: &[u8], fin: bool) -> Result<Vec<Seen>, ConnectionError> {
        let mut events = Vec::new();
        while let Some(event) = self.connection.receive(StreamId::new(stream), &mut input, fin, &mut self.head)? {
            events.push(Seen::new(event, &self.head));
        }
        assert!(input.is_empty());
        Ok(events)
    }

    pub(crate) fn cancelled(&mut self, stream: u64) -> Result<Option<Seen>, ConnectionError> {
        let event = self.connection.cancelled(StreamId::new(stream), ErrorCode::H3_REQUEST_CANCELLED)?;
        Ok(event.map(|event| Seen::new(event, &self.head)))
    }

    pub(crate) fn commands(&mut self) -> Vec<Command> {
        std::iter::from_fn(|| self.connection.next_command()).collect()
    }

    pub(crate) fn control(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.write_control(&mut out);
        assert!(!self.connection.has_control());
        out
    }

    /// Opens a stream and receives a whole GET.
    pub(crate) fn get(&mut self, stream: u64) {
        assert_eq!(self.open(stream), Ok(Opened::Accepted));
        assert_eq!(self.finish(stream, &get()), Ok(vec![request(stream, true)]));
    }

    /// Begins the response.
    pub(crate) fn respond(&mut self, stream: u64) -> Vec<u8> {
        let (block, mut out) = (HeaderBlock::response(200), Vec::new());
        self.connection.respond(StreamId::new(stream), &[block.as_bytes()], false, &mut out).unwrap();
        out
    }

    /// Responds without content, and releases the stream.
    pub(crate) fn complete(&mut self, stream: u64) {
        let (block, mut out) = (HeaderBlock::response(204), Vec::new());
        self.connection.respond(StreamId::new(stream), &[block.as_bytes()], true, &mut out).unwrap();
        self.release(stream);
    }

    pub(crate) fn release(&mut self, stream: u64) {
        self.connection.release(StreamId::new(stream));
    }
}
