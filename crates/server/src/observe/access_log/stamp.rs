//! The time of a line, formatted once per second.

use std::time::{Duration, Instant, SystemTime};

use super::escape::push_padded;

/// A worker's clock for its lines.
///
/// The wall clock is read once per second, and each line adds the monotonic time since. So a line needs no system call
/// and no calendar computation, and a step of the wall clock shows within a second.
#[derive(Debug, Default)]
pub(super) struct Clock {
    anchor: Option<(Instant, SystemTime)>,
    stamp: Stamp,
}

/// A time in the forms of the formats.
#[derive(Debug, Clone, Default)]
pub(super) struct Stamp {
    /// Seconds since 1970.
    second: Option<u64>,
    /// `2026-11-22T04:16:18`.
    rfc3339: String,
    /// `22/Nov/2026:04:16:18 +0000`.
    combined: String,
    millis: u16,
}

/// How long a reading of the wall clock is used.
const READING: Duration = Duration::from_secs(1);

impl Clock {
    /// The time at `now`, which must be the present.
    pub(super) fn at(&mut self, now: Instant) -> &Stamp {
        let known = self.anchor.map(|(read_at, wall)| (now.duration_since(read_at), wall));
        let (since, wall) = match known {
            Some(known) if known.0 < READING => known,
            _ => (Duration::ZERO, self.anchor.insert((now, SystemTime::now())).1),
        };
        self.stamp.set(wall + since);
        &self.stamp
    }
}

impl Stamp {
    #[cfg(test)]
    pub(super) fn of(time: SystemTime) -> Self {
        let mut stamp = Stamp::default();
        stamp.set(time);
        stamp
    }

    fn set(&mut self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.millis = since.subsec_millis() as u16;
        if self.second == Some(since.as_secs()) {
            return;
        }
        // A time after the year 9999 has no such format.
        let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs().min(LAST_SECOND));
        self.second = Some(since.as_secs());
        self.rfc3339 = humantime::format_rfc3339_seconds(whole).to_string();
        self.rfc3339.truncate("2026-11-22T04:16:18".len());
        // Sun, 06 Nov 1994 08:49:37 GMT ─► 06/Nov/1994:08:49:37 +0000
        let date = httpdate::fmt_http_date(whole);
        self.combined = format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25]);
    }

    /// RFC 3339, UTC, with milliseconds.
    pub(super) fn write_rfc3339(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(self.rfc3339.as_bytes());
        line.push(b'.');
        push_padded(line, self.millis);
        line.push(b'Z');
    }

    /// The text between the brackets of the combined format.
    pub(super) fn combined(&self) -> &str {
        &self.combined
    }
}

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    fn rfc3339(stamp: &Stamp) -> String {
        let mut line = Vec::new();
        stamp.write_rfc3339(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_time_has_both_forms() {
        let stamp = Stamp::of(SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_045));
        assert_eq!(rfc3339(&stamp), "1994-11-06T08:49:37.045Z");
        assert_eq!(stamp.combined(), "06/Nov/1994:08:49:37 +0000");
        let last = Stamp::of(SystemTime::UNIX_EPOCH + Duration::from_secs(LAST_SECOND + 1));
        assert_eq!(rfc3339(&last), "9999-12-31T23:59:59.000Z");
    }

    #[test]
    fn the_clock_follows_the_monotonic_time_and_reads_the_wall_clock_again() {
        let mut clock = Clock::default();
        let start = Instant::now();
        clock.at(start);
        let wall = clock.anchor.unwrap().1;
        for ahead in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(999)] {
            assert_eq!(rfc3339(clock.at(start + ahead)), rfc3339(&Stamp::of(wall + ahead)));
        }
        clock.at(start + READING);
        assert_eq!(clock.anchor.unwrap().0, start + READING);
    }
}
