//! A TLS server connection on tokio whose sending side can move into the kernel.
//!
//! rustls performs the handshake. After it, the record layer is this crate's, because only the owner of keys and
//! sequence numbers can hand them to the kernel in the middle of a connection.
//!
//! ```text
//! Handshake (rustls) ─► Established { sealer, opener } ─► Closing ─► Closed
//!                        Sealer = User ──once──► Kernel
//!                        Opener = User, always
//! ```
//!
//! A [`TlsStream`] starts with both directions in user space. [`TlsStream::move_to_kernel`] hands the sending side to
//! the kernel at a record boundary. If the kernel refuses, the user-space sealer continues and nothing is lost.
//! Receiving never moves: a server receives little, and a kernel receiver cannot send an alert after a tampered record.
//!
//! The types and tests of this crate guarantee:
//! - no sequence number, hence no nonce, seals two records ([`record`]);
//! - `close_notify` leaves before FIN, and FIN only after every sealed byte is with TCP;
//! - a file that shrinks while it is sent ends in an alert, never in `close_notify`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "sealion-tls needs Linux: kernel TLS is a feature of its TCP sockets; make it a dependency under [target.'cfg(target_os = \"linux\")'.dependencies]"
);

mod alert;
mod buffers;
mod canary;
pub mod content;
mod error;
mod handshake;
mod pipe;
pub mod record;
mod socket;
mod stream;

pub use alert::AlertDescription;
pub use canary::{CanaryError, canary};
pub use content::Part;
pub use error::{Error, HandshakeError};
pub use handshake::certificate::{Certificate, CertificateFacts, ConfigError, Fingerprint};
pub use handshake::client_auth::{
    ClientAuth, ClientAuthId, ClientAuthMode, ClientCertificate, ExpiredLists, RevocationListFacts,
};
pub use handshake::config::{LeastRate, Limits, RequireEms, ServerConfig, SiteTls, TlsOptions, suites};
pub use handshake::key_log::KeyLogFile;
pub use handshake::names::NameFinder;
pub use handshake::quic::QuicHandshake;
pub use handshake::resolver::{AlpnChallenges, CertificateSource, NoCertificate, SiteCertificates};
pub use handshake::secrets::traffic_keys;
pub use handshake::tickets::{NoRandomNumbers, OwnTicketKeys, TICKET_LIFETIME, TicketKeys, TicketSecret};
pub use handshake::{Group, HandshakeInfo};
pub use pipe::Pipe;
pub use sealion_ktls::{Cipher, Version};
pub use socket::Socket;
pub use stream::move_to_kernel::MoveError;
pub use stream::send::FIRST_RECORD;
pub use stream::source::{Source, Unread};
pub use stream::{Counts, Frozen, FrozenBytes, Malformed, NotFrozen, Progress, SealedBy, TlsStream};

/// Compiles the code in the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
