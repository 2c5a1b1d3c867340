//! The kernel continues with the secrets of a rustls handshake.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::{ServerConnection, Stream};
use sealion_ktls::{Cipher, CryptoInfo, More, Tx, Version, handover};

use crate::support::tls::Tls;
use crate::support::{pair, pattern, suites};

/// A peer that records the bytes on the wire.
struct Tap<'a> {
    stream: &'a TcpStream,
    wire: Vec<u8>,
}

impl Read for Tap<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.wire.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

impl Write for Tap<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.stream.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads all data of the server, and returns it with the bytes on the wire.
fn client(tls: &Tls, stream: &TcpStream) -> (Vec<u8>, Vec<u8>) {
    let mut tap = Tap { stream, wire: Vec::new() };
    let mut connection = tls.client();
    let mut data = Vec::new();
    Stream::new(&mut connection, &mut tap)
        .read_to_end(&mut data)
        .expect("all records open, and close_notify ends them");
    (data, tap.wire)
}

/// Performs the server's handshake, then sends some records from user space.
fn greet(tls: &Tls, mut stream: &TcpStream) -> ServerConnection {
    let mut connection = tls.server();
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(&mut stream).expect("handshake");
    }
    for byte in *b"abc" {
        connection.writer().write_all(&[byte]).expect("buffered");
        while connection.wants_write() {
            connection.write_tls(&mut stream).expect("written");
        }
    }
    connection
}

fn give<S: std::os::fd::AsFd>(connection: ServerConnection, stream: S) -> Tx<S> {
    let version = connection.protocol_version().expect("a version").try_into().expect("TLS 1.2 or 1.3");
    let (sequence, secrets) = connection.dangerous_extract_secrets().expect("secrets").tx;
    let info = CryptoInfo::from_rustls(version, &secrets, sequence).expect("known");
    handover::tx(stream, &info).expect("TLS_TX")
}

/// The explicit nonces of TLS 1.2's sealed records: all records after ChangeCipherSpec.
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

/// rustls opens the kernel's records after its own, and in TLS 1.2 no nonce of rustls is repeated.
#[test]
fn secrets_of_rustls_go_on_in_the_kernel() {
    let body = pattern(200_003);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        let (near, far) = pair();
        let (data, wire) = std::thread::scope(|scope| {
            let client = scope.spawn(|| client(&tls, &far));
            let mut tx = give(greet(&tls, &near), &near);
            for part in body.chunks(5000) {
                assert_eq!(tx.send(part, More::No), Ok(part.len()));
            }
            tx.close_notify().expect("close_notify");
            client.join().expect("the client")
        });
        assert!(data == [b"abc", body.as_slice()].concat(), "{version} {cipher}");
        if version == Version::Tls12 && cipher != Cipher::Chacha20Poly1305 {
            let nonces = explicit_nonces(&wire);
            // Finished, "abc" byte by byte, the kernel's records, close_notify.
            assert_eq!(nonces.len(), 1 + 3 + 41 + 1, "{cipher}");
            assert_eq!(nonces.iter().collect::<HashSet<_>>().len(), nonces.len(), "{cipher}: a nonce twice");
        }
    }
}
