//! `sealion reload` and `sealion upgrade`: give an order to the running server, and wait for the outcome.

use std::process::ExitCode;

use clap::Args;

use super::print;
use crate::process::control::{NotDone, Order, order, running};

/// Arguments of `sealion reload` and `sealion upgrade`.
#[derive(Debug, Clone, Args)]
pub(super) struct OrderArgs {
    /// Process of the server [default: the only one that runs]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// Gives the order and prints the outcome. The exit code is 1 if the server could not carry it out, and 2 if no server took it.
///
/// # Errors
/// The reason that the server gives.
pub(super) fn run(args: &OrderArgs, what: Order) -> Result<ExitCode, String> {
    let outcome = find(args.pid).map_err(NotDone::NotTaken).and_then(|pid| order(pid, what));
    match outcome {
        Ok(text) => print(&format!("{text}\n")).map(|()| ExitCode::SUCCESS),
        Err(NotDone::Failed(why)) => Err(why),
        Err(NotDone::NotTaken(why)) => {
            eprintln!("sealion: {why}");
            Ok(ExitCode::from(2))
        }
    }
}

fn find(pid: Option<u32>) -> Result<u32, String> {
    match (pid, &running()[..]) {
        (Some(pid), _) => Ok(pid),
        (None, [pid]) => Ok(*pid),
        (None, []) => Err(
            "no server is running here: a server in a container is reached from inside, for instance by `docker exec`"
                .to_owned(),
        ),
        (None, several) => {
            let options: Vec<_> = several.iter().map(|pid| format!("--pid {pid}")).collect();
            Err(format!("several servers are running: choose one by {}", options.join(" or ")))
        }
    }
}
