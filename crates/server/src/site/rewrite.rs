//! Rewrites: paths that stand for others.

use schemars::JsonSchema;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use super::path_rule::{Rule, Target};
use crate::values::{At, Problems};

/// Answers with the file of another path, without telling the client. One of `path`, `prefix` and `regex` says which.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RewriteConfig {
    /// This path alone, decoded: `/old.html`.
    pub path: Option<At<String>>,
    /// This path and all beneath it, whose rest is appended to `to`.
    pub prefix: Option<At<String>>,
    /// Decoded paths that this expression matches anywhere; write `^` and `$` for the whole.
    pub regex: Option<At<String>>,
    /// The path instead. For a regex, `$1` or `${name}` stand for what its groups matched.
    pub to: At<String>,
}

/// The rewrites of a site; the first that matches counts, and its result is not looked at again.
#[derive(Debug)]
pub(crate) struct Rewrites(Vec<Rule>);

impl Rewrites {
    /// Checks every rule. `None`: there are none.
    pub(crate) fn build(configs: &[RewriteConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let rules = configs.iter().filter_map(|config| {
            let from = [("path", &config.path), ("prefix", &config.prefix), ("regex", &config.regex)];
            Rule::build(from, &config.to, Target::Path, key, problems)
        });
        let rules: Vec<_> = rules.collect();
        (!rules.is_empty()).then_some(Rewrites(rules))
    }

    /// The path instead, percent-encoded; `None` if no rule matches.
    pub(crate) fn apply(&self, path: &SitePath<'_>) -> Option<String> {
        let full = path.full();
        self.0.iter().find_map(|rule| rule.apply(&full))
    }
}
