//! The agent's side: waits for a lab, and runs its loads.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::NamedTempFile;

use super::wire::Counted;
use super::{Hello, Load, Proof, Request, Response, Side, challenge, frame};
use crate::load::{self, LoadPlan};

/// Serves labs that prove `token`, one after another, for ever; with `once`, the first that does.
///
/// # Errors
/// The listener fails.
pub fn serve(listener: &TcpListener, token: &str, once: Labs) -> Result<()> {
    loop {
        let (stream, from) = listener.accept().context("cannot accept a connection")?;
        match welcome(&stream, token) {
            Err(why) => eprintln!("{from} was refused: {why:#}"),
            Ok(()) => {
                eprintln!("{from} sends loads");
                if let Err(why) = loads(&stream) {
                    eprintln!("{from} has ended: {why:#}");
                }
                if once == Labs::One {
                    return Ok(());
                }
            }
        }
    }
}

/// How many labs an agent serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labs {
    /// The first that proves the token.
    One,
    /// Each, one after another.
    All,
}

/// Both sides prove the token.
fn welcome(mut stream: &TcpStream, token: &str) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let ours = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), challenge: challenge()? };
    frame::write(&mut stream, &ours)?;
    let theirs: Hello = frame::read(&mut stream, frame::BEFORE_PROOF)?;
    ensure!(theirs.version == ours.version, "it is version {}, and this is {}", theirs.version, ours.version);
    let proof: Proof = frame::read(&mut stream, frame::BEFORE_PROOF)?;
    ensure!(Side::Lab.has_proven(token, &ours.challenge, &proof), "it has another token");
    frame::write(&mut stream, &Side::Agent.prove(token, &theirs.challenge))?;
    stream.set_read_timeout(None)?;
    Ok(())
}

/// Runs loads until the lab closes the connection.
fn loads(mut stream: &TcpStream) -> Result<()> {
    loop {
        let request: Request = match frame::read(&mut stream, frame::AFTER_PROOF) {
            Ok(request) => request,
            // The end between two frames is the usual end.
            Err(why) if why.downcast_ref::<std::io::Error>().is_some() => return Ok(()),
            Err(why) => bail!(why),
        };
        let response = answer(request).unwrap_or_else(|why| Response::Failed(format!("{why:#}")));
        frame::write(&mut stream, &response)?;
    }
}

fn answer(request: Request) -> Result<Response> {
    Ok(match request {
        Request::Machine => Response::Machine(machine()),
        Request::Run(load) => {
            let (plan, _file) = local(*load)?;
            Response::Outcome(Box::new(Counted::new(&load::run(&plan)?)?))
        }
        Request::RunBeside(loads) => {
            let [(plan, _one), (other, _two)] = [local(loads[0].clone())?, local(loads[1].clone())?];
            let (measured, beside) = load::run_beside(&plan, &other)?;
            Response::Both(Box::new([Counted::new(&measured)?, Counted::new(&beside)?]))
        }
    })
}

/// The plan with its trust anchors in a file of this machine.
fn local(load: Load) -> Result<(LoadPlan, Option<NamedTempFile>)> {
    let Load { mut plan, roots } = load;
    let file = match roots {
        None => None,
        Some(text) => {
            let mut file = NamedTempFile::new().context("cannot make a file for the trust anchors")?;
            file.write_all(text.as_bytes())?;
            Some(file)
        }
    };
    plan.roots = file.as_ref().map(|file| file.path().to_owned());
    Ok((plan, file))
}

fn machine() -> String {
    let machine = crate::preflight::machine();
    let kernel = crate::preflight::kernel();
    format!("{}, {} cores, Linux {}", machine.processor, machine.cores, kernel.split(' ').next().unwrap_or_default())
}

/// The time in which the other side must prove the token.
const PATIENCE: Duration = Duration::from_secs(10);
