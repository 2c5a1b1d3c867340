//! The walk through a directory that becomes an archive.

use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Dir, FileType, fstat};

use super::{NoArchive, Refused};
use crate::files::resolve::{Found, NotOpened, Root, Unresolved, Wait, beneath};

/// The members of a directory that were found, and the directories still to be read.
#[derive(Debug)]
pub(in crate::site) struct Walk {
    pub(super) root: Arc<Root>,
    /// The directory, beneath the root.
    pub(super) top: Box<[u8]>,
    /// Names of index files: a directory with one of them is not listed.
    indexes: Arc<[String]>,
    show_dotfiles: bool,
    most_members: usize,
    most_bytes: u64,
    pub(super) members: Vec<Member>,
    pending: Vec<Arc<Directory>>,
    bytes: u64,
    /// Bytes of all names.
    names: usize,
}

/// A file or directory in an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The path beneath the directory of the archive; a directory's ends in a slash.
    pub(super) name: Box<[u8]>,
    pub(super) len: u64,
    /// Seconds since 1970.
    pub(super) modified: u64,
}

/// A directory to read.
#[derive(Debug)]
struct Directory {
    /// The path beneath the top.
    name: Vec<u8>,
    /// Set when it is read.
    identity: OnceLock<Identity>,
    parent: Option<Arc<Directory>>,
}

/// Device and inode.
type Identity = (u64, u64);

/// An entry of a directory that was read.
#[derive(Debug)]
pub(in crate::site) struct Child {
    /// The path beneath the top of the walk, without a slash at its end.
    pub(in crate::site) name: Vec<u8>,
    modified: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    File { len: u64 },
    Directory { parent: Arc<Directory> },
}

/// A directory to read on the blocking pool.
#[derive(Debug)]
pub(in crate::site) struct ReadChildren {
    root: Arc<Root>,
    top: Box<[u8]>,
    directory: Arc<Directory>,
    indexes: Arc<[String]>,
    show_dotfiles: bool,
    most: usize,
}

impl Walk {
    pub(super) fn new(
        root: Arc<Root>,
        top: &[u8],
        indexes: Vec<String>,
        show_dotfiles: bool,
        most_members: usize,
        most_bytes: u64,
    ) -> Self {
        let directory = Directory { name: Vec::new(), identity: OnceLock::new(), parent: None };
        Walk {
            root,
            top: top.into(),
            indexes: indexes.into(),
            show_dotfiles,
            most_members,
            most_bytes,
            members: Vec::new(),
            pending: vec![Arc::new(directory)],
            bytes: 0,
            names: 0,
        }
    }

    /// The next directory to read; its entries are to be given to [`Self::add`]. `None`: all are read.
    pub(in crate::site) fn next(&mut self) -> Option<ReadChildren> {
        let directory = self.pending.pop()?;
        Some(ReadChildren {
            root: Arc::clone(&self.root),
            top: self.top.clone(),
            directory,
            indexes: Arc::clone(&self.indexes),
            show_dotfiles: self.show_dotfiles,
            most: self.most_members,
        })
    }

    /// Adds an entry to the archive.
    ///
    /// # Errors
    /// The archive would exceed its bounds.
    pub(in crate::site) fn add(&mut self, child: Child) -> Result<(), Refused> {
        let Child { mut name, modified, kind } = child;
        self.names += name.len();
        let len = match kind {
            Kind::File { len } => len,
            Kind::Directory { parent } => {
                let directory = Directory { name: name.clone(), identity: OnceLock::new(), parent: Some(parent) };
                self.pending.push(Arc::new(directory));
                name.push(b'/');
                0
            }
        };
        self.bytes = self.bytes.saturating_add(len);
        self.members.push(Member { name: name.into_boxed_slice(), len, modified });
        if self.members.len() > self.most_members || self.names > self.most_members.saturating_mul(LONG_NAME) {
            return Err(Refused::TooMany(self.most_members));
        }
        if self.bytes > self.most_bytes {
            return Err(Refused::TooLarge(self.most_bytes));
        }
        Ok(())
    }
}

impl ReadChildren {
    /// The entries that can be read. None for a directory that has an index, or that cannot be read.
    ///
    /// # Errors
    /// The directory alone exceeds a bound, or the file system fails.
    pub(in crate::site) fn run(&self) -> Result<Vec<Child>, NoArchive> {
        let path = match self.directory.name.is_empty() {
            true => self.top.to_vec(),
            false => beneath(&self.top, &self.directory.name),
        };
        let Some(directory) = readable(self.root.open_directory(&path))? else { return Ok(Vec::new()) };
        let stat = fstat(&directory).map_err(Unresolved::from)?;
        self.directory.identity.get_or_init(|| (stat.st_dev, stat.st_ino));
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(Unresolved::from)? {
            let entry = entry.map_err(Unresolved::from)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if self.indexes.iter().any(|index| index.as_bytes() == name) && entry.file_type() != FileType::Directory {
                return Ok(Vec::new());
            }
            let may_be_served = matches!(
                entry.file_type(),
                FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown
            );
            if !may_be_served || (name[0] == b'.' && !self.show_dotfiles) {
                continue;
            }
            if names.len() == self.most {
                return Err(Refused::TooMany(self.most).into());
            }
            names.push((name.to_vec(), entry.file_type() == FileType::Directory));
        }
        let mut children = Vec::with_capacity(names.len());
        for (name, is_directory) in names {
            let full = beneath(&path, &name);
            let found =
                if is_directory { Some(Found::Directory) } else { readable(self.root.resolve(&full, 0, Wait::Yes))? };
            let (modified, kind) = match found {
                None => continue,
                Some(Found::File(file)) => (file.state().modified_seconds(), Kind::File { len: file.len }),
                Some(Found::Directory) => {
                    let Some(metadata) = readable(self.root.metadata(&full, Wait::Yes))? else { continue };
                    let identity = (metadata.dev(), metadata.ino());
                    // A symbolic link to a directory above would lead round for ever.
                    if self.directory.is_within(identity) {
                        continue;
                    }
                    let parent = Arc::clone(&self.directory);
                    (u64::try_from(metadata.mtime()).unwrap_or(0), Kind::Directory { parent })
                }
            };
            children.push(Child { name: beneath(&self.directory.name, &name), modified, kind });
        }
        Ok(children)
    }
}

impl Directory {
    /// Whether it is the directory with this identity, or lies within it.
    fn is_within(&self, identity: Identity) -> bool {
        let mut at = Some(self);
        while let Some(directory) = at {
            if directory.identity.get() == Some(&identity) {
                return true;
            }
            at = directory.parent.as_deref();
        }
        false
    }
}

impl Child {
    pub(in crate::site) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory { .. })
    }
}

/// `None`: a request for it would be answered 403 or 404.
fn readable<T>(opened: Result<T, NotOpened>) -> Result<Option<T>, Unresolved> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(NotOpened::Unresolved(Unresolved { status, .. })) if status.code() / 100 == 4 => Ok(None),
        Err(NotOpened::Unresolved(unresolved)) => Err(unresolved),
        Err(NotOpened::Waits) => Ok(None),
    }
}

/// Bytes of a path, for the bound on all of them together.
const LONG_NAME: usize = 256;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn walk(root: &std::path::Path, top: &str, files: usize, bytes: u64) -> Result<Vec<String>, Refused> {
        let root = Arc::new(Root::open(root).unwrap().hiding(Arc::from([Box::from(".php")])));
        let mut walk = Walk::new(root, top.as_bytes(), vec!["index.html".to_owned()], false, files, bytes);
        while let Some(task) = walk.next() {
            let children = task.run().map_err(|error| match error {
                NoArchive::Refused(refused) => refused,
                NoArchive::Unresolved(unresolved) => panic!("{unresolved:?}"),
            });
            for child in children? {
                walk.add(child)?;
            }
        }
        let text = |member: Member| format!("{}={}", member.name.escape_ascii(), member.len);
        let mut names: Vec<String> = walk.members.into_iter().map(text).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_walk_finds_what_a_listing_shows() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("top/sub/deep")).unwrap();
        fs::create_dir_all(root.join("top/page")).unwrap();
        fs::create_dir_all(root.join("top/.git")).unwrap();
        fs::create_dir_all(root.join("top/empty")).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        for name in [
            "top/a",
            "top/.b",
            "top/c.php",
            "top/sub/deep/x",
            "top/page/index.html",
            "top/page/y",
            "top/.git/z",
            "other",
        ] {
            fs::write(root.join(name), "four").unwrap();
        }
        symlink("../../secret", root.join("top/out")).unwrap();
        symlink("../other", root.join("top/link")).unwrap();
        symlink("sub/deep", root.join("top/latest")).unwrap();
        symlink("..", root.join("top/sub/deep/round")).unwrap();
        symlink("../..", root.join("top/sub/up")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("top/fifo"), FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let found = walk(&root, "top", 1000, 1000).unwrap();
        for name in ["a=4", "link=4", "sub/deep/x=4", "latest/x=4", "empty/=0", "page/=0", "latest/=0"] {
            assert!(found.contains(&name.to_owned()), "{name}: {found:?}");
        }
        for word in [".b", "php", "out", "page/y", "page/index", ".git", "fifo", "deep/round"] {
            assert!(!found.iter().any(|name| name.contains(word)), "{word}: {found:?}");
        }
        assert!(found.len() < 40, "{found:?}");
    }

    #[test]
    fn bounds_are_on_members_bytes_and_names() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(root.path().join(name), "four").unwrap();
        }
        assert_eq!(walk(root.path(), "", 3, 12).unwrap().len(), 3);
        assert_eq!(walk(root.path(), "", 2, 12), Err(Refused::TooMany(2)));
        assert_eq!(walk(root.path(), "", 3, 11), Err(Refused::TooLarge(11)));
        let deep = root.path().join(format!("{0}/{0}/{0}", "d".repeat(250)));
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(walk(root.path(), "", 6, 12).unwrap().len(), 6);
        fs::write(deep.join("x".repeat(250)), "").unwrap();
        assert_eq!(walk(root.path(), "d".repeat(250).as_str(), 3, 12), Err(Refused::TooMany(3)));
    }
}
