//! Certificates that are ordered when a client first asks for a name.
//!
//! ```text
//! handshake ─► a certificate in memory ─► shown
//!    │ none, or it is due
//!    ▼
//! one job a name ─► stored certificate? ─► the operator's service is asked ─► ordered, stored ─► the handshakes that wait get it
//!                                           └─ no: refused for a while          └─ failed: refused until the next try
//! ```
//!
//! Jobs run on the thread that orders certificates. A waiting handshake is abandoned at its own deadline, but its job
//! continues. The question and the order of a job count against the network of the client that began it.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Uri};
use quick_cache::sync::Cache;
use sealion_tls::{AlpnChallenges, Certificate, CertificateSource, NoCertificate, SiteCertificates};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::answers::Answers;
use super::bounds::{Bound, Queue};
use super::failures::Failures;
use super::renewal::{order, renewal};
use super::{AcmeSite, Settings, is_public_name, placeholder};
use crate::certificates::{AcmeOnDemandConfig, CertifiedSite, HttpChallenges};
use crate::fetch::fetch;
use crate::limits::ClientNetwork;
use crate::observe::Warnings;
use crate::tls_client;
use crate::values::{At, Mutex, Problems, Reported, SecretUrl};

/// The number of jobs that have not begun. They begin as fast as their thread looks for files.
const MAX_NEW: usize = 1024;

/// Questions to the operator's service, and names that wait to be asked about. A further name is rejected, and its
/// clients may try again.
const ASKS: Bound = Bound { at_once: 32, waiting: 256 };

/// The same for the clients of one network. Few may wait, because clients of other networks may ask for the same name,
/// and then wait with it.
const ASKS_OF_NETWORK: Bound = Bound { at_once: 8, waiting: 8 };

/// Orders, and names that wait to be ordered. Let's Encrypt allows an account 300 orders within three hours.
const ORDERS: Bound = Bound { at_once: 8, waiting: 64 };

/// The same for the clients of one network.
const ORDERS_OF_NETWORK: Bound = Bound { at_once: 4, waiting: 32 };

/// The number of certificates in memory, about 6 kB each. Others are read from their files again.
const KEPT: usize = 10_000;

/// The number of rejected names in memory, about 100 bytes each.
const REFUSED: usize = 10_000;

/// How long a name stays rejected without another question, so that a new customer's first visit soon works.
const REFUSAL: Duration = Duration::from_secs(10);

/// How long a due certificate is used before its renewal is tried again, unless a failed order sets the time.
const RETRY: Duration = Duration::from_secs(3600);

/// The maximum length of a name. A file name has at most 255 bytes (path_resolution(7)), and the longest here ends with
/// `.failed.new.` and a process id.
const MAX_NAME: usize = 230;

/// The timeout of the operator's service: less than the default timeout of a handshake.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a reply of the service is valid while the name waits for its order.
const FRESH: Duration = Duration::from_secs(60);

/// The jobs of the process. They outlive reloads.
pub(crate) struct OnDemand {
    queue: mpsc::Sender<Job>,
    /// Taken by the thread that orders certificates.
    jobs: Mutex<Option<mpsc::Receiver<Job>>>,
    /// Jobs in progress, by the file of the certificate.
    under_way: Arc<UnderWay>,
    refused: Warnings,
}

/// The job registered for a name.
struct Known {
    /// The names of the configuration that began it.
    names: Weak<Names>,
    /// The network of the client that began it.
    network: Option<ClientNetwork>,
    outcome: watch::Receiver<Option<Outcome>>,
}

#[derive(Default)]
struct UnderWay(Mutex<HashMap<PathBuf, Known>>);

impl Default for OnDemand {
    fn default() -> Self {
        let (queue, jobs) = mpsc::channel(MAX_NEW);
        let jobs = Mutex::new(Some(jobs));
        Self { queue, jobs, under_way: Arc::default(), refused: Warnings::default() }
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").finish_non_exhaustive()
    }
}

/// The outcome of a job.
#[derive(Debug, Clone)]
enum Outcome {
    Certificate(Shown),
    Refused(Refusal),
    /// No place was free for the network of the client that began it. This does not concern the name itself.
    Full,
}

/// A name that is rejected for a while.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    why: NoCertificate,
    until: Instant,
}

impl Refusal {
    fn outcome(why: NoCertificate, pause: Duration) -> Outcome {
        Outcome::Refused(Refusal { why, until: Instant::now() + pause })
    }
}

/// A certificate, and when a job has to check it.
#[derive(Debug, Clone)]
struct Shown {
    certificate: Certificate,
    due: SystemTime,
}

impl Shown {
    fn new(certificate: Certificate) -> Self {
        let due = renewal(certificate.facts());
        Self { certificate, due }
    }

    fn has_expired(&self, now: SystemTime) -> bool {
        self.certificate.facts().not_after <= now
    }
}

/// A job for a name without a certificate in memory, or whose certificate is due.
struct Job {
    names: Arc<Names>,
    site: AcmeSite,
    /// The client that began it. `None`: it is unknown, or many clients share its address.
    client: Option<IpAddr>,
    /// Tells the outcome to the handshakes that wait. If it is dropped without an outcome, the job was aborted.
    outcome: watch::Sender<Option<Outcome>>,
    under_way: Arc<UnderWay>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.under_way.0.lock().remove(&self.site.file);
    }
}

impl Settings {
    /// The site's source of certificates. `None`: the error is in `problems`.
    pub(in crate::certificates) fn on_demand(
        self: &Arc<Self>,
        site: &CertifiedSite<'_>,
        config: &AcmeOnDemandConfig,
        process: &Arc<OnDemand>,
        problems: &mut Problems,
    ) -> Option<Source> {
        let tls = service(&config.ask, problems).ok()?;
        let names = Names {
            settings: self.clone(),
            only: (!site.default).then(|| site.names.clone()),
            ask: config.ask.value.clone(),
            tls,
            certificates: Cache::new(KEPT),
            refused: Cache::new(REFUSED),
        };
        Some(Source { names: Arc::new(names), process: process.clone() })
    }
}

/// The TLS configuration for the operator's service, if it uses TLS.
fn service(ask: &At<SecretUrl>, problems: &mut Problems) -> Result<Option<TlsConnector>, Reported> {
    const KEY: &str = "site.acme_on_demand.ask";
    let url = ask.reveal().parse::<Uri>().ok().filter(|url| {
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&url.scheme()) && !has_user && !ask.reveal().contains('#')
    });
    let Some(url) = url else {
        problems.add(&ask.span, KEY, "write the address of a service as http://host:port/path, or with https");
        return Err(Reported);
    };
    let tls = (url.scheme() == Some(&Scheme::HTTPS)).then(|| tls_client::connector(None)).transpose();
    tls.map_err(|error| {
        problems.add(&ask.span, KEY, error);
        Reported
    })
}

/// A site's source of certificates. A reload makes a new source, which asks again about names that were rejected.
#[derive(Debug)]
pub(in crate::certificates) struct Source {
    names: Arc<Names>,
    process: Arc<OnDemand>,
}

/// The names of a site, as far as they are known.
struct Names {
    settings: Arc<Settings>,
    /// The names to order for. `None`: any name. The first site also gets clients whose name no site has, and must not
    /// order for all of them.
    only: Option<Vec<String>>,
    ask: SecretUrl,
    tls: Option<TlsConnector>,
    certificates: Cache<Box<str>, Shown>,
    refused: Cache<Box<str>, Refusal>,
}

impl Source {
    /// The certificate for clients without a host name, if the site has no certificate.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub(in crate::certificates) fn placeholder() -> Result<SiteCertificates, String> {
        // No host has this name (RFC 2606 §2).
        placeholder(&["on-demand.invalid".to_owned()]).map(|certificate| SiteCertificates::new(vec![certificate]))
    }

    async fn obtain(&self, name: &str, client: Option<IpAddr>) -> Result<Certificate, NoCertificate> {
        let now = SystemTime::now();
        if let Some(shown) = self.names.certificates.get(name)
            && !shown.has_expired(now)
        {
            if shown.due <= now {
                self.submit(name, client);
            }
            return Ok(shown.certificate);
        }
        if let Some(refusal) = self.names.refused.get(name)
            && Instant::now() < refusal.until
        {
            return Err(refusal.why);
        }
        if !self.names.may_have(name) {
            return Err(NoCertificate::NotAllowed);
        }
        loop {
            let mut joined = self.submit(name, client).ok_or(NoCertificate::Unavailable)?;
            // An error means that the process hands over or ends.
            let ended = joined.outcome.wait_for(Option::is_some).await.map_err(|_| NoCertificate::Unavailable)?.clone();
            match ended.ok_or(NoCertificate::Unavailable)? {
                Outcome::Certificate(shown) => return Ok(shown.certificate),
                Outcome::Refused(refusal) if joined.is_of_configuration => return Err(refusal.why),
                Outcome::Full if joined.is_of_network => return Err(NoCertificate::Unavailable),
                // The previous configuration may have asked another service, or another network had no place.
                Outcome::Refused(_) | Outcome::Full => tokio::task::yield_now().await,
            }
        }
    }

    /// Joins the job of the name, or begins one. `None`: too many names wait, or the process begins no more jobs.
    fn submit(&self, name: &str, client: Option<IpAddr>) -> Option<Joined> {
        let site = self.names.site(name);
        let network = client.map(ClientNetwork::of);
        let mut under_way = self.process.under_way.0.lock();
        if let Some(known) = under_way.get(&site.file) {
            return Some(Joined {
                is_of_configuration: std::ptr::eq(known.names.as_ptr(), &*self.names),
                is_of_network: known.network == network,
                outcome: known.outcome.clone(),
            });
        }
        let Ok(place) = self.process.queue.try_reserve() else {
            drop(under_way);
            if !self.process.queue.is_closed() {
                self.process.warn(format_args!("{name}: refused: {MAX_NEW} names already wait"));
            }
            return None;
        };
        let (sender, outcome) = watch::channel(None);
        let known = Known { names: Arc::downgrade(&self.names), network, outcome: outcome.clone() };
        under_way.insert(site.file.clone(), known);
        drop(under_way);
        let under_way = self.process.under_way.clone();
        place.send(Job { names: self.names.clone(), site, client, outcome: sender, under_way });
        Some(Joined { is_of_configuration: true, is_of_network: true, outcome })
    }
}

/// A job that a handshake waits for.
struct Joined {
    /// Whether the handshake's configuration began it.
    is_of_configuration: bool,
    /// Whether a client of the same network began it.
    is_of_network: bool,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl OnDemand {
    fn warn(&self, what: fmt::Arguments<'_>) {
        if let Some(line) = self.refused.line(what, "more such failures since the last line") {
            tracing::warn!("ACME on demand: {line}");
        }
    }
}

impl CertificateSource for Source {
    fn certificate(
        &self,
        name: &str,
        client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Result<Certificate, NoCertificate>> + Send + '_>> {
        let name = name.to_owned();
        Box::pin(async move { self.obtain(&name, client).await })
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("only", &self.only).field("ask", &self.ask).finish_non_exhaustive()
    }
}

impl Names {
    /// Whether the site has the name and an authority could validate it.
    fn may_have(&self, name: &str) -> bool {
        let covers = |pattern: &String| match pattern.strip_prefix('*') {
            Some(parent) => name.ends_with(parent),
            None => pattern == name,
        };
        let is_of_site = self.only.as_ref().is_none_or(|only| only.iter().any(covers));
        // No authority issues certificates for names with underscores, and the file of a wildcard has one.
        is_of_site && name.len() <= MAX_NAME && !name.contains('_') && is_public_name(name, false)
    }

    fn site(&self, name: &str) -> AcmeSite {
        AcmeSite { file: self.settings.state.join(format!("{name}.pem")), names: vec![name.to_owned()] }
    }

    /// The request that asks whether the name may have a certificate.
    fn question(&self, name: &str) -> Result<Request<Bytes>, http::Error> {
        let ask: Uri = self.ask.reveal().parse()?;
        let separator = if ask.query().is_some() { '&' } else { '?' };
        // A name consists of letters, digits, hyphens, underscores and dots, which need no encoding in a query.
        Request::get(format!("{ask}{separator}domain={name}")).body(Bytes::new())
    }

    /// Asks the operator's service.
    async fn is_allowed(&self, name: &str) -> Result<bool, String> {
        let question = self.question(name).map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(ANSWER, fetch(question, self.tls.as_ref())).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("it took longer than {} s", ANSWER.as_secs())))?;
        Ok(answer.status().is_success())
    }
}

/// Runs jobs until it is dropped.
pub(super) async fn run(process: &Arc<OnDemand>, alpn: &Arc<AlpnChallenges>, http: &Arc<HttpChallenges>) {
    let jobs = process.jobs.lock().take();
    let Some(mut jobs) = jobs else { return };
    let bounds = Arc::new(Bounds::default());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = tasks.join_next() => {}
            job = jobs.recv() => {
                let Some(job) = job else { return };
                let (process, bounds) = (process.clone(), bounds.clone());
                let (alpn, http) = (alpn.clone(), http.clone());
                tasks.spawn(async move { attend(&process, &bounds, job, Answers::new(&alpn, &http)).await });
            }
        }
    }
}

struct Bounds {
    asks: Queue,
    orders: Queue,
    /// How long a reply of the service is valid.
    fresh: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { asks: Queue::new(ASKS, ASKS_OF_NETWORK), orders: Queue::new(ORDERS, ORDERS_OF_NETWORK), fresh: FRESH }
    }
}

async fn attend(process: &OnDemand, bounds: &Bounds, job: Job, mut answers: Answers<'_>) {
    let outcome = outcome(process, bounds, &job, &mut answers).await;
    let (names, name) = (&job.names, job.site.names[0].as_str());
    match &outcome {
        Outcome::Certificate(shown) => {
            names.refused.remove(name);
            names.certificates.insert(name.into(), shown.clone());
        }
        Outcome::Refused(refusal) => {
            names.certificates.remove(name);
            names.refused.insert(name.into(), *refusal);
        }
        Outcome::Full => {}
    }
    job.outcome.send_replace(Some(outcome));
}

async fn outcome(process: &OnDemand, bounds: &Bounds, job: &Job, answers: &mut Answers<'_>) -> Outcome {
    let (site, names) = (&job.site, &job.names);
    let name = site.names[0].as_str();
    let now = SystemTime::now();
    let kept = site.kept().filter(|kept| kept.facts().covers(name)).map(Shown::new);
    if let Some(kept) = kept.clone().filter(|kept| now < kept.due && !kept.has_expired(now)) {
        return Outcome::Certificate(kept);
    }
    // Reads the clock again: a question may take ten seconds, and an order some minutes.
    let kept_or = |otherwise: Outcome, next: Option<SystemTime>| {
        let now = SystemTime::now();
        match kept.clone().filter(|kept| !kept.has_expired(now)) {
            Some(kept) => Outcome::Certificate(Shown { due: next.unwrap_or(now + RETRY), ..kept }),
            None => otherwise,
        }
    };
    let failed = |next: SystemTime| {
        // If the clock is set back, the pause does not become longer.
        let pause = next.duration_since(SystemTime::now()).unwrap_or_default();
        kept_or(Refusal::outcome(NoCertificate::Unavailable, pause), Some(next))
    };
    let failures = Failures::read(&site.failures_file());
    if let Some(failures) = failures.filter(|failures| failures.forbids(now)) {
        return failed(failures.next_try());
    }
    let turn = match bounds.asks.turn(job.client).await {
        Ok(turn) => turn,
        Err(full) => {
            process.warn(format_args!("{name}: refused for now: {full} to be asked about"));
            return kept_or(Outcome::Full, None);
        }
    };
    if let Err(why) = permission(process, names, name).await {
        return kept_or(Refusal::outcome(why, REFUSAL), None);
    }
    let asked = Instant::now();
    drop(turn);
    let _turn = match bounds.orders.turn(job.client).await {
        Ok(turn) => turn,
        Err(full) => {
            process.warn(format_args!("{name}: refused for now: {full} for an order"));
            return kept_or(Outcome::Full, None);
        }
    };
    if asked.elapsed() >= bounds.fresh
        && let Err(why) = permission(process, names, name).await
    {
        return kept_or(Refusal::outcome(why, REFUSAL), None);
    }
    let before = kept.as_ref().map(|kept| &kept.certificate);
    match order(&names.settings, site, before, failures, answers, "clients that ask for it are refused").await {
        Ok(certificate) => Outcome::Certificate(Shown::new(certificate)),
        Err(not_obtained) => failed(not_obtained.next),
    }
}

/// Asks the operator's service about the name, and logs why it gets no certificate.
async fn permission(process: &OnDemand, names: &Names, name: &str) -> Result<(), NoCertificate> {
    match names.is_allowed(name).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            tracing::debug!("ACME on demand: {name}: {} does not allow a certificate", names.ask);
            Err(NoCertificate::NotAllowed)
        }
        Err(why) => {
            process.warn(format_args!("{name}: {} does not respond: {why}. No certificate is ordered", names.ask));
            Err(NoCertificate::Unavailable)
        }
    }
}

#[cfg(test)]
#[path = "on_demand_tests.rs"]
mod tests;
