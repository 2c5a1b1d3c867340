//! The memory for contents that wait for a slow side, and the part of it that one client may take.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ClientNetwork, LimitsConfig};
use crate::values::Mutex;

/// The bytes of all contents, of whatever configuration: queues, the windows of HTTP/2 beyond their first size, and encoders.
#[derive(Debug, Default)]
pub(crate) struct BufferBudget {
    used: AtomicUsize,
    /// Bytes by client.
    clients: Mutex<HashMap<ClientNetwork, Arc<AtomicUsize>>>,
}

/// The part of a bound that a use may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole room, for content that waits.
    Whole,
    /// Half of the room, for content that may come faster, but need not: the rest stays for content that waits.
    Half,
}

/// The bound that leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// `limits.max_buffered`
    Total,
    /// `limits.max_buffered_per_address`
    Client,
}

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<BufferBudget>,
    client: Option<Client>,
    bytes: usize,
}

/// The bytes of all reservations of a client.
#[derive(Debug)]
struct Client {
    address: IpAddr,
    used: Arc<AtomicUsize>,
}

impl Reservation {
    /// Reserves nothing yet. `client`: whose share applies, if any.
    pub(crate) fn new(budget: &Arc<BufferBudget>, client: Option<IpAddr>) -> Self {
        let client = client.map(|address| {
            let mut clients = budget.clients.lock();
            let used = Arc::clone(clients.entry(ClientNetwork::of(address)).or_default());
            Client { address, used }
        });
        Reservation { budget: Arc::clone(budget), client, bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for so many bytes more. Threads that ask at the same time may each get the last piece.
    pub(crate) fn room(&self, bytes: usize, part: Part, limits: &LimitsConfig) -> Result<(), NoRoom> {
        let has_room = |used: &AtomicUsize, bound: u64| {
            let bound = usize::try_from(bound).unwrap_or(usize::MAX);
            let bound = if part == Part::Half { bound / 2 } else { bound };
            used.load(Ordering::Relaxed).saturating_add(bytes) <= bound
        };
        if let Some(client) = &self.client
            && let Some(share) = limits.buffered_per_address(client.address)
            && !has_room(&client.used, share.0)
        {
            return Err(NoRoom::Client);
        }
        if has_room(&self.budget.used, limits.max_buffered.0) { Ok(()) } else { Err(NoRoom::Total) }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        for used in self.counters() {
            used.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
        for used in self.counters() {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn counters(&self) -> impl Iterator<Item = &AtomicUsize> {
        [&self.budget.used].into_iter().chain(self.client.as_ref().map(|client| &*client.used))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.remove(self.bytes);
        let Some(Client { address, used }) = self.client.take() else { return };
        let network = ClientNetwork::of(address);
        let mut clients = self.budget.clients.lock();
        // Counters are made and dropped under the lock: the table's may be the last.
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
        let budget = Arc::new(BufferBudget::default());
        let [client, other] = ["192.0.2.1", "192.0.2.2"].map(|address| Some(address.parse().unwrap()));
        let room = |reservation: &Reservation, bytes| reservation.room(bytes, Part::Whole, &limits);
        let mut first = Reservation::new(&budget, client);
        let mut second = Reservation::new(&budget, client);
        first.add(1 << 20);
        second.add(1 << 20);
        assert_eq!([room(&first, 1), room(&second, 1)], [Err(NoRoom::Client); 2]);
        let mut others = Reservation::new(&budget, other);
        assert_eq!(room(&others, 2 << 20), Ok(()));
        // Clients of a proxy on this machine have no addresses of their own.
        let mut local = Reservation::new(&budget, Some("127.0.0.1".parse().unwrap()));
        local.add(6 << 20);
        assert_eq!((room(&local, 1), room(&others, 1)), (Err(NoRoom::Total), Err(NoRoom::Total)));
        drop(local);
        others.add(1);
        first.remove(1 << 20);
        assert_eq!(room(&second, 1 << 20), Ok(()));
        drop((first, second, others));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        assert!(budget.clients.lock().is_empty());
    }

    #[test]
    fn what_only_makes_contents_faster_leaves_half_to_those_that_wait() {
        let limits = LimitsConfig { max_buffered: Size(8 << 20), ..LimitsConfig::default() };
        let budget = Arc::new(BufferBudget::default());
        let mut client = Reservation::new(&budget, Some("192.0.2.1".parse().unwrap()));
        client.add(1 << 20);
        assert_eq!(client.room(1, Part::Half, &limits), Err(NoRoom::Client));
        assert_eq!(client.room(1 << 20, Part::Whole, &limits), Ok(()));
        let mut nobodys = Reservation::new(&budget, None);
        nobodys.add(3 << 20);
        assert_eq!(nobodys.room(1, Part::Half, &limits), Err(NoRoom::Total));
        assert_eq!(nobodys.room(4 << 20, Part::Whole, &limits), Ok(()));
    }
}
