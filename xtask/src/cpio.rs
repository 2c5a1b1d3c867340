//! The archive the kernel unpacks as its first root file system: cpio "newc",
//! Documentation/driver-api/early-userspace/buffer-format.rst.

use std::io::{self, Write};

/// Writes one archive to `out`. Parents must come before their children.
pub(crate) struct Archive<W> {
    out: W,
    written: u64,
    inode: u32,
}

/// What an entry is, besides its permissions.
pub(crate) enum Node<'a> {
    /// A directory.
    Directory,
    /// A regular file.
    File(&'a [u8]),
    /// A symbolic link to this text.
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

    /// Ends the archive and gives the writer back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, 0, &[], (0, 0))?;
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
        let mut header = String::from("070701");
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

#[cfg(test)]
mod tests {
    use super::*;

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
