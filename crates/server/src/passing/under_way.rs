//! A response under way, as another process sends the rest of it.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sealion_h2::{HeadBuffer, StreamId};
use sealion_http::http1::head::{HeadLimits, RequestHead, find};
use sealion_http::{Coding, Status};
use serde::{Deserialize, Serialize};

use crate::files::resolve::{Content, SiteFile};
use crate::observe::access_log::{CacheOutcome, CacheTrace, UpstreamTrace};
use crate::path::policy::PathReason;
use crate::response::{self, Cursor};

/// Descriptors of files that a connection takes along, at most. The kernel passes 253 in a message (SCM_MAX_FD).
pub(crate) const MOST_FILES: usize = 128;

/// A response of HTTP/1.1 whose rest is known.
#[derive(Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The head of its request, as it came.
    pub(crate) request: Vec<u8>,
    /// Whether the next request follows on the connection.
    pub(crate) persists: bool,
    pub(crate) line: Line,
    /// The rest, in sending order.
    pub(crate) rest: Vec<Segment>,
    #[serde(skip)]
    pub(crate) files: Files,
}

/// The responses of a connection of HTTP/2, whose rests are known.
#[derive(Serialize, Deserialize)]
pub(crate) struct Streams {
    /// Frames that are made and not sent.
    pub(crate) frames: Vec<Segment>,
    /// Bytes at their beginning that are the rest of a frame.
    pub(crate) begun: usize,
    /// Whether frames before them were sent in one response of the connection.
    pub(crate) is_responding: bool,
    /// Bytes of responses whose path has not been chosen.
    pub(crate) upcoming: u64,
    pub(crate) responses: Vec<StreamUnderWay>,
    #[serde(skip)]
    pub(crate) files: Files,
}

/// The response on a stream.
#[derive(Serialize, Deserialize)]
pub(crate) struct StreamUnderWay {
    pub(crate) stream: StreamId,
    /// The head of its request, if the access log needs it.
    pub(crate) request: Option<Box<HeadBuffer>>,
    pub(crate) line: Line,
    /// The frame with END_STREAM is made, and it is among the frames that are not sent.
    pub(crate) ended: bool,
    pub(crate) filled: bool,
    /// The content that is in no frame, in sending order.
    pub(crate) rest: Vec<Segment>,
}

/// A part of the rest.
#[derive(Serialize, Deserialize)]
pub(crate) enum Segment {
    Bytes(Vec<u8>),
    /// A range of one of the [`Files`].
    File {
        number: usize,
        range: Range<u64>,
    },
}

/// Files whose descriptors travel beside the bytes.
#[derive(Default)]
pub(crate) struct Files(Vec<Arc<File>>);

/// The response's part of the line in the access log. The process that ends the response writes the line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Since the end of the request's head. `None`: there is no line.
    pub(crate) took: Option<Duration>,
    pub(crate) status: u16,
    pub(crate) encoding: Option<Coding>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) cache: Option<Cache>,
    pub(crate) is_unlogged: bool,
    /// The number of the route that answered, and its name.
    pub(crate) route: Option<(u32, Box<str>)>,
    /// By [`PathReason::label`].
    pub(crate) reason: Option<Box<str>>,
    pub(crate) set_up: Option<Duration>,
    /// HTTP/1.1: response bytes that the connection had sent before it, and bytes of its head. HTTP/2: bytes of its content and of its frames so far.
    pub(crate) counts: (u64, u64),
}

/// An [`UpstreamTrace`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Upstream {
    server: Box<str>,
    tries: u32,
    took: Duration,
    status: Option<u16>,
}

/// A [`CacheTrace`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// By [`CacheOutcome::label`].
    outcome: Box<str>,
    reason: Option<Box<str>>,
    age: Option<u64>,
}

impl Files {
    pub(super) fn new(files: impl Iterator<Item = OwnedFd>) -> Self {
        Files(files.map(|file| Arc::new(File::from(file))).collect())
    }

    pub(super) fn all(&self) -> &[Arc<File>] {
        &self.0
    }

    /// A range of `file`, as it goes along.
    pub(crate) fn pack(&mut self, file: &SiteFile, range: &Range<u64>) -> Segment {
        let file = match &file.content {
            Content::File(file) => file,
            Content::Memory(bytes) => return Segment::Bytes(bytes[range.start as usize..range.end as usize].to_vec()),
        };
        let known = self.0.iter().position(|known| Arc::ptr_eq(known, file));
        let number = known.unwrap_or_else(|| {
            self.0.push(Arc::clone(file));
            self.0.len() - 1
        });
        Segment::File { number, range: range.clone() }
    }

    /// A part of a response, as it goes along.
    pub(crate) fn pack_segment(&mut self, segment: &response::Segment) -> Segment {
        match segment {
            response::Segment::Bytes(bytes, range) => Segment::Bytes(bytes[range.clone()].to_vec()),
            response::Segment::Shared(shared, range) => Segment::Bytes(shared.bytes[range.clone()].to_vec()),
            response::Segment::File(file, range) => self.pack(file, range),
        }
    }

    /// A file that came along, up to the end of the part that is sent.
    pub(crate) fn unpack(&self, number: usize, end: u64) -> Arc<SiteFile> {
        SiteFile::of_content(Content::File(Arc::clone(&self.0[number])), end)
    }

    /// Content that came along.
    pub(crate) fn unpack_content(&self, rest: Vec<Segment>) -> Cursor {
        Cursor::of_segments(rest.into_iter().map(|segment| match segment {
            Segment::Bytes(bytes) => response::Segment::of_bytes(bytes.into()),
            Segment::File { number, range } => response::Segment::File(self.unpack(number, range.end), range),
        }))
    }

    /// Whether all files of some content came along.
    fn has_all(&self, rest: &[Segment]) -> bool {
        rest.iter().all(|segment| match segment {
            Segment::Bytes(_) => true,
            Segment::File { number, range } => *number < self.0.len() && range.start <= range.end,
        })
    }
}

impl UnderWay {
    /// The head in [`Self::request`]. `None`: the bytes are no head.
    pub(crate) fn head_of(request: &[u8]) -> Option<RequestHead<'_>> {
        let length = request.len();
        let limits = HeadLimits { request_line: length, head: length, fields: HeadLimits::MAX_FIELDS };
        let span = find(request, &limits).ok().flatten()?;
        RequestHead::parse(request, span).ok()
    }

    /// Whether it is whole: an offer may have come from another version.
    pub(super) fn is_sound(&self) -> bool {
        self.line.is_sound() && Self::head_of(&self.request).is_some() && self.files.has_all(&self.rest)
    }
}

impl Streams {
    /// Whether it is whole, and `rest` has its streams.
    pub(super) fn is_sound(&self, rest: &sealion_h2::Rest) -> bool {
        let is_sound = |response: &StreamUnderWay| response.line.is_sound() && self.files.has_all(&response.rest);
        rest.has_streams(self.responses.iter().map(|response| response.stream).collect())
            && self.files.has_all(&self.frames)
            && self.responses.iter().all(is_sound)
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("responses", &self.responses.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for UnderWay {
    /// Without the head of the request and the content, which are not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("persists", &self.persists).field("line", &self.line).finish_non_exhaustive()
    }
}

impl Line {
    fn is_sound(&self) -> bool {
        Status::new(self.status).is_some()
    }

    /// Why the response has its path.
    pub(crate) fn path_reason(&self) -> Option<PathReason> {
        let label = self.reason.as_deref()?;
        PathReason::ALL.iter().copied().find(|reason| reason.label() == label)
    }
}

impl Upstream {
    pub(crate) fn of(UpstreamTrace { server, tries, took, status }: &UpstreamTrace) -> Self {
        Upstream { server: (**server).into(), tries: *tries, took: *took, status: *status }
    }

    pub(crate) fn trace(self) -> UpstreamTrace {
        let Upstream { server, tries, took, status } = self;
        UpstreamTrace { server: server.into(), tries, took, status }
    }
}

impl Cache {
    pub(crate) fn of(CacheTrace { outcome, reason, age }: CacheTrace) -> Self {
        Cache { outcome: outcome.label().into(), reason: reason.map(Into::into), age }
    }

    /// `None`: this version does not know the outcome.
    pub(crate) fn trace(self) -> Option<CacheTrace> {
        let outcome = CacheOutcome::ALL.iter().copied().find(|outcome| *outcome.label() == *self.outcome)?;
        Some(CacheTrace { outcome, reason: self.reason.as_deref().map(word), age: self.age })
    }
}

/// A reason of the cache for as long as the process lives. They are few, and each is kept once.
fn word(text: &str) -> &'static str {
    static WORDS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    match words.get(text) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(text.into());
            words.insert(new);
            new
        }
    }
}
