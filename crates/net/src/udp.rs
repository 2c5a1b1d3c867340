//! A UDP socket that sends and receives in batches.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

/// A UDP socket that does not block. It never fragments datagrams (IP_PMTUDISC_PROBE), and is told local addresses and ECN
/// marks.
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    state: UdpSocketState,
}

/// How a socket is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpOptions {
    /// The sockets beside which it may be bound.
    pub group: Group,
    /// Bytes that the kernel keeps until they are read (SO_RCVBUF). The kernel gives no more than
    /// `net.core.rmem_max`: [`UdpSocket::receive_buffer`] tells the result. `None`: its default.
    pub receive_buffer: Option<usize>,
    /// Bytes that the kernel keeps until they are sent (SO_SNDBUF), up to `net.core.wmem_max`.
    pub send_buffer: Option<usize>,
}

/// The other sockets at the address of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Group {
    /// Joins those that are there, as far as they belong to the same user.
    #[default]
    Any,
    /// Begins a group: where another socket has the address, bind fails.
    Own,
}

/// Datagrams to send to one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The receiver.
    pub remote: SocketAddr,
    /// The local address to send from.
    pub local: Option<IpAddr>,
    /// The lowest two bits of the traffic class.
    pub ecn: u8,
    /// All datagrams, one behind the other: at most 65,507 bytes together, the largest payload of a datagram.
    pub bytes: &'a [u8],
    /// The size of each datagram but the last, which may be shorter. `None`: there is only one.
    pub segment: Option<usize>,
}

/// A datagram that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// The sender.
    pub remote: SocketAddr,
    /// The local address that it was sent to.
    pub local: Option<IpAddr>,
    /// The lowest two bits of the traffic class.
    pub ecn: u8,
    /// The payload.
    pub bytes: &'a [u8],
}

/// The memory for one call of [`UdpSocket::receive`]; one a thread suffices.
pub struct ReceiveBuffers {
    bytes: Box<[u8]>,
}

impl fmt::Debug for ReceiveBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveBuffers of {} bytes", self.bytes.len())
    }
}

/// The messages of one call. Each has up to 64 datagrams of one sender (GRO). GUESS.
const MESSAGES: usize = 8;

/// The largest message (GRO: linux/net/ipv4/udp_offload.c).
const MESSAGE: usize = 65_536;

impl Default for ReceiveBuffers {
    fn default() -> Self {
        ReceiveBuffers { bytes: vec![0; MESSAGES * MESSAGE].into() }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl UdpSocket {
    /// Binds a socket in the group of all sockets at `address` (SO_REUSEPORT). An address of IPv6 gets no datagrams of IPv4.
    ///
    /// # Errors
    /// Errors of socket(2), setsockopt(2) and bind(2). EADDRINUSE: another user, or a socket without SO_REUSEPORT, has
    /// the address; with [`Group::Own`], any socket.
    pub fn bind(address: SocketAddr, options: UdpOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_port(options.group == Group::Any)?;
        if let Some(bytes) = options.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&address.into())?;
        // Sockets that are bound later make the group with it (linux/net/ipv4/udp.c: udp_reuseport_add_sock).
        socket.set_reuse_port(true)?;
        Self::from_std(socket.into())
    }

    /// Takes a socket that is bound, for instance one that another process opened.
    ///
    /// # Errors
    /// Errors of setsockopt(2).
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // quinn-udp 0.6.3 asks for timestamps, and its buffer of 96 bytes has no room for them beside all else: of an IPv4
        // datagram received with GRO, the kernel then drops the ECN mark (MSG_CTRUNC). They also cost a reading of the clock.
        setsockopt(&socket, sockopt::ReceiveTimestampns, &false)?;
        Ok(UdpSocket { socket, state })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// Errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The socket, for a runtime that waits for it.
    pub fn as_std(&self) -> &std::net::UdpSocket {
        &self.socket
    }

    /// Bytes that the kernel keeps until they are read. It counts its own structures, too.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.state.recv_buffer_size((&self.socket).into())
    }

    /// The number of datagrams that one batch may have: 1 without GSO, or after the kernel refused it once.
    pub fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Whether one message may have several datagrams (GRO).
    pub fn receives_batches(&self) -> bool {
        self.state.gro_segments() > 1
    }

    /// Sends a batch by one call. Where the kernel refuses GSO on the way of the batch, each datagram is sent by itself, and
    /// [`max_segments`](Self::max_segments) is 1 from then on.
    ///
    /// A datagram that is larger than the path permits is dropped: it is a probe.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: the kernel's buffer is full; wait until the socket is writable, and send the batch
    /// again. Others, such as EPERM of a firewall and ENETUNREACH, are lost datagrams to QUIC.
    pub fn send(&self, batch: &Batch<'_>) -> io::Result<()> {
        match self.send_once(batch) {
            Err(error) if is_refusal(&error) && batch.segment.is_some() && self.max_segments() == 1 => {
                let segment = batch.segment.unwrap_or(batch.bytes.len()).max(1);
                let mut datagrams = batch.bytes.chunks(segment);
                datagrams.try_for_each(|bytes| self.send_once(&Batch { bytes, segment: None, ..*batch }))
            }
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(()),
            result => result,
        }
    }

    fn send_once(&self, batch: &Batch<'_>) -> io::Result<()> {
        let transmit = Transmit {
            destination: batch.remote,
            ecn: EcnCodepoint::from_bits(batch.ecn),
            contents: batch.bytes,
            segment_size: batch.segment,
            src_ip: batch.local,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Receives by one call, and hands out each datagram. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: nothing has arrived. Others belong to datagrams that were sent (ICMP).
    pub fn receive(&self, buffers: &mut ReceiveBuffers, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); MESSAGES];
        let mut slices: Vec<_> = buffers.bytes.chunks_mut(MESSAGE).map(IoSliceMut::new).collect();
        let messages = self.state.recv((&self.socket).into(), &mut slices, &mut metas)?;
        let mut datagrams = 0;
        for (meta, message) in metas.iter().zip(&slices).take(messages) {
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            // An empty datagram has no stride, and no packet of QUIC.
            for bytes in message[..meta.len].chunks(meta.stride.max(1)) {
                each(Received { remote: meta.addr, local: meta.dst_ip, ecn, bytes });
                datagrams += 1;
            }
        }
        Ok(datagrams)
    }
}

/// The kernel or a device refuses GSO: it lacks checksum offload (EIO), or the option (EINVAL).
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
