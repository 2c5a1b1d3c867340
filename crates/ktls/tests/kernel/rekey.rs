//! Renews the sending key. Kernels before 6.14 cannot, and fail before anything is sent.

use rustix::io::Errno;
use sealion_ktls::stat::TlsStat;
use sealion_ktls::{Cipher, Kind, More, Operation, RecordType, Version};

use crate::support::{Sending, info, kernel_at_least, suites};

const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

fn tls13() -> impl Iterator<Item = Cipher> {
    suites().filter(|&(version, _)| version == Version::Tls13).map(|(_, cipher)| cipher)
}

/// The open record and KeyUpdate go under the old key, later data under the next key. Otherwise the result is EBUSY,
/// and the connection continues.
#[test]
fn key_update_goes_under_the_old_key() {
    for cipher in tls13() {
        let mut c = Sending::new(Version::Tls13, cipher, 0);
        c.tx.send(b"open", More::Yes).expect("send");
        let before = TlsStat::read().expect("tls_stat");
        let renewed = c.tx.rekey(&KEY_UPDATE, &info(Version::Tls13, cipher, 2, 0));
        if !kernel_at_least(6, 14) {
            let error = renewed.expect_err("no rekey in this kernel");
            assert_eq!(
                (error.operation(), error.kind(), error.errno()),
                (Operation::KeyUpdate, Kind::Unsupported, Some(Errno::BUSY.raw_os_error()))
            );
            c.tx.send(b"ed", More::No).expect("the old key stays");
            assert_eq!(c.far.record().data, b"opened");
            continue;
        }
        renewed.expect("rekey");
        assert_eq!(TlsStat::read().expect("tls_stat").get("TlsTxRekeyOk"), before.tx_rekey_ok().map(|n| n + 1));
        assert_eq!(c.tx.sequence(), Ok(0));
        c.tx.send(b"next", More::No).expect("send");
        assert_eq!(c.far.record().data, b"open");
        let record = c.far.record();
        assert_eq!((record.record_type, record.data.as_slice()), (RecordType::HANDSHAKE, KEY_UPDATE.as_slice()));
        c.far.rekey(2);
        assert_eq!(c.far.record().data, b"next");
        assert_eq!(c.unsent(), 0, "the ledger spans the rekey");
    }
}

/// Asking does not count as a failed rekey, which would make an operator search for a cause.
#[test]
fn asking_for_rekey_leaves_no_trace() {
    for cipher in tls13() {
        let mut c = Sending::new(Version::Tls13, cipher, 0);
        let before = TlsStat::read().expect("tls_stat");
        let renewed = c.tx.rekey(&KEY_UPDATE, &info(Version::Tls13, cipher, 2, 0));
        assert_eq!(renewed.is_ok(), kernel_at_least(6, 14), "{renewed:?}");
        let after = TlsStat::read().expect("tls_stat");
        let expected: &[_] = if renewed.is_ok() { &[("TlsTxRekeyOk", 1)] } else { &[] };
        assert_eq!(after.delta(&before), expected);
    }
}

/// Installing the present key again changes nothing, neither with an open record nor between records.
#[test]
fn a_socket_is_asked_itself() {
    for cipher in tls13() {
        let mut c = Sending::new(Version::Tls13, cipher, 5);
        let expected = match kernel_at_least(6, 14) {
            true => Ok(()),
            false => Err((Kind::Unsupported, Some(Errno::BUSY.raw_os_error()))),
        };
        let ask = |c: &Sending| assert_eq!(c.tx.can_rekey().map_err(|e| (e.kind(), e.errno())), expected, "{cipher}");
        ask(&c);
        c.tx.send(b"one ", More::Yes).expect("send");
        ask(&c);
        c.tx.send(b"record", More::No).expect("send");
        ask(&c);
        c.tx.send(b"another", More::No).expect("send");
        assert_eq!(c.far.record().data, b"one record");
        assert_eq!(c.far.record().data, b"another");
        assert_eq!((c.tx.sequence(), c.unsent()), (Ok(7), 0));
    }
    let old = Sending::new(Version::Tls12, Cipher::Aes128Gcm, 0);
    assert_eq!(old.tx.can_rekey().map_err(|e| e.kind()), Err(Kind::Misuse));
}

/// A full socket accepts neither KeyUpdate nor key; the repeated call sends one KeyUpdate.
#[test]
fn full_socket_delays_the_whole_rekey() {
    for cipher in tls13() {
        let mut c = Sending::new(Version::Tls13, cipher, 0);
        c.narrow();
        let sent = c.fill(More::Yes);
        let next = info(Version::Tls13, cipher, 2, 0);
        let (mut got, mut refused, mut updates) = (Vec::new(), 0, 0);
        loop {
            match c.tx.rekey(&KEY_UPDATE, &next) {
                Ok(()) => break,
                Err(error) if error.errno() == Some(Errno::BUSY.raw_os_error()) => {
                    assert!(!kernel_at_least(6, 14), "{error}");
                    return;
                }
                Err(error) => {
                    assert_eq!((error.operation(), error.kind()), (Operation::KeyUpdate, Kind::WouldBlock));
                    refused += 1;
                    let record = c.far.record();
                    assert_eq!(record.record_type, RecordType::APPLICATION_DATA);
                    got.extend(record.data);
                    c.wait_writable();
                }
            }
        }
        assert!(refused > 0, "the socket was full");
        c.near.set_nonblocking(false).expect("blocking");
        std::thread::scope(|scope| {
            scope.spawn(|| c.tx.close_notify().expect("close_notify"));
            loop {
                let record = c.far.record();
                match record.record_type {
                    RecordType::APPLICATION_DATA => got.extend(record.data),
                    RecordType::HANDSHAKE => {
                        assert_eq!(record.data, KEY_UPDATE);
                        c.far.rekey(2);
                        updates += 1;
                    }
                    _ => break,
                }
            }
        });
        assert_eq!(updates, 1);
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    }
}

/// Invalid arguments fail before the kernel is asked, and nothing is sent.
#[test]
fn wrong_rekeys_are_misuse() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    let good = info(Version::Tls13, Cipher::Aes128Gcm, 2, 0);
    let other_cipher = info(Version::Tls13, Cipher::Aes256Gcm, 2, 0);
    let other_version = info(Version::Tls12, Cipher::Aes128Gcm, 2, 0);
    let finished = [20, 0, 0, 1, 0];
    for (message, next) in [
        (&KEY_UPDATE[..], &other_cipher),
        (&KEY_UPDATE, &other_version),
        (&finished, &good),
        (&[24, 0, 0, 1, 2], &good),
        (&[], &good),
    ] {
        let error = c.tx.rekey(message, next).expect_err("misuse");
        assert_eq!((error.operation(), error.kind(), error.errno()), (Operation::KeyUpdate, Kind::Misuse, None));
    }
    let mut old = Sending::new(Version::Tls12, Cipher::Aes128Gcm, 0);
    assert_eq!(old.tx.rekey(&KEY_UPDATE, &other_version).map_err(|e| e.kind()), Err(Kind::Misuse));
    c.tx.send(b"x", More::No).expect("send");
    assert_eq!(c.far.record().data, b"x", "no KeyUpdate left");
}
