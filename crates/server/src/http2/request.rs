//! The stream of a request, as the steps that all protocols share see it.

use std::sync::Arc;

use sealion_h2::{Connection, HeaderBlock, StreamId};
use sealion_tls::TlsStream;
use tokio::sync::oneshot;

use crate::exchange::{self, Wait};
use crate::upstream::{HeadRoom, Inbound, Interim, InterimReceiver, Reading, RequestContent};

/// The stream of a request that is answered now.
pub(super) struct Stream<'s> {
    pub(super) id: StreamId,
    pub(super) connection: &'s TlsStream,
    pub(super) protocol: &'s mut Connection,
    /// Gets the header blocks of interim responses.
    pub(super) heads: &'s mut Vec<u8>,
    /// The content, if it is passed on.
    pub(super) content: Option<RequestContent>,
    pub(super) is_connect: bool,
    /// The connection has many responses under way: servers are read sparingly.
    pub(super) is_busy: bool,
    /// Whether a head is read from a server, where little is read.
    pub(super) head_room: &'s Arc<HeadRoom>,
    pub(super) wait: Wait,
}

impl exchange::Stream for Stream<'_> {
    fn connection(&self) -> &impl exchange::Connection {
        self.connection
    }

    fn has_content(&self) -> bool {
        self.content.is_some()
    }

    fn is_connect(&self) -> bool {
        self.is_connect
    }

    fn takes_interim(&self) -> bool {
        true
    }

    fn interim(&mut self, interim: &Interim) {
        send_interim(self.id, interim, self.protocol, self.heads);
    }

    fn attach(&mut self, inbound: Inbound, forwards: bool, interims: Option<InterimReceiver>) -> Inbound {
        let (cancel, gone) = oneshot::channel();
        self.wait = Wait { cancel: Some(cancel), forwards, interims };
        let reading = if self.is_busy || !self.protocol.has_room(self.id) { Reading::Sparing } else { Reading::Ahead };
        Inbound {
            content: self.content.take(),
            upgrade: self.is_connect,
            is_connect: self.is_connect,
            gone: Some(gone),
            heads: (reading == Reading::Sparing).then(|| Arc::clone(self.head_room)),
            reading,
            ..inbound
        }
    }
}

/// Writes an interim response into `heads`.
pub(super) fn send_interim(id: StreamId, interim: &Interim, protocol: &mut Connection, heads: &mut Vec<u8>) {
    let mut block = HeaderBlock::response(interim.status.code());
    interim.fields.iter().for_each(|(name, value)| block.field(&name.to_ascii_lowercase(), value));
    // A stream that was reset needs none.
    let _ = protocol.informational(id, &[block.as_bytes()], heads);
}
