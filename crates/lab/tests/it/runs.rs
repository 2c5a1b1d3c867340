//! Runs of the lab on this machine, with nginx as `cargo xtask test` provides it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealion_lab::arm::Nginx;
use sealion_lab::study::StudyName;
use sealion_testkit::server::Server;
use sealion_testkit::{PATIENCE, write_program};

use crate::process::{files, lab, rows, run};

#[test]
fn every_study_runs_and_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let (output, said) = run(lab(&["all", "--smoke", "--arms", "user,nginx"], &out));
    assert!(output.status.success(), "{said}");
    let rows = rows(&out);
    for study in StudyName::ALL {
        for arm in ["user", "nginx"] {
            assert!(rows.iter().any(|r| r.study == study.name() && r.arm == arm), "{} {arm}", study.name());
        }
    }
    for row in &rows {
        assert_eq!(row.void, "", "{row:?}");
        assert!(row.body_verified && row.requests > 0, "{row:?}");
        assert!(row.server_memory.is_some_and(|m| m > 0), "{row:?}");
        // With two loads, or with idle connections, the cost is not recorded.
        let idle = row.cell.ends_with(" idle");
        assert_eq!(row.server_cpu.is_some_and(|cpu| cpu > 0), !idle && row.beside.is_empty(), "{row:?}");
        // With so few connections it can be less than a page.
        assert_eq!(row.idle_memory.is_some(), idle, "{row:?}");
        assert!(row.tls_tx_opened.is_none_or(|opened| opened == 0), "{row:?}");
        let last = if row.study == "nginx-article" || row.study == "size-by-calls" {
            "AES_256_GCM_SHA384"
        } else {
            "AES_128_GCM_SHA256"
        };
        assert!(row.suite.ends_with(last), "{row:?}");
        assert_eq!(row.suite.starts_with("TLSv1.2"), row.study == "netdev", "{row:?}");
        assert!(row.attack.is_some_and(|attack| attack > 0 && attack <= row.elapsed) || row.requests == 1, "{row:?}");
    }
    let report = fs::read_to_string(out.join("report.html")).expect("a report");
    for study in StudyName::ALL {
        assert!(report.contains(study.name()), "{} is not in the report", study.name());
    }
}

#[test]
fn an_arm_that_claims_kernel_tls_while_it_is_off_is_void() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    // An nginx whose configuration loses the option for kernel TLS, on any kernel.
    let nginx = Nginx::find(None).unwrap_or_else(|why| panic!("{why:#}; `cargo xtask test` brings one"));
    let root = nginx.program.ancestors().nth(3).expect("usr/sbin/nginx");
    let wrapper = directory.path().join("nginx");
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\n[ -f \"$last\" ] && sed -i /KTLS/d \"$last\"\n\
         export LD_LIBRARY_PATH={}/usr/lib/x86_64-linux-gnu\nexec {} \"$@\"\n",
        root.display(),
        nginx.program.display()
    );
    write_program(&wrapper, &script);
    let wrapper = wrapper.display().to_string();
    let arguments = ["crossover", "--smoke", "--arms", "nginx,nginx-ktls", "--nginx", &wrapper];
    let (output, said) = run(lab(&arguments, &out));
    assert!(output.status.success(), "the run goes on: {said}");
    for row in rows(&out) {
        if row.arm == "nginx-ktls" {
            assert!(row.void.contains("kernel TLS"), "{row:?}");
        } else {
            assert_eq!(row.void, "", "{row:?}");
        }
    }
    let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
    assert!(summary.contains("Void") && summary.contains("nginx-ktls"), "{summary}");
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let arguments = ["size-by-calls", "--smoke", "--arms", "user,auto", "--rounds", "4"];
    let mut child = lab(&arguments, &out).spawn().expect("the lab runs");
    let raw = out.join("raw.csv");
    let began = Instant::now();
    while fs::read_to_string(&raw).unwrap_or_default().lines().count() < 3 {
        assert!(began.elapsed() < PATIENCE, "no measurement");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let before = fs::read_to_string(&raw).expect("raw.csv");
    let kept = rows(&out);
    assert!(kept.len() >= 2 && kept.len() < 32, "{} rows", kept.len());
    assert!(!out.join("report.html").exists());

    let (output, said) = run(lab(&["size-by-calls", "--smoke", "--arms", "user"], &out));
    assert!(!output.status.success() && said.contains("another plan"), "{said}");

    let (output, said) = run(lab(&arguments, &out));
    assert!(output.status.success() && said.contains("are kept"), "{said}");
    assert!(fs::read_to_string(&raw).expect("raw.csv").starts_with(&before), "earlier rows are as they were");
    let done: BTreeSet<_> = rows(&out).into_iter().map(|row| (row.cell, row.arm, row.round)).collect();
    assert_eq!((done.len(), rows(&out).len()), (32, 32));
    assert!(out.join("report.html").exists());
}

#[test]
fn a_server_that_runs_already_is_an_arm() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let pki = sealion_testkit::pki::Pki::ecdsa();
    let sealion = PathBuf::from(env!("CARGO_BIN_EXE_sealion-lab")).with_file_name("sealion");
    let serve = |root: &std::path::Path| {
        let path = |path: PathBuf| path.display().to_string();
        let arguments = ["serve".to_owned(), path(root.to_owned()), "--listen=127.0.0.1:0".to_owned()];
        let pair = ["--cert".to_owned(), path(pki.certificate_file()), "--key".to_owned(), path(pki.key_file())];
        let quiet = ["--access-log", "off"].map(str::to_owned);
        Server::start(&sealion, arguments.into_iter().chain(pair).chain(quiet))
    };
    let wrong = serve(directory.path());
    let url = format!("https://{}/", wrong.address());
    let (output, said) = run(lab(&["crossover", "--smoke", "--peer", &url], &out));
    assert!(!output.status.success() && said.contains("does not serve the lab's files"), "{said}");
    assert!(!out.join("raw.csv").exists());

    fs::create_dir_all(files()).expect("a directory");
    let server = serve(&files());
    let url = format!("https://{}/", server.address());
    let pid = server.pid().to_string();
    let arguments = ["crossover", "--smoke", "--arms", &format!("user,{url}"), "--pid", &pid];
    let (output, said) = run(lab(&arguments, &out));
    assert!(output.status.success(), "{said}");
    let rows: Vec<_> = rows(&out).into_iter().filter(|row| row.arm == url).collect();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row.void.is_empty() && row.server_cpu.is_some_and(|cpu| cpu > 0)), "{rows:?}");

    // In place of an arm, and packed.
    let out = directory.path().join("named");
    let named = format!("nginx={url}");
    let (output, said) =
        run(lab(&["container", "--smoke", "--arms", &format!("user,{named}"), "--pid", &pid, "--bundle"], &out));
    assert!(output.status.success(), "{said}");
    let rows = self::rows(&out);
    assert!(rows.iter().any(|row| row.arm == "nginx") && rows.iter().all(|row| row.void.is_empty()), "{rows:?}");
    let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
    assert!(summary.contains("CPU per request of user against nginx: "), "{summary}");
    let packed = Command::new("tar").arg("-tzf").arg(directory.path().join("named.tar.gz")).output().expect("tar runs");
    let packed = String::from_utf8_lossy(&packed.stdout).into_owned();
    assert_eq!(
        packed.lines().collect::<Vec<_>>(),
        ["named/raw.csv", "named/run.json", "named/plan.json", "named/summary.md", "named/report.html"]
    );

    let twice = format!("nginx,{named}");
    let (output, said) = run(lab(&["container", "--smoke", "--arms", &twice], &directory.path().join("twice")));
    assert!(!output.status.success() && said.contains("two arms are named nginx"), "{said}");
}

/// vegeta counts no requests: its attacks last, so that they complete some.
#[test]
fn vegeta_loads_the_servers_of_the_container_study() {
    let directory = tempfile::tempdir().expect("a directory");
    match sealion_guest::tools::vegeta().expect("vegeta") {
        Some(vegeta) => loads_the_servers(&vegeta.display().to_string(), &directory.path().join("run")),
        None => eprintln!("this Go cannot build vegeta: only its absence is tried"),
    }

    let nowhere = ["container", "--smoke", "--arms", "user,nginx,user-vegeta", "--vegeta", "/nowhere/vegeta"];
    let out = directory.path().join("without");
    let (output, said) = run(lab(&nowhere, &out));
    assert!(output.status.success(), "{said}");
    let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
    assert!(summary.contains("Not measured: user-vegeta: there is no vegeta at /nowhere/vegeta"), "{summary}");
}

fn loads_the_servers(vegeta: &str, out: &Path) {
    let arguments = ["container", "--smoke", "--arms", "user-vegeta,nginx-vegeta", "--vegeta", vegeta];
    let (output, said) = run(lab(&arguments, out));
    assert!(output.status.success(), "{said}");
    let rows = rows(out);
    assert_eq!(rows.len(), 6, "{said}");
    for row in &rows {
        assert_eq!((row.void.as_str(), row.errors + row.timeouts), ("", 0), "{row:?}");
        assert!(row.requests > 0 && row.body_bytes == row.requests * row.size, "{row:?}");
        assert!(row.handshakes > 0 && row.handshakes <= row.connections && row.client_cpu > 0, "{row:?}");
        assert!(row.server_cpu.is_some_and(|cpu| cpu > 0) && !row.latency.is_empty(), "{row:?}");
    }
    let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
    assert!(summary.contains("; vegeta "), "the version is recorded: {summary}");
}

/// A machine without cgroup v2, or a user who may not use it, gets the reason and no measurement.
#[test]
fn limits_are_in_force_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let limits = ["--limit-cpus", "0.5", "--limit-memory", "512"];
    let (output, said) = run(lab(&[&["crossover", "--smoke", "--arms", "user,nginx"][..], &limits].concat(), &out));
    if output.status.success() {
        let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
        assert!(summary.contains("at most 0.5 processors and 512 MiB of memory (cgroup v2)"), "{summary}");
        assert!(rows(&out).iter().all(|row| row.void.is_empty()), "{said}");
    } else {
        assert!(said.contains("cgroup v2") || said.contains("limits need root"), "{said}");
        assert!(!out.join("raw.csv").exists());
    }
}

/// A machine without the queue, or a user who may not make a namespace, gets the reason and no measurement.
#[test]
fn a_limit_of_the_bandwidth_is_in_force_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let limit = ["--limit-bandwidth", "100"];
    let (output, said) = run(lab(&[&["crossover", "--smoke", "--arms", "user,nginx"][..], &limit].concat(), &out));
    if output.status.success() {
        let summary = fs::read_to_string(out.join("summary.md")).expect("a summary");
        assert!(summary.contains("has 100 Mbit/s (tbf)"), "{summary}");
        for row in rows(&out) {
            // 100 Mbit/s are a bit in 10 ns; the first bucket comes at once.
            let most = row.elapsed / 10 / 8 + (1 << 20);
            assert!(row.void.is_empty() && row.body_bytes <= most, "{row:?}");
        }
    } else {
        assert!(said.contains("--limit-bandwidth needs root,") || said.contains("the kernel needs sch_tbf"), "{said}");
        assert!(!out.join("raw.csv").exists());
    }
    let (output, said) =
        run(lab(&["crossover", "--smoke", "--arms", "https://127.0.0.1:1/", "--limit-bandwidth", "9"], &out));
    assert!(!output.status.success() && said.contains("outside the namespace"), "{said}");
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 7] = [
        (&["no-such-study"], "size-by-calls"),
        (&["netdev", "--smoke", "--peer", "https://127.0.0.1:1/"], "is the server running?"),
        (&["netdev", "--smoke", "--nginx", "/nowhere/nginx"], "apt-get install nginx"),
        (&["netdev", "--smoke", "--sealion", "/nowhere/sealion"], "cargo build --release -p sealion"),
        (&["netdev", "--smoke", "--server-cores", "4000"], "may not use the cores"),
        (&["netdev", "--smoke", "--arms", "apache"], "nginx-ktls"),
        (&["netdev", "--quick", "--full"], "cannot be used with"),
    ];
    for (number, (arguments, part)) in table.into_iter().enumerate() {
        let out = directory.path().join(number.to_string());
        let (output, said) = run(lab(arguments, &out));
        assert!(!output.status.success() && said.contains(part), "{arguments:?}: {said}");
        assert!(!out.exists(), "{arguments:?}");
    }
}
