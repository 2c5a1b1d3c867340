//! Places for the descriptors that HTTP/2 streams hold: open files, connections to servers, tunnels.
//!
//! A connection's own place (`Shared::slots`) covers one response at a time. HTTP/2 sends many responses at a time on
//! one connection. Each further response that holds a descriptor takes one of [`StreamPlaces`]. Both have descriptors
//! reserved (`process/descriptors.rs`), so that neither accepting a connection nor its first response ever lacks one.
//!
//! ```text
//! response holds a descriptor? ─no─► sent
//!              └─yes─► the connection's own place ─taken─► a place of the process ─none, or too many held─► wait for one, then 503
//! tunnel is asked for? ─yes─► a place of the process ─none, or too many held─► 503
//! ```
//!
//! A tunnel lasts as long as its ends like. Its connection's own place stays for responses, which end.
//!
//! The number of places that a connection or a client may hold depends on how many are free, so that a few of them
//! cannot take all. The connection always keeps its own place.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ClientNetwork;
use crate::values::Mutex;

/// The places of all connections together.
#[derive(Debug)]
pub(crate) struct StreamPlaces {
    free: AtomicUsize,
    /// The number of places that each client holds. The number of places bounds the memory.
    clients: Mutex<HashMap<ClientNetwork, usize>>,
}

/// The places of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionStreams {
    all: Arc<StreamPlaces>,
    /// `None`: the connection carries requests of several clients, or comes from this machine.
    client: Option<ClientNetwork>,
    /// Whether a response occupies the connection's own place.
    has_own: AtomicBool,
    /// The number of shared places that the connection holds.
    held: AtomicUsize,
    /// Whether requests that wait for a place should give up.
    closed: AtomicBool,
}

/// A place for the descriptors of one response, until dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<ConnectionStreams>,
    /// Whether it is the connection's own place.
    is_own: bool,
}

/// The divisor of the free places that one connection may hold. Each connection that takes all it can leaves eight
/// ninths of the places.
const SHARE_OF_CONNECTION: usize = 8;

/// The time after which a waiting request checks for places that other connections gave back. It notices places of its
/// own connection at once.
const RETRY: Duration = Duration::from_millis(100);

impl StreamPlaces {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(StreamPlaces { free: AtomicUsize::new(count), clients: Mutex::default() })
    }

    /// The places of a connection. `client`: the address whose share it uses.
    pub(crate) fn connection(self: &Arc<Self>, client: Option<IpAddr>) -> Arc<ConnectionStreams> {
        Arc::new(ConnectionStreams {
            all: Arc::clone(self),
            client: client.filter(|address| !address.to_canonical().is_loopback()).map(ClientNetwork::of),
            has_own: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        })
    }

    /// The number of free places.
    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes a place for a connection that already holds `held`.
    fn take(&self, held: usize, client: Option<ClientNetwork>) -> bool {
        let may_take = |free: usize, by_client: usize| held < free.div_ceil(SHARE_OF_CONNECTION) && by_client < free;
        let take = |by_client: usize| {
            let take_one = |free: usize| may_take(free, by_client).then(|| free - 1);
            self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_ok()
        };
        let Some(client) = client else { return take(0) };
        let mut clients = self.clients.lock();
        let by_client = clients.get(&client).copied().unwrap_or(0);
        let taken = take(by_client);
        if taken {
            clients.insert(client, by_client + 1);
        }
        taken
    }

    fn give_back(&self, client: Option<ClientNetwork>) {
        self.free.fetch_add(1, Ordering::Relaxed);
        let Some(client) = client else { return };
        let mut clients = self.clients.lock();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }
}

impl ConnectionStreams {
    /// A place, if one is free for this connection.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<StreamPlace> {
        if !self.has_own.swap(true, Ordering::Relaxed) {
            return Some(StreamPlace { streams: Arc::clone(self), is_own: true });
        }
        self.try_take_shared()
    }

    /// The same for a tunnel: not the connection's own place.
    pub(crate) fn try_take_shared(self: &Arc<Self>) -> Option<StreamPlace> {
        self.all.take(self.held.load(Ordering::Relaxed), self.client).then(|| {
            self.held.fetch_add(1, Ordering::Relaxed);
            StreamPlace { streams: Arc::clone(self), is_own: false }
        })
    }

    /// Waits for a place for this connection. `None`: no place became free within `timeout`, or [`Self::close`] was
    /// called.
    ///
    /// The connection's task must poll this whenever one of its responses has ended.
    pub(crate) async fn wait(self: &Arc<Self>, timeout: Duration) -> Option<StreamPlace> {
        let deadline = Instant::now() + timeout;
        let mut timer = pin!(sleep(RETRY));
        poll_fn(|cx| {
            if self.closed.load(Ordering::Relaxed) {
                return Poll::Ready(None);
            }
            loop {
                if let Some(place) = self.try_take() {
                    return Poll::Ready(Some(place));
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let now = Instant::now();
                if now >= deadline {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(now + RETRY);
            }
        })
        .await
    }

    /// The connection ends: requests that wait for a place give up.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        match self.is_own {
            true => self.streams.has_own.store(false, Ordering::Relaxed),
            false => {
                self.streams.held.fetch_sub(1, Ordering::Relaxed);
                self.streams.all.give_back(self.streams.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(streams: &Arc<ConnectionStreams>) -> Vec<StreamPlace> {
        std::iter::from_fn(|| streams.try_take()).collect()
    }

    fn address(address: &str) -> Option<IpAddr> {
        Some(address.parse().unwrap())
    }

    #[test]
    fn a_connection_always_has_its_own_place() {
        let streams = StreamPlaces::new(0).connection(None);
        let own = streams.try_take().unwrap();
        assert!(streams.try_take().is_none());
        drop(own);
        assert!(streams.try_take().is_some());
    }

    #[test]
    fn a_tunnel_leaves_its_connections_own_place() {
        let places = StreamPlaces::new(1);
        let streams = places.connection(None);
        let tunnel = streams.try_take_shared().unwrap();
        assert!(streams.try_take_shared().is_none());
        let response = streams.try_take().unwrap();
        assert!(streams.try_take().is_none());
        drop((tunnel, response));
        assert_eq!(places.free(), 1);
    }

    #[test]
    fn greedy_connections_leave_places_to_others() {
        let places = StreamPlaces::new(1000);
        let mut held = Vec::new();
        for greedy in 1..=30 {
            held.push(all_of(&places.connection(None)));
            let left = 1000.0 * (8.0_f64 / 9.0).powi(greedy);
            assert!(places.free() as f64 >= left - f64::from(greedy), "{greedy}: {}", places.free());
        }
        let next = places.connection(None);
        assert!(!all_of(&next).is_empty());
        held.clear();
        assert_eq!(places.free(), 1000);
    }

    #[test]
    fn a_client_with_many_connections_takes_half_of_the_places() {
        let places = StreamPlaces::new(100);
        let held: Vec<_> = (0..100).map(|_| all_of(&places.connection(address("192.0.2.1")))).collect();
        assert_eq!(places.free(), 50);
        assert!(all_of(&places.connection(address("192.0.2.2"))).len() > 1);
        drop(held);
        assert_eq!(places.free(), 100);
        assert!(places.clients.lock().is_empty());
        let held: Vec<_> = (0..100).map(|_| all_of(&places.connection(address("127.0.0.1")))).collect();
        assert!(places.free() < 10, "the machine's own proxies have no bound of one client");
        drop(held);
    }

    /// Polls once.
    fn poll(future: std::pin::Pin<&mut impl Future<Output = Option<StreamPlace>>>) -> Poll<Option<StreamPlace>> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn a_request_waits_for_a_place_of_its_connection() {
        const LONG: Duration = Duration::from_secs(600);
        let streams = StreamPlaces::new(0).connection(None);
        let own = streams.try_take();
        let mut waiting = pin!(streams.wait(LONG));
        assert!(poll(waiting.as_mut()).is_pending());
        drop(own);
        let own = poll(waiting.as_mut());
        assert!(matches!(own, Poll::Ready(Some(_))));
        assert!(streams.wait(Duration::ZERO).await.is_none(), "it waits no longer than it may");
        let mut waiting = pin!(streams.wait(LONG));
        assert!(poll(waiting.as_mut()).is_pending());
        streams.close();
        assert!(matches!(poll(waiting.as_mut()), Poll::Ready(None)));
    }
}
