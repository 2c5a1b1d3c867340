//! Times as HTTP writes them (RFC 9110 §5.6.7), with their spelling, so that each is formatted once.

use std::cell::Cell;
use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use rustix::time::{ClockId, clock_gettime};

/// Whole seconds since 1970, up to the end of 9999: what two dates are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeSeconds(u64);

impl WholeSeconds {
    /// A time without its fraction of a second; `None` before 1970 and after 9999, for which there is no HTTP-date.
    fn of(time: SystemTime) -> Option<Self> {
        const YEAR_10000: u64 = 253_402_300_800;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        (seconds < YEAR_10000).then_some(WholeSeconds(seconds))
    }
}

/// Reads an HTTP-date in any of its three forms.
impl FromStr for WholeSeconds {
    type Err = httpdate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = httpdate::parse_http_date(text)?;
        // It reads no other years.
        Ok(WholeSeconds(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()))
    }
}

/// A time in whole seconds, from 1970 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTime {
    seconds: WholeSeconds,
    text: [u8; 29],
}

impl HttpTime {
    /// The time without its fraction of a second; `None` before 1970 and after 9999, for which there is no HTTP-date.
    pub fn new(time: SystemTime) -> Option<Self> {
        WholeSeconds::of(time).map(Self::from)
    }

    /// Now, formatted once a second and thread; the epoch if the clock is out of range.
    pub fn now() -> Self {
        thread_local! {
            static NOW: Cell<Option<(i64, HttpTime)>> = const { Cell::new(None) };
        }
        // To the timer tick, which is enough for whole seconds, and a third of the price.
        let seconds = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        if let Some((kept, now)) = NOW.get()
            && kept == seconds
        {
            return now;
        }
        let since_epoch = Duration::from_secs(seconds.try_into().unwrap_or(0));
        let now = UNIX_EPOCH.checked_add(since_epoch).and_then(WholeSeconds::of).unwrap_or(WholeSeconds(0)).into();
        NOW.set(Some((seconds, now)));
        now
    }

    /// For comparison with what a client sent.
    pub fn seconds(&self) -> WholeSeconds {
        self.seconds
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

impl From<WholeSeconds> for HttpTime {
    fn from(seconds: WholeSeconds) -> Self {
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds.0));
        let mut text = [0; 29];
        write!(&mut text[..], "{date}").expect("an IMF-fixdate has 29 characters");
        HttpTime { seconds, text }
    }
}

impl FromStr for HttpTime {
    type Err = httpdate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<WholeSeconds>().map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_http_cannot_say() {
        for (seconds, expected) in [
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (253_402_300_799, Some("Fri, 31 Dec 9999 23:59:59 GMT")),
            (253_402_300_800, None),
        ] {
            let time = HttpTime::new(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(999_999_999));
            assert_eq!(time.as_ref().map(HttpTime::as_bytes), expected.map(str::as_bytes), "{seconds}");
        }
        assert_eq!(HttpTime::new(UNIX_EPOCH - Duration::from_nanos(1)), None);
    }

    #[test]
    fn now_is_now() {
        let before = SystemTime::now() - Duration::from_secs(1);
        let now = UNIX_EPOCH + Duration::from_secs(HttpTime::now().seconds().0);
        assert!((before - Duration::from_secs(1)..=SystemTime::now()).contains(&now), "{now:?}");
    }
}
