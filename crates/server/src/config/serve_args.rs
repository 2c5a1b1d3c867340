//! Arguments of `sealion serve` and `sealion check`.

use std::path::PathBuf;

use clap::Args;

use super::{Config, PrivilegesConfig, ProcessConfig};
use crate::certificates::{CertificateConfig, TlsConfig};
use crate::http2::Http2Config;
use crate::limits::LimitsConfig;
use crate::listen::{Listen, ListenConfig};
use crate::observe::access_log::AccessLogConfig;
use crate::observe::metrics::MetricsConfig;
use crate::site::{ProxyConfig, SiteConfig};
use crate::upstream::{ServerConfig, ServerUrl, UpstreamConfig};
use crate::values::{Given, Problems};

/// Arguments of `sealion serve`. Options and environment variables override the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file with the sites to serve; docs/configuration.md lists its keys
    #[arg(long, value_name = "FILE", env = "SEALION_CONFIG", conflicts_with_all = ["root", "cert", "key"])]
    pub config: Option<PathBuf>,

    /// Directory to serve; nothing outside it is reachable
    #[arg(default_value = ".")]
    pub root: PathBuf,

    /// Address and port to listen on; may be repeated. `localhost` means IPv4 and IPv6
    /// [default: localhost:8443, without a configuration file]
    #[arg(long, value_name = "HOST:PORT", env = "SEALION_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Listen>,

    /// Certificate chain, PEM. Without it, a development certificate for localhost is made and kept
    #[arg(long, value_name = "FILE", requires = "key", env = "SEALION_CERT")]
    pub cert: Option<PathBuf>,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", env = "SEALION_KEY")]
    pub key: Option<PathBuf>,

    #[command(flatten)]
    pub server: ProcessConfig,

    #[command(flatten)]
    pub access_log: AccessLogConfig,

    #[command(flatten)]
    pub metrics: MetricsConfig,

    #[command(flatten)]
    pub tls: TlsConfig,

    #[command(flatten)]
    pub limits: LimitsConfig,

    #[command(flatten)]
    pub http2: Http2Config,

    #[command(flatten)]
    pub privileges: PrivilegesConfig,

    /// Servers to forward requests to: of `sealion proxy`.
    #[arg(skip)]
    pub to: Vec<ServerUrl>,

    /// The arguments that were given, as opposed to defaulted.
    #[arg(skip)]
    pub given: Given,
}

/// Arguments of `sealion proxy`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("config", |arg| arg.hide(true)), mut_arg("root", |arg| arg.help("Directory whose files go before the servers [default: none]").hide_default_value(true)))]
pub(crate) struct ProxyArgs {
    /// Server to forward requests to: `http://host:port`, `https://host` or `unix:/run/app.sock`; may be repeated
    #[arg(
        long,
        value_name = "URL",
        required = true,
        value_delimiter = ',',
        env = "SEALION_TO",
        conflicts_with = "config"
    )]
    pub to: Vec<ServerUrl>,

    #[command(flatten)]
    pub serve: ServeArgs,
}

impl From<ProxyArgs> for ServeArgs {
    fn from(args: ProxyArgs) -> Self {
        ServeArgs { to: args.to, ..args.serve }
    }
}

impl ServeArgs {
    /// The configuration: the file, if one is named, overridden by the arguments given.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub(crate) fn configuration(&self) -> Result<(Config, Problems), Problems> {
        let (mut config, problems) = match &self.config {
            Some(file) => Config::read(file)?,
            None if self.to.is_empty() => (self.without_file(), Problems::of_arguments()),
            None => (self.of_proxy(), Problems::of_arguments()),
        };
        if !self.listen.is_empty() {
            config.listen = self.listen.iter().cloned().map(ListenConfig::from).collect();
        }
        config.server.override_by(&self.server, &self.given);
        config.access_log.override_by(&self.access_log, &self.given);
        config.metrics.override_by(&self.metrics, &self.given);
        config.tls.override_by(&self.tls, &self.given);
        config.limits.override_by(&self.limits, &self.given);
        config.http2.override_by(&self.http2, &self.given);
        config.privileges.override_by(&self.privileges, &self.given);
        Ok((config, problems))
    }

    /// Everything is forwarded to the servers. A directory, if one is given, goes before.
    fn of_proxy(&self) -> Config {
        const NAME: &str = "upstream";
        let mut config = self.without_file();
        let servers = self.to.iter().map(|url| ServerConfig::of(url.clone().into())).collect();
        config.upstream = vec![UpstreamConfig::of(NAME, servers)];
        let with_files = self.given.has("root");
        for site in &mut config.site {
            site.root = site.root.take().filter(|_| with_files);
            site.proxy = vec![ProxyConfig {
                upstream: NAME.to_owned().into(),
                files_first: with_files,
                ..ProxyConfig::default()
            }];
        }
        config
    }

    fn without_file(&self) -> Config {
        let certificates = self.cert.clone().zip(self.key.clone());
        let site = SiteConfig {
            root: Some(self.root.clone().into()),
            certificates: certificates
                .map(|(cert, key)| CertificateConfig { cert: cert.into(), key: key.into() })
                .into_iter()
                .collect(),
            ..SiteConfig::default()
        };
        Config { site: vec![site], listen: vec![ListenConfig::from(Listen::development())], ..Config::default() }
    }
}
