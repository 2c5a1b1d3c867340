//! Loads on faulty servers: each fault is counted under its kind, and nothing hangs.

use std::io::{Read as _, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use sealion_lab::load::{Failures, LoadPlan, Outcome, Read, run};
use sealion_testkit::pattern;

use crate::scripted;
use crate::scripted::{READS, Server, head, listen, plan};

fn failures(outcome: &Outcome) -> Failures {
    assert_eq!(outcome.failures.first.is_some(), outcome.failures.total() > 0);
    Failures { first: None, ..outcome.failures.clone() }
}

fn none() -> Failures {
    Failures::default()
}

/// For faults in a first response and, with drain, in a later response that is skipped: the first response is correct.
fn after_a_good_one(wrong: impl Fn(&mut scripted::Session) -> std::io::Result<bool> + Send + Sync + 'static) -> Server {
    let body = pattern::bytes(0..60_000);
    Server::answering(move |session, number| match number {
        0 => session.respond(&body).map(|()| true),
        _ => wrong(session),
    })
}

#[test]
fn bodies_cut_short() {
    for read in READS {
        let server = after_a_good_one(|session| {
            session.head(60_000)?;
            session.send(&[0; 30_000])?;
            session.close()
        });
        let outcome = run(&server.plan(read)).unwrap();
        assert_eq!((outcome.requests, failures(&outcome)), (1, Failures { body: 2, ..none() }), "{read:?}");
        assert_eq!(outcome.handshakes - outcome.unanswered, 1, "one connection answered: {read:?}");
        assert!(outcome.attack < outcome.elapsed, "the last request lasts beyond its start");
    }
}

#[test]
fn connections_reset_under_a_body() {
    let server = Server::start(|mut session| {
        session.request()?;
        session.head(60_000)?;
        session.send(&[0; 30_000])?;
        session.reset()
    });
    for read in READS {
        assert_eq!(failures(&run(&server.plan(read)).unwrap()), Failures { body: 3, ..none() }, "{read:?}");
    }
}

#[test]
fn connections_closed_instead_of_an_answer() {
    let server = Server::answering(|session, _| session.close());
    for read in READS {
        let outcome = run(&server.plan(read)).unwrap();
        assert_eq!(failures(&outcome), Failures { io: 3, ..none() }, "{read:?}");
        assert_eq!((outcome.handshakes, outcome.unanswered), (3, 3), "{read:?}");
    }
}

#[test]
fn statuses() {
    let server = Server::answering(|session, _| {
        session.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").map(|()| true)
    });
    for read in READS {
        let outcome = run(&server.plan(read)).unwrap();
        assert_eq!(failures(&outcome), Failures { status: 3, ..none() }, "{read:?}");
        assert_eq!(outcome.failures.first.as_deref(), Some("status 503 Service Unavailable"));
    }
}

#[test]
fn another_length_or_content_than_the_first() {
    for read in READS {
        let longer = after_a_good_one(|session| session.respond(&pattern::bytes(0..60_100)).map(|()| true));
        let too_much = after_a_good_one(|session| {
            session.send(&[head(60_000).as_bytes(), &pattern::bytes(0..60_000), b"more"].concat()).map(|()| true)
        });
        for server in [longer, too_much] {
            let outcome = run(&LoadPlan { timeout: Duration::from_secs(2), ..server.plan(read) }).unwrap();
            assert_eq!((outcome.requests, outcome.failures.total()), (1, 2), "{read:?} {:?}", outcome.failures);
        }
    }
    let other = after_a_good_one(|session| session.respond(&[7; 60_000]).map(|()| true));
    assert_eq!(failures(&run(&other.plan(Read::Verify)).unwrap()), Failures { body: 2, ..none() });
}

#[test]
fn records_that_nobody_sealed() {
    let server = Server::answering(|session, _| {
        session.raw(&[&[23, 3, 3, 0, 100][..], &[1; 100]].concat())?;
        Ok(true)
    });
    let no_record = Server::answering(|session, _| session.raw(b"HTTP/1.1 200 OK\r\n\r\n").map(|()| true));
    for read in READS {
        for server in [&server, &no_record] {
            assert_eq!(failures(&run(&server.plan(read)).unwrap()), Failures { body: 3, ..none() }, "{read:?}");
        }
    }
}

#[test]
fn silence() {
    let without_answer = Server::answering(|_, _| {
        std::thread::park();
        Ok(false)
    });
    let within_body = Server::answering(|session, _| {
        session.head(60_000)?;
        session.send(&[0; 30_000])?;
        std::thread::park();
        Ok(false)
    });
    let without_handshake = listen(|stream| {
        std::thread::park();
        drop(stream);
        Ok(())
    });
    for read in READS {
        let timeout = Duration::from_millis(200);
        for plan in [without_answer.plan(read), within_body.plan(read), plan(without_handshake, read)] {
            let outcome = run(&LoadPlan { timeout, ..plan }).unwrap();
            assert_eq!(failures(&outcome), Failures { timeout: 3, ..none() }, "{read:?}");
            assert!(outcome.elapsed >= timeout);
        }
    }
}

#[test]
fn no_server_no_tls_no_trust() {
    // Port 1 (tcpmux) has no listener.
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    assert_eq!(failures(&run(&plan(dead, Read::Drain)).unwrap()), Failures { connect: 3, ..none() });

    let plain = listen(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        let _ = stream.read(&mut [0; 1000]);
        Ok(())
    });
    assert_eq!(failures(&run(&plan(plain, Read::Drain)).unwrap()), Failures { handshake: 3, ..none() });

    let (server, stranger) = (Server::of(vec![1]), Server::of(vec![1]));
    let outcome = run(&LoadPlan { roots: stranger.plan(Read::Drain).roots, ..server.plan(Read::Drain) }).unwrap();
    assert_eq!(failures(&outcome), Failures { handshake: 3, ..none() });
    let outcome = run(&LoadPlan { roots: None, ..server.plan(Read::Drain) }).unwrap();
    assert_eq!((outcome.requests, outcome.failures.total()), (3, 0));
}

#[test]
fn plans_that_make_no_sense() {
    let good = plan("127.0.0.1:1".parse().expect("an address"), Read::Drain);
    for wrong in [
        LoadPlan { connections: 0, ..good.clone() },
        LoadPlan { connections: 2001, ..good.clone() },
        LoadPlan { threads: 2, ..good.clone() },
        LoadPlan { calls: Some(0), ..good.clone() },
        LoadPlan { timeout: Duration::ZERO, ..good.clone() },
        LoadPlan { target: "/a b".into(), ..good.clone() },
        LoadPlan { server_name: "a b".into(), ..good.clone() },
        LoadPlan { roots: Some("/no/such/file".into()), ..good.clone() },
        LoadPlan { cores: vec![100_000], ..good.clone() },
        LoadPlan { arrival: sealion_lab::load::Arrival::Open { rate: 0.0 }, ..good },
    ] {
        assert!(run(&wrong).is_err(), "{wrong:?}");
    }
}

/// The command's exit code, text and JSON.
#[test]
fn the_command_tells() {
    let server = Server::of(pattern::bytes(0..3000));
    let url = format!("https://localhost:{}/x", server.address.port());
    let load = |shell: &str| {
        let lab = env!("CARGO_BIN_EXE_sealion-lab");
        let output = Command::new("sh").arg("-c").arg(shell).arg(lab).arg(&url).output().expect("sh");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = load(r#"exec "$0" load "$1" --requests 9 --calls 3 --read drain"#);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("9 requests in") && out.contains("  3 handshakes, 0 of them resumed\n"), "{out}");

    let (code, out, _) = load(r#"exec "$0" load https://localhost:1/x --requests 9 --json"#);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &json["failures"]["connect"]), (Some(1), &9.into()), "{json}");

    // The process raises the soft limit as far as the hard limit allows.
    let (code, _, err) = load(r#"ulimit -Sn 30; exec "$0" load "$1" --requests 99 --connections 64"#);
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = load(r#"ulimit -n 30; exec "$0" load "$1" --requests 9 --connections 64"#);
    assert_eq!(code, Some(1));
    assert!(err.contains("open files") && err.contains("ulimit -Hn"), "{err}");

    // Before the first request.
    let (code, out, err) = load(r#"PATH=/nowhere exec "$0" load "$1" --requests 9 --flame /nowhere/x.svg --pid $$"#);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("--flame needs perf") && err.contains("install linux-perf"), "{err}");
}
