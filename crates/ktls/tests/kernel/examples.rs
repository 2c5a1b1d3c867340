//! The programs in examples/ do as documented.

#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/axum.rs"]
mod axum_server;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/hyper.rs"]
mod hyper_server;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/io_uring.rs"]
mod io_uring_server;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/receiver.rs"]
mod receiver;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/rekey.rs"]
mod rekey;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/sender.rs"]
mod sender;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/sendfile.rs"]
mod sendfile;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/tokio_rustls.rs"]
mod tokio_rustls_server;
#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/tonic.rs"]
mod tonic_client;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use sealion_ktls::Version;
use sealion_ktls::stat::TlsStat;
use sealion_ktls::stream::KtlsStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::tls::Tls;
use crate::support::{kernel_at_least, pair, pattern, suites};

fn rose(before: &TlsStat, name: &str) -> i64 {
    let now = TlsStat::read().expect("counters");
    now.delta(before).into_iter().find(|&(found, _)| found == name).map_or(0, |(_, change)| change)
}

/// The kernel seals and opens at both ends, after a handshake between rustls and rustls.
#[test]
fn sender_and_receiver() {
    let data = pattern(1_000_003);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = TlsStat::read().expect("counters");
        let (near, far) = pair();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| sender::send(&near, Arc::clone(&tls.server), &data).expect("sent"));
            let name = ServerName::try_from("localhost").expect("a name");
            receiver::receive(&far, Arc::clone(&tls.client), name, &mut received).expect("received");
            drop(far);
        });
        assert!(received == data, "{version} {cipher}");
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (2, 1), "{version} {cipher}");
    }
}

/// A server of one file: the `serve` function of an example.
type ServeFile = fn(&TcpStream, Arc<ServerConfig>, &Path) -> Result<(), Box<dyn Error>>;

fn file_to_curl(serve: ServeFile) {
    let data = pattern(3_000_017);
    let served = "/tmp/kernel_examples.served";
    std::fs::write(served, &data).expect("a file");
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = TlsStat::read().expect("counters");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let port = listener.local_addr().expect("address").port();
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().expect("accept");
                serve(&stream, Arc::clone(&tls.server), served.as_ref()).expect("served");
            });
            curl(&tls, port, &[""])
        });
        assert!(output == data, "{version} {cipher}");
        assert_eq!(rose(&before, "TlsTxSw"), 1);
    }
}

/// curl's output for these paths over one connection.
fn curl(tls: &Tls, port: u16, paths: &[&str]) -> Vec<u8> {
    let root = "/tmp/kernel_examples.pem";
    std::fs::write(root, &tls.pem.0).expect("a file");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--cacert", root, "--resolve"])
        .arg(format!("localhost:{port}:127.0.0.1"))
        .args(paths.iter().map(|path| format!("https://localhost:{port}/{path}")))
        .output()
        .expect("curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn sendfile_to_curl() {
    file_to_curl(sendfile::serve);
}

#[test]
fn io_uring_to_curl() {
    file_to_curl(io_uring_server::serve);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn sockets() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let near = tokio::net::TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
    (near, listener.accept().await.expect("accept").0)
}

/// The counters after the first handshake of this process, which probes the kernel on its own connections.
async fn counters(tls: &Tls) -> TlsStat {
    let (near, far) = sockets().await;
    let (near, far) = tokio::join!(
        KtlsStream::connect(near, Arc::clone(&tls.client), name()),
        KtlsStream::accept(far, Arc::clone(&tls.server))
    );
    drop((near.expect("connect"), far.expect("accept")));
    TlsStat::read().expect("counters")
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

#[test]
fn keys_change_while_they_talk() {
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let tls = Tls::new(version, cipher);
        let before = runtime().block_on(counters(&tls));
        runtime().block_on(async {
            let (near, far) = sockets().await;
            let (used, served) = tokio::join!(
                rekey::talk(near, Arc::clone(&tls.client), name(), 5),
                rekey::serve(far, Arc::clone(&tls.server))
            );
            let expected = if kernel_at_least(6, 14) { 6 } else { 1 };
            assert_eq!((used.expect("talked"), served.expect("served")), (expected, expected), "{cipher}");
        });
        if kernel_at_least(6, 14) {
            assert_eq!((rose(&before, "TlsTxRekeyOk"), rose(&before, "TlsRxRekeyOk")), (10, 10), "{cipher}");
        }
    }
}

#[test]
fn hyper_to_curl() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = runtime().block_on(counters(&tls));
        let output = thread::scope(|scope| {
            runtime().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
                let port = listener.local_addr().expect("address").port();
                let curl = scope.spawn({
                    let tls = &tls;
                    move || curl(tls, port, &["one", "two"])
                });
                let (socket, _) = listener.accept().await.expect("accept");
                hyper_server::serve(socket, Arc::clone(&tls.server)).await.expect("served");
                curl.join().expect("curl")
            })
        });
        assert!(output == ["/one".repeat(10_000), "/two".repeat(10_000)].concat().as_bytes(), "{version} {cipher}");
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (1, 1));
    }
}

/// Runs `talk` with the port of an axum server.
fn with_axum<T>(tls: &Tls, router: axum::Router, talk: impl AsyncFnOnce(u16) -> T) -> T {
    runtime().block_on(async {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = socket.local_addr().expect("address").port();
        let listener = axum_server::TlsListener::new(socket, Arc::clone(&tls.server));
        tokio::select! {
            done = talk(port) => done,
            ended = axum::serve(listener, router).into_future() => panic!("{ended:?}"),
        }
    })
}

#[test]
fn axum_to_curl() {
    for (version, cipher) in suites() {
        let tls = Arc::new(Tls::new(version, cipher));
        let before = runtime().block_on(counters(&tls));
        let output = with_axum(&tls, axum_server::router(), async |port| {
            let tls = Arc::clone(&tls);
            tokio::task::spawn_blocking(move || curl(&tls, port, &["one", "two"])).await.expect("curl")
        });
        assert!(output == ["one".repeat(10_000), "two".repeat(10_000)].concat().as_bytes(), "{version} {cipher}");
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (1, 1));
    }
}

/// gRPC in both directions over HTTP/2, between tonic's client and server.
#[test]
fn tonic_to_axum() {
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = runtime().block_on(counters(&tls));
        let (_reporter, health) = tonic_health::server::health_reporter();
        let router = tonic::service::Routes::new(health).into_axum_router();
        let serving = with_axum(&tls, router, async |port| {
            let address = (Ipv4Addr::LOCALHOST, port).into();
            let channel = tonic_client::connect(address, Arc::clone(&tls.client), name()).await.expect("connect");
            tonic_client::is_serving(channel).await.expect("an answer")
        });
        assert!(serving, "{version} {cipher}");
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (2, 2));
    }
}

#[test]
fn tokio_rustls_goes_on_in_the_kernel() {
    let data = pattern(300_007);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let before = runtime().block_on(async {
            let before = counters(&tls).await;
            let (near, far) = sockets().await;
            let (heard, echoed) = tokio::join!(
                async {
                    let stream = KtlsStream::connect(near, Arc::clone(&tls.client), name()).await.expect("connect");
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    let mut heard = Vec::new();
                    let (read, ()) = tokio::join!(reader.read_to_end(&mut heard), async {
                        writer.write_all(&data).await.expect("written");
                        writer.shutdown().await.expect("shut down");
                    });
                    read.expect("read");
                    heard
                },
                tokio_rustls_server::echo(far, (*tls.server).clone())
            );
            assert_eq!(echoed.expect("echoed"), data.len() as u64);
            assert!(heard == data, "{version} {cipher}");
            before
        });
        assert_eq!((rose(&before, "TlsTxSw"), rose(&before, "TlsRxSw")), (2, 2));
    }
}
