//! The content of a request that is forwarded: a stream is read only as fast as the upstream takes it, so that QUIC's windows hold the client.

use std::task::Context;
use std::time::Instant;

use sealion_h3::{Connection, HeaderBlock, StreamId};
use sealion_http::Status;

use crate::exchange::Upload;

/// Bytes that wait for the upstream, beyond which the stream is not read.
const MAX_WAITING: u64 = 64 << 10;

/// The content of a request, by the reading of its stream.
pub(super) struct Streamed {
    pub(super) stream: StreamId,
    pub(super) upload: Upload,
    /// The stream has more to read.
    pub(super) is_paused: bool,
}

impl Streamed {
    pub(super) fn new(stream: StreamId, upload: Upload) -> Self {
        Streamed { stream, upload, is_paused: false }
    }

    /// Whether the stream is not to be read now.
    pub(super) fn is_full(&self) -> bool {
        self.upload.waiting() >= MAX_WAITING
    }

    /// Since when the upstream waits for the client, if it does.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        self.upload.owed_since().filter(|_| !self.is_paused)
    }

    /// Notes how much the upstream has taken. Appends 100 to `out` when content is wanted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, protocol: &mut Connection, out: &mut Vec<u8>) {
        if self.upload.poll(cx) {
            let block = HeaderBlock::response(Status::CONTINUE.code());
            // A stream that was reset needs none.
            let _ = protocol.informational(self.stream, &[block.as_bytes()], out);
        }
    }
}
