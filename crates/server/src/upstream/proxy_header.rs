//! The header of the PROXY protocol that a connection to a server begins with: it names the client
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::net::{IpAddr, SocketAddr};

use ppp::{v1, v2};

use super::config::ProxyProtocol;

/// The ends of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) client: SocketAddr,
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
}

/// Whom a connection to a server is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum OnBehalf<'a> {
    /// A request of a client; `None`: its address is not known.
    Client(Option<&'a Endpoints>),
    /// A health check.
    Own,
}

impl ProxyProtocol {
    /// The header. It is empty where it cannot be made, which the library does not say of addresses.
    pub(super) fn header(self, on_behalf: OnBehalf<'_>) -> Vec<u8> {
        let addresses = match on_behalf {
            OnBehalf::Client(Some(endpoints)) => Some(endpoints.of_one_family()),
            OnBehalf::Client(None) | OnBehalf::Own => None,
        };
        match self {
            ProxyProtocol::V1 => addresses.map_or(v1::Addresses::Unknown, Into::into).to_string().into_bytes(),
            ProxyProtocol::V2 => {
                let (command, protocol) = match on_behalf {
                    OnBehalf::Client(Some(_)) => (v2::Command::Proxy, v2::Protocol::Stream),
                    OnBehalf::Client(None) => (v2::Command::Proxy, v2::Protocol::Unspecified),
                    OnBehalf::Own => (v2::Command::Local, v2::Protocol::Unspecified),
                };
                let addresses = addresses.map_or(v2::Addresses::Unspecified, Into::into);
                let header = v2::Builder::with_addresses(v2::Version::Two | command, protocol, addresses);
                header.build().unwrap_or_default()
            }
        }
    }
}

impl Endpoints {
    /// Both addresses by IPv4, or by IPv6 where one of them is: the protocol has none of two families.
    fn of_one_family(&self) -> (SocketAddr, SocketAddr) {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (client, local) = (canonical(self.client), canonical(self.local));
        if client.is_ipv4() == local.is_ipv4() {
            return (client, local);
        }
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => address,
        };
        (mapped(client), mapped(local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(client: &str, local: &str) -> Endpoints {
        Endpoints { client: client.parse().unwrap(), local: local.parse().unwrap() }
    }

    #[test]
    fn headers_of_version_1() {
        let header = |on_behalf: OnBehalf<'_>| String::from_utf8(ProxyProtocol::V1.header(on_behalf)).unwrap();
        for (client, local, expected) in [
            ("192.0.2.7:50000", "192.0.2.1:443", "PROXY TCP4 192.0.2.7 192.0.2.1 50000 443\r\n"),
            ("[::ffff:192.0.2.7]:50000", "192.0.2.1:443", "PROXY TCP4 192.0.2.7 192.0.2.1 50000 443\r\n"),
            ("[2001:db8::7]:50000", "[2001:db8::1]:443", "PROXY TCP6 2001:db8::7 2001:db8::1 50000 443\r\n"),
            ("[2001:db8::7]:0", "192.0.2.1:443", "PROXY TCP6 2001:db8::7 ::ffff:192.0.2.1 0 443\r\n"),
        ] {
            assert_eq!(header(OnBehalf::Client(Some(&endpoints(client, local)))), expected);
        }
        assert_eq!(header(OnBehalf::Client(None)), "PROXY UNKNOWN\r\n");
        assert_eq!(header(OnBehalf::Own), "PROXY UNKNOWN\r\n");
    }

    #[test]
    fn headers_of_version_2() {
        const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
        let header = |on_behalf: OnBehalf<'_>| ProxyProtocol::V2.header(on_behalf);
        let v4 = [192, 0, 2, 7, 192, 0, 2, 1, 0xc3, 0x50, 1, 0xbb];
        let known = endpoints("192.0.2.7:50000", "192.0.2.1:443");
        let expected = [SIGNATURE, &[0x21, 0x11, 0, 12], &v4].concat();
        assert_eq!(header(OnBehalf::Client(Some(&known))), expected);
        let known = endpoints("[2001:db8::7]:50000", "[2001:db8::1]:443");
        let parsed = header(OnBehalf::Client(Some(&known)));
        let parsed = v2::Header::try_from(&parsed[..]).unwrap();
        assert_eq!(parsed.addresses, (known.client, known.local).into());
        assert_eq!(header(OnBehalf::Client(None)), [SIGNATURE, &[0x21, 0, 0, 0]].concat());
        assert_eq!(header(OnBehalf::Own), [SIGNATURE, &[0x20, 0, 0, 0]].concat());
    }
}
