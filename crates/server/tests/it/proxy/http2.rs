//! HTTP/2 to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use sealion_testkit::{http, pattern};

use super::{is_orderly, post, serve_config, serve_to};
use crate::support::http2::{self, HEADERS, frame, headers, settings_frame};
use crate::support::http2_upstream::{Http2Upstream, answer, read, write};
use crate::support::upstream::{Accepted, Upstream};
use crate::support::{Site, access_line, access_lines, curl, messages, wait_for_message, wait_until};

const HTTP2: &str = "protocol = 'http2'";

/// Answers with the request's content.
fn echo() -> Http2Upstream {
    Http2Upstream::start(|mut request, mut respond| {
        Box::pin(async move {
            let (content, _) = read(request.body_mut()).await?;
            answer(&mut respond, &[], content).await
        })
    })
}

#[test]
fn a_request_arrives_over_http2_as_it_was_sent_and_the_answer_comes_back() {
    let site = Site::new();
    let upstream = Http2Upstream::start(|mut request, mut respond| {
        Box::pin(async move {
            let (content, _) = read(request.body_mut()).await?;
            let uri = request.uri();
            let mut text = format!("{} {uri} {}\n", request.method(), content.len());
            for (name, value) in request.headers() {
                text.push_str(&format!("{name}: {}\n", value.to_str().expect("text")));
            }
            answer(&mut respond, &[("set-cookie", "a=1"), ("set-cookie", "b=2"), ("server", "app")], text).await
        })
    });
    let server = serve_to(&site, &[&upstream.url()], HTTP2);
    let mut client = site.connect(&server);
    let fields = [("Connection", "X-Hop, Keep-Alive"), ("X-Hop", "1"), ("TE", "gzip"), ("Proxy-Connection", "close")];
    let response = http::request(&mut client, "GET", "/a%2Fb?x=%20", &fields).expect("a response");
    let text = String::from_utf8(response.body.clone()).expect("text");
    assert!(text.starts_with("GET http://localhost/a%2Fb?x=%20 0\n"), "{text}");
    assert!(text.contains("x-forwarded-for: 127.0.0.1\n"), "{text}");
    for name in ["host", "connection", "x-hop", "te", "proxy-connection", "transfer-encoding", "content-length"] {
        assert!(!text.contains(&format!("\n{name}: ")), "{text}");
    }
    assert_eq!((response.status, response.field("server")), (200, Some("app")));
    assert_eq!(response.fields.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    let response = post(&mut client, "/", &[("Content-Length", "3")], b"abc");
    let text = String::from_utf8(response.body).expect("text");
    assert!(text.starts_with("POST http://localhost/ 3\n") && text.contains("\ncontent-length: 3\n"), "{text}");
    assert_eq!(upstream.connections(), 1);
    assert_eq!(access_lines(&server, 2)[0].get("upstream"), upstream.url());
}

#[test]
fn contents_of_all_lengths_pass_over_http2_in_both_directions() {
    let site = Site::new();
    let upstream = echo();
    let server = serve_to(&site, &[&upstream.url()], HTTP2);
    for length in [0, 1, 16_384, 65_537, 3_000_000] {
        let file = site.add_pattern("upload", length);
        let expected = pattern::bytes(0..length);
        let upload = format!("@{}", file.display());
        for (protocol, framing) in
            [("--http1.1", "X-Framing: length"), ("--http1.1", "Transfer-Encoding: chunked"), ("--http2", "X-A: 1")]
        {
            let options = ["--data-binary", &upload, "-H", "Expect:", "-H", framing, protocol];
            let response = curl::get(&site.pki, server.address(), "/", &options);
            assert_eq!(response.status, 200);
            assert!(response.body == expected, "{length} {protocol} {framing}");
        }
    }
}

#[test]
fn requests_at_once_share_a_connection_as_far_as_the_server_allows() {
    let site = Site::new();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let upstream = |limit: u32| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        most.store(0, Ordering::Relaxed);
        let mut builder = Builder::new();
        builder.max_concurrent_streams(limit);
        Http2Upstream::with(builder, None, move |_, mut respond| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            Box::pin(async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                answer(&mut respond, &[], "x").await
            })
        })
    };
    for (limit, connections) in [(200, 1..=1), (3, 2..=10)] {
        let upstream = upstream(limit);
        let config = serve_config(&site, &[&upstream.url()], HTTP2).table("[server]\nworkers = 1");
        let server = config.serve_from_user_space();
        // The server's settings come with its first answer, and are known from the second request on.
        for _ in 0..2 {
            assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 200);
        }
        let clients: Vec<_> = (0..20).map(|_| site.connect(&server)).collect();
        let threads = clients
            .into_iter()
            .map(|mut client| thread::spawn(move || http::get(&mut client, "/").expect("a response").status));
        for thread in threads.collect::<Vec<_>>() {
            assert_eq!(thread.join().expect("no panic"), 200);
        }
        assert!(connections.contains(&upstream.connections()), "{limit}: {}", upstream.connections());
        assert_eq!(upstream.requests(), 22);
        assert!(most.load(Ordering::Relaxed) > 3, "{limit}: requests are answered at once");
    }
}

#[test]
fn an_idle_connection_of_http2_is_closed() {
    let site = Site::new();
    let upstream = echo();
    let server = serve_to(&site, &[&upstream.url()], "protocol = 'http2'\nidle_timeout = '200ms'");
    let mut client = site.connect(&server);
    for n in 1..=2 {
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
        wait_until("the connection is closed", || upstream.open() == 0);
        assert_eq!(upstream.connections(), n);
    }
}

/// However busy it is, it would stay with an address that the server's name had once.
#[test]
fn an_old_connection_gets_no_further_request() {
    let site = Site::new();
    let (http1, http2) = (Upstream::echo(), echo());
    for (keys, expected) in [("", 1), ("connection_age = '1us'", 3)] {
        let before = (http1.connections(), http2.connections());
        for (url, protocol) in [(http1.url(), ""), (http2.url(), HTTP2)] {
            let server = serve_to(&site, &[&url], &format!("{protocol}\n{keys}"));
            let mut client = site.connect(&server);
            for _ in 0..3 {
                assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
            }
        }
        assert_eq!((http1.connections() - before.0, http2.connections() - before.1), (expected, expected), "{keys}");
    }
}

/// Reads up to HEADERS of a request, and acknowledges nothing. Returns its stream.
fn head_of_request(accepted: &mut Accepted) -> Option<u32> {
    loop {
        let head = accepted.read(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        accepted.read(length)?;
        if head[3] == HEADERS {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

fn begin(accepted: &mut Accepted) {
    accepted.read(http2::PREFACE.len());
    accepted.write(&settings_frame(&[]));
}

const OK: [u8; 1] = [0x88];

#[test]
fn what_the_server_has_not_begun_with_is_asked_again() {
    type Refusal = fn(&mut Accepted, u32);
    let refusals: [(&str, Refusal); 2] = [
        ("REFUSED_STREAM", |accepted, stream| accepted.write(&http2::reset(stream, http2::REFUSED_STREAM))),
        ("GOAWAY", |accepted, _| accepted.write(&frame(http2::GOAWAY, 0, 0, &[0; 8]))),
    ];
    for (what, refuse) in refusals {
        let site = Site::new();
        let upstream = Upstream::start(move |accepted| {
            begin(accepted);
            let mut first = accepted.number == 0;
            while let Some(stream) = head_of_request(accepted) {
                match std::mem::take(&mut first) {
                    true => refuse(accepted, stream),
                    false => accepted.write(&headers(stream, true, &OK)),
                }
            }
        });
        let server = serve_to(&site, &[&upstream.url()], HTTP2);
        let mut client = site.connect(&server);
        // A method that changes something, without content.
        let response = http::request(&mut client, "DELETE", "/", &[]).expect("a response");
        assert_eq!(response.status, 200, "{what}");
        let response = http::request(&mut client, "PATCH", "/", &[]).expect("a response");
        assert_eq!(response.status, 200, "{what}");
        assert_eq!(access_lines(&server, 2)[0].get("tries"), "2", "{what}");
        assert_eq!(upstream.connections(), if what == "GOAWAY" { 2 } else { 1 });
    }
}

#[test]
fn a_request_that_may_have_been_begun_with_is_not_asked_again() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        begin(accepted);
        while let Some(stream) = head_of_request(accepted) {
            accepted.write(&http2::reset(stream, http2::CANCEL));
        }
    });
    let server = serve_to(&site, &[&upstream.url()], HTTP2);
    let mut client = site.connect(&server);
    assert_eq!(http::request(&mut client, "PATCH", "/", &[]).expect("a response").status, 502);
    assert_eq!(access_line(&server, 1).find("tries"), None);
    // An idempotent request is sent as often as `tries` says.
    assert_eq!(http::get(&mut client, "/").expect("a response").status, 502);
    assert_eq!(access_lines(&server, 2)[1].get("tries"), "3");
}

#[test]
fn an_answer_over_http2_that_breaks_off_never_ends_as_if_it_were_complete() {
    for reason in [Reason::INTERNAL_ERROR, Reason::NO_ERROR, Reason::CANCEL] {
        let site = Site::new();
        let upstream = Http2Upstream::start(move |_, mut respond| {
            Box::pin(async move {
                let mut stream = respond.send_response(::http::Response::new(()), false)?;
                write(&mut stream, vec![b'x'; 1000]).await?;
                // The bytes leave before the reset.
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.send_reset(reason);
                Ok(())
            })
        });
        let server = serve_to(&site, &[&upstream.url()], HTTP2);
        let mut client = site.connect(&server);
        client.send(crate::support::get("/").as_bytes()).expect("it leaves");
        assert!(client.read_to_end().map_or(true, |ending| !is_orderly(&ending)), "{reason:?}");
        assert!(access_line(&server, 1).get("aborted").contains("broke off"), "{reason:?}");
    }
}

#[test]
fn content_that_breaks_off_resets_the_stream_and_not_the_connection() {
    let site = Site::new();
    let complete = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&complete);
    let upstream = Http2Upstream::start(move |mut request, mut respond| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let (content, _) = read(request.body_mut()).await?;
            count.fetch_add(1, Ordering::Relaxed);
            answer(&mut respond, &[], content).await
        })
    });
    let server = serve_config(&site, &[&upstream.url()], HTTP2).table("[server]\nworkers = 1").serve_from_user_space();
    for framing in [("Content-Length", "10"), ("Transfer-Encoding", "chunked")] {
        let mut client = site.connect(&server);
        client.send((http::head("POST", "/", &[framing]) + "5\r\n12345\r\nzz").as_bytes()).expect("it leaves");
        if framing.0 == "Content-Length" {
            client.close_notify().expect("it leaves");
            client.fin().expect("it leaves");
            continue;
        }
        assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 400);
    }
    assert_eq!(post(&mut site.connect(&server), "/", &[("Content-Length", "3")], b"abc").body, b"abc");
    assert_eq!((complete.load(Ordering::Relaxed), upstream.connections()), (1, 1));
}

#[test]
fn servers_with_tls_have_to_offer_http2() {
    let site = Site::new();
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let serve = |_: ::http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>| {
            Box::pin(async move { answer(&mut respond, &[], "by TLS").await }) as _
        };
        let upstream = Http2Upstream::with(Builder::new(), Some((&site.pki, alpn)), serve);
        let keys = format!("{HTTP2}\ntls = {{ roots = '{}' }}", site.pki.certificate_file().display());
        let server = serve_to(&site, &[&format!("https://localhost:{}", upstream.port())], &keys);
        let response = http::get(&mut site.connect(&server), "/").expect("a response");
        match alpn {
            b"h2" => assert_eq!(response.body, b"by TLS"),
            _ => assert_eq!(response.status, 502),
        }
    }
}

#[test]
fn health_is_asked_by_the_protocol_of_the_upstream() {
    let site = Site::new();
    let is_ill = |request: &::http::Request<h2::RecvStream>| request.uri().path() == "/healthz";
    let upstream = Http2Upstream::start(move |request, mut respond| {
        let status = if is_ill(&request) { 500 } else { 200 };
        Box::pin(async move {
            let response = ::http::Response::builder().status(status).body(()).expect("a response");
            respond.send_response(response, true).map(drop)
        })
    });
    let keys = "protocol = 'http2'\nhealth = { path = '/healthz', every = '100ms' }";
    let server = serve_to(&site, &[&upstream.url()], keys);
    wait_for_message(&server, "is left out until its health check succeeds: /healthz is answered with 500");
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 200);
}

#[test]
fn what_servers_of_http2_cannot_do_is_refused_at_start_and_a_client_that_asks_for_it_has_a_line() {
    let site = Site::new();
    let app = "[[upstream]]\nname = 'app'\nservers = [{ url = 'http://127.0.0.1:1' }]\nprotocol = 'http2'\n";
    for (rule, keys, words) in [
        (", upgrade = ['websocket']", "", "upgrade: has no effect"),
        (", interim = 'all'", "", "interim: has no effect"),
        ("", "max_idle = 1", "max_idle: has no effect"),
        ("", "tunnel_timeout = '1s'", "tunnel_timeout: has no effect"),
        ("", "tls = { server_name = 'a' }", "tls: has no effect"),
    ] {
        let config = site.config(&format!("proxy = {{ to = 'app'{rule} }}")).table(&format!("{app}{keys}"));
        let problems = config.problems();
        assert!(problems.contains(words), "{rule} {keys}: {problems}");
    }
    let upstream = Http2Upstream::start(|_, mut respond| {
        Box::pin(async move {
            let mut body = respond.send_response(::http::Response::new(()), false)?;
            body.send_data("page".into(), true)
        })
    });
    for (upgrade, expected) in [(", upgrade = []", 0), ("", 1)] {
        let rule = format!("proxy = {{ to = 'app'{upgrade} }}");
        let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n{HTTP2}\n", upstream.url());
        let server = site.config(&rule).table(&table).serve_from_user_space();
        let fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let answer = http::request(&mut site.connect(&server), "GET", "/", &fields).expect("an answer");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"page"[..]));
        access_line(&server, 1);
        if expected > 0 {
            wait_for_message(&server, "a client asks for WebSocket");
        }
        assert_eq!(messages(&server, "a client asks for WebSocket"), expected, "{upgrade}");
    }
}
