//! The stream of a request, as the steps that all protocols share see it.

use sealion_h2::{Connection, HeaderBlock, StreamId};
use sealion_tls::TlsStream;

use crate::exchange::{self, Awaited, UpstreamSide};
use crate::upstream::{Inbound, Interim, InterimReceiver, Reading};

/// The stream of a request that is answered now.
pub(super) struct Stream<'s> {
    pub(super) id: StreamId,
    pub(super) connection: &'s TlsStream,
    pub(super) protocol: &'s mut Connection,
    /// Gets the header blocks of interim responses.
    pub(super) heads: &'s mut Vec<u8>,
    /// The connection has many responses under way: servers are read sparingly.
    pub(super) is_busy: bool,
    pub(super) upstream: UpstreamSide<'s>,
}

impl exchange::Stream for Stream<'_> {
    fn connection(&self) -> &impl exchange::Connection {
        self.connection
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
        send_interim(self.id, interim, self.protocol, self.heads);
    }

    fn attach(&mut self, inbound: Inbound, awaited: Awaited, interims: Option<InterimReceiver>) -> Inbound {
        let reading = if self.is_busy || !self.protocol.has_room(self.id) { Reading::Sparing } else { Reading::Ahead };
        self.upstream.attach(inbound, awaited, interims, reading)
    }
}

/// Writes an interim response into `heads`.
pub(super) fn send_interim(id: StreamId, interim: &Interim, protocol: &mut Connection, heads: &mut Vec<u8>) {
    let mut block = HeaderBlock::response(interim.status.code());
    interim.fields.iter().for_each(|(name, value)| block.field(&name.to_ascii_lowercase(), value));
    // A stream that was reset needs none.
    let _ = protocol.informational(id, &[block.as_bytes()], heads);
}
