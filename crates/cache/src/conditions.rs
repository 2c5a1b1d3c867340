//! Preconditions of requests that a stored response answers (RFC 9111 §4.3.2, RFC 9110 §13).

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
    /// If-Match or If-Unmodified-Since does not hold for the stored response. They are the origin's to evaluate (RFC 9111 §4.3.2): forward
    /// the request.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD for a stored response that may be sent.
pub fn evaluate(conditions: &Conditions<'_>, stored: &HeaderMap) -> Precondition {
    // Without Last-Modified, Date counts (RFC 9111 §4.3.2).
    let modified = date(stored, LAST_MODIFIED).or_else(|| date(stored, DATE));
    match conditional::evaluate(conditions, &Validators { modified, ..validators(stored) }) {
        Verdict::Proceed => Precondition::Proceed,
        Verdict::NotModified => Precondition::NotModified,
        Verdict::PreconditionFailed => Precondition::Failed,
    }
}

/// Whether If-Range allows a range of the stored response (RFC 9110 §13.1.5).
///
/// A date counts only if the response was made after that second (RFC 9110 §8.8.2.2), by its own Date.
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
