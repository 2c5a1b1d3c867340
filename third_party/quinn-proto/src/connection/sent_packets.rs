//! The packets of a space that are neither acknowledged nor lost

use std::{collections::VecDeque, ops::RangeInclusive};

use super::spaces::SentPacket;

/// Sent packets in the order of their numbers, which is the order in which they are inserted
///
/// A packet that is removed leaves an empty place. Places at the front are dropped at once, others
/// when they outnumber the packets, so that memory is proportional to the packets.
#[derive(Debug, Default)]
pub(super) struct SentPackets {
    places: VecDeque<(u64, Option<SentPacket>)>,
    /// Places with a packet
    len: usize,
}

/// Empty places that are kept however few packets there are
const MIN_EMPTY: usize = 32;

impl SentPackets {
    /// Inserts a packet whose number is larger than all that were inserted before
    pub(super) fn insert(&mut self, number: u64, packet: SentPacket) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < number));
        self.places.push_back((number, Some(packet)));
        self.len += 1;
    }

    pub(super) fn get(&self, number: u64) -> Option<&SentPacket> {
        let (found, packet) = self.places.get(self.position(number))?;
        packet.as_ref().filter(|_| *found == number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<SentPacket> {
        let at = self.position(number);
        let (_, place) = self
            .places
            .get_mut(at)
            .filter(|(found, _)| *found == number)?;
        let packet = place.take()?;
        self.len -= 1;
        if self.len == 0 {
            // An idle connection has no packets, and needs no memory for them.
            self.places = VecDeque::new();
        } else if at == 0 {
            while let Some((_, None)) = self.places.front() {
                self.places.pop_front();
            }
        } else if self.places.len() > 2 * self.len + MIN_EMPTY {
            self.places.retain(|(_, packet)| packet.is_some());
        }
        Some(packet)
    }

    /// The lowest number of a packet in `range`
    pub(super) fn first_in(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let places = self.places.range(self.position(*range.start())..);
        let (number, _) = places.into_iter().find(|(_, packet)| packet.is_some())?;
        Some(*number).filter(|number| number <= range.end())
    }

    /// All packets, by ascending numbers
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.places
            .iter()
            .filter_map(|(number, packet)| Some((*number, packet.as_ref()?)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut SentPacket> {
        self.places
            .iter_mut()
            .filter_map(|(_, packet)| packet.as_mut())
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = SentPacket> {
        self.places.into_iter().filter_map(|(_, packet)| packet)
    }

    /// The first place whose number is not below `number`
    fn position(&self, number: u64) -> usize {
        let Some((first, _)) = self.places.front() else {
            return 0;
        };
        // Few numbers are skipped, so that the place is mostly here.
        let guess = usize::try_from(number.saturating_sub(*first)).unwrap_or(usize::MAX);
        match self.places.get(guess) {
            Some((found, _)) if *found == number => guess,
            _ => self.places.partition_point(|(other, _)| *other < number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::Instant;

    fn packet(now: Instant, size: u16) -> SentPacket {
        SentPacket {
            path_generation: 0,
            time_sent: now,
            size,
            ack_eliciting: true,
            largest_acked: None,
            retransmits: Default::default(),
            stream_frames: Default::default(),
        }
    }

    #[test]
    fn agrees_with_a_map() {
        let now = Instant::now();
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut packets, mut map) = (SentPackets::default(), BTreeMap::new());
            let mut next = rng.random_range(0..5u64);
            for _ in 0..600 {
                if rng.random_bool(0.5) {
                    let size = rng.random();
                    packets.insert(next, packet(now, size));
                    map.insert(next, size);
                    next += if rng.random_bool(0.1) {
                        rng.random_range(1..40)
                    } else {
                        1
                    };
                } else {
                    let number = rng.random_range(0..next + 3);
                    let number = match rng.random_bool(0.5) {
                        true => map.keys().next().copied().unwrap_or(number),
                        false => number,
                    };
                    let removed = packets.remove(number).map(|packet| packet.size);
                    assert_eq!(removed, map.remove(&number));
                }
                let (from, to) = (rng.random_range(0..next + 3), rng.random_range(0..next + 3));
                if from <= to {
                    let first = map.range(from..=to).next().map(|(number, _)| *number);
                    assert_eq!(packets.first_in(from..=to), first);
                }
                assert_eq!(
                    packets.get(from).map(|packet| packet.size),
                    map.get(&from).copied()
                );
                assert_eq!(packets.len, map.len());
                assert!(packets.places.len() <= 2 * map.len() + MIN_EMPTY + 1);
            }
            let all: Vec<_> = packets
                .iter()
                .map(|(number, packet)| (number, packet.size))
                .collect();
            assert_eq!(all, map.clone().into_iter().collect::<Vec<_>>());
            let sizes: Vec<_> = packets.into_values().map(|packet| packet.size).collect();
            assert_eq!(sizes, map.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_packet_that_stays_keeps_no_memory_for_later_ones() {
        let now = Instant::now();
        let mut packets = SentPackets::default();
        packets.insert(0, packet(now, 1));
        for number in 1..100_000 {
            packets.insert(number, packet(now, 1));
            assert!(packets.remove(number).is_some());
        }
        assert!(packets.places.len() < 100 && packets.places.capacity() < 200);
        assert_eq!(packets.first_in(0..=u64::MAX), Some(0));
        assert!(packets.remove(0).is_some());
        assert_eq!((packets.len, packets.places.capacity()), (0, 0));
    }
}
