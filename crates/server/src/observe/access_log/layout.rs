//! The layout of a line: format, fields, envelope.

use std::io::Write as _;
use std::ops::Range;

use schemars::JsonSchema;
use sealion_http::write_decimal;
use sealion_tls::{Group, SealedBy, Version};
use serde::{Deserialize, Serialize};

use super::destination::{Destination, Syslog};
use super::entry::{Entry, Requested};
use super::escape;
use super::field::{Field, Line, Naming, Shown};
use super::stamp::Stamp;
use super::text::{Escape, Text};
use super::value::Value;
use crate::path::policy::PathReason;
use crate::values::write_address;

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
    fields: Vec<Named>,
    /// The fields among `fields` that [`Sealing`] decides. Empty if they come first.
    of_sealing: Range<usize>,
    /// Whether the operator chose the fields. If so, every line has all of them, so that the columns are stable.
    chosen: bool,
    /// The operator's own text in place of all fields.
    text: Option<Text>,
    envelope: Envelope,
}

/// A field of a line, and its name as written by the format, with the separator before it.
#[derive(Debug, Clone)]
struct Named {
    field: Field,
    name: Box<[u8]>,
}

impl Named {
    fn new(field: Field, format: Format) -> Self {
        let name = match format {
            Format::Json => format!(",\"{}\":", field.label()),
            Format::Logfmt | Format::Combined => format!(" {}=", field.label()),
        };
        Self { field, name: name.into_bytes().into() }
    }
}

/// How a response was sealed: the same for most responses of a connection, and of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sealing {
    handshake: Option<(Version, &'static str, Option<Group>, bool)>,
    path: SealedBy,
    why: Option<PathReason>,
}

impl Sealing {
    fn of(entry: &Entry<'_>) -> Self {
        let handshake = entry.tls.map(|tls| (tls.version, tls.suite, tls.group, tls.resumed));
        Sealing { handshake, path: entry.outcome.path, why: entry.outcome.reason }
    }

    /// Whether it decides the value of a field.
    fn decides(field: Field) -> bool {
        matches!(field, Field::Tls | Field::Suite | Field::Group | Field::Resumed | Field::Path | Field::Why)
    }
}

/// The fields of [`Sealing`] in a worker's last line, which most lines repeat.
#[derive(Debug, Default)]
pub(super) struct LastSealing {
    of: Option<Sealing>,
    text: Vec<u8>,
}

/// The framing of a line for its destination.
#[derive(Debug, Clone)]
enum Envelope {
    /// A line feed at the end.
    Line,
    /// RFC 5424 §6, with the constant HOSTNAME, APP-NAME, PROCID and MSGID.
    Syslog(String),
    /// As syslog(3) writes to /dev/log, but without the time, which daemons add. Not RFC 5424: rsyslog and journald do
    /// not parse it there, and would take its version for the program name.
    Local(String),
    /// An entry of the journal's native protocol.
    Journal,
}

/// local7, informational (RFC 5424 §6.2.1). INHERITED from nginx.
const PRIORITY: u8 = 23 * 8 + 6;

impl Layout {
    /// Without `fields`, a line has the default fields, including the fields for `naming`. The fields of `combined` are
    /// fixed.
    pub(crate) fn new(format: Format, fields: &[Field], naming: Naming) -> Self {
        let chosen = !fields.is_empty();
        let fields = if chosen { fields.to_vec() } else { Field::usual(naming) };
        let start = fields.iter().position(|field| Sealing::decides(*field)).unwrap_or(0);
        let is_first = start == 0;
        let count = fields[start..].iter().take_while(|field| Sealing::decides(**field) && !is_first).count();
        let fields = fields.into_iter().map(|field| Named::new(field, format)).collect();
        Self { format, fields, of_sealing: start..start + count, chosen, text: None, envelope: Envelope::Line }
    }

    /// The same layout with the operator's own text. `None`: without.
    pub(super) fn with_text(self, text: Option<Text>) -> Self {
        match text {
            Some(_) => Self { text, fields: Vec::new(), of_sealing: 0..0, ..self },
            None => self,
        }
    }

    /// The same layout with a destination's envelope.
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
    pub(super) fn write_line(&self, line: &mut Vec<u8>, entry: &Entry<'_>, stamp: &Stamp, last: &mut LastSealing) {
        let data = Line { entry, stamp };
        match &self.envelope {
            Envelope::Line => {
                self.write(line, &data, last);
                line.push(b'\n');
            }
            Envelope::Syslog(constant) => {
                // Writing to a Vec cannot fail.
                let _ = write!(line, "<{PRIORITY}>1 ");
                stamp.write_rfc3339(line);
                let _ = write!(line, " {constant} ");
                self.write(line, &data, last);
            }
            Envelope::Local(head) => {
                line.extend_from_slice(head.as_bytes());
                self.write(line, &data, last);
            }
            Envelope::Journal => {
                line.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=sealion\nMESSAGE=");
                self.write(line, &data, last);
                line.push(b'\n');
                for Named { field, .. } in &self.fields {
                    let value = field.value(&data);
                    if !value.is_absent() {
                        line.extend_from_slice(b"SEALION_");
                        line.extend(field.label().bytes().map(|byte| byte.to_ascii_uppercase()));
                        line.push(b'=');
                        value.write(line, escape::plain);
                        line.push(b'\n');
                    }
                }
            }
        }
    }

    fn write(&self, line: &mut Vec<u8>, data: &Line<'_, '_>, last: &mut LastSealing) {
        if let Some(text) = &self.text {
            let escape = if self.format == Format::Json { Escape::Json } else { Escape::Combined };
            return text.write(line, data, escape);
        }
        match self.format {
            Format::Logfmt => self.write_fields(line, data, last, |value, line| value.write(line, escape::quoted)),
            Format::Json => {
                line.push(b'{');
                self.write_fields(line, data, last, |value, line| value.write_json(line));
                line.push(b'}');
            }
            Format::Combined => write_combined(line, data),
        }
    }

    /// Appends names and values.
    fn write_fields(
        &self,
        line: &mut Vec<u8>,
        data: &Line<'_, '_>,
        last: &mut LastSealing,
        write: impl Fn(Value<'_>, &mut Vec<u8>),
    ) {
        let Range { start, end } = self.of_sealing;
        self.write_some(0..start, line, data, &write);
        if start < end {
            let sealing = Sealing::of(data.entry);
            if last.of != Some(sealing) {
                last.text.clear();
                self.write_some(start..end, &mut last.text, data, &write);
                last.of = Some(sealing);
            }
            line.extend_from_slice(&last.text);
        }
        self.write_some(end..self.fields.len(), line, data, &write);
    }

    /// Appends some of the fields. The first of all has no separator before it.
    fn write_some(
        &self,
        places: Range<usize>,
        line: &mut Vec<u8>,
        data: &Line<'_, '_>,
        write: impl Fn(Value<'_>, &mut Vec<u8>),
    ) {
        let mut is_first = places.start == 0;
        for Named { field, name } in &self.fields[places] {
            let value = field.value(data);
            if value.is_absent() && !self.chosen && field.shown() != Shown::Always {
                continue;
            }
            line.extend_from_slice(&name[usize::from(is_first)..]);
            is_first = false;
            write(value, line);
        }
    }
}

/// `%h - %u [time] "request" status bytes "referer" "user agent"`.
fn write_combined(line: &mut Vec<u8>, data: &Line<'_, '_>) {
    let entry = data.entry;
    write_address(line, entry.peer.ip());
    match entry.outcome.user {
        Some(user) => {
            line.extend_from_slice(b" - ");
            escape::combined_word(line, user.as_bytes());
            line.extend_from_slice(b" [");
        }
        None => line.extend_from_slice(b" - - ["),
    }
    line.extend_from_slice(data.stamp.combined().as_bytes());
    line.extend_from_slice(b"] \"");
    match entry.request {
        Some(Requested { request, protocol, .. }) => {
            // A token (RFC 9110 §9.1).
            line.extend_from_slice(request.method.as_str().as_bytes());
            line.push(b' ');
            escape::combined(line, request.raw_target.as_bytes());
            line.push(b' ');
            line.extend_from_slice(protocol.as_str().as_bytes());
        }
        None => line.push(b'-'),
    }
    line.extend_from_slice(b"\" ");
    write_decimal(line, entry.outcome.status.code().into());
    line.push(b' ');
    write_decimal(line, entry.outcome.body);
    let [referer, agent] = match entry.request {
        Some(Requested { request, .. }) => request.fields.first_of(["referer", "user-agent"]),
        None => [None, None],
    };
    let mut quoted = |value: Option<&[u8]>| match value {
        None | Some(b"") => line.extend_from_slice(b" \"-\""),
        Some(value) => {
            line.extend_from_slice(b" \"");
            escape::combined(line, value);
            line.push(b'"');
        }
    };
    quoted(referer);
    quoted(agent);
}

#[cfg(test)]
#[path = "layout_tests.rs"]
pub(super) mod tests;
