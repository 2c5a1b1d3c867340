//! Stored responses that a newer response takes the place of, although that one is not stored (RFC 9111 §4.3.3).
//!
//! The stored response is purged by its key: neither the workers' memory, nor another process, nor a file that is written late brings it back.

use std::sync::Arc;

use http::HeaderName;
use http::header::TRANSFER_ENCODING;
use sealion_cache::{Lifetime, NotStored, RequestDirectives};
use sealion_http::{Method, Request, Status};

use super::fetch::{Fetch, FetchRequest, Requested, code};
use super::fill::Fill;
use super::key::{url_of, without_slice, without_variant};
use super::object::Object;
use super::purge::{Purge, Target};
use super::purge_file::Durable;
use super::rule::Rules;
use super::slices::FetchRange;
use super::under_way::Fetching;
use super::{Store, now_s};
use crate::upstream::Reply;

impl Store {
    /// A response that is not stored took the place of a stored one. It was asked for at `at`.
    pub(super) fn supersede(self: &Arc<Self>, old: &Arc<Object>, at: u64) {
        let purge = self.supersede_here(old, at);
        self.write_superseded(&purge, Some(old));
    }

    /// The same, for responses that may be stored, or are on their way.
    fn supersede_unknown(self: &Arc<Self>, target: Target, at: u64) {
        let purge = Purge { target, soft: false, at };
        self.purges().add(&purge);
        self.all_changed();
        self.write_superseded(&purge, None);
    }

    /// Writes down that a response was superseded, and tells it to the process that took over.
    fn write_superseded(self: &Arc<Self>, purge: &Purge, old: Option<&Arc<Object>>) {
        let written = self.opened().purge_files.begin_order(purge, Durable::No);
        if let Some(old) = old {
            self.remove_slices_of(old);
        }
        let (store, purge) = (Arc::clone(self), purge.clone());
        drop(tokio::spawn(async move {
            let written = written.wait().await;
            if let Err(error) = written.and(store.forward(purge).await) {
                // The log says it once for each directory, and for the process that took over.
                tracing::debug!("cache: cannot write down that a response was superseded: {error}");
            }
        }));
    }

    /// A response withdraws a stored one that was not read.
    fn withdraw_unread(self: &Arc<Self>, withdrawal: &Withdrawal<'_>) {
        let Withdrawal { key, id, at, .. } = *withdrawal;
        let disk = self.disk(id);
        // The process that took over may have stored it, or be fetching it.
        if disk.version(id).is_none() && disk.directory.is_owner() {
            return;
        }
        let target = match without_variant(key) {
            Some(_) => Target::of_key(key),
            // It may be the list of the variants, which are not known.
            None => Target::Invalidated(String::from_utf8_lossy(url_of(key)).into_owned()).hashed(),
        };
        self.supersede_unknown(target, at);
        disk.remove_older(id, at);
    }

    /// The same, of responses that are still being fetched.
    fn withdraw_under_way(self: &Arc<Self>, withdrawal: &Withdrawal<'_>) {
        for Fetching { key, id, fill, .. } in self.under_way.withdraw(withdrawal) {
            self.supersede_unknown(Target::of_key(&key), withdrawal.at);
            // Later requests do not wait for it.
            self.hide(id, &fill);
        }
        self.hide_older(withdrawal.id, withdrawal.at, withdrawal.fill);
    }

    fn supersede_here(&self, old: &Object, at: u64) -> Purge {
        let purge = Purge { target: Target::of_key(&old.key), soft: false, at };
        self.purges().add(&purge);
        let disk = self.disk(old.hash);
        // A newer one may have its name already.
        if old.version().is_some_and(|own| disk.version(old.hash) == Some(own)) {
            disk.remove(old.hash);
        }
        self.changed(old.hash);
        purge
    }

    /// Removes the files of its slices, which are purged with it. There may be a hundred thousand: a thread of the disk does it.
    fn remove_slices_of(self: &Arc<Self>, old: &Arc<Object>) {
        let Some(sliced) = old.head.sliced.clone() else { return };
        let (store, old) = (Arc::clone(self), Arc::clone(old));
        self.disk(old.hash).directory.threads.run_later(move || store.remove_sliced(&old.key, &sliced));
    }
}

/// A stored response whose successor came whole. Dropped, the stored one is gone.
pub(super) struct Superseded {
    store: Arc<Store>,
    /// `None`: the file of the successor has the name of the old one.
    old: Option<Arc<Object>>,
    /// When the successor was asked for.
    at: u64,
}

impl Superseded {
    pub(super) fn new(store: &Arc<Store>, old: &Arc<Object>, at: u64) -> Self {
        Superseded { store: Arc::clone(store), old: Some(Arc::clone(old)), at }
    }

    /// The successor is stored.
    pub(super) fn by(mut self, new: &Object) {
        if let Some(old) = self.old.take_if(|old| old.hash == new.hash) {
            self.store.remove_replaced(&old, &new.head);
        }
    }
}

impl Drop for Superseded {
    fn drop(&mut self) {
        let Some(old) = self.old.take() else { return };
        self.store.supersede_here(&old, self.at);
        // The disk may be at fault: the line is written at the end of the process.
        self.store.purges().leave_out_line();
        self.store.remove_slices_of(&old);
    }
}

/// A response that is not stored, and withdraws the page.
#[derive(Clone, Copy)]
pub(super) struct Withdrawal<'a> {
    /// The key of the request, with its variant if that is known.
    pub(super) key: &'a [u8],
    /// The hash of `key`.
    pub(super) id: u128,
    /// As [`Rules::page`].
    pub(super) page: u128,
    pub(super) request: &'a FetchRequest,
    /// When the response was asked for.
    pub(super) at: u64,
    /// The fetch that it answers. `None`: it answers a request that passed.
    pub(super) fill: Option<&'a Arc<Fill>>,
}

impl Fetch {
    /// A response that is not stored took the place of stored or coming ones, and was requested before `at`.
    pub(super) fn withdraw(&self, at: u64) {
        if let Some(stale) = &self.stale {
            self.rules.store.supersede(&stale.object, at);
        }
        self.withdraw_unknown(at);
    }

    /// The same for responses that this fetch does not know: an unreadable stored one, and the responses of other fetches.
    pub(super) fn withdraw_unknown(&self, at: u64) {
        let Fetch { id, page, ref request, .. } = *self;
        if matches!(self.range, FetchRange::Slice(..)) {
            // The slice that describes the others is not known here, and may be on its way: all are withdrawn by their common name.
            self.rules.store.hide_older(id, at, Some(&self.fill));
            return self.rules.store.supersede_unknown(Target::of_key(without_slice(&self.key)), at);
        }
        let withdrawal = Withdrawal { key: &self.found_by, id, page, request, at, fill: Some(&self.fill) };
        if self.stale.is_none() {
            self.rules.store.withdraw_unread(&withdrawal);
        }
        self.rules.store.withdraw_under_way(&withdrawal);
    }

    /// Whether a response that is not stored takes the place of the stored one. `false`: only the request is the reason, or the response is about the
    /// request or a failure: a client must not remove the stored response of all.
    pub(super) fn supersedes(&self, reply: &Reply, requested: Requested, received: u64) -> bool {
        self.rules.supersedes(&self.range, &self.request, reply, requested.second, received).is_some()
    }

    /// The same, where the response to a request for a slice would take the place of the whole if it was stored.
    pub(super) fn refuses_slice(&self, reply: &Reply, requested: Requested, received: u64) -> bool {
        let replaces = is_about_page(&self.request, reply.status.code());
        let may_store = || self.may_store(&self.request, reply, requested.second, received).is_ok();
        (replaces && may_store()) || self.supersedes(reply, requested, received)
    }
}

impl Rules {
    /// Why a response takes the place of a stored one, or withdraws it, without being stored.
    fn supersedes(
        &self,
        range: &FetchRange,
        request: &FetchRequest,
        reply: &Reply,
        requested: u64,
        received: u64,
    ) -> Option<Unstored> {
        // A slice stands for the whole.
        let code = code(reply.status, range);
        if !is_about_page(request, code) {
            return self.prohibits(request, reply, requested, received);
        }
        self.may_store(range, &request.of_anybody(), reply, requested, received).err()
    }

    /// Whether a part of the response, or a 304, says that nothing of it may be stored, whichever client asks.
    fn prohibits(&self, request: &FetchRequest, reply: &Reply, requested: u64, received: u64) -> Option<Unstored> {
        if !matches!(reply.status, Status::PARTIAL_CONTENT | Status::NOT_MODIFIED) {
            return None;
        }
        let (policy, request, ok) = (&self.policy, request.of_anybody().to_store(), Status::OK.code());
        let why = sealion_cache::may_store(policy, &request, ok, &reply.fields, requested, received).err()?;
        matches!(why, NotStored::NoStore | NotStored::Private).then_some(Unstored::ByRule(why))
    }

    /// Whether the response to `request` may be stored. Returns its lifetime, and the fields that select among the variants of its URL.
    pub(super) fn may_store(
        &self,
        range: &FetchRange,
        request: &FetchRequest,
        reply: &Reply,
        requested: u64,
        received: u64,
    ) -> Result<(Lifetime, Vec<HeaderName>), Unstored> {
        // The next server in the chain sends the file that the field names: it is that server's answer to one request.
        if LEADS_ELSEWHERE.iter().any(|name| reply.fields.contains_key(name)) {
            return Err(Unstored::LeadsElsewhere);
        }
        // It answers the range of one client.
        if reply.status == Status::RANGE_NOT_SATISFIABLE && !matches!(range, FetchRange::Whole) {
            return Err(Unstored::ByRule(NotStored::Range));
        }
        let (policy, code) = (&self.policy, code(reply.status, range));
        let lifetime = sealion_cache::may_store(policy, &request.to_store(), code, &reply.fields, requested, received);
        let lifetime = lifetime.map_err(Unstored::ByRule)?;
        // Without an explicit lifetime, the response to a request with a cookie may be only for its user.
        if request.has_cookie() && !sealion_cache::has_lifetime(policy, code, &reply.fields) {
            return Err(Unstored::Cookie);
        }
        let names = self.vary(&reply.fields).ok_or(Unstored::ByRule(NotStored::VaryAny))?;
        let length = reply.fields.content_length();
        // A response that ends with its connection may be cut unnoticed.
        let is_delimited = length.is_some()
            || reply.ends_with_stream
            || reply.fields.contains_key(TRANSFER_ENCODING)
            || matches!(code, 204 | 304);
        if !is_delimited {
            return Err(Unstored::NoLength);
        }
        if length.is_some_and(|length| length > self.max_object) {
            return Err(Unstored::TooLarge);
        }
        Ok((lifetime, names))
    }
}

/// Fields of an application that has a file sent instead of its response.
const LEADS_ELSEWHERE: [HeaderName; 2] =
    [HeaderName::from_static("x-accel-redirect"), HeaderName::from_static("x-sendfile")];

/// Whether a status is about the page, and neither about this request nor about a failure.
fn is_about_page(request: &FetchRequest, code: u16) -> bool {
    let is_of_credentials = request.has_authorization() && matches!(code, 401 | 403 | 407);
    !is_of_credentials && sealion_cache::replaces_stored(code)
}

/// A request that is forwarded as if there were no cache. Its response may withdraw a stored one, and responses that are being fetched.
#[derive(Debug)]
pub(crate) struct Passing {
    rules: Arc<Rules>,
    old: Option<Arc<Object>>,
    /// The key, with its variant if that is known.
    key: Box<[u8]>,
    /// As [`Rules::page`].
    page: u128,
    request: FetchRequest,
    is_head: bool,
    requested: Requested,
}

impl Passing {
    /// It is forwarded now. `key`: of it, whose first `of_url` bytes have no variant.
    pub(super) fn new(
        rules: &Arc<Rules>,
        old: Option<Arc<Object>>,
        key: &[u8],
        of_url: usize,
        request: &Request<'_>,
        directives: RequestDirectives,
    ) -> Box<Self> {
        Box::new(Passing {
            rules: Arc::clone(rules),
            old,
            key: key.into(),
            page: rules.page(&key[..of_url]),
            request: FetchRequest::of(request, directives),
            is_head: request.method == Method::Head,
            requested: Requested::now(),
        })
    }

    /// The origin replied.
    pub(crate) fn replied(&self, reply: &Reply) {
        let Passing { rules, old, key, page, request, is_head, requested } = self;
        let (whole, store) = (&FetchRange::Whole, &rules.store);
        let received = now_s();
        let Some(why) = rules.supersedes(whole, request, reply, requested.second, received) else { return };
        // Another status may be about the method (RFC 9111 §4.3.5), and HEAD needs no Content-Length.
        if *is_head && (reply.status != Status::OK || !matches!(why, Unstored::ByRule(_))) {
            return;
        }
        let (id, page, at) = (store.hash(key), *page, requested.at);
        let withdrawal = Withdrawal { key, id, page, request, at, fill: None };
        match old {
            Some(old) => store.supersede(old, at),
            None => store.withdraw_unread(&withdrawal),
        }
        store.withdraw_under_way(&withdrawal);
    }
}

/// Why a response is for one request only.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unstored {
    ByRule(NotStored),
    /// The request names a user, and neither the origin nor the rule says that the response is for all.
    Cookie,
    NoLength,
    TooLarge,
    /// It names the file that is sent instead.
    LeadsElsewhere,
}

impl Unstored {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Unstored::ByRule(why) => why.as_str(),
            Unstored::Cookie => "cookie",
            Unstored::NoLength => "no-length",
            Unstored::TooLarge => "too-large",
            Unstored::LeadsElsewhere => "accel",
        }
    }

    /// Whether the request is the reason: the response to another may be stored.
    pub(super) fn is_of_request(self) -> bool {
        match self {
            Unstored::ByRule(why) => why.is_of_request(),
            Unstored::Cookie => true,
            Unstored::NoLength | Unstored::TooLarge | Unstored::LeadsElsewhere => false,
        }
    }

    /// Whether the reason is that the request names a user: the responses to all other requests of users are like this one.
    pub(super) fn is_of_user(self) -> bool {
        matches!(self, Unstored::Cookie | Unstored::ByRule(NotStored::Authorization))
    }
}
