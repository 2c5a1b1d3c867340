//! Integers with a prefix (RFC 7541 §5.1, RFC 9204 §4.1.1).

use super::CodingError;

/// Decodes an integer whose first byte, already taken from `input`, has a prefix of `bits`, from 1 to 8.
///
/// At most four bytes follow: 2^28 + 254 is more than any length or index in use here (RFC 7541 §5.1 lets a decoder
/// limit both the value and the length).
///
/// # Errors
/// The integer is longer, or `input` ends within it.
#[inline]
pub fn decode(bits: u32, first: u8, input: &mut &[u8]) -> Result<usize, CodingError> {
    let mask = u8::MAX >> (8 - bits);
    let prefix = first & mask;
    if prefix < mask {
        return Ok(usize::from(prefix));
    }
    let mut value = usize::from(prefix);
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = input.split_first().ok_or(CodingError::new("an integer ends early"))?;
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(CodingError::new("an integer is longer than five bytes"))
}

/// Appends `value` with a prefix of `bits`; `pattern` has the bits before the prefix.
#[inline]
pub fn encode(out: &mut Vec<u8>, bits: u32, pattern: u8, value: usize) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for bits in 1..=8 {
            for value in [0, 1, 14, 15, 30, 31, 62, 63, 126, 127, 128, 254, 255, 1337, 16_384, (1 << 28) - 1] {
                let mut out = Vec::new();
                encode(&mut out, bits, 0, value);
                let mut input = &out[1..];
                assert_eq!(decode(bits, out[0], &mut input).unwrap(), value, "{bits} {value}");
                assert!(input.is_empty());
            }
        }
    }

    /// RFC 7541 §C.1.
    #[test]
    fn the_examples_of_the_rfc() {
        for (bits, value, expected) in [(5, 10, &[10][..]), (5, 1337, &[31, 154, 10])] {
            let mut out = Vec::new();
            encode(&mut out, bits, 0, value);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn an_integer_cannot_overflow() {
        let longest = decode(5, 0x1f, &mut &[0xff, 0xff, 0xff, 0x7f][..]);
        assert_eq!(longest.unwrap(), 31 + (1 << 28) - 1);
        for bytes in [&[][..], &[0x80], &[0xff; 4], &[0x80, 0x80, 0x80, 0x80, 0], &[0xff; 100]] {
            decode(5, 0x1f, &mut &bytes[..]).unwrap_err();
        }
    }
}
