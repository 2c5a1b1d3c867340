//! The layout of a line: format, fields, envelope.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use sealion_http::write_decimal;
use sealion_tls::Version;
use serde::{Deserialize, Serialize};

use super::destination::{Destination, Syslog};
use super::entry::{Entry, Requested};
use super::escape;
use super::field::Field;
use super::stamp::Stamp;

/// The format of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// `name=value` and `name="value"`, with spaces between them.
    #[default]
    Logfmt,
    /// The combined format of nginx and Apache httpd.
    Combined,
    /// A JSON object.
    Json,
}

/// The format, the fields and the envelope of a line.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    format: Format,
    fields: Vec<Field>,
    /// Whether the operator chose the fields. If so, every line has all of them, so that columns are stable.
    chosen: bool,
    envelope: Envelope,
}

/// The framing of a line for its destination.
#[derive(Debug, Clone)]
enum Envelope {
    /// A line feed at the end.
    Line,
    /// RFC 5424 §6, with the constant HOSTNAME, APP-NAME, PROCID and MSGID.
    Syslog(String),
    /// As syslog(3) writes to /dev/log, but without the time, which daemons add. Not RFC 5424: rsyslog and journald do not parse it there,
    /// and take its version for the program name.
    Local(String),
    /// An entry of the journal's native protocol.
    Journal,
}

/// local7, informational (RFC 5424 §6.2.1). INHERITED from nginx.
const PRIORITY: u8 = 23 * 8 + 6;

impl Layout {
    /// Without `fields`, the usual ones are used. The fields of `combined` are fixed.
    pub(crate) fn new(format: Format, fields: &[Field]) -> Self {
        let chosen = !fields.is_empty();
        let fields = if chosen { fields.to_vec() } else { Field::USUAL.to_vec() };
        Self { format, fields, chosen, envelope: Envelope::Line }
    }

    /// The same layout with the envelope of a destination.
    pub(super) fn for_destination(self, destination: &Destination) -> Self {
        let envelope = match destination {
            Destination::Off | Destination::Stdout | Destination::File(_) => Envelope::Line,
            Destination::Journald => Envelope::Journal,
            Destination::Syslog(Syslog::Unix(_)) => {
                Envelope::Local(format!("<{PRIORITY}>sealion[{}]: ", std::process::id()))
            }
            Destination::Syslog(Syslog::Udp(_)) => {
                let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let node: String = node.chars().filter(char::is_ascii_graphic).collect();
                let host = if node.is_empty() { "-" } else { &node };
                Envelope::Syslog(format!("{host} sealion {} access -", std::process::id()))
            }
        };
        Self { envelope, ..self }
    }

    /// Appends the line, ready for its destination.
    pub(super) fn write_line(&self, line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp) {
        match &self.envelope {
            Envelope::Line => {
                self.write(line, entry, stamp);
                line.push(b'\n');
            }
            Envelope::Syslog(constant) => {
                // Writing to a Vec cannot fail.
                let _ = write!(line, "<{PRIORITY}>1 ");
                stamp.write_rfc3339(line);
                let _ = write!(line, " {constant} ");
                self.write(line, entry, stamp);
            }
            Envelope::Local(head) => {
                line.extend_from_slice(head.as_bytes());
                self.write(line, entry, stamp);
            }
            Envelope::Journal => {
                line.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=sealion\nMESSAGE=");
                self.write(line, entry, stamp);
                line.push(b'\n');
                for &field in &self.fields {
                    let value = Value::of(field, entry, stamp);
                    if !value.is_absent() {
                        line.extend_from_slice(b"SEALION_");
                        line.extend(field.label().bytes().map(|byte| byte.to_ascii_uppercase()));
                        line.push(b'=');
                        value.write_plain(line);
                        line.push(b'\n');
                    }
                }
            }
        }
    }

    fn write(&self, line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp) {
        match self.format {
            Format::Logfmt => self.write_logfmt(line, entry, stamp),
            Format::Json => self.write_json(line, entry, stamp),
            Format::Combined => write_combined(line, entry, stamp),
        }
    }

    fn shown<'e>(&self, entry: &'e Entry<'_>, stamp: &'e Stamp) -> impl Iterator<Item = (Field, Value<'e>)> {
        let occasional = |field| matches!(field, Field::SetupUs | Field::Aborted);
        self.fields
            .iter()
            .map(move |&field| (field, Value::of(field, entry, stamp)))
            .filter(move |(field, value)| self.chosen || !(occasional(*field) && value.is_absent()))
    }

    fn write_logfmt(&self, line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp) {
        for (n, (field, value)) in self.shown(entry, stamp).enumerate() {
            if n > 0 {
                line.push(b' ');
            }
            line.extend_from_slice(field.label().as_bytes());
            line.push(b'=');
            value.write_logfmt(line);
        }
    }

    fn write_json(&self, line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp) {
        for (n, (field, value)) in self.shown(entry, stamp).enumerate() {
            line.push(if n == 0 { b'{' } else { b',' });
            line.push(b'"');
            line.extend_from_slice(field.label().as_bytes());
            line.extend_from_slice(b"\":");
            value.write_json(line);
        }
        line.push(b'}');
    }
}

/// `%h - %u [time] "request" status bytes "referer" "user agent"`.
fn write_combined(line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp) {
    write_address(line, entry.peer.ip());
    line.extend_from_slice(b" - ");
    match entry.user {
        Some(user) => escape::combined_word(line, user.as_bytes()),
        None => line.push(b'-'),
    }
    line.extend_from_slice(b" [");
    line.extend_from_slice(stamp.combined().as_bytes());
    line.extend_from_slice(b"] \"");
    match entry.request {
        Some(Requested { request, protocol, .. }) => {
            escape::combined(line, request.method.as_str().as_bytes());
            line.push(b' ');
            escape::combined(line, request.raw_target.as_bytes());
            line.push(b' ');
            line.extend_from_slice(protocol.as_bytes());
        }
        None => line.push(b'-'),
    }
    let field = |name| entry.request.and_then(|requested| requested.field(name)).unwrap_or(b"-");
    line.extend_from_slice(b"\" ");
    write_decimal(line, entry.status.into());
    line.push(b' ');
    write_decimal(line, entry.body);
    line.extend_from_slice(b" \"");
    escape::combined(line, field("referer"));
    line.extend_from_slice(b"\" \"");
    escape::combined(line, field("user-agent"));
    line.push(b'"');
}

/// Appends an address as its `Display` does, which takes ten times as long for IPv4.
fn write_address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (n, octet) in v4.octets().into_iter().enumerate() {
                if n > 0 {
                    line.push(b'.');
                }
                write_decimal(line, octet.into());
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(v6) => _ = write!(line, "{v6}"),
    }
}

/// Appends microseconds as milliseconds, with three decimals.
fn write_millis(line: &mut Vec<u8>, micros: u64) {
    write_decimal(line, micros / 1000);
    line.push(b'.');
    escape::push_padded(line, (micros % 1000) as u16);
}

/// The value of a field.
enum Value<'a> {
    Absent,
    /// From the server: has no space, quote or control.
    Word(&'static str),
    /// `yes` or `no`; a boolean in JSON.
    Flag(bool),
    Number(u64),
    Millis(u64),
    Time(&'a Stamp),
    Peer(SocketAddr),
    Address(IpAddr),
    /// A token (RFC 9110 §5.6.2).
    Token(&'a [u8]),
    /// Any bytes.
    Text(&'a [u8]),
    /// Any text, once formatted.
    Message(&'a dyn Display),
}

impl<'a> Value<'a> {
    fn of(field: Field, entry: &'a Entry<'_>, stamp: &'a Stamp) -> Self {
        let text = |text: Option<&'a str>| text.map_or(Value::Absent, |text| Value::Text(text.as_bytes()));
        let requested = entry.request;
        let field_of_request =
            |name| requested.and_then(|requested| requested.field(name)).map_or(Value::Absent, Value::Text);
        match field {
            Field::Time => Value::Time(stamp),
            Field::Peer => Value::Peer(entry.peer),
            Field::Address => Value::Address(entry.peer.ip()),
            Field::Site => text(requested.map(|requested| requested.site).filter(|site| !site.is_empty())),
            Field::Host => text(requested.and_then(|requested| requested.request.authority)),
            Field::Sni => text(entry.tls.server_name.as_deref()),
            Field::User => text(entry.user),
            Field::Method => {
                requested.map_or(Value::Absent, |requested| Value::Token(requested.request.method.as_str().as_bytes()))
            }
            // Quoted even if the request could not be read.
            Field::Target => Value::Text(requested.map_or(b"-", |requested| requested.request.raw_target.as_bytes())),
            Field::Protocol => requested.map_or(Value::Absent, |requested| Value::Word(requested.protocol)),
            Field::Status => Value::Number(entry.status.into()),
            Field::Bytes => Value::Number(entry.body),
            Field::Encoding => entry.encoding.map_or(Value::Absent, |coding| Value::Token(coding.token().as_bytes())),
            Field::Ms => Value::Millis(entry.duration.as_micros() as u64),
            Field::Tls => Value::Word(match entry.tls.version {
                Version::Tls12 => "1.2",
                Version::Tls13 => "1.3",
            }),
            Field::Suite => Value::Word(entry.tls.suite),
            Field::Resumed => Value::Flag(entry.tls.resumed),
            Field::Path => Value::Word(entry.path.as_str()),
            Field::Why => entry.why.map_or(Value::Absent, |why| Value::Word(why.label())),
            Field::MovedAt => entry.moved_at.map_or(Value::Absent, Value::Number),
            Field::SetupUs => entry.set_up.map_or(Value::Absent, |took| Value::Number(took.as_micros() as u64)),
            Field::Aborted => entry.aborted.map_or(Value::Absent, Value::Message),
            Field::Referer => field_of_request("referer"),
            Field::UserAgent => field_of_request("user-agent"),
        }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Value::Absent)
    }

    /// Writes a value that is the same in every format. `false`: it depends on the format.
    fn write_common(&self, line: &mut Vec<u8>) -> bool {
        match self {
            Value::Number(number) => write_decimal(line, *number),
            Value::Millis(micros) => write_millis(line, *micros),
            _ => return false,
        }
        true
    }

    fn write_logfmt(&self, line: &mut Vec<u8>) {
        if self.write_common(line) {
            return;
        }
        match self {
            Value::Text(text) => escape::quoted(line, text),
            Value::Message(message) => escape::quoted(line, message.to_string().as_bytes()),
            _ => self.write_plain(line),
        }
    }

    fn write_json(&self, line: &mut Vec<u8>) {
        if self.write_common(line) {
            return;
        }
        match self {
            Value::Absent => line.extend_from_slice(b"null"),
            Value::Flag(flag) => line.extend_from_slice(if *flag { b"true".as_slice() } else { b"false" }),
            Value::Text(text) | Value::Token(text) => escape::json(line, text),
            Value::Message(message) => escape::json(line, message.to_string().as_bytes()),
            _ => {
                line.push(b'"');
                self.write_plain(line);
                line.push(b'"');
            }
        }
    }

    fn write_plain(&self, line: &mut Vec<u8>) {
        if self.write_common(line) {
            return;
        }
        match self {
            Value::Absent => line.push(b'-'),
            Value::Flag(flag) => line.extend_from_slice(if *flag { b"yes".as_slice() } else { b"no" }),
            Value::Word(word) => line.extend_from_slice(word.as_bytes()),
            Value::Time(stamp) => stamp.write_rfc3339(line),
            Value::Peer(SocketAddr::V4(peer)) => {
                write_address(line, IpAddr::V4(*peer.ip()));
                line.push(b':');
                write_decimal(line, peer.port().into());
            }
            // Writing to a Vec cannot fail.
            Value::Peer(peer) => _ = write!(line, "{peer}"),
            Value::Address(address) => write_address(line, *address),
            Value::Token(text) | Value::Text(text) => escape::plain(line, text),
            Value::Message(message) => escape::plain(line, message.to_string().as_bytes()),
            Value::Number(_) | Value::Millis(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
pub(super) mod tests;
