//! A client's connection of HTTP/3 over QUIC, by quinn.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, ReadError, RecvStream, SendStream, VarInt, WriteError,
};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

use super::Protocol;
use super::connection::{Answer, Common, Opening};
use super::failure::{Failure, Kind};
use super::http3::{self, Received, Response};
use super::receiving::Reading;

/// The configuration of QUIC for a load by HTTP/3; `None` for other loads.
pub(super) fn config(protocol: Protocol, tls: &Arc<rustls::ClientConfig>) -> Result<Option<quinn::ClientConfig>> {
    let Protocol::Http3 { .. } = protocol else { return Ok(None) };
    // The keys of Initial packets are always of this suite (RFC 9001 §5.2).
    let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    let tls = QuicClientConfig::with_initial(tls.clone(), initial.context("aws-lc-rs has no suite for QUIC")?)?;
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_uni_streams(SERVER_STREAMS.into()).max_concurrent_bidi_streams(0u32.into());
    transport.stream_receive_window(WINDOW.into()).datagram_receive_buffer_size(None);
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    Ok(Some(config))
}

/// A connection with a UDP socket of its own, as connections of TCP have one.
pub(super) struct Quic {
    endpoint: Endpoint,
    connection: Connection,
    reading: Reading,
    /// Whether the server accepts no more requests.
    goaway: Rc<Cell<bool>>,
    /// The control stream, which must stay open (RFC 9114 §6.2.1).
    _control: SendStream,
}

impl Quic {
    pub(super) async fn open(common: &Common) -> Result<(Self, Opening), Failure> {
        let begun = Instant::now();
        let config = common.quic.clone().expect("a load by HTTP/3 has a configuration of QUIC");
        let endpoint = endpoint(common.address).map_err(|e| Failure::io(Kind::Connect, "open a socket", &e))?;
        let name = common.name.to_str();
        let connecting = endpoint.connect_with(config, common.address, &name);
        let connection = connecting.map_err(|why| Failure::new(Kind::Connect, format!("connect: {why}")))?.await;
        let connection = connection.map_err(|why| Failure::new(Kind::Handshake, format!("handshake: {why}")))?;
        let established = Instant::now();
        let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        if data.is_none_or(|data| data.protocol.as_deref() != common.protocol.alpn()) {
            return Err(Failure::new(Kind::Handshake, "the server did not agree on HTTP/3 (ALPN)"));
        }
        let mut control = connection.open_uni().await.map_err(|why| lost(&why))?;
        control.write_all(&http3::CONTROL_STREAM).await.map_err(|why| unsent(&why))?;
        let goaway = Rc::new(Cell::new(false));
        tokio::task::spawn_local(watch(connection.clone(), goaway.clone()));
        let suite = common.config.crypto_provider().cipher_suites.first();
        let suite = suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default().replace("TLS13_", "TLS_");
        let opening =
            Opening { begun, connected: None, established, resumed: false, suite: format!("TLSv1.3 {suite}") };
        let reading = common.reading.clone();
        Ok((Self { endpoint, connection, reading, goaway, _control: control }, opening))
    }

    /// Makes a request on a new stream and waits for its response.
    pub(super) async fn request(&self, common: &Common) -> Result<Answer, Failure> {
        let (mut send, mut receive) = self.connection.open_bi().await.map_err(|why| lost(&why))?;
        let request = {
            let mut requests = common.requests.borrow_mut();
            let (authority, target) = requests.next_parts();
            http3::request(authority, target)
        };
        match send.write_all(&request).await {
            // The response tells more than the server's lack of interest in the rest of a request.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(why) => return Err(unsent(&why)),
        }
        let _ = send.finish();
        let sent = Instant::now();
        let mut response = Response::new(self.reading.read, self.reading.reference.clone());
        loop {
            match receive.read_chunk(CHUNK, true).await {
                Ok(Some(chunk)) => response.receive(&chunk.bytes)?,
                Ok(None) => break,
                Err(ReadError::Reset(code)) => {
                    let words = format!("the server reset a stream: HTTP/3 error {:#x}", code.into_inner());
                    return Err(Failure::new(Kind::Body, words));
                }
                Err(ReadError::ConnectionLost(why)) => return Err(lost(&why)),
                Err(why) => return Err(Failure::new(Kind::Io, format!("receive: {why}"))),
            }
        }
        let ended = Instant::now();
        let Received { done, begun, body_began } = response.end()?;
        let (begun, body_began) = (begun.unwrap_or(ended), Some(body_began.unwrap_or(ended)));
        Ok(Answer { done, sent, begun, body_began, ended })
    }

    /// Whether the connection accepts no more requests.
    pub(super) fn ended(&self) -> bool {
        self.goaway.get() || self.connection.close_reason().is_some()
    }

    /// Ends the connection at once; requests in flight fail.
    pub(super) fn abandon(&self) {
        self.connection.close(H3_NO_ERROR, b"");
    }

    /// Closes the connection, and waits for a moment until the server has been told.
    pub(super) async fn close(&self) {
        self.abandon();
        let _ = tokio::time::timeout(DRAINING, self.endpoint.wait_idle()).await;
    }
}

fn endpoint(to: SocketAddr) -> std::io::Result<Endpoint> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    // As much as net.core.rmem_max allows: a burst of a fast server must not be lost at the client.
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(quinn::TokioRuntime))
}

/// Reads the server's unidirectional streams until the connection ends. On its control stream it looks for GOAWAY.
async fn watch(connection: Connection, goaway: Rc<Cell<bool>>) {
    while let Ok(stream) = connection.accept_uni().await {
        tokio::task::spawn_local(read_stream(stream, goaway.clone()));
    }
}

async fn read_stream(mut stream: RecvStream, goaway: Rc<Cell<bool>>) {
    let mut bytes = Vec::new();
    let mut is_control = None;
    while let Ok(Some(chunk)) = stream.read_chunk(CHUNK, true).await {
        if is_control == Some(false) {
            continue;
        }
        bytes.extend_from_slice(&chunk.bytes);
        if is_control.is_none()
            && let Some((kind, len)) = http3::integer(&bytes)
        {
            is_control = Some(kind == 0);
            bytes.drain(..len);
        }
        while is_control == Some(true)
            && let Some((kind, _)) = http3::integer(&bytes)
            && let Some(len) = http3::frame_len(&bytes)
            && len <= bytes.len()
        {
            goaway.set(goaway.get() || kind == http3::GOAWAY);
            bytes.drain(..len);
        }
        // Frames of a control stream are short.
        if bytes.len() > CHUNK {
            return;
        }
    }
}

fn lost(why: &ConnectionError) -> Failure {
    Failure::new(Kind::Io, format!("the connection ended: {why}"))
}

fn unsent(why: &WriteError) -> Failure {
    Failure::new(Kind::Io, format!("send: {why}"))
}

/// H3_NO_ERROR (RFC 9114 §8.1).
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// A control stream, and the two of QPACK, with some of reserved types.
const SERVER_STREAMS: u32 = 16;

/// Bytes of a body that may be in flight: more than loopback holds, less than a client's memory for its connections.
const WINDOW: u32 = 8 << 20;

const RECEIVE_BUFFER: usize = 4 << 20;

/// The maximum number of bytes read at a time.
const CHUNK: usize = 256 << 10;

/// Several probe timeouts over loopback.
const DRAINING: Duration = Duration::from_millis(500);
