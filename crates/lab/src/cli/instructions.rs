//! `sealion-lab instructions`: counts instructions per request in a guest.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::arm::Arm;
use crate::instructions::{self, Client, Plan, cell};
use crate::load::{Protocol, Suite};
use crate::study::Cell;
use anyhow::{Context, Result};
use clap::Args;
use sealion_guest::Series;

/// Arguments of `sealion-lab instructions`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstructionsArgs {
    /// Kernel series; all run at the same time, one core each
    #[arg(long, value_delimiter = ',', default_values = ["6.1", "7.2"])]
    kernel: Vec<Series>,
    /// Servers to count: user, kernel, auto, nginx, nginx-ktls
    #[arg(long, value_delimiter = ',', value_parser = arm, default_values = ["user", "kernel", "nginx", "nginx-ktls"])]
    arms: Vec<Arm>,
    /// Body sizes to request, such as 1k,64k
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["1k", "16k", "64k", "1m"])]
    sizes: Vec<u64>,
    /// Requests per connection: numbers, or `unlimited`
    #[arg(long, value_delimiter = ',', value_parser = calls, default_values = ["unlimited"])]
    calls: Vec<Calls>,
    /// Count HTTP/2 with this many requests at a time on each connection
    #[arg(long, value_name = "STREAMS", value_delimiter = ',')]
    h2: Vec<usize>,
    /// Resume sessions, so that handshakes are shorter
    #[arg(long)]
    resume: bool,
    /// The only cipher suite to offer
    #[arg(long, value_parser = suite, default_value = "aes-128-gcm")]
    suite: Suite,
    /// Program that sends the requests
    #[arg(long, value_enum, default_value = "lab")]
    client: Client,
    /// Processor features that the guest lacks, by QEMU's names: aes for a processor without AES instructions
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    without: Vec<String>,
    /// Path of sealion [default: beside this program]
    #[arg(long)]
    sealion: Option<PathBuf>,
    /// Directory for the raw counts
    #[arg(long)]
    out: Option<PathBuf>,
    /// In the guest: directory of the plan
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

pub(crate) fn main(args: &InstructionsArgs) -> Result<ExitCode> {
    if let Some(work) = &args.inside {
        let plan = serde_json::from_slice(&std::fs::read(work.join("plan.json"))?)?;
        instructions::measure(&plan, work, Path::new("/out"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan {
        arms: args.arms.iter().map(Arm::to_string).collect(),
        cells: cells(args),
        client: args.client,
        sealion: sealion(args.sealion.as_deref())?,
        without: args.without.clone(),
    };
    let counted = instructions::run(&plan, &args.kernel)?;
    let mut void = false;
    for kernel in &counted {
        println!("\nkernel {}, instructions per request, {:?}", kernel.series.name(), args.suite);
        print!("{}", instructions::tables(&kernel.rows));
        for row in kernel.rows.iter().filter(|row| !row.void.is_empty()) {
            println!("void: {} on {}: {}", row.cell, row.arm, row.void);
            void = true;
        }
        if let Some(out) = &args.out {
            let directory = out.join(kernel.series.name());
            std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            std::fs::write(directory.join("raw.csv"), &kernel.raw)?;
        }
    }
    Ok(if void { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `named`; by default `sealion` in the lab's own directory.
pub(super) fn sealion(named: Option<&Path>) -> Result<PathBuf> {
    Ok(match named {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?.with_file_name("sealion"),
    })
}

fn cells(args: &InstructionsArgs) -> Vec<Cell> {
    let sizes = args.sizes.iter();
    let each = |&size| args.calls.iter().map(move |&Calls(calls)| cell(size, calls, args.resume, args.suite));
    let http1 = sizes.flat_map(each);
    let streams =
        |cell: Cell| args.h2.iter().map(move |&streams| Cell { protocol: Protocol::Http2 { streams }, ..cell.clone() });
    http1.flat_map(|cell| std::iter::once(cell.clone()).chain(streams(cell)).collect::<Vec<_>>()).collect()
}

/// Requests on a connection; `None`: unlimited.
#[derive(Debug, Clone, Copy)]
struct Calls(Option<u64>);

fn calls(text: &str) -> Result<Calls, String> {
    match text.parse() {
        _ if text == "unlimited" => Ok(Calls(None)),
        Ok(calls @ 1..) => Ok(Calls(Some(calls))),
        _ => Err(format!("{text} is neither a number above 0 nor `unlimited`")),
    }
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        text if text.ends_with('k') => (text[..text.len() - 1].to_owned(), 1 << 10),
        text if text.ends_with('m') => (text[..text.len() - 1].to_owned(), 1 << 20),
        text => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is not a size: 512, 16k or 1m"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))
}

fn suite(text: &str) -> Result<Suite, String> {
    // `aes-128-gcm` and `aes128-gcm` are both accepted.
    match text.replace("aes-", "aes").as_str() {
        "aes128-gcm" => Ok(Suite::Aes128Gcm),
        "aes256-gcm" => Ok(Suite::Aes256Gcm),
        "chacha20-poly1305" => Ok(Suite::Chacha20Poly1305),
        _ => Err(format!("{text} is none of aes-128-gcm, aes-256-gcm, chacha20-poly1305")),
    }
}

pub(super) fn arm(text: &str) -> Result<Arm, String> {
    match text.parse()? {
        Arm::Nic | Arm::Peer(_) => Err("a guest has no network card and no other servers".to_owned()),
        arm => Ok(arm),
    }
}
