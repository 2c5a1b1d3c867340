//! `sealion health`: asks the metrics listener of a running server, for containers that have no other program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::commands::print;

/// How long the answer may take. GUESS: a health check of containers waits some seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `sealion health` can be told.
#[derive(Debug, Clone, Args)]
pub(super) struct HealthArgs {
    /// The server's metrics listener
    #[arg(default_value = "127.0.0.1:9443", value_name = "ADDRESS:PORT")]
    pub address: SocketAddr,

    /// Ask whether one more connection would be served, too
    #[arg(long)]
    pub ready: bool,
}

/// Prints what the server says; exit code 0 only if it is well.
///
/// # Errors
/// The server does not answer.
pub(super) fn run(args: &HealthArgs) -> Result<ExitCode, String> {
    let path = if args.ready { "/ready" } else { "/health" };
    let answer = ask(args.address, path)
        .map_err(|e| format!("{} does not answer: {e}: does it run, with [metrics] listen = \"{0}\"?", args.address))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    print(body)?;
    Ok(if head.split(' ').nth(1) == Some("200") { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    // An answer is a few bytes; more is no answer of ours.
    stream.take(65_536).read_to_string(&mut answer)?;
    Ok(answer)
}
