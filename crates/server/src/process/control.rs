//! Orders from `sealion reload`, `sealion upgrade`, `sealion purge`, `sealion cache`, `sealion drain` and `sealion ready`, and their outcome.
//!
//! ```text
//! command ─► "\"reload\"" ─► control socket ─► Server::serve ─► "ok\nconfiguration 2 is in use" or "failed\n…" ─► command
//! ```
//!
//! The socket is abstract (unix(7)): it needs no directory that both sides can reach, and it ends with the process. Its name has the
//! process id, and the server answers only root and its own user. Any program can take such a name: `servers.rs` tells which socket a command trusts.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::servers::{self, Peer};
use crate::store::{Forward, Purge, Target};
use crate::upstream::AdminState;
use crate::values::printable;

/// An order to the running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    Reload,
    Upgrade,
    /// Removes stored responses, or makes them stale (`soft`).
    Purge {
        target: Target,
        soft: bool,
    },
    /// Applies purges of the process that this one replaced, which has these directories. The outcome is [`SHARED`] if this one reads a purge file of theirs.
    ApplyPurges {
        purges: Vec<Purge>,
        directories: Vec<PathBuf>,
    },
    /// Gives a server of an upstream a state.
    ServerState {
        upstream: String,
        server: String,
        state: AdminState,
    },
    /// Shows the cache, or its content under a URL.
    Cache {
        url: Option<String>,
    },
}

/// The outcome of an order: a line for the operator.
pub(crate) type Outcome = Result<String, String>;

impl Order {
    fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an order has a JSON form")
    }
}

/// Binds the socket of this process. Call it before privileges are given up. `None`: there are no such sockets; signals still work.
pub(super) fn bind() -> Option<UnixListener> {
    let bound = servers::bind().and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.inspect_err(|error| tracing::warn!("cannot listen for `sealion reload` and `sealion upgrade`: {error}")).ok()
}

/// The orders that arrive.
pub(super) struct Orders {
    orders: mpsc::Receiver<(Order, oneshot::Sender<Outcome>)>,
    task: Option<tokio::task::JoinHandle<()>>,
    /// One permit for each order that is being answered.
    places: Arc<Semaphore>,
}

impl Orders {
    /// Needs a runtime.
    pub(super) fn listen(listener: Option<UnixListener>) -> io::Result<Self> {
        let (sender, orders) = mpsc::channel(1);
        let listener = listener.map(tokio::net::UnixListener::from_std).transpose()?;
        let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
        let task = listener.map(|listener| tokio::spawn(accept(listener, sender, Arc::clone(&places))));
        Ok(Orders { orders, task, places })
    }

    /// The next order, and where its outcome goes; never if there is no socket.
    pub(super) async fn next(&mut self) -> (Order, oneshot::Sender<Outcome>) {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Closes the socket, and waits until the outcomes that are known have been sent: this process may end at once after it.
    pub(super) async fn finish(self) {
        let Orders { orders, task, places } = self;
        drop(orders);
        if let Some(task) = task {
            task.abort();
        }
        let _ = timeout(PATIENCE, places.acquire_many(MOST_AT_ONCE as u32)).await;
    }
}

async fn accept(
    listener: tokio::net::UnixListener,
    orders: mpsc::Sender<(Order, oneshot::Sender<Outcome>)>,
    places: Arc<Semaphore>,
) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let orders = orders.clone();
                tokio::spawn(async move {
                    let _place = place;
                    let _ = answer(stream, orders).await;
                });
            }
            // Out of descriptors, for instance.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(
    mut stream: tokio::net::UnixStream,
    orders: mpsc::Sender<(Order, oneshot::Sender<Outcome>)>,
) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let outcome = if uid != 0 && uid != geteuid().as_raw() {
        Err("only root and the server's own user may order that: use sudo".to_owned())
    } else {
        match timeout(PATIENCE, read_order(&mut stream)).await.map_err(io::Error::from)?? {
            Some(order) => {
                let (reply, outcome) = oneshot::channel();
                let _ = orders.send((order, reply)).await;
                // Without an answer, the server is ending.
                outcome.await.unwrap_or_else(|_| Err("the server is stopping".to_owned()))
            }
            None => Err("unknown order: use the `sealion` of the same version".to_owned()),
        }
    };
    let (word, text) = match &outcome {
        Ok(text) => (OK, text),
        Err(text) => (FAILED, text),
    };
    timeout(PATIENCE, stream.write_all(format!("{word}\n{text}").as_bytes())).await?
}

async fn read_order(stream: &mut tokio::net::UnixStream) -> io::Result<Option<Order>> {
    let mut line = Vec::new();
    stream.take(LONGEST_ORDER).read_to_end(&mut line).await?;
    Ok(serde_json::from_slice(&line).ok())
}

/// Why an order was not carried out.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// No server took it: it does not run, or is too old.
    NotTaken(String),
    /// The connection ended without an answer: it may be carried out.
    Lost(String),
    /// The server says why.
    Failed(String),
}

/// Gives an order to a server, and waits for its outcome. Of the text, characters that a terminal would obey are escaped.
pub(crate) fn order(peer: Peer, order: &Order) -> Result<String, NotDone> {
    order_within(LONGEST_ANSWER, peer, order)
}

fn order_within(patience: Duration, peer: Peer, order: &Order) -> Result<String, NotDone> {
    let Peer { pid, mut stream } = peer;
    let end = Instant::now() + patience;
    let lost = |error: io::Error| NotDone::Lost(format!("process {pid} did not answer: {error}"));
    stream.set_write_timeout(Some(patience)).map_err(lost)?;
    stream.write_all(order.to_line().as_bytes()).map_err(lost)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(lost)?;
    let response = read_response(&mut stream, end).map_err(lost)?;
    match response.split_once('\n') {
        Some((OK, text)) => Ok(printable(text)),
        Some((FAILED, text)) => Err(NotDone::Failed(printable(text))),
        _ => Err(NotDone::Lost(format!("process {pid} ended before it answered; its log says why"))),
    }
}

/// Reads to the end of the stream.
///
/// # Errors
/// The end does not come in time, or the response is longer than any server's.
fn read_response(stream: &mut UnixStream, end: Instant) -> io::Result<String> {
    let mut response = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(String::from_utf8_lossy(&response).into_owned()),
            Ok(taken) => response.extend_from_slice(&piece[..taken]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if response.len() > MAX_RESPONSE {
            return Err(io::Error::other(format!("its response is longer than {MAX_RESPONSE} bytes")));
        }
    }
}

/// Has the process that took over apply purges, by orders; no purges ask it for its directories. Says once if it did not. A process that shares a directory
/// reads there the purges that it does not take, as when another process has taken over from it.
pub(super) fn forward_purges(pid: u32, directories: Vec<PathBuf>) -> Forward {
    let (is_shared, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
    Arc::new(move |mut purges| {
        loop {
            let (batch, rest) = purges.split_at(batch(purges));
            purges = rest;
            let order = Order::ApplyPurges { purges: batch.to_vec(), directories: directories.clone() };
            let done = Peer::child(pid).map_err(NotDone::NotTaken);
            match done.and_then(|peer| order_within(LONGEST_PURGE, peer, &order)) {
                Ok(text) => is_shared.store(text == SHARED, Ordering::Relaxed),
                Err(NotDone::NotTaken(_) | NotDone::Lost(_)) if is_shared.load(Ordering::Relaxed) => return Ok(()),
                Err(NotDone::NotTaken(why) | NotDone::Lost(why) | NotDone::Failed(why)) => {
                    let what = format!("process {pid}, which has taken over, did not purge: {why}");
                    if !has_failed.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "cache: {what}; purges at this process may not reach it: order them there again"
                        );
                    }
                    return Err(what);
                }
            }
            if purges.is_empty() {
                return Ok(());
            }
        }
    })
}

/// How many of these purges fit into an order.
fn batch(purges: &[Purge]) -> usize {
    let mut octets = 0;
    let fits = purges.iter().take_while(|purge| {
        octets += serde_json::to_vec(purge).map_or(0, |purge| purge.len() as u64 + 1);
        octets < LONGEST_ORDER / 2
    });
    fits.count().max(1).min(purges.len())
}

const OK: &str = "ok";
const FAILED: &str = "failed";

/// A process's reply to forwarded purges, if it reads a purge file of the process that forwarded them.
pub(super) const SHARED: &str = "shared";

/// Orders that are answered at a time; further connections wait.
const MOST_AT_ONCE: usize = 8;

/// Longer than every order: the path of a URL has at most 1 MiB, and each byte takes at most three characters.
const LONGEST_ORDER: u64 = 8 << 20;

/// Longer than every response: a line for each variant of a URL is the longest.
const MAX_RESPONSE: usize = 16 << 20;

/// Time for a command to write its order, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than a purge takes while disks hang.
const LONGEST_PURGE: Duration = Duration::from_secs(30);

/// Longer than an upgrade may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a command if a server answers so.
    fn told(response: &[u8]) -> Result<String, NotDone> {
        let (near, mut far) = UnixStream::pair().unwrap();
        let response = response.to_vec();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut order = Vec::new();
                far.read_to_end(&mut order).unwrap();
                // The command may have read enough.
                let _ = far.write_all(&response);
            });
            order(Peer { pid: 4711, stream: near }, &Order::Reload)
        })
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_server_says() {
        assert!(matches!(told(b"ok\none\ntwo"), Ok(text) if text == "one\ntwo"));
        assert!(matches!(told(b"ok\n\x1b[2Jdone\r"), Ok(text) if text == "\\u{1b}[2Jdone\\u{d}"));
        assert!(matches!(told(b"failed\n\x9b31m\x07"), Err(NotDone::Failed(text)) if text == "\u{fffd}31m\\u{7}"));
        assert!(matches!(told(b"\x1b[2J"), Err(NotDone::Lost(text)) if !text.contains('\u{1b}')));
    }

    #[test]
    fn a_response_without_end_is_not_kept() {
        let endless = vec![b'x'; MAX_RESPONSE + 1];
        assert!(matches!(told(&endless), Err(NotDone::Lost(text)) if text.contains("longer than 16777216 bytes")));
    }
}
