//! The command line: what can be set, its defaults, and where errors end.

use std::io::IsTerminal;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use crate::access_log::Destination;
use crate::handler::HandlerOptions;
use crate::http1::head::HeadLimits;
use crate::send_policy::KtlsMode;
use crate::{calibrate, doctor, serve};

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
    /// Tell whether kernel TLS will be used here, and what would change it; exit code 0 only if it will
    Doctor(DoctorArgs),
    /// Measure what both paths cost on this machine, for `serve` to decide by; exit code 0 only if both could be measured
    Calibrate(CalibrateArgs),
}

/// Everything `sealion serve` can be told.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The directory to serve; nothing outside it is reachable
    #[arg(default_value = ".")]
    pub root: PathBuf,

    /// Address and port to listen on; may be given several times. `localhost` means IPv4 and IPv6
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:8443", value_parser = parse_listen)]
    pub listen: Vec<Listen>,

    /// Certificate chain, PEM. Without it a development certificate for localhost is made and kept
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Worker threads; each has its own runtime and its own listening sockets [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Who seals the records: `auto` moves a connection into the kernel when that is worth it,
    /// `always` before its first response, `never` leaves all to user space
    #[arg(long, value_enum, default_value_t = KtlsMode::Auto)]
    pub ktls: KtlsMode,

    /// What `sealion calibrate` measured [default: where it keeps that]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,

    /// Repeat the self-check of the kernel path, which is done at the start, this often [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub self_check_every: Option<Duration>,

    /// How long a file is taken to be what it was: one that was replaced is seen this much later at most. 0s: no file
    /// is kept open or in memory
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_age)]
    pub file_cache_age: Duration,

    /// Least severe messages to print on standard error
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log: LogLevel,

    /// Where a line for each response goes: `stdout`, `off` or a file to append to
    #[arg(long, value_name = "WHERE", default_value = "stdout")]
    pub access_log: Destination,

    /// Bounds on what a client can take.
    #[command(flatten)]
    pub limits: LimitArgs,
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

/// Bounds on what a client can take.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    // INHERITED: nginx' worker_connections are 512 to 1024 a worker; the order of magnitude of a small machine's
    // memory at 5 to 300 kB a connection.
    /// Connections at a time; more wait until one ends [default: 10000, or what the limit on open files allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: Option<u32>,

    /// Time for the TLS handshake
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub handshake_timeout: Duration,

    /// Time from the first byte of a request to the end of its head, and then of its body
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub request_timeout: Duration,

    /// Time a connection may wait for its next request
    #[arg(long, value_name = "TIME", default_value = "65s", value_parser = parse_duration)]
    pub idle_timeout: Duration,

    /// Time a client may take nothing of a response
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub stall_timeout: Duration,

    /// Time to wait for the client's end of a connection after ours
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub linger_timeout: Duration,

    /// Time for responses under way to finish after SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub grace: Duration,

    /// Requests on one connection [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_requests: Option<u64>,

    /// Bytes of a request line (414 above)
    #[arg(long, value_name = "BYTES", default_value_t = HeadLimits::default().request_line,
          value_parser = parse_size)]
    pub max_request_line: usize,

    /// Bytes of a request head (431 above)
    #[arg(long, value_name = "BYTES", default_value_t = HeadLimits::default().head, value_parser = parse_size)]
    pub max_head: usize,

    /// Fields of a request head (431 above)
    #[arg(long, value_name = "N", default_value_t = HeadLimits::default().fields as u16,
          value_parser = clap::value_parser!(u16).range(1..=HeadLimits::MOST_FIELDS as i64))]
    pub max_fields: u16,

    // GUESS: what a client sends along with a GET by mistake is small.
    /// Bytes of a request body that are read and dropped to keep the connection (it is closed above)
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    pub max_body: u64,

    /// Ranges in one request (the whole file is sent above)
    #[arg(long, value_name = "N", default_value_t = HandlerOptions::default().max_ranges)]
    pub max_ranges: usize,

    /// Records sealed under one key before it is changed or the connection closed (RFC 8446, 5.5)
    #[arg(long, value_name = "N", default_value_t = 1 << 24,
          value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    pub max_records_per_key: u64,
}

/// Severities of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// A `--listen` value with the addresses that its host stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// As it was given.
    pub name: String,
    /// What it resolves to.
    pub addresses: Vec<SocketAddr>,
}

/// Runs the command that the arguments ask for.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => {
            log_to_stderr(args.log);
            serve::run(&args).map(|()| ExitCode::SUCCESS)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("sealion: {error}");
        ExitCode::FAILURE
    })
}

fn log_to_stderr(level: LogLevel) {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

fn parse_listen(name: &str) -> Result<Listen, String> {
    let hint = "write HOST:PORT, for instance 0.0.0.0:443, [::]:443 or localhost:8443";
    let addresses: Vec<SocketAddr> = match name.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) if name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            return Err(format!("the host is not known here ({error}): {hint}"));
        }
        Err(_) => return Err(hint.to_owned()),
    };
    let mut addresses = addresses;
    // Machines whose hosts file lacks the IPv6 line still have the address.
    if let Some(port) = name.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        addresses = vec![([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
    }
    Ok(Listen { name: name.to_owned(), addresses })
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|e| format!("{e}: write for instance 500ms, 10s or 2m"))?;
    if duration.is_zero() {
        return Err("must be longer than nothing".to_owned());
    }
    Ok(duration)
}

/// A time that may be none.
fn parse_age(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("{e}: write for instance 0s, 500ms or 1s"))
}

/// A size that still lets an ordinary request through.
fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ 256..=1_048_576) => Ok(bytes),
        _ => Err("write a number of bytes from 256 to 1048576".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn localhost_is_both_families() {
        let listen = parse_listen("localhost:8443").unwrap();
        assert_eq!(listen.addresses, ["127.0.0.1:8443".parse().unwrap(), "[::1]:8443".parse().unwrap()]);
    }

    #[test]
    fn bad_values_say_what_to_write() {
        for listen in ["8443", "localhost", "localhost:99999", "localhost:", ""] {
            assert!(parse_listen(listen).unwrap_err().contains("HOST:PORT"), "{listen}");
        }
        assert!(parse_duration("10").unwrap_err().contains("10s"));
        assert!(parse_duration("0s").is_err());
    }
}
