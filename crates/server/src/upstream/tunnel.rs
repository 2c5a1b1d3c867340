//! A tunnel behind 101: bytes of another protocol, such as WebSocket, pass in both directions until one side ends.
//!
//! ```text
//! client ─► driver ─► RequestContent ─► a task that writes ─► server
//! client ◄─ driver ◄──────── Tunnel, the response's body ◄─── server
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::InProgress;
use super::content::RequestContent;
use super::reply::Patience;
use crate::response::{Piece, Source};
use crate::tls_client::Io;

/// Bytes that are read at a time.
const READ: usize = 16 << 10;

/// The content from the server. An idle tunnel has no buffer.
pub(super) struct Tunnel {
    in_progress: InProgress,
    from: ReadHalf<Box<dyn Io>>,
    /// Bytes that came with the head.
    first: Bytes,
    /// The other direction has moved.
    has_sent: Arc<AtomicBool>,
    patience: Patience,
    /// Holds the connection too, and ends with the tunnel.
    _writer: AbortOnDropHandle<()>,
}

/// Opens a tunnel. `first`: bytes that the server has sent already. `content`: bytes that the client sends from now on.
pub(super) fn open(io: Box<dyn Io>, first: Bytes, content: RequestContent, in_progress: InProgress) -> Tunnel {
    let (from, to) = tokio::io::split(io);
    let has_sent = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(content, to, in_progress.upstream.stall_timeout, Arc::clone(&has_sent)));
    let patience = Patience::new(in_progress.upstream.tunnel_timeout);
    Tunnel { in_progress, from, first, has_sent, patience, _writer: AbortOnDropHandle::new(writer) }
}

/// Writes the client's bytes, until it ends or either side is lost, or the server takes nothing for `patience`.
async fn write(
    mut content: RequestContent,
    mut to: WriteHalf<Box<dyn Io>>,
    patience: Duration,
    has_sent: Arc<AtomicBool>,
) {
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
        has_sent.store(true, Ordering::Relaxed);
        let Ok(octets) = frame.into_data() else { continue };
        let written = timeout(patience, async {
            to.write_all(&octets).await?;
            to.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            break;
        }
    }
    // A client that was lost has no more to say either.
    let _ = timeout(patience, to.shutdown()).await;
}

impl Source for Tunnel {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            return Poll::Ready(Some(Ok(Piece::Bytes(std::mem::take(&mut this.first)))));
        }
        let mut space = [0; READ];
        let mut buffer = ReadBuf::new(&mut space);
        match Pin::new(&mut this.from).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                this.patience.moved();
                let read = buffer.filled();
                Poll::Ready((!read.is_empty()).then(|| Ok(Piece::Bytes(Bytes::copy_from_slice(read)))))
            }
            Poll::Ready(Err(error)) => {
                let error = io::Error::new(error.kind(), format!("the tunnel to {}: {error}", this.in_progress.name()));
                Poll::Ready(Some(Err(error)))
            }
            Poll::Pending => {
                if this.has_sent.swap(false, Ordering::Relaxed) {
                    this.patience.moved();
                }
                this.patience.poll(cx).map(|limit| {
                    let silent =
                        format!("the tunnel to {} was silent for {} s", this.in_progress.name(), limit.as_secs_f32());
                    Some(Err(io::Error::new(io::ErrorKind::TimedOut, silent)))
                })
            }
        }
    }
}
