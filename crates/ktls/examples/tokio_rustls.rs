//! A program on tokio-rustls that continues with kernel TLS after the handshake. Three lines change: the socket is
//! wrapped, the configuration logs its secrets for key updates, and the stream is replaced.
//!
//! `cargo run --features stream --example tokio_rustls -- 127.0.0.1:4433 cert.pem key.pem`, then
//! `openssl s_client -connect 127.0.0.1:4433 -quiet`: each line comes back.

use std::error::Error;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sealion_ktls::stream::{KtlsStream, RecordReader, SecretLog};
use tokio::io::{copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Echoes all data until the client closes.
pub async fn echo(socket: TcpStream, mut config: ServerConfig) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let secrets = Arc::new(SecretLog::default());
    config.enable_secret_extraction = true;
    config.key_log = secrets.clone();
    let stream = TlsAcceptor::from(Arc::new(config)).accept(RecordReader::new(socket)).await?;
    // From here on the kernel seals and opens, where it can.
    let (socket, connection) = stream.into_inner();
    let stream = KtlsStream::from_rustls(socket, connection, Some(&secrets)).await?;
    let (mut reader, mut writer) = split(stream);
    let echoed = copy(&mut reader, &mut writer).await?;
    tokio::io::AsyncWriteExt::shutdown(&mut writer).await?;
    Ok(echoed)
}

#[allow(dead_code, reason = "a test uses the function above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        return Err("usage: tokio_rustls ADDRESS CERTIFICATE KEY".into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let listener = TcpListener::bind(address).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        let config = config.clone();
        tokio::spawn(async move {
            if let Err(error) = echo(socket, config).await {
                eprintln!("{error}");
            }
        });
    }
}
