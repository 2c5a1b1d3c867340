//! Finds the fetch that a request can wait for, and remembers the keys whose responses are not shared.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Store;
use super::fill::{Fill, Joined, Known};
use super::key::NUMBER;
use super::object::Stored;
use super::purge::Verdict;
use super::rule::Rules;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    /// Requests for a response that waits for `min_uses`.
    pub(super) uses: u64,
    /// When its response could not be shared, and why: until [`NOT_SHARED_FOR`] after, requests do not wait for each other's fetch.
    pub(super) not_shared: NotShared,
}

/// By kind of request: a response may be private to users only.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NotShared {
    /// For requests that name no user.
    anonymous: Option<(Instant, &'static str)>,
    /// For requests that name a user.
    of_user: Option<(Instant, &'static str)>,
}

impl NotShared {
    pub(super) fn of(self, names_user: bool) -> Option<(Instant, &'static str)> {
        if names_user { self.of_user } else { self.anonymous }
    }

    pub(super) fn note(&mut self, why: &'static str, names_user: bool) {
        let kind = if names_user { &mut self.of_user } else { &mut self.anonymous };
        *kind = Some((Instant::now(), why));
    }

    pub(super) fn latest(self) -> Option<(Instant, &'static str)> {
        self.anonymous.max(self.of_user)
    }
}

impl Store {
    /// The fill of a key. `looked`: the state of its changes before the caller looked for an object and found none; `None`: it needs a fill in any
    /// case.
    /// `rules`: the number of the rule that asks. A place is taken only for a fetch that begins.
    pub(super) fn join(
        &self,
        id: u128,
        key: &[u8],
        rules: [u8; NUMBER],
        names_user: bool,
        looked: Option<u64>,
    ) -> Joined {
        if self.is_passed(id, names_user) {
            return Joined::alone(key, rules);
        }
        let mut fills = self.fills.lock();
        // A fill is forgotten after its object has changed the state.
        match (fills.get(&id), looked) {
            (Some(fill), _) if !fill.has_ended() && fill.rules == rules => return Joined::Shared(Arc::clone(fill)),
            (Some(fill), _) if !fill.has_ended() => {}
            (Some(_), Some(_)) => return Joined::Ended,
            (None, Some(looked)) if looked != self.epoch(id) => return Joined::Ended,
            // A fill that is over answered the requests that waited for it; its object may be stale by now.
            _ => {}
        }
        let joined = Joined::alone(key, rules);
        if let Joined::New(fill, _) = &joined {
            take_place(&mut fills, id, fill);
        }
        joined
    }

    /// Whether the response to a key was for one request only, a moment ago.
    pub(super) fn is_passed(&self, id: u128, names_user: bool) -> bool {
        let passed = self.passed.lock().peek(&id).and_then(|passed| passed.not_shared.of(names_user));
        passed.is_some_and(|(at, _)| at.elapsed() < NOT_SHARED_FOR)
    }

    /// The entry that a fetch will store under `key`: its object, once that is whole, or the names of the fields that select among the responses of
    /// its URL, once they are known.
    pub(super) fn being_written(&self, id: u128, key: &[u8], rules: &Rules) -> Option<Stored> {
        let fill = Arc::clone(self.fills.lock().get(&id)?);
        let known = fill.known()?;
        let (own, head) = match &known {
            Known::Object(object) => (&object.key, &object.head),
            Known::Flowing(flowing) => (&flowing.key, &flowing.head),
        };
        if **own != *key {
            return Some(Stored::Variants(rules.vary(&head.fields)?.into()));
        }
        match known {
            Known::Object(object) => {
                let object = if fill.rules == rules.number { object } else { Arc::new(object.made_by(rules)) };
                // It may be older than a purge, if it came from another cache.
                (self.verdict(&object) == Verdict::Valid).then_some(Stored::Object(object))
            }
            Known::Flowing(_) => None,
        }
    }

    /// The response of a fill that was found by the key without variant has a variant: requests that know it find the fill too.
    pub(super) fn also_found_by(&self, id: u128, variant: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills.lock();
        let is_found = |id| fills.get(&id).is_some_and(|other| Arc::ptr_eq(other, fill));
        let is_free = fills.get(&variant).is_none_or(|other| other.has_ended());
        if variant != id && is_found(id) && is_free {
            let _ = fill.variant.set(variant);
            take_place(&mut fills, variant, fill);
        }
    }

    /// Forgets a fill that has ended. The fills whose places it took are found again while their objects wait to be written: a response that is not stored
    /// may take their place.
    pub(super) fn forget(&self, id: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills.lock();
        fill.is_over.store(true, Ordering::Relaxed);
        let mut before = std::mem::take(&mut *fill.before.lock());
        before.retain(|(_, before)| !before.is_over.load(Ordering::Relaxed));
        for id in found_by(&fills, id, fill) {
            match before.iter().find(|(own, _)| *own == id) {
                Some((_, before)) => fills.insert(id, Arc::clone(before)),
                None => fills.remove(&id),
            };
        }
    }

    /// Has no further request find a fill.
    pub(super) fn hide(&self, id: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills.lock();
        for id in found_by(&fills, id, fill) {
            fills.remove(&id);
        }
    }

    /// Has no further request wait for the fetch that others find by this hash, if it began before `at`, and is another than this one.
    pub(super) fn hide_older(&self, id: u128, at: u64, fill: Option<&Arc<Fill>>) {
        let is_own = |other: &Arc<Fill>| fill.is_some_and(|fill| Arc::ptr_eq(other, fill));
        let mut fills = self.fills.lock();
        if fills.get(&id).is_some_and(|other| other.began <= at && !is_own(other) && !other.has_ended()) {
            fills.remove(&id);
        }
    }

    /// The response to a key was for one request only.
    pub(super) fn is_not_shared(&self, id: u128, why: &'static str, names_user: bool) {
        let mut passed = self.passed.lock();
        let entry = passed.get_or_insert_mut(id, Passed::default);
        entry.not_shared.note(why, names_user);
    }

    /// Counts a request for a response that is not stored. Returns how many there were, this one included.
    pub(super) fn asked_for(&self, id: u128) -> u64 {
        let mut passed = self.passed.lock();
        let entry = passed.get_or_insert_mut(id, Passed::default);
        entry.uses += 1;
        entry.uses
    }
}

/// The hashes under which requests find a fill: `id`, and the variant's.
fn found_by(fills: &HashMap<u128, Arc<Fill>>, id: u128, fill: &Arc<Fill>) -> impl Iterator<Item = u128> + use<> {
    let is_found = |id: &u128| fills.get(id).is_some_and(|other| Arc::ptr_eq(other, fill));
    let [own, variant] = [Some(id), fill.variant.get().copied()].map(|id| id.filter(is_found));
    own.into_iter().chain(variant)
}

/// Has requests find a fill under this hash, in place of the present one.
fn take_place(fills: &mut HashMap<u128, Arc<Fill>>, id: u128, fill: &Arc<Fill>) {
    if let Some(before) = fills.insert(id, Arc::clone(fill)) {
        fill.before.lock().push((id, before));
    }
}

/// Keys that are remembered because their responses are not stored.
pub(super) const MOST_PASSED: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// How long requests for a response that cannot be shared go to the origin side by side.
const NOT_SHARED_FOR: Duration = Duration::from_secs(60);
