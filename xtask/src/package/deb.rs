//! Debian packages, made by dpkg-deb(1) from a tree of files. Their content is defined here and in packaging/.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sealion_guest::output;

use super::programs::{Architecture, Programs, strip, strip_with};
use super::{Tree, names, read, run, source};
use crate::workspace;

const CONFIGURATION_FILES: [&str; 2] = ["etc/logrotate.d/sealion", "etc/sealion/sealion.toml"];

/// Makes both packages of this machine's programs in `out`. The same sources make the same bytes.
pub(super) fn build(programs: &Programs, out: &Path) -> Result<Vec<PathBuf>> {
    pack(programs, programs, None, out)
}

/// Makes both packages of programs for another architecture. Those of this machine write the pages, and tell the libraries, which are the
/// same.
pub(super) fn build_for((there, here): &(Programs, Programs), to: Architecture, out: &Path) -> Result<Vec<PathBuf>> {
    pack(there, here, Some(to), out)
}

fn pack(programs: &Programs, here: &Programs, to: Option<Architecture>, out: &Path) -> Result<Vec<PathBuf>> {
    sealion_guest::tools::ensure(&[("dpkg-shlibdeps", "dpkg-dev"), ("strip", "binutils"), ("gzip", "gzip")])?;
    let scratch = tempfile::tempdir()?;

    let root = scratch.path().join("sealion");
    let tree = Tree { root: &root };
    program(&tree, &programs.sealion, "sealion", to)?;
    manual_and_completions(&tree, &here.sealion, scratch.path())?;
    for (from, to) in FILES {
        tree.copy(&source(from), to, 0o644)?;
    }
    documents(&tree, "sealion")?;
    guide(&tree)?;
    tree.write("DEBIAN/conffiles", CONFIGURATION_FILES.map(|file| format!("/{file}\n")).concat(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.copy(&source(&format!("debian/{script}")), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let server = close(&tree, "debian/control", "sealion", &here.sealion, to, out)?;

    let root = scratch.path().join("sealion-lab");
    let tree = Tree { root: &root };
    program(&tree, &programs.lab, "sealion-lab", to)?;
    pages(&tree, &here.lab, &scratch.path().join("lab-pages"))?;
    documents(&tree, "sealion-lab")?;
    let lab = close(&tree, "debian/control.lab", "sealion-lab", &here.lab, to, out)?;
    Ok(vec![server, lab])
}

/// From packaging/ to the package.
const FILES: [(&str, &str); 7] = [
    ("etc/sealion.toml", CONFIGURATION_FILES[1]),
    ("etc/logrotate", CONFIGURATION_FILES[0]),
    ("share/index.html", "usr/share/sealion/html/index.html"),
    ("systemd/sealion.service", "usr/lib/systemd/system/sealion.service"),
    ("systemd/sealion.socket", "usr/lib/systemd/system/sealion.socket"),
    ("systemd/modules-load.conf", "usr/lib/modules-load.d/sealion.conf"),
    ("systemd/sysusers.conf", "usr/lib/sysusers.d/sealion.conf"),
];

fn program(tree: &Tree<'_>, from: &Path, name: &str, to: Option<Architecture>) -> Result<()> {
    let stripped = tempfile::NamedTempFile::new()?;
    match to {
        Some(to) => strip_with(&format!("{}-linux-gnu-strip", to.name()), from, stripped.path())?,
        None => strip(from, stripped.path())?,
    }
    tree.copy(stripped.path(), &format!("usr/bin/{name}"), 0o755)
}

fn manual_and_completions(tree: &Tree<'_>, sealion: &Path, scratch: &Path) -> Result<()> {
    pages(tree, sealion, &scratch.join("pages"))?;
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/sealion"),
        ("zsh", "usr/share/zsh/vendor-completions/_sealion"),
        ("fish", "usr/share/fish/vendor_completions.d/sealion.fish"),
    ] {
        tree.write(to, output(Command::new(sealion).args(["completions", shell]))?, 0o644)?;
    }
    Ok(())
}

/// The manual pages, which the program generates from its own command line.
fn pages(tree: &Tree<'_>, program: &Path, scratch: &Path) -> Result<()> {
    output(Command::new(program).arg("man").arg(scratch))?;
    for page in std::fs::read_dir(scratch)? {
        let page = page?.path();
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        let section = page.extension().unwrap_or_default().to_string_lossy();
        tree.compress(&page, &format!("usr/share/man/man{section}/{name}.gz"))?;
    }
    Ok(())
}

/// The pages of docs/, and the examples.
fn guide(tree: &Tree<'_>) -> Result<()> {
    let directories = [
        ("docs", ""),
        ("docs/guides", "guides/"),
        ("docs/install", "install/"),
        ("docs/pictures", "pictures/"),
        ("examples/config", "examples/config/"),
    ];
    for (from, to) in directories {
        for page in std::fs::read_dir(workspace::root().join(from))? {
            let page = page?.path();
            if page.is_file() {
                let name = page.file_name().unwrap_or_default().to_string_lossy();
                tree.copy(&page, &format!("usr/share/doc/sealion/{to}{name}"), 0o644)?;
            }
        }
    }
    Ok(())
}

fn documents(tree: &Tree<'_>, package: &str) -> Result<()> {
    let mit: String = read(&workspace::root().join("LICENSE-MIT"))?
        .lines()
        .skip(2)
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    let copyright = read(&source("debian/copyright"))?.replace("@MIT@\n", &mit);
    tree.write(&format!("usr/share/doc/{package}/copyright"), copyright, 0o644)?;
    let changelog = read(&source("debian/changelog"))?;
    let named = tempfile::NamedTempFile::new()?;
    std::fs::write(named.path(), changelog)?;
    tree.compress(named.path(), &format!("usr/share/doc/{package}/changelog.gz"))
}

/// Writes the control files and packs the tree.
fn close(
    tree: &Tree<'_>,
    control: &str,
    package: &str,
    here: &Path,
    to: Option<Architecture>,
    out: &Path,
) -> Result<PathBuf> {
    let architecture = match to {
        Some(to) => to.debian().to_owned(),
        None => run("dpkg", &["--print-architecture".as_ref()])?.trim().to_owned(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let changelog = read(&source("debian/changelog"))?;
    let maintainer = changelog
        .lines()
        .find_map(|line| line.strip_prefix(" -- ")?.split_once("  "))
        .context("packaging/debian/changelog names no maintainer: ` -- name <address>  date` ends an entry")?;
    anyhow::ensure!(
        changelog.starts_with(&format!("sealion ({version})")),
        "packaging/debian/changelog has no entry for {version}: add it at the top"
    );
    let size = run("du", &["-sk".as_ref(), "--apparent-size".as_ref(), tree.root.as_os_str()])?;
    let text = read(&source(control))?
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@VERSION@", version)
        .replace("@MAINTAINER@", maintainer.0)
        .replace("@SIZE@", size.split_whitespace().next().unwrap_or("0"))
        .replace("@DEPENDS@", &libraries(here)?);
    tree.write("DEBIAN/control", text, 0o644)?;
    tree.write("DEBIAN/md5sums", checksums(tree.root)?, 0o644)?;
    let deb = out.join(names::deb(package, &architecture));
    let epoch = output(Command::new("date").args(["+%s", "--date", maintainer.1]))?;
    output(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build", "-Zxz", "-z1"])
            .args([tree.root, &deb])
            .env("SOURCE_DATE_EPOCH", epoch.trim()),
    )?;
    Ok(deb)
}

/// The packages, with versions, of the shared libraries that the program loads.
fn libraries(program: &Path) -> Result<String> {
    let scratch = tempfile::tempdir()?;
    std::fs::create_dir(scratch.path().join("debian"))?;
    // dpkg-shlibdeps reads this file; only the names matter.
    std::fs::write(scratch.path().join("debian/control"), "Source: sealion\n\nPackage: sealion\nArchitecture: any\n")?;
    let found = output(Command::new("dpkg-shlibdeps").arg("-O").arg(program).current_dir(scratch.path()))?;
    let depends = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.context("dpkg-shlibdeps names no library")?.to_owned())
}

fn checksums(root: &Path) -> Result<String> {
    let files = output(Command::new("find").args(["etc", "usr", "-type", "f"]).current_dir(root).env("LC_ALL", "C"))
        .or_else(|_| output(Command::new("find").args(["usr", "-type", "f"]).current_dir(root)))?;
    let mut files: Vec<&str> = files.lines().filter(|file| !CONFIGURATION_FILES.contains(file)).collect();
    files.sort_unstable();
    let mut lines = String::new();
    for file in files {
        let sum = output(Command::new("md5sum").arg(root.join(file)))?;
        let sum = sum.split_whitespace().next().context("md5sum prints a sum")?;
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{sum}  {file}");
    }
    Ok(lines)
}
