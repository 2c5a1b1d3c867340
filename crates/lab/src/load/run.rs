//! Runs a load: threads, their cores and runtimes, and the sum of their results.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{ClockId, CpuSet, sched_setaffinity};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::task::{JoinSet, LocalSet};

use super::connection::{BUFFER, Common, Connection};
use super::receiving::{Reading, Reference};
use super::requests::{MAX_FILES, Requests};
use super::schedule::{Schedule, Starts};
use super::tally::Tally;
use super::worker::{Shared, opened, work, work_on_streams};
use super::{Arrival, LoadPlan, Outcome, Protocol, Read, Suite, http3_client, quic};

/// A running load, observed from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    requests: AtomicU64,
    failures: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Requests completed so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Failures so far, over all threads.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Cancels the load. Requests in flight are dropped and not counted.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn add_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a load. The server's failures are counted in the outcome.
///
/// # Errors
/// The plan contradicts itself, the file with roots cannot be read, the limit of open files is too low, or a core does
/// not exist.
pub fn run(plan: &LoadPlan) -> Result<Outcome> {
    run_watched(plan, &Arc::default())
}

/// Like [`run`], with `progress` to watch and cancel it.
///
/// # Errors
/// As [`run`].
pub fn run_watched(plan: &LoadPlan, progress: &Arc<Progress>) -> Result<Outcome> {
    prepare(plan)?;
    let config = super::tls_client::config(plan)?;
    let reference = Arc::new(Reference::default());
    let schedule = Arc::new(Schedule::new(plan));
    let ready = Barrier::new(plan.threads);
    let tallies: Vec<Result<Tally>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|number| {
                let worker = Thread {
                    plan,
                    number,
                    config: config.clone(),
                    reference: reference.clone(),
                    schedule: schedule.clone(),
                    ready: &ready,
                    progress: progress.clone(),
                };
                scope.spawn(move || worker.run())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client thread panicked")).collect()
    });
    let mut sum = Tally::new();
    for tally in tallies {
        sum.add(tally?);
    }
    if !progress.cancelled.load(Ordering::Relaxed) {
        sum.failures.unsent = schedule.unsent(sum.started);
        if sum.failures.unsent > 0 {
            sum.failures.first.get_or_insert("a request was due and no connection was free".into());
        }
    }
    Ok(outcome(sum, &reference))
}

impl Outcome {
    /// Without a request.
    pub(crate) fn of_nothing() -> Self {
        outcome(Tally::new(), &Reference::default())
    }
}

/// The sum of all threads' results.
pub(super) fn outcome(sum: Tally, reference: &Reference) -> Outcome {
    Outcome {
        elapsed: sum.first_start.zip(sum.last_end).map_or(Duration::ZERO, |(start, end)| end - start),
        attack: sum.first_start.zip(sum.last_start).map_or(Duration::ZERO, |(first, last)| last - first),
        requests: sum.requests,
        body_bytes: sum.body_bytes,
        handshakes: sum.handshakes,
        resumed: sum.resumed,
        unanswered: sum.unanswered,
        failures: sum.failures,
        latency: sum.latency,
        lag: sum.lag,
        connect: sum.connect,
        handshake: sum.handshake,
        first_byte: sum.first_byte,
        response: sum.response,
        body_began: sum.body_began,
        client_cpu: sum.cpu,
        body_sha256: reference.sha256.get().map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect()),
        suite: sum.suite.unwrap_or_default(),
    }
}

/// Rejects impossible plans and raises the limit of open files.
pub(super) fn prepare(plan: &LoadPlan) -> Result<()> {
    check(plan)?;
    allow_open_files(plan, plan.connections)
}

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 2000;

/// Descriptors of a thread's runtime and timer, with some to spare for the process.
const FILES_OF_A_THREAD: usize = 16;

pub(super) fn check(plan: &LoadPlan) -> Result<()> {
    ensure!(
        (1..=MAX_CONNECTIONS).contains(&plan.connections),
        "{} connections: from 1 to {MAX_CONNECTIONS} are possible",
        plan.connections
    );
    ensure!(
        (1..=plan.connections).contains(&plan.threads),
        "{} threads for {} connections: each thread needs at least one",
        plan.threads,
        plan.connections
    );
    if let Some(streams) = plan.protocol.streams() {
        ensure!((1..=1000).contains(&streams), "{streams} streams on a connection: from 1 to 1000 are possible");
        let name = plan.protocol.name();
        ensure!(plan.body_cap.is_none(), "{name} is loaded without a cap on bodies");
        // A client that waits for the next start reads nothing meanwhile.
        let is_timed = matches!(plan.arrival, Arrival::Open { .. });
        ensure!(!is_timed || streams == 1, "an open loop of {name} has one request at a time on a connection");
        ensure!(plan.target.len() < 8000, "the request-target is longer than 8,000 bytes");
    }
    if let Protocol::Http3 { .. } = plan.protocol {
        ensure!(plan.read != Read::Drain, "QUIC has no records to skip: read bodies of HTTP/3 by verify or decrypt");
        ensure!(!plan.resume, "sessions of QUIC are not resumed: load HTTP/3 without it");
        let has_other = plan.suites.iter().any(|suite| matches!(suite, Suite::Tls12Aes128Gcm | Suite::Tls12Aes256Gcm));
        ensure!(!has_other && plan.suites.len() <= 1, "a client of HTTP/3 offers one suite, of TLS 1.3");
    }
    ensure!(plan.calls != Some(0), "0 calls on a connection: at least one is needed");
    ensure!(!plan.timeout.is_zero(), "a time limit of zero leaves no time for any response");
    if let Arrival::Open { rate } = plan.arrival {
        ensure!(rate.is_finite() && rate > 0.0, "a rate of {rate} requests per second: it must be above 0");
    }
    ensure!(
        plan.target.starts_with('/') && plan.target.bytes().all(|byte| byte.is_ascii_graphic()),
        "the request-target {:?} must begin with / and have no blanks",
        plan.target
    );
    if let Some(popularity) = plan.popularity {
        let files = popularity.files;
        ensure!((1..=MAX_FILES).contains(&files), "{files} files: from 1 to {MAX_FILES} are possible");
    }
    ServerName::try_from(plan.server_name.as_str())
        .with_context(|| format!("{:?} is not a server name", plan.server_name))?;
    Ok(())
}

/// Raises the soft limit of open files if it is too low for that many connections.
pub(super) fn allow_open_files(plan: &LoadPlan, connections: usize) -> Result<()> {
    let more = connections + plan.threads * FILES_OF_A_THREAD;
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
    let needed = (open + more) as u64;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    if let Some(hard) = limits.maximum
        && hard < needed
    {
        bail!(
            "this load needs {needed} open files, and this process may have {hard}: raise the limit (ulimit -Hn) or use fewer connections"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limits.maximum })
        .with_context(|| format!("cannot raise the limit of open files to {needed}"))
}

/// Starts a client of one connection at a time. `connection`: an open connection of HTTP/1.1, if any.
pub(super) fn start_client(
    clients: &mut JoinSet<std::io::Result<()>>,
    shared: &Rc<Shared>,
    protocol: Protocol,
    connection: Option<Box<Connection>>,
) {
    match protocol {
        Protocol::Http1 => clients.spawn_local(work(shared.clone(), connection)),
        Protocol::Http2 { streams } => clients.spawn_local(work_on_streams(shared.clone(), streams)),
        Protocol::Http3 { streams } => clients.spawn_local(http3_client::work(shared.clone(), streams)),
    };
}

struct Thread<'a> {
    plan: &'a LoadPlan,
    number: usize,
    config: Arc<ClientConfig>,
    reference: Arc<Reference>,
    schedule: Arc<Schedule>,
    ready: &'a Barrier,
    progress: Arc<Progress>,
}

impl Thread<'_> {
    fn run(self) -> Result<Tally> {
        let prepared = pin(&self.plan.cores, self.number).and_then(|()| {
            warm_up()?;
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a client thread")
        });
        // Every thread must reach the barrier, even after a failure.
        self.ready.wait();
        let runtime = prepared?;
        let before = thread_cpu();
        let mut tally = runtime.block_on(LocalSet::new().run_until(self.load()))?;
        tally.cpu = thread_cpu() - before;
        Ok(tally)
    }

    async fn load(self) -> Result<Tally> {
        let plan = self.plan;
        let (config, reference) = (self.config.clone(), self.reference.clone());
        let shared =
            Rc::new(shared(plan, self.number, config, reference, self.schedule.clone(), self.progress.clone())?);
        let mut connections = Vec::new();
        let is_timed = matches!(plan.arrival, Arrival::Open { .. });
        if is_timed && plan.calls.is_none() && plan.protocol == Protocol::Http1 {
            while connections.len() < self.connections() {
                // The load itself tries again.
                let Some(connection) = opened(&shared).await else { break };
                connections.push(connection);
            }
        }
        let mut clients = JoinSet::new();
        for _ in 0..self.connections() {
            start_client(&mut clients, &shared, plan.protocol, connections.pop());
        }
        while let Some(ended) = until_cancelled(&self.progress, clients.join_next()).await {
            ended.expect("a client panicked").context("cannot wait for sockets")?;
        }
        clients.shutdown().await;
        let mut shared = alone(shared).await?;
        let tally = shared.tally.get_mut();
        tally.started = shared.starts.started();
        tally.lag = shared.starts.lag();
        Ok(shared.tally.into_inner())
    }

    /// Connections of this thread.
    fn connections(&self) -> usize {
        let (each, over) = (self.plan.connections / self.plan.threads, self.plan.connections % self.plan.threads);
        each + usize::from(self.number < over)
    }
}

/// State shared by a thread's clients. Must be created inside its runtime.
pub(super) fn shared(
    plan: &LoadPlan,
    thread: usize,
    config: Arc<ClientConfig>,
    reference: Arc<Reference>,
    schedule: Arc<Schedule>,
    progress: Arc<Progress>,
) -> Result<Shared> {
    Ok(Shared {
        common: common(plan, thread, config, reference)?,
        starts: Starts::new(schedule),
        tally: RefCell::new(Tally::new()),
        calls: plan.calls,
        timeout: plan.timeout,
        progress,
    })
}

/// The state of a thread whose clients have ended. The streams of cancelled clients end when the runtime next runs.
pub(super) async fn alone(shared: Rc<Shared>) -> Result<Shared> {
    for _ in 0..MAX_TURNS {
        if Rc::strong_count(&shared) == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    Rc::into_inner(shared).context("a client outlived its thread")
}

/// Turns of the runtime, which ends some dozens of tasks in each.
const MAX_TURNS: u32 = 1 << 20;

/// Pins this thread to its core.
pub(super) fn pin(cores: &[usize], number: usize) -> Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let core = cores[number % cores.len()];
    ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run a client thread on core {core}"))
}

/// If aws-lc gathers its own entropy, a thread's first random number takes tens of milliseconds, which would be added
/// to the first handshakes.
pub(super) fn warm_up() -> Result<()> {
    aws_lc_rs::rand::fill(&mut [0; 32]).context("no random numbers")
}

/// State shared by all connections of a thread.
///
/// `thread`: the thread's number.
pub(super) fn common(
    plan: &LoadPlan,
    thread: usize,
    config: Arc<ClientConfig>,
    reference: Arc<Reference>,
) -> Result<Common> {
    Ok(Common {
        address: plan.address,
        name: ServerName::try_from(plan.server_name.clone())?,
        quic: quic::config(plan.protocol, &config)?,
        config,
        requests: RefCell::new(Requests::new(plan, thread)),
        protocol: plan.protocol,
        reading: Reading { read: plan.read, cap: plan.body_cap.unwrap_or(u64::MAX), reference },
        buffer: RefCell::new(vec![0; BUFFER]),
    })
}

/// CPU of this thread so far, ns.
fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The result of `next`, or `None` when the load is cancelled.
async fn until_cancelled<T>(progress: &Progress, next: impl Future<Output = Option<T>>) -> Option<T> {
    let mut next = std::pin::pin!(next);
    loop {
        match tokio::time::timeout(BETWEEN_LOOKS, next.as_mut()).await {
            Ok(next) => return next,
            Err(_) if progress.cancelled.load(Ordering::Relaxed) => return None,
            Err(_) => {}
        }
    }
}

/// How often a thread checks for cancellation.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
