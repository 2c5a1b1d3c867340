//! Content that is sent no faster than the bandwidth allows that responses share.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use sealion_http::ExtraFields;
use tokio::time::{Sleep, sleep_until};

use super::body::{Body, BodyStream, Piece, Source};
use crate::files::resolve::SiteFile;
use crate::limits::Pace;

/// Pieces of a body, each when its bytes may be sent.
struct Paced {
    pace: Pace,
    /// The pieces at hand, of a body or of `source`.
    here: VecDeque<Piece>,
    source: Option<BodyStream>,
    next: Option<Next>,
    /// Bytes that the client can be sent now.
    room: u64,
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
    /// The same content, sent as `pace` allows. No deadline of the client runs while it waits for its pace.
    pub(crate) fn paced(self, pace: Pace) -> Body {
        if matches!(self, Body::Empty) {
            return self;
        }
        let length = self.len();
        let mut here = VecDeque::new();
        let source = self.split(|segment| here.push_back(segment.into_piece()));
        let sleep = Box::pin(sleep_until(Instant::now().into()));
        let paced = Paced { pace, here, source, next: None, room: u64::MAX, sleep, last: None };
        Body::Stream(BodyStream { length, source: Box::pin(paced) })
    }
}

impl Paced {
    /// The next piece that is not longer than responses take at a time, nor than can be sent. `None`: no more is here.
    fn take(&mut self) -> Option<Piece> {
        let most = self.pace.most().min(self.room);
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

    /// Gives back the tokens of the next piece.
    fn put_back(&mut self) {
        if let Some(Next { piece, taken, .. }) = self.next.take() {
            self.pace.give_back(taken, piece.len());
            self.here.push_front(piece);
        }
    }

    fn is_held(&self) -> bool {
        self.room == 0 && !self.here.is_empty()
    }

    fn pass(&mut self, piece: Piece) -> Poll<Option<io::Result<Piece>>> {
        self.last = match &piece {
            Piece::File { file, .. } => Some(Arc::clone(file)),
            // A piece that is not needed any more may count against a bound.
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
            // Asked again when there is room.
            if self.is_held() {
                return Poll::Pending;
            }
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

    /// Tokens that cannot be used now are for others.
    fn set_room(mut self: Pin<&mut Self>, room: u64) {
        self.room = room;
        if self.next.as_ref().is_some_and(|next| room == 0 || room < next.piece.len() / 2) {
            self.put_back();
        }
    }

    fn held(&self) -> Option<u64> {
        let in_memory = |piece: &Piece| if let Piece::Bytes(bytes) = piece { bytes.len() as u64 } else { 0 };
        self.is_held().then(|| self.here.iter().map(in_memory).sum())
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

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn paced(pace: &Pace, length: usize) -> BodyStream {
        match Body::Bytes(vec![b'x'; length].into()).paced(pace.clone()) {
            Body::Stream(stream) => stream,
            _ => panic!("it is paced"),
        }
    }

    /// Asks for the next piece, and says how much can be sent.
    fn ask(stream: &mut BodyStream, room: u64) -> Poll<u64> {
        stream.source.as_mut().set_room(room);
        let piece = stream.source.as_mut().poll_piece(&mut Context::from_waker(Waker::noop()));
        piece.map(|piece| piece.expect("there is more").expect("it is in memory").len())
    }

    /// A second has 4096 bytes, and each would take them for two.
    #[tokio::test]
    async fn responses_that_cannot_be_sent_take_nothing_from_others() {
        let pace = Pace::of_site(4096);
        let mut stalled: Vec<_> = (0..127).map(|_| paced(&pace, 100_000)).collect();
        for stream in &mut stalled {
            assert_eq!(ask(stream, 1), Poll::Ready(1));
            assert_eq!(ask(stream, 0), Poll::Pending);
        }
        assert!(stalled.iter().all(|stream| stream.source.held() == Some(99_999)));
        assert_eq!(ask(&mut paced(&pace, 1000), u64::MAX), Poll::Ready(1000));
    }

    #[tokio::test]
    async fn tokens_go_back_when_the_window_closes_behind_them() {
        let pace = Pace::of_site(4096);
        let mut waiting: Vec<_> = (0..100).map(|_| paced(&pace, 100_000)).collect();
        let due = waiting.iter_mut().filter_map(|stream| ask(stream, 8000).is_ready().then_some(())).count();
        assert_eq!(due, 1, "the others wait for the time of their tokens");
        assert_eq!(ask(&mut paced(&pace, 1000), 8000), Poll::Pending);
        waiting.iter_mut().for_each(|stream| stream.source.as_mut().set_room(0));
        let at = pace.take_next(0, 0, Instant::now()).expect("a bucket");
        assert!(at < Instant::now() + Duration::from_secs(4), "a hundred would take as many seconds");
    }
}
