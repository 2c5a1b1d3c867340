//! The plan of the study: paths, pages, visits.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::arm::Arm;

/// Everything that the guest must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Names of arms, in the order of the table's columns.
    pub(crate) arms: Vec<String>,
    pub(crate) paths: Vec<Path>,
    /// Body sizes.
    pub(crate) pages: Vec<u64>,
    /// Requests of a cell on a path without loss.
    pub(crate) samples: u64,
    /// Requests of a cell on a path with loss.
    pub(crate) samples_with_loss: u64,
    /// The connections of a cell's requests.
    pub(crate) visits: Vec<Visit>,
    /// Shell commands that run in the server's namespace before each path's first arm.
    pub(crate) tune: Vec<String>,
    /// Our server's program, at the same path on the host and in the guest.
    pub(crate) sealion: PathBuf,
    /// nginx, at the same path on the host and in the guest. `None`: the nginx that every guest has.
    pub(crate) nginx: Option<PathBuf>,
}

/// A path between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Path {
    /// Round trip, ms.
    pub(crate) rtt: u32,
    /// Towards the client, Mbit/s.
    pub(crate) rate: u32,
    /// Packets lost in each direction, %.
    pub(crate) loss: f64,
}

/// The connection of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Visit {
    /// A new connection: the times include TCP and TLS handshakes.
    New,
    /// A connection that was idle for [`Self::PAUSE_SECONDS`], so that its congestion window is the initial one again
    /// (tcp_slow_start_after_idle).
    Warm,
}

impl Visit {
    /// The time between the starts of two requests; less than the servers' idle timeouts.
    pub(crate) const PAUSE_SECONDS: u32 = 20;
}

impl Plan {
    pub(crate) fn arms(&self) -> impl Iterator<Item = Arm> {
        self.arms.iter().map(|arm| arm.parse().expect("a plan is made of arms"))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ms, {} Mbit/s", self.rtt, self.rate)?;
        if self.loss > 0.0 { write!(formatter, ", {} % loss", self.loss) } else { Ok(()) }
    }
}

impl fmt::Display for Visit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::New => "new",
            Self::Warm => "warm",
        })
    }
}
