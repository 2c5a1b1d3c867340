//! Content that is sent no faster than the bandwidth allows that responses share.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use sealion_http::ExtraFields;
use tokio::time::{Sleep, sleep_until};

use super::body::{Body, BodyStream, Piece, SharedBytes, Source};
use super::cursor::Segment;
use crate::files::resolve::SiteFile;
use crate::limits::Pace;

/// Pieces of a body, each when its bytes may be sent.
struct Paced {
    pace: Pace,
    /// What is here, of a body or of `source`.
    here: VecDeque<Piece>,
    source: Option<BodyStream>,
    next: Option<Next>,
    sleep: Pin<Box<Sleep>>,
    /// The file of the last piece.
    last: Option<Arc<SiteFile>>,
}

/// The piece whose time has not come.
struct Next {
    piece: Piece,
    /// Buckets that its tokens were taken from.
    taken: usize,
    /// Whether it waits for the last of them.
    waits: bool,
}

impl Body {
    /// The same content, sent as `pace` allows. The wait for that is none for the client: no deadline runs meanwhile.
    pub(crate) fn paced(self, pace: Pace) -> Body {
        if matches!(self, Body::Empty) {
            return self;
        }
        let length = self.len();
        let mut here = VecDeque::new();
        let source = self.split(|segment| here.push_back(piece_of(segment)));
        let sleep = Box::pin(sleep_until(Instant::now().into()));
        let paced = Paced { pace, here, source, next: None, sleep, last: None };
        Body::Stream(BodyStream { length, source: Box::pin(paced) })
    }
}

/// A whole segment as a piece.
fn piece_of(segment: Segment) -> Piece {
    match segment {
        Segment::Bytes(Cow::Borrowed(bytes), _) => Piece::Bytes(Bytes::from_static(bytes)),
        Segment::Bytes(Cow::Owned(bytes), _) => Piece::Bytes(bytes.into()),
        Segment::Shared(shared, _) => Piece::Bytes(Bytes::from_owner(Shared(shared))),
        Segment::File(file, range) => Piece::File { file, range },
    }
}

impl Paced {
    /// The next piece that is not longer than responses take at a time. `None`: no more is here.
    fn take(&mut self) -> Option<Piece> {
        let most = self.pace.most();
        let piece = self.here.pop_front()?;
        if piece.len() <= most {
            return Some(piece);
        }
        let (first, rest) = match piece {
            Piece::Bytes(mut bytes) => {
                let first = bytes.split_to(most as usize);
                (Piece::Bytes(first), Piece::Bytes(bytes))
            }
            Piece::File { file, range } => {
                let middle = range.start + most;
                let first = Piece::File { file: Arc::clone(&file), range: range.start..middle };
                (first, Piece::File { file, range: middle..range.end })
            }
        };
        self.here.push_front(rest);
        Some(first)
    }

    fn pass(&mut self, piece: Piece) -> Poll<Option<io::Result<Piece>>> {
        self.last = match &piece {
            Piece::File { file, .. } => Some(Arc::clone(file)),
            // What is not needed any more may count against a bound.
            Piece::Bytes(_) => None,
        };
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if let Some(Next { piece, taken, .. }) = &self.next {
            self.pace.give_back(*taken, piece.len());
        }
    }
}

impl Source for Paced {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        loop {
            if let Some(Next { piece, taken, waits }) = self.next.take() {
                if waits && self.sleep.as_mut().poll(cx).is_pending() {
                    self.next = Some(Next { piece, taken, waits });
                    return Poll::Pending;
                }
                let now = Instant::now();
                let Some(at) = self.pace.take_next(taken, piece.len(), now) else { return self.pass(piece) };
                if at > now {
                    self.sleep.as_mut().reset(at.into());
                }
                self.next = Some(Next { piece, taken: taken + 1, waits: at > now });
                continue;
            }
            if let Some(piece) = self.take() {
                self.next = Some(Next { piece, taken: 0, waits: false });
                continue;
            }
            let Some(stream) = &mut self.source else { return Poll::Ready(None) };
            match ready!(stream.source.as_mut().poll_piece(cx)) {
                Some(Ok(piece)) => self.here.push_back(piece),
                end => return Poll::Ready(end),
            }
        }
    }

    fn trailers(mut self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        self.source.as_mut()?.source.as_mut().trailers()
    }

    /// A piece has its tokens when it is given: none is taken before it can be sent.
    fn ahead(&self) -> usize {
        1
    }

    fn take_back(&self, unsent: u64) {
        self.pace.give_back(usize::MAX, unsent);
    }

    fn note_unreadable(&self) {
        if let Some(file) = &self.last {
            file.note_unreadable();
        }
    }
}

/// Shared bytes as the owner of a slice.
struct Shared(Arc<SharedBytes>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}
