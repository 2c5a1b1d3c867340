//! A program on hyper whose responses the kernel seals.
//!
//! `cargo run --example hyper -- 127.0.0.1:4433 cert.pem key.pem`, then `curl -k https://127.0.0.1:4433/some/path`

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body};
use hyper_util::rt::TokioIo;
use sealion_tls::{Limits, ServerConfig, TlsStream};
use tokio::net::{TcpListener, TcpStream};

/// Responds to each request of a connection with its path, repeated.
pub async fn serve(socket: TcpStream, config: &Arc<ServerConfig>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut stream = TlsStream::accept(socket, config).await?;
    // Before a response of this size. If the kernel refuses, user space continues to seal.
    if let Err(error) = stream.move_to_kernel(1 << 20).await {
        eprintln!("{error}");
    }
    let answer = service_fn(async |request: Request<body::Incoming>| {
        Ok::<_, Infallible>(Response::new(request.uri().path().repeat(10_000)))
    });
    http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await?;
    Ok(())
}

/// A configuration for clients that only know HTTP/1.1.
pub fn config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Box<dyn Error>> {
    Ok(Arc::new(ServerConfig::from_pem_files(certificate, key, &[b"http/1.1"], Limits::default())?))
}

#[allow(dead_code, reason = "a test uses the functions above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        return Err("usage: hyper ADDRESS CERTIFICATE KEY".into());
    };
    let config = config(Path::new(certificate), Path::new(key))?;
    let listener = TcpListener::bind(address).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            if let Err(error) = serve(socket, &config).await {
                eprintln!("{error}");
            }
        });
    }
}
