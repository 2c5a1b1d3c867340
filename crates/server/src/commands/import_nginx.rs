//! `sealion import-nginx`: converts an nginx configuration.

#[cfg(feature = "import-nginx")]
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

#[cfg(feature = "import-nginx")]
use crate::config::Config;
#[cfg(feature = "import-nginx")]
use crate::process::build;
use crate::site::is_ours;

/// Arguments of `sealion import-nginx`.
#[derive(Debug, Clone, Args)]
pub(super) struct ImportArgs {
    /// Main configuration file of nginx; included files are read too
    #[arg(default_value = "/etc/nginx/nginx.conf")]
    file: PathBuf,

    /// File to write the configuration to [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file of --output, if it differs from the conversion
    #[arg(long, requires = "output")]
    force: bool,

    /// Name cosmetic directives too, which change no response
    #[arg(long)]
    all: bool,

    /// Start nginx and sealion on loopback, send the requests of this file to both, and print where their responses
    /// differ; exit code 0 if nowhere, 5 if somewhere. A line is METHOD URL, then any number of -H 'Name: value', and
    /// -d 'content'. Applications behind the servers get each request twice
    #[arg(long, value_name = "REQUESTS")]
    compare: Option<PathBuf>,

    /// Configuration to compare with nginx, for instance the conversion after you mended it [default: the conversion]
    #[arg(long, value_name = "FILE", requires = "compare")]
    with: Option<PathBuf>,

    /// Program to compare with [default: /usr/sbin/nginx, or nginx of the search path]
    #[arg(long, value_name = "PROGRAM", requires = "compare")]
    nginx: Option<PathBuf>,

    /// Print the table of directives of docs/migrate-from-nginx.md
    #[arg(long, hide = true)]
    table: bool,
}

/// # Errors
/// Always: this build has no conversion.
#[cfg(not(feature = "import-nginx"))]
pub(super) fn run(_: &ImportArgs) -> Result<ExitCode, String> {
    Err(crate::values::features::left_out("import-nginx", "convert on another machine"))
}

/// Keeps `is_ours`, which only the conversion uses, in builds without it.
#[cfg(not(feature = "import-nginx"))]
const _: fn(&str) -> bool = is_ours;

/// The exit code when a site works in part, or a guard is lost.
#[cfg(feature = "import-nginx")]
const IN_PART: u8 = 3;

/// The exit code when a site is dead, or the server does not start.
#[cfg(feature = "import-nginx")]
const DEAD: u8 = 4;

/// Converts, prints the result, and says on standard error which directives have no counterpart and how each site is. The exit code is 0 if all sites
/// work, 3 if one works in part, and 4 if one is dead or the server does not start.
///
/// # Errors
/// The configuration cannot be read, or the result cannot be written.
#[cfg(feature = "import-nginx")]
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode, String> {
    use sealion_import_nginx::{Loss, Verdict, convert, markdown};

    use super::print;

    if args.table {
        return print(&markdown()).map(|()| ExitCode::SUCCESS);
    }
    let mut conversion = convert(&args.file, is_ours)?;
    let refused = close_refused(&mut conversion)?;
    let text = conversion.text();
    match &args.output {
        Some(output) => {
            write(output, &text, args.force)?;
        }
        None if args.compare.is_some() => {}
        None => print(&text)?,
    }
    if let Some(requests) = &args.compare {
        return compare(args, requests, &text);
    }
    let (cosmetic, named): (Vec<_>, Vec<_>) =
        conversion.unconverted.iter().partition(|one| one.loss == Loss::Cosmetic && !args.all);
    for directive in &named {
        eprintln!("{directive}");
    }
    for line in &refused {
        eprintln!("sealion: does not start: {line}");
    }
    for summary in &conversion.summaries {
        eprintln!("sealion: {summary}");
    }
    if !cosmetic.is_empty() {
        eprintln!("sealion: {} cosmetic directives have no counterpart: --all names them", cosmetic.len());
    }
    let unguarded = named.iter().filter(|directive| directive.loss == Loss::Unguarded).count();
    if unguarded > 0 {
        let lost = if unguarded == 1 { "1 guard is".to_owned() } else { format!("{unguarded} guards are") };
        eprintln!("sealion: {lost} lost: mend each UNGUARDED before you start the server");
    }
    let worst = conversion.summaries.iter().map(|summary| summary.verdict).min();
    let is_part = named.iter().any(|one| one.loss > Loss::Cosmetic);
    Ok(match worst {
        _ if !refused.is_empty() => ExitCode::from(DEAD),
        Some(Verdict::Dead) => ExitCode::from(DEAD),
        Some(Verdict::InPart) => ExitCode::from(IN_PART),
        _ if is_part => ExitCode::from(IN_PART),
        _ => ExitCode::SUCCESS,
    })
}

/// Writes a conversion. Unless it is forced, a file with another text stays: it may have been mended by hand.
#[cfg(feature = "import-nginx")]
fn write(output: &Path, text: &str, is_forced: bool) -> Result<(), String> {
    let shown = output.display();
    if !is_forced && std::fs::read(output).is_ok_and(|own| own != text.as_bytes() && !own.is_empty()) {
        return Err(format!(
            "{shown} exists and differs from the conversion: write to another file, or add --force to overwrite it"
        ));
    }
    std::fs::write(output, text).map_err(|e| format!("cannot write {shown}: {e}"))
}

/// Closes the parts of a conversion that the server would refuse at its start. Returns the errors that stay.
#[cfg(feature = "import-nginx")]
fn close_refused(conversion: &mut sealion_import_nginx::Conversion) -> Result<Vec<String>, String> {
    use sealion_import_nginx::Refused;

    let process = crate::certificates::TlsProcess::new(None)?;
    for _ in 0..MAX_CLOSED {
        let text = conversion.text();
        let file = Path::new("sealion.toml");
        let refused = match Config::parse(file, &text) {
            Err(problems) => problems,
            Ok((config, problems)) => match build(&config, problems, &process, false, None) {
                Ok(_) => return Ok(Vec::new()),
                Err(problems) => problems,
            },
        };
        // Lines change with each part that is closed.
        let is_closed = refused.lines().any(|(line, key, what)| conversion.close(&Refused { line, key, what }));
        if !is_closed {
            return Ok(refused.lines().map(|(_, key, what)| format!("{key}: {what}")).collect());
        }
    }
    Err(format!("the server refuses more than {MAX_CLOSED} parts of the conversion: convert its servers one by one"))
}

/// Parts of a conversion that are closed, one after another.
#[cfg(feature = "import-nginx")]
const MAX_CLOSED: usize = 1000;

/// Compares nginx with the conversion, or with the file of `--with`.
#[cfg(feature = "import-nginx")]
fn compare(args: &ImportArgs, requests: &Path, converted: &str) -> Result<ExitCode, String> {
    let mended = args
        .with
        .as_ref()
        .map(|file| std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display())));
    let mended = mended.transpose()?;
    super::compare::run(&super::compare::Comparison {
        nginx_config: &args.file,
        sealion_config: mended.as_deref().unwrap_or(converted),
        requests,
        nginx: args.nginx.as_ref(),
    })
}

#[cfg(all(test, feature = "import-nginx"))]
mod tests {
    use sealion_import_nginx::counterparts;

    use crate::config::reference;

    #[test]
    fn directives_become_keys_that_exist() {
        let tables = reference::tables();
        let plain = |name: &str| name.trim_matches(['[', ']']).to_owned();
        let keys: Vec<String> = tables
            .iter()
            .flat_map(|table| table.keys.iter().map(|key| format!("{}.{}", plain(&key.table), key.name)))
            .chain(tables.iter().map(|table| plain(&table.name)))
            .collect();
        let unknown: Vec<_> = counterparts().filter(|key| !keys.iter().any(|known| known == key)).collect();
        assert!(unknown.is_empty(), "no keys of sealion.toml: {unknown:?}, but {keys:?}");
    }
}
