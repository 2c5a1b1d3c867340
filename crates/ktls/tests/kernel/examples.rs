//! The programs in examples/ do what they say.

#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/receiver.rs"]
mod receiver;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/sender.rs"]
mod sender;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/sendfile.rs"]
mod sendfile;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustls::pki_types::ServerName;
use sealion_ktls::stat::TlsStat;

use crate::support::tls::Tls;
use crate::support::{pair, pattern, suites};

fn rose(before: &TlsStat, name: &str) -> i64 {
    let now = TlsStat::read().expect("counters");
    now.delta(before).into_iter().find(|&(found, _)| found == name).map_or(0, |(_, change)| change)
}

/// From kernel to kernel, after a handshake of rustls with rustls.
#[test]
fn sender_and_receiver() {
    let data = pattern(1_000_003);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = TlsStat::read().expect("counters");
        let (near, far) = pair();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| sender::send(&near, Arc::clone(&tls.server), &data).expect("sent"));
            let name = ServerName::try_from("localhost").expect("a name");
            receiver::receive(&far, Arc::clone(&tls.client), name, &mut received).expect("received");
            drop(far);
        });
        assert!(received == data, "{version} {cipher}");
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (2, 1), "{version} {cipher}");
    }
}

#[test]
fn sendfile_to_curl() {
    let data = pattern(3_000_017);
    let served = "/tmp/kernel_examples.served";
    std::fs::write(served, &data).expect("a file");
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let root = "/tmp/kernel_examples.pem";
        std::fs::write(root, &tls.pem.0).expect("a file");
        let before = TlsStat::read().expect("counters");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let port = listener.local_addr().expect("address").port();
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().expect("accept");
                sendfile::serve(&stream, Arc::clone(&tls.server), served.as_ref()).expect("served");
            });
            Command::new("curl")
                .args(["--silent", "--show-error", "--fail", "--cacert", root, "--resolve"])
                .arg(format!("localhost:{port}:127.0.0.1"))
                .arg(format!("https://localhost:{port}/"))
                .output()
                .expect("curl")
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == data, "{version} {cipher}");
        assert_eq!(rose(&before, "TlsTxSw"), 1);
    }
}
