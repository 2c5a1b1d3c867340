//! The repository's root, and cargo.

use std::path::Path;
use std::process::Command;

/// The remedy for the most likely reason that cargo rejects a manifest.
pub(crate) const OLD_LOCK: &str = "if a lock file is old: cargo update --workspace [--manifest-path fuzz/Cargo.toml]";

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies inside the repository")
}

/// The cargo that runs this program, in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
