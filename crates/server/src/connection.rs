//! A connection from accept to close: handshake, then the protocol that ALPN chose, then an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sealion_tls::{HandshakeError, ServerConfig, TlsStream};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::access_log::AccessLog;
use crate::cli::LimitArgs;
use crate::costs::Costs;
use crate::file_cache::Files;
use crate::handler::HandlerOptions;
use crate::http1;
use crate::http1::head::HeadLimits;
use crate::kernel_offer::KernelOffer;
use crate::send_policy::KtlsMode;

/// What all connections share.
pub struct Shared {
    /// What is served.
    pub files: Files,
    /// How requests are answered.
    pub handler: HandlerOptions,
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
    /// Certificate and TLS bounds.
    pub tls: Arc<ServerConfig>,
    /// What the operator chose.
    pub ktls: KtlsMode,
    /// What the kernel offers.
    pub kernel: Arc<KernelOffer>,
    /// What the two paths cost here.
    pub costs: Costs,
    /// Where lines go.
    pub access_log: AccessLog,
    /// Bounds on what a client can take.
    pub limits: LimitArgs,
    /// One for each connection that may be open.
    pub slots: Arc<Semaphore>,
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
    let deadline = shared.limits.handshake_timeout;
    // What only the beginning or the end of a connection needs is boxed: most of its life is in between, and idle.
    let mut stream = match timeout(deadline, Box::pin(TlsStream::accept(io, &shared.tls))).await {
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
    tracing::debug!("{peer}: {:?} {}", stream.info().version, stream.info().suite);
    let ended = match http1::connection::serve(&mut stream, peer, shared).await {
        Ok(()) => Box::pin(stream.shutdown()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        match error.alert() {
            Some(alert) => {
                tracing::info!("{peer}: {error}; answered with the alert {alert}");
                let _ = timeout(shared.limits.stall_timeout, Box::pin(stream.abort(alert))).await;
            }
            None => tracing::info!("{peer}: {error}"),
        }
    }
}
