//! The task of a UDP socket: datagrams in, connections, datagrams out. One reading of the clock serves a round.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::{Instant, SystemTime};
use std::{future::poll_fn, io};

use bytes::BytesMut;
use sealion_h3::ErrorCode;
use sealion_net::{Batch, ReceiveBuffers, UdpSocket};
use sealion_quic::{
    Config, ConnectionKey, Datagram, Ecn, Endpoint, Event, Incoming, Limits, Route, Secrets, TlsConfig, Totals,
    Transmit,
};
use slab::Slab;
use tokio::io::Interest;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep_until};

use super::connection::{Http3, handshake_info};
use super::failure::handshake_failure;
use super::link::Link;
use super::tls::CurrentTls;
use crate::exchange::{Context, Listener, Shared};
use crate::limits::Moment;
use crate::observe::metrics::{self, Http3Metrics};
use crate::values::{Mutex, Phase, draining};

/// A UDP socket of one worker, and its place in the group of sockets at its address.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: UdpSocket,
    pub(crate) route: Route,
    pub(crate) secrets: Secrets,
}

/// Calls to receive in a round, after which the received packets are answered.
const MAX_RECEIVES: usize = 8;

/// Batches that a round sends, after which other tasks have their turn.
const MAX_BATCHES: usize = 64;

/// Serves the clients of a socket, until the server drains and no connection is left.
///
/// # Errors
/// The socket cannot be waited for.
pub(crate) async fn serve(bound: Bound, listener: &Listener, shared: &Arc<Shared>) -> io::Result<()> {
    let Bound { socket, route, secrets } = bound;
    let port = socket.local_addr()?.port();
    let current = CurrentTls { shared: Arc::downgrade(shared), listener: listener.place };
    let tls = TlsConfig::chosen_by(Arc::new(current)).map_err(io::Error::other)?;
    let limits =
        Limits { connections: shared.most_connections, ..shared.generations.current().http3.transport.clone() };
    let (streams, stream_window) = (limits.bidirectional_streams, limits.stream_window.into());
    let endpoint = Endpoint::new(Config { tls, limits, secrets, route }, Instant::now(), SystemTime::now());
    let mut phase = shared.phase.clone();
    let mut drained = pin!(draining(&mut phase));
    let mut driver = Driver {
        readiness: tokio::net::UdpSocket::from_std(socket.as_std().try_clone()?)?,
        socket,
        port,
        streams,
        stream_window,
        listener,
        shared,
        hub: Arc::new(Hub { state: Mutex::new(State { endpoint, inboxes: Slab::new() }), ready: Mutex::default() }),
        connections: Slab::new(),
        by_key: Vec::new(),
        buffers: ReceiveBuffers::default(),
        out: Vec::new(),
        unsent: None,
        timer: Box::pin(sleep_until(tokio::time::Instant::now())),
        counted: Totals::default(),
    };
    let mut is_draining = false;
    poll_fn(|cx| {
        is_draining = is_draining || drained.as_mut().poll(cx).is_ready();
        driver.poll(cx, is_draining)
    })
    .await;
    Ok(())
}

/// The endpoint, which the socket's task and its connections share. They run on one thread, so that none waits for the lock.
struct Hub {
    state: Mutex<State>,
    ready: Mutex<Ready>,
}

struct State {
    endpoint: Endpoint,
    /// Events of connections that they have not seen.
    inboxes: Slab<VecDeque<Event>>,
}

/// Connections that have something to do.
#[derive(Default)]
struct Ready {
    connections: Vec<usize>,
    task: Option<Waker>,
}

/// Wakes one connection.
struct Bell {
    hub: Arc<Hub>,
    connection: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.hub.ready.lock();
        if !ready.connections.contains(&self.connection) {
            ready.connections.push(self.connection);
        }
        if let Some(task) = ready.task.take() {
            task.wake();
        }
    }
}

/// A connection that has not ended.
struct Running<'a> {
    future: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    waker: Waker,
    key: ConnectionKey,
}

struct Driver<'a> {
    socket: UdpSocket,
    /// The same socket, for the runtime.
    readiness: tokio::net::UdpSocket,
    port: u16,
    /// The number of streams that the transport permits on a connection.
    streams: u32,
    /// Bytes of one of them that may have come and not been read.
    stream_window: u64,
    listener: &'a Listener,
    shared: &'a Arc<Shared>,
    hub: Arc<Hub>,
    /// By the same index as their inboxes.
    connections: Slab<Running<'a>>,
    /// The index of the connection that has a key.
    by_key: Vec<Option<usize>>,
    buffers: ReceiveBuffers,
    out: Vec<u8>,
    /// A batch in `out` that the kernel did not take.
    unsent: Option<Transmit>,
    timer: Pin<Box<Sleep>>,
    /// The part of the endpoint's totals that is in the worker's metrics.
    counted: Totals,
}

impl Driver<'_> {
    /// One round.
    fn poll(&mut self, cx: &mut TaskContext<'_>, is_draining: bool) -> Poll<()> {
        // Connections that are woken meanwhile are seen at the end.
        self.hub.ready.lock().task = None;
        let now = Instant::now();
        let mut is_again = self.receive(cx, now);
        self.hub.state.lock().endpoint.handle_timeouts(now);
        self.accept(now, is_draining);
        self.take_events();
        self.run_ready();
        self.take_events();
        is_again |= self.transmit(cx, now);
        self.count();
        {
            let mut ready = self.hub.ready.lock();
            is_again |= !ready.connections.is_empty();
            ready.task = Some(cx.waker().clone());
        }
        if is_draining && self.connections.is_empty() && self.unsent.is_none() && !is_again {
            return Poll::Ready(());
        }
        let next = self.hub.state.lock().endpoint.next_timeout();
        if let Some(next) = next {
            if self.timer.deadline() != next.into() {
                self.timer.as_mut().reset(next.into());
            }
            is_again |= self.timer.as_mut().poll(cx).is_ready();
        }
        if is_again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Adds the counts of the endpoint to the worker's metrics.
    fn count(&mut self) {
        let Some(Http3Metrics { lost_bytes, retries, .. }) = metrics::worker().map(|worker| &worker.http3) else {
            return;
        };
        let totals = self.hub.state.lock().endpoint.totals();
        lost_bytes.add(totals.lost_bytes - self.counted.lost_bytes);
        retries.add(totals.retries - self.counted.retries);
        self.counted = totals;
    }

    /// Receives the packets that have come. Returns whether there may be more.
    fn receive(&mut self, cx: &mut TaskContext<'_>, now: Instant) -> bool {
        let mut state = self.hub.state.lock();
        let (endpoint, buffers) = (&mut state.endpoint, &mut self.buffers);
        let counted = metrics::worker().map(|worker| &worker.http3);
        for _ in 0..MAX_RECEIVES {
            if self.readiness.poll_recv_ready(cx).is_pending() {
                return false;
            }
            let (mut datagrams, mut bytes) = (0, 0);
            let received = self.readiness.try_io(Interest::READABLE, || {
                self.socket.receive(buffers, |received| {
                    (datagrams, bytes) = (datagrams + 1, bytes + received.bytes.len() as u64);
                    let data = BytesMut::from(received.bytes);
                    let (remote, ecn) = (received.remote, Ecn::from_bits(received.ecn));
                    endpoint.receive(now, Datagram { remote, local: received.local, ecn, data });
                })
            });
            // An error concerns a datagram that was sent (ICMP).
            drop(received);
            counted.into_iter().for_each(|http3| http3.received(datagrams, bytes));
        }
        true
    }

    /// Accepts new clients, as far as there are slots.
    fn accept(&mut self, now: Instant, is_draining: bool) {
        loop {
            let mut state = self.hub.state.lock();
            let Some(incoming) = state.endpoint.next_incoming() else { return };
            if is_draining {
                match *self.shared.phase.borrow() {
                    // The client tries again, and reaches the successor.
                    Phase::HandedOver => state.endpoint.ignore(incoming),
                    _ => state.endpoint.refuse(incoming),
                }
                continue;
            }
            let Ok(slot) = Arc::clone(&self.shared.slots).try_acquire_owned() else {
                // The client tries again, and may find the slot of a connection that is closed for it.
                self.shared.idle.evict(Moment::now());
                state.endpoint.ignore(incoming);
                continue;
            };
            let (remote, local) = addresses(&incoming, self.port);
            let Some(key) = state.endpoint.accept(now, incoming, None) else { continue };
            if let Some(worker) = metrics::worker() {
                worker.accepted.add(1);
            }
            let index = state.inboxes.insert(VecDeque::new());
            drop(state);
            let waker = Waker::from(Arc::new(Bell { hub: Arc::clone(&self.hub), connection: index }));
            let (hub, streams, stream_window) = (Arc::clone(&self.hub), self.streams, self.stream_window);
            let seat = Seat { hub, index, key, remote, local, streams, stream_window, _slot: slot };
            let future = Box::pin(run(seat, self.listener, self.shared, waker.clone()));
            let inserted = self.connections.insert(Running { future, waker, key });
            debug_assert_eq!(inserted, index, "inboxes and connections are inserted and removed together");
            if self.by_key.len() <= key.get() {
                self.by_key.resize(key.get() + 1, None);
            }
            self.by_key[key.get()] = Some(index);
            self.connections[index].waker.wake_by_ref();
        }
    }

    /// Hands events to their connections.
    fn take_events(&mut self) {
        let mut state = self.hub.state.lock();
        let State { endpoint, inboxes } = &mut *state;
        while let Some((key, event)) = endpoint.next_event() {
            let Some(Some(index)) = self.by_key.get(key.get()).copied() else { continue };
            if let Event::Closed(_) = event {
                self.by_key[key.get()] = None;
            }
            if let (Some(inbox), Some(running)) = (inboxes.get_mut(index), self.connections.get(index)) {
                inbox.push_back(event);
                running.waker.wake_by_ref();
            }
        }
    }

    /// Runs the connections that have something to do.
    fn run_ready(&mut self) {
        let ready = std::mem::take(&mut self.hub.ready.lock().connections);
        for index in ready {
            let Some(Running { future, waker, key }) = self.connections.get_mut(index) else { continue };
            if future.as_mut().poll(&mut TaskContext::from_waker(waker)).is_ready() {
                if let Some(slot) = self.by_key.get_mut(key.get()).filter(|slot| **slot == Some(index)) {
                    *slot = None;
                }
                self.connections.remove(index);
                self.hub.state.lock().inboxes.remove(index);
            }
        }
    }

    /// Sends the packets of connections. Returns whether there may be more.
    fn transmit(&mut self, cx: &mut TaskContext<'_>, now: Instant) -> bool {
        for _ in 0..MAX_BATCHES {
            let transmit = match self.unsent.take() {
                Some(transmit) => transmit,
                None => {
                    let mut state = self.hub.state.lock();
                    let segments = self.socket.max_segments();
                    self.out.clear();
                    match state.endpoint.poll_transmit(now, segments, &mut self.out) {
                        Some(transmit) => transmit,
                        None => return false,
                    }
                }
            };
            if self.readiness.poll_send_ready(cx).is_pending() {
                self.unsent = Some(transmit);
                return false;
            }
            let batch = batch(&transmit, &self.out);
            // Another error loses datagrams, which QUIC repairs.
            let sent = self.readiness.try_io(Interest::WRITABLE, || self.socket.send(&batch));
            if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                self.unsent = Some(transmit);
            } else if let Some(worker) = metrics::worker() {
                let datagrams = transmit.segment.map_or(1, |segment| transmit.size.div_ceil(segment.max(1)));
                worker.http3.sent(datagrams as u64, transmit.size as u64);
            }
        }
        true
    }
}

/// Closes the remaining connections when the grace time ends: clients learn at once that their responses are incomplete.
impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.connections.clear();
        let now = Instant::now();
        let mut state = self.hub.state.lock();
        state.endpoint.close_all(now, ErrorCode::H3_INTERNAL_ERROR.0, b"the server ends");
        self.out.clear();
        while let Some(transmit) = state.endpoint.poll_transmit(now, 1, &mut self.out) {
            // Datagrams that the kernel does not take now are lost.
            let _ = self.socket.send(&batch(&transmit, &self.out));
            self.out.clear();
        }
    }
}

fn batch<'b>(transmit: &Transmit, bytes: &'b [u8]) -> Batch<'b> {
    let Transmit { remote, local, ecn, segment, .. } = *transmit;
    Batch { remote, local, ecn: ecn.map_or(0, Ecn::bits), bytes, segment }
}

/// The ends of a client's connection. An address of IPv4 has no other form.
fn addresses(incoming: &Incoming, port: u16) -> (SocketAddr, Option<SocketAddr>) {
    let remote = incoming.remote();
    let local = incoming.local().map(|address| SocketAddr::new(address.to_canonical(), port));
    (SocketAddr::new(remote.ip().to_canonical(), remote.port()), local)
}

/// A connection's place at its endpoint.
struct Seat {
    hub: Arc<Hub>,
    index: usize,
    key: ConnectionKey,
    remote: SocketAddr,
    local: Option<SocketAddr>,
    /// The number of streams that the transport permits.
    streams: u32,
    /// Bytes of one of them that may have come and not been read.
    stream_window: u64,
    _slot: OwnedSemaphorePermit,
}

/// Serves a connection from its handshake to its end.
async fn run(seat: Seat, listener: &Listener, shared: &Shared, waker: Waker) {
    let Seat { hub, index, key, remote, local, streams, stream_window, _slot } = seat;
    let counted = metrics::worker();
    let _open = counted.map(|worker| (worker.open.enter(), worker.http3.open.enter()));
    let (handshaking, accepted) = (counted.map(|worker| worker.handshaking.enter()), Instant::now());
    let connected = poll_fn(|_| {
        let mut state = hub.state.lock();
        while let Some(event) = state.inboxes[index].pop_front() {
            match event {
                Event::Connected => return Poll::Ready(handshake_info(&mut state.endpoint, key)),
                Event::Closed(reason) => {
                    tracing::debug!("{remote}: QUIC: no handshake: {reason:?}");
                    counted.into_iter().for_each(|worker| worker.handshake_failed(handshake_failure(&reason)));
                    return Poll::Ready(None);
                }
                _ => {}
            }
        }
        Poll::Pending
    });
    let Some(info) = connected.await else { return };
    drop(handshaking);
    if let Some(worker) = counted {
        worker.shook_hands(&info, accepted.elapsed());
        worker.http3.handshakes.add(1);
    }
    // The client has shown that the address is its own: only now it counts.
    let current = shared.generations.current();
    let address = listener.one_client(remote);
    let most = address.and_then(|address| current.limits.connections_per_address(address, shared.most_connections));
    let admitted = most.map(|most| shared.addresses.admit(remote.ip(), most));
    if let Some(None) = admitted {
        let why = b"too many connections";
        return hub.state.lock().endpoint.close(Instant::now(), key, ErrorCode::H3_EXCESSIVE_LOAD.0, why);
    }
    // The transport's limits do not change with a reload.
    let limits = (sealion_h3::Limits { streams, ..current.http3.protocol.clone() }, stream_window);
    drop(current);
    let server_name = info.server_name.clone();
    let context = Context { shared, listener, remote, auth: info.client_auth, server_name: server_name.as_deref() };
    let idle = shared.idle.register(waker);
    let mut connection = Box::new(Http3::new(&context, key, idle, Link::new(info, local), limits));
    poll_fn(|cx| {
        let mut state = hub.state.lock();
        let State { endpoint, inboxes } = &mut *state;
        connection.poll(cx, endpoint, &mut inboxes[index])
    })
    .await;
    connection.finish_all().await;
}
