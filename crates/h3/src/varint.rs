//! Integers of QUIC (RFC 9000 §16): the first two bits tell the length.

/// The largest integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// The integer at the beginning of `input`, and the rest. `None`: it is not complete.
#[inline]
pub(crate) fn read(input: &[u8]) -> Option<(u64, &[u8])> {
    let first = *input.first()?;
    let (bytes, rest) = input.split_at_checked(1 << (first >> 6))?;
    let value = bytes[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, rest))
}

/// Appends `value` in the shortest form.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX, "{value}");
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// The length of the shortest form.
pub(crate) fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_in_the_shortest_form() {
        let edges = [0, 1, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX];
        for (value, length) in edges.into_iter().zip([1, 1, 1, 2, 2, 4, 4, 8, 8]) {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!((out.len(), len(value)), (length, length));
            out.push(7);
            assert_eq!(read(&out), Some((value, &[7][..])));
            for end in 0..length {
                assert_eq!(read(&out[..end]), None);
            }
        }
    }

    /// RFC 9000 §A.1.
    #[test]
    fn the_examples_of_the_rfc() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((value, &[][..])));
        }
    }
}
