//! Extensible priorities (RFC 9218).

use serde::{Deserialize, Serialize};

/// The priority of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// 0 is sent first, 7 last (RFC 9218 §4.1).
    pub urgency: u8,
    /// Whether the response is useful in parts, so that it shares the connection with others of its urgency (RFC 9218 §4.2).
    pub incremental: bool,
}

impl Priority {
    /// The priority of a request whose client sends no priorities.
    ///
    /// By RFC 9218 §4 the parameters default to urgency 3 and not incremental. Without any priority from the client,
    /// responses share the connection. Otherwise a small response would wait for a large one requested earlier.
    pub const UNSIGNALLED: Priority = Priority { urgency: 3, incremental: true };

    /// Parses a value of the field `priority` or of PRIORITY_UPDATE: a dictionary (RFC 8941 §3.2), in which `u` and `i`
    /// count.
    ///
    /// A parameter with an invalid value is ignored (RFC 9218 §4), and so is everything after a syntax error.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Priority { urgency: 3, incremental: false };
        for member in value.split(|byte| *byte == b',') {
            match split_parameters(member.trim_ascii()) {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority::UNSIGNALLED
    }
}

/// A member of a dictionary without its parameters (RFC 8941 §3.1.2), which are not defined for `u` and `i`.
fn split_parameters(member: &[u8]) -> &[u8] {
    let end = member.iter().position(|byte| *byte == b';').unwrap_or(member.len());
    member[..end].trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_and_incremental_are_read() {
        for (value, urgency, incremental) in [
            (&b""[..], 3, false),
            (b"u=0", 0, false),
            (b"u=7, i", 7, true),
            (b"i,u=1", 1, true),
            (b"i=?0", 3, false),
            (b"i=?1 ,\tu=5", 5, true),
            (b"u=1;x=2", 1, false),
            (b"u=8", 3, false),
            (b"u=-1", 3, false),
            (b"u=1.0", 3, false),
            (b"u=1, u=2", 2, false),
            (b"U=1, I", 3, false),
            (b"x=1, u=2, y=\"z\"", 2, false),
            (b"\xff\x00,,,=", 3, false),
        ] {
            assert_eq!(Priority::parse(value), Priority { urgency, incremental }, "{}", value.escape_ascii());
        }
    }
}
