//! Payloads of received frames.

use crate::error::ConnectionError;

use super::MAX_WINDOW;

/// The 32-bit number at `at`; the caller has checked the length of the frame.
pub(crate) fn u32_at(payload: &[u8], at: usize) -> u32 {
    payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// The payload of a padded frame without its padding (RFC 9113 §6.1).
pub(crate) fn strip_padding(payload: &[u8]) -> Result<&[u8], ConnectionError> {
    const TOO_MUCH: ConnectionError = ConnectionError::protocol("more padding than payload");
    let (padding, rest) = payload.split_first().ok_or(TOO_MUCH)?;
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or(TOO_MUCH)?;
    Ok(&rest[..length])
}

/// The payload of PRIORITY_UPDATE (RFC 9218 §7.1).
pub(crate) struct PriorityUpdate<'a> {
    pub(crate) stream: u32,
    pub(crate) value: &'a [u8],
}

impl<'a> PriorityUpdate<'a> {
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, ConnectionError> {
        let Some((_, value)) = payload.split_at_checked(4) else {
            return Err(ConnectionError::frame_size("PRIORITY_UPDATE shorter than 4 bytes"));
        };
        Ok(PriorityUpdate { stream: u32_at(payload, 0) & MAX_WINDOW, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_part_of_the_payload() {
        assert_eq!(strip_padding(&[0]).unwrap(), b"");
        assert_eq!(strip_padding(&[2, b'a', 0, 0]).unwrap(), b"a");
        assert_eq!(strip_padding(&[2, 0, 0]).unwrap(), b"");
        strip_padding(&[2, 0]).unwrap_err();
        strip_padding(&[]).unwrap_err();
    }
}
