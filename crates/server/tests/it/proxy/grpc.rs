//! gRPC through the proxy, as its clients and servers speak it: HTTP/2 on both sides, messages with a length in front, and the status in
//! trailers.

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response, StatusCode};
use sealion_testkit::server::Server;
use tokio::task::yield_now;

use super::serve_to;
use crate::support::Site;
use crate::support::http2_upstream::{Http2Upstream, connect, read, run, write};

/// A message with its length in front, not compressed.
fn message(octets: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(octets.len() as u32);
    framed.put_slice(octets);
    framed.freeze()
}

fn status(code: &str) -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().expect("a name"), code.parse().expect("a value"))])
}

async fn serve(mut request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    assert_eq!(request.headers().get("te").map(|te| te.as_bytes()), Some(&b"trailers"[..]));
    let head = || Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
    match request.uri().path() {
        "/echo.Echo/Unary" => {
            let (content, _) = read(request.body_mut()).await?;
            let mut stream = respond.send_response(head(), false)?;
            write(&mut stream, content).await?;
            stream.send_trailers(status("0"))
        }
        "/echo.Echo/Many" => {
            let (content, _) = read(request.body_mut()).await?;
            let mut stream = respond.send_response(head(), false)?;
            for _ in 0..100 {
                write(&mut stream, content.clone()).await?;
                yield_now().await;
            }
            stream.send_trailers(status("0"))
        }
        "/echo.Echo/Both" => {
            let mut stream = respond.send_response(head(), false)?;
            let body = request.body_mut();
            while let Some(piece) = body.data().await {
                let piece = piece?;
                body.flow_control().release_capacity(piece.len())?;
                write(&mut stream, piece).await?;
            }
            stream.send_trailers(status("0"))
        }
        // Without a message: the status is in the head, which ends the stream.
        _ => {
            let mut response = head();
            response.headers_mut().extend(status("12"));
            respond.send_response(response, true).map(drop)
        }
    }
}

fn start(site: &Site) -> (Http2Upstream, Server) {
    let upstream = Http2Upstream::start(|request, respond| Box::pin(serve(request, respond)));
    let server = serve_to(site, &[&upstream.url()], "protocol = 'http2'");
    (upstream, server)
}

fn call(method: &str) -> Request<()> {
    Request::post(format!("https://localhost/echo.Echo/{method}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(())
        .expect("a request")
}

#[test]
fn a_call_of_one_message_has_its_answer_and_its_status() {
    let site = Site::new();
    let (upstream, server) = start(&site);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        for octets in [&b""[..], b"hello", &[7; 100_000]] {
            let (response, mut stream) = client.send_request(call("Unary"), false).expect("it leaves");
            write(&mut stream, message(octets)).await.expect("it leaves");
            stream.send_data(Bytes::new(), true).expect("it leaves");
            let mut response = response.await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["content-type"], "application/grpc");
            let (content, trailers) = read(response.body_mut()).await.expect("content");
            assert!(content == message(octets), "{} octets of {}", content.len(), octets.len());
            assert_eq!(trailers.expect("trailers"), status("0"));
        }
    });
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_call_of_many_answers_has_its_status_behind_the_last() {
    let site = Site::new();
    let (_upstream, server) = start(&site);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let (response, mut stream) = client.send_request(call("Many"), false).expect("it leaves");
        stream.send_data(message(&[9; 5000]), true).expect("it leaves");
        let mut response = response.await.expect("an answer");
        let (content, trailers) = read(response.body_mut()).await.expect("content");
        assert!(content == message(&[9; 5000]).repeat(100));
        assert_eq!(trailers.expect("trailers"), status("0"));
    });
}

#[test]
fn messages_pass_in_both_directions_at_once() {
    let site = Site::new();
    let (_upstream, server) = start(&site);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let (response, mut stream) = client.send_request(call("Both"), false).expect("it leaves");
        let mut body = response.await.expect("the head comes before any message").into_body();
        for n in 0..50u8 {
            // The next one is sent when this one has come back.
            let expected = message(&[n; 300]);
            write(&mut stream, expected.clone()).await.expect("it leaves");
            let mut came = Vec::new();
            while came.len() < expected.len() {
                let piece = body.data().await.expect("a piece").expect("a piece");
                body.flow_control().release_capacity(piece.len()).expect("room");
                came.extend_from_slice(&piece);
            }
            assert!(came == expected, "message {n}");
        }
        stream.send_data(Bytes::new(), true).expect("it leaves");
        let (content, trailers) = read(&mut body).await.expect("an end");
        assert_eq!((content.len(), trailers.expect("trailers")), (0, status("0")));
    });
}

#[test]
fn a_status_without_any_message_ends_the_stream_with_the_head() {
    let site = Site::new();
    let (_upstream, server) = start(&site);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let (response, mut stream) = client.send_request(call("None"), false).expect("it leaves");
        stream.send_data(message(b"x"), true).expect("it leaves");
        let response = response.await.expect("an answer");
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(response.body().is_end_stream(), "clients take the status from a head alone only if nothing follows");
    });
}

#[test]
fn a_call_that_the_client_gives_up_ends_at_the_server() {
    let site = Site::new();
    let (ended, told) = std::sync::mpsc::channel();
    let upstream = Http2Upstream::start(move |mut request, mut respond| {
        let ended = ended.clone();
        Box::pin(async move {
            let _stream = respond.send_response(Response::new(()), false)?;
            let _ = read(request.body_mut()).await;
            ended.send(()).expect("the test waits");
            Ok(())
        })
    });
    let server = serve_to(&site, &[&upstream.url()], "protocol = 'http2'");
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let (response, mut stream) = client.send_request(call("Both"), false).expect("it leaves");
        let response = response.await.expect("a head");
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        for _ in 0..10 {
            yield_now().await;
        }
        tokio::task::spawn_blocking(move || told.recv_timeout(sealion_testkit::PATIENCE).expect("the call ends"))
            .await
            .expect("no panic");
    });
}
