//! The end of connections.

use sealion_testkit::server::{Server, Signal};

use super::client::{Http3, Streamed, config, request};
use crate::support::{LARGE, Site, Successor, access_line, access_lines};

/// A client that takes little before it reads.
fn slow() -> quinn::TransportConfig {
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
