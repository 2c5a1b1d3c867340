//! Finds out why this machine lacks the TLS layer.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

/// The value of `CONFIG_TLS` that the kernel was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Config {
    BuiltIn,
    Module,
    No,
    /// No configuration is readable, as in most containers.
    Unknown,
}

/// Facts about the machine, read only if the layer is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) release: String,
    pub(crate) config: Config,
    /// CAP_NET_ADMIN in the initial user namespace, without which the kernel does not load the module on demand.
    pub(crate) can_load: bool,
}

impl Host {
    pub(crate) fn read() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let uid_map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Self {
            config: kernel_config(&release).map_or(Config::Unknown, |text| config_tls(&text)),
            can_load: has_net_admin(&status) && is_initial_namespace(&uid_map),
            release,
        }
    }

    /// The reason for the missing layer, and the remedy, one sentence per line.
    pub(crate) fn why_no_ulp(&self) -> String {
        let release = &self.release;
        match (self.config, self.can_load) {
            (Config::No, _) => format!(
                "Kernel {release} was built without CONFIG_TLS, so it has no kernel TLS.\n\
                 Use a kernel that was built with CONFIG_TLS=m or =y."
            ),
            (Config::Module, true) => format!(
                "Kernel {release} has the TLS module, and this process may load it, but the kernel did not find it.\n\
                 Install the kernel's module package, then run: modprobe tls"
            ),
            (Config::Module, false) => format!(
                "Kernel {release} has the TLS module, but it is not loaded, and this process may not load it \
                 (a container, or no CAP_NET_ADMIN).\n\
                 Run on the host, as root: modprobe tls\n\
                 To keep it over a reboot: echo tls > /etc/modules-load.d/tls.conf"
            ),
            (Config::BuiltIn, _) => format!(
                "Kernel {release} has TLS built in, but refuses it: probably because of a sandbox, such as gVisor or a seccomp filter.\n\
                 Allow setsockopt(TCP_ULP) there."
            ),
            (Config::Unknown, can_load) => format!(
                "Kernel {release} has no TLS layer loaded, and its build configuration is not readable here.{}\n\
                 Run on the host, as root: modprobe tls\n\
                 If that says the module is not found, the kernel was built without CONFIG_TLS, or its modules are not installed.",
                if can_load { "" } else { "\nThis process may not load it (a container, or no CAP_NET_ADMIN)." }
            ),
        }
    }
}

/// The kernel's build configuration: the kernel's own copy, or the distribution's file.
fn kernel_config(release: &str) -> Option<String> {
    let own = fs::File::open("/proc/config.gz").ok().and_then(|file| {
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text).ok().map(|_| text)
    });
    own.or_else(|| fs::read_to_string(format!("/boot/config-{release}")).ok())
        .or_else(|| fs::read_to_string(format!("/lib/modules/{release}/config")).ok())
}

fn config_tls(text: &str) -> Config {
    // A disabled option appears as a comment, or not at all if its dependencies are disabled.
    match text.lines().find_map(|line| line.strip_prefix("CONFIG_TLS=")) {
        Some("y") => Config::BuiltIn,
        Some("m") => Config::Module,
        _ => Config::No,
    }
}

/// capabilities(7): bit 12 of the effective set.
pub(crate) fn has_net_admin(status: &str) -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|caps| caps >> CAP_NET_ADMIN & 1 == 1)
}

/// user_namespaces(7): the initial namespace maps every id to itself.
fn is_initial_namespace(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_read_from_its_line_alone() {
        assert_eq!(config_tls("CONFIG_NET=y\nCONFIG_TLS=m\nCONFIG_TLS_DEVICE=y\n"), Config::Module);
        assert_eq!(config_tls("CONFIG_TLS=y\n"), Config::BuiltIn);
        assert_eq!(config_tls("# CONFIG_TLS is not set\nCONFIG_NVME_TARGET_TCP_TLS=y\n"), Config::No);
        assert_eq!(config_tls(""), Config::No);
    }

    #[test]
    fn capability_and_namespace_decide_loading() {
        assert!(has_net_admin("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!has_net_admin("CapEff:\t00000000a80425fb\n"), "a container's default set");
        assert!(!has_net_admin("CapPrm:\t000001ffffffffff\n"));
        assert!(is_initial_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_namespace("         0     100000      65536\n"));
    }

    #[test]
    fn the_operator_reads_the_remedy_that_fits() {
        let host = |config, can_load| Host { release: "6.1.0".into(), config, can_load }.why_no_ulp();
        assert!(host(Config::No, true).contains("without CONFIG_TLS"));
        assert!(!host(Config::No, true).contains("modprobe"));
        assert!(host(Config::Module, false).contains("on the host, as root: modprobe tls"));
        assert!(host(Config::Module, true).contains("module package"));
        assert!(host(Config::Unknown, false).contains("may not load it"));
        assert!(!host(Config::Unknown, true).contains("may not load it"));
        assert!(host(Config::BuiltIn, true).contains("sandbox"));
    }
}
