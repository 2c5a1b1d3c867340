//! `sealion check`: checks a configuration without starting a server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use sealion_ktls::probe;

use crate::certificates::TlsProcess;
use crate::commands::print;
use crate::config::{Config, ServeArgs};
use crate::listen::ListenConfig;
use crate::monitor::note;
use crate::observe::access_log::SiteLogs;
use crate::path::offer::KernelOffer;
use crate::process::{build, check_open_files};
use crate::values::{Given, Problems};

/// Arguments of `sealion check`.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    serve: ServeArgs,

    /// Make the exit code 1 for warnings too, such as a certificate that expires soon
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    explained: ExplainArgs,
}

/// The request whose way is shown.
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// Show the way of a request instead, for instance 'GET https://example.org/api/x': its route, conditions, guards, action and answer, and what is
    /// inherited from where. Nothing is sent
    #[arg(long, value_name = "REQUEST", help_heading = None)]
    pub(super) explain: Option<String>,

    /// A field of the explained request, for instance 'X-Beta: yes'
    #[arg(short = 'H', long = "header", value_name = "FIELD", requires = "explain", help_heading = None)]
    pub(super) headers: Vec<String>,

    /// Address of the client of the explained request, for networks and conditions, or of a trusted proxy whose field names the client
    #[arg(long, value_name = "ADDRESS", requires = "explain", help_heading = None)]
    pub(super) client: Option<IpAddr>,
}

/// Checks the configuration, and prints the listeners, sites and certificates that `serve` would use.
///
/// # Errors
/// One line per error.
pub(super) fn run(args: CheckArgs, given: Given) -> Result<ExitCode, String> {
    let CheckArgs { serve, strict, explained } = args;
    let args = ServeArgs { given, ..serve };
    let (config, mut problems) = args.configuration().map_err(|problems| problems.to_string())?;
    let kernel = KernelOffer::new(probe::probe());
    kernel.check(config.server.ktls, &args.ktls_setting())?;
    config.server.costs(&mut problems);
    config.metrics.token(&mut problems);
    crate::process::privileges::check(&config.privileges, &mut problems);
    // The service manager may create it when the service starts.
    let of_sites = SiteLogs::new(&config.access_log, config.site_logs(), &mut Problems::of_arguments());
    let logs = std::iter::once(&config.access_log).chain(of_sites.configs());
    let missing_directories: Vec<String> = logs
        .filter_map(|log| {
            let directory = log.missing_directory(&problems)?;
            Some(format!(
                "the access log {} cannot be written: the directory {} does not exist: create it for the server's user",
                log.to,
                directory.display()
            ))
        })
        .collect();
    let certificates = config.site.iter().flat_map(|site| &site.certificates);
    let certificates: Vec<PathBuf> = certificates.map(|pair| problems.resolve(&pair.cert)).collect();
    let rekeys = kernel.probe().rekey_tx().is_ok();
    let process = TlsProcess::new(None)?;
    let generation = build(&config, problems, &process, rekeys, None).map_err(|problems| problems.to_string())?;
    check_open_files(&config)?;
    if let Some(request) = &explained.explain {
        let place = explained_listener(&config, request);
        let listener = &config.listen[place].listener(place);
        let note = explained_user(&config).unwrap_or_default();
        print(&(super::explain::explain(&generation, listener, &explained)? + &note))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&listeners(&config))?;
    for site in &config.site {
        let names: Vec<&str> = site.names.iter().map(|name| name.value.as_str()).collect();
        let root = site.root.as_ref().map(|root| root.display().to_string());
        let names = if names.is_empty() { "any name".to_owned() } else { names.join(", ") };
        print(&format!("{} for {names}\n", root.as_deref().unwrap_or("no files")))?;
        for (paths, upstream) in site.forwarded_paths() {
            print(&format!("  {paths} → {upstream}\n"))?;
        }
    }
    for certificate in generation.certificates.in_use() {
        let until = humantime::format_rfc3339_seconds(certificate.facts.not_after);
        let names = certificate.facts.names.join(", ");
        let (file, names) = (certificate.file.display(), if names.is_empty() { "no name" } else { &names });
        // Other sites may have it too.
        print(&format!("{file} for {}, covers {names}, valid until {until}\n", certificate.site))?;
    }
    let mut warnings = generation.certificates.notes.clone();
    warnings.extend(missing_directories);
    if let Some((development, note)) = &generation.certificates.default
        && !note.is_empty()
        && args.config.is_some()
    {
        warnings.push(format!(
            "no site has a certificate: {}, for localhost only, would be used: add `certificates` or `acme = true` to the sites",
            development.display()
        ));
    }
    if !config.import.acknowledged {
        warnings.extend(config.import.summary.iter().map(|line| format!("import: {line}")));
    }
    warnings.extend(generation.store.iter().flat_map(|store| store.notes()));
    warnings.extend(config.metrics.listen.and_then(|address| note(address, config.metrics.token_file.is_some())));
    let errors = generation.certificates.expired(&certificates, SystemTime::now());
    warnings.retain(|warning| !errors.contains(warning));
    verdict(&errors, &warnings, strict)
}

/// Prints errors of a configuration that would start, warnings, and the verdict.
fn verdict(errors: &[String], warnings: &[String], strict: bool) -> Result<ExitCode, String> {
    let labelled =
        errors.iter().map(|error| ("error", error)).chain(warnings.iter().map(|warning| ("warning", warning)));
    for (label, text) in labelled {
        print(&format!("{label}: {text}\n"))?;
    }
    let fails = !errors.is_empty() || strict && !warnings.is_empty();
    let counted = [(errors.len(), "error"), (warnings.len(), "warning")].into_iter().filter(|(count, _)| *count > 0);
    let counted = counted.map(|(count, word)| format!(", {count} {word}{}", if count == 1 { "" } else { "s" }));
    print(&format!("{}{}\n", if fails { "not OK" } else { "OK" }, counted.collect::<String>()))?;
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A note where the server reads files as another user than this command, who may read others.
fn explained_user(config: &Config) -> Option<String> {
    let user = config.privileges.user.as_ref().filter(|_| rustix::process::geteuid().is_root())?;
    Some(format!(
        "  files are shown as root may read them, and the server reads them as {user}: run this command as {user}\n"
    ))
}

/// The place of the listener that an explained request comes to: with TLS for `https`, without for `http`, if there is one, and at the port of the URL, if
/// there is one.
fn explained_listener(config: &Config, request: &str) -> usize {
    let url = request.split_once(' ').map_or(request, |(_, url)| url);
    let is_tls = url.starts_with("https://");
    let authority = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    let port =
        authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(if is_tls { 443 } else { 80 });
    let worth = |listen: &ListenConfig| (*listen.tls == is_tls, listen.port() == Some(port));
    // Among equals, max_by_key returns the last.
    let places = config.listen.iter().enumerate().rev();
    places.max_by_key(|(_, listen)| worth(listen)).map_or(0, |(place, _)| place)
}

/// A line for each listener.
fn listeners(config: &Config) -> String {
    let https = crate::listen::https_port(&config.listen);
    let mut lines = String::new();
    for listen in &config.listen {
        let name = &listen.address.name;
        lines += &match *listen.tls {
            true => format!("HTTPS on {name}\n"),
            false if listen.serves() => format!("HTTP on {name}\n"),
            false => format!("HTTP on {name}, redirecting to HTTPS on port {}\n", listen.https_port.unwrap_or(https)),
        };
    }
    if let Some(address) = config.metrics.listen {
        lines += &format!("metrics on {address}\n");
    }
    lines
}
