//! File contents that can be checked at any offset without being stored. Each byte is a function of its offset, without
//! a period that could coincide with the length of a record, page or buffer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// The byte at `offset` of every patterned file.
pub fn byte_at(offset: u64) -> u8 {
    // The finaliser of SplitMix64: neighbours are unrelated.
    let mut z = offset.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u8
}

/// The bytes of `range`.
pub fn bytes(range: Range<u64>) -> Vec<u8> {
    range.map(byte_at).collect()
}

/// Writes a patterned file of `len` bytes and opens it for reading.
///
/// # Panics
/// It cannot be written.
pub fn file(path: &Path, len: u64) -> File {
    let mut out = BufWriter::new(File::create(path).expect("the file is created"));
    for offset in 0..len {
        out.write_all(&[byte_at(offset)]).expect("the file is written");
    }
    out.flush().expect("the file is written");
    File::open(path).expect("the file opens")
}

/// Asserts that `received` is exactly the pattern in `range`.
///
/// # Panics
/// At the first difference; the message shows its offset and the bytes there.
#[track_caller]
pub fn assert_equal(received: &[u8], range: Range<u64>) {
    assert_starts(received, range.start);
    assert_eq!(received.len() as u64, range.end - range.start, "the length of bytes {range:?}");
}

/// Asserts that `received` is the pattern from `start` on, whatever its length.
///
/// # Panics
/// At the first difference; the message shows its offset and the bytes there.
#[track_caller]
pub fn assert_starts(received: &[u8], start: u64) {
    for (at, &byte) in received.iter().enumerate() {
        let offset = start + at as u64;
        if byte != byte_at(offset) {
            panic!("byte {at} of {} is not byte {offset} of the pattern; {}", received.len(), whence(&received[at..]));
        }
    }
}

/// Finds the wrong bytes elsewhere in the pattern, which distinguishes repeated data from lost data.
fn whence(bytes: &[u8]) -> String {
    let probe = &bytes[..bytes.len().min(16)];
    let found = (0..16 << 20).find(|&offset| probe.iter().zip(offset..).all(|(&byte, at)| byte == byte_at(at)));
    match found {
        Some(offset) if probe.len() >= 8 => format!("from there on it is the pattern at {offset}"),
        _ => format!("from there on it is {probe:02x?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "byte 5 of 40 is not byte 15 of the pattern; from there on it is the pattern at 16")]
    fn a_lost_byte_is_noticed_and_told() {
        let mut received = bytes(10..51);
        received.remove(5);
        assert_equal(&received, 10..50);
    }

    #[test]
    #[should_panic(expected = "the length of bytes 0..8")]
    fn a_short_body_is_noticed() {
        assert_equal(&bytes(0..7), 0..8);
    }

    #[test]
    fn a_file_holds_the_pattern() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        file(&path, 70_001);
        assert_equal(&std::fs::read(path).unwrap(), 0..70_001);
    }
}
