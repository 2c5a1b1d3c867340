//! A Range field from a stranger, for a file whose length is the first eight bytes.
//!
//! There are no more ranges than allowed. Each lies within the file and is not empty; together they are no longer than
//! the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_http::range::{Selection, select};

const MAX_RANGES: usize = 16;

fuzz_target!(|input: &[u8]| {
    let Some((length, value)) = input.split_first_chunk() else { return };
    let length = u64::from_le_bytes(*length);
    let ranges = match select(value, length, MAX_RANGES) {
        Selection::Whole => return,
        Selection::Unsatisfiable => Vec::new(),
        Selection::One(range) => vec![range],
        Selection::Several(ranges) => {
            assert!(ranges.len() > 1);
            ranges
        }
    };
    assert!(value.to_ascii_lowercase().starts_with(b"bytes="));
    assert!(ranges.len() <= MAX_RANGES);
    let mut remaining = length;
    for range in &ranges {
        assert!(range.start < range.end && range.end <= length, "{range:?} of {length}");
        remaining = remaining.checked_sub(range.end - range.start).expect("together longer than the file");
    }
    // In the order of the request, and each as if it had been asked for alone.
    let set = &value[6..];
    let alone =
        set.split(|octet| *octet == b',').filter_map(|spec| match select(&[b"bytes=", spec].concat(), length, 1) {
            Selection::One(range) => Some(range),
            _ => None,
        });
    assert!(alone.eq(ranges), "{}", value.escape_ascii());
});
