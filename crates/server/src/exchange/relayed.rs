//! The end of a relay in the process that has the client.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::Body;
use sealion_http::{ExtraFields, FieldSection, Status};
use tokio::sync::{mpsc, oneshot};

use crate::passing::{ContentEnd, Link, Packet, RelayedHead, Word, lost, unexpected};
use crate::response::{Piece, Source};
use crate::upstream::{ContentWriter, Interim, InterimReceiver, RequestContent, lines, pipe};
use crate::values::Mutex;

/// The content of a response that another process feeds.
pub(crate) struct RelayedSource {
    link: Link,
    demand: Demand,
    has_ended: bool,
    trailers: Option<Box<ExtraFields>>,
}

impl RelayedSource {
    pub(crate) fn new(link: Link, demand: Demand) -> Self {
        RelayedSource { link, demand, has_ended: false, trailers: None }
    }
}

impl Source for RelayedSource {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        while !self.has_ended {
            let Some(Packet { word, payload }) = ready!(self.link.poll_receive(cx))? else {
                return Poll::Ready(Some(Err(lost())));
            };
            match word {
                Word::Piece => return Poll::Ready(Some(Ok(Piece::Bytes(payload)))),
                Word::End => {
                    self.has_ended = true;
                    self.trailers = (!payload.is_empty()).then(|| Box::new(fields(&payload)));
                }
                Word::Failed => {
                    let why = String::from_utf8_lossy(&payload).into_owned();
                    return Poll::Ready(Some(Err(io::Error::other(why))));
                }
                word => self.demand.hear(&word)?,
            }
        }
        Poll::Ready(None)
    }

    fn trailers(mut self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        self.trailers.take()
    }

    fn is_relayed(&self) -> bool {
        true
    }

    fn relay(&self) -> Option<io::Result<OwnedFd>> {
        Some(self.link.duplicate())
    }
}

/// Fields from lines of HTTP/1.1.
pub(crate) fn fields(lines: &[u8]) -> ExtraFields {
    let mut fields = ExtraFields::default();
    for (name, value) in FieldSection::from_lines(lines).iter() {
        fields.add_octets(&String::from_utf8_lossy(name), value);
    }
    fields
}

/// The content of a request on its way to the process that has the upstream. A task sends it, and its end or failure too, as long as [`Demand`] lives.
pub(crate) struct RelayedContent(Arc<Mutex<Pump>>);

/// The upstream's demand for the content of a request. Dropped, it says that the exchange has ended here: no more is sent.
#[derive(Default)]
pub(crate) struct Demand(Arc<Mutex<Pump>>);

#[derive(Default)]
struct Pump {
    /// `None`: no more is sent.
    content: Option<RequestContent>,
    /// A packet that is not sent.
    unsent: Option<Packet>,
    /// See [`ContentUnderWay::room`](crate::passing::ContentUnderWay::room).
    room: i64,
    sender: Option<Waker>,
}

/// Bytes of a content that go on: they wait, or are in a packet.
pub(crate) struct ContentRest {
    /// See [`ContentUnderWay::room`](crate::passing::ContentUnderWay::room).
    pub(crate) room: i64,
    pub(crate) waiting: Vec<u8>,
    pub(crate) end: ContentEnd,
}

impl ContentRest {
    /// All that still comes of a content whose upstream is in this process.
    pub(crate) fn to_come() -> Self {
        ContentRest { room: 0, waiting: Vec::new(), end: ContentEnd::Open }
    }
}

/// Bytes of content in a packet, at most.
const PIECE: usize = 16 << 10;

impl RelayedContent {
    /// Sends content over `link`, as far as the upstream has room. Returns the writer; `None`: the content has ended.
    pub(crate) fn start(
        link: Link,
        length: Option<u64>,
        ContentRest { room, waiting, end }: ContentRest,
    ) -> (Self, Option<ContentWriter>) {
        let (mut writer, mut content) = pipe(length);
        content.pass_trailers(&Arc::from([]));
        waiting.chunks(PIECE).for_each(|piece| writer.write(Bytes::copy_from_slice(piece)));
        let writer = match end {
            ContentEnd::Open => Some(writer),
            ContentEnd::Complete(trailers) => {
                writer.finish_with(FieldSection::from_lines(&trailers));
                None
            }
            ContentEnd::Failed(status) => {
                writer.fail(Status::new(status).unwrap_or(Status::BAD_REQUEST));
                None
            }
        };
        let pump = Arc::new(Mutex::new(Pump { content: Some(content), unsent: None, room, sender: None }));
        let sends = Arc::clone(&pump);
        tokio::spawn(poll_fn(move |cx| sends.lock().poll(&link, cx)));
        (RelayedContent(pump), writer)
    }

    /// Hears what the other process says of it.
    pub(crate) fn demand(&self) -> Demand {
        Demand(Arc::clone(&self.0))
    }

    /// Takes what is left, for yet another process. `None`: all of it was sent, or no more is wanted.
    pub(crate) fn take_rest(&mut self) -> Option<ContentRest> {
        let mut pump = self.0.lock();
        let (unsent, room) = (pump.unsent.take(), pump.room);
        pump.wake();
        let (waiting, end) = pump.content.take().map_or((Vec::new(), None), |mut content| {
            let (waiting, end) = content.take_rest();
            (waiting, Some(end))
        });
        let (before, end) = match (unsent, end) {
            (None, None) => return None,
            (Some(Packet { word: Word::ContentEnd, payload }), _) => {
                (Bytes::new(), ContentEnd::Complete(payload.to_vec()))
            }
            (Some(Packet { word: Word::ContentFailed(status), .. }), _) => (Bytes::new(), ContentEnd::Failed(status)),
            (unsent, end) => (unsent.map_or_else(Bytes::new, |packet| packet.payload), end.unwrap_or(ContentEnd::Open)),
        };
        Some(ContentRest { room, waiting: [&before[..], &waiting].concat(), end })
    }
}

impl Demand {
    /// Hears a word about the content.
    ///
    /// # Errors
    /// It is about something else.
    pub(super) fn hear(&self, word: &Word) -> io::Result<()> {
        let mut pump = self.0.lock();
        match word {
            Word::Wanted(more) => pump.room = pump.room.saturating_add((*more).into()),
            Word::Closed => (pump.content, pump.unsent) = (None, None),
            word => return Err(unexpected(word)),
        }
        pump.wake();
        Ok(())
    }
}

impl Drop for Demand {
    /// The task ends, and closes its end of the relay.
    fn drop(&mut self) {
        let mut pump = self.0.lock();
        (pump.content, pump.unsent) = (None, None);
        pump.wake();
    }
}

impl Pump {
    fn wake(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(packet) = &self.unsent {
                match link.poll_send(cx, packet) {
                    Poll::Pending => {
                        self.sender = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(())) => self.sent(),
                    Poll::Ready(Err(_)) => (self.content, self.unsent) = (None, None),
                }
                continue;
            }
            let Some(content) = &mut self.content else { return Poll::Ready(()) };
            // An end needs no room. If the content broke off, what waits before that is not needed.
            let frame = if self.room > 0 { Pin::new(content).poll_frame(cx) } else { content.poll_end(cx) };
            let Poll::Ready(frame) = frame else {
                self.sender = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let (packet, is_last) = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => (Packet::new(Word::Content, data), false),
                    Err(frame) => {
                        let trailers = frame.into_trailers().map_or_else(|_| Vec::new(), |fields| lines(&fields));
                        (Packet::new(Word::ContentEnd, trailers), true)
                    }
                },
                None => (Packet::new(Word::ContentEnd, Bytes::new()), true),
                Some(Err(incomplete)) => {
                    (Packet::new(Word::ContentFailed(incomplete.status.code()), Bytes::new()), true)
                }
            };
            self.unsent = Some(packet);
            if is_last {
                self.content = None;
            }
        }
    }

    /// The packet is sent.
    fn sent(&mut self) {
        if let Some(Packet { word: Word::Content, payload }) = self.unsent.take() {
            self.room = self.room.saturating_sub_unsigned(payload.len() as u64);
        }
    }
}

/// The head of a response, and the bytes of its fields.
pub(crate) type RelayedResponse = (Box<RelayedHead>, Bytes);

/// Waits for the response that another process has asked for.
pub(crate) struct RelayedAnswer {
    pub(crate) link: Link,
    pub(crate) demand: Demand,
    /// Ends when the client has left.
    gone: oneshot::Receiver<()>,
    interims: mpsc::Sender<Interim>,
}

/// Interim responses that a client gets for a request.
const MOST_INTERIMS: usize = 16;

impl RelayedAnswer {
    /// Dropped, the sender says that the client has left.
    pub(crate) fn new(link: Link, demand: Demand) -> (Self, oneshot::Sender<()>, InterimReceiver) {
        let (here, gone) = oneshot::channel();
        let (interims, receiver) = mpsc::channel(MOST_INTERIMS);
        (RelayedAnswer { link, demand, gone, interims }, here, receiver)
    }

    /// The head, and its octets. `None`: the client has left. The other process, which may hang, learns it by the end of the socket.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<RelayedResponse>>> {
        if Pin::new(&mut self.gone).poll(cx).is_ready() {
            return Poll::Ready(Ok(None));
        }
        loop {
            let Some(Packet { word, payload }) = ready!(self.link.poll_receive(cx))? else {
                return Poll::Ready(Err(lost()));
            };
            match word {
                Word::Head(head) => return Poll::Ready(Ok(Some((head, payload)))),
                Word::Interim(status) => {
                    if let Some(status) = Status::new(status) {
                        // There are no more than have room.
                        let _ = self.interims.try_send(Interim { status, fields: fields(&payload) });
                    }
                }
                Word::Failed => {
                    let why = String::from_utf8_lossy(&payload).into_owned();
                    return Poll::Ready(Err(io::Error::other(why)));
                }
                word => self.demand.hear(&word)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed() -> (Link, Pin<Box<RelayedSource>>) {
        let (near, far) = Link::pair().unwrap();
        let source = RelayedSource::new(Link::new(far).unwrap(), Demand::default());
        (near, Box::pin(source))
    }

    async fn next(source: &mut Pin<Box<RelayedSource>>) -> Option<Result<Vec<u8>, String>> {
        let piece = poll_fn(|cx| source.as_mut().poll_piece(cx)).await?;
        Some(piece.map_err(|error| error.to_string()).map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::File { .. } => panic!("bytes come"),
        }))
    }

    #[tokio::test]
    async fn content_comes_to_its_end_with_trailers() {
        let (near, mut source) = relayed();
        near.try_send(&Packet::new(Word::Piece, &b"content"[..]));
        near.try_send(&Packet::new(Word::End, &b"x-sum: 5\r\n"[..]));
        drop(near);
        assert_eq!(next(&mut source).await, Some(Ok(b"content".to_vec())));
        assert_eq!(next(&mut source).await, None);
        assert_eq!(source.as_mut().trailers().unwrap().lines(), b"x-sum: 5\r\n");
    }

    #[tokio::test]
    async fn content_without_an_end_is_an_error_and_never_an_end() {
        let (near, mut source) = relayed();
        near.try_send(&Packet::new(Word::Piece, &b"content"[..]));
        drop(near);
        assert_eq!(next(&mut source).await, Some(Ok(b"content".to_vec())));
        assert!(next(&mut source).await.unwrap().unwrap_err().contains("has ended"));
        let (near, mut source) = relayed();
        near.try_send(&Packet::new(Word::Failed, &b"it broke off"[..]));
        assert_eq!(next(&mut source).await, Some(Err("it broke off".to_owned())));
    }

    /// The other process has taken part of it: the next one gets the rest.
    #[tokio::test]
    async fn content_of_a_request_goes_on_in_yet_another_process() {
        let (near, far) = Link::pair().unwrap();
        let far = Link::new(far).unwrap();
        let start = |rest| RelayedContent::start(far.clone(), None, rest);
        let rest = ContentRest { room: 0, waiting: b"begin".to_vec(), end: ContentEnd::Open };
        let (mut relayed, writer) = start(rest);
        let mut writer = writer.unwrap();
        writer.write("middle".into());
        tokio::task::yield_now().await;
        let rest = relayed.take_rest().unwrap();
        assert_eq!((rest.room, &rest.waiting[..], &rest.end), (0, &b"beginmiddle"[..], &ContentEnd::Open));
        drop((relayed, writer));
        let (mut relayed, writer) = start(rest);
        let demand = relayed.demand();
        demand.hear(&Word::Wanted(7)).unwrap();
        let mut received = Vec::new();
        while received.len() < 11 {
            received.extend(poll_fn(|cx| near.poll_receive(cx)).await.unwrap().unwrap().payload);
        }
        assert_eq!(received, b"beginmiddle");
        writer.unwrap().finish_with(FieldSection::from_lines(b"x-sum: 5\r\n"));
        let last = poll_fn(|cx| near.poll_receive(cx)).await.unwrap().unwrap();
        assert!(matches!(last.word, Word::ContentEnd) && last.payload == b"x-sum: 5\r\n"[..], "{last:?}");
        assert!(relayed.take_rest().is_none());
    }
}
