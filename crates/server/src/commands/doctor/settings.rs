//! System settings that degrade the server.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::{Finding, State};

/// Bytes of a full TLS record on the wire; a lower TCP_NOTSENT_LOWAT stalls sendfile (docs/kernel.md).
const RECORD_ON_THE_WIRE: u64 = 16_406;

/// A finding per setting.
pub(super) fn all() -> Vec<Finding> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok();
    let mut findings = Vec::new();
    findings.extend(read("net/ipv4/tcp_notsent_lowat").and_then(|text| notsent_lowat(&text)));
    findings.extend(read("net/ipv4/tcp_wmem").and_then(|text| wmem(&text)));
    findings.extend(read("net/ipv4/tcp_congestion_control").and_then(|text| congestion_control(&text)));
    findings.extend(open_files());
    findings.extend(cleared_pages());
    findings
}

fn notsent_lowat(text: &str) -> Option<Finding> {
    let bytes: u64 = text.trim().parse().ok()?;
    if bytes >= 4 * RECORD_ON_THE_WIRE {
        return Some(Finding::new("settings", State::Good, "tcp_notsent_lowat leaves room for records", ""));
    }
    let found = format!("net.ipv4.tcp_notsent_lowat is {bytes} bytes");
    let means = "less than a few TLS records: with kernel TLS, sendfile waits after each record, on Linux 6.1 forever. Sealion raises it on its own sockets; other servers are affected";
    Some(Finding::new("settings", State::Warning, found, means).remedy("sysctl -w net.ipv4.tcp_notsent_lowat=131072"))
}

fn wmem(text: &str) -> Option<Finding> {
    let most: u64 = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
    // The default since Linux 2.6 is 4 MiB.
    if most >= 1 << 20 {
        return Some(Finding::new("settings", State::Good, "tcp_wmem is large enough for long fat networks", ""));
    }
    let found = format!("net.ipv4.tcp_wmem limits a connection to {most} bytes in flight");
    let means = "a distant client receives at most that much per round trip";
    Some(
        Finding::new("settings", State::Warning, found, means)
            .remedy("sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'"),
    )
}

/// It only matters on lossy networks: docs/networks.md.
fn congestion_control(text: &str) -> Option<Finding> {
    let name = text.trim();
    if name.is_empty() || name.starts_with("bbr") {
        return None;
    }
    let found = format!("net.ipv4.tcp_congestion_control is {name}");
    let means = "over networks that lose packets BBR is faster: with 80 ms, 50 Mbit/s and 1 % of loss, the median 1 MB took 2.0 s with cubic and 1.0 s with BBR on a \
                 new connection, 5.5 s and 0.3 s on one in use (emulated Debian 6.1)";
    Some(
        Finding::new("settings", State::Note, found, means)
            .remedy("modprobe tcp_bbr && sysctl -w net.ipv4.tcp_congestion_control=bbr, where clients are on lossy networks, such as mobile ones"),
    )
}

/// Whether the kernel clears pages when it allocates them.
fn cleared_pages() -> Option<Finding> {
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let built = fs::read_to_string(format!("/boot/config-{release}")).unwrap_or_default();
    clears_pages(&command_line, &built).then(clearing)
}

/// The last `init_on_alloc` of the kernel's command line decides; without one, the kernel's configuration.
fn clears_pages(command_line: &str, built: &str) -> bool {
    let given =
        command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("init_on_alloc=")).next_back();
    match given {
        Some("1" | "on" | "y" | "Y") => true,
        Some("0" | "off" | "n" | "N") => false,
        _ => built.lines().any(|line| line == "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y"),
    }
}

fn clearing() -> Finding {
    let found = "init_on_alloc is on: the kernel clears each page that it allocates";
    let means = "kernel TLS allocates a page for each 4 KiB that it seals and overwrites it at once: clearing was 28 % of the instructions \
                 of a 1 MB response in an emulated Debian 6.1. It also limits what a fault of the kernel can leak of freed memory";
    Finding::new("settings", State::Note, found, means).remedy(
        "init_on_alloc=0 on the kernel's command line, only on a machine whose users and programs trust each other; then `sealion calibrate`",
    )
}

fn open_files() -> Option<Finding> {
    let allowed = getrlimit(Resource::Nofile).maximum?;
    (allowed < 20_128).then(|| {
        let found = format!("at most {allowed} open files");
        let means = "too few for the default limit of 10,000 connections";
        Finding::new("settings", State::Warning, found, means)
            .remedy("LimitNOFILE=65536 in the unit, or ulimit -n 65536")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_hurt_are_told_from_defaults() {
        assert_eq!(notsent_lowat("4294967295\n").unwrap().state, State::Good);
        assert_eq!(notsent_lowat("16384\n").unwrap().state, State::Warning);
        assert_eq!(notsent_lowat("nonsense"), None);
        assert_eq!(wmem("4096\t16384\t4194304\n").unwrap().state, State::Good);
        assert_eq!(wmem("4096 16384 65536").unwrap().state, State::Warning);
        assert_eq!(wmem(""), None);
    }

    #[test]
    fn another_congestion_control_is_named_where_bbr_is_not_used() {
        let finding = congestion_control("cubic\n").unwrap();
        assert_eq!((finding.state, finding.found.contains("cubic")), (State::Note, true));
        assert!(finding.remedy.unwrap().contains("tcp_congestion_control=bbr"));
        assert_eq!(congestion_control("bbr\n"), None);
        assert_eq!(congestion_control(""), None);
    }

    #[test]
    fn clearing_of_pages_is_known_by_the_command_line_and_else_by_the_build() {
        let (on, off) =
            ("CONFIG_A=y\nCONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n", "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n");
        for (command_line, built, clears) in [
            ("root=/dev/vda ro", on, true),
            ("root=/dev/vda ro", off, false),
            ("", "", false),
            ("ro init_on_alloc=0\n", on, false),
            ("ro init_on_alloc=off quiet", on, false),
            ("init_on_alloc=1", off, true),
            ("init_on_alloc=1 init_on_alloc=0", on, false),
            ("init_on_alloc=maybe", on, true),
        ] {
            assert_eq!(clears_pages(command_line, built), clears, "{command_line:?} {built:?}");
        }
        let finding = clearing();
        assert_eq!(finding.state, State::Note);
        assert!(finding.means.contains("1 MB") && finding.remedy.unwrap().contains("init_on_alloc=0"));
    }
}
