//! `sealion doctor`: reports whether kernel TLS will be used, and what would change that.
//!
//! Each finding stems from a query to this kernel or from a trial, and states its meaning and its remedy.

mod crypto;
mod kernel;
mod nic;
mod openssl;
mod paths;
mod privileges;
mod settings;
mod sockets;
mod udp;

use std::process::ExitCode;

use clap::Args;
use sealion_ktls::probe;
use serde::Serialize;

use crate::commands::print;
use crate::path::costs::Costs;

/// Arguments of `sealion doctor`.
#[derive(Debug, Clone, Args)]
pub(super) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Show which sockets of a process, Sealion or any other server, use kernel TLS; exit code 0 only if one does
    #[arg(long, value_name = "PID", conflicts_with = "port")]
    pub pid: Option<u32>,

    /// Show which sockets on a port use kernel TLS; exit code 0 only if one does
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}

/// The exit code is 0 only if kernel TLS will be used or, with `--pid` or `--port`, is in use.
///
/// # Errors
/// The kernel refuses a query.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode, String> {
    let (text, json, yes) = if args.pid.is_some() || args.port.is_some() {
        let table = sockets::Table::read(args.pid, args.port)?;
        (table.to_string(), serde_json::to_string_pretty(&table), table.uses_ktls())
    } else {
        let report = Report::make();
        (report.to_string(), serde_json::to_string_pretty(&report), report.ktls_will_be_used)
    };
    if args.json {
        print(&(json.map_err(|e| e.to_string())? + "\n"))?;
    } else {
        print(&text)?;
    }
    Ok(if yes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All findings, and the verdict.
#[derive(Debug, Clone, Serialize)]
struct Report {
    ktls_will_be_used: bool,
    /// Kernel TLS may work without being used, because user space is cheaper.
    ktls_works: bool,
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    topic: &'static str,
    state: State,
    found: String,
    /// The consequence for the server.
    means: String,
    /// A command or action.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// For information, neither good nor bad.
    Note,
    /// Works, but at a loss.
    Warning,
    /// Kernel TLS does not work or must not be used.
    Bad,
}

impl Finding {
    fn new(topic: &'static str, state: State, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self { topic, state, found: found.into(), means: means.into(), remedy: None }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

impl Report {
    fn make() -> Self {
        let probe = probe::probe();
        let mut findings = vec![kernel::release()];
        findings.extend(kernel::layer(&probe));
        let (suites, usable) = paths::each_suite(&probe);
        findings.extend(suites);
        let costs = Costs::load(None).unwrap_or_else(|error| Costs::shipped(error.to_string()));
        let (costs, pays) = paths::costs(&probe, &costs);
        findings.extend(costs);
        findings.extend(paths::rekey(&probe));
        findings.extend(crypto::drivers());
        findings.extend(settings::all());
        findings.extend(udp::all());
        findings.extend(nic::all());
        findings.push(openssl::on_this_machine());
        findings.extend(privileges::of_this_kernel());
        Self { ktls_will_be_used: usable && pays, ktls_works: usable, findings }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for finding in &self.findings {
            let sign = match finding.state {
                State::Good => "ok  ",
                State::Note => "    ",
                State::Warning => "warn",
                State::Bad => "BAD ",
            };
            writeln!(f, "{sign}  {:<12} {}", finding.topic, finding.found)?;
            if finding.state != State::Good {
                writeln!(f, "{:19}{}", "", finding.means)?;
            }
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "{:19}-> {remedy}", "")?;
            }
        }
        f.write_str(if self.ktls_will_be_used {
            "\nKernel TLS will be used here.\n"
        } else if self.ktls_works {
            "\nKernel TLS will not be used here: it works, but user space is cheaper and seals everything.\n"
        } else {
            "\nKernel TLS will not be used here: user space seals everything, which always works.\n"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_to_do() {
        let bad = Finding::new("module", State::Bad, "not loaded", "no kernel TLS").remedy("modprobe tls");
        let good = Finding::new("kernel", State::Good, "Linux 7.2.13", "has the known fixes");
        let report = Report { ktls_will_be_used: false, ktls_works: false, findings: vec![good, bad] };
        let text = report.to_string();
        assert!(text.ends_with("user space seals everything, which always works.\n"), "{text}");
        let dearer = Report { ktls_works: true, ..report.clone() }.to_string();
        assert!(dearer.ends_with("user space is cheaper and seals everything.\n"), "{dearer}");
        assert!(text.contains("ok    kernel       Linux 7.2.13\n"), "{text}");
        assert!(text.contains("BAD   module       not loaded\n"), "{text}");
        assert!(text.contains("-> modprobe tls\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(json["ktls_will_be_used"], false);
        assert_eq!(json["findings"][1]["state"], "bad");
        assert_eq!(json["findings"][1]["remedy"], "modprobe tls");
    }
}
