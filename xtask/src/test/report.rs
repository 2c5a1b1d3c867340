//! The total of a run, the names of what failed, and how long each step took.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::libtest::{Tally, Verdict};

/// The total so far, the names of failures and the times of the steps.
#[derive(Default)]
pub(super) struct Report {
    tally: Tally,
    failures: Vec<String>,
    times: Vec<Time>,
}

/// How long a step took.
struct Time {
    name: String,
    took: Duration,
    /// Of a step beside others: how long they waited for its end.
    waited: Option<Duration>,
}

/// Work on a thread of its own while other steps run.
pub(super) struct Beside<T> {
    name: &'static str,
    thread: JoinHandle<(T, Duration)>,
}

impl<T: Send + 'static> Beside<T> {
    pub(super) fn start(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let timed = || {
            let start = Instant::now();
            (work(), start.elapsed())
        };
        Self { name, thread: std::thread::spawn(timed) }
    }

    /// Waits for the end and notes the times.
    pub(super) fn join(self, report: &mut Report) -> T {
        let start = Instant::now();
        let (result, took) = self.thread.join().expect("a step reports its failures");
        let waited = start.elapsed();
        let (seconds, idle) = (took.as_secs_f64(), waited.as_secs_f64());
        println!("\n== {}: {seconds:.1} s beside other steps, which waited {idle:.1} s for it", self.name);
        report.times.push(Time { name: self.name.to_owned(), took, waited: Some(waited) });
        result
    }
}

impl Report {
    /// Runs a single check.
    pub(super) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        self.timed(name, |report| {
            let result = check();
            report.add(name, Tally::of(result.is_ok()));
            result
        });
    }

    /// Adds a check that ran beside others.
    pub(super) fn add_result(&mut self, name: &str, result: Result<()>) {
        self.add(name, Tally::of(result.is_ok()));
        if let Err(error) = result {
            println!("{name}: {error:#}");
        }
    }

    /// Runs tests and adds their counts.
    pub(super) fn tests(&mut self, name: &str, run: impl FnOnce() -> Result<Verdict>) {
        self.timed(name, |report| match run() {
            Ok(verdict) => {
                report.add_tests(name, &verdict);
                Ok(())
            }
            Err(error) => {
                report.add(name, Tally::of(false));
                Err(error)
            }
        });
    }

    /// Prints a heading, runs the step, prints its error and its time.
    pub(super) fn timed(&mut self, name: &str, step: impl FnOnce(&mut Self) -> Result<()>) {
        println!("\n== {name}");
        let start = Instant::now();
        if let Err(error) = step(self) {
            println!("{name}: {error:#}");
        }
        let took = start.elapsed();
        println!("== {name}: {:.1} s", took.as_secs_f64());
        self.times.push(Time { name: name.to_owned(), took, waited: None });
    }

    pub(super) fn add(&mut self, name: &str, tally: Tally) {
        if tally.failed > 0 {
            self.failures.push(name.to_owned());
        }
        self.tally += tally;
    }

    /// Adds a test binary, whose failure is named after its tests where they are known.
    pub(super) fn add_tests(&mut self, name: &str, verdict: &Verdict) {
        if verdict.failed.is_empty() {
            self.add(name, verdict.tally);
        } else {
            self.failures.extend(verdict.failed.iter().map(|test| format!("{name}: {test}")));
            self.tally += verdict.tally;
        }
    }

    /// Prints the times, the failures, and the total as the last line. `advice`: printed with failures.
    pub(super) fn close(self, advice: Option<&str>) -> ExitCode {
        println!("\n{}", table(&self.times));
        for name in &self.failures {
            println!("FAILED: {name}");
        }
        if !self.failures.is_empty() {
            advice.into_iter().for_each(|advice| println!("{advice}"));
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        if self.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Steps shorter than this are summed up in one row.
const SHORT: Duration = Duration::from_millis(500);

/// A row for each step, in the order in which they ended. The last row is the time of the run.
fn table(times: &[Time]) -> String {
    let mut text = " seconds  step\n".to_owned();
    let mut row = |time: Duration, name: &str| writeln!(text, "{:8.1}  {name}", time.as_secs_f64()).expect(STRING);
    // Of a step beside others only the wait belongs to the run.
    let elapsed = |time: &Time| time.waited.unwrap_or(time.took);
    for time in times.iter().filter(|time| time.took >= SHORT) {
        let beside = time.waited.map(|waited| format!(" (beside others, {:.1} s alone)", waited.as_secs_f64()));
        row(time.took, &format!("{}{}", time.name, beside.unwrap_or_default()));
    }
    let short = || times.iter().filter(|time| time.took < SHORT);
    if short().next().is_some() {
        row(
            short().map(elapsed).sum(),
            &format!("{} steps of less than {:.1} s", short().count(), SHORT.as_secs_f64()),
        );
    }
    row(times.iter().map(elapsed).sum(), "in all");
    text
}

const STRING: &str = "a string takes every write";

#[cfg(test)]
mod tests {
    use super::*;

    fn time(name: &str, took: u64, waited: Option<u64>) -> Time {
        Time { name: name.to_owned(), took: Duration::from_millis(took), waited: waited.map(Duration::from_millis) }
    }

    #[test]
    fn each_step_has_a_row_and_the_last_is_the_sum_of_what_was_waited_for() {
        let times = [time("lint", 12_340, None), time("release", 90_000, Some(1_500)), time("links", 100, None)];
        let expected = " seconds  step
    12.3  lint
    90.0  release (beside others, 1.5 s alone)
     0.1  1 steps of less than 0.5 s
    13.9  in all
";
        assert_eq!(table(&times), expected);
    }

    #[test]
    fn work_beside_others_is_in_the_table() {
        let mut report = Report::default();
        assert_eq!(Beside::start("seven", || 7).join(&mut report), 7);
        assert!(report.times[0].name == "seven" && report.times[0].waited.is_some());
    }

    #[test]
    fn failures_are_counted_and_named() {
        let mut report = Report::default();
        report.check("good", || Ok(()));
        report.check("bad", || anyhow::bail!("no"));
        report.add_result("worse", Err(anyhow::anyhow!("no")));
        assert_eq!((report.tally.passed, report.tally.failed), (1, 2));
        assert_eq!(report.failures, ["bad", "worse"]);
    }
}
