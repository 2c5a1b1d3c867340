//! The guest's root file system: files of this machine at their own paths, packed into one archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cpio::{Archive, Node};
use crate::libraries;

/// A root file system under construction. Adding a path adds the directories above it.
#[derive(Default)]
pub(crate) struct Initramfs {
    entries: BTreeMap<PathBuf, Entry>,
}

enum Entry {
    Directory,
    /// This content and these permission bits.
    Bytes(Vec<u8>, u32),
    /// A file of this machine, read at packing time.
    Host(PathBuf),
    Symlink(PathBuf),
    Character(u32, u32),
}

impl Initramfs {
    pub(crate) fn new() -> Self {
        let mut root = Self::default();
        // For the kernel, before /dev is mounted: /dev/console and /dev/null, Documentation/admin-guide/devices.txt.
        root.put("/dev/console", Entry::Character(5, 1));
        root.put("/dev/null", Entry::Character(1, 3));
        root
    }

    pub(crate) fn directory(&mut self, path: impl AsRef<Path>) {
        self.put(path.as_ref(), Entry::Directory);
    }

    pub(crate) fn bytes(&mut self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, mode: u32) {
        self.put(path.as_ref(), Entry::Bytes(content.into(), mode));
    }

    pub(crate) fn symlink(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.put(path.as_ref(), Entry::Symlink(target.into()));
    }

    /// Puts the file `host` of this machine at `path`.
    pub(crate) fn file_at(&mut self, path: impl AsRef<Path>, host: impl Into<PathBuf>) {
        self.put(path.as_ref(), Entry::Host(host.into()));
    }

    /// Adds a file, or a directory with everything below it, at its own path. Symbolic links on the path stay links.
    pub(crate) fn tree(&mut self, path: &Path) -> Result<()> {
        let path = self.follow(path)?;
        if !path.is_dir() {
            self.put(&path, Entry::Host(path.clone()));
            return Ok(());
        }
        self.put(&path, Entry::Directory);
        for entry in std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_symlink() {
                self.put(entry.path(), Entry::Symlink(std::fs::read_link(entry.path())?));
            } else {
                self.tree(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Adds a program at its own path, with its shared libraries.
    pub(crate) fn program(&mut self, path: &Path) -> Result<()> {
        self.tree(path)?;
        for library in libraries::closure(path, None)? {
            self.tree(&library)?;
        }
        Ok(())
    }

    /// Adds a program of the tree `root`, as if `root` were `/`, with its shared libraries. Prefers this machine's
    /// libraries, so that a guest has one version of each, and takes the others from the tree.
    pub(crate) fn program_below(&mut self, root: &Path, path: &Path) -> Result<()> {
        let host = root.join(path.strip_prefix("/").unwrap_or(path));
        ensure!(host.is_file(), "{} is missing", host.display());
        self.file_at(path, &host);
        let directories = [Path::new("/"), root].map(|root| ["lib", "usr/lib"].map(|lib| root.join(lib)));
        let search = directories.as_flattened().iter().map(|directory| directory.join(LIBRARY_TRIPLET));
        let search = std::env::join_paths(search).context("a directory of libraries has a colon in its name")?;
        for library in libraries::closure(&host, Some(&search))? {
            match library.strip_prefix(root) {
                Ok(inside) => self.file_at(Path::new("/").join(inside), &library),
                Err(_) => self.tree(&library)?,
            }
        }
        Ok(())
    }

    /// Packs everything into the file `into`. Uncompressed: under emulation, decompressing takes longer than loading.
    pub(crate) fn pack(&self, into: &Path) -> Result<()> {
        let file = File::create(into).with_context(|| format!("cannot create {}", into.display()))?;
        let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, file));
        // Entries below a symbolic link come last: the kernel follows a link once its target exists.
        let (behind_links, direct): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|(path, _)| self.is_behind_link(path));
        for (path, entry) in direct.into_iter().chain(behind_links) {
            let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
            match entry {
                Entry::Directory => archive.add(name, 0o755, &Node::Directory),
                Entry::Bytes(content, mode) => archive.add(name, *mode, &Node::File(content)),
                Entry::Symlink(target) => archive.add(name, 0o777, &Node::Symlink(target.as_os_str().as_bytes())),
                Entry::Character(major, minor) => archive.add(name, 0o666, &Node::Character(*major, *minor)),
                Entry::Host(host) => {
                    let content = std::fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
                    let mode = std::fs::metadata(host)?.permissions().mode() & 0o7777;
                    archive.add(name, mode, &Node::File(&content))
                }
            }
            .with_context(|| format!("cannot write {}", into.display()))?;
        }
        archive.finish().with_context(|| format!("cannot write {}", into.display()))?;
        Ok(())
    }

    fn is_behind_link(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|parent| matches!(self.entries.get(parent), Some(Entry::Symlink(_))))
    }

    /// Resolves `path` on this machine, and adds each symbolic link on the way. The result has no links.
    fn follow(&mut self, path: &Path) -> Result<PathBuf> {
        let mut resolved = PathBuf::new();
        for component in path.components() {
            match component {
                Component::RootDir => resolved.push("/"),
                Component::Normal(name) => resolved.push(name),
                Component::ParentDir => {
                    resolved.pop();
                    continue;
                }
                _ => continue,
            }
            let kind =
                std::fs::symlink_metadata(&resolved).with_context(|| format!("{} is not there", resolved.display()))?;
            if kind.is_symlink() {
                let target = std::fs::read_link(&resolved)?;
                self.put(&resolved, Entry::Symlink(target.clone()));
                resolved.pop();
                resolved = self.follow(&resolved.join(target))?;
            }
        }
        Ok(resolved)
    }

    fn put(&mut self, path: impl AsRef<Path>, entry: Entry) {
        let path = path.as_ref();
        if matches!(entry, Entry::Directory) && self.entries.contains_key(path) {
            return;
        }
        for parent in path.ancestors().skip(1) {
            if parent != Path::new("/") && !parent.as_os_str().is_empty() {
                self.entries.entry(parent.to_owned()).or_insert(Entry::Directory);
            }
        }
        self.entries.insert(path.to_owned(), entry);
    }
}

/// Debian's name for this architecture's library directory.
const LIBRARY_TRIPLET: &str = "x86_64-linux-gnu";

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: &Initramfs) -> Vec<&str> {
        root.entries.keys().filter_map(|path| path.to_str()).collect()
    }

    #[test]
    fn parents_come_first() {
        let mut root = Initramfs::default();
        root.bytes("/a/b/c", "x", 0o644);
        root.directory("/a/b");
        assert_eq!(paths(&root), ["/a", "/a/b", "/a/b/c"]);
        assert!(matches!(root.entries[Path::new("/a/b")], Entry::Directory));
    }

    #[test]
    fn links_on_the_way_are_kept() {
        let host = tempfile::tempdir().unwrap();
        let base = host.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("usr/lib")).unwrap();
        std::fs::write(base.join("usr/lib/libx.so.1.2"), "x").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2", base.join("usr/lib/libx.so.1")).unwrap();
        std::os::unix::fs::symlink("usr/lib", base.join("lib")).unwrap();
        let mut root = Initramfs::default();
        root.tree(&base.join("lib/libx.so.1")).unwrap();
        let entry = |path: &str| &root.entries[&base.join(path)];
        assert!(matches!(entry("lib"), Entry::Symlink(target) if target == Path::new("usr/lib")));
        assert!(matches!(entry("usr/lib/libx.so.1"), Entry::Symlink(target) if target == Path::new("libx.so.1.2")));
        assert!(matches!(entry("usr/lib/libx.so.1.2"), Entry::Host(_)));
        assert!(!root.entries.contains_key(&base.join("lib/libx.so.1")));
    }

    #[test]
    fn files_behind_a_link_are_packed_after_its_target() {
        let mut root = Initramfs::default();
        root.bytes("/lib/x", "x", 0o644);
        root.symlink("/lib", "usr/lib");
        root.bytes("/usr/lib/y", "y", 0o644);
        let file = tempfile::NamedTempFile::new().unwrap();
        root.pack(file.path()).unwrap();
        let archive = std::fs::read(file.path()).unwrap();
        let position = |name: &[u8]| {
            let found = archive.windows(name.len()).position(|window| window == name);
            found.unwrap()
        };
        assert!(position(b"usr/lib/y\0") < position(b"lib/x\0"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Initramfs::default().tree(Path::new("/nonexistent/file")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
