//! Tags by which an origin groups responses for purges: Cache-Tag, Surrogate-Key and xkey.

use http::{HeaderMap, HeaderValue};

/// The tags of a response, none twice. Case matters.
pub fn tags(fields: &HeaderMap) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for (name, separators) in [("cache-tag", &b","[..]), ("surrogate-key", b" \t"), ("xkey", b" \t,")] {
        let lines = fields.get_all(name).iter().map(HeaderValue::as_bytes);
        for tag in lines.flat_map(|line| line.split(|byte| separators.contains(byte))) {
            let tag = String::from_utf8_lossy(tag.trim_ascii());
            if !tag.is_empty() && !tags.iter().any(|other| **other == *tag) {
                tags.push(tag.into_owned());
            }
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn each_field_has_its_separator() {
        let response =
            fields(&["cache-tag: a, b c,,A", "cache-tag: d", "surrogate-key: e  f,g\te", "xkey: h i, j", "xkey: a"]);
        assert_eq!(tags(&response), ["a", "b c", "A", "d", "e", "f,g", "h", "i", "j"]);
        assert!(tags(&HeaderMap::new()).is_empty());
    }
}
