//! Two runs side by side, and exports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_lab::report::{self, Format};
use sealion_lab::row::Row;
use sealion_lab::study::StudyName;

use crate::support;

fn write(name: &str, rows: &[Row], kernel: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("diff").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the build directory is writable");
    let mut raw = csv::Writer::from_path(directory.join(report::raw::FILE)).expect("a file");
    rows.iter().for_each(|row| raw.serialize(row).expect("a row"));
    raw.flush().expect("a file");
    let mut info = support::made_up_run(name);
    info.kernel = kernel.to_owned();
    info.write(&directory).expect("a file");
    directory
}

fn lab(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sealion-lab")).args(arguments).output().expect("the lab runs");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_regression_fails_the_gate_and_equal_runs_pass_it() {
    let rows = support::made_up_rows(StudyName::SizeByCalls);
    let before = write("before", &rows, "6.12.0");
    let same = write("same", &rows, "6.12.0");
    let mut slower = rows;
    for row in slower.iter_mut().filter(|row| row.arm == "kernel" && row.size == 1 << 20 && row.calls == Some(20)) {
        row.server_cpu = row.server_cpu.map(|cpu| cpu + cpu / 5);
    }
    let after = write("after", &slower, "6.13.0");
    let path = |path: &Path| path.display().to_string();
    let (code, said) = lab(&["diff", &path(&before), &path(&same)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("No cell costs 3 % more than before: lower in 0, higher in 0,"), "{said}");
    let (code, said) = lab(&["diff", &path(&before), &path(&after)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("1 of "), "{said}");
    assert!(said.contains("- Not alike: kernel: 6.12.0 and 6.13.0"), "{said}");
    let worst = said.lines().find(|line| line.contains("| size-by-calls size=1048576 calls=20 ")).expect("a line");
    assert!(worst.contains(", kernel |") && worst.contains("+20.0 %"), "{said}");
    assert_eq!(lab(&["diff", &path(&before), &path(&after), "--gate", "25"]).0, Some(0));
    // The other way round it is a gain.
    assert_eq!(lab(&["diff", &path(&after), &path(&before)]).0, Some(0));
}

#[test]
fn runs_without_a_common_cell_do_not_compare() {
    let one = write("one", &support::made_up_rows(StudyName::NginxArticle), "6.12.0");
    let other = write("other", &support::made_up_rows(StudyName::Container), "6.12.0");
    let why = report::diff(&one, &other).unwrap_err().to_string();
    assert!(why.contains("in common"), "{why}");
}

#[test]
fn aggregates_are_exported_alike_in_both_formats() {
    let directory = write("export", &support::made_up_rows(StudyName::Netdev), "6.12.0");
    let csv = report::export(&directory, Format::Csv).expect("CSV");
    let json = report::export(&directory, Format::Json).expect("JSON");
    let lines: Vec<serde_json::Value> = serde_json::from_str(&json).expect("an array");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let head = reader.headers().expect("a head").clone();
    assert_eq!(&head[5], "figure");
    assert_eq!(reader.records().count(), lines.len());
    let cpu = lines.iter().find(|line| line["figure"] == "cpu" && line["arm"] == "kernel").expect("a figure");
    assert_eq!((cpu["unit"].as_str(), cpu["rounds"].as_u64()), (Some("ns/request"), Some(5)));
    let number = |name: &str| cpu[name].as_f64().expect("a number");
    assert!(number("min") <= number("median") && number("median") <= number("max"), "{cpu}");
    assert!(number("low") < number("geometric_mean") && number("geometric_mean") < number("high"), "{cpu}");
    assert!(lines.iter().any(|line| line["figure"] == "latency_p99"));
    let (code, said) = lab(&["report", &directory.display().to_string(), "--export", "csv"]);
    assert_eq!((code, said), (Some(0), csv));
}
