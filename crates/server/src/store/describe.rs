//! The store for an operator: `sealion cache`, `sealion purge`, and its part of `sealion check`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};
use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;
use sealion_cache::Lifetime;

use super::claim::require_own;
use super::counts::DiskState;
use super::directory::Opened;
use super::disk::Disk;
use super::format::{Footer, Kind, Metadata};
use super::key::variant_in_words;
use super::opening::is_damaged;
use super::purge::{Target, Verdict};
use super::purge_url::{normal, with_normal_host};
use super::purging::plain_key;
use super::{Store, now_s};
use crate::files::resolve::Wait;
use crate::values::printable;

/// How long an order waits for the process before to leave the directories.
const TAKEOVER: Duration = Duration::from_secs(5);

/// The footer and metadata behind the body of a file.
type Read = (Footer, Metadata);

fn without_file(Opened { footer, metadata, .. }: Opened) -> Read {
    (footer, metadata)
}

impl Store {
    /// A line for each directory.
    pub(crate) fn describe(&self) -> String {
        let line = |disk: DiskState| {
            let DiskState {
                directory, objects, bytes, index_bytes, is_up, is_swept, stored, evicted, failures, ..
            } = disk;
            let state = if is_up { "" } else { "; nothing is stored now: the log says why" };
            let sweep = if is_swept { "; purged files are being removed" } else { "" };
            format!(
                "{directory}: {objects} responses, {} on the disk, {} of memory for the index; since the start {stored} stored, \
                 {evicted} evicted, {failures} failures{sweep}{state}",
                megabytes(bytes),
                megabytes(index_bytes),
            )
        };
        self.disk_states().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Describes the stored responses of a URL, for each of these upstreams. May block.
    ///
    /// # Errors
    /// A line: nothing, and why, where that is known.
    pub(crate) fn describe_url<'a>(
        &self,
        url: &str,
        upstreams: impl Iterator<Item = &'a str>,
    ) -> Result<String, String> {
        if !self.has_disk() {
            return Err(self.missing().map_or_else(|error| error.to_string(), |()| "nothing is stored yet".to_owned()));
        }
        let url = with_normal_host(url);
        let mut text = String::new();
        let mut reasons = String::new();
        for upstream in upstreams {
            let key = plain_key(&url, upstream);
            if let Some(read) = self.read_by_key(&key) {
                let _ = writeln!(text, "{url} by upstream {upstream}: {}", self.describe_object(read));
            }
            if let Some(read) = self.key_by_search(&key).and_then(|key| self.read_by_key(&key)) {
                let _ = writeln!(text, "{url} by upstream {upstream}: {}", self.describe_object(read));
            }
            let hash = self.hash(&key);
            if self.fills.lock().get(&hash).is_some_and(|fill| !fill.has_ended()) {
                let _ = writeln!(text, "{url} by upstream {upstream}: it is being fetched");
            }
            if let Some((at, why)) = self.passed.lock().peek(&hash).and_then(|passed| passed.not_shared.latest()) {
                let ago = at.elapsed().as_secs();
                let _ = write!(reasons, "; the answer of upstream {upstream} {ago} s ago was not stored: {why}");
            }
        }
        match text.trim_end() {
            "" => Err(format!("nothing is stored for {url}, {UNLESS}{reasons}")),
            text => Ok(text.to_owned()),
        }
    }

    /// Purges by order. Returns a line for the operator. `upstreams`: whose rules may store a URL. May block.
    ///
    /// # Errors
    /// A line: the disk failed.
    pub(crate) fn ordered<'a>(
        &self,
        target: Target,
        soft: bool,
        upstreams: impl Iterator<Item = &'a str>,
    ) -> Result<String, String> {
        let what = match &target {
            Target::Everything => "everything".to_owned(),
            Target::Url(url) | Target::Invalidated(url) => url.clone(),
            Target::InvalidatedHash(_) | Target::InvalidatedSlot(_) => "what a request invalidated".to_owned(),
            Target::Prefix(url) => format!("everything beneath {url}"),
            Target::Host(name) => format!("everything of {name}"),
            Target::Tag(tag) => format!("everything with the tag {tag}"),
            Target::Group(origin, group) => format!("the group {group} of {origin}"),
        };
        if !self.wait_for_directories() {
            return Err("another process owns the cache: ask that one, or wait until it has ended".to_owned());
        }
        let effect = if soft { "is stale" } else { "is purged" };
        let found = self.found_by(&target, soft, upstreams);
        match self.purge(target, soft) {
            Ok(()) => Ok(found.map_or_else(|| format!("{what} {effect}"), |found| format!("{what} {effect}: {found}"))),
            Err(error) => Err(format!("{what} {effect}, but that does not last or reach all: {error}")),
        }
    }

    /// Waits until this process owns all directories: after an upgrade, the process before leaves them within a second. `false`: it does not.
    fn wait_for_directories(&self) -> bool {
        let until = Instant::now() + TAKEOVER;
        while !self.disks().all(|disk| disk.directory.is_owner()) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Describes the objects that a purge is about to find, as far as they can be found without reading everything. May block.
    fn found_by<'a>(&self, target: &Target, soft: bool, upstreams: impl Iterator<Item = &'a str>) -> Option<String> {
        match target {
            Target::Everything => {
                let count: u64 = self.disk_states().map(|disk| disk.objects).sum();
                let what = if soft { "files" } else { "files, which are removed from the disk from now on" };
                Some(format!("{count} {what}"))
            }
            Target::Url(url) => {
                // As it is written, and as most clients spell it.
                let urls = BTreeSet::from([with_normal_host(url), normal(url)]);
                let count_by =
                    |upstream| urls.iter().map(|url| self.count_of(&plain_key(url, upstream))).sum::<usize>();
                Some(match upstreams.map(count_by).sum() {
                    0 => format!("nothing was stored for it, {UNLESS}"),
                    1 => "1 response".to_owned(),
                    count => format!("{count} responses"),
                })
            }
            _ => None,
        }
    }

    /// Responses under a key that are not purged, its variants included.
    fn count_of(&self, key: &[u8]) -> usize {
        let counts = |(footer, metadata): &Read| self.verdict_of(footer, metadata) != Verdict::Gone;
        match self.read_by_key(key) {
            Some((_, Metadata { kind: Kind::Variants { hashes, .. }, .. })) => {
                hashes.iter().filter_map(|hash| self.read(*hash)).filter(counts).count()
            }
            Some(read) => counts(&read).into(),
            None => 0,
        }
    }

    /// The footer and metadata under a key. `None`: there is no object, or its disk does not answer. May block.
    fn read_by_key(&self, key: &[u8]) -> Option<Read> {
        let hash = self.has_disk().then(|| self.hash(key))?;
        let key = key.to_vec();
        let open = move |disk: &Disk| disk.open_object(hash, &key, Wait::Yes).ok().flatten().map(without_file);
        self.disk(hash).run_and_block("read an object", open).flatten()
    }

    /// The same by the hash of a key.
    fn read(&self, hash: u128) -> Option<Read> {
        let find = move |disk: &Disk| disk.directory.find(hash, Wait::Yes).ok().flatten().map(without_file);
        self.disk(hash).run_and_block("read an object", find).flatten()
    }

    /// The verdict of the purges on a file.
    pub(super) fn verdict_of(&self, footer: &Footer, metadata: &Metadata) -> Verdict {
        let Kind::Response { fields, .. } = &metadata.kind else { return Verdict::Valid };
        let pairs =
            fields.iter().filter_map(|(name, value)| Some((name.parse().ok()?, HeaderValue::from_bytes(value).ok()?)));
        let map: HeaderMap = pairs.collect();
        let boxed = |names: Vec<String>| names.into_iter().map(String::into_boxed_str).collect::<Vec<_>>();
        let (tags, groups) = (boxed(sealion_cache::tags(&map)), boxed(sealion_cache::groups(&map)));
        self.purges().verdict(&metadata.key, &tags, &groups, footer.stored)
    }

    fn describe_object(&self, read: Read) -> String {
        let verdict = match self.verdict_of(&read.0, &read.1) {
            Verdict::Gone => "; PURGED",
            Verdict::Stale | Verdict::Doubtful => "; made stale by a purge",
            Verdict::Valid => "",
        };
        let (footer, metadata) = read;
        let (status, fields, lifetime) = match metadata.kind {
            Kind::Variants { names, hashes } => return self.describe_variants(&names, &hashes),
            Kind::Response { status, fields, lifetime } => (status, fields, lifetime),
        };
        let now = now_s();
        let lifetime = lifetime.as_slice().try_into().ok().and_then(Lifetime::from_bytes);
        let state = lifetime.map_or_else(String::new, |lifetime| {
            let (age, expires) = (lifetime.age(now), lifetime.expires());
            let freshness = match expires.checked_sub(now) {
                Some(left) if left > 0 => format!("fresh for {left} s"),
                _ => format!("stale for {} s", now - expires),
            };
            format!("age {age} s, {freshness}")
        });
        let is_named = |name: &String| {
            matches!(name.as_str(), "etag" | "last-modified" | "cache-control" | "cache-tag" | "content-range")
        };
        let named = fields.iter().filter(|(name, _)| is_named(name));
        let named: String =
            named.map(|(name, value)| format!("; {name}: {}", printable(&String::from_utf8_lossy(value)))).collect();
        format!("status {status}, {} octets, {state}{verdict}{named}", footer.body)
    }

    fn describe_variants(&self, names: &[String], hashes: &[u128]) -> String {
        let found = hashes.iter().filter_map(|hash| self.read(*hash));
        let lines: Vec<_> = found
            .map(|read| {
                let variant = variant_in_words(&read.1.key);
                format!("\n  {variant}: {}", self.describe_object(read))
            })
            .collect();
        format!("it has variants by {}: {}{}", names.join(", "), lines.len(), lines.concat())
    }
}

/// Responses that the key of a URL does not find.
const UNLESS: &str = "unless by key_headers, key_cookies, No-Vary-Search, a rewrite to a script or another spelling";

impl Store {
    /// One line for each problem with the directories, which need not be open.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.paths.iter().filter_map(|path| note(&self.config, path)).collect()
    }
}

/// The problem with a directory that the server has not opened yet, and the remedy. The check runs as the user that asks.
fn note(config: &super::CacheConfig, path: &Path) -> Option<String> {
    let shown = path.display();
    if let Err(error) = require_own(path)
        && error.kind() == std::io::ErrorKind::InvalidInput
    {
        return Some(format!("cache.directories: {shown}: {error}"));
    }
    let there = path.ancestors().find(|path| path.exists()).filter(|path| !path.as_os_str().is_empty());
    let there = there.unwrap_or(Path::new("."));
    const MEANWHILE: &str = "the server starts without it and tries it again";
    if is_damaged(path) {
        return Some(format!(
            "cache.directories: {shown}/sealion-cache is damaged: remove the directory's content to begin an empty cache; {MEANWHILE}"
        ));
    }
    if let Err(errno) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        if errno == Errno::ROFS {
            return Some(format!(
                "cache.directories: the file system of {shown} is read-only: mount it so that it can be written; {MEANWHILE}"
            ));
        }
        let what = if there == path { "is" } else { "does not exist, and the directory above is" };
        return Some(format!(
            "cache.directories: {shown} {what} not writable for this user: have it made, and owned by the user that serves"
        ));
    }
    let stat = statvfs(there).ok()?;
    if stat.f_bavail == 0 {
        return Some(format!("cache.directories: the file system of {shown} is full: make room; {MEANWHILE}"));
    }
    let (octets, size) = (stat.f_blocks * stat.f_frsize, config.size.0);
    if size.saturating_add(config.free.0) > octets {
        return Some(format!(
            "cache.size: {} and cache.free are more than the whole file system of {shown} has, {}: the responses that are worth least are removed \
             before cache.size is reached",
            megabytes(size),
            megabytes(octets)
        ));
    }
    (there != path).then(|| {
        format!(
            "cache.directories: {shown} does not exist: the start makes it, on the file system of {}",
            there.display()
        )
    })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
