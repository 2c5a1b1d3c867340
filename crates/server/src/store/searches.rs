//! No-Vary-Search: the key of a query.
//!
//! A response with the field lies under a key of its own, which contains the field and the parameters that select the response. The field of a path's latest
//! response selects the key of later requests for the path. A new process does not know it: until the next response, requests are looked up by their whole
//! query.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use lru::LruCache;
use sealion_cache::SearchVariance;

use super::Store;
use super::key::{Key, by_search, of_searches};
use super::rule::Rules;
use crate::values::Mutex;

/// The fields of the latest responses, by the hashes of [`of_searches`].
#[derive(Debug)]
pub(super) struct Searches(Mutex<Known>);

#[derive(Debug)]
struct Known {
    by_path: LruCache<u128, Arc<SearchVariance>>,
    /// Bytes of all entries, about.
    memory: usize,
}

impl Default for Searches {
    fn default() -> Self {
        Searches(Mutex::new(Known { by_path: LruCache::unbounded(), memory: 0 }))
    }
}

impl Known {
    /// Remembers the field of a path. Forgets the paths that were asked for least recently, if they take too much memory.
    fn put(&mut self, path: u128, variance: SearchVariance) {
        self.memory += memory_of(&variance);
        if let Some(before) = self.by_path.put(path, Arc::new(variance)) {
            self.memory -= memory_of(&before);
        }
        while self.memory > MAX_MEMORY
            && let Some((_, oldest)) = self.by_path.pop_lru()
        {
            self.memory -= memory_of(&oldest);
        }
    }

    fn forget(&mut self, path: u128) {
        if let Some(before) = self.by_path.pop(&path) {
            self.memory -= memory_of(&before);
        }
    }
}

/// Bytes that an entry takes, about.
fn memory_of(variance: &SearchVariance) -> usize {
    PER_PATH + variance.memory()
}

impl Store {
    /// The key of the response to a request, if a known No-Vary-Search selects it. `exact`: the key of the request, without variant.
    pub(super) fn key_by_search(&self, exact: &[u8]) -> Option<Vec<u8>> {
        let path = self.hash(&of_searches(exact));
        let variance = self.searches.0.lock().by_path.get(&path).cloned()?;
        Some(by_search(exact, &variance))
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
        if let Some(by_search) = self.store.key_by_search(key.in_store()) {
            key.replace(&by_search);
        }
    }

    /// A response for `exact` is about to be stored. Returns its key: later requests for the path are looked for as it says.
    pub(super) fn learn_search(&self, exact: &[u8], fields: &HeaderMap) -> Vec<u8> {
        if !self.no_vary_search {
            return exact.to_vec();
        }
        let path = self.store.hash(&of_searches(exact));
        let variance = self.search(fields);
        let mut searches = self.store.searches.0.lock();
        match variance {
            Some(variance) => {
                let key = by_search(exact, &variance);
                searches.put(path, variance);
                key
            }
            None => {
                searches.forget(path);
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

/// Bytes of memory for the fields of all paths. The servers choose the fields: each may name hundreds of parameters.
const MAX_MEMORY: usize = 4 << 20;

/// Bytes of an entry without its field: the hash, two places in the list and the table.
const PER_PATH: usize = 96;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn variance(field: &str) -> SearchVariance {
        let mut fields = HeaderMap::new();
        fields.insert("no-vary-search", HeaderValue::from_str(field).unwrap());
        SearchVariance::of(&fields).unwrap()
    }

    #[test]
    fn fields_with_many_names_push_out_the_oldest_before_they_fill_the_memory() {
        let names: Vec<String> = (0..200).map(|n| format!("\"{n:x}\"")).collect();
        let many = variance(&format!("params=({})", names.join(" ")));
        let searches = Searches::default();
        let mut known = searches.0.lock();
        for path in 0..16_384 {
            known.put(path, many.clone());
            assert!(known.memory <= MAX_MEMORY);
        }
        assert_eq!(known.memory, known.by_path.len() * memory_of(&many));
        assert!(known.by_path.contains(&16_383) && !known.by_path.contains(&0));
        assert!(known.by_path.len() < 1000, "{}", known.by_path.len());
        for path in 0..10_000 {
            known.put(path, variance("params=(\"utm\")"));
            known.put(path, variance("key-order"));
        }
        assert!(known.by_path.contains(&0) && known.by_path.contains(&9_999));
        let paths: Vec<u128> = known.by_path.iter().map(|(path, _)| *path).collect();
        paths.into_iter().for_each(|path| known.forget(path));
        assert_eq!((known.memory, known.by_path.len()), (0, 0));
    }
}
