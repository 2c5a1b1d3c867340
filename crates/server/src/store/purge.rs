//! Purges: an object is valid if it was stored after the last purge that names it. A purge costs the same for one object and for a million.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::invalidated::{Invalidated, hash};
use super::key;
use super::purge_url::{host, normal, origin};

/// The target of a purge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub(crate) enum Target {
    Everything,
    /// A URL with all its variants: `https://example.org/a?b`.
    Url(String),
    /// The same, by a request with an unsafe method (RFC 9111 §4.4). Clients can make very many: no URL is kept.
    Invalidated(String),
    /// [`Self::Invalidated`], as it is kept and written again: the hash of the URL, or of the key of one response ([`Self::of_key`]).
    InvalidatedHash(u64),
    /// All invalidated URLs whose hashes end so, and others with them: see [`Invalidated`].
    InvalidatedSlot(u32),
    /// All URLs that begin so.
    Prefix(String),
    /// All URLs of this host, with any scheme and port.
    Host(String),
    /// All responses with this tag (Cache-Tag, Surrogate-Key, xkey).
    Tag(String),
    /// All responses of this group of an origin (RFC 9875): origin and name.
    Group(String, String),
}

impl Target {
    /// One response, with its slices: no other variant of its URL. `key`: its key, or the key of one of its slices.
    pub(super) fn of_key(key: &[u8]) -> Self {
        Target::InvalidatedHash(hash(key::without_slice(key)))
    }

    /// The same without a URL, whose length a client chooses: its line in a file is short.
    pub(super) fn hashed(self) -> Self {
        match self.normal() {
            Target::Invalidated(url) => Target::InvalidatedHash(hash(url.as_bytes())),
            other => other,
        }
    }

    /// Bytes of memory that its name takes.
    fn octets(&self) -> usize {
        let name = match self {
            Target::Everything | Target::InvalidatedHash(_) | Target::InvalidatedSlot(_) => 0,
            Target::Url(name)
            | Target::Invalidated(name)
            | Target::Prefix(name)
            | Target::Host(name)
            | Target::Tag(name) => name.len(),
            Target::Group(origin, name) => origin.len() + name.len(),
        };
        name + size_of::<(Target, Times)>()
    }

    /// Whether the purge may cover a response of this URL; its tags and groups are not known yet.
    pub(super) fn may_cover(&self, url: &[u8]) -> bool {
        let url = normal(&String::from_utf8_lossy(url));
        match self {
            Target::Everything | Target::Tag(_) | Target::InvalidatedSlot(_) => true,
            Target::Url(own) | Target::Invalidated(own) => {
                url == *own || (url.ends_with('?') && path(own) == path(&url))
            }
            Target::InvalidatedHash(own) => hash(url.as_bytes()) == *own,
            Target::Host(own) => host(&url) == own,
            Target::Prefix(start) => url.starts_with(start.as_str()) || (url.ends_with('?') && start.starts_with(&url)),
            Target::Group(start, _) => url.starts_with(start.as_str()),
        }
    }

    /// The same, with URLs as purges compare them.
    pub(crate) fn normal(self) -> Self {
        match self {
            Target::Url(url) => Target::Url(normal(&url)),
            Target::Invalidated(url) => Target::Invalidated(normal(&url)),
            Target::Prefix(url) => Target::Prefix(normal(&url)),
            Target::Group(origin, name) => Target::Group(normal(&origin), name),
            Target::Host(name) => Target::Host(host(&normal(&format!("https://{name}/"))).to_owned()),
            other @ (Target::Everything | Target::Tag(_) | Target::InvalidatedHash(_) | Target::InvalidatedSlot(_)) => {
                other
            }
        }
    }
}

/// An order to purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Purge {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// Whether the objects become stale, and are validated before they are sent again, instead of vanishing.
    #[serde(default)]
    pub(crate) soft: bool,
    /// Milliseconds since 1970-01-01.
    pub(crate) at: u64,
}

/// The verdict of the purges on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Valid,
    /// No purge covers it, but its disk was not used for a while: another response may have taken its place.
    Doubtful,
    Stale,
    Gone,
}

/// All purges.
#[derive(Debug, Default)]
pub(super) struct Purges {
    table: RwLock<Table>,
    /// Purges that no file has a line of yet, so far.
    left_out: AtomicU64,
    /// The latest purge that an operator ordered, and the latest of everything. Soft ones leave their objects.
    latest_ordered: AtomicU64,
    latest_of_all: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    everything: Times,
    named: HashMap<Target, Times>,
    /// Of [`Target::Url`] and [`Target::Prefix`], by the hash of the URL without query: a response with No-Vary-Search answers URLs of all queries.
    paths: HashMap<u64, Times>,
    /// Of [`Target::Prefix`], which no hash finds.
    prefixes: Vec<(String, Times)>,
    /// Bytes of all names.
    octets: usize,
    invalidated: Invalidated,
}

/// When something was purged last; 0: never.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    hard: u64,
    soft: u64,
}

impl Times {
    fn add(&mut self, soft: bool, at: u64) {
        let time = if soft { &mut self.soft } else { &mut self.hard };
        *time = at.max(*time);
    }

    fn verdict(self, stored: u64) -> Verdict {
        match stored {
            stored if stored <= self.hard => Verdict::Gone,
            stored if stored <= self.soft => Verdict::Stale,
            _ => Verdict::Valid,
        }
    }
}

impl Purges {
    /// Notes that a purge was applied whose line is left out until the end of the process.
    pub(super) fn leave_out_line(&self) {
        self.left_out.fetch_add(1, Ordering::Release);
    }

    /// How many lines were left out so far.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Acquire)
    }

    /// The times of the latest purge that an operator ordered, and of the latest of everything: files are left behind. Clients invalidate one URL at a time,
    /// whose file is removed at once.
    pub(super) fn latest_ordered(&self) -> (u64, u64) {
        (self.latest_ordered.load(Ordering::Acquire), self.latest_of_all.load(Ordering::Acquire))
    }

    fn note_ordered(&self, Purge { target, soft, at }: &Purge) {
        let is_ordered = match target {
            Target::Everything | Target::Url(_) | Target::Prefix(_) | Target::Host(_) | Target::Tag(_) => true,
            Target::Group(..) | Target::Invalidated(_) | Target::InvalidatedHash(_) | Target::InvalidatedSlot(_) => {
                false
            }
        };
        if is_ordered && !soft {
            self.latest_ordered.fetch_max(*at, Ordering::AcqRel);
        }
        if *target == Target::Everything && !soft {
            self.latest_of_all.fetch_max(*at, Ordering::AcqRel);
        }
    }

    /// All purges, a line each.
    pub(super) fn to_lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        self.for_each(|purge| {
            let _ = serde_json::to_writer(&mut lines, &purge);
            lines.push(b'\n');
        });
        lines
    }

    /// Calls a function with each purge.
    pub(super) fn for_each(&self, mut call: impl FnMut(Purge)) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let prefixes = table.prefixes.iter().map(|(prefix, times)| (Target::Prefix(prefix.clone()), *times));
        let named = table.named.iter().map(|(target, times)| (target.clone(), *times));
        let invalidated = table.invalidated.latest().map(|(hash, at)| (Target::InvalidatedHash(hash), at));
        let older = table.invalidated.older().map(|(slot, at)| (Target::InvalidatedSlot(slot), at));
        let invalidated = invalidated.chain(older).map(|(target, at)| (target, Times { hard: at, soft: 0 }));
        let named = named.chain(invalidated);
        for (target, Times { hard, soft }) in named.chain(prefixes).chain([(Target::Everything, table.everything)]) {
            for (at, soft) in [(hard, false), (soft, true)].into_iter().filter(|(at, _)| *at > 0) {
                call(Purge { target: target.clone(), soft, at });
            }
        }
    }

    /// Applies the purges of a file that was read apart.
    pub(super) fn add_all(&self, others: &Purges) {
        others.for_each(|purge| self.add(&purge));
    }

    /// Applies a purge.
    pub(super) fn add(&self, purge: &Purge) {
        let Purge { target, soft, at } = purge;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        if let Target::Url(url) | Target::Prefix(url) = target
            && (matches!(target, Target::Url(_)) || url.contains('?'))
        {
            table.paths.entry(hash(path(url).as_bytes())).or_default().add(*soft, *at);
        }
        let times = match target {
            Target::Invalidated(url) => {
                table.invalidated.add(hash(url.as_bytes()), *at);
                return super::go_behind(*at);
            }
            Target::InvalidatedHash(hash) => {
                table.invalidated.add(*hash, *at);
                return super::go_behind(*at);
            }
            Target::InvalidatedSlot(slot) => {
                table.invalidated.add_older(*slot, *at);
                return super::go_behind(*at);
            }
            Target::Everything => &mut table.everything,
            Target::Prefix(prefix) => match table.prefixes.iter().position(|(other, _)| other == prefix) {
                Some(at) => &mut table.prefixes[at].1,
                None => {
                    table.octets += prefix.len();
                    table.prefixes.push((prefix.clone(), Times::default()));
                    &mut table.prefixes.last_mut().expect("one was added").1
                }
            },
            named => table.named.entry(named.clone()).or_insert_with(|| {
                table.octets += named.octets();
                Times::default()
            }),
        };
        times.add(*soft, *at);
        table.fold();
        self.note_ordered(purge);
        super::go_behind(*at);
    }

    /// The verdict on an object.
    pub(super) fn verdict(&self, key: &[u8], tags: &[Box<str>], groups: &[Box<str>], stored: u64) -> Verdict {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = table.everything.verdict(stored);
        if table.named.is_empty() && table.prefixes.is_empty() && table.invalidated.is_empty() {
            return verdict;
        }
        let url = normal(&String::from_utf8_lossy(key::url_of(key)));
        if !table.invalidated.is_empty() {
            let of_url = table.invalidated.of(hash(url.as_bytes()));
            let hard = of_url.max(table.invalidated.of(hash(key::without_slice(key))));
            verdict = verdict.max(Times { hard, soft: 0 }.verdict(stored));
        }
        if key::is_by_search(key)
            && let Some(times) = table.paths.get(&hash(path(&url).as_bytes()))
        {
            verdict = verdict.max(times.verdict(stored));
        }
        let origin = origin(&url);
        for (prefix, times) in &table.prefixes {
            if url.starts_with(prefix.as_str()) {
                verdict = verdict.max(times.verdict(stored));
            }
        }
        let tags = tags.iter().map(|tag| Target::Tag(tag.to_string()));
        let groups = groups.iter().map(|group| Target::Group(origin.to_owned(), group.to_string()));
        for target in tags.chain(groups).chain([Target::Url(url.clone()), Target::Host(host(&url).to_owned())]) {
            if let Some(times) = table.named.get(&target) {
                verdict = verdict.max(times.verdict(stored));
            }
        }
        verdict
    }
}

impl Table {
    /// Where there are very many purges, replaces the older half by one of everything that is older.
    fn fold(&mut self) {
        if self.octets <= MOST_OCTETS && self.prefixes.len() <= MOST_PREFIXES {
            return;
        }
        let latest = |times: &Times| times.hard.max(times.soft);
        let mut times: Vec<u64> =
            self.named.values().chain(self.prefixes.iter().map(|(_, times)| times)).map(latest).collect();
        let half = times.len() / 2;
        let limit = *times.select_nth_unstable(half).1;
        self.named.retain(|_, times| latest(times) > limit);
        self.prefixes.retain(|(_, times)| latest(times) > limit);
        self.paths.retain(|_, times| latest(times) > limit);
        self.octets =
            self.named.keys().map(Target::octets).chain(self.prefixes.iter().map(|(name, _)| name.len())).sum();
        self.everything.add(false, limit);
    }
}

/// A URL without its query.
fn path(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Bytes of names: some 300,000 URLs of usual length.
const MOST_OCTETS: usize = 64 << 20;
/// Each is compared with each object that is looked up.
const MOST_PREFIXES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(target: Target, soft: bool, at: u64) -> Purge {
        Purge { target, soft, at }
    }

    fn boxes(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn a_purge_of_any_query_covers_what_answers_several() {
        let by_search = b"https://a.test/p?\n@=app\n?=k-:a=1&";
        for (target, covers) in [
            (Target::Url("https://a.test/p?a=1&utm=2".to_owned()), true),
            (Target::Url("https://a.test/p".to_owned()), true),
            (Target::Prefix("https://a.test/p?a=".to_owned()), true),
            (Target::Prefix("https://a.test/".to_owned()), true),
            (Target::Invalidated("https://a.test/p?".to_owned()), true),
            (Target::Url("https://a.test/q?a=1".to_owned()), false),
            (Target::Url("https://b.test/p?a=1".to_owned()), false),
            (Target::Prefix("https://a.test/q?a=".to_owned()), false),
        ] {
            let purges = Purges::default();
            purges.add(&purge(target.clone(), false, 5));
            let verdict = if covers { Verdict::Gone } else { Verdict::Valid };
            assert_eq!(purges.verdict(by_search, &[], &[], 4), verdict, "{target:?}");
            assert_eq!(purges.verdict(by_search, &[], &[], 6), Verdict::Valid, "{target:?}");
            assert_eq!(target.clone().normal().may_cover(key::url_of(by_search)), covers, "{target:?}");
            // After a restart.
            let again = Purges::default();
            again.add_all(&purges);
            assert_eq!(again.verdict(by_search, &[], &[], 4), verdict, "{target:?}");
        }
        let purges = Purges::default();
        purges.add(&purge(Target::Url("https://a.test/p?a=2".to_owned()), false, 5));
        assert_eq!(purges.verdict(b"https://a.test/p?a=1\n@=app", &[], &[], 4), Verdict::Valid);
    }

    #[test]
    fn what_is_fetched_behind_a_purge_is_younger_even_if_the_clock_was_set_back() {
        let purges = Purges::default();
        let at = super::super::now_ms() + 1000;
        purges.add(&purge(Target::Everything, false, at));
        assert!(super::super::now_ms() > at);
        assert_eq!(purges.verdict(b"https://a.example/", &[], &[], super::super::now_ms()), Verdict::Valid);
    }

    #[test]
    fn an_object_is_valid_if_it_was_stored_after_the_purges_that_name_it() {
        use Verdict::{Gone, Stale, Valid};
        let named = [
            Target::Everything,
            Target::Url("https://a.example/x?y".to_owned()),
            Target::Prefix("https://a.example/".to_owned()),
            Target::Tag("news".to_owned()),
            Target::Group("https://a.example".to_owned(), "cart".to_owned()),
            Target::Host("a.example".to_owned()),
        ];
        let others = [
            Target::Url("https://a.example/x".to_owned()),
            Target::Prefix("https://b.example/".to_owned()),
            Target::Tag("new".to_owned()),
            Target::Group("https://b.example".to_owned(), "cart".to_owned()),
            Target::Host("b.example".to_owned()),
            Target::Host("example".to_owned()),
        ];
        let mut key = b"https://a.example/x?y".to_vec();
        key::add_variant(&mut key, b"br");
        for (targets, hard, soft) in [(&named[..], Gone, Stale), (&others[..], Valid, Valid)] {
            for target in targets {
                for (is_soft, expected) in [(false, hard), (true, soft)] {
                    let purges = Purges::default();
                    purges.add(&purge(target.clone(), is_soft, 1000));
                    let verdict = |stored| purges.verdict(&key, &boxes(&["a", "news"]), &boxes(&["cart"]), stored);
                    assert_eq!((verdict(999), verdict(1000), verdict(1001)), (expected, expected, Valid), "{target:?}");
                }
            }
        }
    }

    #[test]
    fn a_purge_by_key_is_of_one_variant_and_its_slices() {
        let key = |variant: &[u8]| {
            let mut key = b"https://a.example/x".to_vec();
            key::add_upstream(&mut key, "app");
            key::add_variant(&mut key, variant);
            key
        };
        let slice = |mut key: Vec<u8>| {
            key::add_slice(&mut key, b"65536/200000/1/", b"\"v\"");
            key
        };
        for named in [key(b"de"), slice(key(b"de"))] {
            let purges = Purges::default();
            purges.add(&purge(Target::of_key(&named), false, 1000));
            for (other, expected) in [
                (key(b"de"), Verdict::Gone),
                (slice(key(b"de")), Verdict::Gone),
                (key(b"fr"), Verdict::Valid),
                (b"https://a.example/x".to_vec(), Verdict::Valid),
            ] {
                assert_eq!(purges.verdict(&other, &[], &[], 1000), expected, "{}", other.escape_ascii());
                assert_eq!(purges.verdict(&other, &[], &[], 1001), Verdict::Valid);
            }
        }
    }

    #[test]
    fn a_host_is_the_same_in_every_spelling() {
        for key in
            ["https://a.example/x", "https://a.example:443/x", "https://a.example./x", "https://a.example.:443/x"]
        {
            for target in [
                Target::Url("https://A.example/x".to_owned()),
                Target::Url("https://a.example.:443/x".to_owned()),
                Target::Prefix("https://a.example:443/".to_owned()),
                Target::Host("A.example.".to_owned()),
            ] {
                let purges = Purges::default();
                purges.add(&purge(target.clone().normal(), false, 1000));
                assert_eq!(purges.verdict(key.as_bytes(), &[], &[], 1000), Verdict::Gone, "{key} {target:?}");
            }
        }
        let purges = Purges::default();
        purges.add(&purge(Target::Host("a.example".to_owned()), false, 1000));
        assert_eq!(purges.verdict(b"http://a.example:8080/", &[], &[], 1000), Verdict::Gone);
        assert_eq!(purges.verdict(b"https://[::1]:8443/", &[], &[], 1000), Verdict::Valid);
        purges.add(&purge(Target::Host("[::1]".to_owned()), false, 1000));
        assert_eq!(purges.verdict(b"https://[::1]:8443/", &[], &[], 1000), Verdict::Gone);
    }

    #[test]
    fn a_path_is_the_same_in_every_spelling() {
        for spellings in [
            &["/~a/b-c?d=%2F&e=%3D", "/%7Ea/b%2Dc?d=%2f&e=%3d", "/%7ea/%62-c?d=%2f&%65=%3D"][..],
            &["/a|b\"\u{e9}", "/a%7Cb%22%C3%A9", "/a%7cb%22%c3%a9"],
            &["/100%", "/100%"],
        ] {
            for (key, target) in spellings.iter().flat_map(|key| spellings.iter().map(move |target| (key, target))) {
                let [key, target] = [key, target].map(|spelling| format!("https://a.example{spelling}"));
                for target in [Target::Url(target.clone()), Target::Prefix(target.clone()), Target::Invalidated(target)]
                {
                    let purges = Purges::default();
                    purges.add(&purge(target.clone().normal(), false, 1000));
                    assert_eq!(purges.verdict(key.as_bytes(), &[], &[], 1000), Verdict::Gone, "{key} {target:?}");
                    assert!(target.clone().normal().may_cover(key.as_bytes()));
                }
            }
        }
        // An encoded delimiter is another path.
        for (key, target) in [("/a%2Fb", "/a/b"), ("/a%3Fb", "/a?b"), ("/a%25b", "/a%b"), ("/a+b", "/a%20b")] {
            let purges = Purges::default();
            purges.add(&purge(Target::Url(format!("https://a.example{target}")).normal(), false, 1000));
            let verdict = purges.verdict(format!("https://a.example{key}").as_bytes(), &[], &[], 1000);
            assert_eq!(verdict, Verdict::Valid, "{key} {target}");
        }
    }

    #[test]
    fn very_many_purges_become_one_that_purges_at_least_as_much() {
        let purges = Purges::default();
        for n in 0..=MOST_PREFIXES as u64 {
            purges.add(&purge(Target::Prefix(format!("https://a.example/{n}/")), false, 1000 + n));
        }
        for n in 0..=MOST_PREFIXES as u64 {
            let key = format!("https://a.example/{n}/x");
            assert_eq!(purges.verdict(key.as_bytes(), &[], &[], 1000 + n), Verdict::Gone, "{n}");
        }
        assert_eq!(purges.verdict(b"https://b.example/", &[], &[], 3000), Verdict::Valid);
    }
}
