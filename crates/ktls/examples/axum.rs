//! A server on axum whose records the kernel seals and opens.
//!
//! `cargo run --features stream --example axum -- 127.0.0.1:4433 cert.pem key.pem`, then `curl -k https://127.0.0.1:4433/some/path`

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sealion_ktls::stream::KtlsStream;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A listener for `axum::serve`. Handshakes run concurrently, so that a slow client delays no other.
pub struct TlsListener {
    socket: TcpListener,
    config: Arc<ServerConfig>,
    handshakes: JoinSet<io::Result<(KtlsStream, SocketAddr)>>,
}

impl TlsListener {
    /// Takes a bound socket.
    pub fn new(socket: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self { socket, config, handshakes: JoinSet::new() }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = KtlsStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (KtlsStream, SocketAddr) {
        loop {
            tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((socket, client)) => {
                        let handshake = KtlsStream::accept(socket, Arc::clone(&self.config));
                        self.handshakes.spawn(async move {
                            Ok((timeout(Duration::from_secs(10), handshake).await??, client))
                        });
                    }
                    // For instance, too many files are open.
                    Err(error) => {
                        eprintln!("{error}");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(done) = self.handshakes.join_next() => match done {
                    Ok(Ok(connection)) => return connection,
                    Ok(Err(error)) => eprintln!("{error}"),
                    Err(panic) => eprintln!("{panic}"),
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Answers each request with its path, repeated. For a gRPC service of tonic see `Routes::into_axum_router`.
pub fn router() -> Router {
    Router::new().route("/{*path}", get(async |Path(path): Path<String>| path.repeat(10_000)))
}

#[allow(dead_code, reason = "a test uses the items above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        return Err("usage: axum ADDRESS CERTIFICATE KEY".into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TlsListener::new(TcpListener::bind(address).await?, Arc::new(config));
    axum::serve(listener, router()).await?;
    Ok(())
}
