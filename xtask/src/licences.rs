//! Checks that every dependency's licence allows us to ship it.

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, Package};
use clap::Args;
use spdx::{Expression, ParseMode};

use crate::workspace;

/// Check that every dependency's licence can be satisfied by the list of allowed ones
///
/// Reads `cargo metadata` alone and needs no network once the dependencies are downloaded. It does not look for
/// security advisories: their database must be fetched for that, and this check runs offline too.
#[derive(Args)]
pub(crate) struct Licences {}

/// Licences that let a binary be distributed under Apache-2.0 OR MIT with notices alone (SPDX names).
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

impl Licences {
    /// Prints the dependencies whose licences are not allowed. True if there are no such dependencies.
    pub(crate) fn run(self) -> Result<bool> {
        let mut checked = 0;
        let mut offenders = Vec::new();
        for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
            let metadata = MetadataCommand::new()
                .manifest_path(workspace::root().join(manifest))
                // We ship for Linux only; dependencies of other platforms are never distributed.
                .other_options(["--locked".to_owned(), "--filter-platform=x86_64-unknown-linux-gnu".to_owned()])
                .exec()
                .context(workspace::OLD_LOCK)
                .with_context(|| format!("cannot read the dependencies of {manifest}"))?;
            for package in &metadata.packages {
                checked += 1;
                if let Some(offence) = offence(package) {
                    offenders.push(offence);
                }
            }
        }
        for offence in &offenders {
            println!("licences: {offence}");
        }
        println!("licences: {checked} packages checked, {} not allowed", offenders.len());
        Ok(offenders.is_empty())
    }
}

fn offence(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    match &package.license {
        None => Some(format!("{name} names no licence")),
        Some(licence) => match is_allowed(licence) {
            Ok(true) => None,
            Ok(false) => Some(format!("{name} is under {licence}")),
            Err(error) => Some(format!("{name}: {licence} is no SPDX expression: {error}")),
        },
    }
}

fn is_allowed(licence: &str) -> Result<bool, spdx::ParseError> {
    // Old crates write `MIT/Apache-2.0` instead of `OR`.
    let expression = Expression::parse_mode(licence, ParseMode::LAX)?;
    Ok(expression.evaluate(|requirement| requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_alternative_suffices() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "ISC AND (Apache-2.0 OR ISC) AND OpenSSL",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(licence).unwrap(), "{licence}");
        }
    }

    #[test]
    fn every_part_must_be_allowed() {
        for licence in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "LicenseRef-Ours"] {
            assert!(!is_allowed(licence).unwrap(), "{licence}");
        }
        assert!(is_allowed("all rights reserved").is_err());
    }

    #[test]
    fn every_allowed_name_is_known_to_spdx() {
        for name in ALLOWED {
            assert!(spdx::license_id(name).is_some(), "{name}");
        }
    }
}
