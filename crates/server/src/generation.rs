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
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit};
use sealion_tls::ServerConfig;
use thread_local::ThreadLocal;

use crate::config::{Config, LimitsConfig, Problems};
use crate::dev_certificate::DevCertificate;
use crate::file_cache::{CacheLimits, FileCache};
use crate::http1::head::HeadLimits;
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
    /// The certificate of the first site, and what is to be said of it.
    pub certificate: (PathBuf, &'static str),
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
}

impl Generation {
    /// Builds all that the configuration asks for. Opens roots, reads certificates; binds and changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(config: Config, mut problems: Problems, kernel_rekeys: bool) -> Result<Self, Problems> {
        let cache = FileCache::new(cache_limits(&config));
        let max_ranges = config.limits.max_ranges.usize();
        if config.site.is_empty() {
            problems.add(&(0..0), "site", "there is none: add a [[site]] with a root");
        }
        for listen in &config.listen {
            listen.check(&mut problems);
        }
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
        let sites = Sites::new(sites, &mut problems);
        match tls(&config, &mut problems, kernel_rekeys) {
            Some((tls, certificate)) if problems.is_empty() => {
                Ok(Generation { sites, tls: Arc::new(tls), certificate, head_limits: config.limits.head(), config })
            }
            _ => Err(problems),
        }
    }

    /// Bounds on what a client can take.
    pub fn limits(&self) -> &LimitsConfig {
        &self.config.limits
    }

    /// Where clients without TLS are sent.
    pub fn https_port(&self) -> u16 {
        self.config.listen.iter().filter(|listen| *listen.tls).find_map(|listen| listen.port()).unwrap_or(443)
    }

    /// Who seals the records.
    pub fn ktls(&self) -> KtlsMode {
        self.config.server.ktls
    }
}

fn tls(
    config: &Config,
    problems: &mut Problems,
    kernel_rekeys: bool,
) -> Option<(ServerConfig, (PathBuf, &'static str))> {
    let pair = match config.site.iter().flat_map(|site| &site.certificates).next() {
        Some(pair) => (problems.resolve(&pair.cert), problems.resolve(&pair.key), pair.cert.span.clone(), ""),
        // Nothing is made for what will not be served.
        None if !problems.is_empty() => return None,
        None => match DevCertificate::load_or_make() {
            Ok(pair) if pair.new => (pair.cert, pair.key, 0..0, " (made now, for localhost only)"),
            Ok(pair) => (pair.cert, pair.key, 0..0, " (kept, for localhost only)"),
            Err(error) => {
                problems.add(&(0..0), "site.certificates", error);
                return None;
            }
        },
    };
    let (cert, key, span, note) = pair;
    let protocols: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
    match ServerConfig::from_pem_files(&cert, &key, &protocols, config.limits.tls(kernel_rekeys)) {
        Ok(tls) => Some((tls, (cert, note))),
        Err(error) => {
            problems.add(&span, "site.certificates", error);
            None
        }
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

    /// The newest, for this thread.
    pub fn current(&self) -> Current {
        let mut current = self.workers.get_or(|| RefCell::new(self.newest())).borrow_mut();
        if current.0.number != self.number.load(Ordering::Acquire) {
            *current = self.newest();
        }
        current.clone()
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
