//! `sealion calibrate` on a kernel that promises kernel TLS, and what the server and the doctor make of its file.
//!
//! These tests fail, and never skip, where it is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_testkit::http;
use sealion_testkit::ktls::Counters;
use sealion_testkit::server::Server;
use sealion_tls::Version;
use sealion_tls::record::Aead;

use crate::support::doctor::Doctor;
use crate::support::library::{Calibration, Costs, default_path, display_bytes};
use crate::support::{PROGRAM, Site, access_line, access_lines, content, costs, wait_for_message};

const LEN: u64 = 200_001;

/// A calibration where the server and the doctor look for it, removed on drop.
struct Kept(PathBuf);

impl Kept {
    fn nothing() -> Self {
        let path = default_path().expect("a place");
        assert!(!path.exists(), "nobody else calibrates here");
        Self(path)
    }

    fn of(calibration: &Calibration) -> Self {
        let kept = Self::nothing();
        calibration.store(&kept.0).expect("it is stored");
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that looks for a calibration itself.
fn serve(site: &Site) -> Server {
    let mut arguments = site.arguments(&[]);
    let named = arguments.iter().position(|argument| argument == "--calibration").expect("a site names its own");
    arguments.drain(named..named + 2);
    Server::start(Path::new(PROGRAM), arguments)
}

#[test]
fn what_it_measures_is_used() {
    let kept = Kept::nothing();
    let counters = Counters::now();
    let output = Command::new(PROGRAM).args(["calibrate", "--seconds", "1"]).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // For each of six at least three moves, and one connection that sends.
    assert!(counters.tx_sw_since() >= 6 * 4, "{} moves", counters.tx_sw_since());
    assert!(text.contains(&format!("Stored in {}", kept.0.display())), "{text}");
    assert_eq!(text.matches("a move takes").count(), 6, "{text}");
    println!("{text}");

    let calibration = Calibration::load(&kept.0).expect("it is of this machine");
    assert_eq!(calibration.suites.len(), 6);
    let usual = Costs::load(Some(&kept.0)).expect("it is sound");
    let usual = usual.of(Version::Tls13, Aead::Aes128Gcm);
    let server = serve(&Site::new());
    wait_for_message(&server, &format!("measured here on {}", calibration.made));
    match usual.crossover().filter(|_| usual.curve.ever_saves()) {
        Some(1..) => {
            let bytes = display_bytes(usual.crossover().expect("it was asked just now"));
            wait_for_message(&server, &format!("with its first response of {bytes} or more"));
        }
        _ => drop(wait_for_message(&server, "kernel TLS is available")),
    }
    let doctor = Doctor::of_this_machine();
    assert!(doctor.findings("costs")[0].found.contains("measured here"), "{}", doctor.text);
    assert_eq!(doctor.findings("costs").len(), 1 + 6, "{}", doctor.text);
}

#[test]
fn where_the_kernel_never_wins_nothing_moves_and_all_say_so() {
    let mut calibration = costs();
    for suite in &mut calibration.suites {
        suite.points.iter_mut().for_each(|point| point.kernel_ns = point.user_ns + 1);
    }
    let _kept = Kept::of(&calibration);
    let site = Site::new();
    site.add_large("f", LEN);
    let server = serve(&site);
    wait_for_message(&server, "user space is cheaper on this machine for responses of any length");
    let counters = Counters::now();
    let got = http::get(&mut site.connect(&server), "/f").expect("an answer");
    content::assert_equal(&got.body, 0..LEN);
    assert_eq!(access_line(&server, 1).way(), ("user", "no-gain"));
    assert_eq!(counters.tx_sw_since(), 0);
    let doctor = Doctor::of_this_machine();
    assert_eq!(doctor.code, 1, "{}", doctor.text);
    assert!(doctor.text.contains("will not be used here: it works, but user space is cheaper"), "{}", doctor.text);
    assert_eq!(doctor.text.matches("user space is cheaper at any length").count(), 6, "{}", doctor.text);
}

#[test]
fn costs_of_another_kernel_and_nonsense_are_not_used() {
    let mut calibration = costs();
    calibration.machine.kernel = "2.6.32".to_owned();
    let kept = Kept::of(&calibration);
    let site = Site::new();
    let unused = |why: &str| {
        let line = wait_for_message(&serve(&site), "what the paths cost: the shipped defaults");
        assert!(line.contains(why) && line.contains("`sealion calibrate`"), "{line}");
        let doctor = Doctor::of_this_machine();
        let costs = doctor.findings("costs").swap_remove(0);
        assert_eq!((doctor.code, costs.state.as_str()), (0, "note"), "{}", doctor.text);
        assert!(costs.found.contains(why) && costs.remedy.as_deref() == Some("sealion calibrate"), "{}", doctor.text);
    };
    unused("2.6.32");
    std::fs::write(&kept.0, "{").expect("it is written");
    unused("cannot be used");
    drop(kept);
    unused("there is no");
}

#[test]
fn a_move_is_in_the_log_with_what_it_took() {
    let site = Site::new();
    site.add_large("f", LEN);
    let server = site.serve(&[]);
    let mut client = site.connect(&server);
    for _ in 0..2 {
        http::get(&mut client, "/f").expect("an answer");
    }
    let lines = access_lines(&server, 2);
    let took: u64 = lines[0].get("setup_us").parse().expect("microseconds");
    assert!(took > 0, "{}", lines[0].text);
    assert_eq!((lines[1].way(), lines[1].find("setup_us")), (("kernel", "moved-before"), None));
}

/// Responses that are each too small for the move cause it when they have added up.
#[test]
fn small_responses_add_up() {
    let mut calibration = costs();
    for suite in &mut calibration.suites {
        // Ten responses pay for a move of ten seconds, which no running estimate undercuts.
        suite.points.iter_mut().for_each(|point| (point.user_ns, point.kernel_ns) = (1_000_000_001, 1));
        suite.set_up.median_ns = 10_000_000_000;
    }
    let site = Site::new();
    let path = site.outside().join("adds-up.json");
    calibration.store(&path).expect("it is stored");
    site.add("f", "content");
    let server = site.serve(&["--calibration", path.to_str().expect("a name")]);
    let mut client = site.connect(&server);
    for _ in 0..11 {
        http::get(&mut client, "/f").expect("an answer");
    }
    let lines = access_lines(&server, 11);
    let ways: Vec<_> = lines.iter().map(|line| line.get("why")).collect();
    assert_eq!(ways, [&["small"; 9][..], &["moved", "moved-before"]].concat());
}
