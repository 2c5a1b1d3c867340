//! Bytes of a connection in memory: bytes that were sent and not acknowledged, and bytes that came and were not passed on.

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::{BufferBudget, LimitsConfig, Part, Reservation};

/// Bytes that every connection may have sent and not acknowledged. GUESS.
pub(super) const MIN_SEND_WINDOW: u64 = 128 << 10;

/// The send window of a connection. Its bytes beyond the first size count against `limits.max_buffered`, as the windows of HTTP/2 do.
pub(super) struct SendWindow {
    /// The client whose connections share a part of the budget. `None`: it has many, or none is known.
    client: Option<IpAddr>,
    /// `None`: the window has its first size.
    reserved: Option<Reservation>,
}

/// Bytes that wait to be sent beside the bytes on their way, at most: more leave the processor's cache before they are sealed.
///
/// MEASURED: 1 MB to 32 connections over loopback takes 1.16 of nginx's processor time, and 1.22 with as many bytes as the congestion window
/// (bench/http3, medians of five rounds, 2026-11-27).
const AHEAD: u64 = 128 << 10;

impl SendWindow {
    pub(super) fn new(client: Option<IpAddr>) -> Self {
        SendWindow { client, reserved: None }
    }

    /// The window for a connection whose congestion window is `congestion` bytes: twice as much, at most [`AHEAD`] more, up to `max` and as far as there is
    /// room.
    pub(super) fn fit(
        &mut self,
        congestion: u64,
        max: u64,
        buffered: &Arc<BufferBudget>,
        limits: &LimitsConfig,
    ) -> u64 {
        let wanted = congestion + congestion.min(AHEAD);
        let wanted = wanted.min(max).saturating_sub(MIN_SEND_WINDOW) as usize;
        let has = self.reserved.as_ref().map_or(0, Reservation::bytes);
        if wanted > has {
            let reserved = self.reserved.get_or_insert_with(|| Reservation::new(buffered, self.client));
            if reserved.room(wanted - has, Part::Half, limits).is_ok() {
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

/// Bytes that every client may send before they are read: as much as in HTTP/2 (RFC 9113 §6.9.2).
pub(super) const MIN_RECEIVE_WINDOW: u64 = 64 << 10;

/// The receive window of a connection. It opens for content that servers take, if there is room in `limits.max_buffered`. A client may use a granted window
/// at any time, so that its bytes count until they came.
pub(super) struct ReceiveWindow {
    client: Option<IpAddr>,
    /// Bytes of one stream that may have come and not been read.
    of_stream: u64,
    /// The bytes beyond the first size, and the bytes that are not granted again when they come. `None`: nothing is counted.
    reserved: Option<Reservation>,
    /// Bytes beyond the first size.
    open: u64,
}

impl ReceiveWindow {
    pub(super) fn new(client: Option<IpAddr>, of_stream: u64) -> Self {
        ReceiveWindow { client, of_stream, reserved: None, open: 0 }
    }

    /// Whether so many streams that are not read may hold all of the window, so that the client can send nothing on the others.
    pub(super) fn may_be_held(&self, streams: usize) -> bool {
        (streams as u64).saturating_mul(self.of_stream) >= MIN_RECEIVE_WINDOW + self.open
    }

    /// The window for a client that sends a large content, up to `max` and as far as there is room. `None`: it stays.
    pub(super) fn grow(&mut self, max: u64, buffered: &Arc<BufferBudget>, limits: &LimitsConfig) -> Option<u64> {
        let wanted = max.saturating_sub(MIN_RECEIVE_WINDOW);
        if self.open > 0 || wanted == 0 {
            return None;
        }
        let reserved = self.reserved.get_or_insert_with(|| Reservation::new(buffered, self.client));
        let has_room = |more: &u64| reserved.room(*more as usize, Part::Half, limits).is_ok();
        let Some(more) = [wanted, wanted / 4].into_iter().find(has_room) else {
            self.forget();
            return None;
        };
        reserved.add(more as usize);
        self.open = more;
        Some(MIN_RECEIVE_WINDOW + more)
    }

    /// No content comes now: the window gets its first size as the client uses the rest of it. `None`: it has that.
    pub(super) fn shrink(&mut self) -> Option<u64> {
        (std::mem::take(&mut self.open) > 0).then_some(MIN_RECEIVE_WINDOW)
    }

    /// The client sent bytes, which were read.
    pub(super) fn read(&mut self, bytes: u64) {
        let Some(reserved) = &mut self.reserved else { return };
        let owed = reserved.bytes() as u64 - self.open;
        reserved.remove(owed.min(bytes) as usize);
        self.forget();
    }

    fn forget(&mut self) {
        self.reserved.take_if(|reserved| reserved.bytes() == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_client_may_send_count_until_they_came() {
        let limits = LimitsConfig { max_buffered: Size(4 * MIB), ..LimitsConfig::default() };
        let budget = Arc::new(BufferBudget::default());
        let new = || ReceiveWindow::new(None, 256 << 10);
        let (mut first, mut second) = (new(), new());
        let grow = |window: &mut ReceiveWindow| window.grow(2 * MIB, &budget, &limits);
        assert_eq!((first.shrink(), grow(&mut first), grow(&mut first)), (None, Some(2 * MIB), None));
        assert_eq!(grow(&mut second), None, "no room");
        first.read(10 * MIB);
        assert_eq!(grow(&mut second), None, "what came is given anew");
        assert_eq!((first.shrink(), first.shrink()), (Some(MIN_RECEIVE_WINDOW), None));
        assert_eq!(grow(&mut second), None, "the client may send them still");
        first.read(2 * MIB - MIN_RECEIVE_WINDOW);
        assert_eq!(grow(&mut second), Some(2 * MIB));
        drop(second);
        assert_eq!(grow(&mut first), Some(2 * MIB));
        assert_eq!(new().grow(MIN_RECEIVE_WINDOW, &budget, &limits), None);
    }

    #[test]
    fn streams_that_are_not_read_hold_the_window_together() {
        let (limits, budget) = (LimitsConfig::default(), Arc::new(BufferBudget::default()));
        let mut window = ReceiveWindow::new(None, 256 << 10);
        assert_eq!([0, 1].map(|streams| window.may_be_held(streams)), [false, true], "of its first size");
        assert_eq!(window.grow(MIB, &budget, &limits), Some(MIB));
        assert_eq!([1, 3, 4].map(|streams| window.may_be_held(streams)), [false, false, true]);
        window.shrink();
        assert!(window.may_be_held(1));
    }

    use crate::values::Size;

    const MIB: u64 = 1 << 20;

    #[test]
    fn windows_of_all_connections_have_a_bound() {
        // Half of it is for windows.
        let limits = LimitsConfig { max_buffered: Size(8 * MIB), ..LimitsConfig::default() };
        let budget = Arc::new(BufferBudget::default());
        let windows = || SendWindow::new(None);
        let (mut first, mut second) = (windows(), windows());
        let fit = |window: &mut SendWindow, congestion| window.fit(congestion, 4 * MIB, &budget, &limits);
        assert_eq!(fit(&mut first, 10_000), MIN_SEND_WINDOW);
        assert_eq!(fit(&mut first, AHEAD), 2 * AHEAD);
        assert_eq!(fit(&mut first, MIB), MIB + AHEAD);
        assert_eq!(fit(&mut first, 100 * MIB), 4 * MIB, "its own bound");
        assert_eq!(fit(&mut first, MIB), 4 * MIB, "what was sent is in memory still");
        assert_eq!(fit(&mut second, MIB), MIN_SEND_WINDOW, "no room");
        assert!(first.shrink() && !first.shrink());
        assert_eq!(fit(&mut second, MIB), MIB + AHEAD);
        drop(second);
        assert_eq!(fit(&mut first, 4 * MIB), 4 * MIB);
    }

    #[test]
    fn a_client_has_a_share() {
        let limits = LimitsConfig { max_buffered: Size(64 * MIB), ..LimitsConfig::default() };
        let budget = Arc::new(BufferBudget::default());
        let mut of_client = [(); 4].map(|()| SendWindow::new(Some([192, 0, 2, 1].into())));
        let got = of_client.each_mut().map(|window| window.fit(4 * MIB, 4 * MIB, &budget, &limits));
        // Half of a quarter.
        assert_eq!(got.iter().filter(|window| **window == 4 * MIB).count(), 2, "{got:?}");
        let mut other = SendWindow::new(Some([192, 0, 2, 2].into()));
        assert_eq!(other.fit(4 * MIB, 4 * MIB, &budget, &limits), 4 * MIB);
    }
}
