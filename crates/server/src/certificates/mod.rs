//! Certificates, client authentication and session tickets: from the configuration to the handshakes.
//!
//! ```text
//! [tls], [[site]] ─build─► ServerConfig (for handshakes) + Certificates (for the thread that watches the files)
//!
//! files ──watch.rs, every two seconds──► certificates and ticket keys are swapped within their generation
//! ACME server ──acme/──► files
//! ```

#[cfg(feature = "acme")]
mod acme;
pub(crate) mod authority;
mod building;
mod config;
pub(crate) mod development;
mod handshakes;
mod ocsp;
mod pair;
pub(crate) mod private_file;
mod revocation;
mod ticket_keys;
mod watch;
#[cfg(not(feature = "acme"))]
mod without_acme;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sealion_tls::{
    AlpnChallenges, CertificateFacts, ClientAuth, ConfigError, KeyLogFile, Limits, OwnTicketKeys, SiteCertificates,
    SiteTls, TicketKeys, TlsOptions,
};

use crate::values::Problems;

pub(crate) use config::{
    AcmeConfig, AcmeOnDemandConfig, AcmeUse, CertificateConfig, ChallengeKind, ClientAuthConfig, ExpiredListsKind,
    TlsConfig,
};
pub(crate) use handshakes::{Handshakes, TlsListener};
pub(crate) use ticket_keys::make_ticket_key;
pub(crate) use watch::start;

#[cfg(feature = "acme")]
use acme::{AcmeSite, Settings, Source};
#[cfg(feature = "acme")]
pub(crate) use acme::{HttpChallenges, OnDemand};
use building::Building;
use handshakes::{ListenerConfigs, OfListener, without_http2};
use ocsp::Staples;
use pair::Watched;
use revocation::WatchedLists;
use ticket_keys::TicketDirectory;
#[cfg(not(feature = "acme"))]
use without_acme::{AcmeSite, Settings, Source};
#[cfg(not(feature = "acme"))]
pub(crate) use without_acme::{HttpChallenges, OnDemand};

/// TLS state that outlives every configuration: sessions resume across a reload, and a pending ACME validation still
/// finds its response.
#[derive(Debug)]
pub(crate) struct TlsProcess {
    /// Ticket keys of this process, rotated automatically.
    tickets: Arc<TicketKeys>,
    /// Responses to TLS-ALPN-01 validations.
    alpn: Arc<AlpnChallenges>,
    /// OCSP responses.
    staples: Arc<Staples>,
    /// Responses to HTTP-01 validations, for listeners with `tls = false`.
    pub http: Arc<HttpChallenges>,
    /// Certificates ordered when a client asks for them.
    on_demand: Arc<OnDemand>,
    /// Where secrets of connections are written, if that was asked for.
    key_log: Option<Arc<KeyLogFile>>,
}

impl TlsProcess {
    /// `tickets`: the ticket keys of the process before.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub(crate) fn new(tickets: Option<&OwnTicketKeys>) -> Result<Self, String> {
        let tickets = match tickets {
            Some(own) => TicketKeys::continuing(own),
            None => TicketKeys::rotating().map_err(|e| format!("cannot make keys for session tickets: {e}"))?,
        };
        Ok(Self {
            tickets: Arc::new(tickets),
            alpn: Arc::default(),
            staples: Arc::default(),
            http: Arc::default(),
            on_demand: Arc::default(),
            key_log: None,
        })
    }

    /// Writes the secrets of all connections to a file, which is opened now, and never by a reload.
    ///
    /// # Errors
    /// One line: the file cannot be written, or others can read it.
    pub(crate) fn with_key_log(self, path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(self) };
        let shown = path.display();
        let file = KeyLogFile::open(path).map_err(|error| format!("--tls-key-log {shown}: {error}"))?;
        tracing::warn!(
            "--tls-key-log: ALL CONNECTIONS CAN BE READ by everyone who has {shown}: use it only for debugging, and remove the file"
        );
        Ok(Self { key_log: Some(Arc::new(file)), ..self })
    }

    /// The ticket keys of this process.
    pub(crate) fn ticket_keys(&self) -> &Arc<TicketKeys> {
        &self.tickets
    }
}

/// The certificates of a generation, and the ticket keys and ACME sites watched with them.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    watched: Vec<Watched>,
    revocation: Vec<WatchedLists>,
    /// The OCSP responses, if stapling is on.
    staples: Option<Arc<Staples>>,
    tickets: Option<TicketDirectory>,
    accounts: Vec<Account>,
    /// Warnings for the operator: the configuration works, but deserves attention.
    pub notes: Vec<String>,
    /// The file of the certificate for clients without SNI, and a note on its origin. `None`: no listener has TLS, or that certificate has no
    /// file.
    pub default: Option<(PathBuf, &'static str)>,
}

/// An account at a certificate authority, and its sites.
#[derive(Debug, Clone)]
struct Account {
    choice: AcmeUse,
    /// The key of its table.
    key: &'static str,
    settings: Arc<Settings>,
    sites: Vec<AcmeSite>,
}

impl Account {
    /// The accounts used by sites.
    fn all(config: &TlsConfig, sites: &[CertifiedSite<'_>], problems: &mut Problems) -> Vec<Account> {
        const ACCOUNTS: &str = "tls.acme_accounts";
        if let Some(name) = &config.acme.name {
            let what = "sites choose this account by acme = true: remove the name, or write [[tls.acme_accounts]]";
            problems.add(&name.span, "tls.acme.name", what);
        }
        let mut all = vec![(AcmeUse::Default, "tls.acme", &config.acme)];
        for account in &config.acme_accounts {
            let Some(name) = &account.name else {
                problems.add(&(0..0), &format!("{ACCOUNTS}.name"), "is missing: sites choose an account by its name");
                continue;
            };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let choice = AcmeUse::Named(name.value.clone());
            if name.is_empty() || !name.chars().all(is_plain) {
                let what = "write letters, digits, points, hyphens and underscores: a directory is named after it";
                problems.add(&name.span, &format!("{ACCOUNTS}.name"), what);
            } else if all.iter().any(|(other, ..)| *other == choice) {
                problems.add(&name.span, &format!("{ACCOUNTS}.name"), "is the name of two accounts: rename one");
            } else {
                all.push((choice, ACCOUNTS, account));
            }
        }
        for site in sites {
            if let AcmeUse::Named(name) = &site.acme
                && !config.acme_accounts.iter().any(|account| account.name.as_deref() == Some(name))
            {
                let what = format_args!(
                    "there is no [[tls.acme_accounts]] with the name {name:?}: add it, or write true for [tls.acme]"
                );
                problems.add(&site.span, "site.acme", what);
            }
        }
        let used = all.into_iter().filter_map(|(choice, key, config)| {
            let users: Vec<_> = sites.iter().filter(|site| site.acme == choice).collect();
            if users.is_empty() {
                return None;
            }
            let settings = Arc::new(Settings::new(config, key, &users, problems)?);
            Some(Account { choice, key, settings, sites: Vec::new() })
        });
        used.collect()
    }
}

/// A certificate in use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InUse {
    /// The site's first name, or `default`.
    pub site: String,
    pub file: PathBuf,
    pub facts: CertificateFacts,
}

impl Certificates {
    /// All certificates in use.
    pub(crate) fn in_use(&self) -> Vec<InUse> {
        let of = |watched: &Watched| InUse {
            site: watched.site.clone(),
            file: watched.files.cert.clone(),
            facts: watched.certificate().facts().clone(),
        };
        self.watched.iter().map(of).collect()
    }

    /// The notes about expired certificates of these files. Those that the server orders are renewed at its start.
    pub(crate) fn expired(&self, files: &[PathBuf], now: SystemTime) -> Vec<String> {
        let in_use = self.in_use().into_iter();
        let expired = in_use.filter(|pair| pair.facts.not_after <= now && files.contains(&pair.file));
        expired.map(|pair| pair::expired(&pair.file, &pair.facts)).collect()
    }

    /// Creates the ACME state directories before privileges are dropped. Returns the directories created; the caller gives
    /// them to the user that serves.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn make_directories(&self) -> Result<Vec<PathBuf>, String> {
        let made: Result<Vec<_>, _> = self.accounts.iter().map(|account| account.settings.make_directory()).collect();
        made.map(|made| made.concat())
    }

    fn poll(&self) {
        self.watched.iter().for_each(Watched::poll);
        self.revocation.iter().for_each(WatchedLists::poll);
        if let Some(staples) = &self.staples {
            staples.attend(&self.watched);
        }
        if let Some(tickets) = &self.tickets {
            tickets.poll();
        }
    }
}

/// The error, with a remedy if this process may not read the file.
fn with_remedy(error: ConfigError) -> String {
    match &error {
        ConfigError::Unreadable { path, .. }
            if std::fs::File::open(path).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) =>
        {
            let id = nix::unistd::geteuid();
            let user = nix::unistd::User::from_uid(id).ok().flatten().map_or_else(|| id.to_string(), |user| user.name);
            let path = path.display();
            format!(
                "{error}: the server runs as {user}, which may not read it: let it (`setfacl -m u:{user}:r {path}`, and x on the directories above), or start as root and set privileges.user"
            )
        }
        ConfigError::Unreadable { path, .. } if !path.exists() => {
            format!("{error}: put the file there, or name another one")
        }
        _ => error.to_string(),
    }
}

/// Client authentication of a site.
pub(crate) fn client_auth(config: &ClientAuthConfig, problems: &mut Problems) -> Option<ClientAuth> {
    let auth = match ClientAuth::from_pem_file(&problems.resolve(&config.roots), config.mode.into()) {
        Ok(auth) => auth,
        Err(error) => {
            problems.add(&config.roots.span, "site.client_auth.roots", error);
            return None;
        }
    };
    let Some(first) = config.crls.first() else { return Some(auth) };
    let files = config.crls.iter().map(|file| problems.resolve(file)).collect();
    auth.with_revocation_lists(files, config.expired_crls.into())
        .map_err(|error| problems.add(&first.span, "site.client_auth.crls", with_remedy(error)))
        .ok()
}

/// The parts of a site that matter for certificates.
#[derive(Debug)]
pub(crate) struct CertifiedSite<'a> {
    /// Name of the site in messages.
    pub(crate) label: String,
    /// Host names, in lower case.
    pub(crate) names: Vec<String>,
    /// Whether no client of the site gets a certificate.
    pub(crate) reject_handshake: bool,
    /// Position of the first name in the configuration.
    pub(crate) span: Range<usize>,
    /// Whether it serves clients without SNI.
    pub(crate) default: bool,
    pub(crate) certificates: &'a [CertificateConfig],
    /// The account that orders its certificate.
    pub(crate) acme: AcmeUse,
    /// Position of the choice in the configuration.
    pub(crate) acme_span: Range<usize>,
    /// Orders a certificate when a client asks for a name, instead of ordering for all names at start.
    pub(crate) on_demand: Option<&'a AcmeOnDemandConfig>,
    pub(crate) client_auth: Option<ClientAuth>,
    /// The effect of an expired revocation list of `client_auth`.
    pub(crate) expired_lists: ExpiredListsKind,
    /// Whether it supports HTTP/2.
    pub(crate) http2: bool,
}

/// The relevant settings of other tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Others<'a> {
    /// Whether clients are offered HTTP/2.
    pub(crate) http2: bool,
    /// The listeners by their places. `None`: it has no TLS.
    pub(crate) listeners: &'a [Option<TlsListener>],
    /// Whether any site names a certificate, including sites that cannot be built.
    pub(crate) any_certificate: bool,
    /// Whether HTTP-01 validations can arrive.
    pub(crate) has_plain_listener: bool,
    /// Whether a listener has TLS.
    pub(crate) has_tls_listener: bool,
}

/// Builds the TLS configuration. `None`: the errors are in `problems`.
pub(crate) fn build(
    config: &TlsConfig,
    sites: &[CertifiedSite<'_>],
    others: Others<'_>,
    bounds: Limits,
    process: &TlsProcess,
    problems: &mut Problems,
) -> Option<(Handshakes, Certificates)> {
    let Others { http2, listeners, any_certificate, has_plain_listener, has_tls_listener } = others;
    let bounds = Arc::new(bounds);
    let mut building = Building {
        accounts: Account::all(config, sites, problems),
        watched: Vec::new(),
        notes: Vec::new(),
        staples: config.ocsp_stapling.then(|| process.staples.clone()),
        on_demand: process.on_demand.clone(),
    };
    let own: Vec<_> = sites.iter().map(|site| building.site(site, problems)).collect();
    // Sites without a certificate use the default site's, or otherwise the certificate of the first site that has one.
    let with_own = |(n, _): &(usize, &CertifiedSite<'_>)| own[*n].is_some();
    let default = sites.iter().position(|site| site.default).unwrap_or(0);
    let (shared, note) = match own.get(default).cloned().flatten() {
        Some(set) => (set, ""),
        None => match sites.iter().enumerate().find(with_own) {
            Some((n, _)) => (own[n].clone()?, ""),
            // The sites could not be built, as reported in `problems`: make no development certificate for them.
            None if sites.is_empty() => return None,
            None if any_certificate => return None,
            None if !has_tls_listener => {
                return Some((Handshakes { listeners: Vec::new(), bounds }, Certificates::default()));
            }
            None => building.development(problems)?,
        },
    };
    let is_shared = |own: &Option<Arc<SiteCertificates>>| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &shared));
    let owner = own.iter().position(is_shared).map(|n| &sites[n]);
    if let Some(owner) = owner.filter(|owner| owner.on_demand.is_some() && !owner.default) {
        let without = sites.iter().zip(&own).filter(|(_, own)| own.is_none());
        building.notes.extend(without.map(|(site, _)| {
            format!(
                "{}: has no certificate, and the certificates of {} are ordered for its own names: set `acme` or `certificates`",
                site.label, owner.label
            )
        }));
    }
    let as_tls = |(n, site): (usize, &CertifiedSite<'_>)| SiteTls {
        names: Vec::new(),
        certificates: match site.reject_handshake {
            true => Arc::new(SiteCertificates::none()),
            false => own[n].clone().unwrap_or_else(|| shared.clone()),
        },
        client_auth: site.client_auth.clone(),
        alpn: (!site.http2).then(without_http2),
    };
    let all: Vec<SiteTls> = sites.iter().enumerate().map(as_tls).collect();

    let tickets = building.tickets(&config.session_tickets, problems).ok()?;
    let keys = match &tickets {
        _ if !config.session_tickets.enabled => None,
        Some(directory) => Some(directory.keys.clone()),
        None => Some(process.tickets.clone()),
    };
    let has = |kind| building.accounts.iter().find(|account| account.settings.challenge() == kind);
    let alpn_challenges = has(ChallengeKind::TlsAlpn01).is_some();
    if let Some(account) = has(ChallengeKind::Http01).filter(|_| !has_plain_listener) {
        let what = "HTTP-01 needs a listener for plain HTTP, and no [[listen]] has `tls = false`: add one for port 80";
        problems.add(&(0..0), &format!("{}.challenge", account.key), what);
    }
    let with_http2 = || [b"h2".to_vec()].into_iter().chain(without_http2()).collect();
    let options = TlsOptions {
        alpn: if http2 { with_http2() } else { without_http2() },
        min_version: config.min_version.into(),
        suites: config.suites.iter().map(|suite| suite.value.clone()).collect(),
        tickets: keys,
        extended_master_secret: config.require_extended_master_secret.into(),
        challenges: alpn_challenges.then(|| process.alpn.clone()),
        names: None,
        key_log: process.key_log.clone(),
    };
    let mut configs =
        ListenerConfigs { sites: &all, shared: &shared, options: &options, bounds: &bounds, made: Vec::new() };
    let built: Result<Vec<OfListener>, ConfigError> =
        listeners.iter().map(|listener| configs.of(listener.as_ref())).collect();
    let built = match built {
        Ok(listeners) => Handshakes { listeners, bounds: bounds.clone() },
        Err(error) => {
            let span = config.suites.first().map(|suite| suite.span.clone()).unwrap_or_default();
            problems.add(&span, "tls.suites", error);
            return None;
        }
    };
    let Building { accounts, watched, mut notes, staples, on_demand: _ } = building;
    let lists =
        |site: &CertifiedSite<'_>| WatchedLists::new(&site.label, site.client_auth.as_ref()?, site.expired_lists);
    let revocation: Vec<_> = sites.iter().filter_map(lists).collect();
    notes.extend(revocation.iter().flat_map(|lists| [lists.gaps(), lists.notes(SystemTime::now())].concat()));
    let default = watched.iter().find(|watched| Arc::ptr_eq(&watched.set, &shared));
    let default = default.map(|watched| (watched.files.cert.clone(), note));
    Some((built, Certificates { watched, revocation, staples, tickets, accounts, notes, default }))
}
