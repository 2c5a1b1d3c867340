//! HTML or JSON, by Accept (RFC 9110 §12.5.1).

use crate::quality::{thousandths, weight};

/// Whether Accept prefers JSON to HTML. Without a preference it is HTML, since most readers are people.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    let Some(accept) = accept else { return false };
    quality(accept, b"application", b"json") > quality(accept, b"text", b"html")
}

/// Whether Accept names `text/html` itself. Browsers do so for navigation, not for subresources.
pub fn names_html(accept: Option<&[u8]>) -> bool {
    accept.is_some_and(|accept| names(accept, b"text", b"html"))
}

/// Whether Accept names the type `kind/subtype` itself, with a weight above 0.
pub fn names(accept: &[u8], kind: &[u8], subtype: &[u8]) -> bool {
    let is_it = |range: &[u8]| {
        let slash = range.iter().position(|byte| *byte == b'/')?;
        Some(range[..slash].eq_ignore_ascii_case(kind) && range[slash + 1..].eq_ignore_ascii_case(subtype))
    };
    members(accept).any(|(range, quality)| quality > 0 && is_it(range) == Some(true))
}

/// The q-value of `image/subtype` in thousandths, from the most specific matching range.
pub fn image_quality(accept: &[u8], subtype: &str) -> u16 {
    quality(accept, b"image", subtype.as_bytes())
}

/// Whether Accept allows HTML, by name or by wildcard.
pub fn takes_html(accept: Option<&[u8]>) -> bool {
    accept.is_none_or(|accept| quality(accept, b"text", b"html") > 0)
}

/// The q-value of the most specific matching range, in thousandths.
fn quality(accept: &[u8], kind: &[u8], subtype: &[u8]) -> u16 {
    let specificity = |range: &[u8]| {
        let slash = range.iter().position(|byte| *byte == b'/')?;
        let (first, second) = (&range[..slash], &range[slash + 1..]);
        match (first.eq_ignore_ascii_case(kind), second) {
            (true, second) if second.eq_ignore_ascii_case(subtype) => Some(2),
            (true, b"*") => Some(1),
            (false, b"*") if first == b"*" => Some(0),
            _ => None,
        }
    };
    let matching = members(accept).filter_map(|(range, quality)| Some((specificity(range)?, quality)));
    matching.max_by_key(|(specificity, _)| *specificity).map_or(0, |(_, quality)| quality)
}

fn members(accept: &[u8]) -> impl Iterator<Item = (&[u8], u16)> {
    accept.split(|byte| *byte == b',').map(|member| {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        // A malformed weight counts as 0.
        (range, parts.find_map(weight).map_or(1000, |weight| thousandths(weight).unwrap_or(0)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_or_html_by_accept() {
        // accept, prefers JSON, names HTML, takes HTML
        for (accept, json, names, takes) in [
            (None, false, false, true),
            (Some("*/*"), false, false, true),
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), false, true, true),
            (Some("application/json"), true, false, false),
            (Some("application/json, */*"), false, false, true),
            (Some("application/json, */*;q=0.1"), true, false, true),
            (Some("text/html;q=0.5, application/json"), true, true, true),
            (Some("text/html;q=0"), false, false, false),
            (Some("text/*;q=0.4, APPLICATION/*;q=0.6"), true, false, true),
            (Some("image/png"), false, false, false),
            (Some(""), false, false, false),
            (Some("text/html;level=1;q=x"), false, false, false),
        ] {
            let accept = accept.map(str::as_bytes);
            let got = (prefers_json(accept), names_html(accept), takes_html(accept));
            assert_eq!(got, (json, names, takes), "{:?}", accept.map(|accept| accept.escape_ascii().to_string()));
        }
    }
}
