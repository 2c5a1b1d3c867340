//! The key of a stored response: the parts of a request that select it.

use std::hash::Hasher;

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

    pub(super) fn in_front(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn in_store(&self) -> &[u8] {
        &self.0[NUMBER..]
    }

    pub(super) fn add_variant(&mut self, variant: &[u8]) {
        add_variant(&mut self.0, variant);
    }

    /// Cuts off the variant. `of_url`: bytes of the key in the store without it.
    pub(super) fn without_variant(&mut self, of_url: usize) {
        self.0.truncate(NUMBER + of_url);
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
