//! `sealion health`: queries the metrics listener of a running server, for containers without an HTTP client.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::http_client::Request;
use crate::commands::print;
use crate::values::printable;

/// Orchestrators give a health check a few seconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The endpoints' bodies are a few bytes.
const MAX_RESPONSE: u64 = 64 << 10;

/// Arguments of `sealion health`.
#[derive(Debug, Clone, Args)]
pub(super) struct HealthArgs {
    /// Metrics listener of the server
    #[arg(default_value = "127.0.0.1:9443", value_name = "ADDRESS:PORT")]
    pub address: SocketAddr,

    /// Also check that the server accepts further connections
    #[arg(long)]
    pub ready: bool,
}

/// Prints the server's response. The exit code is 0 only for status 200.
///
/// # Errors
/// The server does not answer.
pub(super) fn run(args: &HealthArgs) -> Result<ExitCode, String> {
    let request = Request {
        address: args.address,
        authority: &args.address.to_string(),
        path: if args.ready { "/ready" } else { "/health" },
        bearer_token: None,
        timeout: TIMEOUT,
        max_response: MAX_RESPONSE,
    };
    let response = request.send().map_err(|error| {
        format!("{} does not answer: {error}: is the server running with [metrics] listen = \"{0}\"?", args.address)
    })?;
    // Any program may listen on that address.
    print(&printable(&response.body))?;
    Ok(if response.status() == "200" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
