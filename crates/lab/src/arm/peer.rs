//! A server that is already running and serves the lab's files. It may take the name of an arm, and replaces that arm
//! in comparisons.

use std::net::ToSocketAddrs;
use std::str::FromStr;

use anyhow::{Context, Result};

use super::{Arm, Server, Transport};

/// The URL of the lab's files on a running server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Peer {
    /// The URL as given, without the name.
    pub(crate) url: String,
    /// The arm whose name and claim it takes.
    pub(super) named: Option<Box<Arm>>,
    /// Host, for SNI and the Host field.
    host: String,
    port: u16,
    /// Begins and ends with `/`.
    path: String,
}

impl Peer {
    /// The server, with its address looked up.
    ///
    /// # Errors
    /// The host name does not resolve.
    pub(crate) fn server(&self) -> Result<Server> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let address = (host, self.port).to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.with_context(|| format!("{}: the host {host} is not known here", self.url))?;
        Ok(Server {
            address,
            name: host.to_owned(),
            transport: Transport::Tcp,
            roots: None,
            prefix: self.path.clone(),
            pid: None,
            command: String::new(),
            configuration: String::new(),
            process: None,
            _behind: None,
            _group: None,
        })
    }
}

impl Peer {
    /// Whether the kernel's counters and sockets that the lab sees include this server, so that its claim can be
    /// proven.
    pub(super) fn is_here(&self) -> bool {
        self.server().is_ok_and(|server| server.address.ip().is_loopback())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write https://HOST:PORT/ or https://HOST:PORT/DIRECTORY/, with NAME= before it for an arm's name";
        if let Some((name, url)) = text.split_once('=').filter(|(name, _)| !name.contains('/')) {
            let named = Arm::own(name).map(Box::new);
            return Ok(Self { named: Some(named?), ..url.parse()? });
        }
        let rest = text.strip_prefix("https://").ok_or(hint)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port_at = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
        let (host, port) = match port_at {
            Some(at) => (&authority[..at], authority[at + 1..].parse().map_err(|_| hint)?),
            None => (authority, 443),
        };
        if host.is_empty() || rest.contains(['?', '#', ' ']) {
            return Err(hint.to_owned());
        }
        let path = path.trim_matches('/');
        let path = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
        Ok(Self { url: text.to_owned(), named: None, host: host.to_owned(), port, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |text: &str| text.parse::<Peer>().map(|p| (p.host, p.port, p.path));
        let expect = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(parts("https://localhost:8443"), expect("localhost", 8443, "/"));
        assert_eq!(parts("https://example.org/a/b"), expect("example.org", 443, "/a/b/"));
        assert_eq!(parts("https://[::1]:9/x/"), expect("[::1]", 9, "/x/"));
        assert_eq!(parts("https://[::1]/"), expect("[::1]", 443, "/"));
        for wrong in ["http://localhost/", "https://", "https://localhost:x/", "https://localhost/?q"] {
            assert!(parts(wrong).unwrap_err().contains("https://HOST:PORT"), "{wrong}");
        }
    }
}
