//! No-Vary-Search: the key of a query.
//!
//! A response with the field lies under a key of its own, which contains the field and the parameters that select the response. The field of a path's latest
//! response selects the key of later requests for the path. A new process does not know it: until the next response, requests are looked up by their whole
//! query.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use lru::LruCache;
use sealion_cache::SearchVariance;

use super::key::{Key, by_search, of_searches};
use super::rule::Rules;

/// The fields of the latest responses, by the hashes of [`of_searches`].
#[derive(Debug)]
pub(super) struct Searches(Mutex<LruCache<u128, Arc<SearchVariance>>>);

impl Default for Searches {
    fn default() -> Self {
        Searches(Mutex::new(LruCache::new(MAX_PATHS)))
    }
}

impl Searches {
    fn lock(&self) -> MutexGuard<'_, LruCache<u128, Arc<SearchVariance>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    /// How the query selects a response with these fields. `None`: the whole query does.
    pub(super) fn search(&self, fields: &HeaderMap) -> Option<SearchVariance> {
        if self.no_vary_search { SearchVariance::of(fields) } else { None }
    }

    /// The key of a response with these fields. `exact`: the key of the request, without variant.
    pub(super) fn key_of<'k>(&self, exact: &'k [u8], fields: &HeaderMap) -> Cow<'k, [u8]> {
        self.search(fields).map_or(exact.into(), |variance| by_search(exact, &variance).into())
    }

    /// Makes the key of a request the key of its stored response.
    pub(super) fn look_by_search(&self, key: &mut Key) {
        if !self.no_vary_search || !self.store.has_disk() {
            return;
        }
        let path = self.store.hash(&of_searches(key.in_store()));
        let known = self.store.searches.lock().get(&path).cloned();
        if let Some(variance) = known {
            key.replace(&by_search(key.in_store(), &variance));
        }
    }

    /// A response for `exact` is about to be stored. Returns its key: later requests for the path are looked for as it says.
    pub(super) fn learn_search(&self, exact: &[u8], fields: &HeaderMap) -> Vec<u8> {
        if !self.no_vary_search {
            return exact.to_vec();
        }
        let path = self.store.hash(&of_searches(exact));
        let variance = self.search(fields);
        let mut searches = self.store.searches.lock();
        match variance {
            Some(variance) => {
                let key = by_search(exact, &variance);
                searches.put(path, Arc::new(variance));
                key
            }
            None => {
                searches.pop(&path);
                exact.to_vec()
            }
        }
    }

    /// The hash that fetches of one page share. `key`: the key of one of them, without variant.
    pub(super) fn page(&self, key: &[u8]) -> u128 {
        match self.no_vary_search {
            // The key of a response is not known before the response comes.
            true => self.store.hash(&of_searches(super::key::without_search(key))),
            false => self.store.hash(key),
        }
    }
}

/// Paths whose field is known.
const MAX_PATHS: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");
