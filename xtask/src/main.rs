//! Tasks for contributors and CI: `cargo xtask test` runs every check, `cargo xtask guest` runs one test or one command
//! inside a Debian kernel under QEMU.
//!
//! The same binary is `/init` inside guests, which it recognises by its process id, 1.

mod bench_guard;
mod binaries;
mod book;
mod cache_tests;
mod cycles;
mod fuzz_smoke;
mod guest;
mod libraries;
mod libtest;
mod licences;
mod markdown;
mod package;
mod pages;
mod patched;
mod prose;
mod test;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
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
    BenchGuard(bench_guard::BenchGuard),
    FuzzSmoke(fuzz_smoke::FuzzSmoke),
    CacheTests(cache_tests::CacheTests),
    /// Torture the server for some minutes; `cargo xtask soak --help` lists the scenarios
    #[command(disable_help_flag = true)]
    Soak {
        /// Arguments of the crate sealion-soak
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    Docs(book::Book),
    Cycles(cycles::Cycles),
    Prose(prose::Prose),
    Licences(licences::Licences),
    Package(package::Package),
    Release(package::Release),
    /// Download or build Pebble, the ACME server that tests use, and print its path
    Pebble,
    /// Build h2spec, which tests HTTP/2 servers, and print its path
    H2spec,
    /// Download the packages of Node and Python that the server's tests use
    Packages,
}

fn main() -> ExitCode {
    sealion_guest::init_if_process_one();
    let result = match Xtask::parse().task {
        Task::Test(test) => test.run(),
        Task::Guest(guest) => guest.run(),
        Task::BenchGuard(guard) => guard.run().map(code),
        Task::FuzzSmoke(smoke) => smoke.run().map(|targets| code(targets.iter().all(|(_, held)| *held))),
        Task::CacheTests(tests) => tests.run().map(code),
        Task::Soak { arguments } => soak(&arguments),
        Task::Docs(book) => book.run().map(|()| ExitCode::SUCCESS),
        Task::Cycles(cycles) => cycles.run().map(code),
        Task::Prose(prose) => prose.run().map(code),
        Task::Licences(licences) => licences.run().map(code),
        Task::Pebble => sealion_guest::tools::pebble().map(print),
        Task::H2spec => sealion_guest::tools::h2spec().map(print),
        Task::Packages => sealion_guest::tools::packages().map(|()| ExitCode::SUCCESS),
        Task::Release(release) => release.run(),
        Task::Package(package) => package.run().map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and runs the crate of its own: with its clients, every start of this program would wait for TLS to compile.
fn soak(arguments: &[String]) -> Result<ExitCode> {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "--locked", "--package=sealion-soak", "--"]).args(arguments);
    Ok(code(cargo.status().context("cannot run cargo")?.success()))
}

fn print(path: PathBuf) -> ExitCode {
    println!("{}", path.display());
    ExitCode::SUCCESS
}

fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
