//! `sealion-lab setup-cost`: times the system calls of the hand-over.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use sealion_ktls::{Cipher, Version};

use crate::setup_cost::{SetUpCost, measure};

/// Arguments of `sealion-lab setup-cost`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SetupCostArgs {
    /// How many connections to give to the kernel
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// Cipher of the keys
    #[arg(long, value_enum, default_value_t = CipherArg::Aes128)]
    cipher: CipherArg,

    /// TLS 1.2 instead of 1.3
    #[arg(long)]
    tls12: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CipherArg {
    Aes128,
    Aes256,
    Chacha20,
}

/// Exit code 1 if the kernel cannot do it.
pub(crate) fn main(args: &SetupCostArgs) -> Result<ExitCode> {
    let version = if args.tls12 { Version::Tls12 } else { Version::Tls13 };
    let cipher = match args.cipher {
        CipherArg::Aes128 => Cipher::Aes128Gcm,
        CipherArg::Aes256 => Cipher::Aes256Gcm,
        CipherArg::Chacha20 => Cipher::Chacha20Poly1305,
    };
    match measure(version, cipher, args.connections)? {
        SetUpCost::Absent(why) => {
            println!("absent: {why}");
            Ok(ExitCode::FAILURE)
        }
        SetUpCost::Measured(times) => {
            println!("{version} {cipher}, {} connections", args.connections);
            println!("{:<12} {}", "", super::load::PERCENTILES.map(|(name, _)| format!("{name:>10}")).concat());
            for (name, histogram) in [("TCP_ULP", &times.ulp), ("TLS_TX", &times.tx), ("TLS_RX", &times.rx)] {
                let values =
                    super::load::PERCENTILES.map(|(_, at)| format!("{:>10}", super::load::time(histogram, at)));
                println!("{name:<12} {}", values.concat());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
