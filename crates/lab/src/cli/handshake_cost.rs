//! `sealion-lab handshake-cost`: the server's cost for each part of a handshake.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::handshake_cost::{Group, Part, measure};

/// Arguments of `sealion-lab handshake-cost`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HandshakeCostArgs {
    /// Handshakes of each kind
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handshakes: u32,

    /// Group of the key exchange
    #[arg(long, value_enum, default_value_t = GroupArg::X25519)]
    group: GroupArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GroupArg {
    X25519,
    X25519mlkem768,
}

/// Prints a table.
pub(crate) fn main(args: &HandshakeCostArgs) -> Result<ExitCode> {
    let group = match args.group {
        GroupArg::X25519 => Group::X25519,
        GroupArg::X25519mlkem768 => Group::X25519MlKem768,
    };
    let costs = measure(group, args.handshakes)?;
    let row = |name: &str, of: &dyn Fn(usize) -> Duration| {
        let values: String = [0, 1].map(|n| format!("{:>12.1}", of(n).as_secs_f64() * 1e6)).concat();
        format!("{name:<44}{values}\n")
    };
    let sum = |n: usize, among: &dyn Fn(Part) -> bool| -> Duration {
        Part::ALL.into_iter().filter(|part| among(*part)).map(|part| costs[n].parts[part as usize]).sum()
    };
    let asymmetric = |part: Part| matches!(part, Part::KeyShare | Part::Signature);
    let mut text = format!("{:<44}{:>12}{:>12}\n", "µs of a handshake", "full", "resumed");
    for part in Part::ALL {
        text += &row(&part.to_string(), &|n| costs[n].parts[part as usize]);
    }
    text += &row("rest of rustls: messages, state, allocation", &|n| costs[n].rustls.saturating_sub(sum(n, &|_| true)));
    text += &row("rustls, in memory", &|n| costs[n].rustls);
    text += &row("Sealion, over a socket pair", &|n| costs[n].sealion);
    text += &row("floor: key share and signature", &|n| sum(n, &asymmetric));
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
