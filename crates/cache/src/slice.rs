//! Whether responses to range requests (206) are parts of one representation and can be combined (RFC 9110 §15.3.7.3,
//! RFC 9111 §3.4).

use std::ops::Range;

use http::header::{CONTENT_ENCODING, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::date::WholeSeconds;
use sealion_http::etag::Tag;

/// The single part of a 206: its range, and the complete length. `None`: it does not have exactly one part, or the
/// complete length is unknown.
pub fn content_range(fields: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let mut values = fields.get_all(CONTENT_RANGE).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (unit, rest) = value.to_str().ok()?.split_once(' ')?;
    let (range, complete) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, complete) = (number(first)?, number(last)?, number(complete)?);
    let end = last.checked_add(1)?;
    (unit.eq_ignore_ascii_case("bytes") && first <= last && end <= complete).then_some((first..end, complete))
}

/// The validator for If-Range: the strong entity tag, or without any entity tag the strong date (RFC 9110 §8.8.1,
/// §8.8.2.2, §13.1.5). `None`: parts with the same validators may come from different bytes.
pub fn strong_validator(fields: &HeaderMap) -> Option<&HeaderValue> {
    if let Some(tag) = only(fields, ETAG) {
        return Tag::parse(tag.as_bytes()).is_some_and(|tag| !tag.is_weak()).then_some(tag);
    }
    if [ETAG, VARY, CONTENT_ENCODING].iter().any(|name| fields.contains_key(name)) {
        // Variants can share a date.
        return None;
    }
    let date = |value: &HeaderValue| value.to_str().ok()?.parse::<WholeSeconds>().ok();
    let modified = only(fields, LAST_MODIFIED)?;
    (date(modified)? < date(only(fields, DATE)?)?).then_some(modified)
}

fn only(fields: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn the_part_of_a_206() {
        for (value, expected) in [
            ("bytes 0-9/100", Some((0..10, 100))),
            ("BYTES 90-99/100", Some((90..100, 100))),
            ("bytes 0-18446744073709551614/18446744073709551615", Some((0..u64::MAX, u64::MAX))),
            ("bytes 0-18446744073709551615/18446744073709551615", None),
            ("bytes 90-100/100", None),
            ("bytes 9-0/100", None),
            ("bytes 0-9/*", None),
            ("bytes */100", None),
            ("bytes +0-9/100", None),
            ("bytes 0-/100", None),
            ("bytes -9/100", None),
            ("bytes=0-9/100", None),
            ("items 0-9/100", None),
            ("", None),
        ] {
            assert_eq!(content_range(&fields(&[&format!("content-range: {value}")])), expected, "{value:?}");
        }
        assert_eq!(content_range(&fields(&["content-range: bytes 0-9/100", "content-range: bytes 0-9/100"])), None);
        assert_eq!(content_range(&HeaderMap::new()), None);
    }

    #[test]
    fn parts_are_of_one_representation_by_a_strong_validator() {
        const THEN: &str = "last-modified: Sun, 06 Nov 1994 08:49:36 GMT";
        const LATER: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";
        for (lines, expected) in [
            (&["etag: \"a\""][..], Some("\"a\"")),
            (&["etag: \"a\"", THEN, LATER, "vary: accept"], Some("\"a\"")),
            (&["etag: W/\"a\"", THEN, LATER], None),
            (&["etag: a", THEN, LATER], None),
            (&["etag: \"a\"", "etag: \"b\"", THEN, LATER], None),
            (&[THEN, LATER], Some("Sun, 06 Nov 1994 08:49:36 GMT")),
            (&[THEN, "date: Sun, 06 Nov 1994 08:49:36 GMT"], None),
            (&[THEN], None),
            (&[THEN, LATER, "vary: accept-encoding"], None),
            (&[THEN, LATER, "content-encoding: gzip"], None),
            (&[LATER], None),
        ] {
            let fields = fields(lines);
            assert_eq!(strong_validator(&fields).map(|value| value.to_str().unwrap()), expected, "{lines:?}");
        }
    }
}
