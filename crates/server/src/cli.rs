//! The command line: what can be set, its defaults, and where errors end.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use crate::access_log::AccessLogConfig;
use crate::certificates::{CertificateConfig, TicketKeyArgs, TlsConfig, make_ticket_key};
use crate::compress::CompressArgs;
use crate::config::{Config, Given, LimitsConfig, Problems, ProcessConfig, reference};
use crate::listener::{Listen, ListenConfig};
use crate::metrics::MetricsConfig;
use crate::privileges::PrivilegesConfig;
use crate::site::SiteConfig;
use crate::top::{self, TopArgs};
use crate::{calibrate, check, compress, doctor, health_check, import_nginx, manual, serve, upgrade};

/// Who measures must see that a build is not worth it.
const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (debug build)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Serves files over HTTPS, and lets the kernel seal the records when that is cheaper.
#[derive(Debug, Parser)]
#[command(name = "sealion", version = VERSION, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTPS
    Serve(Box<ServeArgs>),
    /// Say what is wrong with a configuration, without starting anything; takes what `serve` takes
    Check(Box<ServeArgs>),
    /// Tell whether kernel TLS will be used here, and what would change it; exit code 0 only if it will
    Doctor(DoctorArgs),
    /// Show what a running server does, in the terminal
    Top(TopArgs),
    /// Measure what both paths cost on this machine, for `serve` to decide by; exit code 0 only if both could be measured
    Calibrate(CalibrateArgs),
    /// Compress the files of a directory once, for sites with `precompressed`
    Compress(CompressArgs),
    /// Make a key for session tickets that a fleet shares
    TicketKey(TicketKeyArgs),
    /// Print the reference of all keys of the configuration file
    #[command(hide = true)]
    Reference,
    /// Convert an nginx configuration, and name what has no counterpart; exit code 3 if there is any
    ImportNginx(import_nginx::ImportArgs),
    /// Ask a running server's metrics listener whether it is well; exit code 0 only if it is
    Health(health_check::HealthArgs),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, for packages
    #[command(hide = true)]
    Man {
        /// Where to; made if it is not there
        directory: PathBuf,
    },
}

/// Everything `sealion serve` can be told. What is given here or in the environment goes before the file.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Configuration file, which says what is served: docs/configuration.md has all its keys
    #[arg(long, value_name = "FILE", env = "SEALION_CONFIG", conflicts_with_all = ["root", "cert", "key"])]
    pub config: Option<PathBuf>,

    /// The directory to serve; nothing outside it is reachable
    #[arg(default_value = ".")]
    pub root: PathBuf,

    /// Address and port to listen on; may be given several times. `localhost` means IPv4 and IPv6
    /// [default: localhost:8443, without a file]
    #[arg(long, value_name = "HOST:PORT", env = "SEALION_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Listen>,

    /// Certificate chain, PEM. Without it a development certificate for localhost is made and kept
    #[arg(long, value_name = "FILE", requires = "key", env = "SEALION_CERT")]
    pub cert: Option<PathBuf>,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", env = "SEALION_KEY")]
    pub key: Option<PathBuf>,

    /// What `[server]` says.
    #[command(flatten)]
    pub server: ProcessConfig,

    /// What `[access_log]` says.
    #[command(flatten)]
    pub access_log: AccessLogConfig,

    /// What `[metrics]` says.
    #[command(flatten)]
    pub metrics: MetricsConfig,

    /// What `[tls]` says.
    #[command(flatten)]
    pub tls: TlsConfig,
    /// What `[limits]` says.
    #[command(flatten)]
    pub limits: LimitsConfig,

    /// What `[privileges]` says.
    #[command(flatten)]
    pub privileges: PrivilegesConfig,

    #[arg(skip)]
    given: Given,
}

impl ServeArgs {
    /// The configuration: the file, if one is named, with what was given beside it.
    ///
    /// # Errors
    /// What is wrong with the file's form.
    pub fn configuration(&self) -> Result<(Config, Problems), Problems> {
        let (mut config, problems) = match &self.config {
            Some(file) => Config::read(file)?,
            None => (self.without_file(), Problems::of_arguments()),
        };
        if !self.listen.is_empty() {
            config.listen = self.listen.iter().cloned().map(ListenConfig::from).collect();
        }
        config.server.override_by(&self.server, &self.given);
        config.access_log.override_by(&self.access_log, &self.given);
        config.metrics.override_by(&self.metrics, &self.given);
        config.tls.override_by(&self.tls, &self.given);
        config.limits.override_by(&self.limits, &self.given);
        config.privileges.override_by(&self.privileges, &self.given);
        Ok((config, problems))
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

/// What `sealion doctor` can be told.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Tell which sockets of this process, ours or another server's, use kernel TLS; exit code 0 only if one does
    #[arg(long, value_name = "PID", conflicts_with = "port")]
    pub pid: Option<u32>,

    /// The same for the server on this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}

/// What `sealion calibrate` can be told.
#[derive(Debug, Clone, Args)]
pub struct CalibrateArgs {
    /// Seconds to measure for, about; the rest of the machine should be quiet meanwhile
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// Where the result is kept [default: /var/lib/sealion/calibration.json for root, else
    /// $XDG_STATE_HOME/sealion/calibration.json; `serve` looks there]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Severities of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What keeps the server from working.
    Error,
    /// What an operator should look into.
    Warn,
    /// Connections that failed, and why.
    Info,
    /// Connections that came and went.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Runs the command that the arguments ask for.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let given = matches.subcommand().map(|(_, matches)| Given::of(matches)).unwrap_or_default();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&ServeArgs { given, ..*args }).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::run(&ServeArgs { given, ..*args }),
        Command::Reference => print(&reference::markdown()).map(|()| ExitCode::SUCCESS),
        Command::ImportNginx(args) => import_nginx::run(&args),
        Command::Health(args) => health_check::run(&args),
        Command::Completions { shell } => {
            print(&manual::completions(shell, Cli::command())).map(|()| ExitCode::SUCCESS)
        }
        Command::Man { directory } => manual::write_pages(Cli::command(), &directory).map(|()| ExitCode::SUCCESS),
        Command::TicketKey(args) => make_ticket_key(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Compress(args) => compress::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("sealion: {error}");
        upgrade::report_failure(&error);
        ExitCode::FAILURE
    })
}

/// Prints text. A reader that has seen enough, as `head` has, is no error.
///
/// # Errors
/// A line that says why it cannot be printed.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot print: {error}")),
        _ => Ok(()),
    }
}

pub(crate) fn log_to_stderr(level: LogLevel) {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_go_before_the_file_and_their_defaults_do_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "[limits]\ngrace = '7s'\nidle_timeout = '8s'\n[server]\nworkers = 5\n").unwrap();
        let file = file.path().to_str().unwrap();
        let matches =
            Cli::command().get_matches_from(["sealion", "serve", "--config", file, "--grace", "9s", "--log", "debug"]);
        let Command::Serve(args) = Cli::from_arg_matches(&matches).unwrap().command else { panic!() };
        let given = Given::of(matches.subcommand().unwrap().1);
        let (config, _) = ServeArgs { given, ..*args }.configuration().unwrap();
        assert_eq!(config.limits.grace.to_string(), "9s");
        assert_eq!(config.limits.idle_timeout.to_string(), "8s");
        assert_eq!(config.limits.request_timeout, LimitsConfig::default().request_timeout);
        assert_eq!(config.server.workers.unwrap().get(), 5);
        assert_eq!(config.server.log, LogLevel::Debug);
        assert!(config.site.is_empty());
    }
}
