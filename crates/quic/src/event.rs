//! The values that pass between the driver and the endpoint.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionError, EcnCodepoint, VarInt};

/// A datagram that arrived.
#[derive(Debug)]
pub struct Datagram {
    /// The sender.
    pub remote: SocketAddr,
    /// The local address that it was sent to, if the socket tells it (IP_PKTINFO).
    pub local: Option<IpAddr>,
    /// The mark of its IP header, if any.
    pub ecn: Option<Ecn>,
    /// The payload. Packets are opened in place.
    pub data: BytesMut,
}

/// One datagram or several to send: a batch for GSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub remote: SocketAddr,
    /// The local address to send from, if it is known.
    pub local: Option<IpAddr>,
    /// The mark for the IP header.
    pub ecn: Option<Ecn>,
    /// The bytes that were appended to the buffer.
    pub size: usize,
    /// The size of each datagram but the last, which may be shorter. `None`: there is only one.
    pub segment: Option<usize>,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// The mark of the lowest two bits of the traffic class. `None`: not ECN-capable.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0b01 => Some(Ecn::Ect1),
            0b10 => Some(Ecn::Ect0),
            0b11 => Some(Ecn::Ce),
            _ => None,
        }
    }

    /// The lowest two bits of the traffic class.
    pub fn bits(self) -> u8 {
        match self {
            Ecn::Ect1 => 0b01,
            Ecn::Ect0 => 0b10,
            Ecn::Ce => 0b11,
        }
    }
}

impl From<Ecn> for EcnCodepoint {
    fn from(ecn: Ecn) -> Self {
        match ecn {
            Ecn::Ect0 => EcnCodepoint::Ect0,
            Ecn::Ect1 => EcnCodepoint::Ect1,
            Ecn::Ce => EcnCodepoint::Ce,
        }
    }
}

impl From<quinn_proto::Transmit> for Transmit {
    fn from(transmit: quinn_proto::Transmit) -> Self {
        Transmit {
            remote: transmit.destination,
            local: transmit.src_ip,
            ecn: transmit.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8)),
            size: transmit.size,
            segment: transmit.segment_size,
        }
    }
}

/// A connection of an endpoint, until it was closed by either side. Then the number is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub(crate) usize);

impl ConnectionKey {
    /// The number: small, for an index.
    pub fn get(self) -> usize {
        self.0
    }
}

/// The identifier of a stream (RFC 9000 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

impl StreamId {
    /// The number, below 2^62.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The stream of this number. `None`: there is no such number.
    pub fn new(number: u64) -> Option<Self> {
        (number < 1 << 62).then_some(StreamId(number))
    }

    /// Whether both sides send.
    pub fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    pub(crate) fn inner(self) -> quinn_proto::StreamId {
        VarInt::from_u64(self.0).unwrap_or(VarInt::MAX).into()
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<quinn_proto::StreamId> for StreamId {
    fn from(id: quinn_proto::StreamId) -> Self {
        StreamId(VarInt::from(id).into_inner())
    }
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake ended: [`Connection::server_name`](crate::Connection::server_name) and the like are known, and the client's address is
    /// validated.
    Connected,
    /// The client opened a stream. Streams of a direction are opened in the order of their numbers.
    Opened(StreamId),
    /// A stream has bytes, or ended, or was reset: read it.
    Readable(StreamId),
    /// A stream that took no more bytes may take some.
    Writable(StreamId),
    /// The client acknowledged all bytes of a stream that was finished.
    Finished(StreamId),
    /// STOP_SENDING: the client reads no more of a stream. It should be reset.
    Stopped {
        /// The stream.
        stream: StreamId,
        /// The application's code.
        code: u64,
    },
    /// The client may be sent a new stream of the server, where [`Connection::open_uni`](crate::Connection::open_uni) had none.
    StreamAvailable,
    /// The connection ended. Its key is used again.
    Closed(Box<CloseReason>),
}

/// Why a connection ended, except by the server's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// The client sent nothing for the idle time.
    TimedOut,
    /// The handshake did not end in its time.
    HandshakeTimedOut,
    /// A stateless reset of the client: it lost its state.
    Reset,
    /// CONNECTION_CLOSE of the client's application.
    ClosedByApplication {
        /// The application's code.
        code: u64,
        /// The reason, from the client.
        reason: Bytes,
    },
    /// CONNECTION_CLOSE of the client's transport.
    ClosedByTransport {
        /// The code (RFC 9000 §20.1).
        code: u64,
        /// The reason, from the client.
        reason: Bytes,
    },
    /// The client broke a rule of QUIC or TLS, for instance by an unacceptable handshake.
    Violation {
        /// The code (RFC 9000 §20.1).
        code: u64,
        /// The reason, for the log.
        why: String,
    },
    /// The transport failed: a bug.
    Failed,
}

impl From<ConnectionError> for CloseReason {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TimedOut => CloseReason::TimedOut,
            ConnectionError::Reset => CloseReason::Reset,
            ConnectionError::ApplicationClosed(close) => {
                CloseReason::ClosedByApplication { code: close.error_code.into_inner(), reason: close.reason }
            }
            ConnectionError::ConnectionClosed(close) => {
                CloseReason::ClosedByTransport { code: close.error_code.into(), reason: close.reason }
            }
            ConnectionError::TransportError(error) => {
                CloseReason::Violation { code: error.code.into(), why: error.to_string() }
            }
            ConnectionError::VersionMismatch | ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => {
                CloseReason::Failed
            }
        }
    }
}
