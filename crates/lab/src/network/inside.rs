//! The guest's side: namespaces, shaping, servers, loads.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::plan::{Path as Way, Plan, Visit};
use crate::arm::{Arm, Certificate, Nginx, Sealion, Server, Setup, Transport, find_program};
use crate::run::{Files, file_name};

/// One cell on one arm: a line of `network.csv`. Times are ms from the start of the request, or of its connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) page: String,
    pub(crate) visit: String,
    pub(crate) arm: String,
    pub(crate) samples: u64,
    /// First byte of the body.
    pub(crate) first_p50: f64,
    pub(crate) first_p90: f64,
    pub(crate) first_p99: f64,
    /// Last byte of the body.
    pub(crate) last_p50: f64,
    pub(crate) last_p90: f64,
    pub(crate) last_p99: f64,
}

/// Measures `plan` and writes `network.csv` into `out`. Files and configurations go to `work`.
///
/// # Errors
/// A namespace cannot be made, a server does not start, or a request fails.
pub(crate) fn measure(plan: &Plan, work: &Path, out: &Path) -> Result<()> {
    let files = Files::make(&work.join("www"), &plan.pages.iter().copied().collect())?;
    make_namespaces()?;
    let setup = Setup {
        group: None,
        sealion: plan.arms().any(|arm| arm.is_ours()).then(|| Sealion::find(Some(&plan.sealion))).transpose()?,
        nginx: plan.arms().any(|arm| arm.needs_nginx()).then(|| Nginx::find(plan.nginx.as_deref())).transpose()?,
        certificate: Certificate::make(work)?,
        files: files.directory,
        scratch: work.to_owned(),
        cores: Vec::new(),
        address: SERVER.into(),
        calibration: None,
        peer_pid: None,
        vegeta: None,
    };
    let absent = setup.nginx.as_ref().and_then(Nginx::lacks_http3);
    let is_absent = |arm: &Arm| *arm == Arm::NginxHttp3 && absent.is_some();
    if let Some(arm) = plan.arms().find(is_absent) {
        println!("arm {arm} is absent: {}", absent.as_deref().unwrap_or_default());
    }
    let mut rows = csv::Writer::from_path(out.join("network.csv"))?;
    for way in &plan.paths {
        shape(way)?;
        for command in &plan.tune {
            shell(command)?;
        }
        for arm in plan.arms().filter(|arm| !is_absent(arm)) {
            let server = arm.start(&setup).with_context(|| format!("arm {arm}"))?;
            // The first packets on a path wait one more round trip, for the neighbour's address (arp(7)).
            load(&server, plan.pages[0], Visit::New, 1).with_context(|| format!("{way}, warm-up on {arm}"))?;
            for &page in &plan.pages {
                for &visit in &plan.visits {
                    let samples = if way.loss > 0.0 { plan.samples_with_loss } else { plan.samples };
                    let times = load(&server, page, visit, samples)
                        .with_context(|| format!("{way}, {} {visit} on {arm}", file_name(page)))?;
                    let row = row(way, page, visit, &arm.to_string(), &times)?;
                    println!(
                        "{:<28} {:<5} {:<5} {:<12} first {:>8.1} {:>8.1}  last {:>8.1} {:>8.1}",
                        row.path,
                        row.page,
                        row.visit,
                        row.arm,
                        row.first_p50,
                        row.first_p99,
                        row.last_p50,
                        row.last_p99
                    );
                    rows.serialize(row)?;
                    rows.flush()?;
                }
            }
        }
    }
    Ok(())
}

/// The required part of the output of `sealion-lab load --json`.
#[derive(Debug, Deserialize)]
struct Times {
    requests: u64,
    times: std::collections::BTreeMap<String, std::collections::BTreeMap<String, u64>>,
}

/// Requests `page` from the client's namespace.
fn load(server: &Server, page: u64, visit: Visit, samples: u64) -> Result<Times> {
    let url = format!("https://{}{}", server.address, server.target(&file_name(page)));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", CLIENT, "/init", "load", &url, "--json", "--read", "decrypt", "--timeout", "300s"]);
    command.args(["--suite", "aes128"]);
    match server.transport {
        Transport::Tcp => {}
        Transport::Http2 => drop(command.args(["--h2", "1"])),
        Transport::Quic => drop(command.args(["--h3", "1"])),
    }
    match visit {
        Visit::New => command.args(["--calls", "1", "--requests", &samples.to_string()]),
        // The first of many requests opens the connection: it does not affect the median.
        Visit::Warm => {
            let rate = 1.0 / f64::from(Visit::PAUSE_SECONDS);
            command.args(["--rate", &rate.to_string(), "--requests", &(samples + 1).to_string()])
        }
    };
    let output = command.output().context("cannot run ip")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the load failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).context("the load printed no JSON")
}

fn row(way: &Way, page: u64, visit: Visit, arm: &str, times: &Times) -> Result<Row> {
    let ms = |name: &str, percentile: &str| {
        let time = times.times.get(name).and_then(|values| values.get(percentile));
        time.map(|&ns| ns as f64 / 1e6).with_context(|| format!("no {percentile} of {name}"))
    };
    Ok(Row {
        path: way.to_string(),
        page: file_name(page),
        visit: visit.to_string(),
        arm: arm.to_owned(),
        samples: times.requests,
        first_p50: ms("body_began_ns", "p50")?,
        first_p90: ms("body_began_ns", "p90")?,
        first_p99: ms("body_began_ns", "p99")?,
        last_p50: ms("latency_ns", "p50")?,
        last_p90: ms("latency_ns", "p90")?,
        last_p99: ms("latency_ns", "p99")?,
    })
}

/// Creates the client's namespace, and a veth pair to this one.
fn make_namespaces() -> Result<()> {
    std::fs::create_dir_all("/var/run").context("cannot make /var/run")?;
    shell(&format!(
        "ip netns add {CLIENT} && ip link add {SERVER_LINK} type veth peer name {CLIENT_LINK} netns {CLIENT} && \
         ip addr add {SERVER}/24 dev {SERVER_LINK} && ip link set {SERVER_LINK} up && ip link set lo up && \
         ip netns exec {CLIENT} ip addr add 10.9.0.2/24 dev {CLIENT_LINK} && \
         ip netns exec {CLIENT} ip link set {CLIENT_LINK} up && \
         ip netns exec {CLIENT} ip link set lo up"
    ))?;
    // Packets of one segment, as on a wire: netem delays and loses TCP's large packets as one.
    shell(&format!(
        "ip link set {SERVER_LINK} gso_max_segs 1 && ip netns exec {CLIENT} ip link set {CLIENT_LINK} gso_max_segs 1"
    ))?;
    // Otherwise a connection starts with the kernel's metrics of the previous connection.
    std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").context("cannot set tcp_no_metrics_save")
}

/// Half of the round trip and the loss at each end; the rate at the server's end.
fn shape(way: &Way) -> Result<()> {
    let Way { rtt, rate, loss } = way;
    let half = f64::from(*rtt) / 2.0;
    let loss = if *loss > 0.0 { format!("loss {loss}%") } else { String::new() };
    shell(&format!(
        "{} && {}",
        shaping("tc", SERVER_LINK, &format!("delay {half}ms {loss} rate {rate}mbit")),
        shaping(&format!("ip netns exec {CLIENT} tc"), CLIENT_LINK, &format!("delay {half}ms {loss}")),
    ))
}

/// netem behind a token bucket that limits nothing. The bucket cuts batches of datagrams (UDP_SEGMENT in udp(7)), which
/// netem would delay and lose as one packet: `gso_max_segs` of a link holds for TCP alone.
fn shaping(tc: &str, link: &str, netem: &str) -> String {
    format!(
        "{tc} qdisc replace dev {link} root handle 1: tbf rate 10gbit burst {LARGEST_PACKET} limit 100mb && \
         {tc} qdisc replace dev {link} parent 1:1 netem limit {QUEUE} {netem}"
    )
}

fn shell(command: &str) -> Result<()> {
    // busybox' shell prefers its own ip and tc, which lack namespaces and netem.
    let mut script = String::new();
    for name in ["ip", "tc"] {
        let program = find_program(name).with_context(|| format!("{name} is not there"))?;
        script += &format!("{name}() {{ {} \"$@\"; }}\n", program.display());
    }
    script += command;
    let output = Command::new("/bin/sh").args(["-c", &script]).output().context("cannot run /bin/sh")?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

const CLIENT: &str = "client";
const CLIENT_LINK: &str = "c0";
const SERVER_LINK: &str = "s0";
/// The bytes of the largest packet, with its Ethernet header and some to spare.
const LARGEST_PACKET: u32 = 1600;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// The number of packets in flight on the path: more than any window here.
const QUEUE: u32 = 4000;
