//! Connections to a server, of each worker its own: a connection belongs to the runtime of the worker that opened it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use thread_local::ThreadLocal;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::connect::ConnectError;
use super::http1::{self, Unasked};
use super::http2::{Lease, Shared};
use super::message::Reading;

#[derive(Debug)]
pub(super) struct Pool {
    /// The server, for the log.
    server: Arc<str>,
    /// Most idle connections of HTTP/1.1 that a worker keeps.
    most: usize,
    /// Age at which a connection gets no further request.
    age: Duration,
    workers: ThreadLocal<Worker>,
}

/// The connections of a worker.
#[derive(Debug, Default)]
struct Worker {
    /// Of HTTP/1.1.
    kept: Arc<Mutex<Kept>>,
    /// All of HTTP/2, with how much they read.
    shared: RefCell<Vec<(Reading, Arc<Opening>)>>,
}

/// Idle connections of HTTP/1.1.
#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Idle>,
    /// Wakes the task that closes them, if it runs.
    closer: Option<Waker>,
    /// The server was seen to send bytes behind a response that has no content. Such bytes, a moment later, would be taken for the response to the next
    /// request, so no connection is kept behind such a response.
    is_distrusted: bool,
}

#[derive(Debug)]
struct Idle {
    connection: http1::Connection,
    since: Instant,
    _counted: Counted,
}

/// Idle connections of all workers to all servers, and how many there may be: the limit on open files is the process's too.
static IDLE: AtomicUsize = AtomicUsize::new(0);
static MAX_IDLE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bounds the idle connections of HTTP/1.1 that the process keeps to all servers together.
pub(crate) fn bound_idle_connections(most: usize) {
    MAX_IDLE.store(most, Ordering::Relaxed);
}

/// One of the idle connections of the process, until dropped.
#[derive(Debug)]
struct Counted;

impl Counted {
    /// `None`: there are enough.
    fn new() -> Option<Self> {
        let counted = Counted;
        (IDLE.fetch_add(1, Ordering::Relaxed) < MAX_IDLE.load(Ordering::Relaxed)).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        IDLE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of HTTP/2. Requests that come while it is being opened wait for it.
pub(super) type Opening = OnceCell<Result<Shared, ConnectError>>;

impl Pool {
    pub(super) fn new(server: Arc<str>, most: usize, age: Duration) -> Self {
        Pool { server, most, age, workers: ThreadLocal::new() }
    }

    /// The connection that was kept last, unless it was closed. The server may close it at the same moment: this race is inherent, and the request
    /// then fails.
    ///
    /// `is_head`: for HEAD. A connection whose last request was HEAD has no other: content of its response that comes late would answer that.
    pub(super) async fn take(&self, is_head: bool) -> Option<http1::Connection> {
        loop {
            let mut connection = self.pop(is_head)?;
            if !connection.is_behind_head {
                return Some(connection);
            }
            // Content that is sent behind the head all the same may have come since: the runtime looks at its sockets first.
            yield_now().await;
            if self.may_go_on(&mut connection) {
                return Some(connection);
            }
        }
    }

    fn pop(&self, is_head: bool) -> Option<http1::Connection> {
        let mut kept = lock(&self.workers.get()?.kept);
        let mut noop = Context::from_waker(Waker::noop());
        while let Some(index) = kept.last(is_head) {
            let Idle { mut connection, .. } = kept.idle.remove(index);
            if connection.age() < self.age && kept.may_go_on(&mut connection, &self.server, &mut noop) {
                return Some(connection);
            }
        }
        None
    }

    fn may_go_on(&self, connection: &mut http1::Connection) -> bool {
        let mut kept = lock(&self.workers.get_or_default().kept);
        kept.may_go_on(connection, &self.server, &mut Context::from_waker(Waker::noop()))
    }

    /// Bytes follow a response that has no content.
    pub(super) fn distrust(&self) {
        lock(&self.workers.get_or_default().kept).distrust(&self.server);
    }

    /// A share of a connection of HTTP/2, or one that has to be opened.
    pub(super) fn share(&self, reading: Reading) -> Result<Lease, Arc<Opening>> {
        let shared = &mut self.workers.get_or_default().shared.borrow_mut();
        shared.retain(|(_, opening)| match opening.get() {
            // Requests in progress keep it open.
            Some(Ok(shared)) => !shared.is_closed() && shared.age() < self.age,
            Some(Err(_)) => false,
            None => true,
        });
        let mut alike = shared.iter().filter(|(other, _)| *other == reading).map(|(_, opening)| opening);
        if let Some(lease) = alike.clone().find_map(|opening| opening.get()?.as_ref().ok()?.lease()) {
            return Ok(lease);
        }
        let opening = alike.find(|opening| opening.get().is_none()).cloned();
        Err(opening.unwrap_or_else(|| {
            let opening = Arc::new(Opening::new());
            shared.push((reading, Arc::clone(&opening)));
            opening
        }))
    }

    /// Keeps a connection whose request has been answered, unless there are enough, until it has been idle for `idle_timeout` or the server closes
    /// it.
    pub(super) fn keep(&self, mut connection: http1::Connection, idle_timeout: Duration) {
        let worker = self.workers.get_or_default();
        let mut kept = lock(&worker.kept);
        if connection.age() >= self.age
            || kept.idle.len() >= self.most
            || (connection.is_behind_head && kept.is_distrusted)
        {
            return;
        }
        match kept.closer.take() {
            Some(closer) => {
                let may_go_on = kept.may_go_on(&mut connection, &self.server, &mut Context::from_waker(&closer));
                kept.closer = Some(closer);
                if !may_go_on {
                    return;
                }
            }
            None => {
                // Without a runtime the process is ending.
                let Ok(runtime) = Handle::try_current() else { return };
                kept.closer = Some(Waker::noop().clone());
                runtime.spawn(close(Arc::downgrade(&worker.kept), Arc::clone(&self.server), idle_timeout));
            }
        }
        let Some(counted) = Counted::new() else { return };
        kept.idle.push(Idle { connection, since: Instant::now(), _counted: counted });
    }
}

impl Kept {
    /// The connection that was kept last and may have such a request: of HEAD rather than another, which would be lost to other requests.
    fn last(&self, is_head: bool) -> Option<usize> {
        let last = |is_for_head| self.idle.iter().rposition(|idle| idle.connection.is_for_head == is_for_head);
        last(is_head).or_else(|| last(false))
    }

    /// Whether the server has neither closed the connection nor sent anything. Wakes `cx` when it does.
    fn may_go_on(&mut self, connection: &mut http1::Connection, server: &str, cx: &mut Context<'_>) -> bool {
        let unasked = connection.unasked(cx);
        if unasked == Unasked::Bytes && connection.is_behind_head {
            self.distrust(server);
        }
        unasked == Unasked::Nothing
    }

    fn distrust(&mut self, server: &str) {
        if !std::mem::replace(&mut self.is_distrusted, true) {
            tracing::warn!(
                "{server}: bytes follow a response that has no content, such as one to HEAD: connections to this server are closed behind such \
                 responses. Correct the application"
            );
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes connections that have been idle for `idle_timeout`, or that their server closes, until there is none.
async fn close(kept: Weak<Mutex<Kept>>, server: Arc<str>, idle_timeout: Duration) {
    let mut timer = pin!(sleep_until((Instant::now() + idle_timeout).into()));
    poll_fn(|cx| {
        let Some(kept) = kept.upgrade() else { return Poll::Ready(()) };
        let mut kept = lock(&kept);
        loop {
            let now = Instant::now();
            let mut idle = std::mem::take(&mut kept.idle);
            idle.retain_mut(|idle| {
                now - idle.since < idle_timeout && kept.may_go_on(&mut idle.connection, &server, cx)
            });
            kept.idle = idle;
            let Some(oldest) = kept.idle.iter().map(|idle| idle.since).min() else {
                kept.closer = None;
                return Poll::Ready(());
            };
            timer.as_mut().reset((oldest + idle_timeout).into());
            if timer.as_mut().poll(cx).is_pending() {
                kept.closer = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    })
    .await;
}
