//! The time of day for tokens, told by the driver's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The driver's clock beside the time of day.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    time_of_day: SystemTime,
    /// Nanoseconds since the start.
    elapsed: AtomicU64,
}

impl Clock {
    /// `start` and `time_of_day` were read together.
    pub(crate) fn new(start: Instant, time_of_day: SystemTime) -> Self {
        Clock { start, time_of_day, elapsed: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        self.elapsed.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl quinn_proto::TimeSource for Clock {
    fn now(&self) -> SystemTime {
        self.time_of_day + Duration::from_nanos(self.elapsed.load(Ordering::Relaxed))
    }
}
