//! Quality values (RFC 9110 §12.4.2).

/// The value of a weight parameter such as `q=0.5`, in any case, without surrounding whitespace. `None`: not a weight.
pub(crate) fn weight(parameter: &[u8]) -> Option<&[u8]> {
    parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))
}

/// Parses a qvalue (0 to 1, at most three decimals) to thousandths. `None`: malformed.
pub(crate) fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, fraction) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut value = match whole {
        b'0' => 0,
        b'1' => 1,
        _ => return None,
    };
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        value = value * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_in_thousandths() {
        for (parameter, expected) in [
            ("q=1", Some(1000)),
            ("q=0.5", Some(500)),
            ("Q=0.125", Some(125)),
            ("q=1.001", None),
            ("q=0.1234", None),
            ("q=x", None),
            ("q=", None),
            ("q=-1", None),
            ("level=1", None),
        ] {
            assert_eq!(weight(parameter.as_bytes()).and_then(thousandths), expected, "{parameter}");
        }
    }
}
