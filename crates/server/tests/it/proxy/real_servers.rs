//! Servers as applications use them, with their libraries' own view of HTTP: Go, Node, Python, and gRPC.

use std::process::Command;

use ::http::{HeaderMap, HeaderValue, Request};
use aws_lc_rs::digest;
use bytes::Bytes;
use sealion_testkit::{http, pattern};

use super::serve_to;
use crate::support::http2_upstream::{connect, read, run, write};
use crate::support::program::{Program, go, node, python, python_with_grpcio};
use crate::support::{Site, curl};

/// Checks the answers of `server.go`, `server.mjs` and `server.py` through the proxy.
#[track_caller]
fn answers(application: Command) -> (Site, sealion_testkit::server::Server, Program) {
    let site = Site::new();
    let application = Program::start(application);
    let server = serve_to(&site, &[&application.url()], "");
    let content = site.outside().join("content");
    let octets = pattern::bytes(0..300_000);
    std::fs::write(&content, &octets).expect("a file");
    let data = format!("@{}", content.display());
    for protocol in ["--http1.1", "--http2"] {
        let ask = |target: &str, options: &[&str]| {
            let options = [&[protocol], options].concat();
            let response = curl::get(&site.pki, server.address(), target, &options);
            assert_eq!(response.status, 200, "{target} {options:?}");
            response.body
        };
        let host = server.address();
        assert_eq!(ask("/get?a=b%20c", &[]), format!("GET /get?a=b%20c {host} https").into_bytes(), "{protocol}");
        assert!(ask("/echo", &["--data-binary", &data]) == octets, "{protocol}");
        assert!(ask("/echo", &["--data-binary", &data, "-H", "Transfer-Encoding: chunked"]) == octets, "{protocol}");
        assert_eq!(ask("/echo", &["-X", "POST"]), b"", "{protocol}");
        let pieces: String = (0..10).map(|n| format!("piece {n}\n")).collect();
        assert_eq!(ask("/chunked", &[]), pieces.as_bytes(), "{protocol}");
    }
    // Its connection is kept.
    let mut client = site.connect(&server);
    let ports: Vec<_> = (0..5).map(|_| http::get(&mut client, "/port").expect("an answer").body).collect();
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    // Each event comes before the next is made.
    client.send(http::head("GET", "/events", &[]).as_bytes()).expect("it leaves");
    let mut other = site.connect(&server);
    for n in 0..3 {
        client.read_until(format!("data: {n}\n\n").as_bytes()).expect("an event");
        assert_eq!(http::get(&mut other, "/next").expect("an answer").body, b"gone");
    }
    client.read_until(b"0\r\n\r\n").expect("the end");
    assert_eq!(http::get(&mut client, "/none").expect("an answer").status, 404);
    (site, server, application)
}

/// Trailers pass in both directions.
#[track_caller]
fn passes_trailers((site, server, _application): (Site, sealion_testkit::server::Server, Program)) {
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let request =
            Request::post("https://localhost/trailers").header("trailer", "x-sum").body(()).expect("a request");
        let (response, mut stream) = client.send_request(request, false).expect("it leaves");
        write(&mut stream, Bytes::from_static(b"content")).await.expect("it leaves");
        let x_sum = |value: &str| {
            HeaderMap::from_iter([("x-sum".parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))])
        };
        stream.send_trailers(x_sum("42")).expect("they leave");
        let (content, trailers) = read(response.await.expect("an answer").body_mut()).await.expect("content");
        let sum = digest::digest(&digest::SHA256, b"content");
        let sum: String = sum.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!((content, trailers), (b"content".to_vec(), Some(x_sum(&format!("42 {sum}")))));
    });
}

#[test]
fn net_http_of_go() {
    let directory = tempfile::tempdir().expect("a directory");
    passes_trailers(answers(go("server.go", directory.path())));
}

#[test]
fn http_of_node() {
    passes_trailers(answers(node("server.mjs")));
}

/// It knows no trailers.
#[test]
fn http_server_of_python() {
    answers(python("server.py"));
}

#[test]
fn grpc_by_its_own_library() {
    let site = Site::new();
    let mut application = python_with_grpcio("grpc_echo.py");
    application.arg("server");
    let application = Program::start(application);
    let server = serve_to(&site, &[&application.url()], "protocol = 'http2'");
    let mut client = python_with_grpcio("grpc_echo.py");
    client.args(["client", &server.address().port().to_string()]).arg(site.pki.certificate_file());
    let output = client.output().expect("python3 is needed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 6, "{said}");
    assert_eq!(application.line(), "ended", "a call that the client gave up");
}
