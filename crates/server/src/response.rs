//! A response, whichever protocol version will carry it.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::encoding::Coding;
use crate::etag::EntityTag;
use crate::http_time::HttpTime;
use crate::mime::ContentType;
use crate::more_fields::MoreFields;
use crate::request::Method;
use crate::resolve::SiteFile;

/// What to send.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: Status,
    /// The fields but for those of the connection, Date and Server.
    pub fields: Fields,
    /// What Content-Length says, in bytes. Differs from the body's own length for HEAD (RFC 9110 §8.6); `None` for
    /// 304.
    pub content_length: Option<u64>,
    /// What follows the head.
    pub body: Body,
    /// What an operator should know: the file system said this.
    pub cause: Option<io::Error>,
    /// Who asked, if a password told.
    pub user: Option<Box<str>>,
}

impl Response {
    /// A response that announces the length of its body.
    pub fn new(status: Status, fields: Fields, body: Body) -> Self {
        Response { status, fields, content_length: Some(body.len()), body, cause: None, user: None }
    }

    /// A response whose body names the status: for every status that needs no more than that.
    ///
    /// 405 has Allow (RFC 9110 §15.5.6) and 503 has Retry-After.
    pub fn plain(status: Status) -> Self {
        let fields = Fields {
            content_type: Some(ContentType::Utf8("text/plain")),
            allow: (status == Status::MethodNotAllowed).then_some("GET, HEAD"),
            retry_after: (status == Status::ServiceUnavailable).then_some(RETRY_AFTER_SECONDS),
            ..Fields::default()
        };
        Response::new(status, fields, Body::Bytes(Cow::Borrowed(status.page().as_bytes())))
    }

    /// 304 with the validators and no content (RFC 9110 §15.4.5).
    pub fn not_modified(fields: Fields) -> Self {
        Response {
            status: Status::NotModified,
            fields,
            content_length: None,
            body: Body::Empty,
            cause: None,
            user: None,
        }
    }

    /// The same for a request with this method: HEAD gets no body, which its client would take for the next response; all fields stay
    /// (RFC 9110 §9.3.2).
    pub fn to(mut self, method: Method<'_>) -> Self {
        if method == Method::Head {
            self.body = Body::Empty;
        }
        self
    }

    /// The same with what the file system said.
    pub fn because(self, cause: Option<io::Error>) -> Self {
        Response { cause, ..self }
    }
}

/// The fields that a response may have, so that the usual one allocates nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields {
    /// Content-Type.
    pub content_type: Option<ContentType>,
    /// Content-Encoding.
    pub content_encoding: Option<Coding>,
    /// Vary: Accept-Encoding.
    pub varies: bool,
    /// Last-Modified.
    pub last_modified: Option<HttpTime>,
    /// ETag.
    pub etag: Option<EntityTag>,
    /// Accept-Ranges: bytes.
    pub accept_ranges: bool,
    /// Content-Range.
    pub content_range: Option<ContentRange>,
    /// Location: ASCII without controls.
    pub location: Option<String>,
    /// Allow.
    pub allow: Option<&'static str>,
    /// Retry-After, in seconds.
    pub retry_after: Option<u32>,
    /// Whether Server is left out.
    pub anonymous: bool,
    /// What the site adds.
    pub more: MoreFields,
}

/// The value of Content-Range (RFC 9110 §14.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/complete` of a range that is not empty.
    Part {
        /// The bytes sent.
        range: Range<u64>,
        /// The length of the file.
        complete: u64,
    },
    /// `bytes */complete`.
    Unsatisfied {
        /// The length of the file.
        complete: u64,
    },
}

impl ContentRange {
    /// Appends the field value.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"bytes ");
        let complete = match self {
            ContentRange::Part { range, complete } => {
                write_decimal(out, range.start);
                out.push(b'-');
                write_decimal(out, range.end - 1);
                complete
            }
            ContentRange::Unsatisfied { complete } => {
                out.push(b'*');
                complete
            }
        };
        out.push(b'/');
        write_decimal(out, *complete);
    }
}

/// What follows the head.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Bytes in memory.
    Bytes(Cow<'static, [u8]>),
    /// Part of a file, or all of it.
    File {
        /// The file.
        file: Arc<SiteFile>,
        /// The bytes to send.
        range: Range<u64>,
    },
    /// Several parts of a file as multipart/byteranges (RFC 9110 §14.6).
    Multipart {
        /// The file of every part.
        file: Arc<SiteFile>,
        /// The parts in order.
        parts: Vec<Part>,
        /// The closing delimiter.
        closing: Vec<u8>,
    },
}

/// One part of a multipart body.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// Delimiter and fields of the part, up to and with the empty line.
    pub head: Vec<u8>,
    /// The bytes of the file that follow it.
    pub range: Range<u64>,
}

impl Body {
    /// Parts of `file`, which has `complete` bytes and is of type `content_type`. The ranges lie within it and are
    /// not empty.
    ///
    /// The boundary is made of the entity tag: fixed for one state of the file, and unknown to whoever wrote that
    /// state.
    pub fn multipart(
        file: Arc<SiteFile>,
        ranges: Vec<Range<u64>>,
        complete: u64,
        content_type: ContentType,
        tag: &EntityTag,
    ) -> Self {
        let parts = ranges.into_iter().map(|range| {
            let mut head = Vec::with_capacity(160);
            head.extend_from_slice(b"\r\n--");
            head.extend_from_slice(tag.opaque());
            head.extend_from_slice(b"\r\nContent-Type: ");
            content_type.write(&mut head);
            head.extend_from_slice(b"\r\nContent-Range: ");
            ContentRange::Part { range: range.clone(), complete }.write(&mut head);
            head.extend_from_slice(b"\r\n\r\n");
            Part { head, range }
        });
        Body::Multipart { file, parts: parts.collect(), closing: [b"\r\n--", tag.opaque(), b"--\r\n"].concat() }
    }

    /// In bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File { range, .. } => range.end - range.start,
            Body::Multipart { parts, closing, .. } => {
                parts.iter().map(|part| part.head.len() as u64 + (part.range.end - part.range.start)).sum::<u64>()
                    + closing.len() as u64
            }
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal;)*) => {
        /// The statuses that we send (RFC 9110 §15, RFC 6585 §5).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the RFC")]
        pub enum Status { $($name = $code),* }

        impl Status {
            /// All of them.
            pub const ALL: &[Status] = &[$(Status::$name),*];

            /// The three digits.
            pub fn code(self) -> u16 {
                self as u16
            }

            /// `HTTP/1.1 200 OK` and the end of the line: we speak HTTP/1.1 whatever the request's minor version (RFC 9112 §2.3).
            pub(crate) fn line(self) -> &'static str {
                match self { $(Status::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),* }
            }

            /// Code and reason phrase on a line of their own.
            pub fn page(self) -> &'static str {
                match self { $(Status::$name => concat!($code, " ", $reason, "\n")),* }
            }
        }
    };
}

statuses! {
    Ok = 200 "OK";
    NoContent = 204 "No Content";
    PartialContent = 206 "Partial Content";
    MovedPermanently = 301 "Moved Permanently";
    Found = 302 "Found";
    SeeOther = 303 "See Other";
    NotModified = 304 "Not Modified";
    TemporaryRedirect = 307 "Temporary Redirect";
    PermanentRedirect = 308 "Permanent Redirect";
    BadRequest = 400 "Bad Request";
    Unauthorized = 401 "Unauthorized";
    Forbidden = 403 "Forbidden";
    NotFound = 404 "Not Found";
    MethodNotAllowed = 405 "Method Not Allowed";
    RequestTimeout = 408 "Request Timeout";
    PreconditionFailed = 412 "Precondition Failed";
    UriTooLong = 414 "URI Too Long";
    RangeNotSatisfiable = 416 "Range Not Satisfiable";
    ExpectationFailed = 417 "Expectation Failed";
    MisdirectedRequest = 421 "Misdirected Request";
    TooManyRequests = 429 "Too Many Requests";
    RequestHeaderFieldsTooLarge = 431 "Request Header Fields Too Large";
    InternalServerError = 500 "Internal Server Error";
    NotImplemented = 501 "Not Implemented";
    ServiceUnavailable = 503 "Service Unavailable";
    HttpVersionNotSupported = 505 "HTTP Version Not Supported";
}

/// Appends a number without allocating.
pub(crate) fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// GUESS: descriptors and memory are back as soon as other responses end.
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal() {
        for number in [0, 9, 10, 16384, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn multipart_body_as_in_rfc_9110_section_14_6() {
        let file = SiteFile::of(std::fs::File::open("/dev/null").unwrap());
        let tag = EntityTag::from_fingerprint([0; 8]);
        let body =
            Body::multipart(file, vec![500..1000, 7000..8000], 8000, ContentType::Plain("application/pdf"), &tag);
        let length = body.len();
        let Body::Multipart { parts, closing, .. } = body else { panic!() };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let first =
            "\r\n--0000000000000000\r\nContent-Type: application/pdf\r\nContent-Range: bytes 500-999/8000\r\n\r\n";
        let second =
            "\r\n--0000000000000000\r\nContent-Type: application/pdf\r\nContent-Range: bytes 7000-7999/8000\r\n\r\n";
        assert_eq!((text(&parts[0].head).as_str(), parts[0].range.clone()), (first, 500..1000));
        assert_eq!((text(&parts[1].head).as_str(), parts[1].range.clone()), (second, 7000..8000));
        assert_eq!(text(&closing), "\r\n--0000000000000000--\r\n");
        assert_eq!(length, (first.len() + second.len() + closing.len() + 1500) as u64);
    }

    #[test]
    fn statuses_spell_themselves() {
        assert_eq!(Status::NotFound.code(), 404);
        assert_eq!(Status::NotFound.line(), "HTTP/1.1 404 Not Found\r\n");
        assert_eq!(Status::NotFound.page(), "404 Not Found\n");
    }

    #[test]
    fn plain_responses_have_the_fields_their_status_requires() {
        assert_eq!(Response::plain(Status::MethodNotAllowed).fields.allow, Some("GET, HEAD"));
        assert_eq!(Response::plain(Status::ServiceUnavailable).fields.retry_after, Some(1));
        let not_found = Response::plain(Status::NotFound);
        assert_eq!((not_found.fields.allow, not_found.fields.retry_after), (None, None));
        assert_eq!(not_found.content_length, Some(14));
        let head = not_found.to(Method::Head);
        assert_eq!((head.content_length, head.body.is_empty()), (Some(14), true));
    }
}
