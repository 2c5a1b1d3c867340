//! Sites: their configuration, and answering requests for them.

mod access;
mod answer;
mod archive;
mod basic_auth;
mod checksums;
mod clean_urls;
mod cors;
mod early_hints;
mod error_text;
mod explain;
mod fallback;
mod fastcgi;
mod features;
mod forward_auth;
mod headers;
mod hsts;
mod htpasswd;
mod image_formats;
mod listing;
mod listing_page;
mod listing_pages;
mod listing_view;
mod locate;
mod maintenance;
mod mounts;
mod names;
mod pages;
mod path_rule;
mod pattern;
pub(crate) mod plain_http;
mod proxy;
mod proxy_redirects;
mod readings;
mod redirect;
mod rewrite;
mod route;
mod security_headers;
mod verifications;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use sealion_http::path::SitePath;
use sealion_http::{Coding, Request, Target};
use sealion_tls::ClientAuth;
use serde::{Deserialize, Serialize};

use crate::certificates::{self, AcmeOnDemandConfig, AcmeUse, CertificateConfig, CertifiedSite, ClientAuthConfig};
use crate::files::coding::config::CompressConfig;
use crate::files::resolve::EntityTags;
use crate::limits::SiteLimitsConfig;
use crate::observe::access_log::{SiteLog, SiteLogConfig, SiteLogs};
use crate::observe::metrics::SiteNumber;
use crate::placeholders::Tables;
use crate::values::{At, Problems};

pub(crate) use answer::{Arrival, Client, answer, answer_from_cache, early_hints, is_refused_or_redirected, refuse};
pub(crate) use headers::is_ours;
pub(crate) use names::Sites;
pub(crate) use proxy::ProxyConfig;
pub(crate) use redirect::RedirectConfig;
pub(crate) use rewrite::RewriteConfig;
pub(crate) use route::{RouteConfig, SiteContext};

use access::{AccessConfig, Satisfy};
use basic_auth::BasicAuthConfig;
use clean_urls::TrailingSlash;
use cors::CorsConfig;
use early_hints::EarlyHintsRule;
use forward_auth::ForwardAuthConfig;
use headers::{CacheControlRule, HeadersRule};
use hsts::HstsConfig;
use image_formats::ImageFormat;
use listing::ListingConfig;
use maintenance::MaintenanceConfig;
use mounts::MountConfig;
use pages::ErrorPageConfig;
use route::{Route, Routes};
use security_headers::SecurityHeaders;

/// A site: a directory served under one or more host names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SiteConfig {
    /// Host names: exact (`example.org`), or with a wildcard for one or more labels (`*.example.org`).
    pub names: Vec<At<String>>,
    /// Whether this site answers requests with an unknown host name, or with none. A single site is always the default.
    pub default: bool,
    /// Listeners that this site answers on, by their `address` in `[[listen]]`. On other listeners, requests for its names are answered
    /// 421, and those without TLS do not redirect them [default: all]
    pub listen: Option<Vec<At<String>>>,
    /// Whether clients are offered HTTP/2 for this site. `false`: they use HTTP/1.1, and requests that come over a connection of HTTP/2 for another site are
    /// answered 421, upon which browsers open another connection.
    pub http2: bool,
    /// Whether requests by `http`, at listeners with `plain = "serve"`, are redirected to the same address over HTTPS, with status 308 and the port of the
    /// first listener with TLS.
    pub https_only: At<bool>,
    /// Directory to serve. Nothing outside it is reachable.
    pub root: Option<At<PathBuf>>,
    /// Whether responses of this site are written to the access log.
    pub access_log: bool,
    /// An access log of this site's own: its responses are not in the common one. What is not set here is as in `[access_log]`, but for `rotate`.
    pub log: Option<SiteLogConfig>,
    /// Limits on the use of this site by clients.
    pub limits: SiteLimitsConfig,
    /// Codings of precompressed files beside their originals (`style.css.br`, `.zst`, `.gz`), of `br`, `zstd` and `gzip`. They are
    /// sent to clients that accept the coding, unless they are older than their originals. `sealion compress` creates them.
    pub precompressed: At<Vec<Coding>>,
    /// Formats of images beside their originals (`photo.jpg.avif`, `photo.jpg.webp`), of `avif` and `webp`, the preferred one first. They are
    /// sent to clients that name the format in Accept, unless they are older than their originals.
    pub image_formats: Vec<ImageFormat>,
    /// Compression of small text files without a precompressed sibling.
    pub compress: Option<CompressConfig>,
    /// Certificates with their keys, for instance one ECDSA and one RSA; each client gets one that it supports. A site without
    /// certificates uses those of the default site.
    pub certificates: Vec<CertificateConfig>,
    /// Whether a certificate is obtained and renewed automatically: by the account of `[tls.acme]` (`true`), or by that with this name in
    /// `[[tls.acme_accounts]]`.
    pub acme: AcmeUse,
    /// Has certificates ordered when a client first asks for a name, each for itself: for any name under a wildcard of `names`, and in the
    /// default site for all names that no other site has. Names that `certificates` cover are shown those.
    pub acme_on_demand: Option<AcmeOnDemandConfig>,
    /// Authentication of clients by certificate. Requests on a connection opened for another site are refused (421).
    pub client_auth: Option<ClientAuthConfig>,
    /// Index files of a directory; the first that exists is sent.
    pub index: Vec<At<String>>,
    /// File name extensions that URLs may omit: with `["html"]`, `/about` is answered with `about.html`, and `/about/` redirects to
    /// `/about`. Such a file goes before a directory of the same name.
    pub extensions: Vec<At<String>>,
    /// Whether URLs of directories end in a slash: with `add`, `/about` redirects to `/about/`; with `remove`, `/about/` redirects to
    /// `/about`, which gets the index of the directory. A listing always has the slash.
    pub trailing_slash: TrailingSlash,
    /// How entity tags of files are made: `modified`, from size and modification time, which replicas share if they keep the times of
    /// files; or `inode`, from these, device, inode and change time, for files that are replaced without a change of time and size.
    pub etag: EntityTags,
    /// Whether files and directories whose names begin with a dot are served. Otherwise only `.well-known` is.
    pub show_dotfiles: bool,
    /// Further directories, each served beneath a path of its own.
    pub mounts: Vec<MountConfig>,
    /// Content types by file name extension, for instance `md = "text/plain; charset=utf-8"`.
    pub media_types: BTreeMap<String, At<String>>,
    /// Whether responses carry `Server: sealion`.
    pub server_header: bool,
    /// Header fields to add to responses.
    pub headers: Vec<HeadersRule>,
    /// Cache-Control by path, for responses with a file; the last matching rule wins.
    pub cache_control: Vec<CacheControlRule>,
    /// Links that browsers are sent in a response 103 (Early Hints), while the page that needs them is being made or fetched; the first matching rule wins.
    pub early_hints: Vec<EarlyHintsRule>,
    /// Preset of security header fields.
    pub security_headers: SecurityHeaders,
    /// Strict-Transport-Security.
    pub hsts: HstsConfig,
    /// Cross-origin access: other origins whose scripts may read this site.
    pub cors: CorsConfig,
    /// Error pages by status: a path (`404 = "/404.html"`), a named route (`404 = "@app"`), a URL, or a table. With a path, the status of the response stays.
    pub error_pages: BTreeMap<String, At<ErrorPageConfig>>,
    /// Page of a single-page application: a path beneath the root, sent with status 200 for paths without a file.
    pub fallback: Option<At<String>>,
    /// Directory listings.
    pub listing: ListingConfig,
    /// Whether requests with Want-Repr-Digest get the checksum of a file (Repr-Digest, RFC 9530) from `FILE.sha256`, `FILE.sha512`, `SHA256SUMS` or
    /// `SHA512SUMS` beside it, unless that is older than the file.
    pub repr_digest: bool,
    /// Redirects; the first matching rule wins.
    pub redirects: Vec<RedirectConfig>,
    /// Internal rewrites of paths; the first matching rule wins.
    pub rewrites: Vec<RewriteConfig>,
    /// Password protection (HTTP Basic); the innermost matching path applies.
    pub basic_auth: Vec<BasicAuthConfig>,
    /// Authentication by another server, that is asked whether a request may pass (`auth_request`); every rule that covers a path must allow
    /// the request.
    pub forward_auth: Vec<ForwardAuthConfig>,
    /// Maintenance: `true`, or a table. Every request is answered 503; a reload begins and ends it.
    pub maintenance: Option<MaintenanceConfig>,
    /// Access by client network; every rule that covers a path must allow the request.
    pub access: Vec<AccessConfig>,
    /// Whether a request must pass `access` and the other guards, or one of both.
    pub satisfy: Satisfy,
    /// Paths that are forwarded to an upstream; the first rule that covers a path wins. A site with rules needs no root, and neither does one with redirects.
    pub proxy: Vec<ProxyConfig>,
    /// Routes: paths with settings and an action of their own.
    pub route: Vec<RouteConfig>,
}

impl Default for SiteConfig {
    fn default() -> Self {
        SiteConfig {
            names: Vec::new(),
            default: false,
            listen: None,
            http2: true,
            https_only: false.into(),
            root: None,
            access_log: true,
            log: None,
            limits: SiteLimitsConfig::default(),
            precompressed: At::default(),
            image_formats: Vec::new(),
            compress: None,
            certificates: Vec::new(),
            acme: AcmeUse::No,
            acme_on_demand: None,
            client_auth: None,
            index: vec!["index.html".to_owned().into()],
            extensions: Vec::new(),
            trailing_slash: TrailingSlash::default(),
            etag: EntityTags::default(),
            show_dotfiles: false,
            mounts: Vec::new(),
            media_types: BTreeMap::new(),
            server_header: true,
            headers: Vec::new(),
            cache_control: Vec::new(),
            early_hints: Vec::new(),
            security_headers: SecurityHeaders::Off,
            hsts: HstsConfig::default(),
            cors: CorsConfig::default(),
            error_pages: BTreeMap::new(),
            fallback: None,
            listing: ListingConfig::default(),
            repr_digest: false,
            redirects: Vec::new(),
            rewrites: Vec::new(),
            basic_auth: Vec::new(),
            forward_auth: Vec::new(),
            maintenance: None,
            access: Vec::new(),
            satisfy: Satisfy::All,
            proxy: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// A site, ready to answer requests.
#[derive(Debug)]
pub(crate) struct Site {
    /// The first name, or `default`; for logs and metrics.
    pub name: String,
    /// Its counters.
    pub number: SiteNumber,
    /// Names of the listeners that it answers on. `None`: all.
    pub listen: Option<Box<[Box<str>]>>,
    /// Whether it answers over HTTP/2.
    pub http2: bool,
    /// The port of HTTPS, if requests by `http` are redirected to it.
    pub https_only: Option<u16>,
    /// The access log that its responses are written to.
    pub log: SiteLog,
    /// What answers requests for paths that no other route has.
    root: Route,
    /// `None`: the root answers all requests.
    routes: Option<Box<Routes>>,
    tables: Arc<Tables>,
    /// Client authentication that a connection must satisfy.
    pub client_auth: Option<ClientAuth>,
}

impl Site {
    /// Its routes, the root last.
    fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().flat_map(|routes| routes.all()).chain([&self.root])
    }

    fn route(&self, number: Option<usize>) -> &Route {
        match (number, &self.routes) {
            (Some(number), Some(routes)) => routes.get(number),
            _ => &self.root,
        }
    }

    /// Whether a request may be forwarded to an upstream: its content is then read only as fast as that takes it.
    pub(crate) fn may_forward(&self, request: &Request<'_>) -> bool {
        let Target::Path { path, .. } = request.target else { return false };
        let Some(routes) = &self.routes else {
            let Some(proxies) = &self.root.features.proxies else { return false };
            // A rewritten path is not known yet.
            return self.root.features.rewrites.is_some() || proxies.may_forward(path);
        };
        let Ok(path) = SitePath::parse_forwarded(path) else { return false };
        // Conditions ask for more of the request than is known here.
        let by_path = || routes.by_path(&path).unwrap_or(&self.root).may_forward(&path);
        routes.may_forward() && (routes.has_conditions() || by_path())
    }

    /// Whether a rule permits WebSocket.
    pub(crate) fn permits_websocket(&self) -> bool {
        self.all_rules().any(proxy::Rule::permits_websocket)
    }

    /// Whether interim responses of servers to this request are passed on.
    pub(crate) fn passes_interim(&self, request: &Request<'_>) -> bool {
        match &self.routes {
            None => self
                .root
                .features
                .proxies
                .as_ref()
                .is_some_and(|all| all.rules().any(|rule| rule.interim().include(request))),
            Some(routes) => routes.passes_interim(request),
        }
    }

    /// Whether servers may learn the ends of a client's connection.
    pub(crate) fn names_endpoints(&self) -> bool {
        match &self.routes {
            None => self.root.names_endpoints(),
            Some(routes) => routes.names_endpoints(),
        }
    }

    /// The rules that forward, of all routes.
    fn all_rules(&self) -> impl Iterator<Item = &proxy::Rule> {
        self.all_routes().flat_map(Route::rules)
    }

    /// The URL as a cache of the site's rules stores it.
    pub(super) fn spellings<'a>(&'a self, url: &'a str) -> Vec<String> {
        match (&self.routes, &self.root.features.proxies) {
            // Any route may have stored it.
            (Some(_), _) => self.all_rules().filter_map(|rule| rule.spelling(url)).collect(),
            (None, None) => Vec::new(),
            // A rewrite may lead to the rule of another path.
            (None, Some(proxies)) => proxies.spellings(url, self.root.features.rewrites.is_none()).collect(),
        }
    }

    /// Whether there are rules that forward.
    pub(crate) fn has_proxies(&self) -> bool {
        match &self.routes {
            None => self.root.features.proxies.is_some(),
            Some(routes) => routes.may_forward(),
        }
    }

    /// Whether to omit Server.
    pub(super) fn is_anonymous(&self) -> bool {
        self.root.features.anonymous
    }

    /// Whether it answers requests on a listener.
    pub(crate) fn answers_on(&self, listener: &str) -> bool {
        self.listen.as_ref().is_none_or(|names| names.iter().any(|name| **name == *listener))
    }

    #[cfg(test)]
    pub(crate) fn files_for_tests(&self) -> &crate::files::cache::Files {
        &self.root.files
    }
}

/// Options for serving the files of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOptions {
    /// Most ranges in one request; a request with more gets the whole file.
    pub max_ranges: usize,
    /// Whether names that begin with a dot are served.
    pub show_dotfiles: bool,
}

impl SiteConfig {
    /// Whether requests for it name different hosts.
    pub(crate) fn has_hosts(&self) -> bool {
        self.default || self.names.len() != 1 || self.names.iter().any(|name| name.starts_with('*'))
    }

    /// Whether it answers on the listener of this name.
    pub(crate) fn answers_on(&self, listener: &str) -> bool {
        self.listen.as_ref().is_none_or(|names| names.iter().any(|name| name.value == listener))
    }

    /// The site as certificates see it.
    pub(crate) fn certified<'a>(&'a self, site: &Site) -> CertifiedSite<'a> {
        CertifiedSite {
            label: self.label(),
            names: self.names.iter().map(|name| name.value.trim_end_matches('.').to_ascii_lowercase()).collect(),
            span: self.names.first().map(|name| name.span.clone()).unwrap_or_default(),
            default: self.default,
            certificates: &self.certificates,
            acme: self.acme.clone(),
            on_demand: self.acme_on_demand.as_ref(),
            client_auth: site.client_auth.clone(),
            expired_lists: self.client_auth.as_ref().map(|auth| auth.expired_crls).unwrap_or_default(),
            http2: self.http2,
        }
    }

    /// The name of the site in messages.
    pub(crate) fn label(&self) -> String {
        self.names.first().map_or_else(|| "default".to_owned(), |name| name.value.clone())
    }

    /// The log of the site, for [`Site::log`].
    pub(crate) fn log(&self, logs: &SiteLogs, problems: &mut Problems) -> SiteLog {
        match &self.log {
            Some(_) if !self.access_log => {
                let what = "unused with `access_log = false`: remove one of the two";
                problems.add(&(0..0), "site.log", what);
                SiteLog::Off
            }
            Some(own) => logs.of(own),
            None if self.access_log => SiteLog::Common,
            None => SiteLog::Off,
        }
    }

    /// Builds the site, with the common log and without redirects to HTTPS. `None`: the errors are in `problems`.
    pub(crate) fn build(&self, context: &mut SiteContext<'_>, problems: &mut Problems) -> Option<Site> {
        let (root, routes) = self.routes(context, problems)?;
        let client_auth = match &self.client_auth {
            Some(auth) => Some(certificates::client_auth(auth, problems)?),
            None => None,
        };
        Some(Site {
            client_auth,
            name: self.label(),
            number: SiteNumber::of(&self.label()),
            listen: self.listen.as_ref().map(|names| names.iter().map(|name| name.value.as_str().into()).collect()),
            http2: self.http2,
            https_only: None,
            log: SiteLog::Common,
            root,
            routes,
            tables: Arc::clone(&context.tables),
        })
    }
}
