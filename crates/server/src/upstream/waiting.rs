//! The memory of all contents that wait, and what the contents of one client may take of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::limits::{ClientNetwork, LimitsConfig};

/// The memory of all contents that wait. Each configuration has its own: while requests from before a reload end, theirs counts there.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    limits: LimitsConfig,
    used: AtomicUsize,
    /// Octets by client.
    clients: Mutex<HashMap<ClientNetwork, Arc<AtomicUsize>>>,
}

impl Waiting {
    pub(super) fn new(limits: &LimitsConfig) -> Self {
        Waiting { limits: limits.clone(), ..Waiting::default() }
    }

    /// Octets that a single content may take.
    pub(super) fn most(&self, client: Option<IpAddr>) -> u64 {
        let of_client = client.and_then(|address| self.limits.buffered_per_address(address));
        of_client.map_or(self.limits.max_buffered.0, |share| share.0.min(self.limits.max_buffered.0))
    }

    /// Octets that a client has to send in each of these times while its content is collected. `None`: any number.
    pub(super) fn least(&self) -> Option<(u64, Duration)> {
        // As in the other direction: a phone may have no signal for a while.
        let window = self.limits.min_send_rate_window.duration().max(self.limits.request_timeout.duration());
        let octets = u128::from(self.limits.min_receive_rate.get()) * window.as_millis() / 1000;
        (octets > 0).then_some((u64::try_from(octets).unwrap_or(u64::MAX), window))
    }
}

/// Which bound leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// That of all contents.
    Total,
    /// That of the client.
    Client,
}

/// The memory that one content takes, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    waiting: Arc<Waiting>,
    client: Option<OfClient>,
    octets: usize,
}

/// What all contents of a client take.
#[derive(Debug)]
struct OfClient {
    network: ClientNetwork,
    used: Arc<AtomicUsize>,
    most: usize,
}

impl Memory {
    /// None yet. `client`: the one that is bounded. `None`: no client is.
    pub(super) fn of(waiting: &Arc<Waiting>, client: Option<IpAddr>) -> Self {
        let client = client.and_then(|address| {
            let most = waiting.limits.buffered_per_address(address)?;
            let network = ClientNetwork::of(address);
            let mut clients = waiting.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let used = Arc::clone(clients.entry(network).or_default());
            Some(OfClient { network, used, most: usize::try_from(most.0).unwrap_or(usize::MAX) })
        });
        Memory { waiting: Arc::clone(waiting), client, octets: 0 }
    }

    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Whether there is room for so many octets more. Threads that ask at the same time may each get the last piece of it.
    pub(super) fn room(&self, octets: usize) -> Result<(), NoRoom> {
        let has_room = |used: &AtomicUsize, most| used.load(Ordering::Relaxed).saturating_add(octets) <= most;
        if self.client.as_ref().is_some_and(|client| !has_room(&client.used, client.most)) {
            return Err(NoRoom::Client);
        }
        let most = usize::try_from(self.waiting.limits.max_buffered.0).unwrap_or(usize::MAX);
        if has_room(&self.waiting.used, most) { Ok(()) } else { Err(NoRoom::Total) }
    }

    pub(super) fn add(&mut self, octets: usize) {
        self.octets += octets;
        for used in self.counters() {
            used.fetch_add(octets, Ordering::Relaxed);
        }
    }

    pub(super) fn remove(&mut self, octets: usize) {
        self.octets -= octets;
        for used in self.counters() {
            used.fetch_sub(octets, Ordering::Relaxed);
        }
    }

    fn counters(&self) -> impl Iterator<Item = &AtomicUsize> {
        [&self.waiting.used].into_iter().chain(self.client.as_ref().map(|client| &*client.used))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.remove(self.octets);
        let Some(OfClient { network, used, .. }) = self.client.take() else { return };
        let mut clients = self.waiting.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // All are made and dropped under the lock: that of the table may be the last.
        drop(used);
        if clients.get(&network).is_some_and(|last| Arc::strong_count(last) == 1) {
            clients.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Size;

    #[test]
    fn a_client_leaves_room_for_others_and_gets_its_own_back() {
        let limits = LimitsConfig { max_buffered: Size(8 << 20), ..LimitsConfig::default() };
        let waiting = Arc::new(Waiting::new(&limits));
        let [client, other] = ["192.0.2.1", "192.0.2.2"].map(|address| Some(address.parse().unwrap()));
        let mut first = Memory::of(&waiting, client);
        let mut second = Memory::of(&waiting, client);
        first.add(1 << 20);
        second.add(1 << 20);
        assert_eq!([first.room(1), second.room(1)], [Err(NoRoom::Client); 2]);
        let mut others = Memory::of(&waiting, other);
        assert_eq!(others.room(2 << 20), Ok(()));
        // Clients of a proxy on this machine have no addresses of their own.
        let mut local = Memory::of(&waiting, Some("127.0.0.1".parse().unwrap()));
        local.add(6 << 20);
        assert_eq!((local.room(1), others.room(1)), (Err(NoRoom::Total), Err(NoRoom::Total)));
        drop(local);
        others.add(1);
        first.remove(1 << 20);
        assert_eq!(second.room(1 << 20), Ok(()));
        drop((first, second, others));
        assert_eq!(waiting.used.load(Ordering::Relaxed), 0);
        assert!(waiting.clients.lock().unwrap().is_empty());
    }
}
