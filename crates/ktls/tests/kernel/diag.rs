//! The kernel's socket diagnosis reports kernel TLS.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use rustix::io::Errno;
use sealion_ktls::diag::{self, By};
use sealion_ktls::nic::{self, Feature};
use sealion_ktls::{Cipher, Kind, Operation, Version, handover};

use crate::support::{Receiving, Sending, info, pair, suites};

#[test]
fn version_cipher_and_who_are_told() {
    assert!(diag::permitted(), "the guest runs as root");
    for (version, cipher) in suites() {
        let mut c = Sending::new(version, cipher, 0);
        c.tx.zerocopy_read_only(true).expect("zerocopy");
        let socket = diag::of(&c.near).expect("diag");
        assert_eq!(socket.local, c.near.local_addr().expect("address"));
        assert_eq!(socket.remote, c.near.peer_addr().expect("address"));
        let tls = socket.tls.expect("TLS");
        assert_eq!((tls.version, tls.cipher), (Some(version), Some(cipher)));
        assert_eq!((tls.sending, tls.receiving), (By::Kernel, By::UserSpace));
        assert!(!tls.zerocopy_read_only, "without effect in software");
        assert_eq!(diag::of(&c.far.stream).expect("diag").tls, None, "the peer is in user space");
        assert!(diag::sockets().expect("diag").contains(&socket));

        let mut both = Receiving::new(version, cipher, 0);
        if version == Version::Tls13 {
            both.rx.expect_no_pad_despite_cve_2026_74611(true).expect("expect_no_pad");
        }
        let tls = diag::of(&both.near).expect("diag").tls.expect("TLS");
        assert_eq!((tls.sending, tls.receiving), (By::Kernel, By::Kernel));
        assert_eq!(tls.expect_no_pad, version == Version::Tls13);
    }
}

/// The layer without keys, as a failed handover leaves it.
#[test]
fn a_layer_without_keys_is_told() {
    assert!(diag::permitted(), "the guest runs as root");
    let (near, _far) = pair();
    handover::tx(&near, &info(Version::Tls13, Cipher::Aria128Gcm, 1, 0)).expect_err("no ARIA in TLS 1.3");
    let tls = diag::of(&near).expect("diag").tls.expect("the layer");
    assert_eq!((tls.version, tls.cipher, tls.sending, tls.receiving), (None, None, By::UserSpace, By::UserSpace));
}

#[test]
fn the_payload_limit_is_told() {
    assert!(diag::permitted(), "the guest runs as root");
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    if c.tx.max_payload(512).is_ok() {
        assert_eq!(diag::of(&c.near).expect("diag").tls.expect("TLS").max_payload, Some(512));
    } else {
        assert_eq!(diag::of(&c.near).expect("diag").tls.expect("TLS").max_payload, None);
    }
}

#[test]
fn ipv6_sockets_are_found_too() {
    assert!(diag::permitted(), "the guest runs as root");
    let listener = TcpListener::bind("[::1]:0").expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let _tx = handover::tx(&near, &info(Version::Tls13, Cipher::Aes128Gcm, 1, 0)).expect("handover");
    let socket = diag::of(&near).expect("diag");
    assert_eq!(socket.tls.expect("TLS").sending, By::Kernel);
    assert!(diag::sockets().expect("diag").contains(&socket));
    drop(near);
    assert!(!diag::sockets().expect("diag").contains(&socket));
}

#[test]
fn a_missing_module_is_told() {
    let module = |program: &str, name: &str| {
        let status = Command::new(program).arg(name).status().expect("busybox");
        assert!(status.success(), "{program} {name}");
    };
    let (near, _far) = pair();
    module("rmmod", "tcp_diag");
    let answers = [diag::of(&near).map(drop), diag::sockets().map(drop)];
    module("insmod", "/lib/modules-sealion/tcp_diag.ko");
    for answer in answers {
        let error = answer.expect_err("no module");
        assert_eq!(
            (error.operation(), error.kind(), error.errno()),
            (Operation::Diagnose, Kind::Unsupported, Some(Errno::NOENT.raw_os_error()))
        );
    }
    assert!(diag::of(&near).is_ok(), "the module is back");
}

/// Reports every interface; loopback has no cipher.
#[test]
fn network_interfaces_are_told() {
    let nics = nic::nics().expect("ethtool netlink");
    let mut names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let table = std::fs::read_to_string("/proc/net/dev").expect("/proc/net/dev");
    let mut expected: Vec<&str> = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let lo = nics.iter().find(|nic| nic.name == "lo").expect("lo");
    assert_eq!((lo.tx, lo.rx, lo.record), (Feature::Absent, Feature::Absent, Feature::Absent));
}
