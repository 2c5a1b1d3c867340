//! `sealion-lab agent`: the client of a run that another machine's lab makes.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::agent::{Labs, MIN_TOKEN, serve};

/// Arguments of `sealion-lab agent`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    /// Address to wait at for the lab. The frames are not encrypted: over a network that others share, listen on
    /// 127.0.0.1 and let the lab come by ssh -L
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7443")]
    listen: SocketAddr,

    /// File with a secret of 16 bytes or more, the same on both machines. A lab that proves it may load any server from
    /// here
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,

    /// End after the first lab
    #[arg(long)]
    once: bool,
}

pub(crate) fn main(args: &AgentArgs) -> Result<ExitCode> {
    let token = token(&args.token_file)?;
    let listener = TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    eprintln!("waiting for a lab on {}", listener.local_addr()?);
    serve(&listener, &token, if args.once { Labs::One } else { Labs::All })?;
    Ok(ExitCode::SUCCESS)
}

/// The secret in a file, without blanks around it.
pub(super) fn token(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let token = text.trim();
    ensure!(
        token.len() >= MIN_TOKEN,
        "the token in {} has {} bytes, and {MIN_TOKEN} are needed: head -c 24 /dev/urandom | base64 > {}",
        file.display(),
        token.len(),
        file.display()
    );
    Ok(token.to_owned())
}
