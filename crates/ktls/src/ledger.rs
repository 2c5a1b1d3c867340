//! Counts the sealed bytes that have not reached TCP yet.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::sys::sockopt;
use crate::{Cipher, Error, Operation, Version};

/// Accounts for every byte between "the kernel accepted it" and "TCP has it".
///
/// The kernel accepts a send although TCP took only part of the sealed record. It keeps the rest and pushes it when TCP
/// has room. `close(2)` tries once more without waiting and frees the rest, so that the tail of a response can be lost
/// while `SIOCOUTQ` shows an empty queue. No option reports that rest, but it can be computed:
///
/// ```text
/// on the wire, once all is sent = plaintext accepted + overhead × records sealed       (records: the sequence number)
/// taken by TCP since handover   = acknowledged + queued, now − then                    (TCP_INFO, SIOCOUTQ)
/// unsent                        = the first − the second
/// ```
///
/// An open record is accepted but not sealed: its plaintext counts as unsent, its overhead not yet.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) overhead: u64,
    /// Bytes that TCP had taken before the keys were installed.
    pub(crate) tcp_then: u64,
    /// The first sequence number of the present key.
    pub(crate) first: u64,
    /// Records sealed under earlier keys.
    pub(crate) sealed: u64,
    /// Plaintext bytes accepted, of every record type.
    pub(crate) accepted: u64,
}

impl Ledger {
    /// Begins at the handover. TCP must have taken everything written before.
    pub(crate) fn begin(fd: BorrowedFd<'_>, version: Version, cipher: Cipher, sequence: u64) -> Result<Self, Error> {
        let tcp_then = sockopt::tcp_taken(fd).map_err(tcp_state)?;
        Ok(Self { overhead: cipher.overhead(version), tcp_then, first: sequence, sealed: 0, accepted: 0 })
    }

    pub(crate) fn accept(&mut self, plaintext: usize) {
        self.accepted += plaintext as u64;
    }

    /// Replaces the key whose records end before number `last` with a key whose records begin at `first`.
    pub(crate) fn rekey(&mut self, last: u64, first: u64) {
        self.sealed += last.saturating_sub(self.first);
        self.first = first;
    }

    /// Bytes that TCP has not taken; 0 if it has every byte. `sequence` is the present key's current number.
    ///
    /// `ECONNRESET`: the connection is closed, so TCP takes no more bytes.
    pub(crate) fn unsent(&self, fd: BorrowedFd<'_>, sequence: u64) -> Result<u64, Error> {
        let taken = sockopt::tcp_taken(fd).map_err(tcp_state)?.saturating_sub(self.tcp_then);
        // The FIN takes a sequence number of its own; after shutdown the difference would be −1.
        let unsent = self.expected(sequence).saturating_sub(taken);
        if unsent > 0 && sockopt::is_closed(fd).map_err(tcp_state)? {
            return Err(tcp_state(Errno::CONNRESET));
        }
        Ok(unsent)
    }

    fn expected(&self, sequence: u64) -> u64 {
        self.accepted + self.overhead * (self.sealed + sequence.saturating_sub(self.first))
    }
}

/// Bytes sent on a stream socket that the peer has not acknowledged (TCP) or read (Unix socket).
///
/// # Errors
/// The kernel's, if `fd` is not a stream socket.
pub fn queued(fd: impl AsFd) -> Result<u32, Error> {
    sockopt::out_queue(fd.as_fd()).map_err(tcp_state)
}

/// Bytes that a stream socket accepts before a send has to wait: its send buffer less its queue (`SO_MEMINFO`, Linux
/// 4.12).
///
/// The kernel counts each packet's bookkeeping too, so that fewer bytes of data fit: about half as many if packets are
/// small.
///
/// # Errors
/// The kernel's, if `fd` is not a socket or lacks the option.
pub fn room(fd: impl AsFd) -> Result<usize, Error> {
    sockopt::send_room(fd.as_fd()).map(|bytes| bytes as usize).map_err(tcp_state)
}

/// Bytes that the peer has acknowledged over the life of a TCP connection, with or without kernel TLS (`TCP_INFO`,
/// Linux 4.1).
///
/// This distinguishes a slow peer from a stalled one: a socket becomes writable again only when a third of its buffer
/// is free (`sk_stream_is_writeable`, include/net/sock.h), which takes a slow peer minutes.
///
/// # Errors
/// [`Kind::Misuse`](crate::Kind::Misuse) if `fd` is not a TCP socket.
pub fn acknowledged(fd: impl AsFd) -> Result<u64, Error> {
    sockopt::bytes_acked(fd.as_fd()).map_err(tcp_state)
}

fn tcp_state(errno: Errno) -> Error {
    Error::from_errno(Operation::TcpState, errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(miri))]
    fn what_the_peer_acknowledged_is_counted() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let before = acknowledged(&near).unwrap();
        near.write_all(&[0; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        // The reply carries the acknowledgement.
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
        assert_eq!(acknowledged(&near).unwrap() - before, 1000);
        assert!(room(&near).unwrap() >= 4096, "nothing is under way");
        let pipe = rustix::pipe::pipe().unwrap();
        assert_eq!(room(&pipe.0).unwrap_err().errno(), Some(Errno::NOTSOCK.raw_os_error()));
        assert_eq!(acknowledged(&pipe.0).unwrap_err().errno(), Some(Errno::NOTSOCK.raw_os_error()));
    }

    #[test]
    #[cfg(not(miri))]
    fn nothing_is_waited_for_on_a_dead_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let mut ledger = Ledger::begin(near.as_fd(), Version::Tls13, Cipher::Aes128Gcm, 0).unwrap();
        ledger.accept(1);
        assert_eq!(ledger.unsent(near.as_fd(), 0), Ok(1));
        // With a linger time of zero, closing resets the connection.
        rustix::net::sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
        drop(far);
        let error = ledger.unsent(near.as_fd(), 0).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (crate::Kind::Peer, Operation::TcpState));
    }

    #[test]
    fn expected_bytes_span_a_rekey() {
        let mut ledger = Ledger { overhead: 22, tcp_then: 9, first: 5, sealed: 0, accepted: 0 };
        assert_eq!(ledger.expected(5), 0);
        ledger.accept(100);
        assert_eq!(ledger.expected(5), 100, "an open record has no overhead yet");
        assert_eq!(ledger.expected(6), 122);
        ledger.accept(5);
        ledger.rekey(7, 0);
        assert_eq!(ledger.expected(0), 149);
        ledger.accept(1);
        assert_eq!(ledger.expected(1), 172);
    }
}
