//! The guest's side: every arm and cell, one after another.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use super::Plan;
use super::asking::{Asked, ask, warm_up};
use super::floor;
use super::plan::label;
use crate::arm::{Arm, Certificate, Nginx, Sealion, Server, Setup};
use crate::proof::Claim;
use crate::row::Row;
use crate::run::{Files, file_name};
use crate::study::Cell;

/// Measures `plan` and writes `raw.csv` into `out`. Files and configurations go to `work`.
///
/// # Errors
/// A server does not start, a client fails, or a file cannot be written.
pub(crate) fn measure(plan: &Plan, work: &Path, out: &Path) -> Result<()> {
    let files = Files::make(&work.join("www"), &plan.cells.iter().flat_map(Cell::sizes).collect())?;
    let mut setup = Setup {
        group: None,
        sealion: plan.arms().any(|arm| arm.is_ours()).then(|| Sealion::find(Some(&plan.sealion))).transpose()?,
        nginx: plan.arms().any(|arm| arm.needs_nginx()).then(|| Nginx::find(None)).transpose()?,
        certificate: Certificate::make(work)?,
        files: files.directory,
        scratch: work.to_owned(),
        cores: Vec::new(),
        address: Ipv4Addr::LOCALHOST.into(),
        calibration: None,
        peer_pid: None,
        vegeta: None,
    };
    let mut rows = csv::Writer::from_path(out.join("raw.csv"))?;
    for cell in plan.cells_with_floor() {
        let row = floor::count(cell, &label(cell), &setup.files.join(file_name(cell.size))).context("the floor")?;
        report(&row);
        rows.serialize(row)?;
    }
    for arm in plan.arms() {
        if let Some(sealion) = setup.sealion.as_ref().filter(|_| arm.is_auto() && setup.calibration.is_none()) {
            // The built-in costs of the server are times of a real processor, not counts.
            let file = work.join("calibration.json");
            sealion.calibrate(CALIBRATION_SECONDS, &file)?;
            setup.calibration = Some(file);
        }
        let server = arm.start(&setup).with_context(|| format!("arm {arm}"))?;
        // Warms up caches, lazy symbols and first allocations.
        warm_up(plan.client, &plan.cells[0], &server, work).context("warm-up")?;
        for cell in plan.cells_of(&arm) {
            let name = label(cell);
            let row = count(plan, &arm, cell, &server, work).with_context(|| format!("{name} on {arm}"))?;
            report(&row);
            rows.serialize(row)?;
            rows.flush()?;
        }
    }
    Ok(())
}

/// Prints a line of progress.
fn report(row: &Row) {
    let each = |count: u64| count as f64 / row.requests as f64;
    let server = each(row.server_instructions.unwrap_or(0));
    let (all, switches) = (each(row.elapsed), each(row.server_switches.unwrap_or(0)));
    println!(
        "{:<16} {:<14} {server:>9.0}, guest {all:>9.0}, {switches:.2} switches × {}  {}",
        row.arm, row.cell, row.requests, row.void
    );
}

fn count(plan: &Plan, arm: &Arm, cell: &Cell, server: &Server, work: &Path) -> Result<Row> {
    let asked = ask(plan.client, cell, server, work)?;
    Ok(Row {
        study: "instructions".into(),
        cell: label(cell),
        arm: arm.to_string(),
        void: void(arm, cell, &asked),
        size: cell.size,
        calls: cell.calls,
        connections: cell.connections as u64,
        threads: cell.threads as u64,
        resume: cell.resume,
        read: "drain".into(),
        suite: asked.suite,
        requests: asked.requests,
        body_bytes: asked.requests * cell.size,
        handshakes: asked.handshakes,
        resumed: asked.resumed,
        elapsed: asked.elapsed.unwrap_or(0),
        server_switches: Some(asked.switches),
        server_instructions: Some(asked.run_time),
        tls_tx_opened: Some(asked.kernel_senders),
        ..Row::default()
    })
}

/// The reason why a count is void: the arm did not use its claimed path, or the client's handshakes differ from the
/// plan.
fn void(arm: &Arm, cell: &Cell, asked: &Asked) -> String {
    let Asked { handshakes, resumed, kernel_senders, .. } = *asked;
    // The first connections have no session to resume.
    let resuming = if cell.resume { handshakes.saturating_sub(cell.connections as u64) } else { 0 };
    if resumed != resuming {
        return format!("{resumed} of {handshakes} connections resumed a session, not {resuming}");
    }
    match arm.claim() {
        Claim::Kernel if kernel_senders != handshakes => {
            format!("{kernel_senders} of {handshakes} connections had a kernel sender")
        }
        Claim::UserSpace if kernel_senders != 0 => {
            format!("{kernel_senders} of {handshakes} connections had a kernel sender, none should")
        }
        _ => String::new(),
    }
}

/// Guest time: a second has a thousand million instructions, which suffice to measure every size and suite a few times.
const CALIBRATION_SECONDS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::super::cell;
    use super::*;
    use crate::load::Suite;

    fn asked(kernel_senders: u64, resumed: u64) -> Asked {
        Asked {
            requests: 10,
            run_time: 1,
            elapsed: None,
            switches: 0,
            handshakes: 2,
            resumed,
            kernel_senders,
            suite: String::new(),
        }
    }

    #[test]
    fn an_arm_counts_only_if_it_sent_as_it_claims() {
        let cell = cell(1, None, false, Suite::Aes128Gcm);
        for (arm, senders, counts) in [
            (Arm::Kernel, 2, true),
            (Arm::Kernel, 1, false),
            (Arm::NginxKtls, 0, false),
            (Arm::User, 0, true),
            (Arm::Nginx, 1, false),
            (Arm::Auto, 0, true),
            (Arm::Auto, 2, true),
        ] {
            assert_eq!(void(&arm, &cell, &asked(senders, 0)).is_empty(), counts, "{arm:?} {senders}");
        }
    }

    #[test]
    fn handshakes_are_those_that_were_wanted() {
        for (resume, resumed, counts) in [(true, 1, true), (true, 0, false), (false, 0, true), (false, 1, false)] {
            let cell = cell(1, Some(1), resume, Suite::Aes128Gcm);
            assert_eq!(void(&Arm::User, &cell, &asked(0, resumed)).is_empty(), counts, "{resume} {resumed}");
        }
    }
}
