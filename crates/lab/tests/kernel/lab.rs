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
