//! Studies on kernels with kernel TLS: kernel arms count and are proven, and user-space arms show no kernel TLS.
//!
//! These tests fail, and never skip, if kernel TLS or nginx is missing.

use crate::process::{lab, rows, run};

#[test]
fn kernel_arms_are_proven_and_user_arms_show_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let (output, said) = run(lab(&["size-by-calls", "--smoke"], &out));
    assert!(output.status.success(), "{said}");
    let rows = rows(&out);
    for arm in ["user", "kernel", "auto", "nginx", "nginx-ktls"] {
        let mut of_arm = rows.iter().filter(|row| row.arm == arm).peekable();
        assert!(of_arm.peek().is_some(), "{arm} was not measured: {said}");
        for row in of_arm {
            assert_eq!(row.void, "", "{row:?}");
            assert!(row.body_verified && row.requests > 0, "{row:?}");
            let opened = row.tls_tx_opened.expect("the kernel counts");
            match arm {
                "user" | "nginx" => assert_eq!((opened, row.kernel_sockets.unwrap_or(0)), (0, 0), "{row:?}"),
                "kernel" | "nginx-ktls" => assert!(opened >= row.handshakes && row.handshakes > 0, "{row:?}"),
                _ => {}
            }
        }
    }
    // sock_diag also saw connections that last.
    assert!(rows.iter().any(|row| row.arm != "user" && row.kernel_sockets.is_some_and(|n| n > 0)), "{rows:?}");
}

#[test]
fn the_rule_decides_for_auto_and_is_not_void_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let (output, said) = run(lab(&["netdev", "--smoke", "--arms", "user,kernel,auto"], &out));
    assert!(output.status.success(), "{said}");
    for row in rows(&out) {
        assert_eq!(row.void, "", "{row:?}");
        let times = row.setup.split(';').filter_map(|time| time.parse::<f64>().ok()).filter(|&time| time > 0.0).count();
        assert_eq!(times, if row.arm == "user" { 0 } else { 3 }, "{row:?}");
        assert_eq!(row.server_setup.is_some_and(|time| time > 0), row.arm == "kernel", "{row:?}");
    }
}

/// Where the kernel has kernel TLS, advice comes from a replay on every path, and nothing is estimated.
#[test]
fn advice_is_measured_where_the_kernel_has_kernel_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access.log");
    let line = |second: u32| {
        let bytes = if second.is_multiple_of(5) { 300_000 } else { 2_000 };
        format!("time=2026-11-21T15:00:{second:02}Z peer=192.0.2.7:1 status=200 bytes={bytes} tls=1.3 path=user\n")
    };
    std::fs::write(&log, (0..50).map(line).collect::<String>()).expect("a log");
    let out = directory.path().join("advice");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    command.args(["advise", "--smoke", "--allow-debug", "--yes", "--rounds", "2", "--access-log"]).arg(&log);
    command.arg("--out").arg(&out).arg("--files").arg(crate::process::files());
    let (output, said) = run(command);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("has no kernel TLS") && !said.contains("estimated"), "{said}");
    assert!(said.contains("of a core a day (") && said.contains("2 rounds; a claim takes 5"), "{said}");
    for arm in ["user", "kernel", "auto", "nginx", "nginx-ktls"] {
        assert!(rows(&out).iter().any(|row| row.arm == arm && row.void.is_empty()), "{arm}: {said}");
    }
}
