//! The sending side moves into the kernel, once.

use std::future::poll_fn;
use std::mem;
use std::time::{Duration, Instant};

use super::key_update::most_records;
use super::{KernelSender, Sender, Sending, TlsStream};
use crate::error::Error;
use crate::record::KernelRefused;

/// The reason why the sending side did not move. After every error except [`MoveError::Connection`] the connection
/// continues as before, and nothing is lost.
#[derive(Debug)]
pub enum MoveError {
    /// The connection has no TLS.
    NoTls,
    /// The kernel already seals this connection.
    AlreadyMoved,
    /// The kernel did not accept the keys.
    Refused(sealion_ktls::Error),
    /// The key would reach its limit within the upcoming bytes, and this kernel cannot update it.
    KeyWorn,
    /// The connection is lost.
    Connection(Error),
}

impl std::fmt::Display for MoveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoTls => f.write_str("the connection has no TLS"),
            Self::AlreadyMoved => f.write_str("the kernel seals this connection already"),
            Self::Refused(e) => std::fmt::Display::fmt(e, f),
            Self::KeyWorn => {
                f.write_str("the key would wear out on the way, and this kernel cannot change it (Linux 6.14 can)")
            }
            Self::Connection(e) => std::fmt::Display::fmt(e, f),
        }
    }
}

impl std::error::Error for MoveError {}

impl TlsStream {
    /// Hands the sending side to the kernel before `upcoming` bytes are sent. Returns the duration of the kernel's
    /// calls, during which the thread was blocked. The side may move between two responses, or between two sends of one
    /// response.
    ///
    /// First, all sealed data goes to TCP, and a requested key update is sent, so that the kernel starts with the new
    /// keys.
    ///
    /// # Errors
    /// [`MoveError`]
    pub async fn move_to_kernel(&mut self, upcoming: u64) -> Result<Duration, MoveError> {
        let before = self.sending;
        if !matches!(before, Sending::Open | Sending::Responding) {
            return Err(MoveError::Connection(Error::Unfinished));
        }
        match self.sender {
            Sender::Plain(_) => return Err(MoveError::NoTls),
            Sender::Kernel(_) => return Err(MoveError::AlreadyMoved),
            Sender::User { .. } | Sender::Moving => {}
        }
        self.sending = Sending::Unfinished;
        poll_fn(|cx| self.poll_answer_key_update(cx)).await.map_err(MoveError::Connection)?;
        poll_fn(|cx| self.poll_drain(cx)).await.map_err(MoveError::Connection)?;
        self.sending = before;
        self.hand_over(upcoming)
    }

    fn hand_over(&mut self, upcoming: u64) -> Result<Duration, MoveError> {
        let Sender::User { sealer, .. } = &self.sender else {
            return Err(MoveError::AlreadyMoved);
        };
        if !self.can_update_keys_in_kernel() && most_records(upcoming) >= sealer.records_left() {
            return Err(MoveError::KeyWorn);
        }
        let records = sealer.sequence();
        let Sender::User { io, sealer } = mem::replace(&mut self.sender, Sender::Moving) else {
            unreachable!("it was so a moment ago");
        };
        // Wall-clock time, not thread time: the thread waits for a network card that takes the keys.
        let began = Instant::now();
        match sealer.into_kernel(io) {
            Ok(tx) => {
                let took = began.elapsed();
                self.sender = Sender::Kernel(KernelSender { tx, records, next_key: None });
                Ok(took)
            }
            Err(KernelRefused { sealer, socket, error }) => {
                self.sender = Sender::User { io: socket, sealer };
                Err(MoveError::Refused(error))
            }
        }
    }
}
