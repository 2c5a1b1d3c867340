//! Listening sockets, one set for each worker. For a TCP address each worker has a socket (SO_REUSEPORT). A Unix
//! socket, or a socket from systemd, is shared by all workers.
//!
//! Inherited sockets are used unchanged, regardless of the number of workers. None of them is closed, because that
//! would reset the connections in its queue.

mod address;
mod config;
mod configured;
mod connection;
mod idle;
mod inherited;
mod proxy_protocol;
mod tls_connection;
mod unix;
pub(crate) mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::io::Errno;
use sealion_net::{Group, Steering, UdpOptions, UdpSocket};
use sealion_quic::{Route, SHARES};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::http3;
pub(crate) use address::{Address, Held, Purpose, Share};
pub(crate) use config::{Http3Use, ListenConfig, check, check_names, https_port, names};
pub(crate) use configured::{Listen, Mode};
pub(crate) use idle::{close_idle, rest_idle};
pub(crate) use inherited::{Datagrams, Inherited};

/// The number of connections that may wait to be accepted. The kernel lowers it to net.core.somaxconn. INHERITED:
/// somaxconn's default since Linux 5.4.
const BACKLOG: i32 = 4096;

/// A listening socket of one worker.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The socket, which is non-blocking.
    pub socket: ListeningSocket,
    /// The index of its `[[listen]]` table.
    pub wanted: usize,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// For HTTP/3.
    Udp(Box<http3::Bound>),
}

/// The listening sockets of all workers.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// `sets[worker]` has a socket for every address.
    pub sets: Vec<Vec<Listener>>,
    /// The addresses with their final ports, each with the index of its `[[listen]]` table.
    pub addresses: Vec<(Address, usize)>,
    /// Addresses of `localhost` that this machine lacks.
    pub absent: Vec<SocketAddr>,
    /// A duplicate of every socket, for a successor. While a duplicate is open, the kernel accepts connections into its
    /// queue.
    pub held: Vec<Held>,
    /// Unix sockets that were created.
    pub made: Vec<PathBuf>,
    /// How this process serves UDP.
    pub datagrams: Datagrams,
    /// `http3.enabled`.
    http3: Option<bool>,
    /// Inherited groups of UDP sockets, whose new clients are this process' once it has taken over.
    steering: Vec<(OwnedFd, Steering)>,
}

impl Listeners {
    /// Binds every address for every worker, or takes its inherited sockets. `http3`: `http3.enabled`.
    ///
    /// # Errors
    /// One line with the address and the remedy.
    pub(crate) fn bind(
        wanted: &[ListenConfig],
        workers: usize,
        http3: Option<bool>,
        inherited: &mut Inherited,
    ) -> Result<Self, String> {
        let sets = (0..workers).map(|_| Vec::new()).collect();
        let mut listeners = Self {
            sets,
            addresses: Vec::new(),
            absent: Vec::new(),
            held: Vec::new(),
            made: Vec::new(),
            datagrams: inherited.datagrams(),
            http3,
            steering: Vec::new(),
        };
        for (place, one) in wanted.iter().enumerate() {
            listeners.bind_wanted(place, one, inherited)?;
        }
        Ok(listeners)
    }

    fn bind_wanted(&mut self, place: usize, wanted: &ListenConfig, inherited: &mut Inherited) -> Result<(), String> {
        // Port 0 stands for one free port, the same for all addresses of the name.
        let mut port = None;
        let mut bound = false;
        for address in &wanted.address.addresses {
            let sockets = inherited.take(Purpose::Clients, address);
            if !sockets.is_empty() {
                let chosen = Address::of(&sockets[0]).map_err(|e| format!("the inherited socket of {address}: {e}"))?;
                if let (Address::Tcp(chosen), Address::Tcp(asked)) = (&chosen, address)
                    && asked.port() == 0
                {
                    port = Some(chosen.port());
                }
                if let (Address::Unix(path), true) = (address, inherited.is_of_predecessor()) {
                    unix::update_mode(path, wanted.mode).map_err(|e| e.to_string())?;
                }
                self.spread(place, address, sockets).map_err(|e| format!("the inherited socket of {address}: {e}"))?;
                self.bind_http3(place, (wanted, address), &chosen, inherited)?;
                self.addresses.push((chosen, place));
                bound = true;
                continue;
            }
            match address {
                Address::Unix(path) => {
                    let socket = unix::bind(path, wanted.mode, BACKLOG).map_err(|e| e.to_string())?;
                    self.spread(place, address, vec![socket.into()]).map_err(|e| format!("{address}: {e}"))?;
                    self.addresses.push((address.clone(), place));
                    self.made.push(path.clone());
                    bound = true;
                }
                Address::Tcp(asked) => {
                    let concrete = SocketAddr::new(asked.ip(), port.unwrap_or(asked.port()));
                    match self.bind_tcp(place, address, concrete) {
                        Ok(chosen) => {
                            let chosen = SocketAddr::new(concrete.ip(), chosen);
                            self.bind_http3(place, (wanted, address), &Address::Tcp(chosen), inherited)?;
                            let chosen = chosen.port();
                            port = Some(chosen);
                            bound = true;
                        }
                        Err(error) if is_absent(&error) && wanted.address.addresses.len() > 1 => {
                            self.absent.push(concrete)
                        }
                        Err(error) => return Err(explain(concrete, &error, inherited.in_the_way_of(address))),
                    }
                }
            }
        }
        if !bound {
            return Err(format!("cannot listen on {}: this machine has none of its addresses", wanted.address.name));
        }
        Ok(())
    }

    /// Distributes sockets to workers, so that every socket has a worker and every worker a socket.
    fn spread(&mut self, place: usize, wanted: &Address, sockets: Vec<OwnedFd>) -> io::Result<()> {
        for n in 0..self.sets.len().max(sockets.len()) {
            let socket = inherited::second(&sockets[n % sockets.len()])?;
            let workers = self.sets.len();
            self.sets[n % workers].push(Listener { socket: ready(wanted, socket)?, wanted: place });
        }
        let held = |socket| Held { purpose: Purpose::Clients, wanted: wanted.clone(), socket };
        self.held.extend(sockets.into_iter().map(held));
        Ok(())
    }

    /// Binds the UDP sockets beside a TCP address, or takes them over. Where HTTP/3 is not required, a failure leaves clients to TCP. `asked`: the
    /// address in the configuration.
    fn bind_http3(
        &mut self,
        place: usize,
        (wanted, asked): (&ListenConfig, &Address),
        address: &Address,
        inherited: &mut Inherited,
    ) -> Result<(), String> {
        let (Address::Tcp(address), wish) = (address, wanted.http3(self.http3)) else { return Ok(()) };
        if wish == Http3Use::Never {
            return Ok(());
        }
        let Err(error) = self.bind_udp(place, asked, *address, inherited) else { return Ok(()) };
        let failed = format!("cannot listen on UDP {address} for HTTP/3: {error}");
        if wish == Http3Use::Required {
            return Err(format!("{failed}: stop the program that has the port, or remove http3"));
        }
        tracing::warn!(
            "{failed}: clients use TCP. To serve without HTTP/3 on purpose, set http3 = false in [[listen]]"
        );
        Ok(())
    }

    /// Binds the UDP sockets of an address, or takes them over. There are several shares, so that a successor has sockets of its own, and their order
    /// never changes: each process keeps all open, and reads one. A successor could not bind them itself: it has given up the privilege for ports
    /// below 1024.
    fn bind_udp(
        &mut self,
        place: usize,
        asked: &Address,
        address: SocketAddr,
        inherited: &mut Inherited,
    ) -> io::Result<()> {
        let mut shares: Vec<_> =
            Share::all().map(|share| (share, inherited.take(Purpose::Datagrams(share), asked))).collect();
        let workers = shares[0].1.len();
        let is_inherited = workers > 0 && shares.iter().all(|(_, sockets)| sockets.len() == workers);
        if !is_inherited {
            let group = match self.overlaps(address) {
                true => Group::Any,
                false => Group::Own,
            };
            let mut bound = bind_group(address, group, shares.len() * self.sets.len())?.into_iter();
            shares.iter_mut().for_each(|(_, sockets)| *sockets = bound.by_ref().take(self.sets.len()).collect());
        }
        match self.datagrams.share {
            Some(own) => self.read_share(place, own, &shares, is_inherited)?,
            None => tracing::warn!(
                "HTTP/3 is not served on {address}: {} processes before this one still have connections of it; clients use TCP until the next upgrade",
                SHARES
            ),
        }
        for (share, sockets) in shares {
            let held = |socket| Held { purpose: Purpose::Datagrams(share), wanted: asked.clone(), socket };
            self.held.extend(sockets.into_iter().map(held));
        }
        Ok(())
    }

    /// Has workers read a share of UDP sockets. `shares`: all of the address.
    fn read_share(
        &mut self,
        place: usize,
        own: Share,
        shares: &[(Share, Vec<OwnedFd>)],
        is_inherited: bool,
    ) -> io::Result<()> {
        let (first, workers) = (&shares[0].1[0], shares[0].1.len() as u32);
        let steering = Steering { workers, shares: SHARES, share: own.number() };
        if is_inherited {
            self.steering.push((inherited::second(first)?, steering));
        } else {
            steering.attach(first)?;
        }
        let sets = self.sets.len();
        for (worker, socket) in (0..).zip(&shares[own.number() as usize].1) {
            let socket = UdpSocket::from_std(inherited::second(socket)?.into())?;
            let route = Route { worker, workers, share: own.number() };
            let bound = http3::Bound { socket, route, secrets: self.datagrams.secrets.clone() };
            let listener = Listener { socket: ListeningSocket::Udp(Box::new(bound)), wanted: place };
            self.sets[worker as usize % sets].push(listener);
        }
        Ok(())
    }

    /// Takes the new clients of UDP sockets that were inherited: the process before has handed over.
    pub(crate) fn take_steering(&mut self) -> Vec<(OwnedFd, Steering)> {
        std::mem::take(&mut self.steering)
    }

    fn bind_tcp(&mut self, place: usize, wanted: &Address, mut address: SocketAddr) -> io::Result<u16> {
        let overlaps = self.overlaps(address);
        let mut sockets = Vec::with_capacity(self.sets.len());
        for worker in 0..self.sets.len() {
            let socket = bind_one(address, worker > 0 || overlaps)?;
            if worker == 0 {
                // Set after bind, so that bind fails for a port that another process uses, even with SO_REUSEPORT.
                socket.set_reuse_port(true)?;
                address = socket.local_addr()?.as_socket().unwrap_or(address);
            }
            sockets.push(socket);
        }
        // Listens after all sockets are bound, so that even the first connections spread over all of them.
        for socket in &sockets {
            socket.listen(BACKLOG)?;
        }
        self.spread(place, wanted, sockets.into_iter().map(OwnedFd::from).collect())?;
        self.addresses.push((Address::Tcp(address), place));
        Ok(address.port())
    }

    /// Whether another listener covers the address. If 0.0.0.0:443 and 127.0.0.1:443 are both bound, the latter gets the connections to its address.
    fn overlaps(&self, address: SocketAddr) -> bool {
        self.addresses.iter().any(|(other, _)| match other {
            Address::Tcp(other) => do_overlap(*other, address),
            Address::Unix(_) => false,
        })
    }
}

/// Sets the options that every socket needs, inherited or not.
fn ready(address: &Address, socket: OwnedFd) -> io::Result<ListeningSocket> {
    Ok(match address {
        Address::Tcp(_) => {
            let listener = TcpListener::from(socket);
            let socket = SockRef::from(&listener);
            socket.set_nonblocking(true)?;
            // Accepted sockets inherit both options. Responses are written whole, so Nagle's algorithm would only delay them. A
            // machine-wide tcp_notsent_lowat below a TLS record stalls kernel TLS, on Linux 6.1 for ever (docs/kernel.md).
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_notsent_lowat(u32::MAX)?;
            ListeningSocket::Tcp(listener)
        }
        Address::Unix(_) => {
            let listener = UnixListener::from(socket);
            listener.set_nonblocking(true)?;
            ListeningSocket::Unix(listener)
        }
    })
}

/// Binds so many UDP sockets to an address. `group`: of the first.
fn bind_group(address: SocketAddr, group: Group, count: usize) -> io::Result<Vec<OwnedFd>> {
    let bind = |number| {
        let group = if number == 0 { group } else { Group::Any };
        let socket = UdpSocket::bind(address, UdpOptions { group, ..UdpOptions::default() })?;
        Ok(socket.as_std().try_clone()?.into())
    };
    (0..count).map(bind).collect()
}

fn bind_one(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Allows 0.0.0.0:443 and [::]:443 together, each for its own family.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Whether one address is covered by the other, which stands for all addresses of its family.
fn do_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && one.ip() != other.ip()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

fn explain(address: SocketAddr, error: &io::Error, in_the_way: Option<&Address>) -> String {
    if let Some(other) = in_the_way.filter(|_| Errno::from_io_error(error) == Some(Errno::ADDRINUSE)) {
        return format!(
            "cannot listen on {address}: {error}: the inherited socket on {other} covers this port on all addresses: listen on that address instead, or write BindIPv6Only=ipv6-only in the socket unit"
        );
    }
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => {
            let port = address.port();
            format!(
                "another process has it (`ss -ltnp 'sport = :{port}'` names it): stop it, or choose another port: address of [[listen]], or --listen"
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

    fn wanted(address: &str) -> [ListenConfig; 1] {
        [address.parse::<Listen>().unwrap().into()]
    }

    fn bind(wanted: &[ListenConfig], workers: usize) -> Result<Listeners, String> {
        Listeners::bind(wanted, workers, None, &mut Inherited::default())
    }

    fn address(listeners: &Listeners) -> SocketAddr {
        let (Address::Tcp(address), 0) = listeners.addresses[0] else { panic!("{listeners:?}") };
        address
    }

    fn tcp(listener: &Listener) -> &TcpListener {
        let ListeningSocket::Tcp(listener) = &listener.socket else { panic!("{listener:?}") };
        listener
    }

    #[test]
    fn workers_share_a_port_that_no_other_process_can_take() {
        let first = bind(&wanted("127.0.0.1:0"), 3).unwrap();
        let address = address(&first);
        assert_ne!(address.port(), 0);
        assert_eq!(first.sets.len(), 3);
        for set in &first.sets {
            assert_eq!(tcp(&set[0]).local_addr().unwrap(), address);
        }
        let refused = bind(&wanted(&address.to_string()), 3).unwrap_err();
        assert!(refused.contains("another process has it"), "{refused}");
    }

    #[test]
    fn connections_reach_every_worker() {
        let listeners = bind(&wanted("127.0.0.1:0"), 2).unwrap();
        let _clients: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(address(&listeners)).unwrap()).collect();
        for set in &listeners.sets {
            tcp(&set[0]).accept().expect("each of two workers gets some of 64 connections");
        }
    }

    #[test]
    fn a_successor_with_any_number_of_workers_gets_every_queued_connection() {
        for workers in [1, 2, 5] {
            let first = bind(&wanted("127.0.0.1:0"), 3).unwrap();
            let address = address(&first);
            let clients: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
            let Listeners { held, sets, .. } = first;
            let mut inherited = Inherited::from_predecessor(held).unwrap();
            let second = Listeners::bind(&wanted("127.0.0.1:0"), workers, None, &mut inherited).unwrap();
            drop((inherited, sets));
            assert_eq!(super::tests::address(&second), address);
            assert_eq!(second.held.len(), 3);
            let mut accepted = 0;
            for set in &second.sets {
                assert!(!set.is_empty());
                for listener in set {
                    while tcp(listener).accept().is_ok() {
                        accepted += 1;
                    }
                }
            }
            assert_eq!(accepted, clients.len(), "{workers} workers");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_explained() {
        let refused = bind(&wanted("192.0.2.1:0"), 1).unwrap_err();
        assert!(refused.contains("does not have that address"), "{refused}");
    }
}
