//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tokio::sync::{Semaphore, watch};

use super::{Generations, PathPolicy};
use crate::certificates::TlsProcess;
use crate::limits::Addresses;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::Metrics;
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::KtlsMode;
use crate::values::Phase;

/// What all connections share, from the start of the process to its end.
pub(crate) struct Shared {
    /// What the configuration says now.
    pub generations: Generations,
    /// Keys of session tickets, and answers to validations under way.
    pub tls: TlsProcess,
    /// What the kernel offers.
    pub kernel: Arc<KernelOffer>,
    /// What the two paths cost here.
    pub costs: Costs,
    /// Where lines go.
    pub access_log: AccessLog,
    /// What is counted.
    pub metrics: Metrics,
    /// One for each connection that may be open.
    pub slots: Arc<Semaphore>,
    /// Connections of each client.
    pub addresses: Arc<Addresses>,
    /// How many may be.
    pub most_connections: usize,
    /// Whether the server goes on.
    pub phase: watch::Receiver<Phase>,
    /// Connections closed because the PROXY protocol says nothing, or somebody says it who is not believed.
    pub proxies_refused: AtomicU64,
    /// Connections that did not end within the grace time.
    pub cut: AtomicUsize,
}

impl Shared {
    /// What decides over the paths of responses. `mode`: what the configuration says now.
    pub(crate) fn path_policy(&self, mode: KtlsMode) -> PathPolicy<'_> {
        PathPolicy { mode, kernel: &self.kernel, costs: &self.costs }
    }
}
