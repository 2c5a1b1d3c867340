//! Health checks: a request to each server now and then, on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use tokio::time::{sleep, timeout};

use super::OTHER_REQUESTS;
use super::Upstream;
use super::config::HealthConfig;
use super::message::{Reading, RequestError, RequestHead};
use super::protocol::Connected;
use super::proxy_header::OnBehalf;
use crate::values::shown_url;
use crate::values::{Mutex, Problems};

/// Time between two looks at due checks, which are seldom more frequent.
const TICK: Duration = Duration::from_millis(100);

/// The same while nothing is checked, so that an idle server sleeps.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// The checks of an upstream.
#[derive(Debug)]
pub(super) struct Health {
    target: Uri,
    host: Option<HeaderValue>,
    every: Duration,
    timeout: Duration,
    fails: u32,
    /// When the next checks are due.
    next: Mutex<Instant>,
    /// Failures in a row, by server.
    failed: Box<[AtomicU32]>,
}

impl HealthConfig {
    /// For this number of servers.
    pub(super) fn build(&self, servers: usize, key: &str, problems: &mut Problems) -> Option<Health> {
        let path = self.path.reveal();
        let is_path =
            path.starts_with('/') && path.bytes().all(|octet| octet.is_ascii_graphic()) && !path.contains('#');
        let Some(target) = Uri::try_from(path).ok().filter(|_| is_path) else {
            problems.add(&self.path.span, &format!("{key}.path"), "begin it with a slash, for instance /healthz");
            return None;
        };
        let host = match self.host.as_ref().map(|host| (HeaderValue::try_from(host.as_str()), host)) {
            None => None,
            Some((Ok(value), _)) => Some(value),
            Some((Err(_), host)) => {
                problems.add(&host.span, &format!("{key}.host"), "is not a host: write for instance app.internal");
                return None;
            }
        };
        Some(Health {
            target,
            host,
            every: self.every.duration(),
            timeout: self.timeout.duration(),
            fails: u32::try_from(self.fails.get()).unwrap_or(u32::MAX),
            next: Mutex::new(Instant::now()),
            failed: (0..servers).map(|_| AtomicU32::new(0)).collect(),
        })
    }
}

impl Health {
    /// Whether checks are due; the next ones are put off.
    fn is_due(&self, now: Instant) -> bool {
        let mut next = self.next.lock();
        let is_due = *next <= now;
        if is_due {
            *next = now + self.every;
        }
        is_due
    }
}

/// Checks the upstreams that `current` gives, until it gives none.
pub(crate) async fn check_health(current: impl Fn() -> Option<Vec<Arc<Upstream>>>) {
    while let Some(upstreams) = current() {
        let now = Instant::now();
        for upstream in upstreams.iter().filter(|upstream| upstream.health.as_ref().is_some_and(|h| h.is_due(now))) {
            for server in 0..upstream.servers.len() {
                tokio::spawn(check(Arc::clone(upstream), server));
            }
        }
        let is_idle = upstreams.iter().all(|upstream| upstream.health.is_none());
        drop(upstreams);
        sleep(if is_idle { IDLE_TICK } else { TICK }).await;
    }
}

async fn check(upstream: Arc<Upstream>, index: usize) {
    let Some(health) = &upstream.health else { return };
    let outcome = match timeout(health.timeout, ask(&upstream, index, health)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", health.timeout.as_secs_f32())),
    };
    let server = &upstream.servers[index].name;
    match outcome {
        Ok(Checked::Unknown) => {}
        Ok(Checked::Healthy) => {
            health.failed[index].store(0, Ordering::Relaxed);
            if upstream.balancer.checked(index, true) {
                tracing::info!("upstream {}: {server} is healthy again", upstream.name);
            }
        }
        Err(error) => {
            let failed = health.failed[index].fetch_add(1, Ordering::Relaxed) + 1;
            if failed >= health.fails && upstream.balancer.checked(index, false) {
                tracing::warn!(
                    "upstream {}: {server} is left out until its health check succeeds: {error}",
                    upstream.name
                );
            }
        }
    }
}

/// The outcome of a check that found no fault.
enum Checked {
    Healthy,
    /// This machine could not ask.
    Unknown,
}

async fn ask(upstream: &Upstream, index: usize, health: &Health) -> Result<Checked, String> {
    let server = &upstream.servers[index];
    let connected = Connected::new(server, health.timeout, health.timeout, OnBehalf::Own);
    let connected = match connected.await {
        Ok(connected) => connected,
        Err(error) if !error.is_servers_fault() => {
            let what = format_args!("upstream {}: {} cannot be checked: {error}", upstream.name, server.name);
            match server.warnings.line(what, OTHER_REQUESTS) {
                Some(line) => tracing::warn!("{line}"),
                None => tracing::debug!("{what}"),
            }
            return Ok(Checked::Unknown);
        }
        Err(error) => return Err(error.to_string()),
    };
    let own_host;
    let host = match &health.host {
        Some(host) => host,
        None => {
            own_host = HeaderValue::try_from(server.url.authority()).map_err(|error| error.to_string())?;
            &own_host
        }
    };
    let agent = HeaderValue::from_static("sealion-health");
    let fields = HeaderMap::from_iter([(header::USER_AGENT, agent)]).into();
    let (method, target) = (&Method::GET, &health.target);
    let request = RequestHead {
        method,
        target,
        host,
        fields: &fields,
        te: false,
        upgrade: None,
        interim: None,
        reading: Reading::Ahead,
        heads: None,
    };
    match connected.ask(request, None).await {
        Ok((head, _)) if head.status.code() < 400 => Ok(Checked::Healthy),
        Ok((head, _)) => Err(format!("{} is answered with {}", shown_url(&health.target.to_string()), head.status)),
        Err(
            RequestError::NotSent(error, _)
            | RequestError::Refused(error)
            | RequestError::Closed(error)
            | RequestError::BadAnswer(error),
        ) => Err(error),
        Err(RequestError::Client(incomplete)) => Err(incomplete.to_string()),
    }
}
