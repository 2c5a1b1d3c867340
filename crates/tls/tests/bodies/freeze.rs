//! A connection that rests between two responses, or is frozen there or within one, and thawed. The client opens strictly: a number that is repeated or left out is a bad MAC.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use sealion_testkit::{Connector, Suite, pattern};
use sealion_tls::record::ContentType;
use sealion_tls::{Frozen, Malformed, NotFrozen, Part, SealedBy, Source, TlsStream};

use crate::support::{self, FILE, FILE_LEN, PKI, can_update, limits};

/// Passes it as another process would get it.
fn pass(mut stream: TlsStream) -> TlsStream {
    let (socket, frozen) = stream.freeze().expect("nothing is under way");
    thaw(socket, &frozen.to_bytes())
}

fn thaw(socket: OwnedFd, bytes: &[u8]) -> TlsStream {
    let frozen = Frozen::from_bytes(bytes).expect("it was written here");
    TlsStream::thaw(socket, frozen, &limits().into()).expect("the runtime takes the socket")
}

fn rest(mut stream: TlsStream) -> TlsStream {
    stream.rest();
    stream
}

/// Answers every four bytes with themselves, and `file` with a file too. `between`: what happens to it between two answers.
async fn echo(mut stream: TlsStream, between: fn(TlsStream) -> TlsStream) {
    loop {
        let (info, path) = (stream.info().cloned(), stream.path());
        stream = between(stream);
        assert_eq!((stream.info().cloned(), stream.path()), (info, path));
        while stream.buffered().len() < 4 {
            if stream.read_more().await.expect("it goes on") == 0 {
                return stream.shutdown().await.expect("an orderly end");
            }
            stream = between(stream);
        }
        let word = support::take(&mut stream, 4).await.expect("four bytes");
        let file = Part::File { file: &FILE, range: 0..if word == b"file" { FILE_LEN } else { 0 } };
        let before = stream.payload_sent();
        stream.respond(&[Part::Bytes(&word), file]).await.expect("it leaves");
        assert!(stream.payload_sent() >= before + 4);
    }
}

#[test]
fn a_connection_goes_on_after_it_was_frozen() {
    goes_on_after(pass);
}

#[test]
fn a_connection_goes_on_after_it_rested() {
    goes_on_after(rest);
}

fn goes_on_after(between: fn(TlsStream) -> TlsStream) {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async move |stream| echo(stream, between).await);
        let mut client = support::connect(&serving, suite);
        for round in 0..3 {
            for word in [b"abcd", b"file", b"efgh"] {
                client.send(word).expect("it leaves");
                assert_eq!(client.read(4).expect("an answer"), word, "{suite:?}");
                if word == b"file" {
                    pattern::assert_equal(&client.read(FILE_LEN as usize).expect("the file"), 0..FILE_LEN);
                }
            }
            if can_update(suite) && round < 2 {
                client.key_update(true).expect("it leaves");
            }
        }
        // Pipelined: the second is in the buffer when it is frozen.
        client.send(b"ijklmnop").expect("it leaves");
        assert_eq!(client.read(8).expect("two answers"), b"ijklmnop");
        if suite.has_explicit_nonce() {
            client.tap().assert_nonces_distinct(1 + 11 + 3 * (FILE_LEN as usize).div_ceil(1 << 14));
        }
        client.close_notify().expect("it leaves");
        client.read_to_end().expect("what was sent opens").assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn half_a_record_goes_along() {
    for suite in Suite::all() {
        let (has_begun, begun) = std::sync::mpsc::channel();
        let serving = support::Server::new(limits()).serve(async move |mut stream| {
            assert!(poll_fn(|cx| stream.poll_wait_for_record(cx)).await.expect("it begins"));
            let stream = pass(stream);
            assert!(stream.is_receiving() && stream.buffered().is_empty());
            has_begun.send(()).expect("the test waits");
            echo(stream, pass).await;
        });
        let mut client = support::connect(&serving, suite);
        let record = client.seal(ContentType::ApplicationData, b"abcd");
        client.write(&record[..9]).expect("it leaves");
        begun.recv().expect("the server has it");
        client.write(&record[9..]).expect("it leaves");
        assert_eq!(client.read(4).expect("an answer"), b"abcd");
        client.close_notify().expect("it leaves");
        client.read_to_end().expect("what was sent opens").assert_orderly();
        serving.finish();
    }
}

/// Sends a response, and stops each send that waits. The connection is frozen in between.
async fn respond_in_pieces(mut stream: TlsStream) -> TlsStream {
    let head = pattern::bytes(0..100);
    let (mut at, whole) = (0, 100 + FILE_LEN * TIMES);
    let mut pauses = 0;
    poll_fn(|cx| stream.poll_begin(cx)).await.expect("it begins");
    while at < whole {
        let in_head = at.min(100);
        let mut parts = vec![Part::Bytes(&head[in_head as usize..])];
        let from = at - in_head;
        parts.extend((from / FILE_LEN..TIMES).map(|time| {
            let start = if time == from / FILE_LEN { from % FILE_LEN } else { 0 };
            Part::File { file: &FILE, range: start..FILE_LEN }
        }));
        let mut source = Source::new(&parts);
        // Ready: all of it was sent. Otherwise the stream waits for the client, or gives its thread to others.
        let is_sent = poll_fn(|cx| match stream.poll_send(cx, &mut source) {
            Poll::Ready(sent) => Poll::Ready(sent.map(|()| true)),
            Poll::Pending => Poll::Ready(Ok(false)),
        });
        let is_sent = is_sent.await.expect("it leaves");
        at = match is_sent {
            true => whole,
            false => at + stream.pause(source),
        };
        (stream, pauses) = (pass(stream), pauses + 1);
        // Not by its pauses alone: the client reads in between.
        tokio::time::sleep(Duration::from_millis(u64::from(!is_sent))).await;
    }
    assert!(pauses > 2, "{pauses} pauses");
    stream.finish().expect("it is whole");
    stream
}

/// Sends records of [`PIECE`] until TCP takes no more, and is frozen when nothing is left to seal. Without `sends` it only waits for the client behind that.
async fn fill(mut stream: TlsStream, sends: bool, filled: std::sync::mpsc::Sender<u64>) {
    let piece = pattern::bytes(0..PIECE);
    poll_fn(|cx| stream.poll_begin(cx)).await.expect("it begins");
    for sent in (0..).step_by(PIECE as usize) {
        let parts = [Part::Bytes(&piece)];
        let mut source = Source::new(&parts);
        let is_sent = poll_fn(|cx| Poll::Ready(stream.poll_send(cx, &mut source))).await;
        if let Poll::Ready(is_sent) = is_sent {
            is_sent.expect("it leaves");
            continue;
        }
        let taken = stream.pause(source);
        if stream.path() == SealedBy::User {
            assert_eq!(taken, PIECE, "all of it is sealed, and a part waits for TCP");
        }
        stream = pass(stream);
        filled.send(sent + taken).expect("the test waits");
        break;
    }
    if sends {
        stream.send(&[]).await.expect("the rest leaves");
    }
    stream.finish().expect("it is whole");
    assert_eq!(stream.read_more().await.expect("the client says that it has all"), 3);
    stream.shutdown().await.expect("an orderly end");
}

const PIECE: u64 = 1 << 14;

#[test]
fn the_end_of_a_paused_response_leaves_though_nothing_is_left_to_seal() {
    for (suite, sends) in Suite::all().into_iter().flat_map(|suite| [(suite, true), (suite, false)]) {
        let (tell, filled) = std::sync::mpsc::channel();
        let serving = support::Server::new(limits()).serve(async move |stream| fill(stream, sends, tell).await);
        let connector = Connector::new(&PKI, suite).receive_buffer(65_536);
        let mut client = support::connect_with(&connector, &serving);
        let mut left = filled.recv().expect("TCP is full");
        while left > 0 {
            let length = left.min(PIECE);
            pattern::assert_equal(&client.read(length as usize).expect("a piece"), 0..length);
            left -= length;
        }
        client.send(b"all").expect("it leaves");
        client.close_notify().expect("it leaves");
        client.read_to_end().expect("what was sent opens").assert_orderly();
        drop(client);
        serving.finish();
    }
}

/// How often the response of [`respond_in_pieces`] has the file: more than TCP takes at once.
const TIMES: u64 = 8;

#[test]
fn a_response_goes_on_after_its_connection_was_frozen() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |stream: TlsStream| {
            let mut stream = respond_in_pieces(stream).await;
            assert_eq!(stream.payload_sent(), 100 + FILE_LEN * TIMES);
            stream.shutdown().await.expect("an orderly end");
        });
        let mut client = support::connect(&serving, suite);
        let head = client.read(100).expect("the head");
        pattern::assert_equal(&head, 0..100);
        for _ in 0..TIMES {
            pattern::assert_equal(&client.read(FILE_LEN as usize).expect("the file"), 0..FILE_LEN);
        }
        client.close_notify().expect("it leaves");
        client.read_to_end().expect("what was sent opens").assert_orderly();
        drop(client);
        serving.finish();
    }
}

/// Asserts that the connection is not frozen for this reason. It goes on.
fn assert_busy(stream: &mut TlsStream, expected: &str) {
    match stream.freeze() {
        Err(NotFrozen::NotAtRest(why)) => assert_eq!(why, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_is_not_at_rest_goes_on() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |mut stream: TlsStream| {
            stream.begin().await.expect("it begins");
            stream.set_responding(true);
            assert_busy(&mut stream, "a response is being sent");
            stream.set_responding(false);
            stream.send(&[Part::Bytes(b"abcd")]).await.expect("it leaves");
            stream.finish().expect("it is whole");
            assert!(matches!(stream.read_more().await, Err(sealion_tls::Error::Truncated)));
            assert_busy(&mut stream, "the connection ends");
        });
        let mut client = support::connect(&serving, suite);
        assert_eq!(client.read(4).expect("a response"), b"abcd");
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_connection_whose_client_has_ended_its_direction_goes_on() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |mut stream: TlsStream| {
            assert_eq!(stream.read_more().await.expect("data"), 4);
            assert_eq!(stream.read_more().await.expect("close_notify"), 0);
            let mut stream = pass(stream);
            assert_eq!(stream.read_more().await.expect("it has ended"), 0);
            assert_eq!(stream.buffered(), b"last");
            stream.respond(&[Part::Bytes(b"abcd")]).await.expect("it leaves");
            stream.shutdown().await.expect("an orderly end");
        });
        let mut client = support::connect(&serving, suite);
        client.send(b"last").expect("it leaves");
        client.close_notify().expect("it leaves");
        assert_eq!(client.read(4).expect("a response"), b"abcd");
        client.read_to_end().expect("what was sent opens").assert_orderly();
        serving.finish();
    }
}

/// Bytes that were cut or changed are refused, or make a connection that fails; nothing panics.
#[test]
fn what_was_damaged_is_refused() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |mut stream: TlsStream| {
            let (socket, frozen) = stream.freeze().expect("nothing is under way");
            assert_eq!(format!("{frozen:?}"), "Frozen", "no key is printed");
            let bytes = frozen.to_bytes();
            assert!(bytes.len() <= 1024, "{} bytes", bytes.len());
            for length in 0..bytes.len() {
                assert!(Frozen::from_bytes(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            for at in 0..bytes.len() {
                for flipped in [1, 0x80, 0xff] {
                    let mut changed = bytes.to_vec();
                    changed[at] ^= flipped;
                    let Ok(frozen) = Frozen::from_bytes(&changed) else { continue };
                    let other = socket.try_clone().expect("a descriptor");
                    // An error: the secrets are not of the suite's length.
                    let _ = TlsStream::thaw(other, frozen, &limits().into());
                }
            }
            let mut other_format = bytes.to_vec();
            other_format[0] += 1;
            let error: Malformed = Frozen::from_bytes(&other_format).expect_err("another version");
            assert_eq!(error.to_string(), "a connection in the format of another version");
        });
        support::connect(&serving, suite);
        serving.finish();
    }
}
