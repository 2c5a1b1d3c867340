//! The PROXY protocol, versions 1 and 2: a proxy names the client in a header before the first byte of TLS
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! No byte after the header is consumed: bytes are peeked at (MSG_PEEK), and read only once they are known to belong to the header.

use std::io;
use std::net::SocketAddr;

use ppp::{v1, v2};
use rustix::net::{RecvFlags, recv};
use sealion_tls::Socket;
use tokio::io::Interest;

/// The maximum length of a header. SPEC: 107 bytes in version 1. In version 2 proxies add TLVs (§2.2): TLS details and
/// cloud endpoint ids take some hundred bytes, and a client certificate a few thousand at most.
const MAX_HEADER: usize = 4096;

/// SPEC: §2.1, the maximum length of a version 1 line, including its line end.
const MAX_LINE: usize = 107;

/// SPEC: §2.2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// SPEC: §2.2, the signature and the 4 bytes after it.
const FIXED_PART: usize = 16;

/// Version 2 with the command LOCAL.
const LOCAL: u8 = 0x20;

/// The start of a version 1 header.
const PROXY: &[u8] = b"PROXY ";

/// The reason why a connection has no usable header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The connection begins with something else.
    #[error(
        "does not begin with a PROXY protocol header: let the proxy send one, or remove proxy_protocol from this [[listen]]"
    )]
    Missing,
    /// The header is longer than [`MAX_HEADER`].
    #[error("its PROXY protocol header is longer than {} bytes", MAX_HEADER)]
    TooLong,
    /// The header violates the protocol.
    #[error("its PROXY protocol header is malformed: {0}")]
    Malformed(String),
    /// The connection ended within the header.
    #[error("ended within the PROXY protocol header")]
    Ended,
    /// Reading the socket failed.
    #[error(transparent)]
    Io(io::Error),
}

/// Reads the header, and nothing after it. `None`: the header names no client.
///
/// # Errors
/// The reason to close the connection.
pub(crate) async fn read(io: &Socket) -> Result<Option<SocketAddr>, Refused> {
    let mut bytes = [0; MAX_HEADER];
    let mut held = 0;
    loop {
        let seen = held + receive(io, &mut bytes[held..], RecvFlags::PEEK).await?;
        if seen == held {
            return Err(if seen == MAX_HEADER { Refused::TooLong } else { Refused::Ended });
        }
        let whole = length(&bytes[..seen])?;
        // While the end is unknown, all bytes so far belong to the header.
        let wanted = whole.unwrap_or(seen).min(seen);
        while held < wanted {
            held += receive(io, &mut bytes[held..wanted], RecvFlags::empty()).await?;
        }
        if whole == Some(held) {
            return parse(&bytes[..held]);
        }
    }
}

async fn receive(io: &Socket, into: &mut [u8], flags: RecvFlags) -> Result<usize, Refused> {
    loop {
        let received = io.try_io(Interest::READABLE, || Ok(recv(io, &mut *into, flags)?.0));
        match received {
            Ok(received) => return Ok(received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => io.readable().await.map_err(Refused::Io)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Refused::Io(error)),
        }
    }
}

/// The length of the header that begins with these bytes; `None`: more bytes are needed.
fn length(seen: &[u8]) -> Result<Option<usize>, Refused> {
    let begins = |with: &[u8]| seen[..seen.len().min(with.len())] == with[..seen.len().min(with.len())];
    if begins(SIGNATURE) {
        let Some(fixed) = seen.first_chunk::<FIXED_PART>() else { return Ok(None) };
        let whole = FIXED_PART + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
        return if whole <= MAX_HEADER { Ok(Some(whole)) } else { Err(Refused::TooLong) };
    }
    if begins(PROXY) {
        return match seen.windows(2).take(MAX_LINE - 1).position(|end| end == b"\r\n") {
            Some(at) => Ok(Some(at + 2)),
            None if seen.len() < MAX_LINE => Ok(None),
            None => Err(Refused::TooLong),
        };
    }
    Err(Refused::Missing)
}

fn parse(header: &[u8]) -> Result<Option<SocketAddr>, Refused> {
    if header.starts_with(SIGNATURE) {
        // A health check by the proxy: its addresses are ignored (§2.2).
        if header.get(SIGNATURE.len()) == Some(&LOCAL) {
            return Ok(None);
        }
        let header = v2::Header::try_from(header).map_err(|e| Refused::Malformed(e.to_string()))?;
        return Ok(match header.addresses {
            v2::Addresses::IPv4(ip) => Some((ip.source_address, ip.source_port).into()),
            v2::Addresses::IPv6(ip) => Some((ip.source_address, ip.source_port).into()),
            v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
        });
    }
    let header = v1::Header::try_from(header).map_err(|e| Refused::Malformed(e.to_string()))?;
    Ok(match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(ip) => Some((ip.source_address, ip.source_port).into()),
        v1::Addresses::Tcp6(ip) => Some((ip.source_address, ip.source_port).into()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([0x20 | command, family]);
        header.extend((body.len() as u16).to_be_bytes());
        header.extend(body);
        header
    }

    /// Reads a header that arrives in pieces of `step` bytes, followed by `rest`. Returns the result, and the bytes
    /// left on the socket.
    fn exchange(header: &[u8], rest: &[u8], step: usize) -> (Result<Option<SocketAddr>, Refused>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let socket = Socket::from(tokio::net::UnixStream::from_std(far).unwrap());
            let bytes = [header, rest].concat();
            let send = async {
                for piece in bytes.chunks(step) {
                    near.write_all(piece).unwrap();
                    tokio::task::yield_now().await;
                }
                near.shutdown(std::net::Shutdown::Write).unwrap();
            };
            let (read, ()) = tokio::join!(read(&socket), send);
            let Socket::Unix(far) = socket else { unreachable!() };
            let mut far = far.into_std().unwrap();
            far.set_nonblocking(false).unwrap();
            let mut left = Vec::new();
            far.read_to_end(&mut left).unwrap();
            (read, left)
        })
    }

    #[test]
    fn the_client_is_told_and_no_byte_behind_the_header_is_taken() {
        let mut ip4 = vec![192, 0, 2, 7, 198, 51, 100, 1];
        ip4.extend([0x1f, 0x90, 1, 187]);
        let mut with_more = ip4.clone();
        with_more.extend([4, 0, 3, b'a', b'b', b'c']);
        let mut ip6 = vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        ip6.extend([0; 16]);
        ip6.extend([0, 80, 1, 187]);
        let cases: [(Vec<u8>, Option<&str>); 14] = [
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 8080 443\r\n".to_vec(), Some("192.0.2.7:8080")),
            (b"PROXY TCP6 2001:db8::9 2001:db8::1 80 443\r\n".to_vec(), Some("[2001:db8::9]:80")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (v2(1, 0x11, &ip4), Some("192.0.2.7:8080")),
            (v2(1, 0x11, &with_more), Some("192.0.2.7:8080")),
            (v2(1, 0x21, &ip6), Some("[2001:db8::9]:80")),
            (v2(0, 0, &[]), None),
            (v2(0, 0x11, &ip4), None),
            (v2(0, 0x11, &[]), None),
            (v2(0, 0xff, b"of a family to come"), None),
            (v2(1, 0x31, &[b'/'; 216]), None),
            (b"PROXY UNKNOWN ffff:f...f:ffff whatever 65535 65535\r\n".to_vec(), None),
            (v2(1, 0x11, &[&ip4[..], &[3; 4000]].concat()), Some("192.0.2.7:8080")),
            (v2(1, 0, &[]), None),
        ];
        let rest = b"\x16\x03\x01\r\n behind";
        for (header, client) in cases {
            for step in [1, 5, 13, 16, 4096] {
                let (read, left) = exchange(&header, rest, step);
                assert_eq!(read.unwrap(), client.map(|client| client.parse().unwrap()), "{header:?} by {step}");
                assert_eq!(left, rest, "{header:?} by {step}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let refused = |bytes: &[u8]| exchange(bytes, b"", 4096).0.unwrap_err();
        assert!(matches!(refused(b"\x16\x03\x01\x02\x00\x01"), Refused::Missing));
        assert!(matches!(refused(b"GET / HTTP/1.1\r\n"), Refused::Missing));
        assert!(matches!(refused(b"PROX"), Refused::Ended));
        assert!(matches!(refused(b""), Refused::Ended));
        assert!(matches!(refused(b"PROXY TCP4 here there 1 2\r\n"), Refused::Malformed(_)));
        assert!(matches!(refused(&[b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat()), Refused::TooLong));
        assert!(matches!(refused(&v2(1, 0x11, &[0; 5000])), Refused::TooLong));
        assert!(matches!(refused(&v2(1, 0x11, &[0; 3])), Refused::Malformed(_)));
        assert!(matches!(refused(&v2(1, 0x11, &[0; 12])[..20]), Refused::Ended));
        assert!(matches!(refused(&v2(1, 0x41, &[0; 12])), Refused::Malformed(_)));
        assert!(matches!(refused(&v2(2, 0x11, &[0; 12])), Refused::Malformed(_)));
        let mut third = v2(1, 0x11, &[0; 12]);
        third[12] = 0x31;
        assert!(matches!(refused(&third), Refused::Malformed(_)));
    }
}
