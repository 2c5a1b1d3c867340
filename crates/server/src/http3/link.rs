//! The two seams of [`crate::exchange`]: a connection of QUIC, and the stream of a request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealion_h3::{Connection, HeaderBlock, StreamId};
use sealion_tls::record::Aead;
use sealion_tls::{HandshakeInfo, MoveError, SealedBy};

use crate::exchange::{self, Awaited, UpstreamSide};
use crate::limits::PacingRate;
use crate::upstream::{Inbound, Interim, InterimReceiver, Reading};

/// A connection, as the steps that all protocols share see it.
pub(super) struct Link {
    pub(super) info: HandshakeInfo,
    pub(super) local: Option<SocketAddr>,
    /// Bytes that streams took.
    pub(super) sent: u64,
    /// Streams whose last bytes the client has not acknowledged.
    pub(super) unacknowledged: Vec<StreamId>,
    /// Bytes a second; 0: any.
    rate: AtomicU64,
}

impl Link {
    pub(super) fn new(info: HandshakeInfo, local: Option<SocketAddr>) -> Self {
        Link { info, local, sent: 0, unacknowledged: Vec::new(), rate: AtomicU64::new(0) }
    }

    /// The time that so many bytes take at the rate of the connection. `None`: it has none.
    pub(super) fn time_of(&self, bytes: u64) -> Option<Duration> {
        let rate = self.rate.load(Ordering::Relaxed);
        (rate > 0).then(|| Duration::from_secs_f64(bytes as f64 / rate as f64))
    }
}

impl exchange::Connection for Link {
    fn tls(&self) -> Option<&HandshakeInfo> {
        Some(&self.info)
    }

    fn aead(&self) -> Option<Aead> {
        None
    }

    fn path(&self) -> SealedBy {
        SealedBy::User
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.local
    }

    fn is_tcp(&self) -> bool {
        false
    }

    fn pace(&self, rate: PacingRate) {
        self.rate.store(rate.bytes_per_second(), Ordering::Relaxed);
    }

    fn has_undelivered(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    async fn offload(&mut self, _upcoming: u64) -> Result<Duration, MoveError> {
        Err(MoveError::NoTls)
    }
}

/// The stream of a request that is answered now.
pub(super) struct Stream<'s> {
    pub(super) id: StreamId,
    pub(super) link: &'s Link,
    pub(super) protocol: &'s mut Connection,
    /// Bytes that go to the stream before the response.
    pub(super) out: Vec<u8>,
    /// The connection has many responses under way: servers are read sparingly.
    pub(super) is_busy: bool,
    pub(super) upstream: UpstreamSide<'s>,
}

impl exchange::Stream for Stream<'_> {
    fn connection(&self) -> &impl exchange::Connection {
        self.link
    }

    fn has_content(&self) -> bool {
        self.upstream.content.is_some()
    }

    fn is_connect(&self) -> bool {
        self.upstream.is_connect
    }

    fn takes_interim(&self) -> bool {
        true
    }

    fn interim(&mut self, interim: &Interim) {
        write_interim(self.id, interim, self.protocol, &mut self.out);
    }

    fn attach(&mut self, inbound: Inbound, awaited: Awaited, interims: Option<InterimReceiver>) -> Inbound {
        let reading = if self.is_busy { Reading::Sparing } else { Reading::Ahead };
        self.upstream.attach(inbound, awaited, interims, reading)
    }
}

/// Appends an interim response to `out`.
pub(super) fn write_interim(id: StreamId, interim: &Interim, protocol: &mut Connection, out: &mut Vec<u8>) {
    let mut block = HeaderBlock::response(interim.status.code());
    interim.fields.iter().for_each(|(name, value)| block.field(&name.to_ascii_lowercase(), value));
    // A stream that was reset needs none.
    let _ = protocol.informational(id, &[block.as_bytes()], out);
}
