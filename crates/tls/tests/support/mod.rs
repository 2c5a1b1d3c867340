//! A server in this process: one task with a `TlsStream` on a thread with its own runtime, so that the test's blocking
//! client runs beside it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::File;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use sealion_testkit::pki::Pki;
use sealion_testkit::{Client, Connector, PATIENCE, Suite, pattern};
use sealion_tls::{Error, HandshakeError, Limits, SealedBy, ServerConfig, TlsStream};
use tokio::net::TcpStream;

use crate::SENDER;

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(Pki::ecdsa);

/// The length of [`FILE`]: more than three turns of a send, and not a multiple of anything.
pub(crate) const FILE_LEN: u64 = (3 << 20) + 12_345;

/// A patterned file.
pub(crate) static FILE: LazyLock<File> = LazyLock::new(|| pattern::file(&PKI.directory().join("pattern"), FILE_LEN));

/// Whether the kernel changes keys of a live connection. In a guest it is known beforehand.
pub(crate) static KERNEL_REKEYS: LazyLock<bool> = LazyLock::new(|| {
    let rekeys = sealion_ktls::probe::probe().rekey_tx().is_ok();
    match sealion_testkit::ktls::guest_series().as_deref() {
        Some("6.1" | "6.12") => assert!(!rekeys, "Linux before 6.14 cannot change keys"),
        Some("7.2") => assert!(rekeys, "Linux from 6.14 on changes keys"),
        _ => {}
    }
    rekeys
});

/// Limits that a correct test never reaches.
pub(crate) fn limits() -> Limits {
    Limits {
        stall: PATIENCE,
        linger: Duration::from_secs(10),
        kernel_rekeys: SENDER == SealedBy::Kernel && *KERNEL_REKEYS,
        ..Limits::default()
    }
}

/// Whether the sending key of a connection with this suite can change on the path under test.
pub(crate) fn can_update(suite: Suite) -> bool {
    suite.version == sealion_tls::Version::Tls13 && (SENDER == SealedBy::User || *KERNEL_REKEYS)
}

/// A listener's configuration; the connections it serves share sessions.
#[derive(Clone)]
pub(crate) struct Server {
    config: Arc<ServerConfig>,
}

/// A connection being served.
pub(crate) struct Serving<T> {
    pub(crate) address: SocketAddr,
    /// Signals that the sending side is in place; a client that closed earlier would prevent the move.
    ready: Option<Receiver<()>>,
    thread: JoinHandle<T>,
}

impl<T> Serving<T> {
    /// Whether the server's task has returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// The result of the server's task; its panic becomes the test's.
    pub(crate) fn finish(self) -> T {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Server {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with_alpn(limits, &[])
    }

    pub(crate) fn with_alpn(limits: Limits, alpn: &[&[u8]]) -> Self {
        let (certificate, key) = (PKI.certificate_file(), PKI.key_file());
        let config = ServerConfig::from_pem_files(&certificate, &key, alpn, limits);
        Self::from_config(config.expect("the test certificate is usable"))
    }

    pub(crate) fn from_config(config: ServerConfig) -> Self {
        Self { config: Arc::new(config) }
    }

    /// Serves one connection, with the sending side where this test program needs it.
    pub(crate) fn serve<T, F>(&self, task: impl FnOnce(TlsStream) -> F + Send + 'static) -> Serving<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let (is_ready, ready) = std::sync::mpsc::channel();
        let serving = self.serve_unmoved(async move |mut stream| {
            prepare(&mut stream).await;
            // Not every test waits for it.
            let _ = is_ready.send(());
            task(stream).await
        });
        Serving { ready: Some(ready), ..serving }
    }

    /// Serves one connection, with the sending side in user space as at the start.
    pub(crate) fn serve_unmoved<T, F>(&self, task: impl FnOnce(TlsStream) -> F + Send + 'static) -> Serving<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        self.serve_handshakes(1, async move |mut accepted| {
            task(accepted.remove(0).expect("the handshake succeeds")).await
        })
    }

    /// Performs `count` handshakes, one after another, and passes the results to the task.
    pub(crate) fn serve_handshakes<T, F>(
        &self,
        count: usize,
        task: impl FnOnce(Vec<Result<TlsStream, HandshakeError>>) -> F + Send + 'static,
    ) -> Serving<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let config = self.config.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let mut accepted = Vec::new();
                for _ in 0..count {
                    let (io, _) = listener.accept().expect("the client connects");
                    io.set_nonblocking(true).expect("a socket can be non-blocking");
                    let io = TcpStream::from_std(io).expect("the runtime takes the socket");
                    io.set_nodelay(true).expect("TCP has the option");
                    accepted.push(TlsStream::accept(io, &config).await);
                }
                task(accepted).await
            })
        });
        Serving { address, ready: None, thread }
    }
}

/// Moves the sending side to where this test program needs it.
pub(crate) async fn prepare(stream: &mut TlsStream) {
    if SENDER == SealedBy::Kernel {
        stream.move_to_kernel(0).await.expect("the kernel takes over the sending side");
    }
    assert_eq!(stream.path(), SENDER);
}

/// Connects, performs the handshake, and waits until the server is ready for the test.
pub(crate) fn connect<T>(serving: &Serving<T>, suite: Suite) -> Client {
    connect_with(&Connector::new(&PKI, suite), serving)
}

/// As [`connect`], with the test's own connector.
pub(crate) fn connect_with<T>(connector: &Connector, serving: &Serving<T>) -> Client {
    let client = connector.connect(serving.address);
    if let Some(ready) = &serving.ready {
        // An error means a panic of the server's thread, which `Serving::finish` reports.
        let _ = ready.recv();
    }
    client
}

/// Waits until `len` bytes have arrived and takes them.
pub(crate) async fn take(stream: &mut TlsStream, len: usize) -> Result<Vec<u8>, Error> {
    while stream.buffered().len() < len {
        let came = stream.read_more().await?;
        assert_ne!(came, 0, "close_notify came before {len} bytes");
    }
    let taken = stream.buffered()[..len].to_vec();
    stream.consume(len);
    Ok(taken)
}

/// Reads until the connection ends or fails.
pub(crate) async fn read_to_end(stream: &mut TlsStream) -> (Vec<u8>, Result<(), Error>) {
    loop {
        match stream.read_more().await {
            Ok(0) => return (stream.buffered().to_vec(), Ok(())),
            Ok(_) => {}
            Err(error) => return (stream.buffered().to_vec(), Err(error)),
        }
    }
}
