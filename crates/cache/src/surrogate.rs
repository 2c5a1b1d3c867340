//! Surrogate-Control, by which origins addressed caches in front of them before RFC 9213
//! (<https://www.w3.org/TR/edge-arch/>, §2.2).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::directives::{Argument, Members, ResponseDirectives, closing_quote, tokens};

/// The directives of Surrogate-Control, if it states whether or how long to store a response. Other directives, such as
/// ESI's `content`, leave that to Cache-Control.
pub(crate) fn surrogate(fields: &HeaderMap) -> Option<ResponseDirectives> {
    let mut directives = ResponseDirectives::default();
    let lines = fields.get_all(HeaderName::from_static("surrogate-control")).iter().map(HeaderValue::as_bytes);
    for member in lines.flat_map(members) {
        let end = member.iter().position(|byte| *byte == b';').unwrap_or(member.len());
        let target = member[end..].strip_prefix(b";").map(<[u8]>::trim_ascii);
        let is_no_store = |token: &[u8]| token.eq_ignore_ascii_case(NO_STORE);
        if let Some(target) = target.filter(|target| !target.eq_ignore_ascii_case(TARGET)) {
            // A semicolon was written instead of a comma.
            directives.no_store |= tokens(target).any(is_no_store);
            continue;
        }
        for directive in Members::of(&member[..end]) {
            if is_no_store(directive.name) || directive.tokens_of_malformed().any(is_no_store) {
                directives.no_store = true;
            } else if directive.name.eq_ignore_ascii_case(b"max-age") {
                add_max_age(&mut directives, directive.argument);
            }
        }
    }
    (directives.no_store || directives.max_age.is_some()).then_some(directives)
}

const NO_STORE: &[u8] = b"no-store";

/// The target name of this cache.
const TARGET: &[u8] = b"sealion";

/// `max-age=60+30`: fresh for 60 seconds, and for 30 more seconds it may be sent while it is revalidated.
fn add_max_age(directives: &mut ResponseDirectives, argument: Argument<'_>) {
    let parts = match argument {
        Argument::Token(token) => token.iter().position(|byte| *byte == b'+').map(|plus| token.split_at(plus)),
        _ => None,
    };
    match parts {
        Some((fresh, extension)) => {
            directives.add(b"max-age", Argument::Token(fresh));
            directives.add(b"stale-while-revalidate", Argument::Token(&extension[1..]));
        }
        None => directives.add(b"max-age", argument),
    }
}

/// The members of a list: the text between commas outside quotes.
fn members(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut at = 0;
        while let Some(byte) = line.get(at) {
            match byte {
                b',' => break,
                b'"' => at += 1 + closing_quote(&line[at + 1..]).map_or(line.len(), |end| end + 1),
                _ => at += 1,
            }
        }
        let (member, behind) = line.split_at(at.min(line.len()));
        rest = behind.strip_prefix(b",");
        Some(member)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn lifetimes_and_no_store_for_this_cache() {
        for (line, expected) in [
            ("max-age=60", Some((Some(60), false, None))),
            ("foo, MaX-aGe=60", Some((Some(60), false, None))),
            ("no-store", Some((None, true, None))),
            ("max-age=60, content=\"ESI/1.0, max-age=5\"", Some((Some(60), false, None))),
            ("max-age=60+30", Some((Some(60), false, Some(30)))),
            ("max-age=60+", Some((Some(60), false, Some(0)))),
            ("max-age=+30", Some((Some(0), false, Some(30)))),
            ("max-age=60;sealion, max-age=5;other", Some((Some(60), false, None))),
            ("max-age=5; other, max-age=60", Some((Some(60), false, None))),
            ("no-store;other, max-age=60", Some((Some(60), false, None))),
            ("max-age=x", Some((Some(0), false, None))),
            ("max-age", Some((Some(0), false, None))),
            // Malformed: directives that forbid storing count.
            ("max-age=60; no-store", Some((None, true, None))),
            ("max-age=60 no-store", Some((None, true, None))),
            ("content=\"ESI/1.0, no-store", Some((None, true, None))),
            // No directive for this cache.
            ("max-age=60;other", None),
            ("content=\"ESI/1.0\"", None),
            ("no-store-remote", None),
            ("x=\"max-age=60", None),
            ("", None),
        ] {
            let found = surrogate(&fields(&[format!("surrogate-control: {line}")]));
            let found = found.map(|all| (all.max_age, all.no_store, all.stale_while_revalidate));
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(surrogate(&HeaderMap::new()), None);
    }
}
