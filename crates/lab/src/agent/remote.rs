//! The lab's side: loads that an agent carries out.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Hello, Load, Proof, Request, Response, Side, challenge, frame};
use crate::load::{LoadPlan, Outcome};

/// An agent that has proven the token.
#[derive(Debug)]
pub(crate) struct Remote {
    stream: TcpStream,
    /// The agent's machine, in words.
    pub(crate) machine: String,
}

impl Remote {
    /// Connects to the agent at `address`, HOST:PORT.
    ///
    /// # Errors
    /// It does not answer, is of another version, or has another token.
    pub(crate) fn connect(address: &str, token: &str) -> Result<Self> {
        let cannot = || format!("cannot reach the agent at {address}: is `sealion-lab agent` running there?");
        let found = address.to_socket_addrs().with_context(cannot)?.next().with_context(cannot)?;
        let mut stream = TcpStream::connect_timeout(&found, PATIENCE).with_context(cannot)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let theirs: Hello = frame::read(&mut stream, frame::BEFORE_PROOF)?;
        let ours = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), challenge: challenge()? };
        ensure!(
            theirs.version == ours.version,
            "the agent at {address} is version {}, and this is {}: install the same on both",
            theirs.version,
            ours.version
        );
        frame::write(&mut stream, &ours)?;
        frame::write(&mut stream, &Side::Lab.prove(token, &theirs.challenge))?;
        let proof: Proof = frame::read(&mut stream, frame::BEFORE_PROOF)
            .with_context(|| format!("the agent at {address} refused this lab: do both have the same token?"))?;
        ensure!(
            Side::Agent.has_proven(token, &ours.challenge, &proof),
            "the agent at {address} does not know the token"
        );
        // A load takes as long as its plan says.
        stream.set_read_timeout(None)?;
        let mut remote = Self { stream, machine: String::new() };
        remote.machine = match remote.ask(&Request::Machine)? {
            Response::Machine(machine) => machine,
            _ => bail!("the agent at {address} answers another question"),
        };
        Ok(remote)
    }

    /// As [`crate::load::run`], on the agent's machine.
    ///
    /// # Errors
    /// As there, or the agent is gone.
    pub(crate) fn run(&mut self, plan: &LoadPlan) -> Result<Outcome> {
        match self.ask(&Request::Run(Box::new(load(plan)?)))? {
            Response::Outcome(outcome) => outcome.outcome(),
            _ => bail!("the agent answers another question"),
        }
    }

    /// As [`crate::load::run_beside`], on the agent's machine.
    ///
    /// # Errors
    /// As there, or the agent is gone.
    pub(crate) fn run_beside(&mut self, plan: &LoadPlan, other: &LoadPlan) -> Result<(Outcome, Outcome)> {
        match self.ask(&Request::RunBeside(Box::new([load(plan)?, load(other)?])))? {
            Response::Both(both) => {
                let [measured, beside] = *both;
                Ok((measured.outcome()?, beside.outcome()?))
            }
            _ => bail!("the agent answers another question"),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Response> {
        frame::write(&mut self.stream, request).context("the agent")?;
        match frame::read(&mut self.stream, frame::AFTER_PROOF).context("the agent")? {
            Response::Failed(why) => bail!("the agent: {why}"),
            response => Ok(response),
        }
    }
}

fn load(plan: &LoadPlan) -> Result<Load> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(Load { plan: plan.clone(), roots: plan.roots.as_ref().map(read).transpose()? })
}

/// The time to connect and to prove the token.
const PATIENCE: Duration = Duration::from_secs(10);
