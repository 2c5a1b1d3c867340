//! [`Tx`] and [`Rx`] whose socket is a [`tokio::net::TcpStream`], owned, borrowed or shared. Feature `tokio`.
//!
//! Each function repeats a non-blocking operation whenever tokio reports readiness, without a task or a buffer of its
//! own. [`sending`] and [`receiving`] run any other operation of [`Tx`] and [`Rx`].
//!
//! ```no_run
//! # use tokio::net::TcpStream;
//! # async fn example(mut tx: sealion_ktls::Tx<TcpStream>, file: std::fs::File, len: u64) -> std::io::Result<()> {
//! use sealion_ktls::{More, tokio as ktls};
//!
//! ktls::send_all(&mut tx, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", More::Yes).await?;
//! ktls::send_file(&mut tx, &file, 0..len).await?;
//! ktls::sending(&mut tx, |tx| tx.close_notify()).await?;
//! ktls::delivered(&tx).await
//! # }
//! ```
//!
//! Dropping a future in the middle loses no byte that the kernel took, but the number of those bytes is unknown: then
//! only close the connection, without close_notify. [`sending`] and [`receiving`] may be dropped and called again.

use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::tokio::io::{AsyncRead, Interest, ReadBuf};
use ::tokio::net::TcpStream;

use crate::{Error, Incoming, More, Rx, RxState, Tx, TxState};

/// The first pause before asking TCP again for its unsent bytes; each further pause is twice as long. The kernel's
/// worker pushes the rest as soon as TCP has room, so few connections ever wait.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

const MAX_PAUSE: Duration = Duration::from_millis(100);

/// A [`Tx`] whose operations run inside [`sending`].
pub type Sender<'a> = Tx<BorrowedFd<'a>, &'a mut TxState>;

/// An [`Rx`] whose operations run inside [`receiving`].
pub type Receiver<'a> = Rx<BorrowedFd<'a>, &'a mut RxState>;

/// Runs a sending `operation`, and repeats it when the socket becomes writable while it returns `WouldBlock`.
///
/// The [`io::Error`] holds the [`Error`] of this crate.
pub async fn sending<S: AsFd + Borrow<TcpStream>, T>(
    tx: &mut Tx<S>,
    mut operation: impl FnMut(&mut Sender<'_>) -> Result<T, Error>,
) -> io::Result<T> {
    let (socket, mut tx) = tx.split();
    ready(socket.borrow(), Interest::WRITABLE, || operation(&mut tx)).await
}

/// Runs a reading `operation`, and repeats it when the socket becomes readable while it returns `WouldBlock`.
///
/// The [`io::Error`] holds the [`Error`] of this crate.
pub async fn receiving<S: AsFd + Borrow<TcpStream>, T>(
    rx: &mut Rx<S>,
    mut operation: impl FnMut(&mut Receiver<'_>) -> Result<T, Error>,
) -> io::Result<T> {
    let (socket, mut rx) = rx.split();
    ready(socket.borrow(), Interest::READABLE, || operation(&mut rx)).await
}

/// Sends all of `data`: [`Tx::send`] as often as needed.
pub async fn send_all<S: AsFd + Borrow<TcpStream>>(tx: &mut Tx<S>, mut data: &[u8], more: More) -> io::Result<()> {
    while !data.is_empty() {
        let sent = sending(tx, |tx| tx.send(data, more)).await?;
        data = &data[sent..];
    }
    Ok(())
}

/// Sends these bytes of `file`, and seals the last record: [`Tx::send_file`] as often as needed, then [`Tx::flush`].
///
/// [`io::ErrorKind::UnexpectedEof`]: the file ended early, and its content was sent. End the connection without
/// close_notify, so that the peer notices.
///
/// A slow disk blocks the thread, as with any read of a file: keep files that are not in memory away from tokio's workers.
pub async fn send_file<S: AsFd + Borrow<TcpStream>>(tx: &mut Tx<S>, file: &File, range: Range<u64>) -> io::Result<()> {
    let mut offset = range.start;
    while offset < range.end {
        let rest = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        if sending(tx, |tx| tx.send_file(file, &mut offset, rest)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ended before its promised length"));
        }
    }
    sending(tx, |tx| tx.flush()).await
}

/// Waits for readability and reads once: [`Rx::recv`].
pub async fn recv<S: AsFd + Borrow<TcpStream>>(rx: &mut Rx<S>, buffer: &mut [u8]) -> io::Result<Incoming> {
    receiving(rx, |rx| rx.recv(buffer)).await
}

/// Waits until TCP has every byte that the kernel accepted, [`Tx::unsent`], so that shutting down or closing loses none of them.
///
/// It waits for as long as the peer takes nothing, so put a timeout around it. It fails if the connection is reset.
pub async fn delivered<S: AsFd>(tx: &Tx<S>) -> io::Result<()> {
    let mut pause = FIRST_PAUSE;
    while tx.unsent()? > 0 {
        ::tokio::time::sleep(pause).await;
        pause = (2 * pause).min(MAX_PAUSE);
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

/// Reads from the socket itself, for a receiving half that was not handed over.
impl<S: AsyncRead + Unpin> AsyncRead for Tx<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().socket_mut()).poll_read(cx, into)
    }
}
