//! Everything before the first measurement: checks the machine and the input, makes files, starts servers.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use sealion_ktls::probe::{self, Probe};
use tempfile::TempDir;

use super::client::Client;
use super::identity;
use super::paths::Paths;
use super::{CalibrationSource, Files, KernelPath, Options, Plan, files, files_directory, measurement, pinned};
use crate::agent::Remote;
use crate::arm::{
    Arm, Certificate, ClientPlace, Group, Nginx, Place, Sealion, Server, Setup, Vegeta, no_kernel_tls, own_cores,
};
use crate::load::{self, Suite};
use crate::preflight::{self, Finding};
use crate::proof::Claim;
use crate::run_info::{ArmInfo, CalibrationInfo, RunInfo, Version};
use crate::study::{Cell, Scale, Scene, Study};

pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) files: Files,
    pub(super) setup: Setup,
    /// Where requests come from.
    pub(super) client: Client,
    /// Started, or already running; each idles while another is measured.
    pub(super) servers: HashMap<Arm, Server>,
    /// The results of reading the whole body: `None` if it was correct, otherwise why measurements are void.
    pub(super) verified: HashMap<(Arm, u64, Suite), Option<String>>,
    /// The time of a move by the server's own clock, for each suite measured.
    pub(super) server_setup: HashMap<Suite, Option<u64>>,
    _scratch: TempDir,
    /// Removed after the servers have ended.
    _group: Option<Group>,
}

pub(super) fn prepare(options: &Options) -> Result<Prepared> {
    // First: the loopback interface of a new namespace is down, and the probe connects to itself.
    options.limits.shape()?;
    let probe = probe::probe();
    let mut absent = Vec::new();
    let client = match &options.agent {
        None => Client::Here,
        Some(agent) => Client::Agent(Mutex::new(Remote::connect(&agent.address, &agent.token)?)),
    };
    let studies = studies(options, &probe, &mut absent)?;
    let (server_cores, client_cores) = cores(options)?;
    let plan = Plan { studies, scale: options.scale, server_cores, client_cores };
    let resumed = directory(options, &plan)?;
    let arms = plan.arms();
    let sealion = arms.iter().any(Arm::is_ours).then(|| Sealion::find(options.sealion.as_deref())).transpose()?;
    let nginx = arms.iter().any(Arm::is_nginx).then(|| Nginx::find(options.nginx.as_deref())).transpose()?;
    let vegeta = arms.iter().any(Arm::is_vegeta).then(|| Vegeta::find(options.vegeta.as_deref())).transpose()?;

    let beside: &[usize] = if client.is_elsewhere() { &[] } else { &plan.client_cores };
    let mut findings = preflight::findings(&plan.server_cores, beside);
    findings.extend(debug_builds(options, sealion.as_ref())?);
    let cells = || plan.studies.iter().flat_map(|study| &study.cells);
    forget_metrics_in_guest()?;
    let largest = cells().flat_map(Cell::sizes).max().filter(|_| options.address.is_loopback());
    findings.extend(preflight::remembered_metrics(largest));
    preflight::descriptors(cells().map(|cell| cell.connections).max().unwrap_or(0))?;
    reach_peers(&arms)?;
    let used: Vec<usize> = plan.server_cores.iter().chain(beside).copied().collect();
    findings.extend(preflight::busy(&used)?);
    preflight::consent(&findings, options.yes)?;

    let group = options.limits.group("servers")?;
    let files = match &options.files {
        Some(directory) => directory.clone(),
        None => files_directory()?,
    };
    let sizes: BTreeSet<u64> = cells().flat_map(Cell::sizes).collect();
    let files = Files::make(&std::path::absolute(files)?, &sizes)?;
    for cell in cells() {
        if let Scene::Many { files: many } = cell.scene {
            files::make_many(&files.directory, cell.size, many)?;
        }
    }
    let scratch = tempfile::Builder::new().prefix("sealion-lab-").tempdir().context("cannot make a directory")?;
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot make {}", options.out.display()))?;
    let calibration = match sealion.as_ref().filter(|_| arms.iter().any(Arm::is_auto)) {
        Some(sealion) => Some(calibration(options, &probe, sealion)?),
        None => None,
    };
    let setup = Setup {
        sealion,
        nginx,
        certificate: Certificate::make(scratch.path())?,
        files: files.directory.clone(),
        scratch: scratch.path().to_owned(),
        cores: plan.server_cores.clone(),
        group: group.as_ref().map(|group| group.directory().to_owned()),
        address: options.address,
        calibration: calibration.as_ref().map(|(file, _)| file.clone()),
        peer_pid: options.peer_pid,
        vegeta,
    };
    let mut servers = HashMap::new();
    peers_have_files(&arms, &files, &plan)?;
    for arm in &arms {
        let server = arm.start(&setup).with_context(|| format!("arm {arm}"))?;
        servers.insert(arm.clone(), server);
    }

    let paths = Paths::new(programs_of(&setup), &setup.scratch, &options.out);
    let mut info = info(options, &plan, &probe, &setup, &findings);
    info.command = paths.shorten(&info.command);
    info.client = client.machine();
    info.calibration = calibration.map(|(_, info)| info).unwrap_or_default();
    info.arms = arms.iter().map(|arm| arm_info(arm, &servers[arm], &paths)).chain(absent).collect();
    if resumed {
        // Keeps the warnings of the run's earlier part, and adds new ones.
        let earlier = RunInfo::read(&options.out)?;
        info.started = earlier.started;
        let new = std::mem::take(&mut info.warnings);
        info.warnings = earlier.warnings;
        info.warnings.extend(new.into_iter().filter(|w| !info.warnings.contains(w)).collect::<Vec<_>>());
    } else {
        plan.write(&options.out)?;
    }
    info.write(&options.out)?;
    for warning in &info.warnings {
        eprintln!("warning: {warning}");
    }
    for arm in info.arms.iter().filter(|arm| !arm.absent.is_empty()) {
        eprintln!("arm {} is absent: {}", arm.name, arm.absent);
    }
    Ok(Prepared {
        plan,
        files,
        setup,
        client,
        servers,
        verified: HashMap::new(),
        server_setup: HashMap::new(),
        _scratch: scratch,
        _group: group,
    })
}

/// The costs by which `auto` chooses, in a file that every server reads.
fn calibration(options: &Options, probe: &Probe, sealion: &Sealion) -> Result<(PathBuf, CalibrationInfo)> {
    let is_quick = options.scale == Scale::Smoke;
    let default = if is_quick { CalibrationSource::Shipped } else { CalibrationSource::Measured };
    let source = options.calibration.clone().unwrap_or(default);
    let kernel = if probe.any_tx() { KernelPath::Present } else { KernelPath::Absent };
    if source == CalibrationSource::Measured && kernel == KernelPath::Present {
        eprintln!("calibrating for auto");
    }
    pinned(&source, kernel, sealion, &options.out)
}

/// In a guest, no connection starts with metrics of an earlier one.
fn forget_metrics_in_guest() -> Result<()> {
    if !sealion_guest::is_inside() {
        return Ok(());
    }
    std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").context("cannot set tcp_no_metrics_save")
}

/// The studies with their available arms; collects the reasons for absent ones.
fn studies(options: &Options, probe: &Probe, absent: &mut Vec<ArmInfo>) -> Result<Vec<Study>> {
    let mut studies = Vec::new();
    for name in &options.studies {
        let mut study = name.study(options.scale);
        if let Some(cells) = &options.cells {
            study.cells.clone_from(cells);
        }
        if let Some(rounds) = options.rounds {
            study.rounds = rounds;
        }
        if let Some(suite) = options.suite {
            study.cells.iter_mut().for_each(|cell| cell.suite = suite);
            let mut seen = BTreeSet::new();
            study.cells.retain(|cell| seen.insert(cell.name()));
        }
        let named = !options.arms.is_empty();
        let mut wanted: Vec<Arm> = if named {
            options.arms.clone()
        } else {
            study.arms.iter().map(|arm| arm.parse().expect("a study names arms")).collect()
        };
        if let Some(peer) = options.peer.as_ref().filter(|_| !named) {
            wanted.retain(|arm| !arm.is_nginx());
            wanted.push(peer.clone());
        }
        wanted.retain(|arm| {
            // An nginx that the operator names is measured if it starts; the proof shows which path it took.
            let without = arm.is_nginx() && arm.claim() == Claim::Kernel && !named && !probe.any_tx();
            let place = Place { address: options.address, client: client_place(options) };
            let why =
                arm.absent(probe, place, options.vegeta.as_deref()).or_else(|| without.then(|| no_kernel_tls(probe)));
            let why = why.or_else(|| (*arm == Arm::NginxHttp3).then(|| without_http3(options))?);
            let why = why.or_else(|| doubly_limited(arm, options));
            let Some(why) = why else { return true };
            let name = arm.to_string();
            if !absent.iter().any(|a: &ArmInfo| a.name == name) {
                absent.push(ArmInfo { name, absent: why, ..ArmInfo::default() });
            }
            false
        });
        if wanted.len() < 2 && !named {
            wanted.clear();
        }
        let mut labels = BTreeSet::new();
        if let Some(twice) = wanted.iter().find(|arm| !labels.insert(arm.label())) {
            bail!("two arms are named {}: name each once in --arms", twice.label());
        }
        study.arms = wanted.iter().map(Arm::to_string).collect();
        studies.push(study);
    }
    let all_absent = || absent.iter().map(|a| format!("\n  {}: {}", a.name, a.absent)).collect::<String>();
    ensure!(
        studies.iter().any(|study| !study.arms.is_empty()),
        "there is nothing to compare here:{}\n--guest runs in a kernel that has it; --arms names arms to measure \
         all the same",
        all_absent()
    );
    Ok(studies)
}

/// Why there is no nginx with HTTP/3 here; `None` if there is one.
fn without_http3(options: &Options) -> Option<String> {
    match Nginx::find(options.nginx.as_deref()) {
        Ok(nginx) => nginx.lacks_http3(),
        Err(why) => Some(format!("{why:#}")),
    }
}

/// Limits of all servers leave no room for an arm with its own.
fn doubly_limited(arm: &Arm, options: &Options) -> Option<String> {
    let of_all = options.limits.cpus.is_some() || options.limits.memory.is_some();
    (arm.is_limited() && of_all).then(|| "all servers of this run are limited".to_owned())
}

fn client_place(options: &Options) -> ClientPlace {
    if options.agent.is_some() { ClientPlace::Elsewhere } else { ClientPlace::Here }
}

/// Cores for servers and clients: as requested, or the first two that this process may use.
fn cores(options: &Options) -> Result<(Vec<usize>, Vec<usize>)> {
    let ours = own_cores()?;
    // The cores of an agent are of another machine.
    let here = options.agent.is_none().then_some(&options.client_cores).and_then(Option::as_ref);
    for cores in options.server_cores.iter().chain(here) {
        let wrong: Vec<&usize> = cores.iter().filter(|core| !ours.contains(core)).collect();
        ensure!(wrong.is_empty(), "this process may not use the cores {wrong:?}, only {ours:?}");
    }
    let (first, second) = match ours.first() {
        Some(&first) if ours.len() > 1 => (vec![first], vec![apart(first, &ours, &preflight::siblings())]),
        _ => (ours.clone(), ours),
    };
    let second = if options.agent.is_some() { Vec::new() } else { second };
    Ok((options.server_cores.clone().unwrap_or(first), options.client_cores.clone().unwrap_or(second)))
}

/// The first of `ours` that shares no execution unit with `core`; if all do, the second.
fn apart(core: usize, ours: &[usize], siblings: &[String]) -> usize {
    let group = siblings.iter().map(|group| preflight::cores_in(group)).find(|group| group.contains(&core));
    let group = group.unwrap_or_default();
    let alone = ours.iter().find(|other| **other != core && !group.contains(other));
    alone.or_else(|| ours.iter().find(|other| **other != core)).copied().unwrap_or(core)
}

/// Whether the directory holds an unfinished run of the same plan.
fn directory(options: &Options, plan: &Plan) -> Result<bool> {
    let out = options.out.display();
    match Plan::read(&options.out)? {
        Some(earlier) if earlier == *plan => Ok(true),
        Some(_) => bail!(
            "{out} holds a run with another plan (study, scale, arms, rounds, cores or what this machine has): name \
             another --out, or run with the command in its run.json"
        ),
        None => {
            let holds = std::fs::read_dir(&options.out).is_ok_and(|entries| {
                // A run that failed before its first measurement leaves its calibration.
                entries.flatten().any(|entry| entry.file_name() != CalibrationInfo::FILE)
            });
            ensure!(!holds, "{out} is not empty and holds no run: name another --out");
            Ok(false)
        }
    }
}

fn debug_builds(options: &Options, sealion: Option<&Sealion>) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    if cfg!(debug_assertions) {
        found.push("the lab");
    }
    if sealion.is_some_and(|sealion| sealion.debug) {
        found.push("sealion");
    }
    ensure!(
        found.is_empty() || options.allow_debug,
        "{} is a debug build: build with `cargo build --release -p sealion -p sealion-lab`, or measure it with \
         --allow-debug",
        found.join(" and ")
    );
    Ok(found.into_iter().map(preflight::debug_build).collect())
}

fn reach_peers(arms: &[Arm]) -> Result<()> {
    for arm in arms {
        let Arm::Peer(peer) = arm else { continue };
        let address = peer.server()?.address;
        TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .with_context(|| format!("{} does not answer at {address}: is the server running?", peer.url))?;
    }
    Ok(())
}

/// Checks that running servers serve the lab's files. Otherwise every measurement would be void.
fn peers_have_files(arms: &[Arm], files: &Files, plan: &Plan) -> Result<()> {
    let cells = || plan.studies.iter().flat_map(|study| &study.cells);
    for arm in arms {
        let Arm::Peer(peer) = arm else { continue };
        let Some(smallest) = cells().min_by_key(|cell| cell.size) else { continue };
        let outcome = load::run(&measurement::whole_body(&peer.server()?, smallest, &plan.client_cores))?;
        ensure!(
            outcome.body_sha256.as_ref() == Some(&files.hashes[&smallest.size]),
            "{} does not serve the lab's files{}: let it serve {} or a copy of that directory",
            peer.url,
            outcome.failures.first.map(|first| format!(" ({first})")).unwrap_or_default(),
            files.directory.display()
        );
    }
    Ok(())
}

fn info(options: &Options, plan: &Plan, probe: &Probe, setup: &Setup, findings: &[Finding]) -> RunInfo {
    let machine = preflight::machine();
    let version = |name: &str, version: String| Version { name: name.to_owned(), version };
    let mut versions = vec![version("sealion-lab", lab_version())];
    versions.extend(setup.sealion.iter().map(|sealion| version("sealion", sealion.version.clone())));
    versions.extend(setup.nginx.iter().map(|nginx| version("nginx", nginx.version.clone())));
    versions.extend(setup.vegeta.iter().map(|vegeta| version("vegeta", vegeta.version.clone())));
    let names: Vec<&str> = plan.studies.iter().map(|study| study.name.name()).collect();
    let limits = preflight::limits(&machine, options.address.is_loopback());
    RunInfo {
        study: if names.len() > 1 { "all".to_owned() } else { names.join("") },
        command: options.command.clone(),
        started: since_1970(),
        limits,
        server_limits: options.limits.in_words().unwrap_or_default(),
        machine,
        kernel: preflight::kernel(),
        aead_drivers: preflight::aead_drivers(probe),
        versions,
        commit: identity::commit(),
        programs: identity::programs(&programs_of(setup)),
        sysctls: preflight::settings(),
        server_cores: plan.server_cores.clone(),
        client_cores: plan.client_cores.clone(),
        warnings: findings.iter().map(|finding| finding.text.clone()).collect(),
        ..RunInfo::default()
    }
}

/// The servers' programs.
fn programs_of(setup: &Setup) -> Vec<&Path> {
    let sealion = setup.sealion.iter().map(|sealion| sealion.program.as_path());
    let nginx = setup.nginx.iter().map(|nginx| nginx.program.as_path());
    sealion.chain(nginx).chain(setup.vegeta.iter().map(|vegeta| vegeta.program.as_path())).collect()
}

fn arm_info(arm: &Arm, server: &Server, paths: &Paths) -> ArmInfo {
    ArmInfo {
        name: arm.label(),
        outside: arm.unproven().unwrap_or_default().to_owned(),
        command: paths.shorten(&server.command),
        configuration: paths.shorten(&server.configuration),
        absent: String::new(),
    }
}

/// The lab's version, with the git revision if the program is in a source tree.
fn lab_version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let tree = std::env::current_exe().ok().and_then(|exe| describe(exe.parent()?));
    tree.map_or(version.to_owned(), |tree| format!("{version}, source tree {tree}"))
}

fn describe(directory: &Path) -> Option<String> {
    let mut git = std::process::Command::new("git");
    let output = git.arg("-C").arg(directory).args(["describe", "--always", "--dirty"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(super) fn since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_gets_a_core_of_its_own() {
        let groups = ["0,1", "2,3"].map(str::to_owned);
        assert_eq!(apart(0, &[0, 1, 2, 3], &groups), 2);
        assert_eq!(apart(0, &[0, 1], &groups), 1, "no other core is there, and preflight tells");
        assert_eq!(apart(0, &[0, 1], &[]), 1);
    }
}
