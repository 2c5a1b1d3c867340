//! Addresses of listening sockets: an IP address and port, or a path.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use sealion_quic::SHARES;
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef};

/// The address of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Address {
    /// An IP address and a TCP port. Port 0 means any free port.
    Tcp(SocketAddr),
    /// A Unix stream socket (unix(7)), by its path.
    Unix(PathBuf),
}

/// The prefix of a Unix socket in its written form.
const UNIX: &str = "unix:";

impl Address {
    /// The path after `unix:`; `None` without that prefix.
    ///
    /// # Errors
    /// One line: the path is relative or too long.
    pub(crate) fn parse_unix(name: &str) -> Option<Result<Self, String>> {
        let path = Path::new(name.strip_prefix(UNIX)?);
        Some(match path.as_os_str().len() {
            _ if !path.is_absolute() => Err("write an absolute path, for instance unix:/run/sealion.sock".to_owned()),
            MAX_PATH.. => Err(format!("the path of a Unix socket has at most {} bytes (unix(7))", MAX_PATH - 1)),
            _ => Ok(Self::Unix(path.to_owned())),
        })
    }

    /// The address that a listening socket is bound to.
    ///
    /// # Errors
    /// Errors of getsockname(2), and an unsupported address family.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let address: SockAddr = SockRef::from(&socket.as_fd()).local_addr()?;
        address
            .as_socket()
            .map(Self::Tcp)
            .or_else(|| address.as_pathname().map(|path| Self::Unix(path.to_owned())))
            .ok_or_else(|| io::Error::other("neither IPv4 nor IPv6, nor a Unix socket with a path"))
    }

    /// Whether the port is 0.
    pub(super) fn is_free_port(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.port() == 0)
    }

    /// Whether a socket serves this address. `bound`: the socket's address. `wanted`: its configured address.
    pub(super) fn is_served_by(&self, bound: &Address, wanted: Option<&Address>) -> bool {
        match self {
            // The port was chosen for the same configured address.
            _ if self.is_free_port() => wanted == Some(self),
            _ => self == bound,
        }
    }
}

/// SPEC: unix(7), the size of `sun_path`, including the terminating zero.
const MAX_PATH: usize = 108;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The listener that a socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Purpose {
    /// A `[[listen]]` table.
    Clients,
    /// The UDP sockets of a `[[listen]]` table.
    Datagrams(Share),
    /// `[metrics]`.
    Metrics,
}

/// A share of the UDP sockets at an address: the sockets that one process reads. Each living process has another share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share(u32);

impl Share {
    /// All shares, in the order of their sockets.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..SHARES).map(Share)
    }

    /// The first share that is not in use.
    pub(crate) fn besides(used: &[(u32, Share)]) -> Option<Self> {
        Self::all().find(|share| used.iter().all(|(_, other)| other != share))
    }

    /// Its number, below [`SHARES`].
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// A socket to pass to a successor.
#[derive(Debug)]
pub(crate) struct Held {
    pub purpose: Purpose,
    /// The address in the configuration.
    pub wanted: Address,
    /// The socket. The kernel queues connections as long as any process has it open.
    pub socket: OwnedFd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_are_written_by_their_paths() {
        let address = Address::parse_unix("unix:/run/sealion.sock").unwrap().unwrap();
        assert_eq!(address.to_string(), "unix:/run/sealion.sock");
        assert_eq!(Address::parse_unix("127.0.0.1:80"), None);
        assert!(Address::parse_unix("unix:run").unwrap().unwrap_err().contains("absolute"));
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(Address::parse_unix(&long).unwrap().unwrap_err().contains("107 bytes"));
        assert!(Address::parse_unix(&long[..long.len() - 1]).unwrap().is_ok());
    }

    #[test]
    fn a_process_gets_a_share_that_no_other_has() {
        let mut used = Vec::new();
        for number in 0..SHARES {
            let share = Share::besides(&used).expect("a share");
            assert_eq!(share.number(), number);
            used.push((number + 1, share));
        }
        assert_eq!(Share::besides(&used), None);
        used.remove(2);
        assert_eq!(Share::besides(&used), Some(Share(2)));
    }

    #[test]
    fn a_free_port_is_found_again_by_the_words_that_asked_for_it() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        let (free, chosen) = (tcp("127.0.0.1:0"), tcp("127.0.0.1:34567"));
        assert!(free.is_served_by(&chosen, Some(&free)));
        assert!(!free.is_served_by(&chosen, None));
        assert!(chosen.is_served_by(&chosen, None));
        assert!(!tcp("127.0.0.1:443").is_served_by(&chosen, Some(&free)));
    }
}
