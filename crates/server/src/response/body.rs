//! The content of a response.

use std::borrow::Cow;
use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use bytes::Bytes;
use sealion_http::{ContentRange, ContentType, EntityTag, ExtraFields};
use sealion_tls::Pipe;
use tokio::sync::OwnedSemaphorePermit;

use super::cursor::Segment;
use crate::files::resolve::{Content, SiteFile};

/// The content of a response.
#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    /// Bytes in memory.
    Bytes(Cow<'static, [u8]>),
    /// Bytes in memory that other responses send too.
    Shared(Arc<SharedBytes>),
    /// A range of a file, possibly all of it.
    File {
        file: Arc<SiteFile>,
        range: Range<u64>,
    },
    /// Several parts of a file as multipart/byteranges (RFC 9110 §14.6).
    Multipart {
        /// The file that all parts belong to.
        file: Arc<SiteFile>,
        /// The parts, in sending order.
        parts: Vec<Part>,
        /// The closing delimiter.
        closing: Vec<u8>,
    },
    /// Content produced while it is sent.
    Stream(BodyStream),
}

/// Bytes that several responses send, counted against a bound on all such bytes.
#[derive(Debug)]
pub(crate) struct SharedBytes {
    pub bytes: Box<[u8]>,
    /// Their share of the bound.
    pub _room: OwnedSemaphorePermit,
}

/// Content that a [`Source`] produces while it is sent.
pub(crate) struct BodyStream {
    /// Length in bytes, if known in advance. If the source produces more or less, the response is cut short: the connection closes
    /// without close_notify.
    pub length: Option<u64>,
    pub source: Pin<Box<dyn Source>>,
}

/// Produces the content of a [`BodyStream`].
pub(crate) trait Source: Send + Sync {
    /// The next piece; `None` at the end. An error cuts the response short, so that the client can tell it is incomplete.
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>>;

    /// Whether its next content can be moved into a pipe by [`Self::poll_fill_pipe`], and is long enough.
    fn fills_pipes(&self) -> bool {
        false
    }

    /// Moves content into the empty pipe, and returns the number of its bytes. `None`: it has none that can be moved. An error cuts the response short.
    fn poll_fill_pipe(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _pipe: &mut Pipe,
    ) -> Poll<Option<io::Result<usize>>> {
        Poll::Ready(None)
    }

    /// The fields behind the content, once its end has come.
    fn trailers(self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        None
    }

    /// Pieces that it may be asked for before they are sent.
    fn ahead(&self) -> usize {
        4
    }

    /// How many bytes can be sent now. Called before a piece is asked for, if the client says so: content with a share of some resource takes no more of it.
    fn set_room(self: Pin<&mut Self>, _room: u64) {}

    /// Bytes in memory that it keeps until there is room. `None`: it keeps nothing back for that.
    fn held(&self) -> Option<u64> {
        None
    }

    /// `unsent` bytes of the pieces that it gave will not be sent.
    fn take_back(&self, _unsent: u64) {}

    /// The file of the last piece cannot be read.
    fn note_unreadable(&self) {}

    /// Whether another process feeds it.
    fn is_relayed(&self) -> bool {
        false
    }

    /// The socket over which another process feeds it, for yet another one. `None`: it is this process's own.
    fn relay(&self) -> Option<io::Result<OwnedFd>> {
        None
    }
}

/// Bytes of a content that are read only to be discarded.
const MAX_DISCARDED: u64 = 64 << 10;

/// Reads a short content to its end, so that its connection has the next request. The connection of a longer one is closed.
pub(crate) async fn discard(mut source: Pin<Box<dyn Source>>) {
    let mut left = MAX_DISCARDED;
    while let Some(Ok(piece)) = poll_fn(|cx| source.as_mut().poll_piece(cx)).await {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// A piece of a streamed body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file, which must lie within it.
    File { file: Arc<SiteFile>, range: Range<u64> },
}

impl Piece {
    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { range, .. } => range.end - range.start,
        }
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").field("length", &self.length).finish_non_exhaustive()
    }
}

/// One part of a multipart body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Delimiter and fields of the part, including the empty line.
    pub head: Vec<u8>,
    /// The range of the file that follows the head.
    pub range: Range<u64>,
}

impl Body {
    /// A multipart body with `ranges` of `file`, which has `complete` bytes and type `content_type`. The ranges must lie within the
    /// file and must not be empty.
    ///
    /// The boundary is derived from the entity tag: constant for one state of the file, but unpredictable to its author.
    pub(crate) fn multipart(
        file: Arc<SiteFile>,
        ranges: Vec<Range<u64>>,
        complete: u64,
        content_type: ContentType,
        tag: &EntityTag,
    ) -> Self {
        let parts = ranges.into_iter().map(|range| {
            let mut head = Vec::with_capacity(160);
            head.extend_from_slice(b"\r\n--");
            head.extend_from_slice(tag.opaque());
            head.extend_from_slice(b"\r\nContent-Type: ");
            content_type.write(&mut head);
            head.extend_from_slice(b"\r\nContent-Range: ");
            ContentRange::Part { range: range.clone(), complete }.write(&mut head);
            head.extend_from_slice(b"\r\n\r\n");
            Part { head, range }
        });
        Body::Multipart { file, parts: parts.collect(), closing: [b"\r\n--", tag.opaque(), b"--\r\n"].concat() }
    }

    /// The content if it is one segment at most.
    ///
    /// # Errors
    /// It has several segments, or a source.
    #[inline]
    pub(super) fn only_segment(self) -> Result<Option<Segment>, Self> {
        match self {
            Body::Empty => Ok(None),
            Body::Bytes(bytes) => Ok(Some(Segment::of_bytes(bytes))),
            Body::Shared(shared) => Ok(Some(Segment::of_shared(shared))),
            Body::File { file, range } => Ok(Some(Segment::File(file, range))),
            Body::Multipart { .. } | Body::Stream(_) => Err(self),
        }
    }

    /// Gives `each` the content that is ready, in sending order. Returns the source of more.
    pub(super) fn split(self, mut each: impl FnMut(Segment)) -> Option<BodyStream> {
        match self {
            Body::Empty => {}
            Body::Bytes(bytes) => each(Segment::of_bytes(bytes)),
            Body::Shared(shared) => each(Segment::of_shared(shared)),
            Body::File { file, range } => each(Segment::File(file, range)),
            Body::Multipart { file, parts, closing } => {
                for part in parts {
                    each(Segment::of_bytes(part.head.into()));
                    each(Segment::File(Arc::clone(&file), part.range));
                }
                each(Segment::of_bytes(closing.into()));
            }
            Body::Stream(stream) => return Some(stream),
        }
        None
    }

    /// Whether it keeps a file or a connection to a server open.
    pub(crate) fn holds_descriptor(&self) -> bool {
        match self {
            Body::File { file, .. } | Body::Multipart { file, .. } => matches!(file.content, Content::File(_)),
            Body::Stream(_) => true,
            Body::Empty | Body::Bytes(_) | Body::Shared(_) => false,
        }
    }

    /// Length in bytes. `None`: not known in advance.
    pub(crate) fn len(&self) -> Option<u64> {
        Some(match self {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Shared(shared) => shared.bytes.len() as u64,
            Body::File { range, .. } => range.end - range.start,
            Body::Multipart { parts, closing, .. } => {
                let of_part = |part: &Part| part.head.len() as u64 + (part.range.end - part.range.start);
                parts.iter().map(of_part).sum::<u64>() + closing.len() as u64
            }
            Body::Stream(stream) => return stream.length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipart_body_as_in_rfc_9110_section_14_6() {
        let file = SiteFile::of(std::fs::File::open("/dev/null").unwrap());
        let tag = EntityTag::from_fingerprint([0; 8]);
        let body =
            Body::multipart(file, vec![500..1000, 7000..8000], 8000, ContentType::Plain("application/pdf"), &tag);
        let length = body.len().unwrap();
        let Body::Multipart { parts, closing, .. } = body else { panic!() };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let first =
            "\r\n--0000000000000000\r\nContent-Type: application/pdf\r\nContent-Range: bytes 500-999/8000\r\n\r\n";
        let second =
            "\r\n--0000000000000000\r\nContent-Type: application/pdf\r\nContent-Range: bytes 7000-7999/8000\r\n\r\n";
        assert_eq!((text(&parts[0].head).as_str(), parts[0].range.clone()), (first, 500..1000));
        assert_eq!((text(&parts[1].head).as_str(), parts[1].range.clone()), (second, 7000..8000));
        assert_eq!(text(&closing), "\r\n--0000000000000000--\r\n");
        assert_eq!(length, (first.len() + second.len() + closing.len() + 1500) as u64);
    }
}
