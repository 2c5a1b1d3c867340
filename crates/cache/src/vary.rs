//! Vary (RFC 9110 §12.5.5), and what makes two requests equal for it (RFC 9111 §4.1).

use http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::accept_encoding;

use crate::directives::closing_quote;
use crate::policy::Policy;

/// The fields of requests that select a response: sorted, none twice. `None`: no other request matches, because Vary has `*` or cannot be
/// read.
pub fn vary(fields: &HeaderMap, policy: &Policy) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    if policy.ignores(&VARY) {
        return Some(names);
    }
    let lines = fields.get_all(VARY).iter().map(HeaderValue::as_bytes);
    let members = lines.flat_map(|line| line.split(|octet| *octet == b',')).map(<[u8]>::trim_ascii);
    for member in members.filter(|member| !member.is_empty()) {
        // `*` is a token too.
        names.push(HeaderName::from_bytes(member).ok().filter(|name| name != "*")?);
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    Some(names)
}

/// Octets that are equal for two requests that a response with this Vary fits alike. `value_lines` gives the lines of a field of the request.
///
/// Lines are combined and spaces around commas removed, as RFC 9111 §4.1 allows. Of Accept-Encoding the set of acceptable codings counts, in
/// any order and with any weight; Accept-Language is compared without case. The order of languages stays: servers prefer the first of several
/// with one weight.
pub fn variant_key<'a>(names: &[HeaderName], mut value_lines: impl FnMut(&HeaderName) -> Vec<&'a [u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    for name in names {
        let lines = value_lines(name);
        key.extend_from_slice(name.as_str().as_bytes());
        // An absent field matches an absent one only.
        if !lines.is_empty() {
            key.push(b':');
            let start = key.len();
            if name == ACCEPT_ENCODING {
                add_codings(&mut key, &lines);
            } else {
                add_value(&mut key, &lines);
            }
            if name == ACCEPT_LANGUAGE {
                key[start..].make_ascii_lowercase();
            }
        }
        // No value has a line feed.
        key.push(b'\n');
    }
    key
}

/// Adds lines as one list, without white space around its commas. Quoted strings stay as they are.
fn add_value(key: &mut Vec<u8>, lines: &[&[u8]]) {
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            key.push(b',');
        }
        let mut rest = line.trim_ascii();
        let start = key.len();
        while let [octet, behind @ ..] = rest {
            rest = behind;
            match octet {
                b',' => {
                    while key.len() > start && matches!(key.last(), Some(b' ' | b'\t')) {
                        key.pop();
                    }
                    key.push(b',');
                    rest = rest.trim_ascii_start();
                }
                b'"' => {
                    key.push(b'"');
                    let quoted = closing_quote(rest).map_or(rest.len(), |end| end + 1);
                    key.extend_from_slice(&rest[..quoted]);
                    rest = &rest[quoted..];
                }
                other => key.push(*other),
            }
        }
    }
}

/// Adds the acceptable codings in alphabetical order. All are kept, known or not: a server may choose any of them. So is what cannot be
/// read, because a server may read it in its own way.
fn add_codings(key: &mut Vec<u8>, lines: &[&[u8]]) {
    let mut codings: Vec<Vec<u8>> = Vec::new();
    let mut refused: Vec<Vec<u8>> = Vec::new();
    let members = lines.iter().flat_map(|line| line.split(|octet| *octet == b',')).map(<[u8]>::trim_ascii);
    for member in members.filter(|member| !member.is_empty()) {
        match accept_encoding::weighted(member) {
            Some((coding, weight)) => {
                let coding = match coding.to_ascii_lowercase() {
                    // An alias (RFC 9110 §8.4.1.3).
                    alias if alias == b"x-gzip" => b"gzip".to_vec(),
                    coding => coding,
                };
                if weight > 0 { codings.push(coding) } else { refused.push(coding) }
            }
            None => codings.push(member.to_ascii_lowercase()),
        }
    }
    codings.retain(|coding| !refused.contains(coding));
    let is_any = codings.iter().any(|coding| coding == b"*");
    // `identity` is acceptable unless it is refused, and only then is it worth a word. What `*` refuses is not listed anyway.
    let refuses_identity = refused.iter().any(|coding| coding == b"identity")
        || refused.iter().any(|coding| coding == b"*") && !codings.iter().any(|coding| coding == b"identity");
    codings.retain(|coding| coding != b"identity");
    codings.sort_unstable();
    codings.dedup();
    for coding in &codings {
        key.extend_from_slice(coding);
        key.push(b',');
    }
    if is_any {
        refused.sort_unstable();
        refused.dedup();
        refused.iter().for_each(|coding| key.extend([b"!", &coding[..], b","].concat()));
    } else if refuses_identity {
        key.extend_from_slice(b"!identity,");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn names_are_sorted_and_none_is_there_twice() {
        for (lines, expected) in [
            (&[][..], Some("")),
            (&["vary: "], Some("")),
            (&["vary: Foo"], Some("foo")),
            (&["vary: Foo, bar", "vary: FOO,,accept"], Some("accept foo bar")),
            (&["vary: *"], None),
            (&["vary: *, *"], None),
            (&["vary: , *"], None),
            (&["vary: ", "vary: *"], None),
            (&["vary: foo, *"], None),
            (&["vary: *, foo"], None),
            (&["vary: foo bar"], None),
            (&["vary: \"foo\""], None),
        ] {
            let names = vary(&fields(lines), &Policy::default());
            let expected = expected.map(|names| {
                let mut names: Vec<_> = names.split_whitespace().collect();
                names.sort_unstable();
                names
            });
            let names = names.as_ref().map(|names| names.iter().map(HeaderName::as_str).collect::<Vec<_>>());
            assert_eq!(names, expected, "{lines:?}");
        }
        let ignoring = Policy { ignore_response: vec![VARY], ..Policy::default() };
        assert_eq!(vary(&fields(&["vary: *"]), &ignoring), Some(Vec::new()));
    }

    fn key(name: &'static str, lines: &[&str]) -> String {
        let lines = lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>();
        String::from_utf8(variant_key(&[HeaderName::from_static(name)], |_| lines.clone())).unwrap()
    }

    #[test]
    fn lines_and_white_space_make_no_difference() {
        for (lines, expected) in [
            (&[][..], "foo\n"),
            (&[""], "foo:\n"),
            (&["1"], "foo:1\n"),
            (&[" 1, 2 "], "foo:1,2\n"),
            (&["1,2"], "foo:1,2\n"),
            (&["1 \t,\t 2"], "foo:1,2\n"),
            (&["1", "2"], "foo:1,2\n"),
            (&["1 ", "", " 2"], "foo:1,,2\n"),
            (&["a b"], "foo:a b\n"),
            (&["A"], "foo:A\n"),
            (&["\"1 , 2\" , 3"], "foo:\"1 , 2\",3\n"),
            (&["\"1 \\\" , 2\" , 3"], "foo:\"1 \\\" , 2\",3\n"),
            (&["\"1 , 2"], "foo:\"1 , 2\n"),
            (&["a", " , b"], "foo:a,,b\n"),
        ] {
            assert_eq!(key("foo", lines), expected, "{lines:?}");
        }
        assert_eq!(key("accept-language", &["EN , de;Q=0.5"]), "accept-language:en,de;q=0.5\n");
        assert_ne!(key("accept-language", &["en, de"]), key("accept-language", &["de, en"]));
        let names = ["accept", "foo"].map(HeaderName::from_static);
        let both = variant_key(&names, |name| if name == "foo" { vec![b"1"] } else { Vec::new() });
        assert_eq!(both, b"accept\nfoo:1\n");
    }

    #[test]
    fn requests_with_the_same_acceptable_codings_are_alike() {
        for (lines, expected) in [
            (&[][..], ""),
            (&[""], ":"),
            (&["identity"], ":"),
            (&["identity;q=0.5"], ":"),
            (&["gzip;q=0"], ":"),
            (&["gzip, deflate, br, zstd"], ":br,deflate,gzip,zstd,"),
            (&["zstd;q=0.1,BR , deflate", "x-gzip;q=1.0"], ":br,deflate,gzip,zstd,"),
            (&["br;q=0, gzip"], ":gzip,"),
            (&["br, br;q=0, gzip"], ":gzip,"),
            (&["gzip, *;q=0"], ":gzip,!identity,"),
            (&["gzip, identity, *;q=0"], ":gzip,"),
            (&["gzip, identity;q=0"], ":gzip,!identity,"),
            (&["*"], ":*,"),
            (&["gzip, *"], ":*,gzip,"),
            (&["*, br;q=0, identity;q=0"], ":*,!br,!identity,"),
            // A server may know codings that are unknown here, and read what is malformed.
            (&["gzip, dcz"], ":dcz,gzip,"),
            (&["gzip;q=abc"], ":gzip;q=abc,"),
        ] {
            assert_eq!(key("accept-encoding", lines), format!("accept-encoding{expected}\n"), "{lines:?}");
        }
    }
}
