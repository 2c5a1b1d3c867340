//! The optional features of a site.

use std::sync::Arc;

use super::SiteConfig;
use super::accel::Accel;
use super::access::{Access, Satisfy};
use super::basic_auth::BasicAuth;
use super::clean_urls::{self, TrailingSlash};
use super::compression::Compression;
use super::cors::Cors;
use super::dictionaries::NO_DICTIONARY_WITHOUT_TLS;
use super::early_hints;
use super::forward_auth::ForwardAuth;
use super::headers::{Fields, Headers, HeadersConfig};
use super::hsts::HstsConfig;
use super::image_formats::ImageFormat;
use super::listing::Listing;
use super::maintenance::Maintenance;
use super::pages::{ErrorPages, Page};
use super::route::{Around, SiteContext};
use super::security_headers::SecurityHeaders;
use crate::files::cache::Files;
use crate::placeholders::{Groups, Known};
use crate::values::{At, Problems};

/// The optional features of a site.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Whether to omit Server.
    pub anonymous: bool,
    /// Whether the access log has no lines for its responses.
    pub is_unlogged: bool,
    /// Whether its responses do not announce HTTP/3.
    pub is_unannounced: bool,
    /// The site is under maintenance.
    pub maintenance: Option<Arc<Maintenance>>,
    /// Access by client network.
    pub access: Option<Arc<Access>>,
    /// Whether a client of the networks needs no password.
    pub satisfies_any: bool,
    /// Cross-origin access.
    pub cors: Option<Arc<Cors>>,
    /// Values of Link for a response 103.
    pub early_hints: Option<Arc<Vec<String>>>,
    /// Password protection.
    pub basic_auth: Option<Arc<BasicAuth>>,
    /// Authentication by another server.
    pub forward_auth: Option<Arc<ForwardAuth>>,
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
    /// Fields of applications' answers that have an effect here.
    pub accel: Option<Arc<Accel>>,
    /// Compression of applications' responses.
    pub compression: Option<Arc<Compression>>,
    /// Whether files that are compressed by a dictionary are looked for.
    pub dictionary_compressed: bool,
    /// The value of Use-As-Dictionary.
    pub use_as_dictionary: Option<Arc<Box<str>>>,
}

/// The value that a route builds from `own`, or the value of the route around it if that has the same settings.
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
        (key, groups): (&str, &Groups),
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
        let error_pages = around.map(|around| (&around.settings.error_pages, &around.route.features.error_pages));
        let headers = around.map(|around| (header_settings(around.settings), &around.route.features.headers));
        let accel = around.filter(|around| self.has_files_of(around.settings));
        let accel = accel.map(|around| (&around.settings.accel, &around.route.features.accel));
        let plain = context.plain;
        let waiting = &Arc::clone(&context.upstreams.waiting);
        let compression = around.map(|around| (&around.settings.compress, &around.route.features.compression));
        let upstreams = &mut *context.upstreams;
        let known = Known::of_request(Some(groups), &context.tables);
        Features {
            anonymous: !self.server_header,
            // A whole site without a log has no log that a line could be missing from.
            is_unlogged: around.is_some() && !self.access_log,
            is_unannounced: !self.announce_http3,
            maintenance: inherit!(maintenance, |config| {
                let config = config.clone().into_table()?;
                Some(Maintenance::build(&config, root, &name("maintenance"), problems))
            }),
            access: inherit!(access, |config| config.build(&name("access"), problems)),
            satisfies_any: self.satisfy == Satisfy::Any,
            cors: inherit!(cors, |config| config.build(&name("cors"), problems)),
            early_hints: inherit!(early_hints, |links| early_hints::build(links, &name("early_hints"), problems)),
            basic_auth: inherit!(basic_auth, |config| { config.table()?.build(&name("basic_auth"), problems) }),
            forward_auth: inherit!(forward_auth, |config| {
                config.table()?.build(upstreams, known, &name("forward_auth"), problems)
            }),
            more_indexes: self.index.iter().skip(1).map(|index| index.value.clone()).collect(),
            extensions: match around {
                Some(around) if around.settings.extensions == self.extensions => {
                    around.route.features.extensions.clone()
                }
                _ => clean_urls::extensions(&self.extensions, problems),
            },
            trailing_slash: self.trailing_slash,
            image_formats: self.image_formats.clone(),
            listing: inherit!(listing, |config| Some(config.clone().into_table()?.build(&name("listing"), problems))),
            repr_digest: self.repr_digest,
            fallback: inherit!(fallback, |page| Page::build(page.as_ref()?, root, &name("fallback"), problems)),
            error_pages: inherited(&self.error_pages, error_pages, |pages| {
                ErrorPages::build(pages, root, known, &name("error_pages"), problems)
            }),
            headers: inherited(header_settings(self), headers, |(config, caching, security, hsts)| {
                Fields { config, caching, security, hsts, plain, known }.build(key, problems)
            }),
            accel: inherited(&self.accel, accel, |accel| {
                accel.clone().into_table()?.build(self, context.cache, &name("accel"), problems)
            }),
            compression: inherited(&self.compress, compression, |config| {
                // Its problems are found where files are opened.
                let settings = config.clone().into_table()?.build(&name("compress"), &mut problems.emptied());
                Some(Compression::new(settings, waiting))
            }),
            dictionary_compressed: self.dictionary_compressed(around, plain, &name("dictionary_compressed"), problems),
            use_as_dictionary: inherit!(use_as_dictionary, |config| {
                config.clone().into_table()?.build(&name("use_as_dictionary"), plain, problems)
            }),
        }
    }

    /// Whether files by dictionaries are sent. Clients take none without TLS.
    fn dictionary_compressed(
        &self,
        around: Option<Around<'_>>,
        plain: bool,
        key: &str,
        problems: &mut Problems,
    ) -> bool {
        let own = &self.dictionary_compressed;
        if plain && **own && around.is_none_or(|around| !*around.settings.dictionary_compressed) {
            problems.add(&own.span, key, NO_DICTIONARY_WITHOUT_TLS);
        }
        **own
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
}

/// The settings that make the fields of responses.
fn header_settings(
    settings: &SiteConfig,
) -> (&HeadersConfig, (&At<String>, &At<String>), SecurityHeaders, &HstsConfig) {
    let caching = (&settings.cache_control, &settings.forwarded_cache_control);
    (&settings.headers, caching, settings.security_headers, &settings.hsts)
}

impl Features {
    /// Whether any feature may refuse a file by its name.
    pub(super) fn has_guards(&self) -> bool {
        self.access.is_some() || self.authenticates()
    }

    /// Whether a guard asks for more than the client's address to decide: a password, or another server.
    pub(super) fn authenticates(&self) -> bool {
        self.basic_auth.is_some() || self.forward_auth.is_some()
    }
}
