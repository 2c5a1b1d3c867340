//! `sealion doctor` on a kernel that promises kernel TLS.
//!
//! These tests fail, and never skip, where it is missing.

use std::fs;
use std::path::Path;

use sealion_ktls::probe;
use sealion_testkit::ktls::{Counters, guest_series};
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Suite, http};

use crate::support::doctor::{Doctor, Finding, refusal, refusal_of_nobody};
use crate::support::module::Unloaded;
use crate::support::nginx::Nginx;
use crate::support::{Site, access_line, messages, tool, wait_until};

/// Above what moves a connection.
const LEN: u64 = 200_001;
/// A round of canaries: one for each version and AEAD.
const ROUND: i64 = 6;

#[test]
fn everything_is_good() {
    let doctor = Doctor::of_this_machine();
    assert_eq!(doctor.code, 0, "{}", doctor.text);
    assert_eq!(doctor.finding("tls layer").state, "good", "{}", doctor.text);
    // The features that 6.1 lacks do not concern a server that neither blocks nor receives by the kernel.
    let kernel = if guest_series().as_deref() == Some("6.1") { "note" } else { "good" };
    assert_eq!(doctor.finding("kernel").state, kernel, "{}", doctor.text);
    let seals = doctor.findings("seals");
    for version in ["TLS 1.2", "TLS 1.3"] {
        for cipher in ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"] {
            let of_it: Vec<_> = seals.iter().filter(|f| f.found.starts_with(&format!("{version} {cipher}"))).collect();
            assert!(matches!(of_it[..], [one] if one.state == "good"), "{version} {cipher}: {}", doctor.text);
        }
    }
    assert_eq!(seals.len(), 6);
    let key_update = match guest_series().as_deref() {
        Some("6.1" | "6.12") => "note",
        Some("7.2") => "good",
        other => panic!("no word here on what kernel {other:?} promises"),
    };
    assert_eq!(doctor.finding("key update").state, key_update);
    let drivers = doctor.findings("driver");
    for aead in ["AES-GCM", "CHACHA20-POLY1305"] {
        assert_eq!(drivers.iter().filter(|f| f.found.starts_with(aead)).count(), 1, "{}", doctor.text);
    }
    assert!(doctor.finding("openssl").found.ends_with("with kernel TLS"), "nginx here has it: {}", doctor.text);
    assert_eq!(lowat(&doctor).state, "good", "{}", doctor.text);
}

#[test]
fn without_the_module_it_says_what_to_load() {
    let unloaded = Unloaded::now();
    let without = Doctor::of_this_machine();
    drop(unloaded);
    let layer = without.finding("tls layer");
    assert_eq!((without.code, layer.state.as_str(), layer.found.as_str()), (1, "bad", "absent"), "{}", without.text);
    assert!(layer.remedy.as_ref().is_some_and(|r| r.contains("modprobe tls")), "{layer:?}");
    assert!(without.findings("seals").is_empty() && without.findings("key update").is_empty());
    assert_eq!(Doctor::of_this_machine().code, 0, "the module is back");
}

/// A sysctl, put back at the end.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn change(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).expect("it exists");
        fs::write(path, value).expect("the guest runs as root");
        Self { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(self.path, &self.before).expect("what it was is allowed");
    }
}

#[test]
fn a_setting_that_hurts_is_told_with_its_remedy() {
    let bytes = "16384";
    let hurting = Setting::change("/proc/sys/net/ipv4/tcp_notsent_lowat", bytes);
    let doctor = Doctor::of_this_machine();
    let warning = lowat(&doctor);
    assert_eq!(
        (warning.state.as_str(), warning.found.as_str()),
        ("warning", &*format!("net.ipv4.tcp_notsent_lowat is {bytes} bytes"))
    );
    // Less than a record of room: on 6.1 a transfer would not end (docs/kernel.md), were the limit not lifted.
    assert_eq!(doctor.code, 0, "{}", doctor.text);
    assert!(doctor.findings("seals").iter().all(|f| f.state == "good"), "{}", doctor.text);
    let (site, server) = served(&["--ktls", "always"]);
    let client = get_and_stay(&site, Suite::TLS13, server.address());
    drop(client);

    let command = warning.remedy.as_ref().expect("a remedy");
    tool("sh", ["-c", command]);
    let mended = Doctor::of_this_machine();
    assert_eq!(lowat(&mended).state, "good", "{}", mended.text);
    drop(hurting);
}

/// Its finding on that setting.
#[track_caller]
fn lowat(doctor: &Doctor) -> Finding {
    let settings = doctor.findings("settings");
    let found = settings.into_iter().find(|finding| finding.found.contains("tcp_notsent_lowat"));
    found.unwrap_or_else(|| panic!("nothing on the setting: {}", doctor.text))
}

/// A site with one file, that a client has got and holds its connection.
fn served(options: &[&str]) -> (Site, Server) {
    let site = Site::new();
    site.add_large("f", LEN);
    let server = site.serve(options);
    (site, server)
}

#[track_caller]
fn get_and_stay(site: &Site, suite: Suite, address: std::net::SocketAddr) -> Client {
    let mut client = site.connector(suite).connect(address);
    assert_eq!(http::get(&mut client, "/f").expect("an answer").body.len() as u64, LEN);
    client
}

/// The only socket in a table is the other end of `client`, with the version, cipher and senders given.
#[track_caller]
fn assert_is_of(doctor: &Doctor, client: &Client, version: &str, cipher: &str) {
    assert_eq!(doctor.code, 0, "{}", doctor.text);
    let [socket] = doctor.sockets() else { panic!("one socket: {}", doctor.text) };
    let near = client.socket().local_addr().expect("an address").to_string();
    assert_eq!((socket["remote"].as_str(), socket["sending"].as_str()), (Some(near.as_str()), Some("kernel")));
    assert_eq!((socket["version"].as_str(), socket["cipher"].as_str()), (Some(version), Some(cipher)));
    let line = doctor.text.lines().last().expect("a line");
    assert!(line.contains(version) && line.contains(cipher), "{line}");
}

#[test]
fn a_moved_connection_is_seen_by_port_and_by_process() {
    let (site, server) = served(&[]);
    let by = [("--port", server.address().port().to_string()), ("--pid", server.pid().to_string())];
    for (n, suite) in Suite::all().into_iter().enumerate() {
        let client = get_and_stay(&site, suite, server.address());
        assert_eq!(access_line(&server, n + 1).way(), ("kernel", "moved"));
        for (option, value) in &by {
            let doctor = Doctor::of_sockets(&[option, value]);
            assert_is_of(&doctor, &client, &suite.version.to_string(), &suite.aead.cipher().to_string());
            assert_eq!(doctor.sockets()[0]["receiving"], "user space", "ours receives there");
        }
        drop(client);
        wait_until_none(&server.address().port().to_string());
    }
}

/// Waits until the port has no connection with kernel TLS.
fn wait_until_none(port: &str) {
    wait_until("the connection is gone", || Doctor::of_sockets(&["--port", port]).code != 0);
}

/// Its sockets are held by the worker, and its pid file names the master.
#[test]
fn nginx_is_seen_by_port_and_by_its_master() {
    let (site, _ours) = served(&[]);
    let nginx = Nginx::serve(&site);
    let client = get_and_stay(&site, Suite::TLS13, nginx.address);
    for (option, value) in [("--port", nginx.address.port().to_string()), ("--pid", nginx.pid().to_string())] {
        let doctor = Doctor::of_sockets(&[option, &value]);
        let cipher = doctor.sockets().first().and_then(|s| s["cipher"].as_str()).unwrap_or_default().to_owned();
        assert!(cipher.starts_with("AES-") || cipher.starts_with("CHACHA20"), "{}", doctor.text);
        assert_is_of(&doctor, &client, "TLS 1.3", &cipher);
    }
}

#[test]
fn a_server_in_user_space_is_told_from_the_kernels() {
    let (site, server) = served(&["--ktls", "never"]);
    let (other_site, other) = served(&[]);
    let _moved = get_and_stay(&other_site, Suite::TLS13, other.address());
    let _client = get_and_stay(&site, Suite::TLS13, server.address());
    assert_eq!(access_line(&server, 1).get("path"), "user");
    let (port, pid) = (server.address().port().to_string(), server.pid().to_string());
    for (arguments, whose) in [(["--port", &port], "port"), (["--pid", &pid], "process")] {
        let doctor = Doctor::of_sockets(&arguments);
        assert_eq!((doctor.code, doctor.sockets().len()), (1, 0), "{}", doctor.text);
        assert!(doctor.text.contains(whose) && doctor.text.contains(arguments[1]), "{}", doctor.text);
    }
}

#[test]
fn without_capabilities_it_asks_for_root() {
    for option in ["--port", "--pid"] {
        let text = refusal_of_nobody(&[option, "1"]);
        assert!(text.contains("CAP_NET_ADMIN") && text.contains("run it as root"), "{text}");
    }
    assert!(refusal(&["--pid", "4194305"]).contains("no process 4194305"));
}

/// How often the thread that checks has gone to sleep so far; `None`: there is no such thread.
fn sleeps_of_self_check(pid: u32) -> Option<u64> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut statuses = fs::read_dir(tasks).expect("the process runs").filter_map(|task| {
        let task = task.ok()?.path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        (name.trim() == "self-check").then(|| fs::read_to_string(task.join("status")).ok())?
    });
    let status = statuses.next()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Some(line.expect("the kernel counts them").trim().parse().expect("a number"))
}

/// Waits for two more rounds of canaries, and returns while the server still runs.
#[track_caller]
fn wait_for_self_checks(server: &Server) {
    let counters = Counters::now();
    wait_until("two rounds of canaries", || counters.tx_sw_since() >= 2 * ROUND);
    assert!(sleeps_of_self_check(server.pid()).is_some());
    assert_eq!(messages(server, "self-check"), 0, "nothing was wrong: {:#?}", server.lines());
}

#[test]
fn self_checks_go_on_while_the_server_is_idle() {
    let (_site, server) = served(&["--self-check-every", "1s"]);
    wait_for_self_checks(&server);
}

#[test]
fn a_server_that_never_uses_the_kernel_checks_nothing() {
    let counters = Counters::now();
    probe::probe();
    let probing = counters.tx_sw_since();
    let counters = Counters::now();
    let (site, never) = served(&["--ktls", "never", "--self-check-every", "1s"]);
    let _client = get_and_stay(&site, Suite::TLS13, never.address());
    assert_eq!(access_line(&never, 1).get("path"), "user");
    assert_eq!(counters.tx_sw_since(), probing, "it looks at the start, and that is all");

    // It wakes, since a reload may have changed that, and sleeps again.
    let sleeps = || sleeps_of_self_check(never.pid()).expect("the thread is there");
    let before = sleeps();
    wait_until("it wakes", || sleeps() >= before + 3);
    assert_eq!(counters.tx_sw_since(), probing, "and checks nothing");
}
