//! Checksums that lie beside files: `FILE.sha256`, or a line of `SHA256SUMS`; the same for SHA-512.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealion_http::request::FieldLines;
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use tokio::sync::Semaphore;

use crate::files::resolve::{Content, Found, Root, SiteFile, Wait, beneath};

/// An algorithm of checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Algorithm {
    Sha256,
    Sha512,
}

/// A file that holds the checksum of the file beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checksum {
    pub algorithm: Algorithm,
    /// Its name: the name of the file with an extension, or `SHA256SUMS`.
    pub file: Vec<u8>,
}

impl Algorithm {
    pub(super) const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// The key in Repr-Digest (RFC 9530 §5).
    pub(super) fn key(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha512 => "sha-512",
        }
    }

    /// The name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Sha512 => "SHA-512",
        }
    }

    /// The extension of a file with the checksum of one other file.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// The name of the file with the checksums of a directory.
    pub(super) fn sums(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "SHA256SUMS",
            Algorithm::Sha512 => "SHA512SUMS",
        }
    }

    /// The beginning of a line in the form of BSD.
    fn tag(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "SHA256 (",
            Algorithm::Sha512 => "SHA512 (",
        }
    }

    /// Length of a digest in hexadecimal digits.
    fn digits(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
        }
    }
}

/// The algorithms that Want-Repr-Digest names, the preferred one first (RFC 9530 §4).
pub(super) fn wanted(lines: &FieldLines<'_>) -> Vec<Algorithm> {
    let lines: Vec<&[u8]> = lines.iter().collect();
    let Ok(wanted) = Parser::new(&lines.join(&b", "[..])).parse::<Dictionary>() else { return Vec::new() };
    let weight = |algorithm: &Algorithm| match wanted.get(algorithm.key()) {
        Some(ListEntry::Item(item)) => match item.bare_item {
            BareItem::Integer(weight) => i64::from(weight),
            _ => 0,
        },
        _ => 0,
    };
    let mut algorithms: Vec<Algorithm> = Algorithm::ALL.into_iter().filter(|algorithm| weight(algorithm) > 0).collect();
    algorithms.sort_by_key(|algorithm| std::cmp::Reverse(weight(algorithm)));
    algorithms
}

/// The value of Repr-Digest (RFC 9530 §3).
pub(super) fn repr_digest(algorithm: Algorithm, digest: &[u8]) -> String {
    format!("{}=:{}:", algorithm.key(), STANDARD.encode(digest))
}

/// A line of a file of checksums.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    /// `None`: the line is only a digest.
    name: Option<&'a [u8]>,
    digits: &'a [u8],
}

impl<'a> Line<'a> {
    /// Parses a line of `sha256sum`, with or without `--tag`. Lines with escaped names, which begin with a backslash, are ignored.
    fn parse(line: &'a [u8], algorithm: Algorithm) -> Option<Self> {
        let line = line.trim_ascii_end();
        let (name, digits) = match line.strip_prefix(algorithm.tag().as_bytes()) {
            Some(tagged) => {
                let end = tagged.len().checked_sub(algorithm.digits())?;
                let (name, digits) = tagged.split_at(end);
                (Some(name.strip_suffix(b") = ")?), digits)
            }
            None => match line.split_at_checked(algorithm.digits())? {
                (digits, b"") => (None, digits),
                (digits, [b' ', b' ' | b'*', name @ ..]) if !name.is_empty() => (Some(name), digits),
                _ => return None,
            },
        };
        let name = name.map(|name| name.strip_prefix(b"./").unwrap_or(name));
        digits.iter().all(u8::is_ascii_hexdigit).then_some(Line { name, digits })
    }

    fn digest(&self) -> Vec<u8> {
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        self.digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }
}

/// The digest of the file `name` in `sums`. `own`: it is `FILE.sha256`, whose line may have directories before the name, or no name. May block
/// unless `sums` is in memory.
pub(super) fn find_digest(sums: &SiteFile, algorithm: Algorithm, name: &[u8], own: bool) -> Option<Vec<u8>> {
    let mut digest = None;
    let is_it = |line: &Line<'_>| match line.name {
        None => own,
        Some(full) if own => full.rsplit(|octet| *octet == b'/').next() == Some(name),
        // Of files of the same name, the one in this directory.
        Some(full) => full == name,
    };
    let found = for_each_line(sums, algorithm, |line| {
        if digest.is_none() && is_it(&line) {
            digest = Some(line.digest());
        }
    });
    found.ok().and(digest)
}

fn for_each_line(sums: &SiteFile, algorithm: Algorithm, mut visit: impl FnMut(Line<'_>)) -> io::Result<()> {
    if sums.len > LONGEST_SUMS {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut reader: Box<dyn BufRead + '_> = match &sums.content {
        Content::Memory(bytes) => Box::new(&**bytes),
        Content::File(file) => Box::new(BufReader::new(At { file, offset: 0 }.take(LONGEST_SUMS))),
    };
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Some(line) = Line::parse(&line, algorithm) {
            visit(line);
        }
        line.clear();
    }
    Ok(())
}

/// Reads a file whose position other readers share.
struct At<'a> {
    file: &'a std::fs::File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = std::os::unix::fs::FileExt::read_at(self.file, bytes, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// The names in a directory that may be names of checksum files.
#[derive(Debug, Default)]
pub(super) struct Beside(HashSet<Vec<u8>>);

impl Beside {
    /// Notes a name of the directory.
    pub(super) fn add(&mut self, name: &[u8]) {
        let is_one = |algorithm: Algorithm| {
            name.ends_with(algorithm.extension().as_bytes()) || name == algorithm.sums().as_bytes()
        };
        if Algorithm::ALL.into_iter().any(is_one) {
            self.0.insert(name.to_vec());
        }
    }

    /// Adds the checksums of `files`, which lie in `directory` beneath `root`. May block.
    pub(super) fn assign<'a>(
        &self,
        root: &Root,
        directory: &[u8],
        files: impl Iterator<Item = (&'a [u8], &'a mut Vec<Checksum>)>,
    ) {
        if self.0.is_empty() {
            return;
        }
        let mut files: HashMap<&[u8], &mut Vec<Checksum>> = files.collect();
        for algorithm in Algorithm::ALL {
            for (name, checksums) in &mut files {
                let own = [*name, b".", algorithm.extension().as_bytes()].concat();
                if self.0.contains(&own) {
                    checksums.push(Checksum { algorithm, file: own });
                }
            }
            let sums = algorithm.sums().as_bytes();
            if !self.0.contains(sums) {
                continue;
            }
            let Ok(Found::File(file)) = root.resolve(&beneath(directory, sums), 0, Wait::Yes) else { continue };
            let read = for_each_line(&file, algorithm, |line| {
                if let Some(checksums) = line.name.and_then(|name| files.get_mut(name))
                    && checksums.iter().all(|checksum| checksum.algorithm != algorithm)
                {
                    checksums.push(Checksum { algorithm, file: sums.to_vec() });
                }
            });
            if let Err(error) = read {
                let path = String::from_utf8_lossy(directory);
                tracing::debug!("/{path}: the listing shows no checksums of {}: {error}", algorithm.sums());
            }
        }
    }
}

/// Longest file of checksums that is read, in bytes: tens of thousands of lines.
pub(super) const LONGEST_SUMS: u64 = 4 << 20;

/// Files of checksums that are read from disk at a time for Repr-Digest. Responses beyond go without the field.
pub(super) static READING: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new(processors.div_ceil(2))
});

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeffABCDEF0123456789ffffffffffffffff";

    #[test]
    fn lines_of_checksums() {
        for (line, expected) in [
            (format!("{DIGITS}  a b.iso\n"), Some(Some("a b.iso"))),
            (format!("{DIGITS} *./x\r\n"), Some(Some("x"))),
            (DIGITS.to_owned(), Some(None)),
            (format!("SHA256 (a) b) = {DIGITS}\n"), Some(Some("a) b"))),
            (format!("\\{DIGITS}  a\\nb"), None),
            (format!("{DIGITS} x"), None),
            (format!("{DIGITS}0  x"), None),
            (format!("SHA512 (a) = {DIGITS}{DIGITS}"), None),
            (DIGITS.replace('0', "g"), None),
            (String::new(), None),
            ("SHA256 (".to_owned(), None),
        ] {
            let parsed = Line::parse(line.as_bytes(), Algorithm::Sha256);
            let name = parsed.map(|parsed| parsed.name.map(|name| String::from_utf8(name.to_vec()).unwrap()));
            assert_eq!(name, expected.map(|name| name.map(str::to_owned)), "{line:?}");
        }
        let digest = Line::parse(DIGITS.as_bytes(), Algorithm::Sha256).unwrap().digest();
        assert_eq!((digest.len(), &digest[..3], digest[16]), (32, &[0, 0x11, 0x22][..], 0xab));
    }

    #[test]
    fn algorithms_by_preference() {
        for (lines, expected) in [
            (&["sha-256=1"][..], &[Algorithm::Sha256][..]),
            (&["sha-256=3, sha-512=10"], &[Algorithm::Sha512, Algorithm::Sha256]),
            (&["sha-512=1", "sha-256=1"], &[Algorithm::Sha256, Algorithm::Sha512]),
            (&["sha-512=0, md5=3"], &[]),
            (&["sha-256"], &[]),
            (&["sha-256=?1"], &[]),
            (&["=,"], &[]),
        ] {
            let mut field = FieldLines::default();
            lines.iter().for_each(|line| field.add(line.as_bytes()));
            assert_eq!(wanted(&field), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_named_file() {
        let directory = tempfile::tempdir().unwrap();
        let other = DIGITS.replace('0', "1");
        let find = |text: String, own: bool| {
            std::fs::write(directory.path().join("sums"), text).unwrap();
            let root = Root::open(directory.path()).unwrap();
            let kept = [0, 1 << 20].map(|keep| {
                let Ok(Found::File(file)) = root.resolve(b"sums", keep, Wait::Yes) else { panic!() };
                find_digest(&file, Algorithm::Sha256, b"x", own).map(|digest| digest[0])
            });
            assert_eq!(kept[0], kept[1]);
            kept[0]
        };
        let all = format!("{other}  xx\n{DIGITS}  dist/x\n{other}  ./x\n");
        assert_eq!([true, false].map(|own| find(all.clone(), own)), [Some(0), Some(0x11)]);
        assert_eq!([true, false].map(|own| find(format!("{other}\n"), own)), [Some(0x11), None]);
        assert_eq!(find(format!("{other}  xx\n"), true), None);
        assert_eq!(find(" ".repeat(5 << 20), true), None);
    }
}
