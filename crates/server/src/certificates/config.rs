//! `[tls]`, and what a site says of its certificates.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use sealion_tls::{ClientAuthMode, Version};
use serde::{Deserialize, Serialize};

use crate::values::{At, overridable};

/// Versions, suites, session tickets and automatic certificates, for all sites.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsConfig {
    /// The oldest version of TLS that is spoken.
    #[arg(long = "tls-min-version", id = "tls_min_version", value_enum, value_name = "VERSION",
          env = "SEALION_TLS_MIN_VERSION", default_value_t = MinVersion::Tls12)]
    pub min_version: MinVersion,

    /// Cipher suites by their IANA names. Without any, all that are safe. Of those that both sides know, the client's
    /// preference decides.
    #[arg(skip)]
    pub suites: Vec<At<String>>,

    /// How clients resume sessions.
    #[arg(skip)]
    pub session_tickets: SessionTicketsConfig,

    /// Certificates that are got and renewed by themselves.
    #[arg(skip)]
    pub acme: AcmeConfig,
}

overridable!(TlsConfig { min_version = "tls_min_version", suites = "", session_tickets = "", acme = "" });

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
pub enum MinVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "1.2")]
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    #[value(name = "1.3")]
    Tls13,
}

impl From<MinVersion> for Version {
    fn from(version: MinVersion) -> Self {
        match version {
            MinVersion::Tls12 => Version::Tls12,
            MinVersion::Tls13 => Version::Tls13,
        }
    }
}

/// How clients resume sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionTicketsConfig {
    /// Whether sessions are resumed, for up to twelve hours.
    pub enabled: bool,
    /// A directory with keys for tickets, the same on all servers of a fleet, so that each resumes the others' sessions. `sealion
    /// ticket-key` makes a key. Without it the keys live in this process and change every six hours.
    pub keys: Option<At<PathBuf>>,
}

impl Default for SessionTicketsConfig {
    fn default() -> Self {
        SessionTicketsConfig { enabled: true, keys: None }
    }
}

/// A certificate with its key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    /// Certificate chain, PEM: the site's own certificate first, after each its issuer's.
    pub cert: At<PathBuf>,
    /// Its private key, PEM.
    pub key: At<PathBuf>,
}

/// Certificates of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientAuthConfig {
    /// Certificates of the authorities whose clients are let in, PEM.
    pub roots: At<PathBuf>,
    /// Whether a client must show a certificate.
    #[serde(default)]
    pub mode: ClientAuthKind,
}

/// Whether a client must show a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuthKind {
    /// It must.
    #[default]
    Require,
    /// It may; a bad one ends the connection.
    Request,
}

impl From<ClientAuthKind> for ClientAuthMode {
    fn from(kind: ClientAuthKind) -> Self {
        match kind {
            ClientAuthKind::Require => ClientAuthMode::Require,
            ClientAuthKind::Request => ClientAuthMode::Request,
        }
    }
}

/// Certificates that are got and renewed by themselves (ACME, RFC 8555), for sites with `acme = true`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AcmeConfig {
    /// The authority's directory.
    pub directory: String,
    /// Whom the authority may write to, for instance `mailto:admin@example.org`.
    pub contact: Vec<String>,
    /// That you agree to the authority's terms of service. Nothing is asked of it before.
    pub agree_to_terms: bool,
    /// How the authority sees that the names are yours: over TLS on port 443, or over HTTP on port 80.
    pub challenge: ChallengeKind,
    /// Where the account and the certificates are kept.
    pub state: At<PathBuf>,
    /// The root certificate of the authority's own server, PEM, for one of your own. Without it the system's roots count.
    pub root: Option<At<PathBuf>>,
    /// The account at the authority to which this one is bound, if it wants that (external account binding).
    pub external_account: Option<ExternalAccountConfig>,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        AcmeConfig {
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            contact: Vec::new(),
            agree_to_terms: false,
            challenge: ChallengeKind::default(),
            state: PathBuf::from("/var/lib/sealion/acme").into(),
            root: None,
            external_account: None,
        }
    }
}

/// How an authority sees that a name is ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ChallengeKind {
    /// It shakes hands on port 443 (RFC 8737).
    #[default]
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// It asks on port 80, where a listener with `tls = false` must be (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
}

/// An account that an authority knows already (RFC 8555 §7.3.4).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalAccountConfig {
    /// Its identifier.
    pub key_id: String,
    /// A file with its key in base64url, as the authority gives it.
    pub hmac_key: At<PathBuf>,
}
