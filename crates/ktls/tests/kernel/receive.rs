//! The kernel opens records of a user-space peer that controls every byte, for every version and cipher.

use std::io::{IoSliceMut, Read, Write};
use std::net::Shutdown;

use rustix::io::Errno;
use sealion_ktls::stat::TlsStat;
use sealion_ktls::{
    Cipher, Incoming, Kind, MAX_PLAINTEXT, More, Operation, RecordType, Rx, Spliced, Version, handover,
};

use crate::support::{self, Receiving, Sealer, info, kernel_at_least, pair, pattern, suites};

const DATA: RecordType = RecordType::APPLICATION_DATA;
const ALERT: RecordType = RecordType::ALERT;
const HANDSHAKE: RecordType = RecordType::HANDSHAKE;
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

#[test]
fn records_of_every_size_are_opened() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 5);
        for len in [1, 2, 255, MAX_PLAINTEXT - 1, MAX_PLAINTEXT] {
            let data = pattern(len);
            c.far.send(DATA, &data);
            let (record_type, got, whole) = c.recv(MAX_PLAINTEXT);
            assert_eq!((record_type, whole), (DATA, true));
            assert!(got == data, "{version} {cipher} {len}");
            assert_eq!(c.rx.sequence(), Ok(c.far.sequence));
        }
    }
}

/// At the handover the kernel parses the bytes that wait in the socket, even half a record.
#[test]
fn handover_parses_what_is_queued() {
    for (version, cipher) in suites() {
        let (near, far) = pair();
        let mut far = Sealer::new(far, version, cipher, 2, 0);
        far.send(DATA, b"queued");
        let half = far.seal(DATA, b"half", 0);
        far.stream.write_all(&half[..9]).expect("write");
        let tx = handover::tx(&near, &info(version, cipher, 1, 0)).expect("TLS_TX");
        let mut rx = handover::rx(&tx, &info(version, cipher, 2, 0)).expect("TLS_RX");
        let mut buffer = [0; 64];
        let record = |len| Ok(Incoming::Record { record_type: DATA, len, whole: true });
        assert_eq!(rx.recv(&mut buffer), record(6));
        assert_eq!(&buffer[..6], b"queued");
        far.stream.write_all(&half[9..]).expect("write");
        assert_eq!(rx.recv(&mut buffer), record(4));
        assert_eq!(&buffer[..4], b"half");
    }
}

/// A small buffer receives a record in parts, and a large buffer several records.
#[test]
fn data_flows_over_record_boundaries() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let data = pattern(1000);
        let records = [c.far.seal(DATA, &data[..400], 0), c.far.seal(DATA, &data[400..], 0)].concat();
        c.far.stream.write_all(&records).expect("write");
        c.near.set_read_timeout(None).expect("blocking");
        let mut got = Vec::new();
        for room in [7, 100, 500, 1000] {
            if got.len() < data.len() {
                got.extend(c.recv(room).1);
            }
        }
        assert!(got == data, "{version} {cipher}: {}", got.len());
    }
}

/// Buffers are filled in order; a control record is recognised across their boundary.
#[test]
fn several_buffers_are_filled_as_one() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(DATA, b"hello world");
        let (mut first, mut second) = ([0; 5], [0; 20]);
        let mut read = |c: &mut Receiving| {
            let incoming =
                c.rx.recv_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).expect("recv");
            (incoming, [&first[..], &second].concat())
        };
        let (incoming, bytes) = read(&mut c);
        assert_eq!(incoming, Incoming::Record { record_type: DATA, len: 11, whole: true }, "{version} {cipher}");
        assert_eq!(&bytes[..11], b"hello world");
        c.far.send(ALERT, &[1, 0]);
        let (mut level, mut description) = ([0; 1], [0; 1]);
        let incoming = c.rx.recv_vectored(&mut [IoSliceMut::new(&mut level), IoSliceMut::new(&mut description)]);
        assert_eq!(incoming, Ok(Incoming::Record { record_type: ALERT, len: 2, whole: true }));
        assert_eq!(c.rx.recv(&mut [0; 2]), Ok(Incoming::End { close_notify: true }), "{version} {cipher}");
        assert_eq!(c.rx.recv_vectored(&mut []), Ok(Incoming::End { close_notify: true }));
    }
}

/// MSG_PEEK returns the type too, and the next read returns the same record. A KeyUpdate that was only peeked at does
/// not stop reading.
#[test]
fn a_peek_takes_nothing() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let mut buffer = [0; 64];
        for (record_type, data) in [(DATA, &b"data"[..]), (ALERT, &[1, 90]), (HANDSHAKE, &KEY_UPDATE), (ALERT, &[1, 0])]
        {
            if data == KEY_UPDATE && version == Version::Tls12 {
                continue;
            }
            c.far.send(record_type, data);
            for _ in 0..2 {
                let seen = c.rx.peek(&mut buffer);
                assert_eq!(
                    seen,
                    Ok(Incoming::Record { record_type, len: data.len(), whole: record_type == DATA }),
                    "{version} {cipher}"
                );
                assert_eq!(&buffer[..data.len()], data);
            }
            assert_eq!(c.recv(64), (record_type, data.to_vec(), true));
            if data == KEY_UPDATE {
                assert_eq!(c.rx.peek(&mut buffer), Ok(Incoming::KeyExpired));
                c.rx.false_alarm().expect("the peer goes on under its key");
            }
        }
        assert_eq!(c.rx.peek(&mut buffer), Ok(Incoming::End { close_notify: true }));
    }
}

/// User space seals, and the kernel opens. The kernel would send a control record in plain text; no function of `Rx`
/// asks it to.
#[test]
fn receiving_alone_leaves_sending_to_user_space() {
    for (version, cipher) in suites() {
        let (near, far) = pair();
        let mut rx = handover::rx_alone(&near, &info(version, cipher, 2, 0)).expect("TLS_RX");
        let mut theirs = Sealer::new(far.try_clone().expect("a second descriptor"), version, cipher, 2, 0);
        theirs.send(DATA, b"opened by the kernel");
        let mut buffer = [0; 64];
        let incoming = rx.recv(&mut buffer);
        assert_eq!(incoming, Ok(Incoming::Record { record_type: DATA, len: 20, whole: true }), "{version} {cipher}");
        let mut ours = Sealer::new(near.try_clone().expect("a second descriptor"), version, cipher, 1, 0);
        let close_notify = ours.seal(ALERT, &[1, 0], 0);
        (&near).write_all(&close_notify).expect("sealed bytes pass");
        let mut far = support::Opener::new(far, version, cipher, 1, 0);
        let record = far.record();
        assert_eq!((record.record_type, record.data.as_slice()), (ALERT, &[1, 0][..]));
        assert_eq!(sealion_ktls::fuzzing::send_record(&near, ALERT.0, b"secret").expect("sent"), 6);
        let mut plain = [0; 6];
        far.stream.read_exact(&mut plain).expect("read");
        assert_eq!(&plain, b"secret", "the kernel seals nothing without TLS_TX");
        let refused = handover::tx(&near, &info(version, cipher, 1, 0)).expect_err("keys are there");
        assert_eq!(refused.error.kind(), Kind::Misuse);
    }
}

#[test]
fn types_never_mix() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let records = [
            c.far.seal(DATA, b"before", 0),
            c.far.seal(ALERT, &[1, 90], 0),
            c.far.seal(ALERT, &[1, 91], 0),
            c.far.seal(HANDSHAKE, b"\x04ticket", 0),
            c.far.seal(DATA, b"after", 0),
        ];
        c.far.stream.write_all(&records.concat()).expect("write");
        for (record_type, data) in
            [(DATA, &b"before"[..]), (ALERT, &[1, 90]), (ALERT, &[1, 91]), (HANDSHAKE, b"\x04ticket"), (DATA, b"after")]
        {
            assert_eq!(c.recv(100), (record_type, data.to_vec(), true), "{version} {cipher}");
        }
    }
}

#[test]
fn control_record_in_parts_keeps_its_type() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(HANDSHAKE, b"\x04tickets");
        assert_eq!(c.recv(5), (HANDSHAKE, b"\x04tick".to_vec(), false), "{version} {cipher}");
        assert_eq!(c.recv(5), (HANDSHAKE, b"ets".to_vec(), true), "{version} {cipher}");
    }
}

/// A plain `read(2)` cannot return the type, so it fails and keeps the record.
#[test]
fn plain_read_of_a_control_record_is_eio() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(ALERT, &[1, 90]);
        let error = (&*c.near).read(&mut [0; 64]).expect_err("no room for the type");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!(c.recv(64), (ALERT, vec![1, 90], true), "{version} {cipher}");
    }
}

/// `recvmsg` returns 0 for an empty control record and for the end of the stream; the type distinguishes them.
#[test]
fn empty_records_are_not_the_end() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(HANDSHAKE, b"");
        assert_eq!(c.recv(64), (HANDSHAKE, Vec::new(), true), "{version} {cipher}");
        c.far.send(DATA, b"");
        c.far.send(DATA, b"x");
        let mut got = Vec::new();
        while got.is_empty() {
            let (record_type, data, whole) = c.recv(64);
            assert_eq!((record_type, whole), (DATA, true));
            got = data;
        }
        assert_eq!(got, b"x");
        c.far.send(DATA, b"");
        c.far.send(ALERT, &[1, 90]);
        let (mut record_type, mut data, _) = c.recv(64);
        if record_type == DATA {
            assert_eq!(data, b"");
            (record_type, data, _) = c.recv(64);
        }
        assert_eq!((record_type, data), (ALERT, vec![1, 90]));
    }
}

#[test]
fn end_of_stream_tells_whether_the_peer_meant_it() {
    for (version, cipher) in suites() {
        for clean in [true, false] {
            let mut c = Receiving::new(version, cipher, 0);
            c.far.send(DATA, b"last");
            if clean {
                c.far.send(ALERT, &[1, 0]);
            }
            c.far.stream.shutdown(Shutdown::Write).expect("shutdown");
            assert_eq!(c.recv(64), (DATA, b"last".to_vec(), true));
            if clean {
                assert_eq!(c.recv(64), (ALERT, vec![1, 0], true));
            }
            for _ in 0..2 {
                let end = c.rx.recv(&mut [0; 64]);
                assert_eq!(end, Ok(Incoming::End { close_notify: clean }), "{version} {cipher}");
            }
        }
    }
}

/// If the stream ends within a record, the read returns neither data nor a clean end.
#[test]
fn end_within_a_record_is_a_truncation() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let record = c.far.seal(DATA, b"whole", 0);
        c.far.stream.write_all(&record[..record.len() - 1]).expect("write");
        c.far.stream.shutdown(Shutdown::Write).expect("shutdown");
        let end = c.rx.recv(&mut [0; 64]);
        assert_eq!(end, Ok(Incoming::End { close_notify: false }), "{version} {cipher}");
    }
}

/// A readable socket has a whole record. Before 6.7 any byte makes it readable, and the read returns WouldBlock.
#[test]
fn half_a_record_is_not_readable() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.near.set_nonblocking(true).expect("non-blocking");
        let record = c.far.seal(DATA, b"whole", 0);
        for byte in &record[..record.len() - 1] {
            c.far.stream.write_all(&[*byte]).expect("write");
            assert!(!kernel_at_least(6, 7) || !c.readable());
        }
        assert_eq!(c.rx.recv(&mut [0; 64]).map_err(|e| e.kind()), Err(Kind::WouldBlock));
        c.far.stream.write_all(&record[record.len() - 1..]).expect("write");
        c.near.set_nonblocking(false).expect("blocking");
        assert_eq!(c.recv(64), (DATA, b"whole".to_vec(), true), "{version} {cipher}");
    }
}

/// After a tampered record every read returns EBADMSG, and the kernel sends nothing more, so that no alert can leave.
#[test]
fn tampered_record_ends_both_directions() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let before = TlsStat::read().expect("tls_stat");
        c.far.send(DATA, b"good");
        let mut record = c.far.seal(DATA, b"evil", 0);
        *record.last_mut().expect("a byte") ^= 1;
        c.far.stream.write_all(&record).expect("write");
        let mut buffer = [0; 4];
        c.rx.recv(&mut buffer).expect("the good one");
        assert_eq!(&buffer, b"good");
        for _ in 0..2 {
            let error = c.refused();
            assert_eq!(
                (error.operation(), error.kind(), error.errno()),
                (Operation::Receive, Kind::Peer, Some(Errno::BADMSG.raw_os_error())),
                "{version} {cipher}"
            );
        }
        let after = TlsStat::read().expect("tls_stat");
        assert_eq!(after.get("TlsDecryptError"), before.decrypt_error().map(|n| n + 1));
        let plain = (&*c.near).read(&mut [0; 64]).expect_err("the kernel repeats it by itself");
        assert_eq!(plain.raw_os_error(), Some(Errno::BADMSG.raw_os_error()));
        let error = c.tx.send_record(ALERT, &[2, 20]).expect_err("sending is dead");
        assert_eq!((error.kind(), error.errno()), (Kind::Io, Some(Errno::BADMSG.raw_os_error())));
    }
}

/// The kernel reports an impossible header once, then acts as if nothing had arrived. Our error stays.
#[test]
fn impossible_headers_stay_told() {
    for (version, cipher) in suites() {
        for (header, errno) in [
            ([23, 3, 3, 0xFF, 0xFF], Errno::MSGSIZE),
            ([23, 3, 1, 0, 100], Errno::INVAL),
            ([23, 3, 3, 0, 1], Errno::BADMSG),
        ] {
            let mut c = Receiving::new(version, cipher, 0);
            c.far.stream.write_all(&[&header[..], &[0; 100]].concat()).expect("write");
            for _ in 0..2 {
                let error = c.refused();
                assert_eq!(
                    (error.kind(), error.errno()),
                    (Kind::Peer, Some(errno.raw_os_error())),
                    "{version} {cipher}"
                );
            }
            c.near.set_nonblocking(true).expect("non-blocking");
            let plain = (&*c.near).read(&mut [0; 64]).expect_err("the kernel reads no further");
            assert_eq!(plain.raw_os_error(), Some(Errno::AGAIN.raw_os_error()), "{version} {cipher} {errno:?}");
        }
    }
}

/// If user space read bytes before the handover, the kernel is out of step.
#[test]
fn handover_within_a_record_fails_loudly() {
    for (version, cipher) in suites() {
        let (mut near, far) = pair();
        let mut far = Sealer::new(far, version, cipher, 2, 0);
        far.send(DATA, &[0xAA; 100]);
        near.read_exact(&mut [0; 3]).expect("read");
        let tx = handover::tx(&near, &info(version, cipher, 1, 0)).expect("TLS_TX");
        let mut rx = handover::rx(&tx, &info(version, cipher, 2, 0)).expect("TLS_RX");
        assert_eq!(rx.recv(&mut [0; 200]).map_err(|e| e.kind()), Err(Kind::Peer), "{version} {cipher}");
    }
}

/// Both directions need the same version and cipher, each set once; the kernel is not even asked.
#[test]
fn receiving_keys_must_match_sending_keys() {
    let (near, _far) = pair();
    let tx = handover::tx(&near, &info(Version::Tls12, Cipher::Aes128Gcm, 1, 0)).expect("TLS_TX");
    for (version, cipher) in suites() {
        let result = handover::rx(&tx, &info(version, cipher, 2, 0));
        if (version, cipher) == (Version::Tls12, Cipher::Aes128Gcm) {
            result.expect("TLS_RX");
            let error = handover::rx(&tx, &info(version, cipher, 2, 0)).expect_err("again");
            assert_eq!((error.kind(), error.errno()), (Kind::Misuse, Some(Errno::BUSY.raw_os_error())));
        } else {
            assert_eq!(result.map(drop).map_err(|e| (e.kind(), e.errno())), Err((Kind::Misuse, None)));
        }
    }
}

/// After KeyUpdate nothing is readable until the next key is installed. A kernel that cannot renew returns an error.
#[test]
fn key_update_expires_the_key() {
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let mut c = Receiving::new(version, cipher, 0);
        let early = c.rx.rekey(&info(version, cipher, 3, 0)).expect_err("no KeyUpdate yet");
        assert_eq!((early.kind(), early.errno()), (Kind::Misuse, None));
        let before = TlsStat::read().expect("tls_stat");
        c.far.send(DATA, b"old");
        c.far.send(HANDSHAKE, &KEY_UPDATE);
        c.far.rekey(3);
        c.far.send(DATA, b"new");
        assert_eq!(c.recv(64), (DATA, b"old".to_vec(), true));
        assert_eq!(c.recv(64), (HANDSHAKE, KEY_UPDATE.to_vec(), true));
        assert_eq!(c.rx.recv(&mut [0; 64]), Ok(Incoming::KeyExpired), "{cipher}");
        let renewed = c.rx.rekey(&info(version, cipher, 3, 0));
        if kernel_at_least(6, 14) {
            renewed.expect("rekey");
            assert_eq!(c.recv(64), (DATA, b"new".to_vec(), true), "{cipher}");
            assert_eq!(c.rx.sequence(), Ok(1));
            let after = TlsStat::read().expect("tls_stat");
            assert_eq!(after.delta(&before), [("TlsRxRekeyOk", 1), ("TlsRxRekeyReceived", 1)]);
        } else {
            let error = renewed.expect_err("no rekey in this kernel");
            assert_eq!(
                (error.operation(), error.kind(), error.errno()),
                (Operation::RekeyRx, Kind::Unsupported, Some(Errno::BUSY.raw_os_error()))
            );
        }
    }
}

/// The kernel's own behaviour meanwhile: EKEYEXPIRED, and no POLLIN.
#[test]
fn kernel_waits_for_the_next_key() {
    if !kernel_at_least(6, 14) {
        // `key_update_expires_the_key` asserts the exact errno for these kernels.
        return;
    }
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(HANDSHAKE, &KEY_UPDATE);
        c.far.rekey(3);
        c.far.send(DATA, b"new");
        assert_eq!(c.recv(64).0, HANDSHAKE);
        let error = (&*c.near).read(&mut [0; 64]).expect_err("no key");
        assert_eq!(error.raw_os_error(), Some(Errno::KEYEXPIRED.raw_os_error()));
        assert!(!c.readable());
        c.rx.rekey(&info(version, cipher, 3, 0)).expect("rekey");
        assert!(c.readable());
        assert_eq!(c.recv(64), (DATA, b"new".to_vec(), true), "{cipher}");
    }
}

/// The second part of a long handshake message begins with 24 by chance. The present key stays in use, whatever the
/// kernel assumes.
#[test]
fn false_key_update_is_undone() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(HANDSHAKE, b"\x04 first part");
        c.far.send(HANDSHAKE, b"\x18 second part");
        c.far.send(DATA, b"data");
        assert_eq!(c.recv(64).1, b"\x04 first part");
        assert_eq!(c.recv(64).1, b"\x18 second part");
        c.rx.false_alarm().expect("false alarm");
        if version == Version::Tls12 && kernel_at_least(6, 14) {
            assert_eq!(c.rx.recv(&mut [0; 64]), Ok(Incoming::KeyExpired), "the kernel's own mistake");
            let error = c.rx.false_alarm().expect_err("TLS 1.2 keys cannot be set again");
            assert_eq!((error.kind(), error.errno()), (Kind::Unsupported, Some(Errno::BUSY.raw_os_error())));
            continue;
        }
        assert_eq!(c.recv(64), (DATA, b"data".to_vec(), true), "{version} {cipher}");
    }
}

/// Neither the kernel nor this crate notices a KeyUpdate after another message in the same record: the next record
/// fails to open.
#[test]
fn packed_key_update_is_missed() {
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let mut c = Receiving::new(version, cipher, 0);
        let ticket_and_update = [&[4, 0, 0, 1, 0][..], &KEY_UPDATE].concat();
        c.far.send(HANDSHAKE, &ticket_and_update);
        c.far.rekey(3);
        c.far.send(DATA, b"new");
        assert_eq!(c.recv(64).1, ticket_and_update);
        assert_eq!(c.refused().errno(), Some(Errno::BADMSG.raw_os_error()), "{cipher}");
    }
}

/// Padding is removed. With expect_no_pad it is also counted.
#[test]
fn padding_is_removed_and_counted() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        if version == Version::Tls12 {
            for error in [c.rx.expect_no_pad(true), c.rx.expect_no_pad_despite_cve_2026_74611(true)] {
                let error = error.expect_err("TLS 1.2");
                assert_eq!((error.kind(), error.errno()), (Kind::Misuse, None));
            }
            continue;
        }
        for (promise, violations) in [(false, 0), (true, 1)] {
            c.rx.expect_no_pad_despite_cve_2026_74611(promise).expect("expect_no_pad");
            let before = TlsStat::read().expect("tls_stat").rx_no_pad_violation().expect("a counter");
            for padding in [0, 100] {
                let record = c.far.seal(DATA, b"padded", padding);
                c.far.stream.write_all(&record).expect("write");
                assert_eq!(c.recv(200), (DATA, b"padded".to_vec(), true), "{cipher} {padding}");
            }
            let after = TlsStat::read().expect("tls_stat").rx_no_pad_violation().expect("a counter");
            assert_eq!(after - before, violations, "{cipher}");
        }
    }
}

/// Debian's 6.1 and 6.12 have CVE-2026-74611, 7.2 does not. On affected kernels expect_no_pad fails to be set, but can
/// be cleared.
#[test]
fn a_promise_of_no_padding_is_refused_where_a_peer_overwrites_later_bytes() {
    let has_fault = !kernel_at_least(7, 2);
    for (_, cipher) in suites().filter(|(version, _)| *version == Version::Tls13) {
        let mut c = Receiving::new(Version::Tls13, cipher, 0);
        let promised = c.rx.expect_no_pad(true).map_err(|error| (error.kind(), error.errno()));
        assert_eq!(promised, if has_fault { Err((Kind::Unsupported, None)) } else { Ok(()) }, "{cipher}");
        assert_eq!(c.rx.expects_no_pad(), Ok(!has_fault), "{cipher}");
        c.rx.expect_no_pad(false).expect("nothing is promised");

        c.rx.expect_no_pad_despite_cve_2026_74611(true).expect("the caller insists");
        let record = c.far.seal(DATA, b"padded", 100);
        c.far.stream.write_all(&record).expect("write");
        let mut buffer = [0xaa; 400];
        let read = c.rx.recv(&mut buffer).expect("a record");
        assert!(matches!(read, Incoming::Record { len: 6, .. }) && buffer.starts_with(b"padded"), "{cipher} {read:?}");
        // Every kernel opens the padding into the buffer. Only the fault writes the content a second time.
        let is_written_again = buffer[6..].windows(6).any(|bytes| bytes == b"padded");
        assert_eq!(is_written_again, has_fault, "{cipher}");
    }
}

#[test]
fn splice_moves_data_and_stops_at_control_records() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let data = pattern(3000);
        c.far.send(DATA, &data);
        let mut got = Vec::new();
        for count in [1000, 5000] {
            let Spliced::Data(moved) = c.rx.splice(&writer, count).expect("splice") else { panic!("data comes next") };
            let mut part = vec![0; moved];
            reader.read_exact(&mut part).expect("read");
            got.extend(part);
        }
        assert!(got == data, "{version} {cipher}");
        c.far.send(ALERT, &[1, 0]);
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Other));
        assert_eq!(c.recv(64), (ALERT, vec![1, 0], true));
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Other));
        assert_eq!(c.rx.recv(&mut [0; 64]), Ok(Incoming::End { close_notify: true }));
    }
}

#[test]
fn both_directions_at_once() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        let far = c.far.stream.try_clone().expect("dup");
        let mut opener = support::Opener::new(far, version, cipher, 1, 0);
        for round in 0..100_u8 {
            c.tx.send(&[round; 1000], More::No).expect("send");
            c.far.send(DATA, &[round; 500]);
            assert_eq!(opener.record().data, [round; 1000]);
            assert_eq!(c.recv(500).1, [round; 500]);
        }
    }
}

/// SO_RCVTIMEO ends a blocking read with WouldBlock.
#[test]
fn timeout_is_would_block() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.near.set_read_timeout(Some(std::time::Duration::from_millis(1))).expect("SO_RCVTIMEO");
        assert_eq!(c.refused().kind(), Kind::WouldBlock, "{version} {cipher}");
        c.near.set_read_timeout(None).expect("blocking");
        c.far.send(DATA, b"later");
        assert_eq!(c.recv(64), (DATA, b"later".to_vec(), true));
    }
}

#[test]
fn reset_is_the_peers_fault() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        rustix::net::sockopt::set_socket_linger(&c.far.stream, Some(std::time::Duration::ZERO)).expect("linger 0");
        drop(c.far);
        let error = c.rx.recv(&mut [0; 64]).expect_err("reset");
        assert_eq!((error.kind(), error.errno()), (Kind::Peer, Some(Errno::CONNRESET.raw_os_error())));
    }
}

/// KeyUpdate stops splice, as any control record does, and stays in the socket. After the next key splice continues, if
/// the kernel can renew.
#[test]
fn splice_stops_at_key_update_and_goes_on_after_rekey() {
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let mut c = Receiving::new(version, cipher, 0);
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let mut buffer = [0; 3];
        c.far.send(DATA, b"old");
        c.far.send(HANDSHAKE, &KEY_UPDATE);
        c.far.rekey(3);
        c.far.send(DATA, b"new");
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Data(3)), "{cipher}");
        reader.read_exact(&mut buffer).expect("read");
        assert_eq!(&buffer, b"old");
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Other));
        assert_eq!(c.recv(64), (HANDSHAKE, KEY_UPDATE.to_vec(), true));
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Other), "no key");

        // The kernel's own result: it waits for a key, or tries the old key.
        let nonblocking = rustix::pipe::SpliceFlags::NONBLOCK;
        if kernel_at_least(6, 14) {
            let kernel = rustix::pipe::splice(&c.near, None, &writer, None, 1000, nonblocking);
            assert_eq!(kernel, Err(Errno::KEYEXPIRED), "{cipher}");
        }
        let renewed = c.rx.rekey(&info(version, cipher, 3, 0));
        if !kernel_at_least(6, 14) {
            let error = renewed.expect_err("no rekey in this kernel");
            assert_eq!(
                (error.operation(), error.kind(), error.errno()),
                (Operation::RekeyRx, Kind::Unsupported, Some(Errno::BUSY.raw_os_error()))
            );
            let kernel = rustix::pipe::splice(&c.near, None, &writer, None, 1000, nonblocking);
            assert_eq!(kernel, Err(Errno::BADMSG), "{cipher}: the old key does not open it");
            continue;
        }
        renewed.expect("rekey");
        assert_eq!(c.rx.splice(&writer, 1000), Ok(Spliced::Data(3)), "{cipher}");
        reader.read_exact(&mut buffer).expect("read");
        assert_eq!(&buffer, b"new");
    }
}

/// A Tx or Rx is used with another socket.
#[test]
fn wrong_descriptors_are_misuse() {
    let mut c = Receiving::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    let (plain, mut far) = pair();
    assert_eq!(c.rx.recv(&mut [0; 1]).map_err(|e| e.kind()), Err(Kind::Misuse), "no room for an alert");
    let (_near, state) = c.rx.into_parts();
    let mut wrong = Rx::from_parts(&plain, state);
    assert_eq!(wrong.sequence().map_err(|e| e.kind()), Err(Kind::Misuse));
    far.write_all(b"plain").expect("write");
    assert_eq!(wrong.recv(&mut [0; 64]).map_err(|e| e.kind()), Err(Kind::Misuse));
}
