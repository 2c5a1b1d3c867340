//! The content of a request on its way to an upstream: a pipe between the driver, which reads the client, and the task that writes to the
//! upstream. It keeps little, so that a client is read only as fast as the upstream takes it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use sealion_http::{FieldSection, Status};

use super::copy::{ContentCopy, CopyBounds, CopyReceiver, TooLong};
use super::head::trailers_of_request;
use super::pieces::Pieces;
use crate::passing::ContentEnd;
use crate::values::Mutex;

/// Bytes that the pipe keeps, after which the client is not read.
const MOST_KEPT: usize = 64 << 10;

/// Bytes that are worth a grant: the other process gets its next one when a quarter of its room is free.
const LEAST_GRANT: u64 = MOST_KEPT as u64 / 4;

/// A pipe for the content of a request. `length`: as announced by the client, `None` if it announced none.
pub(crate) fn pipe(length: Option<u64>) -> (ContentWriter, RequestContent) {
    let pipe = Arc::new(Mutex::new(Pipe::default()));
    (ContentWriter { pipe: Arc::clone(&pipe) }, RequestContent { pipe, left: length, guarded: None, copy: None })
}

impl RequestContent {
    /// Content that is at hand.
    pub(super) fn of_bytes(bytes: Bytes) -> Self {
        let (mut writer, content) = pipe(Some(bytes.len() as u64));
        writer.write(bytes);
        writer.finish();
        content
    }
}

/// The driver's end. Dropped before [`Self::finish`], it makes the content incomplete: the request to the upstream is cut short.
#[derive(Debug)]
pub(crate) struct ContentWriter {
    pipe: Arc<Mutex<Pipe>>,
}

/// The upstream's end, the content of a request.
#[derive(Debug)]
pub(crate) struct RequestContent {
    pipe: Arc<Mutex<Pipe>>,
    /// Bytes until the announced end.
    left: Option<u64>,
    /// Fields that trailers cannot have. `None`: trailers are dropped.
    guarded: Option<Arc<[HeaderName]>>,
    /// Gets what is taken. `None`: there is no copy.
    copy: Option<Box<ContentCopy>>,
}

/// The outcome of [`ContentWriter::poll_room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Content is wanted.
    Wanted,
    /// Content is not taken any more: a response was made without the rest of it.
    Closed,
}

/// The outcome of [`ContentWriter::poll_grant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// So many bytes.
    More(u32),
    /// Content is not taken any more.
    Closed,
}

/// See [`ContentWriter::poll_taken`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) octets: u64,
    /// Whether the upstream has asked for content.
    pub(crate) is_wanted: bool,
    /// Whether it waits for the client.
    pub(crate) is_owed: bool,
}

/// The content of a request broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has no complete content: {status}")]
pub(crate) struct Incomplete {
    /// The status for the client, if it is still there.
    pub(crate) status: Status,
}

#[derive(Debug, Default)]
struct Pipe {
    ready: Pieces,
    /// Bytes in `ready`.
    kept: usize,
    /// Bytes that the reader has taken.
    taken: u64,
    state: State,
    /// The reader has asked for content: the upstream has the request's head.
    wanted: bool,
    /// The reader was dropped while it waited for the writer.
    was_owed: bool,
    /// The reader was dropped because of this.
    was_incomplete: Option<Incomplete>,
    /// Whether the client cannot send now, since our window is closed, and how often that has begun or ended.
    is_held: bool,
    holds: u64,
    /// Bytes that may still be written.
    allowance: Option<u64>,
    /// Fields behind the content.
    trailers: Option<Box<HeaderMap>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// All content was written.
    Complete,
    /// The writer was dropped before the end, or the content is too long.
    Incomplete(Status),
    /// The reader was dropped.
    Closed,
}

impl ContentWriter {
    /// Ready when content should be written, or no more will be taken.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Room> {
        let mut pipe = self.pipe.lock();
        if pipe.state == State::Closed {
            return Poll::Ready(Room::Closed);
        }
        if pipe.wanted && pipe.kept < MOST_KEPT {
            return Poll::Ready(Room::Wanted);
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// How much content the upstream has taken so far, for a client that is granted windows. Wakes when that changes, and when content is wanted.
    pub(crate) fn poll_taken(&mut self, cx: &mut Context<'_>) -> Taken {
        let mut pipe = self.pipe.lock();
        pipe.writer = Some(cx.waker().clone());
        let octets = match pipe.state {
            State::Open | State::Complete => pipe.taken,
            // Content that no reader takes is dropped, and counts as taken.
            State::Incomplete(_) | State::Closed => u64::MAX,
        };
        Taken { octets, is_wanted: pipe.wanted && pipe.state == State::Open, is_owed: pipe.is_owed() }
    }

    /// Ready when no content will be taken any more.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.pipe.lock();
        if pipe.state == State::Closed {
            return Poll::Ready(());
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready when another process may send a good deal more than it was `granted` so far, or no more will be taken. It may exceed its grants by one piece.
    pub(crate) fn poll_grant(&mut self, cx: &mut Context<'_>, granted: &mut u64) -> Poll<Grant> {
        let mut pipe = self.pipe.lock();
        if pipe.state == State::Closed {
            return Poll::Ready(Grant::Closed);
        }
        *granted = (*granted).max(pipe.taken + pipe.kept as u64);
        let more = (pipe.taken + MOST_KEPT as u64).saturating_sub(*granted);
        if pipe.wanted && pipe.state == State::Open && more >= LEAST_GRANT {
            *granted += more;
            return Poll::Ready(Grant::More(more as u32));
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Appends content. It may exceed the request for content by one record.
    pub(crate) fn write(&mut self, content: Bytes) {
        let mut pipe = self.pipe.lock();
        if pipe.state != State::Open || content.is_empty() {
            return;
        }
        match &mut pipe.allowance {
            Some(left) if *left < content.len() as u64 => pipe.state = State::Incomplete(Status::CONTENT_TOO_LARGE),
            allowance => {
                *allowance = allowance.map(|left| left - content.len() as u64);
                pipe.kept += content.len();
                pipe.ready.push(content);
            }
        }
        pipe.wake_reader();
    }

    /// The client can send no content from now on, or again: no time of its own runs meanwhile.
    pub(crate) fn hold(&mut self, is_held: bool) {
        let mut pipe = self.pipe.lock();
        pipe.holds += u64::from(pipe.is_held != is_held);
        pipe.is_held = is_held;
    }

    /// Ends the content before its end. `status`: for the client.
    pub(crate) fn fail(self, status: Status) {
        self.pipe.lock().fail(status);
    }

    /// Ends the content.
    pub(crate) fn finish(self) {
        self.finish_with(FieldSection::default());
    }

    /// Ends the content with trailers.
    pub(crate) fn finish_with(mut self, trailers: FieldSection<'_>) {
        self.end_with(trailers);
    }

    /// As [`Self::finish_with`], for a writer that still has to tell how much is taken.
    pub(crate) fn end_with(&mut self, trailers: FieldSection<'_>) {
        let mut pipe = self.pipe.lock();
        let fields = trailers.iter();
        let fields: HeaderMap = fields
            .filter_map(|(name, value)| {
                Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
            })
            .collect();
        pipe.trailers = (!fields.is_empty()).then(|| Box::new(fields));
        if pipe.state == State::Open {
            pipe.state = State::Complete;
            pipe.wake_reader();
        }
    }
}

impl Drop for ContentWriter {
    fn drop(&mut self) {
        self.pipe.lock().fail(Status::BAD_REQUEST);
    }
}

impl Drop for RequestContent {
    fn drop(&mut self) {
        let mut pipe = self.pipe.lock();
        pipe.was_owed = pipe.is_owed();
        let is_whole = pipe.state == State::Complete && pipe.ready.is_empty();
        if let State::Incomplete(status) = pipe.state {
            pipe.was_incomplete = Some(Incomplete { status });
        }
        (pipe.state, pipe.kept) = (State::Closed, 0);
        let is_whole = self.left == Some(0) || is_whole;
        pipe.ready = Pieces::default();
        pipe.wake_writer();
        drop(pipe);
        if let Some(copy) = self.copy.take().filter(|_| is_whole) {
            copy.finish();
        }
    }
}

impl Pipe {
    fn is_owed(&self) -> bool {
        self.wanted && self.state == State::Open && self.ready.is_empty()
    }

    fn fail(&mut self, status: Status) {
        if self.state == State::Open {
            self.state = State::Incomplete(status);
            self.wake_reader();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

impl RequestContent {
    /// Refuses content of more than `most` bytes (413). An error: it announces more.
    pub(crate) fn limit(&self, most: u64) -> Result<(), Incomplete> {
        let mut pipe = self.pipe.lock();
        // Some may have come before.
        let came = pipe.kept as u64 + pipe.taken;
        pipe.allowance = most.checked_sub(came);
        match pipe.allowance {
            Some(_) if self.left.is_none_or(|length| length <= most) => Ok(()),
            _ => Err(Incomplete { status: Status::CONTENT_TOO_LARGE }),
        }
    }

    /// Passes trailers on, but for fields of `guarded`: servers may merge them with the others.
    pub(crate) fn pass_trailers(&mut self, guarded: &Arc<[HeaderName]>) {
        self.guarded = Some(Arc::clone(guarded));
    }

    /// Copies what is taken from now on: the whole content, if nothing was. `client`: whose share of the memory applies, if any.
    ///
    /// # Errors
    /// The content announces more than fits.
    pub(crate) fn copy(&mut self, bounds: &CopyBounds, client: Option<IpAddr>) -> Result<CopyReceiver, TooLong> {
        if self.left.is_some_and(|length| length > bounds.most) {
            return Err(TooLong);
        }
        let (copy, receiver) = ContentCopy::new(bounds, client);
        self.copy = Some(copy);
        Ok(receiver)
    }

    /// The announced length, before anything has been taken.
    pub(crate) fn length(&self) -> Option<u64> {
        self.left
    }

    /// Whether its length was announced.
    pub(crate) fn has_length(&self) -> bool {
        self.left.is_some()
    }

    /// Waits until some of it or its end is here. `true`: it has neither content nor trailers.
    pub(crate) async fn is_empty(&mut self) -> bool {
        poll_fn(|cx| {
            let mut pipe = self.pipe.lock();
            if !pipe.wanted {
                pipe.wanted = true;
                pipe.wake_writer();
            }
            match pipe.state {
                _ if !pipe.ready.is_empty() => Poll::Ready(false),
                State::Open => {
                    pipe.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                State::Complete => Poll::Ready(pipe.trailers.is_none()),
                State::Incomplete(_) | State::Closed => Poll::Ready(false),
            }
        })
        .await
    }

    /// Changes when the client can send again or no more. Second: whether it cannot.
    pub(super) fn holds(&self) -> (u64, bool) {
        let pipe = self.pipe.lock();
        (pipe.holds, pipe.is_held)
    }

    /// Takes what waits, and how the content goes on.
    pub(crate) fn take_rest(&mut self) -> (Vec<u8>, ContentEnd) {
        let mut pipe = self.pipe.lock();
        let mut waiting = Vec::with_capacity(pipe.kept);
        while let Some(piece) = pipe.ready.pop() {
            waiting.extend_from_slice(&piece);
        }
        pipe.kept = 0;
        let end = match pipe.state {
            State::Open => ContentEnd::Open,
            State::Complete => {
                ContentEnd::Complete(pipe.trailers.take().map_or_else(Vec::new, |fields| lines(&fields)))
            }
            State::Incomplete(status) => ContentEnd::Failed(status.code()),
            State::Closed => ContentEnd::Failed(Status::BAD_REQUEST.code()),
        };
        (waiting, end)
    }

    /// As [`Body::poll_frame`], without pieces: ready when all of them were taken and the content ends, or when it has broken off.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let mut pipe = self.pipe.lock();
        match pipe.state {
            State::Incomplete(status) => return Poll::Ready(Some(Err(Incomplete { status }))),
            State::Complete if pipe.ready.is_empty() => {}
            State::Open | State::Complete | State::Closed => {
                pipe.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        drop(pipe);
        Pin::new(self).poll_frame(cx)
    }

    /// A view of how much is taken, which outlives the content.
    pub(crate) fn progress(&self) -> ContentProgress {
        ContentProgress(Arc::clone(&self.pipe))
    }
}

/// Fields as lines of HTTP/1.1.
pub(crate) fn lines(fields: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in fields {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

/// See [`RequestContent::progress`].
#[derive(Debug)]
pub(crate) struct ContentProgress(Arc<Mutex<Pipe>>);

impl ContentProgress {
    /// Changes when the upstream takes content, and when the client can send again or no more.
    pub(crate) fn moves(&self) -> (u64, u64) {
        let pipe = self.0.lock();
        (pipe.taken, pipe.holds)
    }

    /// Whether the upstream waits for the client, which cannot send.
    pub(crate) fn is_held(&self) -> bool {
        let pipe = self.0.lock();
        pipe.is_held && pipe.is_owed()
    }

    /// Why the content was incomplete when the upstream gave up.
    pub(crate) fn incomplete(&self) -> Option<Incomplete> {
        self.0.lock().was_incomplete
    }

    /// Whether the upstream waits for the client, or did when it gave up: it has taken all that came, and that is not all.
    pub(crate) fn is_owed(&self) -> bool {
        let pipe = self.0.lock();
        pipe.is_owed() || pipe.was_owed
    }
}

impl Body for RequestContent {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let this = self.get_mut();
        let mut pipe = this.pipe.lock();
        if !pipe.wanted {
            pipe.wanted = true;
            pipe.wake_writer();
        }
        if let Some(content) = pipe.ready.pop() {
            pipe.kept -= content.len();
            pipe.taken += content.len() as u64;
            pipe.wake_writer();
            this.left = this.left.map(|left| left.saturating_sub(content.len() as u64));
            this.copy = this.copy.take().and_then(|copy| copy.with(&content));
            if this.left == Some(0)
                && let Some(copy) = this.copy.take()
            {
                copy.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(content))));
        }
        match pipe.state {
            State::Open => {
                pipe.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Complete => {
                if let Some(copy) = this.copy.take() {
                    copy.finish();
                }
                let trailers = pipe.trailers.take().zip(this.guarded.as_deref());
                let trailers = trailers.map(|(fields, guarded)| trailers_of_request(*fields, guarded));
                Poll::Ready(trailers.filter(|fields| !fields.is_empty()).map(|fields| Ok(Frame::trailers(fields))))
            }
            State::Incomplete(status) => Poll::Ready(Some(Err(Incomplete { status }))),
            State::Closed => Poll::Ready(Some(Err(Incomplete { status: Status::BAD_REQUEST }))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let pipe = self.pipe.lock();
        let has_trailers = pipe.trailers.is_some() && self.guarded.is_some();
        pipe.ready.is_empty() && pipe.state == State::Complete && !has_trailers
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn read(content: &mut RequestContent) -> Poll<Option<Result<Vec<u8>, Incomplete>>> {
        let mut cx = Context::from_waker(Waker::noop());
        let frame = Pin::new(content).poll_frame(&mut cx);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().to_vec())))
    }

    fn room(writer: &mut ContentWriter) -> Poll<Room> {
        writer.poll_room(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn content_is_wanted_when_the_upstream_asks_and_until_it_is_full() {
        let (mut writer, mut content) = pipe(None);
        assert!(room(&mut writer).is_pending());
        assert!(read(&mut content).is_pending());
        assert_eq!(room(&mut writer), Poll::Ready(Room::Wanted));
        assert_eq!(content.progress().moves(), (0, 0));
        writer.write(vec![1; MOST_KEPT].into());
        assert!(room(&mut writer).is_pending());
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(vec![1; MOST_KEPT]))));
        assert_eq!(room(&mut writer), Poll::Ready(Room::Wanted));
        writer.write("end".into());
        writer.finish();
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(b"end".to_vec()))));
        assert!(content.is_end_stream());
        assert_eq!(read(&mut content), Poll::Ready(None));
    }

    /// Another process gets as much room as the pipe has, once content is wanted, and a good deal at a time.
    #[test]
    fn room_is_granted_as_the_upstream_takes_content() {
        let (mut writer, mut content) = pipe(None);
        let mut granted = 0;
        let mut grant =
            |writer: &mut ContentWriter| writer.poll_grant(&mut Context::from_waker(Waker::noop()), &mut granted);
        writer.write(vec![1; 1000].into());
        assert!(grant(&mut writer).is_pending(), "it is not wanted");
        assert!(read(&mut content).is_ready());
        assert_eq!(grant(&mut writer), Poll::Ready(Grant::More(MOST_KEPT as u32)), "what came before does not count");
        assert!(grant(&mut writer).is_pending());
        let least = LEAST_GRANT as usize;
        for piece in [least - 1, 1, MOST_KEPT - least + 100] {
            writer.write(vec![1; piece].into());
        }
        assert!(grant(&mut writer).is_pending(), "it is full");
        for expected in [Poll::Pending, Poll::Pending, Poll::Ready(Grant::More(MOST_KEPT as u32))] {
            assert!(read(&mut content).is_ready());
            assert_eq!(grant(&mut writer), expected);
        }
        drop(content);
        assert_eq!(grant(&mut writer), Poll::Ready(Grant::Closed));
    }

    #[test]
    fn a_content_is_known_to_be_empty_at_its_end_alone() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut is_empty = |content: &mut RequestContent| std::pin::pin!(content.is_empty()).poll(&mut cx);
        let (mut writer, mut content) = pipe(None);
        assert!(is_empty(&mut content).is_pending());
        assert_eq!(room(&mut writer), Poll::Ready(Room::Wanted));
        writer.finish();
        assert_eq!(is_empty(&mut content), Poll::Ready(true));
        let (mut writer, mut content) = pipe(None);
        writer.write("a".into());
        writer.finish();
        assert_eq!(is_empty(&mut content), Poll::Ready(false));
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(b"a".to_vec()))), "nothing of it is lost");
        let (writer, mut content) = pipe(None);
        drop(writer);
        assert_eq!(is_empty(&mut content), Poll::Ready(false), "it broke off");
    }

    #[test]
    fn content_that_breaks_off_is_an_error_and_never_an_end() {
        let (mut writer, mut content) = pipe(Some(3));
        writer.write("ab".into());
        drop(writer);
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(b"ab".to_vec()))));
        assert!(!content.is_end_stream());
        assert_eq!(read(&mut content), Poll::Ready(Some(Err(Incomplete { status: Status::BAD_REQUEST }))));
        assert_eq!(content.size_hint().exact(), Some(1));
    }

    #[test]
    fn content_that_is_too_long_is_refused_when_announced_and_when_it_comes() {
        let too_long = Incomplete { status: Status::CONTENT_TOO_LARGE };
        let (_writer, content) = pipe(Some(4));
        assert_eq!((content.limit(3), content.limit(4)), (Err(too_long), Ok(())));
        let (mut writer, content) = pipe(None);
        writer.write("abcd".into());
        assert_eq!(content.limit(3), Err(too_long), "what came before the limit counts");
        let (mut writer, mut content) = pipe(None);
        content.limit(3).unwrap();
        writer.write("abc".into());
        writer.write("d".into());
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(b"abc".to_vec()))));
        assert_eq!(read(&mut content), Poll::Ready(Some(Err(too_long))));
    }

    #[test]
    fn the_driver_learns_that_nobody_takes_content() {
        let (mut writer, content) = pipe(None);
        drop(content);
        assert_eq!(room(&mut writer), Poll::Ready(Room::Closed));
        writer.write("lost".into());
        writer.finish();
    }

    fn bounds(most: u64) -> CopyBounds {
        CopyBounds { most, waiting: Arc::default() }
    }

    fn copied(receiver: &mut CopyReceiver) -> Option<Result<Vec<u8>, TooLong>> {
        let result = receiver.try_recv().ok()?;
        Some(result.map(|mut copied| {
            assert_eq!(copied.memory.bytes() as u64, copied.content.length().unwrap());
            let mut all = Vec::new();
            while let Poll::Ready(Some(piece)) = read(&mut copied.content) {
                all.extend(piece.unwrap());
            }
            all
        }))
    }

    #[test]
    fn a_copy_is_sent_when_the_content_was_taken_whole() {
        for announced in [None, Some(8)] {
            let (mut writer, mut content) = pipe(announced);
            let mut receiver = content.copy(&bounds(8), None).unwrap();
            for piece in ["the ", "text"] {
                writer.write(piece.into());
                assert!(copied(&mut receiver).is_none());
                assert!(read(&mut content).is_ready());
            }
            writer.finish();
            // A server that knows the length does not ask for more.
            drop(content);
            assert_eq!(copied(&mut receiver), Some(Ok(b"the text".to_vec())), "{announced:?}");
        }
    }

    #[test]
    fn no_copy_is_sent_of_content_that_breaks_off_or_is_not_taken() {
        let (mut writer, mut content) = pipe(None);
        let mut receiver = content.copy(&bounds(8), None).unwrap();
        writer.write("ab".into());
        assert!(read(&mut content).is_ready());
        drop((writer, content));
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Closed, "it broke off");
        let (mut writer, mut content) = pipe(None);
        let mut receiver = content.copy(&bounds(8), None).unwrap();
        writer.write("ab".into());
        writer.finish();
        drop(content);
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Closed, "the server did not take it");
    }

    #[test]
    fn a_content_that_is_too_long_has_no_copy_and_goes_on() {
        let (mut writer, mut content) = pipe(None);
        let mut receiver = content.copy(&bounds(3), None).unwrap();
        writer.write("ab".into());
        writer.write("cd".into());
        assert!(read(&mut content).is_ready());
        assert_eq!(read(&mut content), Poll::Ready(Some(Ok(b"cd".to_vec()))));
        assert_eq!(copied(&mut receiver), Some(Err(TooLong)));
        let (_writer, mut content) = pipe(Some(4));
        assert_eq!(content.copy(&bounds(3), None).unwrap_err(), TooLong, "as announced");
    }
}
