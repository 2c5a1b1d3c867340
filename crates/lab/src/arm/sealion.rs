//! Sealion as a server of the lab: found, calibrated, started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest;

use super::{Certificate, LogFormat, Process, Server, Setup, shown};

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
    /// It is not there; the error says how to build it.
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
        let bytes = std::fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        let hash = digest::digest(&digest::SHA256, &bytes);
        let short: String = hash.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
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

/// `log`: the format of an access log, if one is to be written.
pub(super) fn start(setup: &Setup, ktls: &str, log: Option<LogFormat>) -> Result<Server> {
    let sealion = setup.sealion.as_ref().context("sealion is not there")?;
    let workers = setup.cores.len().max(1).to_string();
    let listen = SocketAddr::new(setup.address, 0).to_string();
    let path = |path: &Path| path.display().to_string();
    let Certificate { certificate, key } = &setup.certificate;
    let mut arguments: Vec<String> =
        ["serve", &path(&setup.files), "--listen", &listen, "--workers", &workers].map(Into::into).into();
    arguments.extend(["--ktls", ktls, "--cert", &path(certificate), "--key", &path(key)].map(Into::into));
    arguments.extend(["--log", "warn", "--access-log"].map(Into::into));
    match log {
        None => arguments.push("off".into()),
        Some(format) => {
            let file = setup.scratch.join(format!("sealion-{}.log", format.as_str()));
            arguments.extend([path(&file), "--access-log-format".to_owned(), format.as_str().to_owned()]);
        }
    }
    if let Some(calibration) = setup.calibration.as_ref().filter(|_| ktls == "auto") {
        arguments.extend(["--calibration".to_owned(), path(calibration)]);
    }
    let process = Process::start(Command::new(&sealion.program).args(&arguments), &setup.cores)
        .and_then(|process| Ok((process.wait_for(port_in)?, process)));
    let (port, process) = process.with_context(|| shown(&sealion.program, &arguments))?;
    Ok(Server {
        address: SocketAddr::new(setup.address, port),
        name: Certificate::NAME.to_owned(),
        roots: Some(certificate.clone()),
        prefix: "/".to_owned(),
        pid: Some(process.pid()),
        command: shown(&sealion.program, &arguments),
        configuration: String::new(),
        process: Some(process),
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
