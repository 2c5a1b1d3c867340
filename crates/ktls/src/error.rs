//! What went wrong, whose fault it is, and what to do.

use std::{fmt, io};

use rustix::io::Errno;

/// Why a call on a kernel-TLS socket failed.
///
/// It holds no heap memory, so that `WouldBlock`, which is no failure in a non-blocking program, costs nothing. The
/// conversion to [`std::io::Error`] keeps the [`std::io::ErrorKind`], and does not allocate for `WouldBlock` either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    operation: Operation,
    kind: Kind,
    errno: Option<Errno>,
    advice: &'static str,
}

/// Whose fault an [`Error`] is, and so what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// This kernel, or its configuration, lacks the feature: stay in user space.
    Unsupported,
    /// The caller broke a rule of this crate or of the kernel: a bug on our side of the wire.
    Misuse,
    /// The peer closed, reset or broke the protocol: the connection is over.
    Peer,
    /// The machine failed: memory, disk, network. The connection is over unless the advice says to retry.
    Io,
    /// Nothing was taken; wait until the socket is ready, then repeat the call with the same arguments.
    WouldBlock,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `setsockopt(TCP_ULP, "tls")`. The socket is as it was.
    SetUlp,
    /// `setsockopt(TLS_TX)` during handover. The protocol layer is attached, but without keys: the socket still sends plainly.
    SetTx,
    /// `send(2)` or `sendmsg(2)` of data.
    Send,
    /// `sendfile(2)`.
    SendFile,
    /// The empty `sendmsg(2)` that seals an open record.
    Flush,
    /// `sendmsg(2)` of a record with a type of its own.
    SendRecord,
    /// The KeyUpdate record, or the question whether this kernel can renew keys. Nothing was sent.
    KeyUpdate,
    /// `setsockopt(TLS_TX)` with the next key. The KeyUpdate record **is already sent**.
    Rekey,
    /// `getsockopt(TLS_TX)`, for the sequence number.
    Sequence,
    /// `SIOCOUTQ` or `TCP_INFO`, for what TCP holds.
    TcpState,
    /// Making a connection over loopback for a probe.
    Loopback,
    /// Reading `/proc/net/tls_stat`.
    ReadStat,
}

impl Error {
    /// Whose fault it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The step that failed.
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The kernel's error number, if the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        self.errno.map(Errno::raw_os_error)
    }

    /// What to do, for the operator or the author of the calling program.
    pub const fn advice(&self) -> &'static str {
        self.advice
    }

    /// The kernel's error number; `EINVAL` where this crate refused by itself.
    pub(crate) fn cause(&self) -> Errno {
        self.errno.unwrap_or(Errno::INVAL)
    }

    /// A rule that this crate checks before it asks the kernel.
    pub(crate) const fn misuse(operation: Operation, advice: &'static str) -> Self {
        Self { operation, kind: Kind::Misuse, errno: None, advice }
    }

    pub(crate) const fn new(operation: Operation, kind: Kind, errno: Errno, advice: &'static str) -> Self {
        Self { operation, kind, errno: Some(errno), advice }
    }

    /// The table errno → meaning → what to do, of `docs/kernel.md`.
    pub(crate) fn from_errno(operation: Operation, errno: Errno) -> Self {
        let (kind, advice) = meaning(operation, errno);
        Self { operation, kind, errno: Some(errno), advice }
    }
}

fn meaning(operation: Operation, errno: Errno) -> (Kind, &'static str) {
    use Operation::{
        Flush, KeyUpdate, Loopback, ReadStat, Rekey, Send, SendFile, SendRecord, Sequence, SetTx, SetUlp, TcpState,
    };
    match (operation, errno) {
        (_, Errno::AGAIN) => (Kind::WouldBlock, "wait until the socket is ready, then repeat the call"),
        (_, Errno::NOMEM | Errno::NOBUFS) => (Kind::Io, "the machine is out of memory; the call may be repeated"),
        (_, Errno::BADF | Errno::NOTSOCK | Errno::FAULT) => (Kind::Misuse, "pass the descriptor of the TCP socket"),

        (SetUlp, Errno::NOENT) => (
            Kind::Unsupported,
            "the kernel has no TLS layer loaded: run `modprobe tls` on the host, or stay in user space",
        ),
        (SetUlp, Errno::NOTCONN) => {
            (Kind::Peer, "the connection is not ESTABLISHED, as after the peer has closed its half: stay in user space")
        }
        (SetUlp, Errno::EXIST) => (Kind::Misuse, "the socket already has another protocol layer or TLS keys"),
        (SetUlp, Errno::NOPROTOOPT | Errno::OPNOTSUPP) => (Kind::Misuse, "only a TCP socket can carry kernel TLS"),
        (SetUlp, Errno::PERM | Errno::ACCESS) => {
            (Kind::Unsupported, "a sandbox forbids TCP_ULP: allow setsockopt, or stay in user space")
        }
        (SetUlp, _) => (Kind::Io, "the kernel refused its TLS layer: stay in user space"),

        (SetTx, Errno::NOENT) => (
            Kind::Unsupported,
            "the kernel has the TLS layer but not this cipher (module missing, or FIPS mode): stay in user space",
        ),
        (SetTx, Errno::INVAL) => {
            (Kind::Unsupported, "the kernel does not know this version with this cipher: stay in user space")
        }
        (SetTx, Errno::BUSY) => (Kind::Misuse, "the socket already has sending keys: hand over once"),
        (SetTx, Errno::NOPROTOOPT) => (Kind::Misuse, "the TLS layer is not attached to this socket"),
        (SetTx, _) => (Kind::Io, "the kernel refused the keys: stay in user space"),

        (KeyUpdate | Rekey, Errno::BUSY) => (
            Kind::Unsupported,
            "this kernel cannot renew keys: finish the response, send close_notify and close before the key wears out",
        ),
        (Rekey, _) => (Kind::Io, "the next key was refused after KeyUpdate was sent: close the connection"),

        (Send | SendFile | Flush | SendRecord | KeyUpdate, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
            (Kind::Peer, "the connection is closed: drop it")
        }
        (
            Send | SendFile | Flush | SendRecord | KeyUpdate,
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::CONNABORTED,
        ) => (Kind::Peer, "the network lost the peer: drop the connection"),
        (Send | SendFile | Flush | SendRecord | KeyUpdate, Errno::BADMSG) => (
            Kind::Io,
            "the kernel could not seal a record, its sequence number is used up, or receiving failed before: drop the connection",
        ),
        (Send | SendRecord | Flush | KeyUpdate, Errno::OPNOTSUPP) => {
            (Kind::Misuse, "kernel TLS does not take this flag")
        }
        (Flush | SendRecord | KeyUpdate, Errno::INVAL) => {
            (Kind::Misuse, "the socket does not send by kernel TLS: pass the descriptor that was handed over")
        }
        (SendFile, Errno::INVAL | Errno::SPIPE) => {
            (Kind::Misuse, "the input cannot be sent by sendfile: pass a regular file and an offset below 2^63")
        }
        (SendFile, Errno::IO) => (Kind::Io, "the file could not be read: end the connection without close_notify"),
        (Send | SendFile | Flush | SendRecord | KeyUpdate, _) => (Kind::Io, "drop the connection"),

        (Sequence, Errno::BUSY | Errno::NOPROTOOPT | Errno::INVAL | Errno::OPNOTSUPP) => {
            (Kind::Misuse, "the socket does not send by kernel TLS: pass the descriptor that was handed over")
        }
        (Sequence | TcpState, _) => (Kind::Misuse, "pass the descriptor that was handed over"),

        (Loopback, _) => (Kind::Io, "no connection over 127.0.0.1: is the interface lo up, and are descriptors left?"),
        (ReadStat, Errno::NOENT) => (
            Kind::Unsupported,
            "no /proc/net/tls_stat: the TLS module is not loaded (`modprobe tls` on the host), or /proc is not mounted",
        ),
        (ReadStat, _) => (Kind::Io, "/proc/net/tls_stat cannot be read"),
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetUlp => "setsockopt(TCP_ULP, \"tls\")",
            Self::SetTx => "setsockopt(TLS_TX)",
            Self::Send => "send",
            Self::SendFile => "sendfile",
            Self::Flush => "flush of the open record",
            Self::SendRecord => "sendmsg of a control record",
            Self::KeyUpdate => "KeyUpdate",
            Self::Rekey => "setsockopt(TLS_TX) with the next key",
            Self::Sequence => "getsockopt(TLS_TX)",
            Self::TcpState => "reading TCP's state",
            Self::Loopback => "connecting over loopback",
            Self::ReadStat => "reading /proc/net/tls_stat",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel TLS: {}: ", self.operation)?;
        if let Some(errno) = self.errno {
            write!(f, "{errno}: ")?;
        }
        f.write_str(self.advice)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (error.kind, error.errno) {
            // try_io of a runtime looks at the kind alone.
            (Kind::WouldBlock, _) => return io::ErrorKind::WouldBlock.into(),
            (Kind::Unsupported, _) => io::ErrorKind::Unsupported,
            (Kind::Misuse, _) => io::ErrorKind::InvalidInput,
            (Kind::Peer | Kind::Io, Some(errno)) => io::Error::from(errno).kind(),
            (Kind::Peer | Kind::Io, None) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// errno by errno, what `docs/kernel.md` promises.
    #[test]
    fn errno_says_whose_fault_it_is() {
        for (operation, errno, kind) in [
            (Operation::SetUlp, Errno::NOENT, Kind::Unsupported),
            (Operation::SetUlp, Errno::NOTCONN, Kind::Peer),
            (Operation::SetUlp, Errno::EXIST, Kind::Misuse),
            (Operation::SetUlp, Errno::NOMEM, Kind::Io),
            (Operation::SetTx, Errno::NOENT, Kind::Unsupported),
            (Operation::SetTx, Errno::INVAL, Kind::Unsupported),
            (Operation::SetTx, Errno::BUSY, Kind::Misuse),
            (Operation::KeyUpdate, Errno::BUSY, Kind::Unsupported),
            (Operation::KeyUpdate, Errno::AGAIN, Kind::WouldBlock),
            (Operation::Rekey, Errno::BUSY, Kind::Unsupported),
            (Operation::Rekey, Errno::INVAL, Kind::Io),
            (Operation::Send, Errno::AGAIN, Kind::WouldBlock),
            (Operation::Send, Errno::PIPE, Kind::Peer),
            (Operation::Send, Errno::TIMEDOUT, Kind::Peer),
            (Operation::Send, Errno::BADMSG, Kind::Io),
            (Operation::Send, Errno::OPNOTSUPP, Kind::Misuse),
            (Operation::SendFile, Errno::INVAL, Kind::Misuse),
            (Operation::SendFile, Errno::IO, Kind::Io),
            (Operation::SendRecord, Errno::INVAL, Kind::Misuse),
            (Operation::Sequence, Errno::BUSY, Kind::Misuse),
            (Operation::ReadStat, Errno::NOENT, Kind::Unsupported),
        ] {
            assert_eq!(Error::from_errno(operation, errno).kind(), kind, "{operation:?} {errno:?}");
        }
    }

    #[test]
    fn io_error_keeps_the_kind() {
        let kind = |operation, errno| io::Error::from(Error::from_errno(operation, errno)).kind();
        assert_eq!(kind(Operation::Send, Errno::AGAIN), io::ErrorKind::WouldBlock);
        assert_eq!(kind(Operation::Send, Errno::PIPE), io::ErrorKind::BrokenPipe);
        assert_eq!(kind(Operation::Send, Errno::CONNRESET), io::ErrorKind::ConnectionReset);
        assert_eq!(kind(Operation::SetUlp, Errno::NOENT), io::ErrorKind::Unsupported);
        assert_eq!(kind(Operation::SetTx, Errno::BUSY), io::ErrorKind::InvalidInput);
    }

    /// An operator reads which step failed, the errno in words, and the remedy.
    #[test]
    fn display_names_step_errno_and_remedy() {
        let text = Error::from_errno(Operation::SetUlp, Errno::NOENT).to_string();
        assert!(text.starts_with("kernel TLS: setsockopt(TCP_ULP, \"tls\"): No such file or directory"), "{text}");
        assert!(text.ends_with("stay in user space"), "{text}");
    }
}
