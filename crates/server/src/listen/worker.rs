//! A worker: one thread, one runtime, its own listening sockets. A connection stays with the worker that accepted it.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use sealion_tls::Socket;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::connection::{self, Entrance};
use super::{ListenConfig, Listener, ListeningSocket};
use crate::exchange::{Alternative, Shared};
use crate::files::cache::SWEEP;
use crate::http3;
use crate::limits::Moment;
use crate::observe::metrics;
use crate::passing::{Arrival, Refused};
use crate::store;
use crate::values::{Phase, Timeout, draining};

/// The pause after an accept that failed for lack of descriptors or memory. Ten attempts per second cost no measurable
/// processor time, and a client waits at most this long after a descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time without such a failure after which the shortage counts as over: ten pauses, so that a single success does
/// not end it.
const ACCEPT_RECOVERED: Duration = Duration::from_secs(1);

/// The address of clients of Unix sockets: unspecified, so that it is in no network that is allowed or denied.
const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Starts a worker for each set of listeners, and waits until all of them run. `listen`: the configuration at the start, to which
/// [`Listener::wanted`] refers.
///
/// # Errors
/// One line with the worker that could not be started.
pub(crate) fn start(
    sets: Vec<Vec<Listener>>,
    listen: &[ListenConfig],
    shared: &Arc<Shared>,
) -> Result<(Vec<JoinHandle<()>>, Places), String> {
    let entrance = |(place, config): (usize, &ListenConfig)| {
        let alternative = http3_port(&sets, place).map(|port| Alternative::http3(port, ALTERNATIVE_MAX_AGE));
        let listener = crate::exchange::Listener { alternative, ..config.listener(place) };
        Arc::new(Entrance { config: config.clone(), listener })
    };
    let entrances: Vec<_> = listen.iter().enumerate().map(entrance).collect();
    let (entered, all_entered) = mpsc::channel();
    let mut workers = Vec::new();
    let threads: Result<Vec<_>, _> = sets
        .into_iter()
        .enumerate()
        .map(|(n, listeners)| {
            let (shared, entered, busy) = (Arc::clone(shared), entered.clone(), shared.busy.token());
            let (worker, arrivals) = unbounded_channel();
            workers.push(worker);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| format!("cannot start worker {n}: {e}"))?;
            let acceptors = {
                let _entered = runtime.enter();
                listeners
                    .into_iter()
                    .map(|listener| Acceptor::new(listener, &entrances))
                    .collect::<io::Result<Vec<_>>>()
            }
            .map_err(|e| format!("cannot start worker {n}: {e}"))?;
            Builder::new()
                .name(format!("worker-{n}"))
                .spawn(move || {
                    shared.metrics.enter_worker();
                    drop(entered);
                    runtime.block_on(run(acceptors, arrivals, shared, busy));
                    // The runtime's threads may wait for a disk that hangs.
                    runtime.shutdown_timeout(crate::store::CLOSING);
                })
                .map_err(|e| format!("cannot start worker {n}: {e}"))
        })
        .collect();
    drop(entered);
    // Nothing is ever sent: recv returns when the last worker has dropped its sender.
    let _: Result<Infallible, _> = all_entered.recv();
    Ok((threads?, Places { workers, entrances, shared: Arc::downgrade(shared), next: AtomicUsize::new(0) }))
}

/// Gives connections that another process served to the workers, in turn.
pub(crate) struct Places {
    workers: Vec<UnboundedSender<Arrived>>,
    entrances: Vec<Arc<Entrance>>,
    shared: Weak<Shared>,
    next: AtomicUsize,
}

/// A connection for a worker.
struct Arrived {
    arrival: Arrival,
    entrance: Arc<Entrance>,
    slot: OwnedSemaphorePermit,
}

impl Places {
    /// Gives a connection a place and a worker.
    ///
    /// # Errors
    /// No place is free, or its listener is gone.
    pub(crate) fn give(&self, arrival: Arrival) -> Result<(), Refused> {
        let shared = self.shared.upgrade().filter(|shared| *shared.phase.borrow() == Phase::Serving);
        let shared = shared.ok_or(Refused::Ending)?;
        let fits = |entrance: &&Arc<Entrance>| {
            *entrance.listener.name == *arrival.resting.listener && *entrance.config.tls == arrival.frozen.has_tls()
        };
        let entrance = Arc::clone(self.entrances.iter().find(fits).ok_or(Refused::Listener)?);
        let slot = Arc::clone(&shared.slots).try_acquire_owned().map_err(|_| Refused::Places)?;
        let worker = &self.workers[self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len()];
        worker.send(Arrived { arrival, entrance, slot }).map_err(|_| Refused::Ending)
    }
}

/// Seconds that clients remember HTTP/3 of a listener. INHERITED: Caddy's and nginx' documentation's example.
const ALTERNATIVE_MAX_AGE: u64 = 86_400;

/// The UDP port of a listener with HTTP/3.
fn http3_port(sets: &[Vec<Listener>], place: usize) -> Option<u16> {
    let own = sets.first()?.iter().filter(|listener| listener.wanted == place);
    own.filter_map(|listener| match &listener.socket {
        ListeningSocket::Udp(bound) => Some(bound.socket.local_addr().ok()?.port()),
        ListeningSocket::Tcp(_) | ListeningSocket::Unix(_) => None,
    })
    .next()
}

/// A listening socket in the worker's runtime.
enum Acceptor {
    Stream(Streams),
    Udp { bound: Box<http3::Bound>, entrance: Arc<Entrance> },
}

/// A socket that accepts connections.
struct Streams {
    socket: Accepting,
    entrance: Arc<Entrance>,
}

enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    fn new(listener: Listener, entrances: &[Arc<Entrance>]) -> io::Result<Self> {
        let socket = match listener.socket {
            ListeningSocket::Tcp(socket) => Accepting::Tcp(TcpListener::from_std(socket)?),
            ListeningSocket::Unix(socket) => Accepting::Unix(UnixListener::from_std(socket)?),
            ListeningSocket::Udp(bound) => {
                return Ok(Acceptor::Udp { bound, entrance: Arc::clone(&entrances[listener.wanted]) });
            }
        };
        Ok(Self::Stream(Streams { socket, entrance: Arc::clone(&entrances[listener.wanted]) }))
    }
}

impl Streams {
    async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match &self.socket {
            Accepting::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // An IPv6 socket from systemd may also accept IPv4, as mapped addresses.
                Ok((stream.into(), SocketAddr::new(peer.ip().to_canonical(), peer.port())))
            }
            Accepting::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((stream.into(), NO_ADDRESS))
            }
        }
    }
}

/// Serves connections, and meanwhile closes deleted files.
async fn run(
    listening: Vec<Acceptor>,
    arrivals: UnboundedReceiver<Arrived>,
    shared: Arc<Shared>,
    busy: TaskTrackerToken,
) {
    let store = shared.generations.latest().store.clone();
    let served = serve(listening, arrivals, shared, busy);
    match store {
        Some(store) => tokio::select! {
            () = served => {}
            () = every(store::SWEEP, || store.sweep()) => {}
        },
        None => served.await,
    }
}

/// Accepts until the server drains, then waits for the connections. `busy`: shows that some have not ended.
async fn serve(
    listening: Vec<Acceptor>,
    arrivals: UnboundedReceiver<Arrived>,
    shared: Arc<Shared>,
    busy: TaskTrackerToken,
) {
    let connections = TaskTracker::new();
    let acceptors = TaskTracker::new();
    for acceptor in listening {
        match acceptor {
            Acceptor::Stream(streams) => {
                acceptors.spawn(accept(streams, Arc::clone(&shared), connections.clone()));
            }
            Acceptor::Udp { bound, entrance } => {
                connections.spawn(serve_http3(*bound, entrance, Arc::clone(&shared)));
            }
        }
    }
    acceptors.spawn(take(arrivals, Arc::clone(&shared), connections.clone()));
    acceptors.close();
    tokio::select! {
        () = acceptors.wait() => {}
        // Uses the newest configuration, so that older ones can be dropped.
        () = every(SWEEP, || shared.generations.current().files.sweep(std::time::Instant::now())) => {}
    }
    connections.close();
    let all_ended = async {
        connections.wait().await;
        drop(busy);
        // Clients of other workers may read data that a task of this worker fetches.
        shared.busy.close();
        shared.busy.wait().await;
    };
    let ended = tokio::select! {
        () = all_ended => true,
        () = grace_ends(&shared) => false,
    };
    if !ended {
        shared.cut.fetch_add(connections.len(), Ordering::Relaxed);
    }
}

/// Waits until connections that have not ended are cut: `upgrade_grace` after another process has taken over, or `grace` after the order to stop.
async fn grace_ends(shared: &Shared) {
    let (grace, upgrade_grace) = {
        let limits = &shared.generations.latest().limits;
        (limits.grace.duration(), limits.upgrade_grace.map(Timeout::duration))
    };
    let mut phase = shared.phase.clone();
    draining(&mut phase).await;
    if *phase.borrow() == Phase::HandedOver {
        let stopped = phase.wait_for(|phase| *phase > Phase::HandedOver);
        let is_stopped = match upgrade_grace {
            Some(grace) => timeout(grace, stopped).await.is_ok(),
            // An error means that the server ends.
            None => stopped.await.is_ok(),
        };
        if !is_stopped {
            return;
        }
    }
    let _ = timeout(grace, phase.wait_for(|phase| *phase == Phase::Stopping)).await;
}

/// Repeats `action`; never ends.
async fn every(pause: Duration, action: impl Fn()) {
    loop {
        sleep(pause).await;
        action();
    }
}

async fn serve_http3(bound: http3::Bound, entrance: Arc<Entrance>, shared: Arc<Shared>) {
    if let Err(error) = http3::serve(bound, &entrance.listener, &shared).await {
        tracing::error!("HTTP/3 is not served on {}: {error}", entrance.config.address.name);
    }
}

/// Serves connections that another process served, until this one drains too.
async fn take(mut arrivals: UnboundedReceiver<Arrived>, shared: Arc<Shared>, connections: TaskTracker) {
    let mut phase = shared.phase.clone();
    loop {
        let arrived = tokio::select! {
            biased;
            arrived = arrivals.recv() => arrived,
            () = draining(&mut phase), if !arrivals.is_closed() => {
                // Connections that were given before are served.
                arrivals.close();
                continue;
            }
        };
        let Some(Arrived { arrival, entrance, slot }) = arrived else { return };
        connections.spawn(connection::resume(arrival, entrance, Arc::clone(&shared), slot));
    }
}

async fn accept(acceptor: Streams, shared: Arc<Shared>, connections: TaskTracker) {
    let mut phase = shared.phase.clone();
    let mut last_failure = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = draining(&mut phase) => return,
            () = recovered(last_failure) => {
                last_failure = None;
                shared.metrics.short_of_descriptors(false);
                tracing::info!("accepting connections again");
                continue;
            }
            accepted = acceptor.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_the_connection(&error) => continue,
            Err(error) => {
                if let Some(worker) = metrics::worker() {
                    worker.accept_errors.add(1);
                }
                if last_failure.replace(Instant::now()).is_none() {
                    shared.metrics.short_of_descriptors(true);
                    tracing::error!(
                        "cannot accept connections: {error}. Trying again every {} ms; if this lasts, raise LimitNOFILE= or lower --max-connections",
                        ACCEPT_PAUSE.as_millis()
                    );
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Some(worker) = metrics::worker() {
            worker.accepted.add(1);
        }
        // A connection beyond the limit waits here for a slot, which the longest idle connection has to give up;
        // further connections wait in the kernel's queue. The slot is acquired after accept, because an idle listener
        // that held a slot would keep it from busy listeners.
        let slot = tokio::select! {
            biased;
            slot = slot(&shared) => Some(slot),
            () = draining(&mut phase) => None,
        };
        let last = slot.is_none();
        connections.spawn(connection::serve(
            socket,
            peer,
            Arc::clone(&acceptor.entrance),
            Arc::clone(&shared),
            slot.flatten(),
        ));
        if last {
            return;
        }
    }
}

/// Waits for a slot. If none is free, the longest idle connection is closed.
pub(super) async fn slot(shared: &Shared) -> Option<OwnedSemaphorePermit> {
    if let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() {
        return Some(slot);
    }
    let mut slot = pin!(Arc::clone(&shared.slots).acquire_owned());
    loop {
        let pause = shared.idle.evict(Moment::now());
        if let Ok(slot) = timeout(pause, slot.as_mut()).await {
            return slot.ok();
        }
    }
}

/// Waits until [`ACCEPT_RECOVERED`] has passed since the last failure to accept, or for ever if there was no failure.
/// One success is not enough: with a full queue and few descriptors, successes and failures alternate.
async fn recovered(last_failure: Option<Instant>) {
    match last_failure {
        Some(at) => sleep_until(at + ACCEPT_RECOVERED).await,
        None => std::future::pending().await,
    }
}

/// Whether an error of accept(2) only concerns the new connection, which is then gone.
fn is_of_the_connection(error: &io::Error) -> bool {
    !matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::BADF | Errno::INVAL | Errno::NOTSOCK)
    )
}
