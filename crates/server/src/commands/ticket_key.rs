//! `sealion ticket-key`: makes a session ticket key for a fleet to share.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::print;
use crate::certificates::make_ticket_key;
use crate::values::Time;

/// Arguments of `sealion ticket-key`.
#[derive(Debug, Clone, Args)]
pub(super) struct TicketKeyArgs {
    /// Directory of the keys; created if missing
    pub directory: PathBuf,

    /// Delay until the key seals tickets; allow enough time to copy it to all servers
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub after: Time,

    /// Number of newest keys to keep, removing older ones; tickets live for up to 12 h
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    pub keep: Option<u16>,
}

/// Makes a key and prints its file name.
///
/// # Errors
/// The key cannot be written.
pub(super) fn run(args: &TicketKeyArgs) -> Result<ExitCode, String> {
    let path = make_ticket_key(&args.directory, args.after.0, args.keep)?;
    print(&format!("{}\n", path.display())).map(|()| ExitCode::SUCCESS)
}
