//! The content of a request that is forwarded: a stream is read only as fast as the upstream takes it, so that QUIC's windows hold the client.

use std::task::Context;
use std::time::Instant;

use bytes::Bytes;
use sealion_h3::{Connection, HeaderBlock, StreamId};
use sealion_http::{FieldSection, Status};

use crate::upstream::{ContentWriter, RequestContent, pipe};

/// Bytes that wait for the upstream, beyond which the stream is not read.
const MAX_WAITING: u64 = 64 << 10;

/// The content of a request, whose response may have begun.
pub(super) struct Upload {
    pub(super) stream: StreamId,
    /// `None`: nothing more is passed on.
    writer: Option<ContentWriter>,
    came: u64,
    taken: u64,
    /// The client waits for 100 (RFC 9110 §10.1.1).
    expects_continue: bool,
    /// It is what the client sends through a tunnel, which may be silent.
    is_tunnel: bool,
    /// Since when the upstream waits for the client.
    owed_since: Option<Instant>,
    /// The stream has more to read.
    pub(super) is_paused: bool,
}

impl Upload {
    /// `length`: as announced.
    pub(super) fn new(stream: StreamId, length: Option<u64>, expects_continue: bool) -> (Self, RequestContent) {
        let (writer, content) = pipe(length);
        let upload = Upload {
            stream,
            writer: Some(writer),
            came: 0,
            taken: 0,
            expects_continue,
            is_tunnel: false,
            owed_since: None,
            is_paused: false,
        };
        (upload, content)
    }

    /// What the client sends through a tunnel. `end`: it sends nothing.
    pub(super) fn of_tunnel(stream: StreamId, end: bool) -> (Self, RequestContent) {
        let (upload, content) = Self::new(stream, None, false);
        let mut upload = Upload { is_tunnel: true, ..upload };
        if end {
            upload.end(FieldSection::default());
        }
        (upload, content)
    }

    /// Whether the stream is not to be read now.
    pub(super) fn is_full(&self) -> bool {
        self.writer.is_some() && self.came - self.taken.min(self.came) >= MAX_WAITING
    }

    pub(super) fn receive(&mut self, data: &[u8], end: bool) {
        self.came += data.len() as u64;
        self.owed_since = None;
        if let Some(writer) = &mut self.writer {
            writer.write(Bytes::copy_from_slice(data));
        }
        if end {
            self.end(FieldSection::default());
        }
    }

    /// The content has ended.
    pub(super) fn end(&mut self, trailers: FieldSection<'_>) {
        self.owed_since = None;
        if let Some(writer) = &mut self.writer {
            writer.end_with(trailers);
        }
    }

    pub(super) fn owed_since(&self) -> Option<Instant> {
        self.owed_since.filter(|_| self.writer.is_some() && !self.is_paused)
    }

    /// The client did not send the next piece in time.
    pub(super) fn time_out(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.fail(Status::REQUEST_TIMEOUT);
        }
    }

    /// Notes how much the upstream has taken. Appends 100 to `out` when content is wanted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, protocol: &mut Connection, out: &mut Vec<u8>) {
        let Some(writer) = &mut self.writer else { return };
        let taken = writer.poll_taken(cx);
        self.taken = taken.octets;
        match taken.is_owed && !self.is_tunnel {
            true => drop(self.owed_since.get_or_insert_with(Instant::now)),
            false => self.owed_since = None,
        }
        if taken.is_wanted && std::mem::take(&mut self.expects_continue) {
            let block = HeaderBlock::response(Status::CONTINUE.code());
            // A stream that was reset needs none.
            let _ = protocol.informational(self.stream, &[block.as_bytes()], out);
        }
    }
}
