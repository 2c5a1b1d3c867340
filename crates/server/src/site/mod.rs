//! Sites: their configuration, and answering requests for them.

mod accel;
mod access;
mod answer;
mod archive;
mod basic_auth;
mod checksums;
mod clean_urls;
mod compression;
mod cors;
mod dictionaries;
mod early_hints;
mod error_text;
mod explain;
mod fallback;
mod fastcgi;
mod features;
mod forward_auth;
mod forwarded_path;
mod headers;
mod hosts;
mod hsts;
mod htpasswd;
mod image_formats;
mod listing;
mod listing_notes;
mod listing_page;
mod listing_pages;
mod listing_view;
mod locate;
mod look_around;
mod maintenance;
mod md5_crypt;

mod pages;
mod pattern;
pub(crate) mod plain_http;
mod proxy;
mod proxy_redirects;
mod readings;
mod route;
mod security_headers;
mod sites;
mod uwsgi;
mod verifications;

use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::{Request, Target};
use sealion_tls::ClientAuth;

use crate::certificates::{self, CertifiedSite};
use crate::files::resolve::Wait;
use crate::observe::access_log::{SiteLog, SiteLogs};
use crate::observe::metrics::{RouteNumber, SiteNumber};
use crate::placeholders::{Groups, Tables};
use crate::values::Problems;

pub(crate) use answer::{Arrival, Client, answer, answer_at_once, early_hints, is_refused_or_redirected, refuse};
#[cfg(fuzzing)]
pub(crate) use dictionaries::parse as parse_available_dictionary;
pub(crate) use headers::is_ours;
pub(crate) use hosts::Hosts;
pub(crate) use locate::LimitedBy;
pub(crate) use proxy::ProxyConfig;
pub(crate) use route::{RedirectTable, RewriteTable, RouteConfig, SiteConfig, SiteContext, literally};
pub(crate) use sites::{Sites, host};

use pages::ErrorTarget;
use route::{Route, Routes};

/// A site, ready to answer requests.
#[derive(Debug)]
pub(crate) struct Site {
    /// The first name, or `default`; for logs and metrics.
    pub name: String,
    /// Its counters.
    pub number: SiteNumber,
    /// The numbers of its routes for the counters, by their own.
    route_numbers: Box<[RouteNumber]>,
    /// Whether it has host names. Without them it has every name.
    pub has_names: bool,
    /// Whether handshakes for it are refused, so that it answers no request over TLS.
    pub rejects_handshake: bool,
    /// Whether it answers over HTTP/2.
    pub http2: bool,
    /// Whether it answers over HTTP/3.
    pub http3: bool,
    /// The port of its first listener with TLS. `None`: no request for it can come by TLS, so that no listener redirects its requests.
    pub https: Option<u16>,
    /// Whether requests by `http` are redirected to HTTPS.
    pub https_only: bool,
    /// The access log that its responses are written to.
    pub log: SiteLog,
    /// Answers requests for paths that no other route has.
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

    #[inline]
    fn route(&self, number: Option<usize>) -> &Route {
        match (number, &self.routes) {
            (Some(number), Some(routes)) => routes.get(number),
            _ => &self.root,
        }
    }

    /// The name or path of a route, for the log.
    pub(crate) fn route_name(&self, number: Option<u32>) -> Option<&str> {
        let routes = self.routes.as_ref()?;
        Some(&*routes.all().get(usize::try_from(number?).ok()?)?.shown)
    }

    /// The number of a route among the counters.
    #[inline]
    pub(crate) fn route_number(&self, number: Option<u32>) -> Option<RouteNumber> {
        self.route_numbers.get(usize::try_from(number?).ok()?).copied()
    }

    /// Whether a request may be forwarded to an upstream: its content is then read only as fast as that takes it.
    pub(crate) fn may_forward(&self, request: &Request<'_>) -> bool {
        let Target::Path { path, .. } = request.target else { return false };
        if !self.has_proxies() {
            return false;
        }
        let Ok(path) = SitePath::parse_forwarded(path) else { return false };
        // Conditions ask for more of the request than is known here.
        let may_forward = |routes: &Routes| {
            let route = routes.by_path(&path).unwrap_or(&self.root);
            // Another route may run the index of a directory.
            let is_run = |index: &str| routes.by_path(&path.child(index)).is_some_and(Route::may_forward);
            routes.has_conditions() || route.may_forward() || path.names_directory() && route.indexes().any(is_run)
        };
        self.routes.as_deref().is_none_or(may_forward)
    }

    /// Whether a rule permits WebSocket.
    pub(crate) fn permits_websocket(&self) -> bool {
        self.all_rules().any(proxy::Rule::permits_websocket)
    }

    /// Whether interim responses of servers to this request are passed on.
    pub(crate) fn passes_interim(&self, request: &Request<'_>) -> bool {
        match &self.routes {
            None => self.root.rule().is_some_and(|rule| rule.interim().include(request)),
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

    /// The URL as the caches of the site's rules store it.
    pub(super) fn spellings<'a>(&'a self, url: &'a str) -> impl Iterator<Item = String> + 'a {
        self.all_rules().filter_map(|rule| rule.spelling(url))
    }

    /// The names that keys of the cache have for upstreams.
    pub(super) fn cache_names(&self) -> impl Iterator<Item = &str> {
        self.all_rules().filter_map(proxy::Rule::cache_name)
    }

    /// Warnings of error pages that no file has, where only files are sent.
    pub(crate) fn missing_pages(&self) -> Vec<String> {
        let pages = self.all_routes().filter_map(|route| route.features.error_pages.as_ref());
        let mut notes: Vec<String> =
            pages.flat_map(|pages| pages.targets()).filter_map(|page| self.missing(page)).collect();
        notes.sort();
        notes.dedup();
        notes
    }

    fn missing(&self, (code, target): (u16, &ErrorTarget)) -> Option<String> {
        let text = target.text.as_str();
        let path = SitePath::parse(text.split('?').next()?, true).ok();
        let path = path.filter(|path| target.chooses_route() && !text.contains('{') && !path.names_directory())?;
        let route = self.routes.as_ref().and_then(|routes| routes.by_path(&path)).unwrap_or(&self.root);
        let sends_files = route.is_of_files() && !route.has_named_directory() && route.alias.is_empty();
        // Another file may answer.
        let sends_files = sends_files && route.features.extensions.is_empty() && route.features.fallback.is_none();
        let is_missing = sends_files && !route.files.root().is_file(path.as_bytes(), Wait::Yes).unwrap_or(false);
        is_missing.then(|| format!("{}: error_pages.{code} leads to {text}, where no file and no route is", self.name))
    }

    /// Whether there are routes that forward.
    pub(crate) fn has_proxies(&self) -> bool {
        match &self.routes {
            None => self.root.rule().is_some(),
            Some(routes) => routes.may_forward(),
        }
    }

    /// Whether to omit Server.
    pub(super) fn is_anonymous(&self) -> bool {
        self.root.features.anonymous
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
        let is_pattern = |name: &str| name.contains('*') || name.starts_with('~');
        self.is_default() || self.names.len() != 1 || self.names.iter().any(|name| is_pattern(name))
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
            reject_handshake: self.reject_handshake.value,
            span: self.names.first().map(|name| name.span.clone()).unwrap_or_default(),
            default: self.is_default(),
            certificates: &self.certificates,
            acme: self.acme.value.clone(),
            acme_span: self.acme.span.clone(),
            on_demand: self.acme_on_demand.as_ref(),
            client_auth: site.client_auth.clone(),
            expired_lists: self.client_auth.as_ref().map(|auth| auth.expired_crls).unwrap_or_default(),
            http2: self.http2,
        }
    }

    /// The groups of expressions among its names.
    pub(crate) fn host_groups(&self) -> Groups {
        let hosts = self.names.iter().filter_map(|name| hosts::expression_of(name)).collect();
        Groups { hosts, ..Groups::default() }
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

    /// Builds the site, with the common log, and as if no listener had TLS. `None`: the errors are in `problems`.
    pub(crate) fn build(&self, context: &mut SiteContext<'_>, problems: &mut Problems) -> Option<Site> {
        let (root, routes) = self.routes(context, problems)?;
        let client_auth = match &self.client_auth {
            Some(auth) => Some(certificates::client_auth(auth, problems)?),
            None => None,
        };
        let name = self.label();
        let all = routes.iter().flat_map(|routes| routes.all());
        let route_numbers = all.map(|route| RouteNumber::of(&name, &route.shown)).collect();
        Some(Site {
            client_auth,
            number: SiteNumber::of(&name),
            name,
            route_numbers,
            has_names: !self.names.is_empty(),
            rejects_handshake: *self.reject_handshake,
            http2: self.http2,
            http3: self.http3,
            https: None,
            https_only: *self.https_only,
            log: SiteLog::Common,
            root,
            routes,
            tables: Arc::clone(&context.tables),
        })
    }
}
