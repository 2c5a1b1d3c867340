//! Idle connections: when every slot is taken, the one that has been idle longest makes room for a new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// All connections that wait for requests, or serve them.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    /// Times are counted from here.
    started: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<State>>,
}

#[derive(Debug)]
struct State {
    /// [`BUSY`], [`EVICTED`], or the nanoseconds from the start until the connection became idle.
    since: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

const BUSY: u64 = 0;
const EVICTED: u64 = u64::MAX;

/// Idle time before which a connection is not evicted. A browser that loads a page uses its connections again within this time. Without it,
/// a server whose connections are all in use would spend its time on handshakes.
const LEAST_IDLE: Duration = Duration::from_secs(1);

/// Time until the search is repeated if no connection is idle, or the evicted one has not made room.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection among [`IdleConnections`], until dropped.
#[derive(Debug)]
pub(crate) struct Evictable<'a> {
    all: &'a IdleConnections,
    number: u64,
    state: Arc<State>,
    /// The waker in `state`, which can be compared without the lock.
    waker: Option<Waker>,
}

impl Default for IdleConnections {
    fn default() -> Self {
        // Earlier than any connection, so that no connection is idle since 0.
        IdleConnections { started: Instant::now() - Duration::from_nanos(1), open: Mutex::default() }
    }
}

impl IdleConnections {
    /// Adds a connection, which is busy.
    pub(crate) fn register(&self) -> Evictable<'_> {
        let state = Arc::new(State { since: AtomicU64::new(BUSY), waker: Mutex::default() });
        let mut open = lock(&self.open);
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Arc::clone(&state));
        Evictable { all: self, number, state, waker: None }
    }

    /// Has the longest idle connection closed. Returns the time after which to call again if no slot is free by then.
    pub(crate) fn evict(&self, now: Instant) -> Duration {
        let open = lock(&self.open);
        loop {
            let idle = open.connections.values().filter_map(|state| match state.since.load(Ordering::Relaxed) {
                BUSY | EVICTED => None,
                since => Some((since, state)),
            });
            let Some((since, state)) = idle.min_by_key(|(since, _)| *since) else { return PAUSE };
            let age = Duration::from_nanos(self.nanoseconds(now).saturating_sub(since));
            if age < LEAST_IDLE {
                return LEAST_IDLE - age;
            }
            if state.since.compare_exchange(since, EVICTED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if let Some(waker) = &*lock(&state.waker) {
                    waker.wake_by_ref();
                }
                return PAUSE;
            }
        }
    }

    /// Whether any connection is idle, and would make room for a new one within [`LEAST_IDLE`].
    pub(crate) fn any(&self) -> bool {
        let is_idle = |state: &Arc<State>| !matches!(state.since.load(Ordering::Relaxed), BUSY | EVICTED);
        lock(&self.open).connections.values().any(is_idle)
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        // 584 years.
        at.saturating_duration_since(self.started).as_nanos() as u64
    }
}

impl Evictable<'_> {
    /// Ready if the connection is to be closed. `since`: when it became idle.
    pub(crate) fn poll_evicted(&mut self, cx: &Context<'_>, since: Instant) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            *lock(&self.state.waker) = self.waker.clone();
        }
        // A connection that is idle already keeps its time.
        let idle = self.all.nanoseconds(since).max(1);
        match self.state.since.compare_exchange(BUSY, idle, Ordering::AcqRel, Ordering::Acquire) {
            Err(EVICTED) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// Takes an eviction back: the connection counts as idle since `now`, and another one makes room.
    pub(crate) fn postpone(&self, now: Instant) {
        self.state.since.store(self.all.nanoseconds(now).max(1), Ordering::Release);
    }

    /// Marks the connection as busy. `false`: it was evicted a moment before, and its slot is promised to another.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        self.state.since.swap(BUSY, Ordering::AcqRel) != EVICTED
    }
}

impl Drop for Evictable<'_> {
    fn drop(&mut self) {
        lock(&self.all.open).connections.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_is_evicted_and_a_busy_one_never() {
        let all = IdleConnections::default();
        let mut connections: Vec<_> = (0..3).map(|_| all.register()).collect();
        let cx = Context::from_waker(Waker::noop());
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!((all.evict(at(9)), all.any()), (PAUSE, false), "all are busy");
        for (connection, since) in connections.iter_mut().zip([2, 1, 3]) {
            assert_eq!(connection.poll_evicted(&cx, at(since)), Poll::Pending);
        }
        assert!(all.any());
        // Polled again, it keeps its time.
        assert_eq!(connections[1].poll_evicted(&cx, at(4)), Poll::Pending);
        assert_eq!(all.evict(at(1)), LEAST_IDLE, "none has been idle long enough");
        assert_eq!(all.evict(at(5)), PAUSE);
        let evicted = |connections: &mut Vec<Evictable<'_>>| -> Vec<bool> {
            connections.iter_mut().map(|connection| connection.poll_evicted(&cx, at(5)).is_ready()).collect()
        };
        assert_eq!(evicted(&mut connections), [false, true, false]);
        connections[1].postpone(at(4));
        assert_eq!(evicted(&mut connections), [false, false, false]);
        all.evict(at(6));
        assert_eq!(evicted(&mut connections), [true, false, false], "the one that has been idle longest now");
        connections[0].postpone(at(5));
        assert!(connections[0].begin(), "a request came");
        all.evict(at(9));
        assert!(!connections[2].begin(), "evicted when its request came");
        connections.remove(1);
        assert_eq!(lock(&all.open).connections.len(), 2);
    }
}
