//! Preconditions of requests that can be served from a stored response (RFC 9111 §4.3.2, RFC 9110 §13).

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, DATE, ETAG, LAST_MODIFIED, VARY};
use sealion_http::conditional::{self, Validators, Verdict};
use sealion_http::date::WholeSeconds;
use sealion_http::etag::Tag;
use sealion_http::request::{Conditions, Singleton};

/// The result of evaluating the preconditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Send the stored response.
    Proceed,
    /// Send 304 (Not Modified).
    NotModified,
    /// If-Match or If-Unmodified-Since does not hold for the stored response. Only the origin may evaluate them (RFC
    /// 9111 §4.3.2): forward the request.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD for a stored response that may be sent.
#[inline]
pub fn evaluate(conditions: &Conditions<'_>, stored: &HeaderMap) -> Precondition {
    // Most requests have no preconditions; then no date is parsed.
    if conditions.has_preconditions() { evaluate_present(conditions, stored) } else { Precondition::Proceed }
}

fn evaluate_present(conditions: &Conditions<'_>, stored: &HeaderMap) -> Precondition {
    // Without Last-Modified, Date is used (RFC 9111 §4.3.2).
    let modified = date(stored, LAST_MODIFIED).or_else(|| date(stored, DATE));
    match conditional::evaluate(conditions, &Validators { modified, ..validators(stored) }) {
        Verdict::Proceed => Precondition::Proceed,
        Verdict::NotModified => Precondition::NotModified,
        Verdict::PreconditionFailed => Precondition::Failed,
    }
}

/// Whether If-Range allows a range of the stored response (RFC 9110 §13.1.5).
///
/// A date counts only if the response's Date is after that second (RFC 9110 §8.8.2.2).
pub fn range_applies(if_range: &Singleton<'_>, stored: &HeaderMap) -> bool {
    let Some(made) = date(stored, DATE) else { return !if_range.is_present() };
    conditional::range_applies(if_range, &validators(stored), made)
}

fn validators(stored: &HeaderMap) -> Validators<'_> {
    Validators {
        etag: stored.get(ETAG).and_then(|value| Tag::parse(value.as_bytes())),
        modified: date(stored, LAST_MODIFIED),
        // Variants can share a date.
        varies: stored.contains_key(VARY) || stored.contains_key(CONTENT_ENCODING),
    }
}

fn date(stored: &HeaderMap, name: http::HeaderName) -> Option<WholeSeconds> {
    std::str::from_utf8(stored.get(name)?.as_bytes()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn preconditions_of_a_stored_response() {
        use Precondition::{Failed, NotModified, Proceed};
        let tagged = &["etag: \"a,b\"", "last-modified: Sun, 06 Nov 1994 08:49:37 GMT"][..];
        let weak = &["etag: W/\"a\""][..];
        let dated = &["date: Sun, 06 Nov 1994 08:49:37 GMT"][..];
        let bare = &["etag: a"][..];
        for (stored, name, value, expected) in [
            (tagged, "accept", "a", Proceed),
            (tagged, "if-none-match", "\"x\", W/\"a,b\"", NotModified),
            (tagged, "if-none-match", "\"x\"", Proceed),
            (tagged, "if-none-match", "*", NotModified),
            (tagged, "if-modified-since", THEN, NotModified),
            (tagged, "if-modified-since", BEFORE, Proceed),
            (tagged, "if-match", "\"a,b\"", Proceed),
            (tagged, "if-match", "\"x\"", Failed),
            (tagged, "if-unmodified-since", BEFORE, Failed),
            (weak, "if-none-match", "\"a\"", NotModified),
            (weak, "if-match", "W/\"a\"", Failed),
            // Without Last-Modified, Date.
            (dated, "if-modified-since", AFTER, NotModified),
            (dated, "if-modified-since", BEFORE, Proceed),
            (weak, "if-modified-since", AFTER, Proceed),
            // Not an entity tag.
            (bare, "if-none-match", "\"a\"", Proceed),
            (bare, "if-none-match", "a", Proceed),
            (bare, "if-none-match", "*", NotModified),
        ] {
            let mut conditions = Conditions::default();
            conditions.add(name, value.as_bytes());
            assert_eq!(evaluate(&conditions, &fields(stored)), expected, "{stored:?} {name}: {value}");
        }
    }

    #[test]
    fn ranges_need_the_same_representation() {
        let with =
            |lines: &[&'static str]| [&["etag: \"a\"", "last-modified: Sun, 06 Nov 1994 08:49:37 GMT"], lines].concat();
        let later = with(&["date: Sun, 06 Nov 1994 08:49:38 GMT"]);
        let at_once = with(&["date: Sun, 06 Nov 1994 08:49:37 GMT"]);
        let varying = with(&["date: Sun, 06 Nov 1994 08:49:38 GMT", "vary: accept"]);
        let encoded = with(&["date: Sun, 06 Nov 1994 08:49:38 GMT", "content-encoding: br"]);
        let weak = vec!["etag: W/\"a\"", "date: Sun, 06 Nov 1994 08:49:38 GMT"];
        for (stored, value, expected) in [
            (&later, None, true),
            (&later, Some("\"a\""), true),
            (&later, Some("\"b\""), false),
            (&later, Some("W/\"a\""), false),
            (&later, Some(THEN), true),
            (&later, Some(BEFORE), false),
            (&at_once, Some(THEN), false),
            (&at_once, Some("\"a\""), true),
            (&varying, Some(THEN), false),
            (&encoded, Some(THEN), false),
            (&encoded, Some("\"a\""), true),
            (&weak, Some("W/\"a\""), false),
            (&weak, None, true),
        ] {
            let if_range = value.map_or(Singleton::Absent, |value| Singleton::Once(value.as_bytes()));
            assert_eq!(range_applies(&if_range, &fields(stored)), expected, "{stored:?} {value:?}");
        }
        assert!(range_applies(&Singleton::Absent, &HeaderMap::new()));
        assert!(!range_applies(&Singleton::Once(b"\"a\""), &HeaderMap::new()));
    }
}
