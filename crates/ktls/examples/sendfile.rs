//! Serves one file over HTTPS: rustls performs the handshake and reads the request, and the kernel seals the file
//! straight from the page cache.
//!
//! `cargo run --example sendfile -- 127.0.0.1:4433 cert.pem key.pem FILE`, then `curl -k https://127.0.0.1:4433/`

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::{env, thread, time};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use sealion_ktls::{CryptoInfo, More, handover};

/// Responds to one request with the file, whatever its path, and closes the connection.
pub fn serve(mut stream: &TcpStream, config: Arc<ServerConfig>, path: &Path) -> Result<(), Box<dyn Error>> {
    // Handshake and request, in user space.
    let mut connection = ServerConnection::new(config)?;
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"\r\n\r\n") {
        match Stream::new(&mut connection, &mut stream).read(&mut part)? {
            0 => return Ok(()),
            len => request.extend_from_slice(&part[..len]),
        }
    }
    while connection.wants_write() {
        connection.complete_io(&mut stream)?;
    }
    // The sending half moves to the kernel.
    let version = connection.protocol_version().ok_or("no version")?.try_into()?;
    let (sequence, secrets) = connection.dangerous_extract_secrets()?.tx;
    let mut tx = handover::tx(stream, &CryptoInfo::from_rustls(version, &secrets, sequence)?)
        .map_err(|refused| refused.error)?;
    // The head and the file share records: the head's record stays open until the file has filled it.
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
    let mut rest = head.as_bytes();
    while !rest.is_empty() {
        let sent = tx.send(rest, More::Yes)?;
        rest = &rest[sent..];
    }
    let mut offset = 0;
    while offset < len {
        let count = usize::try_from(len - offset).unwrap_or(usize::MAX);
        if tx.send_file(&file, &mut offset, count)? == 0 {
            return Err("the file shrank".into());
        }
    }
    tx.flush()?;
    // Shut down only once TCP has every record, and close only once the peer has them.
    tx.close_notify()?;
    while tx.unsent()? > 0 {
        thread::sleep(time::Duration::from_millis(2));
    }
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

#[allow(dead_code, reason = "a test uses the function above")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key, path] = &arguments[..] else {
        return Err("usage: sendfile ADDRESS CERTIFICATE KEY FILE".into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.enable_secret_extraction = true;
    let config = Arc::new(config);
    for stream in TcpListener::bind(address)?.incoming() {
        if let Err(error) = serve(&stream?, Arc::clone(&config), Path::new(path)) {
            eprintln!("{error}");
        }
    }
    Ok(())
}
