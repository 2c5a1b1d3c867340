//! The guest's side: every arm and cell, one after another.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::asking::{Asked, ask, connections};
use super::plan::size_name;
use super::server::Server;
use super::{Arm, Cell, Plan};
use crate::row::Row;

/// Measures `plan` and writes `raw.csv` into `out`. Certificate and key are `cert.pem` and `key.pem` in `work`.
///
/// # Errors
/// A server does not start, a client fails, or a file cannot be written.
pub(crate) fn measure(plan: &Plan, work: &Path, out: &Path) -> Result<()> {
    let www = work.join("www");
    fs::create_dir_all(&www)?;
    for cell in &plan.cells {
        make_file(&www.join(size_name(cell.size)), cell.size)?;
    }
    let mut rows = csv::Writer::from_path(out.join("raw.csv"))?;
    for &arm in &plan.arms {
        let server = Server::start(arm, plan, work, &www)?;
        // Caches, lazy symbols, first allocations.
        ask(plan, plan.cells[0], &server, work).context("warm-up")?;
        for &cell in &plan.cells {
            let row = count(plan, arm, cell, &server, work).with_context(|| format!("{} on {}", cell, arm.name()))?;
            let per_request = row.server_instructions.unwrap_or(0) / row.requests;
            println!("{:<10} {:<14} {per_request:>9} × {}  {}", arm.name(), cell.to_string(), row.requests, row.void);
            rows.serialize(row)?;
            rows.flush()?;
        }
    }
    Ok(())
}

fn count(plan: &Plan, arm: Arm, cell: Cell, server: &Server, work: &Path) -> Result<Row> {
    let asked = ask(plan, cell, server, work)?;
    Ok(Row {
        study: "instructions".into(),
        cell: cell.to_string(),
        arm: arm.name().into(),
        void: void(arm, cell, &asked),
        size: cell.size,
        calls: cell.calls,
        connections: connections(cell),
        threads: 1,
        resume: cell.resume,
        read: "drain".into(),
        suite: asked.suite,
        requests: asked.requests,
        body_bytes: asked.requests * cell.size,
        handshakes: asked.handshakes,
        resumed: asked.resumed,
        server_instructions: Some(asked.run_time),
        tls_tx_opened: Some(asked.kernel_senders),
        ..Row::default()
    })
}

/// Why a count does not count: the arm did not send, or the client not begin, as it claims.
fn void(arm: Arm, cell: Cell, asked: &Asked) -> String {
    let Asked { handshakes, resumed, kernel_senders, .. } = *asked;
    // The first connections have nothing to resume.
    let resuming = if cell.resume { handshakes.saturating_sub(connections(cell)) } else { 0 };
    if resumed != resuming {
        return format!("{resumed} of {handshakes} connections resumed a session, not {resuming}");
    }
    match arm.claims_kernel_tls() {
        Some(true) if kernel_senders != handshakes => {
            format!("{kernel_senders} of {handshakes} connections had a kernel sender")
        }
        Some(false) if kernel_senders != 0 => {
            format!("{kernel_senders} of {handshakes} connections had a kernel sender, none should")
        }
        _ => String::new(),
    }
}

/// Bytes without a pattern that anything could profit from.
fn make_file(path: &Path, size: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path).with_context(|| format!("cannot create {}", path.display()))?);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..size.div_ceil(8) {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    let file = file.into_inner()?;
    file.set_len(size)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kernel_senders: u64, resumed: u64) -> Asked {
        Asked { requests: 10, run_time: 1, handshakes: 2, resumed, kernel_senders, suite: String::new() }
    }

    #[test]
    fn an_arm_counts_only_if_it_sent_as_it_claims() {
        let cell = Cell { size: 1, calls: None, resume: false };
        for (arm, senders, counts) in [
            (Arm::Kernel, 2, true),
            (Arm::Kernel, 1, false),
            (Arm::NginxKtls, 0, false),
            (Arm::User, 0, true),
            (Arm::Nginx, 1, false),
            (Arm::Auto, 0, true),
            (Arm::Auto, 2, true),
        ] {
            assert_eq!(void(arm, cell, &asked(senders, 0)).is_empty(), counts, "{arm:?} {senders}");
        }
    }

    #[test]
    fn handshakes_are_those_that_were_wanted() {
        for (resume, resumed, counts) in [(true, 1, true), (true, 0, false), (false, 0, true), (false, 1, false)] {
            let cell = Cell { size: 1, calls: Some(1), resume };
            assert_eq!(void(Arm::User, cell, &asked(0, resumed)).is_empty(), counts, "{resume} {resumed}");
        }
    }
}
