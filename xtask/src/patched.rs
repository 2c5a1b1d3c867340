//! The tests of the dependencies in third_party/, which have a patch.

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Directories in third_party/.
const PATCHED: [&str; 1] = ["quinn-proto"];

/// Runs the tests of each, which are the tests of its release and of its patch.
///
/// # Errors
/// One of them does not build, or fails.
pub(crate) fn test() -> Result<()> {
    for name in PATCHED {
        let manifest = workspace::root().join("third_party").join(name).join("Cargo.toml");
        let mut cargo = workspace::cargo();
        cargo.args(["test", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
        cargo.arg("--target-dir").arg(workspace::root().join("target/third_party"));
        ensure!(cargo.status().context("cannot run cargo")?.success(), "{cargo:?} failed");
    }
    Ok(())
}
