//! A connection from accept to close: handshake, or the first bytes without TLS, then HTTP, then an orderly end.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use sealion_h2::PREFACE;
use sealion_tls::{AlertDescription, HandshakeError, Part, Socket, TlsStream};
use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{ListenConfig, proxy_protocol};
use crate::exchange::{Context, Current, End, Error, Listener, LostConnection, Passed, Shared, pass, thaw};
use crate::limits::Admitted;
use crate::observe::Warnings;
use crate::observe::metrics::{self, Deadline, HandshakeFailure};
use crate::passing::{Arrival, Baggage, Driver, Giver, Passes, Turn};
use crate::{http1, http2};

/// How long to send close_notify on an idle connection that makes room for another. TCP takes it at once, unless the
/// client has not read the last response for a long time.
const EVICTION: Duration = Duration::from_secs(1);

/// The settings shared by all connections of a listener, for the life of the process.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Its `[[listen]]`.
    pub(super) config: ListenConfig,
    /// The listener as seen by its requests.
    pub(super) listener: Listener,
}

/// Serves an accepted connection until it is closed. `entrance`: its listener. `slot`: its permit to be served. `None`:
/// it was accepted when the server began to drain, and waits for a permit here, because a successor can no longer serve
/// an accepted connection.
///
/// The steps at the beginning and the end of a connection are boxed: otherwise it would reserve memory for them while
/// it is idle, which is most of its life.
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
            slot = Box::pin(super::worker::slot(&shared)).await;
        }
        let counted = metrics::worker();
        let _open = counted.map(|worker| worker.open.enter());
        let Some((mut stream, protocol, _admitted)) = Box::pin(establish(io, &mut peer, &entrance, &shared)).await
        else {
            return;
        };
        let mut baggage = Baggage::of_new_connection();
        serve_established(protocol, &mut baggage, &mut stream, peer, &entrance, &shared).await;
        drop(slot);
    }
}

/// Serves a connection that another process served, from the moment at which that process knows it.
pub(super) async fn resume(arrival: Arrival, entrance: Arc<Entrance>, shared: Arc<Shared>, slot: OwnedSemaphorePermit) {
    let Some((socket, frozen, resting)) = arrival.wait().await else { return };
    let peer = resting.peer;
    let counted = metrics::worker();
    let _open = counted.map(|worker| worker.open.enter());
    // It was admitted when it was accepted.
    let _admitted = entrance.listener.one_client(peer).and_then(|_| shared.addresses.admit(peer.ip(), u32::MAX));
    let Some(mut stream) = thaw(socket, frozen, peer, &shared) else { return };
    if let Some(worker) = counted {
        worker.taken_over.add(1);
    }
    let protocol = match resting.driver {
        Driver::Http1(_) => Protocol::Http1,
        Driver::Http2(..) => Protocol::Http2,
    };
    let mut baggage = Baggage::of_arrival(resting);
    serve_established(protocol, &mut baggage, &mut stream, peer, &entrance, &shared).await;
    drop(slot);
}

/// Serves requests until the connection ends, or goes on in the process that has taken over. It borrows the stream: an owned one would lie in the task three
/// times, as the caller's variable, as argument and as the variable that it is moved to.
async fn serve_established(
    protocol: Protocol,
    baggage: &mut Baggage,
    stream: &mut TlsStream,
    peer: SocketAddr,
    Entrance { listener, .. }: &Entrance,
    shared: &Shared,
) {
    loop {
        let served = match protocol {
            // Boxed, because otherwise early HTTP/1.1 connections would reserve its memory.
            Protocol::Http2 => Box::pin(http2::connection::serve(baggage, stream, &peer, listener, shared)).await,
            Protocol::Http1 => http1::connection::serve(baggage, stream, &peer, listener, shared).await,
        };
        match served {
            Ok(End::Passing) => {}
            Ok(End::Passed) => return,
            served => return Box::pin(close(stream, served, peer, shared)).await,
        }
        let Some(giver) = shared.giver.get() else { return Box::pin(close(stream, served, peer, shared)).await };
        let turn = match baggage.turn.take() {
            Some(turn) => turn,
            // A client that sends a request meanwhile has its answer first.
            None => match Box::pin(turn_unless_called(giver, stream)).await {
                Some(turn) => turn,
                None => continue,
            },
        };
        baggage.passes = Passes::Never;
        if let Some(resting) = &baggage.resting {
            match Box::pin(pass(stream, resting, giver, shared)).await {
                Passed::Stays => {}
                Passed::Taken => return,
                Passed::Lost => {
                    let (tls, sent) = (stream.info(), stream.payload_sent());
                    let auth = tls.and_then(|info| info.client_auth);
                    let context = Context { shared, listener, remote: peer, auth, server_name: None };
                    let lost = LostConnection { context: &context, tls, path: stream.path(), sent };
                    return baggage.resting.take().into_iter().for_each(|resting| lost.finish(resting.driver));
                }
            }
        }
        drop(turn);
    }
}

/// Waits for the turn of an idle connection to pass. `None`: the client sent something first, or left.
async fn turn_unless_called(giver: &Giver, stream: &mut TlsStream) -> Option<Turn> {
    let mut turn = pin!(giver.turn());
    poll_fn(|cx| match turn.as_mut().poll(cx) {
        Poll::Ready(turn) => Poll::Ready(turn),
        Poll::Pending => stream.poll_wait_for_record(cx).map(|_| None),
    })
    .await
}

/// Everything before the first request: PROXY header, connection limit of the client, handshake. `None`: the connection
/// is over, because it was rejected, or failed. `peer` becomes the client named by a proxy.
async fn establish(
    io: Socket,
    peer: &mut SocketAddr,
    entrance: &Entrance,
    shared: &Shared,
) -> Option<(TlsStream, Protocol, Option<Admitted>)> {
    let counted = metrics::worker();
    let handshaking = counted.map(|worker| worker.handshaking.enter());
    let accepted = Instant::now();
    let current = shared.generations.current();
    let listen = &entrance.config;
    if *listen.proxy_protocol {
        let deadline = current.limits.handshake_timeout.duration();
        match Box::pin(client_behind(&io, *peer, listen, deadline)).await {
            Ok(client) => *peer = client,
            Err(refused) => {
                shared.proxies_refused.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("{peer}: {refused}");
                return None;
            }
        }
    }
    let admitted = admit(*peer, entrance, &current, shared)?;
    if !*listen.tls {
        let mut stream = TlsStream::plain(io, &current.tls.bounds);
        let protocol = first_bytes(&mut stream, *peer, listen.http2(), &current).await?;
        if let Some(worker) = counted {
            stream.report_progress(&worker.progress);
        }
        return Some((stream, protocol, admitted));
    }
    let client = entrance.listener.one_client(*peer);
    let mut stream =
        handshake(io, *peer, client, entrance.listener.place, &current, &shared.certificates_refused).await?;
    drop((current, handshaking));
    let info = stream.info()?;
    if let Some(worker) = counted {
        worker.shook_hands(info, accepted.elapsed());
    }
    tracing::debug!("{peer}: {:?} {}", info.version, info.suite);
    let is_validation = info.is_validation();
    let protocol = if info.alpn.as_deref() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    if let Some(worker) = counted {
        stream.report_progress(&worker.progress);
    }
    if is_validation {
        let _ = stream.shutdown().await;
        return None;
    }
    Some((stream, protocol, admitted))
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Reads the first bytes of a connection without TLS, as many as determine the protocol. The driver finds them in the
/// stream. `None`: the connection is over.
async fn first_bytes(stream: &mut TlsStream, peer: SocketAddr, http2: bool, current: &Current) -> Option<Protocol> {
    let deadline = current.limits.handshake_timeout.duration();
    let seen = timeout(deadline, async {
        loop {
            match stream.buffered() {
                [] => {}
                seen if seen.starts_with(CLIENT_HELLO) => return Ok(None),
                seen if http2 && PREFACE.starts_with(&seen[..seen.len().min(PREFACE.len())]) => {
                    if seen.len() >= PREFACE.len() {
                        return Ok(Some(Protocol::Http2));
                    }
                }
                _ => return Ok(Some(Protocol::Http1)),
            }
            // The client has closed: the bytes are the beginning of a request.
            if stream.read_more().await? == 0 {
                return Ok(Some(Protocol::Http1));
            }
        }
    });
    match seen.await {
        Ok(Ok(Some(protocol))) => return Some(protocol),
        Ok(Ok(None)) => {
            failed(HandshakeFailure::TlsToPlain);
            tracing::debug!(
                "{peer}: began with TLS, which this listener does not have: let the proxy in front speak HTTP to it, or remove tls = false"
            );
            // A TLS client reports a wrong version, and a trace shows the text.
            let _ = stream.respond(&[Part::Bytes(REFUSAL_OF_TLS)]).await;
            let _ = stream.shutdown().await;
        }
        Ok(Err::<_, sealion_tls::Error>(error)) => {
            failed(HandshakeFailure::Io);
            tracing::debug!("{peer}: {error}");
        }
        Err(_) => {
            failed(HandshakeFailure::Timeout);
            tracing::debug!("{peer}: no request within {} s", deadline.as_secs_f32());
        }
    }
    None
}

/// A TLS handshake record (RFC 8446 §5.1). No HTTP method begins with this byte.
const CLIENT_HELLO: &[u8] = b"\x16";

const REFUSAL_OF_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 73\r\nConnection: close\r\n\r\n\
    This port speaks HTTP: write http:// instead of https:// in the address.\n";

/// Counts the connection for its client. `Some(None)`: it is not limited. `None`: it is rejected.
fn admit(peer: SocketAddr, entrance: &Entrance, current: &Current, shared: &Shared) -> Option<Option<Admitted>> {
    let address = entrance.listener.one_client(peer);
    let limit = address.and_then(|address| current.limits.connections_per_address(address, shared.most_connections));
    let Some(most) = limit else { return Some(None) };
    let admitted = shared.addresses.admit(peer.ip(), most);
    if admitted.is_none() {
        failed(HandshakeFailure::Refused);
        tracing::debug!("{peer}: closed before the handshake: this client has {most} connections already");
        return None;
    }
    Some(admitted)
}

/// `None`: the handshake failed; the failure is counted and logged.
async fn handshake(
    io: Socket,
    peer: SocketAddr,
    client: Option<IpAddr>,
    listener: usize,
    current: &Current,
    refused: &Warnings,
) -> Option<TlsStream> {
    let deadline = current.limits.handshake_timeout.duration();
    let Some(config) = current.tls.of(listener) else {
        // A reload cannot remove the certificates of a listener with TLS.
        tracing::error!("{peer}: closed: this configuration has no certificate");
        return None;
    };
    match timeout(deadline, TlsStream::accept_from(io, config, client)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(HandshakeError::ClosedByPeer)) => {
            failed(HandshakeFailure::Closed);
            tracing::debug!("{peer}: closed before the handshake");
        }
        // Logged, because the client's owner will ask, and no response has a line.
        Ok(Err(error @ (HandshakeError::ClientCertificate(_) | HandshakeError::NoCertificate { .. }))) => {
            failed(HandshakeFailure::of(&error));
            match refused.line(format_args!("{peer}: {error}"), "more were rejected since the last such line") {
                None => tracing::debug!("{peer}: {error}"),
                Some(line) => tracing::info!("{line}"),
            }
        }
        Ok(Err(error)) => {
            failed(HandshakeFailure::of(&error));
            tracing::debug!("{peer}: {error}");
        }
        Err(_) => {
            failed(HandshakeFailure::Timeout);
            tracing::debug!("{peer}: no handshake within {} s", deadline.as_secs_f32());
        }
    }
    None
}

/// Closes an established connection: with close_notify after its last response, or with an alert after an error.
/// Without TLS, it closes with FIN, or with a reset during a response. `served`: how HTTP ended.
async fn close(stream: &mut TlsStream, served: Result<End, Error>, peer: SocketAddr, shared: &Shared) {
    end(stream, served, peer, shared).await;
    if let Some(worker) = metrics::worker() {
        worker.ended(&stream.counts());
    }
}

async fn end(stream: &mut TlsStream, served: Result<End, Error>, peer: SocketAddr, shared: &Shared) {
    let counted = metrics::worker();
    let closed = match served {
        Ok(End::Evicted) => {
            if let Some(worker) = counted {
                worker.evicted.add(1);
            }
            // Does not wait for the client's close: an idle client has sent nothing that could cause a reset, and
            // another client waits for the slot.
            let _ = timeout(EVICTION, AsyncWriteExt::shutdown(stream)).await;
            tracing::debug!("{peer}: idle, closed to make room for a new connection");
            return;
        }
        Ok(End::Usual | End::Passing | End::Passed) => {
            let _lingering = counted.map(|worker| worker.lingering.enter());
            stream.shutdown().await.map_err(Error::from)
        }
        Err(error) => Err(error),
    };
    let Err(error) = closed else { return };
    if let Some(worker) = counted {
        worker.ended_by(error.kind());
    }
    let Some(alert) = error.alert() else {
        tracing::debug!("{peer}: {error}");
        return;
    };
    let stall = shared.generations.current().limits.stall_timeout.duration();
    // Clients can cause any alert except this one, which means that the server failed.
    let answered = match stream.info() {
        Some(_) => format!("answered with the alert {alert}"),
        None => "the connection was cut".to_owned(),
    };
    match alert == AlertDescription::INTERNAL_ERROR {
        true => tracing::warn!("{peer}: {error}; {answered}"),
        false => tracing::debug!("{peer}: {error}; {answered}"),
    }
    let _lingering = counted.map(|worker| worker.lingering.enter());
    let _ = timeout(stall, stream.abort(alert)).await;
}

fn failed(failure: HandshakeFailure) {
    if let Some(worker) = metrics::worker() {
        worker.handshake_failed(failure);
        if failure == HandshakeFailure::Timeout {
            worker.timed_out(Deadline::Handshake);
        }
    }
}

/// The client named by the PROXY header; the proxy itself if the header names none.
async fn client_behind(
    io: &Socket,
    proxy: SocketAddr,
    listen: &ListenConfig,
    deadline: Duration,
) -> Result<SocketAddr, String> {
    if !listen.trusts(proxy.ip()) {
        return Err("closed: its address is not in trusted_proxies of this [[listen]]".to_owned());
    }
    match timeout(deadline, proxy_protocol::read(io)).await {
        Ok(Ok(client)) => Ok(client.map_or(proxy, |client| SocketAddr::new(client.ip().to_canonical(), client.port()))),
        Ok(Err(refused)) => Err(format!("closed: {refused}")),
        Err(_) => Err(format!("closed: no PROXY protocol header within {} s", deadline.as_secs_f32())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection's task has this size for as long as the connection is open.
    #[test]
    fn the_task_of_a_connection_holds_its_stream_once() {
        fn size<A, B, C, D, E, F>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
            size_of::<F>()
        }
        let (task, stream) = (size(serve), size_of::<TlsStream>());
        assert!(task < 2 * stream + 128, "{task} bytes, of which the stream takes {stream}");
    }
}
