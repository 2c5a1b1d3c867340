//! `[tls]`, and the certificate keys of a site.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sealion_tls::{ClientAuthMode, ExpiredLists, RequireEms, Version};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smart_default::SmartDefault;

use crate::values::{At, Secret, SecretUrl, Time, overridable};

/// Versions, suites, session tickets and automatic certificates, for all sites.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsConfig {
    /// Oldest TLS version accepted from clients.
    #[arg(long = "tls-min-version", id = "tls_min_version", value_enum, value_name = "VERSION",
          env = "SEALION_TLS_MIN_VERSION", default_value_t = MinVersion::Tls12)]
    pub min_version: MinVersion,

    /// Cipher suites by IANA name; the client's order of preference decides. By default, all AEAD suites with forward
    /// secrecy are offered.
    #[arg(skip)]
    pub suites: Vec<At<String>>,

    /// TLS 1.2 clients without the extended master secret (RFC 7627) to reject: `always` rejects all,
    /// `with-client-auth` the clients of sites with `client_auth`, `never` none. Without it, an attacker can resume
    /// another client's session. TLS 1.3 is not affected.
    #[arg(skip)]
    pub require_extended_master_secret: RequireEmsKind,

    /// Whether OCSP responses are fetched and stapled for certificates that name a responder.
    #[arg(skip = true)]
    #[default(true)]
    pub ocsp_stapling: bool,

    /// How clients resume sessions.
    #[arg(skip)]
    pub session_tickets: SessionTicketsConfig,

    /// Certificates obtained and renewed automatically.
    #[arg(skip)]
    pub acme: AcmeConfig,

    /// Further accounts at certificate authorities, which sites choose by name: `acme = "internal"`.
    #[arg(skip)]
    pub acme_accounts: Vec<AcmeConfig>,
}

impl TlsConfig {
    /// All accounts at certificate authorities, used by sites or not.
    pub(crate) fn all_acme(&self) -> impl Iterator<Item = &AcmeConfig> {
        std::iter::once(&self.acme).chain(&self.acme_accounts)
    }
}

overridable!(TlsConfig {
    min_version = "tls_min_version",
    suites = "",
    require_extended_master_secret = "",
    ocsp_stapling = "",
    session_tickets = "",
    acme = "",
    acme_accounts = "",
});

/// The TLS 1.2 clients that must use the extended master secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequireEmsKind {
    /// Every client. OpenSSL before 1.1.0 (RHEL 7) and Java before 8u161 are rejected.
    Always,
    /// Clients of sites with `client_auth`, whose identity the session carries.
    #[default]
    WithClientAuth,
    /// No client.
    Never,
}

impl From<RequireEmsKind> for RequireEms {
    fn from(kind: RequireEmsKind) -> Self {
        match kind {
            RequireEmsKind::Always => RequireEms::Always,
            RequireEmsKind::WithClientAuth => RequireEms::WithClientAuth,
            RequireEmsKind::Never => RequireEms::Never,
        }
    }
}

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
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionTicketsConfig {
    /// Whether clients may resume sessions, for up to twelve hours.
    #[default(true)]
    pub enabled: bool,
    /// Directory of ticket keys, the same on all servers of a fleet, so that each resumes the others' sessions.
    /// `sealion ticket-key` makes a key. Without a directory, the process uses its own keys and changes them every six
    /// hours.
    pub keys: Option<At<PathBuf>>,
}

/// A certificate chain with its private key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    /// Certificate chain, PEM: the site's certificate first, each certificate followed by its issuer's.
    pub cert: At<PathBuf>,
    /// Private key of the certificate, PEM.
    pub key: At<PathBuf>,
}

/// Authentication of clients by certificate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientAuthConfig {
    /// Certificates of the authorities whose clients are accepted, PEM.
    pub roots: At<PathBuf>,
    /// Whether a client must present a certificate.
    #[serde(default)]
    pub mode: ClientAuthKind,
    /// Files of revocation lists, PEM or DER. If there are any, each issuer in a client's chain needs a list, or the
    /// client is rejected. Changed files are read again within two seconds.
    #[serde(default)]
    pub crls: Vec<At<PathBuf>>,
    /// Whether clients are accepted by a revocation list whose next update is overdue.
    #[serde(default)]
    pub expired_crls: ExpiredListsKind,
}

/// The effect of an expired revocation list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpiredListsKind {
    /// Clients of its issuer are rejected until there is a newer list.
    #[default]
    Refuse,
    /// It is used as before, so that clients revoked since are accepted.
    Accept,
}

impl From<ExpiredListsKind> for ExpiredLists {
    fn from(kind: ExpiredListsKind) -> Self {
        match kind {
            ExpiredListsKind::Refuse => ExpiredLists::Refuse,
            ExpiredListsKind::Accept => ExpiredLists::Accept,
        }
    }
}

/// Whether a client must present a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuthKind {
    /// Handshakes without a certificate fail.
    #[default]
    Require,
    /// A certificate is optional; an invalid one fails the handshake.
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

/// The account for ordering a site's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum AcmeUse {
    /// No certificate is ordered.
    #[default]
    No,
    /// The account of `[tls.acme]`.
    Default,
    /// An account of `[[tls.acme_accounts]]`.
    Named(String),
}

impl Serialize for AcmeUse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AcmeUse::No => serializer.serialize_bool(false),
            AcmeUse::Default => serializer.serialize_bool(true),
            AcmeUse::Named(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for AcmeUse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;

        impl Visitor<'_> for Choice {
            type Value = AcmeUse;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or the name of an account of [[tls.acme_accounts]]")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<AcmeUse, E> {
                Ok(if value { AcmeUse::Default } else { AcmeUse::No })
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<AcmeUse, E> {
                Ok(AcmeUse::Named(name.to_owned()))
            }
        }

        deserializer.deserialize_any(Choice)
    }
}

impl JsonSchema for AcmeUse {
    fn schema_name() -> Cow<'static, str> {
        "AcmeUse".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "type": "string" }] })
    }
}

/// Certificates for names that are unknown until a client asks for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcmeOnDemandConfig {
    /// Your service that decides whether a certificate may be ordered, for instance `http://127.0.0.1:9123/allowed`. It
    /// gets a GET request with the query `domain=NAME`, and allows the certificate by a status from 200 to 299.
    pub ask: At<SecretUrl>,
}

/// Certificates obtained and renewed automatically (ACME, RFC 8555), for sites with `acme = true`.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AcmeConfig {
    /// Name for sites to choose the account; only in `[[tls.acme_accounts]]`.
    pub name: Option<At<String>>,
    /// Directory URL of the certificate authority.
    #[default("https://acme-v02.api.letsencrypt.org/directory".to_owned().into())]
    pub directory: SecretUrl,
    /// Contact addresses for the authority, for instance `mailto:admin@example.org`.
    pub contact: Vec<String>,
    /// Whether you agree to the authority's terms of service. Until you do, no request is sent to it.
    pub agree_to_terms: bool,
    /// Challenge that validates host names: over TLS on port 443, over HTTP on port 80, or by a record in the DNS.
    pub challenge: ChallengeKind,
    /// Profile of the authority's certificates, by its name: `shortlived` of Let's Encrypt, for instance, is valid for six days, and the only one
    /// for IP addresses [default: the authority's]
    pub profile: Option<At<String>>,
    /// Program that sets and removes records for `dns-01`. Its arguments are `present` or `cleanup`, the name of the
    /// record with a trailing dot, and the record's text; exit code 0 means success.
    pub dns_hook: Option<At<PathBuf>>,
    /// DNS server that sets and removes records for `dns-01` by dynamic updates (RFC 2136), instead of `dns_hook`.
    pub dns_update: Option<DnsUpdateConfig>,
    /// Time from setting the last record to the validation, for the zone to reach all its servers.
    // INHERITED: certbot's plugins for DNS providers.
    #[default(Time(Duration::from_secs(10)))]
    pub dns_wait: Time,
    /// Directory for the account and the certificates.
    #[default(PathBuf::from("/var/lib/sealion/acme").into())]
    pub state: At<PathBuf>,
    /// Root certificate to verify the authority's HTTPS server with, PEM, for a private authority. By default, the
    /// system's roots are used.
    pub root: Option<At<PathBuf>>,
    /// Existing account to bind to, for authorities that require external account binding.
    pub external_account: Option<ExternalAccountConfig>,
}

/// Dynamic updates of a zone, signed with a TSIG key (RFC 2136, RFC 8945). The primaries of BIND, Knot, PowerDNS and
/// NSD support them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DnsUpdateConfig {
    /// Primary server of the zone, with its port unless that is 53: `192.0.2.53`, `[2001:db8::53]:5353` or
    /// `ns1.example.org`. Requests use TCP.
    pub server: At<String>,
    /// Name of the key at the server.
    pub key_name: At<String>,
    /// Algorithm of the key.
    #[serde(default)]
    pub algorithm: TsigAlgorithm,
    /// File with the key's secret in base64, as printed by `tsig-keygen`.
    pub secret: At<PathBuf>,
    /// Zone of the records [default: the server is asked for it]
    #[serde(default)]
    pub zone: Option<At<String>>,
}

/// Algorithm of a TSIG key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum TsigAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    #[serde(rename = "hmac-sha256")]
    Sha256,
    /// HMAC with SHA-384.
    #[serde(rename = "hmac-sha384")]
    Sha384,
    /// HMAC with SHA-512.
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

/// The challenge that validates host names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ChallengeKind {
    /// A TLS handshake on port 443 (RFC 8737).
    #[default]
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// An HTTP request on port 80, which needs a listener with `tls = false` (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// A TXT record, set by `dns_hook` or `dns_update` (RFC 8555 §8.4). The only challenge for wildcards.
    #[serde(rename = "dns-01")]
    Dns01,
}

/// External account binding (RFC 8555 §7.3.4).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalAccountConfig {
    /// Key identifier issued by the authority.
    pub key_id: Secret,
    /// File with the MAC key in base64url, as issued by the authority.
    pub hmac_key: At<PathBuf>,
}
