//! The optional features of a site.

use std::sync::Arc;

use sealion_http::path::SitePath;

use super::SiteConfig;
use super::access::Access;
use super::basic_auth::BasicAuth;
use super::clean_urls::{self, TrailingSlash};
use super::cors::Cors;
use super::early_hints::EarlyHints;
use super::forward_auth::ForwardAuth;
use super::headers::{Headers, HeadersConfig};
use super::image_formats::ImageFormat;
use super::listing::Listing;
use super::maintenance::Maintenance;
use super::mounts::Mounts;
use super::pages::{ErrorPages, Page};
use super::proxy::Proxies;
use super::redirect::Redirects;
use super::rewrite::Rewrites;
use crate::files::cache::Files;
use crate::files::resolve::Root;
use crate::store::Store;
use crate::upstream::Upstreams;
use crate::values::Problems;

/// The optional features of a site.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Whether to omit Server.
    pub anonymous: bool,
    /// The site is under maintenance.
    pub maintenance: Option<Maintenance>,
    /// Access by client network.
    pub access: Option<Access>,
    /// Cross-origin access.
    pub cors: Option<Cors>,
    pub early_hints: Option<EarlyHints>,
    pub redirects: Option<Redirects>,
    /// Password protection.
    pub basic_auth: Option<BasicAuth>,
    /// Authentication by another server.
    pub forward_auth: Option<ForwardAuth>,
    pub rewrites: Option<Rewrites>,
    pub mounts: Option<Mounts>,
    /// Paths that are forwarded.
    pub proxies: Option<Proxies>,
    /// Index file names after the first.
    pub more_indexes: Vec<String>,
    /// File name extensions that URLs may omit.
    pub extensions: Vec<String>,
    pub trailing_slash: TrailingSlash,
    /// Formats of siblings of images.
    pub image_formats: Vec<ImageFormat>,
    /// Directory listings.
    pub listing: Option<Listing>,
    /// Whether Repr-Digest is sent on request.
    pub repr_digest: bool,
    /// The page for paths without a file.
    pub fallback: Option<Page>,
    pub error_pages: Option<ErrorPages>,
    /// Header fields to add to responses.
    pub headers: Option<Headers>,
}

impl SiteConfig {
    /// Validates and builds the features configured for the site.
    pub(super) fn features(
        &self,
        root: &Root,
        files: impl FnMut(Root) -> Files,
        upstreams: &mut Upstreams,
        store: Option<&Arc<Store>>,
        plain: bool,
        problems: &mut Problems,
    ) -> Features {
        for index in &self.index {
            if index.is_empty() || index.contains('/') || matches!(index.as_str(), "." | "..") {
                problems.add(
                    &index.span,
                    "site.index",
                    format!("{:?} is not a file name: write for instance index.html", index.value),
                );
            }
        }
        if self.index.is_empty() {
            problems.add(&(0..0), "site.index", "is empty: remove the key, or name a file, for instance index.html");
        }
        let fields = HeadersConfig {
            rules: &self.headers,
            cache_control: &self.cache_control,
            security: self.security_headers,
            hsts: &self.hsts,
            plain,
        };
        let fallback = self.fallback.as_ref();
        let proxies = Proxies::build(&self.proxy, self.root.as_ref(), upstreams, store, "site.proxy", problems);
        if let Some(proxies) = &proxies {
            let mounts =
                self.mounts.iter().map(|mount| (&mount.path, mount.path.trim_matches('/'), "site.mounts.path"));
            for (place, name, key) in mounts.chain(fallback.map(|page| (page, "", "site.fallback"))) {
                if proxies.hide(name.as_bytes()) {
                    let what = "is never reached: a proxy rule covers it: remove it, or give that rule another path or files_first = true";
                    problems.add(&place.span, key, what);
                }
            }
        }
        Features {
            anonymous: !self.server_header,
            maintenance: self
                .maintenance
                .as_ref()
                .map(|config| Maintenance::build(config, root, "site.maintenance", problems)),
            access: Access::build(&self.access, "site.access", problems),
            cors: self.cors.build("site.cors", problems),
            early_hints: EarlyHints::build(&self.early_hints, "site.early_hints", problems),
            redirects: Redirects::build(&self.redirects, "site.redirects", problems),
            basic_auth: BasicAuth::build(&self.basic_auth, "site.basic_auth", problems),
            forward_auth: ForwardAuth::build(&self.forward_auth, upstreams, "site.forward_auth", problems),
            rewrites: Rewrites::build(&self.rewrites, "site.rewrites", problems),
            mounts: Mounts::build(&self.mounts, "site.mounts", problems, files),
            proxies,
            more_indexes: self.index.iter().skip(1).map(|index| index.value.clone()).collect(),
            extensions: clean_urls::extensions(&self.extensions, problems),
            trailing_slash: self.trailing_slash,
            image_formats: self.image_formats.clone(),
            listing: self.listing.build("site.listing", problems),
            repr_digest: self.repr_digest,
            fallback: fallback.and_then(|page| Page::build(page, root, "site.fallback", problems)),
            error_pages: ErrorPages::build(&self.error_pages, root, "site.error_pages", problems),
            headers: fields.build("site", problems),
        }
    }
}

impl Features {
    /// Whether any feature may refuse a file by its name.
    pub(super) fn has_guards(&self) -> bool {
        self.access.is_some() || self.basic_auth.is_some() || self.forward_auth.is_some()
    }

    /// Whether a guard names its paths by an expression.
    pub(super) fn have_expressions(&self) -> bool {
        self.access.as_ref().is_some_and(Access::has_expressions)
            || self.basic_auth.as_ref().is_some_and(BasicAuth::has_expressions)
            || self.forward_auth.as_ref().is_some_and(ForwardAuth::has_expressions)
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
            maintenance: _,
            access: _,
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
            basic_auth: basic_auth.as_ref(),
            forward_auth: forward_auth.as_ref(),
            rewrites: rewrites.as_ref(),
            mounts: mounts.as_ref(),
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
