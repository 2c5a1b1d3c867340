//! Vary (RFC 9110 §12.5.5), and the equality of requests under it (RFC 9111 §4.1).

use http::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::accept_encoding;

use crate::directives::closing_quote;
use crate::policy::Policy;

/// The request fields that select a response, sorted and without duplicates. `None`: no other request matches, because
/// Vary has `*` or is malformed.
pub fn vary(fields: &HeaderMap, policy: &Policy) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    if policy.ignores(&VARY) {
        return Some(names);
    }
    let lines = fields.get_all(VARY).iter().map(HeaderValue::as_bytes);
    let members = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    for member in members.filter(|member| !member.is_empty()) {
        // `*` is a token too.
        names.push(HeaderName::from_bytes(member).ok().filter(|name| name != "*")?);
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    Some(names)
}

/// A key that is equal for two requests if a response with this Vary matches both. `value_lines` returns the lines of a
/// request field.
///
/// Fields are compared in the form that [`make_canonical`] sends to the origin, so a response selected by one form of a
/// field never reaches a request with another form.
pub fn variant_key<'a>(names: &[HeaderName], mut value_lines: impl FnMut(&HeaderName) -> Vec<&'a [u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    for name in names {
        let lines = value_lines(name);
        key.extend_from_slice(name.as_str().as_bytes());
        // An absent field only matches an absent field.
        if !lines.is_empty() {
            key.push(b':');
            add_canonical(&mut key, name, &lines);
        }
        // No value has a line feed.
        key.push(b'\n');
    }
    key
}

/// Rewrites the request fields to the form shared by all requests that one response may serve. Several lines of a field
/// become one (RFC 9110 §5.3), and spaces around the commas of known lists make no difference. Accept-Encoding is
/// reduced to [`AcceptedCodings`], and Accept-Language is in lower case. The order of languages stays, because servers
/// prefer the first of several with equal weight.
pub fn make_canonical(fields: &mut HeaderMap) {
    let names: Vec<_> = fields.keys().cloned().collect();
    for name in names {
        let lines: Vec<_> = fields.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        let mut value = Vec::new();
        add_canonical(&mut value, &name, &lines);
        let is_canonical = lines.len() == 1 && lines[0] == value;
        if !is_canonical && let Ok(value) = HeaderValue::from_bytes(&value) {
            fields.insert(name, value);
        }
    }
}

fn add_canonical(out: &mut Vec<u8>, name: &HeaderName, lines: &[&[u8]]) {
    let start = out.len();
    match name {
        name if name == ACCEPT_ENCODING => AcceptedCodings::of(lines.iter().copied()).write(out),
        name if [ACCEPT, ACCEPT_CHARSET, ACCEPT_LANGUAGE].contains(name) => add_list(out, lines),
        // RFC 6265bis §5.8.3, RFC 9113 §8.2.3.
        name if name == COOKIE => out.extend_from_slice(&lines.join(&b"; "[..])),
        _ => out.extend_from_slice(&lines.join(&b", "[..])),
    }
    if name == ACCEPT_LANGUAGE {
        out[start..].make_ascii_lowercase();
    }
}

/// Adds lines as one list, with one space after each comma. Quoted strings stay unchanged.
fn add_list(key: &mut Vec<u8>, lines: &[&[u8]]) {
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            key.extend_from_slice(b", ");
        }
        let mut rest = line.trim_ascii();
        let start = key.len();
        while let [byte, behind @ ..] = rest {
            rest = behind;
            match byte {
                b',' => {
                    while key.len() > start && matches!(key.last(), Some(b' ' | b'\t')) {
                        key.pop();
                    }
                    key.extend_from_slice(b", ");
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

/// The content codings that a request accepts, among the codings that the cache distinguishes: br, gzip, zstd, and the
/// dictionary codings (RFC 9842).
///
/// Weights, order and other codings make no difference, so that few groups of requests remain. The origin gets the
/// field in this form, so its choice is right for the whole group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedCodings {
    /// A bit for each of [`CODINGS`].
    accepted: u8,
    refuses_identity: bool,
}

impl AcceptedCodings {
    /// Parses the lines of Accept-Encoding. A coding that is listed twice is rejected if one weight is 0; malformed
    /// members are ignored.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut accepted, mut refused) = (0, 0);
        let (mut any, mut identity) = (None, None);
        for member in lines.into_iter().flat_map(|line| line.split(|byte| *byte == b',')) {
            let Some((coding, weight)) = accept_encoding::weighted(member.trim_ascii()) else { continue };
            let is_accepted = weight > 0;
            let before = match coding {
                b"*" => &mut any,
                coding if coding.eq_ignore_ascii_case(b"identity") => &mut identity,
                coding => {
                    *(if is_accepted { &mut accepted } else { &mut refused }) |= bit(coding);
                    continue;
                }
            };
            *before = Some(before.unwrap_or(true) && is_accepted);
        }
        if any == Some(true) {
            accepted |= WITHOUT_DICTIONARY.into_iter().fold(0, |bits, coding| bits | bit(coding));
        }
        let refuses_identity = !identity.or(any).unwrap_or(true);
        AcceptedCodings { accepted: accepted & !refused, refuses_identity }
    }

    /// Appends the value of Accept-Encoding.
    pub fn write(self, out: &mut Vec<u8>) {
        let mut comma: &[u8] = b"";
        for (at, coding) in CODINGS.iter().enumerate() {
            if self.accepted & 1 << at != 0 {
                out.extend_from_slice(comma);
                out.extend_from_slice(coding);
                comma = b", ";
            }
        }
        if self.refuses_identity {
            out.extend_from_slice(comma);
            out.extend_from_slice(b"identity;q=0");
        } else if self.accepted == 0 {
            out.extend_from_slice(b"identity");
        }
    }
}

/// The bit of a coding, or 0.
fn bit(coding: &[u8]) -> u8 {
    // An alias (RFC 9110 §8.4.1.3).
    let coding = if coding.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { coding };
    CODINGS.iter().position(|own| coding.eq_ignore_ascii_case(own)).map_or(0, |at| 1 << at)
}

const CODINGS: [&[u8]; 5] = [b"br", b"dcb", b"dcz", b"gzip", b"zstd"];
/// The codings that `*` matches. A dictionary needs another request field.
const WITHOUT_DICTIONARY: [&[u8]; 3] = [b"br", b"gzip", b"zstd"];

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
    fn lines_and_white_space_of_lists_make_no_difference() {
        for (lines, expected) in [
            (&[][..], "accept\n"),
            (&[""], "accept:\n"),
            (&["1"], "accept:1\n"),
            (&[" 1, 2 "], "accept:1, 2\n"),
            (&["1,2"], "accept:1, 2\n"),
            (&["1 \t,\t 2"], "accept:1, 2\n"),
            (&["1", "2"], "accept:1, 2\n"),
            (&["a b"], "accept:a b\n"),
            (&["A"], "accept:A\n"),
            (&["\"1 , 2\" , 3"], "accept:\"1 , 2\", 3\n"),
            (&["\"1 \\\" , 2\" , 3"], "accept:\"1 \\\" , 2\", 3\n"),
            (&["\"1 , 2"], "accept:\"1 , 2\n"),
        ] {
            assert_eq!(key("accept", lines), expected, "{lines:?}");
        }
        assert_eq!(key("accept-language", &["EN , de;Q=0.5"]), "accept-language:en, de;q=0.5\n");
        assert_ne!(key("accept-language", &["en, de"]), key("accept-language", &["de, en"]));
        let names = ["accept", "foo"].map(HeaderName::from_static);
        let both = variant_key(&names, |name| if name == "foo" { vec![b"1"] } else { Vec::new() });
        assert_eq!(both, b"accept\nfoo:1\n");
    }

    #[test]
    fn the_text_of_other_fields_counts_as_it_is() {
        assert_eq!(key("foo", &["1", "2"]), key("foo", &["1, 2"]));
        assert_ne!(key("foo", &["1,2"]), key("foo", &["1, 2"]));
        assert_ne!(key("user-agent", &["(KHTML,like Gecko)"]), key("user-agent", &["(KHTML, like Gecko)"]));
        assert_eq!(key("cookie", &["a=1", "b=2"]), key("cookie", &["a=1; b=2"]));
        assert_ne!(key("cookie", &["a=1", "b=2"]), key("cookie", &["a=1, b=2"]));
    }

    /// Requests with the same key reach the origin in the same form.
    #[test]
    fn what_is_compared_is_what_the_origin_gets() {
        for (lines, expected) in [
            (&["accept-language: DE"][..], "accept-language: de"),
            (&["accept-language: en ,  de"], "accept-language: en, de"),
            (&["accept-language: en", "accept-language: de"], "accept-language: en, de"),
            (&["accept: a;q=1,b"], "accept: a;q=1, b"),
            (&["accept-encoding: x, GZIP"], "accept-encoding: gzip"),
            (&["cookie: a=1", "cookie: b=2"], "cookie: a=1; b=2"),
            (&["foo: 1,  2"], "foo: 1,  2"),
            (&["foo: 1", "foo: 2"], "foo: 1, 2"),
        ] {
            let mut canonical = fields(lines);
            make_canonical(&mut canonical);
            assert_eq!(canonical, fields(&[expected]), "{lines:?}");
            let name = canonical.keys().next().unwrap().clone();
            let before = fields(lines);
            let key = |fields: &HeaderMap| {
                variant_key(std::slice::from_ref(&name), |name| {
                    fields.get_all(name).iter().map(HeaderValue::as_bytes).collect()
                })
            };
            assert_eq!(key(&before), key(&canonical), "{lines:?}");
        }
    }

    #[test]
    fn requests_with_the_same_acceptable_codings_are_alike() {
        for (lines, expected) in [
            (&[][..], ""),
            (&[""], ":identity"),
            (&["identity"], ":identity"),
            (&["identity;q=0.5"], ":identity"),
            (&["gzip;q=0"], ":identity"),
            (&["gzip, deflate, br, zstd"], ":br, gzip, zstd"),
            (&["zstd;q=0.1,BR , deflate", "x-gzip;q=1.0"], ":br, gzip, zstd"),
            (&["br;q=0, gzip"], ":gzip"),
            (&["br, br;q=0, gzip"], ":gzip"),
            (&["br;q=0, br, gzip"], ":gzip"),
            (&["gzip, *;q=0"], ":gzip, identity;q=0"),
            (&["gzip, identity, *;q=0"], ":gzip"),
            (&["gzip, identity;q=0"], ":gzip, identity;q=0"),
            (&["identity;q=0, identity"], ":identity;q=0"),
            (&["*"], ":br, gzip, zstd"),
            (&["gzip, *"], ":br, gzip, zstd"),
            (&["*, *;q=0"], ":identity;q=0"),
            (&["*, br;q=0, identity;q=0"], ":gzip, zstd, identity;q=0"),
            (&["dcz, dcb, gzip"], ":dcb, dcz, gzip"),
            // The origin does not get these.
            (&["gzip, x-other"], ":gzip"),
            (&["gzip;q=abc"], ":identity"),
        ] {
            assert_eq!(key("accept-encoding", lines), format!("accept-encoding{expected}\n"), "{lines:?}");
        }
    }
}
