//! Arms: the servers that a study compares, started by the lab or already running.

mod certificate;
mod limits;
mod nginx;
mod nic;
mod peer;
mod process;
mod sealion;
mod vegeta;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use aws_lc_rs::digest;
use rustix::thread::{CpuSet, sched_getaffinity};
use sealion_ktls::probe::Probe;

use crate::load::{Protocol, Suite};
use crate::proof::Claim;
use crate::study::{Cell, Scene};

pub(crate) use certificate::Certificate;
pub(crate) use limits::{Group, Limits};
pub use nginx::Nginx;
pub(crate) use nic::{ClientPlace, Place};
pub(crate) use peer::Peer;
pub(crate) use process::{Process, end_all};
use sealion::Deployment;
pub(crate) use sealion::{Sealion, start_logging_moves};
pub(crate) use vegeta::Vegeta;

/// A server in one configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Arm {
    /// Sealion with `--ktls never`: user space seals.
    User,
    /// Sealion with `--ktls always`: the kernel seals.
    Kernel,
    /// Sealion with `--ktls auto`: the policy decides.
    Auto,
    /// [`Self::User`] with an access log in a file.
    UserLog(LogFormat),
    /// [`Self::User`] with a metrics listener.
    UserMetrics,
    /// [`Self::User`], loaded by HTTP/2.
    UserHttp2,
    /// [`Self::User`], loaded by HTTP/3.
    UserHttp3,
    /// [`Self::User`] in a typical deployment: access log in combined format, metrics, three sites with features.
    UserSites,
    /// [`Self::UserLog`] in combined format with two workers, on all cores that the lab may use.
    UserTwo,
    /// [`Self::User`] as a proxy in front of an nginx without TLS and log that serves the files.
    UserProxy,
    /// [`Self::UserProxy`] with a cache that contains the files, and this value of `--ktls`.
    Cache(Ktls),
    /// Sealion with an access log in a file and the metrics listener.
    Observed(Ktls),
    /// nginx without kernel TLS.
    Nginx,
    /// [`Self::Nginx`] with an access log in a file, in its combined format.
    NginxLog,
    /// [`Self::Nginx`], loaded by HTTP/2.
    NginxHttp2,
    /// [`Self::Nginx`] with its HTTP/3 module, loaded by HTTP/3.
    NginxHttp3,
    /// [`Self::NginxLog`] with an `open_file_cache` of 100,000 files, or as many as may be open.
    NginxFiles,
    /// nginx as in [`Self::UserProxy`], with persistent connections.
    NginxProxy,
    /// [`Self::NginxProxy`] with a cache that contains the files.
    NginxCache,
    /// [`Self::NginxCache`] with `ssl_conf_command Options KTLS`.
    NginxCacheKtls,
    /// nginx with `ssl_conf_command Options KTLS`.
    NginxKtls,
    /// [`Self::NginxKtls`] with the access log of [`Self::NginxLog`].
    NginxLogKtls,
    /// [`Self::NginxLog`] with a worker for each core of the machine and without `open_file_cache`.
    NginxDefault,
    /// [`Self::NginxDefault`] with `ssl_conf_command Options KTLS`.
    NginxDefaultKtls,
    /// The arm under limits of processors and memory, as the container study had them.
    Limited(Base),
    /// The arm, loaded by vegeta.
    Vegeta(Base),
    /// Sealion with `--ktls always`, over a network card that seals.
    Nic,
    /// A server that is already running.
    Peer(Peer),
}

/// The arms that the container study compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Base {
    User,
    Kernel,
    Nginx,
    NginxKtls,
}

impl Base {
    fn arm(self) -> Arm {
        match self {
            Self::User => Arm::User,
            Self::Kernel => Arm::Kernel,
            Self::Nginx => Arm::Nginx,
            Self::NginxKtls => Arm::NginxKtls,
        }
    }
}

/// The format of Sealion's access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LogFormat {
    Combined,
    Logfmt,
    Json,
}

impl LogFormat {
    /// The value of `--access-log-format`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Logfmt => "logfmt",
            Self::Json => "json",
        }
    }
}

/// Sealion's choice of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ktls {
    Never,
    Always,
    Auto,
}

impl Ktls {
    /// The value of `--ktls`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Auto => "auto",
        }
    }
}

/// Programs and settings that servers are started with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) sealion: Option<Sealion>,
    pub(crate) nginx: Option<Nginx>,
    /// The certificate of all servers.
    pub(crate) certificate: Certificate,
    /// The directory they serve.
    pub(crate) files: PathBuf,
    /// For configurations and logs.
    pub(crate) scratch: PathBuf,
    /// Cores to pin them to; empty: none.
    pub(crate) cores: Vec<usize>,
    /// The cgroup that limits them; `None`: no limits.
    pub(crate) group: Option<PathBuf>,
    /// The address they listen on.
    pub(crate) address: IpAddr,
    /// The calibration for `auto`; `None`: the built-in costs of the server.
    pub(crate) calibration: Option<PathBuf>,
    /// The process of the server that is already running.
    pub(crate) peer_pid: Option<u32>,
    /// The client of the arms that have it.
    pub(crate) vegeta: Option<Vegeta>,
}

/// How clients reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// HTTP/1.1 or HTTP/2 over TCP, as the cell says.
    Tcp,
    /// HTTP/2 over TCP in every cell.
    Http2,
    /// HTTP/3 over QUIC.
    Quic,
}

/// A server that accepts connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The name for SNI, the Host field and the certificate check.
    pub(crate) name: String,
    pub(crate) transport: Transport,
    /// The certificate to trust; `None`: any.
    pub(crate) roots: Option<PathBuf>,
    /// The request-target's path before the file name; ends with `/`.
    pub(crate) prefix: String,
    /// The process whose cost is measured, with its children; `None`: unknown.
    pub(crate) pid: Option<u32>,
    /// Its command line; empty for a server that was already running.
    pub(crate) command: String,
    /// Its configuration file's text; empty if it has none.
    pub(crate) configuration: String,
    /// The process that the lab started; `None` for a server that was already running.
    pub(crate) process: Option<Process>,
    /// The server behind a proxy, whose cost is not measured.
    pub(crate) _behind: Option<Process>,
    /// The cgroup of this server alone; removed after its process has ended.
    pub(crate) _group: Option<Group>,
}

impl Arm {
    /// Arms of Sealion and nginx, in the order of tables.
    pub(crate) const OWN: [Self; 39] = [
        Self::User,
        Self::Kernel,
        Self::Auto,
        Self::Nginx,
        Self::NginxKtls,
        Self::Nic,
        Self::UserLog(LogFormat::Combined),
        Self::UserLog(LogFormat::Logfmt),
        Self::UserLog(LogFormat::Json),
        Self::NginxLog,
        Self::NginxLogKtls,
        Self::NginxDefault,
        Self::NginxDefaultKtls,
        Self::UserMetrics,
        Self::UserHttp2,
        Self::NginxHttp2,
        Self::UserHttp3,
        Self::NginxHttp3,
        Self::UserSites,
        Self::UserTwo,
        Self::NginxFiles,
        Self::UserProxy,
        Self::NginxProxy,
        Self::Cache(Ktls::Never),
        Self::Cache(Ktls::Always),
        Self::Cache(Ktls::Auto),
        Self::NginxCache,
        Self::NginxCacheKtls,
        Self::Observed(Ktls::Never),
        Self::Observed(Ktls::Always),
        Self::Observed(Ktls::Auto),
        Self::Limited(Base::User),
        Self::Limited(Base::Kernel),
        Self::Limited(Base::Nginx),
        Self::Limited(Base::NginxKtls),
        Self::Vegeta(Base::User),
        Self::Vegeta(Base::Kernel),
        Self::Vegeta(Base::Nginx),
        Self::Vegeta(Base::NginxKtls),
    ];

    /// Whether the server writes an access log.
    pub(crate) fn has_log(&self) -> bool {
        let is_ours = matches!(self, Self::UserLog(_) | Self::UserSites | Self::UserTwo | Self::Observed(_));
        let is_nginx = matches!(self, Self::NginxLog | Self::NginxFiles | Self::NginxLogKtls);
        is_ours || is_nginx || matches!(self, Self::NginxDefault | Self::NginxDefaultKtls)
    }

    /// The path that a measurement must prove.
    pub(crate) fn claim(&self) -> Claim {
        match self {
            Self::User | Self::UserLog(_) | Self::UserMetrics | Self::UserSites | Self::UserTwo => Claim::UserSpace,
            Self::UserHttp2 | Self::NginxHttp2 | Self::UserHttp3 | Self::NginxHttp3 => Claim::UserSpace,
            Self::NginxDefault => Claim::UserSpace,
            Self::NginxLogKtls | Self::NginxDefaultKtls => Claim::Kernel,
            Self::UserProxy | Self::NginxProxy | Self::Cache(Ktls::Never) | Self::NginxCache => Claim::UserSpace,
            Self::Cache(Ktls::Always) | Self::NginxCacheKtls => Claim::Kernel,
            Self::Observed(Ktls::Never) | Self::Nginx | Self::NginxLog | Self::NginxFiles => Claim::UserSpace,
            Self::Kernel | Self::Observed(Ktls::Always) | Self::NginxKtls => Claim::Kernel,
            Self::Limited(base) | Self::Vegeta(base) => base.arm().claim(),
            Self::Nic => Claim::Device,
            Self::Peer(peer) if peer.is_here() => peer.named.as_ref().map_or(Claim::Nothing, |arm| arm.claim()),
            Self::Auto | Self::Cache(Ktls::Auto) | Self::Observed(Ktls::Auto) | Self::Peer(_) => Claim::Nothing,
        }
    }

    /// The name in rows and reports. For a server that is already running: its given name, or its URL.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Peer(peer) => peer.named.as_ref().map_or_else(|| peer.url.clone(), |arm| arm.label()),
            _ => self.to_string(),
        }
    }

    /// The URL of a server that runs elsewhere under the name of an arm, so that its path cannot be proven.
    pub(crate) fn unproven(&self) -> Option<&str> {
        match self {
            Self::Peer(peer) if peer.named.is_some() && !peer.is_here() => Some(&peer.url),
            _ => None,
        }
    }

    /// The arm with that name.
    fn own(name: &str) -> Result<Self, String> {
        Self::OWN.into_iter().find(|arm| arm.to_string() == name).ok_or_else(|| {
            let names = Self::OWN.map(|arm| arm.to_string()).join(", ");
            format!("no arm of that name: write {names}, a URL, or NAME=URL")
        })
    }

    /// Whether this is Sealion.
    pub(crate) fn is_ours(&self) -> bool {
        !self.is_nginx() && !matches!(self, Self::Peer(_))
    }

    /// Whether Sealion's policy chooses the path.
    pub(crate) fn is_auto(&self) -> bool {
        matches!(self, Self::Auto | Self::Cache(Ktls::Auto) | Self::Observed(Ktls::Auto))
    }

    /// Whether this is nginx, started by the lab.
    pub(crate) fn is_nginx(&self) -> bool {
        matches!(
            self,
            Self::Nginx
                | Self::NginxLog
                | Self::NginxHttp2
                | Self::NginxHttp3
                | Self::NginxLogKtls
                | Self::NginxDefault
                | Self::NginxDefaultKtls
                | Self::NginxFiles
                | Self::NginxProxy
                | Self::NginxCache
                | Self::NginxCacheKtls
                | Self::NginxKtls
                | Self::Limited(Base::Nginx | Base::NginxKtls)
                | Self::Vegeta(Base::Nginx | Base::NginxKtls)
        )
    }

    /// Whether vegeta sends its requests.
    pub(crate) fn is_vegeta(&self) -> bool {
        matches!(self, Self::Vegeta(_))
    }

    /// Whether it has limits of its own.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(_))
    }

    /// Whether it needs an nginx, as the server or behind it.
    pub(crate) fn needs_nginx(&self) -> bool {
        self.is_nginx() || matches!(self, Self::UserProxy | Self::Cache(_))
    }

    /// The reason why this machine cannot run it; `None` if it can. nginx with kernel TLS starts anywhere; the proof
    /// shows whether it used kernel TLS. `vegeta`: the program that `--vegeta` names.
    pub(crate) fn absent(&self, probe: &Probe, place: Place, vegeta: Option<&Path>) -> Option<String> {
        match self {
            Self::Kernel if !probe.any_tx() => Some(no_kernel_tls(probe)),
            Self::Limited(base) => base.arm().absent(probe, place, vegeta).or_else(|| Limits::CONTAINER.absent()),
            Self::Vegeta(_) if place.client == ClientPlace::Elsewhere => {
                Some("vegeta runs on this machine: measure it without --agent".to_owned())
            }
            Self::Vegeta(base) => base
                .arm()
                .absent(probe, place, vegeta)
                .or_else(|| Vegeta::find(vegeta).err().map(|why| format!("{why:#}"))),
            Self::Nic => nic::absent(&nic::cards(), nic::interface_of(place.address).as_deref(), place)
                .or_else(|| (!probe.any_tx()).then(|| no_kernel_tls(probe))),
            _ => None,
        }
    }

    /// How clients reach it.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::UserHttp2 | Self::NginxHttp2 => Transport::Http2,
            Self::UserHttp3 | Self::NginxHttp3 => Transport::Quic,
            _ => Transport::Tcp,
        }
    }

    /// Whether this arm is measured in a cell. An arm of HTTP/2 or HTTP/3, or with vegeta as the client, is measured in
    /// closed loops over connections that stay open, by a suite of TLS 1.3, where other arms have HTTP/1.1.
    pub(crate) fn has_cell(&self, cell: &Cell) -> bool {
        let is_tls13 = !matches!(cell.suite, Suite::Tls12Aes128Gcm | Suite::Tls12Aes256Gcm);
        let is_closed = cell.calls.is_none() && cell.rate.is_none() && !cell.resume;
        let is_plain = matches!(cell.scene, Scene::Alone | Scene::Many { .. }) && cell.protocol == Protocol::Http1;
        let is_any = self.transport() == Transport::Tcp && !self.is_vegeta();
        is_any || (is_tls13 && is_closed && is_plain && !(self.is_vegeta() && cell.scene != Scene::Alone))
    }

    /// Starts the server and waits until it accepts connections.
    ///
    /// # Errors
    /// It does not start; the error has the end of its standard error.
    pub(crate) fn start(&self, setup: &Setup) -> Result<Server> {
        match self {
            Self::User => sealion::start(setup, &Deployment::new(Ktls::Never)),
            Self::UserHttp2 => {
                Ok(Server { transport: Transport::Http2, ..sealion::start(setup, &Deployment::new(Ktls::Never))? })
            }
            Self::UserLog(format) => sealion::start(setup, &Deployment::new(Ktls::Never).with_log(*format)),
            Self::UserMetrics => sealion::start(setup, &Deployment::new(Ktls::Never).with_metrics()),
            Self::UserHttp3 => sealion::start(setup, &Deployment::new(Ktls::Never).with_http3()),
            Self::UserSites => sealion::start_sites(setup),
            Self::UserTwo => {
                let two = Deployment { workers: Some(2), ..Deployment::new(Ktls::Never).with_log(LogFormat::Combined) };
                sealion::start(&Setup { cores: own_cores()?, ..setup.clone() }, &two)
            }
            Self::Kernel | Self::Nic => sealion::start(setup, &Deployment::new(Ktls::Always)),
            Self::Auto => sealion::start(setup, &Deployment::new(Ktls::Auto)),
            Self::Observed(ktls) => {
                sealion::start(setup, &Deployment::new(*ktls).with_log(LogFormat::Combined).with_metrics())
            }
            Self::UserProxy => {
                let behind = nginx::start_behind(setup)?;
                let server = sealion::start_proxy(setup, behind.address, Ktls::Never, None)?;
                Ok(Server { _behind: behind.process, ..server })
            }
            Self::Cache(ktls) => {
                let behind = nginx::start_behind(setup)?;
                let cache = setup.scratch.join(self.to_string());
                let server = sealion::start_proxy(setup, behind.address, *ktls, Some(&cache))?;
                Ok(Server { _behind: behind.process, ..server })
            }
            Self::NginxProxy | Self::NginxCache | Self::NginxCacheKtls => {
                let behind = nginx::start_behind(setup)?;
                let server = nginx::start(setup, self, Some(behind.address))?;
                Ok(Server { _behind: behind.process, ..server })
            }
            Self::Nginx | Self::NginxKtls | Self::NginxLog | Self::NginxLogKtls => nginx::start(setup, self, None),
            Self::NginxDefault | Self::NginxDefaultKtls => nginx::start(setup, self, None),
            Self::NginxHttp2 | Self::NginxHttp3 | Self::NginxFiles => nginx::start(setup, self, None),
            Self::Limited(_) => {
                let group = Limits::CONTAINER.group(&self.to_string())?;
                let directory = group.as_ref().map(|group| group.directory().to_owned());
                let server = self.start_base(&Setup { group: directory, ..setup.clone() })?;
                let limits = Limits::CONTAINER.in_words().unwrap_or_default();
                Ok(Server { _group: group, command: format!("{} ({limits})", server.command), ..server })
            }
            Self::Vegeta(_) => self.start_base(setup),
            Self::Peer(peer) => Ok(Server { pid: setup.peer_pid, ..peer.server()? }),
        }
    }

    /// The server of an arm with limits or with vegeta. nginx has a directory for each arm.
    fn start_base(&self, setup: &Setup) -> Result<Server> {
        if self.is_nginx() {
            return nginx::start(setup, self, None);
        }
        let ktls = if self.claim() == Claim::Kernel { Ktls::Always } else { Ktls::Never };
        sealion::start(setup, &Deployment::new(ktls))
    }
}

impl Server {
    /// The request-target of the file `name`.
    pub(crate) fn target(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// How the process ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.process.as_mut().and_then(Process::ended)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::UserLog(LogFormat::Combined) => "user-log",
            Self::UserLog(LogFormat::Logfmt) => "user-logfmt",
            Self::UserLog(LogFormat::Json) => "user-json",
            Self::UserMetrics => "user-metrics",
            Self::UserHttp2 => "user-h2",
            Self::NginxHttp2 => "nginx-h2",
            Self::UserHttp3 => "user-h3",
            Self::NginxHttp3 => "nginx-h3",
            Self::UserSites => "user-sites",
            Self::UserTwo => "user-two",
            Self::UserProxy => "user-proxy",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
            Self::Observed(Ktls::Never) => "user-observed",
            Self::Observed(Ktls::Always) => "kernel-observed",
            Self::Observed(Ktls::Auto) => "auto-observed",
            Self::Nginx => "nginx",
            Self::NginxLog => "nginx-log",
            Self::NginxFiles => "nginx-files",
            Self::NginxProxy => "nginx-proxy",
            Self::Cache(Ktls::Never) => "user-cache",
            Self::Cache(Ktls::Always) => "kernel-cache",
            Self::Cache(Ktls::Auto) => "auto-cache",
            Self::NginxCache => "nginx-cache",
            Self::NginxCacheKtls => "nginx-cache-ktls",
            Self::NginxKtls => "nginx-ktls",
            Self::NginxLogKtls => "nginx-log-ktls",
            Self::NginxDefault => "nginx-default",
            Self::NginxDefaultKtls => "nginx-default-ktls",
            Self::Nic => "nic",
            Self::Limited(base) => return write!(f, "{}-limited", base.arm()),
            Self::Vegeta(base) => return write!(f, "{}-vegeta", base.arm()),
            Self::Peer(peer) => {
                let name = peer.named.as_ref().map(|arm| format!("{arm}=")).unwrap_or_default();
                return write!(f, "{name}{}", peer.url);
            }
        })
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Ok(Self::Peer(text.parse()?));
        }
        Self::own(text)
    }
}

/// The cores that this process may use.
pub(crate) fn own_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask which cores are ours")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The probe's reason why this kernel has no kernel TLS.
pub(crate) fn no_kernel_tls(probe: &Probe) -> String {
    let why = probe.explain().unwrap_or_else(|| probe.to_string());
    format!("this kernel has no kernel TLS: {}", why.lines().next().unwrap_or_default())
}

/// Looks a program up in PATH and in root's directories.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// The cache of `cargo xtask`.
fn xtask_cache() -> Option<PathBuf> {
    Some(match (std::env::var_os("SEALION_GUEST_CACHE"), std::env::var_os("XDG_CACHE_HOME")) {
        (Some(cache), _) => cache.into(),
        (None, Some(cache)) => PathBuf::from(cache).join("sealion/guest"),
        (None, None) => std::env::home_dir()?.join(".cache/sealion/guest"),
    })
}

/// The SHA-256 of a program or file, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub(crate) fn sha256(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let hash = digest::digest(&digest::SHA256, &bytes);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A command line, quoted for a shell.
fn shown(program: &Path, arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|a| if a.contains(' ') { format!("'{a}'") } else { a.clone() });
    std::iter::once(program.display().to_string()).chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_named_as_they_are_written() {
        for arm in Arm::OWN {
            assert_eq!(arm.to_string().parse(), Ok(arm));
        }
        assert!("https://localhost:8443/".parse::<Arm>().is_ok());
        assert!("nginx-spdy".parse::<Arm>().unwrap_err().contains("nginx-ktls"));
        assert!("ftp://localhost/".parse::<Arm>().is_err());
    }

    #[test]
    fn arms_of_http_2_and_3_are_measured_in_plain_cells() {
        let closed = Cell::closed(1024, None, 4, crate::load::Extent::Requests(1));
        let others = [
            Cell { calls: Some(1), ..closed.clone() },
            Cell { rate: Some(1.0), ..closed.clone() },
            Cell { resume: true, ..closed.clone() },
            Cell { suite: Suite::Tls12Aes128Gcm, ..closed.clone() },
            Cell { scene: Scene::HalfLoad, ..closed.clone() },
            Cell { scene: Scene::Idle, ..closed.clone() },
            Cell { protocol: Protocol::Http2 { streams: 1 }, ..closed.clone() },
        ];
        for arm in [Arm::UserHttp2, Arm::NginxHttp2, Arm::UserHttp3, Arm::NginxHttp3] {
            assert!(arm.has_cell(&closed));
            assert!(others.iter().all(|cell| !arm.has_cell(cell)), "{arm}");
        }
        assert!(others.iter().all(|cell| Arm::User.has_cell(cell)));
    }

    #[test]
    fn arms_with_limits_and_with_vegeta_are_other_arms_elsewhere() {
        let closed = Cell::closed(1024, None, 4, crate::load::Extent::Requests(1));
        let many = Cell { scene: Scene::Many { files: 2 }, ..closed.clone() };
        let probe = sealion_ktls::probe::probe();
        let place = |client| Place { address: std::net::Ipv4Addr::LOCALHOST.into(), client };
        let nowhere = Some(Path::new("/nowhere/vegeta"));
        for (name, claim) in [("user", Claim::UserSpace), ("nginx", Claim::UserSpace), ("nginx-ktls", Claim::Kernel)] {
            let base: Arm = name.parse().expect("an arm");
            let limited: Arm = format!("{name}-limited").parse().expect("an arm");
            let vegeta: Arm = format!("{name}-vegeta").parse().expect("an arm");
            for arm in [&limited, &vegeta] {
                assert_eq!((arm.claim(), arm.is_nginx(), arm.is_ours()), (claim, base.is_nginx(), base.is_ours()));
                assert_eq!((arm.is_limited(), arm.is_vegeta()), (*arm == limited, *arm == vegeta));
                assert!(arm.has_cell(&closed));
            }
            assert!(limited.has_cell(&many) && !vegeta.has_cell(&many));
            let absent = |client| vegeta.absent(&probe, place(client), nowhere).unwrap_or_default();
            assert!(absent(ClientPlace::Here).contains("there is no vegeta at"), "{}", absent(ClientPlace::Here));
            assert!(absent(ClientPlace::Elsewhere).contains("without --agent"), "{}", absent(ClientPlace::Elsewhere));
            let why = limited.absent(&probe, place(ClientPlace::Here), None);
            assert_eq!(why, Limits::CONTAINER.absent(), "{limited}");
        }
    }

    #[test]
    fn a_running_server_takes_the_name_and_the_claim_of_an_arm() {
        let named: Arm = "nginx-ktls=https://127.0.0.1:8443/a=b/".parse().expect("a name and a URL");
        assert_eq!(named.to_string().parse(), Ok(named.clone()));
        assert_eq!((named.label().as_str(), named.claim(), named.unproven()), ("nginx-ktls", Claim::Kernel, None));
        let user: Arm = "user=https://[::1]:8443/".parse().expect("a name and a URL");
        assert_eq!((user.label().as_str(), user.claim()), ("user", Claim::UserSpace));
        // This kernel's counters do not cover a server elsewhere.
        let far: Arm = "nginx-ktls=https://192.0.2.1:8443/".parse().expect("a name and a URL");
        assert_eq!((far.claim(), far.unproven()), (Claim::Nothing, Some("https://192.0.2.1:8443/")));
        let url: Arm = "https://127.0.0.1:8443/".parse().expect("a URL");
        assert_eq!((url.label(), url.claim()), (url.to_string(), Claim::Nothing));
        let why = "apache=https://127.0.0.1:8443/".parse::<Arm>().unwrap_err();
        assert!(why.contains("nginx-ktls") && why.contains("NAME=URL"), "{why}");
    }
}
