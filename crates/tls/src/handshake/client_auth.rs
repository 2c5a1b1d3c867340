//! Certificates of clients (mutual TLS).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{Context, SHA256};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::callbacks;
use super::certificate::{self, CertificateFacts, ConfigError, Fingerprint, unreadable};

/// The server's demand for a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthMode {
    /// The client must present a valid certificate.
    Require,
    /// The client may present a certificate, which must then be valid.
    Request,
}

/// The client certificates to accept, and whether one is required. Cheap to clone.
#[derive(Clone)]
pub struct ClientAuth {
    roots: Arc<RootCertStore>,
    mode: ClientAuthMode,
    id: ClientAuthId,
    revocation: Option<Arc<Revocation>>,
}

/// The effect of a revocation list after its next update is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredLists {
    /// Rejects certificates of the list's issuer.
    Refuse,
    /// Continues to use the list.
    Accept,
}

/// Revocation lists (RFC 5280 §5), which can be reloaded while handshakes continue.
struct Revocation {
    files: Vec<PathBuf>,
    expired: ExpiredLists,
    current: ArcSwap<Lists>,
}

/// The lists as loaded at one time.
struct Lists {
    verifier: Arc<dyn ClientCertVerifier>,
    facts: Vec<RevocationListFacts>,
    /// Tickets are bound to this context, because other lists may reject the client.
    context: [u8; 32],
}

/// The facts in a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationListFacts {
    /// Its file.
    pub file: PathBuf,
    /// The issuer whose certificates the list covers, such as `CN=clients`.
    pub issuer: String,
    /// The time of the next update, if stated.
    pub next_update: Option<SystemTime>,
    /// The number of certificates it revokes.
    pub revoked: usize,
}

/// Identifies a [`ClientAuth`], also across configurations: two ids are equal if and only if roots and mode are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAuthId(pub(crate) [u8; 32]);

/// A client's certificate, verified against the site's roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject, such as `CN=alice`.
    pub subject: String,
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
}

impl ClientAuth {
    /// Accepts certificates that chain up to a root in this PEM file.
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
        Ok(Self { roots: Arc::new(store), mode, id: ClientAuthId(id), revocation: None })
    }

    /// Rejects certificates that the lists in these files (PEM or DER) revoke, and certificates whose issuer has no
    /// list.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file.
    pub fn with_revocation_lists(mut self, files: Vec<PathBuf>, expired: ExpiredLists) -> Result<Self, ConfigError> {
        // The same files are used in the same way, but their content may change.
        let mut hash = Context::new(&SHA256);
        hash.update(&self.id.0);
        hash.update(match expired {
            ExpiredLists::Refuse => b"refuse",
            ExpiredLists::Accept => b"accept",
        });
        for file in &files {
            hash.update(file.as_os_str().as_encoded_bytes());
            hash.update(b"\0");
        }
        self.id.0.copy_from_slice(hash.finish().as_ref());
        let current = ArcSwap::from_pointee(self.read_lists(&files, expired)?);
        self.revocation = Some(Arc::new(Revocation { files, expired, current }));
        Ok(self)
    }

    /// Reloads the revocation lists for later handshakes. If a list has changed, earlier tickets become invalid.
    ///
    /// # Errors
    /// [`ConfigError`]: the previous lists stay in use.
    pub fn reload_revocation_lists(&self) -> Result<(), ConfigError> {
        if let Some(revocation) = &self.revocation {
            revocation.current.store(Arc::new(self.read_lists(&revocation.files, revocation.expired)?));
        }
        Ok(())
    }

    /// The files of revocation lists.
    pub fn revocation_files(&self) -> &[PathBuf] {
        self.revocation.as_ref().map_or(&[], |revocation| &revocation.files)
    }

    /// The revocation lists in use.
    pub fn revocation_lists(&self) -> Vec<RevocationListFacts> {
        self.revocation.as_ref().map_or_else(Vec::new, |revocation| revocation.current.load().facts.clone())
    }

    /// The subjects of the roots.
    pub fn root_subjects(&self) -> impl Iterator<Item = String> {
        self.roots.roots.iter().map(|root| name_of(&root.subject))
    }

    fn read_lists(&self, files: &[PathBuf], expired: ExpiredLists) -> Result<Lists, ConfigError> {
        let (mut all, mut facts) = (Vec::new(), Vec::new());
        let mut hash = Context::new(&SHA256);
        hash.update(&self.id.0);
        for file in files {
            let wrong = |why: String| unreadable(file, "revocation list", why);
            let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
            hash.update(&bytes);
            let lists = match bytes.starts_with(b"0") {
                true => vec![CertificateRevocationListDer::from(bytes)],
                false => CertificateRevocationListDer::pem_slice_iter(&bytes)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| wrong(error.to_string()))?,
            };
            if lists.is_empty() {
                return Err(wrong("the file has no X509 CRL section".to_owned()));
            }
            for list in &lists {
                let (_, read) =
                    CertificateRevocationList::from_der(list.as_ref()).map_err(|error| wrong(error.to_string()))?;
                let next_update = read
                    .next_update()
                    .map(|time| UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default()));
                facts.push(RevocationListFacts {
                    file: file.clone(),
                    issuer: read.issuer().to_string(),
                    next_update,
                    revoked: read.iter_revoked_certificates().count(),
                });
            }
            all.extend(lists);
        }
        let mut context = [0; 32];
        context.copy_from_slice(hash.finish().as_ref());
        let builder = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), Arc::new(default_provider()));
        let builder = builder.with_crls(all);
        let builder = match expired {
            ExpiredLists::Refuse => builder.enforce_revocation_expiration(),
            ExpiredLists::Accept => builder,
        };
        let verifier = builder
            .build()
            .map_err(|error| ConfigError::Policy(format!("the revocation lists cannot be used: {error}")))?;
        Ok(Lists { verifier, facts, context })
    }

    /// The context for tickets.
    pub(super) fn ticket_context(&self) -> [u8; 32] {
        self.revocation.as_ref().map_or(self.id.0, |revocation| revocation.current.load().context)
    }

    /// The identity of roots and mode.
    pub fn id(&self) -> ClientAuthId {
        self.id
    }

    /// The server's demand for a client certificate.
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
        Ok(Arc::new(Verifier { of_roots: verifier, revocation: self.revocation.clone() }))
    }
}

/// Verifies as rustls does, and records the certificate's end of validity: the session must not outlive it.
#[derive(Debug)]
struct Verifier {
    of_roots: Arc<dyn ClientCertVerifier>,
    revocation: Option<Arc<Revocation>>,
}

impl ClientCertVerifier for Verifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let (verified, context) = match &self.revocation {
            None => (self.of_roots.verify_client_cert(end_entity, intermediates, now)?, None),
            Some(revocation) => {
                let lists = revocation.current.load();
                (lists.verifier.verify_client_cert(end_entity, intermediates, now)?, Some(lists.context))
            }
        };
        // If the end cannot be read, no ticket is issued.
        let not_after = certificate::not_after(end_entity).unwrap_or(SystemTime::UNIX_EPOCH);
        callbacks::with_current(|state| {
            state.client_not_after = Some(not_after);
            state.ticket_context = context;
        });
        Ok(verified)
    }

    fn offer_client_auth(&self) -> bool {
        self.of_roots.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.of_roots.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.of_roots.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_roots.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_roots.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.of_roots.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.of_roots.requires_raw_public_keys()
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuth").field("roots", &self.roots.len()).field("mode", &self.mode).finish()
    }
}

impl fmt::Debug for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revocation").field("files", &self.files).field("expired", &self.expired).finish()
    }
}

/// The subject of a root from its DER, without the outermost header.
fn name_of(subject: &[u8]) -> String {
    let der = DistinguishedName::in_sequence(subject);
    x509_parser::x509::X509Name::from_der(der.as_ref()).map(|(_, name)| name.to_string()).unwrap_or_default()
}

impl fmt::Debug for ClientAuthId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Fingerprint(self.0))
    }
}

impl ClientCertificate {
    /// Parses a certificate that rustls has verified.
    pub(super) fn of(der: &[u8]) -> Self {
        let subject = CertificateFacts::of(der).map(|facts| facts.subject).unwrap_or_default();
        Self { subject, fingerprint: certificate::fingerprint(der) }
    }
}
