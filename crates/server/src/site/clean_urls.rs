//! URLs without file name extensions, and the trailing slash of directories' URLs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{At, Problems};

/// Whether the URL of a directory ends in a slash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TrailingSlash {
    /// `/about` redirects to `/about/` if it is a directory.
    #[default]
    Add,
    /// `/about/` redirects to `/about`, which is answered with the index of the directory.
    Remove,
}

/// Validates the extensions that URLs may omit.
pub(super) fn extensions(configured: &[At<String>], problems: &mut Problems) -> Vec<String> {
    for extension in configured {
        let name = extension.trim_start_matches('.');
        if **extension != *name {
            let what = format_args!("begins with a dot: write \"{name}\"");
            problems.add(&extension.span, "site.extensions", what);
        } else if name.is_empty() || name.contains('/') {
            let what = format_args!("{:?} is not an extension: write for instance \"html\"", extension.value);
            problems.add(&extension.span, "site.extensions", what);
        }
    }
    configured.iter().map(|extension| extension.value.clone()).collect()
}
