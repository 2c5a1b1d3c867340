//! Carries out the orders of commands.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::sync::oneshot;

use super::super::control::{self, Order, Outcome};
use super::super::reload::Refused;
use super::super::upgrade::Program;
use super::Server;
use super::handover::Upgrade;
use crate::exchange::Generation;
use crate::store::{Purge, Store, Target};
use crate::upstream::AdminState;

impl Server<'_> {
    /// Carries an order out, and sends its outcome when it is known.
    pub(super) fn carry_out(
        &mut self,
        order: Order,
        reply: oneshot::Sender<Outcome>,
        upgrade: &mut Upgrade,
        program: &Program,
    ) {
        match order {
            Order::Reload => self.reload_or_upgrade(upgrade, program, reply),
            Order::Upgrade => upgrade.start(program, &self.service, "order", Some(reply)),
            Order::Purge { target, soft } => self.purge(target, soft, reply),
            Order::ApplyPurges { purges, directories } => self.apply_purges(purges, directories, reply),
            Order::ServerState { upstream, server, state } => {
                let _ = reply.send(self.set_server_state(&upstream, &server, state));
            }
            Order::Cache { url } => self.show_cache(url, reply),
        }
    }

    /// Reloads; where the configuration needs a new process, that takes over. Process 1 cannot be replaced.
    fn reload_or_upgrade(&mut self, upgrade: &mut Upgrade, program: &Program, reply: oneshot::Sender<Outcome>) {
        let outcome = match self.reload(std::process::id() != 1) {
            Ok(text) => Ok(text),
            Err(Refused::Unusable(error)) => Err(error),
            Err(Refused::NeedsNewProcess(_)) => return upgrade.start(program, &self.service, "reload", Some(reply)),
        };
        // The command may be gone.
        let _ = reply.send(outcome);
    }

    fn purge(&self, target: Target, soft: bool, reply: oneshot::Sender<Outcome>) {
        let latest = self.shared.generations.latest();
        let upstreams = names_in_keys(&latest);
        let targets = match target {
            // Rules may store it with another query, for instance in their order.
            Target::Url(url) => latest.sites.spellings(url).into_iter().map(Target::Url).collect(),
            target => vec![target],
        };
        self.of_store(reply, move |store| {
            let names = || upstreams.iter().map(String::as_str);
            // All are ordered, though one fails.
            let told: Vec<_> = targets.into_iter().map(|target| store.ordered(target, soft, names())).collect();
            let failed = told.iter().any(Result::is_err);
            let lines = told.into_iter().map(|told| told.unwrap_or_else(|error| error));
            let lines = lines.collect::<Vec<_>>().join("\n");
            if failed { Err(lines) } else { Ok(lines) }
        });
    }

    /// Applies purges of the process that this one replaced, which has these directories.
    fn apply_purges(&self, purges: Vec<Purge>, directories: Vec<PathBuf>, reply: oneshot::Sender<Outcome>) {
        let latest = self.shared.generations.latest();
        let Some(store) = latest.store.clone() else { return drop(reply.send(Ok(String::new()))) };
        tokio::task::spawn_blocking(move || {
            let applied = store.apply_forwarded(purges, |url| latest.sites.spellings(url));
            let is_shared = store.directories().iter().any(|own| directories.contains(own));
            let told = if is_shared { control::SHARED.to_owned() } else { String::new() };
            let _ = reply.send(applied.map(|()| told).map_err(|error| error.to_string()));
        });
    }

    /// Gives a server of an upstream a state.
    fn set_server_state(&self, upstream: &str, server: &str, state: AdminState) -> Outcome {
        let latest = self.shared.generations.latest();
        let Some(found) = latest.upstreams.iter().find(|other| *other.name == *upstream) else {
            return Err(format!("there is no [[upstream]] with the name {upstream:?}"));
        };
        found.set_state(server, state)?;
        Ok(match state {
            AdminState::Drain => {
                format!("{server} of {upstream} gets no new clients until it is made ready, or the process ends")
            }
            AdminState::Ready => format!("{server} of {upstream} gets new clients"),
        })
    }

    fn show_cache(&self, url: Option<String>, reply: oneshot::Sender<Outcome>) {
        let latest = self.shared.generations.latest();
        let upstreams = names_in_keys(&latest);
        let urls = url.map(|url| latest.sites.spellings(url));
        self.of_store(reply, move |store| {
            let Some(urls) = urls else { return Ok(store.describe()) };
            let names = || upstreams.iter().map(String::as_str);
            let told: Vec<_> = urls.iter().map(|url| store.describe_url(url, names())).collect();
            let stored: Vec<_> = told.iter().filter_map(|told| told.as_deref().ok()).collect();
            match stored[..] {
                [] => told.into_iter().next().unwrap_or_else(|| Ok(String::new())),
                _ => Ok(stored.join("\n")),
            }
        });
    }

    /// Has the store do something, on a thread that may block.
    fn of_store(&self, reply: oneshot::Sender<Outcome>, work: impl FnOnce(&Store) -> Outcome + Send + 'static) {
        let Some(store) = self.shared.generations.latest().store.clone() else {
            let _ = reply.send(Err("there is no cache: add [cache] to the configuration, or --cache DIR".to_owned()));
            return;
        };
        tokio::task::spawn_blocking(move || {
            // The command may be gone.
            let _ = reply.send(work(&store));
        });
    }
}

/// The names of upstreams in keys of the cache.
fn names_in_keys(generation: &Generation) -> BTreeSet<String> {
    let upstreams = generation.upstreams.iter().map(|upstream| String::from(&*upstream.name));
    upstreams.chain(generation.sites.cache_names()).collect()
}
