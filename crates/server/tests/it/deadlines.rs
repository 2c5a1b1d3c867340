//! Every wait has an end, and every count a bound. Tests wait for the event; how long it took is not asserted.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sealion_testkit::{Event, PATIENCE, Suite, http, pattern};
use sealion_tls::AlertDescription;

use crate::support::{LARGE, Site, access_line, access_lines, begin, exchange, get, parse_responses, read_until_cut};
use crate::support::{content, curl, wait_for_message, wait_until};

/// Receives until the server closes, in whichever way.
fn drain(mut io: TcpStream) -> Vec<u8> {
    io.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut bytes = Vec::new();
    match io.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
    }
    bytes
}

#[test]
fn a_handshake_that_does_not_come_or_does_not_end() {
    let site = Site::new();
    let server = site.serve_from_user_space(&["--handshake-timeout", "200ms", "--log", "debug"]);
    let silent = TcpStream::connect(server.address()).expect("it connects");
    assert_eq!(drain(silent), b"");
    wait_for_message(&server, "no handshake within 0.2 s");
    let mut half = TcpStream::connect(server.address()).expect("it connects");
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252]).expect("it leaves");
    drain(half);
    server.wait_for_lines(2, "message", |line| line.text.contains("no handshake within 0.2 s"));
}

#[test]
fn a_request_that_does_not_end() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--request-timeout", "200ms"]);
    let body = http::head("POST", "/f", &[("Content-Length", "10")]) + "12345";
    let chunk = http::head("POST", "/f", &[("Transfer-Encoding", "chunked")]) + "a\r\n12345";
    for (n, part) in ["G", "GET /f HTTP/1.1\r\nHost: local", &body, &chunk].into_iter().enumerate() {
        let ending = exchange(&mut site.connect(&server), part.as_bytes());
        let responses = parse_responses(&ending.data);
        assert_eq!(responses.len(), 1, "{part}");
        assert_eq!((responses[0].status, responses[0].field("connection")), (408, Some("close")), "{part}");
        ending.assert_orderly();
        assert_eq!(access_line(&server, n + 1).get("status"), "408", "{part}");
    }
}

/// A record that has begun is a request that has begun: the idle timeout is over.
#[test]
fn a_record_that_does_not_end() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--request-timeout", "200ms"]);
    let mut client = site.connect(&server);
    http::get(&mut client, "/f").expect("an answer");
    let record = client.seal(sealion_tls::record::ContentType::ApplicationData, get("/f").as_bytes());
    for part in [&record[..1], &record[1..30]] {
        client.write(part).expect("it leaves");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ending = client.read_to_end().expect("the server closes");
    let responses = parse_responses(&ending.data);
    assert_eq!((responses.len(), responses[0].status), (1, 408));
    ending.assert_orderly();
}

/// The rest of a record may come late, as long as it comes in time.
#[test]
fn a_request_in_pieces_of_a_record_is_answered() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for _ in 0..3 {
        let record = client.seal(sealion_tls::record::ContentType::ApplicationData, get("/f").as_bytes());
        for part in record.chunks(20) {
            client.write(part).expect("it leaves");
            std::thread::sleep(Duration::from_millis(2));
        }
        client.read_until(b"\r\n\r\n").expect("the head comes");
        assert_eq!(client.read(7).expect("the body comes"), b"content");
    }
    // So may the end.
    let end = client.seal(sealion_tls::record::ContentType::Alert, &[1, 0]);
    for part in end.chunks(4) {
        client.write(part).expect("it leaves");
        std::thread::sleep(Duration::from_millis(2));
    }
    client.read_to_end().expect("the server closes").assert_orderly();
    access_lines(&server, 3);
}

/// An empty line is no request (RFC 9112 §2.2): some clients send one after the content of a POST.
#[test]
fn an_empty_line_after_a_request_leaves_the_connection_idle() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--request-timeout", "200ms", "--idle-timeout", "1s"]);
    let post = http::head("POST", "/f", &[("Content-Length", "4")]) + "body\r\n";
    let mut client = site.connect(&server);
    client.send(post.as_bytes()).expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("an answer").status, 405);
    let mut asks = site.connect(&server);
    asks.send(post.as_bytes()).expect("it leaves");
    assert_eq!(http::read_response(&mut asks, "POST").expect("an answer").status, 405);
    asks.send(b"\r\n").expect("it leaves");
    assert_eq!(http::get(&mut asks, "/f").expect("an answer").body, b"content");
    for client in [&mut client, &mut asks] {
        let ending = client.read_to_end().expect("the server closes");
        assert_eq!(String::from_utf8_lossy(&ending.data), "");
        ending.assert_orderly();
    }
}

#[test]
fn idle_connections_are_closed_in_order() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--idle-timeout", "200ms"]);
    let mut never_used = site.connect(&server);
    let mut used = site.connect(&server);
    http::get(&mut used, "/f").expect("an answer");
    for client in [&mut never_used, &mut used] {
        let ending = client.read_to_end().expect("the server closes");
        assert_eq!(ending.data, b"");
        ending.assert_orderly();
    }
    // No response, no line.
    access_lines(&server, 1);
}

/// Each request restarts the wait, at whatever moment of the wait before it comes.
#[test]
fn a_connection_in_use_outlives_the_idle_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--idle-timeout", "2s"]);
    let mut client = site.connect(&server);
    let begun = Instant::now();
    let mut last = begun;
    // Up to half of the timeout apart, so that a busy machine does not make it a whole one.
    for pause in [10, 100, 700, 1000].into_iter().cycle() {
        if last - begun > TIMEOUT * 5 / 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(pause));
        last = Instant::now();
        assert_eq!(http::get(&mut client, "/f").expect("an answer").body, b"content");
    }
    client.read_to_end().expect("the server closes").assert_orderly();
    assert!(last.elapsed() >= TIMEOUT, "closed {:?} after the last request", last.elapsed());
}

#[test]
fn a_reader_that_stalls_is_cut() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(&["--stall-timeout", "500ms"]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    let line = access_line(&server, 1);
    assert_eq!(line.get("aborted"), "the peer read nothing for 0.5 s");
    let sent: u64 = line.get("bytes").parse().expect("a number");
    assert!(sent < LARGE, "{}", line.text);
    match read_until_cut(&mut client) {
        Ok(ending) => {
            pattern::assert_starts(&ending.data, 0);
            assert!(!ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY)), "it is not complete");
        }
        Err(inside_a_record) => assert!(inside_a_record.to_string().contains("ends inside a record")),
    }
}

/// It always takes something, so it is never stalled.
#[test]
fn a_reader_that_takes_too_little_is_cut() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(&["--min-send-rate", "2048", "--min-send-rate-window", "1s"]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    wait_until("the server gives up", || {
        // It fails when the server has closed.
        let _ = client.read(16);
        server.lines().iter().any(|line| !line.stderr)
    });
    let aborted = access_line(&server, 1);
    let aborted = aborted.get("aborted");
    assert!(aborted.starts_with("the peer took only ") && aborted.ends_with(" bytes in 1 s of waiting"), "{aborted}");
}

/// Slow, but always taking something: that is no stall, even where it takes longer than the limit until the server's
/// socket is writable again.
#[test]
fn a_slow_reader_is_not_cut() {
    let site = Site::new();
    site.add_large("large", LARGE);
    let server = site.serve_from_user_space(&["--stall-timeout", "2s"]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    let mut at = 0;
    for _ in 0..60 {
        let part = client.read(16 << 10).expect("it goes on");
        content::assert_equal(&part, at..at + part.len() as u64);
        at += part.len() as u64;
        std::thread::sleep(Duration::from_millis(60));
    }
    content::assert_equal(&client.read((LARGE - at) as usize).expect("it goes on"), at..LARGE);
    assert_eq!(access_line(&server, 1).find("aborted"), None);
}

#[test]
fn connections_beyond_the_limit_wait_and_are_served() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--max-connections", "2"]);
    let connector = site.connector(Suite::TLS13);
    let mut first = connector.connect(server.address());
    let mut second = connector.connect(server.address());
    // Accepted by the kernel, not by the server.
    let mut third = curl_in_background(&site, &server);
    for _ in 0..20 {
        assert_eq!(http::get(&mut first, "/f").expect("an answer").body, b"content");
        assert_eq!(http::get(&mut second, "/f").expect("an answer").body, b"content");
    }
    assert!(third.try_wait().expect("a child").is_none(), "a third connection is served beside two");
    access_lines(&server, 40);
    first.close_notify().expect("it leaves");
    first.fin().expect("it leaves");
    let output = third.wait_with_output().expect("curl ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"content");
    assert_eq!(http::get(&mut second, "/f").expect("an answer").body, b"content");
}

/// Clients that do nothing keep no other client out, whether they answer the server's close or not.
#[test]
fn when_no_slot_is_free_the_longest_idle_connection_is_closed_in_order() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--workers", "1", "--max-connections", "5", "--linger-timeout", "1h"]);
    let mut idle: Vec<_> = (0..5).map(|_| site.connect(&server)).collect();
    // The server's clock for this shows ticks of the kernel, of 10 ms at most.
    let tick = std::time::Duration::from_millis(20);
    for client in &mut idle[1..] {
        http::get(client, "/f").expect("an answer");
        std::thread::sleep(tick);
    }
    http::get(&mut idle[0], "/f").expect("an answer, the last of the five");
    let mut new = Vec::new();
    for longest_idle in &mut idle[1..4] {
        let mut client = site.connect(&server);
        assert_eq!(http::get(&mut client, "/f").expect("an answer").body, b"content");
        new.push(client);
        let ending = longest_idle.read_to_end().expect("the server closes");
        assert_eq!(ending.data, b"");
        assert!(ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY)), "{ending:?}");
    }
    drop(idle.drain(1..4));
    for client in idle.iter_mut().chain(&mut new) {
        assert_eq!(http::get(client, "/f").expect("it was used later than those").body, b"content");
    }
}

fn curl_in_background(site: &Site, server: &sealion_testkit::server::Server) -> std::process::Child {
    let mut command = std::process::Command::new("curl");
    command.args(["-sS", "--cacert"]).arg(site.pki.certificate_file());
    command.arg(format!("https://{}/f", server.address()));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().expect("curl is needed")
}

/// However few connections are allowed: no worker and no address keeps the room of another.
#[test]
fn one_connection_at_a_time_reaches_every_worker_and_address() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--max-connections", "1", "--workers", "4", "--listen", "127.0.0.2:0"]);
    let lines = server.wait_for_lines(2, "address", |line| line.text.contains("https://"));
    let second = lines[1].text.split("localhost:").nth(1).and_then(|rest| rest.split(' ').next());
    let second = std::net::SocketAddr::from(([127, 0, 0, 2], second.and_then(|p| p.parse().ok()).expect("a port")));
    let connector = site.connector(Suite::TLS13);
    for n in 0..32 {
        let address = if n % 2 == 0 { server.address() } else { second };
        let mut client = connector.connect(address);
        assert_eq!(http::get(&mut client, "/f").expect("an answer").body, b"content");
    }
    access_lines(&server, 32);
}

/// Both have sent everything before the server looks. Its worker answers the second one between the requests of the first.
#[test]
fn many_requests_at_once_on_one_connection_do_not_hold_up_another() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--workers", "1"]);
    let (mut many, mut one) = (site.connect(&server), site.connect(&server));
    http::get(&mut many, "/f?many").expect("an answer");
    http::get(&mut one, "/f?one").expect("an answer");
    access_lines(&server, 2);
    server.pause();
    many.send(get("/f?many").repeat(300).as_bytes()).expect("it leaves");
    one.send(get("/f?one").as_bytes()).expect("it leaves");
    server.resume();
    let lines = access_lines(&server, 2 + 301);
    let before = lines[2..].iter().position(|line| line.text.contains("?one")).expect("it was answered");
    assert!(before <= 32, "{before} responses came before it");
}

#[test]
fn requests_on_a_connection_are_bounded() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--max-requests", "3"]);
    let ending = exchange(&mut site.connect(&server), get("/f").repeat(5).as_bytes());
    let responses = parse_responses(&ending.data);
    let connection: Vec<_> = responses.iter().map(|response| response.field("connection")).collect();
    assert_eq!(connection, [None, None, Some("close")]);
    ending.assert_orderly();
    // curl opens another connection for what is left.
    let target = "/f";
    for _ in 0..4 {
        assert_eq!(curl::get(&site.pki, server.address(), target, &[]).body, b"content");
    }
}
