//! The bytes that wait unsent in the socket: nothing overtakes them, so a slow connection keeps few.
//!
//! TCP takes up to 4 MB before it is full. At 10 Mbit/s they take three seconds, and an urgent response waits behind
//! them (RFC 9218 §10). TCP_NOTSENT_LOWAT (tcp(7)) bounds the bytes that TCP has not sent yet.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sealion_ktls::acknowledged;
use socket2::SockRef;

use super::send::{LARGE_BATCH, SMALL_BATCH};
use crate::http2::batch::RECORD;

/// The room for unsent bytes in the socket of a connection. It follows the rate at which the client acknowledges.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// The room, if it was set.
    room: Option<Room>,
    /// Bytes that were sent since the rate was measured.
    sent: u64,
    /// Bytes after which the rate is measured again.
    interval: u64,
    /// When the measurement began, and the bytes that the client had acknowledged by then.
    began: Option<(Instant, u64)>,
}

/// How a batch was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) bytes: usize,
    /// TCP was full.
    pub(super) waited: bool,
    /// The client gives priorities: it may ask for an urgent response next.
    pub(super) has_priorities: bool,
}

impl Unsent {
    /// Counts a batch. If TCP was full, or the connection is slow, measures the rate and sets the room, unless it did so
    /// a short time ago.
    pub(super) fn sent(&mut self, sent: Sent, socket: impl AsFd) {
        self.sent += sent.bytes as u64;
        let slow = self.room.filter(|room| room.is_bounded());
        if !(sent.waited || slow.is_some()) || self.sent < self.interval.max(MIN_INTERVAL) {
            return;
        }
        // The option is an improvement: without it, the connection goes on.
        let Ok(acknowledged) = acknowledged(&socket) else { return };
        self.sent = 0;
        let now = Instant::now();
        let Some((then, before)) = self.began.replace((now, acknowledged)) else { return };
        let rate = rate(acknowledged - before, now - then);
        // A fast connection may be slow from now on: the first bytes fit the queues of the network.
        self.interval = if rate < FAST { rate / 4 } else { (self.interval.max(MIN_INTERVAL) * 2).min(MAX_INTERVAL) };
        let room = Room::new(rate, sent.has_priorities);
        // TCP took everything: the network could have taken more than this.
        if !sent.waited && slow.is_some_and(|slow| slow.bytes > room.bytes) {
            return;
        }
        // Another process may have set the option, and have passed the connection on.
        if self.room != Some(room) && SockRef::from(&socket).set_tcp_notsent_lowat(room.bytes).is_ok() {
            self.room = Some(room);
        }
    }

    /// The connection is idle: this time is no part of a measurement.
    pub(super) fn rest(&mut self) {
        self.began = None;
    }

    /// Bytes of a batch while TCP is full, and of its largest frame: an urgent response waits for the batch too.
    pub(super) fn small_batch(&self) -> usize {
        self.room.map_or(SMALL_BATCH, |room| room.batch)
    }

    /// Bytes of a batch while TCP takes everything: small too if the room is smaller than a full record.
    pub(super) fn large_batch(&self) -> usize {
        self.room.map_or(LARGE_BATCH, |room| room.largest)
    }
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Bytes that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// In the socket: TCP takes more when half of them are free.
    bytes: u32,
    /// In a batch while TCP is full.
    batch: usize,
    /// In any batch.
    largest: usize,
}

impl Room {
    /// Room for the bytes of 20 ms at `rate` bytes a second. With priorities, socket and batch have the bytes of 5 ms
    /// together: shorter batches cost more, so other clients get longer ones.
    ///
    /// The socket must become writable while a whole record waits, which kernel TLS may hold back (docs/kernel.md). So
    /// the room is larger than two records, or than one record where each batch ends its record.
    fn new(rate: u64, has_priorities: bool) -> Self {
        if rate >= FAST {
            return Room { bytes: u32::MAX, batch: SMALL_BATCH, largest: LARGE_BATCH };
        }
        // Steps of a power of two: small changes of the rate set no option.
        let rate = rate as u32;
        if !has_priorities {
            let bytes = (rate / 50).next_power_of_two().max(MIN_ROOM);
            let records = bytes as usize / RECORD / 2;
            return Room { bytes, batch: (records * RECORD).clamp(RECORD, SMALL_BATCH), largest: LARGE_BATCH };
        }
        let both = (rate / 200).next_power_of_two().max(MIN_BOTH);
        let batch = (both as usize / 8 * 3).min(SMALL_BATCH);
        Room { bytes: both / 8 * 5, batch, largest: batch }
    }

    fn is_bounded(self) -> bool {
        self.bytes < u32::MAX
    }
}

/// Room for two records of the largest size on the wire (RFC 8446 §5.2), and more than 15,000 bytes beside.
const MIN_ROOM: u32 = 3 << 14;

/// The least room of a connection with priorities. MEASURED: when do 10 kB come that follow on a large response, at
/// 10 Mbit/s and 40 ms? In 107 ms, in 150 ms with [`MIN_ROOM`], and in 111 ms with batches of 4 KiB
/// (bench/networks/urgent.sh, guest with 6.1, 2026-11-28, median of 9; another queue of the network voids it).
const MIN_BOTH: u32 = 1 << 13;

/// A connection of 200 Mbit/s is left as it is: it sends 4 MB in 160 ms, and takes large pieces at less cost.
const FAST: u64 = 25_000_000;

/// Bytes before a measurement begins, and before it ends. Shorter responses cost no system call.
const MIN_INTERVAL: u64 = 1 << 18;

/// The longest measurement of a fast connection.
const MAX_INTERVAL: u64 = 1 << 22;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_room_follows_the_rate_and_priorities_make_it_small() {
        let all = (u32::MAX, SMALL_BATCH);
        let rooms = [
            (0, (MIN_ROOM, RECORD), (5120, 3072)),
            (1_250_000, (MIN_ROOM, RECORD), (5120, 3072)),
            (2_600_000, (1 << 16, 2 * RECORD), (10_240, 6144)),
            (6_250_000, (1 << 17, SMALL_BATCH), (20_480, 12_288)),
            (FAST - 1, (1 << 19, SMALL_BATCH), (81_920, 49_152)),
            (FAST, all, all),
            (u64::MAX, all, all),
        ];
        for (rate, without, with) in rooms {
            let room = |has_priorities| Room::new(rate, has_priorities);
            assert_eq!((room(false).bytes, room(false).batch), without, "{rate} bytes a second");
            assert_eq!((room(true).bytes, room(true).batch), with, "{rate} bytes a second, with priorities");
        }
    }

    #[test]
    fn a_rate_is_of_bytes_in_a_time() {
        assert_eq!(rate(1000, Duration::from_millis(10)), 100_000);
        assert_eq!(rate(0, Duration::ZERO), 0);
        assert_eq!(rate(u64::MAX, Duration::from_nanos(1)), u64::MAX);
    }

    #[test]
    fn a_full_socket_gets_a_room_and_others_do_not() {
        const LONG: usize = MAX_INTERVAL as usize;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let option = || SockRef::from(&near).tcp_notsent_lowat().unwrap();
        SockRef::from(&near).set_tcp_notsent_lowat(u32::MAX).unwrap();
        let mut unsent = Unsent::default();
        let sent = |bytes, waited| Sent { bytes, waited, has_priorities: true };
        unsent.sent(sent(LONG, false), &near);
        unsent.sent(sent(LONG, false), &near);
        assert_eq!((option(), unsent.small_batch(), unsent.large_batch()), (u32::MAX, SMALL_BATCH, LARGE_BATCH));
        unsent.sent(sent(LONG, true), &near);
        unsent.rest();
        unsent.sent(sent(LONG, true), &near);
        unsent.sent(sent(MIN_INTERVAL as usize - 1, true), &near);
        assert_eq!(option(), u32::MAX, "it has not been measured");
        // The client acknowledged nothing meanwhile.
        unsent.sent(sent(1, true), &near);
        assert_eq!((option(), unsent.small_batch(), unsent.large_batch()), (5120, 3072, 3072));
    }

    #[test]
    fn a_connection_that_takes_everything_is_not_slower_than_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let room = Room::new(FAST - 1, true);
        let measured = |waited| {
            let began = Some((Instant::now(), acknowledged(&near).unwrap()));
            let mut unsent = Unsent { room: Some(room), began, ..Unsent::default() };
            // The client acknowledged nothing meanwhile.
            unsent.sent(Sent { bytes: MIN_INTERVAL as usize, waited, has_priorities: true }, &near);
            unsent.room.unwrap()
        };
        assert_eq!((measured(false), measured(true)), (room, Room::new(0, true)));
    }
}
