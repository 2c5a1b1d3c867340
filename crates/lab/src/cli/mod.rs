//! The command line.

mod advise;
mod agent;
mod diff;
mod guard;
mod handshake_cost;
mod instructions;
mod live;
mod load;
mod network;
mod report;
mod run;
mod setup_cost;
mod studies;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report::Written;
use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};

/// Loads TLS file servers, measures their cost and proves their path.
#[derive(Debug, Parser)]
#[command(name = "sealion-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a server and print latencies, counts and failures; exit code 1 if anything failed
    Load(Box<load::LoadArgs>),
    /// Say whether kernel TLS pays for the traffic of an access log, and how much CPU it saves
    Advise(Box<advise::AdviseArgs>),
    /// Send the requests of a run that the lab on another machine makes
    Agent(agent::AgentArgs),
    /// Run a study on this server and its peers, and write a report
    Run(Box<run::RunArgs>),
    /// Time the system calls that hand a connection's keys to the kernel
    SetupCost(setup_cost::SetupCostArgs),
    /// Time the parts of a TLS 1.3 handshake on the server's side
    HandshakeCost(handshake_cost::HandshakeCostArgs),
    /// Count instructions per request in emulated guests; counts repeat better than times
    Instructions(Box<instructions::InstructionsArgs>),
    /// Measure first and last byte over slow and lossy networks, simulated in an emulated guest
    Network(Box<network::NetworkArgs>),
    /// Rewrite the report of a run from its raw results
    Report(report::ReportArgs),
    /// Compare two runs; exit code 1 on a regression
    Diff(diff::DiffArgs),
    /// Make the page of the published studies from recorded runs, or record them
    Studies(studies::StudiesArgs),
    /// Compare instruction counts with their baselines, and the policy with both of its choices
    Guard(Box<guard::GuardArgs>),
    /// Write the manual pages, for packages
    #[command(hide = true)]
    Man {
        /// Output directory; created if missing
        directory: PathBuf,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load::main(&args),
        Command::Advise(args) => advise::main(&args),
        Command::Agent(args) => agent::main(&args),
        Command::Run(args) => run::main(&args),
        Command::SetupCost(args) => setup_cost::main(&args),
        Command::HandshakeCost(args) => handshake_cost::main(&args),
        Command::Instructions(args) => instructions::main(&args),
        Command::Network(args) => network::main(&args),
        Command::Report(args) => report::main(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Studies(args) => studies::main(&args),
        Command::Guard(args) => guard::main(&args),
        Command::Man { directory } => write_pages(&directory),
    };
    result.unwrap_or_else(|error| {
        eprintln!("sealion-lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn write_pages(directory: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line as typed, quoted for a shell.
fn command_line() -> String {
    let quoted =
        std::env::args().map(|word| match word.is_empty() || word.contains([' ', '\'', '"', '$', '*', ';', '&']) {
            true => format!("'{}'", word.replace('\'', r"'\''")),
            false => word,
        });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Prints a result. A closed pipe is not an error: `head` closes it early.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print the result"),
        _ => Ok(()),
    }
}

/// Prints a report's findings and the paths of its files.
fn print_report(written: &Written) -> Result<()> {
    let mut text: String = written.findings.iter().map(|finding| format!("{finding}\n")).collect();
    text += &format!("{}\n{}\n", written.page.display(), written.summary.display());
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
