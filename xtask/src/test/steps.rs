//! The steps that are a command or a few.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sealion_guest::Series;
use sealion_guest::follow::{Followed, Next};

use crate::bench_guard;
use crate::binaries::TestBinary;
use crate::libtest::{Verdict, Watch};
use crate::{cache_tests, fuzz_smoke, guest, workspace};

/// No test binary takes minutes, even while a build runs. One that does hangs.
const NATIVE_LIMIT: Duration = Duration::from_secs(300);

pub(super) fn format() -> Result<()> {
    succeed(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    succeed(workspace::cargo().args(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))
}

/// Lints every target of the workspace.
pub(super) fn lint() -> Result<()> {
    // `--all-targets` skips targets with `test = false`, and cargo ignores names given with it.
    for targets in ["--all-targets", "--test=kernel*"] {
        succeed(workspace::cargo().args(["clippy", "--workspace", targets, "--locked", "--", "--deny=warnings"]))?;
    }
    Ok(())
}

/// Lints a program without its optional parts. Alone, because other crates of the workspace would switch features on.
pub(super) fn lint_bare() -> Result<()> {
    let bare =
        ["clippy", "--package=sealion", "--no-default-features", "--all-targets", "--locked", "--", "--deny=warnings"];
    succeed(workspace::cargo().args(bare))
}

pub(super) fn docs() -> Result<()> {
    succeed(
        workspace::cargo().args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny=warnings"),
    )
}

/// Examples in documentation.
pub(super) fn doc_tests() -> Result<Verdict> {
    run_here(workspace::cargo().args(["test", "--workspace", "--doc", "--quiet"]))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}

/// The command that runs a test binary here.
pub(super) fn native_command(test: &TestBinary) -> Command {
    let mut command = Command::new(&test.executable);
    command.current_dir(&test.directory).env("CARGO_MANIFEST_DIR", &test.directory);
    command
}

/// Runs a test binary, or a command that runs some, on this machine and prints its output.
pub(super) fn run_here(command: &mut Command) -> Result<Verdict> {
    let mut child = Followed::start(command, NATIVE_LIMIT)?;
    let mut watch = Watch::default();
    loop {
        match child.next() {
            Next::Line(line) => {
                println!("{line}");
                watch.line(&line);
            }
            Next::End => break,
            Next::Late => {
                println!("no end after {} s: killed", NATIVE_LIMIT.as_secs());
                return Ok(watch.verdict(false));
            }
        }
    }
    Ok(watch.verdict(child.wait()?.success()))
}

/// The tests that downloads are for.
#[derive(Clone)]
pub(super) struct Downloads {
    pub(super) native: bool,
    pub(super) guests: bool,
    pub(super) cache: bool,
    pub(super) kernels: Vec<Series>,
}

/// Downloads missing programs and kernels. Each is a check of its own.
pub(super) fn download(wanted: &Downloads) -> Vec<(&'static str, Result<()>)> {
    let mut results = Vec::new();
    if wanted.guests {
        results.push(("tools", guest::ensure_tools()));
    }
    if wanted.cache {
        results.push(("download of http-cache-tests", cache_tests::download()));
    }
    if wanted.native {
        results.push(("nginx", sealion_guest::tools::ensure_nginx()));
        // For the tests of fleets.
        let tools = [("redis-server", "redis-server"), ("redis-cli", "redis-tools"), ("haproxy", "haproxy")];
        results.push(("redis and haproxy", sealion_guest::tools::ensure(&tools)));
        results.push(("php-fpm", sealion_guest::tools::ensure_php_fpm()));
        results.push(("uwsgi", sealion_guest::tools::ensure_uwsgi()));
        // For the tests of ACME by dynamic updates.
        results.push(("bind", sealion_guest::tools::ensure(&[("named", "bind9"), ("dig", "bind9-dnsutils")])));
        results.push(("go", sealion_guest::tools::ensure(&[("go", "golang-go")])));
        results.push(("pebble", sealion_guest::tools::pebble().map(drop)));
        results.push(("h2spec", sealion_guest::tools::h2spec().map(drop)));
        // The client of the container study.
        results.push(("vegeta", sealion_guest::tools::vegeta().map(drop)));
        results.push(("packages of Node and Python", sealion_guest::tools::packages()));
    }
    if !wanted.kernels.is_empty() {
        results.push(("kernels", sealion_guest::download(&wanted.kernels)));
    }
    results
}

/// Builds the server that is counted. It ends with minutes on one processor, which the fuzz targets' build then has the others beside.
pub(super) fn build_release() -> Result<()> {
    build_meanwhile("10", bench_guard::release_build())
}

pub(super) fn build_fuzz_targets() -> Result<()> {
    build_meanwhile("19", fuzz_smoke::build(&[], true)?.command)
}

/// Runs a build at a low priority, so that it does not slow tests down, and without cargo's progress in their output.
/// `niceness`: of nice(1).
fn build_meanwhile(niceness: &str, build: Command) -> Result<()> {
    let mut patient = Command::new("nice");
    patient.args(["-n", niceness]).arg(build.get_program()).args(build.get_args());
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => patient.env(name, value),
            None => patient.env_remove(name),
        };
    }
    patient.current_dir(workspace::root());
    sealion_guest::output(&mut patient).map(drop)
}
