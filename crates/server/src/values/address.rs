//! Addresses as text.

use std::io::Write as _;
use std::net::IpAddr;

use sealion_http::write_decimal;

/// Appends an address as its `Display` does, with a tenth of the instructions for IPv4.
pub(crate) fn write_address(text: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (n, byte) in v4.octets().into_iter().enumerate() {
                if n > 0 {
                    text.push(b'.');
                }
                write_decimal(text, byte.into());
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(v6) => _ = write!(text, "{v6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_their_display_does() {
        for address in ["0.0.0.0", "10.200.3.255", "::", "2001:db8::1", "::ffff:192.0.2.7"] {
            let mut text = Vec::new();
            write_address(&mut text, address.parse().unwrap());
            assert_eq!(text, address.as_bytes());
        }
    }
}
