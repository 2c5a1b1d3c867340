//! Receives over TLS until the peer ends: rustls performs the handshake, and the kernel opens.
//!
//! `cargo run --example receiver -- 127.0.0.1:4433 localhost ca.pem > FILE`

use std::env;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sealion_ktls::{CryptoInfo, Incoming, RecordType, handover};

/// Copies the data of the server `name` into `sink`, until close_notify.
pub fn receive(
    mut stream: &TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    sink: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    // Reads the handshake record by record, so that the records after it stay in the socket for the kernel.
    let mut connection = ClientConnection::new(config, name)?;
    loop {
        while connection.wants_write() {
            connection.write_tls(&mut stream)?;
        }
        if !connection.is_handshaking() {
            break;
        }
        let mut record = vec![0; 5];
        stream.read_exact(&mut record)?;
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        stream.read_exact(&mut record[5..])?;
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            connection.process_new_packets()?;
        }
    }
    // Both halves move to the kernel, the sending half first.
    let version = connection.protocol_version().ok_or("no version")?.try_into()?;
    let secrets = connection.dangerous_extract_secrets()?;
    let tx = handover::tx(stream, &CryptoInfo::from_rustls(version, &secrets.tx.1, secrets.tx.0)?)
        .map_err(|refused| refused.error)?;
    let mut rx = handover::rx(&tx, &CryptoInfo::from_rustls(version, &secrets.rx.1, secrets.rx.0)?)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rx.recv(&mut buffer)? {
            Incoming::Record { record_type: RecordType::APPLICATION_DATA, len, .. } => {
                sink.write_all(&buffer[..len])?;
            }
            // A session ticket, which this example ignores, or an alert, which precedes the end.
            Incoming::Record { .. } => {}
            Incoming::KeyExpired => return Err("the peer renewed its key, for which this program is too simple".into()),
            Incoming::End { close_notify: true } => return Ok(()),
            Incoming::End { close_notify: false } => return Err("the connection was cut".into()),
        }
    }
}

#[allow(dead_code, reason = "a test uses the function above")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, name, roots] = &arguments[..] else {
        return Err("usage: receiver ADDRESS NAME CERTIFICATES".into());
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots)? {
        store.add(certificate?)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = ServerName::try_from(name.clone())?;
    receive(&TcpStream::connect(address)?, Arc::new(config), name, &mut io::stdout().lock())
}
