//! Chooses the certificate for a client.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::callbacks;
use super::certificate::{self, Certificate, ConfigError};
use super::names::Names;

/// The application protocol of a TLS-ALPN-01 validation (RFC 8737 §3).
pub(super) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Obtains certificates for names that are unknown until a client asks for them.
pub trait CertificateSource: fmt::Debug + Send + Sync {
    /// The certificate for this name, which is in lower case without a trailing dot. An error fails the handshake.
    /// `client`: the address passed to [`TlsStream::accept_from`](crate::TlsStream::accept_from), so that work for a
    /// client can be bounded.
    ///
    /// Each handshake with the name calls and awaits this, so an existing certificate should be returned at once. If
    /// the handshake is abandoned, the future is dropped.
    fn certificate(
        &self,
        name: &str,
        client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Result<Certificate, NoCertificate>> + Send + '_>>;
}

/// A certificate that is being obtained.
pub(super) type Obtaining<'s> = Pin<Box<dyn Future<Output = Result<Certificate, NoCertificate>> + Send + 's>>;

/// The reason why a [`CertificateSource`] returned no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCertificate {
    /// No certificate is allowed for the name. The client gets the alert `unrecognized_name` (RFC 6066 §3).
    NotAllowed,
    /// The certificate cannot be obtained now. The client gets the alert `internal_error`, and may try again.
    Unavailable,
}

/// The certificates of a site, for instance an ECDSA and an RSA certificate. Each can be replaced while connections are
/// open.
#[derive(Debug)]
pub struct SiteCertificates {
    all: ArcSwap<Vec<Certificate>>,
    source: Option<Arc<dyn CertificateSource>>,
}

impl SiteCertificates {
    /// The certificates of a site, at least one.
    ///
    /// # Panics
    /// `certificates` is empty.
    pub fn new(certificates: Vec<Certificate>) -> Self {
        assert!(!certificates.is_empty(), "a site has a certificate");
        Self { all: ArcSwap::from_pointee(certificates), source: None }
    }

    /// No certificate: clients of the site get the alert `unrecognized_name` (RFC 6066 §3).
    pub fn none() -> Self {
        Self { all: ArcSwap::default(), source: None }
    }

    /// Adds a source for names that none of the certificates covers. Clients without a name get one of the
    /// certificates.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn CertificateSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    pub(super) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// The source for this name. `None`: a certificate covers the name, or there is no source.
    pub(super) fn source(&self, name: &str) -> Option<&Arc<dyn CertificateSource>> {
        let source = self.source.as_ref()?;
        let is_covered = self.all.load().iter().any(|one| one.facts().covers(name));
        (!is_covered).then_some(source)
    }

    /// The certificates in use. Empty: see [`Self::none`].
    pub fn get(&self) -> Arc<Vec<Certificate>> {
        self.all.load_full()
    }

    /// Replaces the certificate at index `place`, for new connections.
    ///
    /// # Panics
    /// `place` is out of bounds.
    pub fn replace(&self, place: usize, certificate: Certificate) {
        self.all.rcu(|all| {
            let mut all = Vec::clone(all);
            all[place] = certificate.clone();
            all
        });
    }

    /// The first certificate that the client can verify. Prefers certificates that cover the name, then those without
    /// RSA, whose signatures are slow and large.
    ///
    /// `None`: the site has no certificate.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let all = self.all.load();
        let worth = |one: &Certificate| {
            let covers = name.is_some_and(|name| one.facts().covers(name));
            (one.signs_for(schemes), covers, !one.is_rsa())
        };
        let best = match &all[..] {
            [only] => only,
            // Among equals, max_by_key returns the last.
            several => several.iter().rev().max_by_key(|one| worth(one))?,
        };
        Some(best.certified())
    }
}

/// Certificates for TLS-ALPN-01 validations in progress (RFC 8737), by name.
#[derive(Debug, Default)]
pub struct AlpnChallenges(ArcSwap<HashMap<String, Arc<CertifiedKey>>>);

impl AlpnChallenges {
    /// Serves this certificate and its key (PEM) to validations of this name.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn insert(&self, name: &str, certificate: &str, key: &str) -> Result<(), ConfigError> {
        let answer = Arc::new(certificate::unchecked(certificate.as_bytes(), key.as_bytes())?);
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(name.to_ascii_lowercase(), answer.clone());
            all
        });
        Ok(())
    }

    /// Stops serving validations of this name.
    pub fn remove(&self, name: &str) {
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.remove(&name.to_ascii_lowercase());
            all
        });
    }

    fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.load().get(name).cloned()
    }
}

/// Chooses by the ClientHello.
pub(super) struct Resolver {
    pub(super) sites: Names<Arc<SiteCertificates>>,
    pub(super) challenges: Option<Arc<AlpnChallenges>>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        let obtained = callbacks::with_current(|state| {
            state.server_name = name.map(Into::into);
            state.obtained.clone()
        });
        if let Some(challenges) = &self.challenges
            && is_validation(&hello)
        {
            return challenges.get(name?);
        }
        if let Some(obtained) = obtained.flatten() {
            return Some(obtained.certified());
        }
        let chosen = self.sites.get(name).choose(name, hello.signature_schemes());
        if chosen.is_none() {
            callbacks::with_current(|state| state.is_refused = true);
        }
        chosen
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("sites", &self.sites).finish_non_exhaustive()
    }
}

/// Whether the client is an ACME server, which offers only its validation protocol (RFC 8737 §3).
pub(super) fn is_validation(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.next() == Some(ACME_TLS) && offered.next().is_none())
}
