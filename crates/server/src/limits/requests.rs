//! Request rate limit per client, or per value of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use siphasher::sip128::SipHasher13;

use super::ClientNetwork;

/// A token bucket per client or value: a rate, and a burst after a pause.
#[derive(Debug)]
pub(crate) struct Requests {
    quota: Quota,
    buckets: ArcSwap<DefaultKeyedRateLimiter<Counted>>,
    /// Hashes values, so that no client chooses which share a bucket.
    hasher: SipHasher13,
    clock: DefaultClock,
    /// Requests since the last sweep, an upper bound of the new clients since. Counting clients would lock every shard
    /// of the table on each request.
    taken: AtomicUsize,
    bounds: Bounds,
}

/// The key that requests are counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Counted {
    Client(ClientNetwork),
    /// The hash of a value.
    Value(u128),
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Requests between sweeps, which drop buckets that are full again.
    sweep_every: usize,
    /// The number of buckets after a sweep above which the table is cleared.
    most: usize,
}

/// A sweep visits little more than 64 thousand buckets, which takes a millisecond. A million buckets take 50 MB.
const BOUNDS: Bounds = Bounds { sweep_every: 1 << 16, most: 1 << 20 };

impl Requests {
    /// Allows requests at the rate of `quota`, and its burst at once.
    pub(crate) fn new(quota: Quota) -> Self {
        Self::with_bounds(quota, BOUNDS)
    }

    fn with_bounds(quota: Quota, bounds: Bounds) -> Self {
        let buckets = ArcSwap::from_pointee(RateLimiter::keyed(quota));
        let mut key = [0; 16];
        // Without random numbers TLS would not work either.
        aws_lc_rs::rand::fill(&mut key).expect("the system has random numbers");
        let hasher = SipHasher13::new_with_key(&key);
        Requests { quota, buckets, hasher, clock: DefaultClock::default(), taken: AtomicUsize::new(0), bounds }
    }

    /// Counts requests by a value.
    pub(super) fn by_value(&self, value: &[u8]) -> Counted {
        Counted::Value(self.hasher.hash(value).as_u128())
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; the value is the time until the next token.
    pub(super) fn take(&self, counted: Counted) -> Result<(), Duration> {
        if self.taken.fetch_add(1, Ordering::Relaxed) + 1 == self.bounds.sweep_every {
            self.sweep();
        }
        self.buckets.load().check_key(&counted).map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }

    /// Drops buckets that are full again. An attacker with very many addresses can still fill the table if bursts are
    /// long. Then the table is cleared, which grants each client one more burst.
    fn sweep(&self) {
        let buckets = self.buckets.load();
        buckets.retain_recent();
        buckets.shrink_to_fit();
        if buckets.len() > self.bounds.most {
            self.buckets.store(Arc::new(RateLimiter::keyed(self.quota)));
            tracing::warn!(
                "more than {} clients or values are within a burst of requests: all request counts were reset. Lower site.limits.burst, \
                 so that clients are forgotten sooner",
                self.bounds.most
            );
        }
        self.taken.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_is_told_when_to_come_again() {
        let requests = Requests::new(Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::new(3).unwrap()));
        let client = |text: &str| Counted::Client(ClientNetwork::of(text.parse().unwrap()));
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        for _ in 0..3 {
            assert_eq!(requests.take(a), Ok(()));
        }
        let wait = requests.take(a).unwrap_err();
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        assert_eq!(requests.take(b), Ok(()));
    }

    #[test]
    fn buckets_that_are_full_again_go_and_too_many_others_too() {
        let client = |n: u32| Counted::Client(ClientNetwork::of(n.to_be_bytes().into()));
        let per_second = |rate: u32, burst: u32| {
            Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(NonZeroU32::new(burst).unwrap())
        };
        // Full again after a microsecond: only buckets used since the last sweep are left.
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
