//! `sealion ticket-key`: a key for session tickets that a fleet shares.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::print;
use crate::certificates::make_ticket_key;
use crate::values::Time;

/// What `sealion ticket-key` can be told.
#[derive(Debug, Clone, Args)]
pub(super) struct TicketKeyArgs {
    /// The directory of the keys; it is made if it is not there
    pub directory: PathBuf,

    /// When the key begins to seal tickets: long enough that it is on all servers by then
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub after: Time,

    /// Remove the oldest keys but this many; with a new key every TIME, tickets live for up to 12 h
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    pub keep: Option<u16>,
}

/// Makes a key and prints its file.
///
/// # Errors
/// A line that says what could not be done.
pub(super) fn run(args: &TicketKeyArgs) -> Result<ExitCode, String> {
    let path = make_ticket_key(&args.directory, args.after.0, args.keep)?;
    print(&format!("{}\n", path.display())).map(|()| ExitCode::SUCCESS)
}
