//! Bounds on concurrent work and on waiting work for names on demand, per client network and for all clients together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::limits::ClientNetwork;
use crate::values::Mutex;

/// The maximum of concurrent and of waiting work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) at_once: usize,
    pub(super) waiting: usize,
}

impl Bound {
    const fn places(self) -> usize {
        self.at_once + self.waiting
    }
}

/// A queue with a bound for all clients, and a lower bound for each client network: a client that uses up its own share
/// leaves turns to others.
#[derive(Debug)]
pub(super) struct Queue {
    all: Bound,
    of_network: Bound,
    turns: Semaphore,
    /// Places for turns, and for names that wait for a turn.
    places: Semaphore,
    networks: Mutex<HashMap<ClientNetwork, Share>>,
}

/// The share of a network that has a place.
#[derive(Debug)]
struct Share {
    turns: Arc<Semaphore>,
    /// Places taken.
    taken: usize,
}

/// No place is free.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    /// For this client's network, which has this many places.
    #[error("clients of the network of {0} have {1} names that wait")]
    Network(IpAddr, usize),
    /// For any client: this many may wait.
    #[error("{0} names wait")]
    All(usize),
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'q> {
    _turn: SemaphorePermit<'q>,
    _turn_of_network: Option<OwnedSemaphorePermit>,
    _place: SemaphorePermit<'q>,
    _entered: Option<Entered<'q>>,
}

/// A place in a network's share.
#[derive(Debug)]
struct Entered<'q> {
    queue: &'q Queue,
    network: ClientNetwork,
    turns: Arc<Semaphore>,
}

impl Queue {
    pub(super) fn new(all: Bound, of_network: Bound) -> Self {
        let (turns, places) = (Semaphore::new(all.at_once), Semaphore::new(all.places()));
        Queue { all, of_network, turns, places, networks: Mutex::default() }
    }

    /// Waits for a turn. `client`: the address whose network's share is used; `None`: it is unknown, or many clients
    /// share it.
    ///
    /// # Errors
    /// [`Full`].
    pub(super) async fn turn(&self, client: Option<IpAddr>) -> Result<Turn<'_>, Full> {
        const OPEN: &str = "it is never closed";
        let entered = client.map(|client| self.enter(client)).transpose()?;
        let place = self.places.try_acquire().map_err(|_| Full::All(self.all.waiting))?;
        let turn_of_network = match &entered {
            Some(entered) => Some(Arc::clone(&entered.turns).acquire_owned().await.expect(OPEN)),
            None => None,
        };
        let turn = self.turns.acquire().await.expect(OPEN);
        Ok(Turn { _turn: turn, _turn_of_network: turn_of_network, _place: place, _entered: entered })
    }

    fn enter(&self, client: IpAddr) -> Result<Entered<'_>, Full> {
        let network = ClientNetwork::of(client);
        let mut networks = self.networks.lock();
        let new = || Share { turns: Arc::new(Semaphore::new(self.of_network.at_once)), taken: 0 };
        let share = networks.entry(network).or_insert_with(new);
        if share.taken == self.of_network.places() {
            return Err(Full::Network(client, share.taken));
        }
        share.taken += 1;
        Ok(Entered { queue: self, network, turns: Arc::clone(&share.turns) })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut networks = self.queue.networks.lock();
        let Some(share) = networks.get_mut(&self.network) else { return };
        share.taken -= 1;
        if share.taken == 0 {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Turning<'q> = Pin<Box<dyn Future<Output = Result<Turn<'q>, Full>> + 'q>>;

    fn address(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    fn poll<'q>(turning: &mut Turning<'q>) -> Poll<Result<Turn<'q>, Full>> {
        turning.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A turn that is free at once.
    fn turn(queue: &Queue, client: Option<IpAddr>) -> Turn<'_> {
        match poll(&mut (Box::pin(queue.turn(client)) as Turning<'_>)) {
            Poll::Ready(Ok(turn)) => turn,
            other => panic!("{other:?}"),
        }
    }

    /// A turn that has to wait.
    fn waits(queue: &Queue, client: Option<IpAddr>) -> Turning<'_> {
        let mut turning: Turning<'_> = Box::pin(queue.turn(client));
        assert!(poll(&mut turning).is_pending());
        turning
    }

    fn refused(queue: &Queue, client: Option<IpAddr>) -> Full {
        match poll(&mut (Box::pin(queue.turn(client)) as Turning<'_>)) {
            Poll::Ready(Err(full)) => full,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_network_that_fills_its_share_leaves_turns_to_the_others() {
        let queue = Queue::new(Bound { at_once: 4, waiting: 4 }, Bound { at_once: 2, waiting: 1 });
        let first = [(); 2].map(|()| turn(&queue, address(1)));
        let mut waiting = waits(&queue, address(1));
        assert_eq!(refused(&queue, address(1)), Full::Network([192, 0, 2, 1].into(), 3));
        // IPv6 clients have a whole /64.
        let other = turn(&queue, "2001:db8::1".parse().ok());
        let same = turn(&queue, "2001:db8::2".parse().ok());
        // All turns are taken, and a client without address waits for one.
        let mut unknown = waits(&queue, None);
        drop(first);
        assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
        assert!(matches!(poll(&mut unknown), Poll::Ready(Ok(_))));
        drop((other, same));
        assert!(queue.networks.lock().is_empty(), "what has ended is forgotten");
    }

    #[test]
    fn all_networks_together_have_a_bound() {
        let queue = Queue::new(Bound { at_once: 1, waiting: 2 }, Bound { at_once: 1, waiting: 0 });
        let held = turn(&queue, address(1));
        let waiting = [waits(&queue, address(2)), waits(&queue, None)];
        assert_eq!(refused(&queue, address(3)), Full::All(2));
        assert_eq!(queue.networks.lock().len(), 2, "a client that is refused takes nothing");
        // Handshakes are abandoned.
        drop(waiting);
        let mut next = waits(&queue, address(3));
        drop(held);
        assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    }
}
