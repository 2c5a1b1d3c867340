//! The optional features of a site.

use std::sync::Arc;

use sealion_http::path::SitePath;

use super::SiteConfig;
use super::access::{Access, Satisfy};
use super::basic_auth::BasicAuth;
use super::clean_urls::{self, TrailingSlash};
use super::cors::Cors;
use super::early_hints::EarlyHints;
use super::forward_auth::ForwardAuth;
use super::headers::{CacheControlRule, Headers, HeadersConfig, HeadersRule};
use super::hsts::HstsConfig;
use super::image_formats::ImageFormat;
use super::listing::Listing;
use super::maintenance::Maintenance;
use super::mounts::Mounts;
use super::pages::{ErrorPages, Page};
use super::proxy::{Proxies, RuleContext};
use super::redirect::Redirects;
use super::rewrite::Rewrites;
use super::route::{Around, SiteContext};
use super::security_headers::SecurityHeaders;
use crate::files::cache::Files;
use crate::placeholders::Known;
use crate::values::Problems;

/// The optional features of a site.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Whether to omit Server.
    pub anonymous: bool,
    /// Whether the access log has no lines for its responses.
    pub is_unlogged: bool,
    /// The site is under maintenance.
    pub maintenance: Option<Arc<Maintenance>>,
    /// Access by client network.
    pub access: Option<Arc<Access>>,
    /// Whether a client of the networks needs no password.
    pub satisfies_any: bool,
    /// Cross-origin access.
    pub cors: Option<Arc<Cors>>,
    pub early_hints: Option<Arc<EarlyHints>>,
    pub redirects: Option<Arc<Redirects>>,
    /// Password protection.
    pub basic_auth: Option<Arc<BasicAuth>>,
    /// Authentication by another server.
    pub forward_auth: Option<Arc<ForwardAuth>>,
    pub rewrites: Option<Arc<Rewrites>>,
    pub mounts: Option<Arc<Mounts>>,
    /// Paths that are forwarded.
    pub proxies: Option<Arc<Proxies>>,
    /// Index file names after the first.
    pub more_indexes: Vec<String>,
    /// File name extensions that URLs may omit.
    pub extensions: Vec<String>,
    pub trailing_slash: TrailingSlash,
    /// Formats of siblings of images.
    pub image_formats: Vec<ImageFormat>,
    /// Directory listings.
    pub listing: Option<Arc<Listing>>,
    /// Whether Repr-Digest is sent on request.
    pub repr_digest: bool,
    /// The page for paths without a file.
    pub fallback: Option<Arc<Page>>,
    pub error_pages: Option<Arc<ErrorPages>>,
    /// Header fields to add to responses.
    pub headers: Option<Arc<Headers>>,
}

/// The value that a route builds of `own`, or that of the route around it, if that has the same.
pub(super) fn inherited<C: PartialEq, B>(
    own: C,
    around: Option<(C, &Option<Arc<B>>)>,
    build: impl FnOnce(C) -> Option<B>,
) -> Option<Arc<B>> {
    match around {
        Some((settings, built)) if settings == own => built.clone(),
        _ => build(own).map(Arc::new),
    }
}

impl SiteConfig {
    /// Validates and builds the features of a route with these settings. `files`: its files.
    pub(super) fn features(
        &self,
        files: &Files,
        around: Option<Around<'_>>,
        key: &str,
        context: &mut SiteContext<'_>,
        problems: &mut Problems,
    ) -> Features {
        if around.is_none_or(|around| around.settings.index != self.index) {
            self.check_index(key, problems);
        }
        let name = |name: &str| format!("{key}.{name}");
        let sent = files.root();
        let unhidden = sent.unhidden();
        let root = unhidden.as_ref().unwrap_or(&sent);
        macro_rules! inherit {
            ($field:ident, $build:expr) => {
                inherited(
                    &self.$field,
                    around.map(|around| (&around.settings.$field, &around.route.features.$field)),
                    $build,
                )
            };
        }
        let (upstreams, store) = (&mut *context.upstreams, context.store);
        let proxies = around.map(|around| (&around.settings.proxy, &around.route.features.proxies));
        let groups = Arc::default();
        let mut rules =
            RuleContext { root: self.root.as_ref(), upstreams, store, groups: &groups, tables: &context.tables };
        let proxies =
            inherited(&self.proxy, proxies, |configs| Proxies::build(configs, &name("proxy"), &mut rules, problems));
        let upstreams = rules.upstreams;
        if let Some(proxies) = proxies.as_ref().filter(|_| around.is_none()) {
            self.check_for_hidden(proxies, problems);
        }
        let error_pages = around.map(|around| (&around.settings.error_pages, &around.route.features.error_pages));
        let headers = around.map(|around| (header_settings(around.settings), &around.route.features.headers));
        let plain = context.plain;
        let known = Known { groups: None, tables: &context.tables, in_response: false };
        Features {
            anonymous: !self.server_header,
            // A whole site without a log has none that a line could be missing from.
            is_unlogged: around.is_some() && !self.access_log,
            maintenance: inherit!(maintenance, |config| {
                config.as_ref().map(|config| Maintenance::build(config, root, &name("maintenance"), problems))
            }),
            access: inherit!(access, |rules| Access::build(rules, &name("access"), problems)),
            satisfies_any: self.satisfy == Satisfy::Any,
            cors: inherit!(cors, |config| config.build(&name("cors"), problems)),
            early_hints: inherit!(early_hints, |rules| EarlyHints::build(rules, &name("early_hints"), problems)),
            redirects: inherit!(redirects, |rules| Redirects::build(rules, &name("redirects"), problems)),
            basic_auth: inherit!(basic_auth, |rules| BasicAuth::build(rules, &name("basic_auth"), problems)),
            forward_auth: inherit!(forward_auth, |rules| {
                ForwardAuth::build(rules, upstreams, &name("forward_auth"), problems)
            }),
            rewrites: inherit!(rewrites, |rules| Rewrites::build(rules, &name("rewrites"), problems)),
            mounts: inherit!(mounts, |mounts| {
                Mounts::build(mounts, &name("mounts"), problems, |root| files.beneath(root))
            }),
            proxies,
            more_indexes: self.index.iter().skip(1).map(|index| index.value.clone()).collect(),
            extensions: match around {
                Some(around) if around.settings.extensions == self.extensions => {
                    around.route.features.extensions.clone()
                }
                _ => clean_urls::extensions(&self.extensions, problems),
            },
            trailing_slash: self.trailing_slash,
            image_formats: self.image_formats.clone(),
            listing: inherit!(listing, |config| config.build(&name("listing"), problems)),
            repr_digest: self.repr_digest,
            fallback: inherit!(fallback, |page| Page::build(page.as_ref()?, root, &name("fallback"), problems)),
            error_pages: inherited(&self.error_pages, error_pages, |pages| {
                ErrorPages::build(pages, root, known, &name("error_pages"), problems)
            }),
            headers: inherited(header_settings(self), headers, |(rules, cache_control, security, hsts)| {
                HeadersConfig { rules, cache_control, security, hsts, plain, known }.build(key, problems)
            }),
        }
    }

    fn check_index(&self, key: &str, problems: &mut Problems) {
        let key = format!("{key}.index");
        for index in &self.index {
            if index.is_empty() || index.contains('/') || matches!(index.as_str(), "." | "..") {
                let what = format!("{:?} is not a file name: write for instance index.html", index.value);
                problems.add(&index.span, &key, what);
            }
        }
        if self.index.is_empty() {
            problems.add(&(0..0), &key, "is empty: remove the key, or name a file, for instance index.html");
        }
    }

    /// Refuses mounts and a fallback that no request reaches.
    fn check_for_hidden(&self, proxies: &Proxies, problems: &mut Problems) {
        let fallback = self.fallback.as_ref();
        let mounts = self.mounts.iter().map(|mount| (&mount.path, mount.path.trim_matches('/'), "site.mounts.path"));
        for (place, name, key) in mounts.chain(fallback.map(|page| (page, "", "site.fallback"))) {
            if proxies.hide(name.as_bytes()) {
                let what = "is never reached: a proxy rule covers it: remove it, or give that rule another path or files_first = true";
                problems.add(&place.span, key, what);
            }
        }
    }
}

/// The settings that make the fields of responses.
fn header_settings(settings: &SiteConfig) -> (&[HeadersRule], &[CacheControlRule], SecurityHeaders, &HstsConfig) {
    (&settings.headers, &settings.cache_control, settings.security_headers, &settings.hsts)
}

impl Features {
    /// Whether any feature may refuse a file by its name.
    pub(super) fn has_guards(&self) -> bool {
        self.access.is_some() || self.basic_auth.is_some() || self.forward_auth.is_some()
    }

    /// Whether a guard names its paths by an expression.
    pub(super) fn have_expressions(&self) -> bool {
        self.access.as_deref().is_some_and(Access::has_expressions)
            || self.basic_auth.as_deref().is_some_and(BasicAuth::has_expressions)
            || self.forward_auth.as_deref().is_some_and(ForwardAuth::has_expressions)
    }

    /// Whether any feature depends on the name of the file that is sent.
    pub(super) fn depend_on_names(&self) -> bool {
        self.has_guards() || self.headers.is_some() || self.cors.is_some()
    }

    /// Whether a password, a rewrite or a mount comes between a request and its file, where no proxy rule covers the path.
    pub(super) fn need_steps_before_files(&self) -> bool {
        let Steps { basic_auth, forward_auth, rewrites, mounts } = self.steps();
        let is_guarded = basic_auth.is_some() || forward_auth.is_some();
        is_guarded || rewrites.is_some() || mounts.is_some()
    }

    /// Whether a password or a rewrite comes between a request and the proxy rule of its path.
    pub(super) fn need_steps_before_proxies(&self) -> bool {
        let Steps { basic_auth, forward_auth, rewrites, mounts: _ } = self.steps();
        basic_auth.is_some() || forward_auth.is_some() || rewrites.is_some()
    }

    /// Whether a guard of `path` asks for more than the path to decide: a password, or another server.
    pub(super) fn guard(&self, path: &SitePath<'_>) -> bool {
        let Steps { basic_auth, forward_auth, rewrites: _, mounts: _ } = self.steps();
        basic_auth.is_some_and(|auth| auth.needs_more(path, None))
            || forward_auth.is_some_and(|auth| auth.needs_more(path, None))
    }

    /// The features with a step of their own in `Answering::respond`. A feature that adds a step there and is left out here would never take it.
    fn steps(&self) -> Steps<'_> {
        // Every feature is named, so that a new one is decided upon here.
        let Features {
            anonymous: _,
            // Looked at when the response is made.
            is_unlogged: _,
            maintenance: _,
            access: _,
            satisfies_any: _,
            cors: _,
            // They are sent by the driver, while the response is waited for.
            early_hints: _,
            redirects: _,
            basic_auth,
            forward_auth,
            rewrites,
            mounts,
            // Each shortcut looks for the rule of the path.
            proxies: _,
            more_indexes: _,
            extensions: _,
            // Asked for directories alone.
            trailing_slash: _,
            // Looked at when the file is found.
            image_formats: _,
            listing: _,
            // Looked at when the file is found.
            repr_digest: _,
            fallback: _,
            error_pages: _,
            headers: _,
        } = self;
        Steps {
            basic_auth: basic_auth.as_deref(),
            forward_auth: forward_auth.as_deref(),
            rewrites: rewrites.as_deref(),
            mounts: mounts.as_deref(),
        }
    }
}

/// The features between a request and its file. Each shortcut past them names every one, so that the compiler asks at all of them for a new one.
struct Steps<'a> {
    basic_auth: Option<&'a BasicAuth>,
    forward_auth: Option<&'a ForwardAuth>,
    rewrites: Option<&'a Rewrites>,
    mounts: Option<&'a Mounts>,
}
