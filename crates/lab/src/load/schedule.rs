//! The start of the next request, in closed and open loops.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Mutex;

use super::{Arrival, Extent, LoadPlan};

/// Distributes the requests of a load to its threads.
pub(super) struct Schedule {
    /// The number of requests distributed. A closed loop that ends by time need not count them.
    next: AtomicU64,
    arrival: Arrival,
    extent: Extent,
    begun: OnceLock<Instant>,
    /// Whether each thread has its own core, on which it may wait without sleeping.
    own_cores: bool,
}

impl Schedule {
    pub(super) fn new(plan: &LoadPlan) -> Self {
        Self {
            next: AtomicU64::new(0),
            arrival: plan.arrival,
            extent: plan.extent,
            begun: OnceLock::new(),
            own_cores: !plan.cores.is_empty(),
        }
    }

    /// When the next request starts, relative to the load's start, as is `now`. `None`: no more requests.
    fn claim(&self, now: Duration) -> Option<Duration> {
        if matches!(self.extent, Extent::Time(end) if now >= end) {
            return None;
        }
        let number = match (self.arrival, self.extent) {
            (Arrival::Closed, Extent::Time(_)) => 0,
            _ => self.next.fetch_add(1, Ordering::Relaxed),
        };
        if matches!(self.extent, Extent::Requests(all) if number >= all) {
            return None;
        }
        let start = match self.arrival {
            Arrival::Closed => now,
            Arrival::Open { rate } => Duration::from_secs_f64(number as f64 / rate),
        };
        (!matches!(self.extent, Extent::Time(end) if start >= end)).then_some(start)
    }

    /// The number of requests that were due but are not among the `started` ones.
    pub(super) fn unsent(&self, started: u64) -> u64 {
        match (self.arrival, self.extent) {
            (Arrival::Open { rate }, Extent::Time(end)) => {
                ((end.as_secs_f64() * rate).ceil() as u64).saturating_sub(started)
            }
            _ => 0,
        }
    }
}

/// One thread's view of the schedule. Its free connections form a queue, whose first waits for its request's time.
pub(super) struct Starts {
    schedule: Arc<Schedule>,
    timer: Mutex<Timer>,
    started: Cell<u64>,
}

impl Starts {
    /// Must be called inside the thread's runtime.
    pub(super) fn new(schedule: Arc<Schedule>) -> io::Result<Self> {
        Ok(Self { schedule, timer: Mutex::new(Timer::new()?), started: Cell::new(0) })
    }

    /// Waits for the next request's time and returns it; in an open loop it may be in the past. `None`: the load is
    /// over.
    pub(super) async fn next(&self) -> io::Result<Option<Instant>> {
        // The load begins with its first request.
        let begun = *self.schedule.begun.get_or_init(Instant::now);
        let start = match self.schedule.arrival {
            Arrival::Closed => self.schedule.claim(begun.elapsed()),
            Arrival::Open { .. } => {
                let mut timer = self.timer.lock().await;
                let start = self.schedule.claim(begun.elapsed());
                if let Some(start) = start {
                    self.wait_until(begun + start, &mut timer).await?;
                }
                start
            }
        };
        if start.is_some() {
            self.started.set(self.started.get() + 1);
        }
        Ok(start.map(|start| begun + start))
    }

    /// A client that sleeps between requests spends more time on waking up than on a request, and measures its own
    /// delay. MEASURED: 25,000 requests of 1 kB a second, 64 connections: p50 81 µs, p99 6.6 ms, 93 % of its core;
    /// awake 36 µs and 0.10 to 0.83 ms (one server, three alternating pairs on a busy machine, 2026-11-22).
    async fn wait_until(&self, start: Instant, timer: &mut Timer) -> io::Result<()> {
        let awake = if self.schedule.own_cores { AWAKE } else { Duration::ZERO };
        let asleep = start.saturating_duration_since(Instant::now()).saturating_sub(awake);
        if !asleep.is_zero() {
            timer.wait(asleep).await?;
        }
        while Instant::now() < start {
            // Lets the runtime look for responses.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    pub(super) fn started(&self) -> u64 {
        self.started.get()
    }
}

/// How long before a request's time a thread with its own core stops sleeping.
const AWAKE: Duration = Duration::from_millis(1);

/// A timerfd (timerfd_create(2)), because the runtime's timer only has a resolution of a millisecond.
struct Timer(Receiver);

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    async fn wait(&mut self, time: Duration) -> io::Result<()> {
        // Zero would disarm it.
        let time = time.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() },
        };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(arrival: Arrival, extent: Extent) -> Schedule {
        Schedule { next: AtomicU64::new(0), arrival, extent, begun: OnceLock::new(), own_cores: false }
    }

    #[test]
    fn a_closed_loop_starts_at_once_until_its_time_is_over() {
        let schedule = schedule(Arrival::Closed, Extent::Time(SECOND));
        assert_eq!(schedule.claim(SECOND / 2), Some(SECOND / 2));
        assert_eq!(schedule.claim(SECOND), None);
        assert_eq!(schedule.unsent(0), 0);
    }

    #[test]
    fn a_count_is_handed_out_exactly() {
        for arrival in [Arrival::Closed, Arrival::Open { rate: 10.0 }] {
            let schedule = schedule(arrival, Extent::Requests(3));
            let given: Vec<_> = (0..5).map(|_| schedule.claim(SECOND * 100).is_some()).collect();
            assert_eq!(given, [true, true, true, false, false]);
        }
    }

    /// The intended start counts, regardless of delays.
    #[test]
    fn an_open_loop_keeps_its_rate_whatever_the_time_is() {
        let schedule = schedule(Arrival::Open { rate: 4.0 }, Extent::Time(SECOND));
        assert_eq!(schedule.claim(Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(schedule.claim(SECOND * 9 / 10), Some(SECOND / 4));
        assert_eq!(schedule.claim(SECOND * 9 / 10), Some(SECOND / 2));
        assert_eq!(schedule.claim(SECOND), None, "the time is over");
        assert_eq!(schedule.unsent(3), 1, "the fourth was due and was not sent");
        assert_eq!(schedule.unsent(4), 0);
    }
}
