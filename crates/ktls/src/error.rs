//! Errors: the failed step, the side at fault, the remedy.

use std::{fmt, io};

use rustix::io::Errno;

use crate::errno::meaning;

/// Why a call on a kernel-TLS socket failed.
///
/// It holds no heap memory: `WouldBlock` is not a failure in a non-blocking program and must cost nothing. The
/// conversion to [`std::io::Error`] keeps the [`std::io::ErrorKind`], and does not allocate for `WouldBlock` either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    operation: Operation,
    kind: Kind,
    errno: Option<Errno>,
    advice: &'static str,
}

/// The side at fault for an [`Error`], which decides what the caller can do.
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
    /// Not a failure: the kernel took nothing. Wait until the socket is ready, then repeat the call with the same
    /// arguments.
    WouldBlock,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `setsockopt(TCP_ULP, "tls")`. The socket is as it was.
    SetUlp,
    /// Converting another library's secrets. The socket was not touched.
    Secrets,
    /// `setsockopt(TLS_TX)` during handover. The TLS layer is attached without keys, so the socket still sends bytes
    /// unchanged.
    SetTx,
    /// `send(2)` or `sendmsg(2)` of data.
    Send,
    /// `sendfile(2)` of a part of a file.
    SendFile,
    /// The empty `sendmsg(2)` that seals an open record.
    Flush,
    /// `sendmsg(2)` of a control record.
    SendRecord,
    /// Sending the KeyUpdate record, or asking whether this kernel can renew keys. Nothing was sent.
    KeyUpdate,
    /// `setsockopt(TLS_TX)` with the next key. The KeyUpdate record **is already sent**.
    Rekey,
    /// `setsockopt(TLS_RX)` during handover. Receiving continues in user space, and sending in the kernel.
    SetRx,
    /// `recvmsg(2)` of a record.
    Receive,
    /// `setsockopt(TLS_RX)` with the next key.
    RekeyRx,
    /// `splice(2)` from or into a pipe.
    Splice,
    /// `setsockopt(TLS_TX_ZEROCOPY_RO)`. Sending continues with copies.
    ZerocopyReadOnly,
    /// `setsockopt(TLS_RX_EXPECT_NO_PAD)`. Receiving continues as before.
    ExpectNoPad,
    /// `setsockopt(TLS_TX_MAX_PAYLOAD_LEN)`. Records keep their length.
    MaxPayload,
    /// `getsockopt` of one of these options. Nothing changed.
    ReadOption,
    /// `SO_MAX_PACING_RATE`. The rate is as it was.
    PacingRate,
    /// A query of the kernel's socket diagnosis, sock_diag(7).
    Diagnose,
    /// A query of the network cards' features, ethtool netlink.
    Nics,
    /// `getsockopt(TLS_TX)` or `getsockopt(TLS_RX)`, for the sequence number.
    Sequence,
    /// `SIOCOUTQ` or `TCP_INFO`, for the bytes that TCP holds.
    TcpState,
    /// Making a connection over loopback for a probe.
    Loopback,
    /// Reading the counters in `/proc/net/tls_stat`.
    ReadStat,
}

impl Error {
    /// The side at fault.
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

    /// The remedy, for an operator or for the author of the calling program.
    pub const fn advice(&self) -> &'static str {
        self.advice
    }

    /// The kernel's error number, or `EINVAL` if this crate rejected the call.
    pub(crate) fn cause(&self) -> Errno {
        self.errno.unwrap_or(Errno::INVAL)
    }

    /// A broken rule that this crate detects before it calls the kernel.
    pub(crate) const fn misuse(operation: Operation, advice: &'static str) -> Self {
        Self { operation, kind: Kind::Misuse, errno: None, advice }
    }

    /// A feature that the kernel or this crate is known to lack.
    pub(crate) const fn unsupported(operation: Operation, advice: &'static str) -> Self {
        Self { operation, kind: Kind::Unsupported, errno: None, advice }
    }

    pub(crate) const fn new(operation: Operation, kind: Kind, errno: Errno, advice: &'static str) -> Self {
        Self { operation, kind, errno: Some(errno), advice }
    }

    /// Takes kind and advice from the table in `errno.rs`.
    pub(crate) fn from_errno(operation: Operation, errno: Errno) -> Self {
        let (kind, advice) = meaning(operation, errno);
        Self { operation, kind, errno: Some(errno), advice }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetUlp => "setsockopt(TCP_ULP, \"tls\")",
            Self::Secrets => "converting secrets",
            Self::SetTx => "setsockopt(TLS_TX)",
            Self::Send => "send",
            Self::SendFile => "sendfile",
            Self::Flush => "flush of the open record",
            Self::SendRecord => "sendmsg of a control record",
            Self::KeyUpdate => "KeyUpdate",
            Self::Rekey => "setsockopt(TLS_TX) with the next key",
            Self::SetRx => "setsockopt(TLS_RX)",
            Self::Receive => "recvmsg",
            Self::RekeyRx => "setsockopt(TLS_RX) with the next key",
            Self::Splice => "splice",
            Self::ZerocopyReadOnly => "setsockopt(TLS_TX_ZEROCOPY_RO)",
            Self::ExpectNoPad => "setsockopt(TLS_RX_EXPECT_NO_PAD)",
            Self::MaxPayload => "setsockopt(TLS_TX_MAX_PAYLOAD_LEN)",
            Self::ReadOption => "getsockopt of an option",
            Self::PacingRate => "SO_MAX_PACING_RATE",
            Self::Diagnose => "sock_diag",
            Self::Nics => "ethtool netlink",
            Self::Sequence => "getsockopt of the sequence number",
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
            // Runtimes' `try_io` checks the kind only.
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
