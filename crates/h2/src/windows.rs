//! Flow-control windows (RFC 9113 §5.2 and §6.9).

use serde::{Deserialize, Serialize};

/// The number of bytes that the peer lets us send. A change of its settings can make it negative (RFC 9113 §6.9.2).
///
/// A window that was used up counts as closed until it has opened by a worthwhile amount. Otherwise a client that opens
/// it byte by byte would get a frame for each byte. An open window is used to the end, because some clients open it
/// again only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendWindow {
    bytes: i32,
    used_up: bool,
}

/// A window that holds content of a stream back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The stream's own, whatever the connection's is.
    Stream,
    /// The connection's alone: other streams used it up.
    Connection,
}

/// Bytes of content in the frames that were made, for a driver that waits for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Of the stream.
    pub stream: u64,
    /// Of all streams of the connection.
    pub connection: u64,
}

impl Progress {
    /// The bytes that count where `window` holds content back. Streams take turns: one that waits for the connection's window may send nothing while others
    /// use it.
    pub fn by(self, window: Window) -> u64 {
        match window {
            Window::Stream => self.stream,
            Window::Connection => self.connection,
        }
    }
}

/// A window above 2^31 − 1 (RFC 9113 §6.9.1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl SendWindow {
    pub(crate) fn new(initial: u32) -> Self {
        SendWindow { bytes: initial.min(MAX_WINDOW) as i32, used_up: initial == 0 }
    }

    /// The part of `ready` bytes that may be sent now. A closed window counts as open if it has opened by `worthwhile`
    /// bytes or by all that are ready.
    pub(crate) fn available(self, ready: u32, worthwhile: u32) -> u32 {
        let bytes = self.bytes.max(0) as u32;
        if self.used_up && bytes < worthwhile.min(ready) { 0 } else { bytes.min(ready) }
    }

    /// The bytes that may be sent, however few. Negative if SETTINGS made the window smaller (RFC 9113 §6.9.2).
    pub(crate) fn bytes(self) -> i64 {
        self.bytes.into()
    }

    /// WINDOW_UPDATE.
    pub(crate) fn grow(&mut self, increment: u32) -> Result<(), Overflow> {
        self.shift(i64::from(increment))
    }

    /// A change of SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) fn shift(&mut self, difference: i64) -> Result<(), Overflow> {
        let bytes = i64::from(self.bytes) + difference;
        if bytes > i64::from(MAX_WINDOW) {
            return Err(Overflow);
        }
        // The window is at least the initial window minus the bytes sent. Both are below 2^31.
        self.bytes = i32::try_from(bytes).unwrap_or(i32::MIN);
        self.used_up |= bytes <= 0;
        Ok(())
    }

    /// Takes `bytes` to send, at most as many as are [available](Self::available).
    pub(crate) fn take(&mut self, bytes: u32) {
        self.bytes -= bytes as i32;
        self.used_up = self.bytes <= 0;
    }

    /// Gives back `bytes` that were taken but not sent.
    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add_unsigned(bytes);
    }
}

/// The number of bytes that we let the peer send. It is renewed as content is consumed, up to a target that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiveWindow {
    /// Bytes that the peer may still send.
    open: u32,
    /// Bytes that were received but not consumed.
    held: u32,
    /// Whether any bytes were consumed.
    is_consumed: bool,
}

/// The windows of a connection for content of requests, in bytes that are open or held, for a driver that has memory for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedWindow {
    /// As much as the network carries in two round trips, beside what is held.
    pub measured: u32,
    /// As much as at first, beside what is held.
    pub least: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(initial: u32) -> Self {
        ReceiveWindow { open: initial, held: 0, is_consumed: false }
    }

    /// DATA of `bytes`, including padding, arrived. `false`: it exceeds the window.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u32) -> bool {
        match self.open.checked_sub(bytes) {
            Some(open) => {
                self.open = open;
                self.held += bytes;
                true
            }
            None => false,
        }
    }

    /// `bytes` were consumed or discarded. Returns the number of them that were held.
    pub(crate) fn consume(&mut self, bytes: u32) -> u32 {
        let consumed = bytes.min(self.held);
        self.held -= consumed;
        self.is_consumed |= consumed > 0;
        consumed
    }

    /// Bytes that the peer may still send.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Whether any content was consumed.
    pub(crate) fn is_consumed(&self) -> bool {
        self.is_consumed
    }

    /// The increment to announce, so that window and held bytes together reach `target`. `None` until it is worth a
    /// frame: half of the target.
    pub(crate) fn renew(&mut self, target: u32) -> Option<u32> {
        let increment = target.saturating_sub(self.open.saturating_add(self.held));
        if increment < target.div_ceil(2) {
            return None;
        }
        self.open += increment;
        Some(increment)
    }

    /// The increment to announce, so that the peer may send `goal` bytes, whatever is held. `None` until it is `worthwhile` and half of the goal.
    pub(crate) fn open_to(&mut self, goal: u32, worthwhile: u32) -> Option<u32> {
        let increment = goal.saturating_sub(self.open);
        if increment == 0 || increment < goal.div_ceil(2).max(worthwhile) {
            return None;
        }
        self.open += increment;
        Some(increment)
    }
}

/// Measures the bandwidth-delay product of an upload: the bytes that arrive between a PING and its acknowledgement are
/// the product. No clock is needed.
///
/// The idea comes from gRPC's estimator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BandwidthDelay {
    /// Bytes received since the PING. `None` between measurements.
    since_ping: Option<u32>,
}

impl BandwidthDelay {
    /// Content arrived. `true`: a measurement begins, so send a PING.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u32) -> bool {
        match &mut self.since_ping {
            Some(since) => {
                *since = since.saturating_add(bytes);
                false
            }
            None => {
                self.since_ping = Some(bytes);
                true
            }
        }
    }

    /// The PING was acknowledged. Returns a better target than `target` if a round trip carried more than half of it.
    pub(crate) fn measured(&mut self, target: u32, largest: u32) -> Option<u32> {
        let carried = self.since_ping.take()?;
        (carried > target / 2).then(|| target.saturating_mul(2).max(carried.saturating_mul(2)).min(largest))
    }
}

/// The maximum window, and the maximum increment (RFC 9113 §6.9.1).
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_is_bounded_above_and_can_be_negative() {
        let available = |window: SendWindow| window.available(u32::MAX, 1);
        let mut window = SendWindow::new(100);
        window.take(60);
        window.shift(-100).unwrap();
        assert_eq!((window.bytes, available(window)), (-60, 0));
        window.grow(61).unwrap();
        assert_eq!(available(window), 1);
        window.grow(MAX_WINDOW - 1).unwrap();
        assert_eq!(window.grow(1), Err(Overflow));
        assert_eq!(available(window), MAX_WINDOW);
    }

    #[test]
    fn a_window_that_was_used_up_opens_by_a_worthwhile_amount() {
        let mut window = SendWindow::new(100);
        assert_eq!(window.available(500, 1000), 100, "what is left of an open window is used");
        window.take(60);
        assert_eq!(window.available(500, 1000), 40);
        window.take(40);
        window.grow(49).unwrap();
        assert_eq!((window.available(500, 50), window.available(49, 50), window.available(50, 50)), (0, 49, 0));
        window.grow(1).unwrap();
        assert_eq!(window.available(500, 50), 50);
        window.take(10);
        assert_eq!(window.available(500, 50), 40, "it is open again");
        window.shift(-40).unwrap();
        window.grow(1).unwrap();
        assert_eq!(window.available(500, 50), 0);
    }

    #[test]
    fn a_receive_window_is_renewed_when_half_of_it_is_consumed() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100) && !window.receive(1));
        assert_eq!(window.renew(100), None, "nothing is consumed");
        assert_eq!((window.consume(49), window.renew(100)), (49, None));
        assert_eq!((window.consume(1), window.renew(100)), (1, Some(50)));
        assert_eq!((window.open, window.held), (50, 50));
        assert_eq!((window.consume(99), window.renew(400)), (50, Some(350)), "a larger target is reached at once");
    }

    #[test]
    fn a_window_doubles_while_a_round_trip_carries_more_than_half_of_it() {
        let mut measure = BandwidthDelay::default();
        assert!(measure.receive(100) && !measure.receive(401));
        assert_eq!(measure.measured(1000, 4000), Some(2000));
        assert!(measure.receive(1000));
        assert_eq!(measure.measured(2000, 4000), None, "half is no reason");
        assert_eq!(measure.measured(2000, 4000), None, "no measurement");
        assert!(measure.receive(3000));
        assert_eq!(measure.measured(2000, 4000), Some(4000));
    }
}
