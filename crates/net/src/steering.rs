//! A classic BPF program that chooses the socket of a group (SO_REUSEPORT) by the connection ID of QUIC.
//!
//! It needs no privilege, unlike eBPF. Its result is the index of a socket in the order of bind(2) (linux/net/core/sock_reuseport.c). An index
//! out of range has the kernel choose by a hash, and a datagram that ends before what is loaded goes to socket 0. Closing a
//! socket moves the last one of the group into its place: a process that hands over keeps its sockets, or its successor keeps
//! copies of them.

use std::io;
use std::os::fd::AsFd;

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_JA, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD,
    BPF_RET, BPF_W, sock_filter, sock_fprog,
};
use nix::sys::socket::{setsockopt, sockopt};

/// Which socket of a group gets a datagram of QUIC. The group has a share for each process at the address, and a socket for
/// each worker in each share.
///
/// `sealion_quic::Route::steer` computes the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// The number of workers, at least 1.
    pub workers: u32,
    /// The number of shares, at least 1.
    pub shares: u32,
    /// The share that new connections go to.
    pub share: u32,
}

impl Steering {
    /// Steers all datagrams of the group of `socket` from now on, whichever member had a program before.
    ///
    /// A process that takes over calls it when it serves, not before: from then on it gets all new connections.
    ///
    /// # Errors
    /// EINVAL: the socket is in no group, or there are no workers, or no such share. ENOMEM: the kernel is short of memory.
    pub fn attach(self, socket: impl AsFd) -> io::Result<()> {
        let mut program = self.program()?;
        // The kernel copies the program before the call returns.
        let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        Ok(setsockopt(&socket, sockopt::AttachReusePortCbpf, &program)?)
    }

    fn program(self) -> io::Result<[sock_filter; 13]> {
        let Steering { workers, shares, share } = self;
        let sockets = workers.checked_mul(shares).filter(|sockets| *sockets > 0 && share < shares);
        let Some(sockets) = sockets else { return Err(io::ErrorKind::InvalidInput.into()) };
        let step = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let jump = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
        Ok([
            step(BPF_LD | BPF_B | BPF_ABS, 0),
            jump(BPF_JMP | BPF_JSET | BPF_K, LONG_HEADER, 0, 8), // to 2 or 10
            step(BPF_ALU | BPF_AND | BPF_K, LONG_TYPE),
            jump(BPF_JMP | BPF_JGT | BPF_K, TYPE_0_RTT, 4, 0), // to 8 or 4
            // Initial, 0-RTT: a worker of the process that serves.
            step(BPF_LD | BPF_W | BPF_ABS, LONG_HEADER_ID),
            step(BPF_ALU | BPF_MOD | BPF_K, workers),
            step(BPF_ALU | BPF_ADD | BPF_K, share * workers),
            step(BPF_RET | BPF_A, 0),
            // Handshake, Retry.
            step(BPF_LD | BPF_W | BPF_ABS, LONG_HEADER_ID),
            step(BPF_JMP | BPF_JA, 1), // to 11
            // Short header.
            step(BPF_LD | BPF_W | BPF_ABS, SHORT_HEADER_ID),
            // The owner of the connection.
            step(BPF_ALU | BPF_MOD | BPF_K, sockets),
            step(BPF_RET | BPF_A, 0),
        ])
    }
}

/// The first byte of a packet (RFC 8999 §5.1, RFC 9000 §17.2).
const LONG_HEADER: u32 = 0x80;
const LONG_TYPE: u32 = 0x30;
const TYPE_0_RTT: u32 = 0x10;

/// The place of the destination connection ID: behind the first byte, and behind the version and a length.
const SHORT_HEADER_ID: u32 = 1;
const LONG_HEADER_ID: u32 = 6;
