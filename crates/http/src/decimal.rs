//! Decimal numbers without allocation.

/// Appends `number` in decimal. Allocates only if `out` has to grow.
pub fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let digit = |number: u64| b'0' + (number % 10) as u8;
    // Short numbers, such as a status, a port or a byte of an address, avoid a copy of unknown length.
    match number {
        0..10 => return out.push(digit(number)),
        10..100 => return out.extend_from_slice(&[10, 1].map(|unit| digit(number / unit))),
        100..1000 => return out.extend_from_slice(&[100, 10, 1].map(|unit| digit(number / unit))),
        1000..10_000 => return out.extend_from_slice(&[1000, 100, 10, 1].map(|unit| digit(number / unit))),
        10_000..100_000 => return out.extend_from_slice(&[10_000, 1000, 100, 10, 1].map(|unit| digit(number / unit))),
        _ => {}
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = digit(number);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// 1*DIGIT below 2^64.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The value of Content-Length (RFC 9110 §8.6), in bytes. `None`: it is not a number below 2^63. No file is longer, and sums with longer ones could overflow.
pub fn content_length(value: &[u8]) -> Option<u64> {
    decimal(value).filter(|length| i64::try_from(*length).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal() {
        for number in [0, 9, 10, 99, 100, 999, 1000, 9876, 10_000, 16384, 99_999, 100_000, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(super::decimal(&out), Some(number));
        }
        assert_eq!(super::decimal(b"18446744073709551616"), None);
    }

    #[test]
    fn a_length_is_a_number_that_a_file_can_have() {
        let most = i64::MAX.to_string();
        for (text, length) in [("0", Some(0)), ("0005", Some(5)), (&most, Some(i64::MAX as u64))] {
            assert_eq!(content_length(text.as_bytes()), length, "{text}");
        }
        for text in ["", "+5", "-5", " 5", "5 ", "0x5", "5,5", "9223372036854775808", "18446744073709551615"] {
            assert_eq!(content_length(text.as_bytes()), None, "{text}");
        }
    }
}
