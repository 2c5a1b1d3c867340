//! Sends a text over TLS: rustls performs the handshake, and the kernel seals.
//!
//! `cargo run --example sender -- 127.0.0.1:4433 cert.pem key.pem`, then `openssl s_client -connect 127.0.0.1:4433 -quiet`

use std::error::Error;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::{env, io, thread, time};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use sealion_ktls::{CryptoInfo, More, handover};

/// Sends `data` and ends the connection.
pub fn send(mut stream: &TcpStream, config: Arc<ServerConfig>, mut data: &[u8]) -> Result<(), Box<dyn Error>> {
    // rustls completes the handshake and sends all its pending data first: only one side may seal under a key.
    let mut connection = ServerConnection::new(config)?;
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(&mut stream)?;
    }
    // The sending half moves to the kernel.
    let version = connection.protocol_version().ok_or("no version")?.try_into()?;
    let (sequence, secrets) = connection.dangerous_extract_secrets()?.tx;
    let mut tx = handover::tx(stream, &CryptoInfo::from_rustls(version, &secrets, sequence)?)
        .map_err(|refused| refused.error)?;
    // The kernel divides the data into records.
    while !data.is_empty() {
        let sent = tx.send(data, More::No)?;
        data = &data[sent..];
    }
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
    let [address, certificate, key] = &arguments[..] else {
        return Err("usage: sender ADDRESS CERTIFICATE KEY".into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.enable_secret_extraction = true;
    let config = Arc::new(config);
    for stream in TcpListener::bind(address)?.incoming() {
        if let Err(error) = send(&stream?, Arc::clone(&config), b"Hello from the kernel\n") {
            eprintln!("{error}");
        }
    }
    Ok(())
}
