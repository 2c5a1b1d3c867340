//! The client's address where proxies send it in a request field.
//!
//! ```text
//! field:  forged, client, proxy 2 ◄─ read from the right      connection: proxy 1
//!                    │       │                                                │
//!                    │       └─ trusted: read on ◄────────────────── trusted: read the field
//!                    └─ not trusted: the client
//! ```
//!
//! Each proxy appends the address that it was connected from. The client's own text hence stands to the left of its address, and
//! is never read. An entry that is not an address (`unknown`, an obfuscated identifier, a typing error) ends the reading: the client is
//! then the last address that was read, which is a trusted proxy's.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use sealion_http::FieldSection;

use super::Scheme;

/// How proxies in front of a listener name the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forwarding {
    /// Networks of the proxies whose entries are believed.
    pub(crate) trusted: Vec<IpNet>,
    /// The field's name.
    pub(crate) field: Box<str>,
    /// Most entries to read. `None`: as long as they name trusted proxies.
    pub(crate) most: Option<usize>,
}

impl Forwarding {
    /// Whether the entries of a proxy are believed. A proxy on a Unix socket has no address, and is trusted.
    pub(crate) fn trusts(&self, proxy: IpAddr) -> bool {
        proxy.is_unspecified() || self.trusted.iter().any(|network| network.contains(&proxy))
    }

    /// The client of a request on a connection from `peer`. Its port is 0 if the field names none.
    pub(crate) fn client(&self, peer: SocketAddr, fields: FieldSection<'_>) -> SocketAddr {
        self.client_and_entry(peer, fields, |_| ()).0
    }

    /// The client and the proxies behind it, in the order of the field, without the other end of the connection. Entries before the client
    /// are its own word.
    pub(super) fn chain(&self, peer: SocketAddr, fields: FieldSection<'_>) -> Vec<IpAddr> {
        let mut chain = Vec::new();
        self.client_and_entry(peer, fields, |address| chain.push(address));
        chain.reverse();
        chain
    }

    /// The scheme of the client's own request, as its proxy says it: in the element of Forwarded that names the client, or else at the end of
    /// X-Forwarded-Proto. `None`: the proxy does not say it, or is not trusted.
    pub(super) fn scheme(&self, peer: SocketAddr, fields: FieldSection<'_>) -> Option<Scheme> {
        if !self.trusts(peer.ip()) {
            return None;
        }
        let scheme = match self.is_forwarded() {
            true => parameter(std::str::from_utf8(self.client_and_entry(peer, fields, |_| ()).1?).ok()?, "proto")?
                .as_bytes(),
            false => FromRight(Some(fields.all("x-forwarded-proto").last()?)).next()?,
        };
        let is = |known: Scheme| scheme.eq_ignore_ascii_case(known.as_str().as_bytes()).then_some(known);
        is(Scheme::Https).or_else(|| is(Scheme::Http))
    }

    /// Whether the field is Forwarded (RFC 7239).
    pub(super) fn is_forwarded(&self) -> bool {
        self.field.eq_ignore_ascii_case("forwarded")
    }

    /// The client, and the entry that names it. `visit` gets each address that is read, from the right.
    fn client_and_entry<'a>(
        &self,
        peer: SocketAddr,
        fields: FieldSection<'a>,
        mut visit: impl FnMut(IpAddr),
    ) -> (SocketAddr, Option<&'a [u8]>) {
        if !self.trusts(peer.ip()) {
            return (peer, None);
        }
        let lines: Vec<&'a [u8]> = fields.all(&self.field).collect();
        let entries = lines.into_iter().rev().flat_map(|line| FromRight(Some(line)));
        let is_forwarded = self.is_forwarded();
        let mut client = (peer, None);
        for entry in entries.take(self.most.unwrap_or(usize::MAX)) {
            let node = if is_forwarded { node_of_element(entry) } else { std::str::from_utf8(entry).ok() };
            let Some(address) = node.and_then(address) else { break };
            client = (address, Some(entry));
            visit(address.ip());
            if !self.trusts(address.ip()) {
                break;
            }
        }
        client
    }
}

/// The members of a list (RFC 9110 §5.6.1) from the right, without empty ones. Read from the right, an open quote of the client
/// cannot swallow the proxy's members.
struct FromRight<'a>(Option<&'a [u8]>);

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.0?;
            let mut is_quoted = false;
            let comma = rest.iter().rposition(|octet| {
                is_quoted ^= *octet == b'"';
                *octet == b',' && !is_quoted
            });
            self.0 = comma.map(|comma| &rest[..comma]);
            let member = comma.map_or(rest, |comma| &rest[comma + 1..]).trim_ascii();
            if !member.is_empty() {
                return Some(member);
            }
        }
    }
}

/// The node that an element of Forwarded names as the client of its proxy (RFC 7239 §4). `None`: none, or two.
fn node_of_element(element: &[u8]) -> Option<&str> {
    parameter(std::str::from_utf8(element).ok()?, "for")
}

/// The value of an element's parameter, without quotes. `None`: it is missing or repeated.
fn parameter<'a>(element: &'a str, wanted: &str) -> Option<&'a str> {
    // No address and no scheme needs an escape.
    if element.contains('\\') {
        return None;
    }
    let mut values = parameters(element).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.eq_ignore_ascii_case(wanted).then_some(value)
    });
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"'),
        None => Some(value),
    }
}

/// The parameters of an element, split at semicolons outside quotes.
fn parameters(element: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = element.split(move |c| {
        is_quoted ^= c == '"';
        c == ';' && !is_quoted
    });
    parts.map(str::trim_ascii)
}

/// An address, in brackets or without if it is IPv6, and a port if there is one. An IPv4-mapped address is the IPv4 address.
fn address(node: &str) -> Option<SocketAddr> {
    let address = match node.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, 0),
        Err(_) => {
            let (host, port) = match node.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                Some((host, port)) => (IpAddr::V6(host.parse().ok()?), port),
                None => {
                    let at = node.find(':')?;
                    (IpAddr::V4(node[..at].parse().ok()?), &node[at..])
                }
            };
            match port.strip_prefix(':') {
                // An obfuscated port (RFC 7239 §6.2) says nothing of the address.
                Some(port) if port.starts_with('_') && port.len() > 1 => SocketAddr::new(host, 0),
                Some(port) if port.bytes().all(|octet| octet.is_ascii_digit()) => {
                    SocketAddr::new(host, port.parse().ok()?)
                }
                None if port.is_empty() => SocketAddr::new(host, 0),
                _ => return None,
            }
        }
    };
    let ip = address.ip().to_canonical();
    // The unspecified address stands for peers without one, which are trusted.
    (!ip.is_unspecified()).then(|| SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1:5000";

    fn forwarding(field: &str) -> Forwarding {
        let trusted = ["10.0.0.0/8", "2001:db8:ffff::/48"].map(|network| network.parse().unwrap()).into();
        Forwarding { trusted, field: field.into(), most: None }
    }

    fn client_of(forwarding: &Forwarding, peer: &str, lines: &[&[u8]]) -> String {
        let mut section = b"Host: a\r\n".to_vec();
        for line in lines {
            section.extend_from_slice(&[forwarding.field.to_uppercase().as_bytes(), b": ", *line, b"\r\n"].concat());
        }
        forwarding.client(peer.parse().unwrap(), FieldSection::from_lines(&section)).to_string()
    }

    #[test]
    fn a_chain_begins_with_the_client() {
        for (field, line, chain) in [
            ("x-forwarded-for", "203.0.113.9, 192.0.2.7:1, 10.9.9.9", &["192.0.2.7", "10.9.9.9"][..]),
            ("x-forwarded-for", "203.0.113.9, unknown, 10.9.9.9", &["10.9.9.9"]),
            ("forwarded", "for=203.0.113.9, for=\"[2001:db8::7]\";host=a, for=10.9.9.9", &["2001:db8::7", "10.9.9.9"]),
            ("forwarded", "unknown", &[]),
        ] {
            let section = format!("Host: a\r\n{field}: {line}\r\n");
            let chain_at = |peer: &str| {
                let fields = FieldSection::from_lines(section.as_bytes());
                forwarding(field).chain(peer.parse().unwrap(), fields).iter().map(IpAddr::to_string).collect::<Vec<_>>()
            };
            assert_eq!(chain_at(PROXY), chain, "{line}");
            assert!(chain_at("192.0.2.1:5000").is_empty(), "the field of an untrusted peer");
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxys_is_the_client() {
        let x_forwarded_for = forwarding("x-forwarded-for");
        for (peer, lines, client) in [
            (PROXY, &["192.0.2.7"][..], "192.0.2.7:0"),
            (PROXY, &["203.0.113.9, 192.0.2.7"], "192.0.2.7:0"),
            (PROXY, &["203.0.113.9, 192.0.2.7, 10.9.9.9"], "192.0.2.7:0"),
            (PROXY, &["203.0.113.9", "192.0.2.7", "10.9.9.9"], "192.0.2.7:0"),
            (PROXY, &["203.0.113.9,192.0.2.7 ,\t10.9.9.9 "], "192.0.2.7:0"),
            (PROXY, &["192.0.2.7,, ,10.9.9.9, ,"], "192.0.2.7:0"),
            (PROXY, &["192.0.2.7:4711, 10.9.9.9:80"], "192.0.2.7:4711"),
            (PROXY, &["2001:db8::7"], "[2001:db8::7]:0"),
            (PROXY, &["[2001:db8::7], 2001:db8:ffff::1"], "[2001:db8::7]:0"),
            (PROXY, &["[2001:db8::7]:4711"], "[2001:db8::7]:4711"),
            (PROXY, &["192.0.2.7, ::ffff:10.9.9.9"], "192.0.2.7:0"),
            (PROXY, &["::ffff:192.0.2.7"], "192.0.2.7:0"),
            (PROXY, &["[::ffff:192.0.2.7]:1"], "192.0.2.7:1"),
            ("[2001:db8:ffff::9]:5000", &["192.0.2.7"], "192.0.2.7:0"),
            // A Unix socket.
            ("[::]:0", &["192.0.2.7"], "192.0.2.7:0"),
            // All are proxies: the outermost.
            (PROXY, &["10.1.1.1, 10.2.2.2"], "10.1.1.1:0"),
            // Nothing is said.
            (PROXY, &[], PROXY),
            (PROXY, &[""], PROXY),
            (PROXY, &[", ,"], PROXY),
            // The field of an untrusted peer is ignored.
            ("192.0.2.1:5000", &["203.0.113.9"], "192.0.2.1:5000"),
            ("192.0.2.1:5000", &["10.0.0.5"], "192.0.2.1:5000"),
            // An entry that is no address ends the reading.
            (PROXY, &["203.0.113.9, unknown"], PROXY),
            (PROXY, &["203.0.113.9, _hidden, 10.9.9.9"], "10.9.9.9:0"),
            (PROXY, &["203.0.113.9, 10.9.9"], PROXY),
            (PROXY, &["203.0.113.9, 192.0.2.7.example"], PROXY),
            (PROXY, &["203.0.113.9, 192.0.2.007"], PROXY),
            (PROXY, &["203.0.113.9, 192.0.2.7:99999"], PROXY),
            (PROXY, &["203.0.113.9, 192.0.2.7:"], PROXY),
            (PROXY, &["203.0.113.9, 192.0.2.7 192.0.2.8"], PROXY),
            (PROXY, &["203.0.113.9, [192.0.2.7]"], PROXY),
            (PROXY, &["203.0.113.9, [2001:db8::7"], PROXY),
            (PROXY, &["203.0.113.9, 2001:db8::7]:1"], PROXY),
            (PROXY, &["203.0.113.9, fe80::1%eth0"], PROXY),
            (PROXY, &["203.0.113.9, \"192.0.2.7\""], PROXY),
            (PROXY, &["203.0.113.9, 0.0.0.0"], PROXY),
            (PROXY, &["203.0.113.9, ::"], PROXY),
            (PROXY, &["203.0.113.9, ::ffff:0.0.0.0"], PROXY),
            // A client's open quote swallows nothing that a proxy appended.
            (PROXY, &["\"203.0.113.9, 192.0.2.7"], "192.0.2.7:0"),
        ] {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(client_of(&x_forwarded_for, peer, &lines), client, "{peer} {lines:?}");
        }
        assert_eq!(client_of(&x_forwarded_for, PROXY, &[b"203.0.113.9, \xff"]), PROXY);
        assert_eq!(client_of(&forwarding("X-Real-IP"), PROXY, &[b"192.0.2.7"]), "192.0.2.7:0");
    }

    #[test]
    fn forwarded_is_read_by_its_own_grammar() {
        let forwarded = forwarding("forwarded");
        for (lines, client) in [
            (&["for=192.0.2.43"][..], "192.0.2.43:0"),
            (&["For=\"[2001:db8:cafe::17]:4711\""], "[2001:db8:cafe::17]:4711"),
            (&["for=192.0.2.60;proto=http;by=203.0.113.43"], "192.0.2.60:0"),
            (&["proto=http ; FOR=192.0.2.60"], "192.0.2.60:0"),
            (&["for=192.0.2.43, for=198.51.100.17"], "198.51.100.17:0"),
            (&["for=192.0.2.43", "for=10.1.1.1"], "192.0.2.43:0"),
            (&["for=\"192.0.2.43:47011\""], "192.0.2.43:47011"),
            (&["for=\"192.0.2.43:_port\""], "192.0.2.43:0"),
            (&["host=\"a;for=203.0.113.9,b\";for=192.0.2.43"], "192.0.2.43:0"),
            (&["for=\"203.0.113.9, for=192.0.2.43"], "192.0.2.43:0"),
            (&["for=203.0.113.9;host=\", for=192.0.2.43"], "192.0.2.43:0"),
            (&["for=203.0.113.9, for=unknown"], PROXY),
            (&["for=203.0.113.9, for=\"_gazonk\""], PROXY),
            (&["for=203.0.113.9, for=_hidden, for=10.1.1.1"], "10.1.1.1:0"),
            (&["for=203.0.113.9, proto=https"], PROXY),
            (&["for=203.0.113.9, for=192.0.2.1;for=192.0.2.2"], PROXY),
            (&["for=203.0.113.9, for=\"192.0.2.\\1\""], PROXY),
            (&["for=203.0.113.9, for=\"192.0.2.1"], PROXY),
            (&["for=203.0.113.9, for = 192.0.2.1"], PROXY),
            (&["for=203.0.113.9, 192.0.2.1"], PROXY),
            (&["203.0.113.9"], PROXY),
        ] {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(client_of(&forwarded, PROXY, &lines), client, "{lines:?}");
        }
    }

    #[test]
    fn the_scheme_is_the_one_by_which_the_client_reached_its_proxy() {
        let scheme = |field: &str, peer: &str, lines: &str| {
            let found = forwarding(field).scheme(peer.parse().unwrap(), FieldSection::from_lines(lines.as_bytes()));
            found.map(Scheme::as_str)
        };
        for (lines, found) in [
            ("", None),
            ("X-Forwarded-Proto: https\r\n", Some("https")),
            ("X-Forwarded-Proto: HTTP\r\n", Some("http")),
            ("X-Forwarded-Proto: http, https\r\n", Some("https")),
            ("X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n", Some("http")),
            ("X-Forwarded-Proto: wss\r\n", None),
            ("X-Forwarded-Proto: \r\n", None),
            ("Forwarded: for=192.0.2.7;proto=https\r\n", None),
        ] {
            assert_eq!(scheme("x-forwarded-for", PROXY, lines), found, "{lines}");
            assert_eq!(scheme("x-forwarded-for", "192.0.2.1:5000", lines), None, "{lines}");
        }
        for (lines, found) in [
            ("Forwarded: for=192.0.2.7;proto=https\r\n", Some("https")),
            ("Forwarded: for=192.0.2.7;Proto=\"HTTPS\"\r\n", Some("https")),
            ("Forwarded: for=192.0.2.7;proto=https, for=10.1.1.1;proto=http\r\n", Some("https")),
            ("Forwarded: for=203.0.113.9;proto=https, for=192.0.2.7;proto=http\r\n", Some("http")),
            ("Forwarded: for=203.0.113.9;proto=https, for=192.0.2.7\r\n", None),
            ("Forwarded: for=192.0.2.7;proto=https;proto=http\r\n", None),
            ("Forwarded: proto=https\r\n", None),
            ("X-Forwarded-Proto: https\r\n", None),
        ] {
            assert_eq!(scheme("forwarded", PROXY, lines), found, "{lines}");
        }
    }

    #[test]
    fn no_more_entries_are_read_than_there_may_be_proxies() {
        let one = Forwarding { most: Some(1), ..forwarding("x-forwarded-for") };
        let two = Forwarding { most: Some(2), ..one.clone() };
        let line: &[u8] = b"203.0.113.9, 10.5.5.5, 10.6.6.6";
        assert_eq!(client_of(&one, PROXY, &[line]), "10.6.6.6:0");
        assert_eq!(client_of(&two, PROXY, &[line]), "10.5.5.5:0");
        assert_eq!(client_of(&two, PROXY, &[b"192.0.2.7"]), "192.0.2.7:0");
    }

    /// No text of the client changes this: the address that its proxy appends is its address.
    #[test]
    fn no_text_of_a_client_hides_the_address_that_its_proxy_appends() {
        const PARTS: [&[u8]; 20] = [
            b"10.0.0.1",
            b"192.0.2.9",
            b"for=",
            b"\"",
            b",",
            b";",
            b" ",
            b"[",
            b"]",
            b":",
            b"\\",
            b"_x",
            b"unknown",
            b"::1",
            b"=",
            b"for=\"",
            b"\t",
            b"\xff",
            b"0",
            b"::ffff:10.0.0.1",
        ];
        let mut state = 1u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for _ in 0..20_000 {
            let forged: Vec<u8> = (0..random(12)).flat_map(|_| PARTS[random(PARTS.len())].to_vec()).collect();
            for (field, appended) in [
                ("x-forwarded-for", "198.51.100.7"),
                ("forwarded", "for=198.51.100.7"),
                ("forwarded", "for=\"198.51.100.7\""),
            ] {
                let joined = [&forged, &b", "[..], appended.as_bytes(), b", "].concat();
                let after = if field == "forwarded" { "for=10.0.0.2" } else { "10.0.0.2" };
                let joined = [&joined, after.as_bytes()].concat();
                let lines: [&[u8]; 3] = [&forged, appended.as_bytes(), after.as_bytes()];
                let shown = forged.escape_ascii();
                let forwarding = forwarding(field);
                assert_eq!(client_of(&forwarding, PROXY, &[&joined]), "198.51.100.7:0", "{field}: {shown}");
                assert_eq!(client_of(&forwarding, PROXY, &lines), "198.51.100.7:0", "{field}: {shown}");
                // By itself, it neither panics nor is believed beyond the proxies.
                let alone = client_of(&forwarding, "192.0.2.1:1", &[&forged]);
                assert_eq!(alone, "192.0.2.1:1", "{field}: {shown}");
                client_of(&forwarding, PROXY, &[&forged]);
            }
        }
    }
}
