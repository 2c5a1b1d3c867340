//! Accept-Encoding (RFC 9110 §12.5.3): content negotiation among the available codings.

use crate::coding::{Coding, Codings};
use crate::quality::{thousandths, weight};
use crate::request::FieldLines;

/// Selects the coding in `available` that the client prefers. `None`: send the file unencoded.
///
/// The highest weight wins; ties go to the first in [`Coding::ALL`]. `identity` wins only if it is listed explicitly with a
/// higher weight: a client that lists codings wants one of them. The file is also sent unencoded if nothing is acceptable.
/// RFC 9110 allows 406 there, but a file is more useful than an error. The same goes for a request without Accept-Encoding:
/// by the RFC any coding is acceptable to it, but such clients usually decode none.
///
/// Malformed members are ignored. If a coding is listed twice, the lower weight counts.
pub fn negotiate(accept: &FieldLines<'_>, available: Codings) -> Option<Coding> {
    let mut named = [None; 3];
    let mut any = None;
    let mut identity = None;
    for member in accept.iter().flat_map(|line| line.split(|byte| *byte == b',')) {
        let Some((name, weight)) = parse(member) else { continue };
        let slot = match name {
            Name::Coding(coding) => &mut named[coding as usize],
            Name::Any => &mut any,
            Name::Identity => &mut identity,
            Name::Other => continue,
        };
        *slot = Some(slot.map_or(weight, |before: u16| before.min(weight)));
    }
    let mut best = None;
    let mut heaviest = identity.unwrap_or(1).max(1);
    for coding in available.iter() {
        let weight = named[coding as usize].or(any).unwrap_or(0);
        if weight > heaviest || weight == heaviest && best.is_none() {
            (best, heaviest) = (Some(coding), weight);
        }
    }
    best
}

enum Name {
    Coding(Coding),
    Any,
    Identity,
    Other,
}

/// One list member: its coding, and its weight in thousandths. `None`: malformed.
fn parse(member: &[u8]) -> Option<(Name, u16)> {
    let (name, weight) = weighted(member)?;
    let name = match name {
        b"*" => Name::Any,
        name if name.eq_ignore_ascii_case(b"br") => Name::Coding(Coding::Brotli),
        name if name.eq_ignore_ascii_case(b"zstd") => Name::Coding(Coding::Zstd),
        name if name.eq_ignore_ascii_case(b"gzip") => Name::Coding(Coding::Gzip),
        // An alias (RFC 9110 §8.4.1.3).
        name if name.eq_ignore_ascii_case(b"x-gzip") => Name::Coding(Coding::Gzip),
        name if name.eq_ignore_ascii_case(b"identity") => Name::Identity,
        _ => Name::Other,
    };
    Some((name, weight))
}

/// The coding of one list member as it is spelled, and its weight in thousandths. `None`: malformed.
pub fn weighted(member: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = member.split(|byte| *byte == b';');
    let name = parts.next()?.trim_ascii();
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => weight(parameter.trim_ascii()).and_then(thousandths)?,
    };
    parts.next().is_none().then_some((name, weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::Coding::{Brotli, Gzip, Zstd};

    fn best(lines: &[&str], available: &[Coding]) -> Option<Coding> {
        let mut accept = FieldLines::default();
        lines.iter().for_each(|line| accept.add(line.as_bytes()));
        negotiate(&accept, available.iter().copied().collect())
    }

    #[test]
    fn negotiation_among_all_codings() {
        for (line, expected) in [
            // As common clients send it.
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, deflate, br", Some(Brotli)),
            ("gzip, deflate, zstd", Some(Zstd)),
            ("gzip, deflate", Some(Gzip)),
            ("deflate, gzip, br, zstd", Some(Brotli)),
            ("gzip;q=1.0, deflate;q=0.6, identity;q=0.3", Some(Gzip)),
            ("deflate", None),
            ("identity", None),
            ("", None),
            // Weights.
            ("br;q=0.5, gzip", Some(Gzip)),
            ("br;q=0.5, zstd;q=0.501, gzip;q=0.5", Some(Zstd)),
            ("gzip;q=0.5, br;q=0.5", Some(Brotli)),
            ("br;q=0, gzip", Some(Gzip)),
            ("br;q=0.000, zstd;q=0, gzip;q=0.0", None),
            ("br ; q=1 , gzip ; q=0.1", Some(Brotli)),
            ("br;Q=0.1,gzip;Q=0.2", Some(Gzip)),
            ("gzip;q=0.001", Some(Gzip)),
            // Wildcards.
            ("*", Some(Brotli)),
            ("*;q=0", None),
            ("*;q=0.1, gzip", Some(Gzip)),
            ("br;q=0, *", Some(Zstd)),
            ("*, br;q=0.2", Some(Zstd)),
            ("gzip;q=0.5, *;q=0", Some(Gzip)),
            // identity.
            ("identity, gzip", Some(Gzip)),
            ("identity, gzip;q=0.9", None),
            ("identity;q=0.5, gzip;q=0.9", Some(Gzip)),
            ("identity;q=0.5, gzip;q=0.2, br;q=0.5", Some(Brotli)),
            ("identity;q=0, gzip;q=0.1", Some(Gzip)),
            // Nothing is acceptable: unencoded.
            ("identity;q=0", None),
            ("identity;q=0, *;q=0", None),
            ("identity;q=0, deflate", None),
            // Names.
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzipped, brotli, br-", None),
            // Listed twice.
            ("br, br;q=0, gzip", Some(Gzip)),
            ("br;q=0, br", None),
            // Malformed members are ignored.
            ("br;q=2, gzip", Some(Gzip)),
            ("br;q=1.001, gzip", Some(Gzip)),
            ("br;q=0.1234, gzip;q=0.1", Some(Gzip)),
            ("br;q=, gzip", Some(Gzip)),
            ("br;q, gzip", Some(Gzip)),
            ("br;q=.5, gzip", Some(Gzip)),
            ("br;q=-1, gzip", Some(Gzip)),
            ("br;q=1x, gzip", Some(Gzip)),
            ("br;level=3, gzip", Some(Gzip)),
            ("br;q=1;q=1, gzip", Some(Gzip)),
            ("br gzip", None),
            (",, ,br,", Some(Brotli)),
            (";q=1,*;", None),
            ("br;q=0., gzip;q=1.", Some(Gzip)),
        ] {
            assert_eq!(best(&[line], &Coding::ALL), expected, "{line:?}");
        }
    }

    #[test]
    fn unavailable_codings_are_not_selected() {
        assert_eq!(best(&["br, gzip;q=0.2"], &[Gzip]), Some(Gzip));
        assert_eq!(best(&["br, gzip;q=0.2"], &[Zstd]), None);
        assert_eq!(best(&["*"], &[Gzip]), Some(Gzip));
        assert_eq!(best(&["br"], &[]), None);
    }

    #[test]
    fn lines_are_one_list_and_an_absent_field_means_identity() {
        assert_eq!(best(&["gzip;q=0.5", "br;q=0.4"], &Coding::ALL), Some(Gzip));
        assert_eq!(best(&["gzip", "gzip;q=0"], &Coding::ALL), None);
        assert_eq!(best(&[], &Coding::ALL), None);
    }

    /// Arbitrary bytes cause no panic, and never select an unavailable coding.
    #[test]
    fn any_bytes() {
        let alphabet = b"brgzipstd*;,q=01. \txidenty\xff";
        let mut state = 1u64;
        let mut line = Vec::new();
        for round in 0..20_000 {
            line.clear();
            for _ in 0..round % 40 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                line.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let mut accept = FieldLines::default();
            accept.add(&line);
            let available: Codings = Coding::ALL.into_iter().filter(|coding| round >> *coding as u8 & 1 == 1).collect();
            if let Some(coding) = negotiate(&accept, available) {
                assert!(available.contains(coding), "{}", line.escape_ascii());
            }
        }
    }
}
