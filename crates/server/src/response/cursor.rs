//! A body on its way to the client.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sealion_http::ExtraFields;
use sealion_tls::{Part, Pipe};

use super::body::{Body, BodyStream, Piece, SharedBytes, Source};
use crate::files::resolve::{Content, SiteFile};

/// The content of a response while it is sent: the pieces that are ready, and the source of more.
#[derive(Default)]
pub(crate) struct Cursor {
    /// The first segment that is ready: most responses have no other.
    front: Option<Segment>,
    /// The others. `None`, as in most responses, costs nothing to drop.
    behind: Option<VecDeque<Segment>>,
    source: Option<BodyStream>,
    /// Bytes that `source` gave.
    given: u64,
}

/// The rest of content that is ready.
pub(crate) enum Segment {
    Bytes(Cow<'static, [u8]>, Range<usize>),
    Shared(Arc<SharedBytes>, Range<usize>),
    File(Arc<SiteFile>, Range<u64>),
}

/// Why a source ended a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("reading the response body failed: {0}")]
    Failed(io::Error),
    /// It did not produce the announced length.
    #[error("response body length mismatch: {announced} bytes announced, {given} produced")]
    Length {
        /// Announced length in bytes.
        announced: u64,
        /// Bytes that it produced before the mismatch was found.
        given: u64,
    },
}

impl Cursor {
    #[inline]
    pub(crate) fn new(body: Body) -> Self {
        match body.only_segment() {
            Ok(front) => Cursor { front, behind: None, source: None, given: 0 },
            Err(body) => {
                let mut cursor = Cursor::default();
                cursor.source = body.split(|segment| cursor.push_segment(segment));
                cursor
            }
        }
    }

    /// Content that is ready.
    pub(crate) fn of_segments(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut cursor = Cursor::default();
        segments.into_iter().for_each(|segment| cursor.push_segment(segment));
        cursor
    }

    /// The same, with a source of more behind it.
    pub(crate) fn with_source(self, source: BodyStream) -> Self {
        Cursor { source: Some(source), ..self }
    }

    /// Takes the source of more, with what it gave so far.
    pub(crate) fn take_source(&mut self) -> Option<Self> {
        Some(Cursor { source: Some(self.source.take()?), given: self.given, ..Cursor::default() })
    }

    /// The rest of the announced length.
    pub(crate) fn left(&self) -> Option<u64> {
        self.announced().map(|length| length.saturating_sub(self.given))
    }

    /// The source of more. `None`: it ended, or all content was ready from the start.
    pub(crate) fn source(&self) -> Option<&dyn Source> {
        self.source.as_ref().map(|stream| &*stream.source)
    }

    /// The announced length of the source's pieces.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.source.as_ref()?.length
    }

    /// Bytes that the source gave.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// The next piece of the source. `None`: its end, after the announced length.
    pub(crate) fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, SourceError>> {
        let Some(stream) = &mut self.source else { return Poll::Ready(Ok(None)) };
        let piece = ready!(stream.source.as_mut().poll_piece(cx)).transpose().map_err(SourceError::Failed)?;
        self.given += piece.as_ref().map_or(0, Piece::len);
        let given = self.given;
        Poll::Ready(match stream.length {
            Some(announced) if given > announced || (piece.is_none() && given < announced) => {
                Err(SourceError::Length { announced, given })
            }
            _ => Ok(piece),
        })
    }

    /// Whether the next content of the source should be moved into a pipe.
    pub(crate) fn fills_pipes(&self) -> bool {
        self.source().is_some_and(Source::fills_pipes)
    }

    /// Moves content of the source into the empty pipe. `None`: it has none that can be moved.
    pub(crate) fn poll_fill_pipe(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
    ) -> Poll<Result<Option<usize>, SourceError>> {
        let Some(stream) = &mut self.source else { return Poll::Ready(Ok(None)) };
        let moved = ready!(stream.source.as_mut().poll_fill_pipe(cx, pipe)).transpose().map_err(SourceError::Failed)?;
        self.given += moved.unwrap_or(0) as u64;
        let given = self.given;
        Poll::Ready(match stream.length {
            Some(announced) if given > announced => Err(SourceError::Length { announced, given }),
            _ => Ok(moved),
        })
    }

    /// The fields behind the content, once the source has ended.
    pub(crate) fn trailers(&mut self) -> Option<Box<ExtraFields>> {
        self.source.as_mut()?.source.as_mut().trailers()
    }

    /// Tells the source how many bytes can be sent now.
    pub(crate) fn set_room(&mut self, room: u64) {
        if let Some(stream) = &mut self.source {
            stream.source.as_mut().set_room(room);
        }
    }

    /// Drops a source that has ended.
    pub(crate) fn end_source(&mut self) {
        self.source = None;
    }

    /// Tells the source that only `sent` of the bytes that it gave were sent.
    pub(crate) fn take_back(&self, sent: u64) {
        let unsent = self.given.saturating_sub(sent);
        if let Some(stream) = self.source.as_ref().filter(|_| unsent > 0) {
            stream.source.take_back(unsent);
        }
    }

    /// Notes that the file that was being sent cannot be read.
    pub(crate) fn note_unreadable(&self) {
        self.segments().for_each(Segment::note_unreadable);
        if let Some(stream) = &self.source {
            stream.source.note_unreadable();
        }
    }

    /// Adds a piece of the source to the content that is ready.
    pub(crate) fn push(&mut self, piece: Piece) {
        self.push_segment(match piece {
            Piece::Bytes(bytes) => Segment::of_bytes(Vec::from(bytes).into()),
            Piece::File { file, range } => Segment::File(file, range),
        });
    }

    /// Adds content that is ready.
    pub(crate) fn push_segment(&mut self, segment: Segment) {
        match &self.front {
            None => self.front = Some(segment),
            Some(_) => self.behind.get_or_insert_default().push_back(segment),
        }
    }

    /// The segment that is ready, if there is no other.
    pub(crate) fn only_segment(&self) -> Option<&Segment> {
        self.front.as_ref().filter(|_| self.behind.is_none())
    }

    /// All content, if it is one segment in memory.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        if self.source.is_some() {
            return None;
        }
        match self.only_segment()? {
            Segment::Bytes(bytes, range) => Some(&bytes[range.clone()]),
            Segment::Shared(shared, range) => Some(&shared.bytes[range.clone()]),
            Segment::File(file, range) => match &file.content {
                Content::Memory(bytes) => Some(&bytes[range.start as usize..range.end as usize]),
                Content::File(_) => None,
            },
        }
    }

    /// Takes the first segment that is ready.
    pub(crate) fn pop_segment(&mut self) -> Option<Segment> {
        let segment = self.front.take()?;
        self.front = self.behind.as_mut().and_then(|behind| behind.pop_front());
        Some(segment)
    }

    /// The content that is ready.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.front.iter().chain(self.behind.iter().flatten())
    }

    /// Segments that are ready.
    pub(crate) fn waiting(&self) -> usize {
        self.behind.as_ref().map_or(0, |behind| behind.len()) + usize::from(self.front.is_some())
    }

    /// Bytes that are ready.
    pub(crate) fn len(&self) -> u64 {
        let behind = self.behind.iter().flatten();
        self.front.as_ref().map_or(0, Segment::len) + behind.map(Segment::len).sum::<u64>()
    }

    /// Bytes that are ready in memory that only this response holds.
    pub(crate) fn in_memory(&self) -> u64 {
        self.segments().filter(|segment| matches!(segment, Segment::Bytes(..))).map(Segment::len).sum()
    }

    /// Takes `length` of the bytes that are ready. `put` gets each segment, and how many of its first bytes are taken.
    pub(crate) fn take(&mut self, mut length: usize, mut put: impl FnMut(&Segment, usize)) {
        while length > 0
            && let Some(segment) = &mut self.front
        {
            let taken = usize::try_from(segment.len()).unwrap_or(usize::MAX).min(length);
            put(segment, taken);
            segment.advance(taken);
            length -= taken;
            if segment.len() == 0 {
                self.front = self.behind.as_mut().and_then(|behind| behind.pop_front());
            }
        }
        debug_assert_eq!(length, 0, "no more is taken than is ready");
    }
}

impl Segment {
    pub(crate) fn of_bytes(bytes: Cow<'static, [u8]>) -> Self {
        let all = 0..bytes.len();
        Segment::Bytes(bytes, all)
    }

    pub(super) fn of_shared(shared: Arc<SharedBytes>) -> Self {
        let all = 0..shared.bytes.len();
        Segment::Shared(shared, all)
    }

    fn len(&self) -> u64 {
        match self {
            Self::Bytes(_, range) | Self::Shared(_, range) => range.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }

    /// The same content as a piece.
    pub(crate) fn into_piece(self) -> Piece {
        match self {
            Self::Bytes(Cow::Borrowed(bytes), range) => Piece::Bytes(Bytes::from_static(&bytes[range])),
            Self::Bytes(Cow::Owned(bytes), range) => Piece::Bytes(Bytes::from(bytes).slice(range)),
            Self::Shared(shared, range) => Piece::Bytes(Bytes::from_owner(Shared(shared)).slice(range)),
            Self::File(file, range) => Piece::File { file, range },
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Self::Bytes(_, range) | Self::Shared(_, range) => range.start += bytes,
            Self::File(_, range) => range.start += bytes as u64,
        }
    }

    /// The same content for a connection.
    pub(crate) fn part(&self) -> Part<'_> {
        match self {
            Self::Bytes(bytes, range) => Part::Bytes(&bytes[range.clone()]),
            Self::Shared(shared, range) => Part::Bytes(&shared.bytes[range.clone()]),
            Self::File(file, range) => file.part(range),
        }
    }

    fn note_unreadable(&self) {
        if let Self::File(file, _) = self {
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
