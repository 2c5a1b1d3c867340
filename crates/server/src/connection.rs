//! A connection from accept to close: handshake, then the protocol that ALPN chose, then an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sealion_tls::{HandshakeError, TlsStream};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::access_log::AccessLog;
use crate::costs::Costs;
use crate::generation::Generations;
use crate::http1;
use crate::kernel_offer::KernelOffer;
use crate::limits::Addresses;

/// What all connections share, from the start of the process to its end.
pub struct Shared {
    /// What the configuration says now.
    pub generations: Generations,
    /// What the kernel offers.
    pub kernel: Arc<KernelOffer>,
    /// What the two paths cost here.
    pub costs: Costs,
    /// Where lines go.
    pub access_log: AccessLog,
    /// One for each connection that may be open.
    pub slots: Arc<Semaphore>,
    /// Connections of each client.
    pub addresses: Arc<Addresses>,
    /// Whether the server goes on.
    pub phase: watch::Receiver<Phase>,
    /// Connections that did not end within the grace time.
    pub cut: AtomicUsize,
}

/// Whether the server goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Yes.
    Serving,
    /// What is being sent is finished; nothing new begins.
    Draining,
    /// It ends now.
    Stopping,
}

/// Serves an accepted connection until it is closed.
pub(crate) async fn serve(io: TcpStream, peer: SocketAddr, shared: &Shared) {
    let current = shared.generations.current();
    let _admitted = match current.limits().max_connections_per_address {
        None => None,
        Some(most) => match shared.addresses.admit(peer.ip(), most.get() as u32) {
            None => {
                tracing::debug!("{peer}: closed before the handshake: this client has {most} connections already");
                return;
            }
            admitted => admitted,
        },
    };
    let deadline = current.limits().handshake_timeout.duration();
    // What only the beginning or the end of a connection needs is boxed: most of its life is in between, and idle.
    let mut stream = match timeout(deadline, Box::pin(TlsStream::accept(io, &current.tls))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(HandshakeError::ClosedByPeer)) => {
            tracing::debug!("{peer}: closed before the handshake");
            return;
        }
        Ok(Err(error)) => {
            tracing::info!("{peer}: {error}");
            return;
        }
        Err(_) => {
            tracing::info!("{peer}: no handshake within {} s", deadline.as_secs_f32());
            return;
        }
    };
    drop(current);
    tracing::debug!("{peer}: {:?} {}", stream.info().version, stream.info().suite);
    let ended = match http1::connection::serve(&mut stream, peer, shared).await {
        Ok(()) => Box::pin(stream.shutdown()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        match error.alert() {
            Some(alert) => {
                let stall = shared.generations.current().limits().stall_timeout.duration();
                tracing::info!("{peer}: {error}; answered with the alert {alert}");
                let _ = timeout(stall, Box::pin(stream.abort(alert))).await;
            }
            None => tracing::info!("{peer}: {error}"),
        }
    }
}
