//! The client of a run: on this machine, or an agent on another.

use std::sync::Mutex;

use anyhow::{Result, bail};

use crate::agent::Remote;
use crate::load::{self, LoadPlan, Outcome};

/// Where requests come from.
#[derive(Debug)]
pub(super) enum Client {
    Here,
    Agent(Mutex<Remote>),
}

impl Client {
    /// As [`load::run`].
    pub(super) fn run(&self, plan: &LoadPlan) -> Result<Outcome> {
        match self {
            Self::Here => load::run(plan),
            Self::Agent(remote) => remote.lock().expect("no holder panics").run(plan),
        }
    }

    /// As [`load::run_beside`].
    pub(super) fn run_beside(&self, plan: &LoadPlan, other: &LoadPlan) -> Result<(Outcome, Outcome)> {
        match self {
            Self::Here => load::run_beside(plan, other),
            Self::Agent(remote) => remote.lock().expect("no holder panics").run_beside(plan, other),
        }
    }

    /// As [`load::hold`].
    ///
    /// # Errors
    /// As there; an agent cannot.
    pub(super) fn hold<T>(&self, plan: &LoadPlan, idle: impl FnOnce() -> T) -> Result<(Outcome, T)> {
        match self {
            Self::Here => load::hold(plan, idle),
            Self::Agent(_) => bail!("an agent does not hold idle connections: measure the memory without --agent"),
        }
    }

    /// Whether the client has a machine of its own.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Agent(_))
    }

    /// The client's machine in words; empty: this one.
    pub(super) fn machine(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::Agent(remote) => remote.lock().expect("no holder panics").machine.clone(),
        }
    }
}
