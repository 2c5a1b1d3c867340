//! Classes of bytes in names and values of fields.

/// RFC 9110 §5.6.2, without upper case (RFC 9113 §8.2).
#[inline]
pub(super) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| BYTES[usize::from(*byte)] & FIELD_NAME != 0)
}

/// RFC 9110 §5.5: no control characters except tab, and no whitespace at the ends (RFC 9113 §8.2.1).
#[inline]
pub(super) fn is_field_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(value.first()) || is_space(value.last()) {
        return false;
    }
    // Tabs are rare.
    fold_words(value, |word| below::<0x20>(word) | deletes(word)) == 0
        || value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t')
}

/// Whether all bytes are visible ASCII.
#[inline]
pub(super) fn is_visible(value: &[u8]) -> bool {
    fold_words(value, |word| below::<0x21>(word) | deletes(word) | (word & HIGHEST)) == 0
}

/// Combines the results of `look` for eight bytes at a time. The last word is padded with letters.
fn fold_words(bytes: &[u8], look: impl Fn(u64) -> u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| found | look(u64::from_ne_bytes(*word)));
    let mut last = [b'a'; 8];
    last[..rest.len()].copy_from_slice(rest);
    found | look(u64::from_ne_bytes(last))
}

const EACH: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = EACH * 0x80;

/// Nonzero if one of eight bytes is below `LIMIT`.
fn below<const LIMIT: u64>(word: u64) -> u64 {
    word.wrapping_sub(EACH * LIMIT) & !word & HIGHEST
}

/// Nonzero if one of eight bytes is DEL.
fn deletes(word: u64) -> u64 {
    let delete = word ^ (EACH * 0x7f);
    delete.wrapping_sub(EACH) & !delete & HIGHEST
}

pub(super) const fn is_token(byte: u8) -> bool {
    BYTES[byte as usize] & TOKEN != 0
}

/// Bits of [`BYTES`].
const TOKEN: u8 = 1;
const FIELD_NAME: u8 = 2;

/// The classes of each byte.
static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let this = byte as u8;
        if this.is_ascii_alphanumeric()
            || matches!(
                this,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            table[byte] = if this.is_ascii_uppercase() { TOKEN } else { TOKEN | FIELD_NAME };
        }
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_found_at_every_place_of_a_value() {
        for byte in 0..=255 {
            let is_control = byte < 0x20 && byte != b'\t' || byte == 0x7f;
            for length in 3..20 {
                for at in 1..length - 1 {
                    for around in [b'a', 0x80, 0xff] {
                        let mut value = vec![around; length];
                        value[at] = byte;
                        assert_eq!(is_field_value(&value), !is_control, "{byte:#x} at {at} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_are_judged_in_every_place_of_a_word() {
        for byte in 0..=u8::MAX {
            for (len, at) in [(1, 0), (7, 3), (8, 0), (8, 7), (9, 8), (21, 15), (21, 20)] {
                let mut value = vec![b'v'; len];
                value[at] = byte;
                assert_eq!(is_visible(&value), byte.is_ascii_graphic(), "{byte} {len} {at}");
                let ends_in_space = matches!(byte, b' ' | b'\t') && (at == 0 || at == len - 1);
                let is_valid = (!byte.is_ascii_control() || byte == b'\t') && !ends_in_space;
                assert_eq!(is_field_value(&value), is_valid, "{byte} {len} {at}");
            }
        }
    }
}
