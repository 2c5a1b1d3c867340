//! Restricts files and TCP ports by Landlock (landlock(7)): the kernel denies access to everything that is not listed, whatever its
//! permissions.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use serde::{Deserialize, Serialize};

use crate::certificates::{AcmeUse, development};
use crate::config::Config;
use crate::listen::Address;
use crate::observe::access_log::Destination;
use crate::path::costs::calibration;
use crate::site::SiteConfig;
use crate::upstream::DIRECTORY_FOR_SCRIPTS;

/// How many of the access rights a kernel can restrict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Support {
    #[default]
    None,
    /// Files, but not every right; or no ports.
    Partial,
    Full,
}

impl Support {
    /// The support of this kernel. Restricts nothing.
    pub(crate) fn of_this_kernel() -> Self {
        let has = |abi| {
            let rules = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(abi))
                .and_then(|rules| match AccessNet::from_all(abi) {
                    ports if ports.is_empty() => Ok(rules),
                    ports => rules.handle_access(ports),
                })
                .and_then(|rules| match Scope::from_all(abi) {
                    scopes if scopes.is_empty() => Ok(rules),
                    scopes => rules.scope(scopes),
                })
                .and_then(Ruleset::create);
            rules.is_ok()
        };
        match (has(NEWEST), has(ABI::V1)) {
            (true, _) => Self::Full,
            (false, true) => Self::Partial,
            (false, false) => Self::None,
        }
    }
}

/// The newest version whose rights are restricted: truncating came with the third (Linux 6.2), binding TCP ports with the fourth (6.7), ioctl on
/// devices with the fifth (6.10), abstract sockets and signals with the sixth (6.12).
const NEWEST: ABI = ABI::V6;

/// World-readable files of the system that starting, resolving names and probing the kernel need.
const READ: [&str; 16] = [
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/module",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];

/// A symbolic link where a resolver or a network manager writes its target, which is then replaced often: its directory is allowed.
const RESOLVER: &str = "/etc/resolv.conf";

/// Shared libraries, which a successor maps.
const EXECUTE: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Read by the dynamic loader. They need not exist.
const LOADER: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld.so.preload"];

/// Restricts this thread and all threads and processes that it starts.
///
/// # Errors
/// A line with the path that cannot be opened, or the error of the kernel.
pub(super) fn restrict(config: &Config, file: Option<&Path>) -> Result<Support, String> {
    let failed = |error: RulesetError| format!("privileges.landlock: {error}");
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::BindTcp))
        .and_then(|rules| rules.scope(scopes(std::env::var_os("NOTIFY_SOCKET").as_deref())))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let read = AccessFs::from_read(NEWEST) & !BitFlags::from(AccessFs::Execute);
    for path in READ.iter().chain(&LOADER).map(Path::new) {
        rules = allow_if_there(rules, path, read)?;
    }
    if let Some(directory) = std::fs::canonicalize(RESOLVER).ok().as_deref().and_then(Path::parent)
        && directory != Path::new("/etc")
    {
        rules = allow(rules, directory, read)?;
    }
    for path in EXECUTE.iter().map(Path::new) {
        rules = allow_if_there(rules, path, AccessFs::from_read(NEWEST))?;
    }
    // The directory, because an upgraded binary is another file.
    if let Some(directory) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        rules = allow_if_there(rules, directory, AccessFs::from_read(NEWEST))?;
    }
    rules = allow_if_there(rules, Path::new("/dev/null"), read | AccessFs::WriteFile)?;
    rules = allow_if_there(rules, Path::new("/dev/urandom"), read)?;
    for path in readable(config, file) {
        rules = allow(rules, &path, read)?;
    }
    for path in writable(config, file) {
        rules = allow(rules, &path, AccessFs::from_all(NEWEST) & !BitFlags::from(AccessFs::Execute))?;
    }
    for port in ports(config) {
        rules = rules.add_rule(NetPort::new(port, AccessNet::BindTcp)).map_err(failed)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Support::Full,
        RulesetStatus::PartiallyEnforced => Support::Partial,
        RulesetStatus::NotEnforced => Support::None,
    })
}

/// Processes outside get no signals from this one and its successors. Their abstract sockets are out of reach too, unless a service manager waits for
/// word on one (sd_notify(3)).
fn scopes(notify_socket: Option<&OsStr>) -> BitFlags<Scope> {
    let is_abstract = notify_socket.is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"));
    if is_abstract { Scope::Signal.into() } else { Scope::from_all(NEWEST) }
}

/// Roots, and the directories of files that the configuration names. Directories, because a replaced file is another file.
fn readable(config: &Config, file: Option<&Path>) -> Vec<PathBuf> {
    let base = file.map(directory_of).unwrap_or_default();
    let mut paths: Vec<_> = config.privileges.landlock_read.iter().map(|path| base.join(path)).collect();
    paths.extend(file.map(directory_of));
    match &config.server.calibration {
        Some(named) => paths.push(directory_of(&base.join(named))),
        None => paths.extend(calibration::paths().iter().map(|path| directory_of(path)).filter(|path| path.is_dir())),
    }
    paths.extend(config.tls.session_tickets.keys.iter().map(|directory| base.join(&directory.value)));
    let of_accounts = config.tls.all_acme().flat_map(|account| {
        let authority = account.external_account.iter().map(|external| &external.hmac_key);
        authority.chain(account.dns_update.iter().map(|update| &update.secret)).chain(&account.root)
    });
    for file in of_accounts.chain(
        config.site.iter().flat_map(|site| &site.client_auth).flat_map(|auth| auth.crls.iter().chain([&auth.roots])),
    ) {
        paths.extend(directories_of(&base.join(&file.value)));
    }
    for tls in config.upstream.iter().map(|upstream| &upstream.tls) {
        let files = tls.roots.iter().chain(&tls.cert).chain(&tls.key);
        paths.extend(files.flat_map(|file| directories_of(&base.join(&file.value))));
    }
    paths.extend(config.cache.purge_stream_password.iter().flat_map(|file| directories_of(&base.join(&file.value))));
    paths.extend(config.otlp.roots.iter().flat_map(|file| directories_of(&base.join(&file.value))));
    paths.extend(config.metrics.token_file.iter().flat_map(|path| directories_of(&base.join(path))));
    for site in &config.site {
        paths.extend(site.roots().map(|root| base.join(root)));
        paths.extend(site.users().chain(site.contents()).map(|file| directory_of(&base.join(&file.value))));
        let scripts = site.scripts().filter_map(|scripts| scripts.root.as_ref());
        paths.extend(scripts.map(|root| base.join(&root.value)));
        for pair in &site.certificates {
            paths.extend([&pair.cert, &pair.key].into_iter().flat_map(|path| directories_of(&base.join(&path.value))));
        }
    }
    paths
}

/// Directories of logs, Unix sockets, certificates from ACME and for development.
fn writable(config: &Config, file: Option<&Path>) -> Vec<PathBuf> {
    let base = file.map(directory_of).unwrap_or_default();
    let mut paths: Vec<_> = config.privileges.landlock_write.iter().map(|path| base.join(path)).collect();
    if config.site.iter().any(|site| *site.acme != AcmeUse::No) {
        paths.extend(config.tls.all_acme().map(|account| base.join(&account.state.value)));
    }
    if config.site.iter().all(|site| site.certificates.is_empty()) {
        paths.extend(development::directory().filter(|directory| directory.is_dir()));
    }
    let of_sites = config.site.iter().filter_map(|site| Some(&site.log.as_ref()?.to));
    for destination in of_sites.chain([&config.access_log.to]) {
        if let Destination::File(path) = destination {
            paths.push(directory_of(&base.join(path)));
        }
    }
    paths.extend(config.cache.directories.iter().map(|path| base.join(path)));
    let rules = config.site.iter().flat_map(SiteConfig::proxies);
    let buffers = rules.flat_map(|rule| [&rule.buffer, &rule.buffer_request]).filter_map(|buffer| buffer.as_ref());
    paths.extend(buffers.filter_map(|buffer| Some(base.join(&buffer.directory.as_ref()?.value))));
    if config.collects_contents() {
        paths.extend(Some(PathBuf::from(DIRECTORY_FOR_SCRIPTS)).filter(|directory| directory.is_dir()));
    }
    for address in config.listen.iter().flat_map(|listen| &listen.address.addresses) {
        if let Address::Unix(path) = address {
            paths.push(directory_of(path));
        }
    }
    paths
}

/// Ports that a successor may bind, and port 0: its self-check of kernel TLS binds a free port on loopback.
fn ports(config: &Config) -> Vec<u16> {
    let addresses = config.listen.iter().flat_map(|listen| &listen.address.addresses);
    let mut ports: Vec<u16> = addresses
        .filter_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        })
        .collect();
    ports.extend(config.metrics.listen.map(|address| address.port()));
    ports.push(0);
    ports
}

/// The directory of a file and, if it is a symbolic link, of its target, which is the file that the kernel checks.
fn directories_of(path: &Path) -> Vec<PathBuf> {
    let target = std::fs::canonicalize(path).ok();
    std::iter::once(directory_of(path)).chain(target.as_deref().map(directory_of)).collect()
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    let opened = PathFd::new(path).map_err(|error| {
        format!("privileges.landlock: {error}: create {} first, or remove it from the configuration", path.display())
    })?;
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|error| format!("privileges.landlock: {}: {error}", path.display()))
}

fn allow_if_there(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    if path.exists() { allow(rules, path, access) } else { Ok(rules) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Error, ErrorKind, IsTerminal};
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::{Child, Command};

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    use super::*;

    /// A process outside.
    struct Outside(Child);

    impl Drop for Outside {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Landlock restricts a thread, and leaves the others as they are.
    #[test]
    fn what_lies_outside_is_out_of_reach() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "outside").unwrap();
        let name = format!("sealion-outside-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let outside = Outside(Command::new("sleep").arg("1000").spawn().unwrap());
        let pid = Pid::from_raw(outside.0.id() as i32).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // The last error: is_terminal says no more than no.
        let ioctl = |device: &File| (device.is_terminal(), Error::last_os_error().raw_os_error()).1;
        let attempts = || {
            [
                File::open(&file).err().map(|error| error.kind()),
                TcpListener::bind(("127.0.0.1", port)).err().map(|error| error.kind()),
                UnixStream::connect_addr(&address).err().map(|error| error.kind()),
                test_kill_process(pid).err().map(|errno| Error::from(errno).kind()),
            ]
        };
        assert_eq!(attempts(), [None; 4]);
        let ended = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                let support = restrict(&Config::default(), None).unwrap();
                let null = File::open("/dev/null").unwrap();
                assert!(File::open("/proc/self/status").is_ok() && TcpListener::bind("127.0.0.1:0").is_ok());
                (support, attempts(), ioctl(&null))
            });
            confined.join().unwrap()
        });
        let denied = Some(ErrorKind::PermissionDenied);
        match Support::of_this_kernel() {
            Support::Full => {
                assert_eq!(ended, (Support::Full, [denied; 4], Some(Errno::ACCESS.raw_os_error())));
            }
            Support::Partial => assert_eq!((ended.0, ended.1[0]), (Support::Partial, denied)),
            Support::None => assert_eq!((ended.0, ended.1), (Support::None, [None; 4])),
        }
        assert_eq!(attempts(), [None; 4], "this thread is free");
    }
}
