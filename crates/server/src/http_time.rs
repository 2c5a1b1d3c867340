//! Times as HTTP writes them (RFC 9110 §5.6.7), with their spelling, so that each is formatted once.

use std::cell::Cell;
use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use rustix::time::{ClockId, clock_gettime};

/// A time in whole seconds, from 1970 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTime {
    date: HttpDate,
    text: [u8; 29],
}

impl HttpTime {
    /// The time without its fraction of a second; `None` before 1970 and after 9999, for which there is no HTTP-date.
    pub fn new(time: SystemTime) -> Option<Self> {
        const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
        let since_epoch = time.duration_since(UNIX_EPOCH).ok().filter(|duration| *duration < YEAR_10000)?;
        Some(HttpDate::from(UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())).into())
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
        let now = UNIX_EPOCH.checked_add(since_epoch).and_then(Self::new).unwrap_or(HttpDate::from(UNIX_EPOCH).into());
        NOW.set(Some((seconds, now)));
        now
    }

    /// For comparison with what a client sent.
    pub fn date(&self) -> HttpDate {
        self.date
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

impl From<HttpDate> for HttpTime {
    fn from(date: HttpDate) -> Self {
        let mut text = [0; 29];
        write!(&mut text[..], "{date}").expect("an IMF-fixdate has 29 characters");
        HttpTime { date, text }
    }
}

impl FromStr for HttpTime {
    type Err = httpdate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse::<HttpDate>()?.into())
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
        let now = SystemTime::from(HttpTime::now().date());
        assert!((before - Duration::from_secs(1)..=SystemTime::now()).contains(&now), "{now:?}");
    }
}
