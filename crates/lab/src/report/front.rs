//! The first screen: findings, machine, method and limits.

use super::arm;
use super::conclusions::conclude;
use super::document::Block;
use super::figures::{Measured, chose_kernel};
use crate::run_info::RunInfo;
use crate::statistics::CLAIM_ROUNDS;
use crate::units;

/// Title of the report.
pub(crate) fn title(info: &RunInfo) -> String {
    let machine = if info.machine.processor.is_empty() { "an unknown processor" } else { &info.machine.processor };
    let release = info.kernel.split_whitespace().next().unwrap_or("unknown");
    format!("{} · {machine} · Linux {release} · {}", info.study, units::date(info.started))
}

/// Findings, cautions, machine, commands.
pub(crate) fn front(info: &RunInfo, cells: &[Measured], findings: Vec<String>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(verdict(info, cells)), Block::Caution(not_measured(info, cells))];
    blocks.push(Block::List(findings));
    let noise = noise(info, cells);
    blocks.extend(noise.map(Block::Text));
    let cautions = cautions(info, cells);
    if !cautions.is_empty() {
        blocks.push(Block::Caution(cautions));
    }
    blocks.push(Block::Facts(facts(info)));
    blocks.push(Block::Code(commands(info)));
    let voids = voids(cells, false);
    if !voids.is_empty() {
        blocks.push(Block::Fold("Every void run".to_owned(), vec![Block::List(voids)]));
    }
    let configurations: Vec<Block> = info
        .arms
        .iter()
        .filter(|arm| !arm.configuration.is_empty())
        .flat_map(|arm| [Block::Text(arm.name.clone()), Block::Code(arm.configuration.trim_end().to_owned())])
        .collect();
    if !configurations.is_empty() {
        blocks.push(Block::Fold("Configuration of the servers".to_owned(), configurations));
    }
    blocks
}

/// The answer of the run in one sentence.
fn verdict(info: &RunInfo, cells: &[Measured]) -> String {
    let cells: Vec<&Measured> = cells.iter().collect();
    match conclude(&cells, info.counts_instructions()) {
        Some(found) => format!("Verdict: {}", found.verdict()),
        None => "Verdict: this run says nothing about kernel TLS, because no arm used it.".to_owned(),
    }
}

/// The questions that the run leaves open, before any figure: arms that were absent, times in a guest, networks, claims without rounds.
fn not_measured(info: &RunInfo, cells: &[Measured]) -> Vec<String> {
    let absent = info.arms.iter().filter(|arm| !arm.absent.is_empty());
    let mut open: Vec<String> = absent.map(|arm| format!("Not measured: {}: {}", arm.name, arm.absent)).collect();
    if info.counts_instructions() {
        open.push("Not measured: time, throughput and latency: an emulated guest counts instructions".to_owned());
    }
    if info.client.is_empty() {
        open.push("Not measured: a network: client and server share this machine".to_owned());
    }
    let few = cells.iter().filter(|measured| (1..CLAIM_ROUNDS).contains(&measured.rounds.len())).count();
    if few > 0 && !info.counts_instructions() {
        open.push(format!(
            "Not claimed: {few} of {} cells have fewer than {CLAIM_ROUNDS} rounds, and no difference is claimed there",
            cells.len()
        ));
    }
    open
}

/// The difference between the two halves of an arm's own rounds, over all cells: what this run finds between equal arms.
fn noise(info: &RunInfo, cells: &[Measured]) -> Option<String> {
    let metric = super::cost(info.counts_instructions());
    let mut changes: Vec<f64> = cells.iter().filter_map(|measured| measured.difference_of_halves(metric)).collect();
    changes.sort_by(f64::total_cmp);
    let at = |quantile: f64| changes[((changes.len() - 1) as f64 * quantile).round() as usize];
    (!changes.is_empty()).then(|| {
        format!(
            "A/A noise: between even and odd rounds of one arm the cost of a request differs by {:.1} % in the median of {} \
             cells, and by {:.1} % in the worst tenth. Smaller differences between arms mean nothing.",
            100.0 * at(0.5),
            changes.len(),
            100.0 * at(0.9)
        )
    })
}

fn cautions(info: &RunInfo, cells: &[Measured]) -> Vec<String> {
    let mut cautions = Vec::new();
    if info.counts_instructions() {
        cautions.push(
            "Counted in an emulated guest: instructions of the server, kernel included. They compare builds, or servers \
             on one path; they are no times and claim no speed."
                .to_owned(),
        );
    }
    let of_servers = Some(&info.server_limits).filter(|limits| !limits.is_empty());
    cautions.extend(info.limits.iter().chain(of_servers).map(|limit| format!("Limit: {limit}")));
    cautions.extend(info.warnings.iter().map(|warning| format!("Preflight: {warning}")));
    cautions.extend(info.arms.iter().filter(|arm| !arm.outside.is_empty()).map(|arm| {
        format!("Not proven: {} ran elsewhere, at {}: its path is what its name says", arm.name, arm.outside)
    }));
    cautions.extend(limits_of_load(info, cells));
    cautions.extend(voids(cells, true));
    cautions.extend(failures(cells));
    cautions.extend(unlike_suites(cells));
    cautions.extend(idle_auto(cells));
    cautions
}

/// Closed loops with a busy client, or with a server that was not busy. Their requests per second and latencies do not
/// depend on the server alone, but CPU per request does.
fn limits_of_load(info: &RunInfo, cells: &[Measured]) -> Vec<String> {
    if info.counts_instructions() {
        return Vec::new();
    }
    let mut groups: Vec<(&str, &str, usize, usize, usize)> = Vec::new();
    for measured in cells {
        let load = Load::of(info, measured);
        let Some(load) = load else { continue };
        let (busy, idle) = (usize::from(load.client >= BUSY_CLIENT), usize::from(load.server < BUSY_SERVER));
        match groups.iter_mut().find(|group| (group.0, group.1) == (measured.study.as_str(), measured.arm.as_str())) {
            Some(group) => (group.2, group.3, group.4) = (group.2 + busy, group.3 + idle, group.4 + 1),
            None => groups.push((&measured.study, &measured.arm, busy, idle, 1)),
        }
    }
    let mut lines = Vec::new();
    for (study, arm, busy, idle, all) in groups {
        if busy > 0 {
            lines.push(format!(
                "Client: at least 85 % busy in {busy} of {all} cells of {arm} in {study}: requests/s and latency there are \
                 also the client's"
            ));
        }
        if idle > 0 {
            lines.push(format!(
                "Server: less than 95 % busy in {idle} of {all} cells of {arm} in {study}: requests/s there are not its limit"
            ));
        }
    }
    lines
}

/// The busy shares of the client's and the server's cores in a cell, over all rounds.
struct Load {
    client: f64,
    server: f64,
}

impl Load {
    /// `None` if the cell is not a closed loop, has a second load, or its server's CPU is unknown.
    fn of(info: &RunInfo, measured: &Measured) -> Option<Self> {
        let first = measured.rounds.first()?;
        if first.rate.is_some() || !first.beside.is_empty() || first.idle_memory.is_some() {
            return None;
        }
        let server = measured.rounds.iter().map(|row| row.server_cpu).sum::<Option<u64>>()? as f64;
        let elapsed = measured.total(|row| row.elapsed) as f64;
        let threads = first.threads.max(1) as usize;
        let client_cores = if info.client_cores.is_empty() { threads } else { threads.min(info.client_cores.len()) };
        Some(Self {
            client: measured.total(|row| row.client_cpu) as f64 / elapsed / client_cores as f64,
            server: server / elapsed / info.server_cores.len().max(1) as f64,
        })
    }
}

/// From this share on, the client's own speed affects requests per second.
const BUSY_CLIENT: f64 = 0.85;

/// Below this share, a server waited.
const BUSY_SERVER: f64 = 0.95;

/// Errors and time-outs in runs that count, by study and arm.
fn failures(cells: &[Measured]) -> Vec<String> {
    let mut groups: Vec<(&str, &str, u64, u64, &str)> = Vec::new();
    for measured in cells {
        let (errors, timeouts) = (measured.total(|row| row.errors), measured.total(|row| row.timeouts));
        if errors + timeouts == 0 {
            continue;
        }
        let first = measured.rounds.iter().map(|row| row.first_error.as_str()).find(|text| !text.is_empty());
        match groups.iter_mut().find(|group| (group.0, group.1) == (measured.study.as_str(), measured.arm.as_str())) {
            Some(group) => (group.2, group.3) = (group.2 + errors, group.3 + timeouts),
            None => groups.push((&measured.study, &measured.arm, errors, timeouts, first.unwrap_or("not recorded"))),
        }
    }
    let line = |(study, arm, errors, timeouts, first)| {
        format!("Failures: {arm} in {study}: {errors} errors, {timeouts} time-outs; the first: {first}")
    };
    groups.into_iter().map(line).collect()
}

/// Void measurements, one by one or grouped by arm and reason.
fn voids(cells: &[Measured], together: bool) -> Vec<String> {
    let mut groups: Vec<(String, String, String, usize, usize)> = Vec::new();
    let mut each = Vec::new();
    for measured in cells {
        for row in &measured.voids {
            each.push(format!("{} {}, {}, round {}: {}", row.study, row.cell, row.arm, row.round, row.void));
            match groups.iter_mut().find(|group| (&group.0, &group.1, &group.2) == (&row.study, &row.arm, &row.void)) {
                Some(group) => group.3 += 1,
                None => groups.push((row.study.clone(), row.arm.clone(), row.void.clone(), 1, 0)),
            }
        }
    }
    if !together {
        return each;
    }
    for group in &mut groups {
        let of_arm = cells.iter().filter(|measured| measured.study == group.0 && measured.arm == group.1);
        group.4 = of_arm.map(|measured| measured.rounds.len() + measured.voids.len()).sum();
    }
    let line = |(study, arm, reason, count, all)| format!("Void: {count} of {all} runs of {arm} in {study}: {reason}");
    groups.into_iter().map(line).collect()
}

/// Studies in which `auto` sent nothing through the kernel.
fn idle_auto(cells: &[Measured]) -> Vec<String> {
    let mut studies: Vec<&str> = cells
        .iter()
        .filter(|measured| measured.arm == "auto" && !measured.rounds.is_empty())
        .map(|measured| measured.study.as_str())
        .collect();
    studies.dedup();
    studies
        .into_iter()
        .filter(|study| !chose_kernel(cells.iter().filter(|measured| measured.study == *study)))
        .map(|study| format!("auto in {study} sent nothing through the kernel: it did the same as user here"))
        .collect()
}

/// Cells whose arms negotiated different suites and cannot be compared.
fn unlike_suites(cells: &[Measured]) -> Vec<String> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for (index, measured) in cells.iter().enumerate() {
        let first_of_cell =
            !cells[..index].iter().any(|other| other.study == measured.study && other.cell == measured.cell);
        if !first_of_cell {
            continue;
        }
        let same = cells.iter().filter(|other| other.study == measured.study && other.cell == measured.cell);
        let mut by_suite: Vec<(String, Vec<&str>)> = Vec::new();
        for other in same {
            let suites = other.suites().join(" and ");
            if suites.is_empty() {
                continue;
            }
            match by_suite.iter_mut().find(|(suite, _)| *suite == suites) {
                Some((_, arms)) => arms.push(&other.arm),
                None => by_suite.push((suites, vec![&other.arm])),
            }
        }
        if by_suite.len() > 1 {
            let words: Vec<_> = by_suite.iter().map(|(suite, arms)| format!("{}: {suite}", arms.join(", "))).collect();
            let words = words.join("; ");
            match found.iter_mut().find(|(study, said, _)| *study == measured.study && *said == words) {
                Some((.., count)) => *count += 1,
                None => found.push((measured.study.clone(), words, 1)),
            }
        }
    }
    let line = |(study, words, count)| {
        format!("Suites differ between arms in {count} cells of {study}, so that they do not compare: {words}")
    };
    found.into_iter().map(line).collect()
}

fn facts(info: &RunInfo) -> Vec<(String, String)> {
    let or_unknown = |text: String| if text.is_empty() { "not recorded".to_owned() } else { text };
    let cores = |cores: &[usize]| {
        if cores.is_empty() {
            return "not pinned".to_owned();
        }
        cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let machine = &info.machine;
    let mut facts = vec![
        ("Processor".to_owned(), or_unknown(machine.processor.clone())),
        (
            "Cores and memory".to_owned(),
            format!(
                "{} cores, {}{}{}",
                machine.cores,
                if machine.memory == 0 {
                    "memory not recorded".to_owned()
                } else {
                    units::bytes(machine.memory as f64)
                },
                if machine.hypervisor.is_empty() { String::new() } else { format!(", under {}", machine.hypervisor) },
                if machine.governor.is_empty() { String::new() } else { format!(", governor {}", machine.governor) },
            ),
        ),
        ("Kernel".to_owned(), or_unknown(info.kernel.clone())),
        (
            "Kernel's AEAD drivers".to_owned(),
            or_unknown(
                info.aead_drivers
                    .iter()
                    .map(|aead| format!("{}: {}", aead.name, aead.driver))
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
        ),
        (
            "Versions".to_owned(),
            or_unknown(
                info.versions
                    .iter()
                    .map(|program| format!("{} {}", program.name, program.version))
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
        ),
        (
            "Cores used".to_owned(),
            format!("server {}; client {}", cores(&info.server_cores), cores(&info.client_cores)),
        ),
    ];
    facts.push(("Arms".to_owned(), ARMS.to_owned()));
    let listed = |items: Vec<String>| or_unknown(items.join("; "));
    facts.push(("Commit".to_owned(), or_unknown(info.commit.clone())));
    let programs = info.programs.iter().map(|program| format!("{} {}", program.name, program.sha256));
    facts.push(("SHA-256 of the programs".to_owned(), listed(programs.collect())));
    let sysctls = info.sysctls.iter().map(|(name, value)| format!("{name} = {value}"));
    facts.push(("Network settings".to_owned(), listed(sysctls.collect())));
    let turbo = if machine.turbo.is_empty() { "not known here" } else { &machine.turbo };
    let smt = if machine.smt.is_empty() { "none".to_owned() } else { machine.smt.join("; ") };
    facts.push(("Turbo and SMT siblings".to_owned(), format!("turbo {turbo}; siblings {smt}")));
    let calibration = &info.calibration;
    let costs = [calibration.origin.as_str(), calibration.sha256.as_str()];
    facts.push(("Costs by which auto chose".to_owned(), or_unknown(costs.join(" ").trim().to_owned())));
    if let Some(guest) = &info.guest {
        facts.push(("Guest".to_owned(), guest.emulator.clone()));
    }
    facts
}

fn commands(info: &RunInfo) -> String {
    let mut arms: Vec<_> = info.arms.iter().filter(|arm| !arm.command.is_empty()).collect();
    arms.sort_by_key(|found| arm::order(&found.name));
    let mut lines = vec![info.command.clone()];
    lines.extend(info.commands.iter().cloned());
    lines.extend(arms.iter().map(|arm| format!("{}: {}", arm.name, arm.command)));
    lines.join("\n")
}

const ARMS: &str = "user, kernel, auto: this server sealing in user space, in the kernel, or choosing by response; nginx, \
     nginx-ktls: the peer without and with kernel TLS; nic: the network card seals";
