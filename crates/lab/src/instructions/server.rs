//! A server under test in the guest.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use super::{Arm, Plan};
use crate::load::Suite;

/// A running server; dropping it ends it.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    pub(super) scheme: &'static str,
}

impl Server {
    /// Starts `arm` with one worker on the files of `www`, and waits until it listens. `work` holds `cert.pem` and
    /// `key.pem`.
    pub(super) fn start(arm: Arm, plan: &Plan, work: &Path, www: &Path) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let mut command = match arm {
            Arm::User => sealion(plan, "never", address, work, www),
            Arm::Kernel => sealion(plan, "always", address, work, www),
            Arm::Auto => {
                let mut command = sealion(plan, "auto", address, work, www);
                command.arg("--calibration").arg(calibrate(plan, work)?);
                command
            }
            Arm::Nginx | Arm::NginxKtls | Arm::NginxPlain => {
                let file = work.join(format!("{}.conf", arm.name()));
                fs::write(&file, nginx_configuration(arm, plan, address, work, www)?)?;
                let mut command = Command::new(NGINX);
                command.arg("-c").arg(file).arg("-p").arg(work);
                command
            }
        };
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {}", arm.name()))?;
        let mut server = Self { child, address, scheme: if arm == Arm::NginxPlain { "http" } else { "https" } };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once, {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not listen after {} s", START.as_secs());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM: nginx's master takes its worker along.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// What both paths cost here, as `sealion calibrate` finds it: an operator would have asked it too, and the shipped costs
/// are times of a processor, not counts.
fn calibrate(plan: &Plan, work: &Path) -> Result<PathBuf> {
    let file = work.join("calibration.json");
    let mut command = Command::new(&plan.sealion);
    command.args(["calibrate", "--seconds", CALIBRATION_SECONDS, "--output"]).arg(&file);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("cannot start sealion")?;
    ensure!(status.success(), "sealion calibrate ended with {status}");
    Ok(file)
}

fn sealion(plan: &Plan, ktls: &str, address: SocketAddr, work: &Path, www: &Path) -> Command {
    let mut command = Command::new(&plan.sealion);
    command.arg("serve").arg(www).args(["--workers", "1", "--listen", &address.to_string(), "--ktls", ktls]);
    command.arg("--cert").arg(work.join("cert.pem")).arg("--key").arg(work.join("key.pem"));
    command.args(["--access-log", "off", "--log", "warn"]);
    command
}

fn nginx_configuration(arm: Arm, plan: &Plan, address: SocketAddr, work: &Path, www: &Path) -> Result<String> {
    let (work, www) = (work.display(), www.display());
    let cache = if plan.open_file_cache {
        "open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s;"
    } else {
        "open_file_cache off;"
    };
    let (listen, tls) = if arm == Arm::NginxPlain {
        (address.to_string(), String::new())
    } else {
        let ciphers = match plan.suite {
            Suite::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Suite::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Suite::Chacha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
            other => bail!("{other:?} is not counted: choose a suite of TLS 1.3"),
        };
        let ktls = if arm == Arm::NginxKtls { "ssl_conf_command Options KTLS;" } else { "" };
        let tls = format!(
            "ssl_certificate {work}/cert.pem; ssl_certificate_key {work}/key.pem; ssl_protocols TLSv1.3; \
             ssl_conf_command Ciphersuites {ciphers}; {ktls}"
        );
        (format!("{address} ssl"), tls)
    };
    Ok(format!(
        "user root; worker_processes 1; daemon off; pid {work}/nginx.pid; error_log stderr warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; keepalive_timeout 100s; {cache}\n\
         server {{ listen {listen}; {tls} root {www}; }} }}\n"
    ))
}

/// Where Debian's package has it, and the guest too.
const NGINX: &str = "/usr/sbin/nginx";

const PORT: u16 = 9443;

/// Guest time: a second is a thousand million instructions. GUESS: some rounds of every size and suite.
const CALIBRATION_SECONDS: &str = "3";

/// GUESS: guest time; a start takes less than one.
const START: Duration = Duration::from_secs(20);
