//! The plan of a load: server, requests, connections, pace, end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A load on one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The name for SNI, the Host field and the certificate check.
    pub server_name: String,
    /// Trust anchor, PEM; `None`: any certificate is accepted.
    pub roots: Option<PathBuf>,
    /// The request-target of every request, e.g. `/1k`. With a popularity, the target of the files' directory.
    pub target: String,
    /// The choice among many files for each request; `None`: all requests use the target.
    pub popularity: Option<Popularity>,
    /// Threads of the client, each with a share of the connections.
    pub threads: usize,
    /// Connections open at a time, over all threads (up to 2,000).
    pub connections: usize,
    /// The version of HTTP, and the requests at a time on each connection.
    #[serde(default)]
    pub protocol: Protocol,
    /// Requests on a connection before it is closed and replaced; `None`: unlimited.
    pub calls: Option<u64>,
    /// Whether connections resume sessions of earlier ones. The first connections, and connections without an unused
    /// TLS 1.3 ticket, make full handshakes.
    pub resume: bool,
    /// Closed or open loop.
    pub arrival: Arrival,
    /// When the load ends.
    pub extent: Extent,
    /// How response bodies are read.
    pub read: Read,
    /// Bytes of a body after which the connection is dropped; `None`: unlimited.
    pub body_cap: Option<u64>,
    /// Suites to offer; empty: all that the client supports.
    pub suites: Vec<Suite>,
    /// Time limit of a request, including the handshake.
    pub timeout: Duration,
    /// Cores to pin the client's threads to; empty: none.
    pub cores: Vec<usize>,
}

/// A version of HTTP. Connections of HTTP/1.1 have one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2 {
        /// Requests at a time on each connection.
        streams: usize,
    },
    /// HTTP/3, over QUIC.
    Http3 {
        /// Requests at a time on each connection.
        streams: usize,
    },
}

impl Protocol {
    /// As in a server's log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 { .. } => "HTTP/2",
            Self::Http3 { .. } => "HTTP/3",
        }
    }

    /// Requests at a time on each connection, if there may be several.
    pub fn streams(self) -> Option<usize> {
        match self {
            Self::Http1 => None,
            Self::Http2 { streams } | Self::Http3 { streams } => Some(streams),
        }
    }

    /// The name that a client offers by ALPN; `None`: it offers none.
    pub(super) fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Self::Http1 => None,
            Self::Http2 { .. } => Some(b"h2"),
            Self::Http3 { .. } => Some(b"h3"),
        }
    }
}

/// Many files by Zipf's law with the exponent 1: the first is the most popular. Their names are their numbers from 0,
/// in six digits. All have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Popularity {
    /// Number of files, up to a million.
    pub files: u32,
    /// With one thread, loads with the same seed make the same requests in the same order.
    pub seed: u64,
}

/// The pace of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Arrival {
    /// Each connection sends its next request when it has the response to the last.
    Closed,
    /// Requests start at a fixed rate, regardless of the server's speed; latency counts from the intended start.
    /// Connections without a limit of calls are opened before the load, each with a request that is not counted.
    /// Otherwise opening them would delay the first requests.
    Open {
        /// Requests per second, over all connections.
        rate: f64,
    },
}

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// After this time; requests in flight are finished and counted.
    Time(Duration),
    /// After this many requests.
    Requests(u64),
}

/// How response bodies are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Read {
    /// Decrypt, and compare each body's SHA-256 with the first one's.
    Verify,
    /// Decrypt every record and discard its content.
    Decrypt,
    /// Walk record headers without decrypting.
    ///
    /// The load's first complete response is decrypted and hashed. The head of each connection's first response is
    /// decrypted and checked. All other content is counted by record lengths: their sum must equal the length of the
    /// head plus Content-Length. Records short enough to be an alert or a KeyUpdate are opened. The server must send
    /// Content-Length and must not pad its records.
    Drain,
}

/// A cipher suite of TLS 1.3, or the ECDHE suite of TLS 1.2 with the same AEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256 of TLS 1.3.
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384 of TLS 1.3.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256 of TLS 1.3.
    Chacha20Poly1305,
    /// TLS 1.2 ECDHE with AES-128-GCM.
    Tls12Aes128Gcm,
    /// TLS 1.2 ECDHE with AES-256-GCM.
    Tls12Aes256Gcm,
}
