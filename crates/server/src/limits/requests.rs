//! Requests a second of each client.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use governor::clock::{Clock, DefaultClock};

use super::ClientNetwork;

/// A token bucket for each client: a number of requests a second, and some more at once after a pause.
#[derive(Debug)]
pub(crate) struct Requests {
    quota: Quota,
    buckets: ArcSwap<DefaultKeyedRateLimiter<ClientNetwork>>,
    clock: DefaultClock,
    /// Requests since full buckets were let go: at least as many as the clients that came since. Counting those themselves would take the
    /// lock of each part of the table, for each request.
    taken: AtomicUsize,
    bounds: Bounds,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Requests after which buckets that are full again are let go.
    sweep_every: usize,
    /// Buckets that are not full, above which all are let go.
    most: usize,
}

/// GUESS: a sweep looks at 64 thousand buckets or not many more, a millisecond. A million take 50 MB.
const BOUNDS: Bounds = Bounds { sweep_every: 1 << 16, most: 1 << 20 };

impl Requests {
    /// `rate` requests a second, `burst` of them at once.
    pub(crate) fn new(rate: NonZeroU32, burst: NonZeroU32) -> Self {
        Self::with_bounds(Quota::per_second(rate).allow_burst(burst), BOUNDS)
    }

    fn with_bounds(quota: Quota, bounds: Bounds) -> Self {
        let buckets = ArcSwap::from_pointee(RateLimiter::keyed(quota));
        Requests { quota, buckets, clock: DefaultClock::default(), taken: AtomicUsize::new(0), bounds }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; in this time there is a token again.
    pub(crate) fn take(&self, address: IpAddr) -> Result<(), Duration> {
        if self.taken.fetch_add(1, Ordering::Relaxed) + 1 == self.bounds.sweep_every {
            self.sweep();
        }
        self.buckets
            .load()
            .check_key(&ClientNetwork::of(address))
            .map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }

    /// Lets go what says no more than a new bucket would. Where bursts are long and somebody has very many addresses, that is not enough:
    /// then all are let go, which gives each client one more burst.
    fn sweep(&self) {
        let buckets = self.buckets.load();
        buckets.retain_recent();
        buckets.shrink_to_fit();
        if buckets.len() > self.bounds.most {
            self.buckets.store(Arc::new(RateLimiter::keyed(self.quota)));
            tracing::warn!(
                "more than {} clients have begun a burst of requests: all of them begin anew. Choose a smaller site.limits.burst, \
                 so that they are forgotten sooner",
                self.bounds.most
            );
        }
        self.taken.store(0, Ordering::Relaxed);
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

    #[test]
    fn buckets_that_are_full_again_go_and_too_many_others_too() {
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        let per_second = |rate: u32, burst: u32| {
            Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(NonZeroU32::new(burst).unwrap())
        };
        // Full again after a microsecond: none is left but what came since the last sweep.
        let short = Requests::with_bounds(per_second(1_000_000, 1), Bounds { sweep_every: 64, most: 1000 });
        for n in 0..10_000 {
            let _ = short.take(client(n));
        }
        assert!(short.buckets.load().len() < 2 * 64, "{}", short.buckets.load().len());
        // Full again after a day.
        let long = Requests::with_bounds(per_second(1, 86_400), Bounds { sweep_every: 64, most: 1000 });
        for n in 0..10_000 {
            assert_eq!(long.take(client(n)), Ok(()));
            assert!(long.buckets.load().len() <= 1000 + 64);
        }
    }
}
