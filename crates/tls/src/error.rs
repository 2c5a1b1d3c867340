//! Errors that end a connection or a handshake.

use std::io;
use std::time::Duration;

use crate::record::{OpenError, SealError};
use crate::{AlertDescription, NoCertificate};

/// An error that ended an established connection.
#[derive(Debug)]
pub enum Error {
    /// The socket failed; usually the peer is gone.
    Io(io::Error),
    /// The kernel rejected an operation on its record layer.
    Kernel(sealion_ktls::Error),
    /// The peer sent a fatal alert.
    PeerAlert(AlertDescription),
    /// The peer sent a record that is malformed or does not authenticate.
    Record(OpenError),
    /// The peer violated the protocol above the record layer.
    Protocol {
        /// The alert to send.
        alert: AlertDescription,
        /// The violation, as the object of "the peer sent".
        what: &'static str,
    },
    /// FIN without `close_notify`: data may be missing (RFC 8446 §6.1).
    Truncated,
    /// The file ended inside the range to be sent: it was truncated in the meantime.
    FileShrank {
        /// Where the file ended.
        at: u64,
        /// The end of the range.
        end: u64,
    },
    /// The file could not be read.
    File(io::Error),
    /// The sending key has reached its limit of records and cannot be updated.
    KeyExhausted,
    /// The peer took nothing for [`Limits::stall`](crate::Limits::stall).
    Stalled(Duration),
    /// The peer took less than [`Limits::least_rate`](crate::Limits::least_rate) requires.
    TooSlow {
        /// Bytes that the peer took within the window.
        taken: u64,
        /// Time spent waiting for the peer.
        window: Duration,
    },
    /// An earlier response failed or was dropped half-way, so that nothing can be sent after it.
    Unfinished,
}

impl Error {
    /// Whether reading the file caused the error.
    pub fn is_of_file(&self) -> bool {
        matches!(self, Self::File(_) | Self::FileShrank { .. })
    }

    /// The same error for a later call. An error of the kernel or of a file becomes [`Self::Unfinished`].
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Io(error) => Self::Io(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            }),
            Self::PeerAlert(alert) => Self::PeerAlert(*alert),
            Self::Record(error) => Self::Record(*error),
            Self::Protocol { alert, what } => Self::Protocol { alert: *alert, what },
            Self::Truncated => Self::Truncated,
            Self::KeyExhausted => Self::KeyExhausted,
            Self::Stalled(limit) => Self::Stalled(*limit),
            Self::TooSlow { taken, window } => Self::TooSlow { taken: *taken, window: *window },
            Self::Kernel(_) | Self::File(_) | Self::FileShrank { .. } | Self::Unfinished => Self::Unfinished,
        }
    }

    /// The alert to send before closing. `None`: it could not arrive, or the peer ended the connection.
    pub fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::Record(e) => Some(e.alert()),
            Self::Protocol { alert, .. } => Some(*alert),
            Self::FileShrank { .. } | Self::File(_) | Self::KeyExhausted | Self::Unfinished => {
                Some(AlertDescription::INTERNAL_ERROR)
            }
            Self::Io(_)
            | Self::Kernel(_)
            | Self::PeerAlert(_)
            | Self::Truncated
            | Self::Stalled(_)
            | Self::TooSlow { .. } => None,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "connection lost: {e}"),
            Self::Kernel(e) => write!(f, "kernel TLS: {e}"),
            Self::PeerAlert(alert) => write!(f, "the peer sent the alert {alert}"),
            Self::Record(e) => write!(f, "the peer sent {e}"),
            Self::Protocol { what, .. } => write!(f, "the peer sent {what}"),
            Self::Truncated => f.write_str("the peer closed without close_notify"),
            Self::FileShrank { at, end } => {
                write!(
                    f,
                    "the file ended at byte {at} while bytes up to {end} were promised: it was truncated during the response"
                )
            }
            Self::File(e) => write!(f, "the file cannot be read: {e}"),
            Self::KeyExhausted => f.write_str("the key has sealed all the records it may"),
            Self::Stalled(limit) => {
                write!(f, "the peer read nothing for {} s", limit.as_secs_f32())
            }
            Self::TooSlow { taken, window } => {
                write!(f, "the peer took only {taken} bytes in {} s of waiting", window.as_secs_f32())
            }
            Self::Unfinished => f.write_str("an earlier response was not sent to its end"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) | Self::File(e) => Some(e),
            Self::Kernel(e) => Some(e),
            Self::Record(e) => Some(e),
            _ => None,
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self::Record(error)
    }
}

impl From<SealError> for Error {
    fn from(SealError::KeyExhausted: SealError) -> Self {
        Self::KeyExhausted
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io(e) | Error::File(e) => e.kind(),
            Error::Kernel(_) | Error::KeyExhausted | Error::Unfinished => io::ErrorKind::Other,
            Error::PeerAlert(_) => io::ErrorKind::ConnectionAborted,
            Error::Record(_) | Error::Protocol { .. } => io::ErrorKind::InvalidData,
            Error::Truncated | Error::FileShrank { .. } => io::ErrorKind::UnexpectedEof,
            Error::Stalled(_) | Error::TooSlow { .. } => io::ErrorKind::TimedOut,
        };
        io::Error::new(kind, error)
    }
}

/// An error that ended a handshake.
#[derive(Debug)]
pub enum HandshakeError {
    /// The socket failed; usually the peer is gone.
    Io(io::Error),
    /// FIN before the first byte, or `close_notify`.
    ClosedByPeer,
    /// FIN in the middle of the handshake.
    Truncated,
    /// The peer's first bytes are a plain HTTP request.
    PlainHttp,
    /// The peer sent a fatal alert.
    PeerAlert(AlertDescription),
    /// The peer's flight is longer than this many bytes.
    TooLong(usize),
    /// The client's certificate is missing, invalid or revoked. The alert was sent.
    ClientCertificate(String),
    /// No certificate exists for the name that the client asked for. The alert was sent.
    NoCertificate {
        /// The name.
        name: String,
        /// The reason, which also decides the alert.
        why: NoCertificate,
    },
    /// rustls failed the handshake. The alert was sent.
    Tls(String),
}

impl HandshakeError {
    pub(crate) fn from_rustls(error: rustls::Error, incoming: &[u8]) -> Self {
        match error {
            rustls::Error::AlertReceived(alert) => Self::PeerAlert(AlertDescription(alert.into())),
            rustls::Error::InvalidMessage(_) if looks_like_http(incoming) => Self::PlainHttp,
            // A server verifies only the client's certificate.
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                Self::ClientCertificate(error.to_string())
            }
            other => Self::Tls(other.to_string()),
        }
    }
}

fn looks_like_http(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] =
        [b"GET ", b"HEAD ", b"POST ", b"OPTIO", b"PUT ", b"DELET", b"PATCH", b"PRI *", b"CONNE"];
    METHODS.iter().any(|m| bytes.starts_with(m))
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "connection lost during the handshake: {e}"),
            Self::ClosedByPeer => f.write_str("the peer closed before the handshake"),
            Self::Truncated => f.write_str("the peer closed during the handshake"),
            Self::PlainHttp => f.write_str("the peer spoke plain HTTP to the HTTPS port: use https:// in the address"),
            Self::PeerAlert(alert) => {
                write!(f, "the peer ended the handshake with the alert {alert}")
            }
            Self::TooLong(limit) => write!(f, "the peer's handshake is longer than {limit} bytes"),
            Self::ClientCertificate(why) => write!(f, "client certificate refused: {why}"),
            Self::NoCertificate { name, why: NoCertificate::NotAllowed } => {
                write!(f, "refused: there is no certificate for {name}")
            }
            Self::NoCertificate { name, why: NoCertificate::Unavailable } => {
                write!(f, "refused: no certificate for {name} can be obtained now")
            }
            Self::Tls(why) => write!(f, "handshake failed: {why}"),
        }
    }
}

impl std::error::Error for HandshakeError {}
