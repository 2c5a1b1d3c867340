//! The protocol of a connection, as every layer above its driver sees it.

use crate::http1::head::Version;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 (RFC 1945).
    Http10,
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http11,
    /// HTTP/2 (RFC 9113).
    Http2,
    /// HTTP/3 (RFC 9114).
    Http3,
}

impl Protocol {
    /// The name in logs and traces, for instance `HTTP/2`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }

    /// The value of SERVER_PROTOCOL (RFC 3875 §4.1.16), which demands a minor version.
    pub fn as_cgi(self) -> &'static str {
        match self {
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
            other => other.as_str(),
        }
    }

    /// Whether every client takes trailers. Others say so in TE (RFC 9110 §6.5.1).
    pub fn always_takes_trailers(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }
}

impl From<Version> for Protocol {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::Http10,
            Version::Http11 => Self::Http11,
        }
    }
}
