//! The copy of a request's content, which a mirror sends to another upstream. The copy is made as the first upstream takes the content, so that nothing waits
//! for it.
//!
//! ```text
//! driver ─► RequestContent ─► server
//!                 └─► ContentCopy ── whole ──► Copied ─► server of the mirror
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::content::{RequestContent, pipe};
use super::pieces::{Pieces, without_room};
use super::waiting::Waiting;
use crate::limits::Reservation;

/// The bounds of a copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyBounds {
    /// Bytes of each content.
    pub(crate) most: u64,
    /// Bounds the memory of all contents together.
    pub(crate) waiting: Arc<Waiting>,
}

/// A content is larger than its copy may be, or the memory for contents is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// A whole copy.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) content: RequestContent,
    /// Its memory, until the copy has been sent.
    pub(crate) memory: Reservation,
}

/// Receives the copy. It fails if the content is never taken whole.
pub(crate) type CopyReceiver = oneshot::Receiver<Result<Copied, TooLong>>;

/// A copy that grows. Dropped before [`Self::finish`], it tells its receiver that there is no copy.
#[derive(Debug)]
pub(super) struct ContentCopy {
    pieces: Pieces,
    length: u64,
    bounds: CopyBounds,
    memory: Reservation,
    receiver: oneshot::Sender<Result<Copied, TooLong>>,
}

impl ContentCopy {
    /// `client`: whose share of the memory applies, if any.
    pub(super) fn new(bounds: &CopyBounds, client: Option<IpAddr>) -> (Box<Self>, CopyReceiver) {
        let (sender, receiver) = oneshot::channel();
        let copy = ContentCopy {
            pieces: Pieces::default(),
            length: 0,
            bounds: bounds.clone(),
            memory: bounds.waiting.reservation(client),
            receiver: sender,
        };
        (Box::new(copy), receiver)
    }

    /// The copy with the next piece. `None`: it has no room, and ends.
    pub(super) fn with(mut self: Box<Self>, piece: &Bytes) -> Option<Box<Self>> {
        self.length += piece.len() as u64;
        if self.length > self.bounds.most || !self.bounds.waiting.has_spare(&self.memory, piece.len()) {
            let _ = self.receiver.send(Err(TooLong));
            return None;
        }
        self.memory.add(piece.len());
        self.pieces.push(without_room(piece.clone()));
        Some(self)
    }

    /// The content was taken whole.
    pub(super) fn finish(mut self) {
        let (mut writer, content) = pipe(Some(self.length));
        while let Some(piece) = self.pieces.pop() {
            writer.write(piece);
        }
        writer.finish();
        // The receiver may have left.
        let _ = self.receiver.send(Ok(Copied { content, memory: self.memory }));
    }
}
