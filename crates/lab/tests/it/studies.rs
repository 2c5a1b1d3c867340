//! The page of the published studies is made from the recorded runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_lab::report;
use sealion_lab::row::Row;
use sealion_lab::run_info::{Guest, RunInfo};
use sealion_lab::study::StudyName;

use crate::process::{files, run};
use crate::support;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root").to_owned()
}

#[test]
fn the_page_is_made_from_the_recorded_runs() {
    let page = report::studies_page(&root().join("bench/studies")).expect("every run can be read");
    let remedy = "write it again with `sealion-lab studies bench/studies --page docs/studies.md`";
    let docs = root().join("docs");
    assert_eq!(fs::read_to_string(docs.join("studies.md")).expect("a page"), page.text, "docs/studies.md: {remedy}");
    for (name, svg) in &page.charts {
        let is = fs::read_to_string(docs.join("studies").join(name)).unwrap_or_default();
        assert_eq!(is, *svg, "docs/studies/{name}: {remedy}");
        roxmltree::Document::parse(svg).unwrap_or_else(|why| panic!("{name} is no SVG: {why}"));
    }
    let files = fs::read_dir(docs.join("studies")).map_or(0, Iterator::count);
    assert_eq!(files, page.charts.len(), "docs/studies has charts of no run: {remedy}");
}

#[test]
fn recorded_runs_tell_of_no_user_and_no_host() {
    for entry in fs::read_dir(root().join("bench/studies")).expect("a directory").flatten() {
        let Ok(info) = fs::read_to_string(entry.path().join("run.json")) else { continue };
        for private in ["/home/", "/root/", "/work/", "/tmp/sealion-lab"] {
            assert!(!info.contains(private), "{} holds {private}", entry.path().display());
        }
    }
}

/// A set-up is three system calls: none takes a nanosecond, and a histogram that is too small stores 2.
#[test]
fn recorded_set_up_times_are_possible() {
    for entry in fs::read_dir(root().join("bench/studies")).expect("a directory").flatten() {
        let Ok(reader) = csv::Reader::from_path(entry.path().join("raw.csv")) else { continue };
        for row in reader.into_deserialize::<Row>() {
            let row = row.expect("a row");
            let times: Vec<f64> = row.setup.split(';').filter_map(|time| time.parse().ok()).collect();
            assert!(times.iter().all(|time| *time > 100.0), "{}: {times:?}", entry.path().display());
        }
    }
}

#[test]
fn a_recording_is_made_by_one_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("studies.md");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    command.arg("studies").arg(directory.path()).args(["--record", "smoke", "--only", "native", "--page"]).arg(&page);
    command.arg("--files").arg(files());
    let (output, said) = run(command);
    assert!(output.status.success(), "{said}");
    let rows: Vec<Row> = csv::Reader::from_path(directory.path().join("native/raw.csv"))
        .expect("raw.csv")
        .into_deserialize()
        .collect::<Result<_, _>>()
        .expect("rows");
    for study in StudyName::PUBLISHED {
        assert!(rows.iter().any(|row| row.study == study.name() && row.void.is_empty()), "{}: {said}", study.name());
    }
    let info = fs::read_to_string(directory.path().join("native/run.json")).expect("run.json");
    let info: RunInfo = serde_json::from_str(&info).expect("conditions");
    assert!(info.command.starts_with("sealion-lab studies ") && info.command.contains(" --record smoke"), "{info:?}");
    assert_eq!(info.commands.len(), StudyName::PUBLISHED.len(), "{info:?}");
    assert!(info.commands.iter().all(|command| command.contains(" --smoke ")), "{info:?}");
    assert!(info.commands.iter().all(|command| !command.contains("--out /")), "{info:?}");
    let programs: Vec<&str> = info.programs.iter().map(|program| program.name.as_str()).collect();
    // A machine with vegeta has it too.
    assert_eq!(programs[..3], ["sealion-lab", "sealion", "nginx"]);
    for arm in ["nginx-default", "nginx-log", "nginx-vegeta", "user-limited"] {
        assert!(info.arms.iter().any(|known| known.name == arm), "{arm}, of one study: {info:?}");
    }
    assert!(info.programs.iter().all(|program| program.sha256.len() == 64), "{info:?}");
    assert!(info.sysctls.contains_key("net.ipv4.tcp_no_metrics_save") && !info.commit.is_empty(), "{info:?}");
    assert_eq!(info.calibration.sha256.len(), 64, "{info:?}");
    assert!(directory.path().join("native/calibration.json").is_file());
    let text = fs::read_to_string(page).expect("a page");
    assert!(text.contains("| native | ") && !text.contains("Not recorded yet"), "{text}");
    assert!(
        !text.contains("recorded before the studies had") && text.contains("No run has a client on another computer"),
        "{text}"
    );
}

#[test]
fn every_source_stands_beside_every_run() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, counts) in [("a-native", false), ("b-guest", true)] {
        let out = directory.path().join(name);
        fs::create_dir_all(&out).expect("a directory");
        let mut raw = csv::Writer::from_path(out.join(report::raw::FILE)).expect("a file");
        for study in StudyName::PUBLISHED {
            for row in support::made_up_rows(study) {
                let instructions = row.server_cpu.filter(|_| counts);
                raw.serialize(Row { server_instructions: instructions, ..row }).expect("a row");
            }
        }
        raw.flush().expect("a file");
        let mut info = support::made_up_run("all");
        info.guest = counts.then(|| Guest { emulator: "QEMU".into(), counts_instructions: true });
        info.write(&out).expect("a file");
    }
    let page = report::studies_page(directory.path()).expect("two runs");
    for study in StudyName::PUBLISHED {
        assert!(page.text.contains(&format!("## {}\n", study.name())), "{}", study.name());
    }
    for line in [
        "| figure | published | a-native | b-guest |",
        "| 1 GB, nginx-ktls against nginx | +13.4 % ± 7.1 % on Ubuntu 21.10, +27.6 % ± 3.9 % on FreeBSD 13.0 | kernel +",
        "| 1M × 20 calls | +45 % | kernel +",
        "| a request costs less with kernel TLS, 1000 calls per connection, 2 connections, tls12-aes128-gcm | not given | kernel: ",
        "| kernel TLS has the higher ROI, 1000 calls per connection, 2 connections, tls12-aes128-gcm | from 128k on | kernel: ",
        "| from another computer | ±0 to +2 %: no difference | not measured: client and server share the machine",
        "| 10M under limits, throughput | ±0 to +2 %: no difference | kernel-limited +",
        "## What the runs say",
        "**a-native**, change by size over all studies:",
        "| 10M | +35 % | kernel +",
    ] {
        assert!(page.text.contains(line), "{line} is not in {}", page.text);
    }
    // More throughput there corresponds to less work here.
    let article = page.text.lines().find(|line| line.starts_with("| 1 GB, ")).expect("a line");
    let cells: Vec<&str> = article.split('|').map(str::trim).collect();
    assert!(cells[3].starts_with("kernel +") && cells[4].starts_with("kernel −"), "{article}");
    assert!(page.charts.iter().any(|(name, _)| name == "netdev-b-guest.svg"));
    for (name, svg) in &page.charts {
        roxmltree::Document::parse(svg).unwrap_or_else(|why| panic!("{name} is no SVG: {why}"));
    }
    assert_eq!(report::studies_page(directory.path()).expect("the same"), page);
}
