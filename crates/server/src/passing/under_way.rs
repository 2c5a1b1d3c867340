//! A response under way, as another process sends the rest of it.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sealion_h2::{HeadBuffer, Progress, StreamId};
use sealion_http::http1::body::BodyDrain;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{HeadLimits, RequestHead, find};
use sealion_http::{ContentEncoding, Status};
use serde::{Deserialize, Serialize};

use super::clock::SharedInstant;
use super::relay::{Ends, Link};
use crate::files::resolve::{Content, SiteFile};
use crate::observe::access_log::{CacheOutcome, CacheTrace, UpstreamTrace};
use crate::path::policy::PathReason;
use crate::response::{self, Cursor};
use crate::values::Mutex;

/// Descriptors of files that a connection takes along, at most. The kernel passes 253 in a message (SCM_MAX_FD).
pub(crate) const MOST_FILES: usize = 128;

/// A response of HTTP/1.1 that is being sent, or is awaited.
#[derive(Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The head of its request, as it came.
    pub(crate) request: Vec<u8>,
    /// Whether the next request follows on the connection.
    pub(crate) persists: bool,
    pub(crate) line: Line,
    /// The rest as far as it is known, in sending order.
    pub(crate) rest: Vec<Segment>,
    /// The other process has more. `None`: the rest is known.
    pub(crate) relayed: Option<Relayed>,
    #[serde(skip)]
    pub(crate) files: Files,
}

/// An exchange that another process feeds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Relayed {
    /// The place of the relay's socket among the [`Files`].
    pub(crate) number: usize,
    pub(crate) stage: Stage,
    /// The content of the request, if more of it is passed on.
    pub(crate) content: Option<ContentUnderWay>,
}

/// The part of a response that another process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// All of it.
    Awaited,
    /// Content: so many bytes, if the length is known.
    Content { framing: ResponseFraming, left: Option<u64> },
}

/// The content of a request on its way to an upstream, which another process has.
#[derive(Serialize, Deserialize)]
pub(crate) struct ContentUnderWay {
    pub(crate) form: ContentForm,
    /// The client waits for 100.
    pub(crate) expects_continue: bool,
    /// All of it was read.
    pub(crate) is_complete: bool,
    /// Bytes that may go to the process with the upstream before it grants more. Below 0: the last piece was longer.
    pub(crate) room: i64,
    /// Since when the upstream waits for the client, if it does.
    pub(crate) owed_since: Option<SharedInstant>,
    /// Bytes that were read and not passed on.
    pub(crate) waiting: Vec<u8>,
    /// The parts that follow them.
    pub(crate) end: ContentEnd,
}

/// The framing of a request's content.
#[derive(Serialize, Deserialize)]
pub(crate) enum ContentForm {
    /// HTTP/1.1: with the lines of its trailers so far.
    Content(BodyDrain, Vec<u8>),
    /// Another protocol's, once the upstream agrees.
    Tunnel { is_open: bool },
    /// HTTP/2 has frames.
    Frames,
}

/// How the content of a request goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ContentEnd {
    /// More comes.
    Open,
    /// It has ended, with these lines of trailers.
    Complete(Vec<u8>),
    /// It broke off. The client is told this status.
    Failed(u16),
}

impl fmt::Debug for ContentUnderWay {
    /// Without the content, which is not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentUnderWay").field("end", &self.end).finish_non_exhaustive()
    }
}

/// The responses of a connection of HTTP/2.
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
    /// The head of its request, if the response is awaited or the access log needs it.
    pub(crate) request: Option<Box<HeadBuffer>>,
    pub(crate) line: Line,
    /// The frame with END_STREAM is made, and it is among the frames that are not sent.
    pub(crate) ended: bool,
    pub(crate) filled: bool,
    pub(crate) ends: Ends,
    /// The content that is in no frame, in sending order.
    pub(crate) rest: Vec<Segment>,
    /// The lines of the trailers that follow.
    pub(crate) trailers: Option<Vec<u8>>,
    /// The client opens no window: what was sent by then, and when it has to have opened one.
    pub(crate) stall: Option<(Progress, SharedInstant)>,
    /// The other process has more. `None`: the rest is known.
    pub(crate) relayed: Option<Relayed>,
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

/// Files whose descriptors travel beside the bytes. `None`: the socket of a relay, which was taken.
#[derive(Default)]
pub(crate) struct Files(Vec<Option<Arc<File>>>);

/// The response's part of the line in the access log. The process that ends the response writes the line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The name of its site.
    pub(crate) site: Option<Box<str>>,
    /// When the request's head had come. `None`: there is no line.
    pub(crate) began: Option<SharedInstant>,
    pub(crate) status: u16,
    pub(crate) encoding: Option<ContentEncoding>,
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
        Files(files.map(|file| Some(Arc::new(File::from(file)))).collect())
    }

    /// Adds the socket of a relay. Returns its place.
    pub(crate) fn push_relay(&mut self, end: OwnedFd) -> usize {
        self.0.push(Some(Arc::new(File::from(end))));
        self.0.len() - 1
    }

    /// Takes the socket of a relay that came along.
    ///
    /// # Errors
    /// It is no socket, or it was taken.
    pub(crate) fn take_relay(&mut self, number: usize) -> io::Result<Link> {
        let file = self.0.get_mut(number).and_then(Option::take).ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::try_unwrap(file).or_else(|shared| shared.try_clone())?;
        Link::new(file.into())
    }

    pub(super) fn all(&self) -> Vec<Arc<File>> {
        self.0.iter().flatten().cloned().collect()
    }

    /// A range of `file`, as it goes along.
    pub(crate) fn pack(&mut self, file: &SiteFile, range: &Range<u64>) -> Segment {
        let file = match &file.content {
            Content::File(file) => file,
            Content::Memory(bytes) => return Segment::Bytes(bytes[range.start as usize..range.end as usize].to_vec()),
        };
        let known = self.0.iter().position(|known| known.as_ref().is_some_and(|known| Arc::ptr_eq(known, file)));
        let number = known.unwrap_or_else(|| {
            self.0.push(Some(Arc::clone(file)));
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
        let Some(file) = &self.0[number] else { unreachable!("an offer whose content is in a relay is refused") };
        SiteFile::of_content(Content::File(Arc::clone(file)), end)
    }

    /// Content that came along.
    pub(crate) fn unpack_content(&self, rest: Vec<Segment>) -> Cursor {
        Cursor::of_segments(rest.into_iter().map(|segment| match segment {
            Segment::Bytes(bytes) => response::Segment::of_bytes(bytes.into()),
            Segment::File { number, range } => response::Segment::File(self.unpack(number, range.end), range),
        }))
    }

    /// Whether the socket of a relay came along.
    fn has_relay(&self, relayed: &Relayed) -> bool {
        relayed.number < self.0.len()
    }

    /// Whether all files of some content came along, and are files: no range may name the socket of a relay.
    fn has_all(&self, rest: &[Segment], relays: &[usize]) -> bool {
        rest.iter().all(|segment| match segment {
            Segment::Bytes(_) => true,
            Segment::File { number, range } => {
                *number < self.0.len() && !relays.contains(number) && range.start <= range.end
            }
        })
    }
}

impl Segment {
    fn len(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::File { range, .. } => range.end.saturating_sub(range.start),
        }
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
        let relays: Vec<_> = self.relayed.iter().map(|relayed| relayed.number).collect();
        self.line.is_sound()
            && Self::head_of(&self.request).is_some()
            && self.files.has_all(&self.rest, &relays)
            && self.relayed.as_ref().is_none_or(|relayed| self.files.has_relay(relayed))
    }
}

impl Streams {
    /// Whether it is whole, and `rest` has its streams.
    pub(super) fn is_sound(&self, rest: &sealion_h2::Rest) -> bool {
        let relays: Vec<_> =
            self.responses.iter().filter_map(|response| Some(response.relayed.as_ref()?.number)).collect();
        let is_sound = |response: &StreamUnderWay| {
            response.line.is_sound()
                && self.files.has_all(&response.rest, &relays)
                && response.relayed.as_ref().is_none_or(|relayed| {
                    self.files.has_relay(relayed) && (relayed.stage != Stage::Awaited || response.request.is_some())
                })
        };
        let made: u64 = self.frames.iter().map(Segment::len).sum();
        self.begun as u64 <= made
            && rest.has_streams(self.responses.iter().map(|response| response.stream).collect())
            && self.files.has_all(&self.frames, &relays)
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
    let mut words = WORDS.lock();
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
