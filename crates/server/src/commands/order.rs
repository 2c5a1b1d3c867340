//! `sealion reload`, `sealion upgrade`, `sealion purge`, `sealion cache`, `sealion drain` and `sealion ready`: send an order to the running server and
//! wait for the outcome.

use std::process::ExitCode;

use clap::Args;

use super::print;
use crate::process::control::{NotDone, Order, order};
use crate::process::servers::Peer;
use crate::store::Target;
use crate::upstream::AdminState;

/// Arguments of `sealion reload` and `sealion upgrade`.
#[derive(Debug, Clone, Args)]
pub(super) struct OrderArgs {
    /// Process ID of the server [default: the only running server]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// Arguments of `sealion purge`.
#[derive(Debug, Clone, Args)]
#[group(id = "what", required = true, args = ["urls", "prefix", "tag", "site", "all"])]
pub(super) struct PurgeArgs {
    /// URLs, each with its query and all its variants: `https://example.org/news?page=2`
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,

    /// All URLs with this prefix: `https://example.org/blog/`; may be repeated
    #[arg(long, value_name = "URL")]
    pub prefix: Vec<String>,

    /// All responses with this tag in Cache-Tag, Surrogate-Key or xkey; may be repeated
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,

    /// All responses of a host name, on every port; may be repeated
    #[arg(long, value_name = "NAME")]
    pub site: Vec<String>,

    /// Everything
    #[arg(long)]
    pub all: bool,

    /// Make responses stale instead of removing them: the next request revalidates them, and they are still sent if the
    /// servers fail and the responses allow it
    #[arg(long)]
    pub soft: bool,

    #[command(flatten)]
    pub server: OrderArgs,
}

/// Arguments of `sealion cache`.
#[derive(Debug, Clone, Args)]
pub(super) struct CacheArgs {
    /// Show what is stored for this URL
    #[arg(value_name = "URL")]
    pub url: Option<String>,

    #[command(flatten)]
    pub server: OrderArgs,
}

/// Arguments of `sealion drain` and `sealion ready`.
#[derive(Debug, Clone, Args)]
pub(super) struct ServerStateArgs {
    /// Name of the `[[upstream]]`
    #[arg(value_name = "UPSTREAM")]
    pub upstream: String,

    /// URL of the server, as in the configuration, or its `id`
    #[arg(value_name = "SERVER")]
    pub server: String,

    #[command(flatten)]
    pub order: OrderArgs,
}

/// Gives a server of an upstream a state.
///
/// # Errors
/// The server's reason.
pub(super) fn set_state(args: ServerStateArgs, state: AdminState) -> Result<ExitCode, String> {
    let ServerStateArgs { upstream, server, order } = args;
    run(&order, &Order::ServerState { upstream, server, state })
}

/// Purges, with one order for each argument.
///
/// # Errors
/// A URL is invalid, or the server returns a reason.
pub(super) fn purge(args: PurgeArgs) -> Result<ExitCode, String> {
    let PurgeArgs { urls, prefix, tag, site, all, soft, server } = args;
    let is_url = |text: &&String| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.and_then(|rest| rest.split_once('/')).is_some_and(|(authority, _)| !authority.contains('@'))
    };
    if let Some(wrong) = urls.iter().chain(&prefix).find(|text| !is_url(text)) {
        return Err(format!("{wrong} is not a whole URL: write for instance https://example.org/news"));
    }
    let sites = site.into_iter().map(Target::Host);
    let targets = urls.into_iter().map(Target::Url).chain(prefix.into_iter().map(Target::Prefix));
    let targets = targets.chain(tag.into_iter().map(Target::Tag)).chain(sites).chain(all.then_some(Target::Everything));
    let mut outcome = ExitCode::SUCCESS;
    for target in targets {
        outcome = run(&server, &Order::Purge { target, soft })?;
        if outcome != ExitCode::SUCCESS {
            break;
        }
    }
    Ok(outcome)
}

/// Sends the order and prints the outcome. The exit code is 1 if the server could not execute the order, and 2 if no
/// server accepted it.
///
/// # Errors
/// The server's reason.
pub(super) fn run(args: &OrderArgs, what: &Order) -> Result<ExitCode, String> {
    let found = args.pid.map_or_else(Peer::only, Peer::with_pid);
    let outcome = found.map_err(NotDone::NotTaken).and_then(|peer| order(peer, what));
    match outcome {
        Ok(text) => print(&format!("{text}\n")).map(|()| ExitCode::SUCCESS),
        Err(NotDone::Failed(why) | NotDone::Lost(why)) => Err(why),
        Err(NotDone::NotTaken(why)) => {
            eprintln!("sealion: {why}");
            Ok(ExitCode::from(2))
        }
    }
}
