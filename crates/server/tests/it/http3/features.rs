//! Features of HTTP/3 beside requests and responses.

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use sealion_testkit::pki::{Authority, Pki};
use sealion_testkit::{PATIENCE, pattern};

use super::client::{Http3, Options, config, request};
use super::raw::{GOAWAY, Raw, SETTINGS, varint};
use crate::proxy::connect::{echo_pieces, tunnels};
use crate::support::sites::Sites;
use crate::support::upstream::{Upstream, ok};
use crate::support::watch::Watched;
use crate::support::{Site, access_line, wait_until};

const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/f")];

fn sum() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))])
}

#[test]
fn trailers_go_both_ways() {
    let site = Site::new();
    let (send, received) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |accepted| {
        while accepted.head().is_some() {
            assert_eq!(accepted.read(11).expect("content"), b"3\r\nabc\r\n0\r\n");
            let mut trailers = String::new();
            while !trailers.ends_with("\r\n\r\n") && trailers != "\r\n" {
                trailers.push(char::from(accepted.read(1).expect("trailers")[0]));
            }
            send.send(trailers).expect("the test waits");
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
            accepted.write(format!("{head}3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n").as_bytes());
        }
    });
    let server = config(&site, &format!("proxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let stream = client.send_with_trailers(request("POST", "/", &[("trailer", "x-sum")]), "abc", sum());
    let answer = client.receive(stream);
    assert_eq!(received.recv_timeout(PATIENCE).expect("it came"), "x-sum: 42\r\n\r\n");
    assert_eq!((&answer.body[..], answer.trailers, answer.error), (&b"abc"[..], Some(sum()), None));
}

#[test]
fn interim_responses_come_before_the_response() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| ok(b"page"));
    let keys = format!("early_hints = ['</one.css>; rel=preload; as=style']\nproxy = {{ to = '{}' }}", upstream.url());
    let server = config(&site, &keys).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let answer = client.get("/", &[("sec-fetch-mode", "navigate")]);
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"page"[..]));
    let [(status, fields)] = &answer.interim[..] else { panic!("{answer:?}") };
    assert_eq!((status.as_u16(), fields["link"].as_bytes()), (103, &b"</one.css>; rel=preload; as=style"[..]));
    assert_eq!(client.get("/", &[]).interim, []);
}

#[test]
fn a_tunnel_passes_bytes_in_both_directions_up_to_the_end_of_each() {
    let site = Site::new();
    let upstream = tunnels(|accepted| {
        accepted.write(b"hello");
        echo_pieces(accepted, 1);
        accepted.write(b"bye");
    });
    let server = config(&site, &format!("proxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space();
    let mut raw = Raw::connect(&site, &server);
    let (SETTINGS, settings) = raw.next_control() else { panic!("SETTINGS come first") };
    let (mut left, mut pairs) = (&settings[..], Vec::new());
    while let Some((id, first)) = varint(left) {
        let (value, second) = varint(&left[first..]).expect("a value");
        pairs.push((id, value));
        left = &left[first + second..];
    }
    assert!(pairs.contains(&(8, 1)), "SETTINGS_ENABLE_CONNECT_PROTOCOL: {pairs:?}");
    let head = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat"),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ];
    let mut asked = raw.request(&head);
    raw.content(&mut asked, b"echo ");
    raw.content(&mut asked, b"this ");
    assert_eq!(raw.response(asked), (200, b"helloecho this bye".to_vec()));
    assert_eq!(upstream.last().line(), "GET /chat");
    let line = access_line(&server, 1);
    assert_eq!((line.get("method"), line.get("status"), line.get("upstream_status")), ("CONNECT", "200", "101"));
}

/// RFC 9114 §5.2: it names a push. The requests that a client sent before it are served, whichever comes first.
#[test]
fn a_clients_goaway_refuses_no_request() {
    let site = Site::new();
    site.add("f", "content");
    let server = config(&site, "").serve_from_user_space();
    let mut raw = Raw::connect(&site, &server);
    assert_eq!(raw.next_control().0, SETTINGS);
    raw.control(GOAWAY, &[0]);
    let (GOAWAY, id) = raw.next_control() else { panic!("no GOAWAY in reply") };
    assert_eq!(varint(&id), Some(((1 << 62) - 4, 8)));
    let asked = raw.request(&[&GET[..], &[(":authority", "localhost")]].concat());
    assert_eq!(raw.response(asked), (200, b"content".to_vec()));
}

#[test]
fn a_request_without_an_authority_is_malformed() {
    let site = Site::new();
    site.add("f", "content");
    let server = config(&site, "").serve_from_user_space();
    let mut raw = Raw::connect(&site, &server);
    let asked = raw.request(&GET);
    assert_eq!(raw.response(asked).0, 400);
    for name in [(":authority", "localhost"), ("host", "localhost")] {
        let asked = raw.request(&[&GET[..], &[name]].concat());
        assert_eq!(raw.response(asked), (200, b"content".to_vec()), "{name:?}");
    }
    let mut asked = raw.request(&[(":method", "POST"), (":scheme", "https"), (":path", "/f")]);
    raw.content(&mut asked, b"some");
    assert_eq!(raw.response(asked).0, 400);
}

/// RFC 9218: the more urgent response goes first, though it was asked for later.
#[test]
fn urgent_responses_go_first() {
    let site = Site::new();
    site.add_pattern("large", 40 << 20);
    let server = config(&site, "").serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let background = client.send(request("GET", "/large?background", &[("priority", "u=7, i")]), None);
    let urgent = client.send(request("GET", "/large?urgent", &[("priority", "u=0, i")]), None);
    let before = client.received_until(background, urgent);
    // Without priorities, both share.
    assert!(before < 20 << 20, "{before} bytes of the other one came first");
}

fn host(name: &str) -> Request<()> {
    Request::get(format!("https://{name}/name")).body(()).expect("a request")
}

#[test]
fn clients_show_certificates_and_other_names_are_misdirected() {
    let pki = Pki::for_names(&["open.test", "closed.test"]);
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (alice, eve) = (ours.issue_client("alice"), theirs.issue_client("eve"));
    let sites = Sites::new();
    sites.add_root("closed");
    let auth = format!("client_auth = {{ roots = {:?}, mode = 'require' }}", ours.pki().certificate_file());
    let server = sites
        .config()
        .listen("address = '127.0.0.1:0'\nhttp3 = true")
        .site("root", &[&pki], "names = ['open.test']")
        .site("closed", &[], &format!("names = ['closed.test']\n{auth}"))
        .serve_from_user_space();
    let connect =
        |name, certificate| Http3::try_connect(server.address(), Options { certificate, ..Options::new(&pki, name) });
    let ask = |client: &mut Http3, name| {
        let stream = client.send(host(name), None);
        client.receive(stream).status.as_u16()
    };
    let mut client = connect("closed.test", Some(&alice)).expect("a connection");
    assert_eq!(ask(&mut client, "closed.test"), 200);
    assert_eq!(ask(&mut client, "open.test"), 200);
    let mut client = connect("open.test", Some(&alice)).expect("a connection");
    assert_eq!(ask(&mut client, "closed.test"), 421);
    assert_eq!(ask(&mut client, "none.test"), 421);
    assert_eq!(ask(&mut client, "open.test"), 200);
    for certificate in [None, Some(&eve)] {
        // The client's handshake ends before the server has seen its certificate.
        if let Ok(quic) =
            super::client::Quic::connect(server.address(), Options { certificate, ..Options::new(&pki, "closed.test") })
        {
            let error = quic.runtime.block_on(quic.connection.closed());
            assert!(matches!(error, quinn::ConnectionError::ConnectionClosed(_)), "{error}");
        }
    }
}

/// RFC 9114 §3.3: a client may send requests for all names of the certificate over a connection, and for no other.
#[test]
fn names_that_the_certificate_does_not_cover_are_misdirected() {
    let pki = Pki::for_names(&["one.test", "*.one.test"]);
    let other = Pki::for_names(&["two.test", "www.one.test"]);
    let sites = Sites::new();
    let server = sites
        .config()
        .listen("address = '127.0.0.1:0'\nhttp3 = true")
        .site("root", &[&pki], "names = ['one.test', 'www.one.test']")
        .site("root", &[&other], "names = ['two.test']")
        .serve_from_user_space();
    let mut client = Http3::try_connect(server.address(), Options::new(&pki, "one.test")).expect("a connection");
    let expected = [("one.test", 200), ("ONE.test:443", 200), ("www.one.test", 200), ("two.test", 421)];
    for (name, status) in expected {
        let stream = client.send(host(name), None);
        assert_eq!(client.receive(stream).status.as_u16(), status, "{name}");
    }
    let mut client = Http3::try_connect(server.address(), Options::new(&other, "two.test")).expect("a connection");
    for (name, status) in [("two.test", 200), ("www.one.test", 200), ("one.test", 421)] {
        let stream = client.send(host(name), None);
        assert_eq!(client.receive(stream).status.as_u16(), status, "{name}");
    }
}

/// The window of the connection has its first size then.
#[test]
fn content_comes_whole_where_memory_has_no_room_for_larger_windows() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(&request.body));
    for limits in
        ["", "[limits]\nmax_buffered = '64KiB'", "[http3]\nstream_window = '16KiB'\nconnection_window = '64KiB'"]
    {
        let server = config(&site, &format!("proxy = {{ to = '{}' }}", upstream.url())).table(limits);
        let server = server.serve_from_user_space();
        let mut client = Http3::connect(&site, &server);
        for length in [1_500_000, 10, 700_000] {
            let answer = client.ask("POST", "/echo", &[], Some(pattern::bytes(0..length)));
            assert_eq!((answer.status, &answer.error), (StatusCode::OK, &None), "{limits}");
            pattern::assert_equal(&answer.body, 0..length);
        }
    }
}

#[test]
fn clients_prove_their_address_above_a_number_of_handshakes_and_all_is_counted() {
    let site = Site::new();
    site.add("f", "content");
    let tables = "[http3]\nretry_above = 0\n[metrics]\nlisten = '127.0.0.1:0'";
    let watched = Watched::of(config(&site, "").table(tables).serve_from_user_space());
    let mut client = Http3::connect(&site, &watched.server);
    assert_eq!(client.get("/f", &[]).body, b"content");
    let open = watched.scrape();
    assert_eq!(open.get("sealion_http3_connections"), 1.0);
    client.close();
    wait_until("the connection ends", || watched.scrape().get("sealion_http3_connections") == 0.0);
    let scrape = watched.scrape();
    for (series, value) in [
        ("sealion_quic_retries_total", 1.0),
        ("sealion_http3_handshakes_total", 1.0),
        ("sealion_http3_responses_total", 1.0),
        ("sealion_http3_streams_total{result=\"accepted\"}", 1.0),
        ("sealion_http3_streams_total{result=\"refused\"}", 0.0),
    ] {
        assert_eq!(scrape.get(series), value, "{series}");
    }
    for direction in ["received", "sent"] {
        let datagrams = scrape.get(&format!("sealion_quic_datagrams_total{{direction=\"{direction}\"}}"));
        let bytes = scrape.get(&format!("sealion_quic_bytes_total{{direction=\"{direction}\"}}"));
        assert!(datagrams >= 3.0 && bytes > 1200.0, "{direction}: {datagrams} datagrams, {bytes} bytes");
    }
}

#[test]
fn requests_are_copied_for_a_mirror() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::start(|accepted| drop(accepted.request())));
    let keys = format!("proxy = {{ to = '{}', mirror = {{ to = '{}' }} }}", first.url(), shadow.url());
    let server = config(&site, &keys).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    assert_eq!(client.get("/one", &[]).status, StatusCode::OK);
    wait_until("the shadow has it", || shadow.requests().len() == 1);
    let content = pattern::bytes(0..200_000);
    let stream = client.send(request("POST", "/two", &[]), Some(content.clone()));
    assert!(client.receive(stream).body == content);
    wait_until("the shadow has both", || shadow.requests().len() == 2);
    let copy = shadow.last();
    assert!((copy.line(), &copy.body) == ("POST /two", &content), "{} bytes", copy.body.len());
}

/// One upload does not hold the window of the connection, so that the client may send the other content.
#[test]
fn an_upload_that_waits_for_its_server_extends_no_deadline_of_others() {
    // No handshake follows.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let site = Site::new();
    site.add("f", "content");
    let rules = "[[site.route]]\npath = '/silent/'\nproxy = { to = 'silent' }";
    let table = format!(
        "[[upstream]]\nname = 'silent'\nconnect_timeout = '10m'\nservers = [{{ url = 'https://{address}' }}]\n[limits]\nrequest_timeout = '1s'\n"
    );
    let server = config(&site, rules).table(&table).serve_from_user_space();
    let mut raw = Raw::connect(&site, &server);
    let post = |path| [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost")];
    let mut waiting = raw.request(&post("/silent/"));
    for _ in 0..8 {
        raw.content(&mut waiting, &[b'x'; 16_000]);
    }
    let late = raw.request(&post("/f"));
    assert_eq!(raw.early_response(late).0, 408);
}
