//! One measurement: verifies the body once, then runs the load and reads the server's cost and the kernel's counters
//! before and after it.

use std::time::Duration;

use anyhow::Result;
use sealion_ktls::{Cipher, Version};

use super::client::Client;
use super::prepare::{Prepared, since_1970};
use super::watching::watched;
use super::{Job, files, server_setup};
use crate::arm::{Arm, Server, Transport};
use crate::histogram;
use crate::load::{Arrival, Extent, LoadPlan, Outcome, Popularity, Protocol, Read, Suite};
use crate::measure::{Cores, Cost, Counters, KernelThreads, memory, with_children};
use crate::proof::{self, Claim, Evidence};
use crate::row::Row;
use crate::setup_cost::{self, SetUpCost};
use crate::study::{Cell, Scale, Scene};

/// Measures, or voids the row with the reason.
///
/// # Errors
/// The plan cannot be carried out on this machine.
///
/// `rows`: the measurements so far.
pub(super) fn measure(prepared: &mut Prepared, job: &Job, rows: &[Row]) -> Result<Row> {
    let mut row = row(job);
    if let Err(why) = restart_if_ended(prepared, &job.arm) {
        row.void = format!("{why:#}");
        return Ok(row);
    }
    let verify = (job.arm.clone(), job.cell.size, job.cell.suite);
    let void = match prepared.verified.get(&verify) {
        Some(void) => void.clone(),
        None => {
            let void = verify_body(prepared, job)?;
            prepared.verified.insert(verify, void.clone());
            void
        }
    };
    if let Some(void) = void {
        row.void = format!("before the measurement: {void}");
        return Ok(row);
    }
    row.body_verified = true;
    // Before the counters are read, because this changes them too.
    row.setup = setup_cost(prepared, job)?;
    if !row.setup.is_empty() && job.arm == Arm::Kernel {
        let Prepared { setup, plan, server_setup: known, .. } = prepared;
        let measured = || server_setup::measure(setup, &job.cell, &plan.client_cores);
        row.server_setup = *known.entry(job.cell.suite).or_insert_with(measured);
    }

    if job.cell.scene == Scene::Idle {
        return idle(prepared, job, row);
    }
    if job.cell.scene == Scene::HalfLoad {
        row.rate = half_rate(prepared, job, rows)?;
        if row.rate.is_none() {
            row.void = "half of nginx' load must be measured on nginx, but no nginx arm responds".to_owned();
            return Ok(row);
        }
    }
    if let Scene::Share { percent } = job.cell.scene {
        row.rate = own_rate(prepared, job, rows)?.map(|rate| (rate * f64::from(percent) / 100.0).round().max(1.0));
        if row.rate.is_none() {
            row.void = "the arm's own rate is unknown: it answered nothing in a closed loop".to_owned();
            return Ok(row);
        }
    }
    let server = prepared.servers.get_mut(&job.arm).expect("every arm has a server");
    let mut plan = load_plan(server, &job.cell, &prepared.plan.client_cores);
    row.protocol = plan.protocol.name().to_owned();
    row.read = read_name(plan.read).to_owned();
    plan.arrival = row.rate.map_or(Arrival::Closed, |rate| Arrival::Open { rate });
    if let Some(popularity) = &mut plan.popularity {
        popularity.seed = job.round.into();
    }
    let pids = server.pid.map(with_children).transpose()?;
    let cost = |pids: &Option<Vec<u32>>| pids.as_ref().map(|pids| Cost::of(pids)).transpose();
    let threads = KernelThreads::now();
    let (cost_before, cores, counters) = (cost(&pids)?, Cores::now()?, Counters::now());
    let vegeta = prepared.setup.vegeta.as_ref().filter(|_| job.arm.is_vegeta());
    let Loaded { outcome, kernel_sockets, trouble } = match vegeta {
        Some(vegeta) => {
            let run = || vegeta.run(&plan, job.cell.size, &prepared.setup.scratch);
            let (outcome, kernel_sockets) = watched(run, server, pids.as_deref(), plan.connections)?;
            Loaded { outcome, kernel_sockets, trouble: String::new() }
        }
        None => loaded(&prepared.client, server, pids.as_deref(), &job.cell, &plan)?,
    };
    row.void = trouble;
    // The server closes the connections that the client has just closed.
    std::thread::sleep(SETTLE);
    let (counted, cores_now) = (counters.since(), Cores::now()?);
    fill(&mut row, &outcome);
    row.kernel_threads = KernelThreads::now().since(&threads);
    match cost(&pids) {
        Ok(after) => {
            if let (Some(after), Some(before), Some(pids)) = (after, cost_before, &pids) {
                let spent = after.since(&before);
                if !matches!(job.cell.scene, Scene::Beside { .. }) {
                    row.server_cpu = Some(spent.cpu);
                    row.server_user = Some(spent.user);
                    row.server_system = Some(spent.system);
                    row.server_switches = Some(spent.switches);
                    row.server_preemptions = Some(spent.preemptions);
                }
                row.server_memory = memory(pids);
            }
        }
        Err(_) => row.void = format!("the server ended: {}", server.ended().unwrap_or_default()),
    }
    row.cores_busy = cores_now.busy_since(&cores);
    row.cores_softirq = cores_now.softirq_since(&cores);
    row.softirq_elsewhere = Some(cores_now.softirq_outside(&cores, &prepared.plan.server_cores));
    (row.tls_tx_opened, row.tls_tx_device) = counted;
    row.kernel_sockets = kernel_sockets;
    if row.void.is_empty() {
        let evidence = Evidence { kernel_sockets, ..evidence(&job.cell, &outcome, counted) };
        // vegeta does not tell the suite.
        let evidence = Evidence { offered: evidence.offered.filter(|_| vegeta.is_none()), ..evidence };
        row.void = proof::void(job.arm.claim(), &evidence).unwrap_or_default();
    }
    // At the smoke scale figures mean nothing, and machines are busy.
    if row.void.is_empty() && row.rate.is_some() && prepared.plan.scale != Scale::Smoke {
        row.void = proof::late(&outcome.lag, &outcome.latency).unwrap_or_default();
    }
    Ok(row)
}

/// Half of nginx' requests per second in a closed loop, from an earlier measurement of the cell if there is one.
fn half_rate(prepared: &Prepared, job: &Job, rows: &[Row]) -> Result<Option<f64>> {
    let name = job.cell.name();
    if let Some(rate) = rows.iter().filter(|row| row.cell == name).find_map(|row| row.rate) {
        return Ok(Some(rate));
    }
    let study = prepared.plan.studies.iter().find(|study| study.name == job.study);
    let is_measured = |arm: &Arm| arm.is_nginx() && arm.has_cell(&job.cell);
    let Some(arm) = study.and_then(|study| prepared.plan.arms_of(study).filter(is_measured).last()) else {
        return Ok(None);
    };
    let closed = Cell { rate: None, ..job.cell.clone() };
    let outcome = prepared.client.run(&load_plan(&prepared.servers[&arm], &closed, &prepared.plan.client_cores))?;
    let rate = outcome.requests as f64 / outcome.elapsed.as_secs_f64() / 2.0;
    Ok((rate.is_finite() && rate > 0.0).then(|| rate.round().max(1.0)))
}

/// The arm's requests per second in a closed loop, by an earlier measurement of a share if there is one.
fn own_rate(prepared: &Prepared, job: &Job, rows: &[Row]) -> Result<Option<f64>> {
    let closed = Cell { rate: None, scene: Scene::Alone, ..job.cell.clone() };
    let name = closed.name();
    let known = rows.iter().filter(|row| row.study == job.study.name() && row.arm == job.arm.label());
    let mut known = known.filter_map(|row| {
        let percent: f64 = row.cell.strip_prefix(&name)?.strip_prefix(" share=")?.parse().ok()?;
        Some(row.rate? * 100.0 / percent)
    });
    if let Some(rate) = known.next_back() {
        return Ok(Some(rate));
    }
    let outcome = prepared.client.run(&load_plan(&prepared.servers[&job.arm], &closed, &prepared.plan.client_cores))?;
    let rate = outcome.requests as f64 / outcome.elapsed.as_secs_f64();
    Ok((rate.is_finite() && rate > 0.0).then_some(rate))
}

/// Measures by how much the memory of a freshly started server grows while connections are open and idle. A server that
/// was under load before would reuse memory.
fn idle(prepared: &mut Prepared, job: &Job, mut row: Row) -> Result<Row> {
    if prepared.client.is_elsewhere() {
        row.void = "memory of idle connections is measured with the client here, without --agent".to_owned();
        return Ok(row);
    }
    if matches!(job.arm, Arm::Peer(_)) {
        row.void =
            "memory of idle connections takes a server that was just started, and this one runs already".to_owned();
        return Ok(row);
    }
    let setup = &prepared.setup;
    let started = job.arm.start(setup).map(|server| prepared.servers.insert(job.arm.clone(), server));
    if let Err(why) = started {
        row.void = format!("{why:#}");
        return Ok(row);
    }
    let server = &prepared.servers[&job.arm];
    let plan = load_plan(server, &job.cell, &prepared.plan.client_cores);
    // A first request, so that memory which does not depend on the number of connections is already allocated.
    prepared.client.run(&whole_body(server, &job.cell, &prepared.plan.client_cores))?;
    std::thread::sleep(SETTLE);
    let pids = server.pid.map(with_children).transpose()?.unwrap_or_default();
    let (before, counters) = (memory(&pids), Counters::now());
    let (outcome, after) = prepared.client.hold(&plan, || {
        std::thread::sleep(SETTLE);
        memory(&pids)
    })?;
    let counted = counters.since();
    fill(&mut row, &outcome);
    (row.tls_tx_opened, row.tls_tx_device) = counted;
    row.server_memory = after;
    row.idle_memory = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    row.void = proof::void(job.arm.claim(), &evidence(&job.cell, &outcome, counted)).unwrap_or_default();
    if row.void.is_empty() && outcome.requests < job.cell.connections as u64 {
        row.void = format!("of {} connections {} were open", job.cell.connections, outcome.requests);
    }
    Ok(row)
}

/// Runs the load, and the cell's second load beside it if there is one.
fn loaded(client: &Client, server: &Server, pids: Option<&[u32]>, cell: &Cell, plan: &LoadPlan) -> Result<Loaded> {
    let Scene::Beside { size, connections } = cell.scene else {
        let (outcome, kernel_sockets) = watched(|| client.run(plan), server, pids, plan.connections)?;
        return Ok(Loaded { outcome, kernel_sockets, trouble: String::new() });
    };
    let other = LoadPlan {
        target: server.target(&files::name(size)),
        popularity: None,
        connections,
        calls: None,
        resume: false,
        arrival: Arrival::Closed,
        extent: Extent::Time(Duration::MAX),
        ..plan.clone()
    };
    let (outcome, other) = client.run_beside(plan, &other)?;
    let trouble = match other.failures.first {
        Some(first) => format!("the second load failed: {first}"),
        None => String::new(),
    };
    Ok(Loaded { outcome, kernel_sockets: None, trouble })
}

/// Result of a load.
struct Loaded {
    outcome: Outcome,
    /// Sockets with a kernel sender, if they were looked up.
    kernel_sockets: Option<u64>,
    /// A problem with the second load; empty: none.
    trouble: String,
}

/// Median times of the system calls that hand keys to the kernel, if the study includes them and the arm makes these
/// calls.
fn setup_cost(prepared: &Prepared, job: &Job) -> Result<String> {
    let asked = prepared.plan.studies.iter().any(|study| study.name == job.study && study.setup_cost);
    if !asked || job.arm.claim() == Claim::UserSpace || matches!(job.arm, Arm::Peer(_)) {
        return Ok(String::new());
    }
    let (version, cipher) = match job.cell.suite {
        Suite::Aes128Gcm => (Version::Tls13, Cipher::Aes128Gcm),
        Suite::Aes256Gcm => (Version::Tls13, Cipher::Aes256Gcm),
        Suite::Chacha20Poly1305 => (Version::Tls13, Cipher::Chacha20Poly1305),
        Suite::Tls12Aes128Gcm => (Version::Tls12, Cipher::Aes128Gcm),
        Suite::Tls12Aes256Gcm => (Version::Tls12, Cipher::Aes256Gcm),
    };
    Ok(match setup_cost::measure(version, cipher, SET_UPS)? {
        SetUpCost::Measured(times) => {
            [times.ulp, times.tx, times.rx].map(|times| times.value_at_quantile(0.5).to_string()).join(";")
        }
        SetUpCost::Absent(_) => String::new(),
    })
}

/// Reads the whole body over one connection. Checks that it equals the file and took the path that the arm claims.
fn verify_body(prepared: &Prepared, job: &Job) -> Result<Option<String>> {
    let server = &prepared.servers[&job.arm];
    let counters = Counters::now();
    let outcome = prepared.client.run(&whole_body(server, &job.cell, &prepared.plan.client_cores))?;
    let expected = prepared.files.hashes[&job.cell.size].clone();
    let evidence = Evidence {
        body: Some((expected, outcome.body_sha256.clone())),
        ..evidence(&job.cell, &outcome, counters.since())
    };
    Ok(proof::void(job.arm.claim(), &evidence))
}

fn evidence(cell: &Cell, outcome: &Outcome, (tx_opened, tx_device): (Option<u64>, Option<u64>)) -> Evidence {
    Evidence {
        tx_opened,
        tx_device,
        kernel_sockets: None,
        handshakes: outcome.handshakes,
        unanswered: outcome.unanswered,
        not_resumed: cell.resume.then(|| outcome.handshakes - outcome.resumed),
        connections: cell.connections as u64,
        requests: outcome.requests,
        failures: outcome.failures.total(),
        first_failure: outcome.failures.first.clone().unwrap_or_default(),
        offered: Some(cell.suite),
        agreed: outcome.suite.clone(),
        body: None,
    }
}

/// Restarts a server that has ended, at most once per measurement.
fn restart_if_ended(prepared: &mut Prepared, arm: &Arm) -> Result<()> {
    let server = prepared.servers.get_mut(arm).expect("every arm has a server");
    if server.ended().is_some() {
        *server = arm.start(&prepared.setup)?;
    }
    Ok(())
}

/// One request for the cell's file on a separate connection, read and hashed to its end.
pub(super) fn whole_body(server: &Server, cell: &Cell, cores: &[usize]) -> LoadPlan {
    let whole = Cell {
        read: Read::Verify,
        connections: 1,
        threads: 1,
        calls: None,
        rate: None,
        extent: Extent::Requests(1),
        ..cell.clone()
    };
    load_plan(server, &whole, cores)
}

/// The cell's load on `server`, by clients pinned to `cores`.
pub(crate) fn load_plan(server: &Server, cell: &Cell, cores: &[usize]) -> LoadPlan {
    // QUIC has no records that a client could skip without opening them.
    let (protocol, read) = match (server.transport, cell.read) {
        (Transport::Tcp, read) => (cell.protocol, read),
        (Transport::Http2, read) => (Protocol::Http2 { streams: 1 }, read),
        (Transport::Quic, Read::Drain) => (Protocol::Http3 { streams: 1 }, Read::Decrypt),
        (Transport::Quic, read) => (Protocol::Http3 { streams: 1 }, read),
    };
    LoadPlan {
        protocol,
        address: server.address,
        server_name: server.name.clone(),
        roots: server.roots.clone(),
        target: server.target(&match cell.scene {
            Scene::Many { files } => files::name_of_many(cell.size, files),
            _ => files::name(cell.size),
        }),
        popularity: match cell.scene {
            Scene::Many { files } => Some(Popularity { files, seed: 0 }),
            _ => None,
        },
        threads: cell.threads,
        connections: cell.connections,
        calls: cell.calls,
        resume: cell.resume,
        arrival: cell.rate.map_or(Arrival::Closed, |rate| Arrival::Open { rate }),
        extent: cell.extent,
        read,
        body_cap: None,
        suites: vec![cell.suite],
        timeout: cell.timeout,
        cores: cores.to_vec(),
    }
}

fn row(job: &Job) -> Row {
    let Cell { size, calls, connections, threads, rate, resume, read, .. } = job.cell.clone();
    Row {
        study: job.study.name().to_owned(),
        cell: job.cell.name(),
        arm: job.arm.label(),
        round: job.round,
        started: since_1970(),
        size,
        calls,
        connections: connections as u64,
        threads: threads as u64,
        rate,
        resume,
        read: read_name(read).to_owned(),
        protocol: job.cell.protocol.name().to_owned(),
        beside: match job.cell.scene {
            Scene::Beside { size, connections } => format!("{connections} × {size}"),
            _ => String::new(),
        },
        ..Row::default()
    }
}

/// As in `raw.csv`.
fn read_name(read: Read) -> &'static str {
    match read {
        Read::Verify => "verify",
        Read::Decrypt => "decrypt",
        Read::Drain => "drain",
    }
}

fn fill(row: &mut Row, outcome: &Outcome) {
    let text = |h| histogram::encode(h).unwrap_or_default();
    row.suite = outcome.suite.clone();
    row.elapsed = outcome.elapsed.as_nanos() as u64;
    row.attack = Some(outcome.attack.as_nanos() as u64);
    row.requests = outcome.requests;
    row.body_bytes = outcome.body_bytes;
    row.handshakes = outcome.handshakes;
    row.resumed = outcome.resumed;
    row.unanswered = outcome.unanswered;
    row.bad_statuses = outcome.failures.status;
    row.errors = outcome.failures.total() - outcome.failures.timeout;
    row.timeouts = outcome.failures.timeout;
    row.first_error = outcome.failures.first.clone().unwrap_or_default();
    row.latency = text(&outcome.latency);
    row.connect = text(&outcome.connect);
    row.handshake = text(&outcome.handshake);
    row.first_byte = text(&outcome.first_byte);
    row.response = text(&outcome.response);
    row.lag = if row.rate.is_some() { text(&outcome.lag) } else { String::new() };
    row.client_cpu = outcome.client_cpu;
}

/// Some round trips over loopback.
const SETTLE: Duration = Duration::from_millis(30);

/// Connections for a median of set-up times.
const SET_UPS: u32 = 50;
