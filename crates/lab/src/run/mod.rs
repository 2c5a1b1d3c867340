//! A run: cells × arms, interleaved; each measurement is saved at once.
//!
//! ```text
//! Options ─► prepare: programs, files, preflight, servers ─► rounds: for each cell, for each arm: measure ─► raw.csv
//! ```
//!
//! Problems with the machine or the input are found before the first measurement. Later failures void a row, and the
//! run continues.

mod calibration;
mod client;
mod files;
mod identity;
mod in_guest;
mod measurement;
mod paths;
mod plan;
mod prepare;
mod progress;
mod raw;
mod server_setup;
mod until;
mod watching;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use crate::arm::{Arm, Limits};
use crate::load::Suite;
use crate::row::Row;
use crate::run_info::RunInfo;
use crate::study::{Cell, Scale, StudyName};

pub(crate) use calibration::{KernelPath, Source as CalibrationSource, pinned};
pub(crate) use files::{Files, name as file_name};
pub(crate) use in_guest::run_in_guest;
pub(crate) use measurement::load_plan;
pub(crate) use plan::Plan;
pub(crate) use raw::Raw;

/// Options of a run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Studies in their order.
    pub(crate) studies: Vec<StudyName>,
    /// Cells that replace the studies' cells, for the traffic of a log.
    pub(crate) cells: Option<Vec<Cell>>,
    /// The scale of the studies.
    pub(crate) scale: Scale,
    /// Arms; empty: the studies' arms that this machine supports.
    pub(crate) arms: Vec<Arm>,
    /// The arm that replaces nginx in the studies.
    pub(crate) peer: Option<Arm>,
    /// The process of the server that is already running, whose cost is measured.
    pub(crate) peer_pid: Option<u32>,
    /// The number of rounds; `None`: the studies' own.
    pub(crate) rounds: Option<u32>,
    /// Ends the rounds of a cell once half the interval of every arm is at most this part of its mean.
    pub(crate) until: Option<f64>,
    /// The suite; `None`: the studies' own.
    pub(crate) suite: Option<Suite>,
    pub(crate) out: PathBuf,
    /// The files' directory; `None`: in the user's cache.
    pub(crate) files: Option<PathBuf>,
    /// Our server; `None`: the one beside the lab.
    pub(crate) sealion: Option<PathBuf>,
    /// nginx; `None`: looked up.
    pub(crate) nginx: Option<PathBuf>,
    /// vegeta, the client of some arms; `None`: looked up.
    pub(crate) vegeta: Option<PathBuf>,
    /// Address that servers listen on.
    pub(crate) address: IpAddr,
    /// The agent that sends the requests, with its token; `None`: this machine does.
    pub(crate) agent: Option<Agent>,
    /// Cores for the servers; `None`: the first, if there are two.
    pub(crate) server_cores: Option<Vec<usize>>,
    /// Cores for the client; `None`: the second, if there are two.
    pub(crate) client_cores: Option<Vec<usize>>,
    /// The servers' limits.
    pub(crate) limits: Limits,
    /// Measure debug builds too.
    pub(crate) allow_debug: bool,
    /// Measure in spite of preflight's findings.
    pub(crate) yes: bool,
    /// Source of the costs by which `auto` chooses; `None`: measured, or the built-in costs at the smoke scale.
    pub(crate) calibration: Option<CalibrationSource>,
    /// The command line, for the record.
    pub(crate) command: String,
}

/// An agent on another machine.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    /// HOST:PORT.
    pub(crate) address: String,
    pub(crate) token: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Measurements now in raw.csv.
    pub(crate) measured: usize,
    /// Void measurements among them.
    pub(crate) void: usize,
    /// Measurements left to do, because the run was stopped.
    pub(crate) left: usize,
}

/// Runs the studies until everything is measured. After `stop` is set, it finishes the current measurement and returns.
/// Measurements of an earlier, interrupted run in the directory are kept and not repeated. An open loop that is void is
/// measured again at once, [`TRIES`] times in all: its client may have been late because the machine took its core away.
///
/// # Errors
/// The run cannot begin, or its results cannot be written.
pub(crate) fn run(options: &Options, stop: &AtomicBool) -> Result<Ended> {
    let mut prepared = prepare::prepare(options)?;
    let (mut raw, mut rows) = Raw::open(&options.out)?;
    let jobs = jobs(&prepared.plan);
    let mut left: VecDeque<&Job> = jobs.iter().filter(|job| !job.is_done(&rows)).collect();
    let mut progress = progress::Progress::start(&left, jobs.len() - left.len());
    while let Some(job) = left.pop_front() {
        if stop.load(Ordering::Relaxed) {
            progress.stop();
            return Ok(Ended { left: left.len() + 1, ..ended(&rows) });
        }
        if let Some(until) = options.until {
            let of_cell = rows.iter().filter(|row| row.study == job.study.name() && row.cell == job.cell.name());
            if until::is_settled(of_cell, job.round, until) {
                progress.skip(job);
                continue;
            }
        }
        progress.begin(job);
        let row = measurement::measure(&mut prepared, job, &rows)?;
        raw.add(&row)?;
        progress.end(job, &row);
        rows.push(row);
        if !job.is_done(&rows) {
            progress.again(job);
            left.push_front(job);
        }
    }
    progress.stop();
    if let Some(warning) = other_work(&rows).filter(|&share| share > OTHER_WORK).map(|share| {
        format!(
            "other work took {:.0} % of the cores' time during the measurements: compare ratios only",
            100.0 * share
        )
    }) {
        let mut info = RunInfo::read(&options.out)?;
        eprintln!("warning: {warning}");
        info.warnings.push(warning);
        info.write(&options.out)?;
    }
    Ok(ended(&rows))
}

/// The share of the cores' time that neither servers nor clients used, over all measurements with known servers.
fn other_work(rows: &[Row]) -> Option<f64> {
    let (mut other, mut all) = (0.0, 0.0);
    for row in rows {
        let Some(server) = row.server_cpu else { continue };
        let busy: Vec<f64> = row.cores_busy.split(';').filter_map(|core| core.parse().ok()).collect();
        other += busy.iter().sum::<f64>() - (server + row.client_cpu) as f64;
        all += busy.len() as f64 * row.elapsed as f64;
    }
    (all > 0.0).then(|| (other / all).clamp(0.0, 1.0))
}

/// One measurement to do.
#[derive(Debug, Clone, PartialEq)]
struct Job {
    study: StudyName,
    cell: crate::study::Cell,
    arm: Arm,
    round: u32,
}

impl Job {
    fn is(&self, row: &Row) -> bool {
        row.round == self.round
            && row.study == self.study.name()
            && row.arm == self.arm.label()
            && row.cell == self.cell.name()
    }

    fn is_done(&self, rows: &[Row]) -> bool {
        let tries: Vec<&Row> = rows.iter().filter(|row| self.is(row)).collect();
        let counts = |row: &&Row| row.void.is_empty() || row.rate.is_none();
        tries.iter().any(counts) || tries.len() >= TRIES
    }
}

/// The number of measurements of an open loop before its round stays void.
const TRIES: usize = 3;

/// All measurements in order. A round does every cell once, and the arms of a cell follow each other, so that changes
/// on the machine affect all of them. The order rotates from cell to cell and from round to round, so that no arm
/// always follows a pause, or the arm that heats the processor most.
fn jobs(plan: &Plan) -> Vec<Job> {
    let mut jobs = Vec::new();
    for study in &plan.studies {
        for round in 0..study.rounds {
            for (place, cell) in study.cells.iter().enumerate() {
                let mut arms: Vec<Arm> = plan.arms_of(study).filter(|arm| arm.has_cell(cell)).collect();
                if !arms.is_empty() {
                    let first = (place + round as usize) % arms.len();
                    arms.rotate_left(first);
                }
                jobs.extend(arms.into_iter().map(|arm| Job { study: study.name, cell: cell.clone(), arm, round }));
            }
        }
    }
    jobs
}

fn ended(rows: &[Row]) -> Ended {
    Ended { measured: rows.len(), void: rows.iter().filter(|row| !row.void.is_empty()).count(), left: 0 }
}

/// The share above which the report warns. It includes the kernel's interrupts.
const OTHER_WORK: f64 = 0.15;

/// The default directory of the files.
///
/// # Errors
/// There is no home directory.
pub(crate) fn files_directory() -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => std::env::home_dir().context("there is no home directory: name one by --files")?.join(".cache"),
    };
    ensure!(cache.is_absolute(), "XDG_CACHE_HOME is not an absolute path: name a directory by --files");
    Ok(cache.join("sealion/lab"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_work_is_what_neither_side_used() {
        let row = |server_cpu, cores_busy: &str| Row {
            server_cpu,
            cores_busy: cores_busy.to_owned(),
            client_cpu: 300,
            elapsed: 1000,
            ..Row::default()
        };
        assert_eq!(other_work(&[]), None);
        assert_eq!(other_work(&[row(None, "1000;1000")]), None);
        assert_eq!(other_work(&[row(Some(700), "700;300")]), Some(0.0));
        assert_eq!(other_work(&[row(Some(700), "1000;1000"), row(Some(700), "700;300")]), Some(0.25));
        assert_eq!(other_work(&[row(Some(900), "700;300")]), Some(0.0), "ticks are coarse");
    }

    #[test]
    fn a_void_open_loop_is_tried_again_and_no_other_measurement() {
        let study = StudyName::Peers.study(Scale::Quick);
        let job = Job { study: study.name, cell: study.cells[0].clone(), arm: Arm::User, round: 2 };
        let row = |rate, void: &str| Row {
            study: job.study.name().to_owned(),
            cell: job.cell.name(),
            arm: job.arm.label(),
            round: 2,
            rate,
            void: void.to_owned(),
            ..Row::default()
        };
        let late = row(Some(1000.0), "the client was late");
        assert!(!job.is_done(&[]));
        assert!(!job.is_done(&[late.clone(), Row { round: 1, ..row(None, "") }]), "another round says nothing of it");
        assert!(!job.is_done(&[late.clone(), late.clone()]));
        assert!(job.is_done(&[late.clone(), row(Some(1000.0), "")]));
        assert!(job.is_done(&[late.clone(), late.clone(), late]), "it would never end");
        assert!(job.is_done(&[row(None, "the server used no kernel TLS")]), "it would be so again");
    }

    #[test]
    fn arms_take_turns_and_each_is_first_as_often_as_the_others() {
        let mut study = StudyName::Crossover.study(Scale::Quick);
        study.rounds = 6;
        study.arms = ["user", "kernel", "nginx"].map(str::to_owned).into();
        let cells = study.cells.clone();
        let plan = Plan { studies: vec![study], scale: Scale::Quick, server_cores: vec![0], client_cores: vec![1] };
        let jobs = jobs(&plan);
        assert_eq!(jobs.len(), cells.len() * 3 * 6);
        let arms = [Arm::User, Arm::Kernel, Arm::Nginx];
        for cell in &cells {
            let of_cell: Vec<&Job> = jobs.iter().filter(|job| job.cell == *cell).collect();
            for (round, turn) in of_cell.chunks(3).enumerate() {
                assert!(turn.iter().all(|job| job.round as usize == round), "a round does every cell once");
                assert!(arms.iter().all(|arm| turn.iter().any(|job| job.arm == *arm)));
            }
            for place in 0..3 {
                for arm in &arms {
                    let here = of_cell.chunks(3).filter(|turn| turn[place].arm == *arm).count();
                    assert_eq!(here, 2, "{arm} in place {place} of {}", cell.name());
                }
            }
        }
        let first: Vec<&Arm> = jobs.iter().take(3 * cells.len()).step_by(3).map(|job| &job.arm).collect();
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "within a round they take turns too: {first:?}");
    }
}
