//! `sealion import-nginx --compare`: starts nginx and this server on loopback, sends the same requests to both, and prints where their responses differ.
//!
//! ```text
//! nginx.conf ─► on_loopback ─► nginx ───┐
//!      └─► convert ─► moved ─► sealion ─┴─ requests ─► client ─► difference ─► what an operator reads
//! ```

mod client;
mod difference;
mod requests;
mod servers;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use client::Client;
use difference::{differences, doubt};
use requests::Request;
use servers::{Setup, Started};

use super::print;

/// Two configurations, and the requests for both.
pub(super) struct Comparison<'a> {
    /// nginx' configuration.
    pub(super) nginx_config: &'a Path,
    /// The text of sealion.toml.
    pub(super) sealion_config: &'a str,
    /// The file of requests.
    pub(super) requests: &'a Path,
    /// nginx' program, if it is not where packages put it.
    pub(super) nginx: Option<&'a PathBuf>,
}

/// Prints the differences.
///
/// # Errors
/// The list has a line that is no request, or a server does not start; the message has its output.
pub(super) fn run(comparison: &Comparison<'_>) -> Result<ExitCode, String> {
    let file = comparison.requests;
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let at_file = |wrong: String| wrong.lines().map(|line| format!("{}:{line}", file.display())).collect::<Vec<_>>();
    let requests = requests::parse(&text).map_err(|wrong| at_file(wrong).join("\n"))?;
    let servers = servers::start(&Setup {
        nginx_config: comparison.nginx_config,
        sealion_config: comparison.sealion_config,
        nginx: comparison.nginx.map_or_else(servers::find_nginx, Clone::clone),
    })?;
    let client = Client::new()?;
    let mut report = String::new();
    let (mut differing, mut doubtful) = (0, 0);
    for request in &requests {
        let compared = compare(request, &servers, &client);
        differing += usize::from(!compared.differences.is_empty());
        doubtful += usize::from(compared.doubt.is_some());
        let lines: Vec<_> = compared.differences.into_iter().chain(compared.doubt).collect();
        if !lines.is_empty() {
            let _ = writeln!(report, "{}", request.line);
        }
        for line in lines {
            let _ = writeln!(report, "    {line}");
        }
    }
    let (all, equal) = (requests.len(), requests.len() - differing);
    let _ = write!(report, "{all} requests: {equal} equal, {differing} differ");
    if doubtful > 0 {
        let _ = write!(report, "; {doubtful} of the equal ones reached no server behind");
    }
    report.push('\n');
    print(&report)?;
    Ok(if differing == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_DIFFER) })
}

/// The lines about a request.
struct Compared {
    differences: Vec<String>,
    /// Without a difference, the reason why that says little.
    doubt: Option<String>,
}

fn compare(request: &Request, servers: &Started, client: &Client) -> Compared {
    let Some(nginx) = servers.nginx.at(request.port) else {
        let none = format!(
            "no server of nginx listens on port {}: write one of its ports into the URL: {}",
            request.port,
            servers.nginx.ports().join(", ")
        );
        return Compared { differences: vec![none], doubt: None };
    };
    let theirs = client.ask(request, nginx).map(|response| servers.nginx.with_original_ports(response));
    let ours = match servers.sealion.at(request.port) {
        Some(port) => client.ask(request, port).map(|response| servers.sealion.with_original_ports(response)),
        None => Err(format!("no listener on port {}", request.port)),
    };
    let differences = differences(request, &theirs, &ours);
    let doubt = doubt(&theirs, &ours).filter(|_| differences.is_empty());
    Compared { differences, doubt }
}

/// The exit code when a response differs; no code of a conversion.
const SOME_DIFFER: u8 = 5;
