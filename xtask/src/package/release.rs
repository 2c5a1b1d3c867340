//! The parts of a release, in one directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use sealion_guest::output;

use super::programs::{Architecture, Build, Programs};
use super::{container, deb, names, programs, run};
use crate::{binaries, libraries, workspace};

/// Make everything that a release consists of; see docs/release.md
///
/// Parts that this machine cannot make are named at the end, each with the remedy, and the exit code is 1.
#[derive(Args)]
pub(crate) struct Release {
    /// Output directory [default: target/release-VERSION]
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Only these parts; checksums are always made
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Build without optimisation, to try releasing out
    #[arg(long)]
    debug: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The libraries, as `cargo publish` sends them
    Crates,
    /// Debian packages for x86-64
    DebAmd64,
    /// Debian packages for 64-bit ARM, by a cross build
    DebArm64,
    /// Static programs for x86-64
    StaticAmd64,
    /// Static programs for 64-bit ARM, by a cross build
    StaticArm64,
    /// Container image for x86-64, an OCI archive
    ImageAmd64,
    /// Container image for 64-bit ARM, an OCI archive
    ImageArm64,
    /// Software bills of materials of both programs, CycloneDX
    Sbom,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Release {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let out = match self.out {
            Some(out) => std::path::absolute(out)?,
            None => binaries::metadata()?.target_directory.join(format!("release-{VERSION}")).into(),
        };
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        changelogs_are_current()?;
        let parts = if self.only.is_empty() { Part::value_variants() } else { &self.only };
        let mut missing = Vec::new();
        for &part in parts {
            match part.make(&out, Build { debug: self.debug, bare: false }) {
                Ok(made) => made.iter().for_each(|path| println!("{}", path.display())),
                Err(error) => missing.push(format!("{part:?}: {error:#}")),
            }
        }
        println!("{}", checksums(&out)?.display());
        for part in &missing {
            eprintln!("missing: {part}");
        }
        Ok(crate::code(missing.is_empty()))
    }
}

impl Part {
    fn make(self, out: &Path, build: Build) -> Result<Vec<PathBuf>> {
        let (amd64, arm64) = (Architecture::X86_64, Architecture::Aarch64);
        match self {
            Self::Crates => libraries::pack(out),
            Self::DebAmd64 => deb::build(&Programs::build(build.debug)?, out),
            Self::DebArm64 => deb::build_for(&Programs::build_for(arm64, build)?, arm64, out),
            Self::StaticAmd64 => archive(amd64, build, out),
            Self::StaticArm64 => archive(arm64, build, out),
            Self::ImageAmd64 => image(amd64, build, out),
            Self::ImageArm64 => image(arm64, build, out),
            Self::Sbom => bill_of_materials(out),
        }
    }
}

/// Each changelog begins with this version.
fn changelogs_are_current() -> Result<()> {
    for (page, line) in [
        ("CHANGELOG.md", format!("## {VERSION}")),
        ("crates/ktls/CHANGELOG.md", format!("## {VERSION}")),
        ("crates/tls/CHANGELOG.md", format!("## {VERSION}")),
        ("packaging/debian/changelog", format!("sealion ({VERSION})")),
    ] {
        let text = super::read(&workspace::root().join(page))?;
        let first = text.lines().find(|line| line.starts_with("## ") || line.starts_with("sealion ("));
        ensure!(
            first.is_some_and(|first| first.starts_with(&line)),
            "{page} does not begin with {VERSION}: add its entry"
        );
    }
    Ok(())
}

/// Both static programs with their licences, as sealion-VERSION-ARCHITECTURE-linux.tar.gz.
fn archive(architecture: Architecture, build: Build, out: &Path) -> Result<Vec<PathBuf>> {
    let scratch = tempfile::tempdir()?;
    let name = names::tree(architecture);
    let tree = scratch.path().join(&name);
    std::fs::create_dir(&tree)?;
    programs::build_static_for(architecture, build, &tree)?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        std::fs::copy(workspace::root().join(file), tree.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    let archive = out.join(names::archive(architecture));
    // The same tree gives the same bytes.
    run(
        "tar",
        &[
            "--create".as_ref(),
            "--sort=name".as_ref(),
            "--owner=0".as_ref(),
            "--group=0".as_ref(),
            "--numeric-owner".as_ref(),
            "--mtime=@0".as_ref(),
            "--use-compress-program=gzip -9n".as_ref(),
            "--file".as_ref(),
            archive.as_os_str(),
            "--directory".as_ref(),
            scratch.path().as_os_str(),
            OsStr::new(&name),
        ],
    )?;
    Ok(vec![archive])
}

/// The image of the server, as podman saves it.
fn image(architecture: Architecture, build: Build, out: &Path) -> Result<Vec<PathBuf>> {
    run("podman", &["--version".as_ref()]).context("podman makes the images: apt-get install podman")?;
    let scratch = tempfile::tempdir()?;
    let context = container::context_for(architecture, build, scratch.path())?;
    let tag = format!("localhost/sealion:{VERSION}-{}", architecture.debian());
    let platform = format!("linux/{}", architecture.debian());
    let revision = output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(workspace::root()))?;
    let mut build = Command::new("podman");
    build.args(["build", "--quiet", "--platform", &platform, "--tag", &tag]);
    build.args(["--build-arg", &format!("VERSION={VERSION}"), "--build-arg", &format!("REVISION={}", revision.trim())]);
    output(build.arg(&context))?;
    let archive = out.join(names::image(architecture));
    let _ = std::fs::remove_file(&archive);
    output(Command::new("podman").args(["save", "--format", "oci-archive", "--output"]).arg(&archive).arg(&tag))?;
    Ok(vec![archive])
}

/// CycloneDX files of both programs, by cargo-cyclonedx.
fn bill_of_materials(out: &Path) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for (package, directory) in [("sealion", "crates/server"), ("sealion-lab", "crates/lab")] {
        let manifest = workspace::root().join(directory).join("Cargo.toml");
        let mut cargo = workspace::cargo();
        cargo.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--override-filename", "release.cdx"]);
        cargo.arg("--manifest-path").arg(&manifest);
        output(&mut cargo).context("cargo-cyclonedx is needed: cargo install cargo-cyclonedx --locked")?;
        // It writes one beside the manifest of each member of the workspace.
        let to = out.join(names::bill(package));
        std::fs::copy(workspace::root().join(directory).join("release.cdx.json"), &to)
            .with_context(|| format!("cargo-cyclonedx wrote no bill for {package}"))?;
        made.push(to);
    }
    for member in binaries::metadata()?.workspace_packages() {
        let stray = member.manifest_path.with_file_name("release.cdx.json");
        let _ = std::fs::remove_file(stray);
    }
    Ok(made)
}

/// SHA256SUMS of all files in the directory, for `sha256sum --check`.
fn checksums(out: &Path) -> Result<PathBuf> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(out)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "SHA256SUMS" {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let sums = if names.is_empty() {
        String::new()
    } else {
        output(Command::new("sha256sum").arg("--").args(&names).current_dir(out))?
    };
    let file = out.join("SHA256SUMS");
    std::fs::write(&file, sums)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason to refuse a release is found before one is made.
    #[test]
    fn changelogs_begin_with_this_version() {
        changelogs_are_current().unwrap();
    }

    #[test]
    fn checksums_name_every_file_but_their_own() {
        let out = tempfile::tempdir().unwrap();
        std::fs::write(out.path().join("b"), "b").unwrap();
        std::fs::write(out.path().join("a"), "").unwrap();
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let first = text(checksums(out.path()).unwrap());
        assert_eq!(first, text(checksums(out.path()).unwrap()), "a second run does not sum the sums");
        let names: Vec<&str> = first.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(first.starts_with("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "of nothing");
    }
}
