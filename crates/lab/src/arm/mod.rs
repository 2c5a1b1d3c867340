//! Arms: the servers that a study compares, started by the lab or running already.

mod certificate;
mod nginx;
mod peer;
mod process;
mod sealion;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Result;
use sealion_ktls::nic::{Feature, nics};
use sealion_ktls::probe::Probe;

use crate::proof::Claim;

pub(crate) use certificate::Certificate;
pub use nginx::Nginx;
pub(crate) use peer::Peer;
pub(crate) use process::{Process, end_all};
pub(crate) use sealion::Sealion;

/// A server in one configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Arm {
    /// Ours, `--ktls never`.
    User,
    /// Ours, `--ktls always`.
    Kernel,
    /// Ours, `--ktls auto`.
    Auto,
    /// nginx without kernel TLS.
    Nginx,
    /// nginx with `ssl_conf_command Options KTLS`.
    NginxKtls,
    /// Ours, `--ktls always`, by way of a network card that seals.
    Nic,
    /// A server that runs already.
    Peer(Peer),
}

/// What servers are started with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) sealion: Option<Sealion>,
    pub(crate) nginx: Option<Nginx>,
    /// The one certificate of all.
    pub(crate) certificate: Certificate,
    /// The directory they serve.
    pub(crate) files: PathBuf,
    /// For configurations and logs.
    pub(crate) scratch: PathBuf,
    /// Cores they are pinned to; empty: none.
    pub(crate) cores: Vec<usize>,
    /// The address they listen on.
    pub(crate) address: IpAddr,
    /// The process of the server that runs already.
    pub(crate) peer_pid: Option<u32>,
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// For SNI, Host and the certificate's check.
    pub(crate) name: String,
    /// The certificate to trust; `None`: any.
    pub(crate) roots: Option<PathBuf>,
    /// What precedes a file's name in the request-target; ends with `/`.
    pub(crate) prefix: String,
    /// Whose cost is measured, with its children; `None`: unknown.
    pub(crate) pid: Option<u32>,
    /// Its command line; empty for a server that ran already.
    pub(crate) command: String,
    /// Its configuration file's text; empty if it has none.
    pub(crate) configuration: String,
    /// Ours to end; `None` for a server that ran already.
    pub(crate) process: Option<Process>,
}

impl Arm {
    /// Those of our own server and nginx.
    pub(crate) const OWN: [Self; 6] = [Self::User, Self::Kernel, Self::Auto, Self::Nginx, Self::NginxKtls, Self::Nic];

    /// What it has to prove.
    pub(crate) fn claim(&self) -> Claim {
        match self {
            Self::User | Self::Nginx => Claim::UserSpace,
            Self::Kernel | Self::NginxKtls => Claim::Kernel,
            Self::Nic => Claim::Device,
            Self::Auto | Self::Peer(_) => Claim::Nothing,
        }
    }

    /// Whether it is our server.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::User | Self::Kernel | Self::Auto | Self::Nic)
    }

    /// Whether it is nginx as the lab starts it.
    pub(crate) fn is_nginx(&self) -> bool {
        matches!(self, Self::Nginx | Self::NginxKtls)
    }

    /// Why it cannot be had on this machine. nginx with kernel TLS starts on any: what it does then is for the proof.
    pub(crate) fn absent(&self, probe: &Probe) -> Option<String> {
        match self {
            Self::Kernel if !probe.any_tx() => Some(no_kernel_tls(probe)),
            Self::Nic => {
                let nics = nics().unwrap_or_default();
                let able: BTreeSet<&str> =
                    nics.iter().filter(|nic| nic.tx != Feature::Absent).map(|nic| nic.name.as_str()).collect();
                let on = nics.iter().any(|nic| nic.tx == Feature::On);
                match able.first() {
                    None => Some("no network card here has TLS offload".to_owned()),
                    Some(name) if !on => {
                        Some(format!("{name} has TLS offload, and it is off: ethtool -K {name} tls-hw-tx-offload on"))
                    }
                    Some(_) if !probe.any_tx() => Some(no_kernel_tls(probe)),
                    Some(_) => None,
                }
            }
            _ => None,
        }
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not start; says why in its own words.
    pub(crate) fn start(&self, setup: &Setup) -> Result<Server> {
        match self {
            Self::User => sealion::start(setup, "never"),
            Self::Kernel | Self::Nic => sealion::start(setup, "always"),
            Self::Auto => sealion::start(setup, "auto"),
            Self::Nginx => nginx::start(setup, false),
            Self::NginxKtls => nginx::start(setup, true),
            Self::Peer(peer) => Ok(Server { pid: setup.peer_pid, ..peer.server()? }),
        }
    }
}

impl Server {
    /// What its `directory` holds under `name`, as a request-target.
    pub(crate) fn target(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Why it does not run any more.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.process.as_mut().and_then(Process::ended)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
            Self::Nginx => "nginx",
            Self::NginxKtls => "nginx-ktls",
            Self::Nic => "nic",
            Self::Peer(peer) => &peer.url,
        })
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Ok(Self::Peer(text.parse()?));
        }
        Self::OWN.into_iter().find(|arm| arm.to_string() == text).ok_or_else(|| {
            format!("no arm of that name: write {} or a URL", Self::OWN.map(|arm| arm.to_string()).join(", "))
        })
    }
}

/// The kernel's own words for having none.
pub(crate) fn no_kernel_tls(probe: &Probe) -> String {
    let why = probe.explain().unwrap_or_else(|| probe.to_string());
    format!("this kernel has no kernel TLS: {}", why.lines().next().unwrap_or_default())
}

/// A program by its name, in PATH and where root's programs are.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// A command line as a shell would take it.
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
        assert!("nginx-quic".parse::<Arm>().unwrap_err().contains("nginx-ktls"));
        assert!("ftp://localhost/".parse::<Arm>().is_err());
    }
}
