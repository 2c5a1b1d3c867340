//! Connection limit per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::ClientNetwork;
use crate::values::Mutex;

/// Open connections per client. The number of connections bounds the memory.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    open: Mutex<HashMap<ClientNetwork, u32>>,
}

/// Counts a connection until dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    addresses: Arc<Addresses>,
    client: ClientNetwork,
}

impl Addresses {
    /// Admits a connection; `None` if the client already has `most`.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, most: u32) -> Option<Admitted> {
        let client = ClientNetwork::of(address);
        let mut open = self.open.lock();
        let count = open.entry(client).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Admitted { addresses: Arc::clone(self), client })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_bound_of_its_own_and_gets_its_places_back() {
        let addresses = Arc::new(Addresses::default());
        let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = addresses.admit(a, 2).unwrap();
        let second = addresses.admit(a, 2).unwrap();
        assert!(addresses.admit(a, 2).is_none());
        let other = addresses.admit(b, 2).unwrap();
        drop(first);
        let third = addresses.admit(a, 2).unwrap();
        assert!(addresses.admit(a, 2).is_none());
        drop((second, third, other));
        assert!(addresses.open.lock().is_empty());
    }
}
