//! A worker: one thread, one runtime, one listening socket an address. Workers share no connection.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::connection::{self, Phase, Shared};

/// Pause after an accept that failed for want of descriptors or memory. GUESS: short enough to go unnoticed when a
/// connection has ended, long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starts a worker for each set of listeners.
///
/// # Errors
/// A line that says what could not be started.
pub(crate) fn start(sets: Vec<Vec<StdListener>>, shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, String> {
    sets.into_iter()
        .enumerate()
        .map(|(n, listeners)| {
            let shared = Arc::clone(shared);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| format!("cannot start worker {n}: {e}"))?;
            let listeners = {
                let _entered = runtime.enter();
                listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>()
            }
            .map_err(|e| format!("cannot start worker {n}: {e}"))?;
            Builder::new()
                .name(format!("worker-{n}"))
                .spawn(move || runtime.block_on(run(listeners, shared)))
                .map_err(|e| format!("cannot start worker {n}: {e}"))
        })
        .collect()
}

/// Accepts until the server drains, then waits for what is under way.
async fn run(listeners: Vec<TcpListener>, shared: Arc<Shared>) {
    let connections = TaskTracker::new();
    let acceptors = TaskTracker::new();
    for listener in listeners {
        acceptors.spawn(accept(listener, Arc::clone(&shared), connections.clone()));
    }
    acceptors.close();
    acceptors.wait().await;
    connections.close();
    let grace = shared.generations.current().limits().grace.duration();
    let mut phase = shared.phase.clone();
    let ended = tokio::select! {
        ended = timeout(grace, connections.wait()) => ended.is_ok(),
        _ = phase.wait_for(|phase| *phase == Phase::Stopping) => false,
    };
    if !ended {
        shared.cut.fetch_add(connections.len(), Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, connections: TaskTracker) {
    let mut phase = shared.phase.clone();
    let mut short_of_descriptors = false;
    loop {
        let (stream, peer, slot) = tokio::select! {
            biased;
            () = draining(&mut phase) => return,
            accepted = accept_one(&listener, &shared) => match accepted {
                Ok((stream, peer, slot)) => (stream, peer, slot),
                Err(error) if is_the_peers_doing(&error) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut short_of_descriptors, true) {
                        tracing::error!("cannot accept connections: {error}. Trying again every {} ms; raise LimitNOFILE= or lower --max-connections if it stays", ACCEPT_PAUSE.as_millis());
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        if std::mem::take(&mut short_of_descriptors) {
            tracing::info!("accepting connections again");
        }
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            connection::serve(stream, peer, &shared).await;
            drop(slot);
        });
    }
}

/// A connection and a slot for it. One that came beyond the limit waits here for its slot, and more of them in the
/// kernel's queue. The slot comes last: a listener that took it first would keep it from all others while nobody
/// connects.
async fn accept_one(
    listener: &TcpListener,
    shared: &Shared,
) -> io::Result<(TcpStream, std::net::SocketAddr, OwnedSemaphorePermit)> {
    let (stream, peer) = listener.accept().await?;
    let slot = Arc::clone(&shared.slots).acquire_owned().await.map_err(io::Error::other)?;
    Ok((stream, peer, slot))
}

/// accept(2): errors of the new connection itself, which is then gone.
fn is_the_peers_doing(error: &io::Error) -> bool {
    !matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::BADF | Errno::INVAL | Errno::NOTSOCK)
    )
}

/// Until the server no longer takes new work.
pub(crate) async fn draining(phase: &mut watch::Receiver<Phase>) {
    // An error means that the sender is gone, hence that the server ends.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
}
