//! A time that another process of the machine understands.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A time of the machine's monotonic clock. An [`Instant`] has the same clock, and does not tell its reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedInstant(Duration);

/// The clock, read in both ways.
#[derive(Debug, Clone, Copy)]
struct Now {
    instant: Instant,
    reading: Duration,
}

impl Now {
    fn read() -> Self {
        let reading = clock_gettime(ClockId::Monotonic);
        Now { instant: Instant::now(), reading: Duration::new(reading.tv_sec as u64, reading.tv_nsec as u32) }
    }
}

impl From<Instant> for SharedInstant {
    fn from(instant: Instant) -> Self {
        SharedInstant::from_instant(instant, Now::read())
    }
}

impl From<SharedInstant> for Instant {
    fn from(shared: SharedInstant) -> Self {
        shared.to_instant(Now::read())
    }
}

impl SharedInstant {
    fn from_instant(instant: Instant, now: Now) -> Self {
        match instant.checked_duration_since(now.instant) {
            Some(ahead) => SharedInstant(now.reading.saturating_add(ahead)),
            None => SharedInstant(now.reading.saturating_sub(now.instant - instant)),
        }
    }

    /// A time that no [`Instant`] can have is now: an offer may have come from another version.
    fn to_instant(self, now: Now) -> Instant {
        let instant = match self.0.checked_sub(now.reading) {
            Some(ahead) => now.instant.checked_add(ahead),
            None => now.instant.checked_sub(now.reading - self.0),
        };
        instant.unwrap_or(now.instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the two readings, the connection is on its way.
    #[test]
    fn a_time_is_the_same_in_another_process() {
        let begin = Now::read();
        let (second, way) = (Duration::from_secs(1), Duration::from_secs(7));
        let later = Now { instant: begin.instant + way, reading: begin.reading + way };
        for instant in [begin.instant, begin.instant + second, later.instant + second] {
            assert_eq!(SharedInstant::from_instant(instant, begin).to_instant(later), instant);
        }
        assert_eq!(SharedInstant(Duration::MAX).to_instant(begin), begin.instant);
        assert!(begin.reading > Duration::ZERO && Now::read().reading >= begin.reading);
    }
}
