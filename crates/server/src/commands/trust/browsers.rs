//! Browsers' certificate stores, which are NSS databases: one for Chromium and its relatives, one per Firefox profile.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Outcome, Root, execute, find};
use crate::certificates::private_file;

/// Databases of Chromium, below the home directory. If none exists, the first is created.
const CHROMIUM: [&str; 3] = [".pki/nssdb", ".local/share/pki/nssdb", "snap/chromium/current/.pki/nssdb"];

/// Directories of Firefox, below the home directory. Each subdirectory is a profile.
const FIREFOX: [&str; 4] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];

/// Programs whose database is created before their first start.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "brave-browser"];

pub(super) fn add(root: &Root) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(home) = home() else { return outcome };
    let databases = databases(&home);
    let lacks_chromium = !CHROMIUM.iter().any(|name| is_database(&home.join(name)));
    let makes = lacks_chromium && PROGRAMS.iter().any(|program| find(program).is_some());
    if databases.is_empty() && !makes {
        return outcome;
    }
    let Some(certutil) = find("certutil") else {
        outcome.failed.push(
            "browsers have stores of their own, and certutil is not here: install libnss3-tools (Fedora, Alpine: nss-tools; Arch: nss), and run this again".to_owned(),
        );
        return outcome;
    };
    let made = makes.then(|| home.join(CHROMIUM[0]));
    if let Some(database) = &made {
        let created = private_file::directory(database).map_err(|error| error.to_string()).and_then(|_| {
            execute(&certutil, &["-N".as_ref(), "--empty-password".as_ref(), "-d".as_ref(), &argument(database)])
        });
        if let Err(error) = created {
            outcome.failed.push(format!("{}: {error}", database.display()));
            return outcome;
        }
    }
    for database in databases.iter().chain(&made) {
        let name = OsStr::new(&root.name);
        // C: an authority for servers only.
        let added = execute(
            &certutil,
            &[
                "-A".as_ref(),
                "-d".as_ref(),
                &argument(database),
                "-n".as_ref(),
                name,
                "-t".as_ref(),
                "C,,".as_ref(),
                "-i".as_ref(),
                root.file.as_os_str(),
            ],
        );
        outcome.add(format!("trusted by the browser of {}", database.display()), added);
    }
    outcome
}

pub(super) fn remove(root: &Root) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(home) = home() else { return outcome };
    let Some(certutil) = find("certutil") else {
        if !databases(&home).is_empty() {
            outcome.failed.push("browsers may trust the root, and certutil is not here: install libnss3-tools (Fedora, Alpine: nss-tools; Arch: nss), and run this again".to_owned());
        }
        return outcome;
    };
    for database in databases(&home) {
        let name = OsStr::new(&root.name);
        let has = execute(&certutil, &["-L".as_ref(), "-d".as_ref(), &argument(&database), "-n".as_ref(), name]);
        if has.is_ok() {
            let removed =
                execute(&certutil, &["-D".as_ref(), "-d".as_ref(), &argument(&database), "-n".as_ref(), name]);
            outcome.add(format!("no longer trusted by the browser of {}", database.display()), removed);
        }
    }
    outcome
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// The existing databases.
fn databases(home: &Path) -> Vec<PathBuf> {
    let profiles = FIREFOX.iter().filter_map(|name| fs::read_dir(home.join(name)).ok()).flatten();
    let profiles = profiles.filter_map(|entry| Some(entry.ok()?.path()));
    let all = CHROMIUM.iter().map(|name| home.join(name)).chain(profiles);
    all.filter(|directory| is_database(directory)).collect()
}

fn is_database(directory: &Path) -> bool {
    directory.join("cert9.db").is_file()
}

/// The directory as `certutil -d` takes it.
fn argument(database: &Path) -> OsString {
    let mut argument = OsString::from("sql:");
    argument.push(database);
    argument
}
