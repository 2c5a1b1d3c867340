//! A server of HTTP/2 for tests of the proxy, by the crate `h2`, and a client of it.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream, client};
use http::{HeaderMap, Request, Response};
use rustls::pki_types::ServerName;
use sealion_testkit::PATIENCE;
use sealion_testkit::pki::Pki;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};

/// The answer to a request.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<(), h2::Error>>>>;

/// A listening server. Its thread ends with the test's process.
pub(crate) struct Http2Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Connections that have not ended.
    open: AtomicUsize,
    requests: AtomicUsize,
}

impl Http2Upstream {
    /// Answers each request by `answer`, with prior knowledge of HTTP/2.
    pub(crate) fn start(
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> Answering + Send + 'static,
    ) -> Self {
        Self::with(Builder::new(), None, answer)
    }

    /// The same with these settings, and over TLS that offers `alpn`.
    pub(crate) fn with(
        builder: Builder,
        tls: Option<(&Pki, &[u8])>,
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> Answering + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("an option");
        let seen = Arc::new(Seen::default());
        let all = Arc::clone(&seen);
        let acceptor = tls.map(|(pki, alpn)| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.expect("versions").with_no_client_auth();
            let mut config =
                config.with_single_cert(vec![pki.certificate().clone()], pki.key()).expect("a certificate");
            config.alpn_protocols = vec![alpn.to_vec()];
            tokio_rustls::TlsAcceptor::from(Arc::new(config))
        });
        thread::spawn(move || {
            let answer = std::rc::Rc::new(answer);
            run(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((io, _)) = listener.accept().await {
                    all.connections.fetch_add(1, Ordering::Relaxed);
                    all.open.fetch_add(1, Ordering::Relaxed);
                    let (seen, answer, builder) = (Arc::clone(&all), std::rc::Rc::clone(&answer), builder.clone());
                    let acceptor = acceptor.clone();
                    spawn_local(async move {
                        match acceptor {
                            None => serve(io, builder, &seen, &*answer).await,
                            Some(acceptor) => {
                                if let Ok(io) = acceptor.accept(io).await {
                                    serve(io, builder, &seen, &*answer).await;
                                }
                            }
                        }
                        seen.open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            });
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port, for a URL with a name.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn open(&self) -> usize {
        self.seen.open.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::Relaxed)
    }
}

async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    builder: Builder,
    seen: &Seen,
    answer: &impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> Answering,
) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        seen.requests.fetch_add(1, Ordering::Relaxed);
        spawn_local(answer(request, respond));
    }
}

/// Runs a future, and what it spawns for this thread.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, future)
}

/// Reads content to its end.
pub(crate) async fn read(body: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        content.extend_from_slice(&piece);
    }
    Ok((content, body.trailers().await?))
}

/// Sends content as the windows allow.
pub(crate) async fn write(stream: &mut SendStream<Bytes>, content: impl Into<Bytes>) -> Result<(), h2::Error> {
    let mut content = content.into();
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        let Some(room) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { break };
        let piece = content.split_to(room?.min(content.len()));
        stream.send_data(piece, false)?;
    }
    Ok(())
}

/// Answers with these fields and this content, whose length is announced.
pub(crate) async fn answer(
    respond: &mut SendResponse<Bytes>,
    fields: &[(&str, &str)],
    content: impl Into<Bytes>,
) -> Result<(), h2::Error> {
    let content = content.into();
    let mut response = Response::builder().header("content-length", content.len());
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    let mut stream = respond.send_response(response.body(()).expect("a response"), false)?;
    write(&mut stream, content).await?;
    stream.send_data(Bytes::new(), true)
}

/// Connects to a server of ours over TLS with ALPN `h2`. The connection is driven by the thread's [`LocalSet`].
pub(crate) async fn connect(address: SocketAddr, pki: &Pki) -> client::SendRequest<Bytes> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.certificate().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let io = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let io = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, io).await.expect("a handshake");
    let (sender, connection) = client::handshake(io).await.expect("a preface");
    spawn_local(connection);
    tokio::time::timeout(PATIENCE, sender.ready()).await.expect("in time").expect("a connection")
}
