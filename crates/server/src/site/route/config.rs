//! The keys of `[[site.route]]`, and how a route inherits the others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use sealion_http::Coding;
use serde::{Deserialize, Serialize};

use super::action::{RedirectConfig, RespondConfig, RewriteConfig};
use super::condition::MatchConfig;
use crate::files::coding::config::CompressConfig;
use crate::files::resolve::EntityTags;
use crate::limits::SiteLimitsConfig;
use crate::site::SiteConfig;
use crate::site::access::{AccessConfig, Satisfy};
use crate::site::basic_auth::BasicAuthConfig;
use crate::site::clean_urls::TrailingSlash;
use crate::site::cors::CorsConfig;
use crate::site::early_hints::EarlyHintsRule;
use crate::site::fastcgi::FastcgiConfig;
use crate::site::forward_auth::ForwardAuthConfig;
use crate::site::headers::{CacheControlRule, HeadersRule};
use crate::site::hsts::HstsConfig;
use crate::site::image_formats::ImageFormat;
use crate::site::listing::ListingConfig;
use crate::site::maintenance::MaintenanceConfig;
use crate::site::pages::ErrorPageConfig;
use crate::site::proxy::ProxyConfig;
use crate::site::security_headers::SecurityHeaders;
use crate::values::{At, SecretUrl, Short};

/// A table that `true` stands for with its defaults, and that `false` takes away.
pub(crate) type Switch<T> = Short<bool, T>;

/// Makes [`RouteConfig`]: the keys of its own, and the settings of a site, each of which lies over the same of the route around it.
macro_rules! route_config {
    (
        $(#[$of_table:meta])*
        own { $($(#[$of_own:meta])* $own:ident: $own_kind:ty,)* }
        settings { $($(#[$of_setting:meta])* $setting:ident: $kind:ty,)* }
    ) => {
        $(#[$of_table])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct RouteConfig {
            $($(#[$of_own])* pub $own: $own_kind,)*
            $($(#[$of_setting])* pub $setting: Option<$kind>,)*
        }

        impl RouteConfig {
            /// The settings of `around`, with those that this route has over them.
            pub(super) fn settings_over(&self, around: &SiteConfig) -> SiteConfig {
                let mut settings = around.clone();
                $(if let Some(own) = &self.$setting {
                    settings.$setting = own.clone().into();
                })*
                settings
            }
        }
    };
}

route_config! {
    /// Some paths of a site, with settings and an action of their own. It inherits whatever it does not set from the site, or from the route that it lies
    /// within. docs/sites.md shows examples.
    own {
        /// Paths: `/api/` (and everything beneath it, `/api` too), `/api` (everything that begins so, `/apix` too), `= /healthz` (this path alone),
        /// `~ \.php$` (an expression; `~*` ignores case), or `^~ /images/` (a prefix before which no expression goes). The exact path is chosen, else the first expression of the file that matches, else the
        /// longest prefix [default: the paths of the route around it]
        path: Option<At<String>>,
        /// Name with an at sign, for instance `@app`: other routes lead here by it.
        name: Option<At<String>>,
        /// Conditions of the request. A route whose conditions fail is passed over.
        #[serde(rename = "match")]
        conditions: Option<At<MatchConfig>>,
        /// Whether clients get 404, and only other routes lead here.
        internal: bool,
        /// Whether requests are answered with files, though the route around it does something else.
        files: bool,
        /// Forwards requests.
        proxy: Option<At<ProxyConfig>>,
        /// Runs scripts, by a server that speaks FastCGI.
        fastcgi: Option<At<FastcgiConfig>>,
        /// Answers with a status, `respond = 204`, or with a content.
        respond: Option<At<RespondConfig>>,
        /// Redirects to a path or a URL with placeholders: `redirect = "https://{host}{uri}"`.
        redirect: Option<At<RedirectConfig>>,
        /// Answers under another path: `rewrite = "/new/{1}"`.
        rewrite: Option<At<RewriteConfig>>,
        /// Whether every request is answered 403.
        deny: bool,
        /// Paths whose file is sent, the first that there is, and, last, a path, a named route or a status: `["{path}", "{path}/", "@app"]`, `["{path}", "=404"]`.
        r#try: Vec<At<String>>,
        /// Directory whose files appear beneath the path, which is no part of their names.
        alias: Option<At<PathBuf>>,
        /// Routes within this one.
        route: Vec<RouteConfig>,
    }
    settings {
        /// Directory to serve.
        root: At<PathBuf>,
        /// Whether responses of this route are written to the access log.
        access_log: bool,
        /// Limits on the use by clients.
        limits: SiteLimitsConfig,
        /// Codings of precompressed files beside their originals.
        precompressed: At<Vec<Coding>>,
        /// Formats of images beside their originals.
        image_formats: Vec<ImageFormat>,
        /// Compression of small text files.
        compress: Switch<CompressConfig>,
        /// Index files of a directory.
        index: Vec<At<String>>,
        /// File name extensions that URLs may omit.
        extensions: Vec<At<String>>,
        /// Whether URLs of directories end in a slash.
        trailing_slash: TrailingSlash,
        /// How entity tags of files are made.
        etag: EntityTags,
        /// Whether files and directories whose names begin with a dot are served.
        show_dotfiles: bool,
        /// Content types by file name extension.
        media_types: BTreeMap<String, At<String>>,
        /// Whether responses carry `Server: sealion`.
        server_header: bool,
        /// Header fields to add to responses. They replace the fields of the route around it.
        headers: HeadersRule,
        /// Cache-Control of responses with a file: `"public, max-age=3600"`.
        cache_control: At<String>,
        /// Links that browsers are sent in a response 103.
        early_hints: Vec<EarlyHintsRule>,
        /// Preset of security header fields.
        security_headers: SecurityHeaders,
        /// Strict-Transport-Security.
        hsts: HstsConfig,
        /// Cross-origin access.
        cors: CorsConfig,
        /// Error pages by status: a path (`404 = "/404.html"`), a named route (`404 = "@app"`), a URL, or a table.
        error_pages: BTreeMap<String, At<ErrorPageConfig>>,
        /// Page of a single-page application.
        fallback: At<String>,
        /// Directory listings.
        listing: Switch<ListingConfig>,
        /// Whether requests with Want-Repr-Digest get the checksum of a file.
        repr_digest: bool,
        /// Access by client network, instead of the rules of the route around it.
        access: AccessConfig,
        /// Whether a request must pass `access` and the other guards, or one of both.
        satisfy: Satisfy,
        /// Password protection; `false`: none, whatever the route around it has.
        basic_auth: Switch<BasicAuthConfig>,
        /// Authentication by another server; `false`: none, whatever the route around it has.
        forward_auth: Switch<ForwardAuthConfig>,
        /// Maintenance.
        maintenance: Switch<MaintenanceConfig>,
    }
}

impl RouteConfig {
    /// This route and all within it.
    pub(crate) fn all(&self) -> Vec<&RouteConfig> {
        let within = self.route.iter().flat_map(RouteConfig::all);
        std::iter::once(self).chain(within).collect()
    }
}

impl SiteConfig {
    /// All routes beneath its root.
    fn all_routes(&self) -> impl Iterator<Item = &RouteConfig> {
        self.route.iter().flat_map(RouteConfig::all)
    }

    /// The directories whose files the site sends.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &At<PathBuf>> {
        let of_routes = self.all_routes().flat_map(|route| route.root.iter().chain(&route.alias));
        self.root.iter().chain(self.mounts.iter().map(|mount| &mount.root)).chain(of_routes)
    }

    /// The rules that forward.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &ProxyConfig> {
        self.proxy.iter().chain(self.all_routes().filter_map(|route| route.proxy.as_ref().map(|proxy| &proxy.value)))
    }

    /// The paths that are forwarded, and whereto.
    pub(crate) fn forwarded_paths(&self) -> impl Iterator<Item = (&str, &SecretUrl)> {
        let of_rules = self.proxy.iter().map(|rule| {
            let paths = rule.path.as_ref().or(rule.regex.as_ref());
            (paths.map_or("/", |paths| paths.as_str()), &rule.upstream.value)
        });
        let of_routes = self.all_routes().filter_map(|route| {
            let fastcgi = || route.fastcgi.as_ref()?.to.as_ref();
            let upstream = route.proxy.as_ref().map(|proxy| &proxy.upstream).or_else(fastcgi)?;
            let paths = route.path.as_ref().or(route.name.as_ref());
            Some((paths.map_or("/", |paths| paths.as_str()), &upstream.value))
        });
        of_rules.chain(of_routes)
    }

    /// The scripts that are run.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &FastcgiConfig> {
        let of_rules = self.proxies().filter_map(|rule| rule.fastcgi.as_ref());
        of_rules.chain(self.all_routes().filter_map(|route| route.fastcgi.as_ref())).map(|fastcgi| &fastcgi.value)
    }

    /// The files of users and their passwords.
    pub(crate) fn users(&self) -> impl Iterator<Item = &At<PathBuf>> {
        let of_routes = self.all_routes().filter_map(|route| match &route.basic_auth {
            Some(Short::Table(auth)) => Some(auth),
            _ => None,
        });
        self.basic_auth.iter().chain(of_routes).map(|auth| &auth.users)
    }

    /// Files of contents that are read at start.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &At<PathBuf>> {
        self.all_routes().filter_map(|route| match &route.respond.as_ref()?.value {
            Short::Table(respond) => respond.file.as_ref(),
            Short::Short(_) => None,
        })
    }
}

/// Makes the setting of a site of the setting of a route.
macro_rules! switched {
    ($($kind:ty),*) => {
        $(impl From<Switch<$kind>> for Option<$kind> {
            fn from(switch: Switch<$kind>) -> Self {
                switch.into_table()
            }
        }

        impl From<Switch<$kind>> for Vec<$kind> {
            fn from(switch: Switch<$kind>) -> Self {
                switch.into_table().into_iter().collect()
            }
        })*
    };
}

switched!(CompressConfig, MaintenanceConfig, BasicAuthConfig, ForwardAuthConfig);

impl From<Switch<ListingConfig>> for ListingConfig {
    fn from(switch: Switch<ListingConfig>) -> Self {
        match switch {
            Short::Short(enabled) => ListingConfig { enabled: enabled.into(), ..ListingConfig::default() },
            Short::Table(table) => table,
        }
    }
}

impl From<AccessConfig> for Vec<AccessConfig> {
    fn from(rule: AccessConfig) -> Self {
        vec![rule]
    }
}

impl From<HeadersRule> for Vec<HeadersRule> {
    fn from(rule: HeadersRule) -> Self {
        vec![rule]
    }
}

impl From<At<String>> for Vec<CacheControlRule> {
    fn from(value: At<String>) -> Self {
        vec![CacheControlRule { path: "**".to_owned().into(), value }]
    }
}
