//! The stored response for a request: from this worker's memory, else from the fills that wait to be written, else from the disk.

use std::sync::Arc;

use sealion_http::Request;

use super::disk::{Disk, Lookup, Waits};
use super::fetch::variant;
use super::front::{Front, HitLines, Kept};
use super::key::{Key, is_form, is_slice, without_variant};
use super::object::{Object, Stored};
use super::purge::Verdict;
use super::rule::{CacheRule, Rules};
use super::{Store, now_ms};
use crate::files::resolve::Wait;

/// The outcome of a lookup.
pub(super) struct Found {
    pub(super) object: Option<Arc<Object>>,
    /// An object that cannot be sent: the response that is fetched replaces it.
    pub(super) unreadable: Option<Arc<Object>>,
    /// Whether there are variants of its URL.
    pub(super) has_variants: bool,
    /// Where there is no object: the state of changes before it was looked for.
    pub(super) looked: Option<u64>,
}

impl Store {
    /// The valid entry of this worker under a key of [`Key::in_front`].
    pub(super) fn find_kept(&self, front: &mut Front, key: &[u8], now: u64) -> Option<(Stored, HitLines)> {
        match front.get(key, now, |hash| self.epoch(hash))? {
            Kept::Variants { is_old: true, .. } => {
                front.remove(key);
                None
            }
            Kept::Variants { names, is_old: false } => Some((Stored::Variants(names), HitLines::First)),
            Kept::Object { object, .. } if object.body.is_unreadable() => {
                self.disk(object.hash).remove(object.hash);
                // Other workers may have it open too.
                self.changed(object.hash);
                front.remove(key);
                None
            }
            // It may be read again when the disk answers.
            Kept::Object { object, .. } if object.is_open() && self.disk(object.hash).hangs() => None,
            Kept::Object { object, is_old, lines } => {
                if is_old {
                    let epoch = self.epoch(object.hash);
                    let is_newest =
                        object.version().is_some() && self.disk(object.hash).version(object.hash) == object.version();
                    if !is_newest || self.verdict(&object) != Verdict::Valid {
                        front.remove(key);
                        return None;
                    }
                    front.confirm(key, epoch);
                }
                if matches!(lines, HitLines::First) {
                    self.touch(object.hash, &object.key);
                }
                Some((Stored::Object(object), lines))
            }
        }
    }

    /// The object that this worker has for a request; `key` goes on to where it looked last. `is_of_variant`: whether that key has a variant, which ends
    /// the search.
    pub(super) fn walk_kept(
        &self,
        front: &mut Front,
        key: &mut Key,
        is_of_variant: &mut bool,
        request: &Request<'_>,
        now: u64,
    ) -> Option<(Arc<Object>, HitLines)> {
        loop {
            match self.find_kept(front, key.in_front(), now)? {
                (Stored::Object(object), lines) => return Some((object, lines)),
                (Stored::Variants(_), _) if *is_of_variant => return None,
                (Stored::Variants(names), _) => {
                    *is_of_variant = true;
                    key.add_variant(&variant(&names, request.fields));
                }
            }
        }
    }

    /// The object for a request; `key` becomes its whole key.
    pub(super) async fn find(&self, rule: &CacheRule, key: &mut Key, request: &Request<'_>, now: u64) -> Found {
        let mut has_variants = false;
        loop {
            let kept = self.walk_kept(&mut self.front().borrow_mut(), key, &mut has_variants, request, now);
            if let Some((object, _)) = kept {
                return self.found(object, key, has_variants).await;
            }
            let looked = Some(self.epoch(self.hash(key.in_store())));
            match self.load(&rule.rules, key, now).await {
                Some(Stored::Object(object)) if !object.head.is_lost_part() => {
                    return self.found(object, key, has_variants).await;
                }
                Some(Stored::Variants(names)) if !has_variants => {
                    has_variants = true;
                    key.add_variant(&variant(&names, request.fields));
                }
                _ => return Found { object: None, unreadable: None, has_variants, looked },
            }
        }
    }

    /// An object that was found, unless its body is damaged.
    async fn found(&self, object: Arc<Object>, key: &Key, has_variants: bool) -> Found {
        if self.is_sound(&object).await {
            return Found { object: Some(object), unreadable: None, has_variants, looked: None };
        }
        self.front().borrow_mut().remove(key.in_front());
        let looked = Some(self.epoch(object.hash));
        Found { object: None, unreadable: Some(object), has_variants, looked }
    }

    /// Loads the entry under a key from the disk.
    pub(super) async fn load(&self, rules: &Arc<Rules>, request_key: &Key, now: u64) -> Option<Stored> {
        let key = request_key.in_store();
        let hash = self.hash(key);
        if let Some(stored) = self.being_written(hash, key, rules) {
            return Some(stored);
        }
        let disk = self.disk(hash);
        let version = match disk.lookup(hash) {
            Lookup::None => return None,
            Lookup::Found(entry) => Some(entry.version),
            Lookup::Unknown => None,
        };
        let epoch = self.epoch(hash);
        let stored = match disk.load_object(hash, key, rules, Wait::No) {
            Ok(stored) => stored?,
            // Its content is not in the kernel's cache.
            Err(Waits) => {
                let (rules, whole) = (Arc::clone(rules), key.to_vec());
                let load = move |disk: &Disk| Ok(disk.load_object(hash, &whole, &rules, Wait::Yes).ok().flatten());
                disk.run("read an object", load).await.flatten()?
            }
        };
        let stored = match stored {
            // A rule with slices of another size, or without, fetches it again.
            Stored::Object(object) if object.head.is_lost_part() => return None,
            Stored::Object(object) => {
                if let Some(version) = version.or_else(|| self.disk(hash).version(hash)) {
                    object.set_version(version);
                }
                if without_variant(key).is_some() && !is_slice(key) && !is_form(key) {
                    self.variants.used(hash);
                }
                match self.verdict(&object) {
                    // The clock was set back between two starts: the order of its fetch and of purges is not known.
                    _ if object.times.made > now_ms() => {
                        self.disk(hash).remove(hash);
                        return None;
                    }
                    Verdict::Valid => Stored::Object(object),
                    // It is not kept: a later purge must be seen.
                    Verdict::Stale => return Some(Stored::Object(Arc::new(object.made_stale(now)))),
                    Verdict::Doubtful => return Some(Stored::Object(Arc::new(object.made_doubtful(now)))),
                    Verdict::Gone => {
                        self.disk(hash).remove(hash);
                        return None;
                    }
                }
            }
            variants => variants,
        };
        self.front().borrow_mut().keep(request_key.in_front(), hash, stored.clone(), epoch, now);
        Some(stored)
    }

    /// Keeps an object in this worker's memory. `epoch`: before it was found valid.
    pub(super) fn keep(&self, rule: &CacheRule, object: &Arc<Object>, epoch: u64, now: u64) {
        let mut key = Key::default();
        key.begin(rule.rules.number).extend_from_slice(&object.key);
        self.front().borrow_mut().keep(key.in_front(), object.hash, Stored::Object(Arc::clone(object)), epoch, now);
    }
}
