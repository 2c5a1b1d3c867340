//! The programs in examples/ do as documented.

#[allow(unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/hyper.rs"]
mod example;

use std::process::Stdio;

use sealion_testkit::ktls::Counters;
use sealion_testkit::pki::Pki;
use tokio::net::TcpListener;

/// Two requests of curl on one connection, served by hyper and sealed by the kernel.
#[test]
fn hyper_over_the_kernel() {
    let pki = Pki::ecdsa();
    let config = example::config(&pki.certificate_file(), &pki.key_file()).expect("usable");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let before = Counters::now();
    let output = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let curl = std::process::Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--http1.1", "--cacert"])
            .arg(pki.certificate_file())
            .args([format!("https://{address}/one"), format!("https://{address}/two")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl");
        let output = std::thread::spawn(|| curl.wait_with_output().expect("curl ends"));
        let (socket, _) = listener.accept().await.expect("accept");
        example::serve(socket, &config).await.expect("served");
        output.join().expect("curl")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = ["/one".repeat(10_000), "/two".repeat(10_000)].concat();
    assert!(output.stdout == expected.as_bytes());
    assert_eq!(before.tx_sw_since(), 1);
}
