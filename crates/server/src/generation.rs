//! What a configuration becomes: everything that requests need, built and checked as a whole, and swapped as a whole.
//!
//! ```text
//! Config ─build─► Generation ─publish─► Generations ─current─► each worker's own handle, one for all its connections
//!            └──► Problems: nothing is published
//! ```
//!
//! A worker takes up a new generation with its next handshake or request. A request that began under one generation ends under it.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit};
use sealion_tls::ServerConfig;
use thread_local::ThreadLocal;

use crate::certificates::{self, Certificates, TlsProcess};
use crate::config::{Config, LimitsConfig, Problems};
use crate::file_cache::{CacheLimits, FileCache};
use crate::http1::head::HeadLimits;
use crate::listener;
use crate::send_policy::KtlsMode;
use crate::site::Sites;

/// What a configuration became.
pub struct Generation {
    /// What it was made of.
    pub config: Config,
    /// What is served under which names.
    pub sites: Sites,
    /// Certificates and TLS bounds.
    pub tls: Arc<ServerConfig>,
    /// The files behind that.
    pub certificates: Certificates,
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
}

impl Generation {
    /// Builds all that the configuration asks for. Opens roots, reads certificates; binds and changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(
        config: Config,
        mut problems: Problems,
        process: &TlsProcess,
        kernel_rekeys: bool,
    ) -> Result<Self, Problems> {
        let cache = FileCache::new(cache_limits(&config));
        let max_ranges = config.limits.max_ranges.usize();
        if config.site.is_empty() {
            problems.add(&(0..0), "site", "there is none: add a [[site]] with a root");
        }
        listener::check(&config.listen, config.metrics.listen, &mut problems);
        config.access_log.check(&mut problems);
        // Without a file there is a listener, though none is told.
        let plain = !config.listen.is_empty() && config.listen.iter().all(|listen| !*listen.tls);
        if plain {
            let span = &config.listen[0].tls.span;
            problems.add(
                span,
                "listen.tls",
                "no listener has TLS, so there is nowhere to send clients: add one with tls = true",
            );
        }
        let mut sites = Vec::new();
        for site in &config.site {
            if let Some(built) = site.build(&cache, max_ranges, plain, &mut problems) {
                sites.push((site, built));
            }
        }
        let tls = certificates::build(&config, &sites, process, &mut problems, kernel_rekeys);
        let sites = Sites::new(sites, &mut problems);
        match tls {
            Some((tls, certificates)) if problems.is_empty() => {
                Ok(Generation { sites, tls: Arc::new(tls), certificates, head_limits: config.limits.head(), config })
            }
            _ => Err(problems),
        }
    }

    /// Bounds on what a client can take.
    pub fn limits(&self) -> &LimitsConfig {
        &self.config.limits
    }

    /// Who seals the records.
    pub fn ktls(&self) -> KtlsMode {
        self.config.server.ktls
    }
}

/// Bounds of each worker's cache: files that are kept open leave most descriptors to connections.
pub(crate) fn cache_limits(config: &Config) -> CacheLimits {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let limits = CacheLimits { age: config.server.file_cache_age.0, ..CacheLimits::default() };
    let share = usize::try_from(allowed / 8).unwrap_or(usize::MAX) / config.server.worker_count();
    CacheLimits { files: limits.files.min(share), ..limits }
}

/// The newest generation, and each worker's handle of the one it uses.
pub struct Generations {
    number: AtomicU64,
    newest: Mutex<Arc<Generation>>,
    workers: ThreadLocal<RefCell<Current>>,
}

/// A worker's handle. Its count of references is the worker's alone, so that no two processors contend for it.
#[derive(Clone)]
pub struct Current(Arc<Numbered>);

struct Numbered {
    number: u64,
    generation: Arc<Generation>,
}

impl Deref for Current {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.generation
    }
}

impl Generations {
    /// The first one.
    pub fn new(first: Generation) -> Self {
        Generations { number: AtomicU64::new(0), newest: Mutex::new(Arc::new(first)), workers: ThreadLocal::new() }
    }

    /// Takes the place of the one before. Returns its number; the first has 0.
    pub fn publish(&self, next: Generation) -> u64 {
        let mut newest = self.lock();
        *newest = Arc::new(next);
        self.number.fetch_add(1, Ordering::Release) + 1
    }

    /// How many took the place of the first.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The newest, for this thread.
    pub fn current(&self) -> Current {
        let mut current = self.workers.get_or(|| RefCell::new(self.newest())).borrow_mut();
        if current.0.number != self.number.load(Ordering::Acquire) {
            *current = self.newest();
        }
        current.clone()
    }

    /// The newest, for a thread that serves no requests.
    pub fn latest(&self) -> Arc<Generation> {
        Arc::clone(&self.lock())
    }

    fn newest(&self) -> Current {
        let newest = self.lock();
        let number = self.number.load(Ordering::Acquire);
        Current(Arc::new(Numbered { number, generation: Arc::clone(&newest) }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Generation>> {
        self.newest.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
