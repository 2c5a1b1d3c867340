//! Streamed bodies as the client of a TLS connection sees them.

use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use sealion_http::http1::head::Version;
use sealion_http::{Fields, Method, Status};
use sealion_testkit::pki::Pki;
use sealion_testkit::{Client, Connector, Ending, Event, PATIENCE, Suite, pattern};
use sealion_tls::{AlertDescription, Limits, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::files::resolve::SiteFile;
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::{KtlsMode, PathReason};
use crate::response::{BodyStream, Source, SourceError};

static PKI: LazyLock<Pki> = LazyLock::new(Pki::ecdsa);

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A response that has ended.
struct Ended {
    result: Result<(), Error>,
    body: u64,
    wire: u64,
    unsent: u64,
}

/// A source that yields the pieces from a channel, and ends with it.
struct Channel(UnboundedReceiver<io::Result<Piece>>);

impl Source for Channel {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        self.0.poll_recv(cx)
    }
}

/// A source that must not be polled.
struct Untouched;

impl Source for Untouched {
    fn poll_piece(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        panic!("a response without content polls its source");
    }
}

fn bytes(text: &str) -> io::Result<Piece> {
    Ok(Piece::Bytes(text.to_owned().into()))
}

/// A source whose pieces are all ready.
fn ready(pieces: impl IntoIterator<Item = io::Result<Piece>>) -> Channel {
    let (sender, source) = pending();
    pieces.into_iter().for_each(|piece| sender.send(piece).unwrap());
    source
}

/// A source that waits for its sender.
fn pending() -> (UnboundedSender<io::Result<Piece>>, Channel) {
    let (sender, receiver) = unbounded_channel();
    (sender, Channel(receiver))
}

/// A server that sends one response, then ends the connection as [`crate::listen`] does.
fn serve(
    version: Version,
    method: Method<'static>,
    length: Option<u64>,
    source: impl Source + 'static,
) -> (JoinHandle<Ended>, Client) {
    let limits = Limits { stall: PATIENCE, ..Limits::default() };
    let config = ServerConfig::from_pem_files(&PKI.certificate_file(), &PKI.key_file(), &[], limits);
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = Body::Stream(BodyStream { length, source: Box::pin(source) });
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (io, _) = listener.accept().unwrap();
            io.set_nonblocking(true).unwrap();
            let mut stream = TlsStream::accept(TcpStream::from_std(io).unwrap(), &config).await.unwrap();
            let sent = tokio::time::timeout(PATIENCE, respond_once(&mut stream, version, method, body)).await;
            let sent = sent.expect("the response ends");
            match &sent.result {
                Ok(()) => stream.shutdown().await.unwrap(),
                Err(error) => {
                    if let Some(alert) = error.alert() {
                        assert!(stream.shutdown().await.is_err(), "close_notify would call the response complete");
                        stream.abort(alert).await;
                    }
                }
            }
            sent
        })
    });
    (server, Connector::new(&PKI, Suite::TLS13).connect(address))
}

async fn respond_once(stream: &mut TlsStream, version: Version, method: Method<'_>, body: Body) -> Ended {
    let (kernel, costs) = (KernelOffer::new(sealion_ktls::probe::probe()), Costs::shipped("a test".into()));
    let policy = PathPolicy { mode: KtlsMode::Never, kernel: &kernel, costs: &costs };
    let mut path = PathChoice::default();
    let mut response = Response::new(Status::OK, Fields::default(), body);
    let framing = ResponseFraming::of(version, method, response.status, response.body.len());
    let date = DATE.parse().unwrap();
    let mut progress = Progress::new(stream);
    let head = Head { framing, connection: Connection::Close, date, alternative: None };
    let mut stream = Stream::new(stream, &mut path, None, PATIENCE);
    let result = respond(&mut stream, &mut response, head, (policy, Leave::never()), &mut progress).await;
    let Stream { tls: stream, path, .. } = stream;
    assert_eq!(path.reason, Some(PathReason::Never));
    let (body, wire) = progress.sent(stream);
    let unsent = progress.content.given().saturating_sub(body);
    Ended { result: result.map(drop), body, wire, unsent }
}

/// The outcome of the server. Closes the client first: the server waits for that.
fn finish(server: JoinHandle<Ended>, client: Client) -> Ended {
    drop(client);
    server.join().unwrap()
}

/// The result of a response, and everything the client received.
fn respond_with(
    version: Version,
    method: Method<'static>,
    length: Option<u64>,
    source: impl Source + 'static,
) -> (Ended, Ending) {
    let (server, mut client) = serve(version, method, length, source);
    let ending = client.read_to_end().unwrap();
    let sent = finish(server, client);
    assert_eq!(sent.wire, ending.data.len() as u64, "all sent bytes arrive");
    (sent, ending)
}

fn get(length: Option<u64>, source: impl Source + 'static) -> (Ended, Ending) {
    respond_with(Version::Http11, Method::Get, length, source)
}

/// The head of a response whose framing is announced by `line`.
fn head(line: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nServer: sealion\r\nDate: {DATE}\r\n{line}Connection: close\r\n\r\n")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

#[track_caller]
fn assert_text(data: &[u8], expected: &str) {
    assert_eq!(String::from_utf8_lossy(data), expected);
}

/// The client got a beginning, and cannot take it for the whole.
#[track_caller]
fn assert_cut_short(ending: &Ending, beginning: &str) {
    assert_text(&ending.data, beginning);
    ending.assert_alert(AlertDescription::INTERNAL_ERROR);
}

#[test]
fn each_piece_is_a_chunk() {
    let directory = tempfile::tempdir().unwrap();
    let file = SiteFile::of(pattern::file(&directory.path().join("f"), 100_000));
    // More than one record, from a place within the file.
    let of_file = Piece::File { file, range: 1000..70_000 };
    let (sent, ending) = get(None, ready([bytes("hello"), bytes(""), Ok(of_file), bytes("0123456789abcdef")]));
    let mut expected = head(CHUNKED).into_bytes();
    expected.extend_from_slice(b"5\r\nhello\r\n10d88\r\n");
    expected.extend_from_slice(&pattern::bytes(1000..70_000));
    expected.extend_from_slice(b"\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    assert!(ending.data == expected, "{}", ending.data.escape_ascii());
    ending.assert_orderly();
    sent.result.unwrap();
    assert_eq!(sent.body, 5 + 69_000 + 16);
}

#[test]
fn a_stream_can_be_empty() {
    for (length, expected) in [(None, head(CHUNKED) + "0\r\n\r\n"), (Some(0), head("Content-Length: 0\r\n"))] {
        for pieces in [vec![], vec![bytes("")]] {
            let (sent, ending) = get(length, ready(pieces));
            assert_text(&ending.data, &expected);
            ending.assert_orderly();
            assert_eq!((sent.result.is_ok(), sent.body), (true, 0));
        }
    }
}

#[test]
fn an_announced_length_needs_no_chunks() {
    let directory = tempfile::tempdir().unwrap();
    let file = SiteFile::of(pattern::file(&directory.path().join("f"), 50_000));
    let (sent, ending) = get(Some(50_003), ready([bytes("abc"), Ok(Piece::File { file, range: 0..50_000 })]));
    let before = head("Content-Length: 50003\r\n") + "abc";
    let (start, rest) = ending.data.split_at(before.len());
    assert_text(start, &before);
    pattern::assert_equal(rest, 0..50_000);
    ending.assert_orderly();
    sent.result.unwrap();
    assert_eq!(sent.body, 50_003);
}

#[test]
fn head_and_first_piece_share_a_record() {
    let (server, mut client) = serve(Version::Http11, Method::Get, None, ready([bytes("ab"), bytes("cd")]));
    let before = client.received().len();
    client.read_to_end().unwrap().assert_orderly();
    let head = head(CHUNKED).len();
    assert_eq!(client.data_lengths(before), [head + "2\r\nab\r\n".len(), "2\r\ncd\r\n".len(), "0\r\n\r\n".len()]);
    finish(server, client).result.unwrap();
}

#[test]
fn the_head_does_not_wait_for_a_source_that_does() {
    for length in [None, Some(5)] {
        let (sender, source) = pending();
        let (server, mut client) = serve(Version::Http11, Method::Get, length, source);
        let line = if length.is_some() { "Content-Length: 5\r\n" } else { CHUNKED };
        assert_text(&client.read_until(b"\r\n\r\n").unwrap(), &head(line));
        sender.send(bytes("first")).unwrap();
        // A piece does not wait for the next one either.
        let first = if length.is_some() { "first" } else { "5\r\nfirst\r\n" };
        assert_text(&client.read(first.len()).unwrap(), first);
        drop(sender);
        let ending = client.read_to_end().unwrap();
        assert_text(&ending.data, if length.is_some() { "" } else { "0\r\n\r\n" });
        ending.assert_orderly();
        let sent = finish(server, client);
        assert_eq!((sent.result.is_ok(), sent.body), (true, 5));
    }
}

#[test]
fn a_source_that_gives_too_much_is_cut_off() {
    let before = head("Content-Length: 10\r\n");
    // The piece that is too long is not sent, be it the first.
    for (pieces, given, beginning) in [
        (vec![bytes("123456"), bytes("7890a"), bytes("b")], 11, before + "123456"),
        (vec![bytes("1234567890ab")], 12, String::new()),
    ] {
        let (sent, ending) = get(Some(10), ready(pieces));
        let Err(Error::Source(SourceError::Length { announced: 10, given: found })) = sent.result else {
            panic!("{:?}", sent.result)
        };
        assert_eq!((found, sent.body), (given, beginning.len().min(6) as u64));
        assert_eq!(sent.unsent, given - sent.body);
        assert_cut_short(&ending, &beginning);
    }
}

#[test]
fn a_short_source_leaves_the_response_unfinished() {
    let (sent, ending) = get(Some(10), ready([bytes("123456"), bytes("789")]));
    let Err(Error::Source(SourceError::Length { announced: 10, given: 9 })) = sent.result else {
        panic!("{:?}", sent.result)
    };
    assert_eq!(sent.body, 9);
    assert_cut_short(&ending, &(head("Content-Length: 10\r\n") + "123456789"));
}

#[test]
fn a_failing_source_leaves_the_response_unfinished() {
    for (length, line, beginning) in
        [(None, CHUNKED, "6\r\n123456\r\n"), (Some(10), "Content-Length: 10\r\n", "123456")]
    {
        let (sent, ending) = get(length, ready([bytes("123456"), Err(io::Error::other("the upstream is gone"))]));
        let Err(Error::Source(SourceError::Failed(error))) = sent.result else { panic!("{:?}", sent.result) };
        assert_eq!((error.to_string().as_str(), sent.body), ("the upstream is gone", 6));
        assert_cut_short(&ending, &(head(line) + beginning));
    }
}

#[test]
fn http_1_0_content_ends_with_the_connection() {
    let (sent, ending) = respond_with(Version::Http10, Method::Get, None, ready([bytes("ab"), bytes("cd")]));
    assert_text(&ending.data, &(head("") + "abcd"));
    ending.assert_orderly();
    sent.result.unwrap();
    assert_eq!((sent.body, sent.unsent), (4, 0));
    // A missing close_notify tells the client that the content is incomplete.
    let failing = ready([bytes("ab"), Err(io::Error::other("gone"))]);
    let (sent, ending) = respond_with(Version::Http10, Method::Get, None, failing);
    assert_cut_short(&ending, &(head("") + "ab"));
    assert!(matches!(sent.result, Err(Error::Source(SourceError::Failed(_)))));
}

#[test]
fn a_response_to_head_has_no_content() {
    for (version, length, line) in [
        (Version::Http11, None, CHUNKED),
        (Version::Http11, Some(10), "Content-Length: 10\r\n"),
        (Version::Http10, None, ""),
        (Version::Http10, Some(10), "Content-Length: 10\r\n"),
    ] {
        let (sent, ending) = respond_with(version, Method::Head, length, Untouched);
        assert_text(&ending.data, &head(line));
        ending.assert_orderly();
        assert_eq!((sent.result.is_ok(), sent.body), (true, 0));
    }
}

#[test]
fn a_reset_is_noticed_while_the_source_is_pending() {
    let (sender, source) = pending();
    let (server, mut client) = serve(Version::Http11, Method::Get, None, source);
    client.read_until(b"\r\n\r\n").unwrap();
    client.reset().unwrap();
    let sent = server.join().unwrap();
    assert!(matches!(sent.result, Err(Error::Tls(sealion_tls::Error::Io(_)))), "{:?}", sent.result);
    assert_eq!((sent.body, sent.wire), (0, head(CHUNKED).len() as u64));
    drop(sender);
}

#[test]
fn a_half_closed_client_gets_the_rest() {
    let (sender, source) = pending();
    let (server, mut client) = serve(Version::Http11, Method::Get, None, source);
    client.read_until(b"\r\n\r\n").unwrap();
    client.close_notify().unwrap();
    sender.send(bytes("late")).unwrap();
    assert_text(&client.read(9).unwrap(), "4\r\nlate\r\n");
    drop(sender);
    let ending = client.read_to_end().unwrap();
    assert_text(&ending.data, "0\r\n\r\n");
    assert_eq!(ending.events, [Event::Alert(AlertDescription::CLOSE_NOTIFY), Event::Fin]);
    finish(server, client).result.unwrap();
}
