//! HTTP-dates (RFC 9110 §5.6.7), kept together with their text so that each is formatted once.

use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Whole seconds since 1970, up to the end of 9999. Two dates compare by these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeSeconds(u64);

impl WholeSeconds {
    /// Truncates `time` to whole seconds. `None`: before 1970 or after 9999, where no HTTP-date exists.
    pub fn of(time: SystemTime) -> Option<Self> {
        const YEAR_10000: u64 = 253_402_300_800;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        (seconds < YEAR_10000).then_some(WholeSeconds(seconds))
    }

    /// Seconds since 1970-01-01.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Parses an HTTP-date in any of its three formats.
impl FromStr for WholeSeconds {
    type Err = httpdate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = httpdate::parse_http_date(text)?;
        // httpdate accepts years from 1970 to 9999 only.
        Ok(WholeSeconds(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()))
    }
}

/// An HTTP-date in whole seconds, from 1970 to 9999, with its IMF-fixdate text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTime {
    seconds: WholeSeconds,
    text: [u8; 29],
}

impl HttpTime {
    /// Truncates `time` to whole seconds. `None`: before 1970 or after 9999, where no HTTP-date exists.
    pub fn new(time: SystemTime) -> Option<Self> {
        WholeSeconds::of(time).map(Self::from)
    }

    /// The seconds, for comparison with dates in a request.
    pub fn seconds(&self) -> WholeSeconds {
        self.seconds
    }

    /// The IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
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
    fn range_of_http_dates() {
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
