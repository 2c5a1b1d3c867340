//! Huffman code of strings (RFC 7541 §5.2 and Appendix B), which QPACK shares (RFC 9204 §4.1.2).
//!
//! The code is canonical: within a length, codes increase with the symbol, and longer codes begin where the shorter
//! ones end. So the lengths determine the code, and the tables are built from them at compile time.

use super::CodingError;

/// Appends the string that `input` encodes.
///
/// # Errors
/// EOS, or padding that is longer than 7 bits or not all ones (RFC 7541 §5.2).
#[inline]
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let start = out.len();
    // The shortest code has 5 bits.
    out.resize(start + input.len() * 8 / 5, 0);
    let written = decode_into(input, &mut out[start..]);
    out.truncate(start + written.as_ref().map_or(0, |length| *length));
    written.map(|_| ())
}

fn decode_into(mut input: &[u8], out: &mut [u8]) -> Result<usize, CodingError> {
    let mut written = 0;
    // The next `have` bits of the input, from the highest bit on, followed by zeros.
    let (mut bits, mut have) = (0u64, 0u32);
    loop {
        if have < MAX_CODE_LEN {
            refill(&mut input, &mut bits, &mut have);
        }
        let Short { symbol, length } = SHORT[(bits >> 56) as usize];
        let (symbol, length) =
            if length != 0 { (u16::from(symbol), u32::from(length)) } else { decode_long(bits >> 32) };
        if length > have {
            return end(bits, have).map(|()| written);
        }
        if symbol == END {
            return Err(CodingError::new("a Huffman string contains EOS"));
        }
        // Each symbol takes at least 5 bits, which is why `out` has room.
        let Some(slot) = out.get_mut(written) else { return end(bits, have).map(|()| written) };
        *slot = symbol as u8;
        written += 1;
        bits <<= length;
        have -= length;
    }
}

fn refill(input: &mut &[u8], bits: &mut u64, have: &mut u32) {
    if let Some((word, _)) = input.split_first_chunk::<8>() {
        let bytes = (64 - *have) / 8;
        let fresh = if bytes == 8 { u64::MAX } else { !(u64::MAX >> (8 * bytes)) };
        *bits |= (u64::from_be_bytes(*word) & fresh) >> *have;
        *have += 8 * bytes;
        *input = &input[bytes as usize..];
        return;
    }
    while *have <= 56
        && let Some((byte, rest)) = input.split_first()
    {
        *bits |= u64::from(*byte) << (56 - *have);
        *have += 8;
        *input = rest;
    }
}

/// The symbol and length of a code longer than 8 bits at the beginning of the 32 bits `bits`.
fn decode_long(bits: u64) -> (u16, u32) {
    for (length, row) in ROWS.iter().enumerate().skip(9) {
        let index = ((bits >> (32 - length)) as u32).wrapping_sub(row.first);
        if index < u32::from(row.count) {
            return (BY_CODE[usize::from(row.offset) + index as usize], length as u32);
        }
    }
    // The code is complete: every 30 bits begin with one.
    (END, MAX_CODE_LEN)
}

/// Checks the bits after the last symbol: fewer than 8 bits, all ones (RFC 7541 §5.2).
fn end(bits: u64, have: u32) -> Result<(), CodingError> {
    match have {
        0 => Ok(()),
        1..8 if bits >> (64 - have) == (1 << have) - 1 => Ok(()),
        _ => Err(CodingError::new("the padding of a Huffman string is not the beginning of EOS")),
    }
}

/// Length of the encoded string in bytes.
#[inline]
pub fn encoded_len(input: &[u8]) -> usize {
    input.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the encoded string.
#[inline]
pub fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut have) = (0u64, 0u32);
    for byte in input {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        have += length;
        if have >= 32 {
            have -= 32;
            out.extend_from_slice(&((bits >> have) as u32).to_be_bytes());
        }
    }
    while have >= 8 {
        have -= 8;
        out.push((bits >> have) as u8);
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | 0xff >> have);
    }
}

/// The symbol after all bytes, which no string contains.
const END: u16 = 256;

/// Length of the longest code.
const MAX_CODE_LEN: u32 = 30;

/// A code of at most 8 bits; length 0 marks the beginning of a longer one.
#[derive(Clone, Copy)]
struct Short {
    symbol: u8,
    length: u8,
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Row {
    first: u32,
    count: u16,
    /// The index of the first code's symbol in [`BY_CODE`].
    offset: u16,
}

static ROWS: [Row; 31] = make_rows();
static BY_CODE: [u16; 257] = make_by_code();
static CODES: [u32; 257] = make_codes();
static SHORT: [Short; 256] = make_short();

const fn make_rows() -> [Row; 31] {
    let mut rows = [Row { first: 0, count: 0, offset: 0 }; 31];
    let mut symbol = 0;
    while symbol < 257 {
        rows[LENGTHS[symbol] as usize].count += 1;
        symbol += 1;
    }
    let mut length = 1;
    while length < 31 {
        let shorter = rows[length - 1];
        rows[length].first = (shorter.first + shorter.count as u32) << 1;
        rows[length].offset = shorter.offset + shorter.count;
        length += 1;
    }
    rows
}

const fn make_by_code() -> [u16; 257] {
    let rows = make_rows();
    let (mut by_code, mut used) = ([0; 257], [0u16; 31]);
    let mut symbol = 0;
    while symbol < 257 {
        let length = LENGTHS[symbol] as usize;
        by_code[(rows[length].offset + used[length]) as usize] = symbol as u16;
        used[length] += 1;
        symbol += 1;
    }
    by_code
}

const fn make_codes() -> [u32; 257] {
    let (rows, by_code) = (make_rows(), make_by_code());
    let mut codes = [0; 257];
    let mut at = 0;
    while at < 257 {
        let symbol = by_code[at] as usize;
        let row = rows[LENGTHS[symbol] as usize];
        codes[symbol] = row.first + (at as u32 - row.offset as u32);
        at += 1;
    }
    codes
}

const fn make_short() -> [Short; 256] {
    let codes = make_codes();
    let mut short = [Short { symbol: 0, length: 0 }; 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let first = (codes[symbol] << (8 - length)) as usize;
            let mut at = first;
            while at < first + (1 << (8 - length)) {
                short[at] = Short { symbol: symbol as u8, length };
                at += 1;
            }
        }
        symbol += 1;
    }
    short
}

/// Lengths of the codes of all bytes and of EOS in bits (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15,
    6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22,
    20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23,
    23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22,
    22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26,
    27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27,
    26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(input, &mut out);
        assert_eq!(out.len(), encoded_len(input));
        out
    }

    fn decoded(input: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = b"before".to_vec();
        decode(input, &mut out)?;
        assert!(out.starts_with(b"before"));
        Ok(out.split_off(6))
    }

    /// Codes as printed in RFC 7541 Appendix B: the shortest, the last of a length, and the longest.
    #[test]
    fn the_code_is_that_of_the_rfc() {
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'A', 0x21, 6),
            (b'z', 0x7b, 7),
            (b'&', 0xf8, 8),
            (b'Z', 0xfd, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (b'\\', 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (10, 0x3fff_fffc, 30),
            (22, 0x3fff_fffe, 30),
            (255, 0x3ff_ffee, 26),
        ] {
            assert_eq!((CODES[usize::from(symbol)], LENGTHS[usize::from(symbol)]), (code, length), "{symbol}");
        }
        assert_eq!(CODES[256], 0x3fff_ffff);
    }

    #[test]
    fn the_code_is_complete() {
        let used: u64 = LENGTHS.iter().map(|length| 1u64 << (30 - length)).sum();
        assert_eq!(used, 1 << 30);
    }

    #[test]
    fn every_string_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for length in 0..40 {
            for start in 0..all.len() {
                let string: Vec<u8> = all.iter().cycle().skip(start).step_by(7).take(length).copied().collect();
                assert_eq!(decoded(&encoded(&string)).unwrap(), string);
            }
        }
    }

    #[test]
    fn padding_is_the_beginning_of_eos_and_shorter_than_a_byte() {
        assert_eq!(decoded(&[0b0011_1111]).unwrap(), b"o");
        for input in
            [&[0b0011_1110][..], &[0b0011_1000], &[0xff], &[0b0011_1111, 0xff], &[0xff; 4], &[0xff, 0xff, 0xff, 0xfc]]
        {
            decoded(input).unwrap_err();
        }
    }
}
