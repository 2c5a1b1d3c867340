//! Directories that a site has beside its root, each beneath a path of its own.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Prefix;
use crate::files::cache::Files;
use crate::files::resolve::Root;
use crate::values::{At, Problems};

/// A directory whose files are served beneath a path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountConfig {
    /// The path, for instance `/docs/`. It hides what the root has there.
    pub path: At<String>,
    /// The directory; what its files are called follows the path.
    pub root: At<PathBuf>,
}

/// The mounts of a site, the longest path first.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<(Prefix, Files)>);

impl Mounts {
    /// Opens every directory. `None`: there are none. `files`: the files beneath a root.
    pub(crate) fn build(
        configs: &[MountConfig],
        key: &str,
        problems: &mut Problems,
        mut files: impl FnMut(Root) -> Files,
    ) -> Option<Self> {
        let mut mounts: Vec<(Prefix, Files)> = Vec::new();
        for config in configs {
            let path_key = format!("{key}.path");
            let path = Prefix::build(&config.path, &config.path.span, &path_key, problems);
            let root = match Root::open(&problems.resolve(&config.root)) {
                Ok(root) => root,
                Err(error) => {
                    problems.add(&config.root.span, &format!("{key}.root"), error);
                    continue;
                }
            };
            let Some(path) = path else { continue };
            if path.as_bytes().is_empty() {
                problems.add(&config.path.span, &path_key, "is the whole site: set its root instead");
            } else if mounts.iter().any(|(other, _)| *other == path) {
                problems.add(&config.path.span, &path_key, "is mounted twice: remove one");
            } else {
                mounts.push((path, files(root)));
            }
        }
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_bytes().len()));
        (!mounts.is_empty()).then_some(Mounts(mounts))
    }

    /// The files that a path (decoded, without slashes at its ends) lies in, and the octets of the mount's own path.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(&Files, usize)> {
        let (path, files) = self.0.iter().find(|(path, _)| path.covers(name))?;
        Some((files, path.as_bytes().len()))
    }
}
