//! Shortens command lines and configurations: removes directories that are specific to this user and this run.

use std::path::{Path, PathBuf};

/// Directories and their replacements, the longest first.
pub(super) struct Paths(Vec<(String, &'static str)>);

impl Paths {
    /// Removes the directories of `programs`. `scratch`: the run's temporary directory;
    /// `out`: the directory of its results.
    pub(super) fn new<'a>(programs: impl IntoIterator<Item = &'a Path>, scratch: &Path, out: &Path) -> Self {
        let directories = programs.into_iter().filter_map(Path::parent).map(|directory| (directory.to_owned(), ""));
        let lab = std::env::current_exe().ok().and_then(|lab| Some((lab.parent()?.to_owned(), "")));
        let here = std::env::current_dir().ok().map(|here| (here, ""));
        let home = std::env::home_dir().map(|home| (home, "~/"));
        let all = directories.chain(lab).chain(here).chain(home).chain([(scratch.to_owned(), "SCRATCH/")]);
        let out = std::path::absolute(out).ok().map(|out| (out, "OUT/"));
        let all = all.chain(out);
        Self::of(all)
    }

    fn of(all: impl Iterator<Item = (PathBuf, &'static str)>) -> Self {
        let named = |(path, name): (PathBuf, &'static str)| {
            // The root directory is not specific to a user.
            (path.is_absolute() && path.parent().is_some()).then(|| (format!("{}/", path.display()), name))
        };
        let mut all: Vec<_> = all.filter_map(named).collect();
        all.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(all)
    }

    pub(super) fn shorten(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_true_here_is_left_out() {
        let all = [("/root", "~/"), ("/root/tree/release", ""), ("/tmp/lab-x", "SCRATCH/"), ("/", "")];
        let paths = Paths::of(all.map(|(path, name)| (PathBuf::from(path), name)).into_iter());
        let shown = "/root/tree/release/sealion serve /root/.cache/lab --cert /tmp/lab-x/certificate.pem /etc/ssl";
        assert_eq!(paths.shorten(shown), "sealion serve ~/.cache/lab --cert SCRATCH/certificate.pem /etc/ssl");
    }
}
