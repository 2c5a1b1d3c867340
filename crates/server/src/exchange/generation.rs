//! What a configuration becomes: everything that requests need, swapped as a whole.
//!
//! ```text
//! Config ─process::build─► Generation ─publish─► Generations ─current─► each worker's own handle, one for all its connections
//!                     └──► Problems: nothing is published
//! ```
//!
//! A worker takes up a new generation with its next handshake or request. A request that began under one generation ends under it.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

use sealion_http::http1::head::HeadLimits;
use sealion_tls::ServerConfig;
use thread_local::ThreadLocal;

use crate::certificates::Certificates;
use crate::limits::LimitsConfig;
use crate::path::policy::KtlsMode;
use crate::site::Sites;

/// What a configuration became.
pub(crate) struct Generation {
    /// The sites, found by host name.
    pub sites: Sites,
    /// Certificates and bounds for handshakes.
    pub tls: Arc<ServerConfig>,
    /// The files that the certificates come from.
    pub certificates: Arc<Certificates>,
    /// Bounds on what a client can take.
    pub limits: LimitsConfig,
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
    /// When connections move into the kernel.
    pub ktls: KtlsMode,
}

/// The newest generation, and each worker's handle of the one it uses.
pub(crate) struct Generations {
    number: AtomicU64,
    newest: Mutex<Arc<Generation>>,
    workers: ThreadLocal<RefCell<Current>>,
}

/// A worker's handle. Its count of references is the worker's alone, so that no two processors contend for it.
#[derive(Clone)]
pub(crate) struct Current(Arc<Numbered>);

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
    pub(crate) fn new(first: Generation) -> Self {
        Generations { number: AtomicU64::new(0), newest: Mutex::new(Arc::new(first)), workers: ThreadLocal::new() }
    }

    /// Takes the place of the one before. Returns its number; the first has 0.
    pub(crate) fn publish(&self, next: Generation) -> u64 {
        let mut newest = self.lock();
        *newest = Arc::new(next);
        self.number.fetch_add(1, Ordering::Release) + 1
    }

    /// How many took the place of the first.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The newest, for this thread.
    pub(crate) fn current(&self) -> Current {
        let mut current = self.workers.get_or(|| RefCell::new(self.newest())).borrow_mut();
        if current.0.number != self.number.load(Ordering::Acquire) {
            *current = self.newest();
        }
        current.clone()
    }

    /// The newest, for a thread that serves no requests.
    pub(crate) fn latest(&self) -> Arc<Generation> {
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
