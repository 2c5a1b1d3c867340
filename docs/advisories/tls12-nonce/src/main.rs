//! A server of each library sends a few records over TLS 1.2 with AES-GCM, sealed by rustls first and by the kernel then. The client keeps the
//! bytes that came over the wire and counts the explicit nonces under the server's key.
//!
//! Exit code 0: the libraries repeat a nonce as the advisory says, and sealion-ktls does not.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;

use ktls::{CorkStream, config_ktls_server};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, Stream};
use sealion_ktls::{CryptoInfo, More, Version, handover};
use tokio::io::AsyncWriteExt;

/// Records of application data that each server sends, a byte each.
const RECORDS: usize = 28;

type Server = fn(TcpStream, Arc<ServerConfig>);

fn main() -> ExitCode {
    let mut as_told = true;
    let libraries: [(&str, Server, bool); 3] = [
        ("ktls 6.0.2", with_ktls, true),
        ("ktls-core 0.0.5", with_ktls_core, true),
        ("sealion-ktls", with_sealion, false),
    ];
    for suite in [
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ] {
        for (name, server, repeats) in libraries {
            let nonces = capture(server, suite);
            let mut seen: HashMap<_, Vec<usize>> = HashMap::new();
            for (record, nonce) in nonces.iter().enumerate() {
                seen.entry(nonce).or_default().push(record);
            }
            println!("{name}, {suite:?}: {} records, {} distinct nonces", nonces.len(), seen.len());
            let mut twice: Vec<_> = seen.iter().filter(|(_, records)| records.len() > 1).collect();
            twice.sort_by_key(|(_, records)| records[0]);
            for (nonce, records) in &twice {
                println!("  {:016x} seals records {records:?}", u64::from_be_bytes(***nonce));
            }
            as_told &= twice.is_empty() != repeats;
        }
    }
    if as_told { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The explicit nonces that came over the wire from a server, record by record, the first being that of Finished.
fn capture(server: Server, suite: CipherSuite) -> Vec<[u8; 8]> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate =
        rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name").self_signed(&key).expect("signed");
    let certificate: CertificateDer<'static> = certificate.der().clone();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("TLS 1.2")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("TLS 1.2")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("its own key");
    config.enable_secret_extraction = true;

    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    let config = Arc::new(config);
    let serving = std::thread::spawn(move || server(far, config));
    let mut tap = Tap { stream: near, wire: Vec::new() };
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(Arc::new(client), name).expect("a client");
    let mut received = vec![0; RECORDS];
    // The client accepts every record: nothing on its side shows what is wrong.
    Stream::new(&mut connection, &mut tap).read_exact(&mut received).expect("all records open");
    assert_eq!(received, [b'x'; RECORDS]);
    drop(tap.stream);
    serving.join().expect("the server");
    explicit_nonces(&tap.wire)
}

/// ktls' own way: a CorkStream under tokio-rustls.
fn with_ktls(stream: TcpStream, config: Arc<ServerConfig>) {
    stream.set_nonblocking(true).expect("non-blocking");
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        let stream = CorkStream::new(tokio::net::TcpStream::from_std(stream).expect("a socket"));
        let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.expect("handshake");
        let mut stream = config_ktls_server(stream).await.expect("kernel TLS");
        for _ in 0..RECORDS {
            stream.write_all(b"x").await.expect("written");
        }
    });
}

/// ktls-core with its conversion of rustls' secrets.
fn with_ktls_core(mut stream: TcpStream, config: Arc<ServerConfig>) {
    let secrets = shake_hands(&mut stream, config);
    let secrets = ktls_core::ExtractedSecrets::try_from(secrets).expect("a known cipher");
    ktls_core::setup::setup_ulp(&stream).expect("TCP_ULP");
    let version = ktls_core::ProtocolVersion::from(rustls::ProtocolVersion::TLSv1_2);
    let tx = ktls_core::setup::TlsCryptoInfoTx::new(version, secrets.tx.1, secrets.tx.0).expect("a known cipher");
    let rx = ktls_core::setup::TlsCryptoInfoRx::new(version, secrets.rx.1, secrets.rx.0).expect("a known cipher");
    ktls_core::setup::setup_tls_params(&stream, &tx, &rx).expect("keys");
    for _ in 0..RECORDS {
        stream.write_all(b"x").expect("written");
    }
}

fn with_sealion(mut stream: TcpStream, config: Arc<ServerConfig>) {
    let (sequence, secrets) = shake_hands(&mut stream, config).tx;
    let info = CryptoInfo::from_rustls(Version::Tls12, &secrets, sequence).expect("a known cipher");
    let mut tx = handover::tx(stream, &info).expect("kernel TLS");
    for _ in 0..RECORDS {
        tx.send(b"x", More::No).expect("sent");
    }
}

fn shake_hands(stream: &mut TcpStream, config: Arc<ServerConfig>) -> rustls::ExtractedSecrets {
    let mut connection = ServerConnection::new(config).expect("a server");
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(stream).expect("handshake");
    }
    connection.dangerous_extract_secrets().expect("secrets")
}

/// Keeps what came over the wire.
struct Tap {
    stream: TcpStream,
    wire: Vec<u8>,
}

impl Read for Tap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.wire.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

impl Write for Tap {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.stream.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Those of all records behind ChangeCipherSpec (RFC 5288 §3).
fn explicit_nonces(mut wire: &[u8]) -> Vec<[u8; 8]> {
    let (mut nonces, mut sealed) = (Vec::new(), false);
    while let Some((header, rest)) = wire.split_first_chunk::<5>() {
        let (body, after) = rest.split_at(u16::from_be_bytes([header[3], header[4]]).into());
        if sealed {
            nonces.push(*body.first_chunk().expect("an explicit nonce"));
        }
        sealed |= header[0] == 20;
        wire = after;
    }
    nonces
}
