//! Contents of large files that are quick to generate and compare, even on an emulated machine: a section of the
//! pattern, repeated. Its length is coprime to every record, page and buffer length, so that misplaced data never looks
//! right.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use crate::pattern;

const STRETCH: u64 = (1 << 20) + 7;

fn stretch() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| pattern::bytes(0..STRETCH))
}

/// The pieces of `range`, in order.
fn pieces(range: Range<u64>) -> impl Iterator<Item = &'static [u8]> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let from = at % STRETCH;
        let len = (STRETCH - from).min(range.end - at);
        at += len;
        (len > 0).then(|| &stretch()[from as usize..][..len as usize])
    })
}

/// The content in `range`.
pub fn bytes(range: Range<u64>) -> Vec<u8> {
    pieces(range).collect::<Vec<_>>().concat()
}

/// Writes a file of `len` bytes.
pub fn write(path: &Path, len: u64) {
    let mut file = BufWriter::new(File::create(path).expect("the file is created"));
    pieces(0..len).for_each(|piece| file.write_all(piece).expect("the file is written"));
    file.flush().expect("the file is written");
}

/// Asserts that `received` is exactly the content in `range`.
#[track_caller]
pub fn assert_equal(received: &[u8], range: Range<u64>) {
    assert_starts(received, range.start);
    assert_eq!(received.len() as u64, range.end - range.start, "the length of bytes {range:?}");
}

/// Asserts that `received` is the content from `start` on, whatever its length.
#[track_caller]
pub fn assert_starts(received: &[u8], start: u64) {
    let mut at = 0;
    for piece in pieces(start..start + received.len() as u64) {
        let got = &received[at..at + piece.len()];
        if got != piece {
            let first = got.iter().zip(piece).position(|(a, b)| a != b).expect("they differ");
            panic!("byte {} of {} is not byte {} of the file", at + first, received.len(), start + (at + first) as u64);
        }
        at += piece.len();
    }
}
