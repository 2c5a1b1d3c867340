//! Certificates of clients (mutual TLS).

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::callbacks;
use super::certificate::{self, CertificateFacts, ConfigError, Fingerprint, unreadable};

/// What is asked of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthMode {
    /// A certificate; without a good one there is no connection.
    Require,
    /// A certificate if the client has one; a bad one ends the connection, none does not.
    Request,
}

/// Which certificates of clients are good, and whether one must be shown. Cheap to clone.
#[derive(Clone)]
pub struct ClientAuth {
    roots: Arc<RootCertStore>,
    mode: ClientAuthMode,
    id: ClientAuthId,
}

/// Tells one [`ClientAuth`] from another, also from one of an earlier configuration: equal if and only if the roots and the mode are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAuthId(pub(super) [u8; 32]);

/// The certificate that a client showed, checked against the site's roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject, as in `CN=alice`.
    pub subject: String,
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
}

impl ClientAuth {
    /// Certificates that chain up to one in this PEM file.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file.
    pub fn from_pem_file(roots: &Path, mode: ClientAuthMode) -> Result<Self, ConfigError> {
        let pem = std::fs::read(roots).map_err(|e| unreadable(roots, "root certificate", e.to_string()))?;
        let certificates = certificate::certificates(roots, &pem)?;
        let mut store = RootCertStore::empty();
        let mut fingerprints = Vec::new();
        for der in certificates {
            fingerprints.push(certificate::fingerprint(&der).0);
            store.add(der).map_err(|e| unreadable(roots, "root certificate", e.to_string()))?;
        }
        fingerprints.sort_unstable();
        let mut hash = Context::new(&SHA256);
        hash.update(match mode {
            ClientAuthMode::Require => b"require",
            ClientAuthMode::Request => b"request",
        });
        fingerprints.iter().for_each(|fingerprint| hash.update(fingerprint));
        let mut id = [0; 32];
        id.copy_from_slice(hash.finish().as_ref());
        Ok(Self { roots: Arc::new(store), mode, id: ClientAuthId(id) })
    }

    /// What tells it from others.
    pub fn id(&self) -> ClientAuthId {
        self.id
    }

    /// What is asked of a client.
    pub fn mode(&self) -> ClientAuthMode {
        self.mode
    }

    pub(super) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
        let builder = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider.clone());
        let builder = match self.mode {
            ClientAuthMode::Require => builder,
            ClientAuthMode::Request => builder.allow_unauthenticated(),
        };
        let verifier = builder
            .build()
            .map_err(|e| ConfigError::Policy(format!("the roots for client certificates cannot be used: {e}")))?;
        Ok(Arc::new(Verifier(verifier)))
    }
}

/// Verifies as rustls does, and notes the end of the certificate: the session must not outlive it.
#[derive(Debug)]
struct Verifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Verifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        // Without an end that can be read there will be no ticket.
        let not_after = certificate::not_after(end_entity).unwrap_or(SystemTime::UNIX_EPOCH);
        callbacks::with_current(|state| state.client_not_after = Some(not_after));
        Ok(verified)
    }

    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.0.requires_raw_public_keys()
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuth").field("roots", &self.roots.len()).field("mode", &self.mode).finish()
    }
}

impl fmt::Debug for ClientAuthId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Fingerprint(self.0))
    }
}

impl ClientCertificate {
    /// Reads one that rustls has checked.
    pub(super) fn of(der: &[u8]) -> Self {
        let subject = CertificateFacts::of(der).map(|facts| facts.subject).unwrap_or_default();
        Self { subject, fingerprint: certificate::fingerprint(der) }
    }
}
