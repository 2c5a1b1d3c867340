//! A response under way, as another process sends the rest of it.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sealion_http::http1::head::{HeadLimits, HeadSpan, RequestHead, find};
use sealion_http::{Coding, Status};
use serde::{Deserialize, Serialize};

use crate::observe::access_log::{CacheOutcome, CacheTrace, UpstreamTrace};
use crate::path::policy::PathReason;

/// Descriptors of files that one response takes along, at most.
pub(super) const MOST_FILES: usize = 8;

/// A response whose rest is known: bytes in memory, and ranges of files.
#[derive(Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The head of its request, as it came.
    pub(crate) request: Vec<u8>,
    /// Whether the next request follows on the connection.
    pub(crate) persists: bool,
    pub(crate) line: Line,
    /// The rest, in sending order.
    pub(crate) rest: Vec<Segment>,
    /// The files of the rest. Their descriptors travel beside the bytes.
    #[serde(skip)]
    pub(crate) files: Vec<Arc<File>>,
}

/// A part of the rest.
#[derive(Serialize, Deserialize)]
pub(crate) enum Segment {
    Bytes(Vec<u8>),
    /// A range of [`UnderWay::files`].
    File {
        number: usize,
        range: Range<u64>,
    },
}

/// What the line in the access log has about the response, beside its request. The process that ends the response writes the line.
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
    /// Response bytes that the connection had sent before it.
    pub(crate) before: u64,
    /// Bytes of its head.
    pub(crate) overhead: u64,
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

impl UnderWay {
    /// Adds bytes to the rest.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.rest.push(Segment::Bytes(bytes.to_vec()));
        }
    }

    /// Adds a range of a file to the rest.
    pub(crate) fn push_file(&mut self, file: &Arc<File>, range: Range<u64>) {
        let known = self.files.iter().position(|known| Arc::ptr_eq(known, file));
        let number = known.unwrap_or_else(|| {
            self.files.push(Arc::clone(file));
            self.files.len() - 1
        });
        self.rest.push(Segment::File { number, range });
    }

    /// The head of its request. `None`: it is no head.
    pub(crate) fn request_span(&self) -> Option<HeadSpan> {
        let length = self.request.len();
        let limits = HeadLimits { request_line: length, head: length, fields: HeadLimits::MAX_FIELDS };
        let span = find(&self.request, &limits).ok().flatten()?;
        RequestHead::parse(&self.request, span).is_ok().then_some(span)
    }

    /// Whether it is whole: an offer may have come from another version.
    pub(super) fn is_sound(&self) -> bool {
        let has_file = |segment: &Segment| match segment {
            Segment::Bytes(_) => true,
            Segment::File { number, range } => *number < self.files.len() && range.start <= range.end,
        };
        Status::new(self.line.status).is_some() && self.request_span().is_some() && self.rest.iter().all(has_file)
    }
}

impl fmt::Debug for UnderWay {
    /// Without the head of the request and the content, which are not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("persists", &self.persists).field("line", &self.line).finish_non_exhaustive()
    }
}

impl Line {
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
