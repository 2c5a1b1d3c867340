//! Times as HTTP writes them (RFC 9110 §5.6.7), with their spelling, so that each is formatted once.

use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Whole seconds since 1970, up to the end of 9999: what two dates are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeSeconds(u64);

impl WholeSeconds {
    /// A time without its fraction of a second; `None` before 1970 and after 9999, for which there is no HTTP-date.
    pub fn of(time: SystemTime) -> Option<Self> {
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
}
