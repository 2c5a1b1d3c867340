//! The records of FastCGI that carry requests and responses.
//!
//! The specification is by Open Market, 1996 (<https://fastcgi-archives.github.io/FastCGI_Specification.html>).

use bytes::{Buf, Bytes, BytesMut};

use super::params::Script;
use crate::upstream::Forwarded;

/// The types of records that a request with the role of a responder has.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const VERSION: u8 = 1;

/// Bytes of a record's head, and of the content of END_REQUEST.
const HEAD: usize = 8;

/// A request's number on its connection, and whether the connection is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestId {
    /// From 1. Each request of a connection has another number, which tells late records from the records of the next request.
    pub(super) number: u16,
    /// Whether the connection stays open behind the response.
    pub(super) keeps: bool,
}

/// The records before the content. `length`: the length of the content, if there is any.
pub(super) fn head(id: RequestId, script: &Script, request: &Forwarded, length: Option<u64>) -> BytesMut {
    let mut pairs = Vec::with_capacity(2048);
    script.variables(request, length, |name, value| pair(&mut pairs, name.as_bytes(), value));
    let mut head = BytesMut::with_capacity(pairs.len() + 64);
    begin(&mut head, id);
    stream(&mut head, id.number, PARAMS, &pairs);
    head
}

/// The head of a record of content, or of the empty record that ends it.
pub(super) fn stdin_head(id: RequestId, length: u16) -> [u8; HEAD] {
    record_head(STDIN, id.number, length)
}

/// The head of a record whose content has this length.
fn record_head(kind: u8, id: u16, length: u16) -> [u8; HEAD] {
    let ([id_high, id_low], [high, low]) = (id.to_be_bytes(), length.to_be_bytes());
    [VERSION, kind, id_high, id_low, high, low, 0, 0]
}

/// The record that begins a request to a responder.
fn begin(to: &mut BytesMut, id: RequestId) {
    to.extend_from_slice(&record_head(BEGIN_REQUEST, id.number, HEAD as u16));
    // FCGI_KEEP_CONN
    to.extend_from_slice(&[0, 1, u8::from(id.keeps), 0, 0, 0, 0, 0]);
}

/// Appends a name with its value to the content of PARAMS.
fn pair(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(short) if short < 128 => to.push(short),
            // No request has 2 GiB of fields.
            _ => to.extend_from_slice(&(text.len() as u32 | 1 << 31).to_be_bytes()),
        }
    }
    to.extend_from_slice(name);
    to.extend_from_slice(value);
}

/// Cuts the content of a stream into records, and ends it.
fn stream(to: &mut BytesMut, id: u16, kind: u8, content: &[u8]) {
    for part in content.chunks(usize::from(u16::MAX)) {
        to.extend_from_slice(&record_head(kind, id, part.len() as u16));
        to.extend_from_slice(part);
    }
    to.extend_from_slice(&record_head(kind, id, 0));
}

/// An event in the records of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A part of the response, never empty.
    Stdout(Bytes),
    /// A part of the application's output for the log, never empty.
    Stderr(Bytes),
    /// The request has ended.
    End(Ended),
}

/// How a request ended (§5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ended {
    /// FCGI_REQUEST_COMPLETE, with the status of the application, such as the exit status of a CGI program.
    #[error("the application ended with status {0}")]
    Complete(u32),
    #[error("the server takes one request at a time on a connection (FCGI_CANT_MPX_CONN)")]
    CannotMultiplex,
    #[error("the server has no process for the request (FCGI_OVERLOADED)")]
    Overloaded,
    #[error("the server does not run scripts (FCGI_UNKNOWN_ROLE): name the port or socket of a responder")]
    UnknownRole,
    #[error("the server ended the request with protocol status {0}, which FastCGI does not define")]
    Unknown(u8),
}

impl Ended {
    /// From the content of END_REQUEST.
    fn of(content: &[u8; HEAD]) -> Self {
        let [a, b, c, d, protocol, ..] = *content;
        match protocol {
            0 => Ended::Complete(u32::from_be_bytes([a, b, c, d])),
            1 => Ended::CannotMultiplex,
            2 => Ended::Overloaded,
            3 => Ended::UnknownRole,
            other => Ended::Unknown(other),
        }
    }

    /// Whether the server may take the same request later.
    pub(super) fn is_busy(self) -> bool {
        matches!(self, Ended::CannotMultiplex | Ended::Overloaded)
    }
}

/// The reason why a record is not a part of a response.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRecord {
    #[error("version {0} of FastCGI is not supported")]
    Version(u8),
    #[error("a record is for request {0}, which does not exist")]
    Request(u16),
    #[error("a response has no records of type {0}")]
    Type(u8),
    #[error("the record that ends the request has {0} octets")]
    End(usize),
    #[error("its records have too much padding, or too little content each")]
    Framing,
}

/// Reads records as their bytes come: content is passed on before its record is whole.
#[derive(Debug)]
pub(super) struct Records {
    /// The number of the request.
    id: u16,
    kind: u8,
    /// Bytes of content that are still to come.
    left: usize,
    /// Bytes of padding behind them.
    padding: usize,
    /// Bytes of heads and padding that may still come. Content adds to it.
    framing: usize,
}

/// Bytes of heads and padding between two bytes of content, as for chunks: a server that sends little content in much framing costs as much as a server
/// that sends much content.
const MAX_FRAMING: usize = 16 << 10;

/// How much a byte of content raises the rest of [`MAX_FRAMING`]. A record of one byte has eight of head, and seven of padding where records are
/// aligned.
const FRAMING_PER_BYTE: usize = 16;

impl Records {
    /// Reads the response to the request of this number.
    pub(super) fn new(id: u16) -> Self {
        Records { id, kind: 0, left: 0, padding: 0, framing: MAX_FRAMING }
    }

    /// Whether no record has begun.
    pub(super) fn is_between_records(&self) -> bool {
        self.left == 0 && self.padding == 0
    }

    /// The next event in `buffer`. `None`: more bytes are needed.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, BadRecord> {
        loop {
            if self.left == 0 {
                let padding = self.padding.min(buffer.len());
                buffer.advance(padding);
                self.padding -= padding;
                if self.padding > 0 || buffer.len() < HEAD {
                    return Ok(None);
                }
                self.begin(buffer)?;
                if self.left == 0 {
                    // The end of a stream says nothing: END_REQUEST does.
                    continue;
                }
            }
            if self.kind == END_REQUEST {
                let Some(content) = buffer.first_chunk() else { return Ok(None) };
                let ended = Ended::of(content);
                buffer.advance(HEAD);
                self.left = 0;
                return Ok(Some(Event::End(ended)));
            }
            let length = self.left.min(buffer.len());
            if length == 0 {
                return Ok(None);
            }
            self.left -= length;
            self.framing = MAX_FRAMING.min(self.framing + length.saturating_mul(FRAMING_PER_BYTE));
            let content = buffer.split_to(length).freeze();
            return Ok(Some(if self.kind == STDOUT { Event::Stdout(content) } else { Event::Stderr(content) }));
        }
    }

    /// Takes the head of a record.
    fn begin(&mut self, buffer: &mut BytesMut) -> Result<(), BadRecord> {
        let [version, kind, id_high, id_low, high, low, padding, _] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| buffer[at]);
        buffer.advance(HEAD);
        if version != VERSION {
            return Err(BadRecord::Version(version));
        }
        if !matches!(kind, STDOUT | STDERR | END_REQUEST) {
            return Err(BadRecord::Type(kind));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        if id != self.id {
            return Err(BadRecord::Request(id));
        }
        self.kind = kind;
        self.left = usize::from(u16::from_be_bytes([high, low]));
        self.padding = usize::from(padding);
        self.framing = self.framing.checked_sub(HEAD + self.padding).ok_or(BadRecord::Framing)?;
        if kind == END_REQUEST && self.left != HEAD {
            return Err(BadRecord::End(self.left));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut record = record_head(kind, 1, content.len() as u16).to_vec();
        record[6] = padding;
        record.extend_from_slice(content);
        record.resize(record.len() + usize::from(padding), b'!');
        record
    }

    /// The events of bytes that come `at_a_time`, with parts of a stream joined.
    fn read(octets: &[u8], at_a_time: usize) -> Result<Vec<(u8, Vec<u8>)>, BadRecord> {
        let (mut records, mut buffer, mut events) = (Records::new(1), BytesMut::new(), Vec::<(u8, Vec<u8>)>::new());
        for part in octets.chunks(at_a_time) {
            buffer.extend_from_slice(part);
            while let Some(event) = records.next(&mut buffer)? {
                let (kind, content) = match event {
                    Event::Stdout(content) => (STDOUT, content.to_vec()),
                    Event::Stderr(content) => (STDERR, content.to_vec()),
                    Event::End(ended) => (END_REQUEST, format!("{ended:?}").into_bytes()),
                };
                assert!(!content.is_empty());
                match events.last_mut().filter(|(last, _)| *last == kind) {
                    Some((_, all)) => all.extend_from_slice(&content),
                    None => events.push((kind, content)),
                }
            }
        }
        Ok(events)
    }

    #[test]
    fn records_are_read_however_their_octets_come() {
        let long = vec![b'x'; 65535];
        let octets = [
            record(STDOUT, b"Status: 200\r\n\r\n", 3),
            record(STDERR, b"oh", 0),
            record(STDOUT, &long, 255),
            record(STDOUT, b"", 0),
            record(END_REQUEST, &[0, 0, 0, 1, 0, 0, 0, 0], 0),
        ]
        .concat();
        let expected = vec![
            (STDOUT, b"Status: 200\r\n\r\n".to_vec()),
            (STDERR, b"oh".to_vec()),
            (STDOUT, long.clone()),
            (END_REQUEST, b"Complete(1)".to_vec()),
        ];
        for at_a_time in [1, 7, 8, 9, 4096, octets.len()] {
            assert_eq!(read(&octets, at_a_time), Ok(expected.clone()), "{at_a_time}");
        }
        for (content, expected) in [
            ([0, 0, 1, 0, 0, 0, 0, 0], "Complete(256)"),
            ([0, 0, 0, 0, 1, 0, 0, 0], "CannotMultiplex"),
            ([0, 0, 0, 9, 2, 0, 0, 0], "Overloaded"),
            ([0, 0, 0, 0, 3, 7, 7, 7], "UnknownRole"),
            ([0, 0, 0, 0, 4, 0, 0, 0], "Unknown(4)"),
        ] {
            let record = record(END_REQUEST, &content, 0);
            assert_eq!(read(&record, 3), Ok(vec![(END_REQUEST, expected.as_bytes().to_vec())]));
        }
    }

    #[test]
    fn what_is_no_record_of_an_answer_is_refused() {
        let with = |at: usize, octet: u8| {
            let mut record = record(STDOUT, b"x", 0);
            record[at] = octet;
            record
        };
        for (octets, expected) in [
            (with(0, b'H'), BadRecord::Version(b'H')),
            (with(1, STDIN), BadRecord::Type(STDIN)),
            (with(1, 11), BadRecord::Type(11)),
            (with(3, 2), BadRecord::Request(2)),
            (with(2, 1), BadRecord::Request(257)),
            (record(END_REQUEST, b"", 0), BadRecord::End(0)),
            (record(END_REQUEST, &[0; 9], 0), BadRecord::End(9)),
        ] {
            assert_eq!(read(&octets, 1), Err(expected));
        }
    }

    #[test]
    fn heads_and_padding_are_bounded_by_the_content() {
        // Records of one byte may be aligned, for ever.
        let aligned = record(STDOUT, b"x", 7).repeat(100_000);
        assert_eq!(read(&aligned, 4096), Ok(vec![(STDOUT, vec![b'x'; 100_000])]));
        let most = MAX_FRAMING / (HEAD + 255);
        for (flood, most) in [
            // Each gives 16 back.
            (record(STDOUT, b"x", 255), MAX_FRAMING / (HEAD + 255 - 16)),
            (record(STDERR, b"x", 255), MAX_FRAMING / (HEAD + 255 - 16)),
            (record(STDOUT, b"", 255), most),
            (record(STDERR, b"", 0), MAX_FRAMING / HEAD),
        ] {
            assert!(read(&flood.repeat(most), 4096).is_ok(), "{flood:?}");
            assert_eq!(read(&flood.repeat(most + 2), 4096), Err(BadRecord::Framing), "{flood:?}");
            // However much content came before.
            let before = record(STDOUT, &[b'x'; 60_000], 0).repeat(20);
            assert_eq!(read(&[before, flood.repeat(most + 2)].concat(), 4096), Err(BadRecord::Framing), "{flood:?}");
        }
    }

    #[test]
    fn long_names_and_values_have_four_octets_of_length() {
        let mut pairs = Vec::new();
        pair(&mut pairs, b"A", b"");
        pair(&mut pairs, &[b'n'; 127], &[b'v'; 128]);
        assert_eq!(pairs[..3], [1, 0, b'A']);
        assert_eq!(pairs[3..8], [127, 0x80, 0, 0, 128]);
        assert_eq!(pairs.len(), 8 + 127 + 128);
        let mut records = BytesMut::new();
        stream(&mut records, 1, PARAMS, &[0; 65536]);
        assert_eq!(records.len(), 3 * HEAD + 65536);
        assert_eq!(records[..HEAD], [1, PARAMS, 0, 1, 255, 255, 0, 0]);
        assert_eq!(records[HEAD + 65535..][..HEAD], [1, PARAMS, 0, 1, 0, 1, 0, 0]);
        assert_eq!(records[records.len() - HEAD..], [1, PARAMS, 0, 1, 0, 0, 0, 0]);
    }
}
