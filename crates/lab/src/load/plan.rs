//! What clients do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A load: everything the clients need to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Where the server listens.
    pub address: SocketAddr,
    /// For SNI, Host and the certificate's check.
    pub server_name: String,
    /// Trust anchor, PEM; `None`: any certificate is accepted.
    pub roots: Option<PathBuf>,
    /// Request-target, e.g. `/1k`.
    pub target: String,
    /// Client threads.
    pub threads: usize,
    /// Connections open at a time, over all threads (up to 2,000).
    pub connections: usize,
    /// Requests on a connection before it is closed and replaced; `None`: unlimited.
    pub calls: Option<u64>,
    /// Whether connections resume a session of an earlier one, where one is left: the first connections, and those that begin
    /// while all tickets of TLS 1.3 are in use, make full handshakes.
    pub resume: bool,
    /// Closed or open loop.
    pub arrival: Arrival,
    /// When it ends.
    pub extent: Extent,
    /// What is done with response bodies.
    pub read: Read,
    /// Bytes of a body that are read before the connection is dropped; `None`: all.
    pub body_cap: Option<u64>,
    /// Suites offered; empty: all that the client has.
    pub suites: Vec<Suite>,
    /// Time a request, handshake included, may take.
    pub timeout: Duration,
    /// Cores the client's threads are pinned to; empty: none.
    pub cores: Vec<usize>,
}

/// When requests begin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Arrival {
    /// Each connection sends its next request when the last one is answered.
    Closed,
    /// Requests begin at this rate, per second, whatever the server does; latency counts from the intended start.
    Open {
        /// Requests per second, over all connections.
        rate: f64,
    },
}

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// After this time; requests under way are finished and counted.
    Time(Duration),
    /// After this many requests.
    Requests(u64),
}

/// What is done with response bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Read {
    /// Decrypt, and compare SHA-256 with the first body's.
    Verify,
    /// Decrypt and drop.
    Decrypt,
    /// Walk record headers without decrypting.
    ///
    /// The first responses of a load are decrypted and hashed whole, until one is. Of a connection's first response the head is
    /// decrypted and checked. All further content is counted by the lengths of its records, and must come to what head and
    /// Content-Length make, however it is cut into records. A record that is short enough for an alert or a KeyUpdate is opened.
    /// The server must send Content-Length and must not pad its records.
    Drain,
}

/// A cipher suite of TLS 1.3, or the ECDHE suite of TLS 1.2 with the same AEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256.
    Chacha20Poly1305,
    /// TLS 1.2 ECDHE with AES-128-GCM.
    Tls12Aes128Gcm,
    /// TLS 1.2 ECDHE with AES-256-GCM.
    Tls12Aes256Gcm,
}
