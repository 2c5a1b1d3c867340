//! The field traceparent (<https://www.w3.org/TR/trace-context/#traceparent-header>).

/// The trace, the parent and the flags of a value. `None`: it is invalid. Later versions may have more fields at the
/// end.
pub(crate) fn parse_traceparent(value: &[u8]) -> Option<(u128, u64, u8)> {
    let mut parts = value.splitn(5, |byte| *byte == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let version = hex(version, 2)?;
    if version == 0xff || (version == 0 && parts.next().is_some()) {
        return None;
    }
    let (trace, parent) = (hex(trace, 32)?, hex(parent, 16)?);
    let flags = u8::try_from(hex(flags, 2)?).ok()?;
    if trace == 0 || parent == 0 { None } else { Some((trace, u64::try_from(parent).ok()?, flags)) }
}

fn hex(digits: &[u8], length: usize) -> Option<u128> {
    let is_hex = digits.len() == length && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_hex)
}
