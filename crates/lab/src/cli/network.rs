//! `sealion-lab network`: first and last byte over slow and lossy networks, in a guest.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::arm::Arm;
use crate::network::{self, Plan, Visit};
use anyhow::{Context, Result};
use clap::Args;
use sealion_guest::Series;

/// Arguments of `sealion-lab network`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NetworkArgs {
    /// Kernel series
    #[arg(long, default_value = "6.1")]
    kernel: Series,
    /// Servers to measure: user, kernel, auto, nginx, nginx-ktls by HTTP/1.1; user-h2, nginx-h2, user-h3, nginx-h3
    #[arg(long, value_delimiter = ',', value_parser = super::instructions::arm, default_values = ["user", "kernel", "nginx", "nginx-ktls"])]
    arms: Vec<Arm>,
    /// Body sizes to request, such as 16k,100k
    #[arg(long, value_delimiter = ',', value_parser = super::instructions::size, default_values = ["16k", "100k", "1m"])]
    sizes: Vec<u64>,
    /// Round trips in ms
    #[arg(long, value_delimiter = ',', default_values = ["20", "80", "200"])]
    rtt: Vec<u32>,
    /// Rates towards the client, in Mbit/s
    #[arg(long, value_delimiter = ',', default_values = ["5", "50"])]
    rate: Vec<u32>,
    /// Packets lost in each direction, in percent
    #[arg(long, value_delimiter = ',', default_values = ["0"])]
    loss: Vec<f64>,
    /// Requests of a cell without loss, whose times hardly differ
    #[arg(long, default_value_t = 5)]
    samples: u64,
    /// Requests of a cell with loss
    #[arg(long, default_value_t = 200)]
    samples_with_loss: u64,
    /// Connections of the requests: new, warm
    #[arg(long, value_delimiter = ',', default_values = ["new", "warm"])]
    visits: Vec<Visit>,
    /// Shell command in the server's namespace, such as `sysctl -w net.ipv4.tcp_congestion_control=bbr`; may be repeated
    #[arg(long, value_name = "COMMAND")]
    tune: Vec<String>,
    /// Path of sealion [default: beside this program]
    #[arg(long)]
    sealion: Option<PathBuf>,
    /// Path of nginx, whose directory is copied into the guest [default: Debian 12's]
    #[arg(long)]
    nginx: Option<PathBuf>,
    /// File for the rows, as CSV
    #[arg(long)]
    out: Option<PathBuf>,
    /// In the guest: directory of the plan
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

pub(crate) fn main(args: &NetworkArgs) -> Result<ExitCode> {
    if let Some(work) = &args.inside {
        let plan = serde_json::from_slice(&std::fs::read(work.join("plan.json"))?)?;
        network::measure(&plan, work, Path::new("/out"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan {
        arms: args.arms.iter().map(Arm::to_string).collect(),
        paths: paths(args),
        pages: args.sizes.clone(),
        samples: args.samples,
        samples_with_loss: args.samples_with_loss,
        visits: args.visits.clone(),
        tune: args.tune.clone(),
        sealion: super::instructions::sealion(args.sealion.as_deref())?,
        nginx: args.nginx.as_deref().map(std::path::absolute).transpose()?,
    };
    let (rows, raw) = network::run(&plan, args.kernel)?;
    print!("{}", network::table(&rows));
    if let Some(out) = &args.out {
        std::fs::write(out, raw).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every round trip with every rate and every loss.
fn paths(args: &NetworkArgs) -> Vec<network::Path> {
    let mut paths = Vec::new();
    for &rtt in &args.rtt {
        for &rate in &args.rate {
            paths.extend(args.loss.iter().map(|&loss| network::Path { rtt, rate, loss }));
        }
    }
    paths
}
