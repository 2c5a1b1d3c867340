//! http-cache-tests, which tests HTTP caches, against the server as a reverse proxy with a cache.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sealion_guest::follow::{Followed, Next};
use sealion_guest::tools;

use crate::{binaries, workspace};

/// Test the cache of responses with http-cache-tests, and compare with docs/http-cache-tests.md
///
/// The page lists each required or optimal test that does not pass, with its reason. A test that fails without a row fails the run, and
/// so does a row whose test passes.
#[derive(Args)]
pub(crate) struct CacheTests {
    /// Only this test, with its requests and responses; nothing is compared
    #[arg(long)]
    id: Option<String>,
    /// Show the messages of all tests that did not pass
    #[arg(long)]
    verbose: bool,
    /// The server under test [default: a build of it].
    #[arg(skip)]
    server: Option<PathBuf>,
}

/// The package with its version, as npm takes it.
const PACKAGE: &str = "http-cache-tests@0.4.5";

/// The page that lists tests that do not pass.
const PAGE: &str = "docs/http-cache-tests.md";

/// The tests wait three seconds between some requests. All together take half a minute.
const LIMIT: Duration = Duration::from_secs(300);

/// Downloads the tests.
pub(crate) fn download() -> Result<()> {
    tools::npm_package(PACKAGE).map(drop)
}

/// The outcome of one test.
struct Outcome {
    kind: String,
    passed: bool,
    message: String,
}

impl CacheTests {
    /// Every check of the page, for `cargo xtask test`.
    pub(crate) fn all(server: Option<PathBuf>) -> Self {
        CacheTests { id: None, verbose: false, server }
    }

    /// Builds the server, runs the tests and compares. True if the page is right.
    pub(crate) fn run(&self) -> Result<bool> {
        let server = match &self.server {
            Some(server) => server.clone(),
            None => binaries::build_debug("sealion")?,
        };
        let package = tools::npm_package(PACKAGE)?.join("http-cache-tests");
        let outcomes = self.outcomes(&server, &package)?;
        if self.id.is_some() {
            return Ok(outcomes.values().all(|outcome| outcome.passed));
        }
        if self.verbose {
            for (id, outcome) in outcomes.iter().filter(|(_, outcome)| !outcome.passed) {
                println!("{id} ({}): {}", outcome.kind, outcome.message);
            }
        }
        let page = workspace::root().join(PAGE);
        let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        println!("{}", total(&outcomes));
        let differences = differences(&page, &outcomes);
        for difference in &differences {
            println!("{PAGE}: {difference}");
        }
        Ok(differences.is_empty())
    }

    /// Starts the origin and the server in front of it, and runs the client.
    fn outcomes(&self, server: &Path, package: &Path) -> Result<BTreeMap<String, Outcome>> {
        let scratch = tempfile::tempdir().context("cannot make a directory")?;
        let script = scratch.path().join("cache_tests.mjs");
        std::fs::write(&script, include_str!("cache_tests.mjs"))?;
        let node = |part: &str| {
            let mut node = Command::new("node");
            node.arg("--no-warnings").arg(&script).arg(package).arg(part);
            node
        };
        let origin = Followed::start(&mut node("origin"), LIMIT)?;
        let port = wait_for(&origin, |line| line.strip_prefix("port ").map(str::to_owned)).context("the origin")?;
        let mut command = Command::new(server);
        command.args(["proxy", "--to", &format!("http://127.0.0.1:{port}"), "--listen", "127.0.0.1:0"]);
        command.args(["--cache-size", "1GB", "--cache"]).arg(scratch.path().join("cache"));
        // Its development certificate.
        command.env("XDG_DATA_HOME", scratch.path()).env("XDG_CONFIG_HOME", scratch.path());
        let server = Followed::start_with_errors(&mut command, LIMIT)?;
        let address = |line: &str| {
            let start = line.find("https://")?;
            Some(line[start..].split_whitespace().next().unwrap_or_default().trim_end_matches('/').to_owned())
        };
        let base = wait_for(&server, address).context("the server")?;
        let mut client = node("client");
        // The certificate is made for the run.
        client.arg(&base).args(&self.id).env("NODE_TLS_REJECT_UNAUTHORIZED", "0");
        let mut client = Followed::start(&mut client, LIMIT)?;
        let mut outcomes = BTreeMap::new();
        loop {
            match client.next() {
                Next::Line(line) => match line.starts_with('{').then(|| parse(&line)).transpose()? {
                    Some((id, outcome)) => {
                        if self.id.is_some() {
                            println!("{}", if outcome.passed { "passed" } else { &outcome.message });
                        }
                        outcomes.insert(id, outcome);
                    }
                    None => println!("{line}"),
                },
                Next::End => break,
                Next::Late => bail!("the client did not end within {} s", LIMIT.as_secs()),
            }
        }
        let status = client.wait()?;
        ensure!(
            status.success() && !outcomes.is_empty(),
            "the client ended with {status} after {} tests",
            outcomes.len()
        );
        Ok(outcomes)
    }
}

/// Waits for the first line for which `find` returns a value.
fn wait_for(process: &Followed, find: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut said = String::new();
    loop {
        match process.next() {
            Next::Line(line) => match find(&line) {
                Some(found) => return Ok(found),
                None => writeln!(said, "{line}").expect("a string takes all"),
            },
            Next::End | Next::Late => bail!("did not start:\n{said}"),
        }
    }
}

/// A test's name and its outcome, of one line of the client.
fn parse(line: &str) -> Result<(String, Outcome)> {
    let value: serde_json::Value = serde_json::from_str(line).with_context(|| format!("not a result: {line}"))?;
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let outcome = text("outcome");
    let message = match outcome.as_str() {
        "pass" | "fail" => text("message"),
        _ => format!("{outcome}: {}", text("message")),
    };
    Ok((text("id"), Outcome { kind: text("kind"), passed: outcome == "pass", message }))
}

/// The sentence that the page has to have.
fn total(outcomes: &BTreeMap<String, Outcome>) -> String {
    let count = |kind: &str| {
        let of_kind = || outcomes.values().filter(|outcome| outcome.kind == kind);
        format!("{} of {} {kind}", of_kind().filter(|outcome| outcome.passed).count(), of_kind().count())
    };
    format!("Passed: {}, {}.", count("required"), count("optimal"))
}

/// The errors of the page.
fn differences(page: &str, outcomes: &BTreeMap<String, Outcome>) -> Vec<String> {
    let mut listed: BTreeMap<&str, &str> = page.lines().filter_map(row).collect();
    let mut differences = Vec::new();
    if !page.contains(&total(outcomes)) {
        differences.push(format!("does not say: {}", total(outcomes)));
    }
    // `check` asks what a cache does, and has no right answer.
    for (id, Outcome { kind, passed, message }) in outcomes.iter().filter(|(_, outcome)| outcome.kind != "check") {
        match (passed, listed.remove(id.as_str())) {
            (true, None) => {}
            (true, Some(_)) => differences.push(format!("{id} passes: remove its row")),
            (false, None) => differences.push(format!("{id} ({kind}) fails and has no row: {message}")),
            (false, Some(as_kind)) if as_kind != kind => differences.push(format!("{id} is {kind}")),
            (false, Some(_)) => {}
        }
    }
    differences.extend(listed.keys().map(|id| format!("there is no test {id}")));
    differences
}

/// A test and its kind, of a row of the page's table. A row without a reason does not count.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
    let id = cells.next()?.strip_suffix('`')?;
    let kind = cells.next()?;
    cells.next().filter(|reason| !reason.is_empty()).map(|_| (id, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(rows: &[(&str, &str, bool)]) -> BTreeMap<String, Outcome> {
        let outcome = |(id, kind, passed): &(&str, &str, bool)| {
            ((*id).to_owned(), Outcome { kind: (*kind).to_owned(), passed: *passed, message: "wrong".to_owned() })
        };
        rows.iter().map(outcome).collect()
    }

    #[test]
    fn the_page_lists_what_fails_and_nothing_else() {
        let found = outcomes(&[
            ("a", "required", true),
            ("b", "required", false),
            ("c", "optimal", false),
            ("d", "check", false),
        ]);
        let page = |rows: &str| {
            format!("Passed: 1 of 2 required, 0 of 1 optimal.\n\n| test | kind | reason |\n|---|---|---|\n{rows}")
        };
        let of = |rows: &str| differences(&page(rows), &found);
        assert!(of("| `b` | required | b |\n| `c` | optimal | c |\n").is_empty());
        assert_eq!(of("| `b` | required | b |\n"), ["c (optimal) fails and has no row: wrong"]);
        assert_eq!(of("| `b` | required | |\n| `c` | optimal | c |\n"), ["b (required) fails and has no row: wrong"]);
        assert_eq!(
            of("| `a` | required | a |\n| `b` | optimal | b |\n| `c` | optimal | c |\n| `e` | optimal | e |\n"),
            ["a passes: remove its row", "b is required", "there is no test e"]
        );
        let fewer = outcomes(&[("a", "required", true), ("b", "required", false)]);
        assert_eq!(
            differences(&page("| `b` | required | b |\n"), &fewer),
            ["does not say: Passed: 1 of 2 required, 0 of 0 optimal."]
        );
    }

    #[test]
    fn lines_of_the_client() {
        let (id, outcome) = parse(r#"{"id":"a","kind":"optimal","outcome":"dependency","message":"m"}"#).unwrap();
        assert_eq!((id.as_str(), outcome.kind.as_str(), outcome.passed), ("a", "optimal", false));
        assert_eq!(outcome.message, "dependency: m");
        assert!(parse(r#"{"id":"a","kind":"optimal","outcome":"pass","message":""}"#).unwrap().1.passed);
        assert!(parse("{").is_err());
    }
}
