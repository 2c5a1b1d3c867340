//! The cpio "newc" archives that the kernel unpacks as its initial root file system, and that carry files back:
//! Documentation/driver-api/early-userspace/buffer-format.rst.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Writes one archive to `out`. Parents must come before their children.
pub(crate) struct Archive<W> {
    out: W,
    written: u64,
    inode: u32,
}

/// The kind of an entry.
pub(crate) enum Node<'a> {
    /// A directory; its files are separate entries.
    Directory,
    /// A regular file with this content.
    File(&'a [u8]),
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A character device with major and minor number.
    Character(u32, u32),
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, written: 0, inode: 0 }
    }

    /// Adds `node` at `path`, relative to the root and without a leading slash, with the permission bits `mode`, owned
    /// by root.
    pub(crate) fn add(&mut self, path: &[u8], mode: u32, node: &Node<'_>) -> io::Result<()> {
        let (kind, data, device): (u32, &[u8], _) = match *node {
            Node::Directory => (0o040_000, &[], (0, 0)),
            Node::File(data) => (0o100_000, data, (0, 0)),
            Node::Symlink(target) => (0o120_000, target, (0, 0)),
            Node::Character(major, minor) => (0o020_000, &[], (major, minor)),
        };
        self.inode += 1;
        self.entry(path, self.inode, kind | mode, data, device)
    }

    /// Ends the archive and returns the writer.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, 0, &[], (0, 0))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &[u8], inode: u32, mode: u32, data: &[u8], (major, minor): (u32, u32)) -> io::Result<()> {
        let size = u32::try_from(data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "a cpio entry holds less than 4 GiB"))?;
        let name_size = u32::try_from(path.len() + 1).expect("a path is shorter than 4 GiB");
        // Fields: ino, mode, uid, gid, nlink, mtime, filesize, dev major and minor, rdev major and minor, namesize,
        // checksum.
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        let mut header = String::from_utf8_lossy(MAGIC).into_owned();
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.put(header.as_bytes())?;
        self.put(path)?;
        self.put(b"\0")?;
        self.align()?;
        self.put(data)?;
        self.align()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        let padding = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 3][..padding as usize])
    }
}

/// The paths and contents of the regular files in a complete archive.
pub(crate) fn files(archive: &[u8]) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut at = 0;
    loop {
        let header = archive.get(at..at + HEADER).context("it ends without a trailer")?;
        ensure!(header.starts_with(MAGIC), "no entry at byte {at}");
        let field = |index: usize| -> Result<usize> {
            let digits = std::str::from_utf8(&header[6 + 8 * index..][..8])?;
            Ok(u32::from_str_radix(digits, 16)? as usize)
        };
        let (mode, size, name_size) = (field(1)?, field(6)?, field(11)?);
        let name = archive.get(at + HEADER..at + HEADER + name_size).context("it ends within a name")?;
        let name = name.strip_suffix(b"\0").context("a name without end")?;
        if name == TRAILER {
            return Ok(files);
        }
        let data = (at + HEADER + name_size).next_multiple_of(4);
        let content = archive.get(data..data + size).context("it ends within a file")?;
        if mode & 0o170_000 == 0o100_000 {
            let path = Path::new(OsStr::from_bytes(name));
            let inside = path.components().all(|component| matches!(component, Component::Normal(_)));
            ensure!(inside, "{} leads out of the archive", path.display());
            files.push((path.to_owned(), content.to_vec()));
        }
        at = (data + size).next_multiple_of(4);
    }
}

const MAGIC: &[u8] = b"070701";

/// The magic and 13 fields of 8 digits.
const HEADER: usize = 6 + 13 * 8;

/// The name of the entry after the last.
const TRAILER: &[u8] = b"TRAILER!!!";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_out_as_they_went_in() {
        let mut archive = Archive::new(Vec::new());
        archive.add(b"a", 0o755, &Node::Directory).unwrap();
        archive.add(b"a/odd", 0o644, &Node::File(b"12345")).unwrap();
        archive.add(b"empty", 0o644, &Node::File(b"")).unwrap();
        let bytes = archive.finish().unwrap();
        let expected = [("a/odd".into(), b"12345".to_vec()), ("empty".into(), Vec::new())];
        assert_eq!(files(&bytes).unwrap(), expected);
        for end in 0..bytes.len() - 1 {
            // The padding after the trailer may be missing.
            assert!(files(&bytes[..end]).is_err() || end >= bytes.len() - 3, "cut at {end}");
        }
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        for name in [&b"../x"[..], b"/x", b"a/../../x"] {
            let mut archive = Archive::new(Vec::new());
            archive.add(name, 0o644, &Node::File(b"x")).unwrap();
            assert!(files(&archive.finish().unwrap()).is_err());
        }
    }

    #[test]
    fn entries_have_the_bytes_the_format_says() {
        let mut archive = Archive::new(Vec::new());
        archive.add(b"etc", 0o755, &Node::Directory).unwrap();
        archive.add(b"etc/hello", 0o644, &Node::File(b"hello")).unwrap();
        archive.add(b"console", 0o600, &Node::Character(5, 1)).unwrap();
        let bytes = archive.finish().unwrap();
        let header = |fields: &str| format!("070701{}", fields.replace(' ', ""));
        let mut expected = Vec::new();
        // 110 + 4 bytes: padded to 116.
        expected.extend(
            header("00000001 000041ed 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000004 00000000").bytes(),
        );
        expected.extend(b"etc\0\0\0");
        // 110 + 10 bytes: no padding; 5 bytes of data: 3 of padding.
        expected.extend(
            header("00000002 000081a4 00000000 00000000 00000001 00000000 00000005 00000000 00000000 00000000 00000000 0000000a 00000000").bytes(),
        );
        expected.extend(b"etc/hello\0hello\0\0\0");
        expected.extend(
            header("00000003 00002180 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000005 00000001 00000008 00000000").bytes(),
        );
        expected.extend(b"console\0\0\0");
        expected.extend(
            header("00000000 00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 0000000b 00000000").bytes(),
        );
        expected.extend(b"TRAILER!!!\0\0\0\0");
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&expected));
    }

    #[test]
    fn a_symlink_carries_its_target_as_data() {
        let mut archive = Archive::new(Vec::new());
        archive.add(b"lib", 0o777, &Node::Symlink(b"usr/lib")).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[14..22], b"0000a1ff");
        assert_eq!(&bytes[110..124], b"lib\0\0\0usr/lib\0");
    }
}
