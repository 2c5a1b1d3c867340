//! The phase of the process.

use tokio::sync::watch;

/// How the server treats connections. Phases only change in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Connections are accepted and served.
    Serving,
    /// A successor has the listening sockets. Responses in progress finish; a connection's next request is its last.
    HandedOver,
    /// Responses in progress finish; idle connections are closed.
    Draining,
    /// The process ends now.
    Stopping,
}

/// Waits until the server no longer accepts connections.
pub(crate) async fn draining(phase: &mut watch::Receiver<Phase>) {
    // An error means that the sender is gone, and so the server ends.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
}
