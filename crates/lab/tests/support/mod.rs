//! An invented run for tests of the report.

use hdrhistogram::Histogram;
use sealion_lab::histogram;
use sealion_lab::row::Row;
use sealion_lab::run_info::{AeadDriver, ArmInfo, CalibrationInfo, Machine, Program, RunInfo, Version};
use sealion_lab::study::{Cell, Scale, Scene, StudyName, suite_name};

/// Rows of a study at its default scale. Each arm's cost is linear, with a cost per connection, request and byte.
/// Rounds scatter by a few percent, from a generator with a fixed seed.
pub(crate) fn made_up_rows(study: StudyName) -> Vec<Row> {
    let mut dice = Dice(study.name().len() as u64 * 77 + 1);
    let plan = study.study(Scale::Default);
    let mut rows = Vec::new();
    for round in 0..plan.rounds {
        for cell in &plan.cells {
            for arm in plan.arms.iter().filter(|arm| is_made_up(study, arm)) {
                rows.push(row(study, cell, arm, round, rows.len(), &mut dice));
            }
        }
    }
    // An arm that claimed the kernel's path but did not take it.
    let void = rows.iter_mut().filter(|row| row.arm == "nginx-ktls" && row.round == 1);
    for row in void.take(2) {
        row.void = "TlsTxSw did not rise: the kernel sealed nothing".into();
    }
    rows
}

/// The conditions of a run of `study`.
pub(crate) fn made_up_run(study: &str) -> RunInfo {
    let arm = |name: &str, command: &str| ArmInfo { name: name.into(), command: command.into(), ..ArmInfo::default() };
    let sealion =
        |ktls: &str| format!("taskset -c 0 sealion serve www --workers 1 --listen 127.0.0.1:9444 --ktls {ktls}");
    RunInfo {
        study: study.into(),
        command: format!("sealion-lab run {study} --server-cores 0 --client-cores 1"),
        started: 1_795_000_000.0,
        machine: Machine {
            processor: "MADE UP FOR A TEST, NOT MEASURED".into(),
            cores: 2,
            memory: 8_000_000_000,
            hypervisor: "kvm".into(),
            governor: "performance".into(),
            ..Machine::default()
        },
        kernel: "6.12.0-fixture #1 SMP".into(),
        guest: None,
        aead_drivers: vec![
            AeadDriver { name: "gcm(aes)".into(), driver: "generic-gcm-aesni".into() },
            AeadDriver { name: "rfc7539(chacha20,poly1305)".into(), driver: "generic".into() },
        ],
        versions: vec![
            Version { name: "sealion".into(), version: "0.1.0 (release)".into() },
            Version { name: "nginx".into(), version: "1.22.1, OpenSSL 3.0.17".into() },
        ],
        arms: vec![
            arm("user", &sealion("never")),
            arm("kernel", &sealion("always")),
            arm("auto", &sealion("auto")),
            arm("nginx", "taskset -c 0 nginx -p /tmp/nginx-user -c nginx.conf"),
            ArmInfo {
                configuration: "worker_processes 1;\nssl_conf_command Options KTLS;\n".into(),
                ..arm("nginx-ktls", "taskset -c 0 nginx -p /tmp/nginx-ktls -c nginx.conf")
            },
            ArmInfo {
                name: "nic".into(),
                absent: "no interface here offers tls-hw-tx-offload".into(),
                ..ArmInfo::default()
            },
        ],
        server_cores: vec![0],
        client_cores: vec![1],
        warnings: vec!["the load average was 0.7 when the run began".into()],
        limits: vec![
            "loopback: no network card, no packets lost".into(),
            "virtual machine: its cores are shared with others".into(),
        ],
        commit: "0123456789abcdef".into(),
        programs: vec![Program { name: "sealion".into(), sha256: "ab".repeat(32) }],
        sysctls: [("net.ipv4.tcp_rmem".to_owned(), "4096 131072 6291456".to_owned())].into(),
        calibration: CalibrationInfo { origin: "sealion calibrate, before the run".into(), sha256: "cd".repeat(32) },
        ..RunInfo::default()
    }
}

/// Arms with costs of their own.
fn is_made_up(study: StudyName, arm: &str) -> bool {
    let is_of_protocol = arm.ends_with("-h2") || arm.ends_with("-h3");
    let is_another = arm == "nic" || is_of_protocol || arm.contains("-default") || arm == "nginx-log-ktls";
    !(is_another || study == StudyName::SizeByCalls && arm == "nginx-log")
}

fn row(study: StudyName, cell: &Cell, arm: &str, round: u32, index: usize, dice: &mut Dice) -> Row {
    // ns for a connection, a request, a byte.
    let (connection, request, byte) = match arm.trim_end_matches("-limited").trim_end_matches("-vegeta") {
        "user" => (150_000.0, 7_500.0, 0.46),
        "kernel" => (162_000.0, 8_400.0, 0.31),
        "auto" if cell.size >= 32 << 10 => (160_000.0, 8_300.0, 0.31),
        "auto" => (150_000.0, 7_600.0, 0.46),
        "nginx" => (390_000.0, 13_000.0, 1.0),
        _ => (405_000.0, 17_500.0, 0.62),
    };
    let calls = cell.calls.unwrap_or(100_000) as f64;
    let size = cell.size as f64;
    let cost = (connection / calls + request + byte * size) * (1.0 + 0.06 * (dice.next() - 0.5));
    let requests = (1e9 / cost).ceil().max(1.0);
    let elapsed = requests * cost * 1.08;
    let waiting = cost * cell.connections as f64;
    Row {
        study: study.name().into(),
        cell: cell.name(),
        arm: arm.into(),
        round,
        started: 1_795_000_000.0 + index as f64,
        size: cell.size,
        calls: cell.calls,
        connections: cell.connections as u64,
        threads: cell.threads as u64,
        rate: matches!(cell.scene, Scene::HalfLoad | Scene::Share { .. }).then_some(1e9 / cost / 2.0),
        read: "drain".into(),
        suite: format!("TLSv1.3 {}", suite_name(cell.suite)),
        elapsed: elapsed as u64,
        requests: requests as u64,
        body_bytes: (requests * size) as u64,
        handshakes: (requests / calls).ceil() as u64,
        errors: u64::from(study == StudyName::Container && arm == "nginx" && round == 0) * 3,
        first_error: if study == StudyName::Container && arm == "nginx" && round == 0 {
            "connection reset by peer".into()
        } else {
            String::new()
        },
        latency: latencies(waiting, dice),
        connect: latencies(30_000.0, dice),
        handshake: latencies(connection * 2.0, dice),
        first_byte: latencies(waiting * 0.6, dice),
        server_cpu: Some((requests * cost) as u64),
        server_switches: Some(requests as u64),
        server_preemptions: Some(5),
        server_memory: Some(9_000_000),
        client_cpu: (requests * 9_000.0) as u64,
        setup: if study == StudyName::Netdev && arm == "kernel" { "900;5200;4100".into() } else { String::new() },
        server_setup: (study == StudyName::Netdev && arm == "kernel").then_some(23_000),
        tls_tx_opened: Some(4),
        body_verified: true,
        ..Row::default()
    }
}

fn latencies(median: f64, dice: &mut Dice) -> String {
    let mut all = Histogram::<u64>::new(3).expect("three digits are allowed");
    for _ in 0..200 {
        let value = median * (0.8 + 0.4 * dice.next()) / (1.001 - dice.next()).powf(0.25);
        all.record(value as u64).expect("it grows by itself");
    }
    histogram::encode(&all).expect("it is small")
}

/// Pseudo-random numbers between 0 and 1, the same each time (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
