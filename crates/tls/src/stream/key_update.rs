//! New keys for the sending side (RFC 8446 §4.6.3).

use std::task::{Context, Poll, ready};

use super::{MOVING, Outgoing, Sender, Session, TlsStream};
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT};

/// KeyUpdate with `update_not_requested`.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The most records that the kernel makes of `bytes` in one call: full ones, one that fills up an open record, a short
/// one at the end, and, before Linux 6.5, another short one for every 16 pages of a file.
pub(super) fn most_records(bytes: u64) -> u64 {
    bytes / MAX_PLAINTEXT as u64 + bytes / (16 * 4096) + 2
}

impl TlsStream {
    /// Answers a requested update, where that is possible; where it is not, [`Self::should_close`]
    /// says so.
    pub(super) fn poll_answer_key_update(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_key_update_due() && self.can_update_keys() {
            return self.poll_update_sending_key(cx);
        }
        Poll::Ready(Ok(()))
    }

    /// Counts what is to be sealed next against the key's limit, and changes the key in time. In
    /// user space there is then a key for one record at least, in the kernel for all `records`.
    pub(super) fn poll_key_for(&mut self, cx: &mut Context<'_>, records: u64) -> Poll<Result<(), Error>> {
        let Some(Session { records_per_key: limit, .. }) = self.session else { return Poll::Ready(Ok(())) };
        match &mut self.sender {
            Sender::Plain(_) => return Poll::Ready(Ok(())),
            Sender::User { sealer, .. } if sealer.records_left() > 0 => return Poll::Ready(Ok(())),
            Sender::User { .. } => return self.poll_update_sending_key(cx),
            Sender::Kernel(kernel) => {
                if kernel.records + records > limit {
                    // The count errs on the safe side; the kernel knows.
                    kernel.records = kernel.tx.sequence().map_err(Error::Kernel)?;
                    if kernel.records + records > limit {
                        ready!(self.poll_update_sending_key(cx))?;
                    }
                }
            }
            Sender::Moving => unreachable!("{MOVING}"),
        }
        if let Sender::Kernel(kernel) = &mut self.sender {
            kernel.records += records;
        }
        Poll::Ready(Ok(()))
    }

    /// Announces new keys under the old ones, then seals with the new.
    ///
    /// # Errors
    /// [`Error::KeyExhausted`] where the connection cannot change keys.
    pub(super) fn poll_update_sending_key(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.can_update_keys() {
            return Poll::Ready(Err(Error::KeyExhausted));
        }
        ready!(self.poll_drain(cx))?;
        let Some(Session { schedule, .. }) = &mut self.session else { return Poll::Ready(Err(Error::KeyExhausted)) };
        match &mut self.sender {
            Sender::Plain(_) => {}
            Sender::User { sealer, .. } => {
                self.outgoing = Some(Outgoing::control(sealer, ContentType::Handshake, &KEY_UPDATE)?);
                sealer.replace_keys(schedule.next_tx().map_err(|_| Error::KeyExhausted)?);
            }
            Sender::Kernel(kernel) => {
                let next = match kernel.next_key.take() {
                    Some(next) => next,
                    None => schedule.next_tx().map_err(|_| Error::KeyExhausted)?.into_crypto_info(),
                };
                let installed = self.poll_kernel(cx, |tx| tx.rekey(&KEY_UPDATE, &next));
                let Sender::Kernel(kernel) = &mut self.sender else {
                    unreachable!("a connection does not leave the kernel");
                };
                if !matches!(installed, Poll::Ready(Ok(()))) {
                    kernel.next_key = Some(next);
                }
                ready!(installed)?;
                kernel.records = 0;
            }
            Sender::Moving => unreachable!("{MOVING}"),
        }
        if let Some(session) = &mut self.session {
            session.key_update_due = false;
        }
        self.counts.key_updates_sent += 1;
        Poll::Ready(Ok(()))
    }
}
