//! The method QUERY (RFC 10008): its content belongs to the key.

use std::fmt::Write;

use aws_lc_rs::digest::{Context, SHA256};
use sealion_http::{FieldSection, Request};

use super::rule::CacheRule;
use crate::upstream::RequestContent;

const QUERY: &str = "QUERY";

impl CacheRule {
    /// Whether responses to the request's method are stored by its content.
    pub(crate) fn stores_method(&self, request: &Request<'_>) -> bool {
        self.query_content > 0 && request.method.as_str() == QUERY
    }

    /// Whether the response to a request with this content may be stored.
    pub(crate) fn stores_query(&self, request: &Request<'_>, content: &RequestContent) -> bool {
        self.stores_method(request) && content.length().is_some_and(|length| length <= self.query_content)
    }
}

/// The content of a request as keys have it: a digest of it and of the fields that say what it means.
pub(crate) fn content_in_key(fields: FieldSection<'_>, content: &[u8]) -> String {
    let mut digest = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        // With its length, no part goes on as another.
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    for (name, value) in fields.iter() {
        let name = name.to_ascii_lowercase();
        // Its type, coding and language, and the URL that it is relative to (RFC 9110 §8).
        if name.starts_with(b"content-") && name != b"content-length" {
            add(&name);
            add(value);
        }
    }
    add(b"");
    add(content);
    digest.finish().as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_differ_in_bytes_type_or_coding_have_different_keys() {
        let key = |fields: &str, content: &str| {
            content_in_key(FieldSection::from_lines(fields.as_bytes()), content.as_bytes())
        };
        let json = "Content-Type: application/json\r\n";
        let keys = [
            key(json, "a"),
            key(json, "b"),
            key(json, ""),
            key("", "a"),
            key("Content-Type: application/sql\r\n", "a"),
            key("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "a"),
            key("Content-Type: application/json\r\nContent-Location: /b\r\n", "a"),
        ];
        let mut different = keys.to_vec();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), keys.len(), "{keys:?}");
        assert_eq!(key("content-type: application/json\r\nContent-Length: 1\r\nAccept: a\r\n", "a"), keys[0]);
    }
}
