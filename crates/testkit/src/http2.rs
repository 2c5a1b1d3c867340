//! A client of HTTP/2 that controls frames. It reads only the status of a response's fields; tests of other fields use
//! curl.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::{Client, Connector};

/// The first bytes of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Frame types (RFC 9113 §6).
/// DATA frame.
pub const DATA: u8 = 0;
/// HEADERS frame.
pub const HEADERS: u8 = 1;
/// RST_STREAM frame.
pub const RST_STREAM: u8 = 3;
/// SETTINGS frame.
pub const SETTINGS: u8 = 4;
/// PING frame.
pub const PING: u8 = 6;
/// GOAWAY frame.
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE frame.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION frame.
pub const CONTINUATION: u8 = 9;
/// PRIORITY_UPDATE frame (RFC 9218 §7.1).
pub const PRIORITY_UPDATE: u8 = 16;

/// Flag of DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// Flag of SETTINGS and PING.
pub const ACK: u8 = 1;
/// Flag of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 4;

// Settings (RFC 9113 §6.5.2).
/// SETTINGS_MAX_CONCURRENT_STREAMS.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

// Error codes (RFC 9113 §7).
/// Error code NO_ERROR.
pub const NO_ERROR: u32 = 0;
/// Error code PROTOCOL_ERROR.
pub const PROTOCOL_ERROR: u32 = 1;
/// Error code INTERNAL_ERROR.
pub const INTERNAL_ERROR: u32 = 2;
/// Error code FLOW_CONTROL_ERROR.
pub const FLOW_CONTROL_ERROR: u32 = 3;
/// Error code SETTINGS_TIMEOUT.
pub const SETTINGS_TIMEOUT: u32 = 4;
/// Error code REFUSED_STREAM.
pub const REFUSED_STREAM: u32 = 7;
/// Error code CANCEL.
pub const CANCEL: u32 = 8;
/// Error code COMPRESSION_ERROR.
pub const COMPRESSION_ERROR: u32 = 9;
/// Error code ENHANCE_YOUR_CALM.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// The largest window.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By END_STREAM.
    Whole,
    /// By RST_STREAM with this code.
    Reset(u32),
}

/// The data received on a stream.
#[derive(Clone, Debug, Default)]
pub struct Got {
    /// The status; 0 until the head has arrived.
    pub status: u16,
    /// The content so far.
    pub body: Vec<u8>,
    /// How the stream ended, if it has.
    pub ended: Option<Ended>,
}

impl Got {
    /// The status and content of a response that ended completely.
    #[track_caller]
    pub fn whole(&self) -> (u16, &[u8]) {
        assert_eq!(self.ended, Some(Ended::Whole), "status {}, {} bytes", self.status, self.body.len());
        (self.status, &self.body)
    }
}

/// A connection whose preface is sent.
pub struct Http2 {
    /// The connection below.
    pub client: Client,
    next: u32,
    /// Each stream on which a frame arrived, by its number.
    pub streams: BTreeMap<u32, Got>,
    /// The last stream and the code of each GOAWAY.
    pub go_aways: Vec<(u32, u32)>,
    /// The settings of the server.
    pub settings: Vec<(u16, u32)>,
    /// The number of our SETTINGS frames that it acknowledged.
    pub acknowledged: usize,
    /// Replies to PING.
    pub pongs: usize,
    /// Stream and length of the DATA frames, in the order of arrival.
    pub data: Vec<(u32, usize)>,
    /// Bytes that the server granted to each window; stream 0 is the connection.
    pub granted: BTreeMap<u32, u64>,
    /// The number of bytes after which a window is opened again by that number; 0: never.
    pub credit: u32,
    /// Whether SETTINGS and PING are acknowledged.
    pub polite: bool,
}

impl Http2 {
    /// Connects with ALPN `h2`, and sends the preface with these settings.
    ///
    /// # Panics
    /// The connection fails.
    #[track_caller]
    pub fn connect(connector: Connector, address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut http = Self::silent(connector, address);
        http.greet(settings).expect("the preface leaves");
        http
    }

    /// Connects with ALPN `h2`, and sends nothing, not even replies, which would precede the preface.
    ///
    /// # Panics
    /// The connection fails.
    #[track_caller]
    pub fn silent(connector: Connector, address: SocketAddr) -> Self {
        Self::over(connector.alpn(&[b"h2"]).connect(address))
    }

    /// Wraps an open connection with ALPN `h2`. Sends nothing.
    ///
    /// # Panics
    /// The server chose another protocol.
    #[track_caller]
    pub fn over(client: Client) -> Self {
        assert_eq!(client.info().alpn.as_deref(), Some(&b"h2"[..]));
        Self {
            client,
            next: 1,
            streams: BTreeMap::new(),
            go_aways: Vec::new(),
            settings: Vec::new(),
            acknowledged: 0,
            pongs: 0,
            data: Vec::new(),
            granted: BTreeMap::new(),
            credit: 1,
            polite: false,
        }
    }

    /// Sends the preface with these settings, and acknowledges from now on.
    ///
    /// # Errors
    /// The transport's.
    pub fn greet(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        self.polite = true;
        self.client.send(&[PREFACE, &settings_frame(settings)].concat())
    }

    /// Sends bytes unchanged.
    ///
    /// # Panics
    /// The connection is broken.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.client.send(bytes).expect("the frames leave");
    }

    /// Sends a GET of `path`. Returns its stream.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> u32 {
        self.request("GET", path, &[], true)
    }

    /// Sends a request, whose content follows unless `end`. Returns its stream.
    #[track_caller]
    pub fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)], end: bool) -> u32 {
        let block = block(method, path, fields);
        let stream = self.stream();
        self.send(&headers(stream, end, &block));
        stream
    }

    /// The number of the next stream.
    pub fn stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// As [`Client::read`].
    ///
    /// # Panics
    /// The server violates the protocol.
    pub fn read(&mut self) -> io::Result<()> {
        let head = self.client.read(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = number(&head[5..]) & MAX_WINDOW;
        assert!(length <= 16_384, "a frame of {length} bytes");
        let payload = self.client.read(length)?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            DATA => {
                let got = self.streams.entry(stream).or_default();
                assert_eq!(got.ended, None, "DATA behind the end of stream {stream}");
                got.body.extend_from_slice(&payload);
                self.data.push((stream, length));
                let ended = flags & END_STREAM != 0;
                if ended {
                    got.ended = Some(Ended::Whole);
                }
                if self.credit > 0 && length > 0 {
                    let increment = (length as u32).max(self.credit);
                    let mut updates = window_update(0, increment);
                    if !ended {
                        updates.extend(window_update(stream, increment));
                    }
                    // The server may have closed already.
                    let _ = self.client.send(&updates);
                }
            }
            HEADERS => {
                // The status stands first: the rest of a block may come in CONTINUATION frames.
                let got = self.streams.entry(stream).or_default();
                assert_eq!((got.status, got.ended), (0, None), "a second head on stream {stream}");
                got.status = status(&payload);
                if flags & END_STREAM != 0 {
                    got.ended = Some(Ended::Whole);
                }
            }
            RST_STREAM => {
                let got = self.streams.entry(stream).or_default();
                // NO_ERROR after the end: the server does not need the rest of the request.
                if got.ended != Some(Ended::Whole) || number(&payload) != NO_ERROR {
                    got.ended = Some(Ended::Reset(number(&payload)));
                }
            }
            SETTINGS if flags & ACK != 0 => self.acknowledged += 1,
            SETTINGS => {
                self.settings =
                    payload.chunks(6).map(|s| (u16::from_be_bytes([s[0], s[1]]), number(&s[2..]))).collect();
                if self.polite {
                    let _ = self.client.send(&frame(SETTINGS, ACK, 0, &[]));
                }
            }
            PING if flags & ACK != 0 => self.pongs += 1,
            PING if self.polite => drop(self.client.send(&frame(PING, ACK, 0, &payload))),
            WINDOW_UPDATE => *self.granted.entry(stream).or_default() += u64::from(number(&payload)),
            GOAWAY => self.go_aways.push((number(&payload) & MAX_WINDOW, number(&payload[4..]))),
            _ => {}
        }
        Ok(())
    }

    /// Reads frames until `done`.
    #[track_caller]
    pub fn read_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            if let Err(error) = self.read() {
                panic!("{what}: {error}; GOAWAY {:?}", self.go_aways);
            }
        }
    }

    /// Reads until the stream has ended.
    #[track_caller]
    pub fn response(&mut self, stream: u32) -> &Got {
        self.read_until(&format!("stream {stream}"), |http| http.has_ended(stream));
        &self.streams[&stream]
    }

    /// Whether the stream has ended, whole or not.
    pub fn has_ended(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|got| got.ended.is_some())
    }

    /// Sends a GET of `path` and reads its whole response.
    #[track_caller]
    pub fn fetch(&mut self, path: &str) -> (u16, Vec<u8>) {
        let stream = self.get(path);
        let (status, body) = self.response(stream).whole();
        (status, body.to_vec())
    }

    /// Requests `large`, and the urgent response when `begun` bytes of `large` are here. Returns the bytes of `large`
    /// that came between this request and the end of its response.
    ///
    /// # Panics
    /// A response fails.
    #[track_caller]
    pub fn overtake(&mut self, large: &str, begun: usize, urgent: &str) -> usize {
        self.credit = 0;
        self.send(&window_update(0, 1 << 30));
        let large = self.request("GET", large, &[("priority", "u=5")], true);
        let bytes = |http: &Self| http.streams.get(&large).map_or(0, |got| got.body.len());
        self.read_until("it has begun", |http| bytes(http) >= begun);
        let before = bytes(self);
        let urgent = self.request("GET", urgent, &[("priority", "u=0")], true);
        self.response(urgent).whole();
        bytes(self) - before
    }

    /// Sends PING and waits for its reply: then the server has read all earlier data.
    #[track_caller]
    pub fn ping(&mut self) {
        let before = self.pongs;
        self.send(&frame(PING, 0, 0, b"tests888"));
        self.read_until("the reply to PING", |http| http.pongs > before);
    }

    /// Reads until the connection ends. Returns how it ended, for instance `Alert(close_notify)`.
    #[track_caller]
    pub fn read_to_end(&mut self) -> String {
        self.end_before(|_| false).expect("nothing else ends the reading")
    }

    /// Reads until `done`. Returns how the connection ended, if it ended first.
    #[track_caller]
    pub fn end_before(&mut self, done: impl Fn(&Self) -> bool) -> Option<String> {
        while !done(self) {
            if let Err(error) = self.read() {
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}; GOAWAY {:?}", self.go_aways);
                return Some(error.to_string());
            }
        }
        None
    }

    /// Reads until the connection ends with close_notify. Returns the code of the last GOAWAY.
    #[track_caller]
    pub fn closed(&mut self) -> u32 {
        let how = self.read_to_end();
        assert!(how.starts_with("Alert(close_notify)"), "{how}; GOAWAY {:?}", self.go_aways);
        self.go_aways.last().expect("GOAWAY comes first").1
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A frame, whatever its payload.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A whole header block in one HEADERS frame.
pub fn headers(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, block)
}

/// A SETTINGS frame.
pub fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let setting = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &settings.iter().flat_map(setting).collect::<Vec<_>>())
}

/// A WINDOW_UPDATE frame; stream 0 is the connection.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// A RST_STREAM frame.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// The header block of a request. A field with a leading colon replaces the pseudo-header field of that name.
pub fn block(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    let mut block = Vec::new();
    for (name, value) in pseudo {
        let other = fields.iter().find(|(field, _)| *field == name);
        literal(&mut block, name, other.map_or(value, |(_, value)| value));
    }
    fields.iter().filter(|(name, _)| !name.starts_with(':')).for_each(|(name, value)| literal(&mut block, name, value));
    block
}

/// A field without indexing (RFC 7541 §6.2.2).
pub fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        match text.len() {
            short @ ..127 => block.push(short as u8),
            mut rest => {
                block.push(127);
                rest -= 127;
                while rest >= 128 {
                    block.push(rest as u8 | 128);
                    rest >>= 7;
                }
                block.push(rest as u8);
            }
        }
        block.extend(text.as_bytes());
    }
}

/// `:status`, which comes first, or after an update of the table size.
#[track_caller]
fn status(block: &[u8]) -> u16 {
    let block = block.strip_prefix(&[0x20]).unwrap_or(block);
    match block {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        [_, 3, digits @ ..] => {
            std::str::from_utf8(&digits[..3]).ok().and_then(|digits| digits.parse().ok()).expect("three digits")
        }
        other => panic!("no status: {}", other.escape_ascii()),
    }
}
