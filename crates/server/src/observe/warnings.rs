//! Limits the log lines about failures of one kind: one line per second stands for thousands.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::values::Mutex;

/// Time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// The log lines about failures of one kind, for instance failures of one server.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last: Option<Instant>,
    /// Failures that were not logged since the last line.
    kept_back: u64,
}

impl Warnings {
    /// Whether a failure is logged: then the number of failures that were not logged since the last line.
    pub(crate) fn take(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        if lines.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            lines.kept_back += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.kept_back))
    }

    /// The line about a failure, if it is logged now. `others`: the text after the number of failures that were not
    /// logged.
    pub(crate) fn line(&self, what: impl Display, others: &str) -> Option<String> {
        Some(match self.take(Instant::now())? {
            0 => what.to_string(),
            number => format!("{what}; {number} {others}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_the_failures_that_had_none() {
        let (warnings, start) = (Warnings::default(), Instant::now());
        let at = |millis: u64| warnings.take(start + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(1), at(999), at(1000), at(1001), at(5000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
        assert_eq!(at(6000), Some(0));
    }
}
