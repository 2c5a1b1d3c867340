//! Sealion as a server of the lab: found, calibrated, started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Certificate, Ktls, LogFormat, Process, Server, Setup, Transport, sha256, shown};
use anyhow::{Context, Result, ensure};

/// The sealion program and its version.
#[derive(Debug, Clone)]
pub(crate) struct Sealion {
    pub(crate) program: PathBuf,
    /// Its `--version`, and the beginning of its SHA-256.
    pub(crate) version: String,
    /// Whether it is a debug build, whose times mean nothing.
    pub(crate) debug: bool,
}

impl Sealion {
    /// `program`; by default `sealion` in the lab's own directory.
    ///
    /// # Errors
    /// It is missing; the error says how to build it.
    pub(crate) fn find(program: Option<&Path>) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe().context("cannot find this program")?.with_file_name("sealion"),
        };
        ensure!(
            program.is_file(),
            "there is no {}: build it with `cargo build --release -p sealion`, or name it by --sealion",
            program.display()
        );
        let output = Command::new(&program).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        // The lines below the first list the program's features.
        let said = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
        ensure!(said.starts_with("sealion "), "{} is not sealion: it says {said:?}", program.display());
        let hash = sha256(&program)?;
        let short = &hash[..12];
        let debug = said.contains("debug");
        Ok(Self { program, version: format!("{} (SHA-256 {short}…)", &said["sealion ".len()..]), debug })
    }

    /// Runs `sealion calibrate` for `seconds` and writes the calibration to `file`.
    ///
    /// # Errors
    /// The program cannot be run, or it fails.
    pub(crate) fn calibrate(&self, seconds: u32, file: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["calibrate", "--seconds", &seconds.to_string(), "--output"]).arg(file);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot run {}", self.program.display()))?;
        ensure!(status.success(), "sealion calibrate ended with {status}");
        Ok(())
    }
}

/// The options of a server that differ between arms.
#[derive(Debug, Clone)]
pub(super) struct Deployment {
    pub(super) ktls: Ktls,
    pub(super) log: Option<LogFormat>,
    pub(super) metrics: bool,
    pub(super) transport: Transport,
    /// `None`: one for each core.
    pub(super) workers: Option<usize>,
}

impl Deployment {
    /// A deployment without access log and metrics.
    pub(super) fn new(ktls: Ktls) -> Self {
        Self { ktls, log: None, metrics: false, transport: Transport::Tcp, workers: None }
    }

    pub(super) fn with_log(self, format: LogFormat) -> Self {
        Self { log: Some(format), ..self }
    }

    pub(super) fn with_http3(self) -> Self {
        Self { transport: Transport::Quic, ..self }
    }

    pub(super) fn with_metrics(self) -> Self {
        Self { metrics: true, ..self }
    }
}

/// Starts a server that seals in the kernel and logs each response, and returns the path of its log too.
pub(crate) fn start_logging_moves(setup: &Setup) -> Result<(Server, PathBuf)> {
    let deployment = Deployment { workers: Some(1), ..Deployment::new(Ktls::Always).with_log(LogFormat::Logfmt) };
    Ok((start(setup, &deployment)?, log_file(setup, LogFormat::Logfmt, "1")))
}

fn log_file(setup: &Setup, format: LogFormat, workers: &str) -> PathBuf {
    setup.scratch.join(format!("sealion-{}-{workers}.log", format.as_str()))
}

/// Serves the lab's files as the only site.
pub(super) fn start(setup: &Setup, deployment: &Deployment) -> Result<Server> {
    let Deployment { ktls, log, metrics, transport, workers } = deployment;
    let workers = workers.unwrap_or(setup.cores.len().max(1)).to_string();
    let listen = SocketAddr::new(setup.address, 0).to_string();
    let path = |path: &Path| path.display().to_string();
    let Certificate { certificate, key } = &setup.certificate;
    let mut arguments: Vec<String> =
        ["serve", &path(&setup.files), "--listen", &listen, "--workers", &workers].map(Into::into).into();
    arguments.extend(["--ktls", ktls.as_str(), "--cert", &path(certificate), "--key", &path(key)].map(Into::into));
    arguments.extend(["--log", "warn", "--access-log"].map(Into::into));
    match log {
        None => arguments.push("off".into()),
        Some(format) => {
            let file = log_file(setup, *format, &workers);
            arguments.extend([path(&file), "--access-log-format".to_owned(), format.as_str().to_owned()]);
        }
    }
    if *metrics {
        arguments.extend(["--metrics".to_owned(), listen]);
    }
    if let Some(calibration) = setup.calibration.as_ref().filter(|_| *ktls == Ktls::Auto) {
        arguments.extend(["--calibration".to_owned(), path(calibration)]);
    }
    if *transport == Transport::Quic {
        arguments.extend(["--http3", "true"].map(Into::into));
    }
    Ok(Server { transport: *transport, ..started(setup, &arguments, String::new())? })
}

/// Forwards all requests to a server without TLS at this address, and stores the responses in `cache`, if given.
pub(super) fn start_proxy(setup: &Setup, to: SocketAddr, ktls: Ktls, cache: Option<&Path>) -> Result<Server> {
    let listen = SocketAddr::new(setup.address, 0).to_string();
    let path = |path: &Path| path.display().to_string();
    let Certificate { certificate, key } = &setup.certificate;
    let workers = setup.cores.len().max(1).to_string();
    let to = format!("http://{to}");
    let arguments = ["proxy", "--to", &to, "--listen", &listen, "--workers", &workers, "--ktls", ktls.as_str()];
    let others = ["--cert", &path(certificate), "--key", &path(key), "--log", "warn", "--access-log", "off"];
    let mut arguments: Vec<String> = [&arguments[..], &others].concat().into_iter().map(Into::into).collect();
    if let Some(calibration) = setup.calibration.as_ref().filter(|_| ktls == Ktls::Auto) {
        arguments.extend(["--calibration".to_owned(), path(calibration)]);
    }
    if let Some(cache) = cache {
        arguments.extend(["--cache".to_owned(), path(cache)]);
    }
    started(setup, &arguments, String::new())
}

/// Serves the lab's files as one of three sites with features, with an access log and metrics.
pub(super) fn start_sites(setup: &Setup) -> Result<Server> {
    let configuration = configuration_of_sites(setup);
    let file = setup.scratch.join("sites.toml");
    std::fs::write(&file, &configuration).with_context(|| format!("cannot write {}", file.display()))?;
    let arguments = ["serve", "--config", &file.display().to_string()].map(str::to_owned);
    started(setup, &arguments, configuration)
}

fn configuration_of_sites(setup: &Setup) -> String {
    let Certificate { certificate, key } = &setup.certificate;
    let sites: String = [Certificate::NAME, "docs.example.org", "downloads.example.org"]
        .iter()
        .map(|name| {
            format!(
                r#"
[[site]]
names = ["{name}"]
{default}root = "{root}"
certificates = [{{ cert = "{certificate}", key = "{key}" }}]
security_headers = "basic"
hsts = {{ max_age = "365d" }}
precompressed = ["br", "gzip"]
route = [
  {{ path = '~ \.html$', cache_control = "no-cache" }},
  {{ path = '~ \.woff2$', cors = {{ origins = ["https://app.example.org"] }} }},
  {{ path = "/assets/", cache_control = "public, max-age=31536000, immutable" }},
  {{ path = "/embed/", headers = {{ unset = ["X-Frame-Options"] }} }},
  {{ path = "/internal/", access = {{ allow = ["10.0.0.0/8"] }} }},
  {{ path = "/pub/", listing = true }},
  {{ path = "= /old.html", redirect = "/new.html" }},
  {{ path = "~ ^/manual/(.*)$", redirect = "/docs/{{1}}" }},
]
compress = {{ min = "1KiB" }}
"#,
                default = if *name == Certificate::NAME { "default = true\n" } else { "" },
                root = setup.files.display(),
                certificate = certificate.display(),
                key = key.display(),
            )
        })
        .collect();
    format!(
        r#"[server]
workers = {workers}
ktls = "never"
log = "warn"

[[listen]]
address = "{listen}"

[access_log]
to = "{scratch}/sealion-sites.log"
format = "combined"

[metrics]
listen = "{listen}"
{sites}"#,
        workers = setup.cores.len().max(1),
        listen = SocketAddr::new(setup.address, 0),
        scratch = setup.scratch.display(),
    )
}

/// Starts the server and waits for its port.
fn started(setup: &Setup, arguments: &[String], configuration: String) -> Result<Server> {
    let sealion = setup.sealion.as_ref().context("sealion is missing")?;
    let process = Process::start(Command::new(&sealion.program).args(arguments), &setup.cores, setup.group.as_deref())
        .and_then(|process| Ok((process.wait_for(port_in)?, process)));
    let (port, process) = process.with_context(|| shown(&sealion.program, arguments))?;
    Ok(Server {
        address: SocketAddr::new(setup.address, port),
        name: Certificate::NAME.to_owned(),
        transport: Transport::Tcp,
        roots: Some(setup.certificate.certificate.clone()),
        prefix: "/".to_owned(),
        pid: Some(process.pid()),
        command: shown(&sealion.program, arguments),
        configuration,
        process: Some(process),
        _behind: None,
        _group: None,
    })
}

/// The port in `… on https://localhost:40001 (127.0.0.1)`.
fn port_in(line: &str) -> Option<u16> {
    let authority = line.split_once("https://")?.1.split_whitespace().next()?;
    authority.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_its_line() {
        assert_eq!(port_in("sealion: serving www on https://localhost:40001 (127.0.0.1)"), Some(40001));
        assert_eq!(port_in("sealion: serving www on https://[::1]:9"), Some(9));
        assert_eq!(port_in("sealion: certificate x"), None);
    }
}
