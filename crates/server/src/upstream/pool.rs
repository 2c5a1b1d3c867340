//! Idle connections to a server, of each worker its own: a connection belongs to the runtime of the worker that opened it.

use std::cell::RefCell;

use thread_local::ThreadLocal;

use super::connect::Connected;

#[derive(Debug)]
pub(super) struct Pool {
    /// Most connections that a worker keeps.
    most: usize,
    workers: ThreadLocal<RefCell<Vec<Connected>>>,
}

impl Pool {
    pub(super) fn new(most: usize) -> Self {
        Pool { most, workers: ThreadLocal::new() }
    }

    /// The connection that was kept last and can be used; closed ones are dropped.
    pub(super) fn take(&self) -> Option<Connected> {
        let mut kept = self.workers.get()?.borrow_mut();
        kept.retain(|connected| !connected.sender.is_closed());
        // One whose answer has just ended may not be ready yet.
        let usable = kept.iter().rposition(Connected::take)?;
        Some(kept.remove(usable))
    }

    /// Keeps a connection whose request has been answered, unless there are enough.
    pub(super) fn keep(&self, connected: Connected) {
        let mut kept = self.workers.get_or_default().borrow_mut();
        if !connected.sender.is_closed() && kept.len() < self.most {
            connected.rest();
            kept.push(connected);
        }
    }
}
