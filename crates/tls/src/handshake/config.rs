//! Shared by all connections of a listener: certificates by name, client authentication, protocols, limits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use sealion_ktls::Version;

use super::callbacks::SecretTap;
use super::certificate::{Certificate, ConfigError};
use super::client_auth::{ClientAuth, ClientAuthId};
use super::compression;
use super::key_log::KeyLogFile;
use super::names::{NameFinder, Names};
use super::resolver::{ACME_TLS, AlpnChallenges, CertificateSource, Resolver, SiteCertificates};
use super::secrets;
use super::tickets::{TicketKeys, Ticketer};

/// The certificates, protocols and limits of a listener. Cheap to share by reference or `Arc`.
///
/// Sites with the same client authentication and protocols share one rustls configuration, so that a ClientHello is
/// parsed once. It is inspected beforehand only if sites differ, or if a certificate may have to be obtained.
pub struct ServerConfig {
    default: Policy,
    choice: Option<Box<Choice>>,
    resolver: Arc<Resolver>,
    /// The resolver, if a site has a source of certificates.
    with_sources: Option<Arc<Resolver>>,
    pub(crate) limits: Arc<Limits>,
}

/// Client authentication and protocols, with the rustls configuration for them.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) rustls: Arc<rustls::ServerConfig>,
    pub(super) client_auth: Option<ClientAuthId>,
}

/// The policies of a listener whose sites differ in client authentication or protocols.
pub(super) struct Choice {
    by_name: Names<Policy>,
    /// For validations by an ACME server, which cannot present a certificate.
    validation: Option<Policy>,
}

/// Shared by all policies of a listener.
struct Common {
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    time: Arc<dyn TimeProvider>,
}

/// Options for all sites.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Application protocols, the preferred first (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// The oldest version accepted.
    pub min_version: Version,
    /// Suites by their IANA names; if empty, all of [`suites`]. Among common suites the client's preference decides.
    pub suites: Vec<String>,
    /// The keys of session tickets. `None`: sessions are not resumed.
    pub tickets: Option<Arc<TicketKeys>>,
    /// The TLS 1.2 clients that need the extended master secret.
    pub extended_master_secret: RequireEms,
    /// The responses to TLS-ALPN-01 validations, if any.
    pub challenges: Option<Arc<AlpnChallenges>>,
    /// Finds the sites of names that are in no [`SiteTls::names`].
    pub names: Option<NameFinder>,
    /// Where secrets are written, so that recorded connections can be read. `None`: nowhere.
    pub key_log: Option<Arc<KeyLogFile>>,
}

/// The TLS 1.2 clients that are rejected without the extended master secret (RFC 7627). Without it only the randoms
/// bind a session to its handshake. An attacker in the middle can then synchronise two sessions and use a client's
/// certificate in a connection of its own (the triple handshake attack).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequireEms {
    /// Every client.
    Always,
    /// Clients that are asked for a certificate. OpenSSL before 1.1.0 and Java before 8u161 lack the extension.
    #[default]
    WithClientAuth,
    /// No client.
    Never,
}

/// A site as the handshake sees it.
#[derive(Debug, Clone)]
pub struct SiteTls {
    /// Its names: exact, or `*.parent` for one label or more.
    pub names: Vec<String>,
    /// The certificates for its clients.
    pub certificates: Arc<SiteCertificates>,
    /// The client certificates that it requests, if any.
    pub client_auth: Option<ClientAuth>,
    /// Its application protocols. `None`: [`TlsOptions::alpn`] applies.
    pub alpn: Option<Vec<Vec<u8>>>,
}

/// Bounds of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of records sealed under one key before the key is updated, or the connection is closed if it cannot
    /// be. Never more than the suite allows ([`rustls::CipherSuiteCommon::confidentiality_limit`]): 2^24 or fewer with
    /// AES-GCM, any number with ChaCha20-Poly1305 (RFC 8446 §5.5).
    pub records_per_key: u64,
    /// How long a peer may take none of the data that is ready for it.
    pub stall: Duration,
    /// The minimum rate of a peer while it makes the server wait. `None`: any progress suffices.
    pub least_rate: Option<LeastRate>,
    /// How long to wait for the peer to end the connection after this side, so that a reset does not overtake the last
    /// bytes sent.
    pub linger: Duration,
    /// Whether the kernel can change the keys of a live TLS 1.3 connection (Linux 6.14).
    pub kernel_rekeys: bool,
}

/// A rate over a time. Only time without room in TCP counts, so that a slow disk or source is not the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastRate {
    /// Bytes on the wire, on average.
    pub bytes_per_second: u64,
    /// The time over which the average is taken.
    pub window: Duration,
}

impl LeastRate {
    /// Bytes in a window.
    pub fn bytes(&self) -> u64 {
        self.bytes_per_second.saturating_mul(self.window.as_secs_f64().ceil() as u64)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            records_per_key: u64::MAX,
            // The defaults of nginx' send_timeout and lingering_timeout.
            stall: Duration::from_secs(60),
            least_rate: None,
            linger: Duration::from_secs(5),
            kernel_rekeys: false,
        }
    }
}

impl TlsOptions {
    /// TLS 1.2 and 1.3 with all suites and these application protocols. This process creates and rotates the keys of
    /// session tickets.
    ///
    /// # Errors
    /// [`ConfigError::Policy`]: the system provides no random numbers.
    pub fn new(alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let tickets = TicketKeys::rotating().map_err(|e| ConfigError::Policy(e.to_string()))?;
        Ok(Self {
            alpn: alpn.iter().map(|protocol| protocol.to_vec()).collect(),
            min_version: Version::Tls12,
            suites: Vec::new(),
            tickets: Some(Arc::new(tickets)),
            extended_master_secret: RequireEms::default(),
            challenges: None,
            names: None,
            key_log: None,
        })
    }

    fn provider(&self) -> Result<Arc<CryptoProvider>, ConfigError> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| secrets::aead(*suite).is_some());
        if !self.suites.is_empty() {
            if let Some(unknown) = self.suites.iter().find(|name| !suites().contains(&name.as_str())) {
                return Err(ConfigError::Policy(format!(
                    "{unknown} is not a suite known here: {}",
                    suites().join(", ")
                )));
            }
            provider
                .cipher_suites
                .retain(|suite| self.suites.iter().any(|wanted| wanted == secrets::suite_name(*suite)));
        }
        let oldest_is_13 = self.min_version == Version::Tls13;
        if oldest_is_13 && !provider.cipher_suites.iter().any(|suite| suite.tls13().is_some()) {
            return Err(ConfigError::Policy(
                "none of the suites belongs to TLS 1.3, the minimum version: add TLS_AES_128_GCM_SHA256".to_owned(),
            ));
        }
        Ok(Arc::new(provider))
    }

    fn policy(
        &self,
        common: &Common,
        client_auth: Option<&ClientAuth>,
        alpn: &[Vec<u8>],
    ) -> Result<Policy, ConfigError> {
        let Common { provider, resolver, time } = common;
        let versions: &[_] = match self.min_version {
            Version::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            Version::Tls13 => &[&rustls::version::TLS13],
        };
        let mut config = rustls::ServerConfig::builder_with_details(provider.clone(), time.clone())
            .with_protocol_versions(versions)
            .map_err(|e| ConfigError::Policy(e.to_string()))?
            .with_client_cert_verifier(match client_auth {
                Some(auth) => auth.verifier(provider)?,
                None => Arc::new(NoClientAuth),
            })
            .with_cert_resolver(resolver.clone());
        config.alpn_protocols = alpn.to_vec();
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(SecretTap { file: self.key_log.clone() });
        compression::enable(&mut config);
        config.require_ems = match self.extended_master_secret {
            RequireEms::Always => true,
            RequireEms::WithClientAuth => client_auth.is_some(),
            RequireEms::Never => false,
        };
        // Tickets are the only way to resume: sessions kept by the server would never expire, and would outlive the
        // ticket keys.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match &self.tickets {
            Some(keys) => config.ticketer = Arc::new(Ticketer::new(keys.clone(), client_auth.cloned(), time.clone())),
            None => config.send_tls13_tickets = 0,
        }
        Ok(Policy { rustls: Arc::new(config), client_auth: client_auth.map(ClientAuth::id) })
    }
}

/// The supported suites by their IANA names.
pub fn suites() -> Vec<&'static str> {
    let all = aws_lc_rs::default_provider().cipher_suites.into_iter();
    all.filter(|suite| secrets::aead(*suite).is_some()).map(secrets::suite_name).collect()
}

impl ServerConfig {
    /// A configuration from PEM files with [`TlsOptions::new`], for every name.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file.
    pub fn from_pem_files(
        cert: &Path,
        key: &Path,
        alpn: &[&[u8]],
        limits: impl Into<Arc<Limits>>,
    ) -> Result<Self, ConfigError> {
        let certificates = Arc::new(SiteCertificates::new(vec![Certificate::from_pem_files(cert, key)?]));
        let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
        Self::new(&site, &[], &TlsOptions::new(alpn)?, limits)
    }

    /// A configuration for sites. `default` serves clients without a name, or with a name that no site has.
    ///
    /// # Errors
    /// [`ConfigError::Policy`]: the options contradict each other, or contain an unknown name.
    pub fn new(
        default: &SiteTls,
        others: &[SiteTls],
        options: &TlsOptions,
        limits: impl Into<Arc<Limits>>,
    ) -> Result<Self, ConfigError> {
        Self::with_time(default, others, options, limits, Arc::new(DefaultTimeProvider))
    }

    /// As [`Self::new`], with a clock for the expiry of client certificates and session tickets.
    pub(super) fn with_time(
        default: &SiteTls,
        others: &[SiteTls],
        options: &TlsOptions,
        limits: impl Into<Arc<Limits>>,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, ConfigError> {
        let all = || std::iter::once(default).chain(others);
        let mut sites = Names::new(default.certificates.clone());
        for site in all() {
            site.names.iter().for_each(|name| sites.insert(name, site.certificates.clone()));
        }
        sites.find_by(options.names.as_ref(), all().map(|site| site.certificates.clone()).collect());
        let resolver = Arc::new(Resolver { sites, challenges: options.challenges.clone() });
        let with_sources = all().any(|site| site.certificates.has_source()).then(|| resolver.clone());
        let common = Common { provider: options.provider()?, resolver: resolver.clone(), time };

        let asked = all().any(|site| site.client_auth.is_some());
        let (mut validation, mut for_validations) = (None, None);
        if options.challenges.is_some() {
            let acme_tls = ACME_TLS.to_vec();
            if asked {
                validation = Some(options.policy(&common, None, &[acme_tls])?);
            } else {
                for_validations = Some(acme_tls);
            }
        }

        let mut policies: Vec<Policy> = Vec::new();
        let mut by_site = Vec::new();
        let mut by_name = None;
        for site in all() {
            let id = site.client_auth.as_ref().map(ClientAuth::id);
            let own = site.alpn.as_ref().unwrap_or(&options.alpn);
            let alpn: Vec<_> = own.iter().chain(&for_validations).cloned().collect();
            let is_same = |policy: &&Policy| policy.client_auth == id && policy.rustls.alpn_protocols == alpn;
            let policy = match policies.iter().find(is_same) {
                Some(policy) => policy.clone(),
                None => {
                    let new = options.policy(&common, site.client_auth.as_ref(), &alpn)?;
                    policies.push(new.clone());
                    new
                }
            };
            let by_name = by_name.get_or_insert_with(|| Names::new(policy.clone()));
            site.names.iter().for_each(|name| by_name.insert(name, policy.clone()));
            by_site.push(policy);
        }
        if let Some(by_name) = &mut by_name {
            by_name.find_by(options.names.as_ref(), by_site);
        }
        let first = policies[0].clone();
        let differ = policies.len() > 1 || validation.is_some();
        let choice = by_name.filter(|_| differ).map(|by_name| Box::new(Choice { by_name, validation }));
        Ok(Self { default: first, choice, resolver, with_sources, limits: limits.into() })
    }

    /// Whether a certificate for `server_name` covers `name`, too: then a client may send requests for both over a
    /// connection that it opened for one (RFC 9114 §3.3).
    pub fn covers_both(&self, server_name: &str, name: &str) -> bool {
        let server_name = server_name.trim_end_matches('.');
        let certificates = self.resolver.sites.get(Some(server_name)).get();
        certificates.iter().map(Certificate::facts).any(|facts| facts.covers(server_name) && facts.covers(name))
    }

    /// The policy for all clients, if there is only one and their names need no obtained certificate.
    pub(super) fn only_policy(&self) -> Option<&Policy> {
        (self.choice.is_none() && self.with_sources.is_none()).then_some(&self.default)
    }

    /// The source of the client's certificate, and the name to request from it. `None`: the client gets a present
    /// certificate.
    pub(super) fn source(
        &self,
        hello: &rustls::server::ClientHello<'_>,
    ) -> Option<(&Arc<dyn CertificateSource>, Box<str>)> {
        let resolver = self.with_sources.as_ref()?;
        if resolver.challenges.is_some() && super::resolver::is_validation(hello) {
            return None;
        }
        let name = hello.server_name()?;
        let name = name.trim_end_matches('.');
        let source = resolver.sites.get(Some(name)).source(name)?;
        // rustls returns the name in lower case.
        Some((source, name.into()))
    }

    /// The policy for a client, by its ClientHello. If that cannot be parsed, any policy: the handshake will fail.
    pub(super) fn policy(&self, hello: Option<&rustls::server::ClientHello<'_>>) -> &Policy {
        let (Some(choice), Some(hello)) = (&self.choice, hello) else { return &self.default };
        match &choice.validation {
            Some(validation) if super::resolver::is_validation(hello) => validation,
            _ => choice.by_name.get(hello.server_name()),
        }
    }
}
