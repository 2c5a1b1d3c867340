//! wrk(1) as the client.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::load::Suite;

/// Runs wrk on `url` with one thread and two connections for a second. Returns its count of requests.
pub(super) fn requests(url: &str, suite: Suite, work: &Path) -> Result<u64> {
    let configuration = work.join("openssl.cnf");
    let suite = match suite {
        Suite::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
        Suite::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
        Suite::Chacha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        other => anyhow::bail!("{other:?} is not counted: choose a suite of TLS 1.3"),
    };
    // wrk has no option for suites, but its OpenSSL reads this file.
    std::fs::write(
        &configuration,
        format!(
            "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nCiphersuites = {suite}\n\
             MinProtocol = TLSv1.3\n"
        ),
    )?;
    let output = Command::new("wrk")
        .args(["-t1", "-c2", "-d1", url])
        .env("OPENSSL_CONF", &configuration)
        .output()
        .context("cannot run wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    parse(&text)
}

/// The number of requests, if all succeeded.
fn parse(text: &str) -> Result<u64> {
    for line in text.lines().map(str::trim) {
        ensure!(!line.starts_with("Socket errors:") && !line.starts_with("Non-2xx"), "wrk met failures: {line}");
    }
    let count = text.lines().find_map(|line| line.trim().split_once(" requests in ")).context("wrk counted nothing")?.0;
    let count = count.parse().context("wrk counted no number")?;
    ensure!(count > 0, "wrk counted no request");
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 1s test @ https://127.0.0.1:9443/1k\n  1 threads and 2 connections\n\
        \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n  10837 requests in 1.00s, 13.48MB read\n\
        Requests/sec:  10836.12\n";

    #[test]
    fn the_count_is_read() {
        assert_eq!(parse(OUTPUT).unwrap(), 10837);
    }

    #[test]
    fn failures_are_no_count() {
        for line in ["  Socket errors: connect 0, read 2, write 0, timeout 0", "  Non-2xx or 3xx responses: 10837"] {
            let text = OUTPUT.replace("Requests/sec", &format!("{line}\nRequests/sec"));
            assert!(parse(&text).unwrap_err().to_string().contains(line.trim()));
        }
        assert!(parse("").is_err());
        assert!(parse(&OUTPUT.replace("10837 req", "0 req")).is_err());
    }
}
