//! Congestion control, whose window has an upper bound.
//!
//! A client that acknowledges packets before it has received them (CVE-2025-4820, CVE-2025-4821) makes any controller open its
//! window; the bound is what such a client gets.
//!
//! On a near path the bound is smaller: no loss ends the growth there, and the bytes beyond what the path carries only queue.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig};

/// A congestion controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// By loss (RFC 9438).
    Cubic,
    /// By bandwidth and delay.
    Bbr,
}

/// Makes controllers whose window is bounded.
pub(crate) struct BoundedFactory {
    pub(crate) congestion: Congestion,
    /// Bytes.
    pub(crate) max_window: u64,
    /// Bytes of packets that were deemed lost, of all connections.
    pub(crate) lost: Arc<AtomicU64>,
}

impl ControllerFactory for BoundedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = match self.congestion {
            Congestion::Cubic => Arc::new(CubicConfig::default()).build(now, current_mtu),
            Congestion::Bbr => {
                let mut bbr = BbrConfig::default();
                // Its own would be 240 kB, whatever the network carries.
                bbr.initial_window(INITIAL_WINDOW);
                Arc::new(bbr).build(now, current_mtu)
            }
        };
        Box::new(Bounded { inner, max_window: self.max_window, lost: Arc::clone(&self.lost) })
    }
}

/// Ten packets of 1,200 bytes (RFC 9002 §7.2).
const INITIAL_WINDOW: u64 = 12_000;

/// The round-trip time below which a path is near: loopback, or a network of a building.
const NEAR: Duration = Duration::from_micros(500);

/// The window of a near path: in a round trip of [`NEAR`], 4 Gbit/s. MEASURED: 32 connections with windows of some megabytes each
/// leave the processor's caches; a response of 16 MB then takes 1.46 times as much processor time, and one of 1 MB 1.21 times
/// (loopback, medians of three interleaved rounds, 2026-11-28).
const NEAR_WINDOW: u64 = 256 << 10;

struct Bounded {
    inner: Box<dyn Controller>,
    max_window: u64,
    lost: Arc<AtomicU64>,
}

impl Controller for Bounded {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        if rtt.min() < NEAR {
            self.max_window = self.max_window.min(NEAR_WINDOW);
        }
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_acked: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.lost.fetch_add(lost_bytes, Ordering::Relaxed);
        self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window().min(self.max_window)
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let lost = Arc::clone(&self.lost);
        Box::new(Bounded { inner: self.inner.clone_box(), max_window: self.max_window, lost })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window().min(self.max_window)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_acknowledgement_opens_the_window_beyond_its_bound() {
        for congestion in [Congestion::Cubic, Congestion::Bbr] {
            let now = Instant::now();
            let lost = Arc::new(AtomicU64::new(0));
            let factory = Arc::new(BoundedFactory { congestion, max_window: 20_000, lost: Arc::clone(&lost) });
            let mut controller = factory.build(now, 1200);
            for number in 0..1000 {
                controller.on_sent(now, 1200, number);
            }
            controller.on_congestion_event(now, now, false, 1200);
            assert_eq!(lost.load(Ordering::Relaxed), 1200);
            assert!(controller.window() <= 20_000, "{congestion:?}: {}", controller.window());
            assert!(controller.initial_window() <= 20_000);
            assert!(controller.clone_box().window() <= 20_000);
            let wide = Arc::new(BoundedFactory { congestion, max_window: 1 << 20, lost: Arc::clone(&lost) });
            assert_eq!(wide.build(now, 1200).window(), INITIAL_WINDOW, "{congestion:?}");
            let tight = Arc::new(BoundedFactory { congestion, max_window: 5000, lost }).build(now, 1200);
            assert_eq!(tight.window(), 5000, "{congestion:?}");
        }
    }
}
