//! The connections of a worker.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use quinn_proto::{ConnectionHandle, DatagramEvent, Dir, EndpointEvent, ServerConfig, StreamEvent, VarInt};

use crate::clock::Clock;
use crate::config::{Limits, Secrets, TlsConfig, endpoint_config, server_config};
use crate::connection::Connection;
use crate::event::{CloseReason, ConnectionKey, Datagram, Event, Transmit};
use crate::route::Route;
use crate::timers::Timers;

/// The parts of an endpoint.
#[derive(Debug, Clone)]
pub struct Config {
    /// TLS of connections that the driver accepts without another configuration.
    pub tls: TlsConfig,
    /// The limits.
    pub limits: Limits,
    /// The secrets that all processes share.
    pub secrets: Secrets,
    /// Where the endpoint's socket is.
    pub route: Route,
}

/// All connections of a worker, without a socket and without a clock.
///
/// Invariants, after which the tests are named: packets of other endpoints' connections cause nothing; clients whose
/// address is not validated take bounded places; a connection that fails takes no other with it.
pub struct Endpoint {
    inner: quinn_proto::Endpoint,
    limits: Limits,
    server_config: ServerConfig,
    clock: Arc<Clock>,
    /// By the number of the key.
    slots: Vec<Option<Box<Slot>>>,
    /// The number of slots in use, including closed connections that wait for late packets.
    used: usize,
    incoming: VecDeque<quinn_proto::Incoming>,
    events: VecDeque<(ConnectionKey, Event)>,
    /// Connections that may have events or another timeout.
    changed: Vec<usize>,
    /// Connections that may have datagrams to send, in turn.
    sending: VecDeque<usize>,
    /// Datagrams that belong to no connection.
    responses: VecDeque<(Transmit, Vec<u8>)>,
    timers: Timers,
    /// Clients without a validated address: in handshakes, and waiting for the driver.
    unvalidated: usize,
    /// Bytes of packets that were deemed lost.
    lost: Arc<AtomicU64>,
    retries: u64,
    refuses: bool,
}

/// Numbers of an endpoint, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of packets that were deemed lost, and whose content is sent again.
    pub lost_bytes: u64,
    /// Retry packets sent.
    pub retries: u64,
}

/// A connection.
pub(crate) struct Slot {
    pub(crate) connection: quinn_proto::Connection,
    /// In `changed`, or in `sending`.
    is_changed: bool,
    is_sending: bool,
    /// The driver knows the connection.
    is_open: bool,
    /// Until the handshake has ended: its deadline, and whether it counts as unvalidated.
    handshake: Option<Handshake>,
}

struct Handshake {
    deadline: Instant,
    is_unvalidated: bool,
}

/// A client that wants a connection. The driver accepts, refuses or retries it; it may look at limits or wait for a
/// certificate before.
pub struct Incoming {
    inner: quinn_proto::Incoming,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming from {}", self.remote())
    }
}

impl Incoming {
    /// The client's address. It may be spoofed, unless it [is validated](Self::is_validated).
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The local address.
    pub fn local(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// Whether the client has shown that it receives at its address, by the token of a Retry packet.
    pub fn is_validated(&self) -> bool {
        self.inner.remote_address_validated()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint with {} connections", self.used)
    }
}

/// Bytes of a batch. The kernel refuses more payload in one call than a datagram of IPv4 can have, and then sends
/// none of the batch (EMSGSIZE; linux/net/ipv4/ip_output.c: `__ip_append_data`).
pub const MAX_BATCH: usize = 65_507;

/// Datagrams without a connection that wait to be sent. More are dropped: their clients try again.
const MAX_RESPONSES: usize = 256;

impl Endpoint {
    /// An endpoint without connections. `now` and `time_of_day` were read together.
    pub fn new(config: Config, now: Instant, time_of_day: SystemTime) -> Self {
        let Config { tls, limits, secrets, route } = config;
        let clock = Arc::new(Clock::new(now, time_of_day));
        let lost = Arc::new(AtomicU64::new(0));
        let server_config = server_config(tls, &limits, (&secrets, clock.clone()), &lost);
        let endpoint_config = Arc::new(endpoint_config(route, &secrets));
        Endpoint {
            inner: quinn_proto::Endpoint::new(endpoint_config, Some(Arc::new(server_config.clone())), true, None),
            limits,
            server_config,
            clock,
            slots: Vec::new(),
            used: 0,
            incoming: VecDeque::new(),
            events: VecDeque::new(),
            changed: Vec::new(),
            sending: VecDeque::new(),
            responses: VecDeque::new(),
            timers: Timers::default(),
            unvalidated: 0,
            lost,
            retries: 0,
            refuses: false,
        }
    }

    /// TLS for new connections from now on.
    pub fn set_tls(&mut self, tls: TlsConfig) {
        self.server_config.crypto = tls.0;
        self.inner.set_server_config(Some(Arc::new(self.server_config.clone())));
    }

    /// Refuses all new connections from now on. Those that exist go on.
    pub fn refuse_new(&mut self) {
        self.refuses = true;
        while let Some(incoming) = self.incoming.pop_front() {
            self.refuse(Incoming { inner: incoming });
        }
    }

    /// The number of connections, including those that are closed and wait for late packets of their clients.
    pub fn connections(&self) -> usize {
        self.used
    }

    /// The keys of all open connections.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        let is_open = |slot: &Option<Box<Slot>>| slot.as_ref().is_some_and(|slot| slot.is_open);
        self.slots.iter().enumerate().filter(move |(_, slot)| is_open(slot)).map(|(index, _)| ConnectionKey(index))
    }

    /// Numbers since the endpoint was made.
    pub fn totals(&self) -> Totals {
        Totals { lost_bytes: self.lost.load(Ordering::Relaxed), retries: self.retries }
    }

    // ---- input

    /// A datagram arrived.
    pub fn receive(&mut self, now: Instant, datagram: Datagram) {
        self.clock.set(now);
        let Datagram { remote, local, ecn, data } = datagram;
        let mut response = Vec::new();
        match self.inner.handle(now, remote, local, ecn.map(Into::into), data, &mut response) {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                self.guard(handle.0, |connection| connection.handle_event(event));
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, response),
            Some(DatagramEvent::NewConnection(incoming)) => self.receive_first(Incoming { inner: incoming }),
        }
    }

    fn receive_first(&mut self, incoming: Incoming) {
        let is_unvalidated = !incoming.is_validated();
        self.unvalidated += usize::from(is_unvalidated); // `forget` takes it back.
        if self.refuses || self.used >= self.limits.connections {
            self.refuse(incoming);
        } else if is_unvalidated && self.unvalidated > self.limits.unvalidated {
            self.retry(incoming);
        } else if self.incoming.len() >= self.limits.incoming {
            self.ignore(incoming);
        } else {
            self.incoming.push_back(incoming.inner);
        }
    }

    /// The next client that wants a connection.
    pub fn next_incoming(&mut self) -> Option<Incoming> {
        self.incoming.pop_front().map(|inner| Incoming { inner })
    }

    /// Accepts a client, with its own configuration of TLS or with the endpoint's. `None`: its first packets were
    /// invalid; it was told.
    pub fn accept(&mut self, now: Instant, incoming: Incoming, tls: Option<TlsConfig>) -> Option<ConnectionKey> {
        let is_unvalidated = !incoming.is_validated();
        self.forget(&incoming);
        let config = tls.map(|tls| {
            let mut config = self.server_config.clone();
            config.crypto = tls.0;
            Arc::new(config)
        });
        let mut response = Vec::new();
        match self.inner.accept(incoming.inner, now, &mut response, config) {
            Ok((ConnectionHandle(index), connection)) => {
                let handshake = Handshake { deadline: now + self.limits.handshake, is_unvalidated };
                self.unvalidated += usize::from(is_unvalidated);
                if self.slots.len() <= index {
                    self.slots.resize_with(index + 1, || None);
                }
                self.slots[index] = Some(Box::new(Slot {
                    connection,
                    is_changed: false,
                    is_sending: false,
                    is_open: true,
                    handshake: Some(handshake),
                }));
                self.used += 1;
                self.touch(index);
                Some(ConnectionKey(index))
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(transmit, response);
                }
                None
            }
        }
    }

    /// Refuses a client, which is told (CONNECTION_REFUSED).
    pub fn refuse(&mut self, incoming: Incoming) {
        self.forget(&incoming);
        let mut response = Vec::new();
        let transmit = self.inner.refuse(incoming.inner, &mut response);
        self.respond(transmit, response);
    }

    /// Drops a client's first packets: it tries again.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.forget(&incoming);
        self.inner.ignore(incoming.inner);
    }

    /// Has a client show that it receives at its address. A client whose address [is validated](Incoming::is_validated)
    /// is refused.
    pub fn retry(&mut self, incoming: Incoming) {
        if !incoming.inner.may_retry() {
            return self.refuse(incoming);
        }
        self.forget(&incoming);
        let mut response = Vec::new();
        if let Ok(transmit) = self.inner.retry(incoming.inner, &mut response) {
            self.retries += 1;
            self.respond(transmit, response);
        }
    }

    /// An incoming client waits no more.
    fn forget(&mut self, incoming: &Incoming) {
        self.unvalidated -= usize::from(!incoming.is_validated());
    }

    fn respond(&mut self, transmit: quinn_proto::Transmit, bytes: Vec<u8>) {
        if self.responses.len() < MAX_RESPONSES {
            self.responses.push_back((transmit.into(), bytes));
        }
    }

    // ---- events

    /// The next event of any connection.
    pub fn next_event(&mut self) -> Option<(ConnectionKey, Event)> {
        if self.events.is_empty() {
            self.update();
        }
        self.events.pop_front()
    }

    /// A connection that is open.
    pub fn connection(&mut self, key: ConnectionKey) -> Option<Connection<'_>> {
        if !self.slots.get(key.0)?.as_ref()?.is_open {
            return None;
        }
        self.touch(key.0);
        let slot = self.slots[key.0].as_mut()?;
        Some(Connection::new(&mut slot.connection))
    }

    /// Closes a connection with a code of the application. Bytes that were written and not acknowledged are dropped. The key
    /// is used again.
    pub fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &[u8]) {
        let Some(Some(slot)) = self.slots.get_mut(key.0) else { return };
        if !std::mem::take(&mut slot.is_open) {
            return;
        }
        self.end_handshake(key.0);
        let (code, reason) = (VarInt::from_u64(code).unwrap_or(VarInt::MAX), Bytes::copy_from_slice(reason));
        self.guard(key.0, |connection| connection.close(now, code, reason));
    }

    /// Closes all connections.
    pub fn close_all(&mut self, now: Instant, code: u64, reason: &[u8]) {
        for index in 0..self.slots.len() {
            self.close(now, ConnectionKey(index), code, reason);
        }
    }

    /// Calls a connection. One that panics is removed, and no other is affected.
    fn guard<T>(&mut self, index: usize, call: impl FnOnce(&mut quinn_proto::Connection) -> T) -> Option<T> {
        let slot = self.slots.get_mut(index)?.as_mut()?;
        // A connection that panicked is not used again.
        match catch_unwind(AssertUnwindSafe(|| call(&mut slot.connection))) {
            Ok(result) => {
                self.touch(index);
                Some(result)
            }
            Err(_) => {
                self.lose(index, CloseReason::Failed);
                self.inner.handle_event(ConnectionHandle(index), EndpointEvent::drained());
                self.remove(index);
                None
            }
        }
    }

    /// A connection may have events, another timeout, and datagrams to send.
    fn touch(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        if !std::mem::replace(&mut slot.is_changed, true) {
            self.changed.push(index);
        }
        if !std::mem::replace(&mut slot.is_sending, true) {
            self.sending.push_back(index);
        }
    }

    /// Collects the events and timeouts of the connections that changed.
    fn update(&mut self) {
        while let Some(index) = self.changed.pop() {
            let Some(Some(slot)) = self.slots.get_mut(index) else { continue };
            slot.is_changed = false;
            // Before the connection is removed: its last event says why it ended.
            while let Some(event) = self.slots[index].as_mut().and_then(|slot| slot.connection.poll()) {
                self.on_event(index, event);
            }
            while let Some(event) = self.slots[index].as_mut().and_then(|slot| slot.connection.poll_endpoint_events()) {
                let is_drained = event.is_drained();
                let reply = self.inner.handle_event(ConnectionHandle(index), event);
                if is_drained {
                    self.remove(index);
                } else if let Some(reply) = reply {
                    self.guard(index, |connection| connection.handle_event(reply));
                }
            }
            let Some(slot) = &mut self.slots[index] else { continue };
            let timeout = slot.connection.poll_timeout();
            let deadline = slot.handshake.as_ref().map(|handshake| handshake.deadline);
            self.timers.set(index, [timeout, deadline].into_iter().flatten().min());
        }
    }

    fn on_event(&mut self, index: usize, event: quinn_proto::Event) {
        let event = match event {
            quinn_proto::Event::Connected => {
                self.end_handshake(index);
                Event::Connected
            }
            quinn_proto::Event::ConnectionLost { reason } => return self.lose(index, reason.into()),
            quinn_proto::Event::Stream(event) => match event {
                StreamEvent::Opened { dir } => return self.on_opened(index, dir),
                StreamEvent::Readable { id } => Event::Readable(id.into()),
                StreamEvent::Writable { id } => Event::Writable(id.into()),
                StreamEvent::Finished { id } => Event::Finished(id.into()),
                StreamEvent::Stopped { id, error_code } => {
                    Event::Stopped { stream: id.into(), code: error_code.into_inner() }
                }
                StreamEvent::Available { dir: Dir::Uni } => Event::StreamAvailable,
                StreamEvent::Available { dir: Dir::Bi } => return,
            },
            quinn_proto::Event::HandshakeDataReady
            | quinn_proto::Event::DatagramReceived
            | quinn_proto::Event::DatagramsUnblocked => return,
        };
        self.tell(index, event);
    }

    /// Streams were opened: each is told, and may be readable.
    fn on_opened(&mut self, index: usize, dir: Dir) {
        while let Some(id) =
            self.slots[index].as_mut().and_then(|slot| slot.connection.streams().accept(dir)).map(Into::into)
        {
            self.tell(index, Event::Opened(id));
            self.tell(index, Event::Readable(id));
        }
    }

    fn tell(&mut self, index: usize, event: Event) {
        if self.slots[index].as_ref().is_some_and(|slot| slot.is_open) {
            self.events.push_back((ConnectionKey(index), event));
        }
    }

    /// A connection ended: the driver is told, unless it closed it itself.
    fn lose(&mut self, index: usize, reason: CloseReason) {
        self.end_handshake(index);
        self.tell(index, Event::Closed(Box::new(reason)));
        if let Some(slot) = &mut self.slots[index] {
            slot.is_open = false;
        }
    }

    fn end_handshake(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        if let Some(handshake) = slot.handshake.take() {
            self.unvalidated -= usize::from(handshake.is_unvalidated);
        }
    }

    fn remove(&mut self, index: usize) {
        self.end_handshake(index);
        if self.slots[index].take().is_some() {
            self.used -= 1;
            self.timers.set(index, None);
        }
    }

    // ---- time

    /// When [`handle_timeouts`](Self::handle_timeouts) should be called. It may be somewhat too early.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        self.update();
        self.timers.next()
    }

    /// Handles all timeouts up to `now`.
    pub fn handle_timeouts(&mut self, now: Instant) {
        self.clock.set(now);
        self.update();
        while let Some(index) = self.timers.pop(now) {
            let Some(Some(slot)) = self.slots.get_mut(index) else { continue };
            if slot.handshake.as_ref().is_some_and(|handshake| handshake.deadline <= now) {
                self.lose(index, CloseReason::HandshakeTimedOut);
                self.guard(index, |connection| connection.close(now, VarInt::from_u32(0), Bytes::new()));
            } else {
                self.guard(index, |connection| connection.handle_timeout(now));
            }
        }
    }

    // ---- output

    /// Appends the next batch of at most `max_segments` datagrams to `out`, which is empty. It has at most
    /// [`MAX_BATCH`] bytes. `None`: there is nothing to send now. Connections take turns.
    pub fn poll_transmit(&mut self, now: Instant, max_segments: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            out.extend_from_slice(&bytes[..transmit.size]);
            return Some(transmit);
        }
        self.update();
        while let Some(index) = self.sending.pop_front() {
            let Some(Some(slot)) = self.slots.get_mut(index) else { continue };
            slot.is_sending = false;
            let slot_transmit = self.guard(index, |connection| {
                let fitting = MAX_BATCH / usize::from(connection.current_mtu()).max(1);
                connection.poll_transmit(now, max_segments.min(fitting).max(1), out)
            });
            match slot_transmit {
                Some(Some(transmit)) => return Some(transmit.into()),
                Some(None) => self.rest(index),
                None => out.clear(),
            }
        }
        None
    }

    /// A connection has nothing to send, until it is touched again.
    fn rest(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        if std::mem::take(&mut slot.is_sending) {
            // `guard` put it at the end.
            self.sending.pop_back();
        }
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
