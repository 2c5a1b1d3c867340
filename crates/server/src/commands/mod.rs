//! The command line: a file a command, and where errors end.

mod calibrate;
mod check;
mod compress;
mod doctor;
mod health_check;
mod http_client;
mod import_nginx;
mod manual;
mod ticket_key;
mod top;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{ServeArgs, reference};
use crate::process;
use crate::values::Given;

/// Names a debug build, so that nobody measures one by mistake.
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
    Doctor(doctor::DoctorArgs),
    /// Show what a running server does, in the terminal
    Top(top::TopArgs),
    /// Measure what both paths cost on this machine, for `serve` to decide by; exit code 0 only if both could be measured
    Calibrate(calibrate::CalibrateArgs),
    /// Compress the files of a directory once, for sites with `precompressed`
    Compress(compress::CompressArgs),
    /// Make a key for session tickets that a fleet shares
    TicketKey(ticket_key::TicketKeyArgs),
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

/// Runs the command that the arguments ask for.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let given = matches.subcommand().map(|(_, matches)| Given::of(matches)).unwrap_or_default();
    let result = match cli.command {
        Command::Serve(args) => process::run(&ServeArgs { given, ..*args }).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::run(&ServeArgs { given, ..*args }),
        Command::Reference => print(&reference::markdown()).map(|()| ExitCode::SUCCESS),
        Command::ImportNginx(args) => import_nginx::run(&args),
        Command::Health(args) => health_check::run(&args),
        Command::Completions { shell } => {
            print(&manual::completions(shell, Cli::command())).map(|()| ExitCode::SUCCESS)
        }
        Command::Man { directory } => manual::write_pages(Cli::command(), &directory).map(|()| ExitCode::SUCCESS),
        Command::TicketKey(args) => ticket_key::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Compress(args) => compress::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("sealion: {error}");
        process::upgrade::report_failure(&error);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitsConfig;
    use crate::observe::messages::LogLevel;

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
