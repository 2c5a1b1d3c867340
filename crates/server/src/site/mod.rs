//! Sites: what is served under which names.

mod access;
mod answer;
mod basic_auth;
mod cors;
mod fallback;
mod features;
mod headers;
mod hsts;
mod htpasswd;
mod listing;
mod listing_page;
mod mounts;
mod names;
mod pages;
mod path_rule;
mod pattern;
pub(crate) mod plain_http;
mod redirect;
mod rewrite;
mod security_headers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use sealion_http::Coding;
use sealion_tls::ClientAuth;
use serde::{Deserialize, Serialize};

use crate::certificates::{self, CertificateConfig, CertifiedSite, ClientAuthConfig};
use crate::files::cache::{FileCache, Files};
use crate::files::coding::Coder;
use crate::files::coding::config::{CompressConfig, Encoding};
use crate::files::media_types::MediaTypes;
use crate::files::resolve::Root;
use crate::limits::{SiteLimits, SiteLimitsConfig};
use crate::values::{At, Problems};

pub(crate) use answer::{Client, answer, refuse};
pub(crate) use headers::is_ours;
pub(crate) use names::Sites;

use access::AccessConfig;
use basic_auth::BasicAuthConfig;
use cors::CorsConfig;
use features::Features;
use headers::{CacheControlRule, HeadersRule};
use hsts::HstsConfig;
use listing::ListingConfig;
use mounts::MountConfig;
use redirect::RedirectConfig;
use rewrite::RewriteConfig;
use security_headers::SecurityHeaders;

/// What is served under some names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SiteConfig {
    /// Host names: exact (`example.org`), or with a wildcard for one label or more (`*.example.org`).
    pub names: Vec<At<String>>,
    /// Whether requests for names of no site, or without a name, come here. The only site of a file is the default
    /// without being told.
    pub default: bool,
    /// The directory to serve; nothing outside it is reachable.
    pub root: Option<At<PathBuf>>,
    /// Whether responses of this site are in the access log.
    pub access_log: bool,
    /// Bounds on what clients can take of this site.
    pub limits: SiteLimitsConfig,
    /// Codings of files that lie compressed beside their originals (`style.css.br`, `.zst`, `.gz`), to be sent to those who accept them:
    /// some of `br`, `zstd`, `gzip`. Make them with `sealion compress`. One that is older than its original is not sent.
    pub precompressed: At<Vec<Coding>>,
    /// Compression of small text that lies nowhere compressed.
    pub compress: Option<CompressConfig>,
    /// Certificates with their keys, for instance one with an ECDSA and one with an RSA key: a client gets one that it can check.
    /// A site without any shows those of the default site.
    pub certificates: Vec<CertificateConfig>,
    /// Whether a certificate is got and renewed by itself: `[tls.acme]` says where.
    pub acme: bool,
    /// Certificates of clients. Requests that come over a connection made for another site are refused (421).
    pub client_auth: Option<ClientAuthConfig>,
    /// Files that stand for their directory; the first that is there is sent.
    pub index: Vec<At<String>>,
    /// Whether names that begin with a dot are served. Without it only `.well-known` is.
    pub show_dotfiles: bool,
    /// Other directories, each beneath a path of its own.
    pub mounts: Vec<MountConfig>,
    /// Content types by extension, for instance `md = "text/plain; charset=utf-8"`.
    pub media_types: BTreeMap<String, At<String>>,
    /// Whether responses say `Server: sealion`.
    pub server_header: bool,
    /// Fields to add to responses.
    pub headers: Vec<HeadersRule>,
    /// Cache-Control by path, for responses with a file; the last rule that matches counts.
    pub cache_control: Vec<CacheControlRule>,
    /// Fields that keep browsers from guessing, and other sites from using this one.
    pub security_headers: SecurityHeaders,
    /// Strict-Transport-Security.
    pub hsts: HstsConfig,
    /// Other sites whose scripts may read this one.
    pub cors: CorsConfig,
    /// Pages for errors: a path beneath the root by status, for instance `404 = "/404.html"`. The status stays.
    pub error_pages: BTreeMap<String, At<String>>,
    /// The page of an application that knows its own paths: sent for paths without a file, with status 200.
    pub fallback: Option<At<String>>,
    /// Pages that show what is in directories.
    pub listing: ListingConfig,
    /// Where clients are sent; the first rule that matches counts.
    pub redirects: Vec<RedirectConfig>,
    /// Paths that stand for others; the first rule that matches counts.
    pub rewrites: Vec<RewriteConfig>,
    /// Parts that ask for a name and a password; the innermost that covers a path asks.
    pub basic_auth: Vec<BasicAuthConfig>,
    /// Networks that may or may not ask; every rule that covers a path must let a request pass.
    pub access: Vec<AccessConfig>,
}

impl Default for SiteConfig {
    fn default() -> Self {
        SiteConfig {
            names: Vec::new(),
            default: false,
            root: None,
            access_log: true,
            limits: SiteLimitsConfig::default(),
            precompressed: At::default(),
            compress: None,
            certificates: Vec::new(),
            acme: false,
            client_auth: None,
            index: vec!["index.html".to_owned().into()],
            show_dotfiles: false,
            mounts: Vec::new(),
            media_types: BTreeMap::new(),
            server_header: true,
            headers: Vec::new(),
            cache_control: Vec::new(),
            security_headers: SecurityHeaders::Off,
            hsts: HstsConfig::default(),
            cors: CorsConfig::default(),
            error_pages: BTreeMap::new(),
            fallback: None,
            listing: ListingConfig::default(),
            redirects: Vec::new(),
            rewrites: Vec::new(),
            basic_auth: Vec::new(),
            access: Vec::new(),
        }
    }
}

/// A site as requests see it.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its first name, or `default`: for logs and metrics.
    pub name: String,
    /// Whether its responses are in the access log.
    pub access_log: bool,
    /// The files beneath its root.
    pub files: Files,
    /// How files are sent.
    pub options: FileOptions,
    /// Bounds on what clients can take.
    pub limits: Option<SiteLimits>,
    /// What it has besides files.
    pub(crate) features: Features,
    /// What clients are asked for before anything is answered.
    pub client_auth: Option<ClientAuth>,
}

/// How the files of a site are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOptions {
    /// Ranges in one request; a request with more gets the whole file.
    pub max_ranges: usize,
    /// Whether names that begin with a dot are served.
    pub show_dotfiles: bool,
}

impl SiteConfig {
    /// The site as certificates see it.
    pub(crate) fn certified<'a>(&'a self, site: &Site) -> CertifiedSite<'a> {
        CertifiedSite {
            label: self.label(),
            names: self.names.iter().map(|name| name.value.trim_end_matches('.').to_ascii_lowercase()).collect(),
            span: self.names.first().map(|name| name.span.clone()).unwrap_or_default(),
            default: self.default,
            certificates: &self.certificates,
            acme: self.acme,
            client_auth: site.client_auth.clone(),
        }
    }

    /// What messages call it.
    pub(crate) fn label(&self) -> String {
        self.names.first().map_or_else(|| "default".to_owned(), |name| name.value.clone())
    }

    /// Opens what the site serves. `plain`: whether it is reached without TLS only. `None`: what is wrong is in `problems`.
    pub(crate) fn build(
        &self,
        cache: &Arc<FileCache>,
        max_ranges: usize,
        plain: bool,
        problems: &mut Problems,
    ) -> Option<Site> {
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
        let media_types = MediaTypes::build(&self.media_types, "site.media_types", problems).map(Arc::new);
        let index = self.index.first().map(|index| index.value.clone()).unwrap_or_default();
        let coder = Encoding::build(&self.precompressed, self.compress.as_ref(), "site", problems)
            .map(|encoding| Arc::new(Coder::new(&encoding)));
        let files = |root: Root| {
            Files::new(root.with_media_types(media_types.clone()), index.clone(), cache).with_codings(coder.clone())
        };
        let features = self.features(&root, files, plain, problems);
        let client_auth = match &self.client_auth {
            Some(auth) => Some(certificates::client_auth(auth, problems)?),
            None => None,
        };
        Some(Site {
            client_auth,
            name: self.label(),
            access_log: self.access_log,
            files: files(root),
            options: FileOptions { max_ranges, show_dotfiles: self.show_dotfiles },
            features,
            limits: self.limits.build("site.limits", problems),
        })
    }
}
