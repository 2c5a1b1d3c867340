//! Directory listings: configuration, reading and sorting.

use std::cmp::Ordering;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Prefix;
use crate::files::resolve::{NotOpened, Root, Unresolved};
use crate::values::{At, Problems};

/// Listings of directories without an index file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListingConfig {
    /// Whether listings are enabled.
    pub enabled: At<bool>,
    /// Paths to list, with everything beneath them.
    pub paths: Vec<At<String>>,
    /// Most entries per listing. A truncated listing says so.
    pub max_entries: At<usize>,
}

impl Default for ListingConfig {
    /// 2000 entries make a page of about half a megabyte.
    fn default() -> Self {
        ListingConfig { enabled: false.into(), paths: vec!["/".to_owned().into()], max_entries: 2000.into() }
    }
}

/// The directories to list.
#[derive(Debug)]
pub(crate) struct Listing {
    paths: Vec<Prefix>,
    max_entries: usize,
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entries {
    /// The entries, unsorted.
    pub entries: Vec<Entry>,
    /// Whether the directory has more entries.
    pub more: bool,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file name: any octets but NUL and slash.
    pub name: Vec<u8>,
    /// Length in bytes; `None` for a directory.
    pub len: Option<u64>,
    pub modified: SystemTime,
}

/// A directory to read on the blocking pool.
#[derive(Debug)]
pub(super) struct ReadDirectory {
    /// The root above the directory.
    pub root: Arc<Root>,
    /// The decoded path, without leading and trailing slashes.
    pub name: Box<[u8]>,
    /// Most entries to read.
    pub max_entries: usize,
    /// Whether names that begin with a dot are listed.
    pub show_dotfiles: bool,
}

/// The order of a listing. Directories always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Order {
    pub by: Column,
    /// Whether the largest, newest or alphabetically last entry comes first.
    pub descending: bool,
}

/// The column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Column {
    Name,
    Size,
    Modified,
}

impl ListingConfig {
    /// Validates paths and bounds. `None`: listings are off.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Option<Listing> {
        let path_key = format!("{key}.paths");
        let paths = self.paths.iter().filter_map(|path| Prefix::build(path, &path.span, &path_key, problems)).collect();
        if !(1..=MOST_ENTRIES).contains(&*self.max_entries) {
            let remedy = format!("is not from 1 to {MOST_ENTRIES}: a page must fit into memory");
            problems.add(&self.max_entries.span, &format!("{key}.max_entries"), remedy);
        }
        self.enabled.then_some(Listing { paths, max_entries: *self.max_entries })
    }
}

impl Listing {
    /// Whether the directory at a decoded path without leading and trailing slashes is listed.
    pub(crate) fn covers(&self, name: &[u8]) -> bool {
        self.paths.iter().any(|path| path.covers(name))
    }

    /// Most entries per listing.
    pub(crate) fn max_entries(&self) -> usize {
        self.max_entries
    }
}

impl ReadDirectory {
    /// Reads the directory. Symbolic links are resolved. Links that cannot be served are omitted, as is anything but files and
    /// directories.
    ///
    /// # Errors
    /// As [`Root::resolve`]; a path that is not a directory is not found.
    pub(super) fn run(&self) -> Result<Entries, Unresolved> {
        let unresolved = |error| match error {
            NotOpened::Unresolved(unresolved) => unresolved,
            NotOpened::Waits => Unresolved::not_found(None),
        };
        let directory = self.root.open_directory(&self.name).map_err(unresolved)?;
        let mut found = Entries { entries: Vec::new(), more: false };
        for entry in Dir::read_from(&directory).map_err(Unresolved::from)? {
            let entry = entry.map_err(Unresolved::from)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (name[0] == b'.' && !self.show_dotfiles) {
                continue;
            }
            // An entry that was deleted meanwhile is not an error.
            let Some(entry) = self.inspect(&directory, name) else { continue };
            if found.entries.len() == self.max_entries {
                found.more = true;
                break;
            }
            found.entries.push(entry);
        }
        Ok(found)
    }

    fn inspect(&self, directory: &impl std::os::fd::AsFd, name: &[u8]) -> Option<Entry> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (is_directory, len, modified) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => (false, stat.st_size as u64, displayable(stat.st_mtime as i64)),
            FileType::Directory => (true, 0, displayable(stat.st_mtime as i64)),
            FileType::Symlink => {
                let path = if self.name.is_empty() { name.to_vec() } else { [&self.name, &b"/"[..], name].concat() };
                let metadata = self.root.metadata(&path).ok()?;
                if !metadata.is_file() && !metadata.is_dir() {
                    return None;
                }
                (metadata.is_dir(), metadata.len(), displayable(metadata.mtime()))
            }
            _ => return None,
        };
        Some(Entry { name: name.to_vec(), len: (!is_directory).then_some(len), modified })
    }
}

/// Clamps a file time to what the page can show, from 1970 to 9999.
pub(super) fn displayable(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64)
}

impl Order {
    /// Parses a query such as `sort=size&order=desc`. Unknown parameters are ignored.
    pub(super) fn from_query(query: Option<&str>) -> Self {
        let mut order = Order { by: Column::Name, descending: false };
        for pair in query.unwrap_or_default().split('&') {
            match pair {
                "sort=name" => order.by = Column::Name,
                "sort=size" => order.by = Column::Size,
                "sort=modified" => order.by = Column::Modified,
                "order=asc" => order.descending = false,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    pub(super) fn sort(self, entries: &mut [Entry]) {
        let folded = |entry: &Entry| String::from_utf8_lossy(&entry.name).to_lowercase();
        entries.sort_by_cached_key(|entry| (natural(&folded(entry)), entry.name.clone()));
        let compare = |a: &Entry, b: &Entry| match self.by {
            Column::Name => Ordering::Equal,
            Column::Size => a.len.cmp(&b.len),
            Column::Modified => a.modified.cmp(&b.modified),
        };
        match (self.by, self.descending) {
            (Column::Name, true) => entries.reverse(),
            (_, false) => entries.sort_by(compare),
            (_, true) => entries.sort_by(|a, b| compare(b, a)),
        }
        entries.sort_by_key(|entry| entry.len.is_some());
    }
}

/// A key that sorts numbers by their value: `v9` before `v10`. The order of all other characters is theirs.
fn natural(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 8);
    let mut rest = name.as_bytes();
    while let Some(first) = rest.first() {
        if !first.is_ascii_digit() {
            key.push(*first);
            rest = &rest[1..];
            continue;
        }
        let (number, behind) = rest.split_at(rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len()));
        let zeros = number.iter().take_while(|digit| **digit == b'0').count();
        let digits = &number[zeros..];
        // Where digits stand among other characters; then a number of more digits is the larger one. A name has at most 255 octets.
        key.extend([b'0', digits.len() as u8]);
        key.extend(digits);
        rest = behind;
    }
    key
}

const MOST_ENTRIES: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(root: &std::path::Path, name: &str, max_entries: usize, show_dotfiles: bool) -> Result<Entries, u16> {
        let root = Arc::new(Root::open(root).unwrap());
        let task = ReadDirectory { root, name: name.as_bytes().into(), max_entries, show_dotfiles };
        let mut found = task.run().map_err(|unresolved| unresolved.status.code())?;
        Order::from_query(None).sort(&mut found.entries);
        Ok(found)
    }

    fn names(entries: &Entries) -> String {
        entries.entries.iter().map(|entry| entry.name.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn listed_entries() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        for name in ["b", "A", ".hidden", "sub/x"] {
            fs::write(root.join(name), "four").unwrap();
        }
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();
        symlink("sub", root.join("link")).unwrap();
        symlink("../b", root.join("sub/up")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();

        let all = read(&root, "", 100, false).unwrap();
        assert_eq!((names(&all).as_str(), all.more), ("link sub A b \\xff", false));
        assert_eq!(
            all.entries.iter().map(|entry| entry.len).collect::<Vec<_>>(),
            [None, None, Some(4), Some(4), Some(0)]
        );
        assert_eq!(names(&read(&root, "", 100, true).unwrap()), "link sub .hidden A b \\xff");
        assert_eq!(names(&read(&root, "sub", 100, false).unwrap()), "deep up x");
        let some = read(&root, "", 5, false).unwrap();
        assert!(some.entries.len() == 5 && !some.more);
        let some = read(&root, "", 4, false).unwrap();
        assert!(some.entries.len() == 4 && some.more);
        // From before 1970.
        let file = fs::File::create(root.join("sub/deep/before")).unwrap();
        file.set_modified(UNIX_EPOCH - Duration::from_secs(86_400)).unwrap();
        symlink("deep/before", root.join("sub/link")).unwrap();
        let linked = read(&root, "sub", 9, false).unwrap();
        assert!(linked.entries.iter().any(|entry| entry.name == b"link" && entry.modified == UNIX_EPOCH));
        for (name, status) in [("none", 404), ("b", 404), ("../", 404), ("out", 404)] {
            assert_eq!(read(&root, name, 9, false), Err(status), "{name}");
        }
    }

    #[test]
    fn orders() {
        let entry = |name: &str, len: Option<u64>, modified: i64| Entry {
            name: name.as_bytes().to_vec(),
            len,
            modified: displayable(modified),
        };
        let entries = [
            entry("b", Some(1), 3),
            entry("Z", None, 9),
            entry("a", Some(1), 2),
            entry("C", Some(0), 5),
            entry("y", None, 1),
        ];
        for (query, expected) in [
            (None, "yZabC"),
            (Some("order=desc"), "ZyCba"),
            (Some("sort=size"), "yZCab"),
            (Some("sort=size&order=desc"), "yZabC"),
            (Some("sort=modified"), "yZabC"),
            (Some("sort=modified&order=desc"), "ZyCba"),
            (Some("sort=x&order=y&z"), "yZabC"),
        ] {
            let mut sorted = entries.to_vec();
            Order::from_query(query).sort(&mut sorted);
            let names: Vec<u8> = sorted.iter().flat_map(|entry| entry.name.clone()).collect();
            assert_eq!(String::from_utf8(names).unwrap(), expected, "{query:?}");
        }
    }

    #[test]
    fn numbers_in_names_are_in_the_order_of_their_values() {
        let sorted = [
            "-9",
            "-10",
            "0",
            "00",
            "1.9",
            "1.10",
            "2",
            "10",
            "A1",
            "a2b",
            "A10",
            "a010c",
            "debian-9.iso",
            "debian-12.iso",
            "v1.2.9",
            "v1.2.10",
            "v1.10.0",
            "v18446744073709551617",
        ];
        let entry = |name: &&str| Entry { name: name.as_bytes().to_vec(), len: Some(0), modified: UNIX_EPOCH };
        let mut entries: Vec<Entry> = sorted.iter().rev().map(entry).collect();
        Order::from_query(None).sort(&mut entries);
        assert_eq!(entries, sorted.iter().map(entry).collect::<Vec<_>>());
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            ("enabled = true\nmax_entries = 0", "f:2: site.listing.max_entries: is not from 1 to"),
            ("enabled = true\npaths = ['x']", "f:2: site.listing.paths: begin it"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            toml::from_str::<ListingConfig>(text).unwrap().build("site.listing", &mut problems);
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
        assert!(ListingConfig::default().build("", &mut Problems::of_arguments()).is_none());
    }
}
