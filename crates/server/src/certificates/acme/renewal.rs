//! When to order certificates, and how to store them.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::CertificateIdentifier;
use sealion_tls::{AlpnChallenges, Certificate, CertificateFacts};
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

use super::answers::Answers;
use super::failures::{FIRST_PAUSE, Failures};
use super::order::{TIMEOUT, obtain};
use super::{ACCOUNT, AcmeSite, OnDemand, Settings, explain, on_demand};
use crate::certificates::pair::date;
use crate::certificates::{Certificates, HttpChallenges, private_file};
use crate::values::{Phase, draining};

/// The pause between checks for due orders.
const PAUSE: Duration = Duration::from_secs(1);

/// The minimum interval between requests for renewal information, and the minimum use of a certificate. RFC 9773 §4.3.2
/// lets the authority ask for less, but an hour suffices for a certificate that must be replaced within a day.
const MIN_ARI_PAUSE: Duration = Duration::from_secs(3600);

/// Orders due certificates for as long as the server accepts connections, which validations need. A pending order is
/// left to the process that takes over, or to the next start.
pub(in crate::certificates) async fn run(
    latest: impl Fn() -> Option<Arc<Certificates>>,
    alpn: Arc<AlpnChallenges>,
    http: Arc<HttpChallenges>,
    on_demand: Arc<OnDemand>,
    mut phase: Receiver<Phase>,
) {
    tokio::select! {
        () = draining(&mut phase) => {}
        ((), ()) = async { tokio::join!(attend_all(latest, &alpn, &http), on_demand::run(&on_demand, &alpn, &http)) } => {}
    }
}

/// Processes the sites of an account one after another, and the accounts concurrently: an authority that does not
/// respond delays no other.
async fn attend_all(
    latest: impl Fn() -> Option<Arc<Certificates>>,
    alpn: &Arc<AlpnChallenges>,
    http: &Arc<HttpChallenges>,
) {
    // The advice, keyed by the state directory, which identifies the account. The account's task takes the advice with
    // it.
    let mut at_rest: HashMap<PathBuf, Advice> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut attended = HashMap::new();
    while let Some(certificates) = latest() {
        let accounts = certificates.accounts.clone();
        drop(certificates);
        for account in accounts {
            let state = account.settings.state.clone();
            if attended.values().any(|other| *other == state) {
                continue;
            }
            let mut advice = at_rest.remove(&state).unwrap_or_default();
            let (alpn, http) = (Arc::clone(alpn), Arc::clone(http));
            let task = tasks.spawn(async move {
                for site in &account.sites {
                    attend(&account.settings, site, Answers::new(&alpn, &http), &mut advice).await;
                }
                advice
            });
            attended.insert(task.id(), state);
        }
        let pause = tokio::time::sleep(PAUSE);
        tokio::pin!(pause);
        loop {
            let ended = tokio::select! {
                Some(ended) = tasks.join_next_with_id() => ended,
                () = &mut pause => break,
            };
            // A task that panicked has lost its advice, and asks again.
            let (id, advice) = match ended {
                Ok((id, advice)) => (id, advice),
                Err(error) => (error.id(), Advice::default()),
            };
            at_rest.extend(attended.remove(&id).map(|state| (state, advice)));
        }
    }
}

/// The authority's renewal time for each certificate file (RFC 9773), and the time to ask again.
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
        let asked = tokio::time::timeout(TIMEOUT, ask(settings, site, kept)).await;
        let (renew, pause) = match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(advised) => advised,
            Err(why) => {
                tracing::debug!("ACME: no renewal information for {}: {why}", site.file.display());
                (None, MIN_ARI_PAUSE)
            }
        };
        self.0.insert(site.file.clone(), (renew, now + pause.max(MIN_ARI_PAUSE)));
        renew
    }
}

async fn ask(
    settings: &Settings,
    site: &AcmeSite,
    kept: &Certificate,
) -> Result<(Option<SystemTime>, Duration), String> {
    let id = identifier(kept)?;
    let (info, pause) = settings.account().await?.renewal_info(&id).await.map_err(explain)?;
    let (start, end) = (SystemTime::from(info.suggested_window.start), SystemTime::from(info.suggested_window.end));
    let window = end.duration_since(start).unwrap_or_default();
    // A certificate is used for at least an hour. Otherwise a bad renewal time would cause one order after another. The
    // time of storage counts, because authorities backdate certificates.
    let stored = fs::metadata(&site.file).and_then(|file| file.modified()).unwrap_or_else(|_| SystemTime::now());
    let earliest = stored.max(kept.facts().not_before) + MIN_ARI_PAUSE;
    Ok((Some((start + window.mul_f64(jitter(kept.facts()))).max(earliest)), pause))
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

/// Orders a certificate for the site if one is due.
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
    advice.0.remove(&site.file);
    let ordered = order(settings, site, kept.as_ref(), failures, &mut answers, "a self-signed one is used").await;
    if let Err(NotObtained { is_stored: false, .. }) = ordered {
        // The pause could not be stored: sleep instead, so that the authority gets no more orders.
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

/// An order that failed.
pub(super) struct NotObtained {
    /// The time of the next try.
    pub(super) next: SystemTime,
    /// Whether that time is stored.
    is_stored: bool,
}

/// Orders a certificate and stores it, or stores the time of the next try. `kept`: the certificate that it replaces.
/// `without`: the consequence for clients if there is no certificate.
pub(super) async fn order(
    settings: &Settings,
    site: &AcmeSite,
    kept: Option<&Certificate>,
    failures: Option<Failures>,
    answers: &mut Answers<'_>,
    without: &str,
) -> Result<Certificate, NotObtained> {
    let now = SystemTime::now();
    let replaces = kept.and_then(|kept| identifier(kept).ok());
    let order = obtain(settings, site, replaces, answers);
    let got = tokio::time::timeout(3 * TIMEOUT, order).await.unwrap_or_else(|_| Err("the order timed out".to_owned()));
    answers.withdraw().await;
    let why = match got.and_then(|pem| keep(site, &pem)) {
        Ok(certificate) => {
            let _ = fs::remove_file(site.failures_file());
            let (until, next) = (date(certificate.facts().not_after), date(renewal(certificate.facts())));
            let names = site.names.join(", ");
            tracing::info!("ACME: certificate obtained for {names}, valid until {until}, renewal at {next}");
            return Ok(certificate);
        }
        // The authority has lost the account, or another authority uses the same address.
        Err(why) if why.contains("accountDoesNotExist") => {
            let file = settings.state.join(ACCOUNT);
            format!("{why}: if it is not coming back, remove {}, and a new account is made", file.display())
        }
        Err(why) => why,
    };
    let failures = Failures::after(failures, now);
    let next = failures.next_try();
    let meanwhile = match kept.map(|kept| kept.facts().not_after) {
        Some(until) if until > now => format!("the previous one, valid until {}, stays in use", date(until)),
        Some(until) => format!("the previous one has expired at {}", date(until)),
        None => without.to_owned(),
    };
    let text = serde_json::to_vec(&failures).unwrap_or_default();
    let stored = private_file::write(&site.failures_file(), &text);
    tracing::error!(
        "ACME: no certificate for {} from {}: {why}. Next try at {}; {meanwhile}",
        site.names.join(", "),
        settings.directory,
        date(next)
    );
    if let Err(error) = &stored {
        tracing::error!("{}: {error}", site.failures_file().display());
    }
    Err(NotObtained { next, is_stored: stored.is_ok() })
}

/// The renewal time without the authority's advice: after two thirds of the lifetime (SPEC: Let's Encrypt's
/// integration guide), plus up to a thirtieth, so that certificates obtained together are renewed apart.
pub(super) fn renewal(facts: &CertificateFacts) -> SystemTime {
    let lifetime = facts.not_after.duration_since(facts.not_before).unwrap_or_default();
    facts.not_before + lifetime * 2 / 3 + (lifetime / 30).mul_f64(jitter(facts))
}

/// A number from 0 to 1, fixed for each certificate.
fn jitter(facts: &CertificateFacts) -> f64 {
    f64::from(facts.fingerprint.0[0]) / 256.0
}

/// Checks an issued certificate and stores it.
fn keep(site: &AcmeSite, pem: &str) -> Result<Certificate, String> {
    let certificate = Certificate::from_pem(&site.file, pem.as_bytes(), &site.file, pem.as_bytes())
        .map_err(|e| format!("the issued certificate cannot be used: {e}"))?;
    let facts = certificate.facts();
    if let Some(name) = site.names.iter().find(|name| !facts.covers(name)) {
        return Err(format!("the issued certificate does not cover {name}, but {}", facts.names.join(", ")));
    }
    if renewal(facts) <= SystemTime::now() {
        return Err(format!("the issued certificate expires at {}: is the clock right?", date(facts.not_after)));
    }
    private_file::write(&site.file, pem.as_bytes()).map_err(|e| format!("{}: {e}", site.file.display()))?;
    Ok(certificate)
}

#[cfg(test)]
mod tests {
    use super::super::placeholder;
    use super::*;

    #[test]
    fn a_certificate_that_lacks_a_name_is_not_stored() {
        let scratch = tempfile::tempdir().unwrap();
        let site = AcmeSite {
            names: ["a.test", "b.test"].map(str::to_owned).to_vec(),
            file: scratch.path().join("a.test.pem"),
        };
        for (names, is_stored) in [(&["a.test", "b.test"][..], true), (&["a.test"], false), (&["evil.test"], false)] {
            let _ = fs::remove_file(&site.file);
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (certificate, key) = super::super::self_signed(&names, None).unwrap();
            let kept = keep(&site, &(key + &certificate));
            assert_eq!((kept.is_ok(), site.file.exists()), (is_stored, is_stored), "{names:?}");
        }
    }

    #[test]
    fn a_certificate_is_renewed_in_its_last_third() {
        let mut facts = placeholder(&["a.test".to_owned()]).unwrap().facts().clone();
        facts.not_before = SystemTime::UNIX_EPOCH;
        facts.not_after = facts.not_before + Duration::from_secs(90 * 24 * 3600);
        let days = |time: SystemTime| time.duration_since(facts.not_before).unwrap().as_secs_f64() / 86400.0;
        assert!((60.0..63.0).contains(&days(renewal(&facts))));
    }
}
