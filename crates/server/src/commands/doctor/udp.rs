//! The facilities of UDP that HTTP/3 uses on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::{fs, io};

use sealion_net::{Steering, UdpOptions, UdpSocket};

use super::{Finding, State};

const TOPIC: &str = "udp";

// GUESS: 2 MiB hold 16 ms of packets at 1 Gbit/s.
/// Bytes of a socket's buffer that leave room for the bursts of fast clients.
const ROOMY: u64 = 2 << 20;

/// A finding per facility.
pub(super) fn all() -> Vec<Finding> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse::<u64>().ok();
    let mut findings = Vec::new();
    match socket(0) {
        Ok(socket) => {
            findings.push(batches("GSO", "sends", socket.max_segments() > 1));
            findings.push(batches("GRO", "receives", socket.receives_batches()));
            findings.push(steering(&socket));
        }
        Err(error) => {
            let means = "HTTP/3 cannot be served";
            findings.push(Finding::new(TOPIC, State::Warning, format!("no UDP socket can be bound: {error}"), means));
        }
    }
    for (name, does) in [("rmem_max", "receives"), ("wmem_max", "sends")] {
        findings.extend(read(&format!("net/core/{name}")).map(|bytes| buffer(name, does, bytes)));
    }
    let tracked = (read("net/netfilter/nf_conntrack_count"), read("net/netfilter/nf_conntrack_max"));
    findings.extend(conntrack(tracked.0.zip(tracked.1)));
    findings
}

fn socket(port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), UdpOptions::default())
}

fn batches(what: &str, does: &str, works: bool) -> Finding {
    match works {
        true => Finding::new(TOPIC, State::Good, format!("{what} works"), ""),
        false => {
            let means = format!("HTTP/3 {does} each datagram by a call of its own, which costs more CPU time");
            Finding::new(TOPIC, State::Warning, format!("the kernel has no {what} for UDP"), means)
                .remedy("use Linux 5.0 or later")
        }
    }
}

/// Whether a group of sockets takes a program, as each worker's socket needs.
fn steering(first: &UdpSocket) -> Finding {
    let attached = first.local_addr().and_then(|address| {
        let _second = socket(address.port())?;
        Steering { workers: 1, shares: 2, share: 0 }.attach(first)
    });
    match attached {
        Ok(()) => Finding::new(TOPIC, State::Good, "SO_REUSEPORT steers datagrams by connection ID", ""),
        Err(error) => {
            let found = format!("SO_REUSEPORT takes no program (SO_ATTACH_REUSEPORT_CBPF): {error}");
            let means = "listeners with HTTP/3 cannot start";
            Finding::new(TOPIC, State::Warning, found, means)
                .remedy("allow setsockopt(2) in the container's seccomp profile, or turn HTTP/3 off")
        }
    }
}

fn buffer(name: &str, does: &str, bytes: u64) -> Finding {
    if bytes >= ROOMY {
        return Finding::new(TOPIC, State::Good, format!("net.core.{name} is {bytes} bytes"), "");
    }
    let means =
        format!("bursts of HTTP/3 overflow the buffer of a socket that {does} for many clients, and are sent again");
    Finding::new(TOPIC, State::Note, format!("net.core.{name} is {bytes} bytes"), means)
        .remedy(format!("sysctl -w net.core.{name}={ROOMY}"))
}

/// `table`: entries in use, and their greatest number.
fn conntrack(table: Option<(u64, u64)>) -> Option<Finding> {
    let (used, most) = table?;
    let found = format!("connection tracking has {used} of {most} entries in use");
    let means =
        "each client of HTTP/3 takes an entry, as of TCP; with a full table, the kernel drops datagrams of new clients";
    let state = if used.saturating_mul(2) > most { State::Warning } else { State::Note };
    let remedy = "sysctl -w net.netfilter.nf_conntrack_max=262144, or leave the UDP port out: nft add rule ip raw prerouting udp dport 443 notrack";
    Some(Finding::new(TOPIC, state, found, means).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_and_full_tables_have_remedies() {
        assert_eq!(buffer("rmem_max", "receives", 4 << 20).remedy, None);
        let small = buffer("rmem_max", "receives", 212_992);
        assert_eq!((small.state, small.remedy.as_deref()), (State::Note, Some("sysctl -w net.core.rmem_max=2097152")));
        assert_eq!(conntrack(None), None);
        assert_eq!(conntrack(Some((10, 100))).map(|finding| finding.state), Some(State::Note));
        assert_eq!(conntrack(Some((60, 100))).map(|finding| finding.state), Some(State::Warning));
        assert_eq!(batches("GSO", "sends", false).state, State::Warning);
    }

    #[test]
    fn this_machine_steers() {
        let first = socket(0).expect("a port");
        assert_eq!(steering(&first).state, State::Good);
    }
}
