//! The bytes that wait unsent in the socket: nothing overtakes them, so a slow connection keeps few.
//!
//! TCP takes up to 4 MB before it is full. At 10 Mbit/s they take three seconds, and an urgent response waits behind
//! them (RFC 9218 §10). TCP_NOTSENT_LOWAT (tcp(7)) bounds the bytes that TCP has not sent yet.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sealion_ktls::acknowledged;
use socket2::SockRef;

use super::send::FEWEST_RECORDS;
use crate::http2::batch::RECORD;

/// The room for unsent bytes in the socket of a connection. It follows the rate at which the client acknowledges.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// The option's value, if it was set.
    room: Option<u32>,
    /// Bytes that were sent since the rate was measured.
    sent: u64,
    /// Bytes after which the rate is measured again.
    interval: u64,
    /// When the measurement began, and the bytes that the client had acknowledged by then.
    began: Option<(Instant, u64)>,
}

impl Unsent {
    /// Counts a batch. If TCP was full, measures the rate and sets the room, unless it did so a short time ago.
    pub(super) fn sent(&mut self, bytes: usize, was_full: bool, socket: impl AsFd) {
        self.sent += bytes as u64;
        if !was_full || self.sent < self.interval.max(MIN_INTERVAL) {
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
        let room = room_for(rate);
        // Another process may have set the option, and have passed the connection on.
        if self.room != Some(room) && SockRef::from(&socket).set_tcp_notsent_lowat(room).is_ok() {
            self.room = Some(room);
        }
    }

    /// The connection is idle: this time is no part of a measurement.
    pub(super) fn rest(&mut self) {
        self.began = None;
    }

    /// Records of a batch while TCP is full: an urgent response waits for the batch too.
    pub(super) fn fewest_records(&self) -> usize {
        self.room.map_or(FEWEST_RECORDS, |room| (room as usize / RECORD / 2).clamp(1, FEWEST_RECORDS))
    }
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Room for the bytes of 20 ms at `rate` bytes a second.
///
/// TCP takes more when half of the room is free. The socket must become writable while a whole record waits, which
/// kernel TLS may hold back (docs/kernel.md); so the room is larger than two records.
fn room_for(rate: u64) -> u32 {
    if rate >= FAST {
        return u32::MAX;
    }
    // Steps of a power of two: small changes of the rate set no option.
    let room = (rate / 50).next_power_of_two();
    u32::try_from(room).unwrap_or(u32::MAX).max(MIN_ROOM)
}

/// Room for two records of the largest size on the wire (RFC 8446 §5.2), and more than 15,000 bytes beside.
const MIN_ROOM: u32 = 3 << 14;

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
    fn the_room_follows_the_rate() {
        let rooms = [
            (0, MIN_ROOM),
            (1_250_000, MIN_ROOM),
            (2_600_000, 1 << 16),
            (6_250_000, 1 << 17),
            (FAST - 1, 1 << 19),
            (FAST, u32::MAX),
            (u64::MAX, u32::MAX),
        ];
        for (rate, room) in rooms {
            assert_eq!(room_for(rate), room, "{rate} bytes a second");
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
        unsent.sent(LONG, false, &near);
        unsent.sent(LONG, false, &near);
        assert_eq!((option(), unsent.fewest_records()), (u32::MAX, FEWEST_RECORDS), "it was not full");
        unsent.sent(LONG, true, &near);
        unsent.rest();
        unsent.sent(LONG, true, &near);
        unsent.sent(MIN_INTERVAL as usize - 1, true, &near);
        assert_eq!(option(), u32::MAX, "it has not been measured");
        // The client acknowledged nothing meanwhile.
        unsent.sent(1, true, &near);
        assert_eq!((option(), unsent.fewest_records()), (MIN_ROOM, 1));
    }
}
