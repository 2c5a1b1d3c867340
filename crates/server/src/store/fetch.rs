//! Fetches a response from the origin and stores it, for all requests that wait for it. A task of its own: it goes on when the request that it
//! began for has ended.

mod guard;
mod request;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use http::header::{AGE, DATE};
use http::{HeaderMap, HeaderName};
use sealion_cache::NotStored;
use sealion_http::Status;

use super::disk::{Disk, Times};
use super::fill::{End, Failed, FetchOutcome, Fill, Flowing};
use super::key::add_variant;
use super::object::Object;
use super::replaced::{Superseded, Unstored};
use super::rule::Rules;
use super::slices::{FetchRange, Judgement, SlicePosition, Sliced};
use super::storing::{Storing, Whole};
use super::tail::MAX_UNWRITTEN;
use super::under_way::Fetching;
use super::{KEPT_IN_MEMORY, now_ms, now_s};
use crate::files::resolve::{Content, SiteFile};
use crate::observe::access_log::UpstreamTrace;
use crate::response::{Piece, Source};
use crate::upstream::{Failure, Forwarded, Reply, Upstream, forward, is_hop_by_hop};
use request::for_all_clients;

pub(crate) use guard::bound_fetches;
pub(super) use guard::{FetchPlace, Guard};
pub(super) use request::{FetchRequest, names_user, variant};

/// A response to be fetched.
pub(super) struct Fetch {
    pub(super) rules: Arc<Rules>,
    pub(super) fill: Arc<Fill>,
    /// The key of the request without variant: the response may have another one by No-Vary-Search.
    pub(super) key: Vec<u8>,
    /// The key under which other requests find the fill: with its variant, if known.
    pub(super) found_by: Arc<[u8]>,
    /// The hash of `found_by`.
    pub(super) id: u128,
    /// As [`Rules::page`].
    pub(super) page: u128,
    pub(super) upstream: Arc<Upstream>,
    /// The stored response that is validated by this.
    pub(super) stale: Option<StaleObject>,
    pub(super) request: FetchRequest,
    /// Whether the request that caused it was answered already.
    pub(super) is_behind: bool,
    /// The part of the response to fetch.
    pub(super) range: FetchRange,
}

pub(super) struct StaleObject {
    pub(super) object: Arc<Object>,
    pub(super) may_serve_on_error: bool,
    /// Whether its body can be sent if the origin says that it is valid. Otherwise the response is fetched, and takes its place.
    pub(super) is_readable: bool,
}

impl StaleObject {
    /// An object that the disk does not give.
    pub(super) fn unreadable(object: Arc<Object>) -> Self {
        StaleObject { object, may_serve_on_error: false, is_readable: false }
    }
}

impl Fetch {
    /// Runs to the end of the response to `forwarded`.
    pub(super) fn run(self, forwarded: Forwarded, place: FetchPlace) -> impl Future<Output = ()> + Send + 'static {
        let (store, fill) = (Arc::clone(&self.rules.store), Arc::clone(&self.fill));
        let hashes = (self.id, self.page);
        Guard::run((&store, &fill), hashes, async move {
            let _place = place;
            self.fetch(forwarded).await
        })
    }

    /// `None`: nothing is to be stored.
    async fn fetch(mut self, mut forwarded: Forwarded) -> Option<Whole> {
        // The request that caused it may be HEAD. QUERY has content.
        if forwarded.kept.is_none() {
            forwarded.method = http::Method::GET;
        }
        for_all_clients(forwarded.fields.map_mut());
        let of_whole = match &self.range {
            FetchRange::Whole => None,
            FetchRange::FirstSlice(position) => {
                let whole = forwarded.without_content();
                position.add_range(forwarded.fields.map_mut());
                Some(whole)
            }
            FetchRange::Slice(sliced, index) => {
                sliced.add_range(*index, forwarded.fields.map_mut());
                None
            }
        };
        let validation = self.stale.as_ref().filter(|stale| stale.is_readable).map(|stale| {
            let unconditional = forwarded.without_content();
            forwarded.fields.map_mut().extend(sealion_cache::validation_fields(&stale.object.head.fields));
            (Arc::clone(&stale.object), unconditional)
        });
        let requested = Requested::now();
        let (mut trace, mut result) = forward(&self.upstream, &mut forwarded).await;
        if let Some((stale, mut unconditional)) = validation
            && let Ok(reply) = &result
            && reply.status == Status::NOT_MODIFIED
        {
            if sealion_cache::is_for(&stale.head.fields, &reply.fields) {
                let fields = reply.fields.clone();
                self.validated(&stale, &fields, requested, trace).await;
                return None;
            }
            // It is valid for another response than the stored one.
            (trace, result) = forward(&self.upstream, &mut unconditional).await;
        }
        if let (FetchRange::FirstSlice(position), Ok(reply), Some(mut whole)) = (&self.range, &mut result, of_whole)
            && match position.judge(reply, self.rules.max_object) {
                // The response now ends before the slice that is being validated.
                Judgement::AsItIs => self.stale.is_some() && reply.status == Status::RANGE_NOT_SATISFIABLE,
                // Some fields of a response are not stored. Without them, no field may tell which slices belong together.
                Judgement::Slice if !self.stays_slice(*position, reply) => true,
                // A response that only one request may get goes to its client as the origin sends it.
                Judgement::Slice => self.may_store(&self.request, reply, requested.second, now_s()).is_err(),
                Judgement::Unusable => true,
            }
        {
            self.range = FetchRange::Whole;
            (trace, result) = forward(&self.upstream, &mut whole).await;
        }
        if let (FetchRange::Slice(sliced, index), Ok(reply)) = (&self.range, &result)
            && !sliced.is_answered_by(*index, reply)
        {
            let status = reply.status.code();
            // Other statuses describe the request, or the origin: a client must not remove the stored response of all.
            let tells = matches!(status, 200 | 206 | 404 | 410 | 416);
            let is_withdrawn = self.refuses_slice(reply, requested, now_s());
            if is_withdrawn {
                self.withdraw(requested.at);
            }
            let what = if tells || is_withdrawn {
                self.rules.store.slices_changed(&self.key, sliced).await;
                if sliced.has_validator_of(reply) {
                    self.rules.store.has_no_slices(&self.key);
                }
                "the response has changed since its other slices were fetched".to_owned()
            } else {
                format!("it is {status} instead of a slice")
            };
            self.fill.end(End::Failed(Arc::new(Failed { failure: Failure::Broken(what), trace: Some(trace) })));
            return None;
        }
        let is_error = match &result {
            Ok(reply) => sealion_cache::is_error_for_stale(reply.status.code()),
            Err(_) => true,
        };
        if let Some(stale) = self.stale.as_ref().filter(|stale| is_error && stale.may_serve_on_error) {
            if let Err(failure) = &result {
                let what = format_args!("{}: {failure}; a stale response is sent", trace.server);
                if let Some(line) = self.upstream.line_about(&trace.server, what) {
                    tracing::warn!("{line}");
                }
            }
            let object = Arc::clone(&stale.object);
            self.fill.end(End::Stored { object, outcome: FetchOutcome::StaleOnError, trace: Some(trace) });
            return None;
        }
        let failure = match result {
            Ok(reply) if reply.status == Status::NOT_MODIFIED => {
                Failure::Broken("it is 304 to a request without conditions".to_owned())
            }
            Ok(reply) => return self.answered(reply, trace, requested).await,
            Err(failure) => failure,
        };
        self.fill.end(End::Failed(Arc::new(Failed { failure, trace: Some(trace) })));
        None
    }

    /// The origin says that the stored response is valid.
    async fn validated(
        self,
        stale: &Arc<Object>,
        not_modified: &HeaderMap,
        requested: Requested,
        trace: UpstreamTrace,
    ) {
        let rules = &self.rules;
        let mut fields = stale.head.fields.clone();
        let freshened = sealion_cache::freshen(
            &rules.policy,
            &self.request.to_store(),
            code(stale.head.status, &self.range),
            &mut fields,
            not_modified,
            requested.second,
            now_s(),
        );
        // A client must not remove the stored response of all: a server may renew this client's cookie, for instance.
        let is_of_client = |why: NotStored| why.is_of_request() || why == NotStored::SetCookie;
        let disk = rules.store.disk(stale.hash);
        // With other fields in Vary, or another No-Vary-Search, its variant differs from the variant that requests would find it under.
        let keeps_variant = rules.vary(&fields) == rules.vary(&stale.head.fields)
            && rules.search(&fields) == rules.search(&stale.head.fields);
        // The new response is younger than the response that other requests must not get any more.
        let before = stale.times.made.max(requested.at.saturating_sub(1));
        let lifetime = freshened.unwrap_or(stale.head.lifetime);
        let head = rules.head(&stale.key, stale.head.status, fields, lifetime);
        let is_gone = !keeps_variant || head.is_lost_part() || freshened.is_err_and(|why| !is_of_client(why));
        if is_gone {
            rules.store.supersede(stale, before);
            self.withdraw_unknown(before);
        }
        if head.is_lost_part() {
            let what = "the validation removes the field that tells which slices belong to the response".to_owned();
            let failed = Failed { failure: Failure::Broken(what), trace: Some(trace) };
            return self.fill.end(End::Failed(Arc::new(failed)));
        }
        if let Some(age) = not_modified.get(AGE) {
            let mut own = head.lines.clone();
            own.add_octets("Age", age.as_bytes());
            self.fill.set_own(own);
        }
        let is_stored = freshened.is_ok() && keeps_variant;
        let made = if is_stored { made(requested.at, not_modified) } else { before + 1 };
        let times = Times { made, asked: requested.at };
        let object = Arc::new(stale.with(times, head));
        let outcome = if is_stored { FetchOutcome::Validated } else { FetchOutcome::ValidatedForOne };
        self.fill.end(End::Stored { object: Arc::clone(&object), outcome, trace: Some(trace) });
        if is_stored {
            let (stale, metadata) = (Arc::clone(stale), object.metadata());
            if stale.version().is_none() {
                // Its file may wait to be written: until then, requests find this fill.
                disk.behind_writes(|| ()).await;
            }
            let what = "store the fields of a validation";
            let appended = disk.run(what, move |disk| disk.append(&stale, &metadata, times));
            if let Some(Some(version)) = appended.await {
                object.set_version(version);
            }
            rules.store.changed(object.hash);
        }
    }

    /// The head of the response came.
    async fn answered(mut self, reply: Reply, trace: UpstreamTrace, requested: Requested) -> Option<Whole> {
        let received = now_s();
        let rules = Arc::clone(&self.rules);
        let (lifetime, names) = match self.may_store(&self.request, &reply, requested.second, received) {
            Ok(decision) => decision,
            Err(why) => {
                if self.supersedes(&reply, requested, received) {
                    self.withdraw(requested.at);
                    if let FetchRange::Slice(sliced, _) = &self.range {
                        rules.store.slices_changed(&self.key, sliced).await;
                    }
                }
                self.forget_if_bypassed(requested.at);
                let names_user = self.request.names_user();
                // A slice beyond the end of the response says nothing of the other slices.
                let is_beyond =
                    reply.status == Status::RANGE_NOT_SATISFIABLE && !matches!(self.range, FetchRange::Whole);
                // Anonymous and authenticated requests are remembered apart: a reason that lies in Authorization or a cookie says
                // nothing of anonymous requests.
                if !is_beyond && (!why.is_of_request() || (names_user && why.is_of_user())) {
                    rules.store.is_not_shared(self.id, why.as_str(), names_user);
                }
                self.fill.not_shared(why.as_str(), reply, trace);
                return None;
            }
        };
        let Reply { status, fields, body, .. } = reply;
        let length = match sealion_cache::content_range(&fields) {
            Some((range, _)) if status == Status::PARTIAL_CONTENT => Some(range.end - range.start),
            _ => fields.content_length(),
        };
        let times = Times { made: made(requested.at, &fields), asked: requested.at };
        let storable = sealion_cache::storable_fields(&rules.policy, &fields, received);
        if !matches!(self.range, FetchRange::Slice(..)) {
            self.key = rules.learn_search(&self.key, &storable);
        }
        let mut key = self.key.clone();
        // Slices inherit the first slice's variant.
        let names = if let FetchRange::Slice(..) = self.range { Vec::new() } else { names };
        if !names.is_empty() {
            add_variant(&mut key, &self.request.variant(&names));
        }
        let hash = rules.store.hash(&key);
        let disk = Arc::clone(rules.store.disk(hash));
        // Age, and fields that `no-cache` and `private` name, are only for the request that the origin answered.
        if fields.keys().any(|name| !storable.contains_key(name) && !is_hop_by_hop(name.as_str())) {
            let mut own = fields;
            own.map_mut().insert(DATE, storable[DATE].clone());
            self.fill.set_own(rules.lines(&key, status, &own));
        }
        let head = rules.head(&key, status, storable, lifetime);
        let has_room = disk.may_store(length).await;
        let is_stored = self.is_newest(&key, &names, times.asked) && has_room;
        if disk.hangs() {
            disk.supersede(hash, times.asked);
            // Workers may have the older one in memory.
            rules.store.changed(hash);
        }
        let flowing = Arc::new(Flowing { key: key.into(), head, length, is_stored, trace: Some(trace) });
        rules.store.also_found_by(self.id, hash, &self.fill);
        self.fill.flows(Arc::clone(&flowing));
        let object = self.store_body(&flowing, body.into(), hash, times, &disk).await?;
        let replaced = self.superseded(times);
        Some(Whole { rules, disk, object, times, key: self.key, names, replaced })
    }

    /// Whether no response that was asked for later has withdrawn this one, which gets this key.
    fn is_newest(&self, key: &[u8], names: &[HeaderName], asked: u64) -> bool {
        let store = &self.rules.store;
        let (fill, variant) = (Arc::clone(&self.fill), self.request.variant(names));
        let fetching = Fetching { key: key.into(), names: names.to_vec(), variant, asked, id: self.id, fill };
        let is_newest = store.under_way.flows(self.page, fetching);
        if !is_newest {
            store.hide(self.id, &self.fill);
        }
        is_newest
    }

    /// A disk that hangs may have an older response, which would be found again when it answers.
    fn forget_if_bypassed(&self, asked: u64) {
        let disk = self.rules.store.disk(self.id);
        if disk.hangs() {
            disk.supersede(self.id, asked);
            self.rules.store.changed(self.id);
        }
    }

    /// Whether the stored part of a slice describes the others.
    fn stays_slice(&self, position: SlicePosition, reply: &Reply) -> bool {
        let storable = sealion_cache::storable_fields(&self.rules.policy, &reply.fields, now_s());
        Sliced::of(&storable, position.size).is_some()
    }

    /// Whether the response to `request` may be stored. Returns its lifetime, and the fields that select among the variants of its URL.
    pub(super) fn may_store(
        &self,
        request: &FetchRequest,
        reply: &Reply,
        requested: u64,
        received: u64,
    ) -> Result<(sealion_cache::Lifetime, Vec<HeaderName>), Unstored> {
        self.rules.may_store(&self.range, request, reply, requested, received)
    }

    /// Reads the body, and stores a long one. `None`: it is not stored, and the fill has ended.
    async fn store_body(
        &self,
        flowing: &Arc<Flowing>,
        mut body: Pin<Box<dyn Source>>,
        hash: u128,
        // A purge in the meantime is one of this response.
        times: Times,
        disk: &Arc<Disk>,
    ) -> Option<Arc<Object>> {
        let mut storing = if flowing.is_stored { Storing::InMemory } else { Storing::Failed };
        let (mut size, mut checksum) = (0_u64, 0);
        loop {
            let next = match poll_fn(|cx| Poll::Ready(body.as_mut().poll_piece(cx))).await {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    self.write(&mut storing, 1).await;
                    poll_fn(|cx| body.as_mut().poll_piece(cx)).await
                }
            };
            let piece = match next {
                None => break,
                Some(Ok(Piece::Bytes(piece))) => piece,
                Some(Ok(Piece::File { .. })) => return self.broke_off("the body is a file".to_owned()),
                Some(Err(error)) => return self.broke_off(error.to_string()),
            };
            if piece.is_empty() {
                continue;
            }
            size += piece.len() as u64;
            checksum = crc32c::crc32c_append(checksum, &piece);
            self.fill.push(piece);
            if size > self.rules.max_object || size > disk.index.largest() {
                storing = Storing::Failed;
            }
            if matches!(storing, Storing::InMemory) && size > KEPT_IN_MEMORY {
                storing = Storing::begin(disk, flowing.length).await;
            }
            self.write(&mut storing, WRITTEN_AT_ONCE).await;
            let nobody_reads = match storing {
                Storing::Failed => !self.fill.drain().await,
                _ => !self.rules.finish && !self.is_behind && !self.fill.is_wanted(),
            };
            if nobody_reads {
                return self.broke_off("all clients have left".to_owned());
            }
        }
        if flowing.length.is_some_and(|length| length != size) {
            return self.broke_off("it is not as long as it said".to_owned());
        }
        let new = |body| {
            let object = Object::new(flowing.key.clone(), hash, times, flowing.head.clone(), body, checksum);
            Arc::new(object)
        };
        match storing {
            Storing::Failed => {
                self.not_stored(times);
                self.fill.end(End::Passed(Arc::clone(flowing)));
                None
            }
            Storing::InMemory => {
                let (pieces, _) = self.fill.unwritten();
                let content = SiteFile::of_content(Content::Memory(pieces.concat().into()), size);
                let object = new(content);
                let trace = flowing.trace.clone();
                self.fill.end(End::Stored { object: Arc::clone(&object), outcome: FetchOutcome::Fetched, trace });
                Some(object)
            }
            Storing::InFile(mut in_file) => {
                if !in_file.write_unwritten(&self.fill).await {
                    self.not_stored(times);
                    // It is whole: in the file, and in memory.
                    self.fill.end(End::Passed(Arc::clone(flowing)));
                    return None;
                }
                let object = new(in_file.file.with_len(size)?);
                // Without a version, the body is whole in a file that has no name any more.
                let version = in_file.finish(object.metadata(), hash, times, (size, checksum)).await;
                match version {
                    Some(version) => object.set_version(version),
                    None => {
                        self.not_stored(times);
                        self.rules.store.changed(hash);
                    }
                }
                let trace = flowing.trace.clone();
                self.fill.end(End::Stored { object: Arc::clone(&object), outcome: FetchOutcome::Fetched, trace });
                version.map(|_| object)
            }
        }
    }

    /// The stored response, whose successor came whole.
    fn superseded(&self, times: Times) -> Option<Superseded> {
        let stale = self.stale.as_ref()?;
        Some(Superseded::new(&self.rules.store, &stale.object, times.asked))
    }

    /// A response came whole, and is not stored: it takes the place of older ones all the same.
    fn not_stored(&self, times: Times) {
        drop(self.superseded(times));
        self.withdraw_unknown(times.asked);
    }

    fn broke_off(&self, what: String) -> Option<Arc<Object>> {
        let failure = Failure::Broken(what);
        self.fill.end(End::Failed(Arc::new(Failed { failure, trace: None })));
        None
    }

    /// Writes the unwritten bytes, if there are at least `least`.
    async fn write(&self, storing: &mut Storing, least: usize) {
        let Storing::InFile(in_file) = storing else { return };
        if self.fill.unwritten_octets() >= least.max(1) && !in_file.write_unwritten(&self.fill).await {
            *storing = Storing::Failed;
        }
    }
}

/// When a fetch began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requested {
    /// In the order of fetches and purges, see [`now_ms`].
    pub(super) at: u64,
    /// By the clock: seconds since 1970-01-01.
    pub(super) second: u64,
}

impl Requested {
    pub(super) fn now() -> Self {
        Requested { at: now_ms(), second: now_s() }
    }
}

/// When a response was made, for purges. A cache between here and the origin may have sent a response that it purges a moment later: while a purge is
/// young, Age tells. Later, Age is not looked at, so that a cache that is never purged costs no hits for longer.
fn made(requested: u64, fields: &HeaderMap) -> u64 {
    let age = fields.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok());
    age.map_or(requested, |age| requested.saturating_sub(age.saturating_add(ROUNDED).min(YOUNG) * 1000))
}

/// How many seconds too low Age may be. Each cache counts whole seconds and adds the Age that the cache before it sent, so that the errors add up.
const ROUNDED: u64 = 2;

/// Seconds within which all caches of a chain apply a purge.
const YOUNG: u64 = 60;

/// The status under which a response is stored: a slice is part of a 200.
pub(super) fn code(status: Status, range: &FetchRange) -> u16 {
    match range {
        FetchRange::FirstSlice(_) | FetchRange::Slice(..) if status == Status::PARTIAL_CONTENT => Status::OK.code(),
        _ => status.code(),
    }
}

/// Bytes that are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 18;
const _: () = assert!(WRITTEN_AT_ONCE < MAX_UNWRITTEN);
