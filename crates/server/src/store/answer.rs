//! The way of a request through the cache.
//!
//! ```text
//! other methods ─► forwarded; an answer without error invalidates
//! GET, HEAD, QUERY ─► lookup ─┬─ fresh ─────────────────────────► sent
//!                             ├─ stale while revalidated ───────► sent; fetched again behind it
//!                             ├─ stale ─► validated at the origin ─► sent, or the new response, or the old one if the origin fails
//!                             └─ nothing ─► fetched once for all that wait ─► sent as it comes
//! ```

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use sealion_cache::{Assessment, CacheStatus, Forward, Lifetime, Precondition, RequestDirectives};
use sealion_http::{Method, Request, Status};
use tokio::time::timeout;

use super::coded::Coded;
use super::fetch::{Fetch, FetchPlace, FetchRequest, StaleObject, names_user, variant};
use super::fill::{End, Failed, FetchOutcome, Fill, Flowing, Joined, Phase};
use super::front::HitLines;
use super::key::{Key, add_variant};
use super::lookup::Found;
use super::now_s;
use super::object::{Head, Object, Stored};
use super::purge::{Target, Verdict};
use super::readable::is_at_hand;
use super::replaced::Passing;
use super::respond::{Origin, Reuse};
use super::rule::{CacheRule, HIDES_FIELDS, Targeted};
use super::slices::{FetchRange, SlicePosition, Sliced, Slices};
use crate::observe::access_log::{CacheOutcome, CacheTrace, UpstreamTrace};
use crate::response::{Body, Response};
use crate::upstream::{Failure, Forwarded, Reply, Upstream};

/// A request, as the cache looks it up.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) request: &'a Request<'a>,
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    /// Whether the request came from a trusted proxy.
    pub(crate) is_trusted: bool,
    pub(crate) target: Targeted<'a>,
    /// Whether its route compresses responses of applications.
    pub(crate) is_compressed: bool,
}

/// How the cache treated a request.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and a box would be one for each request that passes")]
pub(crate) enum Answered {
    /// A response with its fields.
    Response(Box<Response>, Option<UpstreamTrace>),
    /// A response of the origin that is not stored.
    Reply(Reply, UpstreamTrace, CacheTrace),
    /// The fetch failed.
    Failed(Arc<Failed>),
    /// The request is forwarded without the cache. `Passing` then applies the reply to the stored response.
    Pass(Forwarded, CacheTrace, Option<Box<Passing>>),
}

/// A request, and the way on to the origin.
#[derive(Clone, Copy)]
struct Way<'a> {
    request: &'a Request<'a>,
    directives: RequestDirectives,
    forwarded: &'a Forwarded,
    upstream: &'a Arc<Upstream>,
    /// As in [`Question`].
    is_compressed: bool,
}

/// The key under which requests find a fill.
struct FoundBy<'k> {
    key: &'k [u8],
    /// The key of the request, without variant.
    exact: &'k [u8],
}

/// Why a request cannot have the response of another request's fetch.
enum Unshared {
    /// It is of another variant, for one request only, or not there any more.
    OfAnother,
    /// It is to be validated for each request.
    NotReusable,
    /// No response came.
    Failed,
    /// The stored response is valid, and its body cannot be read.
    Unreadable,
}

impl CacheRule {
    /// The response from the worker's memory, without waiting. `None`: [`Self::answer`] has to. `now`: seconds since 1970-01-01.
    pub(crate) fn answer_at_once(&self, question: Question<'_>, now: u64) -> Option<Response> {
        let Question { request, scheme, is_trusted, target, is_compressed } = question;
        // One look at the fields for features that few requests use. Upgrade counts only where Connection names it (RFC 9110 §7.8).
        let [connection, directives @ ..] = request.fields.first_of(["connection", "cache-control", "pragma"]);
        if self.bypass(request, target, connection.is_some()).is_some() || self.query(target.query).is_some() {
            return None;
        }
        let store = &self.rules.store;
        let mut front = store.front().borrow_mut();
        let mut key = std::mem::take(&mut front.key);
        self.key(key.begin(self.rules.number), request, scheme, is_trusted, target);
        self.rules.look_by_search(&mut key);
        let found = store.walk_kept(&mut front, &mut key, &mut false, request, now);
        front.key = key;
        drop(front);
        let (object, lines) = found?;
        if !object.is_checked() {
            return None;
        }
        let directives = match directives {
            [None, None] => RequestDirectives::default(),
            _ => self.directives(request),
        };
        let is_simple = object.head.sliced.is_none() && !must_forward(request, &object);
        if object.head.lifetime.assess(&directives, now) != Assessment::Fresh || !is_simple {
            return None;
        }
        let (is_first, keeps_lines) = (matches!(lines, HitLines::First), matches!(lines, HitLines::Again));
        let mut response = self.hit(&object, lines, request, now);
        if is_compressed {
            self.may_be_coded(&object, &mut response);
        }
        if is_first && !is_at_hand(&response) {
            return None;
        }
        if keeps_lines && response.status == object.head.status {
            let mut front = store.front().borrow_mut();
            let key = std::mem::take(&mut front.key);
            front.keep_lines(key.in_front(), &mut response.fields.extra);
            front.key = key;
        }
        Some(response)
    }

    /// Answers a request for no other protocol, without content or with the content of QUERY. `forwarded`: the same for the origin.
    pub(crate) async fn answer(
        &self,
        question: Question<'_>,
        forwarded: Forwarded,
        upstream: &Arc<Upstream>,
    ) -> Answered {
        let Question { request, scheme, is_trusted, target, is_compressed } = question;
        if let Some(reason) = self.bypass(request, target, true) {
            let passing = match reason {
                HIDES_FIELDS => self.passing_without_fields(question).await,
                _ => None,
            };
            return Answered::Pass(forwarded, CacheTrace::bypass(reason), passing);
        }
        if !self.rules.store.has_disk() {
            return match self.directives(request).only_if_cached {
                true => self.only_if_cached(),
                false => Answered::Pass(forwarded, CacheTrace::bypass("no-disk"), None),
            };
        }
        let mut key = Key::default();
        self.key(key.begin(self.rules.number), request, scheme, is_trusted, target);
        let exact = key.in_store().to_vec();
        let directives = self.directives(request);
        let store = &self.rules.store;
        // Their response is about the state of the origin, which a shared response does not tell (RFC 9111 §4.3.2).
        let asks_for_state =
            request.conditions.if_match.is_present() || request.conditions.if_unmodified_since.is_present();
        // Whether the request shares no fetch: a response that each request has to validate is not shared on its way either.
        let mut is_alone = false;
        // Whether a stored response may be validated: its body can be read, as far as is known.
        let mut can_validate = true;
        // Whether the lookup is repeated if a fetch has ended meanwhile.
        let mut looks_again = true;
        // The same before a fetch that no other request shares: its response may replace a stored one.
        let mut looks_for_stale = true;
        let pass = |key: &[u8], of_url, old| Passing::new(&self.rules, old, key, of_url, request, directives);
        // Each turn meets a fill that turns out to be of another variant, or for another request.
        for turn in 0..MOST_TURNS {
            key.replace(&exact);
            self.rules.look_by_search(&mut key);
            let of_url = key.in_store().len();
            let now = now_s();
            let Found { object: found, unreadable, has_variants, looked } =
                store.find(self, &mut key, request, now).await;
            let assessment = found.as_ref().map(|object| object.head.lifetime.assess(&directives, now));
            let (stale, why) = match (found, assessment) {
                (Some(object), _) if must_forward(request, &object) => {
                    let passing = pass(key.in_store(), of_url, Some(object));
                    return Answered::Pass(forwarded, CacheTrace::bypass("precondition"), Some(passing));
                }
                (Some(object), Some(Assessment::Fresh)) => {
                    let way = Way { request, directives, forwarded: &forwarded, upstream, is_compressed };
                    let answered = self.stored(&object, way, now, CacheOutcome::Hit, hit(&object, now));
                    if store.can_read(&object, &answered).await {
                        return answered;
                    }
                    (Some(StaleObject::unreadable(object)), Forward::UriMiss)
                }
                (found, _) if asks_for_state && !directives.only_if_cached => {
                    let passing = pass(key.in_store(), of_url, found.or(unreadable));
                    return Answered::Pass(forwarded, CacheTrace::bypass("precondition"), Some(passing));
                }
                (Some(object), Some(Assessment::StaleWhileRevalidate)) => {
                    let way = Way { request, directives, forwarded: &forwarded, upstream, is_compressed };
                    let answered = self.stored(&object, way, now, CacheOutcome::Stale, hit(&object, now));
                    if store.can_read(&object, &answered).await {
                        self.fetch_behind(object, FoundBy { key: key.in_store(), exact: &exact }, way);
                        return answered;
                    }
                    (Some(StaleObject::unreadable(object)), Forward::Stale)
                }
                (Some(object), Some(Assessment::Stale { may_serve_on_error })) => {
                    let why = if object.head.lifetime.expires() > now { Forward::Request } else { Forward::Stale };
                    (Some(StaleObject { object, may_serve_on_error, is_readable: can_validate }), why)
                }
                (Some(object), _) => {
                    let why = if object.head.lifetime.expires() > now { Forward::Request } else { Forward::Stale };
                    (Some(StaleObject { object, may_serve_on_error: false, is_readable: can_validate }), why)
                }
                (None, _) => {
                    let why = if has_variants { Forward::VaryMiss } else { Forward::UriMiss };
                    (unreadable.map(StaleObject::unreadable), why)
                }
            };
            if directives.only_if_cached {
                return self.only_if_cached();
            }
            let key = key.in_store();
            let id = store.hash(key);
            let stale = stale.or_else(|| {
                // Its file is being written, and the index does not have it yet: the response to this request may take its place.
                let Some(Stored::Object(object)) = store.being_written(id, key, &self.rules) else { return None };
                let assessment = object.head.lifetime.assess(&directives, now);
                let may_serve_on_error = matches!(assessment, Assessment::Stale { may_serve_on_error: true });
                (store.verdict(&object) == Verdict::Valid).then_some(StaleObject {
                    object,
                    may_serve_on_error,
                    is_readable: true,
                })
            });
            let has_changed = || looked.is_some_and(|looked| looked != store.epoch(id));
            if stale.is_none() && has_changed() && std::mem::take(&mut looks_for_stale) {
                // The file of one got its place since the look at the index.
                continue;
            }
            if let Some(old) = &stale
                && let Some(Stored::Object(newer)) = store.being_written(id, key, &self.rules)
                && newer.times.asked >= old.object.times.asked
                && !Arc::ptr_eq(&newer, &old.object)
            {
                // It was validated or fetched just now, and its file is being written.
                let epoch = store.epoch(id);
                if store.verdict(&newer) == Verdict::Valid {
                    store.keep(self, &newer, epoch, now);
                    continue;
                }
            }
            let reason = match () {
                // HEAD has no body to store, and fetching one would cost more than the request asks for.
                () if request.method == Method::Head => Some("head"),
                () if directives.no_store => Some("request-no-store"),
                () if stale.is_none() && self.min_uses > 1 && store.asked_for(id) < self.min_uses => Some("min-uses"),
                () if turn + 1 == MOST_TURNS => Some("contended"),
                () => None,
            };
            let joined = match reason {
                Some(reason) => Err(reason),
                None if is_alone => Ok(Joined::alone(key, self.rules.number)),
                None => {
                    let looked = looked.filter(|_| looks_again);
                    Ok(store.join(id, key, self.rules.number, names_user(request), looked))
                }
            };
            let (fill, place) = match joined {
                Ok(Joined::Shared(fill)) => (fill, None),
                Ok(Joined::New(fill, place)) => (fill, Some(place)),
                Ok(Joined::Ended) => {
                    looks_again = false;
                    continue;
                }
                refused @ (Ok(Joined::Full) | Err(_)) => {
                    let trace = CacheTrace::new(CacheOutcome::Miss, Some(refused.err().unwrap_or("no-descriptor")));
                    let passing = pass(key, of_url, stale.map(|stale| stale.object));
                    return Answered::Pass(forwarded, trace, Some(passing));
                }
            };
            let is_new = place.is_some();
            let _interest = fill.interest();
            let way = Way { request, directives, forwarded: &forwarded, upstream, is_compressed };
            if let Some(place) = place {
                self.fetch((&fill, place), FoundBy { key, exact: &exact }, way, stale, false);
            }
            match self.wait(&fill, is_new, &exact, way, why).await {
                Ok(answered) => return answered,
                Err(Unshared::OfAnother) => {}
                Err(Unshared::NotReusable | Unshared::Failed) => is_alone = true,
                Err(Unshared::Unreadable) => (is_alone, can_validate) = (true, false),
            }
        }
        let passing = pass(&exact, exact.len(), None);
        Answered::Pass(forwarded, CacheTrace::new(CacheOutcome::Miss, Some("contended")), Some(passing))
    }

    /// The origin does not get all fields of this request, so its response may be of another variant than the fields select.
    async fn passing_without_fields(&self, question: Question<'_>) -> Option<Box<Passing>> {
        let store = &self.rules.store;
        if !store.has_disk() {
            return None;
        }
        let directives = self.directives(question.request);
        let sent = FetchRequest::of(question.request, directives);
        let request = &Request { fields: sent.fields(), ..question.request.clone() };
        let mut key = Key::default();
        self.key(key.begin(self.rules.number), request, question.scheme, question.is_trusted, question.target);
        self.rules.look_by_search(&mut key);
        let of_url = key.in_store().len();
        let Found { object, unreadable, .. } = store.find(self, &mut key, request, now_s()).await;
        Some(Passing::new(&self.rules, object.or(unreadable), key.in_store(), of_url, request, directives))
    }

    /// The response by a fill. `exact`: the key of the request, without variant.
    async fn wait(
        &self,
        fill: &Arc<Fill>,
        is_new: bool,
        exact: &[u8],
        way: Way<'_>,
        why: Forward,
    ) -> Result<Answered, Unshared> {
        let Way { request, directives, .. } = way;
        let store = &self.rules.store;
        let status = |status, stored| CacheStatus::Forwarded { why, status, stored, collapsed: !is_new, detail: None };
        // Requests that share a response must be allowed to reuse it (RFC 9111 §4), and it may turn out to be of another variant.
        let check = |filled: &[u8], head: &Head, is_failure: bool| {
            if is_new {
                return Ok(());
            }
            let names = self.rules.vary(&head.fields).unwrap_or_default();
            let mut own = self.rules.key_of(exact, &head.fields).into_owned();
            if !names.is_empty() {
                add_variant(&mut own, &variant(&names, request.fields));
            }
            match head.lifetime.assess(&directives, now_s()) {
                _ if own != filled => Err(Unshared::OfAnother),
                Assessment::Fresh | Assessment::StaleWhileRevalidate => Ok(()),
                Assessment::Stale { may_serve_on_error: true } if is_failure => Ok(()),
                _ => Err(Unshared::NotReusable),
            }
        };
        let origin = |result: FetchOutcome| match result {
            FetchOutcome::Fetched | FetchOutcome::Validated | FetchOutcome::ValidatedForOne if is_new => {
                Origin::Answered(fill.own())
            }
            _ => Origin::Reused,
        };
        match fill.answered().await {
            Phase::Requested => Err(Unshared::OfAnother),
            Phase::Flowing(flowing) | Phase::Ended(End::Passed(flowing)) => {
                check(&flowing.key, &flowing.head, false)?;
                let status = status(None, flowing.is_stored);
                let reuse = self.reuse(request, now_s(), outcome(why), collapsed(is_new), status);
                let reuse = Reuse { origin: origin(FetchOutcome::Fetched), ..reuse };
                let Flowing { head, key, .. } = &*flowing;
                let response = match self.slices(key, head, None, way) {
                    Some(slices) => reuse.sliced(head, slices, Some(fill)),
                    None => reuse.flowing(&flowing, fill),
                };
                let response = response.ok_or(Unshared::OfAnother)?;
                Ok(Answered::Response(Box::new(response), flowing.trace.clone().filter(|_| is_new)))
            }
            Phase::Ended(End::Stored { object, outcome: result, trace }) => {
                check(&object.key, &object.head, result == FetchOutcome::StaleOnError)?;
                if result == FetchOutcome::ValidatedForOne && !is_new {
                    return Err(Unshared::OfAnother);
                }
                let now = now_s();
                let epoch = store.epoch(object.hash);
                match store.verdict(&object) {
                    Verdict::Valid if result == FetchOutcome::ValidatedForOne => {}
                    Verdict::Valid => store.keep(self, &object, epoch, now),
                    // It was purged while it was validated.
                    Verdict::Gone if result != FetchOutcome::Fetched => return Err(Unshared::OfAnother),
                    // It was purged while it was fetched: it answers only the requests that waited.
                    Verdict::Gone | Verdict::Stale | Verdict::Doubtful => {}
                }
                let (outcome, reason, code) = match result {
                    FetchOutcome::Fetched => (outcome(why), collapsed(is_new), None),
                    FetchOutcome::Validated | FetchOutcome::ValidatedForOne => {
                        (CacheOutcome::Revalidated, collapsed(is_new), Some(304))
                    }
                    FetchOutcome::StaleOnError => (CacheOutcome::Stale, Some("error"), None),
                };
                let is_stored = matches!(result, FetchOutcome::Fetched | FetchOutcome::Validated);
                let reuse = self.reuse(request, now, outcome, reason, status(code, is_stored));
                let reuse = Reuse { origin: origin(result), ..reuse };
                let response = match self.slices(&object.key, &object.head, Some(&object), way) {
                    Some(slices) => reuse.sliced(&object.head, slices, None).ok_or(Unshared::OfAnother)?,
                    None => {
                        let mut response = reuse.object(&object);
                        if way.is_compressed {
                            self.may_be_coded(&object, &mut response);
                        }
                        response
                    }
                };
                let is_validated = matches!(result, FetchOutcome::Validated | FetchOutcome::ValidatedForOne);
                let answered = Answered::Response(Box::new(response), trace.filter(|_| is_new));
                match !is_validated || store.can_read(&object, &answered).await {
                    true => Ok(answered),
                    false => Err(Unshared::Unreadable),
                }
            }
            Phase::Ended(End::NotShared(reason)) => {
                let reply = if is_new { fill.take_reply() } else { None };
                let (reply, trace) = reply.ok_or(Unshared::OfAnother)?;
                Ok(Answered::Reply(reply, trace, CacheTrace::new(CacheOutcome::Miss, Some(reason))))
            }
            // The reason may be the request that was sent: the others ask for themselves, unless that would take as long again.
            Phase::Ended(End::Failed(failed)) if !is_new && !matches!(failed.failure, Failure::Timeout(_)) => {
                Err(Unshared::Failed)
            }
            Phase::Ended(End::Failed(failed)) => Ok(Answered::Failed(failed)),
        }
    }

    /// The response with a stored object, of whose slices some may have to be fetched.
    fn stored(
        &self,
        object: &Arc<Object>,
        way: Way<'_>,
        now: u64,
        outcome: CacheOutcome,
        status: CacheStatus,
    ) -> Answered {
        let Some(slices) = self.slices(&object.key, &object.head, Some(object), way) else {
            let mut response = self.reuse(way.request, now, outcome, None, status).object(object);
            if way.is_compressed {
                self.may_be_coded(object, &mut response);
            }
            return self.sent(response);
        };
        let (outcome, reason, status) = match () {
            () if slices.has_all(way.request) => (outcome, None, status),
            () if way.directives.only_if_cached => return self.only_if_cached(),
            () => {
                let why = Forward::Partial;
                let status = CacheStatus::Forwarded { why, status: None, stored: true, collapsed: false, detail: None };
                (CacheOutcome::Miss, Some(why.as_str()), status)
            }
        };
        let response = self.reuse(way.request, now, outcome, reason, status).sliced(&object.head, slices, None);
        self.sent(response.unwrap_or_else(|| Response::plain(Status::BAD_GATEWAY)))
    }

    /// The means to find and fetch the slices of a response. `None`: the response is whole. `key`: the key of the slice that has this head.
    fn slices(&self, key: &[u8], head: &Head, first: Option<&Arc<Object>>, way: Way<'_>) -> Option<Slices> {
        let sliced = Arc::clone(head.sliced.as_ref()?);
        Some(Slices {
            rules: Arc::clone(&self.rules),
            upstream: Arc::clone(way.upstream),
            forwarded: way.forwarded.without_content(),
            request: FetchRequest::of(way.request, way.directives),
            key: key.into(),
            sliced,
            tags: head.tags.clone(),
            groups: head.groups.clone(),
            first: first.cloned(),
        })
    }

    fn only_if_cached(&self) -> Answered {
        let response = Response::plain(Status::GATEWAY_TIMEOUT);
        let trace = CacheTrace::new(CacheOutcome::Miss, Some("only-if-cached"));
        self.sent(Response { cache: Some(trace), ..response })
    }

    /// Lets a whole response be sent in a coded form.
    fn may_be_coded(&self, object: &Arc<Object>, response: &mut Response) {
        if response.status == Status::OK && matches!(response.body, Body::File { .. }) {
            response.coded = Some(Box::new(Coded { rules: Arc::clone(&self.rules), object: Arc::clone(object) }));
        }
    }

    #[inline]
    fn hit(&self, object: &Arc<Object>, lines: HitLines, request: &Request<'_>, now: u64) -> Response {
        let mut reuse = self.reuse(request, now, CacheOutcome::Hit, None, hit(object, now));
        if let HitLines::Kept(lines) = lines {
            reuse.lines = Some(lines);
        }
        reuse.object(object)
    }

    fn reuse<'a>(
        &self,
        request: &'a Request<'a>,
        now: u64,
        outcome: CacheOutcome,
        reason: Option<&'static str>,
        status: CacheStatus,
    ) -> Reuse<'a> {
        let status = self.status_header.then_some(status);
        Reuse { request, now, trace: CacheTrace::new(outcome, reason), status, origin: Origin::Reused, lines: None }
    }

    fn sent(&self, response: Response) -> Answered {
        Answered::Response(Box::new(response), None)
    }

    fn directives(&self, request: &Request<'_>) -> RequestDirectives {
        if self.ignore_request {
            return RequestDirectives::default();
        }
        RequestDirectives::parse(request.fields.all("cache-control"), request.fields.all("pragma"))
    }

    /// Has a fetch begun.
    fn fetch(
        &self,
        (fill, place): (&Arc<Fill>, FetchPlace),
        FoundBy { key, exact }: FoundBy<'_>,
        way: Way<'_>,
        stale: Option<StaleObject>,
        is_behind: bool,
    ) {
        let Way { request, directives, forwarded, upstream, .. } = way;
        let id = self.rules.store.hash(key);
        // A slice of another size, stored before the rule changed, cannot validate a slice of the current size.
        let stale =
            stale.filter(|stale| stale.object.head.sliced.as_ref().is_none_or(|own| own.is_of(self.rules.slice)));
        let validated = stale.as_ref().filter(|stale| stale.is_readable);
        let range = self.range(id, validated.and_then(|stale| stale.object.head.sliced.as_deref()), request);
        let fetch = Fetch {
            rules: Arc::clone(&self.rules),
            fill: Arc::clone(fill),
            found_by: key.into(),
            id,
            page: self.rules.page(exact),
            key: exact.to_vec(),
            upstream: Arc::clone(upstream),
            stale,
            request: FetchRequest::of(request, directives),
            is_behind,
            range,
        };
        tokio::spawn(fetch.run(forwarded.without_content(), place));
    }

    /// Has a stored response that is being sent validated behind the request, unless that is under way.
    fn fetch_behind(&self, object: Arc<Object>, found_by: FoundBy<'_>, way: Way<'_>) {
        let (store, names_user) = (&self.rules.store, names_user(way.request));
        let key = found_by.key;
        if let Joined::New(fill, place) = store.join(store.hash(key), key, self.rules.number, names_user, None) {
            let stale = StaleObject { object, may_serve_on_error: true, is_readable: true };
            self.fetch((&fill, place), found_by, way, Some(stale), true);
        }
    }

    /// The range that a fetch requests. `stale`: the slice that it validates.
    fn range(&self, id: u128, stale: Option<&Sliced>, request: &Request<'_>) -> FetchRange {
        match (self.rules.slice, stale) {
            (None, _) => FetchRange::Whole,
            // Range is defined for GET alone (RFC 9110 §14.2).
            _ if !matches!(request.method, Method::Get | Method::Head) => FetchRange::Whole,
            (Some(size), Some(stale)) => FetchRange::FirstSlice(SlicePosition { size, index: stale.index() }),
            // A slice of a response that is not stored would be fetched for nothing.
            (Some(_), None) if self.rules.store.is_passed(id, names_user(request)) => FetchRange::Whole,
            (Some(size), None) => FetchRange::FirstSlice(SlicePosition::of(&request.conditions, size)),
        }
    }

    /// Invalidates the stored responses that a request with an unsafe method affects (RFC 9111 §4.4, RFC 9875 §3).
    pub(crate) async fn invalidate(&self, question: Question<'_>, status: Status, fields: &HeaderMap) {
        let Question { request, scheme, target, .. } = question;
        if !self.invalidates {
            return;
        }
        let authority = request.authority.unwrap_or_default();
        let own = match target.query {
            Some(query) => format!("{}?{query}", target.path),
            None => target.path.to_owned(),
        };
        let targets = sealion_cache::invalidated(request.method, status.code(), &own, authority, fields);
        let targets: Vec<_> = targets.iter().map(|target| self.as_in_key(target)).collect();
        // A response that another rule stored by No-Vary-Search answers other queries too.
        let by_search = targets.iter().map(|target| format!("{}?", target.split('?').next().unwrap_or_default()));
        let targets: BTreeSet<_> = by_search.chain(targets.iter().cloned()).collect();
        let groups = sealion_cache::invalidated_groups(request.method, status.code(), fields);
        let origin = format!("{scheme}://{}", authority.to_ascii_lowercase());
        let urls = targets.into_iter().map(|target| Target::Invalidated(format!("{origin}{target}")));
        let groups = groups.into_iter().map(|group| Target::Group(origin.clone(), group));
        let all: Vec<_> = urls.chain(groups).collect();
        if all.is_empty() {
            return;
        }
        let (store, upstream) = (Arc::clone(&self.rules.store), target.upstream.to_owned());
        // Each purge has its line before the client learns of it: it may be stored under another spelling, and a killed server writes nothing. From here on,
        // all purges hold in memory, whatever the disks do, and even if the client leaves.
        let written: Vec<_> = all.into_iter().map(|target| store.invalidate(target, &upstream)).collect();
        let written = tokio::spawn(async move {
            for written in written {
                if let Err(error) = written.await {
                    // The log says it once for each directory, and for the process that took over.
                    tracing::debug!("cache: cannot write down an invalidation: {error}");
                }
            }
        });
        // A disk that is slow or hangs writes it later.
        let _ = timeout(SOON, written).await;
    }

    /// Purges the URL of a request, with all its variants.
    pub(crate) async fn purge(&self, question: Question<'_>) -> io::Result<()> {
        let mut key = Vec::new();
        self.key(&mut key, question.request, question.scheme, question.is_trusted, question.target);
        let url = String::from_utf8_lossy(super::key::url_of(&key)).into_owned();
        self.rules.store.purge_by_request(Target::Url(url)).await
    }
}

/// Whether the origin has to evaluate the preconditions of a request (RFC 9111 §4.3.2).
fn must_forward(request: &Request<'_>, object: &Object) -> bool {
    sealion_cache::evaluate(&request.conditions, &object.head.fields) == Precondition::Failed
}

fn hit(object: &Object, now: u64) -> CacheStatus {
    CacheStatus::Hit { ttl: ttl(&object.head.lifetime, now) }
}

fn ttl(lifetime: &Lifetime, now: u64) -> i64 {
    i64::try_from(lifetime.expires()).unwrap_or(i64::MAX).saturating_sub(i64::try_from(now).unwrap_or(i64::MAX))
}

fn outcome(why: Forward) -> CacheOutcome {
    match why {
        Forward::Stale | Forward::Request => CacheOutcome::Expired,
        _ => CacheOutcome::Miss,
    }
}

fn collapsed(is_new: bool) -> Option<&'static str> {
    (!is_new).then_some(CacheTrace::COLLAPSED)
}

const MOST_TURNS: usize = 5;

/// Longest delay of the response to an invalidating request, until the purge is written.
const SOON: Duration = Duration::from_secs(1);
