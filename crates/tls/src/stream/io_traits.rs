//! The stream as tokio's AsyncRead and AsyncWrite, for any program on tokio.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sealion_ktls::More;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::key_update::most_records;
use super::source::TURN;
use super::{Sender, Sending, TlsStream};
use crate::error::Error;

impl AsyncRead for TlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.buffered().is_empty() && ready!(self.poll_read_more(cx))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let len = self.buffered().len().min(into.remaining());
        into.put_slice(&self.buffered()[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    /// Seals the bytes that one call can take. In user space they may wait here until [`AsyncWrite::poll_flush`]. After
    /// an error nothing more is sent, not even `close_notify`.
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.sending != Sending::Open {
            return Poll::Ready(Err(Error::Unfinished.into()));
        }
        let written = self.poll_write_some(cx, bytes);
        self.remember_failure(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let drained = self.poll_drain(cx);
        self.remember_failure(drained)
    }

    /// Sends `close_notify`, if there is TLS, then FIN.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_close(cx))?;
        Poll::Ready(Ok(()))
    }
}

impl TlsStream {
    fn poll_write_some(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let bytes = &bytes[..bytes.len().min(TURN as usize)];
        ready!(self.poll_answer_key_update(cx))?;
        ready!(self.poll_drain(cx))?;
        ready!(self.poll_key_for(cx, most_records(bytes.len() as u64)))?;
        ready!(self.poll_drain(cx))?;
        if !matches!(self.sender, Sender::User { .. }) {
            return self.poll_write_bytes(cx, bytes, More::No);
        }
        let sealed = self.seal_bytes(bytes)?;
        match self.poll_drain(cx) {
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(sealed)),
        }
    }

    /// After a failure the data sent is incomplete for good.
    fn remember_failure<T>(&mut self, done: Poll<Result<T, Error>>) -> Poll<io::Result<T>> {
        if matches!(done, Poll::Ready(Err(_))) && matches!(self.sending, Sending::Open | Sending::Responding) {
            self.sending = Sending::Unfinished;
        }
        done.map_err(io::Error::from)
    }
}
