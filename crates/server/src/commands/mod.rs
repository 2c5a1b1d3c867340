//! The command line: one file per command. Errors are printed here.

mod calibrate;
mod check;
#[cfg(feature = "import-nginx")]
mod compare;
mod compress;
mod doctor;
mod explain;
mod health_check;
mod http_client;
mod import_nginx;
mod manual;
mod order;
mod passwd;
mod ticket_key;
mod top;
mod trust;
mod warm;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{ProxyArgs, ServeArgs, reference};
use crate::observe::messages;
use crate::process::{self, control::Order};
use crate::upstream::AdminState;
use crate::values::{Given, features};

/// Marks debug builds, whose times mean nothing.
const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (debug build)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Serves files, applications and cached responses over HTTPS, and lets the kernel seal TLS records where that is cheaper.
#[derive(Debug, Parser)]
#[command(name = "sealion", version = VERSION, long_version = long_version(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The version and the features of this program, for `--version`.
fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{VERSION}\nfeatures: {}", features::listed()));
    &TEXT
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTPS
    Serve(Box<ServeArgs>),
    /// Forward requests to servers over HTTPS; takes the arguments of `serve`
    Proxy(Box<ProxyArgs>),
    /// Check a configuration without starting a server; takes the arguments of `serve`
    Check(Box<check::CheckArgs>),
    /// Make the running server reload its configuration and certificates; exit code 0 only if they are in use
    Reload(order::OrderArgs),
    /// Replace the running server by the program now at its path, without losing a connection; exit code 0 only if the
    /// new program serves
    Upgrade(order::OrderArgs),
    /// Remove stored responses from the running server's cache; exit code 0 only if they will not be sent again
    Purge(order::PurgeArgs),
    /// Show the running server's cache, or the responses stored for a URL
    Cache(order::CacheArgs),
    /// Send no new clients to a server of an upstream, whose sessions go on; exit code 0 only if it drains
    Drain(order::ServerStateArgs),
    /// Send new clients to a server of an upstream again; exit code 0 only if it gets them
    Ready(order::ServerStateArgs),
    /// Request URLs, a list of URLs or a sitemap from a server, to fill its cache; exit code 0 only if the cache has
    /// all of them
    Warm(warm::WarmArgs),
    /// Report whether kernel TLS will be used, and what would change that; exit code 0 only if it will
    Doctor(doctor::DoctorArgs),
    /// Show a running server's activity in the terminal
    Top(top::TopArgs),
    /// Measure the costs of both paths on this machine, for the decisions of `serve`; exit code 0 only if both
    /// were measured
    Calibrate(calibrate::CalibrateArgs),
    /// Compress the files of a directory once, for sites with `precompressed`
    Compress(compress::CompressArgs),
    /// Make a line for the `users` file of `basic_auth`: asks for a password and prints its hash
    Passwd(passwd::PasswdArgs),
    /// Make this machine and the user's browsers trust the certificate that `serve` makes for localhost
    Trust(trust::TrustArgs),
    /// Make a session ticket key for a fleet to share
    TicketKey(ticket_key::TicketKeyArgs),
    /// Print the configuration reference, docs/configuration.md
    Reference,
    /// Convert an nginx configuration, and say how each site is then; exit code 3 if one works in part, 4 if one is dead
    ImportNginx(import_nginx::ImportArgs),
    /// Check the health of a running server through its metrics listener; exit code 0 only if it is healthy
    Health(health_check::HealthArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// Directory to write to; created if missing
        directory: PathBuf,
    },
}

/// The options of `serve` in `-h`. `--help` shows all.
const COMMON: [&str; 15] = [
    "config",
    "root",
    "listen",
    "port",
    "listing",
    "spa",
    "open",
    "qr",
    "cert",
    "key",
    "domain",
    "access_log",
    "metrics",
    "workers",
    "strict",
];

/// The command line. Its short help only has the common options.
fn command() -> clap::Command {
    let brief = |command: clap::Command| {
        let shortened = command.mut_args(|argument| {
            let is_common = COMMON.contains(&argument.get_id().as_str());
            argument.hide_short_help(!is_common)
        });
        shortened.after_help("`--help` lists all options; `sealion reference` the keys of a configuration file.")
    };
    Cli::command().mut_subcommand("serve", brief).mut_subcommand("check", brief)
}

/// Runs the command in the arguments.
pub fn main() -> ExitCode {
    let matches = command().try_get_matches().unwrap_or_else(|error| with_counterpart(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let given = matches.subcommand().map(|(_, matches)| Given::of(matches)).unwrap_or_default();
    let result = match cli.command {
        Command::Serve(args) => process::run(&ServeArgs { given, ..*args }).map(|()| ExitCode::SUCCESS),
        Command::Proxy(args) => {
            process::run(&ServeArgs { given, ..ServeArgs::from(*args) }).map(|()| ExitCode::SUCCESS)
        }
        Command::Check(args) => check::run(*args, given),
        Command::Reload(args) => order::run(&args, &Order::Reload),
        Command::Upgrade(args) => order::run(&args, &Order::Upgrade),
        Command::Purge(args) => order::purge(args),
        Command::Cache(args) => order::run(&args.server, &Order::Cache { url: args.url }),
        Command::Drain(args) => order::set_state(args, AdminState::Drain),
        Command::Ready(args) => order::set_state(args, AdminState::Ready),
        Command::Warm(args) => warm::run(&args),
        Command::Reference => print(&reference::markdown()).map(|()| ExitCode::SUCCESS),
        Command::ImportNginx(args) => import_nginx::run(&args),
        Command::Health(args) => health_check::run(&args),
        Command::Completions { shell } => print(&manual::completions(shell, command())).map(|()| ExitCode::SUCCESS),
        Command::Man { directory } => manual::write_pages(command(), &directory).map(|()| ExitCode::SUCCESS),
        Command::Passwd(args) => passwd::run(&args),
        Command::Trust(args) => trust::run(&args),
        Command::TicketKey(args) => ticket_key::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Compress(args) => compress::run(&args),
    };
    result.unwrap_or_else(|error| {
        messages::print(tracing::Level::ERROR, format_args!("{error}"));
        process::upgrade::report_failure(&error);
        ExitCode::FAILURE
    })
}

/// Commands of other servers, and the one that does it here. `None`: the service manager does it.
const COUNTERPARTS: [(&str, Option<&str>); 16] = [
    ("validate", Some("check")),
    ("test", Some("check")),
    ("configtest", Some("check")),
    ("lint", Some("check")),
    ("start", Some("serve")),
    ("run", Some("serve")),
    ("file-server", Some("serve")),
    ("reverse-proxy", Some("proxy")),
    ("restart", Some("upgrade")),
    ("graceful", Some("reload")),
    ("status", Some("health")),
    ("adapt", Some("import-nginx")),
    ("hash-password", Some("passwd")),
    ("config", Some("reference")),
    ("stop", None),
    ("quit", None),
];

/// The error about an unknown command, with the command that does what another server's command does: its letters may resemble another's.
fn with_counterpart(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    match COUNTERPARTS.iter().find(|(other, _)| other == word) {
        Some((_, Some(meant))) => {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::String((*meant).to_owned()));
        }
        Some((_, None)) => {
            error.remove(ContextKind::SuggestedSubcommand);
            let remedy =
                "the service manager stops the server: `systemctl stop sealion`, or send SIGTERM to its process";
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![remedy.into()]));
        }
        None => {}
    }
    error
}

/// Prints text. A closed pipe, as with `head`, is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot print: {error}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitsConfig;
    use crate::observe::messages::LogLevel;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn commands_of_other_servers_are_answered_with_their_counterparts() {
        let tip =
            |word: &str| with_counterpart(command().try_get_matches_from(["sealion", word]).unwrap_err()).to_string();
        for (word, expected) in [
            ("validate", "a similar subcommand exists: 'check'"),
            ("status", "a similar subcommand exists: 'health'"),
            ("chekc", "a similar subcommand exists: 'check'"),
            ("stop", "`systemctl stop sealion`"),
        ] {
            assert!(tip(word).contains(expected), "{word}: {}", tip(word));
        }
        let known = command();
        let unknown = |meant: &str| known.find_subcommand(meant).is_none();
        assert!(!COUNTERPARTS.iter().any(|(other, meant)| meant.is_some_and(unknown) || !unknown(other)));
    }

    #[test]
    fn the_short_help_has_the_common_options_and_the_long_one_all() {
        for name in ["serve", "check"] {
            let mut command = command();
            let command = command.find_subcommand_mut(name).unwrap();
            let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
            assert!(short.contains("--listing") && !short.contains("--max-head"), "{short}");
            assert!(
                long.contains("--listing") && long.contains("--max-head") && long.contains("\nLimits:\n"),
                "{long}"
            );
            assert!(short.lines().count() < 50, "{short}");
        }
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
