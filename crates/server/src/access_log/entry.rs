//! What a line tells.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use sealion_tls::{HandshakeInfo, Path};

use crate::encoding::Coding;
use crate::send_policy::Why;

/// A response, as the log sees it.
pub struct Entry<'a> {
    /// The client.
    pub peer: SocketAddr,
    /// What was asked; empty when no request could be read.
    pub request: &'a Noted,
    /// The user that was authenticated.
    pub user: Option<&'a str>,
    /// The name that the client asked for in the handshake (SNI, RFC 6066 §3).
    pub sni: Option<&'a str>,
    /// The response's status.
    pub status: u16,
    /// Body bytes that went out.
    pub body: u64,
    /// The body's Content-Encoding.
    pub encoding: Option<Coding>,
    /// From the end of the request's head to the response's last byte.
    pub duration: Duration,
    /// What the handshake agreed on.
    pub tls: &'a HandshakeInfo,
    /// Who sealed the response.
    pub path: Path,
    /// Why; `None` when the connection was lost before the path was chosen.
    pub why: Option<Why>,
    /// Bytes of responses that this connection had sent before it moved into the kernel, if it has.
    pub moved_at: Option<u64>,
    /// What moving the connection into the kernel took, if this response did that.
    pub set_up: Option<Duration>,
    /// What cut the response short.
    pub aborted: Option<&'a dyn Display>,
}

/// Parts of a request that a line can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the part")]
pub enum Part {
    Method,
    Target,
    Protocol,
    Host,
    Referer,
    UserAgent,
    Site,
}

impl Part {
    /// How many there are.
    pub const COUNT: usize = 7;
}

/// Parts of a request, kept after its bytes are gone: used anew for each request of a connection.
#[derive(Debug, Default)]
pub struct Noted {
    bytes: Vec<u8>,
    ends: [u32; Part::COUNT],
    silent: bool,
}

/// Capacity that an idle connection may keep. GUESS: more than usual targets need.
const KEPT: usize = 512;

impl Noted {
    /// Forgets the last request.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.ends = [0; Part::COUNT];
        self.silent = false;
    }

    /// The response to this request is not to be in the log.
    pub fn be_silent(&mut self) {
        self.silent = true;
    }

    /// Whether the response is not to be in the log.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Takes note of a request: its parts in their order, empty where it has none or nobody wants to know.
    pub fn set(&mut self, parts: [&[u8]; Part::COUNT]) {
        self.clear();
        for (end, part) in self.ends.iter_mut().zip(parts) {
            self.bytes.extend_from_slice(part);
            *end = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        }
    }

    /// A part as it came; `None` if it was empty or not kept.
    pub fn get(&self, part: Part) -> Option<&[u8]> {
        let at = part as usize;
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        self.bytes.get(begin as usize..self.ends[at] as usize).filter(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_are_forgotten() {
        let mut noted = Noted::default();
        assert_eq!(noted.get(Part::Method), None);
        let long = vec![b'x'; 3 * KEPT];
        noted.set([b"GET", b"/a", b"HTTP/1.1", b"", &long, b"curl", b""]);
        assert_eq!(noted.get(Part::Method), Some(&b"GET"[..]));
        assert_eq!(noted.get(Part::Target), Some(&b"/a"[..]));
        assert_eq!(noted.get(Part::Host), None);
        assert_eq!(noted.get(Part::Referer), Some(&long[..]));
        assert_eq!(noted.get(Part::UserAgent), Some(&b"curl"[..]));
        noted.clear();
        assert!(noted.get(Part::UserAgent).is_none() && noted.bytes.capacity() <= KEPT);
    }
}
