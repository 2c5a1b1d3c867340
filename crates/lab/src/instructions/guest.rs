//! The host's side: boots a guest with the lab in it.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::{Job, Machine, Payload, Series, tools};

use super::{Client, Plan};
use crate::row::Row;

/// The counts on one kernel.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) series: Series,
    /// A row for each arm and cell.
    pub(crate) rows: Vec<Row>,
    /// `raw.csv` as the guest wrote it.
    pub(crate) raw: Vec<u8>,
}

/// Counts `plan` on each kernel, all at the same time. This program must be `sealion-lab` (it is the guest's `/init`).
///
/// # Errors
/// A program is missing, a guest crashes twice, or a job in it fails; its output has been shown.
pub(crate) fn run(plan: &Plan, kernels: &[Series]) -> Result<Vec<Counted>> {
    let mut programs = Vec::new();
    let client = match plan.client {
        Client::Lab => None,
        Client::Wrk => Some(("wrk", "wrk")),
        Client::H2load => Some(("h2load", "nghttp2-client")),
    };
    if let Some(client) = client {
        tools::ensure(&[client])?;
        programs.push(client.0.to_owned());
    }
    let mut include = Vec::new();
    if plan.arms().any(|arm| arm.is_ours()) {
        ensure!(
            plan.sealion.is_file(),
            "{} does not exist: build it with cargo build --release, or name it with --sealion",
            plan.sealion.display()
        );
        include.push(plan.sealion.clone());
    }
    let payload = Payload {
        jobs: vec![Job::program("/init", ["instructions", "--inside", WORK])],
        programs,
        include,
        files: vec![(PathBuf::from(WORK).join("plan.json"), serde_json::to_vec(plan)?)],
        directories: vec![OUT.into(), "/tmp".into()],
        bring_back: Some(OUT.into()),
        ..Payload::default()
    };
    let machine = Machine { icount: true, timeout: LIMIT, without: plan.without.clone(), ..Machine::default() };
    let mut counted = Vec::new();
    for (series, outcome) in sealion_guest::run_on(kernels, &payload, &machine)? {
        if let Some(trouble) = outcome.trouble {
            bail!("kernel {}: {trouble}", series.name());
        }
        ensure!(outcome.jobs.iter().all(|job| job.code == 0), "kernel {}: the count failed, see above", series.name());
        let raw = outcome.files.into_iter().find(|(path, _)| path.as_os_str() == "raw.csv");
        let (_, raw) = raw.with_context(|| format!("kernel {} sent no raw.csv back", series.name()))?;
        let rows: Result<Vec<Row>, _> = csv::Reader::from_reader(raw.as_slice()).deserialize().collect();
        counted.push(Counted { series, rows: rows.context("raw.csv from the guest is damaged")?, raw });
    }
    Ok(counted)
}

/// The guest's directory of the plan, the files and the servers' configurations.
const WORK: &str = "/work";

/// The directory that the guest brings back.
const OUT: &str = "/out";

/// Seconds; ten times the longest count so far.
const LIMIT: u64 = 3600;
