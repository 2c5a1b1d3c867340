//! `sealion calibrate` on whatever machine this is, with kernel TLS or without, and files that `serve` is given.

use std::process::{Command, Output};

use sealion_ktls::probe;

use crate::support::{PROGRAM, Site};

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("calibrate").args(arguments).output().expect("the program starts")
}

#[test]
fn it_measures_what_there_is_and_says_what_there_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("calibration.json");
    let output = calibrate(&["--seconds", "1", "--json", "--output", path.to_str().expect("a name")]);
    let text = String::from_utf8(output.stdout).expect("text");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let offered = probe::probe().any_tx();
    assert_eq!(output.status.code(), Some(i32::from(!offered)), "{text}");
    assert_eq!(path.exists(), offered, "it is stored when both paths are known");
    assert_eq!(report["no_kernel_path"].is_null(), offered, "{text}");
    let suites = report["suites"].as_array().expect("suites");
    assert_eq!(suites.len(), 6);
    for suite in suites {
        let points = suite["points"].as_array().expect("points");
        assert_eq!(points.len(), 10);
        let cost = |n: usize| points[n]["user_ns"].as_u64().expect("a number");
        assert!(cost(0) > 0 && cost(9) > cost(0), "four mebibytes cost more than one kibibyte: {suite}");
        assert!(offered || points.iter().all(|point| point["kernel_ns"].is_null()), "{suite}");
    }
    let progress = String::from_utf8(output.stderr).expect("text");
    assert!(progress.contains("1 of 6") && progress.contains("6 of 6"), "{progress}");
}

#[test]
fn a_named_file_that_is_none_is_refused_in_one_line() {
    let site = Site::new();
    for (content, why) in [(None, "there is no"), (Some("{"), "cannot be used"), (Some("{\"format\":9}"), "format 9")] {
        let path = site.outside().join("named.json");
        if let Some(content) = content {
            std::fs::write(&path, content).expect("it is written");
        }
        let arguments = site.arguments(&["--calibration", path.to_str().expect("a name")]);
        let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.contains(why) && text.contains("sealion calibrate") && text.contains("named.json"), "{text}");
    }
}
