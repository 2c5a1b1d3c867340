//! Ends the wait of idle connections: after a timeout, when the server drains, when another process has taken over, and to make room when every slot is
//! taken. In the last case the longest idle connection is closed.
//!
//! A connection registers here when it becomes idle, and waits for its [`Closing`]. It needs no timer, which would cost
//! memory in every idle connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use slab::Slab;

use crate::values::Mutex;

/// A time of the machine's monotonic clock in nanoseconds, with the precision of a kernel tick. Each request reads it,
/// and a tick suffices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        // Enough for 584 years since boot.
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

/// All connections that wait for requests or serve them.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    /// The next step of connections as soon as they are idle: 0 (they wait for requests), [`PASS`], [`PASS_OR_DRAIN`] or [`DRAIN`].
    then: AtomicU8,
    open: Mutex<Slab<Arc<Connection>>>,
    /// The key from which [`Self::rest`] goes on.
    rest_from: AtomicUsize,
}

#[derive(Debug)]
struct Connection {
    /// [`BUSY`], [`EVICTED`], [`TIMED_OUT`], or the [`Moment`] at which the connection became idle, with [`RESTS`] or
    /// without.
    since: AtomicU64,
    /// Wakes its task.
    waker: Waker,
}

const BUSY: u64 = 0;
const EVICTED: u64 = u64::MAX;
const TIMED_OUT: u64 = u64::MAX - 1;

/// The lowest bit of the time of a connection that has been idle for [`REST_AFTER`]. Others have the bit zero.
const RESTS: u64 = 1;

/// They pass to another process, if they can.
const PASS: u8 = 1;
/// They pass to another process; connections that cannot are closed.
const PASS_OR_DRAIN: u8 = 2;
/// They are closed.
const DRAIN: u8 = 3;

/// Why an idle connection waits no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// To make room for a new connection.
    Evicted,
    /// It reached the idle timeout.
    TimedOut,
    /// The server drains.
    Draining,
    /// Another process has taken over, and takes the connection too.
    Passing,
}

/// The idle time before which a connection is not evicted. A browser that loads a page uses its connections again
/// within this time. Without it, a server whose connections are all in use would spend its time on handshakes.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// The idle time after which a connection frees what its next request can make again. That costs a wake-up and a
/// microsecond, which connections in steady use do not pay.
const REST_AFTER: Duration = Duration::from_secs(1);

/// The number of connections that are told to rest at once, and the time until the next are: thousands of wake-ups at
/// once would delay requests. The allocator gives memory back when more is freed later, so pauses help it too.
const REST_AT_ONCE: usize = 128;
const REST_PAUSE: Duration = Duration::from_millis(20);

/// The time until the search is repeated if no connection is idle, or the evicted connection has not made room.
const PAUSE: Duration = Duration::from_millis(100);

/// The maximum time between two calls of [`IdleConnections::close_expired`], after which a shorter timeout of a new
/// configuration applies.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The longest kernel tick (CONFIG_HZ=100): a [`Moment`] may be too early by as much. It is added, so that no connection
/// is closed too early.
const TICK: Duration = Duration::from_millis(10);

/// The number of connections that [`IdleConnections::close_expired`] checks before it releases the lock.
const STRIDE: usize = 1024;

/// A connection among [`IdleConnections`], until dropped.
#[derive(Debug)]
pub(crate) struct Idle<'a> {
    all: &'a IdleConnections,
    key: usize,
    connection: Arc<Connection>,
    passes: bool,
}

impl IdleConnections {
    /// Adds a busy connection. `waker`: wakes the task that serves it.
    pub(crate) fn register(&self, waker: Waker) -> Idle<'_> {
        let connection = Arc::new(Connection { since: AtomicU64::new(BUSY), waker });
        let key = self.open.lock().insert(Arc::clone(&connection));
        Idle { all: self, key, connection, passes: false }
    }

    /// Closes the longest idle connection. Returns the time after which to call again if no slot is free until then.
    pub(crate) fn evict(&self, now: Moment) -> Duration {
        let open = self.open.lock();
        loop {
            let idle = open.iter().filter_map(|(_, connection)| Some((connection.idle_since()?, connection)));
            let Some((since, connection)) = idle.min_by_key(|(since, _)| *since) else { return PAUSE };
            let age = age(since, now);
            if age < MIN_IDLE {
                return MIN_IDLE - age;
            }
            if connection.tell(since, EVICTED) {
                return PAUSE;
            }
        }
    }

    /// Closes every connection that has been idle for `timeout`. Returns the time after which to call again.
    pub(crate) fn close_expired(&self, now: Moment, timeout: Duration) -> Duration {
        let timeout = timeout + TICK;
        let mut next = timeout.min(MAX_PAUSE);
        let mut from = 0;
        loop {
            let open = self.open.lock();
            if from >= open.capacity() {
                return next;
            }
            for connection in (from..from + STRIDE).filter_map(|key| open.get(key)) {
                let Some(since) = connection.idle_since() else { continue };
                match timeout.checked_sub(age(since, now)) {
                    None | Some(Duration::ZERO) => {
                        connection.tell(since, TIMED_OUT);
                    }
                    Some(left) => next = next.min(left),
                }
            }
            from += STRIDE;
        }
    }

    /// Tells connections that have been idle for [`REST_AFTER`] to rest, [`REST_AT_ONCE`] of them. Returns the time
    /// after which to call again.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        let mut from = self.rest_from.swap(0, Ordering::Relaxed);
        let mut told = Vec::new();
        let after = 'search: loop {
            let open = self.open.lock();
            if from >= open.capacity() {
                break MAX_PAUSE;
            }
            for key in from..from + STRIDE {
                if told.len() == REST_AT_ONCE {
                    self.rest_from.store(key, Ordering::Relaxed);
                    break 'search REST_PAUSE;
                }
                let Some(connection) = open.get(key) else { continue };
                let Some(since) = connection.idle_since() else { continue };
                if since & RESTS == 0 && age(since, now) >= REST_AFTER && connection.mark(since, since | RESTS) {
                    told.push(connection.waker.clone());
                }
            }
            from += STRIDE;
        };
        // Without the lock, which every new connection takes.
        told.into_iter().for_each(Waker::wake);
        after
    }

    /// Closes every idle connection, and every other connection as soon as it is idle.
    pub(crate) fn drain(&self) {
        self.end(DRAIN);
    }

    /// Closes every idle connection that cannot pass to another process, and the others that cannot as soon as they are idle.
    pub(crate) fn drain_rest(&self) {
        self.end(PASS_OR_DRAIN);
    }

    /// Passes every idle connection that can to another process, and the others as soon as they are idle.
    pub(crate) fn pass(&self) {
        self.end(PASS);
    }

    fn end(&self, then: u8) {
        // Before the search: a connection that becomes idle after the search sees this.
        self.then.store(then, Ordering::SeqCst);
        self.open.lock().iter().for_each(|(_, connection)| connection.waker.wake_by_ref());
    }

    /// Whether any connection is idle and would make room for a new one within [`MIN_IDLE`].
    pub(crate) fn any(&self) -> bool {
        self.open.lock().iter().any(|(_, connection)| connection.idle_since().is_some())
    }
}

/// A time without [`RESTS`] that is not [`BUSY`].
fn awake(since: u64) -> u64 {
    since.max(2) & !RESTS
}

fn age(since: u64, now: Moment) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(since))
}

impl Connection {
    /// `None`: it is busy, or must close.
    fn idle_since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Relaxed)).filter(|since| ![BUSY, EVICTED, TIMED_OUT].contains(since))
    }

    /// Marks the connection as one that must close or rest, and has to be woken. `false`: it is no longer idle since `since`.
    fn mark(&self, since: u64, what: u64) -> bool {
        self.since.compare_exchange(since, what, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Tells the connection to close. `false`: it is no longer idle since `since`.
    fn tell(&self, since: u64, what: u64) -> bool {
        let told = self.mark(since, what);
        if told {
            self.waker.wake_by_ref();
        }
        told
    }
}

impl Idle<'_> {
    /// The connection can pass to another process.
    pub(crate) fn can_pass(&mut self) {
        self.passes = true;
    }

    /// The connection ends in this process.
    pub(crate) fn cannot_pass(&mut self) {
        self.passes = false;
    }

    /// The connection has been idle since then.
    pub(crate) fn resume(&self, Moment(since): Moment) {
        self.connection.since.store(awake(since), Ordering::Release);
    }

    /// Since when the connection has been idle. Now, if it is not.
    pub(crate) fn since(&self) -> Moment {
        self.connection.idle_since().map_or_else(Moment::now, Moment)
    }

    /// Whether the connection has been told to rest, and is still idle.
    pub(crate) fn rests(&self) -> bool {
        self.connection.idle_since().is_some_and(|since| since & RESTS != 0)
    }

    /// Marks the connection as idle. Ready if it must close or pass. A connection that is already idle keeps its time.
    pub(crate) fn poll_closing(&mut self, now: impl FnOnce() -> Moment) -> Poll<Closing> {
        let since = &self.connection.since;
        let mut seen = since.load(Ordering::Acquire);
        if seen == BUSY {
            seen = awake(now().0);
            // Only this connection changes BUSY, when it ends its work. SeqCst orders this before the load of
            // `then`.
            since.store(seen, Ordering::SeqCst);
        }
        match seen {
            EVICTED => Poll::Ready(Closing::Evicted),
            seen => match self.all.then.load(Ordering::SeqCst) {
                DRAIN => Poll::Ready(Closing::Draining),
                _ if seen == TIMED_OUT => Poll::Ready(Closing::TimedOut),
                PASS | PASS_OR_DRAIN if self.passes => Poll::Ready(Closing::Passing),
                PASS_OR_DRAIN => Poll::Ready(Closing::Draining),
                _ => Poll::Pending,
            },
        }
    }

    /// Cancels an eviction: the connection counts as idle since `now`, and another connection makes room.
    pub(crate) fn postpone(&self, now: Moment) {
        self.connection.since.store(awake(now.0), Ordering::Release);
    }

    /// Marks the connection as busy. `false`: it was just evicted, and its slot is promised to another.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        self.connection.since.swap(BUSY, Ordering::AcqRel) != EVICTED
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.all.open.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    fn at(seconds: u64) -> Moment {
        after(seconds * 1000)
    }

    fn after(milliseconds: u64) -> Moment {
        Moment(2 + milliseconds * 1_000_000)
    }

    /// A registry with connections that became idle at these seconds after the start of the test.
    fn idle_since<'a>(all: &'a IdleConnections, seconds: &[u64]) -> Vec<Idle<'a>> {
        let idle = |since: &u64| {
            let mut idle = all.register(Waker::noop().clone());
            assert_eq!(idle.poll_closing(|| at(*since)), Poll::Pending);
            idle
        };
        seconds.iter().map(idle).collect()
    }

    /// The closing reason of each connection. Connections without one keep their time.
    fn told(connections: &mut [Idle<'_>]) -> Vec<Option<Closing>> {
        let told = |idle: &mut Idle<'_>| match idle.poll_closing(|| unreachable!("it is idle already")) {
            Poll::Ready(closing) => Some(closing),
            Poll::Pending => None,
        };
        connections.iter_mut().map(told).collect()
    }

    #[test]
    fn the_longest_idle_connection_is_evicted_and_a_busy_one_never() {
        let all = IdleConnections::default();
        let busy = all.register(Waker::noop().clone());
        assert_eq!((all.evict(at(9)), all.any()), (PAUSE, false), "all are busy");
        let mut connections = idle_since(&all, &[2, 1, 3]);
        assert!(all.any());
        assert_eq!(all.evict(at(1)), MIN_IDLE, "none has been idle long enough");
        assert_eq!(all.evict(at(5)), PAUSE);
        assert_eq!(told(&mut connections), [None, Some(Closing::Evicted), None]);
        connections[1].postpone(at(4));
        assert_eq!(told(&mut connections), [None; 3]);
        all.evict(at(6));
        assert_eq!(
            told(&mut connections),
            [Some(Closing::Evicted), None, None],
            "the one that has been idle longest now"
        );
        connections[0].postpone(at(5));
        assert!(connections[0].begin(), "a request came");
        all.evict(at(9));
        assert!(!connections[2].begin(), "evicted when its request came");
        connections.remove(1);
        assert_eq!(all.open.lock().len(), 3);
        drop((busy, connections));
        assert!(all.open.lock().is_empty());
    }

    #[test]
    fn a_connection_is_closed_when_its_time_is_over_and_not_before() {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let all = IdleConnections::default();
        let mut connections = idle_since(&all, &[0, 5]);
        assert_eq!(all.close_expired(after(1000), TIMEOUT), MAX_PAUSE);
        assert_eq!(
            all.close_expired(after(9900), TIMEOUT),
            Duration::from_millis(110),
            "the time that the first has left"
        );
        assert_eq!(told(&mut connections), [None, None]);
        all.close_expired(after(10_010), TIMEOUT);
        assert_eq!(told(&mut connections), [Some(Closing::TimedOut), None]);
        assert!(connections[0].begin(), "a request that came in the same moment is answered");
        assert_eq!(
            all.close_expired(after(10_010), Duration::from_millis(50)),
            Duration::from_millis(60),
            "a shorter timeout"
        );
        assert_eq!(told(&mut connections[1..]), [Some(Closing::TimedOut)]);
    }

    #[test]
    fn a_connection_rests_once_in_each_idle_time() {
        struct Count(AtomicU64);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Count(AtomicU64::new(0)));
        let all = IdleConnections::default();
        let mut idle = all.register(Waker::from(Arc::clone(&woken)));
        all.rest(at(9));
        assert!(!idle.rests(), "a busy connection");
        for (since, wakes) in [(10, 1), (20, 2)] {
            assert_eq!(idle.poll_closing(|| at(since)), Poll::Pending);
            all.rest(at(since));
            assert!(!idle.rests());
            for later in [1, 2, 3] {
                assert_eq!(all.rest(at(since + later)), MAX_PAUSE);
                assert!(idle.rests());
            }
            assert_eq!(idle.poll_closing(|| unreachable!("it is idle already")), Poll::Pending);
            assert_eq!(woken.0.load(Ordering::Relaxed), wakes);
            assert!(idle.begin());
            assert!(!idle.rests());
        }
        assert_eq!(idle.poll_closing(|| at(30)), Poll::Pending);
        all.rest(at(32));
        all.close_expired(at(91), Duration::from_secs(60));
        assert_eq!(told(&mut [idle]), [Some(Closing::TimedOut)], "a connection at rest");
    }

    #[test]
    fn few_connections_rest_at_once() {
        let all = IdleConnections::default();
        let connections = idle_since(&all, &[1; 2 * REST_AT_ONCE + 5]);
        let resting = || connections.iter().filter(|idle| idle.rests()).count();
        for (told, pause) in [(128, REST_PAUSE), (256, REST_PAUSE), (261, MAX_PAUSE), (261, MAX_PAUSE)] {
            assert_eq!(all.rest(at(9)), pause);
            assert_eq!(resting(), told);
        }
    }

    #[test]
    fn connections_pass_however_late_they_become_idle_and_the_others_are_closed() {
        let all = IdleConnections::default();
        let mut connections = idle_since(&all, &[1, 1]);
        connections[0].can_pass();
        all.pass();
        assert_eq!(told(&mut connections), [Some(Closing::Passing), None]);
        all.drain_rest();
        assert_eq!(told(&mut connections), [Some(Closing::Passing), Some(Closing::Draining)]);
        let mut late = all.register(Waker::noop().clone());
        late.can_pass();
        assert_eq!(late.poll_closing(|| at(9)), Poll::Ready(Closing::Passing));
        all.drain();
        assert_eq!(late.poll_closing(|| at(9)), Poll::Ready(Closing::Draining));
    }

    #[test]
    fn a_server_that_drains_closes_idle_connections_and_those_that_become_idle() {
        let all = IdleConnections::default();
        let mut busy = all.register(Waker::noop().clone());
        let mut idle = idle_since(&all, &[1]);
        all.drain();
        assert_eq!(told(&mut idle), [Some(Closing::Draining)]);
        assert_eq!(busy.poll_closing(|| at(2)), Poll::Ready(Closing::Draining));
    }
}
