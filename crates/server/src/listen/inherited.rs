//! Listening sockets opened by another process: systemd (sd_listen_fds(3)) or the predecessor.

use std::os::fd::{AsFd, OwnedFd};

use listenfd::ListenFd;

use sealion_quic::Secrets;

use super::address::{Address, Held, Purpose, Share};

/// Inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<Socket>,
    origin: Origin,
    /// How this process serves UDP. `None`: no predecessor tells.
    datagrams: Option<Datagrams>,
}

/// How a process serves UDP.
#[derive(Debug, Clone)]
pub(crate) struct Datagrams {
    /// The share of the sockets that it reads. `None`: processes before it have them all, so that it has no HTTP/3.
    pub(crate) share: Option<Share>,
    /// The shares of the processes before it that have not ended, by their numbers.
    pub(crate) older: Vec<(u32, Share)>,
    pub(crate) secrets: Secrets,
}

#[derive(Debug)]
struct Socket {
    bound: Address,
    /// The purpose and address in the predecessor's configuration.
    wanted: Option<(Purpose, Address)>,
    fd: OwnedFd,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Origin {
    #[default]
    None,
    Systemd,
    Predecessor,
}

impl Inherited {
    /// The sockets that systemd passes by LISTEN_FDS, if any. Call it once, before another descriptor is opened.
    ///
    /// # Errors
    /// One line with the descriptor that is not a listening stream socket, and the remedy.
    pub(crate) fn from_systemd() -> Result<Self, String> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for n in 0..passed.len() {
            let tcp = passed.take_tcp_listener(n).ok().flatten().map(OwnedFd::from);
            let fd = match tcp {
                Some(fd) => fd,
                None => match passed.take_unix_listener(n) {
                    Ok(Some(listener)) => listener.into(),
                    _ => {
                        return Err(format!(
                            "LISTEN_FDS: socket {n} that systemd passes is neither a TCP nor a Unix stream socket: use ListenStream= in the socket unit"
                        ));
                    }
                },
            };
            let unusable = |why: std::io::Error| format!("LISTEN_FDS: socket {n} that systemd passes: {why}");
            if !rustix::net::sockopt::socket_acceptconn(&fd).map_err(|e| unusable(e.into()))? {
                return Err(format!(
                    "LISTEN_FDS: socket {n} that systemd passes is a connection, not a listening socket: write Accept=no in the socket unit"
                ));
            }
            let bound = Address::of(&fd).map_err(unusable)?;
            sockets.push(Socket { bound, wanted: None, fd });
        }
        let origin = if sockets.is_empty() { Origin::None } else { Origin::Systemd };
        Ok(Self { sockets, origin, datagrams: None })
    }

    /// With the predecessor's word on UDP: it goes on with its own share. `pid`: its number.
    pub(crate) fn with_datagrams(self, datagrams: Option<Datagrams>, pid: u32) -> Self {
        let datagrams = datagrams.map(|Datagrams { share, mut older, secrets }| {
            older.extend(share.map(|share| (pid, share)));
            Datagrams { share: Share::besides(&older), older, secrets }
        });
        Self { datagrams, ..self }
    }

    /// How this process serves UDP.
    pub(super) fn datagrams(&self) -> Datagrams {
        let first = || Datagrams { share: Some(Share::default()), older: Vec::new(), secrets: Secrets::random() };
        self.datagrams.clone().unwrap_or_else(first)
    }

    /// The sockets that the predecessor passes.
    ///
    /// # Errors
    /// One line with the socket that cannot be used.
    pub(crate) fn from_predecessor(held: Vec<Held>) -> Result<Self, String> {
        let sockets = held.into_iter().map(|Held { purpose, wanted, socket }| {
            let bound = Address::of(&socket).map_err(|e| format!("the inherited socket of {wanted}: {e}"))?;
            Ok(Socket { bound, wanted: Some((purpose, wanted)), fd: socket })
        });
        Ok(Self { sockets: sockets.collect::<Result<_, String>>()?, origin: Origin::Predecessor, datagrams: None })
    }

    /// Takes all sockets of this address, in their order. `purpose` only matters for sockets of the predecessor:
    /// systemd passes none.
    pub(crate) fn take(&mut self, purpose: Purpose, address: &Address) -> Vec<OwnedFd> {
        let asked_for = |socket: &mut Socket| match &socket.wanted {
            Some((other, _)) if *other != purpose => false,
            wanted => address.is_served_by(&socket.bound, wanted.as_ref().map(|(_, wanted)| wanted)),
        };
        self.sockets.extract_if(.., asked_for).map(|socket| socket.fd).collect()
    }

    /// Whether they come from the predecessor, so that this process may change their permissions. It may not for
    /// systemd's sockets.
    pub(super) fn is_of_predecessor(&self) -> bool {
        self.origin == Origin::Predecessor
    }

    /// The inherited socket that prevents binding `address`: a socket bound to all addresses of its port.
    pub(super) fn in_the_way_of(&self, address: &Address) -> Option<&Address> {
        let Address::Tcp(address) = address else { return None };
        self.sockets.iter().map(|socket| &socket.bound).find(
            |bound| matches!(bound, Address::Tcp(other) if other.port() == address.port() && other.ip().is_unspecified()),
        )
    }

    /// Closes the sockets that no listener took, and returns their addresses: the configuration no longer names them.
    ///
    /// # Errors
    /// They come from systemd, which keeps them open: clients could connect, but would never get a response.
    pub(crate) fn finish(self) -> Result<Vec<Address>, String> {
        let left: Vec<Address> = self.sockets.into_iter().map(|socket| socket.bound).collect();
        if self.origin != Origin::Systemd || left.is_empty() {
            return Ok(left);
        }
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        Err(format!(
            "LISTEN_FDS: no [[listen]] uses the socket on {names} that systemd passes: add a [[listen]] with that address (or --listen), or remove ListenStream= from the socket unit"
        ))
    }
}

/// Duplicates a descriptor.
pub(super) fn second(fd: &impl AsFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(wanted: &str) -> Held {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        Held { purpose: Purpose::Clients, wanted: Address::Tcp(wanted.parse().unwrap()), socket }
    }

    #[test]
    fn sockets_go_to_whoever_asks_for_their_address() {
        let free = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let metrics = Held { purpose: Purpose::Metrics, ..held("127.0.0.1:0") };
        let all = vec![held("127.0.0.1:0"), held("127.0.0.2:0"), metrics, held("127.0.0.1:0")];
        let mut inherited = Inherited::from_predecessor(all).unwrap();
        assert_eq!(inherited.take(Purpose::Clients, &free).len(), 2);
        assert_eq!(inherited.take(Purpose::Clients, &free).len(), 0);
        assert_eq!(inherited.take(Purpose::Metrics, &free).len(), 1);
        assert_eq!(inherited.finish().unwrap().len(), 1, "what is no longer configured is let go");
    }

    #[test]
    fn what_systemd_passes_must_be_wanted() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = Address::of(&socket).unwrap();
        let sockets = vec![Socket { bound: bound.clone(), wanted: None, fd: socket.into() }];
        let refused = Inherited { sockets, origin: Origin::Systemd, datagrams: None }.finish().unwrap_err();
        assert!(refused.contains(&bound.to_string()) && refused.contains("[[listen]]"), "{refused}");
    }
}
