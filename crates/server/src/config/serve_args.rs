//! Arguments of `sealion serve` and `sealion check`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::UnknownArgumentValueParser;
use percent_encoding::percent_encode;
use sealion_http::path::OUTSIDE_PCHAR;

use super::acme_args::AcmeArgs;
use super::{Config, PrivilegesConfig, ProcessConfig};
use crate::certificates::{AcmeUse, CertificateConfig, TlsConfig};
use crate::http2::Http2Config;
use crate::limits::LimitsConfig;
use crate::listen::{Listen, ListenConfig};
use crate::observe::access_log::AccessLogConfig;
use crate::observe::metrics::MetricsConfig;
use crate::site::{ProxyConfig, RedirectTable, RewriteTable, RouteConfig, SiteConfig, literally};
use crate::store::{CacheConfig, CacheRuleConfig};
use crate::upstream::{ServerConfig, ServerUrl, UpstreamConfig};
use crate::values::{At, Given, Problems, SecretUrl, Short, Size};

/// Arguments of `sealion serve`. Options and environment variables override the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file with the sites to serve; docs/configuration.md lists its keys
    #[arg(long, value_name = "FILE", env = "SEALION_CONFIG", conflicts_with_all = ["root", "cert", "key"])]
    pub config: Option<PathBuf>,

    /// Directory to serve; nothing outside it is reachable. If it is a file, only this file is served
    #[arg(default_value = ".")]
    pub root: PathBuf,

    /// Address and port to listen on; may be repeated. `localhost` means IPv4 and IPv6, and a port alone all addresses
    /// [default: localhost:8443]
    #[arg(long, value_name = "HOST:PORT", env = "SEALION_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Listen>,

    /// The name of this option elsewhere: the error names --listen.
    #[arg(long, hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--listen"))]
    pub address: Option<String>,

    /// Address and port to serve HTTP on, without TLS, behind a proxy that terminates TLS; may be repeated. Without
    /// --listen, there is then no listener with TLS
    #[arg(long, value_name = "HOST:PORT", env = "SEALION_PLAIN", value_delimiter = ',')]
    pub plain: Vec<Listen>,

    /// Port to listen on at localhost, short for `--listen localhost:PORT`
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen")]
    pub port: Option<u16>,

    /// List directories without an index file
    #[arg(short, long, conflicts_with = "config")]
    pub listing: bool,

    /// Answer page navigations to paths without a file with /index.html, as single-page applications need
    #[arg(long, conflicts_with = "config")]
    pub spa: bool,

    /// Open the site in a browser, by xdg-open
    #[arg(long)]
    pub open: bool,

    /// Draw the URL as a QR code, for a phone
    #[arg(long)]
    pub qr: bool,

    /// Certificate chain, PEM. Without it, a development certificate for localhost is made and kept
    #[arg(long, value_name = "FILE", requires = "key", env = "SEALION_CERT")]
    pub cert: Option<PathBuf>,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", env = "SEALION_KEY")]
    pub key: Option<PathBuf>,

    /// DANGER, for debugging: file that the secrets of all connections are appended to. With it, Wireshark and
    /// everyone who has the file can read the connections. It has no key in configuration files and no environment variable
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub tls_key_log: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Certificate of an authority")]
    pub acme: AcmeArgs,

    #[command(flatten, next_help_heading = "Process")]
    pub server: ProcessConfig,

    #[command(flatten, next_help_heading = "Access log")]
    pub access_log: AccessLogConfig,

    #[command(flatten, next_help_heading = "Metrics")]
    pub metrics: MetricsConfig,

    #[command(flatten, next_help_heading = "TLS")]
    pub tls: TlsConfig,

    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitsConfig,

    #[command(flatten, next_help_heading = "HTTP/2")]
    pub http2: Http2Config,

    /// Whether listeners with TLS have HTTP/3, unless the configuration file says otherwise for a listener [default: listeners on port 443 have
    /// it]
    #[arg(long, value_name = "BOOL", env = "SEALION_HTTP3", help_heading = "HTTP/3")]
    pub http3: Option<bool>,

    #[command(flatten, next_help_heading = "Privileges")]
    pub privileges: PrivilegesConfig,

    /// Servers to forward requests to, from `sealion proxy`.
    #[arg(skip)]
    pub to: Vec<ServerUrl>,

    /// Certificates of the authorities that signed the servers' certificates, from `sealion proxy`.
    #[arg(skip)]
    pub roots: Option<PathBuf>,

    /// The cache of `sealion proxy`.
    #[arg(skip)]
    pub cache: CacheConfig,

    /// Paths that are always forwarded, from `sealion proxy`.
    #[arg(skip)]
    pub api: Vec<String>,

    /// The arguments that were given, as opposed to defaulted.
    #[arg(skip)]
    pub given: Given,
}

/// Arguments of `sealion proxy`.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("config", |arg| arg.hide(true)),
    mut_arg("root", |arg| arg.help("Directory whose files go before the servers [default: none]").hide_default_value(true)),
    mut_arg("spa", |arg| arg.help("Answer page navigations to paths without a file with /index.html of the directory. Other requests are forwarded, and all for --api")),
)]
pub(crate) struct ProxyArgs {
    /// Server to forward requests to: `http://host:port`, `https://host` or `unix:/run/app.sock`, or a port of this
    /// machine, `3000`; may be repeated
    #[arg(
        long,
        value_name = "URL",
        value_parser = ServerUrl::from_argument,
        required = true,
        value_delimiter = ',',
        env = "SEALION_TO",
        conflicts_with = "config"
    )]
    pub to: Vec<ServerUrl>,

    /// Certificates of the authorities that signed the servers' certificates, PEM [default: the system's]
    #[arg(long, value_name = "FILE", env = "SEALION_ROOTS", conflicts_with = "config")]
    pub roots: Option<PathBuf>,

    /// Directory to store responses in, as allowed by their Cache-Control; may be repeated, one for each disk [default:
    /// responses are not stored]
    #[arg(long, value_name = "DIR", value_delimiter = ',', env = "SEALION_CACHE", conflicts_with = "config")]
    pub cache: Vec<PathBuf>,

    /// Maximum size of the stored responses in each directory
    #[arg(long, value_name = "SIZE", env = "SEALION_CACHE_SIZE", default_value_t = CacheConfig::default().size, requires = "cache")]
    pub cache_size: Size,

    /// Path whose requests all go to the servers, with --spa; may be repeated
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        env = "SEALION_API",
        default_value = "/api/",
        requires = "spa"
    )]
    pub api: Vec<String>,

    #[command(flatten)]
    pub serve: ServeArgs,
}

impl From<ProxyArgs> for ServeArgs {
    fn from(args: ProxyArgs) -> Self {
        let cache = CacheConfig { directories: args.cache.into(), size: args.cache_size, ..CacheConfig::default() };
        ServeArgs { to: args.to, roots: args.roots, cache, api: args.api, ..args.serve }
    }
}

impl ServeArgs {
    /// The configuration: the file, if given, overridden by the arguments.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub(crate) fn configuration(&self) -> Result<(Config, Problems), Problems> {
        let (mut config, problems) = match &self.config {
            Some(file) => Config::read(file)?,
            None => self.without_file()?,
        };
        if let Some(port) = self.port {
            config.listen = vec![ListenConfig::from(Listen::localhost(port))];
        } else if !self.listen.is_empty() || !self.plain.is_empty() && !self.acme.is_given() {
            config.listen = self.listen.iter().cloned().map(ListenConfig::from).collect();
        }
        config.tls_key_log.clone_from(&self.tls_key_log);
        config.listen.extend(self.plain.iter().cloned().map(ListenConfig::plain));
        config.server.override_by(&self.server, &self.given);
        config.access_log.override_by(&self.access_log, &self.given);
        config.metrics.override_by(&self.metrics, &self.given);
        config.tls.override_by(&self.tls, &self.given);
        config.limits.override_by(&self.limits, &self.given);
        config.http2.override_by(&self.http2, &self.given);
        config.http3.enabled = self.http3.or(config.http3.enabled);
        config.privileges.override_by(&self.privileges, &self.given);
        Ok((config, problems))
    }

    /// `ktls = "always"` as it was given.
    pub(crate) fn ktls_setting(&self) -> String {
        let shown = if self.given.has("ktls") { "--ktls always" } else { "server.ktls = \"always\"" };
        shown.to_owned()
    }

    fn without_file(&self) -> Result<(Config, Problems), Problems> {
        let mut problems = Problems::of_arguments();
        let certificates = self.cert.clone().zip(self.key.clone());
        let mut site = SiteConfig {
            certificates: certificates
                .map(|(cert, key)| CertificateConfig { cert: cert.into(), key: key.into() })
                .into_iter()
                .collect(),
            fallback: self.spa.then(|| "/index.html".to_owned().into()),
            ..SiteConfig::default()
        };
        site.listing = Short::Short(self.listing);
        // A proxy serves files only if a directory is given.
        let with_files = self.to.is_empty() || self.given.has("root");
        if with_files && self.root.is_file() {
            serve_file(&self.root, &mut site).map_err(|problem| {
                problems.add(&(0..0), "", problem);
                problems
            })?;
            problems = Problems::of_arguments();
        } else if with_files {
            site.root = Some(literally(&self.root).into());
            self.check_secrets(&mut problems);
        }
        if self.spa && !with_files {
            problems.add(&(0..0), "", "--spa needs the directory of the pages: sealion proxy --to 3000 --spa DIR");
        }
        let upstream = self.forward(&mut site, with_files, &mut problems);
        let mut listen = vec![ListenConfig::from(Listen::development())];
        let mut tls = TlsConfig::default();
        if self.acme.is_given() {
            site.names = self.acme.domain.iter().cloned().map(At::from).collect();
            site.acme = AcmeUse::Default.into();
            tls.acme = self.acme.account();
            listen = AcmeArgs::listeners();
        }
        let cache = self.cache.clone();
        let config = Config { site: vec![site], listen, upstream, cache, tls, ..Config::default() };
        if problems.is_empty() { Ok((config, problems)) } else { Err(problems) }
    }

    /// Makes `site` forward to the servers, if there are any, and returns them. `files_first`: whether it has files.
    fn forward(&self, site: &mut SiteConfig, files_first: bool, problems: &mut Problems) -> Vec<UpstreamConfig> {
        const NAME: &str = "upstream";
        if self.to.is_empty() {
            return Vec::new();
        }
        let servers = self.to.iter().map(|url| ServerConfig::of(url.clone().into())).collect();
        let mut servers = UpstreamConfig::of(NAME, servers);
        servers.tls.roots = self.roots.clone().map(At::from);
        let cache = (!self.cache.directories.is_empty()).then(|| CacheRuleConfig::default().into());
        let upstream = SecretUrl::from(NAME.to_owned()).into();
        let rule = ProxyConfig { upstream, cache, ..ProxyConfig::default() };
        for path in self.api.iter().filter(|_| self.spa) {
            if !path.starts_with('/') {
                problems.add(&(0..0), "--api", format_args!("{path:?} is not a path: write for instance /api/"));
            }
            let (path, proxy) = (Some(path.clone().into()), Some(rule.clone().into()));
            site.route.push(RouteConfig { path, proxy, ..RouteConfig::default() });
        }
        site.proxy = Some(ProxyConfig { files_first, ..rule }.into());
        vec![servers]
    }

    /// Rejects a directory that contains private files.
    fn check_secrets(&self, problems: &mut Problems) {
        let root = self.root.display();
        let file = self.root.join(CONFIGURATION);
        if file.is_file() {
            let file = file.display();
            problems.add(
                &(0..0),
                "",
                format_args!(
                    "{root} holds {CONFIGURATION}, which every client could read: `sealion serve --config {file}` serves the sites of this file; or name the directory with the pages"
                ),
            );
        }
        let within = |path: &PathBuf| Some(path.canonicalize().ok()?.starts_with(self.root.canonicalize().ok()?));
        if let Some(key) = self.key.as_ref().filter(|key| within(key) == Some(true)) {
            let key = key.display();
            problems.add(
                &(0..0),
                "",
                format_args!("the private key {key} lies in {root}, where every client could read it: move it to another directory"),
            );
        }
    }
}

/// Makes `site` serve one file for every requested path. `/` redirects to the file's name, which browsers then use to
/// save it.
fn serve_file(file: &Path, site: &mut SiteConfig) -> Result<(), String> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| format!("{} has no name in UTF-8: rename it, or serve its directory", file.display()))?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Otherwise a brace would begin a placeholder.
    let to = format!("/{}", percent_encode(name.as_bytes(), OUTSIDE_PCHAR)).replace('{', "{{").replace('}', "}}");
    site.root = Some(literally(directory).into());
    site.show_dotfiles = name.starts_with('.');
    let redirect = RedirectTable { to: to.clone().into(), status: Some(307), ..RedirectTable::default() };
    site.route.push(RouteConfig {
        path: Some("= /".to_owned().into()),
        redirect: Some(Short::Table(redirect).into()),
        ..RouteConfig::default()
    });
    site.rewrite = Some(Short::Table(RewriteTable { to: to.into(), stay: true }).into());
    Ok(())
}

/// The usual name of a configuration file.
const CONFIGURATION: &str = "sealion.toml";
