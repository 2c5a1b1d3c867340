//! Orders from `sealion reload`, `sealion upgrade`, `sealion purge` and `sealion cache`, and their outcome.
//!
//! ```text
//! command ─► "\"reload\"" ─► control socket ─► Server::serve ─► "ok\nconfiguration 2 is in use" or "failed\n…" ─► command
//! ```
//!
//! The socket is abstract (unix(7)): it needs no directory that both sides can reach, and it ends with the process. Its name has the
//! process id, and the server answers only root and its own user. The command trusts the socket only if the process that listens has that id.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::store::{Forward, Purge, Target};

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
    /// Shows the cache, or what it has under a URL.
    Cache {
        url: Option<String>,
    },
}

/// What came of an order: a line for the operator.
pub(crate) type Outcome = Result<String, String>;

impl Order {
    fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an order has a JSON form")
    }
}

/// Binds the socket of this process. Call it before privileges are given up. `None`: another process has the name, or there are no such
/// sockets; signals still work.
pub(super) fn bind() -> Option<UnixListener> {
    let bound = address(std::process::id()).and_then(|address| UnixListener::bind_addr(&address));
    let bound = bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
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

/// Gives an order to the server with this process id, and waits for its outcome.
pub(crate) fn order(pid: u32, order: &Order) -> Result<String, NotDone> {
    order_within(LONGEST_ANSWER, pid, order)
}

fn order_within(patience: Duration, pid: u32, order: &Order) -> Result<String, NotDone> {
    let lost = |error: io::Error| NotDone::NotTaken(format!("process {pid} takes no orders: {error}"));
    let mut stream = address(pid).and_then(|address| UnixStream::connect_addr(&address)).map_err(lost)?;
    let listening = sockopt::socket_peercred(&stream).map_err(|error| lost(error.into()))?;
    if u32::try_from(listening.pid.as_raw_nonzero().get()) != Ok(pid) {
        return Err(NotDone::NotTaken(format!("process {} listens in place of process {pid}", listening.pid)));
    }
    stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(patience))).map_err(lost)?;
    let mut answer = String::new();
    let exchanged = stream
        .write_all(order.to_line().as_bytes())
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .and_then(|()| stream.read_to_string(&mut answer));
    exchanged.map_err(|error| NotDone::Lost(format!("process {pid} did not answer: {error}")))?;
    match answer.split_once('\n') {
        Some((OK, text)) => Ok(text.to_owned()),
        Some((FAILED, text)) => Err(NotDone::Failed(text.to_owned())),
        _ => Err(NotDone::Lost(format!("process {pid} ended before it answered; its log says why"))),
    }
}

/// Has the process that took over apply purges, by orders; no purges ask it for its directories. Says once that it did not. One that shares a directory reads
/// there what it does not take, as where another process has taken over from it.
pub(super) fn forward_purges(pid: u32, directories: Vec<PathBuf>) -> Forward {
    let (is_shared, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
    Arc::new(move |mut purges| {
        loop {
            let (batch, rest) = purges.split_at(batch(purges));
            purges = rest;
            let order = Order::ApplyPurges { purges: batch.to_vec(), directories: directories.clone() };
            match order_within(LONGEST_PURGE, pid, &order) {
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

/// The servers that take orders, by process id: those of this network and process namespace.
pub(crate) fn running() -> Vec<u32> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let prefix = format!("@{}", name_before_pid());
    let mut pids: Vec<u32> = sockets
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().last()?.strip_prefix(&prefix)?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{}{pid}", name_before_pid()))
}

/// Process ids repeat in each process namespace, while containers on the host's network share the names of sockets.
fn name_before_pid() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
    let namespace = namespace.as_ref().and_then(|link| link.to_str()).unwrap_or_default();
    format!("sealion-{}-", namespace.trim_matches(|c: char| !c.is_ascii_digit()))
}

const OK: &str = "ok";
const FAILED: &str = "failed";

/// What a process says of purges that were forwarded to it, if it reads a purge file of the process that forwarded them.
pub(super) const SHARED: &str = "shared";

/// Orders that are answered at a time; further connections wait.
const MOST_AT_ONCE: usize = 8;

/// Longer than every order: the path of a URL has at most a mebioctet, and each octet at most three characters.
const LONGEST_ORDER: u64 = 8 << 20;

/// Time for a command to write its order, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than a purge takes while disks hang.
const LONGEST_PURGE: Duration = Duration::from_secs(30);

/// Longer than an upgrade may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(90);
