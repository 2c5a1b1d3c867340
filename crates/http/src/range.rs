//! Byte ranges (RFC 9110 §14.1, §14.2): the parts of a file that a Range field selects.

use std::ops::Range;

/// The result of a Range field for a file of known length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Ignore the field: send the whole file with 200.
    Whole,
    /// Send one part, never empty, with 206.
    One(Range<u64>),
    /// Send two or more parts as multipart/byteranges with 206. They keep the order of the request and are not empty.
    /// Together they are not longer than the file.
    Several(Vec<Range<u64>>),
    /// No part lies within the file: respond with 416.
    Unsatisfiable,
}

/// Evaluates a Range field for a file of `length` bytes.
///
/// The field is ignored, as RFC 9110 §14.2 allows, if
///
/// - the unit is not bytes, the syntax is wrong, or a range ends before it begins;
/// - there are more than `max_ranges` ranges;
/// - the ranges together are longer than the file. They then overlap, and the whole file costs less (RFC 9110 §17.15);
/// - the file is empty. It has no parts, and `bytes=0-` means all of it.
///
/// Ranges stay in order, as RFC 9110 §15.3.7.2 recommends. The bound on their total length makes merging unnecessary.
pub fn select(value: &[u8], length: u64, max_ranges: usize) -> Selection {
    let Some((unit, set)) = value.split_at_checked(6) else { return Selection::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") || length == 0 {
        return Selection::Whole;
    }
    let mut specs = 0;
    let mut remaining = length;
    // The usual single range needs no allocation.
    let mut first = None;
    let mut rest = Vec::new();
    for (index, spec) in set.split(|byte| *byte == b',').enumerate() {
        // Empty list elements are accepted (RFC 9110 §5.6.1.2), but they count, so that their number is bounded too.
        if index >= max_ranges {
            return Selection::Whole;
        }
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue;
        }
        specs += 1;
        match parse(spec, length) {
            None => return Selection::Whole,
            Some(Part::Outside) => {}
            Some(Part::Within(range)) => {
                match remaining.checked_sub(range.end - range.start) {
                    Some(left) => remaining = left,
                    None => return Selection::Whole,
                }
                match first {
                    None => first = Some(range),
                    Some(_) => rest.push(range),
                }
            }
        }
    }
    match first {
        Some(only) if rest.is_empty() => Selection::One(only),
        Some(first) => {
            rest.insert(0, first);
            Selection::Several(rest)
        }
        None if specs > 0 => Selection::Unsatisfiable,
        None => Selection::Whole,
    }
}

enum Part {
    /// Never empty.
    Within(Range<u64>),
    Outside,
}

/// Parses one int-range or suffix-range. `None`: syntax error.
fn parse(spec: &[u8], length: u64) -> Option<Part> {
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(match position(last)? {
            0 => Part::Outside,
            suffix => Part::Within(length.saturating_sub(suffix)..length),
        });
    }
    let first = position(first)?;
    let last = if last.is_empty() { u64::MAX } else { position(last)? };
    if last < first {
        return None;
    }
    Some(if first >= length { Part::Outside } else { Part::Within(first..last.saturating_add(1).min(length)) })
}

/// 1*DIGIT, saturating: a larger number is beyond the end of every file anyway.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        digit.is_ascii_digit().then(|| value.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::Selection::{One, Several, Unsatisfiable, Whole};
    use super::*;

    #[test]
    fn ranges_of_a_file_of_10000_bytes_as_in_rfc_9110_section_14_1_2() {
        for (value, expected) in [
            ("bytes=0-499", One(0..500)),
            ("bytes=500-999", One(500..1000)),
            ("bytes=-500", One(9500..10000)),
            ("bytes=9500-", One(9500..10000)),
            ("bytes=0-0,-1", Several(vec![0..1, 9999..10000])),
            ("bytes= 0-999, 4500-5499, -1000", Several(vec![0..1000, 4500..5500, 9000..10000])),
            ("bytes=500-600,601-999", Several(vec![500..601, 601..1000])),
            ("bytes=500-700,601-999", Several(vec![500..701, 601..1000])),
            ("BYTES=0-0", One(0..1)),
            ("bytes=0-", One(0..10000)),
            ("bytes=0-9999", One(0..10000)),
            ("bytes=0-10000", One(0..10000)),
            ("bytes=9999-9999", One(9999..10000)),
            ("bytes=-10000", One(0..10000)),
            ("bytes=-10001", One(0..10000)),
            ("bytes=00000-0000000000000000000000499", One(0..500)),
            ("bytes=1-18446744073709551615", One(1..10000)),
            ("bytes=1-99999999999999999999999", One(1..10000)),
            ("bytes=-99999999999999999999999", One(0..10000)),
            ("bytes=10000-", Unsatisfiable),
            ("bytes=10000-10001", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=-0,10000-", Unsatisfiable),
            // Parts outside the file are omitted; a single part needs no multipart.
            ("bytes=10000-,5-6", One(5..7)),
            ("bytes=1-1,-0,3-3", Several(vec![1..2, 3..4])),
            // The order is the client's.
            ("bytes=-1,0-0", Several(vec![9999..10000, 0..1])),
            ("bytes=0-0,0-0", Several(vec![0..1, 0..1])),
            ("bytes=,0-0,,2-2\t,", Several(vec![0..1, 2..3])),
            // Longer than the file in total.
            ("bytes=0-,0-", Whole),
            ("bytes=0-9999,0-0", Whole),
            ("bytes=0-4999,5000-9999", Several(vec![0..5000, 5000..10000])),
            // Syntax.
            ("bytes", Whole),
            ("bytes=", Whole),
            ("bytes=,", Whole),
            ("bytes=-", Whole),
            ("bytes=1", Whole),
            ("bytes=2-1", Whole),
            ("bytes=0-0,2-1", Whole),
            ("bytes=20000-10000", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=--1", Whole),
            ("bytes=0-1-2", Whole),
            ("bytes=0 -1", Whole),
            ("bytes=0- 1", Whole),
            ("bytes=0-1;2-3", Whole),
            ("bytes=0-1 2-3", Whole),
            ("bytes=0x1-2", Whole),
            ("bytes =0-1", Whole),
            (" bytes=0-1", Whole),
            ("items=0-1", Whole),
            ("0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(select(value.as_bytes(), 10000, 16), expected, "{value:?}");
        }
    }

    #[test]
    fn an_empty_file_is_sent_whole() {
        for value in ["bytes=0-", "bytes=0-0", "bytes=-0", "bytes=-1", "bytes=7-"] {
            assert_eq!(select(value.as_bytes(), 0, 16), Whole, "{value:?}");
        }
    }

    #[test]
    fn all_list_elements_count_against_the_bound() {
        for element in ["0-0", "-0", "", "20000-"] {
            let elements = |count: usize| format!("bytes=9-9,{}", vec![element; count - 1].join(","));
            assert_ne!(select(elements(16).as_bytes(), 10000, 16), Whole, "16 of {element:?}");
            assert_eq!(select(elements(17).as_bytes(), 10000, 16), Whole, "17 of {element:?}");
        }
    }

    #[test]
    fn largest_file() {
        assert_eq!(select(b"bytes=0-18446744073709551615", u64::MAX, 16), One(0..u64::MAX));
        assert_eq!(select(b"bytes=-1", u64::MAX, 16), One(u64::MAX - 1..u64::MAX));
        assert_eq!(select(b"bytes=0-,0-", u64::MAX, 16), Whole);
    }
}
