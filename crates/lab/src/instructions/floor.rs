//! The floor of the kernel path: a bare sender that reads no request and only sends a head and a file through the
//! kernel's record layer.

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use sealion_ktls::{Cipher, More, Tx, Version, handover};
use sealion_tls::record::HEADER_LEN;

use super::asking::requests;
use crate::row::Row;
use crate::setup_cost::{connect_pair, random_keys};
use crate::study::Cell;

/// The name of the floor in the column of arms.
pub(crate) const FLOOR: &str = "floor";

/// Counts a bare sender's instructions for responses with the body `file`: one connection over loopback, keys set by
/// hand, TLS 1.3 with AES-128-GCM, the head in a separate record, then sendfile(2). Another thread drains the socket.
///
/// # Errors
/// The kernel has no kernel TLS, or the connection fails.
pub(super) fn count(cell: &Cell, name: &str, file: &Path) -> Result<Row> {
    let file = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let (near, far) = connect_pair()?;
    let keys = random_keys(Version::Tls13, Cipher::Aes128Gcm)?;
    let mut tx = handover::tx(near, &keys).context("cannot hand a connection's keys to the kernel")?;
    let drain = std::thread::spawn(move || drain(far));
    let (few, many) = requests(cell);
    send(&mut tx, &file, cell.size, few)?;
    let before = run_time_of_this_thread()?;
    send(&mut tx, &file, cell.size, many)?;
    let cost = run_time_of_this_thread()? - before;
    drop(tx);
    drain.join().expect("the reader does not panic")?;
    Ok(Row {
        study: "instructions".into(),
        cell: name.to_owned(),
        arm: FLOOR.into(),
        size: cell.size,
        connections: 1,
        threads: 1,
        suite: "TLSv1.3 TLS_AES_128_GCM_SHA256".into(),
        requests: many,
        body_bytes: many * cell.size,
        server_instructions: Some(cost),
        ..Row::default()
    })
}

/// Sends `responses` responses. The socket blocks.
fn send(tx: &mut Tx<TcpStream>, file: &File, size: u64, responses: u64) -> Result<()> {
    for _ in 0..responses {
        tx.send(&[b'h'; HEAD], More::No)?;
        let mut offset = 0;
        while offset < size {
            let rest = (size - offset) as usize;
            ensure!(tx.send_file(file, &mut offset, rest)? > 0, "the file shrank");
        }
    }
    Ok(())
}

/// Reads until the sender closes, as the lab's client does: each record's header, then its content, which the kernel
/// discards. The same pattern matters, because acknowledgements cost the sender instructions too.
fn drain(mut socket: TcpStream) -> Result<()> {
    let mut record = vec![0; usize::from(u16::MAX)];
    loop {
        let mut header = [0; HEADER_LEN];
        if socket.read(&mut header[..1])? == 0 {
            return Ok(());
        }
        socket.read_exact(&mut header[1..])?;
        let mut left = usize::from(u16::from_be_bytes([header[3], header[4]]));
        while left > 0 {
            let (_, came) = retry_on_intr(|| recv(&socket, &mut record[..left], RecvFlags::TRUNC))?;
            ensure!(came > 0, "the sender closed within a record");
            left -= came;
        }
    }
}

/// The first field of schedstat, ns.
fn run_time_of_this_thread() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("cannot read schedstat")?;
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).context("schedstat holds no number")
}

/// Bytes of a head, about as many as the server sends.
const HEAD: usize = 256;
