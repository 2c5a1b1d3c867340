//! Requests a second of each client.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::ClientNetwork;

/// Clients whose buckets are kept before those that are full again are let go. GUESS: some megabytes.
const KEPT_CLIENTS: usize = 65_536;

/// A token bucket for each client: a number of requests a second, and some more at once after a pause.
#[derive(Debug)]
pub struct Requests {
    buckets: DefaultKeyedRateLimiter<ClientNetwork>,
    clock: DefaultClock,
    /// When there are this many clients, full buckets are let go.
    sweep_at: AtomicUsize,
}

impl Requests {
    /// `rate` requests a second, `burst` of them at once.
    pub fn new(rate: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate).allow_burst(burst);
        let clock = DefaultClock::default();
        Requests { buckets: RateLimiter::keyed(quota), clock, sweep_at: AtomicUsize::new(KEPT_CLIENTS) }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; in this time there is a token again.
    pub fn take(&self, address: IpAddr) -> Result<(), Duration> {
        self.sweep();
        self.buckets
            .check_key(&ClientNetwork::of(address))
            .map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }

    /// Lets go what says no more than a new bucket would.
    fn sweep(&self) {
        let clients = self.buckets.len();
        if clients < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        self.buckets.retain_recent();
        // Those that are still in use must not make every request sweep.
        self.sweep_at.store((self.buckets.len() * 2).max(KEPT_CLIENTS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_is_told_when_to_come_again() {
        let requests = Requests::new(NonZeroU32::MIN, NonZeroU32::new(3).unwrap());
        let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for _ in 0..3 {
            assert_eq!(requests.take(a), Ok(()));
        }
        let wait = requests.take(a).unwrap_err();
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        assert_eq!(requests.take(b), Ok(()));
    }
}
