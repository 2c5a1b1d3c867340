//! The content of a request that is forwarded: it passes as fast as the upstream takes it, by the stream's window.

use std::net::IpAddr;
use std::task::Context;
use std::time::Instant;

use bytes::Bytes;
use sealion_h2::{Connection, HeaderBlock, StreamId, WantedWindow};
use sealion_http::{FieldSection, Status};

use crate::exchange::Generations;
use crate::limits::{Part, Reservation};
use crate::upstream::{ContentWriter, RequestContent, pipe};

/// The content of a request, whose response may have begun.
pub(super) struct Streamed {
    pub(super) stream: StreamId,
    /// `None`: nothing more is passed on.
    writer: Option<ContentWriter>,
    /// Octets that came, and those for which the client has its window back.
    came: u64,
    granted: u64,
    /// The client waits for 100 (RFC 9110 §10.1.1).
    expects_continue: bool,
    /// It is what the client sends through a tunnel, which may be silent.
    is_tunnel: bool,
    /// Since when the upstream waits for the client.
    owed_since: Option<Instant>,
    /// Our window of the connection is closed: the client can send nothing.
    is_held: bool,
}

impl Streamed {
    /// `length`: as announced.
    pub(super) fn new(stream: StreamId, length: Option<u64>, expects_continue: bool) -> (Self, RequestContent) {
        let (writer, content) = pipe(length);
        let streamed = Streamed {
            stream,
            writer: Some(writer),
            came: 0,
            granted: 0,
            expects_continue,
            is_tunnel: false,
            owed_since: None,
            is_held: false,
        };
        (streamed, content)
    }

    /// What the client sends through a tunnel. `end`: it sends nothing.
    pub(super) fn of_tunnel(stream: StreamId, end: bool) -> (Self, RequestContent) {
        let (streamed, content) = Self::new(stream, None, false);
        let mut streamed = Streamed { is_tunnel: true, ..streamed };
        if end {
            streamed.end(FieldSection::default());
        }
        (streamed, content)
    }

    /// Passes content on.
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
        // The window is given back when the upstream has taken the rest.
        if let Some(writer) = &mut self.writer {
            writer.end_with(trailers);
        }
    }

    /// Since when the upstream waits for the client, if it does.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        self.owed_since.filter(|_| self.writer.is_some())
    }

    /// The client cannot send now, or again. Its time begins when it can, and the upstream waits for it.
    pub(super) fn hold(&mut self, is_held: bool) {
        if is_held {
            self.owed_since = None;
        }
        if std::mem::replace(&mut self.is_held, is_held) != is_held
            && let Some(writer) = &mut self.writer
        {
            writer.hold(is_held);
        }
    }

    /// The client did not send the next piece in time.
    pub(super) fn time_out(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.fail(Status::REQUEST_TIMEOUT);
        }
    }

    /// Gives the client room for as much as the upstream has taken, and sends 100 when content is wanted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, protocol: &mut Connection, heads: &mut Vec<u8>) {
        let taken = match &mut self.writer {
            Some(writer) => {
                let taken = writer.poll_taken(cx);
                match taken.is_owed && !self.is_tunnel {
                    true => drop(self.owed_since.get_or_insert_with(Instant::now)),
                    false => self.owed_since = None,
                }
                if taken.is_wanted && std::mem::take(&mut self.expects_continue) {
                    let mut block = HeaderBlock::default();
                    block.status(Status::CONTINUE.code());
                    // A stream that was reset needs none.
                    let _ = protocol.informational(self.stream, &[block.as_bytes()], heads);
                }
                taken.octets.min(self.came)
            }
            None => self.came,
        };
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
