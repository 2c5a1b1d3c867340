//! The end of a relay in the process that has been replaced: it keeps the leg to the upstream, and feeds an exchange whose client another process has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sealion_http::{FieldSection, Status};
use tokio::sync::{oneshot, watch};

use super::{Cut, Shared};
use crate::passing::{LONGEST_PACKET, LONGEST_PIECE, Link, Packet, RelayedHead, Word};
use crate::response::{Cursor, Piece, SourceError, read_range};
use crate::upstream::{ContentWriter, Grant, InterimReceiver};
use crate::values::Phase;

/// Feeds an exchange until its response has ended.
pub(crate) struct Home {
    link: Link,
    /// Packets that are not sent. Content waits here one piece at a time.
    queue: VecDeque<Packet>,
    state: State,
    request: RequestSide,
    /// Bytes of the request's content that the other process may have sent so far.
    granted: u64,
    phase: watch::Receiver<Phase>,
}

/// The parts of the request that may still come.
#[derive(Default)]
pub(crate) struct RequestSide {
    /// Takes its content. `None`: no more is passed on.
    pub(crate) writer: Option<ContentWriter>,
    /// Dropped, it says that the client left.
    pub(crate) here: Option<oneshot::Sender<()>>,
    /// Interim responses for the client.
    pub(crate) interims: Option<InterimReceiver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The other process has let go.
    Lost,
    /// The response has ended, and the other process gets its end.
    Ended,
}

impl Home {
    pub(crate) fn new(link: Link, request: RequestSide, shared: &Shared) -> Self {
        Self::with(link, request, shared.phase.clone())
    }

    fn with(link: Link, request: RequestSide, phase: watch::Receiver<Phase>) -> Self {
        Home { link, queue: VecDeque::new(), state: State::Open, request, granted: 0, phase }
    }

    /// Takes what the other process says, and sends it what waits. Ready: it has let go. Content has room, since it was granted: a process that lets go is heard at
    /// once, even if the upstream takes nothing.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.state == State::Open {
            self.poll_grant(cx);
            match self.link.poll_receive(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(packet))) => self.take(packet),
                Poll::Ready(Ok(None) | Err(_)) => self.lose(),
            }
        }
        while self.state == State::Open
            && let Some(packet) = self.queue.front()
        {
            match self.link.poll_send(cx, packet) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => drop(self.queue.pop_front()),
                Poll::Ready(Err(_)) => self.lose(),
            }
        }
        if self.state == State::Open { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Tells the other process how much more content is wanted, and that no more is.
    fn poll_grant(&mut self, cx: &mut Context<'_>) {
        let Some(writer) = &mut self.request.writer else { return };
        let word = match writer.poll_grant(cx, &mut self.granted) {
            Poll::Pending => return,
            Poll::Ready(Grant::More(more)) => Word::Wanted(more),
            Poll::Ready(Grant::Closed) => {
                self.request.writer = None;
                Word::Closed
            }
        };
        self.queue.push_back(Packet::new(word, Bytes::new()));
    }

    fn take(&mut self, Packet { word, payload }: Packet) {
        match (word, &mut self.request.writer) {
            (Word::Content, Some(writer)) => writer.write(payload),
            (Word::ContentEnd, writer) => {
                if let Some(writer) = writer.take() {
                    writer.finish_with(FieldSection::from_lines(&payload));
                }
            }
            (Word::ContentFailed(status), writer) => {
                if let Some(writer) = writer.take() {
                    writer.fail(Status::new(status).unwrap_or(Status::BAD_REQUEST));
                }
            }
            // No task takes the content any more.
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.state = State::Lost;
        (self.request.here, self.request.writer) = (None, None);
    }

    /// Awaits a response. A client that leaves meanwhile ends what is forwarded.
    pub(crate) async fn wait_for<T>(&mut self, mut answer: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answered);
                }
                self.pass_interims(cx);
                let was_here = self.request.here.is_some();
                let _ = self.poll(cx);
                // The parts that waited for the client go on now.
                if !was_here || self.request.here.is_some() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn pass_interims(&mut self, cx: &mut Context<'_>) {
        while let Some(interims) = &mut self.request.interims
            && let Poll::Ready(interim) = interims.poll_recv(cx)
        {
            match interim {
                Some(interim) => {
                    let lines = interim.fields.lines().to_vec();
                    self.queue.push_back(Packet::new(Word::Interim(interim.status.code()), lines));
                }
                None => self.request.interims = None,
            }
        }
    }

    /// Sends the head of the response that was awaited. The client gets 502 instead of a head that no packet holds.
    pub(crate) async fn send_head(&mut self, head: RelayedHead, octets: Vec<u8>) {
        poll_fn(|cx| {
            self.pass_interims(cx);
            Poll::Ready(())
        })
        .await;
        self.request.here = None;
        let length = octets.len();
        let packet = Packet::new(Word::Head(Box::new(head)), octets);
        if packet.fits() {
            let _ = self.send(packet).await;
            return;
        }
        let why = format!("the head of the response has {length} bytes, and a relay takes {LONGEST_PACKET}");
        if self.send(Packet::new(Word::Failed, why)).await.is_ok() {
            self.state = State::Ended;
        }
    }

    /// Sends content up to its end.
    pub(crate) async fn send_content(&mut self, mut content: Cursor) {
        let end = loop {
            match self.next(&mut content).await {
                Ok(Some(Piece::Bytes(bytes))) => {
                    if self.send_bytes(bytes).await.is_err() {
                        return;
                    }
                }
                Ok(Some(Piece::File { file, range })) => {
                    let mut at = range.start;
                    while at < range.end {
                        let end = range.end.min(at + LONGEST_PIECE as u64);
                        match read_range(Arc::clone(&file), at..end).await {
                            Ok(bytes) => {
                                if self.send_bytes(bytes).await.is_err() {
                                    return;
                                }
                                at = end;
                            }
                            Err(error) => {
                                file.note_unreadable();
                                let _ = self.send(Packet::new(Word::Failed, error.to_string())).await;
                                self.state = State::Ended;
                                return;
                            }
                        }
                    }
                }
                Ok(None) => {
                    let trailers = content.trailers().map_or_else(Vec::new, |trailers| trailers.lines().to_vec());
                    break Packet::new(Word::End, trailers);
                }
                Err(SourceError::Failed(error)) => break Packet::new(Word::Failed, error.to_string()),
                Err(error) => break Packet::new(Word::Failed, error.to_string()),
            }
        };
        if self.send(end).await.is_ok() {
            self.state = State::Ended;
        }
    }

    /// The next piece. `None`: the end.
    async fn next(&mut self, content: &mut Cursor) -> Result<Option<Piece>, SourceError> {
        if let Some(segment) = content.pop_segment() {
            return Ok(Some(segment.into_piece()));
        }
        poll_fn(|cx| {
            if self.poll(cx).is_ready() {
                return Poll::Ready(Err(SourceError::Failed(std::io::ErrorKind::BrokenPipe.into())));
            }
            content.poll_source(cx)
        })
        .await
    }

    async fn send_bytes(&mut self, mut bytes: Bytes) -> Result<(), Gone> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(LONGEST_PIECE));
            self.send(Packet::new(Word::Piece, piece)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, packet: Packet) -> Result<(), Gone> {
        self.queue.push_back(packet);
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Gone)),
            Poll::Pending if self.queue.is_empty() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

/// The other process has let go of the exchange.
struct Gone;

impl Drop for Home {
    /// The other process learns why the response ends before its end.
    fn drop(&mut self) {
        if self.state == State::Open {
            let why = Cut::by(*self.phase.borrow(), std::thread::panicking());
            self.link.try_send(&Packet::new(Word::Failed, why.to_string()));
        }
    }
}

/// A response whose content this process has.
pub(crate) struct Feed {
    pub(crate) home: Home,
    pub(crate) content: Cursor,
}

impl Feed {
    /// Feeds it to its end.
    pub(crate) async fn run(mut self) {
        self.home.send_content(self.content).await;
    }
}

#[cfg(test)]
mod tests {
    use sealion_http::http1::framing::ResponseFraming;

    use super::*;
    use crate::passing::{Ends, Line};

    #[tokio::test]
    async fn a_head_that_no_packet_holds_is_refused() {
        for (length, is_refused) in [(1 << 10, false), (LONGEST_PACKET, true)] {
            let (link, far) = Link::pair().unwrap();
            let far = Link::new(far).unwrap();
            let (_sender, phase) = watch::channel(Phase::Serving);
            let request = RequestSide::default();
            let mut home = Home::with(link, request, phase);
            let (line, framing) = (Line::awaited(None), ResponseFraming::Nothing);
            home.send_head(RelayedHead { line, framing, length: None, ends: Ends::Usual }, vec![b'a'; length]).await;
            let came = poll_fn(|cx| far.poll_receive(cx)).await.unwrap().unwrap();
            match came.word {
                Word::Head(_) => assert!(!is_refused && came.payload.len() == length),
                word => assert!(is_refused && matches!(word, Word::Failed), "{word:?}"),
            }
        }
    }
}
