//! The content of a request that is forwarded: it passes as fast as the upstream takes it, by the stream's window.

use std::net::IpAddr;
use std::task::Context;

use sealion_h2::{Connection, HeaderBlock, StreamId, WantedWindow};
use sealion_http::Status;

use crate::exchange::{Generations, Upload};
use crate::limits::{Part, Reservation};
use crate::passing::{ContentUnderWay, Link};

/// The content of a request, by the window of its stream.
pub(super) struct Streamed {
    pub(super) stream: StreamId,
    pub(super) upload: Upload,
    /// Bytes of window that the client has back.
    granted: u64,
}

impl Streamed {
    pub(super) fn new(stream: StreamId, upload: Upload) -> Self {
        Streamed { stream, upload, granted: 0 }
    }

    /// Goes on with the content of a request that another process began, which goes there over `link`.
    pub(super) fn resume(stream: StreamId, content: ContentUnderWay, link: Link) -> Self {
        Self::new(stream, Upload::resume(content, link))
    }

    /// The state that another process needs to go on. `None`: no more of it is passed on. The client gets the room for what has gone to the upstream's process.
    pub(super) fn pack(&mut self, protocol: &mut Connection) -> Option<ContentUnderWay> {
        let content = self.upload.pack();
        let waiting = content.as_ref().map_or(0, |content| content.waiting.len() as u64);
        self.grant(self.upload.came().saturating_sub(waiting), protocol);
        content
    }

    /// Gives the client room for as much as the upstream has taken, and sends 100 when content is wanted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, protocol: &mut Connection, heads: &mut Vec<u8>) {
        if self.upload.poll(cx) {
            let block = HeaderBlock::response(Status::CONTINUE.code());
            // A stream that was reset needs none.
            let _ = protocol.informational(self.stream, &[block.as_bytes()], heads);
        }
        self.grant(self.upload.taken(), protocol);
    }

    fn grant(&mut self, taken: u64, protocol: &mut Connection) {
        if taken > self.granted {
            protocol.consume(self.stream, usize::try_from(taken - self.granted).unwrap_or(usize::MAX));
            self.granted = taken;
        }
    }
}

/// The bytes of a connection's window for contents beyond its first size: contents that wait for servers leave room to others.
pub(super) struct ContentWindow {
    /// The client whose connections share a part of the budget. `None`: it has many, or none is known.
    client: Option<IpAddr>,
    /// `None`: the window had its first size so far.
    reserved: Option<Reservation>,
}

/// Bytes that are worth the work of giving them back.
const SURPLUS: u32 = 64 << 10;

impl ContentWindow {
    pub(super) fn new(client: Option<IpAddr>) -> Self {
        ContentWindow { client, reserved: None }
    }

    /// Whether it has its first size, as far as this process knows.
    pub(super) fn is_first(&self) -> bool {
        self.reserved.is_none()
    }

    /// Counts the bytes that another process permitted.
    pub(super) fn resume(&mut self, protocol: &Connection, generations: &Generations) {
        let extra = protocol.extra_window() as usize;
        if extra > 0 {
            let reserved = Reservation::new(&generations.current().buffered, self.client);
            self.reserved.insert(reserved).add(extra);
        }
    }

    /// Opens the window as the connection wants it, if there is room, and gives back the bytes that it no longer needs.
    pub(super) fn fit(&mut self, protocol: &mut Connection, generations: &Generations) {
        let Some(WantedWindow { measured, least }) = protocol.wanted_window() else { return self.reduce(protocol) };
        let current = generations.current();
        let reserved = self.reserved.get_or_insert_with(|| Reservation::new(&current.buffered, self.client));
        for (window, part) in [(measured, Part::Half), (least, Part::Whole)] {
            let more = window.saturating_sub(protocol.permitted_window()) as usize;
            if more > 0 && reserved.room(more, part, &current.limits).is_ok() {
                reserved.add(more);
                return protocol.permit_window(window);
            }
        }
    }

    /// Gives back the bytes that the connection no longer needs.
    pub(super) fn reduce(&mut self, protocol: &mut Connection) {
        let Some(reserved) = &mut self.reserved else { return };
        reserved.remove(protocol.reduce_window(SURPLUS) as usize);
        if reserved.bytes() == 0 {
            self.reserved = None;
        }
    }
}
