//! A client: one connection after another, one request after another.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::connection::{Answer, Common, Connection};
use super::failure::{Failure, Kind};
use super::run::Progress;
use super::schedule::Starts;
use super::tally::Tally;

/// State shared by a thread's clients.
pub(super) struct Shared {
    pub(super) common: Common,
    pub(super) starts: Starts,
    pub(super) tally: RefCell<Tally>,
    pub(super) calls: Option<u64>,
    pub(super) timeout: Duration,
    pub(super) progress: Arc<Progress>,
}

impl Shared {
    /// Whether a connection that has had `calls` requests may have another.
    pub(super) fn permits(&self, calls: u64) -> bool {
        self.calls.is_none_or(|all| calls < all)
    }

    pub(super) fn answered(&self, due: Instant, started: Instant, answer: &Answer) {
        let mut tally = self.tally.borrow_mut();
        tally.answered(due, answer);
        tally.lasted(started, answer.ended);
        self.progress.add_request();
    }

    pub(super) fn failed(&self, started: Instant, failure: Failure) {
        let mut tally = self.tally.borrow_mut();
        tally.failures.count(failure);
        tally.lasted(started, Instant::now());
        self.progress.add_failure();
    }
}

/// How long a client waits after a refused connection, so that a closed port does not cause a busy loop.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_millis(10);

/// A connection that has completed a request; `None` if it failed, which is counted.
pub(super) async fn opened(shared: &Shared) -> Option<Box<Connection>> {
    let started = Instant::now();
    let mut current = None;
    let answer = Patience::new(shared.timeout).within(started, request(shared, &mut current)).await;
    match answer {
        Some(Ok(_)) => current,
        Some(Err(failure)) => {
            shared.failed(started, failure);
            None
        }
        None => {
            let words = format!("no whole connection within {:?}", shared.timeout);
            shared.failed(started, Failure::new(Kind::Timeout, words));
            None
        }
    }
}

/// `connection`: an open connection, if any.
pub(super) async fn work(shared: Rc<Shared>, connection: Option<Box<Connection>>) -> std::io::Result<()> {
    let mut patience = Patience::new(shared.timeout);
    let mut connection = connection.map(|connection| (connection, 0));
    while let Some(due) = shared.starts.next().await? {
        let started = Instant::now();
        let (mut current, calls) = match connection.take() {
            Some((current, calls)) => (Some(current), calls),
            None => (None, 0),
        };
        let answer = patience.within(started, request(&shared, &mut current)).await;
        let answer = answer.unwrap_or_else(|| {
            let limit = format!("within {:?}", shared.timeout);
            let words = match &mut current {
                Some(connection) => connection.lost(&format!("no complete response {limit}:")).words,
                None => format!("no whole connection {limit}"),
            };
            Err(Failure::new(Kind::Timeout, words))
        });
        match answer {
            Ok(answer) => {
                shared.answered(due, started, &answer);
                connection = current.and_then(|current| keep(&shared, current, calls + 1));
            }
            Err(failure) => {
                let refused = failure.kind == Kind::Connect;
                shared.failed(started, failure);
                if refused {
                    tokio::time::sleep(AFTER_REFUSAL).await;
                }
            }
        }
    }
    if let Some((connection, _)) = connection {
        connection.close();
    }
    Ok(())
}

/// A client of HTTP/2, which keeps `streams` requests open at a time.
pub(super) async fn work_on_streams(shared: Rc<Shared>, streams: usize) -> std::io::Result<()> {
    let mut patience = Patience::new(shared.timeout);
    let mut due = shared.starts.next().await?;
    while let Some(first) = due {
        let started = Instant::now();
        let opened = patience.within(started, Connection::open(&shared.common)).await;
        let (mut connection, opening) = match opened {
            Some(Ok(opened)) => opened,
            failed => {
                let late = || Failure::new(Kind::Timeout, format!("no whole connection within {:?}", shared.timeout));
                shared.failed(started, failed.and_then(Result::err).unwrap_or_else(late));
                tokio::time::sleep(AFTER_REFUSAL).await;
                due = shared.starts.next().await?;
                continue;
            }
        };
        shared.tally.borrow_mut().opened(opening);
        connection.ask(&shared.common, first);
        due = None;
        let mut over = false;
        let mut calls = 1;
        loop {
            while !over && shared.permits(calls) && !connection.ended() && connection.open_streams() < streams {
                match shared.starts.next().await? {
                    Some(next) => connection.ask(&shared.common, next),
                    None => over = true,
                }
                calls += 1;
            }
            if connection.open_streams() == 0 {
                break;
            }
            let started = Instant::now();
            let late = || Err(Failure::new(Kind::Timeout, format!("no complete response within {:?}", shared.timeout)));
            match patience.within(started, connection.answers(&shared.common)).await.unwrap_or_else(late) {
                Ok(answers) => {
                    for (answer, due) in answers {
                        shared.answered(due, answer.sent, &answer);
                    }
                }
                Err(failure) => {
                    // The other streams fail with the connection.
                    for _ in 0..connection.open_streams().max(1) {
                        shared.failed(started, failure.clone());
                    }
                    break;
                }
            }
        }
        connection.close();
        if !over {
            due = shared.starts.next().await?;
        }
    }
    Ok(())
}

/// Makes one request, on the current connection or a new one.
async fn request(shared: &Shared, current: &mut Option<Box<Connection>>) -> Result<Answer, Failure> {
    if let Some(connection) = current {
        return connection.request(&shared.common).await;
    }
    let (connection, opening) = Connection::open(&shared.common).await?;
    shared.tally.borrow_mut().opened(opening);
    let answer = current.insert(Box::new(connection)).request(&shared.common).await?;
    shared.tally.borrow_mut().first_answer();
    Ok(answer)
}

/// The connection and its number of calls, if it may be used for another.
fn keep(shared: &Shared, connection: Box<Connection>, calls: u64) -> Option<(Box<Connection>, u64)> {
    if !shared.permits(calls) || connection.ended() {
        connection.close();
        return None;
    }
    Some((connection, calls))
}

/// A time limit for successive operations, which costs nothing until it is reached: the timer of an earlier operation
/// keeps running, and is reset only when it fires.
pub(super) struct Patience {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// `None`: it did not end in time, measured from `started`.
    pub(super) async fn within<T>(&mut self, started: Instant, what: impl Future<Output = T>) -> Option<T> {
        let deadline = started + self.limit;
        let mut what = std::pin::pin!(what);
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = what.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            while self.timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(None);
                }
                self.timer.as_mut().reset(deadline.into());
            }
            Poll::Pending
        })
        .await
    }
}
