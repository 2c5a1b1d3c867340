//! A server on hyper whose records the kernel seals and opens.
//!
//! `cargo run --features stream --example hyper -- 127.0.0.1:4433 cert.pem key.pem`, then `curl -k https://127.0.0.1:4433/some/path`

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sealion_ktls::stream::KtlsStream;
use tokio::net::{TcpListener, TcpStream};

/// Responds to each request of a connection with its path, repeated.
pub async fn serve(socket: TcpStream, config: Arc<ServerConfig>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stream = KtlsStream::accept(socket, config).await?;
    let answer = service_fn(async |request: Request<body::Incoming>| {
        Ok::<_, Infallible>(Response::new(request.uri().path().repeat(10_000)))
    });
    // For axum, hyper_util's `TowerToHyperService` turns a `Router` into a hyper service.
    http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await?;
    Ok(())
}

#[allow(dead_code, reason = "a test uses the function above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        return Err("usage: hyper ADDRESS CERTIFICATE KEY".into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.enable_secret_extraction = true;
    let config = Arc::new(config);
    let listener = TcpListener::bind(address).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            if let Err(error) = serve(socket, config).await {
                eprintln!("{error}");
            }
        });
    }
}
