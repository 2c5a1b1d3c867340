//! Sites: what is served under which names.

pub mod access;
pub mod basic_auth;
pub mod cors;
pub mod fallback;
pub mod headers;
pub mod hsts;
pub mod htpasswd;
pub mod listing;
pub mod listing_page;
pub mod media_types;
pub mod moves;
mod names;
pub mod negotiation;
pub mod pattern;
pub mod plain_http;
pub mod security_headers;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{At, Problems};
use crate::file_cache::{FileCache, Files};
use crate::handler::HandlerOptions;
use crate::limits::{SiteLimits, SiteLimitsConfig};
use crate::resolve::Root;
use std::sync::Arc;

pub use names::Sites;

/// What is served under some names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SiteConfig {
    /// Host names: exact (`example.org`), or with a wildcard for one label or more (`*.example.org`).
    pub names: Vec<At<String>>,
    /// Whether requests for names of no site, or without a name, come here. The only site of a file is the default
    /// without being told.
    pub default: bool,
    /// The directory to serve; nothing outside it is reachable.
    pub root: Option<At<PathBuf>>,
    /// Bounds on what clients can take of this site.
    pub limits: SiteLimitsConfig,
    /// Certificates with their keys.
    pub certificates: Vec<CertificateConfig>,
}

/// A certificate with its key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// Certificate chain, PEM, the site's own first.
    pub cert: At<PathBuf>,
    /// Its private key, PEM.
    pub key: At<PathBuf>,
}

/// A site as requests see it.
#[derive(Debug)]
pub struct Site {
    /// Its first name, or `default`: for logs and metrics.
    pub name: String,
    /// The files beneath its root.
    pub files: Files,
    /// How requests are answered.
    pub options: HandlerOptions,
    /// Bounds on what clients can take.
    pub limits: Option<SiteLimits>,
}

impl SiteConfig {
    /// What messages call it.
    pub fn label(&self) -> String {
        self.names.first().map_or_else(|| "default".to_owned(), |name| name.value.clone())
    }

    /// Opens what the site serves. `None`: what is wrong is in `problems`.
    pub fn build(&self, cache: &Arc<FileCache>, max_ranges: usize, problems: &mut Problems) -> Option<Site> {
        let Some(path) = &self.root else {
            problems.add(
                &(0..0),
                "site.root",
                format_args!("the site {} has none: name the directory to serve", self.label()),
            );
            return None;
        };
        let root = match Root::open(&problems.resolve(path)) {
            Ok(root) => root,
            Err(error) => {
                problems.add(&path.span, "site.root", error);
                return None;
            }
        };
        Some(Site {
            name: self.label(),
            files: Files::new(root, "index.html".to_owned(), cache),
            options: HandlerOptions { max_ranges, ..HandlerOptions::default() },
            limits: self.limits.build("site.limits", problems),
        })
    }
}
