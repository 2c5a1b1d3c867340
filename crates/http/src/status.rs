//! Status codes (RFC 9110 §15).

use std::borrow::Cow;
use std::fmt;

use crate::decimal::write_decimal;

/// A status code from 100 to 599 (RFC 9110 §15).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal;)*) => {
        /// Status codes with their names in RFC 9110 §15, RFC 6585 and RFC 8297.
        #[expect(missing_docs, reason = "the names are those of the RFC")]
        impl Status {
            $(pub const $name: Status = Status($code);)*

            /// Every code with a name, in ascending order.
            pub const NAMED: &[Status] = &[$(Status::$name),*];

            /// The HTTP/1.1 status line of a named code.
            fn line(self) -> Option<&'static str> {
                match self.0 { $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)* _ => None }
            }

            /// Code and reason phrase as a line of text: the default body of an error response.
            pub fn page(self) -> Cow<'static, [u8]> {
                match self.0 {
                    $($code => Cow::Borrowed(concat!($code, " ", $reason, "\n").as_bytes()),)*
                    code => Cow::Owned(format!("{code}\n").into_bytes()),
                }
            }
        }
    };
}

impl Status {
    /// 499: the client left before the response was ready. The code is never sent; it appears only in logs (nginx'
    /// number).
    pub const CLIENT_CLOSED_REQUEST: Status = Status(499);
}

statuses! {
    CONTINUE = 100 "Continue";
    SWITCHING_PROTOCOLS = 101 "Switching Protocols";
    EARLY_HINTS = 103 "Early Hints";
    OK = 200 "OK";
    NO_CONTENT = 204 "No Content";
    PARTIAL_CONTENT = 206 "Partial Content";
    MOVED_PERMANENTLY = 301 "Moved Permanently";
    FOUND = 302 "Found";
    SEE_OTHER = 303 "See Other";
    NOT_MODIFIED = 304 "Not Modified";
    TEMPORARY_REDIRECT = 307 "Temporary Redirect";
    PERMANENT_REDIRECT = 308 "Permanent Redirect";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    REQUEST_TIMEOUT = 408 "Request Timeout";
    LENGTH_REQUIRED = 411 "Length Required";
    PRECONDITION_FAILED = 412 "Precondition Failed";
    CONTENT_TOO_LARGE = 413 "Content Too Large";
    URI_TOO_LONG = 414 "URI Too Long";
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    EXPECTATION_FAILED = 417 "Expectation Failed";
    MISDIRECTED_REQUEST = 421 "Misdirected Request";
    TOO_MANY_REQUESTS = 429 "Too Many Requests";
    REQUEST_HEADER_FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large";
    INTERNAL_SERVER_ERROR = 500 "Internal Server Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    HTTP_VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported";
    LOOP_DETECTED = 508 "Loop Detected";
}

impl Status {
    /// A status from its code. `None`: below 100 or above 599, which is invalid in HTTP.
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 599 { Some(Status(code)) } else { None }
    }

    /// The code as a number from 100 to 599.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether the code is 1xx, so that another response follows.
    pub const fn is_interim(self) -> bool {
        self.0 < 200
    }

    /// Whether a response with this status never has content (RFC 9110 §6.4.1): 1xx, 204 and 304.
    pub const fn has_no_content(self) -> bool {
        self.is_interim() || self.0 == 204 || self.0 == 304
    }

    /// Appends the status line. The version is HTTP/1.1 for HTTP/1.0 requests too (RFC 9112 §2.3). A code without a name has an
    /// empty reason phrase (RFC 9112 §4).
    pub fn write_line(self, out: &mut Vec<u8>) {
        match self.line() {
            Some(line) => out.extend_from_slice(line.as_bytes()),
            None => {
                out.extend_from_slice(b"HTTP/1.1 ");
                write_decimal(out, self.0.into());
                out.extend_from_slice(b" \r\n");
            }
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(status: Status) -> String {
        let mut out = Vec::new();
        status.write_line(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_status_from_100_to_599_can_be_sent() {
        for code in 100..=599 {
            let status = Status::new(code).unwrap();
            assert!(line(status).starts_with(&format!("HTTP/1.1 {code} ")), "{code}");
            assert!(line(status).ends_with("\r\n") && status.page().starts_with(code.to_string().as_bytes()), "{code}");
        }
        assert_eq!((Status::new(99), Status::new(600)), (None, None));
        assert_eq!(line(Status::NOT_FOUND), "HTTP/1.1 404 Not Found\r\n");
        assert_eq!(&*Status::NOT_FOUND.page(), b"404 Not Found\n");
        assert_eq!(line(Status(418)), "HTTP/1.1 418 \r\n");
    }

    #[test]
    fn statuses_without_content() {
        for (status, expected) in
            [(Status::CONTINUE, true), (Status::OK, false), (Status::NO_CONTENT, true), (Status::NOT_MODIFIED, true)]
        {
            assert_eq!(status.has_no_content(), expected, "{status}");
        }
    }
}
