//! New keys for the sending side (RFC 8446 §4.6.3).

use std::task::{Context, Poll, ready};

use super::{MOVING, Outgoing, Sender, Session, TlsStream};
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT};

/// KeyUpdate with `update_not_requested`.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The maximum number of records that the kernel makes of `bytes` in one call: full records, one that fills an open
/// record, and a short one at the end. Before Linux 6.5 there is another short one for every 16 pages of a file.
pub(super) fn most_records(bytes: u64) -> u64 {
    bytes / MAX_PLAINTEXT as u64 + bytes / (16 * 4096) + 2
}

impl TlsStream {
    /// Sends a requested update if possible. If not, [`Self::should_close`] returns true.
    pub(super) fn poll_answer_key_update(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_key_update_due() && self.can_update_keys() {
            return self.poll_update_sending_key(cx);
        }
        Poll::Ready(Ok(()))
    }

    /// Counts the upcoming records against the key's limit, and changes the key in time. Afterwards the key suffices
    /// for at least one record in user space, or for all `records` in the kernel.
    pub(super) fn poll_key_for(&mut self, cx: &mut Context<'_>, records: u64) -> Poll<Result<(), Error>> {
        let Some(Session { records_per_key: limit, .. }) = self.session else { return Poll::Ready(Ok(())) };
        match &mut self.sender {
            Sender::Plain(_) => return Poll::Ready(Ok(())),
            Sender::User { sealer, .. } if sealer.records_left() > 0 => return Poll::Ready(Ok(())),
            Sender::User { .. } => return self.poll_update_sending_key(cx),
            Sender::Kernel(kernel) => {
                if kernel.records + records > limit {
                    // The count is an upper bound; the kernel has the exact number.
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

    /// Announces new keys under the old keys, then seals with the new ones.
    ///
    /// # Errors
    /// [`Error::KeyExhausted`] if the connection cannot change keys.
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
