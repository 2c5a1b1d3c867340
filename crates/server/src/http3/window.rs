//! The bytes that a connection may have sent and its client not acknowledged. They are in memory until then.

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

impl SendWindow {
    pub(super) fn new(client: Option<IpAddr>) -> Self {
        SendWindow { client, reserved: None }
    }

    /// The window for a connection whose congestion window is `congestion` bytes: twice as much, up to `max` and as far as there is room.
    pub(super) fn fit(
        &mut self,
        congestion: u64,
        max: u64,
        buffered: &Arc<BufferBudget>,
        limits: &LimitsConfig,
    ) -> u64 {
        let wanted = congestion.saturating_mul(2).min(max).saturating_sub(MIN_SEND_WINDOW) as usize;
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

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(fit(&mut first, MIB), 2 * MIB);
        assert_eq!(fit(&mut first, 100 * MIB), 4 * MIB, "its own bound");
        assert_eq!(fit(&mut first, MIB), 4 * MIB, "what was sent is in memory still");
        assert_eq!(fit(&mut second, MIB), MIN_SEND_WINDOW, "no room");
        assert!(first.shrink() && !first.shrink());
        assert_eq!(fit(&mut second, MIB), 2 * MIB);
        drop(second);
        assert_eq!(fit(&mut first, 2 * MIB), 4 * MIB);
    }

    #[test]
    fn a_client_has_a_share() {
        let limits = LimitsConfig { max_buffered: Size(64 * MIB), ..LimitsConfig::default() };
        let budget = Arc::new(BufferBudget::default());
        let mut of_client = [(); 4].map(|()| SendWindow::new(Some([192, 0, 2, 1].into())));
        let got = of_client.each_mut().map(|window| window.fit(2 * MIB, 4 * MIB, &budget, &limits));
        // Half of a quarter.
        assert_eq!(got.iter().filter(|window| **window == 4 * MIB).count(), 2, "{got:?}");
        let mut other = SendWindow::new(Some([192, 0, 2, 2].into()));
        assert_eq!(other.fit(2 * MIB, 4 * MIB, &budget, &limits), 4 * MIB);
    }
}
