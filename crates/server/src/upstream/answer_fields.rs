//! The fields of an answer on their way to the client.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sealion_http::{ExtraFields, FieldSection, Fields};

use super::head::{is_hop_by_hop, named_by_connection};
use super::lazy_fields::{LazyFields, Own};

/// The fields of an answer.
pub(crate) type AnswerFields = LazyFields<Lines>;

/// The fields as they came.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    /// Validated lines, each with its end.
    pub(super) octets: Bytes,
    /// Of those, what the client gets.
    pub(super) passed_on: ExtraFields,
    /// The value of Content-Length.
    pub(super) length: Option<u64>,
}

impl Own for Lines {
    fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(16);
        for (name, value) in FieldSection::from_lines(&self.octets).iter() {
            let value = HeaderValue::from_maybe_shared(self.octets.slice_ref(value));
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
                map.append(name, value);
            }
        }
        map
    }
}

impl AnswerFields {
    /// The length of the content that the answer announces.
    pub(crate) fn content_length(&self) -> Option<u64> {
        match self.own() {
            Some(lines) => lines.length,
            None => self.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok(),
        }
    }

    /// Bytes of the lines as they came; 0: they are not kept.
    pub(super) fn octets(&self) -> usize {
        self.own().map_or(0, |lines| lines.octets.len())
    }

    /// The fields as the client gets them.
    pub(crate) fn into_passed_on(self) -> Fields {
        match self.into_own() {
            Ok(lines) => Fields { forwarded: true, extra: lines.passed_on, ..Fields::default() },
            Err(map) => passed_on(&map),
        }
    }
}

/// The fields of a map as the client gets them.
pub(crate) fn passed_on(fields: &HeaderMap) -> Fields {
    let named = named_by_connection(fields.get_all(header::CONNECTION).iter().map(HeaderValue::as_bytes));
    let octets = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let mut extra = ExtraFields::with_capacity(octets);
    for (name, value) in fields {
        let name = name.as_str();
        if !is_hop_by_hop(name) && !named.has(name) {
            extra.add_octets(name, value.as_bytes());
        }
    }
    Fields { forwarded: true, extra, ..Fields::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_whatever_the_lines_were() {
        let octets =
            Bytes::from_static(b"Server: x\r\nX-A:  caf\xe9 \r\nset-cookie: a=1\nSet-Cookie: b=2\r\nEmpty:\r\n");
        let mut one = ExtraFields::default();
        one.add("server", "x");
        let lines = Lines { octets, passed_on: one.clone(), length: Some(3) };
        let mut fields = AnswerFields::new(lines);
        assert_eq!(fields.clone().into_passed_on().extra, one);
        assert_eq!((fields.content_length(), fields.len(), fields["x-a"].as_bytes()), (Some(3), 5, &b"caf\xe9"[..]));
        fields.remove("empty");
        fields.insert("content-length", 4.into());
        assert_eq!(fields.content_length(), Some(4));
        let expected = b"server: x\r\nx-a: caf\xe9\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n";
        assert_eq!(fields.into_passed_on().extra.lines(), expected);
        assert_eq!(
            AnswerFields::from(HeaderMap::new()).into_passed_on(),
            Fields { forwarded: true, ..Fields::default() }
        );
    }
}
