//! The values of fields, and their text.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use sealion_http::write_decimal;

use super::escape;
use super::stamp::Stamp;
use crate::values::write_address;

/// The value of a field.
pub(super) enum Value<'a> {
    Absent,
    /// A word chosen by the server, without spaces, quotes and control characters.
    Word(&'static str),
    /// `yes` or `no`; a boolean in JSON.
    Flag(bool),
    Number(u64),
    /// Microseconds, shown as milliseconds.
    Millis(u64),
    /// Microseconds, shown as seconds.
    Seconds(u64),
    Time(&'a Stamp),
    /// The time as the combined format has it.
    CombinedTime(&'a Stamp),
    Peer(SocketAddr),
    Address(IpAddr),
    /// A token (RFC 9110 §5.6.2).
    Token(&'a [u8]),
    /// Any bytes.
    Text(&'a [u8]),
    /// Any text, once formatted.
    Message(&'a dyn Display),
}

impl Value<'_> {
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Value::Absent)
    }

    /// Appends the value. `text`: writes text from the client.
    pub(super) fn write(&self, line: &mut Vec<u8>, text: impl Fn(&mut Vec<u8>, &[u8])) {
        match self {
            Value::Absent => line.push(b'-'),
            Value::Word(word) => line.extend_from_slice(word.as_bytes()),
            Value::Flag(flag) => line.extend_from_slice(if *flag { b"yes".as_slice() } else { b"no" }),
            Value::Number(number) => write_decimal(line, *number),
            Value::Millis(micros) => {
                write_decimal(line, micros / 1000);
                line.push(b'.');
                escape::push_padded(line, (micros % 1000) as u16);
            }
            Value::Seconds(micros) => {
                write_decimal(line, micros / 1_000_000);
                line.push(b'.');
                escape::push_padded(line, (micros / 1000 % 1000) as u16);
            }
            Value::Time(stamp) => stamp.write_rfc3339(line),
            // It has a space.
            Value::CombinedTime(stamp) => text(line, stamp.combined().as_bytes()),
            Value::Peer(SocketAddr::V4(peer)) => {
                write_address(line, IpAddr::V4(*peer.ip()));
                line.push(b':');
                write_decimal(line, peer.port().into());
            }
            // Writing to a Vec cannot fail.
            Value::Peer(peer) => _ = write!(line, "{peer}"),
            Value::Address(address) => write_address(line, *address),
            Value::Token(token) => line.extend_from_slice(token),
            Value::Text(value) => text(line, value),
            Value::Message(message) => text(line, message.to_string().as_bytes()),
        }
    }

    /// Appends the value as JSON (RFC 8259 §3).
    pub(super) fn write_json(&self, line: &mut Vec<u8>) {
        match self {
            Value::Absent => line.extend_from_slice(b"null"),
            Value::Flag(flag) => line.extend_from_slice(if *flag { b"true".as_slice() } else { b"false" }),
            Value::Number(_)
            | Value::Millis(_)
            | Value::Seconds(_)
            | Value::CombinedTime(_)
            | Value::Text(_)
            | Value::Message(_) => self.write(line, escape::json),
            Value::Word(_) | Value::Time(_) | Value::Peer(_) | Value::Address(_) | Value::Token(_) => {
                line.push(b'"');
                self.write(line, escape::json);
                line.push(b'"');
            }
        }
    }
}
