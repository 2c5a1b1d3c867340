//! A server's view of clients behind trusted proxies.

use sealion_testkit::{Suite, http};

use crate::support::Site;
use crate::support::http2::Http2;
use crate::support::port::free_port;
use crate::support::upstream::Upstream;

/// Trusted proxies pass on what clients send under names that they do not use themselves.
#[test]
fn no_word_of_a_client_passes_for_one_of_a_trusted_proxy() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!("proxy = {{ to = '{}' }}", upstream.url());
    let names = ["forwarded", "x-forwarded-for", "x-client"];
    let ports = names.map(|_| free_port());
    let config = names.iter().zip(ports).fold(site.config(&keys), |config, (name, port)| {
        config.listen(&format!(
            "address = '127.0.0.1:{port}'\ntrusted_proxies = ['127.0.0.0/8', '10.0.0.0/8']\nclient_address = '{name}'"
        ))
    });
    let _server = config.serve_from_user_space();
    let sent = [
        ("Forwarded", "for=6.6.6.6;host=evil, for=192.0.2.1;proto=http, for=10.0.0.1"),
        ("X-Forwarded-For", "6.6.6.6, 192.0.2.2"),
        ("X-Client", "192.0.2.3"),
        ("X-Real-IP", "6.6.6.6"),
        ("X-Forwarded-Proto", "evil, HTTP"),
        ("X-Forwarded-Host", "evil, b"),
    ];
    let own = "for=127.0.0.1;host=\"localhost\";proto=https";
    let expected = [
        ("192.0.2.1, 10.0.0.1, 127.0.0.1", "for=192.0.2.1, for=10.0.0.1, ", "192.0.2.1", "https", "localhost"),
        ("192.0.2.2, 127.0.0.1", "for=192.0.2.2, ", "192.0.2.2", "http", "b"),
        ("192.0.2.3, 127.0.0.1", "for=192.0.2.3, ", "192.0.2.3", "http", "b"),
    ];
    for ((port, name), (chain, elements, client, proto, host)) in ports.into_iter().zip(names).zip(expected) {
        let connector = || site.connector(Suite::TLS13);
        let address = ([127, 0, 0, 1], port).into();
        let fields: Vec<_> = [("Host", "localhost")].into_iter().chain(sent).collect();
        http::request(&mut connector().connect(address), "GET", "/1", &fields).expect("an answer");
        let lower = sent.map(|(name, value)| (name.to_lowercase(), value));
        let lower: Vec<_> = lower.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let mut http = Http2::connect(connector(), address, &[]);
        let stream = http.request("GET", "/2", &lower, true);
        assert_eq!(http.response(stream).whole().0, 200);
        for request in &upstream.requests()[upstream.requests().len() - 2..] {
            let line = request.line();
            assert_eq!(request.field("x-forwarded-for"), chain, "{name} {line}");
            assert_eq!(request.field("forwarded"), format!("{elements}{own}"), "{name} {line}");
            assert_eq!(request.field("x-real-ip"), client, "{name} {line}");
            assert_eq!(request.field("x-forwarded-proto"), proto, "{name} {line}");
            assert_eq!(request.field("x-forwarded-host"), host, "{name} {line}");
        }
    }
}
