//! Listening sockets: one set a worker, all on the same addresses by SO_REUSEPORT.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that may wait to be accepted. The kernel lowers it to net.core.somaxconn.
/// INHERITED: somaxconn's default since Linux 5.4.
const BACKLOG: i32 = 4096;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenConfig {
    /// Address and port, for instance `0.0.0.0:443` or `[::]:443`; `localhost` means IPv4 and IPv6.
    #[schemars(with = "String")]
    pub address: Listen,
}

impl From<Listen> for ListenConfig {
    fn from(address: Listen) -> Self {
        ListenConfig { address }
    }
}

/// A host and port with the addresses that its host stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// As it was given.
    pub name: String,
    /// What it resolves to.
    pub addresses: Vec<SocketAddr>,
}

impl Listen {
    /// Where a server that was told nothing can be tried: localhost:8443.
    pub fn development() -> Self {
        Listen { name: "localhost:8443".to_owned(), addresses: localhost(8443) }
    }
}

fn localhost(port: u16) -> Vec<SocketAddr> {
    vec![([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()]
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let hint = "write HOST:PORT, for instance 0.0.0.0:443, [::]:443 or localhost:8443";
        let addresses: Vec<SocketAddr> = match name.to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) if name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                return Err(format!("the host is not known here ({error}): {hint}"));
            }
            Err(_) => return Err(hint.to_owned()),
        };
        let mut addresses = addresses;
        // Machines whose hosts file lacks the IPv6 line still have the address.
        if let Some(port) = name.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            addresses = localhost(port);
        }
        Ok(Listen { name: name.to_owned(), addresses })
    }
}

impl Serialize for Listen {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The sockets of every worker: `sets[worker]`.
#[derive(Debug)]
pub struct Listeners {
    /// A set for each worker, each with a socket for every address.
    pub sets: Vec<Vec<TcpListener>>,
    /// The addresses with their final ports.
    pub addresses: Vec<SocketAddr>,
    /// Addresses of `localhost` that this machine does not have.
    pub absent: Vec<SocketAddr>,
}

impl Listeners {
    /// Binds every address for every worker.
    ///
    /// # Errors
    /// A line that names the address and the remedy.
    pub fn bind<'a>(listens: impl IntoIterator<Item = &'a Listen>, workers: usize) -> Result<Self, String> {
        let mut listeners =
            Self { sets: (0..workers).map(|_| Vec::new()).collect(), addresses: Vec::new(), absent: Vec::new() };
        for listen in listens {
            // Port 0 stands for one free port, the same for every address of the name.
            let mut port = None;
            let mut bound = false;
            for &address in &listen.addresses {
                let address = SocketAddr::new(address.ip(), port.unwrap_or(address.port()));
                match listeners.bind_address(address) {
                    Ok(chosen) => {
                        port = Some(chosen);
                        bound = true;
                    }
                    Err(error) if is_absent(&error) && listen.addresses.len() > 1 => {
                        listeners.absent.push(address);
                    }
                    Err(error) => return Err(explain(address, &error)),
                }
            }
            if !bound {
                return Err(format!("{}: none of its addresses exists on this machine", listen.name));
            }
        }
        Ok(listeners)
    }

    fn bind_address(&mut self, address: SocketAddr) -> io::Result<u16> {
        let mut address = address;
        for (worker, set) in self.sets.iter_mut().enumerate() {
            let socket = bind_one(address, worker > 0)?;
            if worker == 0 {
                // Only now, so that a port that another process shares was refused just above.
                socket.set_reuse_port(true)?;
                address = socket.local_addr()?.as_socket().unwrap_or(address);
            }
            set.push(socket.into());
        }
        // Listen when all are bound: connections then spread over all of them from the first on.
        for set in &self.sets {
            if let Some(listener) = set.last() {
                SockRef::from(listener).listen(BACKLOG)?;
            }
        }
        self.addresses.push(address);
        Ok(address.port())
    }
}

fn bind_one(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // So that 0.0.0.0:443 and [::]:443 can stand side by side and each means what it says.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit both. A response leaves whole, so there is nothing to wait for; and a machine-wide limit on
    // unsent bytes below a TLS record stalls the kernel path, on Linux 6.1 for ever (docs/kernel.md).
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(u32::MAX)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

fn explain(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => {
            let port = address.port();
            format!(
                "another process has it (`ss -ltnp 'sport = :{port}'` names it): stop that, or choose another port with --listen"
            )
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one with --listen, or grant the capability"
                .to_owned()
        }
        Some(Errno::ADDRNOTAVAIL) => "this machine does not have that address (`ip address` lists them)".to_owned(),
        Some(Errno::AFNOSUPPORT) => match address.ip() {
            IpAddr::V6(_) => "this machine has no IPv6".to_owned(),
            IpAddr::V4(_) => "this machine has no IPv4".to_owned(),
        },
        _ => "choose another address with --listen".to_owned(),
    };
    format!("cannot listen on {address}: {error}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str) -> Listen {
        Listen { name: address.to_owned(), addresses: vec![address.parse().unwrap()] }
    }

    #[test]
    fn workers_share_a_port_that_no_other_process_can_take() {
        let first = Listeners::bind(&[listen("127.0.0.1:0")], 3).unwrap();
        let address = first.addresses[0];
        assert_ne!(address.port(), 0);
        assert_eq!(first.sets.len(), 3);
        for set in &first.sets {
            assert_eq!(set[0].local_addr().unwrap(), address);
        }
        let refused = Listeners::bind(&[listen(&address.to_string())], 3).unwrap_err();
        assert!(refused.contains("another process has it"), "{refused}");
    }

    #[test]
    fn connections_reach_every_worker() {
        let listeners = Listeners::bind(&[listen("127.0.0.1:0")], 2).unwrap();
        let _clients: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(listeners.addresses[0]).unwrap()).collect();
        for set in &listeners.sets {
            set[0].accept().expect("each of two workers gets some of 64 connections");
        }
    }

    #[test]
    fn localhost_is_both_families() {
        let listen: Listen = "localhost:8443".parse().unwrap();
        assert_eq!(listen, Listen::development());
        assert_eq!(listen.addresses, ["127.0.0.1:8443".parse().unwrap(), "[::1]:8443".parse().unwrap()]);
    }

    #[test]
    fn bad_addresses_say_what_to_write() {
        for listen in ["8443", "localhost", "localhost:99999", "localhost:", ""] {
            assert!(listen.parse::<Listen>().unwrap_err().contains("HOST:PORT"), "{listen}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_explained() {
        let refused = Listeners::bind(&[listen("192.0.2.1:0")], 1).unwrap_err();
        assert!(refused.contains("does not have that address"), "{refused}");
    }
}
