//! HTTP/3 on the loopback interface: the socket, the endpoint and the protocol, driven as a server drives them. The client is
//! quinn-proto with frames of its own.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, EndpointConfig};
use rustls::pki_types::PrivateKeyDer;
use sealion_h3::{Command, HeadBuffer, HeaderBlock};
use sealion_net::{Batch, ReceiveBuffers, UdpOptions, UdpSocket};
use sealion_quic::{Config, ConnectionKey, Datagram, Ecn, Endpoint, Event, Limits, Read, Route, Secrets, TlsConfig};

/// A driver of HTTP/3 that responds to each request with the same content.
struct Server {
    socket: UdpSocket,
    endpoint: Endpoint,
    connections: HashMap<ConnectionKey, Http3>,
    head: HeadBuffer,
    content: Bytes,
    paths: Vec<String>,
}

struct Http3 {
    protocol: sealion_h3::Connection,
    control: Option<sealion_quic::StreamId>,
    /// Chunks to write, by stream: frames, then content. Then the stream ends.
    sending: HashMap<sealion_quic::StreamId, Vec<Bytes>>,
}

impl Server {
    /// One round: datagrams in, events, datagrams out.
    fn round(&mut self, buffers: &mut ReceiveBuffers) {
        let now = Instant::now();
        let endpoint = &mut self.endpoint;
        let _ = self.socket.receive(buffers, |received| {
            let data = BytesMut::from(received.bytes);
            let ecn = Ecn::from_bits(received.ecn);
            endpoint.receive(now, Datagram { remote: received.remote, local: received.local, ecn, data });
        });
        self.endpoint.handle_timeouts(now);
        while let Some(incoming) = self.endpoint.next_incoming() {
            if let Some(key) = self.endpoint.accept(now, incoming, None) {
                let protocol = sealion_h3::Connection::new(sealion_h3::Limits::default());
                self.connections.insert(key, Http3 { protocol, control: None, sending: HashMap::new() });
            }
        }
        while let Some((key, event)) = self.endpoint.next_event() {
            self.on_event(key, event);
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, self.socket.max_segments(), &mut out) {
            let ecn = transmit.ecn.map_or(0, Ecn::bits);
            let (remote, local, segment) = (transmit.remote, transmit.local, transmit.segment);
            self.socket.send(&Batch { remote, local, ecn, bytes: &out, segment }).unwrap();
            out.clear();
        }
    }

    fn on_event(&mut self, key: ConnectionKey, event: Event) {
        let Some(http3) = self.connections.get_mut(&key) else { return };
        match event {
            Event::Connected => {
                let mut connection = self.endpoint.connection(key).unwrap();
                let (stream, mut control) = (connection.open_uni().unwrap(), Vec::new());
                connection.set_level(stream, i32::MAX);
                http3.protocol.write_control(&mut control);
                assert_eq!(connection.write_copy(stream, &control), Ok(control.len()));
                http3.control = Some(stream);
            }
            Event::Opened(stream) => {
                http3.protocol.open(sealion_h3::StreamId::new(stream.get())).unwrap();
            }
            Event::Readable(stream) => self.read(key, stream),
            Event::Writable(stream) => self.write(key, stream),
            Event::Stopped { stream, code } => {
                let id = sealion_h3::StreamId::new(stream.get());
                http3.protocol.cancelled(id, sealion_h3::ErrorCode(code)).unwrap();
                self.carry_out(key);
            }
            Event::Finished(_) | Event::StreamAvailable => {}
            Event::Closed(_) => drop(self.connections.remove(&key)),
        }
    }

    fn read(&mut self, key: ConnectionKey, stream: sealion_quic::StreamId) {
        let Some(mut connection) = self.endpoint.connection(key) else { return };
        let Http3 { protocol, sending, .. } = self.connections.get_mut(&key).unwrap();
        let (head, content, paths) = (&mut self.head, &self.content, &mut self.paths);
        let id = sealion_h3::StreamId::new(stream.get());
        connection.read(stream, |read| {
            let (bytes, fin) = match read {
                Read::Data(bytes) => (bytes, false),
                Read::End => (Bytes::new(), true),
                Read::Blocked => return false,
                Read::Reset(code) => {
                    protocol.cancelled(id, sealion_h3::ErrorCode(code)).unwrap();
                    return false;
                }
            };
            let mut input = &bytes[..];
            while let Some(event) = protocol.receive(id, &mut input, fin, head).unwrap() {
                if let sealion_h3::Event::Request { stream: id, .. } = event {
                    paths.push(head.request().path.unwrap_or_default().to_owned());
                    let (block, mut out) = (HeaderBlock::response(200), Vec::new());
                    protocol.respond(id, &[block.as_bytes()], false, &mut out).unwrap();
                    protocol.data(id, content.len() as u64, true, &mut out).unwrap();
                    sending.insert(stream, vec![out.into(), content.clone()]);
                }
            }
            true
        });
        self.carry_out(key);
        self.write(key, stream);
    }

    /// Writes what the stream takes; the response ends with its last byte.
    fn write(&mut self, key: ConnectionKey, stream: sealion_quic::StreamId) {
        let Some(mut connection) = self.endpoint.connection(key) else { return };
        let Http3 { protocol, sending, .. } = self.connections.get_mut(&key).unwrap();
        let Some(chunks) = sending.get_mut(&stream) else { return };
        let id = sealion_h3::StreamId::new(stream.get());
        while chunks.iter().any(|chunk| !chunk.is_empty()) {
            let before = chunks[1].len();
            if connection.write(stream, chunks).is_err() {
                break;
            }
            protocol.sent(id, (before - chunks[1].len()) as u64);
        }
        if chunks.iter().all(Bytes::is_empty) {
            connection.finish(stream).unwrap();
            protocol.release(id);
            sending.remove(&stream);
        }
        self.carry_out(key);
    }

    fn carry_out(&mut self, key: ConnectionKey) {
        let Some(mut connection) = self.endpoint.connection(key) else { return };
        let protocol = &mut self.connections.get_mut(&key).unwrap().protocol;
        let id = |stream: sealion_h3::StreamId| sealion_quic::StreamId::new(stream.get()).unwrap();
        while let Some(command) = protocol.next_command() {
            match command {
                Command::Reset { stream, code } => connection.reset(id(stream), code.0),
                Command::Stop { stream, code } => connection.stop(id(stream), code.0),
                Command::Prioritize { stream, level } => connection.set_level(id(stream), level),
            }
        }
    }
}

/// The client's side.
struct Client {
    socket: UdpSocket,
    endpoint: quinn_proto::Endpoint,
    connection: quinn_proto::Connection,
    handle: ConnectionHandle,
    streams: HashMap<quinn_proto::StreamId, Vec<u8>>,
    ended: HashSet<quinn_proto::StreamId>,
}

impl Client {
    fn round(&mut self, buffers: &mut ReceiveBuffers) {
        let now = Instant::now();
        let (endpoint, connection) = (&mut self.endpoint, &mut self.connection);
        let _ = self.socket.receive(buffers, |received| {
            let (data, ecn) = (BytesMut::from(received.bytes), EcnCodepoint::from_bits(received.ecn));
            let event = endpoint.handle(now, received.remote, received.local, ecn, data, &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                connection.handle_event(event);
            }
        });
        if connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(self.handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            assert!(!matches!(event, quinn_proto::Event::ConnectionLost { .. }), "{event:?}");
        }
        for (stream, bytes) in &mut self.streams {
            let mut recv = connection.recv_stream(*stream);
            let Ok(mut chunks) = recv.read(true) else { continue };
            while let Ok(chunk) = chunks.next(usize::MAX) {
                match chunk {
                    Some(chunk) => bytes.extend_from_slice(&chunk.bytes),
                    None => {
                        self.ended.insert(*stream);
                        break;
                    }
                }
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut out) {
            let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
            let remote = transmit.destination;
            self.socket.send(&Batch { remote, local: None, ecn, bytes: &out, segment: None }).unwrap();
            out.clear();
        }
    }

    fn open(&mut self, dir: Dir, bytes: &[u8], fin: bool) {
        let stream = self.connection.streams().open(dir).unwrap();
        assert_eq!(self.connection.send_stream(stream).write(bytes).unwrap(), bytes.len());
        if fin {
            self.connection.send_stream(stream).finish().unwrap();
            self.streams.insert(stream, Vec::new());
        }
    }
}

fn socket() -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), UdpOptions::default()).unwrap()
}

fn pair(content: Bytes) -> (Server, Client) {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut of_server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    of_server.alpn_protocols = vec![b"h3".to_vec()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut of_client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    of_client.alpn_protocols = vec![b"h3".to_vec()];
    let now = Instant::now();
    let config = Config {
        tls: TlsConfig::try_from(Arc::new(of_server)).unwrap(),
        limits: Limits::default(),
        secrets: Secrets::random(),
        route: Route { worker: 0, workers: 1, share: 0 },
    };
    let endpoint = Endpoint::new(config, now, SystemTime::now());
    let (connections, head, paths) = Default::default();
    let server = Server { socket: socket(), endpoint, connections, head, content, paths };
    let config = EndpointConfig::new(Arc::new(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32])));
    let mut endpoint = quinn_proto::Endpoint::new(Arc::new(config), None, true, None);
    let client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(of_client).unwrap()));
    let remote = server.socket.local_addr().unwrap();
    let (handle, connection) = endpoint.connect(now, client, remote, "a.example").unwrap();
    let (streams, ended) = Default::default();
    (server, Client { socket: socket(), endpoint, connection, handle, streams, ended })
}

/// Waits until either side has something to do.
fn wait(server: &mut Server, client: &mut Client) {
    let timeouts = [server.endpoint.next_timeout(), client.connection.poll_timeout()];
    let now = Instant::now();
    let until = timeouts.into_iter().flatten().min().map(|timeout| timeout.saturating_duration_since(now));
    let until = until.unwrap_or(Duration::from_secs(60)) + Duration::from_millis(1);
    let mut waiting = [&server.socket, &client.socket].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
    poll(&mut waiting, PollTimeout::try_from(until).unwrap()).unwrap();
}

#[test]
fn requests_are_answered_over_udp() {
    let content: Bytes = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let (mut server, mut client) = pair(content.clone());
    let (mut buffers, mut asked) = (ReceiveBuffers::default(), false);
    while client.ended.len() < 3 {
        client.round(&mut buffers);
        server.round(&mut buffers);
        if !asked && !client.connection.is_handshaking() {
            asked = true;
            // SETTINGS, then GET of three paths, the second one more urgent than the others.
            client.open(Dir::Uni, &[0, 4, 0], false);
            for (number, priority) in [b"u=3", b"u=0", b"u=3"].into_iter().enumerate() {
                let mut block = HeaderBlock::default();
                let path = format!("/{number}");
                for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "a.example")] {
                    block.field(name, value.as_bytes());
                }
                block.field(":path", path.as_bytes());
                block.field("priority", priority);
                let section = block.as_bytes();
                let request = [&[1, section.len() as u8 + 2, 0, 0], section].concat();
                client.open(Dir::Bi, &request, true);
            }
            continue;
        }
        wait(&mut server, &mut client);
    }
    assert_eq!(server.paths, ["/0", "/1", "/2"]);
    for bytes in client.streams.values() {
        // HEADERS of a status, then DATA.
        let expected = [&[1, 3, 0, 0, 0xd9, 0, 0x80, 0x04, 0x93, 0xe0][..], &content].concat();
        assert!(*bytes == expected, "{} bytes: {:x?}", bytes.len(), &bytes[..bytes.len().min(20)]);
    }
    let http3 = server.connections.values().next().unwrap();
    assert!(http3.protocol.is_idle() && http3.sending.is_empty() && http3.control.is_some());
    assert!(http3.protocol.peer_settings().is_some());
}
