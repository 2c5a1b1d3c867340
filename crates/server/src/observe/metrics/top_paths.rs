//! The most requested paths, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", 2005). A path that makes up more than one request in [`PATHS`] is never missed. A new path
//! inherits the count of the path that it evicts; that count is reported as its error.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// The number of paths kept per worker: several screens of `sealion top`.
const PATHS: usize = 128;

/// The number of bytes kept of a path.
const MAX_PATH: usize = 200;

/// The paths of one worker.
#[derive(Debug, Default)]
pub(crate) struct TopPaths {
    paths: Vec<TopPath>,
    places: HashMap<u64, usize, BuildHasherDefault<AsIs>>,
}

/// A path and its requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopPath {
    /// The path without query, preceded by the name of its site if there are several.
    pub path: String,
    /// Upper bound of its requests; `requests - error` is the lower bound.
    pub requests: u64,
    /// Requests that may have been for other paths.
    pub error: u64,
    /// Bytes of bodies sent since the path was last added to the list.
    pub bytes: u64,
    /// The hash of the path.
    #[serde(skip)]
    hash: u64,
}

impl TopPaths {
    /// Counts a request for `path` with `bytes` of body sent. `site`: empty if there is only one.
    pub(crate) fn note(&mut self, site: &str, path: &str, bytes: u64) {
        let hash = hash(site.as_bytes()).rotate_left(1) ^ hash(path.as_bytes());
        if let Some(&place) = self.places.get(&hash) {
            let known = &mut self.paths[place];
            known.requests += 1;
            known.bytes += bytes;
            return;
        }
        let mut new = TopPath { path: [site, shortened(path)].concat(), requests: 1, error: 0, bytes, hash };
        if self.paths.len() < PATHS {
            self.places.insert(hash, self.paths.len());
            self.paths.push(new);
            return;
        }
        let Some((place, least)) = self.paths.iter_mut().enumerate().min_by_key(|(_, path)| path.requests) else {
            return;
        };
        (new.requests, new.error) = (least.requests + 1, least.requests);
        self.places.remove(&least.hash);
        self.places.insert(hash, place);
        *least = new;
    }

    /// The paths of all workers, most requests first.
    pub(crate) fn merge<'a>(all: impl IntoIterator<Item = &'a TopPaths>) -> Vec<TopPath> {
        let mut merged: HashMap<&str, TopPath> = HashMap::new();
        for path in all.into_iter().flat_map(|paths| &paths.paths) {
            match merged.get_mut(path.path.as_str()) {
                Some(sum) => {
                    sum.requests += path.requests;
                    sum.error += path.error;
                    sum.bytes += path.bytes;
                }
                None => _ = merged.insert(&path.path, path.clone()),
            }
        }
        let mut paths: Vec<TopPath> = merged.into_values().collect();
        paths.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.path.cmp(&b.path)));
        paths.truncate(PATHS);
        paths
    }
}

fn shortened(path: &str) -> &str {
    match path.char_indices().nth(MAX_PATH) {
        Some((end, _)) => &path[..end],
        None => path,
    }
}

/// Hashes eight bytes at a time. It does not resist collisions: a client that makes two paths collide hides one of them
/// in this list.
fn hash(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = bytes.len() as u64;
    for word in words {
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(ODD);
    }
    for byte in rest {
        hash = (hash.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(ODD);
    }
    hash ^ hash >> 32
}

/// A hasher for keys that are already hashes.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_paths_are_kept_whatever_else_is_asked_for() {
        let mut paths = TopPaths::default();
        for n in 0..100_000 {
            paths.note("", &format!("/rare/{n}"), 1);
            if n % 10 == 0 {
                paths.note("", "/hot", 3);
            }
        }
        assert_eq!((paths.paths.len(), paths.places.len()), (PATHS, PATHS));
        let merged = TopPaths::merge([&paths]);
        let hot = merged.iter().find(|path| path.path == "/hot").expect("it is there");
        assert!(hot.requests >= 10_000 && hot.requests - hot.error <= 10_000, "{hot:?}");
    }

    #[test]
    fn one_path_of_two_sites_is_two() {
        let mut paths = TopPaths::default();
        for (site, bytes) in [("a.example", 1), ("b.example", 2), ("a.example", 4)] {
            paths.note(site, "/x", bytes);
        }
        let merged = TopPaths::merge([&paths]);
        let told: Vec<_> = merged.iter().map(|path| (path.path.as_str(), path.requests, path.bytes)).collect();
        assert_eq!(told, [("a.example/x", 2, 5), ("b.example/x", 1, 2)]);
    }

    #[test]
    fn few_paths_are_counted_exactly_and_workers_added_up() {
        let (mut one, mut two) = (TopPaths::default(), TopPaths::default());
        let long = "/".repeat(5000);
        one.note("", "/a", 5);
        one.note("", "/b", 7);
        one.note("", "/b", 7);
        two.note("", "/a", 1);
        two.note("", "/a", 1);
        two.note("", &long, 1);
        let merged = TopPaths::merge([&one, &two]);
        let told: Vec<_> = merged.iter().map(|path| (path.path.as_str(), path.requests, path.bytes)).collect();
        assert_eq!(told, [("/a", 3, 7), ("/b", 2, 14), (&long[..MAX_PATH], 1, 1)]);
    }
}
