//! Bytes by which connections of HTTP/2 widen their windows for contents of requests, and the part of them that one client may take.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{ClientNetwork, LimitsConfig};

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(crate) struct WidenedWindows {
    all: AtomicU64,
    /// Those of each client that has some.
    clients: Mutex<HashMap<ClientNetwork, u64>>,
}

impl WidenedWindows {
    /// Takes bytes for a connection of this client, within the bounds of contents that wait. `false`: there is no room. `client`: `None` if nobody's share
    /// is bounded.
    pub(crate) fn take(&self, bytes: u64, client: Option<IpAddr>, limits: &LimitsConfig) -> bool {
        let add = |all: u64| Some(all + bytes).filter(|all| *all <= limits.max_buffered.0);
        let take = || self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        let Some(client) = client else { return take() };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let network = ClientNetwork::of(client);
        let own = clients.get(&network).copied().unwrap_or(0) + bytes;
        let is_within = limits.buffered_per_address(client).is_none_or(|most| own <= most.0);
        let is_taken = is_within && take();
        if is_taken {
            clients.insert(network, own);
        }
        is_taken
    }

    pub(crate) fn give_back(&self, bytes: u64, client: Option<IpAddr>) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        let Some(network) = client.map(ClientNetwork::of) else { return };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = clients.get_mut(&network) {
            *own -= bytes;
            if *own == 0 {
                clients.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Size;

    #[test]
    fn a_client_leaves_room_for_others_and_gives_its_own_back() {
        let limits = LimitsConfig { max_buffered: Size(8 << 20), ..LimitsConfig::default() };
        let windows = WidenedWindows::default();
        let [client, other] = ["192.0.2.1", "192.0.2.2"].map(|address| Some(address.parse().unwrap()));
        let take = |client| windows.take(1 << 20, client, &limits);
        assert_eq!([(); 3].map(|()| take(client)), [true, true, false]);
        assert!(take(other));
        windows.give_back(1 << 20, client);
        assert!(take(client));
        // Nobody's share is bounded here.
        assert_eq!([(); 6].map(|()| take(None)), [true, true, true, true, true, false]);
        windows.give_back(5 << 20, None);
        windows.give_back(2 << 20, client);
        windows.give_back(1 << 20, other);
        assert_eq!(windows.all.load(Ordering::Relaxed), 0);
        assert!(windows.clients.lock().unwrap().is_empty());
    }
}
