//! Connections without TLS.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use sealion_testkit::{PATIENCE, pattern};
use sealion_tls::{AlertDescription, Error, Frozen, Part, SealedBy, Socket, Source, TlsStream};

use crate::support::{self, FILE, FILE_LEN, PKI};

/// Runs `task` on a thread with its own runtime, with a stream over a socket that `open` creates there.
fn run<T: Send + 'static>(
    open: impl FnOnce() -> Socket + Send + 'static,
    task: impl AsyncFnOnce(TlsStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move { task(TlsStream::plain(open(), &Arc::new(support::limits()))).await })
    })
}

/// A client, and the server's task at the other end.
fn over_tcp<T: Send + 'static>(task: impl AsyncFnOnce(TlsStream) -> T + Send + 'static) -> (TcpStream, JoinHandle<T>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let open = move || {
        let (io, _) = listener.accept().unwrap();
        io.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(io).unwrap().into()
    };
    (client, run(open, task))
}

fn over_unix<T: Send + 'static>(
    task: impl AsyncFnOnce(TlsStream) -> T + Send + 'static,
) -> (UnixStream, JoinHandle<T>) {
    let (client, io) = UnixStream::pair().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    io.set_nonblocking(true).unwrap();
    (client, run(move || tokio::net::UnixStream::from_std(io).unwrap().into(), task))
}

/// Sends heads with file segments, as responses and as frames.
async fn send_stretches(mut stream: TlsStream) -> (SealedBy, u64) {
    assert!(stream.info().is_none() && stream.aead().is_none());
    for range in STRETCHES.map(|(start, end)| start..end) {
        let head = pattern::bytes(0..100);
        let parts = [Part::Bytes(&head), Part::File { file: &FILE, range }, Part::Bytes(b"end")];
        stream.respond(&parts).await.unwrap();
        stream.begin().await.unwrap();
        let mut frames = Source::frames(&parts, 1000);
        std::future::poll_fn(|cx| stream.poll_send(cx, &mut frames)).await.unwrap();
        stream.finish().unwrap();
    }
    let sent = (stream.path(), stream.payload_sent());
    stream.shutdown().await.unwrap();
    sent
}

const STRETCHES: [(u64, u64); 6] =
    [(0, 0), (5, 6), (0, 16_000), (1, 16_385), (4095, 300_001), (FILE_LEN - 1_200_000, FILE_LEN)];

fn expected() -> Vec<u8> {
    let mut all = Vec::new();
    for (start, end) in STRETCHES {
        for _ in 0..2 {
            all.extend(pattern::bytes(0..100));
            all.extend(pattern::bytes(start..end));
            all.extend(b"end");
        }
    }
    all
}

#[test]
fn memory_and_files_arrive_as_they_are() {
    let (mut client, serving) = over_tcp(send_stretches);
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == expected());
    drop(client);
    assert_eq!(serving.join().unwrap(), (SealedBy::Nobody, received.len() as u64));
    let (mut client, serving) = over_unix(send_stretches);
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == expected());
    drop(client);
    assert_eq!(serving.join().unwrap(), (SealedBy::Nobody, received.len() as u64));
}

#[test]
fn a_client_that_closed_its_direction_gets_its_answer() {
    let (mut client, serving) = over_tcp(async |mut stream: TlsStream| {
        let (received, end) = support::read_to_end(&mut stream).await;
        end.expect("FIN is the end in order");
        assert_eq!(stream.read_more().await.expect("it stays so"), 0);
        stream.consume(received.len());
        stream.respond(&[Part::Bytes(&received)]).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let sent = pattern::bytes(0..100_000);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == sent);
    serving.join().unwrap();
}

/// Reads until the connection ends. `None`: it ended in order.
fn end_of(client: &mut TcpStream) -> Option<ErrorKind> {
    let mut received = Vec::new();
    client.read_to_end(&mut received).err().map(|error| error.kind())
}

#[test]
fn a_response_that_is_cut_ends_in_a_reset() {
    let aborted = async |mut stream: TlsStream| {
        stream.begin().await.unwrap();
        stream.send(&[Part::Bytes(b"half")]).await.unwrap();
        assert!(matches!(stream.shutdown().await, Err(Error::Unfinished)));
        stream.abort(AlertDescription::INTERNAL_ERROR).await;
    };
    let dropped = async |mut stream: TlsStream| {
        stream.begin().await.unwrap();
        stream.send(&[Part::Bytes(b"half")]).await.unwrap();
    };
    let shrunk = async |mut stream: TlsStream| {
        for start in [FILE_LEN - 100, FILE_LEN - 100_000] {
            let part = Part::File { file: &FILE, range: start..FILE_LEN + 1 };
            let error = stream.respond(&[Part::Bytes(b"head"), part]).await.unwrap_err();
            match error {
                Error::FileShrank { at: FILE_LEN, end } => assert_eq!(end, FILE_LEN + 1),
                Error::Unfinished if start != FILE_LEN - 100 => {}
                other => panic!("{other:?}"),
            }
        }
        stream.abort(AlertDescription::INTERNAL_ERROR).await;
    };
    let unreadable = async |mut stream: TlsStream| {
        // A directory opens and cannot be read.
        let file = File::open(PKI.directory()).unwrap();
        let error = stream.respond(&[Part::File { file: &file, range: 0..100_000 }]).await.unwrap_err();
        assert!(matches!(error, Error::File(_)), "{error:?}");
    };
    for (mut client, serving) in [over_tcp(aborted), over_tcp(dropped), over_tcp(shrunk), over_tcp(unreadable)] {
        assert_eq!(end_of(&mut client), Some(ErrorKind::ConnectionReset));
        serving.join().unwrap();
    }
}

#[test]
fn a_connection_between_responses_ends_in_fin() {
    let idle = async |stream: TlsStream| drop(stream);
    let answered = async |mut stream: TlsStream| {
        stream.respond(&[Part::Bytes(b"whole")]).await.unwrap();
    };
    for (mut client, serving) in [over_tcp(idle), over_tcp(answered)] {
        assert_eq!(end_of(&mut client), None);
        serving.join().unwrap();
    }
}

/// The client takes the file in small pieces, so that the server waits for it repeatedly.
#[test]
fn a_slow_reader_gets_the_whole_file() {
    let (mut client, serving) = over_tcp(async |mut stream: TlsStream| {
        stream.respond(&[Part::Bytes(b"head"), Part::File { file: &FILE, range: 0..FILE_LEN }]).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    let mut piece = [0; 10_007];
    while let read @ 1.. = client.read(&mut piece).unwrap() {
        received.extend_from_slice(&piece[..read]);
    }
    assert_eq!(received[..4], *b"head");
    pattern::assert_equal(&received[4..], 0..FILE_LEN);
    drop(client);
    serving.join().unwrap();
}

#[test]
fn a_connection_goes_on_after_it_was_frozen() {
    let (mut client, server) = over_tcp(async |mut stream| {
        for _ in 0..3 {
            let word = support::take(&mut stream, 4).await.unwrap();
            stream.respond(&[Part::Bytes(&word)]).await.unwrap();
            let (socket, frozen) = stream.freeze().unwrap();
            let frozen = Frozen::from_bytes(&frozen.to_bytes()).unwrap();
            stream = TlsStream::thaw(socket, frozen, &Arc::new(support::limits())).unwrap();
        }
        assert_eq!((stream.path(), stream.payload_sent()), (SealedBy::Nobody, 12));
    });
    for word in [b"abcd", b"efgh", b"ijkl"] {
        client.write_all(word).unwrap();
        let mut got = [0; 4];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, word);
    }
    server.join().unwrap();
}
