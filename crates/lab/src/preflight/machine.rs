//! Facts about this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sealion_ktls::probe::Probe;

use crate::run_info::{AeadDriver, Machine};

/// Processor, cores, memory, hypervisor.
pub(crate) fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Machine {
        processor: field(&cpuinfo, "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: rustix::system::sysinfo().totalram as u64 * u64::from(rustix::system::sysinfo().mem_unit),
        hypervisor: hypervisor(&cpuinfo),
        governor: governors().join(", "),
    }
}

/// Release and version of the kernel.
pub(crate) fn kernel() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.release().to_string_lossy(), uname.version().to_string_lossy())
}

/// The kernel's AEAD drivers. /proc/crypto only lists drivers that have been used, which `Probe` did.
pub(crate) fn aead_drivers(_: &Probe) -> Vec<AeadDriver> {
    let text = fs::read_to_string("/proc/crypto").unwrap_or_default();
    let names = ["gcm(aes)", "rfc7539(chacha20,poly1305)"];
    names
        .iter()
        .filter_map(|name| Some(AeadDriver { name: (*name).to_owned(), driver: driver(&text, name)? }))
        .collect()
}

/// TCP settings, and the TLS support of kernel and network cards, by name.
pub(crate) fn settings() -> BTreeMap<String, String> {
    let names = ["tcp_congestion_control", "tcp_notsent_lowat", "tcp_rmem", "tcp_wmem"];
    let read = |name: &&str| {
        let text = fs::read_to_string(Path::new("/proc/sys/net/ipv4").join(name)).ok()?;
        Some((format!("net.ipv4.{name}"), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    names.iter().filter_map(read).collect()
}

/// Limits of figures from this machine.
pub(crate) fn limits(machine: &Machine, loopback: bool) -> Vec<String> {
    let mut limits = Vec::new();
    if loopback {
        limits.push(
            "Clients and servers share one machine over loopback: no network card, no loss, no distance; a segment is up to 64 KB."
                .to_owned(),
        );
    }
    if !machine.hypervisor.is_empty() {
        limits.push(format!(
            "A virtual machine or container ({}): other work on the host affects the figures, and the lab cannot fix the host's clock frequency.",
            machine.hypervisor
        ));
    }
    if machine.cores < 3 {
        limits.push(format!(
            "{} cores: interrupts and all other programs share those of server and client.",
            machine.cores
        ));
    }
    limits
}

pub(super) fn governors() -> Vec<String> {
    let cores = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut found: Vec<String> = cores
        .filter_map(|core| fs::read_to_string(core.path().join("cpufreq/scaling_governor")).ok())
        .map(|text| text.trim().to_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn hypervisor(cpuinfo: &str) -> String {
    let mut found = Vec::new();
    if field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")) {
        let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").map(|t| t.trim().to_owned());
        found.push(vendor.ok().filter(|v| !v.is_empty()).unwrap_or_else(|| "virtual machine".to_owned()));
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        found.push("container".to_owned());
    }
    found.join(", ")
}

/// The driver with the highest priority, which the kernel chooses (Documentation/crypto/architecture.rst).
fn driver(crypto: &str, template: &str) -> Option<String> {
    let blocks = crypto.split("\n\n").filter(|block| {
        // Internal drivers are parts of others and are never chosen directly.
        field(block, "name").as_deref() == Some(template) && field(block, "internal").as_deref() != Some("yes")
    });
    let priority = |block: &&str| field(block, "priority").and_then(|p| p.parse::<u32>().ok());
    field(blocks.max_by_key(priority)?, "driver")
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_highest_priority() {
        let text = "name         : gcm(aes)\ndriver       : slow\npriority     : 100\ninternal     : no\n\n\
                    name         : gcm(aes)\ndriver       : fast\npriority     : 800\ninternal     : no\n\n\
                    name         : gcm(aes)\ndriver       : part\npriority     : 900\ninternal     : yes\n";
        assert_eq!(driver(text, "gcm(aes)").as_deref(), Some("fast"));
        assert_eq!(driver(text, "ccm(aes)"), None);
    }

    #[test]
    fn this_machine_shows() {
        let machine = machine();
        assert!(machine.cores > 0 && machine.memory > 1 << 20);
        assert!(!kernel().is_empty());
        assert!(settings().contains_key("net.ipv4.tcp_wmem"));
        assert!(limits(&machine, true)[0].contains("loopback"));
    }
}
