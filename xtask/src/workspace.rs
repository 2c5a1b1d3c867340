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
    // `cargo run` describes the package xtask by these. ring's build script asks cargo to run it again when they change, so that the server
    // would be compiled again after each change between `cargo xtask` and plain cargo.
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| describes_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo sets a variable for the programs of one package.
fn describes_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_description_of_the_package_is_removed() {
        assert!(["CARGO_PKG_NAME", "CARGO_PKG_VERSION_PRE", "CARGO_MANIFEST_DIR"].into_iter().all(describes_package));
        assert!(!["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "RUSTFLAGS"].into_iter().any(describes_package));
        let removed = |name: &str| cargo().get_envs().any(|(of, value)| of == name && value.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && !removed("CARGO"));
    }
}
