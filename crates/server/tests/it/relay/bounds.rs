//! Limits of the processes: on open files, and on the length of messages.

use std::fs;

use rustix::process::{Resource, Rlimit, prlimit};

use super::*;
use crate::support::http2::{PING, block};
use crate::support::process::wait_until_process_rests;

/// Leaves a process no further descriptor.
fn exhaust_descriptors(pid: Pid) {
    let number = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let directory = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("it runs");
    let mut open: Vec<u64> = directory.filter_map(number).collect();
    open.sort_unstable();
    let free = open.iter().zip(0..).find(|(number, expected)| **number != *expected);
    let lowest = free.map_or(open.len() as u64, |(_, expected)| expected);
    let limit = Rlimit { current: Some(lowest), maximum: Some(1 << 10) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("it is ours");
}

/// Neither the process that has the exchanges nor the one that takes them needs a descriptor: the exchanges go on where they are.
#[test]
fn exchanges_for_which_no_descriptor_is_left_go_on_in_the_process_before() {
    for is_first in [false, true] {
        let site = Site::new();
        let (step, stream_steps) = steps::<Vec<u8>>();
        let (answer, slow_steps) = steps::<Vec<u8>>();
        let upstream = several(stream_steps, slow_steps);
        let mut relayed = Relayed::serve(&site, &upstream);
        let address = relayed.service.first.address();
        let mut http = Http2::connect(site.connector(Suite::TLS13), address, &[]);
        http.ping();
        let (streamed, slow) = (http.get("/stream"), http.get("/slow"));
        step.send(b"begin".to_vec()).expect("the upstream waits");
        http.read_until("its beginning", |http| http.streams.get(&streamed).is_some_and(|got| got.body == b"begin"));
        wait_until("the upstream has both", || upstream.connections() == 2);
        // The connections stay until the frame and the head have come.
        let ping = frame(PING, 0, 0, b"tests888");
        http.send(&ping[..7]);
        let mut client = site.connect(&relayed.service.first);
        let head = http::head("GET", "/slow", &[]);
        client.send(&head.as_bytes()[..9]).expect("it leaves");
        let idle = site.connect(&relayed.service.first);
        wait_until_it_rests(&relayed.service.first);
        // Connections come, and all has been started.
        relayed.upgrade(1);
        let newest = relayed.service.newest();
        wait_until_process_rests(newest.as_raw_nonzero().get() as u32);
        let limited = if is_first { relayed.service.first.pid() as i32 } else { newest.as_raw_nonzero().get() };
        exhaust_descriptors(Pid::from_raw(limited).expect("a process"));
        http.send(&ping[7..]);
        http.read_until("the reply to PING", |http| http.pongs == 2);
        if !is_first {
            client.send(&head.as_bytes()[9..]).expect("it leaves");
            wait_until("the upstream has it", || upstream.connections() == 3);
        }
        wait_until_it_rests(&relayed.service.first);
        for said in [&b"middle"[..], b""] {
            step.send(said.to_vec()).expect("the upstream waits");
        }
        for _ in 0..2 {
            answer.send(b"at last".to_vec()).expect("the upstream waits");
        }
        assert_eq!(http.response(streamed).whole(), (200, &b"beginmiddle"[..]));
        assert_eq!(http.response(slow).whole(), (200, &b"at last"[..]));
        if !is_first {
            assert_eq!(http::read_response(&mut client, "GET").expect("an answer").body, b"at last");
        }
        drop((http, client, idle));
        relayed.assert_first_ends();
        let why = if is_first { "this process reached its limit" } else { "it reached its limit" };
        wait_for_message(&relayed.service.first, &format!("{why} of open files"));
        let count = if is_first { 2 } else { 3 };
        let lines = access_lines(&relayed.service.first, count);
        assert!(lines.iter().all(|line| line.get("status") == "200" && line.find("aborted").is_none()), "{lines:?}");
    }
}

/// A field that the client repeats by its number in the table of HPACK: the head is longer than any packet of a relay.
#[test]
fn a_request_with_a_large_head_goes_on_through_upgrades() {
    const TIMES: usize = 50;
    let site = Site::new();
    let (answer, steps) = steps::<()>();
    let upstream = Upstream::start(move |accepted| {
        let Some(head) = accepted.head() else { return };
        let _ = next(&steps);
        accepted.write(&sealion_testkit::upstream::ok(head.len().to_string().as_bytes()));
    });
    let rule = format!("proxy = {{ to = '{}' }}", upstream.url());
    let config = site.config(&rule).table("[limits]\nmax_head = 1_048_576\n");
    let options = ["--ktls", "never", "--metrics", "127.0.0.1:0", "--grace", "1h"];
    let Watched { server, address } = Watched::of(config.serve_with(&options));
    let mut relayed = Relayed { service: Service { first: server }, metrics: address };
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    // A literal with indexing, of 4,000 bytes (RFC 7541 §5.1, §6.2.1), then its index.
    let mut head = block("GET", "/slow", &[]);
    head.extend([&b"\x40\x05x-big\x7f\xa1\x1e"[..], &[b'b'; 4000], &[0xbe; TIMES - 1]].concat());
    let stream = http.stream();
    http.send(&headers(stream, true, &head));
    wait_until("the upstream has the request", || upstream.connections() == 1);
    for _ in 0..UPGRADES {
        relayed.upgrade(1);
    }
    answer.send(()).expect("the upstream waits");
    let (status, body) = http.response(stream).whole();
    let length: usize = String::from_utf8_lossy(body).parse().expect("a number");
    assert!(status == 200 && length > TIMES * 4000, "{status}, {length} bytes");
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("target"), line.get("status")), ("/slow", "200"));
}
