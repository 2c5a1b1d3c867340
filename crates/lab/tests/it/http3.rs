//! Loads by HTTP/3.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sealion_lab::load::{Arrival, Extent, LoadPlan, Protocol, Read, Suite, hold, run};
use sealion_testkit::http::sha256;
use sealion_testkit::pattern;
use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;

use crate::process::{lab, rows, run as run_program};
use crate::scripted::quic::{Ending, Manners, QuicServer, Reply, frame, response};

const READS: [Read; 2] = [Read::Verify, Read::Decrypt];

#[test]
fn both_ways_to_read_count_every_body_by_every_suite() {
    for len in [0_u64, 1, 5000, 300_003] {
        let body = pattern::bytes(0..len);
        let reply = body.clone();
        let server = QuicServer::replying(move |_| Reply::of(&reply));
        for read in READS {
            for (suite, name) in [
                (Suite::Aes128Gcm, "TLSv1.3 TLS_AES_128_GCM_SHA256"),
                (Suite::Aes256Gcm, "TLSv1.3 TLS_AES_256_GCM_SHA384"),
                (Suite::Chacha20Poly1305, "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256"),
            ] {
                let plan =
                    LoadPlan { connections: 2, suites: vec![suite], extent: Extent::Requests(7), ..server.plan(read) };
                let outcome = run(&plan).unwrap();
                let case = format!("{len} {read:?} {suite:?}: {:?}", outcome.failures);
                assert_eq!(outcome.failures.total(), 0, "{case}");
                assert_eq!((outcome.requests, outcome.body_bytes), (7, 7 * len), "{case}");
                assert_eq!((outcome.handshakes, outcome.resumed), (2, 0), "{case}");
                assert_eq!(
                    [outcome.latency.len(), outcome.first_byte.len(), outcome.body_began.len()],
                    [7; 3],
                    "{case}"
                );
                assert_eq!([outcome.connect.len(), outcome.handshake.len()], [0, 2], "{case}");
                assert_eq!(outcome.body_sha256, (read == Read::Verify).then(|| sha256(&body)), "{case}");
                assert_eq!(outcome.suite, name, "{case}");
            }
        }
    }
}

/// No request of four is answered before all are open.
#[test]
fn streams_of_http_3_are_kept_open_at_a_time() {
    let body = pattern::bytes(0..40_000);
    let reply = body.clone();
    let server = QuicServer::start(Manners { at_a_time: 4, ..Manners::default() }, move |_| Reply::of(&reply));
    let protocol = Protocol::Http3 { streams: 4 };
    let plan = LoadPlan { protocol, extent: Extent::Requests(20), ..server.plan(Read::Verify) };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total()), (20, 0), "{:?}", outcome.failures);
    assert_eq!((outcome.handshakes, outcome.body_bytes), (1, 20 * 40_000));
}

#[test]
fn connections_of_http_3_end_after_their_calls() {
    let body = pattern::bytes(0..5000);
    for (streams, calls, handshakes) in [(1, 1, 9), (1, 4, 3), (3, 4, 3), (3, 2, 5), (1, 20, 1)] {
        let reply = body.clone();
        let server = QuicServer::replying(move |_| Reply::of(&reply));
        let protocol = Protocol::Http3 { streams };
        let plan = LoadPlan { protocol, calls: Some(calls), extent: Extent::Requests(9), ..server.plan(Read::Verify) };
        let outcome = run(&plan).unwrap();
        let case = format!("{streams} {calls}: {:?}", outcome.failures);
        assert_eq!((outcome.requests, outcome.failures.total()), (9, 0), "{case}");
        assert_eq!(outcome.handshakes, handshakes, "{case}");
    }
}

#[test]
fn requests_of_an_open_loop_share_a_connection_of_http_3() {
    let body = pattern::bytes(0..5000);
    let server = QuicServer::replying(move |_| Reply::of(&body));
    let arrival = Arrival::Open { rate: 1000.0 };
    let outcome = run(&LoadPlan { arrival, extent: Extent::Requests(8), ..server.plan(Read::Verify) }).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total(), outcome.handshakes), (8, 0, 1), "{:?}", outcome.failures);
}

#[test]
fn faults_of_the_server_are_counted_by_kind() {
    let body = pattern::bytes(0..5000);
    let cut = response(&body)[..3000].to_vec();
    let longer = frame(1, b"\x00\x00\xd9\x54\x045001");
    let faults: [(&str, Vec<u8>, Ending); 6] = [
        ("status", frame(1, &[0, 0, 0xdb]), Ending::Finish),
        ("body", cut.clone(), Ending::Finish),
        ("body", cut, Ending::Reset),
        ("body", [longer, frame(0, &body)].concat(), Ending::Finish),
        ("body", response(&pattern::bytes(1..5001)), Ending::Finish),
        ("io", Vec::new(), Ending::Close),
    ];
    for (number, (kind, bytes, ending)) in faults.into_iter().enumerate() {
        let good = body.clone();
        let server = QuicServer::replying(move |request| match request {
            1 => Reply { bytes: bytes.clone(), ending },
            _ => Reply::of(&good),
        });
        let outcome = run(&server.plan(Read::Verify)).unwrap();
        let failures = &outcome.failures;
        assert_eq!((outcome.requests, failures.total()), (2, 1), "{number}: {failures:?}");
        let of_kind = [("status", failures.status), ("body", failures.body), ("io", failures.io)];
        assert!(of_kind.contains(&(kind, 1)), "{number}: {failures:?}");
        // Only a connection that ended is replaced.
        assert_eq!(outcome.handshakes, if ending == Ending::Close { 2 } else { 1 }, "{number}");
    }
}

#[test]
fn a_server_that_sends_goaway_gets_new_connections() {
    let body = pattern::bytes(0..1000);
    let server = QuicServer::replying(move |_| Reply { bytes: response(&body), ending: Ending::Goaway });
    let plan = LoadPlan { extent: Extent::Requests(10), ..server.plan(Read::Verify) };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total()), (10, 0), "{:?}", outcome.failures);
    assert!((2..=10).contains(&outcome.handshakes), "{}", outcome.handshakes);
}

#[test]
fn a_server_without_http_3_is_a_failed_handshake() {
    let manners = Manners { alpn: b"other", ..Manners::default() };
    let server = QuicServer::start(manners, |_| Reply::of(b"never"));
    let outcome = run(&LoadPlan { extent: Extent::Requests(2), ..server.plan(Read::Verify) }).unwrap();
    assert_eq!((outcome.requests, outcome.failures.handshake), (0, 2), "{:?}", outcome.failures);
    // A certificate that is not trusted.
    let (server, other) = (QuicServer::replying(|_| Reply::of(b"never")), Pki::ecdsa());
    let roots = Some(other.certificate_file());
    let outcome = run(&LoadPlan { roots, extent: Extent::Requests(1), ..server.plan(Read::Verify) }).unwrap();
    assert_eq!((outcome.requests, outcome.failures.handshake), (0, 1), "{:?}", outcome.failures);
}

#[test]
fn a_silent_server_is_a_timeout() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let server = QuicServer::replying(|_| Reply::of(b"never"));
    let address = socket.local_addr().expect("an address");
    let timeout = Duration::from_millis(50);
    let plan = LoadPlan { address, timeout, extent: Extent::Requests(2), ..server.plan(Read::Decrypt) };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.requests, outcome.failures.timeout), (0, 2), "{:?}", outcome.failures);
}

#[test]
fn plans_that_quic_cannot_carry_out_are_refused() {
    let server = QuicServer::replying(|_| Reply::of(b"x"));
    let plan = || server.plan(Read::Decrypt);
    let two = Protocol::Http3 { streams: 2 };
    let refused: [(LoadPlan, &str); 8] = [
        (server.plan(Read::Drain), "QUIC has no records to skip"),
        (LoadPlan { calls: Some(0), ..plan() }, "0 calls on a connection"),
        (LoadPlan { body_cap: Some(2), ..plan() }, "HTTP/3 is loaded without a cap on bodies"),
        (LoadPlan { protocol: two, arrival: Arrival::Open { rate: 1.0 }, ..plan() }, "one request at a time"),
        (LoadPlan { resume: true, ..plan() }, "sessions of QUIC are not resumed"),
        (LoadPlan { suites: vec![Suite::Tls12Aes128Gcm], ..plan() }, "one suite, of TLS 1.3"),
        (LoadPlan { suites: vec![Suite::Aes128Gcm, Suite::Aes256Gcm], ..plan() }, "one suite, of TLS 1.3"),
        (LoadPlan { protocol: Protocol::Http3 { streams: 0 }, ..plan() }, "from 1 to 1000"),
    ];
    for (plan, part) in refused {
        let why = run(&plan).unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }
    assert!(hold(&plan(), || ()).unwrap_err().to_string().contains("not over QUIC"));
}

/// The server's log shows that the load came by HTTP/3.
#[test]
fn sealion_is_loaded_by_http_3() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |path: PathBuf| path.display().to_string();
    fs::create_dir(directory.path().join("www")).expect("a directory");
    fs::write(directory.path().join("www/file"), pattern::bytes(0..70_000)).expect("a file");
    let (pki, log) = (Pki::ecdsa(), directory.path().join("access.log"));
    let lab_program = PathBuf::from(env!("CARGO_BIN_EXE_sealion-lab"));
    let arguments = ["serve".to_owned(), path(directory.path().join("www")), "--listen=127.0.0.1:0".to_owned()];
    let keys = ["--cert".to_owned(), path(pki.certificate_file()), "--key".to_owned(), path(pki.key_file())];
    let others = ["--http3", "true", "--access-log-format", "logfmt", "--access-log"].map(str::to_owned);
    let arguments = arguments.into_iter().chain(keys).chain(others).chain([path(log.clone())]);
    let mut server = Server::start(&lab_program.with_file_name("sealion"), arguments);
    let mut load = Command::new(&lab_program);
    load.args(["load", "--h3", "3", "--connections", "2", "--requests", "20", "--read", "verify", "--ca"]);
    load.arg(pki.certificate_file()).arg(format!("https://localhost:{}/file", server.address().port()));
    let (output, said) = run_program(load);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("20 requests in ") && said.contains("HTTP/3"), "{said}");
    assert!(said.contains(&sha256(&pattern::bytes(0..70_000))), "{said}");
    server.signal(Signal::TERM);
    server.wait();
    let log = fs::read_to_string(&log).expect("a log");
    assert_eq!(log.lines().filter(|line| line.contains(" why=quic")).count(), 20, "{log}");

    let mut load = Command::new(&lab_program);
    load.args(["load", "--h3=2", "--read", "drain", "https://127.0.0.1:1/"]);
    let (output, said) = run_program(load);
    assert!(!output.status.success() && said.contains("read bodies of HTTP/3 by verify or decrypt"), "{said}");
}

#[test]
fn arms_of_http_3_are_measured_and_an_nginx_without_it_is_absent() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let (output, said) = run_program(lab(&["peers", "--smoke", "--arms", "user,user-h3,nginx-h3"], &out));
    assert!(output.status.success(), "{said}");
    let rows = rows(&out);
    let by_http3: Vec<_> = rows.iter().filter(|row| row.arm == "user-h3").collect();
    assert_eq!(by_http3.len(), 5, "a row for each cell of a closed loop over connections that stay open");
    for row in by_http3 {
        assert_eq!((row.void.as_str(), row.protocol.as_str(), row.read.as_str()), ("", "HTTP/3", "decrypt"), "{row:?}");
        assert!(row.body_verified && row.server_cpu.is_some_and(|cpu| cpu > 0), "{row:?}");
        assert!(rows.iter().any(|other| other.cell == row.cell && other.protocol == "HTTP/1.1"), "{row:?}");
    }
    if !rows.iter().any(|row| row.arm == "nginx-h3") {
        assert!(said.contains("arm nginx-h3 is absent: nginx ") && said.contains("has no HTTP/3"), "{said}");
    }
}
