//! The seam below the drivers of HTTP/1.1 and HTTP/2: a TLS connection over TCP or a Unix socket, or one without TLS.

use std::net::SocketAddr;
use std::time::Duration;

use sealion_ktls::pacing;
use sealion_tls::record::Aead;
use sealion_tls::{HandshakeInfo, MoveError, SealedBy, TlsStream};
use socket2::SockRef;

use crate::exchange::Connection;
use crate::limits::PacingRate;

impl Connection for TlsStream {
    fn tls(&self) -> Option<&HandshakeInfo> {
        self.info()
    }

    fn aead(&self) -> Option<Aead> {
        self.aead()
    }

    fn rest(&mut self) {
        self.rest();
    }

    fn path(&self) -> SealedBy {
        self.path()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        SockRef::from(self.socket()).local_addr().ok()?.as_socket()
    }

    fn is_tcp(&self) -> bool {
        self.socket().is_tcp()
    }

    fn pace(&self, rate: PacingRate) {
        if let Err(error) = pacing::set_max_rate(self.socket(), rate.bytes_per_second()) {
            tracing::warn!("cannot limit the bandwidth of a connection: {error}");
        }
    }

    fn has_undelivered(&self) -> bool {
        sealion_ktls::queued(self.socket()).is_ok_and(|bytes| bytes > 0)
    }

    fn sent(&self) -> u64 {
        self.payload_sent()
    }

    async fn offload(&mut self, upcoming: u64) -> Result<Duration, MoveError> {
        self.move_to_kernel(upcoming).await
    }
}
