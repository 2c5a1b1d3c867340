//! `sealion check`: checks a configuration without starting a server.

use std::process::ExitCode;

use sealion_ktls::probe;

use crate::certificates::TlsProcess;
use crate::commands::print;
use crate::config::ServeArgs;
use crate::path::offer::KernelOffer;
use crate::process::build;

/// Checks the configuration, and prints the sites and certificates that `serve` would use.
///
/// # Errors
/// A line per error.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, String> {
    let (config, mut problems) = args.configuration().map_err(|problems| problems.to_string())?;
    let kernel = KernelOffer::new(probe::probe());
    kernel.check(config.server.ktls)?;
    config.server.costs(&mut problems);
    config.metrics.token(&mut problems);
    crate::process::privileges::check(&config.privileges, &mut problems);
    let rekeys = kernel.probe().rekey_tx().is_ok();
    let process = TlsProcess::new()?;
    let generation = build(&config, problems, &process, rekeys, None).map_err(|problems| problems.to_string())?;
    for site in &config.site {
        let names: Vec<&str> = site.names.iter().map(|name| name.value.as_str()).collect();
        let root = site.root.as_ref().map(|root| root.display().to_string()).unwrap_or_default();
        let names = if names.is_empty() { "any name".to_owned() } else { names.join(", ") };
        print(&format!("{root} for {names}\n"))?;
    }
    for certificate in generation.certificates.in_use() {
        let until = humantime::format_rfc3339_seconds(certificate.facts.not_after);
        print(&format!("{} for {}, valid until {until}\n", certificate.file.display(), certificate.site))?;
    }
    for note in &generation.certificates.notes {
        print(&format!("warning: {note}\n"))?;
    }
    print("the configuration is valid\n").map(|()| ExitCode::SUCCESS)
}
