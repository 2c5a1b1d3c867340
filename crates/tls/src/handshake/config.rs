//! What every connection of a listener shares: certificate, protocols, limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate, protocols and limits of a listener. Cheap to share by reference or `Arc`.
pub struct ServerConfig {
    pub(crate) rustls: Arc<rustls::ServerConfig>,
    pub(crate) limits: Limits,
}

/// Bounds of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records sealed under one key before it is updated, or, where it cannot be, the connection
    /// closed (RFC 8446 §5.5 allows 2^24.5 full-sized records with AES-GCM).
    pub records_per_key: u64,
    /// How long a peer may take none of what is ready for it.
    pub stall: Duration,
    /// How long to wait for the peer's end of the connection after ours, so that a reset does not
    /// overtake the tail of what was sent.
    pub linger: Duration,
    /// Whether the kernel of this machine can change keys of a live TLS 1.3 connection (Linux 6.14).
    pub kernel_rekeys: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // SPEC: RFC 8446 §5.5, rounded down to a power of two; the bound rustls uses too.
            records_per_key: 1 << 24,
            // INHERITED: nginx' send_timeout and lingering_timeout.
            stall: Duration::from_secs(60),
            linger: Duration::from_secs(5),
            kernel_rekeys: false,
        }
    }
}

/// Why a certificate or key cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read, or holds no PEM section of the wanted kind.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What was wanted of it.
        wanted: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The key is not the certificate's.
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The key's kind is not one that TLS here can sign with, or rustls refused the pair.
    Unusable {
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        why: String,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable { path, wanted, why } => {
                write!(f, "{}: no {wanted} to be had: {why}", path.display())
            }
            Self::Mismatch { cert, key } => write!(
                f,
                "{} is not the private key of {}: give the pair that was issued together",
                key.display(),
                cert.display()
            ),
            Self::Unusable { key, why } => write!(
                f,
                "{}: cannot be used as a TLS key: {why} (ECDSA P-256/P-384, Ed25519 and RSA from 2048 bits work)",
                key.display()
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl ServerConfig {
    /// A configuration from PEM files, offering `alpn` in this order (RFC 7301), TLS 1.2 and 1.3,
    /// and stateless session resumption whose ticket keys live and rotate in this process.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file.
    pub fn from_pem_files(cert: &Path, key: &Path, alpn: &[&[u8]], limits: Limits) -> Result<Self, ConfigError> {
        let unreadable =
            |path: &Path, wanted, why: String| ConfigError::Unreadable { path: path.to_owned(), wanted, why };
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| unreadable(cert, "certificate", pem_error(e)))?;
        if chain.is_empty() {
            let why = "the file has no CERTIFICATE section".to_owned();
            return Err(unreadable(cert, "certificate", why));
        }
        let private_key =
            PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, "private key", pem_error(e)))?;

        let mut provider = aws_lc_rs::default_provider();
        let unusable = |why: rustls::Error| ConfigError::Unusable { key: key.to_owned(), why: why.to_string() };
        provider.cipher_suites.retain(|suite| known_aead(*suite));
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private_key)
            .map_err(|e| match e {
                rustls::Error::InconsistentKeys(_) => {
                    ConfigError::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
                }
                other => unusable(other),
            })?;
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        config.enable_secret_extraction = true;
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?;
        Ok(Self { rustls: Arc::new(config), limits })
    }
}

/// Whether the suite seals with an AEAD that this record layer knows: all that rustls has today.
fn known_aead(suite: rustls::SupportedCipherSuite) -> bool {
    let name = suite.suite().as_str().unwrap_or("");
    name.contains("_GCM_") || name.contains("CHACHA20_POLY1305")
}

fn pem_error(error: rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(e) => e.to_string(),
        Error::NoItemsFound => "no such PEM section in the file".to_owned(),
        other => format!("not valid PEM ({other})"),
    }
}
