//! [`Tx`] and [`Rx`] on a [`tokio::net::TcpStream`]. Feature `tokio`.
//!
//! Each function repeats a non-blocking operation as tokio's readiness allows. None needs a task or a buffer of its own, and all
//! others of [`Tx`] and [`Rx`] go through [`sending`] and [`receiving`].
//!
//! ```no_run
//! # async fn example(mut tx: sealion_ktls::Tx, stream: tokio::net::TcpStream, file: std::fs::File, len: u64) -> std::io::Result<()> {
//! use sealion_ktls::{More, tokio as ktls};
//!
//! ktls::send_all(&mut tx, &stream, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", More::Yes).await?;
//! ktls::send_file(&mut tx, &stream, &file, 0..len).await?;
//! ktls::sending(&stream, || tx.close_notify(&stream)).await?;
//! ktls::delivered(&tx, &stream).await
//! # }
//! ```
//!
//! Dropping a future in the middle loses nothing that the kernel took, but also the knowledge of how much that was: the connection
//! can then only be closed, without close_notify. [`sending`] and [`receiving`] may be dropped and called again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::net::TcpStream;

use crate::{Error, Incoming, More, Rx, Tx};

/// Pause between looks at what TCP has not taken yet. GUESS: it is the work of a kernel worker that runs as soon as TCP has
/// room, so few connections ever wait.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Runs `operation`, one that sends, until it gives something else than `WouldBlock`, waiting for writability in between.
///
/// The [`io::Error`] holds the [`Error`] of this crate.
pub async fn sending<T>(stream: &TcpStream, operation: impl FnMut() -> Result<T, Error>) -> io::Result<T> {
    ready(stream, Interest::WRITABLE, operation).await
}

/// Runs `operation`, one that reads, until it gives something else than `WouldBlock`, waiting for readability in between.
///
/// The [`io::Error`] holds the [`Error`] of this crate.
pub async fn receiving<T>(stream: &TcpStream, operation: impl FnMut() -> Result<T, Error>) -> io::Result<T> {
    ready(stream, Interest::READABLE, operation).await
}

/// Sends all of `data`: [`Tx::send`] as often as needed.
pub async fn send_all(tx: &mut Tx, stream: &TcpStream, mut data: &[u8], more: More) -> io::Result<()> {
    while !data.is_empty() {
        let sent = sending(stream, || tx.send(stream, data, more)).await?;
        data = &data[sent..];
    }
    Ok(())
}

/// Sends these bytes of `file`, and seals the last record: [`Tx::send_file`] as often as needed, then [`Tx::flush`].
///
/// [`io::ErrorKind::UnexpectedEof`]: the file ended before. What it had was sent; end the connection without close_notify, so that
/// the peer can tell.
///
/// A disk that is slow holds up the thread, as with any read of a file: tokio's workers are better spared files that are not in memory.
pub async fn send_file(tx: &mut Tx, stream: &TcpStream, file: &File, range: Range<u64>) -> io::Result<()> {
    let mut offset = range.start;
    while offset < range.end {
        let rest = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        if sending(stream, || tx.send_file(stream, file, &mut offset, rest)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ended before its promised length"));
        }
    }
    sending(stream, || tx.flush(stream)).await
}

/// Reads once: [`Rx::recv`].
pub async fn recv(rx: &mut Rx, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Incoming> {
    receiving(stream, || rx.recv(stream, buffer)).await
}

/// Waits until TCP has every byte that the kernel accepted, [`Tx::unsent`], so that shutting down or closing loses none of them.
///
/// It waits as long as the peer takes nothing: put a timeout around it.
pub async fn delivered(tx: &Tx, stream: &TcpStream) -> io::Result<()> {
    while tx.unsent(stream)? > 0 {
        ::tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn ready<T>(
    stream: &TcpStream,
    interest: Interest,
    mut operation: impl FnMut() -> Result<T, Error>,
) -> io::Result<T> {
    stream.async_io(interest, || operation().map_err(io::Error::from)).await
}
