//! Validation of stored responses (RFC 9111 §4.3), and their update by a 304 (RFC 9111 §3.2).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::etag::{Comparison, Tag};

use crate::Seconds;
use crate::freshness::Lifetime;
use crate::storing::{Excluded, NotStored, Policy, StoreRequest, may_store, storable_fields};

/// Fields that make a request to the origin conditional on a stored response (RFC 9111 §4.3.1). Empty: it has no validator.
pub fn validation_fields(stored: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    pairs.into_iter().filter_map(|(validator, condition)| Some((condition, stored.get(validator)?.clone()))).collect()
}

/// Whether a 304 is for the stored response, whose validators were sent (RFC 9111 §4.3.4). False: the response is to be fetched without
/// conditions.
///
/// A 304 without any validator is taken for the response whose validators were sent: only that one was asked about.
pub fn is_for(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    let tag = |fields: &HeaderMap| fields.get(ETAG).cloned();
    match (tag(stored), tag(not_modified)) {
        (Some(stored), Some(new)) => match (Tag::parse(stored.as_bytes()), Tag::parse(new.as_bytes())) {
            // A weak one comes where an intermediary, or the origin, compresses.
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

/// Updates stored fields with those of a 304 that is for them (RFC 9111 §3.2). Those that describe the stored content stay.
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

/// Updates stored fields with those of a 304 that is for them, and says how the response may be used from now on. `status`: the stored one.
/// Where it must not be stored any longer, it is to be removed once it has been sent.
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
    // The age is that of the 304, and is not stored.
    for age in not_modified.get_all(AGE) {
        stored.append(AGE, age.clone());
    }
    let lifetime = may_store(policy, request, status, stored, requested, received);
    stored.remove(AGE);
    lifetime
}

/// Fields that a 304 does not change, because they belong to the content that is stored. ETag: a weak one would replace a strong one.
fn describes_content(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ETAG].contains(name)
        || name == "content-md5"
        || name == "content-digest"
        || name == "repr-digest"
        || name == "digest"
}
