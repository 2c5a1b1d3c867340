//! Certificates from an ACME server (RFC 8555): ordered, stored, renewed.
//!
//! ```text
//!            ┌─ waits until two thirds of the lifetime, or when the authority says (RFC 9773)
//!            ▼
//! due ─► order ─► challenges answered ─► validated ─► key and chain in one file ─► found by watch.rs
//!  ▲       └──────────┴──── failed: the previous certificate stays; waits 5 min, 10, 20, … up to 12 h
//!  └──────────────────────────────────────┘
//! ```
//!
//! Sites with `acme_on_demand` order when a client first asks for a name (`on_demand.rs`).
//!
//! The time of the next permitted order is stored on disk, so that a server in a restart loop sends no more orders.

mod answers;
mod bounds;
mod client;
mod dns;
mod dns_update;
mod failures;
mod on_demand;
mod order;
mod renewal;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub(crate) use answers::HttpChallenges;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use dns::{Dns, DnsHook, Zone};
use dns_update::DnsUpdate;
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
pub(crate) use on_demand::OnDemand;
pub(super) use on_demand::Source;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
pub(super) use renewal::run;
use sealion_tls::Certificate;

use super::config::{AcmeConfig, ChallengeKind};
use super::pair::{Loaded, PairFiles};
use super::private_file;
use crate::certificates::CertifiedSite;
use crate::values::{At, Problems, Secret, SecretUrl, one_line};

/// The file of an account.
const ACCOUNT: &str = "account.json";

/// A checked table `[tls.acme]` or `[[tls.acme_accounts]]`.
#[derive(Debug)]
pub(super) struct Settings {
    directory: SecretUrl,
    contact: Vec<String>,
    challenge: ChallengeKind,
    /// The name of the certificates' profile, if not the authority's default.
    profile: Option<String>,
    /// The DNS settings for `dns-01`.
    dns: Option<Dns>,
    /// A subdirectory of the configured one for this authority and account.
    state: PathBuf,
    root: Option<PathBuf>,
    external_account: Option<(Secret, Secret<Vec<u8>>)>,
    /// Held while the account is created, so that concurrent orders do not create two.
    making: tokio::sync::Mutex<()>,
}

/// A site whose certificate is ordered from the authority.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AcmeSite {
    names: Vec<String>,
    /// Key and chain in one file, so that both are replaced atomically.
    file: PathBuf,
}

impl Settings {
    /// `None`: the errors are in `problems`. `key`: the key of its table.
    pub(super) fn new(
        config: &AcmeConfig,
        key: &str,
        sites: &[&CertifiedSite<'_>],
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        if !config.agree_to_terms {
            let table = if config.name.is_some() { format!("[[{key}]]") } else { format!("[{key}]") };
            let what = format_args!(
                "no certificate is ordered before you agree: read the authority's terms of service, and write agree_to_terms = true in {table}"
            );
            // The table may be missing: then the first site that orders has the line.
            let of_site = || sites.first().map_or(0..0, |site| site.acme_span.clone());
            let span = config.name.as_ref().map_or_else(of_site, |name| name.span.clone());
            problems.add(&span, &format!("{key}.agree_to_terms"), what);
        }
        let Some(authority) = config.directory.reveal().strip_prefix("https://") else {
            problems.add(
                &(0..0),
                &format!("{key}.directory"),
                format_args!("{:?} is not an https:// address", config.directory),
            );
            return None;
        };
        let dns = dns(config, key, problems);
        let root = config.root.as_ref().map(|root| {
            let path = problems.resolve(root);
            if let Err(error) = fs::read(&path) {
                problems.add(
                    &root.span,
                    &format!("{key}.root"),
                    format_args!("{}: cannot be read: {error}", path.display()),
                );
            }
            path
        });
        let external_account = config.external_account.as_ref().and_then(|account| {
            let path = problems.resolve(&account.hmac_key);
            let mac_key = fs::read_to_string(&path).map_err(|e| e.to_string()).and_then(|text| base64url(text.trim()));
            mac_key
                .map_err(|error| {
                    let what = format_args!(
                        "{}: {error}: the file must hold the key as the authority issued it, in base64url",
                        path.display()
                    );
                    problems.add(&account.hmac_key.span, &format!("{key}.external_account.hmac_key"), what);
                })
                .ok()
                .map(|mac_key| (account.key_id.clone(), mac_key.into()))
        });
        let mut of_authority = authority.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-', "_");
        if let Some(name) = &config.name {
            // No authority's name contains this character.
            of_authority = format!("{of_authority}~{}", name.value);
        }
        let state = problems.resolve(&config.state).join(of_authority);
        (problems.len() == before).then(|| Self {
            directory: config.directory.clone(),
            contact: config.contact.clone(),
            challenge: config.challenge,
            profile: config.profile.as_ref().map(|profile| profile.value.clone()),
            dns,
            state,
            root,
            external_account,
            making: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn challenge(&self) -> ChallengeKind {
        self.challenge
    }

    /// The site with its stored certificate, or with a self-signed placeholder until one is obtained.
    pub(super) fn site(
        &self,
        site: &CertifiedSite<'_>,
        notes: &mut Vec<String>,
        problems: &mut Problems,
    ) -> Option<(AcmeSite, Loaded)> {
        let span = site.span.clone();
        // The certificate has the address that an authority of a URL has in brackets.
        let bare = |name: &String| address(name).map_or_else(|| name.clone(), |address| address.to_string());
        let names: Vec<String> = site.names.iter().map(bare).collect();
        let can_be_validated = |name: &&String| is_public_name(name, self.dns.is_some());
        let wrong = match names.iter().find(|name| !can_be_validated(name)) {
            _ if names.is_empty() => Some("the site has no names to order a certificate for: add names".to_owned()),
            Some(name) => Some(format!(
                "{name}: ACME cannot validate this name; wildcards need `challenge = \"dns-01\"` of its account, and addresses another challenge: set that or `certificates`, or move the name to another site"
            )),
            None => self.unknown_to_authority(&names),
        };
        if let Some(wrong) = wrong {
            problems.add(&span, "site.acme", wrong);
            return None;
        }
        let acme = AcmeSite { file: self.state.join(format!("{}.pem", names[0].replace('*', "_"))), names };
        if acme.file.exists() {
            return match Loaded::from(&acme.files()) {
                Ok(loaded) => Some((acme, loaded)),
                Err(error) => {
                    problems.add(&span, "site.acme", format_args!("{error}. Remove the file to get a new certificate"));
                    None
                }
            };
        }
        notes.push(format!("{}: a self-signed certificate is used until {} issues one", acme.names[0], self.directory));
        match placeholder(&acme.names) {
            Ok(certificate) => Some((acme, Loaded::placeholder(certificate))),
            Err(error) => {
                problems.add(&span, "site.acme", error);
                None
            }
        }
    }

    /// Why the authority issues no certificate for one of the names. `None`: it may.
    fn unknown_to_authority(&self, names: &[String]) -> Option<String> {
        let is_lets_encrypt = self.directory.reveal().contains("api.letsencrypt.org/");
        let name = names.iter().find(|name| is_lets_encrypt && is_local(name))?;
        Some(format!(
            "{name}: Let's Encrypt issues no certificate for names and addresses of a local network: leave out `acme` (--domain) for a certificate for development, or name another authority by `directory` (--acme-directory)"
        ))
    }

    /// Creates the state directory. Returns the directories created.
    pub(super) fn make_directory(&self) -> Result<Vec<PathBuf>, String> {
        let state = self.state.display();
        private_file::directory(&self.state).map_err(|e| {
            format!("ACME: state: {state}: cannot be created: {e}: choose a directory that this user can write; with privileges.landlock a new one needs a restart")
        })
    }

    async fn account(&self) -> Result<Account, String> {
        self.make_directory()?;
        let builder = Account::builder_with_http(client::client(self.root.as_deref())?);
        let file = self.state.join(ACCOUNT);
        let _making;
        let kept = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                _making = self.making.lock().await;
                fs::read(&file)
            }
            read => read,
        };
        match kept {
            Ok(kept) => {
                let credentials: AccountCredentials = serde_json::from_slice(&kept)
                    .map_err(|e| format!("{}: {e}: remove the file to make a new account", file.display()))?;
                return builder.from_credentials(credentials).await.map_err(explain);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Creating an account here would overwrite the existing account.
            Err(error) => return Err(format!("{}: {error}: make it readable for the server's user", file.display())),
        }
        let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external =
            self.external_account.as_ref().map(|(id, key)| ExternalAccountKey::new(id.reveal().clone(), key.reveal()));
        let (account, credentials) =
            builder.create(&new, self.directory.reveal().to_owned(), external.as_ref()).await.map_err(explain)?;
        let kept = serde_json::to_vec(&credentials).map_err(|e| e.to_string())?;
        private_file::write(&file, &kept).map_err(|e| format!("{}: {e}", file.display()))?;
        tracing::info!("ACME: account created at {}, stored in {}", self.directory, file.display());
        Ok(account)
    }
}

/// How to set the records of DNS-01. `None`: another challenge is configured, or the errors are in `problems`.
fn dns(config: &AcmeConfig, key: &str, problems: &mut Problems) -> Option<Dns> {
    let is_dns = config.challenge == ChallengeKind::Dns01;
    let what = "unused without `challenge = \"dns-01\"`: set that, or remove it";
    for (name, span) in [
        ("dns_hook", config.dns_hook.as_ref().map(|hook| &hook.span)),
        ("dns_update", config.dns_update.as_ref().map(|update| &update.server.span)),
    ] {
        if let Some(span) = span.filter(|_| !is_dns) {
            problems.add(span, &format!("{key}.{name}"), what);
        }
    }
    if !is_dns {
        return None;
    }
    let zone = match (&config.dns_hook, &config.dns_update) {
        (Some(hook), None) => Zone::Hook(self::hook(hook, key, problems)),
        (None, Some(update)) => Zone::Update(DnsUpdate::new(update, &format!("{key}.dns_update"), problems)?),
        (Some(hook), Some(_)) => {
            let what = "sets the records that dns_update sets, too: remove one of the two";
            problems.add(&hook.span, &format!("{key}.dns_hook"), what);
            return None;
        }
        (None, None) => {
            let what = "\"dns-01\" needs a way to change the zone: name a program in `dns_hook`, or the zone's server in `dns_update`";
            problems.add(&(0..0), &format!("{key}.challenge"), what);
            return None;
        }
    };
    Some(Dns { zone, wait: config.dns_wait.0 })
}

fn hook(hook: &At<PathBuf>, key: &str, problems: &mut Problems) -> DnsHook {
    // A name without a slash would be looked up in PATH.
    let path = problems.resolve(hook);
    let program = std::path::absolute(&path).unwrap_or(path);
    if let Err(error) = rustix::fs::access(&program, rustix::fs::Access::EXEC_OK) {
        let what =
            format_args!("{}: cannot be started: {error}: `chmod +x` it, or correct the path", program.display());
        problems.add(&hook.span, &format!("{key}.dns_hook"), what);
    }
    DnsHook { program }
}

impl AcmeSite {
    pub(super) fn files(&self) -> PairFiles {
        PairFiles { cert: self.file.clone(), key: self.file.clone() }
    }

    fn kept(&self) -> Option<Certificate> {
        self.files().load().ok()
    }

    fn failures_file(&self) -> PathBuf {
        self.file.with_extension("failed.json")
    }
}

fn placeholder(names: &[String]) -> Result<Certificate, String> {
    let (certificate, key) = self_signed(names, None)?;
    let made = Path::new("(placeholder)");
    Certificate::from_pem(made, certificate.as_bytes(), made, key.as_bytes()).map_err(|e| e.to_string())
}

/// A self-signed certificate and its key, PEM.
fn self_signed(names: &[String], extension: Option<CustomExtension>) -> Result<(String, String), String> {
    let failed = |e: rcgen::Error| format!("cannot make a certificate: {e}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions.extend(extension);
    let key = KeyPair::generate().map_err(failed)?;
    Ok((params.self_signed(&key).map_err(failed)?.pem(), key.serialize_pem()))
}

/// Whether the name can be validated: a wildcard needs DNS-01, which no IP address can use (RFC 8738 §7).
fn is_public_name(name: &str, by_dns: bool) -> bool {
    let needs_dns = name.starts_with("*.");
    let has_no_dns = name.starts_with('[') || address(name).is_some();
    (by_dns || !needs_dns) && !(by_dns && has_no_dns) && (address(name).is_some() || !name.starts_with('['))
}

/// Whether a name or an address has no meaning outside a local network.
fn is_local(name: &str) -> bool {
    // SPEC: RFC 6761, RFC 6762, RFC 8375, and the name that ICANN reserved in 2024.
    const LOCAL: [&str; 5] = ["localhost", "test", "local", "home.arpa", "internal"];
    match address(name) {
        Some(IpAddr::V4(address)) => address.is_private() || address.is_loopback() || address.is_link_local(),
        Some(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        None => {
            let rest = LOCAL.iter().find_map(|local| name.strip_suffix(local));
            !name.contains('.') || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

/// The IP address that a name is, with or without brackets.
fn address(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

/// The DNS name of an IP address, which an authority asks for over TLS (RFC 8738 §6).
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

fn base64url(text: &str) -> Result<Vec<u8>, String> {
    BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| format!("not base64url ({e})"))
}

/// An error with its causes, because the outermost message rarely contains the reason.
fn explain(error: instant_acme::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names_in_the_dns() {
        for (name, reverse) in [
            ("192.0.2.7", Some("7.2.0.192.in-addr.arpa")),
            ("[2001:db8::1]", Some("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa")),
            ("example.org", None),
        ] {
            assert_eq!(address(name).map(reverse_name).as_deref(), reverse, "{name}");
        }
    }

    #[test]
    fn names_of_a_local_network_are_known() {
        for name in
            ["localhost", "nas", "a.localhost", "box.local", "a.test", "x.home.arpa", "127.0.0.1", "[::1]", "10.0.0.7"]
        {
            assert!(is_local(name), "{name}");
        }
        for name in ["example.org", "*.example.org", "local.example.org", "notlocal.org", "mylocal.com", "192.0.2.7"] {
            assert!(!is_local(name), "{name}");
        }
    }

    #[test]
    fn wildcards_need_the_dns_and_addresses_another_challenge() {
        for (name, by_dns, expected) in [
            ("example.org", false, true),
            ("example.org", true, true),
            ("*.example.org", false, false),
            ("*.example.org", true, true),
            ("192.0.2.7", false, true),
            ("192.0.2.7", true, false),
            ("[2001:db8::1]", false, true),
            ("[x]", false, false),
        ] {
            assert_eq!(is_public_name(name, by_dns), expected, "{name} {by_dns}");
        }
    }
}
