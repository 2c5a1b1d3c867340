//! Rewrites: requests answered with the file at another path.

use schemars::JsonSchema;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use super::path_rule::{Rule, Rules, Target};
use crate::values::{At, Problems};

/// An internal rewrite: the client gets the file at another path under its original URL. Exactly one of `path`, `prefix` and
/// `regex` selects the requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RewriteConfig {
    /// Exact path, decoded: `/old.html`.
    pub path: Option<At<String>>,
    /// Path with everything beneath it; the rest of the path is appended to `to`.
    pub prefix: Option<At<String>>,
    /// Regular expression for decoded paths. It matches anywhere; anchor it with `^` and `$`.
    pub regex: Option<At<String>>,
    /// New path. For a regex, `$1` or `${name}` insert the text of a group.
    pub to: At<String>,
}

/// The rewrites of a site; the first match wins, and its result is not rewritten again.
#[derive(Debug)]
pub(crate) struct Rewrites(Rules<()>);

impl Rewrites {
    /// Validates the rules. `None`: there are none.
    pub(crate) fn build(configs: &[RewriteConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut rules = Rules::default();
        for config in configs {
            let from = [("path", &config.path), ("prefix", &config.prefix), ("regex", &config.regex)];
            if let Some(rule) = Rule::build(from, &config.to, Target::Path, key, problems) {
                rules.push(rule, (), &config.to, key, problems);
            }
        }
        (rules.len() > 0).then_some(Rewrites(rules))
    }

    /// The new path, percent-encoded. `None`: no rule matches.
    pub(crate) fn apply(&self, path: &SitePath<'_>) -> Option<String> {
        let full = path.full();
        Some(self.0.first(&full)?.0)
    }
}
