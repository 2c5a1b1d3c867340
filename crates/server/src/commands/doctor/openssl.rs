//! OpenSSL on this machine, for comparison with servers that use it. Sealion does not use it.

use std::process::Command;

use super::{Finding, State};

/// Whether the `openssl` command exists and its library supports kernel TLS.
pub(super) fn on_this_machine() -> Finding {
    let output = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output().ok()?;
        Some([output.stdout, output.stderr].concat()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    match (output(&["version"]), output(&["s_server", "-help"])) {
        (Some(version), Some(help)) => judge(version.trim(), &help),
        _ => {
            Finding::new("openssl", State::Note, "no openssl command", "needed only for comparisons with other servers")
        }
    }
}

/// Builds without kernel TLS omit these options from the tools: `-ktls` since OpenSSL 3.2, `-sendfile` since 3.0.
fn judge(version: &str, s_server_help: &str) -> Finding {
    let option =
        |line: &str| line.split_ascii_whitespace().next().is_some_and(|word| word == "-ktls" || word == "-sendfile");
    let has = s_server_help.lines().any(option);
    let found = format!("{version}, {} kernel TLS", if has { "with" } else { "without" });
    let means = if has {
        "servers that use it, such as nginx, can enable kernel TLS"
    } else {
        "servers that use it, such as nginx, cannot use kernel TLS; Sealion can"
    };
    Finding::new("openssl", State::Note, found, means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_tells() {
        for help in [" -sendfile   Use sendfile to response file with -WWW\n", " -ktls     Enable Kernel TLS\n"] {
            let with = judge("OpenSSL 3.0.17", help);
            assert!(with.found.ends_with("with kernel TLS"), "{}", with.found);
        }
        let without = judge("OpenSSL 1.1.1", " -tls1_3   Just use TLS 1.3\n");
        assert!(without.found.ends_with("without kernel TLS"), "{}", without.found);
    }
}
