//! The end of connections.

use sealion_testkit::http;
use sealion_testkit::server::{Server, Signal};

use super::client::{Http3, Streamed, config, request};
use super::raw::{GOAWAY, H3_NO_ERROR, Raw, SETTINGS, varint};
use crate::support::{LARGE, Site, Successor, access_line, access_lines, messages, wait_for_message, wait_until};

/// A client that takes little before it reads.
pub(super) fn slow() -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(16_384u32.into());
    transport
}

/// A client that has the beginning of a large response.
#[track_caller]
fn begun(site: &Site, server: &Server) -> (Http3, Streamed) {
    let mut client = Http3::connect_with(site, server.address(), slow());
    let stream = client.send(request("GET", "/large", &[]), None);
    let stream = client.begin(stream);
    (client, stream)
}

#[test]
fn a_response_under_way_comes_to_its_end_when_the_server_stops() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let mut server = config(&site, "").serve_from_user_space();
    let (mut client, stream) = begun(&site, &server);
    server.signal(Signal::TERM);
    let rest = client.rest(stream).expect("the response is complete");
    assert!(rest < LARGE && rest > LARGE - (1 << 20), "{rest}");
    // The server waits for the acknowledgement.
    client.close();
    assert!(server.wait().success());
    assert_eq!(access_line(&server, 1).get("bytes"), LARGE.to_string());
}

#[test]
fn a_response_that_is_cut_is_never_complete() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let mut server = config(&site, "").table("[limits]\ngrace = '100ms'").serve_from_user_space();
    let (mut client, stream) = begun(&site, &server);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    client.rest(stream).expect_err("the response is incomplete");
    let line = access_line(&server, 1);
    assert!(line.get("aborted").contains("the time of grace ended"), "{line:?}");
}

#[test]
fn a_response_that_the_client_cancels_is_logged_and_the_connection_goes_on() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add("f", "content");
    let server = config(&site, "").serve_from_user_space();
    let (mut client, mut stream) = begun(&site, &server);
    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    assert_eq!(client.get("/f", &[]).body, b"content");
    let lines = access_lines(&server, 2);
    assert!(lines.iter().any(|line| line.find("aborted").is_some()), "{lines:?}");
}

/// `limits.stall_timeout` is longer.
#[test]
fn a_client_that_reads_too_slowly_is_cut() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let limits = "[limits]\nmin_send_rate = 2048\nmin_send_rate_window = '1s'";
    let server = config(&site, "").table(limits).serve_from_user_space();
    let (_client, _stream) = begun(&site, &server);
    let line = access_line(&server, 1);
    assert!(line.get("aborted").contains("less than limits.min_send_rate"), "{line:?}");
}

/// Connections stay with the process that has them, however many come behind it; and a process without a share of the sockets serves without HTTP/3.
#[test]
fn connections_outlive_several_upgrades_and_changes_of_workers() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add("f", "content");
    let write = |workers: u32| config(&site, "").table(&format!("[server]\nworkers = {workers}"));
    let server = write(2).serve_from_user_space();
    let mut downloads = vec![begun(&site, &server)];
    let mut processes = Vec::new();
    for workers in [1, 3, 2] {
        write(workers).write();
        processes.push(match processes.last() {
            None => Successor::of(&server),
            Some(process) => Successor::behind(process, &server),
        });
        // Until then it takes new clients, too.
        let drains = || messages(&server, "upgrade: no new connections") == processes.len();
        wait_until("the process before drains", drains);
        downloads.push(begun(&site, &server));
    }
    // Four processes have connections.
    let behind = Successor::behind(&processes[2], &server);
    wait_for_message(&server, "HTTP/3 is not served on");
    wait_until("the fourth process drains", || messages(&server, "upgrade: no new connections") == 4);
    let mut client = site.connect(&server);
    assert_eq!(http::get(&mut client, "/f").expect("a response").field("alt-svc"), None);
    for (mut client, stream) in downloads {
        let rest = client.rest(stream).expect("the response is complete");
        assert!(rest > LARGE - (1 << 20), "{rest}");
        client.close();
    }
    // They have ended.
    let (replaced, last) = (processes, behind);
    wait_until("the processes end", || replaced.iter().all(|process| has_ended(process.pid())));
    let _newest = Successor::behind(&last, &server);
    let mut client = Http3::connect(&site, &server);
    assert_eq!(client.get("/f", &[]).body, b"content");
}

/// Whether a process is gone, or a zombie.
fn has_ended(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_connection_outlives_an_upgrade_and_new_ones_reach_the_successor() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add("f", "content");
    let server = config(&site, "").serve_from_user_space();
    let (mut client, stream) = begun(&site, &server);
    let _successor = Successor::of(&server);
    let mut other = Http3::connect(&site, &server);
    assert_eq!(other.get("/f", &[]).body, b"content");
    let rest = client.rest(stream).expect("the response is complete");
    assert!(rest > LARGE - (1 << 20), "{rest}");
    // Both processes wait for acknowledgements.
    other.close();
    client.close();
}

/// RFC 9114 §5.2: the client learns which of its requests may be repeated, before the connection ends without an error.
#[test]
fn an_idle_connection_is_told_its_last_request_before_it_ends() {
    let site = Site::new();
    site.add("f", "content");
    let mut server = config(&site, "").serve_from_user_space();
    let mut raw = Raw::connect(&site, &server);
    let asked = raw.request(&[(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/f")]);
    assert_eq!(raw.response(asked), (200, b"content".to_vec()));
    server.signal(Signal::TERM);
    let frames: Vec<_> = std::iter::repeat_with(|| raw.next_control()).take(3).collect();
    let ids: Vec<_> = frames[1..].iter().map(|(kind, id)| (*kind, varint(id).map(|(id, _)| id))).collect();
    assert_eq!((frames[0].0, ids), (SETTINGS, vec![(GOAWAY, Some((1 << 62) - 4)), (GOAWAY, Some(4))]));
    assert_eq!(raw.end(), H3_NO_ERROR);
    assert!(server.wait().success());
}
