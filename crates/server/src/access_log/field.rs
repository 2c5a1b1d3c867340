//! What can be in a line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::Part;

/// A field of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Field {
    /// When the line was made, UTC, RFC 3339 with milliseconds.
    Time,
    /// The client's address and port.
    Peer,
    /// The client's address.
    Address,
    /// The name of the site that answered.
    Site,
    /// The host that the request names.
    Host,
    /// The name that the client asked for in the handshake.
    Sni,
    /// The user that was authenticated.
    User,
    /// The method.
    Method,
    /// The request-target as it came.
    Target,
    /// The protocol's version.
    Protocol,
    /// The response's status.
    Status,
    /// Bytes of the body that went out.
    Bytes,
    /// The Content-Encoding of the body.
    Encoding,
    /// Milliseconds from the end of the request's head to the last byte of the response.
    Ms,
    /// The version of TLS.
    Tls,
    /// The cipher suite.
    Suite,
    /// Whether the handshake resumed an earlier session.
    Resumed,
    /// Who sealed the response: `user` or `kernel`.
    Path,
    /// Why that path.
    Why,
    /// Bytes of responses that the connection had sent before it moved into the kernel.
    MovedAt,
    /// Microseconds that the move took, in the line of the response that moved.
    SetupUs,
    /// What cut the response short.
    Aborted,
    /// The page that the request came from, as the client says.
    Referer,
    /// The client's program, as it says.
    UserAgent,
}

impl Field {
    /// The fields of a line unless others are chosen. The last two are only in lines that have something to say.
    pub(super) const USUAL: [Field; 14] = [
        Field::Time,
        Field::Peer,
        Field::Method,
        Field::Target,
        Field::Status,
        Field::Bytes,
        Field::Ms,
        Field::Tls,
        Field::Suite,
        Field::Resumed,
        Field::Path,
        Field::Why,
        Field::SetupUs,
        Field::Aborted,
    ];

    /// As it is written in the configuration and in lines.
    pub fn name(self) -> &'static str {
        match self {
            Field::Time => "time",
            Field::Peer => "peer",
            Field::Address => "address",
            Field::Site => "site",
            Field::Host => "host",
            Field::Sni => "sni",
            Field::User => "user",
            Field::Method => "method",
            Field::Target => "target",
            Field::Protocol => "protocol",
            Field::Status => "status",
            Field::Bytes => "bytes",
            Field::Encoding => "encoding",
            Field::Ms => "ms",
            Field::Tls => "tls",
            Field::Suite => "suite",
            Field::Resumed => "resumed",
            Field::Path => "path",
            Field::Why => "why",
            Field::MovedAt => "moved_at",
            Field::SetupUs => "setup_us",
            Field::Aborted => "aborted",
            Field::Referer => "referer",
            Field::UserAgent => "user_agent",
        }
    }

    /// The part of the request that it shows.
    pub(super) fn part(self) -> Option<Part> {
        match self {
            Field::Method => Some(Part::Method),
            Field::Target => Some(Part::Target),
            Field::Protocol => Some(Part::Protocol),
            Field::Host => Some(Part::Host),
            Field::Referer => Some(Part::Referer),
            Field::UserAgent => Some(Part::UserAgent),
            Field::Site => Some(Part::Site),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_field_has_one_name() {
        for field in Field::value_variants() {
            assert_eq!(serde_json::to_value(field).unwrap(), field.name());
            assert_eq!(Field::from_str(field.name(), false), Ok(*field));
        }
    }
}
