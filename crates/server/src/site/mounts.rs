//! Mounts: further directories of a site, each served beneath a path of its own.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Prefix;
use crate::files::cache::Files;
use crate::files::resolve::Root;
use crate::values::{At, Problems};

/// A directory served beneath a path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountConfig {
    /// Path, for instance `/docs/`. It hides files of the root beneath the same path.
    pub path: At<String>,
    /// Directory whose files appear beneath the path.
    pub root: At<PathBuf>,
}

/// The mounts of a site, longest path first.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<(Prefix, Files)>);

impl Mounts {
    /// Opens the directories. `None`: there are none. `files`: makes the files of a root.
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
                problems.add(&config.path.span, &path_key, "covers the whole site: set its root instead");
            } else if mounts.iter().any(|(other, _)| *other == path) {
                problems.add(&config.path.span, &path_key, "is mounted twice: remove one");
            } else {
                mounts.push((path, files(root)));
            }
        }
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_bytes().len()));
        (!mounts.is_empty()).then_some(Mounts(mounts))
    }

    /// The mount of a decoded path without leading and trailing slashes, and the length of the mount's own path in octets.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(&Files, usize)> {
        let (path, files) = self.0.iter().find(|(path, _)| path.covers(name))?;
        Some((files, path.as_bytes().len()))
    }
}
