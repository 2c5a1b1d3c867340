//! A blocking TLS client that controls record boundaries.
//!
//! rustls performs the handshake. After it, every record is sealed by hand and opened separately, so that a test
//! controls records, writes and segments, and sees the content of each.

mod handshake;
pub(crate) mod receive;
mod seal;
mod send;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::client::ClientConnectionData;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::kernel::KernelConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use sealion_tls::Version;
use sealion_tls::record::Aead;

use crate::pki::{Pki, SERVER_NAME};
use crate::{PATIENCE, Tap};
use receive::Receiving;
use seal::HandSealer;

/// A version and an AEAD; the two sides choose key exchange and signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The only version offered.
    pub version: Version,
    /// The only AEAD offered.
    pub aead: Aead,
}

impl Suite {
    /// TLS 1.3 with AES-128-GCM, for tests in which the suite does not matter.
    pub const TLS13: Self = Self { version: Version::Tls13, aead: Aead::Aes128Gcm };

    /// TLS 1.2 with AES-128-GCM, for tests in which the suite does not matter.
    pub const TLS12: Self = Self { version: Version::Tls12, aead: Aead::Aes128Gcm };

    /// Every version with every AEAD.
    pub fn all() -> Vec<Self> {
        let versions = Version::ALL.into_iter();
        versions.flat_map(|version| Aead::ALL.map(|aead| Self { version, aead })).collect()
    }

    /// Whether records carry an explicit nonce (RFC 5288 §3).
    pub fn has_explicit_nonce(self) -> bool {
        self.version == Version::Tls12 && self.aead != Aead::Chacha20Poly1305
    }

    /// The bytes of a record on the wire besides header and content.
    pub fn added_len(self) -> usize {
        match (self.version, self.has_explicit_nonce()) {
            (Version::Tls13, _) => 1 + 16,
            (Version::Tls12, true) => 8 + 16,
            (Version::Tls12, false) => 16,
        }
    }

    fn matches(self, suite: &rustls::SupportedCipherSuite) -> bool {
        let aead = match self.aead {
            Aead::Aes128Gcm => "AES_128_GCM",
            Aead::Aes256Gcm => "AES_256_GCM",
            Aead::Chacha20Poly1305 => "CHACHA20_POLY1305",
        };
        let name = suite.suite().as_str().unwrap_or("");
        name.contains(aead) && name.starts_with("TLS13") == (self.version == Version::Tls13)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.aead.cipher())
    }
}

/// Makes connections with one suite. It keeps sessions, so that its second connection resumes.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    suite: Suite,
    name: ServerName<'static>,
    receive_buffer: Option<usize>,
    hold_last_flight: bool,
}

impl Connector {
    /// Offers only `suite` and trusts only the certificate of `pki`.
    pub fn new(pki: &Pki, suite: Suite) -> Self {
        Self::trusting(&[pki], suite, None, false)
    }

    /// Offers only `suite`, trusts these certificates, and presents `own` if given. With `rsa_only` it accepts only RSA
    /// signatures.
    pub fn trusting(pkis: &[&Pki], suite: Suite, own: Option<&Pki>, rsa_only: bool) -> Self {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|offered| suite.matches(offered));
        if rsa_only {
            provider.signature_verification_algorithms = *RSA_SIGNATURES;
        }
        let mut roots = RootCertStore::empty();
        for pki in pkis {
            roots.add(pki.certificate().clone()).expect("the certificate can be a trust anchor");
        }
        let version = match suite.version {
            Version::Tls12 => &rustls::version::TLS12,
            Version::Tls13 => &rustls::version::TLS13,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .expect("there are suites for the version")
            .with_root_certificates(roots);
        let mut config = match own {
            Some(own) => builder
                .with_client_auth_cert(vec![own.certificate().clone()], own.key())
                .expect("the certificate and its key belong together"),
            None => builder.with_no_client_auth(),
        };
        config.enable_secret_extraction = true;
        let name = ServerName::try_from(SERVER_NAME).expect("it is a DNS name");
        Self { config: Arc::new(config), suite, name, receive_buffer: None, hold_last_flight: false }
    }

    /// Sets the host, a name or an address, for SNI and for the certificate check.
    ///
    /// # Panics
    /// It is neither.
    pub fn name(mut self, name: &str) -> Self {
        self.name = ServerName::try_from(name.to_owned()).expect("it is a DNS name or an address");
        self
    }

    /// Offers these application protocols.
    pub fn alpn(mut self, protocols: &[&[u8]]) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        self
    }

    /// Sets SO_RCVBUF before connecting, so that a small window is offered from the start. The kernel doubles the
    /// number and enforces a minimum (socket(7)).
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Holds back the flight that ends the handshake, and sends it with the first bytes written, so that the server
    /// gets both at once. This only works if the client's Finished is the last message: in TLS 1.3, or in a resumption
    /// of TLS 1.2.
    pub fn hold_last_flight(mut self) -> Self {
        self.hold_last_flight = true;
        self
    }

    /// The suite it offers.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Connects and performs the handshake.
    ///
    /// # Panics
    /// The connection fails.
    #[track_caller]
    pub fn connect(&self, address: SocketAddr) -> Client {
        match self.try_connect(address) {
            Ok(client) => client,
            Err(error) => panic!("no connection with {}: {error}", self.suite),
        }
    }

    /// Connects and performs the handshake.
    ///
    /// # Errors
    /// The transport's error, or an error whose source is a [`rustls::Error`].
    pub fn try_connect(&self, address: SocketAddr) -> io::Result<Client> {
        self.handshake(self.open(address)?)
    }

    /// Performs the handshake on an open connection.
    ///
    /// # Errors
    /// As [`Self::try_connect`].
    pub fn handshake(&self, io: TcpStream) -> io::Result<Client> {
        handshake::run(io, self.config.clone(), self.name.clone(), self.hold_last_flight)
    }

    /// Opens a TCP connection with the options of this connector. Sends nothing.
    ///
    /// # Errors
    /// The transport's.
    pub fn open(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(bytes) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        // SO_SNDTIMEO bounds connect(2) too (socket(7)).
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
        }
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            // A signal interrupted the call: the connection is still being made (connect(2)).
            Err(Errno::INTR) => {
                let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
                retry_on_intr(|| poll(&mut ready, None))?;
                sockopt::socket_error(&socket)??;
            }
            connected => connected?,
        }
        Ok(socket.into())
    }
}

/// The results of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The negotiated version.
    pub version: Version,
    /// The suite by its rustls name.
    pub suite: String,
    /// The application protocol, if one was chosen.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The server's certificate, in this handshake or in the one whose session is resumed.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Algorithms of a client that supports only RSA signatures.
static RSA_SIGNATURES: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let all = aws_lc_rs::default_provider().signature_verification_algorithms;
    let is_rsa = |scheme: &SignatureScheme| scheme.as_str().is_some_and(|name| name.starts_with("RSA"));
    let mapping: Vec<_> = all.mapping.iter().filter(|(scheme, _)| is_rsa(scheme)).copied().collect();
    WebPkiSupportedAlgorithms { all: all.all, mapping: mapping.leak() }
});

/// An established connection. Every wait on it ends after [`PATIENCE`] with an error of the kind
/// `WouldBlock` or `TimedOut`, so that a hang fails the test.
pub struct Client {
    io: TcpStream,
    info: Info,
    schedule: KernelConnection<ClientConnectionData>,
    sealer: HandSealer,
    /// The last flight of the handshake, held back.
    held: Vec<u8>,
    receiving: Receiving,
    tap: Tap,
}

impl Client {
    /// The results of the handshake.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Every record header received, from the first of the handshake on.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The socket, for its options. Bytes written to it are not sealed.
    pub fn socket(&self) -> &TcpStream {
        &self.io
    }
}
