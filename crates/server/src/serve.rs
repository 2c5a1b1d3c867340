//! Start and stop: everything that can be wrong is found before the first connection, and said in one line.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sealion_ktls::probe;
use sealion_tls::record::Aead;
use sealion_tls::{Limits, ServerConfig, Version};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use crate::access_log::{AccessLog, Destination};
use crate::cli::{LimitArgs, ServeArgs};
use crate::connection::{Phase, Shared};
use crate::costs::{Costs, display_bytes};
use crate::dev_certificate::DevCertificate;
use crate::file_cache::{CacheLimits, Files};
use crate::handler::HandlerOptions;
use crate::http1::head::HeadLimits;
use crate::kernel_offer::KernelOffer;
use crate::listener::Listeners;
use crate::resolve::Root;
use crate::send_policy::KtlsMode;
use crate::worker;

/// Descriptors beside connections, their files and the workers' own: logs, the root, the canary. GUESS, generous.
const OTHER_DESCRIPTORS: u64 = 128;

/// Descriptors of a worker beside its listeners: epoll, wake-up, signals. GUESS, generous.
const WORKER_DESCRIPTORS: u64 = 8;

/// Most connections unless the operator says otherwise; see `--max-connections`.
const DEFAULT_MAX_CONNECTIONS: u64 = 10_000;

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// A line that names what is wrong and the remedy. Nothing has been served then.
pub fn run(args: &ServeArgs) -> Result<(), String> {
    let root = Root::open(&args.root).map_err(|e| e.to_string())?;
    let workers = match args.workers {
        Some(workers) => workers.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let addresses: usize = args.listen.iter().map(|listen| listen.addresses.len()).sum();
    let cache = cache_limits(args.file_cache_age, workers);
    let others = OTHER_DESCRIPTORS + workers as u64 * (WORKER_DESCRIPTORS + (addresses + cache.files) as u64);
    let max_connections = max_connections(args.limits.max_connections, others)?;

    let probe = probe::probe();
    if args.ktls == KtlsMode::Always && !probe.any_tx() {
        let why = explain(&probe).unwrap_or_else(|| probe.to_string());
        return Err(format!("--ktls always: this kernel has no kernel TLS. {why}"));
    }
    let kernel = Arc::new(KernelOffer::new(probe));
    if args.ktls != KtlsMode::Never {
        kernel.self_check();
    }
    let costs = Costs::load(args.calibration.as_deref()).map_err(|error| {
        format!("--calibration: {error}: make it with `sealion calibrate`, or leave the option out")
    })?;
    let (pair, certificate_note) = certificate(args)?;
    let limits = connection_limits(&args.limits, kernel.probe().rekey_tx().is_ok());
    let protocols: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
    let tls = ServerConfig::from_pem_files(&pair.cert, &pair.key, &protocols, limits).map_err(|e| e.to_string())?;
    let fingerprint = fingerprint(&pair.cert)?;
    let (access_log, log_writer) = AccessLog::open(&args.access_log).map_err(|error| {
        let name = match &args.access_log {
            Destination::File(path) => path.display().to_string(),
            _ => "standard output".to_owned(),
        };
        format!("cannot write the access log to {name}: {error}: name a file that can be written, `stdout` or `off`")
    })?;
    let listeners = Listeners::bind(&args.listen, workers)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
    // Before the first line is printed: who waits for it may send a signal at once.
    let mut signals = {
        let _entered = runtime.enter();
        Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?
    };

    for address in &listeners.addresses {
        eprintln!("sealion: serving {} on https://{}", args.root.display(), display_address(address));
    }
    for address in &listeners.absent {
        eprintln!("sealion: not on {address}: this machine does not have that address");
    }
    eprintln!("sealion: certificate {}{certificate_note}, SHA-256 {fingerprint}", pair.cert.display());
    eprintln!("sealion: {}", kernel_line(args.ktls, kernel.probe(), &costs));
    if args.ktls == KtlsMode::Auto && kernel.probe().any_tx() {
        eprintln!("sealion: what the paths cost: {}", costs.origin);
    }

    let (phase, _) = watch::channel(Phase::Serving);
    let shared = Arc::new(Shared {
        files: Files::new(root, "index.html".to_owned(), cache),
        handler: HandlerOptions { max_ranges: args.limits.max_ranges, ..HandlerOptions::default() },
        head_limits: HeadLimits {
            request_line: args.limits.max_request_line,
            head: args.limits.max_head,
            fields: args.limits.max_fields.into(),
        },
        tls: Arc::new(tls),
        ktls: args.ktls,
        kernel,
        costs,
        access_log,
        limits: args.limits.clone(),
        slots: Arc::new(Semaphore::new(max_connections)),
        phase: phase.subscribe(),
        cut: AtomicUsize::new(0),
    });
    let threads = worker::start(listeners.sets, &shared)?;
    if let Some(pause) = args.self_check_every.filter(|_| args.ktls != KtlsMode::Never) {
        start_self_checks(Arc::downgrade(&shared.kernel), pause)?;
    }

    runtime.block_on(async {
        let first = signals.next().await;
        tracing::info!("{first}: no new connections; responses under way have {}", seconds(args.limits.grace));
        phase.send_replace(Phase::Draining);
        let mut ended = tokio::task::spawn_blocking(|| threads.into_iter().try_for_each(thread::JoinHandle::join));
        tokio::select! {
            ended = &mut ended => ended,
            again = signals.next() => {
                tracing::warn!("{again} again: stopping at once");
                phase.send_replace(Phase::Stopping);
                ended.await
            }
        }
        .is_ok_and(|joined| joined.is_ok())
        .then_some(())
        .ok_or("a worker thread panicked; the message above says where")
    })?;
    let cut = shared.cut.load(Ordering::Relaxed);
    if cut > 0 {
        tracing::warn!("{cut} connections were cut: their responses took longer than --grace");
    }
    // The writer ends with the last sender, which is in `shared`; a self-check may hold that a moment longer.
    drop(shared);
    log_writer.finish();
    Ok(())
}

/// Repeats the self-check for as long as the server runs. It holds nothing of the server that its end waits for.
fn start_self_checks(kernel: Weak<KernelOffer>, pause: Duration) -> Result<(), String> {
    let repeat = move || {
        loop {
            thread::sleep(pause);
            match kernel.upgrade() {
                Some(kernel) => kernel.self_check(),
                None => return,
            }
        }
    };
    thread::Builder::new()
        .name("self-check".to_owned())
        .spawn(repeat)
        .map(drop)
        .map_err(|e| format!("cannot start the self-check: {e}"))
}

/// Files that are kept open leave most descriptors to connections.
fn cache_limits(age: Duration, workers: usize) -> CacheLimits {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let limits = CacheLimits { age, ..CacheLimits::default() };
    CacheLimits { files: limits.files.min(usize::try_from(allowed / 8).unwrap_or(usize::MAX) / workers), ..limits }
}

fn connection_limits(args: &LimitArgs, kernel_rekeys: bool) -> Limits {
    Limits {
        records_per_key: args.max_records_per_key,
        stall: args.stall_timeout,
        linger: args.linger_timeout,
        kernel_rekeys,
    }
}

/// The number of connections that can be served, with the limit on open files raised to what it may be.
fn max_connections(wanted: Option<u32>, others: u64) -> Result<usize, String> {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    // A connection and the file it sends.
    let possible = allowed.saturating_sub(others) / 2;
    let connections = match wanted {
        Some(wanted) if u64::from(wanted) > possible => {
            return Err(format!(
                "--max-connections {wanted} needs {} open files, but at most {allowed} are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=) or lower the number to {possible}",
                u64::from(wanted) * 2 + others
            ));
        }
        Some(wanted) => wanted.into(),
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

fn certificate(args: &ServeArgs) -> Result<(DevCertificate, &'static str), String> {
    match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Ok((DevCertificate { cert: cert.clone(), key: key.clone(), new: false }, "")),
        _ => {
            let pair = DevCertificate::load_or_make()?;
            let note = if pair.new { " (made now, for localhost only)" } else { " (kept, for localhost only)" };
            Ok((pair, note))
        }
    }
}

/// The SHA-256 of the certificate as browsers show it.
fn fingerprint(cert: &Path) -> Result<String, String> {
    let der = CertificateDer::from_pem_file(cert).map_err(|e| format!("{}: {e}", cert.display()))?;
    let hash = digest::digest(&digest::SHA256, &der);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
}

/// What keeps the kernel from sealing, and the remedy, in one line.
fn explain(probe: &probe::Probe) -> Option<String> {
    probe.explain().map(|lines| lines.replace('\n', " "))
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

fn display_address(address: &std::net::SocketAddr) -> String {
    if address.ip().is_loopback() {
        format!("localhost:{} ({})", address.port(), address.ip())
    } else {
        address.to_string()
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f32())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
