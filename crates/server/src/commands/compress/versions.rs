//! Previous versions of files, in another directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use regex::bytes::Regex;

/// The files of a directory: the dictionaries for the files of another directory.
pub(super) struct Versions {
    root: PathBuf,
    patterns: Vec<Regex>,
    /// The latest files whose names have a hash, by what [`Self::key`] makes of their paths.
    hashed: HashMap<Vec<u8>, (SystemTime, PathBuf)>,
}

impl Versions {
    /// `patterns`: names with `{hash}` for a hash, and `*` for anything.
    ///
    /// # Errors
    /// A line: a pattern has no hash, or the directory cannot be read.
    pub(super) fn find(root: &Path, patterns: &[String]) -> Result<Self, String> {
        let patterns = patterns.iter().map(|pattern| expression(pattern)).collect::<Result<_, _>>()?;
        let mut versions = Versions { root: root.to_owned(), patterns, hashed: HashMap::new() };
        let fail = |error| format!("cannot read {}: {error}: name the directory of the previous files", root.display());
        fs::read_dir(root).map_err(fail)?;
        if !versions.patterns.is_empty() {
            versions.add(Path::new("")).map_err(fail)?;
        }
        Ok(versions)
    }

    fn add(&mut self, beneath: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(self.root.join(beneath))? {
            let entry = entry?;
            let path = beneath.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add(&path)?;
            } else if let Some(key) = self.key(&path).filter(|_| kind.is_file()) {
                let modified = entry.metadata()?.modified()?;
                let own = (modified, path);
                let latest = self.hashed.entry(key).or_insert_with(|| own.clone());
                if *latest < own {
                    *latest = own;
                }
            }
        }
        Ok(())
    }

    /// The previous version of the file at a path beneath its root.
    pub(super) fn previous(&self, path: &Path) -> Option<PathBuf> {
        let same = self.root.join(path);
        if fs::symlink_metadata(&same).is_ok_and(|metadata| metadata.is_file()) {
            return Some(same);
        }
        let (_, path) = self.hashed.get(&self.key(path)?)?;
        Some(self.root.join(path))
    }

    /// The path without the hash in its name. `None`: it has none.
    fn key(&self, path: &Path) -> Option<Vec<u8>> {
        let name = path.file_name().map(OsStr::as_bytes)?;
        let parts = self.patterns.iter().enumerate().find_map(|(n, pattern)| Some((n, pattern.captures(name)?)))?;
        let (number, parts) = parts;
        let directory = path.parent().unwrap_or(Path::new("")).as_os_str().as_bytes();
        let number = number.to_string();
        let parts = parts.iter().skip(1).flatten().map(|part| part.as_bytes());
        // No name has a slash.
        Some([number.as_bytes(), directory].into_iter().chain(parts).collect::<Vec<_>>().join(&b'/'))
    }
}

/// The expression of a pattern: its groups have all but the hash.
fn expression(pattern: &str) -> Result<Regex, String> {
    let wrong = || format!("--hashed: {pattern:?} has no {{hash}}, or several: write for instance '*-{{hash}}.*'");
    let (before, after) = pattern.split_once("{hash}").ok_or_else(wrong)?;
    if after.contains("{hash}") || pattern.contains('/') {
        return Err(wrong());
    }
    let part = |text: &str| regex::escape(text).replace("\\*", ".*");
    // Bundlers write 8 characters of base64url, or more hexadecimal digits.
    let text = format!("(?s-u)^({})[0-9A-Za-z_-]{{8,64}}({})$", part(before), part(after));
    Regex::new(&text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_previous_version_has_the_same_name_or_another_hash() {
        let scratch = tempfile::tempdir().unwrap();
        let put = |name: &str, seconds| {
            let path = scratch.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        };
        put("a.js", 1);
        put("js/app-0a1b2c3d.js", 1);
        put("js/app-Bx-3a9Zq.js", 3);
        put("js/app-11111111.js", 2);
        put("js/app-11111111.css", 9);
        put("js/app-main-11111111.js", 9);
        put("other/app-22222222.js", 9);
        let versions = Versions::find(scratch.path(), &["*-{hash}.*".to_owned()]).unwrap();
        for (path, expected) in [
            ("a.js", Some("a.js")),
            ("js/app-11111111.js", Some("js/app-11111111.js")),
            ("js/app-99999999.js", Some("js/app-Bx-3a9Zq.js")),
            ("js/app-99999999.css", Some("js/app-11111111.css")),
            ("other/app-99999999.js", Some("other/app-22222222.js")),
            ("js/app-9999.js", None),
            ("js/lib-99999999.js", None),
            ("b.js", None),
        ] {
            let expected = expected.map(|path| scratch.path().join(path));
            assert_eq!(versions.previous(Path::new(path)), expected, "{path}");
        }
        let exact = Versions::find(scratch.path(), &[]).unwrap();
        assert_eq!(exact.previous(Path::new("js/app-99999999.js")), None);
    }

    #[test]
    fn a_pattern_without_a_hash_is_refused() {
        for pattern in ["*.js", "{hash}-{hash}.js", "a/{hash}.js", ""] {
            assert!(expression(pattern).unwrap_err().contains("write for instance"), "{pattern}");
        }
    }
}
