//! Writing the head of a response (RFC 9112 §2.1).

use super::framing::ResponseFraming;
use crate::date::HttpTime;
use crate::decimal::write_decimal;
use crate::fields::Fields;
use crate::status::Status;

/// The persistence that the head announces (RFC 9112 §9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// The connection persists, the default of HTTP/1.1.
    KeepAlive,
    /// The connection persists for an HTTP/1.0 client, which needs `Connection: keep-alive`.
    KeepAlive10,
    /// The connection closes after this response.
    Close,
    /// The connection becomes a tunnel after the head of this response, whose fields include Upgrade (RFC 9110 §7.8).
    Upgrade,
}

impl Connection {
    /// Its field line; empty where the version's default is meant.
    pub fn line(self) -> &'static [u8] {
        match self {
            Connection::KeepAlive => b"",
            Connection::KeepAlive10 => b"Connection: keep-alive\r\n",
            Connection::Close => b"Connection: close\r\n",
            Connection::Upgrade => b"Connection: Upgrade\r\n",
        }
    }
}

/// Inserts lines before the empty line that ends `head`.
pub fn insert_lines(head: &mut Vec<u8>, lines: &[u8]) {
    debug_assert!(head.ends_with(b"\r\n\r\n") && lines.ends_with(b"\r\n"), "whole lines");
    head.truncate(head.len() - 2);
    head.extend_from_slice(lines);
    head.extend_from_slice(b"\r\n");
}

/// Appends the head of a response, including the empty line. `date` is the value of Date.
///
/// Allocates only if `out` has to grow; a usual head has 250 to 350 bytes.
pub fn write_head(
    out: &mut Vec<u8>,
    status: Status,
    fields: &Fields,
    framing: ResponseFraming,
    connection: Connection,
    date: &HttpTime,
) {
    // Every member is named, so that a new member must be written here too.
    let Fields {
        content_type,
        content_encoding,
        varies,
        last_modified,
        etag,
        accept_ranges,
        content_range,
        location,
        allow,
        retry_after,
        // `needs_server` and `needs_date` handle these.
        anonymous: _,
        forwarded: _,
        dated: _,
        extra,
    } = fields;
    status.write_line(out);
    if fields.needs_server() {
        out.extend_from_slice(b"Server: sealion\r\n");
    }
    if fields.needs_date() {
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(content_type) = content_type {
        field(out, "Content-Type", |out| content_type.write(out));
    }
    if let Some(coding) = content_encoding {
        field(out, "Content-Encoding", |out| out.extend_from_slice(coding.token().as_bytes()));
    }
    if *varies {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    match framing {
        ResponseFraming::Length(length) | ResponseFraming::LengthOnly(length) => {
            field(out, "Content-Length", |out| write_decimal(out, length));
        }
        ResponseFraming::Chunked | ResponseFraming::ChunkedOnly => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        ResponseFraming::Nothing
        | ResponseFraming::UntilClose
        | ResponseFraming::UntilCloseOnly
        | ResponseFraming::Tunnel => {}
    }
    if let Some(modified) = last_modified {
        field(out, "Last-Modified", |out| out.extend_from_slice(modified.as_bytes()));
    }
    if let Some(etag) = etag {
        field(out, "ETag", |out| out.extend_from_slice(etag.as_bytes()));
    }
    if *accept_ranges {
        out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
    }
    if let Some(range) = content_range {
        field(out, "Content-Range", |out| range.write(out));
    }
    if let Some(location) = location {
        field(out, "Location", |out| out.extend_from_slice(location.as_bytes()));
    }
    if let Some(methods) = allow {
        field(out, "Allow", |out| out.extend_from_slice(methods.as_bytes()));
    }
    if let Some(seconds) = retry_after {
        field(out, "Retry-After", |out| write_decimal(out, (*seconds).into()));
    }
    out.extend_from_slice(extra.lines());
    out.extend_from_slice(connection.line());
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    value(out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::Coding;
    use crate::content_type::ContentType;
    use crate::etag::EntityTag;
    use crate::extra_fields::ExtraFields;
    use crate::fields::ContentRange;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn head(status: Status, fields: &Fields, framing: ResponseFraming, connection: Connection) -> String {
        let mut out = b"before|".to_vec();
        write_head(&mut out, status, fields, framing, connection, &DATE.parse().unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_field() {
        let mut fields = Fields {
            content_type: Some(ContentType::Text("text/html")),
            content_encoding: Some(Coding::Zstd.into()),
            varies: true,
            last_modified: DATE.parse().ok(),
            etag: Some(EntityTag::from_fingerprint([0xab; 8])),
            accept_ranges: true,
            content_range: Some(ContentRange::Part { range: 1..3, complete: 12 }),
            location: Some("/a/".into()),
            allow: Some("GET, HEAD"),
            retry_after: Some(5),
            anonymous: false,
            forwarded: false,
            dated: false,
            extra: ExtraFields::default(),
        };
        fields.extra.add("X-One", "1");
        assert_eq!(
            head(Status::PARTIAL_CONTENT, &fields, ResponseFraming::Length(2), Connection::KeepAlive),
            "before|HTTP/1.1 206 Partial Content\r\n\
             Server: sealion\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Type: text/html; charset=utf-8\r\n\
             Content-Encoding: zstd\r\n\
             Vary: Accept-Encoding\r\n\
             Content-Length: 2\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             ETag: \"abababababababab\"\r\n\
             Accept-Ranges: bytes\r\n\
             Content-Range: bytes 1-2/12\r\n\
             Location: /a/\r\n\
             Allow: GET, HEAD\r\n\
             Retry-After: 5\r\n\
             X-One: 1\r\n\
             \r\n"
        );
        fields.anonymous = true;
        let anonymous = head(Status::OK, &fields, ResponseFraming::Length(2), Connection::KeepAlive);
        assert!(anonymous.contains("\r\nDate: Sun") && !anonymous.contains("Server"));
    }

    #[test]
    fn a_forwarded_response_keeps_its_own_date_and_server() {
        let mut fields = Fields { forwarded: true, ..Fields::default() };
        let without = head(Status::OK, &fields, ResponseFraming::Nothing, Connection::KeepAlive);
        assert_eq!(without, format!("before|HTTP/1.1 200 OK\r\nDate: {DATE}\r\n\r\n"));
        fields.extra.add("date", "Mon, 07 Nov 1994 08:49:37 GMT");
        let own = head(Status::OK, &fields, ResponseFraming::Nothing, Connection::KeepAlive);
        assert_eq!(own, "before|HTTP/1.1 200 OK\r\ndate: Mon, 07 Nov 1994 08:49:37 GMT\r\n\r\n");
    }

    #[test]
    fn persistence_is_announced() {
        for (connection, line) in [
            (Connection::KeepAlive, ""),
            (Connection::KeepAlive10, "Connection: keep-alive\r\n"),
            (Connection::Close, "Connection: close\r\n"),
            (Connection::Upgrade, "Connection: Upgrade\r\n"),
        ] {
            let head = head(Status::BAD_REQUEST, &Fields::default(), ResponseFraming::LengthOnly(16), connection);
            assert!(head.ends_with(&format!("\r\nContent-Length: 16\r\n{line}\r\n")), "{head}");
        }
    }

    #[test]
    fn framing_is_announced() {
        for (framing, line) in [
            (ResponseFraming::Nothing, ""),
            (ResponseFraming::UntilClose, ""),
            (ResponseFraming::UntilCloseOnly, ""),
            (ResponseFraming::Length(7), "Content-Length: 7\r\n"),
            (ResponseFraming::LengthOnly(7), "Content-Length: 7\r\n"),
            (ResponseFraming::Chunked, "Transfer-Encoding: chunked\r\n"),
            (ResponseFraming::ChunkedOnly, "Transfer-Encoding: chunked\r\n"),
        ] {
            let head = head(Status::OK, &Fields::default(), framing, Connection::KeepAlive);
            assert_eq!(head, format!("before|HTTP/1.1 200 OK\r\nServer: sealion\r\nDate: {DATE}\r\n{line}\r\n"));
        }
    }

    #[test]
    fn a_416_names_the_length_of_the_file() {
        let content_range = Some(ContentRange::Unsatisfied { complete: 0 });
        let fields = Fields { content_range, ..Fields::default() };
        let head = head(Status::RANGE_NOT_SATISFIABLE, &fields, ResponseFraming::Length(0), Connection::KeepAlive);
        assert!(head.contains("\r\nContent-Range: bytes */0\r\n"));
    }
}
