//! Connection IDs that tell which socket their connection belongs to.
//!
//! The sockets of a port form a group (SO_REUSEPORT). A classic BPF program gets a datagram's payload, and returns the
//! index of the socket that receives it. A process that has handed over goes on with its connections, and its successor
//! may hand over, too. The group therefore has a share of sockets for each of several processes; a new process takes
//! one that no living process has.
//!
//! The first four bytes of a connection ID are a random word with one property: modulo the number of sockets of all
//! shares, it is the index of the socket. Modulo the number of workers, it is then the worker. Any word belongs to one
//! worker, so that also the connection IDs that clients choose for their first packets have one.

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// The length of all connection IDs of the server.
pub const CONNECTION_ID_LEN: usize = 8;

/// The place of an endpoint among all that receive datagrams at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The index of the worker, below `workers`.
    pub worker: u32,
    /// The number of sockets in a share, at least 1. It is the same in all processes at the address.
    pub workers: u32,
    /// The share of this process, below [`SHARES`].
    pub share: u32,
}

/// The number of processes that can have connections at one address at a time.
pub const SHARES: u32 = 4;

impl Route {
    /// The index of the endpoint's socket in the group, which has [`SHARES`] sockets for each worker.
    pub fn slot(self) -> u32 {
        self.share_start() + self.worker
    }

    /// The first index of this process' share.
    fn share_start(self) -> u32 {
        self.share % SHARES * self.workers
    }

    /// The number of sockets in the group.
    fn slots(self) -> u32 {
        SHARES * self.workers
    }

    /// The index of the socket that should receive a datagram of version 1, if this process serves new connections.
    /// `None`: it is too short for a connection ID.
    ///
    /// The BPF program of the group computes the same. Initial and 0-RTT packets go to the worker of this process that
    /// their connection ID belongs to. A handshake that began before the process served starts again. All other packets
    /// go to the owner of their connection.
    pub fn steer(self, datagram: &[u8]) -> Option<u32> {
        let first = *datagram.first()?;
        let is_long = first & LONG_HEADER != 0;
        let at = if is_long { LONG_HEADER_ID } else { SHORT_HEADER_ID };
        let word = u32::from_be_bytes(*datagram.get(at..)?.first_chunk()?);
        let is_first_flight = is_long && first & LONG_TYPE <= TYPE_0_RTT;
        Some(if is_first_flight { self.share_start() + word % self.workers } else { word % self.slots() })
    }

    /// A connection ID of this endpoint, made of random bytes.
    fn connection_id(self, mut bytes: [u8; CONNECTION_ID_LEN]) -> [u8; CONNECTION_ID_LEN] {
        let slots = self.slots();
        let (word, _) = bytes.split_first_chunk_mut::<4>().unwrap_or_else(|| unreachable!("eight bytes"));
        let random = u32::from_be_bytes(*word);
        let multiple = random - random % slots;
        let routed = multiple.checked_add(self.slot()).unwrap_or_else(|| multiple - slots + self.slot());
        *word = routed.to_be_bytes();
        bytes
    }

    fn owns(self, id: &[u8]) -> bool {
        let word = id.first_chunk().map(|word| u32::from_be_bytes(*word));
        id.len() == CONNECTION_ID_LEN && word.is_some_and(|word| word % self.slots() == self.slot())
    }
}

/// The first byte of a packet (RFC 8999 §5.1, RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
const LONG_TYPE: u8 = 0x30;
const TYPE_0_RTT: u8 = 0x10;

/// The place of the destination connection ID: behind the first byte, and behind the version and a length.
const SHORT_HEADER_ID: usize = 1;
const LONG_HEADER_ID: usize = 6;

/// Makes the connection IDs of an endpoint.
pub(crate) struct ConnectionIds(pub(crate) Route);

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; CONNECTION_ID_LEN];
        // The operating system's source does not fail once it was seeded.
        aws_lc_rs::rand::fill(&mut bytes).expect("random bytes");
        ConnectionId::new(&self.0.connection_id(bytes))
    }

    /// Packets for other endpoints get no stateless reset: their connections may be alive.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.0.owns(id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: u8, id: &[u8]) -> Vec<u8> {
        let before: &[u8] = if first & 0x80 != 0 { &[0, 0, 0, 1, 8] } else { &[] };
        [&[first], before, id].concat()
    }

    #[test]
    fn every_connection_id_leads_to_its_endpoint() {
        for workers in [1, 2, 3, 7, 64, 1000] {
            for worker in [0, workers / 2, workers - 1] {
                for share in 0..SHARES {
                    let route = Route { worker, workers, share };
                    let successor = Route { share: (share + 1) % SHARES, ..route };
                    for word in [0, 1, 77, 0x8000_0000, u32::MAX - 1, u32::MAX] {
                        let random = [word.to_be_bytes(), [9; 4]].concat().try_into().unwrap();
                        let id = route.connection_id(random);
                        assert!(route.owns(&id) && !successor.owns(&id), "{route:?} {word:x}");
                        assert_eq!(id[4..], [9; 4]);
                        // Short header, Handshake: also when the successor serves.
                        for first in [0x40, 0x7f, 0xe0] {
                            assert_eq!(route.steer(&packet(first, &id)), Some(route.slot()));
                            assert_eq!(successor.steer(&packet(first, &id)), Some(route.slot()));
                        }
                        // Initial, 0-RTT: to the worker of the process that serves.
                        for first in [0xc0, 0xd3] {
                            assert_eq!(route.steer(&packet(first, &id)), Some(route.slot()));
                            assert_eq!(successor.steer(&packet(first, &id)), Some(successor.slot()));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn connection_ids_differ_and_spread() {
        let route = Route { worker: 1, workers: 3, share: 0 };
        let mut ids: Vec<_> = (0..1000).map(|_| ConnectionIds(route).generate_cid().to_vec()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
        let first_bytes: std::collections::HashSet<_> = ids.iter().map(|id| id[0]).collect();
        assert!(first_bytes.len() > 200, "the index does not show: {}", first_bytes.len());
        let validated = ids.iter().filter(|id| ConnectionIds(route).validate(&ConnectionId::new(id)).is_ok());
        assert_eq!(validated.count(), 1000);
    }

    #[test]
    fn datagrams_without_a_whole_word_have_no_socket() {
        let route = Route { worker: 0, workers: 2, share: 0 };
        for datagram in [&[][..], &[0x40], &[0x40, 1, 2, 3], &[0xc0, 0, 0, 0, 1, 8, 1, 2, 3]] {
            assert_eq!(route.steer(datagram), None);
        }
    }
}
