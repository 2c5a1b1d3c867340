//! The fields of a response on their way to the client.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use sealion_http::{ExtraFields, Fields, content_length};

use super::head::{is_hop_by_hop, named_by_connection};
use super::lazy_fields::{LazyFields, Own, map_of_lines};

/// The fields of a response.
pub(crate) type AnswerFields = LazyFields<Lines>;

/// The fields as they came.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    /// Validated lines, each with its end.
    pub(super) octets: Bytes,
    /// The fields among them that the client gets.
    pub(super) passed_on: ExtraFields,
    /// The value of Content-Length.
    pub(super) length: Option<u64>,
}

impl Own for Lines {
    fn to_map(&self) -> HeaderMap {
        map_of_lines(&self.octets)
    }
}

impl AnswerFields {
    /// The value of a field that clients get. `name`: in lower case.
    fn first(&self, name: &str) -> Option<&[u8]> {
        match self.own() {
            Some(lines) => {
                let mut all = lines.passed_on.iter();
                all.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
            }
            None => self.get(name).map(HeaderValue::as_bytes),
        }
    }

    /// Whether the application wishes that clients get its answer as it comes: X-Accel-Buffering.
    pub(crate) fn refuses_buffering(&self) -> bool {
        self.first("x-accel-buffering").is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
    }

    /// The length of the content that the answer announces.
    pub(crate) fn content_length(&self) -> Option<u64> {
        match self.own() {
            Some(lines) => lines.length,
            None => content_length(self.get(header::CONTENT_LENGTH)?.as_bytes()),
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
    use http::HeaderName;

    use super::*;

    #[test]
    fn an_application_refuses_buffering_whether_its_fields_are_lines_or_a_map() {
        for (value, refuses) in [("no", true), ("No", true), ("yes", false), ("", false)] {
            let mut passed_on = ExtraFields::default();
            passed_on.add("X-Accel-Buffering", value);
            let lines = Lines { octets: Bytes::new(), passed_on, length: None };
            let map = HeaderMap::from_iter([(
                HeaderName::from_static("x-accel-buffering"),
                HeaderValue::from_str(value).expect("a value"),
            )]);
            for fields in [AnswerFields::new(lines), map.into()] {
                assert_eq!(fields.refuses_buffering(), refuses, "{value}");
            }
        }
        assert!(!AnswerFields::from(HeaderMap::new()).refuses_buffering());
    }

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
        fields.map_mut().remove("empty");
        fields.map_mut().insert("content-length", 4.into());
        assert_eq!(fields.content_length(), Some(4));
        let expected = b"server: x\r\nx-a: caf\xe9\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n";
        assert_eq!(fields.into_passed_on().extra.lines(), expected);
        assert_eq!(
            AnswerFields::from(HeaderMap::new()).into_passed_on(),
            Fields { forwarded: true, ..Fields::default() }
        );
    }
}
