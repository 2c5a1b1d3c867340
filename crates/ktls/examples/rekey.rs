//! A server and a client that renew their keys while they talk (TLS 1.3, Linux 6.14).
//!
//! `cargo run --features stream --example rekey -- server 127.0.0.1:4433 cert.pem key.pem`, and
//! `cargo run --features stream --example rekey -- client 127.0.0.1:4433 localhost cert.pem`

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sealion_ktls::stream::KtlsStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Responds to each message, and renews the key before each response. Returns the number of keys used.
pub async fn serve(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<u32> {
    let mut stream = KtlsStream::accept(socket, config).await?;
    let (mut message, mut keys) = ([0; 5], 1);
    loop {
        match stream.read_exact(&mut message).await {
            Ok(_) => keys += renew(&mut stream).await?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        stream.write_all(&message).await?;
    }
    stream.shutdown().await?;
    Ok(keys)
}

/// Sends `hello` several times, each time under a new key. Returns the number of keys used.
pub async fn talk(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    times: u32,
) -> io::Result<u32> {
    let mut stream = KtlsStream::connect(socket, config, name).await?;
    let (mut answer, mut keys) = ([0; 5], 1);
    for _ in 0..times {
        stream.write_all(b"hello").await?;
        stream.read_exact(&mut answer).await?;
        keys += renew(&mut stream).await?;
    }
    stream.shutdown().await?;
    Ok(keys)
}

/// Sends KeyUpdate and installs the next key. If the kernel cannot, the connection continues under the present key.
async fn renew(stream: &mut KtlsStream) -> io::Result<u32> {
    match stream.renew_key().await {
        Ok(()) => Ok(1),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(0),
        Err(error) => Err(error),
    }
}

#[allow(dead_code, reason = "a test uses the functions above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address, certificate, key] => {
            let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
            let mut config = ServerConfig::builder()
                .with_no_client_auth()
                .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
            config.enable_secret_extraction = true;
            let (socket, _) = TcpListener::bind(address).await?.accept().await?;
            println!("{} keys", serve(socket, Arc::new(config)).await?);
        }
        ["client", address, name, roots] => {
            let mut store = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(roots)? {
                store.add(certificate?)?;
            }
            let mut config = ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
            config.enable_secret_extraction = true;
            let name = ServerName::try_from((*name).to_owned())?;
            println!("{} keys", talk(TcpStream::connect(address).await?, Arc::new(config), name, 10).await?);
        }
        _ => return Err("usage: rekey server ADDRESS CERTIFICATE KEY | rekey client ADDRESS NAME ROOTS".into()),
    }
    Ok(())
}
