//! Certificates from an ACME server (RFC 8555): got, kept, renewed.
//!
//! ```text
//!            ┌─ waits until two thirds of the lifetime, or when the authority says (RFC 9773)
//!            ▼
//! due ─► order ─► challenges answered ─► validated ─► key and chain in one file ─► seen by watch.rs
//!  ▲       └──────────┴──── failed: the certificate before stays; waits 5 min, 10, 20, … up to 12 h
//!  └──────────────────────────────────────┘
//! ```
//!
//! Whoever starts again and again still asks no more often: when the next order may be made is kept on disk.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use sealion_tls::{AlpnChallenges, Certificate, CertificateFacts};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

use super::config::{AcmeConfig, ChallengeKind};
use super::pair::{Loaded, PairFiles, date};
use super::{names, private_file};
use crate::config::Problems;
use crate::connection::Shared;
use crate::site::SiteConfig;
use crate::worker::draining;

/// Between looks at what is due.
const PAUSE: Duration = Duration::from_secs(1);

/// The first pause after a failure; it doubles with each. SPEC: Let's Encrypt allows five failed validations of a name an hour, and this
/// makes four.
const FIRST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// GUESS: a mistake that was mended is noticed on the same day.
const LONGEST_PAUSE: Duration = Duration::from_secs(12 * 3600);

/// How long the authority may take for a validation or a certificate. GUESS: Let's Encrypt takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the authority is asked when to renew, at most, and how long its certificates are kept at least. GUESS: RFC 9773 §4.3.2 lets
/// it ask for more; an hour is soon enough for one that has to be replaced within a day.
const LEAST_ARI_PAUSE: Duration = Duration::from_secs(3600);

/// Answers to HTTP-01 validations (RFC 8555 §8.3).
#[derive(Debug, Default)]
pub struct HttpChallenges(ArcSwap<HashMap<String, String>>);

impl HttpChallenges {
    /// The answer for this token, if a validation is under way.
    pub fn answer(&self, token: &str) -> Option<String> {
        self.0.load().get(token).cloned()
    }

    fn insert(&self, token: &str, answer: &str) {
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(token.to_owned(), answer.to_owned());
            all
        });
    }

    fn remove(&self, token: &str) {
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.remove(token);
            all
        });
    }
}

/// `[tls.acme]`, checked.
#[derive(Debug)]
pub(super) struct Settings {
    directory: String,
    contact: Vec<String>,
    pub(super) challenge: ChallengeKind,
    /// Beneath the directory that was named, one for each authority.
    state: PathBuf,
    root: Option<PathBuf>,
    external_account: Option<(String, Vec<u8>)>,
}

/// A site whose certificate comes from the authority.
#[derive(Debug, Clone)]
pub(super) struct AcmeSite {
    names: Vec<String>,
    /// Key and chain in one file: it is replaced as a whole.
    file: PathBuf,
}

impl Settings {
    /// `None`: no site wants a certificate, or what is wrong is in `problems`.
    pub(super) fn new(config: &AcmeConfig, sites: &[SiteConfig], problems: &mut Problems) -> Option<Self> {
        if !sites.iter().any(|site| site.acme) {
            return None;
        }
        let before = problems.len();
        if !config.agree_to_terms {
            let what = "read the authority's terms of service and set `agree_to_terms = true`: without it no certificate is asked for";
            problems.add(&(0..0), "tls.acme.agree_to_terms", what);
        }
        let Some(authority) = config.directory.strip_prefix("https://") else {
            problems.add(
                &(0..0),
                "tls.acme.directory",
                format_args!("{:?} is not an https:// address", config.directory),
            );
            return None;
        };
        let root = config.root.as_ref().map(|root| {
            let path = problems.resolve(root);
            if let Err(error) = fs::read(&path) {
                problems.add(&root.span, "tls.acme.root", format_args!("{}: cannot be read: {error}", path.display()));
            }
            path
        });
        let external_account = config.external_account.as_ref().and_then(|account| {
            let path = problems.resolve(&account.hmac_key);
            let key = fs::read_to_string(&path).map_err(|e| e.to_string()).and_then(|text| base64url(text.trim()));
            key.map_err(|error| {
                let what = format_args!(
                    "{}: {error}: the file has to hold the key as the authority gave it, in base64url",
                    path.display()
                );
                problems.add(&account.hmac_key.span, "tls.acme.external_account.hmac_key", what);
            })
            .ok()
            .map(|key| (account.key_id.clone(), key))
        });
        let of_authority = authority.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-', "_");
        let state = problems.resolve(&config.state).join(of_authority);
        (problems.len() == before).then(|| Self {
            directory: config.directory.clone(),
            contact: config.contact.clone(),
            challenge: config.challenge,
            state,
            root,
            external_account,
        })
    }

    /// The site with the certificate that is kept, or one that stands in until there is one.
    pub(super) fn site(
        &self,
        site: &SiteConfig,
        notes: &mut Vec<String>,
        problems: &mut Problems,
    ) -> Option<(AcmeSite, Loaded)> {
        let span = site.names.first().map(|name| name.span.clone()).unwrap_or_default();
        let names = names(site);
        let wrong = match names.iter().find(|name| !is_public_name(name)) {
            _ if names.is_empty() => Some("a certificate is for names, and the site has none: add them".to_owned()),
            Some(name) => Some(format!(
                "{name}: no certificate can be got for this name; wildcards need DNS-01, which is not known here: give `certificates`, or leave the name to another site"
            )),
            None => None,
        };
        if let Some(wrong) = wrong {
            problems.add(&span, "site.acme", wrong);
            return None;
        }
        let acme = AcmeSite { file: self.state.join(format!("{}.pem", names[0])), names };
        if acme.file.exists() {
            return match Loaded::from(&acme.files()) {
                Ok(loaded) => Some((acme, loaded)),
                Err(error) => {
                    problems.add(&span, "site.acme", format_args!("{error}. Remove the file to get a new certificate"));
                    None
                }
            };
        }
        notes.push(format!(
            "{}: a self-signed certificate stands in until {} has given one",
            acme.names[0], self.directory
        ));
        match stand_in(&acme.names) {
            Ok(certificate) => Some((acme, Loaded::instead(certificate))),
            Err(error) => {
                problems.add(&span, "site.acme", error);
                None
            }
        }
    }

    /// What was made.
    pub(super) fn make_directory(&self) -> Result<Vec<PathBuf>, String> {
        let state = self.state.display();
        private_file::directory(&self.state).map_err(|e| {
            format!("tls.acme.state: {state}: cannot be made: {e}: name a directory that this user can write")
        })
    }

    async fn account(&self) -> Result<Account, String> {
        self.make_directory()?;
        let builder = match &self.root {
            Some(root) => Account::builder_with_root(root),
            None => Account::builder(),
        };
        let builder = builder.map_err(explain)?;
        let file = self.state.join("account.json");
        match fs::read(&file) {
            Ok(kept) => {
                let credentials: AccountCredentials = serde_json::from_slice(&kept)
                    .map_err(|e| format!("{}: {e}: remove the file to make a new account", file.display()))?;
                return builder.from_credentials(credentials).await.map_err(explain);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A new account would take its place.
            Err(error) => return Err(format!("{}: {error}: let the server's user read it", file.display())),
        }
        let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.external_account.as_ref().map(|(id, key)| ExternalAccountKey::new(id.clone(), key));
        let (account, credentials) =
            builder.create(&new, self.directory.clone(), external.as_ref()).await.map_err(explain)?;
        let kept = serde_json::to_vec(&credentials).map_err(|e| e.to_string())?;
        private_file::write(&file, &kept).map_err(|e| format!("{}: {e}", file.display()))?;
        tracing::info!("ACME: a new account at {}, kept in {}", self.directory, file.display());
        Ok(account)
    }
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

/// When nothing is to be asked of the authority, after failures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Failures {
    count: u32,
    /// Seconds since 1970.
    wait_until: u64,
}

impl Failures {
    fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Whether it is too soon. A pause far longer than any was begun by a clock that was wrong.
    fn forbids(self, now: SystemTime) -> bool {
        seconds(now) < self.wait_until && self.wait_until < seconds(now + 2 * LONGEST_PAUSE)
    }

    fn after(before: Option<Self>, now: SystemTime) -> Self {
        let count = before.map_or(0, |before| before.count);
        let pause = FIRST_PAUSE.saturating_mul(1 << count.min(16)).min(LONGEST_PAUSE);
        Self { count: count + 1, wait_until: seconds(now + pause) }
    }
}

/// Gets what is due for as long as the server takes connections: validations come by them. An order that is under way then is left to the
/// process that takes over, or to the next one.
pub(super) async fn run(shared: Weak<Shared>) {
    let Some(mut phase) = shared.upgrade().map(|shared| shared.phase.clone()) else { return };
    tokio::select! {
        () = draining(&mut phase) => {}
        () = attend_all(shared) => {}
    }
}

async fn attend_all(shared: Weak<Shared>) {
    let mut advice = Advice::default();
    loop {
        let Some((due, alpn, http)) = shared.upgrade().map(|shared| {
            let acme = shared.generations.latest().certificates.acme.clone();
            (acme, shared.tls.alpn.clone(), shared.tls.http.clone())
        }) else {
            return;
        };
        if let Some((settings, sites)) = due {
            for site in &sites {
                let answers = Answers { alpn: &alpn, http: &http, given: Vec::new() };
                attend(&settings, site, answers, &mut advice).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// When the authority wants certificates to be renewed (RFC 9773), and when to ask again.
#[derive(Debug, Default)]
struct Advice(HashMap<PathBuf, (Option<SystemTime>, SystemTime)>);

impl Advice {
    async fn on(
        &mut self,
        settings: &Settings,
        site: &AcmeSite,
        kept: &Certificate,
        now: SystemTime,
    ) -> Option<SystemTime> {
        if let Some((renew, ask)) = self.0.get(&site.file)
            && now < *ask
        {
            return *renew;
        }
        let (renew, pause) = match ask(settings, kept).await {
            Ok(advised) => advised,
            Err(why) => {
                tracing::debug!("ACME: no advice when to renew {}: {why}", site.file.display());
                (None, LEAST_ARI_PAUSE)
            }
        };
        self.0.insert(site.file.clone(), (renew, now + pause.max(LEAST_ARI_PAUSE)));
        renew
    }
}

async fn ask(settings: &Settings, kept: &Certificate) -> Result<(Option<SystemTime>, Duration), String> {
    let id = identifier(kept)?;
    let (info, pause) = settings.account().await?.renewal_info(&id).await.map_err(explain)?;
    let (start, end) = (SystemTime::from(info.suggested_window.start), SystemTime::from(info.suggested_window.end));
    let window = end.duration_since(start).unwrap_or_default();
    // Whatever it says, a certificate is kept for an hour: else bad advice would be followed at once, again and again.
    let earliest = kept.facts().not_before + LEAST_ARI_PAUSE;
    Ok((Some((start + window.mul_f64(share(kept.facts()))).max(earliest)), pause))
}

fn identifier(kept: &Certificate) -> Result<CertificateIdentifier<'static>, String> {
    let der = kept.chain().next().unwrap_or_default();
    let (_, parsed) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
    let authority = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(key) => {
            key.key_identifier.as_ref().map(|identifier| identifier.0.to_vec())
        }
        _ => None,
    });
    let authority = authority.ok_or("the certificate does not name its authority's key")?;
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes).into();
    Ok(CertificateIdentifier { authority_key_identifier: encode(&authority), serial: encode(parsed.raw_serial()) })
}

/// Gets a certificate for the site if it is time.
async fn attend(settings: &Settings, site: &AcmeSite, mut answers: Answers<'_>, advice: &mut Advice) {
    let now = SystemTime::now();
    let failures = Failures::read(&site.failures_file());
    if failures.is_some_and(|failures| failures.forbids(now)) {
        return;
    }
    let kept = site.kept();
    if let Some(kept) = kept.as_ref().filter(|kept| site.names.iter().all(|name| kept.facts().covers(name))) {
        let own = renewal(kept.facts());
        if now < own && advice.on(settings, site, kept, now).await.is_none_or(|advised| now < advised) {
            return;
        }
    }
    let replaces = kept.as_ref().and_then(|kept| identifier(kept).ok());
    let order = obtain(settings, site, replaces, &mut answers);
    let got = tokio::time::timeout(3 * PATIENCE, order).await.unwrap_or_else(|_| Err("it takes too long".to_owned()));
    answers.withdraw();
    let got = got.and_then(|pem| keep(site, &pem));
    advice.0.remove(&site.file);
    match got {
        Ok(facts) => {
            let _ = fs::remove_file(site.failures_file());
            let (until, next) = (date(facts.not_after), date(renewal(&facts)));
            tracing::info!(
                "ACME: a certificate for {}, valid until {until}, to be renewed at {next}",
                site.names.join(", ")
            );
        }
        Err(why) => {
            let failures = Failures::after(failures, now);
            let next = date(SystemTime::UNIX_EPOCH + Duration::from_secs(failures.wait_until));
            let meanwhile = match &kept {
                Some(kept) => format!("the one before, valid until {}, stays in use", date(kept.facts().not_after)),
                None => "a self-signed one stands in".to_owned(),
            };
            let text = serde_json::to_vec(&failures).unwrap_or_default();
            let kept = private_file::write(&site.failures_file(), &text);
            tracing::error!(
                "ACME: no certificate for {} from {}: {why}. Next try at {next}; {meanwhile}",
                site.names.join(", "),
                settings.directory
            );
            if let Err(error) = kept {
                tracing::error!("{}: {error}", site.failures_file().display());
                // What cannot be kept is waited for here, so that the authority is spared all the same.
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }
}

/// When to renew without advice: after two thirds of the lifetime (SPEC: Let's Encrypt's integration guide), and up to a thirtieth later, so
/// that certificates that were got together are not renewed together.
fn renewal(facts: &CertificateFacts) -> SystemTime {
    let lifetime = facts.not_after.duration_since(facts.not_before).unwrap_or_default();
    facts.not_before + lifetime * 2 / 3 + (lifetime / 30).mul_f64(share(facts))
}

/// A number from 0 to 1 that is a certificate's own.
fn share(facts: &CertificateFacts) -> f64 {
    f64::from(facts.fingerprint.0[0]) / 256.0
}

/// Checks what came and keeps it.
fn keep(site: &AcmeSite, pem: &str) -> Result<CertificateFacts, String> {
    let certificate = Certificate::from_pem(&site.file, pem.as_bytes(), &site.file, pem.as_bytes());
    let facts = certificate.map_err(|e| format!("what the authority gave cannot be used: {e}"))?.facts().clone();
    if renewal(&facts) <= SystemTime::now() {
        return Err(format!("what the authority gave ends at {}: is the clock right?", date(facts.not_after)));
    }
    private_file::write(&site.file, pem.as_bytes()).map_err(|e| format!("{}: {e}", site.file.display()))?;
    Ok(facts)
}

/// Key and chain, PEM.
async fn obtain(
    settings: &Settings,
    site: &AcmeSite,
    replaces: Option<CertificateIdentifier<'_>>,
    answers: &mut Answers<'_>,
) -> Result<String, String> {
    let account = settings.account().await?;
    let identifiers: Vec<Identifier> = site.names.iter().cloned().map(Identifier::Dns).collect();
    let order = match replaces {
        Some(replaces) => account.new_order(&NewOrder::new(&identifiers).replaces(replaces)).await,
        None => Err(instant_acme::Error::Str("nothing to replace")),
    };
    // Not every authority knows what is replaced.
    let mut order = match order {
        Ok(order) => order,
        Err(_) => account.new_order(&NewOrder::new(&identifiers)).await.map_err(explain)?,
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(explain)?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            other => return Err(format!("the authority has an authorization that is {other:?}")),
        }
        let kind = match settings.challenge {
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Http01 => ChallengeType::Http01,
        };
        let mut challenge =
            authorization.challenge(kind).ok_or("the authority does not offer the challenge in tls.acme.challenge")?;
        let name = challenge.identifier().to_string();
        let answer = challenge.key_authorization();
        match settings.challenge {
            ChallengeKind::TlsAlpn01 => answers.over_tls(&name, answer.digest().as_ref())?,
            ChallengeKind::Http01 => answers.over_http(&challenge.token, answer.as_str()),
        }
        challenge.set_ready().await.map_err(explain)?;
    }
    let patience = RetryPolicy::new().timeout(PATIENCE);
    match order.poll_ready(&patience).await {
        Ok(OrderStatus::Ready) => {}
        Ok(status) => return Err(refusal(&mut order).await.unwrap_or_else(|| format!("the order is {status:?}"))),
        Err(error) => return Err(refusal(&mut order).await.unwrap_or_else(|| explain(error))),
    }
    let key = order.finalize().await.map_err(explain)?;
    let chain = order.poll_certificate(&patience).await.map_err(explain)?;
    Ok(key + &chain)
}

/// Why a validation failed, in the authority's words.
async fn refusal(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.ok()?;
        let state = authorization.refresh().await.ok()?;
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            return Some(format!("{}: {problem}", state.identifier()));
        }
    }
    None
}

/// Answers that are withdrawn when the validation is over.
struct Answers<'a> {
    alpn: &'a AlpnChallenges,
    http: &'a HttpChallenges,
    given: Vec<Given>,
}

enum Given {
    Name(String),
    Token(String),
}

impl Answers<'_> {
    /// A certificate with the digest in it (RFC 8737 §3).
    fn over_tls(&mut self, name: &str, digest: &[u8]) -> Result<(), String> {
        let extension = CustomExtension::new_acme_identifier(digest);
        let (certificate, key) = self_signed(&[name.to_owned()], Some(extension))?;
        self.alpn.insert(name, &certificate, &key).map_err(|e| e.to_string())?;
        self.given.push(Given::Name(name.to_owned()));
        Ok(())
    }

    fn over_http(&mut self, token: &str, answer: &str) {
        self.http.insert(token, answer);
        self.given.push(Given::Token(token.to_owned()));
    }

    fn withdraw(&self) {
        for given in &self.given {
            match given {
                Given::Name(name) => self.alpn.remove(name),
                Given::Token(token) => self.http.remove(token),
            }
        }
    }
}

fn stand_in(names: &[String]) -> Result<Certificate, String> {
    let (certificate, key) = self_signed(names, None)?;
    let made = Path::new("(made here)");
    Certificate::from_pem(made, certificate.as_bytes(), made, key.as_bytes()).map_err(|e| e.to_string())
}

/// A certificate and its key, PEM.
fn self_signed(names: &[String], extension: Option<CustomExtension>) -> Result<(String, String), String> {
    let failed = |e: rcgen::Error| format!("cannot make a certificate: {e}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions.extend(extension);
    let key = KeyPair::generate().map_err(failed)?;
    Ok((params.self_signed(&key).map_err(failed)?.pem(), key.serialize_pem()))
}

/// A host name of which an authority can know the owner by asking it.
fn is_public_name(name: &str) -> bool {
    !name.starts_with("*.") && !name.starts_with('[') && name.parse::<std::net::IpAddr>().is_err()
}

fn base64url(text: &str) -> Result<Vec<u8>, String> {
    BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| format!("not base64url ({e})"))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// An error with its causes, which is where the reason is.
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_followed_by_ever_longer_pauses() {
        let now = SystemTime::now();
        let mut failures = None;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let next = Failures::after(failures, now);
            pauses.push(next.wait_until - seconds(now));
            failures = Some(next);
        }
        assert_eq!(pauses[..4], [300, 600, 1200, 2400]);
        assert_eq!(pauses[11], 12 * 3600);

        let last = failures.unwrap();
        assert!(last.forbids(now) && last.forbids(now + LONGEST_PAUSE - Duration::from_secs(1)));
        assert!(!last.forbids(now + LONGEST_PAUSE));
        assert!(!last.forbids(now - 2 * LONGEST_PAUSE), "the clock was wrong when it failed");
    }

    #[test]
    fn a_certificate_is_renewed_in_its_last_third() {
        let mut facts = stand_in(&["a.test".to_owned()]).unwrap().facts().clone();
        facts.not_before = SystemTime::UNIX_EPOCH;
        facts.not_after = facts.not_before + Duration::from_secs(90 * 24 * 3600);
        let days = |time: SystemTime| time.duration_since(facts.not_before).unwrap().as_secs_f64() / 86400.0;
        assert!((60.0..63.0).contains(&days(renewal(&facts))));
    }

    #[test]
    fn answers_are_there_until_they_are_withdrawn() {
        let (alpn, http) = (AlpnChallenges::default(), HttpChallenges::default());
        let mut answers = Answers { alpn: &alpn, http: &http, given: Vec::new() };
        answers.over_http("token", "token.thumb");
        answers.over_tls("a.test", &[7; 32]).unwrap();
        assert_eq!(http.answer("token").as_deref(), Some("token.thumb"));
        assert_eq!(http.answer("other"), None);
        answers.withdraw();
        assert_eq!(http.answer("token"), None);
    }
}
