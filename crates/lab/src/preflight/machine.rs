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
        turbo: turbo().unwrap_or_default().to_owned(),
        smt: siblings().into_iter().filter(|group| group.contains([',', '-'])).collect(),
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
    let read = |name: &&str| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name.replace('.', "/"))).ok()?;
        Some(((*name).to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    SYSCTLS.iter().filter_map(read).collect()
}

/// Settings of the network stack that change the cost or the pace of a transfer.
const SYSCTLS: [&str; 13] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_wmem",
];

/// The groups of cores that share an execution unit, each as the kernel lists it: `0,4`, or `0` for a core alone.
pub(crate) fn siblings() -> Vec<String> {
    let cores = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut groups: Vec<String> = cores
        .filter_map(|core| fs::read_to_string(core.path().join("topology/thread_siblings_list")).ok())
        .map(|text| text.trim().to_owned())
        .collect();
    groups.sort();
    groups.dedup();
    groups
}

/// The cores of a list such as `0,4` or `2-3`.
pub(crate) fn cores_in(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse::<usize>().ok()?..=to.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Whether the processor may exceed its nominal clock, by either driver's interface.
fn turbo() -> Option<&'static str> {
    let read = |name: &str| fs::read_to_string(Path::new("/sys/devices/system/cpu").join(name)).ok();
    let boost = read("cpufreq/boost").map(|text| text.trim() == "1");
    let on = boost.or_else(|| read("intel_pstate/no_turbo").map(|text| text.trim() == "0"))?;
    Some(if on { "on" } else { "off" })
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
    fn lists_of_cores_are_read() {
        assert_eq!(cores_in("0,4"), [0, 4]);
        assert_eq!(cores_in("2-3,9"), [2, 3, 9]);
        assert_eq!(cores_in("7\n"), [7]);
        assert!(cores_in("").is_empty());
    }

    #[test]
    fn this_machine_shows() {
        let machine = machine();
        assert!(machine.cores > 0 && machine.memory > 1 << 20);
        assert!(!kernel().is_empty());
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem", "net.ipv4.tcp_no_metrics_save"] {
            assert!(settings().contains_key(name), "{name}");
        }
        assert!(limits(&machine, true)[0].contains("loopback"));
    }
}
