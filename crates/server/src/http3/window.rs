//! The bytes that a connection may have sent and its client not acknowledged. They are in memory until then.

use std::net::IpAddr;

use crate::exchange::Generation;
use crate::limits::{Part, Reservation};

/// Bytes that every connection may have sent and not acknowledged. GUESS.
pub(super) const MIN_SEND_WINDOW: u64 = 128 << 10;

/// The send window of a connection. Its bytes beyond the first size count against `limits.max_buffered`, as the windows of HTTP/2 do.
pub(super) struct SendWindow {
    /// The client whose connections share a part of the budget. `None`: it has many, or none is known.
    client: Option<IpAddr>,
    /// `None`: the window has its first size.
    reserved: Option<Reservation>,
}

impl SendWindow {
    pub(super) fn new(client: Option<IpAddr>) -> Self {
        SendWindow { client, reserved: None }
    }

    /// The window for a connection whose congestion window is `congestion` bytes: twice as much, as far as there is room.
    pub(super) fn fit(&mut self, congestion: u64, current: &Generation) -> u64 {
        let wanted =
            congestion.saturating_mul(2).min(current.http3.send_window).saturating_sub(MIN_SEND_WINDOW) as usize;
        let has = self.reserved.as_ref().map_or(0, Reservation::bytes);
        if wanted > has {
            let reserved = self.reserved.get_or_insert_with(|| Reservation::new(&current.buffered, self.client));
            if reserved.room(wanted - has, Part::Half, &current.limits).is_ok() {
                reserved.add(wanted - has);
            }
        }
        MIN_SEND_WINDOW + self.reserved.as_ref().map_or(0, Reservation::bytes) as u64
    }

    /// The client has acknowledged everything: gives the bytes back. Returns whether there were any.
    pub(super) fn shrink(&mut self) -> bool {
        self.reserved.take().is_some()
    }
}
