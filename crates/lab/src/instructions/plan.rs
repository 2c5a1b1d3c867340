//! What is counted.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::load::Suite;

/// Everything that the guest must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Servers, in the order of the table's columns.
    pub(crate) arms: Vec<Arm>,
    /// Loads, each on every arm.
    pub(crate) cells: Vec<Cell>,
    /// The suite that all agree on.
    pub(crate) suite: Suite,
    /// Whether nginx keeps files open between requests.
    pub(crate) open_file_cache: bool,
    pub(crate) client: Client,
    /// Our server's program, at the same path here and in the guest.
    pub(crate) sealion: PathBuf,
}

/// A server, and a way of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arm {
    /// Ours, sealing in user space
    User,
    /// Ours, sealing in the kernel from the first response on
    Kernel,
    /// Ours, by its policy
    Auto,
    /// nginx, sealing in user space
    Nginx,
    /// nginx with kernel TLS
    NginxKtls,
    /// nginx without TLS
    NginxPlain,
}

impl Arm {
    /// As on the command line, in tables and in `raw.csv`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
            Self::Nginx => "nginx",
            Self::NginxKtls => "nginx-ktls",
            Self::NginxPlain => "nginx-plain",
        }
    }

    /// Whether every connection must have a kernel sender, or none; `None`: the server's choice.
    pub(crate) fn claims_kernel_tls(self) -> Option<bool> {
        match self {
            Self::User | Self::Nginx | Self::NginxPlain => Some(false),
            Self::Kernel | Self::NginxKtls => Some(true),
            Self::Auto => None,
        }
    }
}

/// A load of 2 connections in a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Body bytes.
    pub(crate) size: u64,
    /// Requests on a connection; `None`: unlimited.
    pub(crate) calls: Option<u64>,
    /// Whether connections resume sessions.
    pub(crate) resume: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", size_name(self.size))?;
        if let Some(calls) = self.calls {
            write!(formatter, " × {calls}")?;
        }
        if self.resume {
            formatter.write_str(" resumed")?;
        }
        Ok(())
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// The lab's own: a run of many requests less a run of few, so that the start is not in the count
    Lab,
    /// wrk -t1 -c2 -d1: the start is in the count
    Wrk,
}

/// `1k`, `64k`, `1m`, or the number where it is no multiple.
pub(super) fn size_name(size: u64) -> String {
    match size {
        0 => "0".to_owned(),
        _ if size.is_multiple_of(1 << 20) => format!("{}m", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}k", size >> 10),
        _ => size.to_string(),
    }
}
