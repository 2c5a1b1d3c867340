//! Packages of the server: Debian packages, static binaries, a build context for container images.

mod check;
mod container;
mod deb;
mod names;
mod programs;
mod release;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use sealion_guest::output;

use crate::{binaries, workspace};
use programs::{Build, Programs};

pub(crate) use check::check;
pub(crate) use release::Release;

/// Make packages from this tree; see packaging/README.md
#[derive(Args)]
pub(crate) struct Package {
    #[command(subcommand)]
    what: What,
    /// Output directory [default: target/package]
    #[arg(long, value_name = "DIRECTORY", global = true)]
    out: Option<PathBuf>,
    /// Build without optimisation, to try packaging out
    #[arg(long, global = true)]
    debug: bool,
}

#[derive(Subcommand)]
enum What {
    /// Debian packages: sealion, and sealion-lab
    Deb,
    /// Static binaries for any Linux of this architecture
    Static {
        /// Link glibc statically if the musl target is not installed; host names are then resolved without NSS plug-ins
        #[arg(long)]
        glibc: bool,
        /// Leave out the parts of the server that are Cargo features: ACME, `import-nginx`, the live view of `top`
        #[arg(long)]
        bare: bool,
    },
    /// The build context of the container images and compose.yaml
    Container {
        /// Leave out the parts of the server that are Cargo features: ACME, `import-nginx`, the live view of `top`
        #[arg(long)]
        bare: bool,
    },
    /// Check units, packages, manifests, alert rules and the dashboard
    Check,
}

impl Package {
    pub(crate) fn run(self) -> Result<()> {
        let out = match self.out {
            Some(out) => std::path::absolute(out)?,
            None => binaries::metadata()?.target_directory.join("package").into(),
        };
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        match self.what {
            What::Deb => {
                for package in deb::build(&Programs::build(self.debug)?, &out)? {
                    println!("{}", package.display());
                }
            }
            What::Static { glibc, bare } => {
                for program in programs::build_static(glibc, Build { debug: self.debug, bare }, &out)? {
                    println!("{}", program.display());
                }
            }
            What::Container { bare } => {
                println!("{}", container::context(Build { debug: self.debug, bare }, &out)?.display());
            }
            What::Check => {
                check::check()?;
                check::kubernetes()?;
                check::prometheus()?;
            }
        }
        Ok(())
    }
}

/// A file of packaging/.
fn source(name: &str) -> PathBuf {
    workspace::root().join("packaging").join(name)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A tree of files with fixed modes, whatever this user's umask.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.write(to, bytes, mode)
    }

    fn write(&self, to: &str, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.root.join(to);
        let directory = path.parent().expect("a file lies in a directory");
        std::fs::create_dir_all(directory)?;
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
        for directory in directory.ancestors().take_while(|d| d.starts_with(self.root)) {
            std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Compresses as gzip -9n does: the same text makes the same bytes.
    fn compress(&self, text: &Path, to: &str) -> Result<()> {
        let compressed = std::process::Command::new("gzip")
            .args(["-9", "--no-name", "--stdout"])
            .arg(text)
            .output()
            .context("cannot run gzip")?;
        anyhow::ensure!(compressed.status.success(), "gzip {} failed", text.display());
        self.write(to, compressed.stdout, 0o644)
    }
}

/// Runs a program of this machine and returns its output.
fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<String> {
    output(std::process::Command::new(program).args(arguments))
}
