//! Connections to a server, of each worker its own: a connection belongs to the runtime of the worker that opened it.
//!
//! # Content behind a response that has none
//!
//! A response to HEAD has no content, nor has one with status 204 or 304. If a server sends some all the same, it looks like the response to the next
//! request on the connection, of any client. Bytes that come with the head, or while the connection is idle, close it unused. Content that comes
//! after the next request has left cannot be told from the response: the race is inherent wherever connections are kept behind such responses, and
//! closing them all would cost every application a connection for each 304.
//!
//! A server loses the race once. The pool distrusts it, for all workers, as soon as
//! - bytes follow a response without content, at once or while the connection is idle,
//! - bytes follow any later response on that connection: late content was taken for a response, and the true response came behind it,
//! - or the first bytes behind a response without content, for the next request, are no HTTP.
//!
//! Connections to a distrusted server are closed behind responses without content, and so are connections that have carried one. These requests can still
//! get another request's response:
//! - the first request that loses the race, and each request that is under way on such a connection at that moment,
//! - the requests behind it on the same connection, as long as each leaves before the true response of the request before it comes,
//! - of these, only HEAD where the late content belongs to HEAD: a connection whose last request was HEAD has no other.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
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
use crate::values::Mutex;

#[derive(Debug)]
pub(super) struct Pool {
    /// Most idle connections of HTTP/1.1 that a worker keeps.
    most: usize,
    /// Age at which a connection gets no further request.
    age: Duration,
    trust: Arc<Trust>,
    workers: ThreadLocal<Worker>,
}

/// Whether a server sends nothing behind responses that have no content. All workers share it.
#[derive(Debug)]
struct Trust {
    /// The server, for the log.
    server: Arc<str>,
    is_lost: AtomicBool,
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
        let trust = Arc::new(Trust { server, is_lost: AtomicBool::new(false) });
        Pool { most, age, trust, workers: ThreadLocal::new() }
    }

    /// The connection that was kept last, unless it was closed. The server may close it at the same moment: this race is inherent, and the request
    /// then fails.
    ///
    /// `is_head`: for HEAD. A connection whose last request was HEAD has no other: content of its response that comes late would answer that.
    pub(super) async fn take(&self, is_head: bool) -> Option<http1::Connection> {
        loop {
            let mut connection = self.pop(is_head)?;
            if !connection.past.is_behind_head {
                return Some(connection);
            }
            // Content that is sent behind the head all the same may have come since: the runtime looks at its sockets first.
            yield_now().await;
            if self.trust.may_go_on(&mut connection, &mut Context::from_waker(Waker::noop())) {
                return Some(connection);
            }
        }
    }

    fn pop(&self, is_head: bool) -> Option<http1::Connection> {
        let mut kept = self.workers.get()?.kept.lock();
        let mut noop = Context::from_waker(Waker::noop());
        let now = Instant::now();
        while let Some(index) = kept.last(is_head) {
            let Idle { mut connection, .. } = kept.idle.remove(index);
            if connection.age(now) < self.age && self.trust.may_go_on(&mut connection, &mut noop) {
                return Some(connection);
            }
        }
        None
    }

    /// Bytes that are not a response follow a response without content.
    pub(super) fn distrust(&self) {
        self.trust.lose();
    }

    /// A share of a connection of HTTP/2, or the task to open one.
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
        let mut kept = worker.kept.lock();
        let now = Instant::now();
        if connection.age(now) >= self.age || self.trust.is_lost_for(&connection) {
            return;
        }
        if kept.idle.len() >= self.most && !kept.make_room_for(&connection) {
            return;
        }
        match kept.closer.take() {
            Some(closer) => {
                let may_go_on = self.trust.may_go_on(&mut connection, &mut Context::from_waker(&closer));
                kept.closer = Some(closer);
                if !may_go_on {
                    return;
                }
            }
            None => {
                // Without a runtime the process is ending.
                let Ok(runtime) = Handle::try_current() else { return };
                kept.closer = Some(Waker::noop().clone());
                runtime.spawn(close(Arc::downgrade(&worker.kept), Arc::clone(&self.trust), idle_timeout));
            }
        }
        let Some(counted) = Counted::new() else { return };
        kept.idle.push(Idle { connection, since: now, _counted: counted });
    }
}

impl Kept {
    /// Closes a connection only for HEAD in favour of a connection for every method. `false`: there is no such connection, or `connection` is for HEAD
    /// itself.
    fn make_room_for(&mut self, connection: &http1::Connection) -> bool {
        let of_head = |idle: &Idle| idle.connection.past.is_for_head;
        let oldest = if connection.past.is_for_head { None } else { self.idle.iter().position(of_head) };
        oldest.map(|index| self.idle.remove(index)).is_some()
    }

    /// The connection that was kept last and may have such a request. HEAD takes one for HEAD first: any other would be lost to other requests.
    fn last(&self, is_head: bool) -> Option<usize> {
        let last = |is_for_head| self.idle.iter().rposition(|idle| idle.connection.past.is_for_head == is_for_head);
        last(is_head).or_else(|| last(false))
    }
}

impl Trust {
    /// Whether the connection may have another request: its server has neither closed it nor sent anything. Wakes `cx` when it does.
    fn may_go_on(&self, connection: &mut http1::Connection, cx: &mut Context<'_>) -> bool {
        let unasked = connection.unasked(cx);
        if unasked == Unasked::Bytes && connection.past.was_behind_head {
            self.lose();
        }
        unasked == Unasked::Nothing && !self.is_lost_for(connection)
    }

    /// Whether late content may come on the connection.
    fn is_lost_for(&self, connection: &http1::Connection) -> bool {
        connection.past.was_behind_head && self.is_lost.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: bytes follow a response that has no content, such as one to HEAD: connections to this server are closed behind such \
                 responses. Correct the application",
                self.server
            );
        }
    }
}

/// Closes connections that have been idle for `idle_timeout`, or that their server closes, until no connection is left.
async fn close(kept: Weak<Mutex<Kept>>, trust: Arc<Trust>, idle_timeout: Duration) {
    let mut timer = pin!(sleep_until((Instant::now() + idle_timeout).into()));
    poll_fn(|cx| {
        let Some(kept) = kept.upgrade() else { return Poll::Ready(()) };
        let mut kept = kept.lock();
        loop {
            let now = Instant::now();
            kept.idle.retain_mut(|idle| now - idle.since < idle_timeout && trust.may_go_on(&mut idle.connection, cx));
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
