//! Which directories may become a cache: the user that serves gets all of it, and thousands of directories are made in it.

use std::io;
use std::path::Path;

use super::directory::{CLEAN, DOUBTED, LOCK, NEXT, NUMBER, SALT, TEMPORARY};
use super::purge_file::PURGES;
use super::snapshot::SNAPSHOT;
use super::sweep::SWEPT;

/// Refuses a directory with files of others.
///
/// # Errors
/// `InvalidInput`: it is neither empty nor a cache. Or it cannot be read.
pub(super) fn require_own(path: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut other = None;
    for entry in entries {
        let name = entry?.file_name();
        if name == NUMBER {
            return Ok(());
        }
        let written = name.as_encoded_bytes();
        let written = written.strip_suffix(NEXT.as_bytes()).unwrap_or(written);
        if written != NUMBER.as_bytes() && !MAY_BE_THERE.iter().any(|own| written == own.as_bytes()) {
            other.get_or_insert(name);
        }
    }
    let Some(other) = other else { return Ok(()) };
    let what = format!(
        "it is neither empty nor a cache: {} is in it: name a directory for the cache alone, or empty this one",
        other.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Entries of an empty file system, of a start that ended before the directory had its number, and of a process that ended before it noticed that the directory
/// was emptied.
const MAY_BE_THERE: [&str; 9] = ["lost+found", LOCK, TEMPORARY, SALT, CLEAN, DOUBTED, PURGES, SNAPSHOT, SWEPT];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::directory::Directory;
    use super::*;

    #[test]
    fn an_empty_directory_or_a_cache_may_be_one_and_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("cache");
        require_own(&path).unwrap();
        fs::create_dir(&path).unwrap();
        require_own(&path).unwrap();
        for name in MAY_BE_THERE.into_iter().chain(["sealion-cache.next", "index.next"]) {
            fs::write(path.join(name), "").unwrap();
            require_own(&path).unwrap();
        }
        for name in ["log", ".hidden", "sealion-cache2", "abc"] {
            fs::write(path.join(name), "").unwrap();
            let error = require_own(&path).unwrap_err();
            assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains(name), "{error}");
            assert_eq!(Directory::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            fs::remove_file(path.join(name)).unwrap();
        }
        for name in MAY_BE_THERE.into_iter().chain(["sealion-cache.next", "index.next"]) {
            fs::remove_file(path.join(name)).unwrap();
        }
        drop(Directory::open(&path).unwrap());
        fs::write(path.join("of-somebody-else"), "").unwrap();
        drop(Directory::open(&path).unwrap());
    }
}
