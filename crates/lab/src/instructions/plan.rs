//! The plan of a count: arms, cells, client.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::load::{Extent, Protocol, Suite};
use crate::run::file_name;
use crate::study::Cell;

/// Everything that the guest must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Names of arms, in the order of the table's columns.
    pub(crate) arms: Vec<String>,
    /// Loads, each on every arm.
    pub(crate) cells: Vec<Cell>,
    pub(crate) client: Client,
    /// Our server's program, at the same path on the host and in the guest.
    pub(crate) sealion: PathBuf,
    /// Features that the guest's processor lacks, by QEMU's names.
    #[serde(default)]
    pub(crate) without: Vec<String>,
}

/// The program that sends the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// The lab's own: a run of many requests less a run of few, so that connecting is not counted
    Lab,
    /// wrk -t1 -c2 -d1: connecting is counted
    Wrk,
    /// h2load, in two runs as with the lab's own
    H2load,
}

impl Plan {
    pub(crate) fn arms(&self) -> impl Iterator<Item = Arm> {
        self.arms.iter().map(|arm| arm.parse().expect("a plan is made of arms"))
    }

    /// The cells with a floor: cells of the kernel path in which the server calls sendfile once.
    pub(crate) fn cells_with_floor(&self) -> impl Iterator<Item = &Cell> {
        let has_kernel = self.arms().any(|arm| arm == Arm::Kernel);
        let is_sendfile = |cell: &&Cell| {
            let large = cell.size >= 64 << 10 && cell.protocol == Protocol::Http1;
            large && cell.calls.is_none() && cell.suite == Suite::Aes128Gcm
        };
        self.cells.iter().filter(move |cell| has_kernel && is_sendfile(cell))
    }

    /// The cells to count on an arm. The cost of a log does not depend on size and handshakes, so small responses on
    /// persistent connections suffice.
    pub(crate) fn cells_of(&self, arm: &Arm) -> impl Iterator<Item = &Cell> {
        let has_log = arm.has_log();
        self.cells.iter().filter(move |cell| !has_log || (cell.calls.is_none() && cell.size <= 16 << 10))
    }
}

/// A closed loop of two connections. If connections serve a limited number of requests there is only one, because two
/// share the requests unevenly at the end, and one handshake more or less is 5 % of a cell.
pub(crate) fn cell(size: u64, calls: Option<u64>, resume: bool, suite: Suite) -> Cell {
    let connections = if calls.is_some() { 1 } else { 2 };
    // The number of requests depends on the size: see asking.rs.
    Cell { resume, suite, ..Cell::closed(size, calls, connections, Extent::Requests(0)) }
}

/// The label of a cell in tables and baselines: `64k`, `64k × 4`, `1k × 1 resumed`, `1k h2 16`.
pub(crate) fn label(cell: &Cell) -> String {
    let calls = cell.calls.map(|calls| format!(" × {calls}")).unwrap_or_default();
    let streams = match cell.protocol {
        Protocol::Http1 => String::new(),
        Protocol::Http2 { streams } => format!(" h2 {streams}"),
        Protocol::Http3 { streams } => format!(" h3 {streams}"),
    };
    format!("{}{calls}{streams}{}", file_name(cell.size), if cell.resume { " resumed" } else { "" })
}
