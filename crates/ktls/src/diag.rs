//! Kernel TLS on any TCP socket of this network namespace, by the kernel's socket diagnosis, sock_diag(7).
//!
//! The kernel reports TLS to a process with CAP_NET_ADMIN only; to other processes every socket looks as if it had no
//! TLS layer.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, netlink};

use crate::{Cipher, Error, Operation, Version};

/// Every TCP socket with the TLS layer in this network namespace, of any process.
pub fn sockets() -> Result<Vec<Socket>, Error> {
    let mut found = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let request = wire::request(family.as_raw() as u8, None);
        found.extend(ask(&request)?.into_iter().filter(|socket| socket.tls.is_some()));
    }
    Ok(found)
}

/// One connected socket of this process. [`Socket::tls`] is `None` without the layer, or without CAP_NET_ADMIN.
pub fn of(fd: impl AsFd) -> Result<Socket, Error> {
    let fd = fd.as_fd();
    let failed = |errno| Error::from_errno(Operation::Diagnose, errno);
    let local = rustix::net::getsockname(fd).map_err(failed)?;
    let remote = rustix::net::getpeername(fd).map_err(failed)?.ok_or(failed(Errno::NOTCONN))?;
    let local: SocketAddr = local.try_into().map_err(failed)?;
    let remote: SocketAddr = remote.try_into().map_err(failed)?;
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let request = wire::request(family.as_raw() as u8, Some((local, remote)));
    ask(&request)?.into_iter().next().ok_or(failed(Errno::NOENT))
}

/// Whether this process may see the TLS state of sockets: CAP_NET_ADMIN.
pub fn permitted() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| crate::host::has_net_admin(&status))
}

/// A TCP socket, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Socket {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// The number in `/proc/PID/fd/*` → `socket:[inode]`; 0 once no process holds the socket.
    pub inode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The state of its TLS layer, if it has one.
    pub tls: Option<Tls>,
}

/// The TLS layer of a socket, `INET_ULP_INFO_TLS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// `None` before the first keys, or a version this crate does not know.
    pub version: Option<Version>,
    /// `None` before the first keys, or a cipher this crate does not know.
    pub cipher: Option<Cipher>,
    /// The sealer of outgoing records.
    pub sending: By,
    /// The opener of incoming records.
    pub receiving: By,
    /// `TLS_TX_ZEROCOPY_RO` is on and has effect: a network card seals.
    pub zerocopy_read_only: bool,
    /// `TLS_RX_EXPECT_NO_PAD` is on: records are opened straight into the reader's memory.
    pub expect_no_pad: bool,
    /// `TLS_TX_MAX_PAYLOAD_LEN`, in bytes, where the kernel reports it (Linux 6.19).
    pub max_payload: Option<u16>,
}

/// The place of the cryptography of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// `TLS_BASE`: the layer is attached, but the kernel has no keys.
    #[default]
    UserSpace,
    /// `TLS_SW`: the kernel's own cipher.
    Kernel,
    /// `TLS_HW`: a network card, which seals or opens the records that the kernel frames.
    Device,
    /// `TLS_HW_RECORD`: a network card that does all of TCP and TLS.
    Offload,
}

/// Sends a request and reads replies until they end.
fn ask(request: &[u8]) -> Result<Vec<Socket>, Error> {
    let mut found = Vec::new();
    crate::netlink::ask(netlink::SOCK_DIAG, request, |kind, body| found.extend(wire::socket(kind, body)))
        .map_err(|errno| Error::from_errno(Operation::Diagnose, errno))?;
    Ok(found)
}

/// Parses one datagram of replies.
pub(crate) fn parse(datagram: &[u8]) -> Vec<Socket> {
    let mut found = Vec::new();
    crate::netlink::read(datagram, |kind, body| found.extend(wire::socket(kind, body)));
    found
}

/// The messages of `linux/sock_diag.h` and `linux/inet_diag.h`. Pure: bytes in, values out.
mod wire {
    use super::{By, Cipher, IpAddr, Ipv4Addr, Ipv6Addr, Socket, SocketAddr, Tls, Version};
    use crate::netlink::{NLM_F_DUMP, NLM_F_REQUEST, attributes, find, message, u16_at, u32_at};

    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const IPPROTO_TCP: u8 = 6;
    const AF_INET: u8 = 2;
    /// 1 << (INET_DIAG_INFO − 1): the kernel reports protocol layers only in replies that contain `tcp_info`.
    const EXT_INFO: u8 = 1 << 1;
    const INET_DIAG_ULP_INFO: u16 = 19;
    const INET_ULP_INFO_TLS: u16 = 2;
    /// The length of struct inet_diag_msg, which the attributes follow.
    const DIAG_MSG: usize = 72;

    /// A request for one connection, or for all of a family.
    pub(super) fn request(family: u8, one: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
        let mut id = [0; 48];
        if let Some((local, remote)) = one {
            id[..2].copy_from_slice(&local.port().to_be_bytes());
            id[2..4].copy_from_slice(&remote.port().to_be_bytes());
            for (at, address) in [(4, local.ip()), (20, remote.ip())] {
                match address {
                    IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
                }
            }
            if let SocketAddr::V6(address) = remote {
                id[36..40].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        // INET_DIAG_NOCOOKIE.
        id[40..].fill(0xFF);
        let flags = if one.is_some() { NLM_F_REQUEST } else { NLM_F_DUMP };
        let body = [&[family, IPPROTO_TCP, EXT_INFO, 0][..], &u32::MAX.to_ne_bytes(), &id].concat();
        message(SOCK_DIAG_BY_FAMILY, flags, &body)
    }

    /// The socket that a message describes.
    pub(super) fn socket(kind: u16, body: &[u8]) -> Option<Socket> {
        if kind != SOCK_DIAG_BY_FAMILY {
            return None;
        }
        let family = *body.first()?;
        let port = |at| Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
        let address = |at: usize| -> Option<IpAddr> {
            Some(if family == AF_INET {
                let bytes: [u8; 4] = body.get(at..at + 4)?.try_into().ok()?;
                Ipv4Addr::from(bytes).into()
            } else {
                let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
                Ipv6Addr::from(bytes).into()
            })
        };
        let tls =
            find(body.get(DIAG_MSG..)?, INET_DIAG_ULP_INFO).and_then(|layer| find(layer, INET_ULP_INFO_TLS)).map(tls);
        Some(Socket {
            local: SocketAddr::new(address(8)?, port(4)?),
            remote: SocketAddr::new(address(24)?, port(6)?),
            uid: u32_at(body, 64)?,
            inode: u32_at(body, 68)?,
            tls,
        })
    }

    fn tls(info: &[u8]) -> Tls {
        let mut tls = Tls::default();
        for (kind, value) in attributes(info) {
            let number = u16_at(value, 0);
            match kind {
                1 => tls.version = number.and_then(Version::from_uapi),
                2 => tls.cipher = number.and_then(Cipher::from_uapi),
                3 => tls.sending = by(number),
                4 => tls.receiving = by(number),
                5 => tls.zerocopy_read_only = true,
                6 => tls.expect_no_pad = true,
                7 => tls.max_payload = number,
                _ => {}
            }
        }
        tls
    }

    fn by(conf: Option<u16>) -> By {
        match conf {
            Some(2) => By::Kernel,
            Some(3) => By::Device,
            Some(4) => By::Offload,
            _ => By::UserSpace,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::diag::parse;
        use crate::netlink::attribute;
        use crate::netlink::tests::{break_every_byte, done, part};

        fn body() -> Vec<u8> {
            let mut body = vec![0; DIAG_MSG];
            body[0] = AF_INET;
            body[4..8].copy_from_slice(&[0x01, 0xBB, 0x30, 0x39]);
            body[8..12].copy_from_slice(&[127, 0, 0, 1]);
            body[24..28].copy_from_slice(&[10, 0, 0, 2]);
            body[64..68].copy_from_slice(&33_u32.to_ne_bytes());
            body[68..72].copy_from_slice(&4711_u32.to_ne_bytes());
            let info = [
                attribute(1, &0x0304_u16.to_ne_bytes()),
                attribute(2, &51_u16.to_ne_bytes()),
                attribute(3, &2_u16.to_ne_bytes()),
                attribute(4, &1_u16.to_ne_bytes()),
                attribute(6, &[]),
                attribute(7, &512_u16.to_ne_bytes()),
                attribute(99, &[1]),
            ]
            .concat();
            let ulp = [attribute(1, b"tls\0"), attribute(INET_ULP_INFO_TLS | 0x8000, &info)].concat();
            [body, attribute(7, &[0; 40]), attribute(INET_DIAG_ULP_INFO, &ulp)].concat()
        }

        #[test]
        fn a_dump_is_read_to_its_end() {
            let found = parse(
                &[
                    part(SOCK_DIAG_BY_FAMILY, &body()),
                    part(SOCK_DIAG_BY_FAMILY + 1, &body()),
                    part(SOCK_DIAG_BY_FAMILY, &body()[..DIAG_MSG]),
                    done(0),
                    part(SOCK_DIAG_BY_FAMILY, &body()),
                ]
                .concat(),
            );
            let tls = Tls {
                version: Some(Version::Tls13),
                cipher: Some(Cipher::Aes128Gcm),
                sending: By::Kernel,
                receiving: By::UserSpace,
                zerocopy_read_only: false,
                expect_no_pad: true,
                max_payload: Some(512),
            };
            let socket = Socket {
                local: "127.0.0.1:443".parse().expect("address"),
                remote: "10.0.0.2:12345".parse().expect("address"),
                inode: 4711,
                uid: 33,
                tls: Some(tls),
            };
            assert_eq!(found, [socket.clone(), Socket { tls: None, ..socket }]);
        }

        #[test]
        fn broken_messages_are_skipped() {
            break_every_byte(&part(SOCK_DIAG_BY_FAMILY, &body()), |datagram| {
                parse(datagram);
            });
        }

        #[test]
        fn requests_are_as_long_as_they_say() {
            let pair = ("127.0.0.1:1".parse().expect("address"), "127.0.0.1:2".parse().expect("address"));
            for one in [None, Some(pair)] {
                let request = request(AF_INET, one);
                assert_eq!(request.len(), 16 + 56);
                assert_eq!(u32_at(&request, 0), Some(request.len() as u32));
            }
        }
    }
}
