//! The published crates: their recorded interfaces, and the files in their packages.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::output;

use crate::{binaries, workspace};

/// Package, directory, and the crates whose types may be in its interface.
const LIBRARIES: [(&str, &str, &[&str]); 2] = [
    (
        "sealion-ktls",
        "crates/ktls",
        &["alloc", "core", "std", "rustls", "rustls_pki_types", "tokio", "zeroize", "sealion_ktls"],
    ),
    ("sealion-tls", "crates/tls", &["alloc", "core", "std", "rustls", "tokio", "sealion_ktls", "sealion_tls"]),
];

/// Files of a package besides its sources.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Compares each library's interface with its list, public-api.txt.
///
/// The list comes from rustdoc's JSON; a stable compiler writes that with RUSTC_BOOTSTRAP=1. `SEALION_UPDATE=1` updates the list.
///
/// # Errors
/// The interface differs from the list, or has a type of a dependency that it does not promise.
pub(crate) fn interface() -> Result<()> {
    let json = write_json()?;
    for (package, directory, crates) in LIBRARIES {
        let (found, foreign) = list(&json, package, crates)?;
        ensure!(foreign.is_empty(), "{package} has types of other crates in its interface:\n{}", foreign.join("\n"));
        let page = workspace::root().join(directory).join("public-api.txt");
        if std::env::var_os("SEALION_UPDATE").is_some() {
            std::fs::write(&page, &found)?;
        }
        let listed = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        if let Some(difference) = difference(&listed, &found) {
            bail!(
                "the interface of {package} is not that of {directory}/public-api.txt:\n{difference}\n\
                 A line that goes or changes breaks callers and raises the second number of the version. When that is meant: \
                 SEALION_UPDATE=1 cargo xtask test --only libraries, and a line in {directory}/CHANGELOG.md"
            );
        }
    }
    Ok(())
}

/// Has rustdoc write the libraries as JSON. Returns the directory of the files.
///
/// Build scripts look at RUSTC_BOOTSTRAP, and cargo runs them again when it changes. Only rustdoc sees it here, so that the dependencies are
/// those that the lints and the documentation have compiled.
fn write_json() -> Result<PathBuf> {
    let target = PathBuf::from(binaries::metadata()?.target_directory);
    let rustdoc = target.join("rustdoc-with-json");
    std::fs::write(&rustdoc, RUSTDOC).with_context(|| format!("cannot write {}", rustdoc.display()))?;
    std::fs::set_permissions(&rustdoc, std::fs::Permissions::from_mode(0o755))?;
    let mut cargo = workspace::cargo();
    cargo
        .args(["doc", "--quiet", "--locked", "--lib", "--no-deps", "--all-features"])
        .args(LIBRARIES.iter().flat_map(|(package, ..)| ["--package", package]))
        .env("RUSTDOC", &rustdoc)
        .env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json --cap-lints=allow");
    ensure!(cargo.status().context("cannot run cargo")?.success(), "{cargo:?} failed");
    Ok(target.join("doc"))
}

const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// The items of the interface, and those among them that name a type of a crate that is not promised. `json`: rustdoc's directory.
fn list(json: &Path, package: &str, crates: &[&str]) -> Result<(String, Vec<String>)> {
    let json = json.join(package.replace('-', "_")).with_extension("json");
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .with_context(|| format!("cannot read {}: another version of rustc than public-api is for", json.display()))?;
    let items: Vec<String> = api.items().map(ToString::to_string).filter(|item| !item.contains("::fuzzing")).collect();
    let foreign =
        items.iter().filter(|item| first_segments(item).any(|name| !crates.contains(&name))).cloned().collect();
    Ok((items.join("\n") + "\n", foreign))
}

/// The crates that paths in a line of Rust begin with.
fn first_segments(item: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    item.split(move |c: char| !is_word(c))
        .filter_map(|path| path.split_once("::"))
        .map(|(first, _)| first)
        .filter(|first| first.starts_with(|c: char| c.is_lowercase()) && *first != "self")
}

/// The lines that only one of two lists has.
fn difference(listed: &str, found: &str) -> Option<String> {
    let only = |here: &str, there: &str, sign: char| -> Vec<String> {
        let there: std::collections::HashSet<&str> = there.lines().collect();
        here.lines().filter(|line| !there.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let lines = [only(listed, found, '-'), only(found, listed, '+')].concat();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Packs both libraries as `cargo publish` would, compiles the first from its package, and looks into them.
///
/// # Errors
/// cargo's, or a file that is missing.
pub(crate) fn package() -> Result<()> {
    let target = workspace::root().join("target/libraries");
    // The second is not compiled: its cryptography takes minutes without the workspace's builds. The lints have compiled it.
    for (packages, verify) in [(&LIBRARIES[..1], true), (&LIBRARIES[..], false)] {
        let mut cargo = workspace::cargo();
        cargo.args(["publish", "--dry-run", "--quiet", "--locked", "--allow-dirty", "--target-dir"]).arg(&target);
        cargo.args(packages.iter().flat_map(|(package, ..)| ["--package", package]));
        if !verify {
            cargo.arg("--no-verify");
        }
        ensure!(cargo.status().context("cannot run cargo")?.success(), "{cargo:?} failed");
    }
    for (package, ..) in LIBRARIES {
        let files = listing(package)?;
        for file in FILES {
            ensure!(files.lines().any(|line| line == file), "the package of {package} has no {file}");
        }
    }
    Ok(())
}

fn listing(package: &str) -> Result<String> {
    output(workspace::cargo().args(["package", "--list", "--allow-dirty", "--package", package]))
}

/// The packed libraries, for a release.
pub(crate) fn pack(out: &Path) -> Result<Vec<PathBuf>> {
    let target = workspace::root().join("target/libraries");
    let mut cargo = workspace::cargo();
    cargo.args(["package", "--quiet", "--locked", "--allow-dirty", "--no-verify", "--target-dir"]).arg(&target);
    cargo.args(LIBRARIES.iter().flat_map(|(package, ..)| ["--package", package]));
    ensure!(cargo.status().context("cannot run cargo")?.success(), "{cargo:?} failed");
    let mut packed = Vec::new();
    for (package, ..) in LIBRARIES {
        let name = format!("{package}-{}.crate", env!("CARGO_PKG_VERSION"));
        std::fs::copy(target.join("package").join(&name), out.join(&name)).with_context(|| format!("no {name}"))?;
        packed.push(out.join(name));
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_in_a_line_are_found() {
        let line = "pub fn a::b::c(&self, x: &mut rustix::io::Errno) -> core::result::Result<a::D, ()>";
        assert_eq!(first_segments(line).collect::<Vec<_>>(), ["a", "rustix", "core", "a"]);
        assert_eq!(first_segments("pub const fn f(self) -> Self::Data where Iv: T::U").count(), 0);
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").as_deref(), Some("- b\n+ c"));
    }
}
