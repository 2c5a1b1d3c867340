//! The side at fault and the remedy for each errno of each step.
//!
//! docs/kernel.md has the same table, with the tests that provoke each line.

use rustix::io::Errno;

use crate::{Kind, Operation};

/// The side at fault and the advice for a failure of `operation` with `errno`.
pub(crate) fn meaning(operation: Operation, errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::AGAIN => return (Kind::WouldBlock, "wait until the socket is ready, then repeat the call"),
        Errno::NOMEM | Errno::NOBUFS => return (Kind::Io, "the machine is out of memory; the call may be repeated"),
        Errno::BADF | Errno::NOTSOCK | Errno::FAULT => {
            return (Kind::Misuse, "pass the descriptor of the TCP socket");
        }
        _ => {}
    }
    match operation {
        Operation::SetUlp => attaching(errno),
        // No system call, so no errno.
        Operation::Secrets => (Kind::Unsupported, "the kernel does not know this version or AEAD: stay in user space"),
        Operation::SetTx | Operation::SetRx => first_keys(errno),
        Operation::KeyUpdate if errno == Errno::BUSY => (Kind::Unsupported, NO_REKEY),
        Operation::KeyUpdate if errno == Errno::OPNOTSUPP => (Kind::Unsupported, NO_REKEY_IN_CARD),
        Operation::Rekey | Operation::RekeyRx => next_keys(errno),
        Operation::ZerocopyReadOnly | Operation::ExpectNoPad | Operation::MaxPayload | Operation::ReadOption => {
            option(errno)
        }
        Operation::PacingRate => (Kind::Io, "the kernel refused the rate: go without it"),
        Operation::Send
        | Operation::SendFile
        | Operation::Flush
        | Operation::SendRecord
        | Operation::KeyUpdate
        | Operation::Splice => sending(operation, errno),
        Operation::Receive => receiving(errno),
        Operation::TcpState if errno == Errno::CONNRESET => (Kind::Peer, CLOSED),
        Operation::Sequence | Operation::TcpState => (Kind::Misuse, NOT_HANDED_OVER),
        Operation::Loopback => {
            (Kind::Io, "no connection over 127.0.0.1: is the interface lo up, and are descriptors left?")
        }
        Operation::ReadStat if errno == Errno::NOENT => (
            Kind::Unsupported,
            "no /proc/net/tls_stat: the TLS module is not loaded (`modprobe tls` on the host), or /proc is not mounted",
        ),
        Operation::ReadStat => (Kind::Io, "/proc/net/tls_stat cannot be read"),
        Operation::Nics => match errno {
            Errno::NOENT | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT => {
                (Kind::Unsupported, "this kernel lacks CONFIG_ETHTOOL_NETLINK (Linux 5.6): run `ethtool -k` instead")
            }
            Errno::PERM | Errno::ACCESS => {
                (Kind::Unsupported, "a sandbox forbids netlink sockets: allow AF_NETLINK there")
            }
            _ => (Kind::Io, "the network cards' features cannot be read: run `ethtool -k` instead"),
        },
        Operation::Diagnose => match errno {
            // This process holds the socket, and it is connected. So the missing entry is the diagnosis module.
            Errno::NOENT => (
                Kind::Unsupported,
                "the kernel's diagnosis of TCP sockets is not loaded: run `modprobe tcp_diag` on the host",
            ),
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => {
                (Kind::Unsupported, "the kernel has no socket diagnosis: run `modprobe inet_diag` on the host")
            }
            Errno::PERM | Errno::ACCESS => {
                (Kind::Unsupported, "a sandbox forbids netlink sockets: allow AF_NETLINK there")
            }
            _ => (Kind::Io, "the kernel's socket diagnosis failed"),
        },
    }
}

const NO_REKEY: &str =
    "this kernel cannot renew keys: finish the response, send close_notify and close before the key wears out";
const NO_REKEY_IN_CARD: &str =
    "a network card seals this connection and cannot renew keys: send close_notify and close before the key wears out";
const NOT_HANDED_OVER: &str = "this socket does not use kernel TLS: pass the descriptor that was handed over";

fn attaching(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::NOENT => (
            Kind::Unsupported,
            "the kernel has no TLS layer loaded: run `modprobe tls` on the host, or stay in user space",
        ),
        Errno::NOTCONN => {
            (Kind::Peer, "the connection is not ESTABLISHED, as after the peer has closed its half: stay in user space")
        }
        Errno::EXIST => (Kind::Misuse, "the socket already has another protocol layer or TLS keys"),
        Errno::NOPROTOOPT | Errno::OPNOTSUPP => (Kind::Misuse, "only a TCP socket can carry kernel TLS"),
        Errno::PERM | Errno::ACCESS => {
            (Kind::Unsupported, "a sandbox forbids TCP_ULP: allow setsockopt, or stay in user space")
        }
        _ => (Kind::Io, "the kernel refused its TLS layer: stay in user space"),
    }
}

fn first_keys(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::NOENT => (
            Kind::Unsupported,
            "the kernel has the TLS layer but not this cipher (module missing, or FIPS mode): stay in user space",
        ),
        Errno::INVAL => {
            (Kind::Unsupported, "the kernel does not know this version with this cipher: stay in user space")
        }
        Errno::BUSY => (Kind::Misuse, "the socket already has keys in this direction: hand over once"),
        Errno::PERM | Errno::ACCESS => {
            (Kind::Unsupported, "a sandbox forbids TLS_TX or TLS_RX: allow setsockopt, or stay in user space")
        }
        Errno::NOPROTOOPT => (Kind::Misuse, NOT_HANDED_OVER),
        _ => (Kind::Io, "the kernel refused the keys: stay in user space"),
    }
}

fn next_keys(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::BUSY => (Kind::Unsupported, NO_REKEY),
        _ => (Kind::Io, "the next key was refused, and the peer already uses or expects it: close the connection"),
    }
}

fn option(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::NOPROTOOPT => (Kind::Unsupported, "this kernel lacks the option: go without it"),
        Errno::BUSY => (Kind::Misuse, "a record is open: flush it first"),
        Errno::INVAL => (Kind::Misuse, "the value is out of range, or the keys are not those the option is for"),
        _ => (Kind::Io, "the kernel refused the option: go without it"),
    }
}

fn sending(operation: Operation, errno: Errno) -> (Kind, &'static str) {
    match (operation, errno) {
        (_, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => (Kind::Peer, CLOSED),
        (_, Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::CONNABORTED) => {
            (Kind::Peer, LOST)
        }
        (_, Errno::BADMSG) => (
            Kind::Io,
            "the kernel could not seal a record, its sequence number is used up, or receiving failed before: \
             drop the connection",
        ),
        (Operation::SendFile | Operation::Splice, Errno::INVAL | Errno::SPIPE) => (
            Kind::Misuse,
            "this input cannot be sent: pass a regular file with an offset below 2^63, or a pipe to splice",
        ),
        (Operation::SendFile, Errno::IO) => {
            (Kind::Io, "the file could not be read: end the connection without close_notify")
        }
        (Operation::Flush | Operation::SendRecord | Operation::KeyUpdate, Errno::INVAL) => {
            (Kind::Misuse, NOT_HANDED_OVER)
        }
        (_, Errno::OPNOTSUPP) => (Kind::Misuse, "kernel TLS does not take this flag"),
        _ => (Kind::Io, "drop the connection"),
    }
}

const CLOSED: &str = "the connection is closed: drop it";
const LOST: &str = "the network lost the peer: drop the connection";

fn receiving(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::BADMSG => (
            Kind::Peer,
            "a record does not authenticate: drop the connection; the kernel sends nothing more on it, not even an alert",
        ),
        Errno::MSGSIZE => {
            (Kind::Peer, "a record is longer than TLS allows: close at once, the kernel reads no further")
        }
        Errno::INVAL => {
            (Kind::Peer, "the received bytes are not a TLS record: close at once, the kernel reads no further")
        }
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => (Kind::Peer, CLOSED),
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::CONNABORTED => {
            (Kind::Peer, LOST)
        }
        Errno::KEYEXPIRED => (Kind::Misuse, "KeyUpdate was read: install the next key"),
        _ => (Kind::Io, "drop the connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/kernel.md, errno by errno.
    #[test]
    fn errno_says_whose_fault_it_is() {
        for (operation, errno, kind) in [
            (Operation::SetUlp, Errno::NOENT, Kind::Unsupported),
            (Operation::SetUlp, Errno::NOTCONN, Kind::Peer),
            (Operation::SetUlp, Errno::EXIST, Kind::Misuse),
            (Operation::SetUlp, Errno::NOMEM, Kind::Io),
            (Operation::SetTx, Errno::NOENT, Kind::Unsupported),
            (Operation::SetRx, Errno::INVAL, Kind::Unsupported),
            (Operation::SetTx, Errno::BUSY, Kind::Misuse),
            (Operation::SetTx, Errno::PERM, Kind::Unsupported),
            (Operation::KeyUpdate, Errno::BUSY, Kind::Unsupported),
            (Operation::KeyUpdate, Errno::AGAIN, Kind::WouldBlock),
            (Operation::KeyUpdate, Errno::PIPE, Kind::Peer),
            (Operation::Rekey, Errno::BUSY, Kind::Unsupported),
            (Operation::RekeyRx, Errno::INVAL, Kind::Io),
            (Operation::Send, Errno::AGAIN, Kind::WouldBlock),
            (Operation::Send, Errno::PIPE, Kind::Peer),
            (Operation::Send, Errno::TIMEDOUT, Kind::Peer),
            (Operation::Send, Errno::BADMSG, Kind::Io),
            (Operation::Send, Errno::OPNOTSUPP, Kind::Misuse),
            (Operation::SendFile, Errno::INVAL, Kind::Misuse),
            (Operation::SendFile, Errno::IO, Kind::Io),
            (Operation::SendRecord, Errno::INVAL, Kind::Misuse),
            (Operation::Receive, Errno::BADMSG, Kind::Peer),
            (Operation::Receive, Errno::MSGSIZE, Kind::Peer),
            (Operation::Receive, Errno::INVAL, Kind::Peer),
            (Operation::Receive, Errno::CONNRESET, Kind::Peer),
            (Operation::MaxPayload, Errno::NOPROTOOPT, Kind::Unsupported),
            (Operation::MaxPayload, Errno::BUSY, Kind::Misuse),
            (Operation::Sequence, Errno::BUSY, Kind::Misuse),
            (Operation::ReadStat, Errno::NOENT, Kind::Unsupported),
        ] {
            assert_eq!(meaning(operation, errno).0, kind, "{operation:?} {errno:?}");
        }
    }
}
