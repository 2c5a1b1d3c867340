//! `sealion top`: a live view of a server's activity, in the terminal.

mod fetch;
mod rates;
#[cfg(feature = "top")]
mod screen;
mod text;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fetch::Source;
use rates::Rates;

use crate::commands::print;
use crate::monitor::Summary;
use crate::values::{Timeout, printable};

/// Arguments of `sealion top`.
#[derive(Debug, Clone, Args)]
pub(super) struct TopArgs {
    /// URL of the server's metrics listener (`--metrics`)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9443", env = "SEALION_TOP_URL")]
    pub url: String,

    /// File whose first line is the server's bearer token (`--metrics-token-file`)
    #[arg(long, value_name = "FILE", env = "SEALION_METRICS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: Timeout,

    /// Print the activity of one interval as text and exit
    #[arg(long)]
    pub once: bool,
}

/// Shows the live view until `q` is pressed.
///
/// # Errors
/// The server does not answer, or the terminal cannot be used.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode, String> {
    let source = Source::new(&args.url, args.token_file.as_deref())?;
    let every = args.every.duration();
    let before = source.fetch()?;
    if args.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(every);
        let now = source.fetch()?;
        // It contains paths chosen by clients.
        print(&printable(&text::page(&now, &Rates::between(&before, &now))))?;
        return Ok(ExitCode::SUCCESS);
    }
    live(&source, before, every)
}

#[cfg(feature = "top")]
fn live(source: &Source, first: Summary, every: Duration) -> Result<ExitCode, String> {
    screen::run(source, first, every.max(MIN_INTERVAL))
}

#[cfg(not(feature = "top"))]
fn live(_: &Source, _: Summary, _: Duration) -> Result<ExitCode, String> {
    Err(crate::values::features::left_out("top", "add --once for the numbers as text"))
}

/// The minimum refresh interval: shorter intervals are unreadable.
#[cfg(feature = "top")]
const MIN_INTERVAL: Duration = Duration::from_millis(100);
