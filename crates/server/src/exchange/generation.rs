//! Configuration generations: everything that requests need, replaced as a whole on reload.
//!
//! ```text
//! Config ─process::build─► Generation ─publish─► Generations ─current─► each worker's own handle, one for all its connections
//!                     └──► Problems: nothing is published
//! ```
//!
//! A worker adopts a new generation with its next handshake or request. A request finishes under the generation it began with.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealion_http::http1::head::HeadLimits;
use thread_local::ThreadLocal;

use crate::certificates::{Certificates, Handshakes};
use crate::files::cache::FileCache;
use crate::limits::{BufferBudget, LimitsConfig};
use crate::path::policy::KtlsMode;
use crate::site::Sites;
use crate::store::Store;
use crate::upstream::Upstream;
use crate::values::Mutex;

/// A loaded configuration.
pub(crate) struct Generation {
    /// The sites, found by host name.
    pub sites: Sites,
    /// The servers that requests are forwarded to.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The cache of responses.
    pub store: Option<Arc<Store>>,
    /// The cached files of all sites.
    pub files: Arc<FileCache>,
    /// Certificates and bounds for handshakes.
    pub tls: Handshakes,
    /// The certificates and the files they are read from.
    pub certificates: Arc<Certificates>,
    /// Resource limits per client and connection.
    pub limits: LimitsConfig,
    /// Memory for contents that wait for a slow side. A reload keeps it.
    pub buffered: Arc<BufferBudget>,
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
    /// The limits of one client on a connection of HTTP/2.
    pub http2: sealion_h2::Limits,
    /// The limits of clients of HTTP/3.
    pub http3: Http3Limits,
    /// When connections move into the kernel.
    pub ktls: KtlsMode,
}

/// The limits of HTTP/3 and of the transport below it.
#[derive(Debug, Clone)]
pub(crate) struct Http3Limits {
    /// The limits of one client on a connection.
    pub(crate) protocol: sealion_h3::Limits,
    /// The limits of a UDP socket and its connections.
    pub(crate) transport: sealion_quic::Limits,
    /// The largest send window of a connection, in bytes.
    pub(crate) send_window: u64,
    /// The largest receive window of a connection, in bytes.
    pub(crate) receive_window: u64,
}

/// The newest generation, and each worker's handle to the one it uses.
pub(crate) struct Generations {
    number: AtomicU64,
    newest: Mutex<Arc<Generation>>,
    workers: ThreadLocal<RefCell<Current>>,
}

/// A worker's handle to a generation. Each worker has its own reference count, so that processors do not contend for it.
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
    pub(crate) fn new(first: Generation) -> Self {
        Generations { number: AtomicU64::new(0), newest: Mutex::new(Arc::new(first)), workers: ThreadLocal::new() }
    }

    /// Replaces the current generation. Returns the new generation's number; the first has 0.
    pub(crate) fn publish(&self, next: Generation) -> u64 {
        let mut newest = self.newest.lock();
        *newest = Arc::new(next);
        self.number.fetch_add(1, Ordering::Release) + 1
    }

    /// The number of the newest generation.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The newest generation, cached for this thread.
    pub(crate) fn current(&self) -> Current {
        let mut current = self.workers.get_or(|| RefCell::new(self.newest())).borrow_mut();
        if current.0.number != self.number.load(Ordering::Acquire) {
            *current = self.newest();
        }
        current.clone()
    }

    /// The newest generation, uncached, for threads that serve no requests.
    pub(crate) fn latest(&self) -> Arc<Generation> {
        Arc::clone(&self.newest.lock())
    }

    fn newest(&self) -> Current {
        let newest = self.newest.lock();
        let number = self.number.load(Ordering::Acquire);
        Current(Arc::new(Numbered { number, generation: Arc::clone(&newest) }))
    }
}
