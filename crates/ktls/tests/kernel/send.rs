//! The kernel seals and user space opens, for every version and cipher.

use std::io::{IoSlice, Read};
use std::net::Shutdown;

use rustix::io::Errno;
use sealion_ktls::stat::TlsStat;
use sealion_ktls::{Kind, MAX_PLAINTEXT, More, Operation, RecordType, Tx, Version, handover, probe};

use crate::support::{self, IV, Sending, file_of, info, kernel_at_least, pair, pattern, suites, write_plain};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Lengths around the record boundaries. The sequence number and the explicit nonce increase by one per record from
/// their start.
#[test]
fn records_open_in_user_space() {
    for (version, cipher) in suites() {
        let first = 7;
        let mut c = Sending::new(version, cipher, first);
        let mut explicit = u64::from_be_bytes(IV[4..].try_into().expect("8 bytes"));
        for len in [1, 2, MAX_PLAINTEXT - 1, MAX_PLAINTEXT, MAX_PLAINTEXT + 1, 100_003] {
            let data = pattern(len);
            assert_eq!(c.tx.send(&data, More::No), Ok(len), "{version} {cipher} {len}");
            let mut got = Vec::new();
            while got.len() < len {
                let record = c.far.record();
                assert_eq!(record.record_type, RecordType::APPLICATION_DATA);
                assert_eq!(record.data.len(), (len - got.len()).min(MAX_PLAINTEXT), "records are full");
                assert_eq!(record.wire as u64, record.data.len() as u64 + cipher.overhead(version));
                if let Some(found) = record.explicit {
                    assert_eq!(found, explicit, "{version} {cipher}");
                    explicit += 1;
                }
                got.extend(record.data);
            }
            assert!(got == data, "{version} {cipher} {len}");
            assert_eq!(c.tx.sequence(), Ok(c.far.sequence));
            assert_eq!(c.unsent(), 0);
        }
        assert_eq!(c.far.sequence, first + 5 + 1 + 7);
    }
}

/// A sequence number that uses all its bytes.
#[test]
fn sequence_numbers_are_big_endian() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0x0102_0304_05FF_FFFF);
        for byte in 0..3 {
            c.tx.send(&[byte], More::No).expect("send");
            assert_eq!(c.far.record().data, [byte]);
        }
        assert_eq!(c.tx.sequence(), Ok(0x0102_0304_0600_0002));
    }
}

#[test]
fn more_fills_one_record_and_flush_seals_it() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.send(b"head", More::Yes).expect("send");
        assert_eq!(c.tx.sequence(), Ok(0), "the record is open");
        assert_eq!(c.unsent(), 4);
        c.tx.send(b"", More::No).expect("an empty send");
        assert_eq!(c.tx.sequence(), Ok(0), "an empty send does not seal");
        c.tx.flush().expect("flush");
        assert_eq!(c.far.record().data, b"head");
        c.tx.flush().expect("a second flush");
        c.tx.send(b"ab", More::Yes).expect("send");
        c.tx.send(b"cd", More::No).expect("send");
        assert_eq!(c.far.record().data, b"abcd");
        assert_eq!(c.tx.sequence(), Ok(2), "no empty record");
        assert_eq!(c.unsent(), 0);
    }
}

#[test]
fn vectored_data_shares_a_record() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let body = pattern(20_000);
        let slices = [IoSlice::new(b"head"), IoSlice::new(b""), IoSlice::new(&body)];
        assert_eq!(c.tx.send_vectored(&slices, More::No), Ok(20_004));
        let (data, sizes) = c.far.data(20_004);
        assert_eq!(sizes, [MAX_PLAINTEXT, 20_004 - MAX_PLAINTEXT]);
        assert!(data == [b"head".as_slice(), &body].concat());
    }
}

/// Odd offsets and lengths. A head sent first shares full records with the file.
#[test]
fn file_follows_the_head_in_full_records() {
    let body = pattern(300_007);
    let file = file_of(&body);
    let head = pattern(333);
    for (version, cipher) in suites() {
        for (from, len) in [(0, body.len()), (1, 65_536), (4095, 4098), (16_383, 100_001), (300_006, 1)] {
            let mut c = Sending::new(version, cipher, 0);
            let (data, sizes) = std::thread::scope(|scope| {
                scope.spawn(|| {
                    c.tx.send(&head, More::Yes).expect("head");
                    let (mut offset, end) = (from as u64, (from + len) as u64);
                    while offset < end {
                        let rest = (end - offset) as usize;
                        let before = offset;
                        let sent = c.tx.send_file(&file, &mut offset, rest).expect("send_file");
                        assert_eq!(before + sent as u64, offset);
                        assert_ne!(sent, 0);
                    }
                });
                c.far.data(333 + len)
            });
            assert!(data[..333] == head && data[333..] == body[from..from + len], "{version} {cipher} {from}");
            assert_eq!(sizes, expected_sizes(head.len(), from, len), "{version} {cipher} {from}");
            assert_eq!(c.unsent(), 0);
        }
    }
}

/// Records are full from the head to the end, but before 6.5 the kernel seals after every 16 pages.
fn expected_sizes(head: usize, from: usize, len: usize) -> Vec<usize> {
    let mut runs = Vec::new();
    if kernel_at_least(6, 5) {
        runs.push(head + len);
    } else {
        let (mut at, end, mut open) = (from, from + len, head);
        while at < end {
            let pass = ((at / 4096 + 16) * 4096).min(end);
            runs.push(open + pass - at);
            (at, open) = (pass, 0);
        }
    }
    let records = |run: usize| {
        let rest = run % MAX_PLAINTEXT;
        std::iter::repeat_n(MAX_PLAINTEXT, run / MAX_PLAINTEXT).chain((rest > 0).then_some(rest))
    };
    runs.into_iter().flat_map(records).collect()
}

/// A head was sent with More::Yes, but the file is empty: without the flush the head would never leave.
#[test]
fn stuck_header_leaves_by_flush() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.send(b"head", More::Yes).expect("send");
        assert_eq!(c.tx.send_file(file_of(b"abc"), &mut 3, 10), Ok(0), "the end of the file");
        assert_eq!(c.tx.sequence(), Ok(0), "the head is stuck");
        assert_eq!(c.unsent(), 4);
        c.tx.flush().expect("flush");
        assert_eq!(c.far.record().data, b"head");
        assert_eq!(c.unsent(), 0);
    }
}

/// For a file that ends early, the count is short, then 0. After the flush nothing is left.
#[test]
fn shrunken_file_is_told() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let file = file_of(b"abc");
        let mut offset = 0;
        c.tx.send(b"head", More::Yes).expect("send");
        assert_eq!(c.tx.send_file(&file, &mut offset, 10), Ok(3));
        assert_eq!(offset, 3);
        assert_eq!(c.tx.send_file(&file, &mut offset, 7), Ok(0));
        c.tx.flush().expect("flush");
        assert_eq!(c.far.data(7).0, b"headabc");
        assert_eq!(c.unsent(), 0);
    }
}

#[test]
fn control_records_keep_their_type_and_their_place() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.send(b"open", More::Yes).expect("send");
        c.tx.send_record(RecordType::HANDSHAKE, b"ticket").expect("record");
        c.tx.send(b"after", More::No).expect("send");
        c.tx.send_record(RecordType::ALERT, &[2, 20]).expect("record");
        for (record_type, data) in [
            (RecordType::APPLICATION_DATA, b"open".as_slice()),
            (RecordType::HANDSHAKE, b"ticket"),
            (RecordType::APPLICATION_DATA, b"after"),
            (RecordType::ALERT, &[2, 20]),
        ] {
            let record = c.far.record();
            assert_eq!((record.record_type, record.data.as_slice()), (record_type, data), "{version} {cipher}");
        }
        assert_eq!(c.unsent(), 0);
        for wrong in [Vec::new(), pattern(MAX_PLAINTEXT + 1)] {
            let error = c.tx.send_record(RecordType::ALERT, &wrong).expect_err("a wrong length");
            assert_eq!((error.kind(), error.errno()), (Kind::Misuse, None));
        }
    }
}

#[test]
fn nothing_follows_close_notify() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.send(b"open", More::Yes).expect("send");
        c.tx.close_notify().expect("close_notify");
        c.tx.close_notify().expect("a second one does nothing");
        assert_eq!(c.tx.send(b"x", More::No).map_err(|e| e.kind()), Err(Kind::Misuse));
        assert_eq!(c.tx.flush().map_err(|e| e.kind()), Err(Kind::Misuse));
        assert_eq!(c.unsent(), 0);
        c.near.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!(c.far.record().data, b"open");
        let record = c.far.record();
        assert_eq!((record.record_type, record.data.as_slice()), (RecordType::ALERT, CLOSE_NOTIFY.as_slice()));
        assert_eq!(c.far.next(), None);
    }
}

/// The kernel accepts a record although TCP has room for only a part. When the peer reads, the rest follows, and the
/// ledger shows it.
#[test]
fn ledger_sees_the_part_of_a_record_that_tcp_did_not_take() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 3);
        let mut sent = c.fill_until_unsent();
        let mut got = Vec::new();
        while c.tx.close_notify().is_err() {
            got.extend(c.far.record().data);
            c.wait_writable();
        }
        while c.unsent() > 0 {
            got.extend(c.far.record().data);
            c.wait_writable();
        }
        c.near.shutdown(Shutdown::Write).expect("shutdown");
        while let Some(record) = c.far.next() {
            got.extend(record.data);
        }
        sent.extend(CLOSE_NOTIFY);
        assert!(got == sent, "{version} {cipher}: {} of {} bytes", got.len(), sent.len());
    }
}

/// The trap itself: `close(2)` tries once more to pass the unsent bytes to TCP, then frees the rest.
#[test]
fn close_loses_what_the_ledger_calls_unsent() {
    let mut lost = 0;
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let accepted = c.fill_until_unsent().len() as u64;
        let sealed = c.tx.sequence().expect("sequence");
        let unsent = c.unsent();
        drop((c.near, c.tx));
        let mut wire = Vec::new();
        c.far.stream.read_to_end(&mut wire).expect("read");
        let missing = accepted + sealed * cipher.overhead(version) - wire.len() as u64;
        assert!(missing <= unsent, "{version} {cipher}: {missing} of {unsent}");
        lost += missing;
    }
    assert!(lost > 0, "the kernel no longer loses the tail");
}

/// Every call that fails on a full socket is repeated. No byte is lost or doubled, and the alert keeps its type.
#[test]
fn full_socket_takes_nothing_twice() {
    for (version, cipher) in suites() {
        for more in [More::No, More::Yes] {
            let mut c = Sending::new(version, cipher, 0);
            c.narrow();
            let sent = c.fill(more);
            let mut got = Vec::new();
            let mut alerts = 0;
            while let Err(error) = c.tx.send_record(RecordType::ALERT, &[1, 90]) {
                assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                let record = c.far.record();
                assert_eq!(record.record_type, RecordType::APPLICATION_DATA);
                got.extend(record.data);
                c.wait_writable();
            }
            c.near.set_nonblocking(false).expect("blocking");
            std::thread::scope(|scope| {
                scope.spawn(|| c.tx.close_notify().expect("close_notify"));
                loop {
                    let record = c.far.record();
                    match (record.record_type, record.data.as_slice()) {
                        (RecordType::APPLICATION_DATA, data) => got.extend(data),
                        (RecordType::ALERT, [1, 90]) => alerts += 1,
                        (RecordType::ALERT, [1, 0]) => break,
                        other => panic!("{other:?}"),
                    }
                }
            });
            assert_eq!(alerts, 1, "{version} {cipher}");
            assert!(got == sent, "{version} {cipher}: {} of {} bytes", got.len(), sent.len());
        }
    }
}

/// Moves in the middle of a connection: plain bytes come first, then sealed ones, in order.
#[test]
fn handover_begins_where_plain_writing_ended() {
    for (version, cipher) in suites() {
        let (near, far) = pair();
        write_plain(&near, b"plain");
        let mut tx = handover::tx(&near, &info(version, cipher, 1, 2)).expect("handover");
        tx.send(b"sealed", More::No).expect("send");
        let mut far = support::Opener::new(far, version, cipher, 1, 2);
        let mut plain = [0; 5];
        far.stream.read_exact(&mut plain).expect("read");
        assert_eq!(&plain, b"plain");
        assert_eq!(far.record().data, b"sealed");
        assert_eq!(tx.unsent(), Ok(0));
    }
}

#[test]
fn handover_twice_is_misuse() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let error = handover::tx(&c.near, &info(version, cipher, 2, 0)).expect_err("a second handover").error;
        assert_eq!(
            (error.operation(), error.kind(), error.errno()),
            (Operation::SetUlp, Kind::Misuse, Some(Errno::EXIST.raw_os_error()))
        );
        c.tx.send(b"x", More::No).expect("the first one holds");
        assert_eq!(c.far.record().data, b"x");
    }
}

/// If the peer closed its half before, the handover fails and the socket stays unchanged. A later close does no harm.
#[test]
fn half_closed_peer_prevents_handover_only_before_it() {
    for (version, cipher) in suites() {
        let (mut near, mut far) = pair();
        far.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!(near.read(&mut [0]).expect("the end of the stream"), 0);
        let error = handover::tx(&near, &info(version, cipher, 1, 0)).expect_err("CLOSE_WAIT").error;
        assert_eq!(
            (error.operation(), error.kind(), error.errno()),
            (Operation::SetUlp, Kind::Peer, Some(Errno::NOTCONN.raw_os_error()))
        );
        write_plain(&near, b"user space serves on");
        let mut plain = [0; 20];
        far.read_exact(&mut plain).expect("read");
        assert_eq!(&plain, b"user space serves on");

        let mut c = Sending::new(version, cipher, 0);
        c.far.stream.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!((&*c.near).read(&mut [0]).expect("the end of the stream"), 0);
        c.tx.send(b"x", More::No).expect("send");
        assert_eq!(c.far.record().data, b"x");
    }
}

#[test]
fn wrong_descriptors_are_misuse() {
    let (version, cipher) = (Version::Tls13, sealion_ktls::Cipher::Aes128Gcm);
    let c = Sending::new(version, cipher, 0);
    let (plain, _far) = pair();
    let (near, mut state) = c.tx.into_parts();
    let wrong = Tx::from_parts(&plain, &mut state);
    assert_eq!(wrong.sequence().map_err(|e| e.kind()), Err(Kind::Misuse));
    assert_eq!(wrong.unsent().map_err(|e| e.kind()), Err(Kind::Misuse));
    let mut tx = Tx::from_parts(near, state);
    let (pipe, _writer) = std::io::pipe().expect("pipe");
    let error = tx.send_file(&pipe, &mut 0, 1).expect_err("a pipe has no offset");
    assert_eq!((error.kind(), error.errno()), (Kind::Misuse, Some(Errno::SPIPE.raw_os_error())));
    let error = handover::tx(&pipe, &info(version, cipher, 1, 0)).expect_err("a pipe").error;
    assert_eq!((error.kind(), error.errno()), (Kind::Misuse, Some(Errno::NOTSOCK.raw_os_error())));
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    let error = handover::tx(&udp, &info(version, cipher, 1, 0)).expect_err("a datagram socket").error;
    assert_eq!((error.operation(), error.kind()), (Operation::SetUlp, Kind::Misuse), "{error}");
}

#[test]
fn reset_is_the_peers_fault() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        rustix::net::sockopt::set_socket_linger(&c.far.stream, Some(std::time::Duration::ZERO)).expect("linger 0");
        drop(c.far);
        let over = [Errno::CONNRESET, Errno::PIPE].map(|errno| Some(errno.raw_os_error()));
        for _ in 0..3 {
            let error = c.tx.send(b"x", More::No).expect_err("reset");
            assert_eq!(error.kind(), Kind::Peer, "{error}");
            assert!(over.contains(&error.errno()), "{error}");
        }
        let error = c.tx.send_file(file_of(b"abc"), &mut 0, 3).expect_err("reset");
        assert_eq!(error.kind(), Kind::Peer, "{error}");
        assert_eq!(c.tx.close_notify().map_err(|e| e.kind()), Err(Kind::Peer));
    }
}

/// Many small pieces of one record: the kernel closes a record early if it has too many pieces, but the bytes stay in
/// order.
#[test]
fn many_small_sends_with_more_keep_their_order() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let data = pattern(20_000);
        let file = file_of(&data);
        let mut expected = Vec::new();
        for (i, piece) in data.chunks(37).enumerate() {
            if i % 3 == 0 {
                let mut offset = expected.len() as u64;
                assert_eq!(c.tx.send_file(&file, &mut offset, piece.len()), Ok(piece.len()));
            } else {
                assert_eq!(c.tx.send(piece, More::Yes), Ok(piece.len()));
            }
            expected.extend_from_slice(piece);
        }
        c.tx.flush().expect("flush");
        assert!(c.far.data(data.len()).0 == data, "{version} {cipher}");
        assert_eq!(c.unsent(), 0);
    }
}

/// The peer does not get an open record until it is sealed: `close(2)` drops it.
#[test]
fn close_drops_an_open_record() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.send(b"sealed", More::No).expect("send");
        c.tx.send(b"open", More::Yes).expect("send");
        assert_eq!(c.unsent(), 4);
        drop((c.near, c.tx));
        assert_eq!(c.far.record().data, b"sealed");
        assert_eq!(c.far.next(), None, "{version} {cipher}");
    }
}

/// With TCP_NOTSENT_LOWAT smaller than a record nothing is lost, but each record takes about 0.2 s; hence the small
/// file and the single suite. With 1 it never ended on 6.1, so use at least 64 KB for such kernels.
#[test]
fn file_is_whole_under_a_small_lowat() {
    let body = pattern(50_003);
    let lowat = if kernel_at_least(6, 5) { 1 } else { 65_536 };
    let file = file_of(&body);
    for (version, cipher) in suites().skip(3).take(1) {
        let mut c = Sending::new(version, cipher, 0);
        socket2::SockRef::from(&c.near).set_tcp_notsent_lowat(lowat).expect("TCP_NOTSENT_LOWAT");
        c.near.set_nonblocking(true).expect("non-blocking");
        let (data, _) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut offset = 0;
                while offset < body.len() as u64 {
                    let rest = body.len() - offset as usize;
                    match c.tx.send_file(&file, &mut offset, rest) {
                        Ok(sent) => assert_ne!(sent, 0),
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                            support::wait_writable(&c.near);
                        }
                    }
                }
                while let Err(error) = c.tx.flush() {
                    assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                }
            });
            c.far.data(body.len())
        });
        assert!(data == body, "{version} {cipher}");
    }
}

/// A TCP_NOTSENT_LOWAT of two records of the largest size suffices, by `send` and by `sendfile`, and five thirds
/// where each send ends its record. The server sets no less. If each record waited for a timer, the bytes would take
/// minutes.
#[test]
fn bytes_are_whole_under_a_lowat_of_few_records() {
    const FULL: usize = 1 << 14;
    const SMALL: usize = 3 << 10;
    let whole = pattern(4_000_003);
    let file = file_of(&whole);
    let lowats =
        [(FULL, &whole[..], whole.len(), 2 * (5 + FULL + 256)), (SMALL, &whole[..1_000_001], SMALL, SMALL / 3 * 5)];
    let cases = lowats.iter().flat_map(|lowat| suites().map(move |suite| (*lowat, suite)));
    for ((record, body, most, lowat), (version, cipher)) in cases {
        let mut c = Sending::new(version, cipher, 0);
        socket2::SockRef::from(&c.near).set_tcp_notsent_lowat(lowat as u32).expect("TCP_NOTSENT_LOWAT");
        c.near.set_nonblocking(true).expect("non-blocking");
        let (data, _) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < body.len() {
                    // A frame's header in the middle of a record, as HTTP/2 has it.
                    let end = body.len().min(sent + 9);
                    match c.tx.send(&body[sent..end], More::Yes) {
                        Ok(count) => sent += count,
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                            support::wait_writable(&c.near);
                            continue;
                        }
                    }
                    let mut offset = sent as u64;
                    let end = body.len().min(sent + record - 9);
                    while sent < end {
                        match c.tx.send_file(&file, &mut offset, end - sent) {
                            Ok(count) => sent += count,
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                                support::wait_writable(&c.near);
                            }
                        }
                    }
                }
                sent = 0;
                while sent < body.len() {
                    let end = body.len().min(sent + most);
                    match c.tx.send(&body[sent..end], More::No) {
                        Ok(count) => sent += count,
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                            support::wait_writable(&c.near);
                        }
                    }
                }
                while let Err(error) = c.tx.flush() {
                    assert_eq!(error.kind(), Kind::WouldBlock, "{error}");
                }
            });
            c.far.data(2 * body.len())
        });
        assert!(&data[..body.len()] == body && &data[body.len()..] == body, "{version} {cipher}, records of {record}");
    }
}

/// The layer can only be attached to a connection, and cannot be detached.
#[test]
fn the_layer_needs_a_connection_and_keeps_it() {
    let (version, cipher) = (Version::Tls13, sealion_ktls::Cipher::Aes128Gcm);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let error = handover::tx(&listener, &info(version, cipher, 1, 0)).expect_err("a listener").error;
    assert_eq!(
        (error.operation(), error.kind(), error.errno()),
        (Operation::SetUlp, Kind::Peer, Some(Errno::NOTCONN.raw_os_error()))
    );
    let mut c = Sending::new(version, cipher, 0);
    assert_eq!(rustix::net::connect_unspec(&c.near), Err(Errno::OPNOTSUPP));
    c.tx.send(b"x", More::No).expect("send");
    assert_eq!(c.far.record().data, b"x");
}

/// IPv6 has its own table of functions in the kernel.
#[test]
fn ipv6_too() {
    let listener = std::net::TcpListener::bind("[::1]:0").expect("bind");
    let near = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    for (version, cipher) in suites().take(1) {
        let mut tx = handover::tx(&near, &info(version, cipher, 1, 0)).expect("handover");
        tx.send(b"x", More::No).expect("send");
        assert_eq!(support::Opener::new(far.try_clone().expect("dup"), version, cipher, 1, 0).record().data, b"x");
    }
}

#[test]
fn counters_rise_with_each_handover() {
    for (version, cipher) in suites() {
        let before = TlsStat::read().expect("tls_stat");
        let c = Sending::new(version, cipher, 0);
        let during = TlsStat::read().expect("tls_stat");
        assert_eq!(during.delta(&before), [("TlsCurrTxSw", 1), ("TlsTxSw", 1)]);
        drop(c);
    }
}

#[test]
fn probe_finds_every_suite() {
    let found = probe::probe();
    assert_eq!(found.ulp(), Ok(()));
    for (version, cipher) in suites() {
        assert_eq!(found.tx(version, cipher), Ok(()), "{version} {cipher}");
    }
    assert_eq!(found.explain(), None);
    assert!(found.any_tx());
    let renews = found.rekey_tx().map_err(|error| (error.kind(), error.errno()));
    if kernel_at_least(6, 14) {
        assert_eq!(renews, Ok(()));
    } else {
        assert_eq!(renews, Err((Kind::Unsupported, Some(Errno::BUSY.raw_os_error()))));
    }
}
