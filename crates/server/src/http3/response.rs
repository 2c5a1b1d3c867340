//! A response that is being sent on a stream.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Display;
use std::ops::Range;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use sealion_h3::{Connection, HeaderBlock, StreamClosed, StreamId};
use sealion_quic::WriteError;

use super::link::Link;
use crate::exchange::Answered;
use crate::files::resolve::{Content, SiteFile};
use crate::response::{Body, Cursor, Piece, Segment, SharedBytes, SourceError, read_range};

/// Bytes of a file that are read at a time.
const READ: u64 = 64 << 10;

/// A response whose head is made.
pub(super) struct Sending<'a> {
    pub(super) stream: StreamId,
    /// Goes before `answered`, which has the place for its descriptors.
    content: Cursor,
    /// The rest of a file, and the part of it that is being read.
    file: Option<(Arc<SiteFile>, Range<u64>)>,
    reading: Option<Read>,
    pub(super) answered: Box<Answered<'a>>,
    /// Bytes that the stream has not taken: frames and content.
    chunks: VecDeque<(Chunk, Bytes)>,
    /// Bytes of content that the stream took.
    pub(super) body: u64,
    /// Bytes that the stream took.
    pub(super) wire: u64,
    /// Nothing comes behind `chunks`.
    ended: bool,
    /// The stream takes nothing until it is writable.
    pub(super) is_blocked: bool,
    /// When the stream took bytes last.
    pub(super) progress: Instant,
}

type Read = Pin<Box<dyn Future<Output = Result<Bytes, sealion_tls::Error>> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Frame,
    Content,
}

/// Why a response ends before its end.
#[derive(Debug)]
pub(super) enum Failure {
    Source(SourceError),
    File(sealion_tls::Error),
    /// The client or this side ended the stream.
    Stream(WriteError),
    Protocol(StreamClosed),
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Source(error) => error.fmt(f),
            Failure::File(error) => error.fmt(f),
            Failure::Stream(error) => error.fmt(f),
            Failure::Protocol(error) => error.fmt(f),
        }
    }
}

/// The progress of a response.
pub(super) enum Sent {
    /// All of it was written, and the stream was finished.
    All,
    /// It waits until this time, by the rate of the connection.
    Paced(Instant),
}

/// Keeps memory that others share.
struct OfShared(Arc<SharedBytes>);

impl AsRef<[u8]> for OfShared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

struct OfFile(Arc<SiteFile>);

impl AsRef<[u8]> for OfFile {
    fn as_ref(&self) -> &[u8] {
        match &self.0.content {
            Content::Memory(bytes) => bytes,
            Content::File(_) => &[],
        }
    }
}

impl<'a> Sending<'a> {
    /// Takes the content out of the response. `head`: the bytes before it. `ended`: there is no content.
    pub(super) fn new(stream: StreamId, mut answered: Box<Answered<'a>>, head: Vec<u8>, ended: bool) -> Self {
        let body = match answered.framing.has_content() {
            true => std::mem::replace(&mut answered.response.body, Body::Empty),
            false => Body::Empty,
        };
        let head = (!head.is_empty()).then(|| (Chunk::Frame, head.into()));
        Sending {
            stream,
            content: Cursor::new(body),
            file: None,
            reading: None,
            answered,
            chunks: head.into_iter().collect(),
            body: 0,
            wire: 0,
            ended,
            is_blocked: false,
            progress: Instant::now(),
        }
    }

    /// Begins the frame of content whose length is known.
    pub(super) fn begin(&mut self, protocol: &mut Connection) -> Result<(), StreamClosed> {
        let is_whole = self.content.source().is_none();
        let known = if is_whole { Some(self.content.len()) } else { self.content.announced() };
        match known {
            Some(length) if !self.ended && length > 0 => self.frame(protocol, length, is_whole),
            _ => Ok(()),
        }
    }

    fn frame(&mut self, protocol: &mut Connection, length: u64, last: bool) -> Result<(), StreamClosed> {
        let mut frame = Vec::with_capacity(16);
        protocol.data(self.stream, length, last, &mut frame)?;
        if !frame.is_empty() {
            self.chunks.push_back((Chunk::Frame, frame.into()));
        }
        Ok(())
    }

    /// Writes as much as the stream takes. Ready: the response has ended, or waits for its rate.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        protocol: &mut Connection,
        quic: &mut sealion_quic::Connection<'_>,
        (link, paced): (&mut Link, &mut Option<Instant>),
    ) -> Poll<Result<Sent, Failure>> {
        let Some(stream) = sealion_quic::StreamId::new(self.stream.get()) else { return Poll::Pending };
        loop {
            while let Some((kind, bytes)) = self.chunks.front_mut() {
                let now = Instant::now();
                if let Some(until) = paced.filter(|until| *until > now) {
                    return Poll::Ready(Ok(Sent::Paced(until)));
                }
                let taken = match quic.write(stream, slice::from_mut(bytes)) {
                    Ok(taken) => taken as u64,
                    Err(WriteError::Blocked) => {
                        self.is_blocked = true;
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Err(Failure::Stream(error))),
                };
                self.progress = now;
                self.wire += taken;
                link.sent += taken;
                if let Some(time) = link.time_of(taken) {
                    *paced = Some(paced.unwrap_or(now).max(now) + time);
                }
                if *kind == Chunk::Content {
                    self.body += taken;
                    protocol.sent(self.stream, taken);
                }
                if bytes.is_empty() {
                    self.chunks.pop_front();
                }
            }
            if self.ended {
                return Poll::Ready(quic.finish(stream).map(|()| Sent::All).map_err(Failure::Stream));
            }
            ready!(self.poll_fill(cx, protocol))?;
        }
    }

    /// Makes the next bytes ready, or ends.
    fn poll_fill(&mut self, cx: &mut Context<'_>, protocol: &mut Connection) -> Poll<Result<(), Failure>> {
        if let Some(reading) = &mut self.reading {
            let read = ready!(reading.as_mut().poll(cx));
            self.reading = None;
            match read {
                Ok(bytes) => self.chunks.push_back((Chunk::Content, bytes)),
                Err(error) => {
                    self.content.note_unreadable();
                    if let Some((file, _)) = &self.file {
                        file.note_unreadable();
                    }
                    return Poll::Ready(Err(Failure::File(error)));
                }
            }
            return Poll::Ready(Ok(()));
        }
        if let Some((file, range)) = self.file.take()
            && !range.is_empty()
        {
            let end = range.end.min(range.start + READ);
            self.reading = Some(Box::pin(read_range(Arc::clone(&file), range.start..end)));
            self.file = Some((file, end..range.end));
            return Poll::Ready(Ok(()));
        }
        if let Some(segment) = self.content.pop_segment() {
            self.take(segment);
            return Poll::Ready(Ok(()));
        }
        if self.content.source().is_none() {
            self.ended = true;
            return Poll::Ready(Ok(()));
        }
        self.content.set_room(READ);
        match ready!(self.content.poll_source(cx)) {
            Err(error) => Poll::Ready(Err(Failure::Source(error))),
            Ok(Some(piece)) => {
                let length = piece.len();
                if length > 0 && protocol.missing(self.stream) == 0 {
                    self.frame(protocol, length, false).map_err(Failure::Protocol)?;
                }
                match piece {
                    Piece::Bytes(bytes) if !bytes.is_empty() => self.chunks.push_back((Chunk::Content, bytes)),
                    Piece::Bytes(_) => {}
                    Piece::File { file, range } => self.take(Segment::File(file, range)),
                }
                Poll::Ready(Ok(()))
            }
            Ok(None) => {
                let trailers = self.content.trailers();
                self.content.end_source();
                self.ended = true;
                let mut frame = Vec::new();
                let ended = match trailers {
                    Some(trailers) => {
                        let mut block = HeaderBlock::default();
                        trailers.iter().for_each(|(name, value)| block.field(&name.to_ascii_lowercase(), value));
                        protocol.trailers(self.stream, &[block.as_bytes()], &mut frame)
                    }
                    None => protocol.data(self.stream, 0, true, &mut frame),
                };
                if !frame.is_empty() {
                    self.chunks.push_back((Chunk::Frame, frame.into()));
                }
                Poll::Ready(ended.map_err(Failure::Protocol))
            }
        }
    }

    fn take(&mut self, segment: Segment) {
        let bytes = match segment {
            Segment::Bytes(Cow::Borrowed(bytes), range) => Bytes::from_static(bytes).slice(range),
            Segment::Bytes(Cow::Owned(bytes), range) => Bytes::from(bytes).slice(range),
            Segment::Shared(shared, range) => Bytes::from_owner(OfShared(shared)).slice(range),
            Segment::File(file, range) => match &file.content {
                Content::Memory(_) => Bytes::from_owner(OfFile(file)).slice(range.start as usize..range.end as usize),
                Content::File(_) => {
                    self.file = Some((file, range));
                    return;
                }
            },
        };
        if !bytes.is_empty() {
            self.chunks.push_back((Chunk::Content, bytes));
        }
    }

    /// Lets go of the content, and tells its source which part is not sent.
    pub(super) fn drop_content(&mut self) {
        self.content.take_back(self.body);
        self.content = Cursor::new(Body::Empty);
        self.chunks.clear();
        (self.file, self.reading) = (None, None);
    }
}
