//! A connection from accept to close: handshake, then the protocol that ALPN chose, then an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sealion_tls::{HandshakeError, Socket, TlsStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{ListenConfig, proxy_protocol};
use crate::exchange::{Error, Shared};
use crate::http1;
use crate::observe::metrics::{self, Deadline, HandshakeFailure};

/// A listener as its connections see it, from the start of the process to its end.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Its `[[listen]]`.
    pub(super) config: ListenConfig,
    /// Where clients without TLS are sent.
    pub(super) https_port: u16,
}

/// Serves an accepted connection until it is closed. `entrance`: the listener it came by. `slot`: its right to be served; `None`: it waits
/// for one, because it came when the server began to drain. Once taken out of the queue it is nobody else's any more.
#[expect(clippy::manual_async_fn, reason = "an async fn would keep each argument twice, in every idle connection")]
pub(crate) fn serve(
    io: Socket,
    mut peer: SocketAddr,
    entrance: Arc<Entrance>,
    shared: Arc<Shared>,
    mut slot: Option<OwnedSemaphorePermit>,
) -> impl Future<Output = ()> {
    async move {
        if slot.is_none() {
            slot = Box::pin(Arc::clone(&shared.slots).acquire_owned()).await.ok();
        }
        let counted = metrics::worker();
        let _open = counted.map(|worker| worker.open.enter());
        let handshaking = counted.map(|worker| worker.handshaking.enter());
        let accepted = Instant::now();
        let current = shared.generations.current();
        let deadline = current.limits.handshake_timeout.duration();
        let listen = &entrance.config;
        if *listen.proxy_protocol {
            match Box::pin(client_behind(&io, peer, listen, deadline)).await {
                Ok(client) => peer = client,
                Err(why) => {
                    shared.proxies_refused.fetch_add(1, Ordering::Relaxed);
                    tracing::info!("{peer}: {why}");
                    return;
                }
            }
        }
        let _admitted = match current.limits.max_connections_per_address {
            // Clients of a Unix socket have no address: they are not one client.
            _ if peer.ip().is_unspecified() => None,
            None => None,
            Some(most) => match shared.addresses.admit(peer.ip(), most.get() as u32) {
                None => {
                    failed(HandshakeFailure::Refused);
                    tracing::debug!("{peer}: closed before the handshake: this client has {most} connections already");
                    return;
                }
                admitted => admitted,
            },
        };
        if !*listen.tls {
            let challenge = |token: &str| shared.tls.http.answer(token);
            if let Err(why) = Box::pin(http1::plain::serve(io, &current, entrance.https_port, challenge)).await
            {
                tracing::debug!("{peer}: without TLS: {why}");
            }
            return;
        }
        // What only the beginning or the end of a connection needs is boxed: most of its life is in between, and idle.
        let mut stream = match timeout(deadline, Box::pin(TlsStream::accept(io, &current.tls))).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(HandshakeError::ClosedByPeer)) => {
                failed(HandshakeFailure::Closed);
                tracing::debug!("{peer}: closed before the handshake");
                return;
            }
            Ok(Err(error)) => {
                failed(HandshakeFailure::of(&error));
                tracing::info!("{peer}: {error}");
                return;
            }
            Err(_) => {
                failed(HandshakeFailure::Timeout);
                tracing::info!("{peer}: no handshake within {} s", deadline.as_secs_f32());
                return;
            }
        };
        drop((current, handshaking));
        if let Some(worker) = counted {
            worker.shook_hands(stream.info(), accepted.elapsed());
            stream.report_progress(&worker.progress);
        }
        tracing::debug!("{peer}: {:?} {}", stream.info().version, stream.info().suite);
        if stream.info().is_validation() {
            let _ = Box::pin(stream.shutdown()).await;
            return;
        }
        let ended = match http1::connection::serve(&mut stream, &peer, &shared).await {
            Ok(()) => {
                let _lingering = counted.map(|worker| worker.lingering.enter());
                Box::pin(stream.shutdown()).await.map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        if let (Some(worker), Err(error)) = (counted, &ended) {
            worker.ended_by(error.kind());
        }
        if let Err(error) = ended {
            match error.alert() {
                Some(alert) => {
                    let stall = shared.generations.current().limits.stall_timeout.duration();
                    tracing::info!("{peer}: {error}; answered with the alert {alert}");
                    let _lingering = counted.map(|worker| worker.lingering.enter());
                    let _ = timeout(stall, Box::pin(stream.abort(alert))).await;
                }
                None => tracing::info!("{peer}: {error}"),
            }
        }
        if let Some(worker) = counted {
            worker.ended(&stream.counts());
        }
        drop(slot);
    }
}

fn failed(failure: HandshakeFailure) {
    if let Some(worker) = metrics::worker() {
        worker.handshake_failed(failure);
        if failure == HandshakeFailure::Timeout {
            worker.timed_out(Deadline::Handshake);
        }
    }
}

/// The client that a proxy speaks for; the proxy itself, if it speaks for nobody.
async fn client_behind(
    io: &Socket,
    proxy: SocketAddr,
    listen: &ListenConfig,
    deadline: Duration,
) -> Result<SocketAddr, String> {
    if !listen.trusts(proxy.ip()) {
        return Err("closed: it is in none of the trusted_proxies of this [[listen]]".to_owned());
    }
    match timeout(deadline, proxy_protocol::read(io)).await {
        Ok(Ok(client)) => Ok(client.map_or(proxy, |client| SocketAddr::new(client.ip().to_canonical(), client.port()))),
        Ok(Err(refused)) => Err(format!("closed: {refused}")),
        Err(_) => Err(format!("closed: no PROXY protocol header within {} s", deadline.as_secs_f32())),
    }
}
