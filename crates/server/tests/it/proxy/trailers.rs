//! Fields behind the content.

use ::http::{HeaderMap, HeaderName, HeaderValue, Request};
use sealion_testkit::http;

use super::serve;
use crate::support::Site;
use crate::support::http2_upstream::{Http2Upstream, connect, read, run};
use crate::support::upstream::Upstream;

/// An upstream of HTTP/1.1 whose answers have trailers, some of them forbidden.
fn with_trailers() -> Upstream {
    Upstream::answering(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        let trailers = "X-Sum: 42\r\nSet-Cookie: a=b\r\nContent-Length: 7\r\nContent_Length: 7\r\nConnection: x\r\n";
        format!("{head}3\r\nabc\r\n0\r\n{trailers}\r\n").into_bytes()
    })
}

#[test]
fn trailers_of_an_answer_reach_clients_that_take_them() {
    let site = Site::new();
    let upstream = with_trailers();
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for (fields, end) in [
        (&[("TE", "trailers")][..], "0\r\nx-sum: 42\r\n\r\n"),
        (&[("TE", "gzip, Trailers")], "0\r\nx-sum: 42\r\n\r\n"),
        (&[("TE", "gzip")], "0\r\n\r\n"),
        (&[], "0\r\n\r\n"),
    ] {
        client.send(http::head("GET", "/", fields).as_bytes()).expect("it leaves");
        client.read_until(b"\r\n\r\n").expect("a head");
        client.read_until(b"abc\r\n").expect("content");
        let found = client.read_until(b"\r\n\r\n").expect("an end");
        assert_eq!(String::from_utf8(found).expect("text"), end, "{fields:?}");
        let sent = upstream.last();
        let is_asked = end.contains("x-sum");
        assert_eq!(sent.all("te"), if is_asked { &["trailers"][..] } else { &[] });
        assert_eq!(sent.all("connection"), if is_asked { &["te"][..] } else { &[] });
    }
    assert_eq!(upstream.connections(), 1);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let request = Request::get("https://localhost/").body(()).expect("a request");
        let (response, _) = client.send_request(request, true).expect("it leaves");
        let (content, trailers) = read(response.await.expect("an answer").body_mut()).await.expect("content");
        let expected = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))]);
        assert_eq!((content, trailers), (b"abc".to_vec(), Some(expected)));
    });
}

/// A client must not set by a trailer what it cannot set by a field.
#[test]
fn trailers_of_a_request_reach_the_server_but_for_those_that_have_a_meaning_for_it() {
    const SENT: &str = "X-Sum: 42\r\nX-Forwarded-For: 10.0.0.1\r\nX_Real_IP: 10.0.0.1\r\nAuthorization: a\r\nX_User: root\r\n\
        Host: other\r\nTransfer-Encoding: chunked\r\nIf-Match: \"a\"\r\n";
    const NAMES: &str = "X-Sum, X-Forwarded-For, X_Real_IP, Authorization, X_User, Host, If-Match";
    let (send, received) = std::sync::mpsc::channel();
    let over_http2 = send.clone();
    let http1 = Upstream::start(move |accepted| {
        while let Some(head) = accepted.head() {
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            assert_eq!(accepted.read(11).expect("content"), b"3\r\nabc\r\n0\r\n");
            let mut trailers = String::new();
            while !trailers.ends_with("\r\n\r\n") && trailers != "\r\n" {
                trailers.push(char::from(accepted.read(1).expect("trailers")[0]));
            }
            send.send(trailers).expect("the test waits");
            accepted.write(&crate::support::upstream::ok(b""));
        }
    });
    let http2 = Http2Upstream::start(move |mut request, mut respond| {
        let send = over_http2.clone();
        Box::pin(async move {
            let (content, trailers) = read(request.body_mut()).await?;
            assert_eq!(content, b"abc");
            let trailers = trailers.unwrap_or_default();
            let lines = trailers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().expect("text")));
            send.send(lines.collect::<String>() + "\r\n").expect("the test waits");
            respond.send_response(::http::Response::new(()), true).map(drop)
        })
    });
    let rule = |keys: &str, url: &str| {
        let site = Site::new();
        let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{url}' }}]\n{keys}\n");
        let fields = "request_headers = [{ name = 'X-User', value = '' }]";
        let server = site.config(&format!("proxy = {{ to = 'app', {fields} }}")).table(&table);
        (server.serve_from_user_space(), site)
    };
    for (server, site) in [rule("", &http1.url()), rule("protocol = 'http2'", &http2.url())] {
        let mut client = site.connect(&server);
        let head = http::head("POST", "/", &[("Transfer-Encoding", "chunked"), ("Trailer", NAMES)]);
        client.send(format!("{head}3\r\nabc\r\n0\r\n{SENT}\r\n").as_bytes()).expect("it leaves");
        assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 200);
        assert_eq!(received.recv_timeout(sealion_testkit::PATIENCE).expect("it came"), "x-sum: 42\r\n\r\n");
        run(async {
            let mut client = connect(server.address(), &site.pki).await;
            let request = Request::post("https://localhost/").header("trailer", "x-sum").body(()).expect("a request");
            let (response, mut stream) = client.send_request(request, false).expect("it leaves");
            stream.send_data("abc".into(), false).expect("it leaves");
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("42"));
            trailers.insert("x-user", HeaderValue::from_static("root"));
            stream.send_trailers(trailers).expect("it leaves");
            assert_eq!(response.await.expect("an answer").status(), 200);
        });
        assert_eq!(received.recv_timeout(sealion_testkit::PATIENCE).expect("it came"), "x-sum: 42\r\n\r\n");
    }
}

#[test]
fn trailers_have_a_bound() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.read_to_end();
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    let head = http::head("POST", "/", &[("Transfer-Encoding", "chunked")]);
    client.send((head + "0\r\nX-A: " + &"x".repeat(10_000)).as_bytes()).expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 431);
}
