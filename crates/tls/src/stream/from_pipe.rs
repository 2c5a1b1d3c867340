//! Sends content that lies in a pipe: the kernel moves its pages into records, and this process never has the bytes.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::io::retry_on_intr;
use rustix::pipe::{SpliceFlags, splice};
use sealion_ktls::More;

use super::{MOVING, Sender, Sending, TlsStream};
use crate::error::Error;
use crate::pipe::Pipe;

impl TlsStream {
    /// Whether [`Self::poll_send_pipe`] can send: this process does not seal.
    pub fn takes_pipes(&self) -> bool {
        matches!(self.sender, Sender::Kernel(_) | Sender::Plain(_))
    }

    /// Sends the bytes that `pipe` holds, as the next part of the response that [`Self::begin`](TlsStream::begin) began.
    ///
    /// `more_follow`: further bytes follow from a pipe. Their record may wait for them: call [`Self::poll_flush_record`] before
    /// a wait for them.
    ///
    /// If it is dropped while it waits, `pipe` holds the bytes that were not sent.
    ///
    /// # Errors
    /// Any [`Error`]; the response can then not be finished. [`Error::Unfinished`] where [`Self::takes_pipes`] is false.
    pub fn poll_send_pipe(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
        more_follow: bool,
    ) -> Poll<Result<(), Error>> {
        if self.sending != Sending::Responding || !self.takes_pipes() {
            return Poll::Ready(Err(self.not_open()));
        }
        let more = if more_follow { More::Yes } else { More::No };
        let sent = ready!(self.poll_send_held(cx, pipe, more));
        if sent.is_err() {
            self.sending = Sending::Unfinished;
        }
        Poll::Ready(sent)
    }

    /// Seals and sends the bytes whose record waits for more.
    ///
    /// # Errors
    /// As of [`Self::poll_send_pipe`].
    pub fn poll_flush_record(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let flushed = match self.sender {
            Sender::Kernel(_) => ready!(self.poll_kernel(cx, |tx| tx.flush())),
            Sender::Plain(_) | Sender::User { .. } => Ok(()),
            Sender::Moving => unreachable!("{MOVING}"),
        };
        if flushed.is_err() {
            self.sending = Sending::Unfinished;
        }
        Poll::Ready(flushed)
    }

    fn poll_send_held(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe, more: More) -> Poll<Result<(), Error>> {
        while pipe.held() > 0 {
            let (count, records) = (pipe.held(), pipe.max_records());
            ready!(self.poll_reserve(cx, &mut pipe.reserved, records))?;
            let sent = ready!(match self.sender {
                // Nothing would send the beginning of a packet that waits for more.
                Sender::Plain(_) => self.poll_plain(cx, |io| {
                    retry_on_intr(|| splice(pipe.reader(), None, io, None, count, SpliceFlags::MOVE))
                }),
                _ => self.poll_kernel(cx, |tx| tx.send_pipe(pipe.reader(), count, more)),
            })?;
            if sent == 0 {
                return Poll::Ready(Err(Error::Io(io::ErrorKind::UnexpectedEof.into())));
            }
            pipe.sent(sent);
            self.progressed(sent as u64);
        }
        Poll::Ready(Ok(()))
    }
}
