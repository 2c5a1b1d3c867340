//! The host's side: boots a guest with the lab in it.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::{Job, Machine, Payload, Series, tools};

use super::Plan;
use super::inside::Row;

/// Measures `plan` on `series`. Returns the rows and `network.csv` as the guest wrote it. This program must be `sealion-lab`.
///
/// # Errors
/// A program is missing, the guest crashes twice, or the measurement in it fails; its output has been shown.
pub(crate) fn run(plan: &Plan, series: Series) -> Result<(Vec<Row>, Vec<u8>)> {
    tools::ensure(&[("ip", "iproute2"), ("tc", "iproute2")])?;
    let mut include = Vec::new();
    if plan.arms().any(|arm| arm.is_ours()) {
        ensure!(
            plan.sealion.is_file(),
            "{} does not exist: build it with cargo build --release, or name it with --sealion",
            plan.sealion.display()
        );
        include.push(plan.sealion.clone());
    }
    if let Some(nginx) = &plan.nginx {
        ensure!(nginx.is_file(), "{} does not exist", nginx.display());
        include.extend(nginx.parent().map(Into::into));
    }
    let payload = Payload {
        jobs: vec![Job::program("/init", ["network", "--inside", WORK])],
        programs: vec!["ip".into(), "tc".into()],
        include,
        files: vec![(PathBuf::from(WORK).join("plan.json"), serde_json::to_vec(plan)?)],
        directories: vec![OUT.into(), "/tmp".into()],
        bring_back: Some(OUT.into()),
        ..Payload::default()
    };
    let machine = Machine { icount: true, timeout: LIMIT, ..Machine::default() };
    let outcomes = sealion_guest::run_on(&[series], &payload, &machine)?;
    let (_, outcome) = outcomes.into_iter().next().context("no guest ran")?;
    if let Some(trouble) = outcome.trouble {
        bail!("kernel {}: {trouble}", series.name());
    }
    ensure!(outcome.jobs.iter().all(|job| job.code == 0), "kernel {}: the study failed, see above", series.name());
    let raw = outcome.files.into_iter().find(|(path, _)| path.as_os_str() == "network.csv");
    let (_, raw) = raw.with_context(|| format!("kernel {} sent no network.csv back", series.name()))?;
    let rows: Result<Vec<Row>, _> = csv::Reader::from_reader(raw.as_slice()).deserialize().collect();
    Ok((rows.context("network.csv from the guest is damaged")?, raw))
}

/// The guest's directory of the plan, the files and the servers' configurations.
const WORK: &str = "/work";

/// The directory that the guest brings back.
const OUT: &str = "/out";

/// Seconds.
const LIMIT: u64 = 3 * 3600;
