//! A network that delays, loses and reorders datagrams, and the clients on it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, EndpointConfig, VarInt};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sealion_quic::{
    Config, ConnectionKey, Datagram, Ecn, Endpoint, Event, Limits, Read, Route, Secrets, StreamId, TlsConfig, Transmit,
    WriteError,
};

pub(crate) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);

/// A small generator whose seed reproduces a failure (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}

pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub(crate) fn for_names(names: impl Iterator<Item = String>) -> Self {
        let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>()).unwrap();
        Identity { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() }
    }
}

pub(crate) static IDENTITY: LazyLock<Identity> =
    LazyLock::new(|| Identity::for_names(std::iter::once("a.example".to_owned())));

pub(crate) fn tls() -> TlsConfig {
    TlsConfig::try_from(Arc::new(rustls_config())).unwrap()
}

pub(crate) fn rustls_config() -> rustls::ServerConfig {
    rustls_config_of(&IDENTITY, rustls::crypto::aws_lc_rs::default_provider())
}

pub(crate) fn rustls_config_of(identity: &Identity, provider: CryptoProvider) -> rustls::ServerConfig {
    let key = PrivateKeyDer::try_from(identity.key.clone()).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config
}

/// Clients with the same one share sessions.
pub(crate) fn client_config(identity: &Identity) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = quinn_proto::TransportConfig::default();
    transport.max_idle_timeout(None);
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    config.transport_config(Arc::new(transport));
    config
}

pub(crate) fn route() -> Route {
    Route { worker: 1, workers: 4, share: 0 }
}

pub(crate) fn endpoint(limits: Limits, secrets: Secrets, now: Instant) -> Endpoint {
    Endpoint::new(Config { tls: tls(), limits, secrets, route: route() }, now, SystemTime::UNIX_EPOCH)
}

/// A client's endpoint with one connection.
pub(crate) struct Client {
    address: SocketAddr,
    endpoint: quinn_proto::Endpoint,
    pub(crate) connection: quinn_proto::Connection,
    handle: ConnectionHandle,
    pub(crate) events: Vec<quinn_proto::Event>,
    /// Bytes that arrived on each stream, and whether it ended.
    pub(crate) received: BTreeMap<quinn_proto::StreamId, (Vec<u8>, bool)>,
    /// Codes of streams that the server reset.
    pub(crate) resets: Vec<u64>,
    unsent: BTreeMap<quinn_proto::StreamId, Vec<u8>>,
}

impl Client {
    fn new(address: SocketAddr, now: Instant, client: ClientConfig) -> Self {
        let config = EndpointConfig::new(Arc::new(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32])));
        let mut endpoint = quinn_proto::Endpoint::new(Arc::new(config), None, true, None);
        let (handle, connection) = endpoint.connect(now, client, SERVER, "a.example").unwrap();
        let (events, received, resets, unsent) = Default::default();
        Client { address, endpoint, connection, handle, events, received, resets, unsent }
    }

    pub(crate) fn is_connected(&self) -> bool {
        !self.connection.is_handshaking() && !self.connection.is_closed()
    }

    /// The code with which the server or the transport ended the connection.
    pub(crate) fn lost(&self) -> Option<&quinn_proto::ConnectionError> {
        self.events.iter().find_map(|event| match event {
            quinn_proto::Event::ConnectionLost { reason } => Some(reason),
            _ => None,
        })
    }

    /// Opens a stream that carries `content` and ends.
    pub(crate) fn send(&mut self, content: Vec<u8>) -> quinn_proto::StreamId {
        self.try_send(content).expect("the server permits streams")
    }

    /// The same, if the server permits a stream now.
    pub(crate) fn try_send(&mut self, content: Vec<u8>) -> Option<quinn_proto::StreamId> {
        let id = self.connection.streams().open(Dir::Bi)?;
        self.unsent.insert(id, content);
        self.received.insert(id, Default::default());
        Some(id)
    }

    fn progress(&mut self) {
        let connection = &mut self.connection;
        self.unsent.retain(|id, content| {
            while !content.is_empty() {
                match connection.send_stream(*id).write(content) {
                    Ok(written) => drop(content.drain(..written)),
                    Err(quinn_proto::WriteError::Blocked) => return true,
                    Err(_) => return false,
                }
            }
            let _ = connection.send_stream(*id).finish();
            false
        });
        for (id, (received, ended)) in self.received.iter_mut().filter(|(_, (_, ended))| !ended) {
            let mut stream = connection.recv_stream(*id);
            let Ok(mut chunks) = stream.read(true) else { continue };
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
                    Ok(None) => {
                        *ended = true;
                        break;
                    }
                    Err(quinn_proto::ReadError::Blocked) => break,
                    Err(quinn_proto::ReadError::Reset(code)) => {
                        self.resets.push(code.into_inner());
                        *ended = true;
                        break;
                    }
                }
            }
        }
    }
}

/// A server that sends back what streams carry.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) events: Vec<(ConnectionKey, Event)>,
    pub(crate) keys: Vec<ConnectionKey>,
    /// Bytes received on each stream, until it ended.
    receiving: BTreeMap<(ConnectionKey, StreamId), Vec<u8>>,
    sending: BTreeMap<(ConnectionKey, StreamId), VecDeque<Bytes>>,
    /// Whether clients are accepted; otherwise they wait.
    pub(crate) accepts: bool,
    pub(crate) transmits: Vec<Transmit>,
}

impl Server {
    fn progress(&mut self, now: Instant) {
        while self.accepts
            && let Some(incoming) = self.endpoint.next_incoming()
        {
            self.keys.extend(self.endpoint.accept(now, incoming, None));
        }
        while let Some((key, event)) = self.endpoint.next_event() {
            match &event {
                Event::Readable(stream) => self.read(key, *stream),
                Event::Writable(stream) => self.write(key, *stream),
                Event::Stopped { stream, code } => {
                    self.sending.remove(&(key, *stream));
                    self.endpoint.connection(key).unwrap().reset(*stream, *code);
                }
                Event::Closed(_) => {
                    self.receiving.retain(|(other, _), _| *other != key);
                    self.sending.retain(|(other, _), _| *other != key);
                }
                _ => {}
            }
            self.events.push((key, event));
        }
    }

    fn read(&mut self, key: ConnectionKey, stream: StreamId) {
        let Some(mut connection) = self.endpoint.connection(key) else { return };
        let received = self.receiving.entry((key, stream)).or_default();
        let mut end = None;
        connection.read(stream, |read| {
            match read {
                Read::Data(bytes) => received.extend_from_slice(&bytes),
                other => end = Some(other),
            }
            true
        });
        if end == Some(Read::End) {
            let content = Bytes::from(self.receiving.remove(&(key, stream)).unwrap());
            let mut chunks = VecDeque::new();
            let mut rest = content;
            while !rest.is_empty() {
                chunks.push_back(rest.split_to(rest.len().min(10_000)));
            }
            self.sending.insert((key, stream), chunks);
            self.write(key, stream);
        }
    }

    fn write(&mut self, key: ConnectionKey, stream: StreamId) {
        let Some(chunks) = self.sending.get_mut(&(key, stream)) else { return };
        let mut connection = self.endpoint.connection(key).unwrap();
        loop {
            while chunks.front().is_some_and(Bytes::is_empty) {
                chunks.pop_front();
            }
            if chunks.is_empty() {
                connection.finish(stream).unwrap();
                self.sending.remove(&(key, stream));
                return;
            }
            match connection.write(stream, chunks.make_contiguous()) {
                Ok(_) => {}
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

struct InFlight {
    arrives: Instant,
    /// `None`: to the server.
    to: Option<SocketAddr>,
    from: SocketAddr,
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    in_flight: Vec<InFlight>,
    pub(crate) random: Random,
    /// Datagrams that a batch of the server may have.
    pub(crate) segments: usize,
    /// Datagrams lost, of 1,000.
    pub(crate) loss: u64,
    /// Datagrams with a changed byte, of 1,000.
    pub(crate) corruption: u64,
    /// Datagrams to clients that a router marks for congestion (CE), of 1,000.
    pub(crate) marks: u64,
    /// The time that a datagram takes, in milliseconds.
    pub(crate) delay: u64,
    /// The largest delay of a datagram beyond that, in milliseconds. Any reorders them.
    pub(crate) jitter: u64,
    /// `None`: each client has its own.
    pub(crate) client_config: Option<ClientConfig>,
    /// Datagrams that the server sent while no client was at their address.
    pub(crate) stray: Vec<(SocketAddr, Vec<u8>)>,
}

impl Network {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with_secrets(limits, Secrets::random())
    }

    pub(crate) fn with_secrets(limits: Limits, secrets: Secrets) -> Self {
        let now = Instant::now();
        let (events, keys, receiving, sending, transmits) = Default::default();
        let endpoint = endpoint(limits, secrets, now);
        let server = Server { endpoint, events, keys, receiving, sending, accepts: true, transmits };
        let (clients, in_flight, stray, client_config) = Default::default();
        let (random, loss, corruption, marks, delay, jitter) = (Random(1), 0, 0, 0, 10, 0);
        Network {
            now,
            server,
            clients,
            in_flight,
            random,
            segments: 10,
            loss,
            corruption,
            marks,
            delay,
            jitter,
            client_config,
            stray,
        }
    }

    /// Adds a client. It sends its first packets with the next step.
    pub(crate) fn connect(&mut self) -> usize {
        let number = self.clients.len();
        let address = SocketAddr::new(Ipv4Addr::new(198, 51, 100, number as u8).into(), 5000);
        let config = self.client_config.clone().unwrap_or_else(|| client_config(&IDENTITY));
        self.clients.push(Client::new(address, self.now, config));
        number
    }

    /// A client whose handshake has ended.
    pub(crate) fn connected(&mut self) -> usize {
        let number = self.connect();
        self.run(|network| {
            let is_connected =
                |(key, event): &(_, _)| Some(key) == network.server.keys.last() && *event == Event::Connected;
            network.clients[number].is_connected() && network.server.events.iter().any(is_connected)
        });
        number
    }

    /// The client's address changes, as behind a router that forgot it.
    pub(crate) fn rebind(&mut self, client: usize) {
        self.clients[client].address.set_port(6000);
    }

    /// The client gets an address of another network.
    pub(crate) fn relocate(&mut self, client: usize) -> SocketAddr {
        let address = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 250).into(), 7000);
        self.clients[client].address = address;
        address
    }

    /// Goes on until `done`.
    pub(crate) fn run(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..200_000 {
            self.step();
            if done(self) {
                return;
            }
            assert!(self.advance(), "nothing is under way");
        }
        panic!("it takes too many steps");
    }

    /// Goes on for a time of the network's clock.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.step();
            if self.next_time().is_none_or(|next| next > end) {
                self.now = end;
                return;
            }
            self.advance();
        }
    }

    /// Both sides do what they can at this time.
    fn step(&mut self) {
        self.server.progress(self.now);
        let mut out = Vec::new();
        while let Some(transmit) = self.server.endpoint.poll_transmit(self.now, self.segments, &mut out) {
            assert_eq!(out.len(), transmit.size);
            self.server.transmits.push(transmit);
            for bytes in out.chunks(transmit.segment.unwrap_or(transmit.size)) {
                self.send(Some(transmit.remote), SERVER, transmit.ecn, bytes);
            }
            out.clear();
        }
        for number in 0..self.clients.len() {
            self.drive(number);
        }
    }

    fn drive(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.progress();
        let mut sent = Vec::new();
        loop {
            while let Some(event) = client.connection.poll_endpoint_events() {
                if let Some(event) = client.endpoint.handle_event(client.handle, event) {
                    client.connection.handle_event(event);
                }
            }
            while let Some(event) = client.connection.poll() {
                client.events.push(event);
            }
            let mut out = Vec::new();
            let Some(transmit) = client.connection.poll_transmit(self.now, 1, &mut out) else { break };
            sent.push((transmit.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8)), out));
        }
        let from = client.address;
        for (ecn, bytes) in sent {
            self.send(None, from, ecn, &bytes);
        }
    }

    /// Sends a datagram, or loses it. `to`: a client, else the server.
    pub(crate) fn send(&mut self, to: Option<SocketAddr>, from: SocketAddr, ecn: Option<Ecn>, bytes: &[u8]) {
        if self.random.below(1000) < self.loss {
            return;
        }
        let mut bytes = bytes.to_vec();
        if self.random.below(1000) < self.corruption {
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 0x55;
        }
        let is_marked = to.is_some() && ecn.is_some() && self.random.below(1000) < self.marks;
        let ecn = if is_marked { Some(Ecn::Ce) } else { ecn };
        let delay = self.delay + if self.jitter > 0 { self.random.below(self.jitter) } else { 0 };
        let arrives = self.now + Duration::from_millis(delay);
        self.in_flight.push(InFlight { arrives, to, from, ecn, bytes });
    }

    fn next_time(&mut self) -> Option<Instant> {
        let arrival = self.in_flight.iter().map(|datagram| datagram.arrives).min();
        let timeouts = self.clients.iter_mut().filter_map(|client| client.connection.poll_timeout()).min();
        [arrival, timeouts, self.server.endpoint.next_timeout()].into_iter().flatten().min()
    }

    /// Goes to the time of what happens next, and has it happen.
    fn advance(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|datagram| datagram.arrives <= now);
        self.in_flight = later;
        for datagram in due {
            self.deliver(datagram);
        }
        for client in &mut self.clients {
            if client.connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
                client.connection.handle_timeout(now);
            }
        }
        self.server.endpoint.handle_timeouts(now);
        true
    }

    fn deliver(&mut self, InFlight { to, from, ecn, bytes, .. }: InFlight) {
        let data = BytesMut::from(&bytes[..]);
        let Some(to) = to else {
            let datagram = Datagram { remote: from, local: Some(SERVER.ip()), ecn, data };
            return self.server.endpoint.receive(self.now, datagram);
        };
        let Some(client) = self.clients.iter_mut().find(|client| client.address == to) else {
            return self.stray.push((to, bytes));
        };
        let ecn = ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn.bits()));
        if let Some(DatagramEvent::ConnectionEvent(_, event)) =
            client.endpoint.handle(self.now, from, None, ecn, data, &mut Vec::new())
        {
            client.connection.handle_event(event);
        }
    }

    /// The first datagram of a client that is not on the network.
    pub(crate) fn first_datagram(&self) -> Vec<u8> {
        let mut client =
            Client::new(SocketAddr::new(Ipv4Addr::new(203, 0, 113, 1).into(), 1), self.now, client_config(&IDENTITY));
        let mut out = Vec::new();
        let _ = client.connection.poll_transmit(self.now, 1, &mut out);
        out
    }
}

pub(crate) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap()
}
