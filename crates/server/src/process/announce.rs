//! The lines on standard error at the start: listeners, confinement, certificates, kernel TLS.

use sealion_ktls::probe::Probe;
use sealion_tls::Version;
use sealion_tls::record::Aead;
use tracing::Level;

use super::memory::CacheMemory;
use super::prepare::Prepared;
use super::privileges::GivenUp;
use crate::certificates::Certificates;
use crate::config::{Config, ServeArgs};
use crate::listen::{Address, ListenConfig, Listeners};
use crate::observe::messages::print;
use crate::path::costs::{Costs, display_bytes};
use crate::path::offer::explain;
use crate::path::policy::KtlsMode;
use crate::values::Short;

/// Prints all of them.
pub(super) fn announce(args: &ServeArgs, prepared: &Prepared, listeners: &Listeners, given_up: &GivenUp) {
    announce_listeners(&prepared.config, listeners);
    if let Some(hint) = hint_at_listing(args, &prepared.config) {
        print(Level::INFO, format_args!("{hint}"));
    }
    if let Some(listener) = &prepared.metrics_listener {
        listener.announce();
    }
    if given_up.is_worth_a_line() {
        print(Level::INFO, format_args!("confined: {given_up}"));
    }
    for lacking in &given_up.lacking {
        print(Level::WARN, format_args!("{lacking}"));
    }
    announce_certificates(&prepared.generation.certificates);
    let memory = CacheMemory::of(&prepared.config);
    if memory.bound.is_some() {
        print(Level::INFO, format_args!("{memory}"));
    }
    let (ktls, probe) = (prepared.config.server.ktls, prepared.kernel.probe());
    print(Level::INFO, format_args!("{}", kernel_line(ktls, probe, &prepared.costs)));
    if ktls == KtlsMode::Auto && probe.any_tx() {
        print(Level::INFO, format_args!("what the paths cost: {}", prepared.costs.origin));
    }
}

fn announce_listeners(config: &Config, listeners: &Listeners) {
    let served = describe(config);
    for (address, place) in &listeners.addresses {
        let shown = display_address(address);
        let listen = config.listen.get(*place);
        let shown = match listen.is_none_or(|listen| *listen.tls) {
            true => shown,
            false => shown.replacen("https:", "http:", 1),
        };
        match listen.is_none_or(ListenConfig::serves) {
            true => print(Level::INFO, format_args!("serving {served} on {shown}")),
            false => print(Level::INFO, format_args!("sending clients to HTTPS on {shown}")),
        }
    }
    for address in &listeners.absent {
        print(Level::INFO, format_args!("not on {address}: this machine does not have that address"));
    }
}

fn announce_certificates(certificates: &Certificates) {
    let default = certificates.default.as_ref();
    for used in certificates.in_use() {
        let note = default.filter(|(file, _)| used.file == *file).map_or("", |(_, note)| note);
        print(
            Level::INFO,
            format_args!("certificate {}{note}, SHA-256 {}", used.file.display(), used.facts.fingerprint),
        );
    }
    for note in &certificates.notes {
        tracing::warn!("{note}");
    }
}

/// A hint for a directory whose start page shows nothing, because it has no index.
fn hint_at_listing(args: &ServeArgs, config: &Config) -> Option<String> {
    let site = config.site.first().filter(|site| args.config.is_none() && site.listing == Short::Short(false))?;
    let root = site.root.as_ref()?;
    let shows_something = site.index.iter().any(|index| root.join(&index.value).exists()) || !site.route.is_empty();
    (!shows_something).then(|| format!("{} has no index.html, so / answers 404: -l lists directories", root.display()))
}

/// The root or the target of the only site, or the number of sites.
pub(super) fn describe(config: &Config) -> String {
    match config.site.as_slice() {
        [site] => match &site.root {
            Some(root) => root.display().to_string(),
            None => {
                let servers = config.upstream.iter().flat_map(|upstream| upstream.servers.iter());
                let urls: Vec<_> = servers.map(|server| server.url.to_string()).collect();
                if urls.is_empty() { site.label() } else { urls.join(", ") }
            }
        },
        sites => format!("{} sites", sites.len()),
    }
}

fn kernel_line(mode: KtlsMode, probe: &Probe, costs: &Costs) -> String {
    match (mode, explain(probe)) {
        (KtlsMode::Never, _) => {
            "kernel TLS is not used (--ktls never): all responses are sealed in user space".to_owned()
        }
        (_, Some(reason)) => format!("kernel TLS is not available, all responses are sealed in user space. {reason}"),
        (_, None) if !probe.any_tx() => format!("all responses are sealed in user space. {probe}"),
        (KtlsMode::Always, None) => "kernel TLS is available and used for every response".to_owned(),
        (KtlsMode::Auto, None) => moving_line(probe, costs),
    }
}

/// When a connection moves to the kernel, for the most preferred suite among the suites that the kernel seals.
fn moving_line(probe: &Probe, costs: &Costs) -> String {
    let usual = Version::ALL.into_iter().rev().flat_map(|version| Aead::ALL.map(|aead| (version, aead)));
    let mut sealed = usual.filter(|(version, aead)| probe.tx(*version, aead.cipher()).is_ok());
    let Some(cost) = sealed.find_map(|(v, a)| Some(costs.of(v, a)).filter(|cost| cost.curve.ever_saves())) else {
        return "kernel TLS is available, but user space is cheaper on this machine for responses of any length: all are sealed there".to_owned();
    };
    match cost.crossover() {
        Some(0) => "kernel TLS is available: a connection moves into the kernel with its first response".to_owned(),
        Some(bytes) => format!(
            "kernel TLS is available: a connection moves into the kernel with its first response of {} or more, or when smaller ones add up",
            display_bytes(bytes)
        ),
        None => "kernel TLS is available: a connection moves into the kernel when its responses add up".to_owned(),
    }
}

fn display_address(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.ip().is_loopback() => {
            format!("https://localhost:{} ({})", address.port(), address.ip())
        }
        Address::Tcp(address) => format!("https://{address}"),
        unix @ Address::Unix(_) => unix.to_string(),
    }
}
