//! The guest's side: every arm and cell, one after another.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::plan::size_name;
use super::server::Server;
use super::server_cost::ServerCost;
use super::{Arm, Cell, Client, Plan, wrk};
use crate::row::Row;

/// Measures `plan` and writes `raw.csv` into `out`. Certificate and key are `cert.pem` and `key.pem` in `work`.
///
/// # Errors
/// A server does not start, a client fails, or a file cannot be written.
pub fn measure(plan: &Plan, work: &Path, out: &Path) -> Result<()> {
    let www = work.join("www");
    fs::create_dir_all(&www)?;
    for cell in &plan.cells {
        make_file(&www.join(size_name(cell.size)), cell.size)?;
    }
    let mut rows = csv::Writer::from_path(out.join("raw.csv"))?;
    for &arm in &plan.arms {
        let server = Server::start(arm, plan, work, &www)?;
        // Caches, lazy symbols, first allocations.
        wrk::requests(&url(&server, plan.cells[0]), plan.suite, work).context("warm-up")?;
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
    let before = ServerCost::read(server.pid())?;
    let requests = match plan.client {
        Client::Wrk => wrk::requests(&url(server, cell), plan.suite, work)?,
    };
    let cost = ServerCost::read(server.pid())?.since(before);
    let handshakes = if arm == Arm::NginxPlain { 0 } else { CONNECTIONS };
    Ok(Row {
        study: "instructions".into(),
        cell: cell.to_string(),
        arm: arm.name().into(),
        void: void(arm, cost.kernel_senders, handshakes),
        size: cell.size,
        calls: cell.calls,
        connections: CONNECTIONS,
        threads: 1,
        resume: cell.resume,
        read: "decrypt".into(),
        suite: format!("{:?}", plan.suite),
        requests,
        body_bytes: requests * cell.size,
        handshakes,
        server_instructions: Some(cost.run_time),
        tls_tx_opened: Some(cost.kernel_senders),
        ..Row::default()
    })
}

/// Why a count does not count: the arm did not send as it claims.
fn void(arm: Arm, kernel_senders: u64, handshakes: u64) -> String {
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

fn url(server: &Server, cell: Cell) -> String {
    format!("{}://{}/{}", server.scheme, server.address, size_name(cell.size))
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

/// As in every earlier count.
const CONNECTIONS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_counts_only_if_it_sent_as_it_claims() {
        for (arm, senders, counts) in [
            (Arm::Kernel, 2, true),
            (Arm::Kernel, 1, false),
            (Arm::NginxKtls, 0, false),
            (Arm::User, 0, true),
            (Arm::Nginx, 1, false),
            (Arm::Auto, 0, true),
            (Arm::Auto, 2, true),
        ] {
            assert_eq!(void(arm, senders, 2).is_empty(), counts, "{arm:?} {senders}");
        }
    }
}
