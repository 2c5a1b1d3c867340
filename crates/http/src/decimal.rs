//! Decimal formatting without allocation.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal() {
        for number in [0, 9, 10, 99, 100, 999, 1000, 9876, 10_000, 16384, 99_999, 100_000, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
