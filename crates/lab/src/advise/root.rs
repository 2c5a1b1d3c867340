//! The sizes of a site's files, which replace the means of a log's classes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::mix::{LARGEST, Mix};

/// The sizes of the regular files beneath a directory, each once. Symbolic links are not followed.
///
/// # Errors
/// A directory cannot be read, it has no file with content, or more files than are read.
pub fn sizes(root: &Path) -> Result<BTreeSet<u64>> {
    let (mut sizes, mut files) = (BTreeSet::new(), 0u64);
    let mut left: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let cannot = || format!("cannot read the directory {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let kind = entry.file_type().with_context(cannot)?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                files += 1;
                ensure!(files <= MAX_FILES, "{} has more than {MAX_FILES} files: name a part of it", root.display());
                let length = entry.metadata().with_context(cannot)?.len();
                sizes.extend((length > 0).then_some(length));
            }
        }
    }
    if sizes.is_empty() {
        bail!("{} has no file with content: name the root of the site by --root", root.display());
    }
    Ok(sizes)
}

impl Mix {
    /// Gives each class the size of the file that is nearest to its mean, at most a factor of two away. Returns the
    /// means of the classes that have no such file; these keep their mean, as generated responses do.
    pub fn take_sizes(&mut self, files: &BTreeSet<u64>) -> Vec<u64> {
        let mut without = Vec::new();
        for class in &mut self.classes {
            let apart = |size: u64| (size as f64 / class.size as f64).ln().abs();
            let below = files.range(..=class.size).next_back();
            let above = files.range(class.size..).next();
            let nearest = below.into_iter().chain(above).copied().min_by(|a, b| apart(*a).total_cmp(&apart(*b)));
            match nearest.map(|size| size.min(LARGEST)).filter(|size| apart(*size) <= 2f64.ln()) {
                Some(size) => class.size = size,
                None => without.push(class.size),
            }
        }
        self.join_equal_sizes();
        without
    }
}

/// More files than this are a file system, not the root of a site.
const MAX_FILES: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::mix::read;
    use super::*;

    #[test]
    fn files_beneath_a_directory_are_found_and_links_are_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("a/b")).expect("a directory");
        assert!(sizes(&root).unwrap_err().to_string().contains("no file with content"));
        for (name, length) in [("a/one", 100), ("a/b/two", 3000), ("empty", 0), ("same", 100)] {
            fs::write(root.join(name), vec![1; length]).expect("a file");
        }
        fs::write(directory.path().join("outside"), "12345").expect("a file");
        symlink(directory.path().join("outside"), root.join("link")).expect("a link");
        symlink(&root, root.join("a/loop")).expect("a link");
        assert_eq!(sizes(&root).expect("files"), BTreeSet::from([100, 3000]));
        assert!(sizes(&directory.path().join("none")).unwrap_err().to_string().contains("cannot read the directory"));
    }

    #[test]
    fn classes_take_the_size_of_the_nearest_file_at_most_a_factor_of_two_away() {
        let line = |bytes: u64| {
            format!("time=2026-11-21T15:00:00Z peer=192.0.2.7:1 status=200 bytes={bytes} tls=1.3 path=user")
        };
        let lines = [1000, 5000, 5000, 70_000].map(line);
        let mut mix = read(lines.into_iter(), None).expect("a mix");
        assert_eq!(mix.take_sizes(&BTreeSet::from([900, 4000, 5500, 200_000])), [70_000]);
        let classes: Vec<(u64, f64)> = mix.classes.iter().map(|class| (class.size, class.share)).collect();
        assert_eq!(classes, [(900, 0.25), (5500, 0.5), (70_000, 0.25)]);
        // Two classes may take one file.
        assert_eq!(mix.take_sizes(&BTreeSet::from([1700, 2800])), [70_000]);
        let classes: Vec<(u64, f64)> = mix.classes.iter().map(|class| (class.size, class.share)).collect();
        assert_eq!(classes, [(1700, 0.25), (2800, 0.5), (70_000, 0.25)]);
        assert_eq!(mix.take_sizes(&BTreeSet::from([2200])), [70_000]);
        assert_eq!(mix.classes.iter().map(|class| class.share).collect::<Vec<_>>(), [0.75, 0.25]);
    }
}
