//! Advice for an access log that was really written.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::{files, run};

/// Lines of 80 small and 20 large responses on ten connections.
fn log(format: &str) -> String {
    let line = |number: u32| {
        let (second, port, bytes) =
            (number / 2, 40_000 + number / 10, if number.is_multiple_of(5) { 300_000 } else { 2_000 });
        match format {
            "json" => format!(
                r#"{{"time":"2026-11-21T15:00:{second:02}.000Z","peer":"192.0.2.7:{port}","status":200,"bytes":{bytes},"tls":"1.3","suite":"TLS_AES_128_GCM_SHA256","path":"user"}}"#
            ),
            "combined" => format!(
                r#"192.0.2.{} - - [21/Nov/2026:15:00:{second:02} +0000] "GET /a HTTP/1.1" 200 {bytes} "-" "curl""#,
                number / 10
            ),
            _ => format!(
                "time=2026-11-21T15:00:{second:02}.000Z peer=192.0.2.7:{port} status=200 bytes={bytes} tls=1.3 \
                 suite=TLS_AES_128_GCM_SHA256 path=user"
            ),
        }
    };
    (0..100).map(|number| line(number) + "\n").collect()
}

fn advise(directory: &Path, format: &str, more: &[&str]) -> (bool, String) {
    let file = directory.join(format!("{format}.log"));
    fs::write(&file, log(format)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    command.args(["advise", "--smoke", "--allow-debug", "--yes", "--access-log"]).arg(&file);
    command.arg("--files").arg(files()).arg("--out").arg(directory.join(format)).args(more);
    let (output, said) = run(command);
    (output.status.success(), said)
}

/// Both kinds of kernels answer: with kernel TLS by the replay, without it by counts of a named kernel, said first.
#[test]
fn a_log_of_any_format_gets_an_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    for format in ["logfmt", "json", "combined"] {
        let (success, said) = advise(directory.path(), format, &["--rounds", "5"]);
        assert!(success, "{format}: {said}");
        let answers = ["Turn it on (", "Leave it off (", "It does not matter: "];
        let answer = said.lines().position(|line| answers.iter().any(|start| line.starts_with(start)));
        let answer = answer.unwrap_or_else(|| panic!("{format}: {said}"));
        if let Some(none) = said.lines().position(|line| line.starts_with("this kernel has no kernel TLS: ")) {
            assert!(none < answer && said.contains("estimated by instruction counts of Linux 7.2"), "{said}");
        }
        assert!(said.contains("of a core a day (") && said.contains("100 responses with TLS, 2.04 a second"), "{said}");
        assert!(said.contains("10.0 requests a connection") && said.contains("80.0 % of responses"), "{said}");
        assert_eq!(said.contains("guessed by addresses"), format == "combined", "{said}");
        assert!(directory.path().join(format).join("report.html").is_file());
    }
}

/// The log has responses of 2,000 and of 300,000 bytes.
#[test]
fn a_log_is_replayed_in_the_sizes_of_a_sites_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("site");
    fs::create_dir_all(root.join("css")).expect("a directory");
    fs::write(root.join("css/site.css"), vec![b'x'; 2345]).expect("a file");
    let (success, said) = advise(directory.path(), "json", &["--rounds", "1", "--root", &root.display().to_string()]);
    assert!(success, "{said}");
    assert!(said.contains("sizes are those of files beneath") && said.contains("no file is near 300"), "{said}");
    let rows = crate::process::rows(&directory.path().join("json"));
    let sizes: std::collections::BTreeSet<u64> = rows.iter().map(|row| row.size).collect();
    assert_eq!(sizes, [2345, 300_000].into());

    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let (success, said) = advise(directory.path(), "combined", &["--root", &empty.display().to_string()]);
    assert!(!success && said.contains("no file with content"), "{said}");
}

#[test]
fn a_log_that_cannot_be_read_is_refused_before_anything_is_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("x.log");
    fs::write(&file, "hello\n").expect("a file");
    let lab = || Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    let mut command = lab();
    command.args(["advise", "--access-log"]).arg(&file);
    let (output, said) = run(command);
    assert!(!output.status.success() && said.contains("1 lines of another format"), "{said}");
    let mut command = lab();
    command.args(["advise", "--access-log"]).arg(directory.path().join("none"));
    let (output, said) = run(command);
    assert!(!output.status.success() && said.contains("cannot read"), "{said}");
}
