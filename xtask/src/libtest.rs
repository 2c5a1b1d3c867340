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
}

impl Watch {
    /// Takes one line of the binary's output.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(tally) = Tally::from_line(line) {
            *self.summary.get_or_insert_default() += tally;
        }
    }

    /// The final verdict. `success`: the exit code was 0.
    pub(crate) fn verdict(self, success: bool) -> Tally {
        let mut tally = self.summary.unwrap_or_default();
        if self.summary.is_none() || (!success && tally.failed == 0) {
            tally.failed += 1;
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";
    const BAD: &str =
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    fn verdict(lines: &[&str], success: bool) -> Tally {
        let mut watch = Watch::default();
        lines.iter().for_each(|line| watch.line(line));
        watch.verdict(success)
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
}
