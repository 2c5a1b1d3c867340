//! A certificate chain with its key, and the facts in the certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Version};

/// A certificate chain and the private key that belongs to it. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    facts: Arc<CertificateFacts>,
}

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The subject, such as `CN=example.org`; empty in many current certificates.
    pub subject: String,
    /// The issuer, such as `CN=R11,O=Let's Encrypt`.
    pub issuer: String,
    /// The names that the certificate covers, in lower case: host names, including wildcards, and addresses.
    pub names: Vec<String>,
    /// The start of validity.
    pub not_before: SystemTime,
    /// The end of validity.
    pub not_after: SystemTime,
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
}

/// The SHA-256 of a certificate. Printed as browsers do: `AB:CD:…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if n > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why a certificate or key cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read, or has no PEM section of the expected kind.
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The expected content.
        wanted: &'static str,
        /// The error of reading or parsing it.
        why: String,
    },
    /// The key does not belong to the certificate.
    Mismatch {
        /// Path of the certificate chain.
        cert: PathBuf,
        /// Path of the private key.
        key: PathBuf,
    },
    /// Sealion's TLS cannot sign with this kind of key, or rustls rejected the pair.
    Unusable {
        /// Path of the private key.
        key: PathBuf,
        /// The error of rustls.
        why: String,
    },
    /// A certificate of the chain did not issue the one before it (RFC 8446 §4.4.2).
    Disordered {
        /// Path of the certificate chain.
        cert: PathBuf,
        /// The position of the certificate out of order, from 1.
        at: usize,
        /// The issuer of the certificate before it.
        issuer: String,
        /// The subject of the certificate found there.
        found: String,
    },
    /// The requested options do not form a configuration.
    Policy(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, wanted, why } => {
                write!(f, "{}: cannot be used as the {wanted}: {why}", path.display())
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
            Self::Disordered { cert, at, issuer, found } => write!(
                f,
                "{}: certificate {at} of the chain is of \"{found}\", but the one before it was issued by \"{issuer}\": put the site's own certificate first and after each its issuer's",
                cert.display()
            ),
            Self::Policy(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Certificate {
    /// Reads PEM files: the chain, beginning with the site's own certificate, and the key.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file: unreadable, not a pair, or out of order.
    pub fn from_pem_files(cert: &Path, key: &Path) -> Result<Self, ConfigError> {
        let read = |path: &Path, wanted| {
            std::fs::read(path).map_err(|e| unreadable(path, wanted, e.to_string())).map(zeroize::Zeroizing::new)
        };
        let chain = read(cert, "certificate")?;
        let private_key = read(key, "private key")?;
        Self::from_pem(cert, &chain, key, &private_key)
    }

    /// Parses PEM text; the paths are for messages.
    ///
    /// # Errors
    /// As [`Self::from_pem_files`].
    pub fn from_pem(cert: &Path, chain: &[u8], key: &Path, private_key_text: &[u8]) -> Result<Self, ConfigError> {
        let chain = certificates(cert, chain)?;
        let private_key = PrivateKeyDer::from_pem_slice(private_key_text).map_err(|e| {
            let why = if is_encrypted(private_key_text) { encrypted(key) } else { pem_error(e) };
            unreadable(key, "private key", why)
        })?;
        let facts = check_version(&chain[0])
            .and_then(|()| CertificateFacts::of(&chain[0]))
            .map_err(|why| unreadable(cert, "certificate", why))?;
        check_order(cert, &chain)?;
        let certified = CertifiedKey::from_der(chain, private_key, &default_provider()).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => ConfigError::Mismatch { cert: cert.to_owned(), key: key.to_owned() },
            rustls::Error::InvalidCertificate(error) => unreadable(cert, "certificate", error.to_string()),
            _ if is_encrypted(private_key_text) => unreadable(key, "private key", encrypted(key)),
            other => ConfigError::Unusable { key: key.to_owned(), why: other.to_string() },
        })?;
        Ok(Self { certified: Arc::new(certified), facts: Arc::new(facts) })
    }

    /// The facts in the site's own certificate.
    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    /// The chain in DER, beginning with the site's own certificate.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    /// Whether the key is an RSA key, which only clients without ECDSA need.
    pub fn is_rsa(&self) -> bool {
        self.certified.key.algorithm() == SignatureAlgorithm::RSA
    }

    /// Whether it can sign for a client with these signature schemes.
    pub(crate) fn signs_for(&self, schemes: &[SignatureScheme]) -> bool {
        self.certified.key.choose_scheme(schemes).is_some()
    }

    /// The OCSP response that clients get with the certificate, in DER.
    pub fn ocsp_response(&self) -> Option<&[u8]> {
        self.certified.ocsp.as_deref()
    }

    /// The same certificate with this OCSP response, or without any.
    #[must_use]
    pub fn with_ocsp_response(&self, response: Option<Vec<u8>>) -> Self {
        let certified = CertifiedKey { ocsp: response, ..CertifiedKey::clone(&self.certified) };
        Self { certified: Arc::new(certified), facts: self.facts.clone() }
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.facts).finish()
    }
}

impl CertificateFacts {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn of(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|e| format!("not a certificate ({e})"))?;
        let alternatives = parsed.subject_alternative_name().map_err(|e| format!("bad alternative names ({e})"))?;
        let names = alternatives.iter().flat_map(|names| &names.value.general_names).filter_map(general_name);
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names: names.collect(),
            not_before: system_time(parsed.validity().not_before.timestamp()),
            not_after: system_time(parsed.validity().not_after.timestamp()),
            fingerprint: fingerprint(der),
        })
    }

    /// Whether the certificate covers this host name, as clients decide (RFC 9525 §6.3): a wildcard stands for one
    /// label.
    pub fn covers(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.names.iter().any(|own| match own.strip_prefix("*.") {
            // A site's wildcard needs the same wildcard in the certificate.
            Some(parent) => {
                name == *own || name.split_once('.').is_some_and(|(label, rest)| label != "*" && rest == parent)
            }
            None => *own == name,
        })
    }
}

/// The end of a certificate's validity. Its last second still counts as valid (RFC 5280 §4.1.2.5).
pub(crate) fn not_after(der: &[u8]) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    Some(system_time(parsed.validity().not_after.timestamp()))
}

/// The certificates of a PEM file, at least one.
pub(crate) fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| unreadable(path, "certificate", pem_error(e)))?;
    if all.is_empty() {
        let why = match contains(pem, b"PRIVATE KEY-----") {
            true => "the file holds a private key: are `cert` and `key` exchanged?",
            false => {
                "the file has no CERTIFICATE section: name a file in PEM, which begins with -----BEGIN CERTIFICATE-----"
            }
        };
        return Err(unreadable(path, "certificate", why.to_owned()));
    }
    Ok(all)
}

/// A certificate and key that were made as a pair. rustls cannot compare them if the certificate has an unknown
/// critical extension (RFC 8737 §3).
pub(crate) fn unchecked(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, ConfigError> {
    let made = Path::new("(made here)");
    let chain = certificates(made, chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| unreadable(made, "private key", pem_error(e)))?;
    let key = default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|e| ConfigError::Unusable { key: made.to_owned(), why: e.to_string() })?;
    Ok(CertifiedKey::new(chain, key))
}

pub(crate) fn fingerprint(der: &[u8]) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, der).as_ref());
    Fingerprint(bytes)
}

pub(crate) fn unreadable(path: &Path, wanted: &'static str, why: String) -> ConfigError {
    ConfigError::Unreadable { path: path.to_owned(), wanted, why }
}

/// Clients reject certificates before version 3, because they have no alternative names (RFC 5280 §4.1.2.1).
fn check_version(der: &[u8]) -> Result<(), String> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|e| format!("not a certificate ({e})"))?;
    if parsed.version() == X509Version::V3 {
        return Ok(());
    }
    let version = parsed.version().0 + 1;
    Err(format!(
        "it is an X.509 certificate of version {version}, which names no host: get one of version 3 (`openssl req -x509 -addext subjectAltName=DNS:example.org …`)"
    ))
}

fn check_order(cert: &Path, chain: &[CertificateDer<'_>]) -> Result<(), ConfigError> {
    let parsed = chain.iter().map(|der| X509Certificate::from_der(der).map(|(_, parsed)| parsed));
    let parsed: Vec<_> = parsed
        .collect::<Result<_, _>>()
        .map_err(|e| unreadable(cert, "certificate", format!("a certificate of the chain is malformed ({e})")))?;
    for (n, pair) in parsed.windows(2).enumerate() {
        if pair[0].issuer().as_raw() != pair[1].subject().as_raw() {
            return Err(ConfigError::Disordered {
                cert: cert.to_owned(),
                at: n + 2,
                issuer: pair[0].issuer().to_string(),
                found: pair[1].subject().to_string(),
            });
        }
    }
    Ok(())
}

fn general_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(std::net::IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            16 => Some(format!("[{}]", std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?))),
            _ => None,
        },
        _ => None,
    }
}

fn system_time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs())
}

/// Whether the PEM text of a key is encrypted: as PKCS #8, or in the older form of OpenSSL.
fn is_encrypted(pem: &[u8]) -> bool {
    contains(pem, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(pem, b"Proc-Type: 4,ENCRYPTED")
}

fn contains(pem: &[u8], words: &[u8]) -> bool {
    pem.windows(words.len()).any(|window| window == words)
}

fn encrypted(key: &Path) -> String {
    let key = key.display();
    format!(
        "the key is encrypted, and a server cannot ask for its password: decrypt it with `openssl pkey -in {key} -out decrypted.pem`, and protect that file by its permissions"
    )
}

fn pem_error(error: rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(e) => e.to_string(),
        Error::NoItemsFound => "no such PEM section in the file".to_owned(),
        other => format!("not valid PEM ({other})"),
    }
}
