//! Netlink messages, netlink(7), `linux/netlink.h`: requests, and replies in which any length may be wrong.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Flags of a request for one thing.
pub(crate) const NLM_F_REQUEST: u16 = 1;
/// Flags of a request for all things.
pub(crate) const NLM_F_DUMP: u16 = 0x300 | NLM_F_REQUEST;
const NLM_F_MULTI: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Lower types are netlink's own.
const NLMSG_MIN_TYPE: u16 = 16;
/// NLA_F_NESTED and NLA_F_NET_BYTEORDER are the bits above.
const NLA_TYPE_MASK: u16 = 0x3FFF;
/// The length of struct nlmsghdr.
const HEADER: usize = 16;

/// The timeout for one part of the kernel's reply. The kernel replies within the call that asks, so this only ends a
/// wait that would never end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a request, and passes each reply's type and body to `each`. `ETIMEDOUT`: the replies did not end in time.
pub(crate) fn ask(protocol: Protocol, request: &[u8], mut each: impl FnMut(u16, &[u8])) -> Result<(), Errno> {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(protocol))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    retry_on_intr(|| rustix::net::send(&socket, request, SendFlags::empty()))?;
    receive(&socket, &mut each)
}

fn receive(socket: &OwnedFd, mut each: impl FnMut(u16, &[u8])) -> Result<(), Errno> {
    // The kernel sizes the datagrams of a dump by the reader's buffer, up to 32 KiB (netlink(7)).
    let mut buffer = vec![0; 1 << 15];
    loop {
        let received = retry_on_intr(|| rustix::net::recv(socket, &mut buffer, RecvFlags::empty()));
        let (len, _) = received.map_err(|errno| if errno == Errno::AGAIN { Errno::TIMEDOUT } else { errno })?;
        match read(&buffer[..len], &mut each) {
            Next::More => {}
            Next::End => return Ok(()),
            Next::Failed(errno) => return Err(Errno::from_raw_os_error(errno)),
        }
    }
}

/// The next step after a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    More,
    End,
    Failed(i32),
}

/// Passes type and body of each message in a datagram to `each`. Skips a truncated message.
pub(crate) fn read(mut datagram: &[u8], mut each: impl FnMut(u16, &[u8])) -> Next {
    let mut next = Next::More;
    while let (Some(len), Some(kind), Some(flags)) = (u32_at(datagram, 0), u16_at(datagram, 4), u16_at(datagram, 6)) {
        let len = len as usize;
        let Some(body) = datagram.get(HEADER..len) else { break };
        match kind {
            // A dump that fails halfway reports the error at its end (af_netlink.c, netlink_dump).
            NLMSG_DONE | NLMSG_ERROR => {
                let code = u32_at(body, 0).unwrap_or(0).cast_signed();
                return if code >= 0 { Next::End } else { Next::Failed(code.wrapping_neg()) };
            }
            ..NLMSG_MIN_TYPE => {}
            _ => {
                each(kind, body);
                if flags & NLM_F_MULTI == 0 {
                    next = Next::End;
                }
            }
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    next
}

/// A message with its header, ready to send.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = (HEADER + body.len()) as u32;
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat()
}

/// struct nlattr: length, type, value, padding to 4 bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = [&(len as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

/// Types and values of attributes. A truncated attribute ends the list.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// The value of the first attribute of this type.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(found, _)| found == kind).map(|(_, value)| value)
}

/// A number in the machine's byte order.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number in the machine's byte order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One reply of several.
    pub(crate) fn part(kind: u16, body: &[u8]) -> Vec<u8> {
        message(kind, NLM_F_MULTI, body)
    }

    /// The end of several replies.
    pub(crate) fn done(code: i32) -> Vec<u8> {
        part(NLMSG_DONE, &code.to_ne_bytes())
    }

    /// Reading must not panic, wherever the message is cut and whatever lengths it claims.
    pub(crate) fn break_every_byte(whole: &[u8], mut read: impl FnMut(&[u8])) {
        for cut in 0..whole.len() {
            read(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 0x7F, 0xFF] {
                let mut broken = whole.to_vec();
                broken[at] = byte;
                read(&broken);
            }
        }
    }

    #[test]
    fn answers_end_as_they_should() {
        let none = |_: u16, _: &[u8]| panic!("netlink's own");
        assert_eq!(read(&done(0), none), Next::End);
        assert_eq!(read(&done(-2), none), Next::Failed(2));
        assert_eq!(read(&message(NLMSG_ERROR, 0, &(-13_i32).to_ne_bytes()), none), Next::Failed(13));
        assert_eq!(read(&message(1, 0, &[]), none), Next::More, "NLMSG_NOOP");
        let mut seen = Vec::new();
        let two = [part(20, &[1; 4]), part(21, &[2; 8])].concat();
        assert_eq!(read(&two, |kind, body| seen.push((kind, body.len()))), Next::More);
        assert_eq!(read(&message(22, 0, &[]), |kind, body| seen.push((kind, body.len()))), Next::End);
        assert_eq!(seen, [(20, 4), (21, 8), (22, 0)]);
    }

    #[test]
    #[cfg(not(miri))]
    fn an_answer_without_end_is_not_waited_for() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        theirs.send(&part(20, &[1; 4])).unwrap();
        let mut seen = 0;
        assert_eq!(receive(&ours.into(), |_, _| seen += 1), Err(Errno::TIMEDOUT));
        assert_eq!(seen, 1);
        // A real socket has the timeout: NLMSG_NOOP gets no reply.
        let unanswered = message(1, NLM_F_REQUEST, &[]);
        assert_eq!(ask(rustix::net::netlink::SOCK_DIAG, &unanswered, |_, _| ()), Err(Errno::TIMEDOUT));
    }

    #[test]
    fn attributes_are_padded_and_flags_are_no_type() {
        let bytes = [attribute(1, b"tls\0x"), attribute(2 | 0x8000, &[7])].concat();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(1, &b"tls\0x"[..]), (2, &[7])]);
        assert_eq!(find(&bytes, 2), Some(&[7][..]));
        assert_eq!(find(&bytes, 3), None);
    }
}
