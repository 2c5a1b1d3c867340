//! Limits and keys of an endpoint, and the transport's parameters that they become.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{EndpointConfig, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use crate::clock::Clock;
use crate::congestion::{BoundedFactory, Congestion};
use crate::route::{ConnectionIds, Route};
use crate::session::{Handshakes, OneForAll, SessionConfig};

/// The limits of an endpoint and of each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The number of connections, including those whose handshake has not ended. More are refused.
    pub connections: usize,
    /// The number of handshakes with clients whose address is not validated. Beyond it, new clients get a Retry packet
    /// (RFC 9000 §8.1.2), which costs them a round trip, and the server no memory.
    ///
    /// Clients with a spoofed address never pass a Retry.
    pub unvalidated: usize,
    /// The number of connections that wait for the driver to accept them. More are dropped.
    pub incoming: usize,
    /// The time for a handshake.
    pub handshake: Duration,
    /// The time after which a silent connection ends.
    pub idle: Duration,
    /// The number of concurrent streams that the client may open in both directions (RFC 9114 §6.1: at least 100).
    pub bidirectional_streams: u32,
    /// The number of concurrent streams that only the client sends on (RFC 9114 §6.2: at least 3).
    pub unidirectional_streams: u32,
    /// Bytes of a stream that may have been received and not read.
    pub stream_window: u32,
    /// Bytes of all streams that may have been received and not read.
    pub connection_window: u32,
    /// Bytes of all streams that were written and not acknowledged. They occupy memory, unless they share the
    /// memory of a cache.
    pub send_window: u64,
    /// The largest congestion window, in bytes.
    pub congestion_window: u64,
    /// The congestion controller.
    pub congestion: Congestion,
    /// The largest datagram that is tried, in bytes of UDP payload.
    pub max_datagram: u16,
}

impl Default for Limits {
    /// GUESS: no measurement stands behind these values, except where a standard is named.
    fn default() -> Self {
        Limits {
            connections: 10_000,
            unvalidated: 128,
            incoming: 1024,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            bidirectional_streams: 100,
            unidirectional_streams: 8,
            stream_window: 64 * 1024,
            connection_window: 1 << 20,
            send_window: 1 << 20,
            congestion_window: 16 << 20,
            congestion: Congestion::Cubic,
            max_datagram: 1452,
        }
    }
}

/// Secrets that all processes at one address share, and all machines behind one.
#[derive(Clone)]
pub struct Secrets {
    /// Makes the tokens of stateless resets, by which a server without memory of a connection ends it.
    pub reset: [u8; 32],
    /// Seals the tokens of Retry packets.
    pub token: [u8; 32],
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// New secrets, for a server that shares them with none.
    pub fn random() -> Self {
        let mut secrets = Secrets { reset: [0; 32], token: [0; 32] };
        // The operating system's source does not fail once it was seeded.
        aws_lc_rs::rand::fill(&mut secrets.reset).expect("random bytes");
        aws_lc_rs::rand::fill(&mut secrets.token).expect("random bytes");
        secrets
    }
}

/// TLS 1.3 as QUIC uses it.
#[derive(Clone)]
pub struct TlsConfig(pub(crate) Arc<SessionConfig>);

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConfig")
    }
}

/// QUIC cannot use a configuration of rustls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnusableTls {
    /// QUIC protects Initial packets with this suite.
    #[error("the cryptography provider does not support TLS13_AES_128_GCM_SHA256")]
    NoInitialSuite,
    /// Early data is replayable, and needs tickets with state.
    #[error("early data is enabled")]
    EarlyData,
}

impl TlsConfig {
    /// Handshakes whose configuration is chosen by the ClientHello. None of the configurations may enable early data.
    ///
    /// # Errors
    /// [`UnusableTls::NoInitialSuite`]: of rustls' provider, not of the configurations.
    pub fn chosen_by(handshakes: Arc<dyn Handshakes>) -> Result<Self, UnusableTls> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        // It protects Initial and Retry packets, whose keys need neither a certificate nor a choice of suites.
        let initial = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|_| UnusableTls::NoInitialSuite)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(NoCertificate));
        let initial = QuicServerConfig::try_from(initial).map_err(|_| UnusableTls::NoInitialSuite)?;
        Ok(TlsConfig(Arc::new(SessionConfig { handshakes, initial: Arc::new(initial) })))
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

impl TryFrom<Arc<rustls::ServerConfig>> for TlsConfig {
    type Error = UnusableTls;

    fn try_from(config: Arc<rustls::ServerConfig>) -> Result<Self, UnusableTls> {
        if config.max_early_data_size > 0 {
            return Err(UnusableTls::EarlyData);
        }
        Self::chosen_by(Arc::new(OneForAll(config)))
    }
}

/// The parameters of all connections of an endpoint.
/// `lost`: counts bytes of packets that are deemed lost.
pub(crate) fn server_config(
    tls: TlsConfig,
    limits: &Limits,
    (secrets, clock): (&Secrets, Arc<Clock>),
    lost: &Arc<AtomicU64>,
) -> ServerConfig {
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"sealion quic token").extract(&secrets.token);
    let mut config = ServerConfig::new(tls.0, Arc::new(token_key));
    config
        .transport_config(Arc::new(transport_config(limits, lost)))
        .time_source(clock)
        .max_incoming(limits.incoming.saturating_mul(2))
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFER * limits.incoming as u64);
    config
}

/// The bytes that are kept of a client that the driver has not accepted (CVE-2025-54939): a ClientHello with a large key
/// share takes two datagrams.
const INCOMING_BUFFER: u64 = 16 * 1024;

fn transport_config(limits: &Limits, lost: &Arc<AtomicU64>) -> TransportConfig {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(limits.max_datagram);
    let idle = u64::try_from(limits.idle.as_millis()).ok().and_then(|millis| VarInt::from_u64(millis).ok());
    let factory =
        BoundedFactory { congestion: limits.congestion, max_window: limits.congestion_window, lost: Arc::clone(lost) };
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(limits.bidirectional_streams.into())
        .max_concurrent_uni_streams(limits.unidirectional_streams.into())
        .max_idle_timeout(idle.map(Into::into))
        .stream_receive_window(limits.stream_window.into())
        .receive_window(limits.connection_window.into())
        .send_window(limits.send_window)
        .send_fairness(true)
        .mtu_discovery_config(Some(mtu))
        .datagram_receive_buffer_size(None)
        .datagram_send_buffer_size(0)
        .congestion_controller_factory(Arc::new(factory));
    config
}

/// The parameters of the endpoint itself: version 1 alone, without the drafts.
pub(crate) fn endpoint_config(route: Route, secrets: &Secrets) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &secrets.reset)));
    config.cid_generator(move || Box::new(ConnectionIds(route))).supported_versions(vec![1]);
    config
}
