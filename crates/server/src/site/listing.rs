//! Directory listings: configuration, reading and sorting.

use std::cmp::Ordering;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, statat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::archive::{ArchiveConfig, Archives};
use super::checksums::{Beside, Checksum};
use super::listing_notes::NotesKind;
use super::listing_page::policy;
use super::listing_view::{Column, Order, Search, View};
use crate::files::resolve::{NotOpened, Root, Unresolved, Wait, beneath};
use crate::values::{At, Problems};

/// Listings of directories without an index file.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListingConfig {
    /// Entries per page; `?page=2` shows the next ones.
    // 1000 entries make a page of about a quarter of a megabyte.
    #[default(1000.into())]
    pub page: At<usize>,
    /// Most entries of a directory. Further ones are on no page, and the listing says so. Each takes about 200 bytes while a page is made.
    #[default(100_000.into())]
    pub max_entries: At<usize>,
    /// Archives of directories for download: `?archive=tar.zst`. `{}` for the defaults [default: none]
    pub archive: Option<ArchiveConfig>,
    /// Stylesheet that the page loads after its own: a path of this site, for instance `/theme.css` [default: none]
    pub stylesheet: Option<At<String>>,
    /// Notes of the directory: the first of `HEADER.html`, `.md`, `.txt` and `HEADER` stands above the entries, `README` with the same endings below.
    /// `text`: as text; `html`: those that end in `.html` as HTML, whose content the writers of the directory decide; `off`: none.
    pub notes: NotesKind,
}

/// The listings of a route.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(super) bounds: Bounds,
    pub(super) archives: Option<Archives>,
    /// The path of a stylesheet of the site.
    pub(super) stylesheet: Option<Arc<str>>,
    pub(super) notes: NotesKind,
    /// The Content-Security-Policy of pages.
    pub(super) policy: String,
}

/// The bounds of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    /// Entries per page.
    pub page: usize,
    /// Most entries of a directory.
    pub entries: usize,
}

/// A page of the entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entries {
    /// The entries of the page, in order.
    pub entries: Vec<Entry>,
    /// The page, counted from 0: the last one for a number beyond it.
    pub page: usize,
    /// Number of pages: at least 1.
    pub pages: usize,
    /// Directories on all pages.
    pub directories: usize,
    /// Files on all pages.
    pub files: usize,
    /// Entries that were read of a larger directory; the pages show only these.
    pub cut_at: Option<usize>,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file name: any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// Length in bytes; `None` for a directory.
    pub len: Option<u64>,
    pub modified: SystemTime,
    /// Files beside it that hold its checksum.
    pub checksums: Vec<Checksum>,
}

/// A directory to read on the blocking pool.
#[derive(Debug)]
pub(super) struct ReadDirectory {
    /// The root above the directory.
    pub root: Arc<Root>,
    /// The decoded path, without leading and trailing slashes.
    pub name: Box<[u8]>,
    pub bounds: Bounds,
    /// Whether names that begin with a dot are listed.
    pub show_dotfiles: bool,
}

/// An entry that may be on the page.
#[derive(Debug)]
struct Candidate {
    name: Vec<u8>,
    /// Sorts names.
    key: Vec<u8>,
    is_directory: bool,
    /// Read only if it decides on the order, or once the entry is on the page.
    metadata: Option<Metadata>,
}

#[derive(Debug, Clone, Copy)]
struct Metadata {
    is_directory: bool,
    len: u64,
    modified: SystemTime,
}

impl ListingConfig {
    /// Validates the bounds.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Listing {
        if !(1..=MOST_ENTRIES).contains(&*self.max_entries) {
            let remedy = format!("is not from 1 to {MOST_ENTRIES}: the names of a directory must fit into memory");
            problems.add(&self.max_entries.span, &format!("{key}.max_entries"), remedy);
        }
        if !(1..=LONGEST_PAGE).contains(&*self.page) {
            let remedy = format!("is not from 1 to {LONGEST_PAGE}: a page must fit into memory");
            problems.add(&self.page.span, &format!("{key}.page"), remedy);
        }
        let archives = self.archive.as_ref().map(|archive| archive.build(&format!("{key}.archive"), problems));
        let bounds = Bounds { page: *self.page, entries: *self.max_entries };
        if let Some(path) = &self.stylesheet
            && !is_path(path)
        {
            let remedy = "is not a path of this site: write for instance /theme.css";
            problems.add(&path.span, &format!("{key}.stylesheet"), remedy);
        }
        let stylesheet = self.stylesheet.as_ref().map(|path| Arc::from(path.as_str()));
        let policy = policy(stylesheet.is_some() || self.notes == NotesKind::Html);
        Listing { bounds, archives, stylesheet, notes: self.notes, policy }
    }
}

/// Whether a reference stays on the site: a second slash begins a host.
fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && !text.starts_with("//")
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

impl ReadDirectory {
    /// Reads the page of the directory that `view` asks for. Symbolic links are resolved. Links that cannot be served are omitted, as is
    /// anything but files and directories.
    ///
    /// All names are read for each page, but the metadata of entries on other pages only where it decides on the order.
    ///
    /// # Errors
    /// As [`Root::resolve`]; a path that is not a directory is not found.
    pub(super) fn run(&self, view: &View) -> Result<Entries, Unresolved> {
        let directory = self.root.open_directory(&self.name).map_err(NotOpened::unresolved)?;
        let search = Search::new(&view.search);
        let mut candidates = Vec::new();
        let mut checksums = Beside::default();
        let mut read = 0;
        let mut cut_at = None;
        for entry in Dir::read_from(&directory).map_err(Unresolved::from)? {
            let entry = entry.map_err(Unresolved::from)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (name[0] == b'.' && !self.show_dotfiles) {
                continue;
            }
            if read == self.bounds.entries {
                cut_at = Some(read);
                break;
            }
            let Some(mut candidate) = self.candidate(&directory, &entry) else { continue };
            read += 1;
            checksums.add(name);
            if !search.matches(name) {
                continue;
            }
            if view.order.by != Column::Name && candidate.metadata.is_none() {
                candidate.metadata = self.inspect(&directory, name);
            }
            candidates.push(candidate);
        }
        let directories = candidates.iter().filter(|candidate| candidate.is_directory).count();
        let files = candidates.len() - directories;
        let pages = candidates.len().div_ceil(self.bounds.page).max(1);
        let page = view.page.min(pages - 1);
        cut_out(&mut candidates, page * self.bounds.page, self.bounds.page, |a, b| compare(view.order, a, b));
        let inspected = candidates.into_iter().filter_map(|candidate| {
            // An entry that was deleted meanwhile is not an error.
            let metadata = candidate.metadata.or_else(|| self.inspect(&directory, &candidate.name))?;
            let len = (!metadata.is_directory).then_some(metadata.len);
            Some(Entry { name: candidate.name, len, modified: metadata.modified, checksums: Vec::new() })
        });
        let mut entries: Vec<Entry> = inspected.collect();
        let all = entries.iter_mut().filter(|entry| entry.len.is_some());
        checksums.assign(&self.root, &self.name, all.map(|entry| (&*entry.name, &mut entry.checksums)));
        Ok(Entries { entries, page, pages, directories, files, cut_at })
    }

    /// The entry, if it is a file or a directory that can be served.
    fn candidate(&self, directory: &impl std::os::fd::AsFd, entry: &DirEntry) -> Option<Candidate> {
        let name = entry.file_name().to_bytes();
        let metadata = match entry.file_type() {
            FileType::RegularFile | FileType::Directory => None,
            // Some file systems do not say the type here.
            FileType::Symlink | FileType::Unknown => Some(self.inspect(directory, name)?),
            _ => return None,
        };
        let is_directory = metadata.map_or(entry.file_type() == FileType::Directory, |metadata| metadata.is_directory);
        let key = natural(&String::from_utf8_lossy(name).to_lowercase());
        Some(Candidate { name: name.to_vec(), key, is_directory, metadata })
    }

    fn inspect(&self, directory: &impl std::os::fd::AsFd, name: &[u8]) -> Option<Metadata> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let modified = displayable(stat.st_mtime as i64);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Metadata { is_directory: false, len: stat.st_size as u64, modified }),
            FileType::Directory => Some(Metadata { is_directory: true, len: 0, modified }),
            FileType::Symlink => {
                let metadata = self.root.metadata(&beneath(&self.name, name), Wait::Yes).ok()?;
                let modified = displayable(metadata.mtime());
                let is_shown = metadata.is_file() || metadata.is_dir();
                is_shown.then(|| Metadata { is_directory: metadata.is_dir(), len: metadata.len(), modified })
            }
            _ => None,
        }
    }
}

/// Clamps a file time to the times that the page can show, from 1970 to 9999.
pub(super) fn displayable(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64)
}

fn compare(order: Order, a: &Candidate, b: &Candidate) -> Ordering {
    let by_name = || (&a.key, &a.name).cmp(&(&b.key, &b.name));
    let by_metadata = |key: fn(Metadata) -> u64| order.apply(a.metadata.map(key).cmp(&b.metadata.map(key)));
    let seconds = |metadata: Metadata| metadata.modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let len = |metadata: Metadata| if metadata.is_directory { 0 } else { metadata.len };
    b.is_directory.cmp(&a.is_directory).then_with(|| match order.by {
        Column::Name => order.apply(by_name()),
        Column::Size => by_metadata(len).then_with(by_name),
        Column::Modified => by_metadata(seconds).then_with(by_name),
    })
}

/// Leaves the `len` elements that come from place `start` on in order, sorted. The others are not sorted.
fn cut_out<T>(all: &mut Vec<T>, start: usize, len: usize, compare: impl Fn(&T, &T) -> Ordering) {
    if (1..all.len()).contains(&start) {
        all.select_nth_unstable_by(start, &compare);
    }
    all.drain(..start.min(all.len()));
    if len < all.len() {
        all.select_nth_unstable_by(len, &compare);
        all.truncate(len);
    }
    all.sort_unstable_by(compare);
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
        // Where digits stand among other characters; then a number of more digits is the larger one. A name has at most 255 bytes.
        key.extend([b'0', digits.len() as u8]);
        key.extend(digits);
        rest = behind;
    }
    key
}

/// A million names take about 200 MB while a page is made.
const MOST_ENTRIES: usize = 1_000_000;

const LONGEST_PAGE: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(root: &std::path::Path, name: &str, entries: usize, show_dotfiles: bool) -> Result<Entries, u16> {
        show(root, name, Bounds { page: 100, entries }, show_dotfiles, "")
    }

    fn show(
        root: &std::path::Path,
        name: &str,
        bounds: Bounds,
        show_dotfiles: bool,
        query: &str,
    ) -> Result<Entries, u16> {
        let root = Arc::new(Root::open(root).unwrap());
        let task = ReadDirectory { root, name: name.as_bytes().into(), bounds, show_dotfiles };
        task.run(&View::from_query(Some(query))).map_err(|unresolved| unresolved.status.code())
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
        assert_eq!((names(&all).as_str(), all.cut_at), ("link sub A b \\xff", None));
        assert_eq!(
            all.entries.iter().map(|entry| entry.len).collect::<Vec<_>>(),
            [None, None, Some(4), Some(4), Some(0)]
        );
        assert_eq!(names(&read(&root, "", 100, true).unwrap()), "link sub .hidden A b \\xff");
        assert_eq!(names(&read(&root, "sub", 100, false).unwrap()), "deep up x");
        let some = read(&root, "", 5, false).unwrap();
        assert!(some.entries.len() == 5 && some.cut_at.is_none());
        let some = read(&root, "", 4, false).unwrap();
        assert!(some.entries.len() == 4 && some.cut_at == Some(4));
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

    /// The names in the order of the query.
    fn sorted(mut candidates: Vec<Candidate>, query: &str) -> Vec<String> {
        let order = View::from_query(Some(query)).order;
        let len = candidates.len();
        cut_out(&mut candidates, 0, len, |a, b| compare(order, a, b));
        candidates.into_iter().map(|candidate| String::from_utf8(candidate.name).unwrap()).collect()
    }

    fn candidate(name: &str, len: Option<u64>, modified: i64) -> Candidate {
        let is_directory = len.is_none();
        let metadata = Metadata { is_directory, len: len.unwrap_or(4096), modified: displayable(modified) };
        let key = natural(&name.to_lowercase());
        Candidate { name: name.as_bytes().to_vec(), key, is_directory, metadata: Some(metadata) }
    }

    #[test]
    fn orders() {
        for (query, expected) in [
            ("", "yZabC"),
            ("order=desc", "ZyCba"),
            ("sort=size", "yZCab"),
            ("sort=size&order=desc", "yZabC"),
            ("sort=modified", "yZabC"),
            ("sort=modified&order=desc", "ZyCba"),
            ("sort=x&order=y&z", "yZabC"),
        ] {
            let entries = vec![
                candidate("b", Some(1), 3),
                candidate("Z", None, 9),
                candidate("a", Some(1), 2),
                candidate("C", Some(0), 5),
                candidate("y", None, 1),
            ];
            assert_eq!(sorted(entries, query).concat(), expected, "{query:?}");
        }
    }

    #[test]
    fn numbers_in_names_are_in_the_order_of_their_values() {
        let names = [
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
        let entries = names.iter().rev().map(|name| candidate(name, Some(0), 0)).collect();
        assert_eq!(sorted(entries, ""), names);
    }

    #[test]
    fn pages_are_parts_of_the_whole_order() {
        for len in [0, 1, 2, 5, 10, 11] {
            let all: Vec<u32> = (0..len).map(|n| n * 7 % 11).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            for page in 1..5 {
                let mut pages = Vec::new();
                for start in (0..12).step_by(page) {
                    let mut part = all.clone();
                    cut_out(&mut part, start, page, Ord::cmp);
                    assert!(part.len() <= page);
                    pages.extend(part);
                }
                assert_eq!(pages, sorted);
            }
        }
    }

    #[test]
    fn a_page_has_what_the_query_asks_for() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for n in 1..=25 {
            fs::write(root.join(format!("f{n}.iso")), vec![0; 30 - n]).unwrap();
        }
        fs::create_dir(root.join("dir")).unwrap();
        let digits = "0".repeat(64);
        fs::write(root.join("SHA256SUMS"), format!("{digits}  f2.iso\n{digits} *f3.iso\n")).unwrap();
        fs::write(root.join("f2.iso.sha256"), &digits).unwrap();
        let bounds = Bounds { page: 10, entries: 1000 };
        let page = |query: &str| show(root, "", bounds, false, query).unwrap();
        let first = page("");
        assert_eq!(names(&first), "dir f1.iso f2.iso f2.iso.sha256 f3.iso f4.iso f5.iso f6.iso f7.iso f8.iso");
        assert_eq!((first.page, first.pages, first.directories, first.files, first.cut_at), (0, 3, 1, 27, None));
        assert_eq!(names(&page("page=3")), "f19.iso f20.iso f21.iso f22.iso f23.iso f24.iso f25.iso SHA256SUMS");
        assert_eq!(page("page=99"), page("page=3"));
        assert_eq!(names(&page("sort=size&q=*.iso&page=3")), "f5.iso f4.iso f3.iso f2.iso f1.iso");
        let found = page("q=F2.");
        assert_eq!((names(&found).as_str(), found.pages, found.files), ("f2.iso f2.iso.sha256", 1, 2));
        let none = page("q=none&page=7");
        assert_eq!((none.entries.len(), none.page, none.pages), (0, 0, 1));
        // The checksums are found wherever they are in the order, and whatever is searched for.
        let checksums = |query: &str| {
            let of = |entry: &Entry| entry.checksums.iter().map(|sum| sum.file.clone()).collect::<Vec<_>>().concat();
            page(query).entries.iter().map(|entry| String::from_utf8(of(entry)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(checksums("q=f3.iso"), ["SHA256SUMS"]);
        assert_eq!(checksums("q=f2.iso"), ["f2.iso.sha256", ""]);
        assert_eq!(checksums("q=f1.iso"), [""]);
        let cut = show(root, "", Bounds { page: 10, entries: 12 }, false, "").unwrap();
        assert_eq!((cut.cut_at, cut.pages, cut.entries.len()), (Some(12), 2, 10));
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            ("max_entries = 0", "f:1: site.listing.max_entries: is not from 1 to"),
            ("page = 0", "f:1: site.listing.page: is not from 1 to"),
            ("page = 10001", "f:1: site.listing.page: is not from 1 to"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            toml::from_str::<ListingConfig>(text).unwrap().build("site.listing", &mut problems);
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
    }

    #[test]
    fn a_stylesheet_is_of_this_site() {
        let build = |text: &str| {
            let config: ListingConfig = toml::from_str(text).unwrap();
            let mut problems = Problems::of_file(std::path::Path::new("f"), text);
            let listing = config.build("site.listing", &mut problems);
            (listing.policy.contains("img-src 'self'"), problems.to_string())
        };
        assert_eq!(build("stylesheet = '/a/theme.css?v=2'"), (true, String::new()));
        assert_eq!(build("notes = 'text'"), (false, String::new()));
        assert_eq!(build("notes = 'html'"), (true, String::new()));
        for other in ["theme.css", "//evil.test/x.css", "https://evil.test/x.css", "/\\\\evil.test", "/a b"] {
            let (_, problems) = build(&format!("stylesheet = '{other}'"));
            assert_eq!(
                problems,
                "f:1: site.listing.stylesheet: is not a path of this site: write for instance /theme.css"
            );
        }
    }
}
