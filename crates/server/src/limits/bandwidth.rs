//! Bandwidth shared by responses: of a site, and of each of its clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ClientNetwork;
use crate::values::Mutex;

/// A token bucket for bytes. [`Self::take`] returns when the bytes may be sent. Times are assigned in the order of the
/// calls, so that responses share the bandwidth evenly.
#[derive(Debug)]
pub(crate) struct Bucket {
    bytes_per_second: u64,
    began: Instant,
    /// The time until which its bytes are taken, in nanoseconds after `began`.
    taken_until: AtomicU64,
}

impl Bucket {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Bucket { bytes_per_second, began: Instant::now(), taken_until: AtomicU64::new(0) }
    }

    /// Takes tokens for `bytes`. Returns when they may be sent: `now` or later.
    fn take(&self, bytes: u64, now: Instant) -> Instant {
        let cost = self.cost(bytes);
        let earliest = self.nanoseconds(now).saturating_sub(CREDIT.as_nanos() as u64);
        let add = |taken: u64| Some(taken.max(earliest).saturating_add(cost));
        let before = match self.taken_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) | Err(before) => before.max(earliest),
        };
        self.began + Duration::from_nanos(before)
    }

    /// Returns tokens for `bytes` that will not be sent.
    fn give_back(&self, bytes: u64) {
        let cost = self.cost(bytes);
        let less = |taken: u64| Some(taken.saturating_sub(cost));
        let _ = self.taken_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The time that `bytes` take, in nanoseconds.
    fn cost(&self, bytes: u64) -> u64 {
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Whether all bytes taken from it may have been sent.
    fn is_full(&self, now: Instant) -> bool {
        self.taken_until.load(Ordering::Relaxed) <= self.nanoseconds(now)
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A bucket for each client with responses.
#[derive(Debug)]
pub(crate) struct ClientBuckets {
    bytes_per_second: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    buckets: HashMap<ClientNetwork, Arc<Bucket>>,
    /// The number of buckets at which full and unused buckets are dropped.
    sweep_at: usize,
}

impl ClientBuckets {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        ClientBuckets { bytes_per_second, open: Mutex::new(Open { buckets: HashMap::new(), sweep_at: MIN_SWEPT }) }
    }

    pub(crate) fn of(&self, address: IpAddr) -> Arc<Bucket> {
        let mut open = self.open.lock();
        if open.buckets.len() >= open.sweep_at {
            // A bucket that is not full outlives its last response. Otherwise a client could exceed its limit with
            // short responses.
            let now = Instant::now();
            open.buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.is_full(now));
            open.sweep_at = MIN_SWEPT.max(2 * open.buckets.len());
        }
        let new = || Arc::new(Bucket::new(self.bytes_per_second));
        Arc::clone(open.buckets.entry(ClientNetwork::of(address)).or_insert_with(new))
    }
}

/// The buckets of a response, one after another. From the second bucket it takes only the bytes
/// that have passed the first. Otherwise a client that has used up its own bandwidth would withhold the site's
/// bandwidth from others.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    first: Arc<Bucket>,
    second: Option<Arc<Bucket>>,
}

impl Pace {
    /// The buckets in order. `None`: there are no buckets.
    pub(super) fn of(buckets: [Option<Arc<Bucket>>; 2]) -> Option<Self> {
        let mut buckets = buckets.into_iter().flatten();
        Some(Pace { first: buckets.next()?, second: buckets.next() })
    }

    /// For a single response.
    pub(crate) fn of_response(bytes_per_second: NonZeroU64) -> Self {
        Pace { first: Arc::new(Bucket::new(bytes_per_second.get())), second: None }
    }

    /// The bandwidth of a site that has not been used for a while.
    #[cfg(test)]
    pub(crate) fn of_site(bytes_per_second: u64) -> Self {
        let began = Instant::now() - 10 * CREDIT;
        Pace { first: Arc::new(Bucket { began, ..Bucket::new(bytes_per_second) }), second: None }
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        std::iter::once(&*self.first).chain(self.second.as_deref())
    }

    /// Takes tokens for `bytes` from the bucket after the first `taken`. Returns when the bytes pass it; `None`: there
    /// is no further bucket.
    pub(crate) fn take_next(&self, taken: usize, bytes: u64, now: Instant) -> Option<Instant> {
        self.buckets().nth(taken).map(|bucket| bucket.take(bytes, now))
    }

    /// Returns tokens for `bytes` that are not sent to the first `taken` buckets. Otherwise a client that often
    /// requests and leaves would stop all others.
    pub(crate) fn give_back(&self, taken: usize, bytes: u64) {
        self.buckets().take(taken).for_each(|bucket| bucket.give_back(bytes));
    }

    /// The maximum number of bytes to take at a time: an eighth of a second, so that responses take turns.
    pub(crate) fn most(&self) -> u64 {
        let lowest = self.buckets().map(|bucket| bucket.bytes_per_second).fold(u64::MAX, u64::min);
        (lowest / 8).clamp(4 << 10, 256 << 10)
    }
}

/// The credit of an unused bucket, for a response that wakes late or waits for its client.
const CREDIT: Duration = Duration::from_millis(250);

const MIN_SWEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds from `from` to `to`.
    fn between(from: Instant, to: Instant) -> u128 {
        to.saturating_duration_since(from).as_millis()
    }

    #[test]
    fn responses_take_turns_at_the_rate() {
        let bucket = Bucket::new(1000);
        let now = bucket.began + Duration::from_secs(10);
        // The credit is used first.
        let waits: Vec<u128> = (0..5).map(|_| between(now, bucket.take(125, now))).collect();
        assert_eq!(waits, [0, 0, 0, 125, 250]);
        assert!(!bucket.is_full(now));
        let later = now + Duration::from_secs(2);
        assert!(bucket.is_full(later));
        // A pause saves up no more than the credit.
        assert_eq!(between(later, bucket.take(1000, later)), 0);
        assert_eq!(between(later, bucket.take(1, later)), 750);
    }

    #[test]
    fn what_is_given_back_delays_nobody() {
        let bucket = Arc::new(Bucket::new(1000));
        let pace = Pace::of([Some(Arc::clone(&bucket)), None]).unwrap();
        let now = bucket.began + Duration::from_secs(10);
        for _ in 0..100 {
            pace.take_next(0, 125, now);
            pace.give_back(1, 125);
        }
        assert!(pace.take_next(0, 125, now).unwrap() <= now);
        assert_eq!(pace.take_next(1, 125, now), None);
    }

    #[test]
    fn a_client_without_bandwidth_takes_none_of_the_site() {
        let [site, client] = [8_000_000, 80_000].map(|rate| Arc::new(Bucket::new(rate)));
        let pace = Pace::of([Some(client), Some(Arc::clone(&site))]).unwrap();
        assert_eq!(pace.most(), 10_000);
        let now = site.began + Duration::from_secs(1);
        let last = (0..100).fold(now, |_, _| pace.take_next(0, 8000, now).unwrap());
        assert_eq!(between(now, last), 99 * 100 - 250);
        assert!(site.is_full(now));
        assert!(pace.take_next(1, 8000, last).unwrap() <= last);
        assert!(!site.is_full(last - CREDIT));
        assert!(Pace::of([None, None]).is_none());
        assert_eq!(Pace::of([Some(site), None]).unwrap().most(), 256 << 10);
    }

    #[test]
    fn clients_have_buckets_of_their_own_which_stay_while_they_are_not_full() {
        let clients = ClientBuckets::new(4096);
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse::<IpAddr>().unwrap());
        assert!(Arc::ptr_eq(&clients.of(a), &clients.of(a)));
        assert!(!Arc::ptr_eq(&clients.of(a), &clients.of(b)));
        let held = clients.of(b);
        clients.of(a).take(1 << 20, Instant::now());
        for n in 0..10_000_u32 {
            drop(clients.of(IpAddr::from(n.to_be_bytes())));
        }
        let open = clients.open.lock();
        assert!(open.buckets.len() <= MIN_SWEPT, "{}", open.buckets.len());
        assert!(!open.buckets[&ClientNetwork::of(a)].is_full(Instant::now()));
        assert!(Arc::ptr_eq(&open.buckets[&ClientNetwork::of(b)], &held));
    }
}
