//! Signals and the actions that they request.

use tokio::signal::unix::{Signal as UnixSignal, SignalKind, signal};

/// The action that a signal requests.
pub(super) enum Signal {
    Reload,
    Upgrade,
    /// Reopen the access log, after its file was renamed.
    Reopen,
    /// End, by the signal of this name.
    Stop(&'static str),
}

/// Handlers of all signals that the server knows.
pub(super) struct Signals {
    hangup: UnixSignal,
    user2: UnixSignal,
    interrupt: UnixSignal,
    terminate: UnixSignal,
    user1: UnixSignal,
}

impl Signals {
    /// Installs the handlers. Needs a runtime.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user2: signal(SignalKind::user_defined2())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.user2.recv() => Signal::Upgrade,
            _ = self.user1.recv() => Signal::Reopen,
            _ = self.interrupt.recv() => Signal::Stop("SIGINT"),
            _ = self.terminate.recv() => Signal::Stop("SIGTERM"),
        }
    }
}
