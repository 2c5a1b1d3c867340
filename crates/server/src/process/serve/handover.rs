//! The hand-over to a process that takes over.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::super::control::{self, Outcome};
use super::super::service_manager;
use super::super::upgrade::{Program, Service, Starting, Successor};
use crate::store::Store;

/// A successor that is starting, if any.
#[derive(Default)]
pub(super) struct Upgrade {
    starting: Starting,
    /// Keeps purges for it.
    store: Option<Arc<Store>>,
    task: Option<JoinHandle<Result<Successor, String>>>,
    /// Where the outcome goes, if `sealion upgrade` ordered it.
    reply: Option<oneshot::Sender<Outcome>>,
}

impl Upgrade {
    /// `store`: keeps purges for a successor while it starts.
    pub(super) fn new(store: Option<Arc<Store>>) -> Self {
        Upgrade { store, ..Upgrade::default() }
    }

    /// Starts a successor on a thread that may block, unless one is starting.
    pub(super) fn start(
        &mut self,
        program: &Program,
        service: &Arc<Service>,
        by: &str,
        reply: Option<oneshot::Sender<Outcome>>,
    ) {
        let refusal = if self.task.is_some() {
            Some("an upgrade is under way already")
        } else if std::process::id() == 1 {
            Some("process 1 cannot be replaced, because the container ends with it: start a new container instead")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            tracing::error!("{by}: {refusal}");
            if let Some(reply) = reply {
                let _ = reply.send(Err(refusal.to_owned()));
            }
        } else {
            self.reply = reply;
            if let Some(store) = &self.store {
                store.successor_starts();
            }
            tracing::info!("{by}: starting {} to take over", program.path().display());
            let (program, service, starting) = (program.clone(), Arc::clone(service), self.starting.clone());
            let start = move || Successor::start(&program, &service, &starting);
            self.task = Some(tokio::task::spawn_blocking(start));
        }
    }

    /// Waits for the successor, for ever if none was started.
    pub(super) async fn ended(&mut self) -> (Result<Successor, String>, Option<oneshot::Sender<Outcome>>) {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await.unwrap_or_else(|error| Err(error.to_string()));
        self.task = None;
        (ended, self.reply.take())
    }

    /// From now on, the process that took over gets the purges of this one. Purges since its start are forwarded on a thread that may block, and `tell` is
    /// called behind them. `None`: no process took over, or there is no cache.
    pub(super) fn forward_purges(
        &self,
        successor: Option<u32>,
        tell: impl FnOnce() + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let (Some(store), Some(pid)) = (&self.store, successor) else {
            if let Some(store) = &self.store {
                store.successor_failed();
            }
            tell();
            return None;
        };
        let forward = control::forward_purges(pid, store.directories().to_vec());
        let purges = store.successor_took_over(Arc::clone(&forward));
        Some(tokio::task::spawn_blocking(move || {
            // It reports its failures.
            drop(forward(&purges));
            tell();
        }))
    }

    /// Stops the successor that is starting, if any.
    pub(super) fn cancel(&mut self) {
        self.starting.cancel();
        // A successor that serves since a moment ago stops when the task's result is dropped.
        drop(self.task.take());
    }
}

/// Gives the service to a successor that serves. Returns its process id.
///
/// # Errors
/// There is no successor, and this process goes on.
pub(super) fn hand_over(ended: Result<Successor, String>) -> Result<(Successor, OwnedFd), String> {
    let handed_over = ended.and_then(|mut successor| {
        let pid = successor.pid();
        service_manager::replaced_by(pid);
        match successor.hand_over() {
            Ok(passing) => Ok((successor, passing)),
            Err(error) => {
                service_manager::not_replaced();
                Err(format!("process {pid} did not take over: {error}"))
            }
        }
    });
    match handed_over {
        Ok((successor, passing)) => {
            tracing::info!("process {} has taken over", successor.pid());
            Ok((successor, passing))
        }
        Err(error) => {
            tracing::error!("the upgrade failed: {error}");
            tracing::error!("this process goes on serving; SIGUSR2 tries again");
            Err(format!("the upgrade failed: {error}\nthe process before goes on serving"))
        }
    }
}
