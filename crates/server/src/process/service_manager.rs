//! Notifications to the service manager (sd_notify(3)). They do nothing where NOTIFY_SOCKET is not set.

use std::io::{IsTerminal, stderr};

use sd_notify::NotifyState;

/// The server accepts connections.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload begins; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")]),
        Err(error) => tracing::debug!("cannot notify the service manager of the reload: {error}"),
    }
}

/// The server drains and will end.
pub(crate) fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// The process `pid` is the main process of the service from now on.
pub(crate) fn replaced_by(pid: u32) {
    notify(&[NotifyState::MainPid(pid), NotifyState::Status("handed over to a new process")]);
}

/// The process that was named does not take over.
pub(crate) fn not_replaced() {
    notify(&[NotifyState::MainPid(std::process::id()), NotifyState::Status("serving; an upgrade failed")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        // A terminal on standard error means that no service manager started this process: the variable is a leftover.
        if !stderr().is_terminal() {
            tracing::warn!("cannot notify the service manager (NOTIFY_SOCKET): {error}");
        }
    }
}
