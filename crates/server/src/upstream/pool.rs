//! Connections to a server, of each worker its own: a connection belongs to the runtime of the worker that opened it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use thread_local::ThreadLocal;
use tokio::sync::OnceCell;

use super::connect::{ConnectError, Connected, Shared, Whole};

#[derive(Debug)]
pub(super) struct Pool {
    /// Most idle connections of HTTP/1.1 that a worker keeps.
    most: usize,
    /// Age at which a connection gets no further request.
    age: Duration,
    workers: ThreadLocal<RefCell<Worker>>,
}

/// The connections of a worker.
#[derive(Debug, Default)]
struct Worker {
    /// Idle ones of HTTP/1.1.
    kept: Vec<Whole>,
    /// All of HTTP/2.
    shared: Vec<Arc<Opening>>,
}

/// A connection of HTTP/2. Requests that come while it is being opened wait for it.
pub(super) type Opening = OnceCell<Result<Shared, ConnectError>>;

impl Pool {
    pub(super) fn new(most: usize, age: Duration) -> Self {
        Pool { most, age, workers: ThreadLocal::new() }
    }

    /// The connection that was kept last and can be used; closed ones are dropped.
    pub(super) fn take(&self) -> Option<Connected> {
        let kept = &mut self.workers.get()?.borrow_mut().kept;
        kept.retain(|whole| !whole.is_closed() && whole.age() < self.age);
        // One whose answer has just ended may not be ready yet.
        let usable = kept.iter().rposition(Whole::take)?;
        Some(Connected::Http1(kept.remove(usable)))
    }

    /// A share of a connection of HTTP/2, or one that has to be opened.
    pub(super) fn share(&self) -> Result<Connected, Arc<Opening>> {
        let shared = &mut self.workers.get_or_default().borrow_mut().shared;
        shared.retain(|opening| match opening.get() {
            // Requests in progress keep it open.
            Some(Ok(shared)) => !shared.is_closed() && shared.age() < self.age,
            Some(Err(_)) => false,
            None => true,
        });
        if let Some(lease) = shared.iter().find_map(|opening| opening.get()?.as_ref().ok()?.lease()) {
            return Ok(Connected::Http2(lease));
        }
        let opening = shared.iter().find(|opening| opening.get().is_none()).cloned();
        Err(opening.unwrap_or_else(|| {
            let opening = Arc::new(Opening::new());
            shared.push(Arc::clone(&opening));
            opening
        }))
    }

    /// Keeps a connection whose request has been answered, unless there are enough. Those of HTTP/2 are here already.
    pub(super) fn keep(&self, connected: Connected) {
        let Connected::Http1(whole) = connected else { return };
        let kept = &mut self.workers.get_or_default().borrow_mut().kept;
        if !whole.is_closed() && whole.age() < self.age && kept.len() < self.most {
            whole.rest();
            kept.push(whole);
        }
    }
}
