//! Shared by the tests of several files.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Seconds;

/// Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const NOW: Seconds = 784_111_777;

/// Fields from lines such as `name: value`.
pub(crate) fn fields<L: AsRef<str>>(lines: &[L]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines {
        let (name, value) = line.as_ref().split_once(": ").unwrap();
        fields.append(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
    }
    fields
}

/// An HTTP-date.
pub(crate) fn date(seconds: Seconds) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}
