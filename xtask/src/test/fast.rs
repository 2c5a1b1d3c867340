//! `cargo xtask test --fast`: the checks that a machine with a compiler can run, within minutes.
//!
//! Tests see only the programs of [`PROGRAMS`], no download, and no root: one that needs more fails, on every machine,
//! until [`NEEDS`] lists it. The full run knows nothing of that list and runs every test.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use sealion_guest::output;

use super::report::Report;
use super::steps;
use crate::binaries::{self, Built, Selection, TestBinary};
use crate::{book, pages};

/// Tests of `crates/*/tests/it` that need more than [`PROGRAMS`], behind what they need. A name begins with the crate; a module has `::` at the
/// end.
const NEEDS: &[(&str, &[&str])] = &[
    (
        "root",
        &[
            "server::privileges::a_cache_that_holds_files_of_others_is_refused_and_stays_with_its_owner",
            "server::privileges::root_becomes_a_user_and_cannot_come_back",
            "server::privileges::the_group_is_assumed_by_a_process_that_has_the_user_already",
            "server::trust::the_authority_can_vouch_for_this_machine_alone",
            "server::trust::what_is_trusted_needs_no_option_of_curl_until_it_is_removed",
            "server::upgrade::a_server_without_proc_serves",
        ],
    ),
    (
        "root and mount",
        &[
            "server::access_log::a_full_disk_loses_lines_and_nothing_else",
            "server::cache::disk::a_file_system_without_a_bound_on_inodes_is_used",
            "server::cache::disk::a_file_system_without_inodes_costs_hits_until_it_has_some",
            "server::cache::disk::a_full_disk_has_responses_pass_whole_and_says_so",
            "server::cache::disk::a_full_file_system_costs_hits_until_it_has_room",
            "server::cache::disk::nothing_is_stored_where_the_file_system_has_less_room_than_is_to_stay_free",
            "server::cache::disk::what_lies_beneath_an_unmounted_disk_is_not_filled_and_the_disk_is_used_again",
            "server::cache::room::",
            "server::cache::trouble::a_disk_in_trouble_costs_hits_until_it_is_mended_and_no_start",
            "server::cache::trouble::a_disk_that_hangs_costs_hits_alone_and_gives_back_nothing_that_was_purged",
            "server::proxy::buffers::a_full_disk_is_said_once_and_the_answer_arrives_whole",
        ],
    ),
    (
        "root and iproute2",
        &[
            "server::faults::connections_whose_peers_have_vanished_end_by_themselves",
            "server::limits::the_bandwidth_of_a_connection_is_what_tcp_is_told",
            "server::orders::a_program_that_takes_the_name_of_a_server_gets_no_order_and_hinders_none",
            "server::session_tickets::machines_of_a_fleet_resume_each_others_sessions",
        ],
    ),
    ("Pebble and bind9", &["server::acme::"]),
    ("chromium", &["server::browser::"]),
    ("redis-server and haproxy", &["server::cache::fleet::"]),
    ("python3", &["lab::recompute::"]),
    ("nginx and vegeta", &["lab::runs::vegeta_loads_the_servers_of_the_container_study"]),
    ("zstd", &["server::encoding::the_sibling_that_the_client_likes_best_is_sent_and_decodes_to_the_original"]),
    ("h2spec", &["server::http2::h2spec_finds_no_violation", "server::plain::h2spec_finds_no_violation_without_tls"]),
    (
        "nginx",
        &[
            "lab::runs::an_arm_that_claims_kernel_tls_while_it_is_off_is_void",
            "lab::runs::every_study_runs_and_is_reported",
            "lab::studies::a_recording_is_made_by_one_command",
        ],
    ),
    (
        "nginx and php-fpm",
        &[
            "server::import_nginx::an_application_is_served_as_nginx_served_it",
            "server::import_nginx::nobody_gets_in_who_was_kept_out",
            "server::nginx_cache::",
            "server::nginx_corpus::",
            "server::nginx_php::",
            "server::nginx_redirects::",
            "server::proxy::fastcgi::php_answers",
        ],
    ),
    ("uwsgi", &["server::proxy::uwsgi::a_python_application_answers"]),
    (
        "Node, Python or Go",
        &["server::proxy::real_servers::", "server::proxy::websocket::messages_pass_as_they_are_over_both_protocols"],
    ),
];

/// Programs of Debian's essential packages, and two that every developer has.
#[rustfmt::skip]
const PROGRAMS: &[&str] = &[
    "bash", "cat", "chmod", "cp", "date", "dd", "dirname", "env", "false", "fincore", "grep", "gzip", "head", "id", "install",
    "kill", "ls", "mkdir", "mktemp", "mv", "nproc", "prlimit", "rm", "sed", "setpriv", "sh", "sha256sum", "sleep", "sort", "tail",
    "tar", "timeout", "touch", "true", "unshare",
    "curl", "openssl",
];

const ADVICE: &str = "A test that needs root or another program belongs into NEEDS in xtask/src/test/fast.rs. \
    `cargo xtask test` runs it.";

/// Runs the checks and prints the total.
pub(super) fn run() -> Result<ExitCode> {
    let mut report = Report::default();
    report.check("format", steps::format);
    report.check("cycles", super::cycles);
    report.check("prose", super::prose);
    report.check("pages", pages::check);
    report.check("index and links", book::check);
    report.check("lint", steps::lint);
    let mut built = Built::default();
    report.check("build", || {
        built = Selection::default().build()?;
        Ok(())
    });
    let hidden = Hidden::new()?;
    for test in built.tests.iter().filter(|test| !test.runs_in_guest()) {
        let name = format!("{} {}", test.package, test.target);
        report.tests(&name, || steps::run_here(&mut hidden.command(test)?));
    }
    Ok(report.close(Some(ADVICE)))
}

/// The part of this machine that tests may see.
struct Hidden {
    /// Links to the programs, as the only directory of PATH.
    programs: PathBuf,
    /// The place of downloads: nothing is there.
    downloads: PathBuf,
}

impl Hidden {
    fn new() -> Result<Self> {
        let directory = PathBuf::from(binaries::metadata()?.target_directory).join("fast");
        let hidden = Self { programs: directory.join("programs"), downloads: directory.join("no-downloads") };
        match std::fs::remove_dir_all(&hidden.programs) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("cannot clean up"),
            _ => std::fs::create_dir_all(&hidden.programs)?,
        }
        for program in PROGRAMS {
            if let Some(path) = find(program) {
                std::os::unix::fs::symlink(path, hidden.programs.join(program))?;
            }
        }
        Ok(hidden)
    }

    /// The command that runs a test binary without the tests of [`NEEDS`].
    fn command(&self, test: &TestBinary) -> Result<Command> {
        let mut command = steps::native_command(test);
        command.env("PATH", &self.programs).env("SEALION_GUEST_CACHE", &self.downloads).env("SEALION_TEST_BARE", "1");
        if test.target == "it" {
            let listed = output(steps::native_command(test).args(["--list", "--format=terse"]))?;
            let skipped = left_out(&test.package, &listed, NEEDS)?;
            command.arg("--exact").args(skipped.iter().flat_map(|name| ["--skip", name]));
        }
        Ok(command)
    }
}

/// The path of a program. Some are in directories that only root's PATH has.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    directories.map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// The tests of a crate, of libtest's list, that need something.
///
/// # Errors
/// An entry of `needs` for this crate names no test.
fn left_out<'a>(package: &str, listed: &'a str, needs: &[(&str, &[&str])]) -> Result<Vec<&'a str>> {
    let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let mut found = Vec::new();
    for (what, entries) in needs {
        for entry in *entries {
            let Some((_, entry)) = entry.split_once("::").filter(|(of, _)| *of == package) else { continue };
            let is_named = |name: &&str| if entry.ends_with("::") { name.starts_with(entry) } else { *name == entry };
            let before = found.len();
            found.extend(names.iter().copied().filter(is_named));
            ensure!(
                found.len() > before,
                "{package}::{entry}, which needs {what}, is no test: correct NEEDS in {}",
                file!()
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "a::one: test\na::two: test\nb::one: test\nb::one_more: test\n";

    #[test]
    fn modules_and_single_tests_are_left_out() {
        let needs: &[(&str, &[&str])] = &[("x", &["server::a::", "lab::c"]), ("y", &["server::b::one"])];
        assert_eq!(left_out("server", LISTED, needs).unwrap(), ["a::one", "a::two", "b::one"]);
        assert!(left_out("cache", LISTED, needs).unwrap().is_empty());
    }

    #[test]
    fn an_entry_without_a_test_is_an_error() {
        let error = left_out("server", LISTED, &[("root", &["server::b::on"])]).unwrap_err().to_string();
        assert!(error.starts_with("server::b::on, which needs root, is no test"), "{error}");
    }
}
