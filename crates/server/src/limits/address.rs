//! The unit for counting clients.

use std::net::IpAddr;

/// An IPv4 address or an IPv6 /64: a host with one address of a /64 usually has all of them (RFC 6177 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(u64, Family);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    V4,
    V6,
}

impl ClientNetwork {
    /// The network of an address. An IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) counts as its IPv4 address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => ClientNetwork(v4.to_bits().into(), Family::V4),
            IpAddr::V6(v6) => ClientNetwork((v6.to_bits() >> 64) as u64, Family::V6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> ClientNetwork {
        ClientNetwork::of(address.parse().unwrap())
    }

    #[test]
    fn who_is_one_client() {
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_ne!(network("0.0.0.1"), network("0:0:0:1::"));
    }
}
