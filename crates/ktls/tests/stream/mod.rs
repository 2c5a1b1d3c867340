//! `KtlsStream` against itself, rustls and tokio-rustls: sealed by the kernel in guests, and in user space otherwise.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, ServerConfig, ServerConnection};
use sealion_ktls::stream::{KtlsStream, RecordReader, SealedBy, SecretLog};
use sealion_ktls::{Cipher, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, split};
use tokio::net::{TcpListener, TcpStream};

use crate::path;
use crate::support::tls::Tls;
use crate::support::{file_of, kernel_at_least, pattern, suites};

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("it ends") })
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("connect"), far.expect("accept").0)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// A client and a server after their handshake.
async fn streams(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (KtlsStream, KtlsStream) {
    let (near, far) = pair().await;
    let (near, far) = tokio::join!(
        KtlsStream::connect(near, Arc::clone(client), name()),
        KtlsStream::accept(far, Arc::clone(server))
    );
    (near.expect("connect"), far.expect("accept"))
}

/// Whether key updates work on this path.
fn updates(version: Version) -> bool {
    version == Version::Tls13 && (path() == SealedBy::UserSpace || kernel_at_least(6, 14))
}

/// A rustls client in user space on its own thread; `talk` drives its blocking socket.
fn blocking_client(
    tls: &Tls,
    far: TcpStream,
    talk: impl FnOnce(&mut rustls::Stream<'_, rustls::ClientConnection, std::net::TcpStream>) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let mut connection = tls.client();
    let mut far = far.into_std().expect("a socket");
    far.set_nonblocking(false).expect("blocking");
    std::thread::spawn(move || talk(&mut rustls::Stream::new(&mut connection, &mut far)))
}

#[test]
fn both_directions_at_once_and_an_orderly_end() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        run(async {
            let (near, far) = streams(&tls.client, &tls.server).await;
            assert_eq!((near.path(), far.path()), (path(), path()), "{version} {cipher}");
            assert!(near.peer_certificates().is_some_and(|chain| chain.len() == 1));
            let talk = async |stream: KtlsStream, said: Vec<u8>| {
                let (mut reader, mut writer) = split(stream);
                let mut heard = Vec::new();
                let (read, ()) = tokio::join!(reader.read_to_end(&mut heard), async {
                    writer.write_all(&said).await.expect("written");
                    writer.shutdown().await.expect("shut down");
                });
                read.expect("close_notify comes");
                heard
            };
            let (question, answer) = (pattern(3_000_001), pattern(2_000_003));
            let (heard, asked) = tokio::join!(talk(near, question.clone()), talk(far, answer.clone()));
            assert!(heard == answer && asked == question, "{version} {cipher}");
        });
    }
}

/// Waits until the other end's reset has arrived.
async fn reset(stream: &KtlsStream) {
    while !stream.socket().ready(Interest::WRITABLE).await.expect("a socket").is_write_closed() {
        tokio::task::yield_now().await;
    }
}

/// A peer that has closed does not wait for the reply. It does not matter whether its close_notify was read before, and
/// its data can still be read.
#[test]
fn shutting_down_after_the_peer_has_closed_and_left() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        for read_first in [true, false] {
            run(async {
                let (mut near, mut far) = streams(&tls.client, &tls.server).await;
                far.write_all(b"not waited for").await.expect("written");
                near.write_all(&pattern(10_000)).await.expect("written");
                near.shutdown().await.expect("shut down");
                drop(near);
                reset(&far).await;
                let mut heard = Vec::new();
                if read_first {
                    far.read_to_end(&mut heard).await.expect("read");
                }
                for _ in 0..2 {
                    far.shutdown().await.unwrap_or_else(|error| panic!("{version} {cipher} {read_first}: {error}"));
                }
                if !read_first {
                    far.read_to_end(&mut heard).await.expect("read");
                }
                assert!(heard == pattern(10_000), "{version} {cipher} {read_first}: {}", heard.len());
            });
        }
    }
}

#[test]
fn shutting_down_after_the_peer_has_cut_is_an_error() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        run(async {
            let (mut near, mut far) = streams(&tls.client, &tls.server).await;
            far.write_all(b"not waited for").await.expect("written");
            near.write_all(b"the beginning").await.expect("written");
            drop(near);
            reset(&far).await;
            let cut = far.shutdown().await.expect_err("no close_notify");
            assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset, "{version} {cipher}");
        });
    }
}

/// A reader of one byte at a time sees every byte, although the kernel must be asked for two.
#[test]
fn one_byte_at_a_time() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        run(async {
            let (mut near, mut far) = streams(&tls.client, &tls.server).await;
            for len in [1, 2, 3, 16] {
                far.write_all(&pattern(len)).await.expect("written");
            }
            far.shutdown().await.expect("shut down");
            let mut heard = Vec::new();
            let mut byte = [0];
            while near.read(&mut byte).await.expect("read") == 1 {
                heard.push(byte[0]);
            }
            assert_eq!(heard, [pattern(1), pattern(2), pattern(3), pattern(16)].concat(), "{version} {cipher}");
        });
    }
}

#[test]
fn files_are_sent_whole_and_a_short_one_is_told() {
    let body = pattern(5_000_011);
    let file: File = file_of(&body);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        run(async {
            let (mut near, mut far) = streams(&tls.client, &tls.server).await;
            let len = body.len() as u64;
            let (heard, ()) = tokio::join!(
                async {
                    let mut heard = Vec::new();
                    let cut = near.read_to_end(&mut heard).await.expect_err("no close_notify");
                    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
                    heard
                },
                async {
                    far.write_all(b"head").await.expect("written");
                    far.send_file(&file, 5..len).await.expect("sent");
                    let short = far.send_file(&file, len - 3..len + 1).await.expect_err("3 bytes are there");
                    assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
                    far.flush().await.expect("flushed");
                    drop(far);
                }
            );
            assert!(heard == [b"head", &body[5..], &body[body.len() - 3..]].concat(), "{version} {cipher}");
        });
    }
}

/// The second connection resumes with the tickets of the first.
#[test]
fn a_client_resumes_by_the_tickets_it_read() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            run(async {
                let (near, far) = pair().await;
                let config = Arc::clone(&tls.server);
                let mut far = far.into_std().expect("a socket");
                far.set_nonblocking(false).expect("blocking");
                let server = std::thread::spawn(move || {
                    let mut connection = ServerConnection::new(config).expect("a server");
                    while connection.is_handshaking() || connection.wants_write() {
                        connection.complete_io(&mut far).expect("handshake");
                    }
                    let kind = connection.handshake_kind();
                    connection.writer().write_all(b"hello").expect("buffered");
                    connection.send_close_notify();
                    while connection.wants_write() {
                        connection.write_tls(&mut far).expect("written");
                    }
                    kind
                });
                let mut near = KtlsStream::connect(near, Arc::clone(&tls.client), name()).await.expect("connect");
                assert_eq!(near.path(), path());
                let mut heard = Vec::new();
                near.read_to_end(&mut heard).await.expect("read");
                assert_eq!(heard, b"hello");
                assert_eq!(server.join().expect("the server"), Some(expected), "{version} {cipher}");
            });
        }
    }
}

/// Both sides renew, and the other side follows. If the kernel cannot, the sender gets an error and the connection
/// continues.
#[test]
fn keys_are_renewed_both_ways() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        run(async {
            let (mut near, mut far) = streams(&tls.client, &tls.server).await;
            let mut buffer = [0; 16];
            for round in 0..3 {
                for _ in 0..2 {
                    let renewed = near.renew_key().await;
                    assert_eq!(renewed.is_ok(), updates(version), "{version} {cipher} {round}: {renewed:?}");
                    if let Err(error) = renewed {
                        assert!(
                            matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput),
                            "{error}"
                        );
                    }
                    near.write_all(b"after").await.expect("written");
                    let len = far.read(&mut buffer).await.expect("read");
                    assert_eq!(&buffer[..len], b"after");
                    std::mem::swap(&mut near, &mut far);
                }
            }
        });
    }
}

/// rustls is at the other end in user space. Too many updates in a row are rejected by an alert.
#[test]
fn a_storm_of_key_updates_ends() {
    if !updates(Version::Tls13) {
        return;
    }
    let tls = Tls::new(Version::Tls13, Cipher::Aes128Gcm);
    run(async {
        let (near, far) = pair().await;
        let client = blocking_client(&tls, far, |stream| {
            stream.write_all(b"calm").expect("written");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).expect("read");
            for _ in 0..40 {
                stream.conn.refresh_traffic_keys().expect("TLS 1.3");
            }
            while stream.conn.wants_write() && stream.conn.write_tls(stream.sock).is_ok() {}
            stream.read_exact(&mut answer).expect_err("the connection is over");
        });
        let mut near = KtlsStream::accept(near, Arc::clone(&tls.server)).await.expect("accept");
        let mut buffer = [0; 4];
        near.read_exact(&mut buffer).await.expect("read");
        near.write_all(&buffer).await.expect("written");
        let refused = near.read(&mut buffer).await.expect_err("a storm");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
        drop(near);
        client.join().expect("the client");
    });
}

/// Data around a peer's KeyUpdate request is read, although the peer does not wait for the reply.
#[test]
fn data_comes_before_the_error_of_an_answer_to_a_peer_that_is_gone() {
    for (version, cipher) in suites().filter(|&(version, _)| updates(version)) {
        let tls = Tls::new(version, cipher);
        for orderly in [true, false] {
            run(async {
                let (near, far) = pair().await;
                // A reset drops data that waits for an acknowledgement.
                far.set_nodelay(true).expect("TCP_NODELAY");
                rustix::net::sockopt::set_socket_linger(&far, Some(Duration::ZERO)).expect("SO_LINGER");
                let (accepted, is_accepted) = std::sync::mpsc::channel();
                let client = blocking_client(&tls, far, move |stream| {
                    stream.write_all(b"before").expect("written");
                    // A reset would end the server's handshake, which is not over when the client may already send.
                    is_accepted.recv().expect("the server accepts");
                    for _ in 0..2 {
                        stream.conn.refresh_traffic_keys().expect("TLS 1.3");
                        stream.write_all(&pattern(20_000)).expect("written");
                    }
                    if orderly {
                        stream.conn.send_close_notify();
                        stream.flush().expect("written");
                    }
                });
                let mut near = KtlsStream::accept(near, Arc::clone(&tls.server)).await.expect("accept");
                let mut buffer = [0; 6];
                near.read_exact(&mut buffer).await.expect("read");
                accepted.send(()).expect("the client waits");
                client.join().expect("the client");
                reset(&near).await;
                let mut heard = Vec::new();
                let end = near.read_to_end(&mut heard).await;
                assert!(
                    heard == [pattern(20_000), pattern(20_000)].concat(),
                    "{version} {cipher}: {}, {end:?}",
                    heard.len()
                );
                assert_eq!(end.is_ok(), orderly, "{version} {cipher}: {end:?}");
            });
        }
    }
}

/// A key is renewed before the first write past its limit. If it cannot be renewed, writing fails in time.
#[test]
fn a_key_is_renewed_before_it_wears_out() {
    if path() == SealedBy::UserSpace {
        return;
    }
    for (version, cipher) in suites().filter(|&(_, cipher)| cipher != Cipher::Chacha20Poly1305) {
        let tls = Tls::new(version, cipher);
        run(async {
            let (mut near, mut far) = streams(&tls.client, &tls.server).await;
            sealion_ktls::fuzzing::wear(&mut near, cipher.record_limit() / 2);
            near.write_all(b"half-way").await.expect("written");
            let mut buffer = [0; 16];
            assert_eq!(far.read(&mut buffer).await.expect("read"), 8);
            sealion_ktls::fuzzing::wear(&mut near, cipher.record_limit() - 100);
            let last = near.write_all(b"the end").await;
            assert_eq!(last.is_ok(), updates(version), "{version} {cipher}: {last:?}");
            match last {
                Ok(()) => assert_eq!(far.read(&mut buffer).await.expect("read"), 7),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
            }
        });
    }
}

/// tokio-rustls performed both handshakes; the server has read a part, and the client's next record waits in the
/// socket.
#[test]
fn connections_of_tokio_rustls_go_on() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let (mut client, mut server) = ((*tls.client).clone(), (*tls.server).clone());
        let (client_log, server_log) = (Arc::new(SecretLog::default()), Arc::new(SecretLog::default()));
        client.key_log = client_log.clone();
        server.key_log = server_log.clone();
        run(async {
            let (near, far) = pair().await;
            let (near, far) = tokio::join!(
                tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name(), RecordReader::new(near)),
                tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(RecordReader::new(far))
            );
            let (mut near, mut far) = (near.expect("connect"), far.expect("accept"));
            near.write_all(&pattern(20_000)).await.expect("written");
            near.flush().await.expect("flushed");
            let mut heard = vec![0; 7];
            far.read_exact(&mut heard).await.expect("read");
            let (socket, connection) = far.into_inner();
            let mut far = KtlsStream::from_rustls(socket, connection, Some(&server_log)).await.expect("goes on");
            let (socket, connection) = near.into_inner();
            let mut near = KtlsStream::from_rustls(socket, connection, Some(&client_log)).await.expect("goes on");
            assert_eq!((near.path(), far.path()), (path(), path()));
            let mut rest = vec![0; 20_000 - 7];
            far.read_exact(&mut rest).await.expect("read");
            assert!([heard, rest].concat() == pattern(20_000), "{version} {cipher}");
            for _ in 0..2 {
                for _ in 0..2 {
                    let renewed = near.renew_key().await;
                    assert_eq!(renewed.is_ok(), updates(version), "{version} {cipher}: {renewed:?}");
                    near.write_all(b"after").await.expect("written");
                    let mut buffer = [0; 5];
                    far.read_exact(&mut buffer).await.expect("read");
                    assert_eq!(&buffer, b"after");
                    std::mem::swap(&mut near, &mut far);
                }
            }
            near.shutdown().await.expect("shut down");
            assert_eq!(far.read(&mut [0; 5]).await.expect("close_notify"), 0);
        });
    }
}

/// Without the secrets everything works except key updates, which fail.
#[test]
fn without_secrets_keys_stay() {
    if path() == SealedBy::UserSpace {
        return;
    }
    let tls = Tls::new(Version::Tls13, Cipher::Aes128Gcm);
    run(async {
        let (near, far) = pair().await;
        let client = blocking_client(&tls, far, |stream| {
            stream.write_all(b"before").expect("written");
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).expect("read");
            assert_eq!(&answer, b"before");
        });
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&tls.server));
        let (socket, connection) = acceptor.accept(RecordReader::new(near)).await.expect("accept").into_inner();
        let mut near = KtlsStream::from_rustls(socket, connection, None).await.expect("goes on");
        assert_eq!(near.renew_key().await.map_err(|error| error.kind()), Err(io::ErrorKind::Unsupported));
        let mut buffer = [0; 6];
        near.read_exact(&mut buffer).await.expect("read");
        near.write_all(&buffer).await.expect("written");
        client.join().expect("the client");
    });
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let tls = Tls::new(Version::Tls13, Cipher::Aes128Gcm);
    let (mut client, mut server) = ((*tls.client).clone(), (*tls.server).clone());
    client.enable_secret_extraction = false;
    server.max_early_data_size = 1000;
    run(async {
        let (near, far) = pair().await;
        let refused = KtlsStream::connect(near, Arc::new(client), name()).await.expect_err("no extraction");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = KtlsStream::accept(far, Arc::new(server)).await.expect_err("early data");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    });
}

/// The client learns from an alert why the handshake failed, and the server from its own error.
#[test]
fn a_failed_handshake_is_told_to_both() {
    let (tls, other) = (Tls::new(Version::Tls13, Cipher::Aes128Gcm), Tls::new(Version::Tls13, Cipher::Aes256Gcm));
    run(async {
        let (near, far) = pair().await;
        let (near, far) = tokio::join!(
            KtlsStream::connect(near, Arc::clone(&other.client), name()),
            KtlsStream::accept(far, Arc::clone(&tls.server))
        );
        let alert = near.expect_err("no common suite").to_string();
        assert!(alert.contains("HandshakeFailure"), "{alert}");
        assert_eq!(far.expect_err("no common suite").kind(), io::ErrorKind::InvalidData);
    });
}
