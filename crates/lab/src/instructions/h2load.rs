//! h2load(1) as the client.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::load::{Protocol, Suite};
use crate::study::Cell;

/// Makes `requests` requests for `url`, over HTTP/1.1 or HTTP/2 according to `cell`. Every response must be 200.
pub(super) fn request(url: &str, cell: &Cell, requests: u64) -> Result<()> {
    let suite = match cell.suite {
        Suite::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
        Suite::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
        Suite::Chacha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        other => anyhow::bail!("{other:?} is not counted: choose a suite of TLS 1.3"),
    };
    let mut command = Command::new("h2load");
    command.arg(format!("--tls13-ciphers={suite}")).args(["--threads=1", "--groups=X25519"]);
    command.arg(format!("--clients={}", cell.connections)).arg(format!("--requests={requests}"));
    let protocol = match cell.protocol {
        Protocol::Http1 => {
            command.arg("--h1");
            "http/1.1"
        }
        Protocol::Http2 { streams } => {
            command.arg(format!("--max-concurrent-streams={streams}")).arg("--npn-list=h2");
            "h2"
        }
        Protocol::Http3 { .. } => anyhow::bail!("h2load of Debian has no HTTP/3: count it with --client lab"),
    };
    let output = command.arg(url).output().context("cannot run h2load")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "h2load failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    check(&text, requests, protocol)
}

/// Checks that all `requests` succeeded by the requested protocol.
fn check(text: &str, requests: u64, protocol: &str) -> Result<()> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::trim).unwrap_or_default();
    ensure!(
        line("Application protocol:") == protocol,
        "h2load spoke {:?}, not {protocol}",
        line("Application protocol:")
    );
    let codes = line("status codes:");
    ensure!(codes.starts_with(&format!("{requests} 2xx,")), "of {requests} requests h2load counts: {codes}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "TLS Protocol: TLSv1.3\nCipher: TLS_AES_128_GCM_SHA256\nApplication protocol: h2\n\n\
        finished in 100.0ms, 400.00 req/s, 500.00KB/s\n\
        requests: 40 total, 40 started, 40 done, 40 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 40 2xx, 0 3xx, 0 4xx, 0 5xx\n";

    #[test]
    fn only_a_run_without_failures_by_the_protocol_that_was_asked_for_counts() {
        assert!(check(OUTPUT, 40, "h2").is_ok());
        assert!(check(OUTPUT, 40, "http/1.1").unwrap_err().to_string().contains("not http/1.1"));
        assert!(check(OUTPUT, 4, "h2").is_err());
        assert!(check(&OUTPUT.replace("40 2xx, 0 3xx", "39 2xx, 1 3xx"), 40, "h2").is_err());
        assert!(check("", 40, "h2").is_err());
    }
}
