//! Targeted Cache-Control (RFC 9213): CDN-Cache-Control and the field of this server, then Surrogate-Control.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::directives::{Argument, ResponseDirectives, tokens};
use crate::surrogate::surrogate;

/// Targeted fields. The first valid one replaces Cache-Control and Expires (RFC 9213 §2.2).
const TARGETS: [HeaderName; 2] =
    [HeaderName::from_static("sealion-cache-control"), HeaderName::from_static("cdn-cache-control")];

/// The directives of the first targeted field that is valid and not empty.
pub(crate) fn targeted(fields: &HeaderMap) -> Option<ResponseDirectives> {
    TARGETS.iter().find_map(|name| directives(fields, name)).or_else(|| surrogate(fields))
}

/// A field that cannot be parsed counts as absent (RFC 9213 §2.1), unless one of its words forbids storing.
fn directives(fields: &HeaderMap, name: &HeaderName) -> Option<ResponseDirectives> {
    let lines: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return None;
    }
    let mut directives = ResponseDirectives::default();
    let text = lines.join(&b", "[..]);
    let Ok(dictionary) = Parser::new(&text).parse::<Dictionary>() else {
        tokens(&text).for_each(|token| directives.prohibit(token));
        return directives.forbids().then_some(directives);
    };
    if dictionary.is_empty() {
        return None;
    }
    for (directive, value) in &dictionary {
        let parameters = match value {
            ListEntry::Item(item) => &item.params,
            ListEntry::InnerList(list) => &list.params,
        };
        // A semicolon was written instead of a comma.
        for (name, _) in parameters.iter().filter(|(_, value)| **value != BareItem::Boolean(false)) {
            directives.prohibit(name.as_str().as_bytes());
        }
        let argument = match value {
            ListEntry::Item(item) => match &item.bare_item {
                BareItem::Boolean(false) => continue,
                BareItem::Boolean(true) => Argument::Absent,
                BareItem::Integer(value) => Argument::Integer((*value).into()),
                // Field names: a number is an integer, not a string.
                BareItem::String(text) if text.as_str().parse::<u64>().is_err() => {
                    Argument::Quoted(text.as_str().as_bytes())
                }
                BareItem::Token(text) => Argument::Token(text.as_str().as_bytes()),
                _ => Argument::Malformed,
            },
            ListEntry::InnerList(_) => Argument::Malformed,
        };
        directives.add(directive.as_str().as_bytes(), argument);
    }
    Some(directives)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::Scope;

    fn found(lines: &[(&'static str, &'static str)]) -> Option<ResponseDirectives> {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, HeaderValue::from_static(value));
        }
        targeted(&fields)
    }

    #[test]
    fn the_field_is_a_dictionary() {
        const CDN: &str = "cdn-cache-control";
        let age = |line| found(&[(CDN, line)]).map(|directives| directives.max_age);
        for (line, expected) in [
            ("max-age=60", Some(Some(60))),
            ("max-age=60;x=y, foo", Some(Some(60))),
            ("max-age=99999999999", Some(Some(1 << 31))),
            ("no-store", Some(None)),
            // The last of two members with one name (RFC 8941 §3.2).
            ("max-age=60, max-age=5", Some(Some(5))),
            // A value of another type: the lifetime is 0.
            ("max-age=-60", Some(Some(0))),
            ("max-age=60.5", Some(Some(0))),
            ("max-age=\"60\"", Some(Some(0))),
            ("max-age=(60)", Some(Some(0))),
            ("max-age", Some(Some(0))),
            // Not a dictionary, or empty: counts as absent.
            ("", None),
            ("MAX-AGE=60", None),
            ("max-age=60,", None),
            ("max-age =60", None),
            ("max-age=", None),
        ] {
            assert_eq!(age(line), expected, "{line}");
        }
        assert_eq!(
            found(&[(CDN, "max-age=60"), (CDN, "no-store")]).map(|all| (all.max_age, all.no_store)),
            Some((Some(60), true))
        );
        let all = found(&[(CDN, "no-store=?0, public, private=\"a\", must-revalidate=?1")]).unwrap();
        assert!(!all.no_store && all.public && all.must_revalidate);
        assert_eq!(all.private, Scope::Fields(vec![HeaderName::from_static("a")]));
    }

    #[test]
    fn a_field_that_forbids_storing_does_so_although_it_cannot_be_read() {
        for (line, expected) in [
            ("public; no-store; max-age=60", Some((true, false))),
            ("max-age=60;private", Some((false, true))),
            ("max-age=60;no-store=?0", Some((false, false))),
            ("No-Store", Some((true, false))),
            ("max-age=60, private,", Some((false, true))),
            ("x=\"no-store", Some((true, false))),
            ("max-age=60, no-store-remote,", None),
            ("max-age=60, no-cache,", None),
        ] {
            let found = found(&[("cdn-cache-control", line)]);
            assert_eq!(found.map(|all| (all.no_store, all.private == Scope::Response)), expected, "{line}");
        }
    }

    #[test]
    fn the_most_specific_valid_field_counts() {
        const OWN: (&str, &str) = ("sealion-cache-control", "max-age=1");
        const CDN: (&str, &str) = ("cdn-cache-control", "max-age=2");
        let age = |lines: &[_]| found(lines).and_then(|directives| directives.max_age);
        assert_eq!(age(&[CDN, OWN]), Some(1));
        assert_eq!(age(&[CDN, (OWN.0, "max-age=&")]), Some(2));
        assert_eq!(age(&[CDN, (OWN.0, "")]), Some(2));
        assert_eq!(age(&[("surrogate-control", "max-age=3"), CDN]), Some(2));
        assert_eq!(age(&[("surrogate-control", "max-age=3"), (CDN.0, "")]), Some(3));
        assert_eq!(found(&[("cache-control", "max-age=3")]), None);
    }
}
