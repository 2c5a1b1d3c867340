//! OCSP stapling (RFC 6066 §8): responses are fetched in the background, and handshakes use the responses available.
//!
//! ```text
//! certificate ─Wanted─► responder ─► fetched by a thread that lives as long ─► kept here ─► stapled by the thread that watches files
//! ```

mod message;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode};
use sealion_tls::{Certificate, Fingerprint};

use super::pair::{Watched, date};
use crate::fetch::fetch;
use crate::values::Mutex;
use message::{Answer, Question, Unusable, Wanted};

/// Responses by certificate. They outlive reloads.
#[derive(Debug, Default)]
pub(crate) struct Staples {
    known: Mutex<HashMap<Fingerprint, State>>,
    /// Whether a thread is fetching responses.
    is_fetching: AtomicBool,
}

/// The state of a certificate.
#[derive(Debug)]
struct State {
    question: Option<Question>,
    must_staple: bool,
    answer: Option<Answer>,
    /// The latest thisUpdate of a response: an older response, from a cache in between, has less information.
    latest: Option<SystemTime>,
    ask_at: SystemTime,
    failures: u32,
}

/// The pause after a failure, doubled with each failure up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(60);

const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// The minimum time between two requests for a certificate.
const MIN_PAUSE: Duration = Duration::from_secs(60);

impl State {
    fn new(certificate: &Certificate, now: SystemTime) -> Self {
        let wanted = Wanted::of(certificate.chain()).unwrap_or_else(|why| {
            tracing::warn!("{}: no OCSP response can be stapled: {why}", certificate.facts().subject);
            Wanted { question: None, must_staple: false }
        });
        Self {
            question: wanted.question,
            must_staple: wanted.must_staple,
            answer: None,
            latest: None,
            ask_at: now,
            failures: 0,
        }
    }

    /// Processes the result of a request. Returns a line for the log, about a problem or its end.
    fn take(&mut self, brought: Result<Answer, Unusable>, now: SystemTime) -> Result<Option<String>, String> {
        let brought = match brought {
            Ok(answer) if self.latest.is_some_and(|latest| answer.since < latest) => {
                Err("the response is older than one that was fetched before".to_owned().into())
            }
            other => other,
        };
        match brought {
            Ok(answer) => {
                self.latest = Some(answer.since);
                // In the middle of its validity, so that a responder may fail for the other half.
                let whole = answer.until.duration_since(answer.since).unwrap_or_default();
                let middle = answer.since + whole / 2;
                self.ask_at = middle.max(now + MIN_PAUSE);
                let is_news = self.answer.is_none() || self.failures > 0;
                self.failures = 0;
                let until = date(answer.until);
                self.answer = Some(answer);
                Ok(is_news.then(|| format!("OCSP response fetched, valid until {until}")))
            }
            Err(why) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(MAX_PAUSE);
                self.ask_at = now + pause;
                self.failures += 1;
                if let Unusable::Revoked(since) = why {
                    // The "good" response is outdated.
                    self.answer = None;
                    self.latest = self.latest.max(Some(since));
                }
                let kept = if self.answer.is_some() { "the response before stays until its end" } else { NONE };
                Err(format!("no OCSP response: {why}. Next try at {}; {kept}", date(self.ask_at)))
            }
        }
    }

    /// Forgets a response that has expired.
    fn expire(&mut self, now: SystemTime) -> bool {
        let has_expired = self.answer.as_ref().is_some_and(|answer| answer.until <= now);
        if has_expired {
            self.answer = None;
        }
        has_expired
    }
}

/// Marks the end of fetching, even after a panic.
struct Fetching<'a>(&'a Staples);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.is_fetching.store(false, Ordering::Release);
    }
}

const NONE: &str = "none is stapled";

/// A warning about a certificate whose clients require a response that is missing.
pub(super) fn note(certificate: &Certificate) -> Option<String> {
    let insists = Wanted::of(certificate.chain()).is_ok_and(|wanted| wanted.must_staple);
    (insists && certificate.ocsp_response().is_none()).then(|| {
        "tells clients to require a stapled OCSP response (must-staple), which was not fetched yet: until then they refuse the handshake".to_owned()
    })
}

impl Staples {
    /// The certificate with its response, if there is one.
    pub(super) fn staple(&self, certificate: Certificate) -> Certificate {
        let known = self.known.lock();
        let answer = known.get(&certificate.facts().fingerprint).and_then(|state| state.answer.as_ref());
        match answer {
            Some(answer) => certificate.with_ocsp_response(Some(answer.der.clone())),
            None => certificate,
        }
    }

    /// Staples the responses fetched so far, and fetches the due responses.
    pub(super) fn attend(self: &Arc<Self>, watched: &[Watched]) {
        let now = SystemTime::now();
        let mut due = Vec::new();
        let mut known = self.known.lock();
        let used: HashSet<Fingerprint> = watched.iter().map(|one| one.certificate().facts().fingerprint).collect();
        known.retain(|of, _| used.contains(of));
        for one in watched {
            let certificate = one.certificate();
            let of = certificate.facts().fingerprint;
            let state = known.entry(of).or_insert_with(|| State::new(&certificate, now));
            if state.expire(now) {
                let effect = if state.must_staple { "clients refuse the handshake" } else { NONE };
                tracing::warn!("{}: the OCSP response has expired, and no other could be fetched: {effect}", one.files);
            }
            let stapled = state.answer.as_ref().map(|answer| answer.der.as_slice());
            if certificate.ocsp_response() != stapled {
                one.set.replace(one.place, certificate.with_ocsp_response(stapled.map(<[u8]>::to_vec)));
            }
            if let Some(question) = state.question.as_ref().filter(|_| state.ask_at <= now) {
                due.push((of, one.files.to_string(), question.clone()));
            }
        }
        drop(known);
        if !due.is_empty() && !self.is_fetching.swap(true, Ordering::AcqRel) {
            let own = Arc::clone(self);
            let started = std::thread::Builder::new().name("ocsp".to_owned()).spawn(move || {
                let fetching = Fetching(&own);
                own.fetch(&due);
                drop(fetching);
            });
            if let Err(error) = started {
                tracing::warn!("OCSP responses cannot be fetched: {error}");
                self.is_fetching.store(false, Ordering::Release);
            }
        }
    }

    fn fetch(&self, due: &[(Fingerprint, String, Question)]) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::warn!("OCSP responses cannot be fetched: {error}"),
        };
        for (of, file, question) in due {
            let brought = runtime.block_on(get(&question.url));
            let now = SystemTime::now();
            let brought = brought.map_err(Unusable::from).and_then(|der| question.read(der, now));
            let mut known = self.known.lock();
            let Some(state) = known.get_mut(of) else { continue };
            match state.take(brought, now) {
                Ok(Some(line)) => tracing::info!("{file}: {line}"),
                Ok(None) => {}
                Err(line) => tracing::warn!("{file}: {line}"),
            }
        }
    }
}

/// The content at a URL.
async fn get(url: &str) -> Result<Vec<u8>, String> {
    let response = fetch(Request::get(url).body(Bytes::new()).map_err(|error| error.to_string())?, None).await?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status => Err(format!("status {status}")),
    }
}
