//! Sentences of the kernel's Documentation/networking/tls.rst that no other module asserts.
//!
//! Not asserted: the counters of a network card rising. No emulated card has TLS, netdevsim(4) included; here they exist
//! and stay at 0.

use std::io::Read;

use rustix::io::Errno;
use sealion_ktls::stat::TlsStat;
use sealion_ktls::{Cipher, Incoming, Kind, More, RecordType, Version, fuzzing};

use crate::support::{self, IV, Receiving, Sending, info, kernel_at_least, pattern, suites};

const DATA: RecordType = RecordType::APPLICATION_DATA;
const ALERT: RecordType = RecordType::ALERT;
const HANDSHAKE: RecordType = RecordType::HANDSHAKE;
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

fn stat() -> TlsStat {
    TlsStat::read().expect("tls_stat")
}

fn counter(name: &str) -> u64 {
    stat().get(name).unwrap_or_else(|| panic!("this kernel has no {name}"))
}

/// tls.rst: data of MSG_MORE stays in the socket buffer when a later send returns ENOMEM. The kernel waits for memory as it waits for room, so that a socket
/// that does not block returns EAGAIN. No test can provoke ENOMEM without faults in the kernel's allocator.
#[test]
fn a_send_that_finds_no_room_leaves_the_data_of_more() {
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.narrow();
        let data = pattern(1000);
        let (mut sent, mut refused) = (Vec::new(), 0);
        // Pieces that end within a record, so that a refusal finds an open one.
        while refused < 3 {
            match c.tx.send(&data, More::Yes) {
                Ok(taken) => {
                    sent.extend_from_slice(&data[..taken]);
                    refused = 0;
                }
                Err(error) => {
                    let is_room = [Errno::AGAIN, Errno::NOMEM].map(|errno| Some(errno.raw_os_error()));
                    assert!(is_room.contains(&error.errno()), "{version} {cipher}: {error}");
                    refused += 1;
                }
            }
        }
        c.near.set_nonblocking(false).expect("blocking");
        std::thread::scope(|scope| {
            let (tx, far) = (&mut c.tx, &mut c.far);
            scope.spawn(move || {
                tx.send(b"the end", More::No).expect("there is room again");
            });
            let (got, _) = far.data(sent.len() + 7);
            assert!(got == [&sent[..], b"the end"].concat(), "{version} {cipher}: every byte once, in order");
        });
    }
}

/// "TlsCurrTxSw, TlsCurrRxSw - number of TX and RX sessions currently installed": they fall when the socket closes.
#[test]
fn current_sessions_rise_with_keys_and_fall_at_close() {
    for (version, cipher) in suites() {
        let before = ["TlsCurrTxSw", "TlsCurrRxSw"].map(counter);
        let now = |tx: u64, rx: u64| {
            let expected = [before[0] + tx, before[1] + rx];
            assert_eq!(["TlsCurrTxSw", "TlsCurrRxSw"].map(counter), expected, "{version} {cipher}");
        };
        let sending = Sending::new(version, cipher, 0);
        now(1, 0);
        let receiving = Receiving::new(version, cipher, 0);
        now(2, 1);
        drop(receiving);
        now(1, 0);
        drop(sending);
        now(0, 0);
    }
}

/// "TlsDecryptRetry - number of RX records which had to be re-decrypted due to TLS_RX_EXPECT_NO_PAD mis-prediction", and
/// "TlsRxNoPadViolation - number of data RX records which had to be re-decrypted": a control record counts in the first
/// alone.
#[test]
fn a_record_that_breaks_the_promise_is_decrypted_again_and_counted() {
    for (_, cipher) in suites().filter(|(version, _)| *version == Version::Tls13) {
        let mut c = Receiving::new(Version::Tls13, cipher, 0);
        c.rx.expect_no_pad_despite_cve_2026_74611(true).expect("the caller insists");
        for (record_type, padding, retries, violations) in [(DATA, 0, 0, 0), (DATA, 50, 1, 1), (ALERT, 0, 1, 0)] {
            let before = stat();
            let record = c.far.seal(record_type, &[1, 90], padding);
            std::io::Write::write_all(&mut c.far.stream, &record).expect("write");
            assert_eq!(c.recv(200), (record_type, vec![1, 90], true), "{cipher}");
            let after = stat();
            let rise = |name| after.get(name).expect("a counter") - before.get(name).expect("a counter");
            assert_eq!(
                [rise("TlsDecryptRetry"), rise("TlsRxNoPadViolation")],
                [retries, violations],
                "{cipher} {record_type:?} with {padding} bytes of padding"
            );
        }
    }
}

/// "recvmsg() … if a control buffer is not provided, data is returned": data needs no control buffer, and a read ends
/// before the next control record.
#[test]
fn data_is_read_without_a_control_buffer() {
    for (version, cipher) in suites() {
        let mut c = Receiving::new(version, cipher, 0);
        c.far.send(DATA, b"one");
        c.far.send(DATA, b"two");
        c.far.send(ALERT, &[1, 90]);
        let mut got = Vec::new();
        while got.len() < 6 {
            let mut buffer = [0; 64];
            let read = (&*c.near).read(&mut buffer).expect("data");
            assert_ne!(read, 0, "{version} {cipher}");
            got.extend_from_slice(&buffer[..read]);
        }
        assert_eq!(got, b"onetwo", "{version} {cipher}");
        assert_eq!(c.recv(64), (ALERT, vec![1, 90], true), "{version} {cipher}: nothing was lost");
    }
}

/// "…does not pause sending": while the receiving key has expired, sending goes on under its own key.
#[test]
fn sending_does_not_pause_while_the_receiving_key_has_expired() {
    for (version, cipher) in suites().filter(|(version, _)| *version == Version::Tls13) {
        let mut c = Receiving::new(version, cipher, 0);
        let far = c.far.stream.try_clone().expect("a second descriptor");
        let mut opener = support::Opener::new(far, version, cipher, 1, 0);
        c.far.send(HANDSHAKE, &KEY_UPDATE);
        assert_eq!(c.recv(64), (HANDSHAKE, KEY_UPDATE.to_vec(), true));
        assert_eq!(c.rx.recv(&mut [0; 64]), Ok(Incoming::KeyExpired), "{cipher}");
        let data = pattern(40_000);
        assert_eq!(c.tx.send(&data, More::No), Ok(data.len()), "{cipher}");
        let (got, _) = opener.data(data.len());
        assert!(got == data, "{cipher}");
        c.tx.send_record(ALERT, &[1, 0]).expect("close_notify leaves too");
        assert_eq!(opener.record().record_type, ALERT);
    }
}

/// A struct of the kernel's interface, `tls12_crypto_info_aes_gcm_128` or `_256`, with the key made of `byte`.
fn keys(version: u16, cipher: Cipher, byte: u8) -> Vec<u8> {
    let (number, key) = match cipher {
        Cipher::Aes128Gcm => (51_u16, 16),
        Cipher::Aes256Gcm => (52, 32),
        other => panic!("{other} is not needed here"),
    };
    let head = [version.to_ne_bytes(), number.to_ne_bytes()].concat();
    [&head[..], &IV[4..], &vec![byte; key], &IV[..4], &[0; 8]].concat()
}

const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
const TLS_TX: i32 = 1;
const TLS_RX: i32 = 2;

/// "The new key must be for the same version and cipher": the kernel itself refuses another, counts the refusal, and
/// keeps the present key. A kernel that cannot renew keys refuses every key, and has no such counters.
#[test]
fn the_kernel_refuses_a_key_of_another_version_or_cipher() {
    for (direction, name) in [(TLS_TX, "TlsTxRekeyError"), (TLS_RX, "TlsRxRekeyError")] {
        let mut c = Receiving::new(Version::Tls13, Cipher::Aes128Gcm, 0);
        if direction == TLS_RX {
            c.far.send(HANDSHAKE, &KEY_UPDATE);
            assert_eq!(c.recv(64).0, HANDSHAKE);
        }
        for (version, cipher) in [(TLS_1_2, Cipher::Aes128Gcm), (TLS_1_3, Cipher::Aes256Gcm)] {
            let before = stat().get(name);
            let refused = fuzzing::set_option(&*c.near, libc::SOL_TLS, direction, &keys(version, cipher, 3));
            let errno = refused.expect_err("another version or cipher").raw_os_error();
            let expected = if kernel_at_least(6, 14) { Errno::INVAL } else { Errno::BUSY };
            assert_eq!(errno, Some(expected.raw_os_error()), "{name} {version:#x} {cipher}");
            assert_eq!(stat().get(name), before.map(|count| count + 1), "{name} {version:#x} {cipher}");
            assert_eq!(before.is_some(), kernel_at_least(6, 14), "{name}");
        }
        let far = c.far.stream.try_clone().expect("a second descriptor");
        let mut opener = support::Opener::new(far, Version::Tls13, Cipher::Aes128Gcm, 1, 0);
        c.tx.send(b"under the present key", More::No).expect("the connection goes on");
        assert_eq!(opener.record().data, b"under the present key");
    }
}

/// Keys for TLS 1.2 are set once: the kernel counts the attempt where it counts renewals at all.
#[test]
fn keys_of_tls_1_2_are_not_renewed() {
    let c = Sending::new(Version::Tls12, Cipher::Aes128Gcm, 0);
    let before = stat().tx_rekey_error();
    let refused = fuzzing::set_option(&*c.near, libc::SOL_TLS, TLS_TX, &keys(TLS_1_2, Cipher::Aes128Gcm, 3));
    assert_eq!(refused.expect_err("set once").raw_os_error(), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(stat().tx_rekey_error(), before.map(|count| count + 1));
}

/// "TlsTxDevice, TlsRxDevice …": present, and at 0 where no network card seals.
#[test]
fn counters_of_a_network_card_stay_at_zero_without_one() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    c.tx.send(b"x", More::No).expect("send");
    assert_eq!(c.far.record().data, b"x");
    for name in ["TlsCurrTxDevice", "TlsCurrRxDevice", "TlsTxDevice", "TlsRxDevice", "TlsRxDeviceResync"] {
        assert_eq!(counter(name), 0, "{name}");
    }
}

/// This crate refuses before the kernel is asked, so that no failed renewal is counted. The kernel counts those that it
/// refuses itself (`do_tls_setsockopt_conf` in net/tls/tls_main.c):
/// `the_kernel_refuses_a_key_of_another_version_or_cipher` makes both counters rise.
#[test]
fn a_wrong_renewal_of_ours_is_not_counted() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    let before = stat();
    let error = c.tx.rekey(&KEY_UPDATE, &info(Version::Tls13, Cipher::Aes256Gcm, 2, 0)).expect_err("another cipher");
    assert_eq!((error.kind(), error.errno()), (Kind::Misuse, None));
    assert!(stat().delta(&before).is_empty());
}
