//! Turns for the verification of passwords, one pool for the process: guessing exhausts neither processors nor threads, and one network cannot
//! keep others from their turn.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Condvar, LazyLock, PoisonError};

use crate::limits::ClientNetwork;
use crate::values::Mutex;

/// Bounds concurrent and waiting verifications.
#[derive(Debug)]
pub(super) struct Verifications {
    counts: Mutex<Counts>,
    free: Condvar,
    at_a_time: usize,
}

#[derive(Debug, Default)]
struct Counts {
    running: usize,
    waiting: usize,
    /// Running and waiting ones of each network.
    by_network: HashMap<ClientNetwork, usize>,
}

/// A turn, until dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pool: &'a Verifications,
    network: Option<ClientNetwork>,
}

/// The pool of the process: for all files of users, and across reloads.
pub(super) static VERIFICATIONS: LazyLock<Verifications> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Verifications::new((processors / 2).clamp(1, AT_A_TIME))
});

impl Verifications {
    fn new(at_a_time: usize) -> Self {
        Verifications { counts: Mutex::default(), free: Condvar::new(), at_a_time }
    }

    /// Waits for a turn; blocks. `client`: `None` over a Unix socket, where all clients have one address. `None`: too many wait, of this
    /// network or in all.
    pub(super) fn wait(&self, client: Option<IpAddr>) -> Option<Turn<'_>> {
        let network = client.map(ClientNetwork::of);
        let mut counts = self.counts.lock();
        if counts.waiting >= WAITING_AT_MOST {
            return None;
        }
        if let Some(network) = network {
            let of_network = counts.by_network.entry(network).or_default();
            if *of_network >= OF_ONE_NETWORK {
                return None;
            }
            *of_network += 1;
        }
        counts.waiting += 1;
        while counts.running >= self.at_a_time {
            counts = self.free.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        counts.waiting -= 1;
        counts.running += 1;
        Some(Turn { pool: self, network })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut counts = self.pool.counts.lock();
        counts.running -= 1;
        if let Some(network) = self.network
            && let Some(of_network) = counts.by_network.get_mut(&network)
        {
            *of_network -= 1;
            if *of_network == 0 {
                counts.by_network.remove(&network);
            }
        }
        drop(counts);
        self.pool.free.notify_one();
    }
}

/// Concurrent verifications. Each may take 128 MiB and a processor; two leave a small machine able to serve authenticated users.
const AT_A_TIME: usize = 2;

/// Verifications waiting. Each holds a thread of the blocking pool.
const WAITING_AT_MOST: usize = 64;

/// Verifications of one network, running and waiting: a browser with six connections sends its password on each before the first is verified.
/// Eight networks at least are needed to fill the queue.
const OF_ONE_NETWORK: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_and_waiting_verifications_are_bounded_in_all_and_for_one_network() {
        let pool = Verifications::new(2);
        let client = |n: u8| Some(IpAddr::from([192, 0, 2, n]));
        let taken: Vec<_> = (0..2).map(|_| pool.wait(client(1)).unwrap()).collect();
        std::thread::scope(|scope| {
            let wait = |n| {
                let (pool, before) = (&pool, pool.counts.lock().waiting);
                scope.spawn(move || drop(pool.wait(client(n)).expect("it may wait")));
                while pool.counts.lock().waiting == before {
                    std::thread::yield_now();
                }
            };
            (2..OF_ONE_NETWORK).for_each(|_| wait(1));
            assert!(pool.wait(client(1)).is_none(), "one too many of its network");
            for n in 0..WAITING_AT_MOST - (OF_ONE_NETWORK - 2) {
                wait(2 + (n / OF_ONE_NETWORK) as u8);
            }
            assert!(pool.wait(client(200)).is_none(), "one too many");
            assert!(pool.wait(None).is_none(), "one too many");
            drop(taken);
        });
        let counts = pool.counts.lock();
        assert_eq!((counts.running, counts.waiting, counts.by_network.len()), (0, 0, 0));
    }
}
