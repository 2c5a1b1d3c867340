//! Progress: a bar with the time left, or plain lines without a terminal.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::Job;
use crate::row::Row;

/// Shows progress on standard error.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Estimated times: of the measurements done, and of all.
    done: Duration,
    all: Duration,
    count: usize,
    last: usize,
}

impl Progress {
    /// `kept`: the number of measurements of an earlier run, which are not repeated.
    pub(super) fn start(left: &VecDeque<&Job>, kept: usize) -> Self {
        let all = left.iter().map(|job| estimate(job)).sum();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(millis(all));
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}").expect("the template is right");
            bar.with_style(style)
        });
        if kept > 0 {
            eprintln!("{kept} measurements of an earlier run are kept");
        }
        eprintln!("{} measurements, about {}", left.len(), rough(all));
        Self { bar, began: Instant::now(), done: Duration::ZERO, all, count: 0, last: left.len() }
    }

    pub(super) fn begin(&mut self, job: &Job) {
        self.count += 1;
        if let Some(bar) = &self.bar {
            let left = self.time_left();
            bar.set_message(format!("{} {} {}, {} left", job.study.name(), job.cell.name(), job.arm, rough(left)));
            bar.tick();
        }
    }

    /// The measurement is made once more.
    pub(super) fn again(&mut self, job: &Job) {
        self.last += 1;
        self.set_all(self.all + estimate(job));
    }

    /// The measurement is not needed.
    pub(super) fn skip(&mut self, job: &Job) {
        self.last -= 1;
        self.set_all(self.all.saturating_sub(estimate(job)));
    }

    fn set_all(&mut self, all: Duration) {
        self.all = all;
        if let Some(bar) = &self.bar {
            bar.set_length(millis(self.all));
        }
    }

    pub(super) fn end(&mut self, job: &Job, row: &Row) {
        self.done += estimate(job);
        let void = if row.void.is_empty() { String::new() } else { format!(": VOID, {}", row.void) };
        if let Some(bar) = &self.bar {
            bar.set_position(millis(self.done));
            if !row.void.is_empty() {
                bar.println(format!("{} {}{void}", row.cell, row.arm));
            }
            return;
        }
        let rate = row.requests as f64 / (row.elapsed.max(1) as f64 / 1e9);
        eprintln!(
            "[{}/{}] {} {} {} round {}: {rate:.0} requests/s, {} left{void}",
            self.count,
            self.last,
            row.study,
            row.cell,
            row.arm,
            row.round,
            rough(self.time_left())
        );
    }

    pub(super) fn stop(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The ratio of elapsed to estimated time so far.
    fn time_left(&self) -> Duration {
        let left = self.all.saturating_sub(self.done);
        if self.done.is_zero() {
            return left;
        }
        left.mul_f64(self.began.elapsed().as_secs_f64() / self.done.as_secs_f64())
    }
}

fn estimate(job: &Job) -> Duration {
    job.cell.estimate() + OVERHEAD
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Rounded to seconds, or to minutes if it is long.
fn rough(time: Duration) -> String {
    let seconds = time.as_secs().max(1);
    let rounded = if seconds > 600 { seconds.div_ceil(60) * 60 } else { seconds };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}

/// Time around a measurement, for estimates.
const OVERHEAD: Duration = Duration::from_millis(150);
