//! Validation of stored responses (RFC 9111 §4.3), and their update by a 304 (RFC 9111 §3.2).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::etag::{Comparison, Tag};

use crate::Seconds;
use crate::freshness::Lifetime;
use crate::policy::Policy;
use crate::storing::{Excluded, NotStored, StoreRequest, may_store, storable_fields};

/// The fields that make a request to the origin conditional on a stored response (RFC 9111 §4.3.1). Empty: the response
/// has no validator.
pub fn validation_fields(stored: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    pairs.into_iter().filter_map(|(validator, condition)| Some((condition, stored.get(validator)?.clone()))).collect()
}

/// Whether a 304 applies to the stored response whose validators were sent (RFC 9111 §4.3.4). False: fetch the response
/// without conditions.
///
/// A 304 without validators applies to the stored response, because the request named only that one.
pub fn is_for(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    let tag = |fields: &HeaderMap| fields.get(ETAG).cloned();
    match (tag(stored), tag(not_modified)) {
        (Some(stored), Some(new)) => match (Tag::parse(stored.as_bytes()), Tag::parse(new.as_bytes())) {
            // The tag becomes weak if an intermediary or the origin compresses.
            (Some(stored), Some(new)) => {
                let comparison = if new.is_weak() { Comparison::Weak } else { Comparison::Strong };
                stored.matches(&new, comparison)
            }
            _ => stored == new,
        },
        (None, Some(_)) => false,
        (_, None) => match not_modified.get(LAST_MODIFIED) {
            Some(new) => stored.get(LAST_MODIFIED) == Some(new),
            None => true,
        },
    }
}

/// Whether a response to a validation replaces the stored response, even if it is not stored itself (RFC 9111 §4.3.3).
/// The stored response is then removed. False: the status is about the request, or a failure of the origin, not about
/// the resource.
pub fn replaces_stored(status: u16) -> bool {
    !matches!(status, ..200 | 206 | 304 | 400 | 406 | 408 | 412 | 413 | 414 | 416 | 417 | 421 | 425 | 429 | 431 | 500..)
}

/// Whether a 200 to a HEAD request describes the stored response, whose body has `length` bytes: it then updates the
/// response like a 304. False: the stored response is stale (RFC 9111 §4.3.5).
pub fn describes(stored: &HeaderMap, length: u64, head: &HeaderMap) -> bool {
    let is_same = |name: &HeaderName| head.get(name).is_none_or(|value| stored.get(name) == Some(value));
    let is_as_long = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.parse() == Ok(length));
    is_same(&ETAG) && is_same(&LAST_MODIFIED) && head.get(CONTENT_LENGTH).is_none_or(is_as_long)
}

/// Updates stored fields from a matching 304 (RFC 9111 §3.2). Fields that describe the stored content stay.
pub fn update(policy: &Policy, stored: &mut HeaderMap, not_modified: &HeaderMap, received: Seconds) {
    let new = storable_fields(policy, not_modified, received);
    for name in new.keys().filter(|name| !describes_content(name)) {
        stored.remove(name);
        for value in new.get_all(name) {
            stored.append(name, value.clone());
        }
    }
    // The new Cache-Control may name fields that were stored.
    let excluded = Excluded::of(policy, stored);
    let names: Vec<_> = stored.keys().filter(|name| excluded.contains(name)).cloned().collect();
    names.iter().for_each(|name| {
        stored.remove(name);
    });
}

/// Updates stored fields from a matching 304, and returns how the response may be used from now on. `status`: the
/// stored status. On an error the response must not be stored any longer: remove it after sending it.
pub fn freshen(
    policy: &Policy,
    request: &StoreRequest<'_>,
    status: u16,
    stored: &mut HeaderMap,
    not_modified: &HeaderMap,
    requested: Seconds,
    received: Seconds,
) -> Result<Lifetime, NotStored> {
    update(policy, stored, not_modified, received);
    // Age describes the 304, and is not stored.
    for age in not_modified.get_all(AGE) {
        stored.append(AGE, age.clone());
    }
    let lifetime = may_store(policy, request, status, stored, requested, received);
    stored.remove(AGE);
    lifetime
}

/// Fields that a 304 does not change, because they belong to the stored content. ETag is included: a weak tag would
/// replace a strong one.
fn describes_content(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ETAG].contains(name)
        || name == "content-md5"
        || name == "content-digest"
        || name == "repr-digest"
        || name == "digest"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::RequestDirectives;
    use crate::sample::{NOW, date, fields};

    const STRONG: &str = "etag: \"a\"";
    const WEAK: &str = "etag: W/\"a\"";
    const OTHER: &str = "etag: \"b\"";
    const MODIFIED: &str = "last-modified: Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";

    #[test]
    fn every_validator_is_sent() {
        let conditions = |lines: &[&str]| {
            let conditions = validation_fields(&fields(lines));
            conditions.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect::<Vec<_>>()
        };
        assert!(conditions(&["date: Sun, 06 Nov 1994 08:49:37 GMT"]).is_empty());
        assert_eq!(conditions(&[WEAK]), ["if-none-match: W/\"a\""]);
        assert_eq!(
            conditions(&[STRONG, MODIFIED]),
            ["if-none-match: \"a\"", "if-modified-since: Sun, 06 Nov 1994 08:49:36 GMT"]
        );
    }

    #[test]
    fn a_304_is_for_the_response_with_its_validators() {
        for (stored, not_modified, expected) in [
            (&[STRONG, MODIFIED][..], &[STRONG][..], true),
            (&[STRONG, MODIFIED], &[STRONG, LATER], true),
            (&[STRONG], &[WEAK], true),
            (&[WEAK], &[WEAK], true),
            // A strong tag only identifies a response with the same tag.
            (&[WEAK], &[STRONG], false),
            (&[STRONG, MODIFIED], &[OTHER, MODIFIED], false),
            (&[MODIFIED], &[STRONG, MODIFIED], false),
            (&[MODIFIED], &[MODIFIED], true),
            (&[STRONG, MODIFIED], &[MODIFIED], true),
            (&[STRONG, MODIFIED], &[LATER], false),
            (&[STRONG], &[MODIFIED], false),
            (&[STRONG], &[], true),
            (&[], &[], true),
            // Not entity tags, but equal.
            (&["etag: a"], &["etag: a"], true),
            (&["etag: a"], &[STRONG], false),
        ] {
            assert_eq!(is_for(&fields(stored), &fields(not_modified)), expected, "{stored:?} {not_modified:?}");
        }
    }

    #[test]
    fn a_page_that_moved_or_was_withdrawn_takes_the_place_of_the_stored_one() {
        for status in [200, 203, 204, 301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 410, 451] {
            assert!(replaces_stored(status), "{status}");
        }
        for status in [100, 206, 304, 400, 406, 408, 413, 416, 421, 425, 429, 431, 500, 501, 502, 503, 504, 520] {
            assert!(!replaces_stored(status), "{status}");
        }
    }

    #[test]
    fn a_head_describes_what_has_its_validators_and_its_length() {
        for (stored, head, expected) in [
            (&[STRONG, MODIFIED][..], &[][..], true),
            (&[STRONG, MODIFIED], &[STRONG, "content-length: 7"], true),
            (&[STRONG, MODIFIED], &[STRONG, MODIFIED], true),
            (&[STRONG, MODIFIED], &["content-length: 8"], false),
            (&[STRONG, MODIFIED], &["content-length: x"], false),
            (&[STRONG, MODIFIED], &[STRONG, LATER], false),
            (&[STRONG, MODIFIED], &[WEAK], false),
            (&[MODIFIED], &[STRONG, MODIFIED], false),
            (&[], &["content-length: 7"], true),
        ] {
            assert_eq!(describes(&fields(stored), 7, &fields(head)), expected, "{stored:?} {head:?}");
        }
    }

    #[test]
    fn a_304_replaces_fields_but_those_of_the_content() {
        let policy = Policy::default();
        let old = [
            "content-encoding: gzip",
            "content-md5: a",
            "content-type: text/plain",
            "etag: \"a\"",
            "x-one: 1",
            "x-one: 2",
            "x-two: 1",
            "x-hidden: 1",
        ];
        let mut stored = storable_fields(&policy, &fields(&old), NOW - 100);
        let new = [
            "cache-control: max-age=5, no-cache=\"x-hidden\"",
            "connection: x-hop",
            "x-hop: 1",
            "transfer-encoding: chunked",
            "content-length: 7",
            "content-encoding: br",
            "content-range: bytes 0-1/2",
            "content-md5: b",
            "content-type: text/html",
            "etag: W/\"a\"",
            "age: 7",
            "x-one: 3",
            "x-one: 4",
        ];
        update(&policy, &mut stored, &fields(&new), NOW);
        let mut expected: Vec<_> = [
            "content-encoding: gzip",
            "content-md5: a",
            "etag: \"a\"",
            "x-two: 1",
            "cache-control: max-age=5, no-cache=\"x-hidden\"",
            "content-type: text/html",
            "x-one: 3",
            "x-one: 4",
        ]
        .map(str::to_owned)
        .into();
        expected.push(format!("date: {}", date(NOW)));
        assert_eq!(stored, fields(&expected));
    }

    #[test]
    fn a_304_begins_a_new_lifetime() {
        let policy = Policy::default();
        let request = StoreRequest {
            method: sealion_http::Method::Get,
            has_authorization: false,
            directives: RequestDirectives::default(),
        };
        let original = storable_fields(&policy, &fields(&["cache-control: max-age=60", "x: 1", STRONG]), NOW - 1000);
        let freshen = |lines: &[&str]| {
            let mut stored = original.clone();
            let lifetime = super::freshen(&policy, &request, 200, &mut stored, &fields(lines), NOW - 2, NOW);
            assert!(!stored.contains_key(AGE) && stored.contains_key("x"));
            lifetime.map(|lifetime| (lifetime.age(NOW), lifetime.expires() - NOW))
        };
        assert_eq!(freshen(&[STRONG]), Ok((2, 58)));
        assert_eq!(freshen(&[STRONG, "age: 10"]), Ok((12, 48)));
        assert_eq!(freshen(&[STRONG, &format!("date: {}", date(NOW - 20))]), Ok((20, 40)));
        assert_eq!(freshen(&[STRONG, "cache-control: max-age=600"]), Ok((2, 598)));
        assert_eq!(freshen(&[STRONG, "cache-control: no-store"]), Err(NotStored::NoStore));
    }
}
