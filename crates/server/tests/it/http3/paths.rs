//! Addresses of clients, and their sessions.

use std::net::{Ipv6Addr, SocketAddr};

use sealion_testkit::pattern;

use super::client::{Http3, Options, config, request};
use crate::support::{LARGE, Site, access_line, access_lines};

#[test]
fn clients_of_ipv6_are_served() {
    let site = Site::new();
    site.add_pattern("f", 100_000);
    let server = site.config("").listen("address = '[::1]:0'\nhttp3 = true").serve_from_user_space();
    let address = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), server.address().port());
    let mut client = Http3::connect_with(&site, address, quinn::TransportConfig::default());
    pattern::assert_equal(&client.get("/f", &[]).body, 0..100_000);
    assert!(access_lines(&server, 1)[0].get("peer").starts_with("[::1]:"));
}

/// Its packets come with another connection ID, which leads to the same worker.
#[test]
fn a_client_that_changes_its_network_gets_the_rest() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add("f", "content");
    let server = config(&site, "").table("[server]\nworkers = 3").serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let stream = client.send(request("GET", "/large", &[]), None);
    let stream = client.begin(stream);
    client.migrate();
    let rest = client.rest(stream).expect("the response is complete");
    assert!(rest < LARGE, "{rest}");
    assert_eq!(client.get("/f", &[]).body, b"content");
    assert_eq!(access_lines(&server, 2)[0].get("bytes"), LARGE.to_string());
}

#[test]
fn sessions_are_resumed_by_any_worker() {
    let site = Site::new();
    site.add("f", "content");
    let server = config(&site, "").table("[server]\nworkers = 3").serve_from_user_space();
    let tls = Options::new(&site.pki, "localhost").tls();
    for (count, resumed) in (1..).zip(["no", "yes", "yes", "yes"]) {
        let options = Options { known: Some(tls.clone()), ..Options::new(&site.pki, "localhost") };
        let mut client = Http3::try_connect(server.address(), options).expect("a connection");
        assert_eq!(client.get("/f", &[]).body, b"content");
        client.close();
        assert_eq!(access_line(&server, count).get("resumed"), resumed);
    }
}
