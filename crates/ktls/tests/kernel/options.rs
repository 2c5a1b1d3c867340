//! Tests every cipher of the kernel's interface, the options, and handovers that fail.

use std::io::Read;

use rustix::io::Errno;
use sealion_ktls::fuzzing::set_option;
use sealion_ktls::nonce::Explicit;
use sealion_ktls::{
    Cipher, CryptoInfo, Incoming, Kind, MAX_PLAINTEXT, More, Operation, RecordType, Rx, Tx, Version, handover, probe,
    uapi,
};

use crate::support::{self, Receiving, Sending, file_of, info, kernel_at_least, pair, pattern, suites, write_plain};

fn all() -> impl Iterator<Item = (Version, Cipher)> {
    Version::ALL.into_iter().flat_map(|version| Cipher::ALL.map(|cipher| (version, cipher)))
}

/// The support in Debian's kernels. They are built without SM4 and ARIA, and ARIA is not a cipher of TLS 1.3.
fn promised(version: Version, cipher: Cipher) -> Result<(), Errno> {
    match (version, cipher) {
        (Version::Tls13, Cipher::Aria128Gcm | Cipher::Aria256Gcm) => Err(Errno::INVAL),
        (Version::Tls12, Cipher::Aria128Gcm | Cipher::Aria256Gcm) => Err(Errno::NOENT),
        (_, Cipher::Sm4Gcm | Cipher::Sm4Ccm) => Err(Errno::NOENT),
        _ => Ok(()),
    }
}

/// Each cipher works in both directions between kernels, or fails with the exact errno. After the failure the socket
/// still sends in plain text and accepts another cipher.
#[test]
fn every_cipher_works_or_is_refused_and_leaves_the_socket_usable() {
    for (version, cipher) in all() {
        let (near, far) = pair();
        let first = handover::tx(&near, &info(version, cipher, 1, 0)).map(drop).map_err(|refused| refused.error);
        let Err(errno) = promised(version, cipher) else {
            first.unwrap_or_else(|error| panic!("{version} {cipher}: {error}"));
            exchange(version, cipher);
            continue;
        };
        let error = first.expect_err("not promised");
        assert_eq!(
            (error.operation(), error.kind(), error.errno()),
            (Operation::SetTx, Kind::Unsupported, Some(errno.raw_os_error())),
            "{version} {cipher}"
        );
        write_plain(&near, b"plain");
        let mut tx = handover::tx(&near, &info(version, Cipher::Aes128Gcm, 1, 0)).expect("a second attempt");
        tx.send(b"sealed", More::No).expect("send");
        let mut far = support::Opener::new(far, version, Cipher::Aes128Gcm, 1, 0);
        let mut plain = [0; 5];
        far.stream.read_exact(&mut plain).expect("read");
        assert_eq!(&plain, b"plain");
        assert_eq!(far.record().data, b"sealed");
        assert_eq!(tx.unsent(), Ok(0));
    }
}

fn exchange(version: Version, cipher: Cipher) {
    let (near, far) = pair();
    let keys = |byte| info(version, cipher, byte, 3);
    let mut near_tx = handover::tx(&near, &keys(1)).expect("near TLS_TX");
    let mut near_rx = handover::rx(&near_tx, &keys(2)).expect("near TLS_RX");
    let mut far_tx = handover::tx(&far, &keys(2)).expect("far TLS_TX");
    let mut far_rx = handover::rx(&far_tx, &keys(1)).expect("far TLS_RX");
    let data = pattern(40_000);
    for _ in 0..2 {
        assert_eq!(near_tx.send(&data, More::No), Ok(data.len()));
        assert_eq!(far_tx.send(b"pong", More::No), Ok(4));
        let (mut got, mut buffer) = (Vec::new(), vec![0; 50_000]);
        while got.len() < data.len() {
            let Incoming::Record { record_type: RecordType::APPLICATION_DATA, len, .. } =
                far_rx.recv(&mut buffer).expect("recv")
            else {
                panic!("data")
            };
            got.extend_from_slice(&buffer[..len]);
        }
        assert!(got == data, "{version} {cipher}");
        let pong = Incoming::Record { record_type: RecordType::APPLICATION_DATA, len: 4, whole: true };
        assert_eq!(near_rx.recv(&mut buffer), Ok(pong));
        assert_eq!(&buffer[..4], b"pong");
    }
    assert_eq!(near_tx.sequence(), Ok(3 + 6));
    assert_eq!(far_rx.sequence(), Ok(3 + 6));
    assert_eq!(near_tx.unsent(), Ok(0), "{version} {cipher}: the overhead is reckoned right");
    let used = 3 + 6;
    assert_eq!(near_tx.records_left(), Ok(cipher.record_limit() - used));
}

#[test]
fn probe_says_what_a_handover_does() {
    let found = probe::probe();
    for (version, cipher) in all() {
        let expected = promised(version, cipher).map_err(|errno| Some(errno.raw_os_error()));
        assert_eq!(found.tx(version, cipher).map_err(|e| e.errno()), expected, "send {version} {cipher}");
        assert_eq!(found.rx(version, cipher).map_err(|e| e.errno()), expected, "receive {version} {cipher}");
    }
    let renews = if kernel_at_least(6, 14) { Ok(()) } else { Err(Some(Errno::BUSY.raw_os_error())) };
    assert_eq!(found.rekey_tx().map_err(|e| e.errno()), renews);
    assert_eq!(found.rekey_rx().map_err(|e| e.errno()), renews);
    assert_eq!(found.zerocopy_read_only(), Ok(()));
    assert_eq!(found.expect_no_pad(), Ok(()));
    let limits = if kernel_at_least(6, 19) { Ok(()) } else { Err(Some(Errno::NOPROTOOPT.raw_os_error())) };
    assert_eq!(found.max_payload().map_err(|e| e.errno()), limits);
}

/// The kernel uses the last sequence number, then fails for ever: a repeated nonce would reveal the key.
#[test]
fn sequence_numbers_do_not_wrap() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, u64::MAX);
        let mut errors = 0;
        for _ in 0..3 {
            if let Err(error) = c.tx.send(b"x", More::No) {
                assert_eq!((error.kind(), error.errno()), (Kind::Io, Some(Errno::BADMSG.raw_os_error())), "{error}");
                errors += 1;
            }
        }
        assert!(errors >= 2, "{version} {cipher}: at most one record was sealed");
    }
}

#[test]
fn records_keep_to_the_payload_limit() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let least = if version == Version::Tls13 { 63 } else { 64 };
        for wrong in [0, least - 1, MAX_PLAINTEXT as u16 + 1] {
            let error = c.tx.max_payload(wrong).expect_err("out of range");
            assert_eq!((error.kind(), error.errno()), (Kind::Misuse, None));
        }
        assert_eq!(c.tx.record_size_limit(63).map_err(|e| (e.kind(), e.errno())), Err((Kind::Misuse, None)));
        c.tx.send(b"open", More::Yes).expect("send");
        let open = c.tx.max_payload(100).expect_err("a record is open, or no such option");
        c.tx.flush().expect("flush");
        assert_eq!(c.far.record().data, b"open");
        if !kernel_at_least(6, 19) {
            assert_eq!((open.kind(), open.errno()), (Kind::Unsupported, Some(Errno::NOPROTOOPT.raw_os_error())));
            let unread = c.tx.max_payload_now().expect_err("no such option");
            assert_eq!((unread.operation(), unread.kind()), (Operation::ReadOption, Kind::Unsupported));
            continue;
        }
        assert_eq!((open.kind(), open.errno()), (Kind::Misuse, Some(Errno::BUSY.raw_os_error())));
        assert_eq!(c.tx.max_payload_now(), Ok(MAX_PLAINTEXT as u16));
        for limit in [least, 64, 1000] {
            c.tx.max_payload(limit).expect("max_payload");
            assert_eq!(c.tx.max_payload_now(), Ok(limit));
            let data = pattern(2500);
            c.tx.send(&data, More::No).expect("send");
            let (got, sizes) = c.far.data(2500);
            assert!(got == data);
            assert!(sizes.iter().all(|&n| n <= usize::from(limit)), "{version} {cipher} {sizes:?}");
            assert_eq!(c.unsent(), 0);
        }
        // RFC 8449 counts the content type in TLS 1.3. A limit above the protocol's maximum counts as the maximum.
        let type_byte = u16::from(version == Version::Tls13);
        for (limit, content) in [(64, 64 - type_byte), (500, 500 - type_byte), (u16::MAX, MAX_PLAINTEXT as u16)] {
            c.tx.record_size_limit(limit).expect("record_size_limit");
            assert_eq!(c.tx.max_payload_now(), Ok(content), "{version} {limit}");
        }
    }
}

/// This crate's bounds equal the kernel's: one byte less returns EINVAL.
#[test]
fn payload_limits_have_the_kernels_bounds() {
    if !kernel_at_least(6, 19) {
        return;
    }
    for (version, least) in [(Version::Tls12, 64), (Version::Tls13, 63)] {
        let c = Sending::new(version, Cipher::Aes128Gcm, 0);
        for (value, expected) in
            [(least - 1, Err(Errno::INVAL)), (least, Ok(())), (16384, Ok(())), (16385, Err(Errno::INVAL))]
        {
            let set = set_option(&c.near, uapi::SOL_TLS, 5, &u16::to_ne_bytes(value));
            assert_eq!(
                set.map_err(|error| error.raw_os_error()),
                expected.map_err(|errno| Some(errno.raw_os_error())),
                "{version} {value}"
            );
        }
    }
}

/// MSG_EOR means the same as the absence of MSG_MORE, and 6.1 rejects it. So this crate does not offer it.
#[test]
fn end_of_record_is_the_absence_of_more() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    c.tx.send(b"open ", More::Yes).expect("send");
    let sent = rustix::net::send(&c.near, b"ended", rustix::net::SendFlags::EOR);
    if kernel_at_least(6, 5) {
        assert_eq!(sent, Ok(5));
        assert_eq!(c.far.record().data, b"open ended");
    } else {
        assert_eq!(sent, Err(Errno::OPNOTSUPP));
        c.tx.flush().expect("flush");
        assert_eq!(c.far.record().data, b"open ");
    }
}

/// Options are read back as set; a query that the kernel cannot answer fails.
#[test]
fn options_are_read_back() {
    for (version, cipher) in suites() {
        let Receiving { mut tx, mut rx, .. } = Receiving::new(version, cipher, 0);
        for on in [true, false] {
            tx.zerocopy_read_only(on).expect("set");
            assert_eq!(tx.is_zerocopy_read_only(), Ok(on), "{version} {cipher}");
        }
        if version == Version::Tls12 {
            let error = rx.expects_no_pad().expect_err("TLS 1.3 only");
            let expected = (Operation::ReadOption, Kind::Misuse, Some(Errno::INVAL.raw_os_error()));
            assert_eq!((error.operation(), error.kind(), error.errno()), expected);
            continue;
        }
        for on in [true, false] {
            rx.expect_no_pad_despite_cve_2026_74611(on).expect("set");
            assert_eq!(rx.expects_no_pad(), Ok(on), "{cipher}");
        }
    }
}

/// For each way of choosing nonces, the first nonce on the wire follows the last one used.
#[test]
fn explicit_nonces_go_on() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        for used in [Explicit::Counting { next: u64::MAX }, Explicit::Sequence, Explicit::Xor { base: 77 }] {
            let (near, far) = pair();
            let salt = *support::IV.first_chunk().expect("12 bytes");
            let keys = CryptoInfo::tls12_after(&support::key(cipher, 1), salt, used, 3).expect("GCM");
            let mut tx = handover::tx(&near, &keys).expect("TLS_TX");
            let mut far = support::Opener::new(far, Version::Tls12, cipher, 1, 3);
            for n in 0..3 {
                tx.send(b"x", More::No).expect("send");
                let expected = used.first_unused(3).wrapping_add(n);
                assert_eq!(far.record().explicit, Some(expected), "{cipher} {used:?}");
            }
        }
    }
    let chacha = support::key(Cipher::Chacha20Poly1305, 1);
    assert!(CryptoInfo::tls12_after(&chacha, [0; 4], Explicit::Sequence, 0).is_none());
}

/// Another program calls `setsockopt` with this crate's numbers and bytes, then both halves are adopted.
#[test]
fn halves_that_others_handed_over_are_adopted() {
    for (version, cipher) in suites() {
        let (near, far) = pair();
        let unready = Tx::adopt(&near).expect_err("no TLS layer");
        assert_eq!((unready.error.operation(), unready.error.kind()), (Operation::Sequence, Kind::Misuse));
        set_option(&near, 6, uapi::TCP_ULP, uapi::ULP_TLS).expect("TCP_ULP");
        assert_eq!(Tx::adopt(&near).map(drop).map_err(|refused| refused.error.kind()), Err(Kind::Misuse), "no keys");
        set_option(&near, uapi::SOL_TLS, uapi::TLS_TX, info(version, cipher, 1, 7).as_bytes()).expect("TLS_TX");
        set_option(&near, uapi::SOL_TLS, uapi::TLS_RX, info(version, cipher, 2, 9).as_bytes()).expect("TLS_RX");
        // The descriptor changes its owner, as over a Unix socket.
        let adopted = near.try_clone().expect("a second descriptor");
        let (mut tx, mut rx) = (Tx::adopt(&adopted).expect("adopted"), Rx::adopt(&adopted).expect("adopted"));
        assert_eq!((tx.version(), tx.cipher(), tx.sequence()), (version, cipher, Ok(7)));
        assert_eq!((rx.version(), rx.cipher(), rx.sequence()), (version, cipher, Ok(9)));
        let mut far_out = support::Sealer::new(far.try_clone().expect("a second descriptor"), version, cipher, 2, 9);
        let mut far = support::Opener::new(far, version, cipher, 1, 7);
        tx.send(b"ping", More::No).expect("send");
        assert_eq!(far.record().data, b"ping");
        assert_eq!(tx.unsent(), Ok(0), "counted from the adoption");
        far_out.send(RecordType::APPLICATION_DATA, b"pong");
        let mut buffer = [0; 16];
        let pong = Incoming::Record { record_type: RecordType::APPLICATION_DATA, len: 4, whole: true };
        assert_eq!(rx.recv(&mut buffer), Ok(pong));
        // A second adoption in the middle of the connection.
        let mut tx = Tx::adopt(&adopted).expect("adopted again");
        assert_eq!(tx.sequence(), Ok(8));
        tx.close_notify().expect("close_notify");
        assert_eq!(far.record().record_type, RecordType::ALERT);
    }
}

/// In software the kernel accepts the option, which changes nothing.
#[test]
fn zerocopy_is_taken_without_a_device() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.zerocopy_read_only(true).expect("zerocopy");
        assert_eq!(c.tx.send_file(file_of(b"abc"), &mut 0, 3), Ok(3));
        assert_eq!(c.far.record().data, b"abc");
    }
}

#[test]
fn pipes_are_spliced_into_records() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        let data = pattern(30_000);
        std::io::Write::write_all(&mut writer, &data).expect("write");
        drop(writer);
        c.tx.send(b"head", More::Yes).expect("send");
        let mut sent = 0;
        loop {
            match c.tx.send_pipe(&reader, data.len() - sent + 1, More::Yes).expect("splice") {
                0 => break,
                n => sent += n,
            }
        }
        c.tx.flush().expect("flush");
        assert_eq!(sent, data.len());
        let (got, _) = c.far.data(4 + data.len());
        assert!(got[..4] == *b"head" && got[4..] == data, "{version} {cipher}");
        assert_eq!(c.unsent(), 0);
    }
}
