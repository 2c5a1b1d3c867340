//! nginx as a server of the lab: found, configured, started.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

use super::{Arm, Certificate, Process, Server, Setup, Transport, find_program, shown, xtask_cache};
use crate::proof::Claim;

/// The nginx program and its version.
#[derive(Debug, Clone)]
pub struct Nginx {
    /// The path of the program.
    pub program: PathBuf,
    /// The directory of its libraries, if it is not installed.
    libraries: Option<PathBuf>,
    /// The version of nginx and of its OpenSSL.
    pub version: String,
    /// The output of `nginx -V`.
    built: String,
}

impl Nginx {
    /// Uses `program`, or nginx in PATH, or the nginx in the cache of `cargo xtask guest`.
    ///
    /// # Errors
    /// It is missing; the error says how to get it.
    pub fn find(program: Option<&Path>) -> Result<Self> {
        let found = match program {
            Some(program) => Some(program.to_owned()),
            None => find_program("nginx").or_else(in_cache),
        };
        let program = found.filter(|program| program.is_file()).with_context(|| {
            let named = program.map(|p| format!(" at {}", p.display())).unwrap_or_default();
            format!(
                "nginx is not installed{named}: apt-get install nginx, or name it by --nginx, or do without: \
                 --arms user,kernel,auto"
            )
        })?;
        // …/usr/sbin/nginx next to …/usr/lib: unpacked, not installed.
        let beside = program.ancestors().nth(2).map(|usr| usr.join("lib/x86_64-linux-gnu"));
        let libraries = beside.filter(|path| path.is_dir() && !path.starts_with("/usr"));
        let mut nginx = Self { program, libraries, version: String::new(), built: String::new() };
        let output = nginx.command().arg("-V").output();
        let output = output.with_context(|| format!("cannot run {}", nginx.program.display()))?;
        nginx.built = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = |start: &str| nginx.built.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
        let version = line("nginx version: nginx/");
        ensure!(version.is_some(), "{} is not nginx: {}", nginx.program.display(), nginx.built.trim());
        let library = line("built with ").map(|library| format!(", {library}")).unwrap_or_default();
        nginx.version = format!("{}{library}", version.unwrap_or_default());
        Ok(nginx)
    }

    /// Why it cannot serve HTTP/3; `None` if it can.
    pub(crate) fn lacks_http3(&self) -> Option<String> {
        let has_module = self.built.contains("--with-http_v3_module");
        let version = self.version.split(',').next().unwrap_or_default();
        (!has_module).then(|| format!("nginx {version} has no HTTP/3: it is built without --with-http_v3_module"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// `arm`: an arm of nginx. `behind`: the server to forward requests to.
pub(super) fn start(setup: &Setup, arm: &Arm, behind: Option<SocketAddr>) -> Result<Server> {
    let server = start_as(setup, &arm.to_string(), |nginx, directory, address| {
        configuration(setup, nginx, directory, address, &Role::Arm(arm, behind))
    })?;
    Ok(Server { transport: arm.transport(), ..server })
}

/// Starts the server behind a proxy, which serves the files.
pub(super) fn start_behind(setup: &Setup) -> Result<Server> {
    start_as(setup, "behind", |nginx, directory, address| {
        configuration(setup, nginx, directory, address, &Role::Behind)
    })
}

/// The role of an nginx.
enum Role<'a> {
    /// An arm, with the server behind it if it is a proxy.
    Arm(&'a Arm, Option<SocketAddr>),
    /// The server behind a proxy.
    Behind,
}

fn start_as(
    setup: &Setup,
    name: &str,
    configuration: impl FnOnce(&Nginx, &Path, SocketAddr) -> String,
) -> Result<Server> {
    let nginx = setup.nginx.as_ref().context("nginx is missing")?;
    let directory = setup.scratch.join(name);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // nginx cannot listen on port 0. If another process takes the free port before nginx binds it, nginx reports that.
    let free = TcpListener::bind(SocketAddr::new(setup.address, 0)).context("there is no free port")?;
    let address = free.local_addr()?;
    drop(free);
    let configuration = configuration(nginx, &directory, address);
    let file = directory.join("nginx.conf");
    std::fs::write(&file, &configuration).with_context(|| format!("cannot write {}", file.display()))?;
    // Before it has read its configuration, nginx logs to the path it was built with.
    let arguments =
        ["-e", "stderr", "-p", &directory.display().to_string(), "-c", &file.display().to_string()].map(str::to_owned);
    let started = Process::start(nginx.command().args(&arguments), &setup.cores, setup.group.as_deref()).and_then(
        |mut process| {
            process.wait_until(|| TcpStream::connect(address).is_ok())?;
            Ok(process)
        },
    );
    let process = started.with_context(|| shown(&nginx.program, &arguments))?;
    Ok(Server {
        address,
        name: Certificate::NAME.to_owned(),
        transport: Transport::Tcp,
        roots: Some(setup.certificate.certificate.clone()),
        prefix: "/".to_owned(),
        pid: Some(process.pid()),
        command: shown(&nginx.program, &arguments),
        configuration,
        process: Some(process),
        _behind: None,
        _group: None,
    })
}

fn configuration(setup: &Setup, nginx: &Nginx, directory: &Path, address: SocketAddr, role: &Role<'_>) -> String {
    let directory = directory.display();
    // Started by root, nginx's workers switch to another user, which may not be able to read the files.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let http2 = if nginx.built.contains("--with-http_v2_module") { " http2" } else { "" };
    let is = |other: &Arm| matches!(role, Role::Arm(arm, _) if *arm == other);
    let has_ktls = matches!(role, Role::Arm(arm, _) if arm.claim() == Claim::Kernel);
    let is_default = is(&Arm::NginxDefault) || is(&Arm::NginxDefaultKtls);
    let has_cache = is(&Arm::NginxCache) || is(&Arm::NginxCacheKtls);
    let ktls = if has_ktls { "    ssl_conf_command Options KTLS;\n" } else { "" };
    let has_log = matches!(role, Role::Arm(arm, _) if arm.has_log());
    let log = if has_log { format!("{directory}/access.log combined") } else { "off".to_owned() };
    let (open, cached) = if is(&Arm::NginxFiles) { many_open_files() } else { (16_384, 1000) };
    let tls = match role {
        Role::Behind => String::new(),
        Role::Arm(..) => format!(
            "    ssl_certificate {};\n    ssl_certificate_key {};\n    ssl_protocols TLSv1.2 TLSv1.3;\n{ktls}",
            setup.certificate.certificate.display(),
            setup.certificate.key.display(),
        ),
    };
    // QUIC beside TCP on the same port: the lab waits for the port of TCP.
    let quic = match role {
        Role::Arm(arm, _) if arm.transport() == Transport::Quic => format!("    listen {address} quic;\n"),
        _ => String::new(),
    };
    let ssl = if tls.is_empty() { String::new() } else { format!(" ssl{http2}") };
    let (upstream, content) = match role {
        Role::Arm(_, Some(behind)) if has_cache => {
            let cache = format!(
                "  proxy_cache_path {directory}/cache levels=1:2 keys_zone=lab:10m max_size=10g inactive=1d use_temp_path=off;\n"
            );
            (cache + &proxied_to(*behind), format!("    proxy_cache lab;\n    proxy_cache_lock on;\n{FORWARDING}"))
        }
        Role::Arm(_, Some(behind)) => (proxied_to(*behind), FORWARDING.to_owned()),
        Role::Behind => (String::new(), format!("    root {};\n    expires 1h;", setup.files.display())),
        _ => (String::new(), format!("    root {};", setup.files.display())),
    };
    let temporary: String = ["proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .filter(|module| !nginx.built.contains(&format!("--without-http_{module}_module")))
        .map(|module| format!("  {module}_temp_path {directory}/{module};\n"))
        .collect();
    let open_files = match is_default {
        true => String::new(),
        false => format!("  open_file_cache max={cached} inactive=60s;\n  open_file_cache_valid 60s;\n"),
    };
    format!(
        "daemon off;
{user}worker_processes {workers};
worker_rlimit_nofile {open};
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  client_body_temp_path {directory}/body;
{temporary}  default_type application/octet-stream;
  access_log {log};
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
{open_files}{upstream}  server {{
    listen {address}{ssl} backlog=4096;
{quic}{tls}{content}
  }}
}}
",
        workers = if is_default { "auto".to_owned() } else { setup.cores.len().max(1).to_string() },
    )
}

/// A block for a server to forward requests to, over persistent connections.
fn proxied_to(behind: SocketAddr) -> String {
    format!("  upstream behind {{\n    server {behind};\n    keepalive 64;\n    keepalive_requests 1000000000;\n  }}\n")
}

/// A typical configuration, but without temporary files for responses to slow clients.
const FORWARDING: &str = "    location / {
      proxy_pass http://behind;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_max_temp_file_size 0;
    }";

/// The limit on open files, and the number of files that the cache may hold: 100,000, or fewer if this process has a
/// lower limit.
fn many_open_files() -> (u64, u64) {
    let open = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(MAX_CACHED + OTHER_OPEN);
    (open, open.saturating_sub(OTHER_OPEN).max(1))
}

const MAX_CACHED: u64 = 100_000;

/// Open files outside the cache: connections, the log, and files being sent.
const OTHER_OPEN: u64 = 2000;

/// The nginx that `cargo xtask` unpacks for guests.
fn in_cache() -> Option<PathBuf> {
    Some(xtask_cache()?.join("nginx/usr/sbin/nginx"))
}
