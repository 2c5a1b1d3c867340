//! The key of a stored response: the parts of a request that select it.

use std::hash::Hasher;

use sealion_cache::SearchVariance;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Hashes keys with the salt of a directory, so that no outsider can find two keys with one hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub(super) fn new(salt: &[u8; 16]) -> Self {
        KeyHasher(SipHasher13::new_with_key(salt))
    }

    pub(super) fn hash(&self, key: &[u8]) -> u128 {
        let mut hasher = self.0;
        hasher.write(key);
        hasher.finish128().as_u128()
    }
}

/// The key of a request. In the memory of workers the number of its rule comes before the key in the store: the fields of a response differ by
/// the rule that it is sent by.
#[derive(Debug, Default)]
pub(super) struct Key(Vec<u8>);

impl Key {
    /// Begins with the number of a rule. The bytes that the caller appends become the key in the store.
    pub(super) fn begin(&mut self, number: [u8; NUMBER]) -> &mut Vec<u8> {
        self.0.clear();
        self.0.extend_from_slice(&number);
        &mut self.0
    }

    /// Replaces the key in the store.
    pub(super) fn replace(&mut self, in_store: &[u8]) {
        self.0.truncate(NUMBER);
        self.0.extend_from_slice(in_store);
    }

    pub(super) fn in_front(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn in_store(&self) -> &[u8] {
        &self.0[NUMBER..]
    }

    pub(super) fn add_variant(&mut self, variant: &[u8]) {
        add_variant(&mut self.0, variant);
    }
}

/// Bytes of the number of a rule.
pub(super) const NUMBER: usize = 4;

/// Appends to a key the part that selects one of the variants of its URL.
pub(super) fn add_variant(key: &mut Vec<u8>, variant: &[u8]) {
    key.extend_from_slice(VARIANT);
    key.extend_from_slice(variant);
}

/// The key of all variants, if this is the key of one.
pub(super) fn without_variant(key: &[u8]) -> Option<&[u8]> {
    memchr::memmem::find(key, VARIANT).map(|at| &key[..at])
}

/// The part of a key that selects one of the variants of its URL, as text.
pub(super) fn variant_in_words(key: &[u8]) -> String {
    let begin = memchr::memmem::find(key, VARIANT).map_or(key.len(), |at| at + VARIANT.len());
    let lines: Vec<_> = key[begin..].split(|octet| *octet == b'\n').filter(|line| !line.is_empty()).collect();
    lines.join(&b"; "[..]).escape_ascii().to_string()
}

/// Appends to a key a part of the request that its rule names: a field or a cookie.
pub(super) fn add_part(key: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [PART, name, b"=", value] {
        key.extend_from_slice(part);
    }
}

/// Appends to a key the name of the upstream that answers.
pub(super) fn add_upstream(key: &mut Vec<u8>, name: &str) {
    key.extend_from_slice(b"\n@=");
    key.extend_from_slice(name.as_bytes());
}

/// The key of all responses of a path that No-Vary-Search lets answer several queries: the URL with an empty query. `exact`: the key of a request, without
/// variant.
pub(super) fn of_searches(exact: &[u8]) -> Vec<u8> {
    let (path, _, rest) = with_query(exact);
    [path, b"?", rest].concat()
}

/// The key of a response whose No-Vary-Search lets it answer several queries. `exact`: the key of its request, without variant.
pub(super) fn by_search(exact: &[u8], variance: &SearchVariance) -> Vec<u8> {
    let (_, query, _) = with_query(exact);
    let mut key = of_searches(exact);
    // No field is called so.
    add_part(&mut key, SEARCH, variance.key(query).as_bytes());
    key
}

/// Whether No-Vary-Search made it.
pub(super) fn is_by_search(key: &[u8]) -> bool {
    let url = url_of(key);
    url.ends_with(b"?") && memchr::memmem::find(&key[url.len()..], SEARCH_PART).is_some()
}

/// The key without the part that No-Vary-Search made.
pub(super) fn without_search(key: &[u8]) -> &[u8] {
    if !is_by_search(key) {
        return key;
    }
    memchr::memmem::rfind(key, SEARCH_PART).map_or(key, |at| &key[..at])
}

/// A key in three parts: the URL without query, the query, and what follows the URL.
fn with_query(key: &[u8]) -> (&[u8], Option<&[u8]>, &[u8]) {
    let (url, rest) = key.split_at(url_of(key).len());
    match memchr::memchr(b'?', url) {
        Some(at) => (&url[..at], Some(&url[at + 1..]), rest),
        None => (url, None, rest),
    }
}

/// Appends to a key the part that selects one of the slices of its response: their layout, and the validator of the whole.
pub(super) fn add_slice(key: &mut Vec<u8>, layout: &[u8], validator: &[u8]) {
    for part in [SLICE, layout, validator] {
        key.extend_from_slice(part);
    }
}

/// Appends to a key the part that selects a coded form of its response: the coding, the identity of the content, which has no separators, and a validator.
pub(super) fn add_form(key: &mut Vec<u8>, content: &[u8], validator: &[u8]) {
    for part in [FORM, content, validator] {
        key.extend_from_slice(part);
    }
}

/// Whether it is the key of a coded form.
pub(super) fn is_form(key: &[u8]) -> bool {
    memchr::memmem::find(key, FORM).is_some()
}

/// Whether it is the key of a slice.
pub(super) fn is_slice(key: &[u8]) -> bool {
    without_slice(key).len() < key.len()
}

/// The key of the whole response, if this is the key of a slice; otherwise the same.
pub(super) fn without_slice(key: &[u8]) -> &[u8] {
    memchr::memmem::find(key, SLICE).map_or(key, |at| &key[..at])
}

/// The host in a key, with its port.
pub(super) fn authority_of(key: &[u8]) -> Option<&str> {
    let url = std::str::from_utf8(url_of(key)).ok()?;
    url.split_once("://")?.1.split('/').next()
}

/// The URL at the beginning of a key.
pub(super) fn url_of(key: &[u8]) -> &[u8] {
    let end = memchr::memchr(PART[0], key).unwrap_or(key.len());
    &key[..end]
}

/// No URL and no field contains it.
const PART: &[u8] = b"\n";
const SEARCH: &[u8] = b"?";
const SEARCH_PART: &[u8] = b"\n?=";
const VARIANT: &[u8] = b"\n\0";
const SLICE: &[u8] = b"\n\x01";
const FORM: &[u8] = b"\n\x02";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_variant_is_found_again() {
        let mut key = b"https://example.org/a?b".to_vec();
        assert_eq!(url_of(&key), b"https://example.org/a?b");
        add_part(&mut key, b"x-country", b"de");
        assert_eq!(url_of(&key), b"https://example.org/a?b");
        add_variant(&mut key, b"accept-encoding:br");
        add_upstream(&mut key, "app");
    }

    #[test]
    fn a_search_replaces_the_query_alone() {
        let mut fields = http::HeaderMap::new();
        fields.insert("no-vary-search", http::HeaderValue::from_static("params=(\"utm\")"));
        let variance = SearchVariance::of(&fields).unwrap();
        let key = |url: &str, host: &str| {
            let mut key = url.as_bytes().to_vec();
            add_upstream(&mut key, "app");
            add_part(&mut key, b"x-host", host.as_bytes());
            by_search(&key, &variance)
        };
        let of_page = key("https://a.test/p?utm=1&x=2", "?");
        assert_eq!(of_page, key("https://a.test/p?x=2", "?"));
        for (url, host) in [
            ("https://a.test/p?x=3", "?"),
            ("https://a.test/p?x=2", "other"),
            ("https://b.test/p?x=2", "?"),
            ("http://a.test/p?x=2", "?"),
            ("https://a.test/q?x=2", "?"),
        ] {
            assert_ne!(of_page, key(url, host), "{url}");
        }
        assert!(
            is_by_search(&of_page)
                && !is_by_search(b"https://a.test/p?\n@=app")
                && !is_by_search(b"https://a.test/p?x")
        );
        assert_eq!(url_of(&of_page), b"https://a.test/p?");
    }

    #[test]
    fn the_variant_of_a_key_is_shown_without_its_other_parts() {
        let mut key = b"https://example.org/".to_vec();
        add_part(&mut key, b"@", b"app");
        let of_url = key.clone();
        assert!(without_variant(&key).is_none() && variant_in_words(&key).is_empty());
        add_variant(&mut key, b"accept-encoding:br, gzip\nx-lang\n");
        assert_eq!(without_variant(&key), Some(&of_url[..]));
        assert_eq!(variant_in_words(&key), "accept-encoding:br, gzip; x-lang");
    }

    #[test]
    fn another_salt_gives_other_hashes() {
        let hash = |salt: u8| KeyHasher::new(&[salt; 16]).hash(b"https://example.org/");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
