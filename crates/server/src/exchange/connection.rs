//! The connection below a driver, as the steps that all protocols share see it.

use std::net::SocketAddr;
use std::time::Duration;

use sealion_tls::record::Aead;
use sealion_tls::{HandshakeInfo, MoveError, SealedBy};

use crate::limits::PacingRate;

/// A connection of any protocol and transport.
pub(crate) trait Connection {
    /// The result of its handshake. `None`: it has no TLS.
    fn tls(&self) -> Option<&HandshakeInfo>;

    /// The cipher that seals the connection's records. `None`: it has no TLS.
    fn aead(&self) -> Option<Aead>;

    /// The path that seals the next response.
    fn path(&self) -> SealedBy;

    /// The address of this end. `None`: a Unix socket has none.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Whether the kernel's TLS can take it over.
    fn is_tcp(&self) -> bool;

    /// Spaces the bytes that are sent from now on.
    fn pace(&self, rate: PacingRate);

    /// Whether the client has not acknowledged all that was sent.
    fn has_undelivered(&self) -> bool;

    /// Bytes of responses that were sent.
    fn sent(&self) -> u64;

    /// Frees what the next request can make again.
    fn rest(&mut self) {}

    /// Hands the sending side over to the kernel, before `upcoming` bytes of a response. Returns how long that took.
    async fn offload(&mut self, upcoming: u64) -> Result<Duration, MoveError>;
}
