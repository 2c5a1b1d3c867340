//! The system calls of a response, as strace sees them: what the README shows, and that a small response is one send.
//!
//! These tests fail, and never skip, where kernel TLS is missing.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use crate::support::http2::{Http2, INITIAL_WINDOW_SIZE, window_update};
use crate::support::{Site, access_line, content};

/// Ends that bytes can leave by.
const SENDS: [&str; 6] = ["sendto(", "sendmsg(", "sendmmsg(", "write(", "writev(", "sendfile("];

/// strace, attached to all threads of a server.
struct Trace {
    strace: Child,
    output: PathBuf,
    /// Stays open: strace writes a line for each thread that the server starts, and would die of SIGPIPE.
    stderr: BufReader<ChildStderr>,
}

impl Trace {
    fn attach(site: &Site, server: &Server) -> Self {
        let output = site.outside().join("strace.out");
        let mut strace = Command::new("strace")
            .args(["-f", "-s", "8", "-e", "trace=setsockopt,recvfrom,sendto,sendmsg,sendmmsg,write,writev,sendfile"])
            .args(["-e", "signal=none", "-o"])
            .arg(&output)
            .args(["-p", &server.pid().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is needed");
        let mut line = String::new();
        let mut stderr = BufReader::new(strace.stderr.take().expect("it is piped"));
        // "strace: Process 7 attached with 4 threads", or a line for each thread.
        while !line.contains("attached") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).expect("strace speaks"), 0, "strace does not attach");
        }
        Self { strace, output, stderr }
    }

    /// Detaches, and returns the calls on the socket that requests came from, without the number of the thread.
    fn calls(mut self) -> Vec<String> {
        kill_process(Pid::from_child(&self.strace), Signal::INT).expect("strace runs");
        let status = self.strace.wait().expect("strace ends");
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("strace speaks");
        assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "strace saw all calls: {said}");
        let text = std::fs::read_to_string(&self.output).expect("strace wrote it");
        let calls: Vec<&str> = text.lines().filter_map(|line| line.split_once(' ')).map(|(_, c)| c.trim()).collect();
        let socket = calls.iter().find_map(|call| call.strip_prefix("recvfrom(")?.split_once(',')).expect(&text).0;
        let on_socket = calls
            .iter()
            .filter(|call| call.split_once('(').is_some_and(|(_, rest)| rest.split([',', ')']).next() == Some(socket)));
        on_socket.map(|&call| call.to_owned()).collect()
    }
}

fn is_send(call: &str) -> bool {
    SENDS.iter().any(|send| call.starts_with(send))
}

/// Whether a call was not refused for want of room.
fn succeeded(call: &str) -> bool {
    !call.contains(" = -1 ")
}

#[test]
fn a_megabyte_is_two_options_the_head_and_sendfile() {
    let site = Site::new();
    site.add_large("f", 1_000_000);
    let server = site.serve(&["--workers", "1"]);
    let mut client = site.connect(&server);
    let trace = Trace::attach(&site, &server);
    let got = http::get(&mut client, "/f").expect("an answer");
    content::assert_equal(&got.body, 0..1_000_000);
    assert_eq!(access_line(&server, 1).way(), ("kernel", "moved"));
    let calls = trace.calls();
    // For the README; shown with --nocapture.
    println!("{}", calls.join("\n"));
    let after_request = calls.iter().filter(|call| !call.starts_with("recvfrom(") && succeeded(call));
    let after_request: Vec<&String> = after_request.collect();
    assert!(after_request[0].contains("SOL_TCP, TCP_ULP, \"tls\""), "{calls:#?}");
    assert!(after_request[1].contains("SOL_TLS, TLS_TX"), "{calls:#?}");
    // The head, and the file's first page: one short record.
    assert!(after_request[2].starts_with("sendto(") && !after_request[2].contains("MSG_MORE"), "{calls:#?}");
    assert!(after_request[3..].iter().all(|call| call.starts_with("sendfile(")), "{calls:#?}");
    assert!(after_request.len() > 3, "{calls:#?}");
}

/// Head and body of a small response, by one call and hence in one segment.
#[test]
fn a_small_response_is_one_send_on_either_path() {
    let site = Site::new();
    site.add_large("f", 10_000);
    for (mode, path) in [("never", "user"), ("always", "kernel")] {
        let server = site.serve(&["--workers", "1", "--ktls", mode]);
        let mut client = site.connect(&server);
        let before = client.received().len();
        http::get(&mut client, "/f").expect("an answer");
        let trace = Trace::attach(&site, &server);
        for _ in 0..3 {
            content::assert_equal(&http::get(&mut client, "/f").expect("an answer").body, 0..10_000);
        }
        assert_eq!(access_line(&server, 4).get("path"), path);
        let calls = trace.calls();
        let sends = calls.iter().filter(|call| is_send(call) && succeeded(call)).count();
        assert_eq!(sends, 3, "{path}: {calls:#?}");
        assert_eq!(calls.iter().filter(|call| call.starts_with("setsockopt(")).count(), 0, "{path}: {calls:#?}");
        assert_eq!(client.data_lengths(before).len(), 4, "a record each");
    }
}

/// Between two settings of TCP_CORK, so that frames share packets; nothing is held back when a batch has ended.
#[test]
fn frames_of_a_file_are_a_head_and_sendfile_each() {
    let site = Site::new();
    site.add_large("f", 200_000);
    let server = site.serve(&["--workers", "1", "--ktls", "always"]);
    let settings = [(INITIAL_WINDOW_SIZE, 1 << 30)];
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &settings);
    http.send(&window_update(0, 1 << 30));
    http.fetch("/f");
    let trace = Trace::attach(&site, &server);
    content::assert_equal(&http.fetch("/f").1, 0..200_000);
    assert_eq!(access_line(&server, 2).way(), ("kernel", "moved-before"));
    let calls = trace.calls();
    let calls: Vec<&String> =
        calls.iter().filter(|call| (is_send(call) || call.contains("TCP_CORK")) && succeeded(call)).collect();
    let is_cork = |call: &&String, value: &str| call.contains(&format!("TCP_CORK, [{value}]"));
    assert!(is_cork(&calls[0], "1") && calls.last().is_some_and(|last| is_cork(last, "0")), "{calls:#?}");
    for batch in calls.split_inclusive(|call| is_cork(call, "0")) {
        let (first, rest) = batch.split_first().expect("it has an end");
        let (_, frames) = rest.split_last().expect("it has a beginning");
        assert!(is_cork(first, "1"), "{batch:#?}");
        let (frames, rest) = frames.as_chunks::<2>();
        for [head, content] in frames {
            assert!(head.contains("MSG_MORE") && content.starts_with("sendfile("), "{batch:#?}");
        }
        assert!(rest.is_empty(), "{batch:#?}");
    }
    assert!(calls.len() >= 2 * 13 + 2, "{calls:#?}");
}
