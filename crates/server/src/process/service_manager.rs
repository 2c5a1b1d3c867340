//! What the service manager is told (sd_notify(3)): nothing where NOTIFY_SOCKET is not set.

use std::io::{IsTerminal, stderr};

use sd_notify::NotifyState;

/// The server accepts connections.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] says when that is over.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")]),
        Err(error) => tracing::debug!("the service manager was not told of the reload: {error}"),
    }
}

/// The server drains.
pub(crate) fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Another process is the service from now on.
pub(crate) fn replaced_by(pid: u32) {
    notify(&[NotifyState::MainPid(pid), NotifyState::Status("handed over to a new process")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        // Whoever looks at a terminal is no service manager.
        if !stderr().is_terminal() {
            tracing::warn!("cannot tell the service manager (NOTIFY_SOCKET): {error}");
        }
    }
}
