//! SIGTERM and SIGINT: what is under way is finished, what is idle is closed, and all of it ends.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Instant;

use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Event, PATIENCE, http, pattern};
use sealion_tls::AlertDescription;

use crate::support::{
    LARGE, Site, access_line, access_lines, begin, get, parse_responses, read_until_cut, wait_for_message,
};

/// A server with an unread response under way.
fn slow_response(options: &[&str]) -> (Site, Server, sealion_testkit::Client) {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add("f", "content");
    let server = site.serve_from_user_space(options);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    (site, server, client)
}

/// Asserts that the server ended with code 0.
#[track_caller]
fn assert_success(server: &mut Server) {
    let status = server.wait();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_response_under_way_is_finished() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_site, mut server, mut client) = slow_response(&[]);
        server.signal(signal);
        wait_for_message(&server, "no new connections; responses under way have 30 s");
        let ending = client.read_to_end().expect("the response goes on");
        pattern::assert_equal(&ending.data, 0..LARGE);
        ending.assert_orderly();
        drop(client);
        let line = access_line(&server, 1);
        assert_eq!((line.get("bytes"), line.find("aborted")), (LARGE.to_string().as_str(), None));
        assert_success(&mut server);
    }
}

#[test]
fn requests_that_were_there_before_are_answered() {
    let (_site, mut server, mut client) = slow_response(&[]);
    client.send((get("/f") + &get("/f")).as_bytes()).expect("they leave");
    server.signal(Signal::TERM);
    wait_for_message(&server, "SIGTERM: no new connections");
    pattern::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    let ending = client.read_to_end().expect("the server closes");
    // Those that the server had not read yet are left to the client, which sees a clean end and may repeat them.
    for response in parse_responses(&ending.data) {
        assert_eq!((response.field("connection"), response.body.as_slice()), (Some("close"), &b"content"[..]));
    }
    ending.assert_orderly();
    drop(client);
    assert_success(&mut server);
}

#[test]
fn idle_connections_are_closed_at_once() {
    let site = Site::new();
    site.add("f", "content");
    // So long that only the signal can be what closes them.
    let mut server = site.serve_from_user_space(&["--idle-timeout", "1h", "--grace", "1h"]);
    let mut clients: Vec<_> = (0..8).map(|_| site.connect(&server)).collect();
    for client in &mut clients[..4] {
        http::get(client, "/f").expect("an answer");
    }
    server.signal(Signal::TERM);
    for client in &mut clients {
        client.read_to_end().expect("the server closes").assert_orderly();
    }
    drop(clients);
    assert_success(&mut server);
    access_lines(&server, 4);
}

#[test]
fn nothing_new_is_taken_while_draining() {
    let (_site, mut server, mut client) = slow_response(&[]);
    server.signal(Signal::TERM);
    wait_for_message(&server, "no new connections");
    let started = Instant::now();
    loop {
        match TcpStream::connect(server.address()) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => break,
            _ => assert!(started.elapsed() < PATIENCE, "connections are still taken"),
        }
    }
    pattern::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_success(&mut server);
}

#[test]
fn what_takes_longer_than_the_grace_is_cut_and_counted() {
    let (_site, mut server, mut client) = slow_response(&["--grace", "300ms"]);
    server.signal(Signal::TERM);
    assert_success(&mut server);
    wait_for_message(&server, "1 connections were cut: their responses took longer than limits.grace");
    let line = access_line(&server, 1);
    assert_eq!(line.get("aborted"), "the time of grace ended");
    assert_eq!((line.get("target"), line.get("status")), ("/large", "200"));
    let sent: u64 = line.get("bytes").parse().expect("a number");
    assert!(sent < LARGE, "{sent}");
    if let Ok(ending) = read_until_cut(&mut client) {
        let received = ending.data.len() as u64;
        assert!(received < LARGE);
        // The records of one send count when TCP has all of them.
        assert!(received <= sent + (33 << 14), "{received} received, {sent} counted");
        assert!(!ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY)), "it is not complete");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let (_site, mut server, _client) = slow_response(&["--grace", "1h"]);
    server.signal(Signal::TERM);
    wait_for_message(&server, "SIGTERM: no new connections");
    assert!(server.is_running());
    server.signal(Signal::INT);
    assert_success(&mut server);
    wait_for_message(&server, "SIGINT again: stopping at once");
    assert_eq!(access_line(&server, 1).get("aborted"), "a second signal ended the server");
}

#[test]
fn every_line_of_standard_error_is_an_object_if_json_is_asked_for() {
    let site = Site::new();
    let mut server = site.serve_from_user_space(&["--log-format", "json", "--log", "debug"]);
    http::get(&mut site.connect(&server), "/missing").expect("an answer");
    server.signal(Signal::TERM);
    assert_success(&mut server);
    let lines: Vec<serde_json::Value> = server
        .lines()
        .iter()
        .filter(|line| line.stderr)
        .map(|line| serde_json::from_str(&line.text).unwrap_or_else(|e| panic!("{e}: {}", line.text)))
        .collect();
    for line in &lines {
        for key in ["time", "level", "target", "message"] {
            assert!(line[key].as_str().is_some_and(|value| !value.is_empty()), "{key}: {line}");
        }
    }
    let message = |words: &str| lines.iter().find(|line| line["message"].as_str().is_some_and(|m| m.contains(words)));
    assert_eq!(message("serving ").expect("the first line")["level"], "info");
    assert!(message("no new connections").is_some(), "{lines:?}");
}

#[test]
fn the_error_that_prevents_a_start_is_an_object_too() {
    let mut command = std::process::Command::new(crate::support::PROGRAM);
    command.args(["serve", "--log-format", "json", "--config", "/nowhere/sealion.toml"]);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let line: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(line["level"], "error");
    assert!(line["message"].as_str().is_some_and(|m| m.contains("/nowhere/sealion.toml")), "{line}");
}
