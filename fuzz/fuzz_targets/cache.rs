//! Decisions of the cache about fields of an origin and of a client, and about a lifetime read from a file.
//!
//! The first bytes are a lifetime and times; each further line is a field, of the request if it begins with `>`.

#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use sealion_cache::{
    Assessment, Lifetime, Policy, RequestDirectives, StoreRequest, evaluate, freshen, groups, invalidated,
    invalidated_groups, is_for, may_store, range_applies, storable_fields, tags, validation_fields, variant_key, vary,
};
use sealion_http::Method;
use sealion_http::request::Conditions;

fuzz_target!(|input: &[u8]| {
    let Some((lifetime, rest)) = input.split_first_chunk::<{ Lifetime::LENGTH }>() else { return };
    let Some(([status, later @ ..], lines)) = rest.split_first_chunk::<4>() else { return };
    let now = u64::from_le_bytes(lifetime[..8].try_into().unwrap()) >> 8;
    let later = now.saturating_add(u64::from(u32::from_le_bytes([later[0], later[1], later[2], 0])));
    let status = 100 + 2 * u16::from(*status);
    let (request, response) = fields(lines);

    let lines = |name: &str| request.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let directives = RequestDirectives::parse(lines("cache-control").into_iter(), lines("pragma").into_iter());
    let none = RequestDirectives::default();

    if let Some(lifetime) = Lifetime::from_bytes(*lifetime) {
        check(&lifetime, later);
        let _ = lifetime.assess(&directives, later);
        check(&lifetime.made_stale(later), later);
        assert_ne!(lifetime.made_stale(later).assess(&none, later), Assessment::Fresh);
    }

    let policy = Policy::default();
    let of_request =
        StoreRequest { method: Method::Get, has_authorization: request.contains_key("authorization"), directives };
    let names = vary(&response, &policy);
    if let Ok(lifetime) = may_store(&policy, &of_request, status, &response, now, later) {
        assert!(names.is_some() && !directives.no_store);
        check(&lifetime, later);
    }
    if let Some(names) = &names {
        let values = |name: &HeaderName| request.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        let key = variant_key(names, values);
        // One line as it would be combined is the same request.
        let combined: Vec<_> = names.iter().map(|name| (name, values(name).join(&b" , "[..]))).collect();
        let again = variant_key(names, |name| {
            let (_, value) = combined.iter().find(|(other, _)| *other == name).unwrap();
            if values(name).is_empty() { Vec::new() } else { vec![&value[..]] }
        });
        let is_whole = combined.iter().all(|(_, value)| !value.contains(&b'"'));
        assert!(!is_whole || key == again, "{} {}", key.escape_ascii(), again.escape_ascii());
    }

    let mut stored = storable_fields(&policy, &response, now);
    assert!(is_for(&stored, &stored));
    assert_eq!(storable_fields(&policy, &stored, now), stored);
    let _ = freshen(&policy, &of_request, status, &mut stored, &request, now, later);
    let _ = validation_fields(&stored);
    let mut conditions = Conditions::default();
    request.iter().for_each(|(name, value)| conditions.add(name.as_str(), value.as_bytes()));
    let _ = (evaluate(&conditions, &stored), range_applies(&conditions.if_range, &stored));

    let _ = (tags(&response), groups(&response));
    let post = Method::from_token("POST");
    let _ = invalidated_groups(post, status, &response);
    for target in invalidated(post, status, "/a/b?c", "example.org", &response) {
        assert!(target.starts_with('/') && !target.contains('#'), "{target}");
    }
});

/// Fields of the request and of the response. Lines that cannot be fields are left out, as the parsers of heads do.
fn fields(lines: &[u8]) -> (HeaderMap, HeaderMap) {
    let (mut request, mut response) = (HeaderMap::new(), HeaderMap::new());
    for line in lines.split(|octet| *octet == b'\n') {
        let (fields, line) = match line.strip_prefix(b">") {
            Some(line) => (&mut request, line),
            None => (&mut response, line),
        };
        let Some(colon) = line.iter().position(|octet| *octet == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            fields.append(name, value);
        }
    }
    (request, response)
}

/// A lifetime comes back from its bytes, and is fresh until it expires.
fn check(lifetime: &Lifetime, now: u64) {
    assert_eq!(Lifetime::from_bytes(lifetime.to_bytes()), Some(*lifetime));
    if lifetime.assess(&RequestDirectives::default(), now) == Assessment::Fresh {
        assert!(now < lifetime.expires(), "{lifetime:?} at {now}");
    }
}
