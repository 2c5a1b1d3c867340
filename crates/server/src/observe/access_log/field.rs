//! Fields of a line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::labels;

labels! {
    /// A field of a line.
    #[derive(Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
    #[serde(rename_all = "snake_case")]
    #[value(rename_all = "snake_case")]
    pub(crate) Field {
        /// Time of the line, UTC, RFC 3339 with milliseconds.
        Time = "time",
        /// The client's address and port.
        Peer = "peer",
        /// The client's address.
        Address = "address",
        /// The name of the site that answered.
        Site = "site",
        /// The host of the request.
        Host = "host",
        /// The server name (SNI) of the handshake.
        Sni = "sni",
        /// The authenticated user.
        User = "user",
        /// The method.
        Method = "method",
        /// The request-target as received.
        Target = "target",
        /// The protocol's version.
        Protocol = "protocol",
        /// The response's status.
        Status = "status",
        /// Bytes of the body that were sent.
        Bytes = "bytes",
        /// The Content-Encoding of the body.
        Encoding = "encoding",
        /// Milliseconds from the end of the request's head to the last byte of the response.
        Ms = "ms",
        /// The version of TLS.
        Tls = "tls",
        /// The cipher suite.
        Suite = "suite",
        /// Whether the handshake resumed an earlier session.
        Resumed = "resumed",
        /// Where the response was sealed: `user` or `kernel`.
        Path = "path",
        /// The reason for the path.
        Why = "why",
        /// Bytes of responses that the connection had sent before it moved to kernel TLS.
        MovedAt = "moved_at",
        /// Microseconds of the move, in the line of the response that moved.
        SetupUs = "setup_us",
        /// The error that cut the response short.
        Aborted = "aborted",
        /// The page that the request came from, as the client says.
        Referer = "referer",
        /// The client's program, as it says.
        UserAgent = "user_agent",
    }
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
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_field_has_one_name() {
        for field in Field::value_variants() {
            assert_eq!(serde_json::to_value(field).unwrap(), field.label());
            assert_eq!(Field::from_str(field.label(), false), Ok(*field));
        }
    }
}
