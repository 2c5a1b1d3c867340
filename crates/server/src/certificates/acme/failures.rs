//! Pauses after failed orders, stored on disk, so that a server in a restart loop sends no more orders.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The first pause after a failure; it doubles with each failure. SPEC: Let's Encrypt allows five failed validations
/// per name and hour, and these pauses result in four.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Twice a day, so that a corrected mistake takes effect on the same day without a restart.
const MAX_PAUSE: Duration = Duration::from_secs(12 * 3600);

/// Failures of a site's orders, and the resulting pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Failures {
    count: u32,
    /// Seconds since the Unix epoch.
    wait_until: u64,
}

impl Failures {
    pub(super) fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Whether the pause lasts. A pause longer than [`MAX_PAUSE`] results from a wrong clock and is ignored.
    pub(super) fn forbids(self, now: SystemTime) -> bool {
        seconds(now) < self.wait_until && self.wait_until < seconds(now + 2 * MAX_PAUSE)
    }

    /// The end of the pause.
    pub(super) fn next_try(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.wait_until)
    }

    pub(super) fn after(before: Option<Self>, now: SystemTime) -> Self {
        let count = before.map_or(0, |before| before.count);
        let pause = FIRST_PAUSE.saturating_mul(1 << count.min(16)).min(MAX_PAUSE);
        Self { count: count + 1, wait_until: seconds(now + pause) }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_followed_by_ever_longer_pauses() {
        let now = SystemTime::now();
        let mut failures = None;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let next = Failures::after(failures, now);
            pauses.push(next.wait_until - seconds(now));
            failures = Some(next);
        }
        assert_eq!(pauses[..4], [300, 600, 1200, 2400]);
        assert_eq!(pauses[11], 12 * 3600);

        let last = failures.unwrap();
        assert!(last.forbids(now) && last.forbids(now + MAX_PAUSE - Duration::from_secs(1)));
        assert!(!last.forbids(now + MAX_PAUSE));
        assert!(!last.forbids(now - 2 * MAX_PAUSE), "the clock was wrong when it failed");
    }
}
