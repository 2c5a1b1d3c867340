//! Sending and receiving by the readiness of tokio's sockets.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, mpsc};
use std::thread;

use sealion_ktls::{Cipher, Incoming, Kind, More, RecordType, Rx, Tx, Version, tokio as ktls};
use tokio::net::TcpStream;

use crate::support::{Receiving, Sending, file_of, pattern};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Converts to a tokio socket; needs a runtime.
fn asynchronous(stream: &std::net::TcpStream) -> TcpStream {
    stream.set_nonblocking(true).expect("non-blocking");
    TcpStream::from_std(stream.try_clone().expect("a second descriptor")).expect("a runtime's socket")
}

/// Replaces the standard library's socket with a tokio socket.
fn asynchronous_tx(tx: Tx<Arc<std::net::TcpStream>>) -> Tx<TcpStream> {
    let (near, state) = tx.into_parts();
    Tx::from_parts(asynchronous(&near), state)
}

/// The peer begins to read only once the socket is full.
#[test]
fn a_full_socket_is_waited_for() {
    // More than the default tcp_wmem and tcp_rmem hold together.
    let data = pattern(20_000_000);
    for version in Version::ALL {
        let Sending { tx, mut far, .. } = Sending::new(version, Cipher::Aes128Gcm, 0);
        let (full, is_full) = mpsc::channel();
        let len = data.len();
        let peer = thread::spawn(move || {
            is_full.recv().expect("the sender waits");
            far.data(len).0
        });
        runtime().block_on(async {
            let mut tx = asynchronous_tx(tx);
            let mut rest = data.as_slice();
            while !rest.is_empty() {
                let sent = ktls::sending(&mut tx, |tx| {
                    tx.send(rest, More::No).inspect_err(|error| {
                        assert_eq!(error.kind(), Kind::WouldBlock);
                        let _ = full.send(());
                    })
                });
                rest = &rest[sent.await.expect("sent")..];
            }
        });
        assert!(peer.join().expect("the peer") == data, "{version}");
    }
}

/// A head and a file share records, the connection ends in order, and nothing is lost.
#[test]
fn everything_is_delivered() {
    let head = pattern(333);
    let body = pattern(10_000_019);
    let file = file_of(&body);
    for version in Version::ALL {
        let Sending { tx, mut far, .. } = Sending::new(version, Cipher::Aes256Gcm, 0);
        let len = head.len() + body.len() - 7;
        let peer = thread::spawn(move || (far.data(len).0, far.record(), far.next().is_none()));
        runtime().block_on(async {
            let mut tx = asynchronous_tx(tx);
            ktls::send_all(&mut tx, &head, More::Yes).await.expect("head");
            ktls::send_file(&mut tx, &file, 7..body.len() as u64).await.expect("file");
            ktls::sending(&mut tx, |tx| tx.close_notify()).await.expect("close_notify");
            ktls::delivered(&tx).await.expect("delivered");
            rustix::net::shutdown(tx.socket(), rustix::net::Shutdown::Write).expect("shutdown");
        });
        let (data, alert, ended) = peer.join().expect("the peer");
        assert!(data == [&head, &body[7..]].concat(), "{version}");
        assert_eq!((alert.record_type, alert.data.as_slice(), ended), (RecordType::ALERT, &[1, 0][..], true));
    }
}

#[test]
fn a_file_that_ends_early_is_told() {
    let Sending { tx, .. } = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    let file = file_of(b"short");
    runtime().block_on(async {
        let mut tx = asynchronous_tx(tx);
        let error = ktls::send_file(&mut tx, &file, 0..6).await.expect_err("5 bytes are there");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// The first read begins before anything has arrived; then come data, a control record and the end.
#[test]
fn records_are_waited_for() {
    for version in Version::ALL {
        let Receiving { rx, mut far, tx: _tx, .. } = Receiving::new(version, Cipher::Aes128Gcm, 0);
        runtime().block_on(async {
            let (near, state) = rx.into_parts();
            let mut rx = Rx::from_parts(asynchronous(&near), state);
            let mut buffer = [0; 64];
            let first = ktls::recv(&mut rx, &mut buffer);
            // Polled in this order: the data is sent after the read has begun to wait.
            let (first, ()) = tokio::join!(biased; first, async {
                far.send(RecordType::APPLICATION_DATA, b"data");
                far.send(RecordType::ALERT, &[1, 0]);
                far.stream.shutdown(Shutdown::Write).expect("shutdown");
            });
            let record = |record_type, len| Incoming::Record { record_type, len, whole: true };
            assert_eq!(first.expect("data"), record(RecordType::APPLICATION_DATA, 4));
            assert_eq!(&buffer[..4], b"data");
            let mut next = async || ktls::recv(&mut rx, &mut buffer).await.expect("received");
            assert_eq!(next().await, record(RecordType::ALERT, 2));
            assert_eq!(next().await, Incoming::End { close_notify: true });
        });
    }
}
