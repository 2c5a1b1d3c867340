//! Whether the server goes on.

use tokio::sync::watch;

/// What the server does with connections, in the order in which it can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Connections are accepted and served.
    Serving,
    /// Another process has the listening sockets. Responses under way finish; the next request of a connection is its last.
    HandedOver,
    /// Responses under way finish; nothing new begins.
    Draining,
    /// The process ends now.
    Stopping,
}

/// Waits until the server no longer accepts connections.
pub(crate) async fn draining(phase: &mut watch::Receiver<Phase>) {
    // An error means that the sender is gone, hence that the server ends.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
}
