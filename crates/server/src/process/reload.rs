//! Reload: a changed configuration replaces the current one as a whole, or not at all.

use super::build::build;
use super::privileges::{self, Confinement};
use crate::certificates::TlsProcess;
use crate::config::{Config, ServeArgs, changes, needs_new_process};
use crate::exchange::Shared;
use crate::path::policy::KtlsMode;
use crate::values::Problems;

/// Why a configuration is not taken over.
#[derive(Debug)]
pub(super) enum Refused {
    /// It changes keys that a process keeps from start to end, a line for each. A new process would take it over.
    NeedsNewProcess(String),
    /// It has problems.
    Unusable(String),
}

/// Reads the configuration again and uses it from the next handshake and request on. If it has problems, they are logged, and the
/// current one stays in use. `config`: the configuration in use. `may_upgrade`: the caller starts a new process where one is needed. Returns a
/// line for the operator.
///
/// # Errors
/// The current configuration stays in use.
pub(super) fn reload(
    args: &ServeArgs,
    shared: &Shared,
    config: &mut Config,
    confinement: Confinement,
    may_upgrade: bool,
) -> Result<String, Refused> {
    let reloaded = reloaded(args, shared, config, confinement);
    if may_upgrade && let Err(Refused::NeedsNewProcess(_)) = reloaded {
        tracing::info!("the configuration needs a new process");
        return reloaded.map(|_| String::new());
    }
    shared.metrics.reloaded(reloaded.is_ok());
    reloaded
        .map(|number| {
            tracing::info!("configuration {number} is in use");
            format!("configuration {number} is in use")
        })
        .map_err(|refused| {
            let (Refused::NeedsNewProcess(error) | Refused::Unusable(error)) = refused;
            for line in error.lines() {
                tracing::error!("{line}");
            }
            tracing::error!("{KEPT}");
            Refused::Unusable(format!("{error}\n{KEPT}"))
        })
}

const KEPT: &str = "the configuration was not reloaded: the one before stays in use";

/// Files that a reload or a successor could no longer read, because this process has given up privileges. Builds the configuration a
/// second time to find them at the start, not at the first reload.
pub(crate) fn out_of_reach(args: &ServeArgs, tls: &TlsProcess, kernel_rekeys: bool) -> Vec<String> {
    let built = args
        .configuration()
        .and_then(|(config, problems)| build(&config, problems, tls, kernel_rekeys, None))
        .map_err(|problems| problems.to_string());
    let lines = built.err().unwrap_or_default();
    let remedy = "a reload or an upgrade will fail: let the server's user or group read it, or name it in privileges";
    lines.lines().map(|line| format!("{line}: {remedy}")).collect()
}

fn reloaded(args: &ServeArgs, shared: &Shared, current: &mut Config, confinement: Confinement) -> Result<u64, Refused> {
    let unusable = |problems: Problems| Refused::Unusable(problems.to_string());
    let (mut config, problems) = args.configuration().map_err(unusable)?;
    let before = shared.generations.latest();
    let changes = changes(current, &config);
    let fixed: Vec<String> = changes
        .iter()
        .filter(|change| needs_new_process(&change.key))
        .map(|change| {
            format!("{change}: this change needs a new process: send SIGUSR2 for an upgrade, or restart the service")
        })
        .collect();
    if !fixed.is_empty() {
        // A successor inherits the privileges that were given up: only a restart gives some back.
        let is_privilege = changes.iter().any(|change| change.key.starts_with("privileges"));
        let refused = if is_privilege { Refused::Unusable } else { Refused::NeedsNewProcess };
        return Err(refused(fixed.join("\n")));
    }
    // In the order of the start: the sites of a listener are found by its place.
    config.listen.sort_by_key(|own| current.listen.iter().position(|other| other == own));
    privileges::check_roots(&config, args.config.as_deref(), confinement).map_err(Refused::Unusable)?;
    shared.kernel.check(config.server.ktls, &args.ktls_setting()).map_err(Refused::Unusable)?;
    let rekeys = shared.kernel.probe().rekey_tx().is_ok();
    let next = build(&config, problems, &shared.tls, rekeys, Some(&before)).map_err(unusable)?;
    // For new accounts. This process may have fewer permissions than at its start.
    next.certificates.make_directories().map_err(Refused::Unusable)?;
    if before.ktls == KtlsMode::Never && next.ktls != KtlsMode::Never {
        // Not done at the start, because kernel TLS was off.
        shared.kernel.self_check();
    }
    for change in &changes {
        tracing::info!("{change}");
    }
    for note in &next.certificates.notes {
        tracing::warn!("{note}");
    }
    if changes.is_empty() {
        tracing::info!("the configuration is unchanged; files and certificates are read again");
    }
    *current = config;
    Ok(shared.generations.publish(next))
}
