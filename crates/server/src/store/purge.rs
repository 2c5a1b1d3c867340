//! Purges: an object is valid if it was stored after the last purge that names it. A purge costs the same for one object and for a million, and
//! is written down, so that a restart does not bring back what was purged.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::invalidated::{Invalidated, hash};
use super::key;

/// What a purge names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub(crate) enum Target {
    Everything,
    /// A URL with all its variants: `https://example.org/a?b`.
    Url(String),
    /// The same, by a request with an unsafe method (RFC 9111 §4.4). Clients can make very many: no URL is kept.
    Invalidated(String),
    /// As [`Self::Invalidated`] is kept and written again: the hash of the URL.
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
    /// Octets of memory that its name takes.
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

    /// Whether a response of this URL may be among what is purged; its tags and groups are not known yet.
    pub(super) fn may_cover(&self, url: &[u8]) -> bool {
        let url = normal(&String::from_utf8_lossy(url));
        match self {
            Target::Everything | Target::Tag(_) | Target::InvalidatedSlot(_) => true,
            Target::Url(own) | Target::Invalidated(own) => url == *own,
            Target::InvalidatedHash(own) => hash(&url) == *own,
            Target::Host(own) => host(&url) == own,
            Target::Prefix(start) | Target::Group(start, _) => url.starts_with(start.as_str()),
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

/// What the purges say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Valid,
    Stale,
    Gone,
}

/// Whether a purge survives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    Yes,
    No,
}

/// All purges.
#[derive(Debug, Default)]
pub(super) struct Purges {
    table: RwLock<Table>,
    files: Mutex<Files>,
}

/// The files of the directories, which have the same lines.
#[derive(Debug, Default)]
struct Files {
    /// Octets of each that were read or written.
    octets: Vec<u64>,
    /// Whether a damaged or missing line makes a rewrite necessary.
    is_damaged: bool,
    /// Whether lines were left out that are written at the end.
    lacks_lines: bool,
}

impl Files {
    fn octets(&mut self, directory: usize) -> &mut u64 {
        if self.octets.len() <= directory {
            self.octets.resize(directory + 1, 0);
        }
        &mut self.octets[directory]
    }
}

#[derive(Debug, Default)]
struct Table {
    everything: Times,
    named: HashMap<Target, Times>,
    /// Of [`Target::Prefix`], which no hash finds.
    prefixes: Vec<(String, Times)>,
    /// Octets of all names.
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
    /// Reads the purges that are written in these directories.
    pub(super) fn load<'a>(directories: impl Iterator<Item = &'a Directory>) -> Self {
        let purges = Purges::default();
        for (n, directory) in directories.enumerate() {
            purges.read(directory, n, &mut purges.files());
        }
        purges
    }

    /// Reads the files again that another process has written: it may have written one alone, if a disk failed. Returns whether it had.
    pub(super) fn catch_up<'a>(&self, directories: impl Iterator<Item = &'a Directory>) -> bool {
        let mut files = self.files();
        let mut has_new = false;
        for (n, directory) in directories.enumerate() {
            if directory.length_of(FILE).is_ok_and(|length| length != *files.octets(n)) {
                self.read(directory, n, &mut files);
                has_new = true;
            }
        }
        has_new
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, directory: &Directory, n: usize, files: &mut Files) {
        {
            let lines = directory.read_file(FILE).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(Vec::new()),
                _ => Err(error),
            });
            let lines = lines.unwrap_or_else(|error| {
                let path = directory.path.join(FILE);
                tracing::warn!("{}: the purges cannot be read, all objects are validated: {error}", path.display());
                self.add(&Purge { target: Target::Everything, soft: true, at: super::now_ms() });
                files.is_damaged = true;
                Vec::new()
            });
            *files.octets(n) = lines.len() as u64;
            for line in lines.split(|octet| *octet == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice::<Purge>(line) {
                    // An older release may have written it, which compared other spellings.
                    Ok(purge) => self.add(&Purge { target: purge.target.normal(), ..purge }),
                    // The end of a line may be missing after a loss of power: what it purged is not known.
                    Err(error) => {
                        let path = directory.path.join(FILE);
                        tracing::warn!(
                            "{}: a purge cannot be read, all objects are validated: {error}",
                            path.display()
                        );
                        self.add(&Purge { target: Target::Everything, soft: true, at: super::now_ms() });
                        files.is_damaged = true;
                    }
                }
            }
        }
    }

    /// Writes a purge down that was applied. A process that does not own the directories writes too: the owner reads it ([`Self::catch_up`]).
    pub(super) fn order(
        &self,
        purge: &Purge,
        directories: &[&Arc<Directory>],
        durable: Durable,
    ) -> std::io::Result<()> {
        // The line before may have been cut.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, purge).map_err(std::io::Error::other)?;
        line.push(b'\n');
        let mut files = self.files();
        let append = |directory: &Arc<Directory>| {
            let mut file = directory.append(FILE)?;
            file.write_all(&line)?;
            if durable == Durable::Yes { file.sync_data() } else { Ok(()) }
        };
        let mut appended = Ok(());
        for (n, directory) in directories.iter().enumerate() {
            // One disk that fails must not keep it from the others: a start reads the files of all.
            match append(directory) {
                Ok(()) => *files.octets(n) += line.len() as u64,
                Err(error) => {
                    // It holds in memory: the next purge that can be written brings it along, or the end of the process.
                    files.is_damaged = true;
                    appended = appended.and(Err(error));
                }
            }
        }
        appended?;
        let is_owner = directories.iter().all(|directory| directory.is_owner());
        if is_owner && (files.is_damaged || files.octets.iter().any(|octets| *octets > MOST_FILE)) {
            self.write(&mut files, directories)?;
        }
        Ok(())
    }

    /// Says that a purge was applied and not written down. It is written at the end of the process.
    pub(super) fn leave_out_line(&self) {
        self.files().lacks_lines = true;
    }

    /// Writes all purges again, where a directory has lost its file.
    pub(super) fn rewrite(&self, directories: &[&Arc<Directory>]) -> std::io::Result<()> {
        self.write(&mut self.files(), directories)
    }

    /// Writes all purges again, if one could not be written. The last chance before the process ends.
    pub(super) fn write_missing(&self, directories: &[&Arc<Directory>]) -> std::io::Result<()> {
        let mut files = self.files();
        // After another process has taken over, the files are that one's.
        let is_owner = directories.iter().all(|directory| directory.is_owner());
        if (files.is_damaged || files.lacks_lines) && is_owner { self.write(&mut files, directories) } else { Ok(()) }
    }

    /// Writes all purges to one directory, though a write to another one hangs and keeps the rest from being written: [`Self::write_missing`] would wait
    /// behind it.
    pub(super) fn write_beside(&self, directory: &Directory) -> std::io::Result<()> {
        if directory.is_owner() { directory.write_file(FILE, &self.to_lines()) } else { Ok(()) }
    }

    #[cfg(test)]
    pub(super) fn is_writing(&self) -> bool {
        self.files.try_lock().is_err()
    }

    fn write(&self, files: &mut Files, directories: &[&Arc<Directory>]) -> std::io::Result<()> {
        files.is_damaged = true;
        // Another process may have appended to them.
        for (n, directory) in directories.iter().enumerate() {
            if directory.length_of(FILE).is_ok_and(|length| length != *files.octets(n)) {
                self.read(directory, n, files);
            }
        }
        let whole = self.to_lines();
        let mut written = Ok(());
        for (n, directory) in directories.iter().enumerate() {
            match directory.write_file(FILE, &whole) {
                Ok(()) => *files.octets(n) = whole.len() as u64,
                Err(error) => written = written.and(Err(error)),
            }
        }
        files.is_damaged = written.is_err();
        files.lacks_lines &= written.is_err();
        written
    }

    /// All purges, a line each.
    fn to_lines(&self) -> Vec<u8> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let prefixes = table.prefixes.iter().map(|(prefix, times)| (Target::Prefix(prefix.clone()), *times));
        let named = table.named.iter().map(|(target, times)| (target.clone(), *times));
        let invalidated = table.invalidated.latest().map(|(hash, at)| (Target::InvalidatedHash(hash), at));
        let older = table.invalidated.older().map(|(slot, at)| (Target::InvalidatedSlot(slot), at));
        let invalidated = invalidated.chain(older).map(|(target, at)| (target, Times { hard: at, soft: 0 }));
        let named = named.chain(invalidated);
        let mut lines = Vec::new();
        for (target, Times { hard, soft }) in named.chain(prefixes).chain([(Target::Everything, table.everything)]) {
            for (at, soft) in [(hard, false), (soft, true)].into_iter().filter(|(at, _)| *at > 0) {
                let _ = serde_json::to_writer(&mut lines, &Purge { target: target.clone(), soft, at });
                lines.push(b'\n');
            }
        }
        lines
    }

    /// Applies a purge.
    pub(super) fn add(&self, purge: &Purge) {
        let Purge { target, soft, at } = purge;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let times = match target {
            Target::Invalidated(url) => {
                table.invalidated.add(hash(url), *at);
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
        super::go_behind(*at);
    }

    /// What is said of an object.
    pub(super) fn verdict(&self, key: &[u8], tags: &[Box<str>], groups: &[Box<str>], stored: u64) -> Verdict {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = table.everything.verdict(stored);
        if table.named.is_empty() && table.prefixes.is_empty() && table.invalidated.is_empty() {
            return verdict;
        }
        let url = normal(&String::from_utf8_lossy(key::url_of(key)));
        if !table.invalidated.is_empty() {
            verdict = verdict.max(Times { hard: table.invalidated.of(hash(&url)), soft: 0 }.verdict(stored));
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
        self.octets =
            self.named.keys().map(Target::octets).chain(self.prefixes.iter().map(|(name, _)| name.len())).sum();
        self.everything.add(false, limit);
    }
}

/// Scheme and host of a URL, with the slash behind.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |slash| host + slash);
    &url[..end]
}

/// A URL whose host is as in keys, without the port of the scheme: upper case, and a dot at the end, do not tell hosts apart.
pub(super) fn with_normal_host(url: &str) -> String {
    let own = origin(url);
    let (scheme, authority) = own.split_once("://").unwrap_or(("", own));
    let port = if scheme.eq_ignore_ascii_case("http") { ":80" } else { ":443" };
    // A port may be empty (RFC 3986 §6.2.3).
    let authority =
        authority.strip_suffix(port).or(authority.strip_suffix(':')).unwrap_or(authority).to_ascii_lowercase();
    let authority = match authority.split_once(":") {
        Some((name, port)) if !name.starts_with('[') => format!("{}:{port}", name.trim_end_matches('.')),
        _ => authority.trim_end_matches('.').to_owned(),
    };
    format!("{}://{authority}{}", scheme.to_ascii_lowercase(), &url[own.len()..])
}

/// A URL in the spelling by which purges compare: its host without upper case, a dot at the end and the port of the scheme, its path and query with percent
/// signs where a URL has to have them alone (RFC 3986 §6.2.2).
fn normal(url: &str) -> String {
    let url = with_normal_host(url);
    let (origin, target) = url.split_at(origin(&url).len());
    let mut normal = origin.to_owned();
    spell(target, &mut normal);
    normal
}

/// A part of a path or query in the spelling by which purges compare.
pub(super) fn spelled(part: &str) -> String {
    let mut spelled = String::with_capacity(part.len());
    spell(part, &mut spelled);
    spelled
}

/// Appends path and query: unreserved characters as they are, what no URL has by percent signs.
fn spell(target: &str, out: &mut String) {
    let octets = target.as_bytes();
    let is_unreserved = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    let is_reserved = |octet: u8| b":/?#[]@!$&'()*+,;=%".contains(&octet);
    let mut at = 0;
    while let Some(octet) = octets.get(at).copied() {
        let digits = octets.get(at + 1..at + 3).filter(|_| octet == b'%');
        let encoded = digits.and_then(|digits| match std::str::from_utf8(digits) {
            Ok(text) if digits.iter().all(u8::is_ascii_hexdigit) => u8::from_str_radix(text, 16).ok(),
            _ => None,
        });
        match encoded {
            Some(octet) if is_unreserved(octet) => out.push(char::from(octet)),
            Some(octet) => out.push_str(&format!("%{octet:02X}")),
            None if is_unreserved(octet) || is_reserved(octet) => out.push(char::from(octet)),
            None => out.push_str(&format!("%{octet:02X}")),
        }
        at += if encoded.is_some() { 3 } else { 1 };
    }
}

/// The host of a URL that [`normal`] made, without its port.
fn host(url: &str) -> &str {
    let authority = origin(url).split_once("://").map_or("", |(_, authority)| authority);
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => authority,
    }
}

const FILE: &str = "purges";
/// Octets of names: some 300,000 URLs of usual length.
const MOST_OCTETS: usize = 64 << 20;
/// Size in octets above which the file is rewritten without superseded purges.
const MOST_FILE: u64 = 128 << 20;
/// Each is compared with each object that is looked up.
const MOST_PREFIXES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::super::invalidated::MOST_INVALIDATED;
    use super::*;

    fn purge(target: Target, soft: bool, at: u64) -> Purge {
        Purge { target, soft, at }
    }

    fn boxes(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
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
    fn clients_that_invalidate_very_many_urls_purge_no_others() {
        const ALL: usize = MOST_INVALIDATED + 10_000;
        let url = |n: usize| format!("https://a.example/{n}");
        let purges = Purges::default();
        for n in 0..ALL {
            purges.add(&purge(Target::Invalidated(url(n)), false, 10));
        }
        let scratch = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(scratch.path()).unwrap());
        assert!(directory.try_own().unwrap());
        purges.leave_out_line();
        purges.write_missing(&[&directory]).unwrap();
        let again = Purges::load([&*directory].into_iter());
        for purges in [purges, again] {
            let is_gone = |n: usize| purges.verdict(url(n).as_bytes(), &[], &[], 5) == Verdict::Gone;
            assert!((0..ALL).all(is_gone));
            let others = (ALL..ALL + 10_000).filter(|n| is_gone(*n)).count();
            assert!(others < 600, "{others} of 10,000 others");
            assert_eq!(purges.verdict(url(0).as_bytes(), &[], &[], 11), Verdict::Valid);
        }
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
    fn a_disk_that_fails_keeps_no_purge_from_the_others() {
        let scratch = tempfile::tempdir().unwrap();
        let directories: Vec<_> =
            ["a", "b"].iter().map(|name| Arc::new(Directory::open(&scratch.path().join(name)).unwrap())).collect();
        let all: Vec<_> = directories.iter().collect();
        for directory in &directories {
            assert!(directory.try_own().unwrap());
        }
        let load = || Purges::load(directories.iter().map(|directory| &**directory));
        let purges = load();
        // Nothing can be appended to a directory.
        std::fs::create_dir(scratch.path().join("a").join(FILE)).unwrap();
        let tag = purge(Target::Tag("news".to_owned()), false, 1000);
        purges.add(&tag);
        assert!(purges.order(&tag, &all, Durable::Yes).is_err());
        std::fs::remove_dir(scratch.path().join("a").join(FILE)).unwrap();
        assert_eq!(load().verdict(b"k", &boxes(&["news"]), &[], 1000), Verdict::Gone);
        purges.write_missing(&all).unwrap();
        let first = Purges::load([&*directories[0]].into_iter());
        assert_eq!(first.verdict(b"k", &boxes(&["news"]), &[], 1000), Verdict::Gone);
        // Another process writes to one of them alone.
        let other = load();
        let late = purge(Target::Tag("late".to_owned()), false, 2000);
        other.add(&late);
        other.order(&late, &all[1..], Durable::Yes).unwrap();
        assert!(purges.catch_up(directories.iter().map(|directory| &**directory)));
        assert_eq!(purges.verdict(b"k", &boxes(&["late"]), &[], 2000), Verdict::Gone);
    }

    #[test]
    fn purges_survive_a_restart_and_a_damaged_line_makes_everything_stale() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(scratch.path()).unwrap());
        assert!(directory.try_own().unwrap());
        let tag = purge(Target::Tag("news".to_owned()), false, 1000);
        let purges = Purges::default();
        purges.add(&tag);
        purges.order(&tag, &[&directory], Durable::Yes).unwrap();
        let again = Purges::load([&*directory].into_iter());
        assert_eq!(again.verdict(b"k", &boxes(&["news"]), &[], 1000), Verdict::Gone);
        assert_eq!(again.verdict(b"k", &boxes(&["other"]), &[], 1000), Verdict::Valid);
        std::fs::OpenOptions::new()
            .append(true)
            .open(scratch.path().join(FILE))
            .unwrap()
            .write_all(b"{\"kind\"")
            .unwrap();
        let again = Purges::load([&*directory].into_iter());
        assert_eq!(again.verdict(b"k", &boxes(&["other"]), &[], 1000), Verdict::Stale);
        // The next purge is read, and the damaged line is gone.
        let other = purge(Target::Tag("other".to_owned()), false, 3000);
        again.add(&other);
        again.order(&other, &[&directory], Durable::Yes).unwrap();
        for line in directory.read_file(FILE).unwrap().split(|octet| *octet == b'\n').filter(|line| !line.is_empty()) {
            assert!(serde_json::from_slice::<Purge>(line).is_ok(), "{}", line.escape_ascii());
        }
        let again = Purges::load([&*directory].into_iter());
        assert_eq!(again.verdict(b"k", &boxes(&["other"]), &[], 3000), Verdict::Gone);
        assert_eq!(again.verdict(b"k", &boxes(&["news"]), &[], 1000), Verdict::Gone);
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
