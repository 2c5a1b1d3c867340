//! The programs that packages hold.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::output;

use crate::{binaries, workspace};

/// The target with a C library that can be linked statically.
const MUSL: &str = "x86_64-unknown-linux-musl";
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// How programs are built.
#[derive(Clone, Copy)]
pub(super) struct Build {
    /// Without optimisation.
    pub(super) debug: bool,
    /// Without the server's optional parts.
    pub(super) bare: bool,
}

/// The server and the lab, built.
pub(super) struct Programs {
    pub(super) sealion: PathBuf,
    pub(super) lab: PathBuf,
}

impl Programs {
    /// Builds for this machine.
    pub(super) fn build(debug: bool) -> Result<Self> {
        let directory = cargo_build(Build { debug, bare: false }, &[], &[])?;
        Ok(Self { sealion: directory.join("sealion"), lab: directory.join("sealion-lab") })
    }

    /// The programs that the tests were built with, so that no check waits for another build.
    pub(super) fn for_tests() -> Result<Self> {
        let directory = PathBuf::from(binaries::metadata()?.target_directory).join("debug");
        let built = Self { sealion: directory.join("sealion"), lab: directory.join("sealion-lab") };
        if built.sealion.is_file() && built.lab.is_file() { Ok(built) } else { Self::build(true) }
    }
}

/// Builds both statically linked, strips them and copies them to `out`.
pub(super) fn build_static(glibc: bool, build: Build, out: &Path) -> Result<Vec<PathBuf>> {
    let directory = if musl_is_installed()? {
        sealion_guest::tools::ensure(&[("musl-gcc", "musl-tools")])?;
        cargo_build(build, &["--target", MUSL], &[])?
    } else if glibc {
        // Without --target the flags would also apply to build scripts and macros, which cannot be static.
        cargo_build(build, &["--target", GLIBC], &[("RUSTFLAGS", "-C target-feature=+crt-static")])?
    } else {
        bail!(
            "the target {MUSL} is not installed: rustup target add {MUSL}, or link glibc statically with --glibc, \
             which resolves names of hosts without NSS plug-ins"
        );
    };
    let mut programs = Vec::new();
    for name in ["sealion", "sealion-lab"] {
        let program = out.join(name);
        strip(&directory.join(name), &program)?;
        ensure!(is_static(&program)?, "{} still asks for a dynamic linker", program.display());
        programs.push(program);
    }
    Ok(programs)
}

/// Copies a program without its debug symbols.
pub(super) fn strip(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(to).arg(from))
        .map(drop)
}

/// Whether it is statically linked: it has no PT_INTERP (elf(5)).
fn is_static(program: &Path) -> Result<bool> {
    Ok(!output(Command::new("readelf").arg("--program-headers").arg(program))?.contains("INTERP"))
}

fn musl_is_installed() -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = output(Command::new(rustc).args(["--print", "target-libdir", "--target", MUSL]))?;
    Ok(Path::new(libraries.trim()).is_dir())
}

/// Builds both programs and returns the directory that they are in.
fn cargo_build(build: Build, arguments: &[&str], environment: &[(&str, &str)]) -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--package=sealion", "--package=sealion-lab"]).args(arguments);
    command.envs(environment.iter().copied());
    if !build.debug {
        command.arg("--release");
    }
    if build.bare {
        command.arg("--no-default-features");
    }
    ensure!(command.status().context("cannot run cargo")?.success(), "{command:?} failed");
    let mut directory: PathBuf = binaries::metadata()?.target_directory.into();
    if let ["--target", target] = arguments {
        directory.push(target);
    }
    Ok(directory.join(if build.debug { "debug" } else { "release" }))
}
