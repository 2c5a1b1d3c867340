//! Writes data that this process does not seal: to the kernel's record layer, or to the socket of a connection without
//! TLS.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use sealion_ktls::More;
use tokio::io::Interest;

use super::{Sender, TlsStream};
use crate::error::Error;
use crate::socket::Socket;

impl TlsStream {
    /// Writes the beginning of `bytes`. Returns the number of bytes taken.
    pub(super) fn poll_write_bytes(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        more: More,
    ) -> Poll<Result<usize, Error>> {
        match self.sender {
            Sender::Plain(_) => self.poll_plain(cx, |io| retry_on_intr(|| send(io, bytes, flags(more)))),
            _ => self.poll_kernel(cx, |tx| tx.send(bytes, more)),
        }
    }

    /// Writes the beginning of `slices` by one call.
    pub(super) fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<Result<usize, Error>> {
        match self.sender {
            Sender::Plain(_) => self.poll_plain(cx, |io| {
                retry_on_intr(|| sendmsg(io, slices, &mut SendAncillaryBuffer::default(), flags(more)))
            }),
            _ => self.poll_kernel(cx, |tx| tx.send_vectored(slices, more)),
        }
    }

    /// Writes up to `count` bytes of `file` from `offset`. 0: the file ends there.
    pub(super) fn poll_write_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        count: usize,
    ) -> Poll<Result<usize, Error>> {
        let mut offset = offset;
        match self.sender {
            Sender::Plain(_) => {
                self.poll_plain(cx, |io| retry_on_intr(|| sendfile(io, file, Some(&mut offset), count)))
            }
            _ => self.poll_kernel(cx, |tx| tx.send_file(file, &mut offset, count)),
        }
    }

    /// Repeats a write to the socket until it takes something.
    pub(super) fn poll_plain(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&Socket) -> Result<usize, Errno>,
    ) -> Poll<Result<usize, Error>> {
        loop {
            let io = self.sender.socket();
            match io.try_io(Interest::WRITABLE, || Ok(write(io)?)) {
                Ok(written) => {
                    self.patience.rewarded();
                    self.written += written as u64;
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(Error::Io(error))),
            }
        }
    }
}

/// Writing to a closed connection must return an error, not raise a signal.
fn flags(more: More) -> SendFlags {
    match more {
        More::No => SendFlags::NOSIGNAL,
        More::Yes => SendFlags::NOSIGNAL | SendFlags::MORE,
    }
}
