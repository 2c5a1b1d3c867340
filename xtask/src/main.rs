//! What a contributor and CI run: `cargo xtask test` for everything, `cargo xtask guest` for one test or one command
//! inside a Debian kernel under QEMU.
//!
//! The same binary is `/init` inside the guest: it knows that by being process 1.

mod apt;
mod binaries;
mod cpio;
mod follow;
mod fuzz_smoke;
mod guest;
mod init;
mod initramfs;
mod kernels;
mod libraries;
mod libtest;
mod licences;
mod machine;
mod modules;
mod protocol;
mod sources;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Sealion workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Test(test::Test),
    Guest(guest::Guest),
    FuzzSmoke(fuzz_smoke::FuzzSmoke),
    Licences(licences::Licences),
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    let result = match Xtask::parse().task {
        Task::Test(test) => test.run(),
        Task::Guest(guest) => guest.run(),
        Task::FuzzSmoke(smoke) => smoke.run().map(|targets| code(targets.iter().all(|(_, held)| *held))),
        Task::Licences(licences) => licences.run().map(code),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
