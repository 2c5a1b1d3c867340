//! Results of test runs, read from libtest's summary line.

use std::ops::AddAssign;

/// Counts of test cases, without ignored ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// A single check.
    pub(crate) fn of(passed: bool) -> Self {
        Self { passed: passed.into(), failed: (!passed).into() }
    }

    /// Reads a summary: `test result: ok. 3 passed; 1 failed; 0 ignored; …`.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |what: &str| counts.split(';').find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok());
        Some(Self { passed: count("passed")?, failed: count("failed")? })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Collects the verdict on one test binary: its summary, plus one failure if it printed none or if its exit code
/// contradicts it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    summary: Option<Tally>,
    failed: Vec<String>,
    /// Tests that libtest has reported to run for more than a minute, and whose end it has not.
    slow: Vec<String>,
    in_list: bool,
}

/// The outcome of one test binary: its summary if it printed one and agreed with it by its exit code, else one failure
/// more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) tally: Tally,
    /// Names of the tests that failed, or that were running when a binary without a summary ended.
    pub(crate) failed: Vec<String>,
}

impl Watch {
    /// Takes one line of the binary's output.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(tally) = Tally::from_line(line) {
            *self.summary.get_or_insert_default() += tally;
        }
        // libtest lists the names below the last of two such headings, each indented by four spaces.
        match line.strip_prefix("    ").filter(|_| self.in_list) {
            Some(name) => self.failed.push(name.to_owned()),
            None => self.in_list = line == "failures:",
        }
        if let Some(line) = line.strip_prefix("test ") {
            if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
                // One thread alone has announced the test on this line before.
                self.slow.extend(name.rsplit(" ... test ").next().map(str::to_owned));
            } else if let Some((name, _)) = line.split_once(" ... ") {
                self.slow.retain(|slow| slow != name);
            }
        }
    }

    /// The final verdict. `success`: the exit code was 0.
    pub(crate) fn verdict(mut self, success: bool) -> Verdict {
        let mut tally = self.summary.unwrap_or_default();
        if self.summary.is_none() || (!success && tally.failed == 0) {
            tally.failed += 1;
            self.failed.append(&mut self.slow);
        }
        Verdict { tally, failed: self.failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";
    const BAD: &str =
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    fn watched(lines: &[&str], success: bool) -> Verdict {
        let mut watch = Watch::default();
        lines.iter().for_each(|line| watch.line(line));
        watch.verdict(success)
    }

    fn verdict(lines: &[&str], success: bool) -> Tally {
        watched(lines, success).tally
    }

    #[test]
    fn summaries_are_read() {
        assert_eq!(Tally::from_line(OK), Some(Tally { passed: 3, failed: 0 }));
        assert_eq!(Tally::from_line(BAD), Some(Tally { passed: 2, failed: 1 }));
        assert_eq!(Tally::from_line("test result"), None);
        assert_eq!(Tally::from_line("test a::b ... ok"), None);
    }

    #[test]
    fn a_binary_that_dies_without_summary_failed() {
        assert_eq!(verdict(&["running 3 tests"], true), Tally { passed: 0, failed: 1 });
        assert_eq!(verdict(&[], false), Tally { passed: 0, failed: 1 });
    }

    #[test]
    fn a_bad_exit_after_a_good_summary_failed() {
        assert_eq!(verdict(&[OK], false), Tally { passed: 3, failed: 1 });
        assert_eq!(verdict(&[BAD], false), Tally { passed: 2, failed: 1 });
        assert_eq!(verdict(&[OK], true), Tally { passed: 3, failed: 0 });
    }

    #[test]
    fn failed_tests_are_named() {
        let output = [
            "running 3 tests",
            "test sites::redirects ... FAILED",
            "test sites::fields ... ok",
            "test top::once ... FAILED",
            "",
            "failures:",
            "",
            "---- sites::redirects stdout ----",
            "    an indented line of a panic",
            "",
            "failures:",
            "    sites::redirects",
            "    top::once",
            "",
            BAD,
        ];
        assert_eq!(watched(&output, false).failed, ["sites::redirects", "top::once"]);
    }

    #[test]
    fn a_binary_that_was_killed_names_the_tests_that_hang() {
        let output = [
            "test top::once has been running for over 60 seconds",
            "test sites::fields has been running for over 60 seconds",
            "test top::once ... ok",
        ];
        assert_eq!(watched(&output, false).failed, ["sites::fields"]);
    }
}
