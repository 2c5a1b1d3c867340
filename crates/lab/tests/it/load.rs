//! Loads on correct servers: the counts match the server's work.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealion_lab::load::{
    Arrival, Extent, LoadPlan, Progress, Protocol, Read, Suite, hold, run, run_beside, run_watched,
};
use sealion_testkit::http::sha256;
use sealion_testkit::pattern;

use crate::scripted::{READS, Server, head, last_head};

const SUITES: [Suite; 5] =
    [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305, Suite::Tls12Aes128Gcm, Suite::Tls12Aes256Gcm];

#[test]
fn every_way_to_read_counts_every_body() {
    for len in [0_u64, 1, 100, 5000, 16_384, 70_001, 1_000_003] {
        let body = pattern::bytes(0..len);
        let server = Server::of(body.clone());
        for read in READS {
            for suite in SUITES {
                let plan =
                    LoadPlan { connections: 2, suites: vec![suite], extent: Extent::Requests(7), ..server.plan(read) };
                let outcome = run(&plan).unwrap();
                let case = format!("{len} {read:?} {suite:?}: {:?}", outcome.failures);
                assert_eq!(outcome.failures.total(), 0, "{case}");
                assert_eq!((outcome.requests, outcome.body_bytes), (7, 7 * len), "{case}");
                assert_eq!((outcome.handshakes, outcome.resumed), (2, 0), "{case}");
                assert_eq!([outcome.latency.len(), outcome.first_byte.len()], [7; 2], "{case}");
                assert_eq!([outcome.connect.len(), outcome.handshake.len()], [2; 2], "{case}");
                let hash = (read != Read::Decrypt).then(|| sha256(&body));
                assert_eq!(outcome.body_sha256, hash, "{case}");
                let tls12 = matches!(suite, Suite::Tls12Aes128Gcm | Suite::Tls12Aes256Gcm);
                let version = if tls12 { "TLSv1.2 TLS_ECDHE_ECDSA_WITH_" } else { "TLSv1.3 TLS_" };
                assert!(outcome.suite.starts_with(version), "{}", outcome.suite);
                assert!(outcome.client_cpu > 0);
            }
        }
    }
}

/// A response may be split into any records, even records short enough to be alerts.
#[test]
fn a_drained_response_may_be_cut_into_any_records() {
    let body = pattern::bytes(0..40_000);
    let server = Server::answering(move |session, number| {
        session.head(body.len())?;
        let piece = [40_000, 16_384, 9000, 1000, 60][number as usize % 5];
        for bytes in body.chunks(piece) {
            session.send(bytes)?;
        }
        Ok(true)
    });
    for suite in SUITES {
        let plan = LoadPlan { suites: vec![suite], extent: Extent::Requests(10), ..server.plan(Read::Drain) };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.requests, outcome.failures.total()), (10, 0), "{suite:?} {:?}", outcome.failures);
    }
}

/// The heads of a cache differ: the first belongs to the fetch, the others state an age of one, two and three digits.
#[test]
fn drained_responses_may_be_of_a_cache() {
    for len in [0, 1000, 40_000] {
        let body = pattern::bytes(0..len);
        let server = Server::answering(move |session, number| {
            let cache = match number {
                0 => "fwd=uri-miss; collapsed\r\nAge: 0\r\n".to_owned(),
                n => format!("hit; ttl={}\r\nAge: {}\r\n", 100 - 11 * (n % 10), 11 * (n % 10)),
            };
            let head = head(body.len()).replacen("\r\n", &format!("\r\nCache-Status: a; {cache}"), 1);
            session.send(head.as_bytes())?;
            body.chunks(16_384).try_for_each(|bytes| session.send(bytes))?;
            Ok(true)
        });
        let plan = LoadPlan { extent: Extent::Requests(30), ..server.plan(Read::Drain) };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.requests, outcome.failures.total()), (30, 0), "{len} {:?}", outcome.failures);
    }
}

#[test]
fn a_connection_makes_exactly_its_calls() {
    let server = Server::of(pattern::bytes(0..2000));
    for read in READS {
        let plan = LoadPlan { calls: Some(3), extent: Extent::Requests(10), ..server.plan(read) };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.requests, outcome.handshakes, outcome.failures.total()), (10, 4, 0));
    }
}

#[test]
fn threads_share_connections_and_requests() {
    let server = Server::of(pattern::bytes(0..2000));
    let plan = LoadPlan { threads: 3, connections: 7, extent: Extent::Requests(100), ..server.plan(Read::Verify) };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total()), (100, 0));
    assert!(outcome.handshakes <= 7);
}

#[test]
fn sessions_are_resumed_when_asked_for() {
    let server = Server::of(pattern::bytes(0..2000));
    for suite in [Suite::Aes128Gcm, Suite::Tls12Aes128Gcm] {
        for read in READS {
            for (resume, resumed) in [(false, 0), (true, 4)] {
                let extent = Extent::Requests(5);
                let plan = LoadPlan { calls: Some(1), resume, suites: vec![suite], extent, ..server.plan(read) };
                let outcome = run(&plan).unwrap();
                assert_eq!(outcome.failures.total(), 0, "{:?}", outcome.failures);
                assert_eq!((outcome.handshakes, outcome.resumed), (5, resumed), "{suite:?} {read:?} {resume}");
            }
        }
    }
}

/// The head of a connection's last response has a different length.
#[test]
fn a_server_that_limits_requests_on_a_connection_is_no_failure() {
    let body = pattern::bytes(0..30_000);
    let server = Server::answering(move |session, number| {
        if number % 3 < 2 {
            return session.respond(&body).map(|()| true);
        }
        session.send(&[last_head(body.len()).as_bytes(), &body].concat())?;
        session.close()
    });
    for read in READS {
        let outcome = run(&LoadPlan { extent: Extent::Requests(9), ..server.plan(read) }).unwrap();
        assert_eq!((outcome.requests, outcome.handshakes), (9, 3), "{read:?} {:?}", outcome.failures);
        assert_eq!(outcome.failures.total(), 0);
    }
}

#[test]
fn a_key_update_of_the_server_is_followed_and_answered() {
    let body = pattern::bytes(0..50_000);
    let server = Server::answering(move |session, _| {
        session.head(body.len())?;
        session.send(&body[..20_000])?;
        session.tls.conn.refresh_traffic_keys().expect("TLS 1.3");
        session.send(&body[20_000..])?;
        Ok(true)
    });
    for read in READS {
        let plan = LoadPlan { suites: vec![Suite::Aes128Gcm], extent: Extent::Requests(5), ..server.plan(read) };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.requests, outcome.failures.total()), (5, 0), "{read:?} {:?}", outcome.failures);
    }
}

#[test]
fn no_more_of_a_body_is_read_than_wanted() {
    let server = Server::of(pattern::bytes(0..1 << 20));
    for read in READS {
        let outcome = run(&LoadPlan { body_cap: Some(10_000), ..server.plan(read) }).unwrap();
        assert_eq!(outcome.failures.total(), 0, "{read:?} {:?}", outcome.failures);
        assert_eq!((outcome.requests, outcome.body_bytes, outcome.handshakes), (3, 30_000, 3), "{read:?}");
        let outcome = run(&LoadPlan { body_cap: Some(1 << 20), ..server.plan(read) }).unwrap();
        assert_eq!((outcome.requests, outcome.body_bytes, outcome.handshakes), (3, 3 << 20, 1), "{read:?}");
    }
}

/// Every request that waited during the pause shows it, not only the first.
#[test]
fn an_open_loop_omits_no_wait() {
    let server = Server::answering(|session, number| {
        // Request 0 opens the connection, before the load.
        if number == 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
        session.respond(b"answer").map(|()| true)
    });
    let arrival = Arrival::Open { rate: 100.0 };
    let outcome = run(&LoadPlan { arrival, extent: Extent::Requests(20), ..server.plan(Read::Verify) }).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total()), (20, 0));
    assert!(outcome.latency.max() >= 500_000_000);
    // The last was due 190 ms after the start.
    assert!(outcome.latency.min() >= 305_000_000, "{}", outcome.latency.min());
    // The client noticed each request in time, though its only connection was busy: that delay is the server's.
    assert_eq!(outcome.lag.len(), 20);
    assert!(outcome.lag.value_at_quantile(0.5) < outcome.latency.min(), "{}", outcome.lag.value_at_quantile(0.5));
}

#[test]
fn requests_that_were_due_and_never_sent_are_counted() {
    let server = Server::answering(|session, _| {
        std::thread::sleep(Duration::from_millis(1500));
        session.respond(b"answer").map(|()| true)
    });
    let extent = Extent::Time(Duration::from_millis(500));
    let plan = LoadPlan { arrival: Arrival::Open { rate: 64.0 }, extent, ..server.plan(Read::Verify) };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.requests, outcome.failures.unsent, outcome.failures.total()), (1, 31, 31));
}

#[test]
fn a_load_can_be_cancelled() {
    let server = Server::answering(|_, _| {
        std::thread::park();
        Ok(false)
    });
    let progress = Arc::new(Progress::default());
    let plan = LoadPlan { connections: 4, timeout: Duration::from_secs(3600), ..server.plan(Read::Verify) };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| run_watched(&plan, &progress));
        progress.cancel();
        let outcome = load.join().expect("no panic").unwrap();
        assert_eq!((outcome.requests, outcome.failures.total()), (0, 0));
    });
}

#[test]
fn held_connections_are_all_open_at_once() {
    let server = Server::of(pattern::bytes(0..1000));
    let plan = LoadPlan { connections: 20, ..server.plan(Read::Drain) };
    // Connections to this server alone: other tests of this process have sockets too. proc_pid_net(5): the third column
    // is the peer's address, and the fourth the state; 01 is ESTABLISHED.
    let peer = format!("0100007F:{:04X}", server.address.port());
    let open = || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("proc");
        let columns = table.lines().map(|line| line.split_ascii_whitespace().skip(1).take(3).collect::<Vec<_>>());
        // Counts distinct addresses: a table that changes while it is read can show a socket twice.
        let addresses =
            columns.filter(|columns| columns[1..] == [peer.as_str(), "01"]).map(|columns| columns[0].to_owned());
        addresses.collect::<HashSet<_>>().len()
    };
    assert_eq!(open(), 0);
    let (outcome, during) = hold(&plan, open).unwrap();
    assert_eq!((outcome.requests, outcome.handshakes, outcome.failures.total()), (20, 20, 0));
    assert_eq!(during, 20);
}

#[test]
fn a_load_beside_another_is_counted_apart() {
    let (small, large) = (Server::of(pattern::bytes(0..1000)), Server::of(pattern::bytes(0..3_000_000)));
    let plan = LoadPlan { connections: 4, extent: Extent::Requests(50), ..small.plan(Read::Drain) };
    let other = LoadPlan { connections: 2, extent: Extent::Time(Duration::MAX), ..large.plan(Read::Drain) };
    let (measured, beside) = run_beside(&plan, &other).unwrap();
    assert_eq!((measured.requests, measured.body_bytes, measured.handshakes), (50, 50_000, 4));
    assert_eq!(measured.latency.len(), 50);
    assert!(beside.requests > 0 && beside.body_bytes == beside.requests * 3_000_000, "{beside:?}");
    assert_eq!((measured.failures.total(), beside.failures.total()), (0, 0), "{:?}", beside.failures);
}

#[test]
fn streams_of_http_2_are_kept_open_and_counted() {
    let body = pattern::bytes(0..40_000);
    let expected = sha256(&body);
    let most_open = Arc::new(AtomicUsize::new(0));
    let most = most_open.clone();
    let server = Server::start(move |mut session| {
        let frame = |kind: u8, flags: u8, stream: &[u8], payload: &[u8]| {
            let length = &(payload.len() as u32).to_be_bytes()[1..];
            [length, &[kind, flags], stream, payload].concat()
        };
        session.tls.read_exact(&mut [0; 24])?;
        session.send(&frame(4, 0, &[0; 4], &[]))?;
        let mut open: Vec<[u8; 4]> = Vec::new();
        loop {
            let mut head = [0; 9];
            session.tls.read_exact(&mut head)?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            session.tls.read_exact(&mut payload)?;
            if head[3] != 1 {
                continue;
            }
            open.push([head[5], head[6], head[7], head[8]]);
            most.fetch_max(open.len(), Ordering::Relaxed);
            // Four requests get their responses together, the last one first.
            if open.len() == 4 {
                for part in body.chunks(16_384) {
                    let end = u8::from(part.as_ptr_range().end == body.as_ptr_range().end);
                    for stream in open.iter().rev() {
                        if part.as_ptr() == body.as_ptr() {
                            session.send(&frame(1, 4, stream, &[0x88]))?;
                        }
                        session.send(&frame(0, end, stream, part))?;
                    }
                }
                open.clear();
            }
        }
    });
    for read in READS {
        let plan =
            LoadPlan { protocol: Protocol::Http2 { streams: 4 }, extent: Extent::Requests(20), ..server.plan(read) };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.requests, outcome.failures.total()), (20, 0), "{read:?} {:?}", outcome.failures);
        assert_eq!((outcome.handshakes, outcome.body_bytes), (1, 20 * 40_000), "{read:?}");
        let hashes = read != Read::Decrypt;
        assert_eq!(outcome.body_sha256, hashes.then(|| expected.clone()), "{read:?}");
    }
    assert_eq!(most_open.load(Ordering::Relaxed), 4);
    let protocol = Protocol::Http2 { streams: 4 };
    let plan = LoadPlan { protocol, extent: Extent::Requests(20), ..server.plan(Read::Drain) };
    let outcome = run(&LoadPlan { calls: Some(4), ..plan.clone() }).unwrap();
    let counts = (outcome.requests, outcome.failures.total(), outcome.handshakes);
    assert_eq!(counts, (20, 0, 5), "connections end after their calls: {:?}", outcome.failures);
    let why = run(&LoadPlan { arrival: Arrival::Open { rate: 1.0 }, ..plan }).unwrap_err().to_string();
    assert!(why.contains("HTTP/2 has one request at a time"), "{why}");
}

/// A load that is asked to shows its state each second, and once at its end.
#[test]
fn a_running_load_shows_its_rate_and_its_failures() {
    let server = Server::of(pattern::bytes(0..1000));
    let plan = server.plan(Read::Decrypt);
    let url = format!("https://{}{}", plan.address, plan.target);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    let output = command.args(["load", &url, "--live", "--duration", "2s"]).output().expect("the lab runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let counts: Vec<u64> = said
        .lines()
        .filter(|line| line.ends_with(" requests/s, 0 failures"))
        .filter_map(|line| line.split_once(" requests, ")?.0.parse().ok())
        .collect();
    assert!(counts.len() >= 2 && counts.is_sorted() && counts[0] > 0, "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with(&format!("{} requests in ", counts[counts.len() - 1])), "{shown}{said}");
}
