//! Process-wide state shared by all connections.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use super::{Generations, PathPolicy};
use crate::certificates::TlsProcess;
use crate::limits::{Addresses, IdleConnections, StreamPlaces};
use crate::observe::access_log::AccessLogs;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Tracer;
use crate::observe::{Predecessors, Warnings};
use crate::passing::{Giver, Passes};
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::KtlsMode;
use crate::values::Phase;

/// State shared by all connections for the lifetime of the process.
pub(crate) struct Shared {
    /// The current configuration.
    pub generations: Generations,
    /// Session ticket keys, and responses to pending ACME validations.
    pub tls: TlsProcess,
    /// The kernel's TLS support.
    pub kernel: Arc<KernelOffer>,
    /// The measured costs of the two paths.
    pub costs: Costs,
    pub access_log: AccessLogs,
    pub metrics: Metrics,
    /// Gives requests spans. `None`: none are sent.
    pub tracer: Option<Tracer>,
    /// One permit per connection that may be open.
    pub slots: Arc<Semaphore>,
    /// Places for responses over HTTP/2 that hold descriptors, beside the first of each connection.
    pub streams: Arc<StreamPlaces>,
    /// Bytes of streamed responses over HTTP/2 that wait in memory.
    pub ahead: Arc<AtomicU64>,
    /// Open connections per client address.
    pub addresses: Arc<Addresses>,
    /// The connections with the times since when they are idle.
    pub idle: IdleConnections,
    /// Upper bound on open connections.
    pub most_connections: usize,
    /// Whether the server is serving or shutting down.
    pub phase: watch::Receiver<Phase>,
    /// Connections closed because the PROXY header was missing, or came from an untrusted peer.
    pub proxies_refused: AtomicU64,
    /// Handshakes that failed because of the client's certificate.
    pub certificates_refused: Warnings,
    /// Connections closed because they outlasted the grace time.
    pub cut: AtomicUsize,
    /// Processes that upgrades have replaced and that have not ended.
    pub predecessors: Arc<Predecessors>,
    /// Passes connections to the process that has taken over. Set before the phase says so, if that process takes them.
    pub giver: OnceLock<Giver>,
    /// The workers, until the connections of each have ended.
    pub busy: TaskTracker,
}

impl Shared {
    /// Whether the server accepts connections. It costs no write to memory that other threads read.
    pub(crate) fn is_serving(&self) -> bool {
        // This receiver has seen only the first phase, which is `Serving`. An error means that the server ends.
        matches!(self.phase.has_changed(), Ok(false))
    }

    /// Whether a connection goes on after its response, here or in the process that has taken over.
    pub(crate) fn goes_on(&self, passes: Passes) -> bool {
        self.is_serving() || self.heir(passes).is_some()
    }

    /// Passes a connection to the process that has taken over. `None`: no other process has taken over, or the connection ends here.
    pub(crate) fn heir(&self, passes: Passes) -> Option<&Giver> {
        let giver = self.giver.get().filter(|_| passes == Passes::WhenItCan)?;
        (*self.phase.borrow() == Phase::HandedOver).then_some(giver)
    }

    /// The inputs to the choice of path. `mode`: the current setting.
    pub(crate) fn path_policy(&self, mode: KtlsMode) -> PathPolicy<'_> {
        PathPolicy { mode, kernel: &self.kernel, costs: &self.costs }
    }
}
