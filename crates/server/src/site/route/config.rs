//! The keys of `[[site]]` and `[[site.route]]`: a setting and an action stand here once, for both.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use sealion_http::Coding;
use serde::{Deserialize, Serialize};

use super::action::{RedirectConfig, RespondConfig, RewriteConfig};
use super::condition::MatchConfig;
use super::directory::opened;
use crate::certificates::{AcmeOnDemandConfig, AcmeUse, CertificateConfig, ClientAuthConfig};
use crate::files::coding::config::CompressConfig;
use crate::files::resolve::EntityTags;
use crate::limits::SiteLimitsConfig;
use crate::observe::access_log::SiteLogConfig;
use crate::site::accel::AccelConfig;
use crate::site::access::{AccessConfig, Satisfy};
use crate::site::basic_auth::BasicAuthConfig;
use crate::site::clean_urls::TrailingSlash;
use crate::site::cors::CorsConfig;
use crate::site::dictionaries::UseAsDictionaryConfig;
use crate::site::fastcgi::FastcgiConfig;
use crate::site::forward_auth::ForwardAuthConfig;
use crate::site::headers::HeadersConfig;
use crate::site::hsts::HstsConfig;
use crate::site::image_formats::ImageFormat;
use crate::site::listing::ListingConfig;
use crate::site::maintenance::MaintenanceConfig;
use crate::site::pages::ErrorPageConfig;
use crate::site::proxy::ProxyConfig;
use crate::site::security_headers::SecurityHeaders;
use crate::values::{At, Off, SecretUrl, Short};

/// A table that `true` stands for with its defaults, and that `false` takes away.
pub(crate) type Switch<T> = Short<bool, T>;

/// A table that `false` takes away.
pub(crate) type OffOr<T> = Short<Off, T>;

/// Makes [`SiteConfig`] and [`RouteConfig`]: the keys of each, the actions and the settings. A route inherits the settings that it does not have.
macro_rules! configs {
    (
        $(#[$of_site:meta])*
        site { $($(#[$of_site_key:meta])* $site_key:ident: $site_kind:ty = $site_default:expr,)* }
        $(#[$of_route:meta])*
        route { $($(#[$of_route_key:meta])* $route_key:ident: $route_kind:ty,)* }
        actions { $($(#[$of_action:meta])* $action:ident: $action_kind:ty,)* }
        optional { $($(#[$of_optional:meta])* $optional:ident: $optional_kind:ty,)* }
        settings { $($(#[$of_setting:meta])* $setting:ident: $kind:ty = $default:expr,)* }
    ) => {
        $(#[$of_site])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct SiteConfig {
            $($(#[$of_site_key])* pub $site_key: $site_kind,)*
            $($(#[$of_action])* pub $action: $action_kind,)*
            $($(#[$of_optional])* pub $optional: Option<$optional_kind>,)*
            $($(#[$of_setting])* pub $setting: $kind,)*
            /// Routes: paths with settings and an action of their own.
            pub route: Vec<RouteConfig>,
        }

        impl Default for SiteConfig {
            fn default() -> Self {
                SiteConfig {
                    $($site_key: $site_default,)*
                    $($action: <$action_kind>::default(),)*
                    $($optional: None,)*
                    $($setting: $default,)*
                    route: Vec::new(),
                }
            }
        }

        $(#[$of_route])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct RouteConfig {
            $($(#[$of_route_key])* pub $route_key: $route_kind,)*
            $($(#[$of_action])* pub $action: $action_kind,)*
            $($(#[$of_optional])* pub $optional: Option<$optional_kind>,)*
            $($(#[$of_setting])* pub $setting: Option<$kind>,)*
            /// Routes within this one.
            pub route: Vec<RouteConfig>,
        }

        impl RouteConfig {
            /// The settings of `around`, overridden by the settings of this route.
            pub(super) fn settings_over(&self, around: &SiteConfig) -> SiteConfig {
                let mut settings = SiteConfig { route: Vec::new(), ..around.clone() };
                $(if let Some(own) = &self.$optional {
                    settings.$optional = Some(own.clone());
                })*
                $(if let Some(own) = &self.$setting {
                    settings.$setting = own.clone();
                })*
                settings
            }
        }

        impl SiteConfig {
            /// The root route, with the actions that only a site has.
            pub(super) fn root_route(&self) -> RouteConfig {
                RouteConfig { $($action: self.$action.clone(),)* ..RouteConfig::default() }
            }
        }
    };
}

configs! {
    /// A site: its host names, and the responses to their requests. Its settings and its action are the ones of its root route, which has all paths that no
    /// other route has.
    site {
        /// Host names: exact (`example.org`), with a wildcard for one or more labels (`*.example.org`, `www.example.*`), or an expression for the whole name
        /// (`~ ^(?<user>[a-z]+)\.example\.org$`; `~*` ignores case), whose groups are placeholders. An exact name goes first, then the longest wildcard at the
        /// beginning, then the longest at the end, then the first expression: of sites that name the listener in `listen`, then of the others, in the order of
        /// the file.
        names: Vec<At<String>> = Vec::new(),
        /// Whether this site answers requests with an unknown host name, or without one: on all its listeners (`true`), or on the listeners with these
        /// addresses (`["[::]:80"]`). A single site is always the default.
        default: Short<bool, Vec<At<String>>> = Short::Short(false),
        /// Listeners that this site is served on, by their `address` in `[[listen]]`. Elsewhere its names are unknown, and other sites may have them. It goes
        /// before sites that are served everywhere. If none of its listeners has TLS, they serve it and do not redirect it [default: all]
        listen: Option<Vec<At<String>>> = None,
        /// Whether handshakes for its names are refused. If the site is the default, so are handshakes with an unknown name or without one. Over TLS
        /// the site answers no request.
        reject_handshake: At<bool> = false.into(),
        /// Whether clients are offered HTTP/2 for this site. `false`: they use HTTP/1.1, and requests that come over a connection of HTTP/2 for another site are
        /// answered 421, upon which browsers open another connection.
        http2: bool = true,
        /// Whether clients may use HTTP/3 for this site, where a listener has it. `false`: no response announces it, and requests over a connection of HTTP/3
        /// are answered 421, upon which browsers use TCP.
        http3: bool = true,
        /// Whether requests by `http`, at listeners with `plain = "serve"`, are redirected to the same address over HTTPS, with status 308 and the port of the
        /// first listener with TLS.
        https_only: At<bool> = false.into(),
        /// An access log of this site's own: its responses are not in the common one. Keys that are not set here are as in `[access_log]`, except `rotate`.
        log: Option<SiteLogConfig> = None,
        /// Certificates with their keys, for instance one ECDSA and one RSA; each client gets one that it supports. A site without certificates uses the
        /// certificates of the default site.
        certificates: Vec<CertificateConfig> = Vec::new(),
        /// Whether a certificate is obtained and renewed automatically: by the account of `[tls.acme]` (`true`), or by the account with this name in
        /// `[[tls.acme_accounts]]`.
        acme: At<AcmeUse> = AcmeUse::No.into(),
        /// Has certificates ordered when a client first asks for a name, each for itself: for any name under a wildcard of `names`, and in the
        /// default site for all names that no other site has. Clients that ask for a name in `certificates` get that certificate.
        acme_on_demand: Option<AcmeOnDemandConfig> = None,
        /// Authentication of clients by certificate. Requests on a connection opened for another site are refused (421).
        client_auth: Option<ClientAuthConfig> = None,
    }
    /// Some paths of a site, with settings and an action of their own. It inherits whatever it does not set from the site, or from the route that it lies
    /// within. docs/routes.md shows examples.
    route {
        /// Paths. `/api/`: everything beneath it, and `/api`. `/api/*`: the same without `/api`. `/api`: everything that begins so, `/apix` too.
        /// `= /healthz`: this path alone. `~ \.php$`: an expression; `~*` ignores case, `~~` has look-around and is matched by backtracking.
        /// `^~ /images/`: a prefix that goes before expressions. The exact path is chosen, else the first expression of the file that matches, else the
        /// longest prefix [default: the paths of the route around it]
        path: Option<At<String>>,
        /// Name with an at sign, for instance `@app`: other routes lead here by it.
        name: Option<At<String>>,
        /// Conditions of the request. A route whose conditions fail is passed over.
        #[serde(rename = "match")]
        conditions: Option<At<MatchConfig>>,
        /// Whether clients get 404, and only other routes lead here.
        internal: bool,
        /// Whether requests come here only by their own path, and not by a path that another route leads to.
        once: bool,
        /// Whether no `rewrite` leads here. An index, the last entry of `try`, an error page and an application's X-Accel-Redirect do.
        unless_rewritten: bool,
        /// Whether requests are answered with files, though the route around it does something else.
        files: bool,
        /// Directory whose files appear beneath the path, which is no part of their names. It may have placeholders, as `root`.
        alias: Option<At<PathBuf>>,
    }
    actions {
        /// Forwards requests.
        proxy: Option<At<ProxyConfig>>,
        /// Runs scripts, by a server that speaks FastCGI.
        fastcgi: Option<At<FastcgiConfig>>,
        /// Answers with a status, `respond = 204`, or with a content. `respond = "close"`: the connection, or the stream of HTTP/2 and HTTP/3, ends without a
        /// response.
        respond: Option<At<RespondConfig>>,
        /// Redirects to a path or a URL with placeholders: `redirect = "https://www.{host}{uri}"`.
        redirect: Option<At<RedirectConfig>>,
        /// Answers under another path: `rewrite = "/new/{1}"`.
        rewrite: Option<At<RewriteConfig>>,
        /// Paths whose file is sent, the first that there is, and, last, a path, a named route or a status: `["{path}", "{path}/", "@app"]`, `["{path}", "=404"]`.
        r#try: Vec<At<String>>,
    }
    optional {
        /// Directory to serve. Nothing outside it is reachable. Behind a first directory it may have placeholders, `/srv/{host}/public`: a request whose
        /// values name no directory there has no files.
        root: At<PathBuf>,
        /// Page of a single-page application: a path beneath the root, sent with status 200 for paths without a file.
        fallback: At<String>,
    }
    settings {
        /// Whether every request is answered 403, whatever the action. `false` opens a route within a route that denies.
        deny: bool = false,
        /// Whether responses are written to the access log.
        access_log: bool = true,
        /// Whether responses announce the HTTP/3 of their listener (`Alt-Svc`). Clients remember an announcement for the whole host: for large downloads, which
        /// cost less over TCP with kernel TLS, give a host of their own `http3 = false`.
        announce_http3: bool = true,
        /// Limits on the use by clients.
        limits: SiteLimitsConfig = SiteLimitsConfig::default(),
        /// Codings of precompressed files beside their originals (`style.css.br`, `.zst`, `.gz`), of `br`, `zstd` and `gzip`. They are
        /// sent to clients that accept the coding, unless they are older than their originals. `sealion compress` creates them.
        precompressed: At<Vec<Coding>> = At::default(),
        /// Whether files beside their originals that are compressed by a dictionary (`app.js.dcb`, `app.js.dcz`) are sent over TLS to clients that have the dictionary
        /// (RFC 9842), unless they are older than their originals. `sealion compress --dictionary` creates them. Refused for a site without TLS.
        dictionary_compressed: At<bool> = false.into(),
        /// Whether clients keep responses as dictionaries for later responses over TLS, and for which paths: `{ match = "/app/*/main.js" }`.
        use_as_dictionary: Switch<UseAsDictionaryConfig> = Short::Short(false),
        /// Formats of images beside their originals (`photo.jpg.avif`, `photo.jpg.webp`), of `avif` and `webp`, the preferred one first. They are
        /// sent to clients that name the format in Accept, unless they are older than their originals.
        image_formats: Vec<ImageFormat> = Vec::new(),
        /// Compression of small text files without a precompressed sibling.
        compress: Switch<CompressConfig> = Short::Short(false),
        /// Index files of a directory; the first that exists is sent.
        index: Vec<At<String>> = vec!["index.html".to_owned().into()],
        /// File name extensions that URLs may omit: with `["html"]`, `/about` is answered with `about.html`, and `/about/` redirects to
        /// `/about`. Such a file goes before a directory of the same name.
        extensions: Vec<At<String>> = Vec::new(),
        /// Whether URLs of directories end in a slash: with `add`, `/about` redirects to `/about/`; with `remove`, `/about/` redirects to
        /// `/about`, which gets the index of the directory. A listing always has the slash.
        trailing_slash: TrailingSlash = TrailingSlash::default(),
        /// How entity tags of files are made. `modified`: from size and modification time, which replicas share if they keep the times of files.
        /// `inode`: from these, device, inode and change time, for files that are replaced without a change of time and size.
        etag: EntityTags = EntityTags::default(),
        /// Whether files and directories whose names begin with a dot are served. Otherwise only `.well-known` is.
        show_dotfiles: bool = false,
        /// Content types by file name extension, for instance `md = "text/plain; charset=utf-8"`. `"*"`: the type of names without an extension that has one;
        /// `"*.*"`: the type of all names whose extension is not in this table.
        media_types: BTreeMap<String, At<String>> = BTreeMap::new(),
        /// Whether responses carry `Server: sealion`.
        server_header: bool = true,
        /// Header fields to add to responses. The fields of a route replace the fields of the route around it.
        headers: HeadersConfig = HeadersConfig::default(),
        /// Cache-Control of responses with a file, and of what `respond` and `redirect` answer without an error, for instance `public, max-age=3600`, with
        /// placeholders. Empty: none.
        cache_control: At<String> = At::default(),
        /// Cache-Control of what servers answer with status 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308. It replaces their own Cache-Control and
        /// Expires, as `expires` of nginx does. Placeholders; empty: theirs are sent. Refused where neither the route nor one within it forwards.
        forwarded_cache_control: At<String> = At::default(),
        /// Links that browsers are sent in a response 103 (Early Hints), while the page that needs them is being made or fetched: values of Link, for instance
        /// `</app.css>; rel=preload; as=style`. Browsers follow `preload` and `preconnect`.
        early_hints: Vec<At<String>> = Vec::new(),
        /// Preset of security header fields.
        security_headers: SecurityHeaders = SecurityHeaders::Off,
        /// Strict-Transport-Security. Browsers keep it for the whole host: set it for the site.
        hsts: HstsConfig = HstsConfig::default(),
        /// Cross-origin access: other origins whose scripts may read this site.
        cors: CorsConfig = CorsConfig::default(),
        /// Error pages by status: a path (`404 = "/404.html"`), a named route (`404 = "@app"`), a URL, or a table. With a path, the status of the response stays.
        error_pages: BTreeMap<String, At<ErrorPageConfig>> = BTreeMap::new(),
        /// Listings of directories without an index file: `true`, or a table.
        listing: Switch<ListingConfig> = Short::Short(false),
        /// Whether requests with Want-Repr-Digest get the checksum of a file (Repr-Digest, RFC 9530) from `FILE.sha256`, `FILE.sha512`, `SHA256SUMS` or
        /// `SHA512SUMS` beside it, unless that is older than the file.
        repr_digest: bool = false,
        /// Access by client network. The access rules of a route replace the rules of the route around it.
        access: AccessConfig = AccessConfig::default(),
        /// Whether a request must pass `access` and the other guards, or one of both.
        satisfy: Satisfy = Satisfy::All,
        /// Password protection (HTTP Basic); `false`: none, whatever the route around has.
        basic_auth: OffOr<BasicAuthConfig> = Short::Short(Off),
        /// Authentication by another server, that is asked whether a request may pass (`auth_request`); `false`: none, whatever the route around has.
        forward_auth: OffOr<ForwardAuthConfig> = Short::Short(Off),
        /// Whether applications may have files sent by X-Accel-Redirect, and by X-Sendfile: `true`, or a table. Their other X-Accel fields have an effect too, and
        /// none of these fields reaches clients. docs/authorised-downloads.md shows examples.
        accel: Switch<AccelConfig> = Short::Short(false),
        /// Maintenance: `true`, or a table. Every request is answered 503; a reload begins and ends it.
        maintenance: Switch<MaintenanceConfig> = Short::Short(false),
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
    pub(super) fn all_routes(&self) -> impl Iterator<Item = &RouteConfig> {
        self.route.iter().flat_map(RouteConfig::all)
    }

    /// The directories whose files the site sends, as they are opened at start.
    pub(crate) fn roots(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.root.iter().chain(self.all_routes().flat_map(|route| route.root.iter().chain(&route.alias)));
        let accel = std::iter::once(&self.accel).chain(self.all_routes().filter_map(|route| route.accel.as_ref()));
        let sendfile_from = accel.filter_map(Short::table).flat_map(|accel| &accel.sendfile_from);
        all.map(|root| opened(root)).chain(sendfile_from.map(|directory| directory.value.clone()))
    }

    /// The keys `proxy` of the site and its routes.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &ProxyConfig> {
        let of_routes = self.all_routes().filter_map(|route| route.proxy.as_ref());
        self.proxy.iter().chain(of_routes).map(|proxy| &proxy.value)
    }

    /// The paths that are forwarded, and whereto.
    pub(crate) fn forwarded_paths(&self) -> impl Iterator<Item = (&str, &SecretUrl)> {
        let root = [(self.proxy.as_ref(), self.fastcgi.as_ref(), "/")].into_iter();
        let of_routes = self.all_routes().map(|route| {
            let paths = route.path.as_ref().or(route.name.as_ref());
            (route.proxy.as_ref(), route.fastcgi.as_ref(), paths.map_or("/", |paths| paths.as_str()))
        });
        root.chain(of_routes).filter_map(|(proxy, fastcgi, paths)| {
            let upstream = proxy.map(|proxy| &proxy.upstream).or(fastcgi.and_then(|fastcgi| fastcgi.to.as_ref()))?;
            Some((paths, &upstream.value))
        })
    }

    /// The scripts that are run.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &FastcgiConfig> {
        let of_proxies = self.proxies().filter_map(|proxy| proxy.fastcgi.as_ref());
        let own = self.fastcgi.iter().chain(self.all_routes().filter_map(|route| route.fastcgi.as_ref()));
        of_proxies.chain(own).map(|fastcgi| &fastcgi.value)
    }

    /// The files of users and their passwords.
    pub(crate) fn users(&self) -> impl Iterator<Item = &At<PathBuf>> {
        let of_routes = self.all_routes().filter_map(|route| route.basic_auth.as_ref());
        std::iter::once(&self.basic_auth).chain(of_routes).filter_map(Short::table).map(|auth| &auth.users)
    }

    /// Files of contents that are read at start.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &At<PathBuf>> {
        let all = self.respond.iter().chain(self.all_routes().filter_map(|route| route.respond.as_ref()));
        all.filter_map(|respond| respond.table()?.file.as_ref())
    }
}
