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

/// The file with the allowed licences, which cargo-deny reads too.
const LIST: &str = "deny.toml";

impl Licences {
    /// Prints the dependencies whose licences are not allowed; true if all are allowed.
    pub(crate) fn run(self) -> Result<bool> {
        let list =
            std::fs::read_to_string(workspace::root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
        let allowed = allowed(&list)?;
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
                if let Some(offence) = offence(package, &allowed) {
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

/// The licences that a configuration of cargo-deny allows.
///
/// # Errors
/// It has no such list, or SPDX has no licence of a name in it.
fn allowed(list: &str) -> Result<Vec<String>> {
    let table: toml::Table = list.parse().with_context(|| format!("{LIST} is no TOML"))?;
    let names = table.get("licenses").and_then(|licences| licences.get("allow")).and_then(toml::Value::as_array);
    let names = names.with_context(|| format!("{LIST} has no list licenses.allow"))?;
    let known = |name: &toml::Value| {
        let name = name.as_str().filter(|name| spdx::license_id(name).is_some());
        name.map(str::to_owned).with_context(|| format!("{LIST} allows a licence that SPDX does not know"))
    };
    names.iter().map(known).collect()
}

fn offence(package: &Package, allowed: &[String]) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    match &package.license {
        None => Some(format!("{name} names no licence")),
        Some(licence) => match is_allowed(licence, allowed) {
            Ok(true) => None,
            Ok(false) => Some(format!("{name} is under {licence}")),
            Err(error) => Some(format!("{name}: {licence} is no SPDX expression: {error}")),
        },
    }
}

fn is_allowed(licence: &str, allowed: &[String]) -> Result<bool, spdx::ParseError> {
    // Old crates write `MIT/Apache-2.0` instead of `OR`.
    let expression = Expression::parse_mode(licence, ParseMode::LAX)?;
    Ok(expression
        .evaluate(|requirement| requirement.license.id().is_some_and(|id| allowed.iter().any(|name| name == id.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed_here(licence: &str) -> Result<bool, spdx::ParseError> {
        is_allowed(licence, &allowed(include_str!("../../deny.toml")).unwrap())
    }

    #[test]
    fn one_allowed_alternative_suffices() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "ISC AND (Apache-2.0 OR ISC) AND OpenSSL",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed_here(licence).unwrap(), "{licence}");
        }
    }

    #[test]
    fn every_part_must_be_allowed() {
        for licence in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "LicenseRef-Ours"] {
            assert!(!is_allowed_here(licence).unwrap(), "{licence}");
        }
        assert!(is_allowed_here("all rights reserved").is_err());
    }

    #[test]
    fn the_list_names_licences_of_spdx() {
        assert_eq!(allowed("[licenses]\nallow = [\"MIT\", \"ISC\"]").unwrap(), ["MIT", "ISC"]);
        for wrong in ["[licenses]\nallow = [\"MIT\", \"Ours\"]", "[licenses]\nallow = \"MIT\"", "[bans]", "licenses"] {
            assert!(allowed(wrong).is_err(), "{wrong}");
        }
    }
}
