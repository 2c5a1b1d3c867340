//! Serves one file over HTTPS by io_uring: rustls performs the handshake and reads the request, the ring splices the
//! file into the socket, and the kernel seals it on the way.
//!
//! `cargo run --example io_uring -- 127.0.0.1:4433 cert.pem key.pem FILE`, then `curl -k https://127.0.0.1:4433/`

#![allow(unsafe_code, reason = "io_uring works on descriptors while their owners could close them")]

use std::error::Error;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::{env, time};

use io_uring::{IoUring, opcode, types};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use sealion_ktls::{CryptoInfo, More, handover};

/// The capacity of a pipe.
const PIPE: u32 = 1 << 16;

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
    // The sending half goes to the kernel.
    let version = connection.protocol_version().ok_or("no version")?.try_into()?;
    let (sequence, secrets) = connection.dangerous_extract_secrets()?.tx;
    let mut tx = handover::tx(stream, &CryptoInfo::from_rustls(version, &secrets, sequence)?)
        .map_err(|refused| refused.error)?;
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
    let mut rest = head.as_bytes();
    while !rest.is_empty() {
        let sent = tx.send(rest, More::No)?;
        rest = &rest[sent..];
    }
    let mut ring = IoUring::new(1)?;
    let (reader, writer) = io::pipe()?;
    let mut offset = 0;
    while offset < len {
        let read = fill(&mut ring, &file, offset, &writer)?;
        if read == 0 {
            return Err("the file shrank".into());
        }
        offset += u64::from(read);
        let mut left = read;
        while left > 0 {
            left -= empty(&mut ring, &reader, left, stream)?;
        }
    }
    // `Tx::unsent` does not count the bytes that the ring sent, so the client closes first: by then it has every
    // record.
    tx.close_notify()?;
    stream.set_read_timeout(Some(time::Duration::from_secs(10)))?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

/// Moves a part of the file into the pipe.
fn fill(ring: &mut IoUring, file: &File, offset: u64, pipe: &PipeWriter) -> io::Result<u32> {
    let (file, pipe) = (types::Fd(file.as_raw_fd()), types::Fd(pipe.as_raw_fd()));
    let splice = opcode::Splice::new(file, offset.cast_signed(), pipe, -1, PIPE).build();
    // SAFETY: the entry names no memory, and both descriptors are borrowed until `run` returns.
    unsafe { run(ring, &splice) }
}

/// Moves bytes from the pipe into the socket. All records but the last are full.
fn empty(ring: &mut IoUring, pipe: &PipeReader, count: u32, socket: &TcpStream) -> io::Result<u32> {
    let (pipe, socket) = (types::Fd(pipe.as_raw_fd()), types::Fd(socket.as_raw_fd()));
    let splice = opcode::Splice::new(pipe, -1, socket, -1, count).build();
    // SAFETY: the entry names no memory, and both descriptors are borrowed until `run` returns.
    unsafe { run(ring, &splice) }
}

/// Submits one entry and waits for its result.
///
/// # Safety
/// Everything that the entry refers to stays valid until this function returns.
unsafe fn run(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> io::Result<u32> {
    // SAFETY: the caller's promise.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().ok_or(io::ErrorKind::UnexpectedEof)?.result();
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

#[allow(dead_code, reason = "a test uses the function above")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key, path] = &arguments[..] else {
        return Err("usage: io_uring ADDRESS CERTIFICATE KEY FILE".into());
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
