//! The programs that packages hold.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::output;

use crate::{binaries, workspace};

/// An architecture that packages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// The one that packages are made on.
    X86_64,
    /// By a cross build.
    Aarch64,
}

impl Architecture {
    /// As Rust and the kernel call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As Debian and container registries call it.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target with a C library that can be linked statically.
    fn musl(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }

    /// The compiler for it, of C and as the linker, and Debian's package of that.
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("x86_64-linux-gnu-gcc", "gcc"),
            Self::Aarch64 => ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
        }
    }
}

const NO_ENVIRONMENT: &[(&str, &str)] = &[];
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
        let directory = cargo_build(Build { debug, bare: false }, &[], NO_ENVIRONMENT)?;
        Ok(Self { sealion: directory.join("sealion"), lab: directory.join("sealion-lab") })
    }

    /// Builds for another architecture, dynamically linked. The programs for this machine are needed too: they write the pages.
    pub(super) fn build_for(architecture: Architecture, build: Build) -> Result<(Self, Self)> {
        let target = format!("{}-unknown-linux-gnu", architecture.name());
        demand(&target)?;
        let (compiler, package) = architecture.compiler();
        sealion_guest::tools::ensure(&[(compiler, package)])?;
        let directory = cargo_build(build, &["--target", &target], &cross(&target, compiler))?;
        let there = Self { sealion: directory.join("sealion"), lab: directory.join("sealion-lab") };
        Ok((there, Self::build(build.debug)?))
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
    let musl = Architecture::X86_64.musl();
    let directory = if is_installed(&musl)? {
        return build_static_for(Architecture::X86_64, build, out);
    } else if glibc {
        // Without --target the flags would also apply to build scripts and macros, which cannot be static.
        cargo_build(build, &["--target", GLIBC], &[("RUSTFLAGS", "-C target-feature=+crt-static")])?
    } else {
        bail!(
            "the target {musl} is not installed: rustup target add {musl}, or link glibc statically with --glibc, \
             which resolves names of hosts without NSS plug-ins"
        );
    };
    copy_static(&directory, "strip", out)
}

/// As [`build_static`] with musl, for either architecture.
pub(super) fn build_static_for(architecture: Architecture, build: Build, out: &Path) -> Result<Vec<PathBuf>> {
    let target = architecture.musl();
    demand(&target)?;
    if architecture == Architecture::X86_64 {
        sealion_guest::tools::ensure(&[("musl-gcc", "musl-tools")])?;
        let directory = cargo_build(build, &["--target", &target], NO_ENVIRONMENT)?;
        return copy_static(&directory, "strip", out);
    }
    // Debian's compiler is glibc's: it gets musl's headers, and rustc links with its own copy of musl.
    let (compiler, package) = architecture.compiler();
    sealion_guest::tools::ensure(&[(compiler, package)])?;
    let musl = sealion_guest::tools::musl_headers_for_arm64()?;
    let own = output(Command::new(compiler).arg("-print-file-name=include"))?;
    let headers = format!("-nostdinc -isystem {} -isystem {}", musl.display(), own.trim());
    let mut environment = cross(&target, compiler).to_vec();
    environment.push((format!("CFLAGS_{}", target.replace('-', "_")), headers));
    let directory = cargo_build(build, &["--target", &target], &environment)?;
    copy_static(&directory, &format!("{}-linux-gnu-strip", architecture.name()), out)
}

/// Strips both programs into `out`.
fn copy_static(directory: &Path, strip: &str, out: &Path) -> Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    for name in ["sealion", "sealion-lab"] {
        let program = out.join(name);
        strip_with(strip, &directory.join(name), &program)?;
        ensure!(is_static(&program)?, "{} still asks for a dynamic linker", program.display());
        programs.push(program);
    }
    Ok(programs)
}

/// Copies a program without its debug symbols.
pub(super) fn strip(from: &Path, to: &Path) -> Result<()> {
    strip_with("strip", from, to)
}

/// The same by another architecture's binutils.
pub(super) fn strip_with(strip: &str, from: &Path, to: &Path) -> Result<()> {
    output(Command::new(strip).args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(to).arg(from))
        .map(drop)
}

/// Whether it is statically linked: it has no PT_INTERP (elf(5)).
fn is_static(program: &Path) -> Result<bool> {
    Ok(!output(Command::new("readelf").arg("--program-headers").arg(program))?.contains("INTERP"))
}

/// # Errors
/// The standard library for `target` is not installed.
fn demand(target: &str) -> Result<()> {
    ensure!(is_installed(target)?, "the target {target} is not installed: rustup target add {target}");
    Ok(())
}

/// The compiler of C and linker for a target, as cargo and the crate cc are told.
fn cross(target: &str, compiler: &str) -> [(String, String); 2] {
    let name = target.replace('-', "_");
    [
        (format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), compiler.to_owned()),
        (format!("CC_{name}"), compiler.to_owned()),
    ]
}

fn is_installed(target: &str) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = output(Command::new(rustc).args(["--print", "target-libdir", "--target", target]))?;
    Ok(Path::new(libraries.trim()).is_dir())
}

/// Builds both programs and returns the directory that they are in.
fn cargo_build<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    build: Build,
    arguments: &[&str],
    environment: &[(K, V)],
) -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--package=sealion", "--package=sealion-lab"]).args(arguments);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
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
