//! Large responses in slices: bytes `n * size` up to `(n + 1) * size` are a stored response of their own, which the origin sent as 206.
//!
//! ```text
//! key of the URL, with its variant ─► the slice that was fetched first; its head and its lifetime are the whole response's
//! the same, and slice n of V       ─► slice n of the representation with the validator V
//! ```
//!
//! The strong validator is a part of the key, so that slices of two representations never meet in one response. If the origin has a new representation by
//! now, the response ends as an incomplete one, and the old slices are removed.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use sealion_http::range::{self, Selection};
use sealion_http::request::Conditions;
use sealion_http::{Method, Request, Status};

use super::fetch::{Fetch, FetchPlace, FetchRequest};
use super::fill::{End, Fill, Joined, Phase};
use super::format::{Kind, Metadata};
use super::key::{Key, add_slice, without_slice, without_variant};
use super::object::{Head, Object, Stored};
use super::purge::Verdict;
use super::rule::Rules;
use super::{Store, now_s};
use crate::files::resolve::Wait;
use crate::response::{Piece, Source};
use crate::upstream::{Failure, Forwarded, Reply, Upstream};
use crate::values::Mutex;

/// The range of a fetch: a whole response, or a slice of it.
#[derive(Debug, Clone)]
pub(super) enum FetchRange {
    Whole,
    /// A slice of a response that is not known yet.
    FirstSlice(SlicePosition),
    /// A slice of a known representation.
    Slice(Arc<Sliced>, u64),
}

/// A slice by its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlicePosition {
    pub(super) size: u64,
    pub(super) index: u64,
}

/// A representation that is stored in slices, described by one of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sliced {
    size: u64,
    /// Bytes of the whole.
    complete: u64,
    validator: HeaderValue,
    /// The slice that describes it.
    index: u64,
}

/// The kind of the response to the first request for a slice.
pub(super) enum Judgement {
    /// The response is used as it is.
    AsItIs,
    /// A slice of a larger response.
    Slice,
    /// The whole has to be fetched in one.
    Unusable,
}

impl SlicePosition {
    /// The slice where the range of a request begins; the first slice if that is not known yet.
    pub(super) fn of(conditions: &Conditions<'_>, size: u64) -> Self {
        // If-Range may have the whole sent.
        let range = conditions.range.value().filter(|_| !conditions.if_range.is_present());
        let begin = range.and_then(|value| match range::select(value, u64::MAX, 1) {
            Selection::One(range) => Some(range.start),
            _ => None,
        });
        // A suffix is counted from the end.
        let is_suffix = range.is_some_and(|value| value.split(|octet| *octet == b'=').nth(1).is_some_and(is_suffix));
        SlicePosition { size, index: begin.filter(|_| !is_suffix).map_or(0, |begin| begin / size) }
    }

    fn range(self) -> Range<u64> {
        let start = self.index.saturating_mul(self.size);
        start..start.saturating_add(self.size)
    }

    /// Asks for the slice.
    pub(super) fn add_range(self, fields: &mut HeaderMap) {
        fields.insert(RANGE, range_field(self.range()));
    }

    /// Classifies a response. A 206 with the whole becomes a 200. `most`: bytes of the largest response that is stored.
    pub(super) fn judge(self, reply: &mut Reply, most: u64) -> Judgement {
        match reply.status {
            Status::PARTIAL_CONTENT => {}
            // An empty response has no part.
            Status::RANGE_NOT_SATISFIABLE if self.index == 0 => return Judgement::Unusable,
            _ => return Judgement::AsItIs,
        }
        match sealion_cache::content_range(&reply.fields) {
            Some((range, complete)) if range == (0..complete) => {
                reply.status = Status::OK;
                reply.fields.map_mut().remove(CONTENT_RANGE);
                // A response that is shorter than it says is incomplete.
                reply.fields.map_mut().insert(CONTENT_LENGTH, complete.into());
                Judgement::AsItIs
            }
            Some((_, complete))
                if complete <= most
                    && Sliced::of(&reply.fields, self.size).is_some_and(|own| own.index == self.index) =>
            {
                Judgement::Slice
            }
            _ => Judgement::Unusable,
        }
    }
}

fn is_suffix(ranges: &[u8]) -> bool {
    ranges.trim_ascii_start().first() == Some(&b'-')
}

fn range_field(Range { start, end }: Range<u64>) -> HeaderValue {
    HeaderValue::try_from(format!("bytes={start}-{}", end - 1)).expect("digits are visible ASCII")
}

impl Sliced {
    /// By the fields of a 206. `None`: it is no slice of this size, or nothing tells which others belong to it.
    pub(super) fn of(fields: &HeaderMap, size: u64) -> Option<Self> {
        let (range, complete) = sealion_cache::content_range(fields)?;
        let validator = sealion_cache::strong_validator(fields)?.clone();
        let sliced = Sliced { size, complete, validator, index: range.start / size };
        (sliced.range(sliced.index) == range).then_some(sliced)
    }

    /// The bytes of a slice.
    fn range(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.size);
        start..start.saturating_add(self.size).min(self.complete)
    }

    fn count(&self) -> u64 {
        self.complete.div_ceil(self.size)
    }

    /// Bytes of the whole.
    pub(super) fn complete(&self) -> u64 {
        self.complete
    }

    /// Whether a rule has slices of this size.
    pub(super) fn is_of(&self, size: Option<u64>) -> bool {
        size == Some(self.size)
    }

    /// The slice that describes the others.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Whether the slice with this head is this slice of the same representation.
    fn has(&self, index: u64, head: &Head) -> bool {
        head.sliced.as_deref().is_some_and(|other| other.index == index && self.is_of_same(other))
    }

    /// Whether a response is of the same representation.
    pub(super) fn has_validator_of(&self, reply: &Reply) -> bool {
        sealion_cache::strong_validator(&reply.fields) == Some(&self.validator)
    }

    /// Whether another slice is of the same representation.
    pub(super) fn is_of_same(&self, other: &Sliced) -> bool {
        (self.size, self.complete, &self.validator) == (other.size, other.complete, &other.validator)
    }

    /// Whether the slice that has these metadata is of the same representation.
    fn is_told_by(&self, metadata: &Metadata) -> bool {
        let Kind::Response { status: 206, fields, .. } = &metadata.kind else { return false };
        let pairs =
            fields.iter().filter_map(|(name, value)| Some((name.parse().ok()?, HeaderValue::from_bytes(value).ok()?)));
        Sliced::of(&pairs.collect(), self.size).is_some_and(|other| self.is_of_same(&other))
    }

    /// The key of a slice, except the first. `of_whole`: the key of the first.
    fn key(&self, of_whole: &[u8], index: u64) -> Vec<u8> {
        let Sliced { size, complete, validator, .. } = self;
        let mut key = of_whole.to_vec();
        add_slice(&mut key, format!("{size}/{complete}/{index}/").as_bytes(), validator.as_bytes());
        key
    }

    /// Asks for a slice of this representation.
    pub(super) fn add_range(&self, index: u64, fields: &mut HeaderMap) {
        fields.insert(RANGE, range_field(self.range(index)));
        fields.insert(IF_RANGE, self.validator.clone());
    }

    /// Whether the response is the slice that was asked for.
    pub(super) fn is_answered_by(&self, index: u64, reply: &Reply) -> bool {
        let other = Sliced::of(&reply.fields, self.size).filter(|_| reply.status == Status::PARTIAL_CONTENT);
        other.is_some_and(|other| other.index == index && self.is_of_same(&other))
    }
}

/// The means to find and fetch the slices of a response.
pub(super) struct Slices {
    pub(super) rules: Arc<Rules>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) forwarded: Forwarded,
    pub(super) request: FetchRequest,
    /// The key of the slice that describes the others.
    pub(super) key: Box<[u8]>,
    pub(super) sliced: Arc<Sliced>,
    /// Tags and groups of that slice: a purge of one covers all slices.
    pub(super) tags: Box<[Box<str>]>,
    pub(super) groups: Box<[Box<str>]>,
    /// The describing slice, if it is stored.
    pub(super) first: Option<Arc<Object>>,
}

impl Slices {
    /// Whether all slices that a request asks for seem to be stored: the first of them are looked for. A worker does nothing else meanwhile.
    pub(super) fn has_all(&self, request: &Request<'_>) -> bool {
        if request.method == Method::Head {
            return true;
        }
        let Sliced { complete, size, index: own, .. } = *self.sliced;
        let range = match request.conditions.range.value().map(|value| range::select(value, complete, 1)) {
            Some(Selection::One(range)) => range,
            Some(Selection::Unsatisfiable) => return true,
            _ => 0..complete,
        };
        let store = &self.rules.store;
        let wanted = range.start / size..range.end.div_ceil(size);
        wanted.take(MOST_LOOKED_FOR).all(|index| {
            if index == own && self.first.is_some() {
                return true;
            }
            let hash = store.hash(&self.sliced.key(&self.key, index));
            store.disk(hash).may_have(hash)
        })
    }

    /// Reads a range of the whole. `fill`: brings the slice that describes the others. `None`: it is gone.
    pub(super) fn read(self: Arc<Self>, range: Range<u64>, fill: Option<&Arc<Fill>>) -> Option<Reader> {
        let Range { start, end } = self.sliced.range(self.sliced.index);
        let state = match fill.filter(|_| (start..end).contains(&range.start)) {
            Some(fill) => {
                let reader = fill.read(range.start - start, Some(range.end.min(end) - start))?;
                State::Reading(Open::Source(Box::pin(reader)))
            }
            None => State::Between,
        };
        Some(Reader { slices: self, at: range.start, end: range.end, state })
    }

    /// Finds or fetches a slice. `within`: the bytes of it that are to be read.
    async fn open(self: Arc<Self>, index: u64, within: Range<u64>) -> io::Result<Open> {
        if let Some(first) = self.first.as_ref().filter(|_| index == self.sliced.index) {
            return Ok(Open::Object(Arc::clone(first)));
        }
        let store = &self.rules.store;
        if index == self.sliced.index
            && let Some(object) = self.find(index, &self.key).await
        {
            return Ok(Open::Object(object));
        }
        let key = self.sliced.key(&self.key, index);
        let id = store.hash(&key);
        let mut is_alone = false;
        // Whether it looks once more where a fetch has ended meanwhile.
        let mut looks_again = true;
        for _ in 0..MOST_TURNS {
            let looked = store.epoch(id);
            if let Some(object) = self.find(index, &key).await {
                return Ok(Open::Object(object));
            }
            let joined = match is_alone {
                true => Joined::alone(&key, self.rules.number),
                false => {
                    let looked = looks_again.then_some(looked);
                    store.join(id, &key, self.rules.number, self.request.names_user(), looked)
                }
            };
            let (fill, place) = match joined {
                Joined::Shared(fill) => (fill, None),
                Joined::New(fill, place) => (fill, Some(place)),
                Joined::Ended | Joined::Full => {
                    looks_again = false;
                    continue;
                }
            };
            let _interest = fill.interest();
            let is_new = place.is_some();
            if let Some(place) = place {
                self.fetch(&fill, index, &key, id, place);
            }
            match fill.answered().await {
                Phase::Flowing(_) | Phase::Ended(End::Passed(_)) => {
                    if let Some(reader) = fill.read(within.start, Some(within.end)) {
                        return Ok(Open::Source(Box::pin(reader)));
                    }
                }
                Phase::Ended(End::Stored { object, .. }) => return Ok(Open::Object(object)),
                Phase::Ended(End::NotShared(_)) => {
                    if let Some((reply, _)) = fill.take_reply().filter(|_| is_new) {
                        let source = reply.body.into();
                        return Ok(Open::Source(Box::pin(Within {
                            source,
                            skip: within.start,
                            left: within.end - within.start,
                        })));
                    }
                }
                Phase::Ended(End::Failed(failed)) if is_new || matches!(failed.failure, Failure::Timeout(_)) => {
                    return Err(io::Error::other(format!("slice {index}: {}", failed.failure)));
                }
                Phase::Requested | Phase::Ended(End::Failed(_)) => {}
            }
            is_alone = true;
        }
        Err(io::Error::other(format!("slice {index}: other requests for it keep failing")))
    }

    /// A stored slice.
    async fn find(&self, index: u64, key: &[u8]) -> Option<Arc<Object>> {
        let (store, now) = (&self.rules.store, now_s());
        let mut in_front = Key::default();
        in_front.begin(self.rules.number).extend_from_slice(key);
        let kept = store.find_kept(&mut store.front().borrow_mut(), in_front.in_front(), now);
        let stored = match kept {
            Some((stored, _)) => stored,
            None => store.load(&self.rules, &in_front, now).await?,
        };
        let Stored::Object(object) = stored else { return None };
        let range = self.sliced.range(index);
        let fits = self.sliced.has(index, &object.head) && object.body.len == range.end - range.start;
        if !fits {
            return None;
        }
        if !store.is_sound(&object).await {
            store.front().borrow_mut().remove(in_front.in_front());
            return None;
        }
        // A slice that a purge made stale is as valid as the describing slice, which was validated since.
        match store.purges().verdict(&object.key, &self.tags, &self.groups, object.times.made) {
            Verdict::Gone => None,
            Verdict::Stale | Verdict::Doubtful | Verdict::Valid => Some(object),
        }
    }

    fn fetch(&self, fill: &Arc<Fill>, index: u64, key: &[u8], id: u128, place: FetchPlace) {
        let fetch = Fetch {
            rules: Arc::clone(&self.rules),
            fill: Arc::clone(fill),
            found_by: key.into(),
            id,
            page: id,
            key: key.to_vec(),
            upstream: Arc::clone(&self.upstream),
            stale: None,
            request: self.request.clone(),
            is_behind: false,
            range: FetchRange::Slice(Arc::clone(&self.sliced), index),
        };
        tokio::spawn(fetch.run(self.forwarded.without_content(), place));
    }
}

impl Store {
    /// The origin has another representation than this one: removes its stored slices. May block.
    pub(super) fn remove_sliced(&self, of_whole: &[u8], sliced: &Sliced) {
        for index in 0..sliced.count() {
            let hash = self.hash(&sliced.key(of_whole, index));
            if self.disk(hash).may_have(hash) {
                self.disk(hash).remove(hash);
                self.changed(hash);
            }
        }
    }

    /// Removes the slices of a response that a newer response has replaced. May block.
    pub(super) fn remove_replaced(&self, old: &Object, new: &Head) {
        if let Some(sliced) = &old.head.sliced
            && !new.sliced.as_ref().is_some_and(|new| new.is_of_same(sliced))
        {
            self.remove_sliced(&old.key, sliced);
        }
    }

    /// The origin answered the request for a slice with the same representation in another form. For a while no fetch asks for slices, so that the
    /// next request gets the response. `key`: the key of the slice.
    pub(super) fn has_no_slices(&self, key: &[u8]) {
        let of_whole = without_slice(key);
        for id in [of_whole, without_variant(of_whole).unwrap_or(of_whole)].map(|key| self.hash(key)) {
            for names_user in [false, true] {
                self.is_not_shared(id, NO_SLICES, names_user);
            }
        }
    }

    /// A requested slice is gone: removes the others, and also the slice that describes them unless it was replaced. `key`: the key of the requested
    /// slice.
    pub(super) async fn slices_changed(self: &Arc<Self>, key: &[u8], sliced: &Arc<Sliced>) {
        let (store, sliced, of_whole) = (Arc::clone(self), Arc::clone(sliced), without_slice(key).to_vec());
        let disk = Arc::clone(self.disk(self.hash(&of_whole)));
        let removal = move || {
            let hash = store.hash(&of_whole);
            let disk = store.disk(hash);
            disk.count_changed();
            let first = disk.open_object(hash, &of_whole, Wait::Yes).ok().flatten();
            if first.is_some_and(|first| sliced.is_told_by(&first.metadata)) {
                disk.remove(hash);
                store.changed(hash);
            }
            store.remove_sliced(&of_whole, &sliced);
        };
        // The slice that describes them may wait to be written: it would be back.
        disk.behind_writes(removal).await;
    }
}

/// Slices that are looked for before a response begins.
const MOST_LOOKED_FOR: usize = 64;

/// In the log, why a response was not stored.
const NO_SLICES: &str = "no-slices";

/// Reads a range of a response that is stored in slices.
pub(super) struct Reader {
    slices: Arc<Slices>,
    at: u64,
    end: u64,
    state: State,
}

enum State {
    /// The next byte is the first one of its slice that is read.
    Between,
    // `Source` is Sync, which futures need not be.
    Opening(Mutex<Opening>),
    Reading(Open),
}

type Opening = Pin<Box<dyn Future<Output = io::Result<Open>> + Send>>;

/// A slice that can be read.
enum Open {
    Object(Arc<Object>),
    /// The bytes of it that are to be read.
    Source(Pin<Box<dyn Source>>),
}

impl Source for Reader {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        loop {
            if this.at >= this.end {
                return Poll::Ready(None);
            }
            let index = this.at / this.slices.sliced.size;
            let Range { start, end } = this.slices.sliced.range(index);
            let until = this.end.min(end);
            match &mut this.state {
                State::Between => {
                    let opening = Arc::clone(&this.slices).open(index, this.at - start..until - start);
                    this.state = State::Opening(Mutex::new(Box::pin(opening)));
                }
                State::Opening(opening) => {
                    let opening = opening.get_mut();
                    match ready!(opening.as_mut().poll(cx)) {
                        Ok(open) => this.state = State::Reading(open),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                State::Reading(Open::Object(object)) => {
                    let piece = Piece::File { file: Arc::clone(&object.body), range: this.at - start..until - start };
                    this.at = until;
                    this.state = State::Between;
                    return Poll::Ready(Some(Ok(piece)));
                }
                State::Reading(Open::Source(source)) => {
                    let Some(piece) = ready!(source.as_mut().poll_piece(cx)) else {
                        let what = format!("slice {index} is shorter than it said");
                        return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))));
                    };
                    if let Ok(piece) = &piece {
                        this.at += piece.len();
                        if this.at >= until {
                            this.state = State::Between;
                        }
                    }
                    return Poll::Ready(Some(piece));
                }
            }
        }
    }
}

/// A part of the content of a response.
struct Within {
    source: Pin<Box<dyn Source>>,
    skip: u64,
    left: u64,
}

impl Source for Within {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        while self.left > 0 {
            let Some(piece) = ready!(self.source.as_mut().poll_piece(cx)) else { return Poll::Ready(None) };
            let Piece::Bytes(mut bytes) = piece? else {
                return Poll::Ready(Some(Err(io::Error::other("the response of a server is not a file"))));
            };
            let skipped = self.skip.min(bytes.len() as u64);
            self.skip -= skipped;
            let _ = bytes.split_to(skipped as usize);
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= bytes.len() as u64;
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Piece::Bytes(bytes))));
            }
        }
        Poll::Ready(None)
    }
}

const MOST_TURNS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_slice_is_one_of_its_size_with_a_strong_validator() {
        for (range, tag, expected) in [
            ("bytes 0-9/25", "\"a\"", Some(0)),
            ("bytes 10-19/25", "\"a\"", Some(1)),
            ("bytes 20-24/25", "\"a\"", Some(2)),
            ("bytes 0-9/25", "W/\"a\"", None),
            // Of another size, or shorter than the requested range.
            ("bytes 0-4/25", "\"a\"", None),
            ("bytes 0-19/25", "\"a\"", None),
            ("bytes 5-14/25", "\"a\"", None),
            ("bytes 0-9/*", "\"a\"", None),
        ] {
            let sliced = Sliced::of(&fields(&[("content-range", range), ("etag", tag)]), 10);
            assert_eq!(sliced.map(|sliced| sliced.index), expected, "{range} {tag}");
        }
    }

    #[test]
    fn the_first_request_is_for_the_slice_in_which_the_range_begins() {
        for (range, if_range, expected) in [
            (None, None, 0),
            (Some("bytes=0-5"), None, 0),
            (Some("bytes=19-40"), None, 1),
            (Some("bytes=20-"), None, 2),
            (Some("bytes=20-"), Some("\"a\""), 0),
            (Some("bytes=-5"), None, 0),
            (Some("bytes= -5"), None, 0),
            (Some("bytes=20-21,40-41"), None, 0),
            (Some("bytes=5-2"), None, 0),
            (Some("bytes=18446744073709551614-"), None, u64::MAX / 10),
        ] {
            let mut conditions = Conditions::default();
            for (name, value) in [("range", range), ("if-range", if_range)] {
                if let Some(value) = value {
                    conditions.add(name, value.as_bytes());
                }
            }
            assert_eq!(SlicePosition::of(&conditions, 10).index, expected, "{range:?} {if_range:?}");
        }
    }

    #[test]
    fn slices_of_two_representations_have_other_keys() {
        let of = |range, tag| Sliced::of(&fields(&[("content-range", range), ("etag", tag)]), 10).unwrap();
        let base = b"https://example.org/a\n@=app".as_slice();
        let key = of("bytes 0-9/25", "\"a\"").key(base, 1);
        assert_eq!(without_slice(&key), base);
        assert_eq!(super::super::key::url_of(&key), b"https://example.org/a");
        assert_eq!(key, of("bytes 10-19/25", "\"a\"").key(base, 1));
        for other in [of("bytes 0-9/25", "\"b\""), of("bytes 0-9/26", "\"a\"")] {
            assert_ne!(key, other.key(base, 1));
        }
        assert_ne!(key, of("bytes 0-9/25", "\"a\"").key(base, 2));
    }
}
