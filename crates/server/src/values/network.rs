//! Networks in rules.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Parses a network or an address. IPv4-mapped networks (RFC 4291 §2.5.5.2) become IPv4, like the addresses of clients.
pub(crate) fn parse_network(text: &str) -> Option<IpNet> {
    // IpNet's own parser takes `010.0.0.0/8`, which some programs read as octal.
    let network = match text.split_once('/') {
        None => IpNet::from(text.parse::<IpAddr>().ok()?),
        Some((address, length)) => IpNet::new(address.parse().ok()?, length.parse().ok()?).ok()?,
    };
    Some(match network {
        IpNet::V6(v6) if v6.prefix_len() >= MAPPED_PREFIX => {
            let v4 = v6.addr().to_ipv4_mapped().and_then(|v4| Ipv4Net::new(v4, v6.prefix_len() - MAPPED_PREFIX).ok());
            v4.map_or(network, IpNet::V4)
        }
        _ => network,
    })
}

/// Bits before the IPv4 address in an IPv4-mapped address.
const MAPPED_PREFIX: u8 = (Ipv6Addr::BITS - 32) as u8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_read_differently_is_no_network() {
        for text in ["010.0.0.0/8", "10.0.0.010", "10.0.0/8", "10.0.0.0/", "10.0.0.0/33", "/8", "10.0.0.0/8/8", ""] {
            assert_eq!(parse_network(text), None, "{text}");
        }
    }

    #[test]
    fn mapped_networks_are_ipv4() {
        for (text, network) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(parse_network(text).unwrap().to_string(), network, "{text}");
        }
        assert_eq!(parse_network("10.0.0.0/33"), None);
    }
}
