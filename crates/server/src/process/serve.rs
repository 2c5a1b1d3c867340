//! Start and stop: everything that can be wrong is found before the first connection, and said in one line.

use std::sync::{Arc, Weak};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealion_ktls::probe;
use sealion_tls::Version;
use sealion_tls::record::Aead;
use tokio::signal::unix::{Signal as UnixSignal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::{reload, service_manager};
use super::build::{build, cache_limits};
use super::privileges::{self, Confinement};
use super::upgrade::{self, Predecessor, Program, Service, Starting, Successor};
use crate::certificates::{self, TlsProcess};
use crate::config::{Config, ServeArgs};
use crate::exchange::{Generations, Shared};
use crate::listen::{Address, Inherited, Listeners, worker};
use crate::monitor;
use crate::observe::access_log::{AccessLog, Destination};
use crate::observe::messages::log_to_stderr;
use crate::observe::metrics::Metrics;
use crate::path::costs::{Costs, display_bytes};
use crate::path::offer::{KernelOffer, explain};
use crate::path::policy::KtlsMode;
use crate::values::{Bounded, Phase};

/// Descriptors beside connections, their files and the workers' own: logs, the root, the canary. GUESS, generous.
const OTHER_DESCRIPTORS: u64 = 128;

/// Descriptors of a worker beside its listeners: epoll, wake-up, signals. GUESS, generous.
const WORKER_DESCRIPTORS: u64 = 8;

/// Most connections unless the operator says otherwise; see `--max-connections`.
const DEFAULT_MAX_CONNECTIONS: u64 = 10_000;

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// A line for each thing that is wrong, with the remedy. Nothing has been served then.
pub(crate) fn run(args: &ServeArgs) -> Result<(), String> {
    let program = Program::of_this_process();
    let (predecessor, mut inherited) = match Predecessor::find()? {
        Some((predecessor, inherited)) => (Some(predecessor), inherited),
        None => (None, Inherited::from_systemd()?),
    };
    let (mut config, mut problems) = args.configuration().map_err(|problems| problems.to_string())?;
    log_to_stderr(config.server.log);
    let workers = config.server.worker_count();
    let ktls = config.server.ktls;
    let kernel = Arc::new(KernelOffer::new(probe::probe()));
    kernel.check(ktls)?;
    if ktls != KtlsMode::Never {
        kernel.self_check();
    }
    let costs = config.server.costs(&mut problems);
    let metrics_listener = monitor::Listener::bind(&config.metrics, &mut problems, &mut inherited)?;
    let (destination, layout) = config.access_log.build(&problems);
    let tls = TlsProcess::new()?;
    let rekeys = kernel.probe().rekey_tx().is_ok();
    let first = build(&config, problems, &tls, rekeys).map_err(|problems| problems.to_string())?;
    let mut made = first.certificates.make_directories()?;
    let max_connections = max_connections(&config)?;
    // It opens files that may be out of reach later.
    let metrics = Metrics::new(metrics_listener.is_some());
    let mut listeners = Listeners::bind(&config.listen, workers, &mut inherited)?;
    if let Some(listener) = &metrics_listener {
        listeners.held.push(listener.held()?);
    }
    for address in inherited.finish()? {
        tracing::info!("no longer on {address}: the configuration does not say so any more");
    }
    let inherited = predecessor.as_ref().map_or_else(Confinement::default, |predecessor| predecessor.confinement);
    made.append(&mut listeners.made);
    let mut given = privileges::give_up(&config, args.config.as_deref(), &made, inherited)?;
    if given.is_worth_a_line() {
        given.lacking.extend(reload::out_of_reach(args, &tls, rekeys));
    }
    privileges::check_roots(&config, args.config.as_deref(), given.confinement)?;
    let (access_log, log_writer) = AccessLog::open(&destination, layout).map_err(|error| {
        let name = match &destination {
            Destination::Stdout => "standard output".to_owned(),
            other => other.to_string(),
        };
        format!("cannot write the access log to {name}: {error}: name a file that can be written, `stdout` or `off`")
    })?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
    // Before the first line is printed: who waits for it may send a signal at once.
    let mut signals = {
        let _entered = runtime.enter();
        Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?
    };

    let what = describe(&config);
    for (address, place) in &listeners.addresses {
        let shown = display_address(address);
        match config.listen.get(*place).filter(|listen| !*listen.tls) {
            None => eprintln!("sealion: serving {what} on {shown}"),
            Some(_) => eprintln!("sealion: sending clients to HTTPS on {}", shown.replacen("https:", "http:", 1)),
        }
    }
    for address in &listeners.absent {
        eprintln!("sealion: not on {address}: this machine does not have that address");
    }
    if let Some(listener) = &metrics_listener {
        listener.announce();
    }
    if given.is_worth_a_line() {
        eprintln!("sealion: confined: {given}");
    }
    for lacking in &given.lacking {
        eprintln!("sealion: {lacking}");
    }
    let (certificate, note) = &first.certificates.default;
    for used in first.certificates.in_use() {
        let note = if used.file == *certificate { note } else { "" };
        eprintln!("sealion: certificate {}{note}, SHA-256 {}", used.file.display(), used.facts.fingerprint);
    }
    for note in &first.certificates.notes {
        tracing::warn!("{note}");
    }
    eprintln!("sealion: {}", kernel_line(ktls, kernel.probe(), &costs));
    if ktls == KtlsMode::Auto && kernel.probe().any_tx() {
        eprintln!("sealion: what the paths cost: {}", costs.origin);
    }

    let (phase, _) = watch::channel(Phase::Serving);
    let shared = Arc::new(Shared {
        generations: Generations::new(first),
        tls,
        kernel,
        costs,
        access_log,
        metrics,
        slots: Arc::new(Semaphore::new(max_connections)),
        addresses: Arc::default(),
        most_connections: max_connections,
        phase: phase.subscribe(),
        proxies_refused: AtomicU64::new(0),
        cut: AtomicUsize::new(0),
    });
    let threads = worker::start(listeners.sets, &config.listen, &shared)?;
    let metrics_thread = metrics_listener.map(|listener| listener.start(&shared)).transpose()?;
    if let Some(pause) = config.server.self_check_every {
        start_self_checks(Arc::downgrade(&shared), pause.duration())?;
    }

    if let Some(predecessor) = predecessor {
        predecessor.replace();
    }
    // Not before: of two processes that ask an authority for the same certificate one is asked in vain.
    let served = Arc::downgrade(&shared);
    let latest = move || served.upgrade().map(|shared| Arc::clone(&shared.generations.latest().certificates));
    certificates::start(latest, &shared.tls, shared.phase.clone())?;
    service_manager::ready(&format!("serving {what}"));

    let mut service = Arc::new(Service { held: listeners.held, confinement: given.confinement });
    runtime.block_on(async {
        let starting = Starting::default();
        let mut upgrade = None;
        let (why, next) = loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::Reload => {
                        service_manager::reloading();
                        reload::reload(args, &shared, &mut config, given.confinement);
                        let serving = describe(&config);
                        service_manager::ready(&format!("serving {serving}"));
                    }
                    Signal::Reopen => shared.access_log.reopen(),
                    Signal::Upgrade if upgrade.is_some() => tracing::warn!("SIGUSR2: an upgrade is under way already"),
                    Signal::Upgrade if std::process::id() == 1 => tracing::error!(
                        "SIGUSR2: this is process 1, whose end is the end of its container: start a new container instead"
                    ),
                    Signal::Upgrade => upgrade = Some(start_successor(&program, &service, &starting)),
                    Signal::Stop(name) => {
                        upgrade::stop(&starting);
                        // One that has just begun to serve stops when it is dropped.
                        drop(upgrade.take());
                        break (name, Phase::Draining);
                    }
                },
                successor = async { upgrade.as_mut().expect("asked for only if there is one").await }, if upgrade.is_some() => {
                    upgrade = None;
                    match successor.unwrap_or_else(|error| Err(error.to_string())) {
                        Ok(successor) => {
                            let pid = successor.pid();
                            service_manager::replaced_by(pid);
                            successor.hand_over();
                            tracing::info!("process {pid} has taken over");
                            break ("SIGUSR2", Phase::HandedOver);
                        }
                        Err(error) => {
                            tracing::error!("the upgrade failed: {error}");
                            tracing::error!("this process goes on serving; SIGUSR2 tries again");
                        }
                    }
                }
            }
        };
        let grace = shared.generations.latest().limits.grace.duration();
        if next == Phase::Draining {
            service_manager::stopping("responses under way are finished");
        }
        // What is still in the queues of a server that stops is refused now, and not at its end.
        service = Arc::default();
        phase.send_replace(next);
        tracing::info!("{why}: no new connections; responses under way have {} s", grace.as_secs_f32());
        let mut ended = tokio::task::spawn_blocking(|| threads.into_iter().try_for_each(thread::JoinHandle::join));
        let mut phase_now = next;
        loop {
            tokio::select! {
                ended = &mut ended => break ended,
                signal = signals.next() => match signal {
                    Signal::Stop(name) if phase_now == Phase::HandedOver => {
                        tracing::info!("{name}: connections on which nothing comes are closed");
                        phase_now = Phase::Draining;
                        phase.send_replace(Phase::Draining);
                    }
                    Signal::Stop(again) => {
                        tracing::warn!("{again} again: stopping at once");
                        phase.send_replace(Phase::Stopping);
                        break ended.await;
                    }
                    Signal::Reopen => shared.access_log.reopen(),
                    Signal::Reload | Signal::Upgrade => {}
                },
            }
        }
        .is_ok_and(|joined| joined.is_ok())
        .then_some(())
        .ok_or("a worker thread panicked; the message above says where")
    })?;
    drop(service);
    if let Some(thread) = metrics_thread.filter(|_| *shared.phase.borrow() == Phase::HandedOver) {
        // What it had taken out of the queue it answers.
        let _ = thread.join();
    }
    let cut = shared.cut.load(Ordering::Relaxed);
    if cut > 0 {
        tracing::warn!("{cut} connections were cut: their responses took longer than --grace");
    }
    // The writer ends with the last sender, which is in `shared`; a self-check may hold that a moment longer.
    drop(shared);
    log_writer.finish();
    Ok(())
}

/// Starts this program anew, on a thread that may wait for it.
fn start_successor(
    program: &Program,
    service: &Arc<Service>,
    starting: &Starting,
) -> JoinHandle<Result<Successor, String>> {
    tracing::info!("SIGUSR2: starting {} to take over", program.path().display());
    let (program, service, starting) = (program.clone(), Arc::clone(service), Arc::clone(starting));
    tokio::task::spawn_blocking(move || Successor::start(&program, &service, &starting))
}

/// Repeats the self-check for as long as the server runs. It holds nothing of the server that its end waits for.
fn start_self_checks(shared: Weak<Shared>, pause: Duration) -> Result<(), String> {
    let repeat = move || {
        loop {
            thread::sleep(pause);
            let Some(shared) = shared.upgrade() else { return };
            let (mode, kernel) = (shared.generations.latest().ktls, Arc::clone(&shared.kernel));
            drop(shared);
            if mode != KtlsMode::Never {
                kernel.self_check();
            }
        }
    };
    thread::Builder::new()
        .name("self-check".to_owned())
        .spawn(repeat)
        .map(drop)
        .map_err(|e| format!("cannot start the self-check: {e}"))
}

/// What is served, in a word or two.
fn describe(config: &Config) -> String {
    match config.site.as_slice() {
        [site] => site.root.as_ref().map(|root| root.display().to_string()).unwrap_or_default(),
        sites => format!("{} sites", sites.len()),
    }
}

/// The number of connections that can be served, with the limit on open files raised to what it may be.
fn max_connections(config: &Config) -> Result<usize, String> {
    let wanted = config.limits.max_connections.map(Bounded::get);
    let workers = config.server.worker_count() as u64;
    let addresses: usize = config.listen.iter().map(|listen| 2 * listen.address.addresses.len()).sum();
    let kept = cache_limits(config).files;
    let others = OTHER_DESCRIPTORS + workers * (WORKER_DESCRIPTORS + (addresses + kept) as u64);
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    // A connection and the file it sends.
    let possible = allowed.saturating_sub(others) / 2;
    let connections = match wanted {
        Some(wanted) if wanted > possible => {
            return Err(format!(
                "--max-connections {wanted} needs {} open files, but at most {allowed} are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=) or lower the number to {possible}",
                wanted * 2 + others
            ));
        }
        Some(wanted) => wanted,
        None => possible.min(DEFAULT_MAX_CONNECTIONS),
    };
    if connections == 0 {
        return Err(format!("only {allowed} open files are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=)"));
    }
    let needed = connections * 2 + others;
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)
            .map_err(|e| format!("cannot raise the limit on open files to {needed}: {e}"))?;
    }
    usize::try_from(connections).map_err(|e| e.to_string())
}

fn kernel_line(mode: KtlsMode, probe: &probe::Probe, costs: &Costs) -> String {
    match (mode, explain(probe)) {
        (KtlsMode::Never, _) => {
            "kernel TLS is not used (--ktls never): all responses are sealed in user space".to_owned()
        }
        (_, Some(why)) => format!("kernel TLS is not available, all responses are sealed in user space. {why}"),
        (_, None) if !probe.any_tx() => format!("all responses are sealed in user space. {probe}"),
        (KtlsMode::Always, None) => "kernel TLS is available and used for every response".to_owned(),
        (KtlsMode::Auto, None) => moving_line(probe, costs),
    }
}

/// When a connection moves. Of the suites that the kernel seals the first in the order in which clients want them.
fn moving_line(probe: &probe::Probe, costs: &Costs) -> String {
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

enum Signal {
    Reload,
    Upgrade,
    /// The access log's file was moved away.
    Reopen,
    Stop(&'static str),
}

struct Signals {
    hangup: UnixSignal,
    user2: UnixSignal,
    interrupt: UnixSignal,
    terminate: UnixSignal,
    user1: UnixSignal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user2: signal(SignalKind::user_defined2())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.user2.recv() => Signal::Upgrade,
            _ = self.user1.recv() => Signal::Reopen,
            _ = self.interrupt.recv() => Signal::Stop("SIGINT"),
            _ = self.terminate.recv() => Signal::Stop("SIGTERM"),
        }
    }
}
