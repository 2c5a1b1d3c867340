//! Test binaries, built by cargo and found through its messages.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, Metadata, MetadataCommand, Package, TargetKind};

use crate::workspace;

/// Test targets with this prefix run in guests.
const GUEST_PREFIX: &str = "kernel";

/// One executable of tests.
#[derive(Debug, Clone)]
pub(crate) struct TestBinary {
    pub(crate) package: String,
    /// The target's name: the file or directory below tests/, or the crate for its unit tests.
    pub(crate) target: String,
    pub(crate) executable: PathBuf,
    /// The package's directory, where cargo would start the test.
    pub(crate) directory: PathBuf,
}

impl TestBinary {
    pub(crate) fn runs_in_guest(&self) -> bool {
        self.target.starts_with(GUEST_PREFIX)
    }
}

/// Executables of one build: tests, and the programs that tests start by CARGO_BIN_EXE_*.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) tests: Vec<TestBinary>,
    pub(crate) programs: Vec<PathBuf>,
}

/// Which tests to build.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Packages; empty: all.
    pub(crate) packages: Vec<String>,
    /// Integration tests; empty: every target that a plain `cargo test` builds.
    pub(crate) tests: Vec<String>,
    pub(crate) release: bool,
}

impl Selection {
    /// Selects every guest test of the packages: targets below tests/ named kernel…, including those with `test =
    /// false`, which a plain `cargo test` skips.
    pub(crate) fn guest_tests(mut self, metadata: &Metadata) -> Result<Self> {
        let packages = metadata.workspace_packages();
        let wanted =
            |package: &&&Package| self.packages.is_empty() || self.packages.iter().any(|name| package.name == *name);
        self.tests = packages.iter().filter(wanted).flat_map(|package| guest_tests(package)).collect();
        ensure!(!self.tests.is_empty(), "no guest test: one is a target tests/{GUEST_PREFIX}…");
        Ok(self)
    }

    /// Builds, with cargo's progress on stderr.
    pub(crate) fn build(&self) -> Result<Built> {
        let mut command = workspace::cargo();
        command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
        if self.packages.is_empty() {
            command.arg("--workspace");
        }
        for package in &self.packages {
            command.args(["--package", package]);
        }
        for test in &self.tests {
            command.args(["--test", test]);
        }
        if self.release {
            command.arg("--release");
        }
        let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
        let stdout = cargo.stdout.take().expect("stdout is piped");
        let mut built = Built::default();
        for message in Message::parse_stream(BufReader::new(stdout)) {
            let Message::CompilerArtifact(artifact) = message.context("cannot read cargo's messages")? else {
                continue;
            };
            let Some(executable) = artifact.executable else {
                continue;
            };
            if artifact.profile.test {
                let directory = artifact.manifest_path.parent().context("a manifest at /")?;
                built.tests.push(TestBinary {
                    package: directory.file_name().unwrap_or_default().to_owned(),
                    target: artifact.target.name,
                    executable: executable.into(),
                    directory: directory.into(),
                });
            } else if artifact.target.kind.contains(&TargetKind::Bin) {
                built.programs.push(executable.into());
            }
        }
        let status = cargo.wait().context("lost cargo")?;
        if !status.success() {
            bail!("the tests do not build");
        }
        Ok(built)
    }
}

/// Builds the program of a package without optimisation, with the features of that package alone. Returns its path.
pub(crate) fn build_debug(package: &str) -> Result<PathBuf> {
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--package", package]);
    ensure!(build.status().context("cannot run cargo")?.success(), "{build:?} failed");
    Ok(metadata()?.target_directory.join("debug").join(package).into())
}

/// The workspace as cargo sees it, target directory included.
pub(crate) fn metadata() -> Result<Metadata> {
    MetadataCommand::new().current_dir(workspace::root()).no_deps().exec().context("cargo metadata failed")
}

fn guest_tests(package: &Package) -> Vec<String> {
    package
        .targets
        .iter()
        .filter(|target| target.is_test() && target.name.starts_with(GUEST_PREFIX))
        .map(|target| target.name.clone())
        .collect()
}
