//! `sealion-lab load`: loads a server and prints the outcome.

use std::fmt::{self, Write};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;

use super::live;
use crate::flame::Recording;
use crate::load::{self, Arrival, Extent, LoadPlan, Outcome, Popularity, Protocol, Read, Suite};

/// Arguments of `sealion-lab load`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// URL to fetch: https://HOST[:PORT]/PATH
    url: String,

    /// Threads of the client, each with a share of the connections
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Connections open at a time, over all threads
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    connections: usize,

    /// Requests at a time on each connection, by HTTP/2 [default: HTTP/1.1]
    #[arg(long, value_name = "STREAMS")]
    h2: Option<usize>,

    /// Requests at a time on each connection, by HTTP/3 over QUIC, which offers one suite [default: aes128]
    #[arg(long, value_name = "STREAMS", num_args = 0..=1, default_missing_value = "1", conflicts_with = "h2")]
    h3: Option<usize>,

    /// Requests on a connection before it is replaced [default: unlimited]
    #[arg(long, value_name = "N")]
    calls: Option<u64>,

    /// Duration; requests in flight are finished
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,

    /// Number of requests, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    requests: Option<u64>,

    /// Open loop: start this many requests per second, regardless of the server's speed; latency counts from the
    /// intended start
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Request one of this many files by Zipf's law: URL/000000 is the most popular. All must have one length
    #[arg(long, value_name = "N")]
    files: Option<u32>,

    /// Seed of the random sequence of those files
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Resume sessions of earlier connections where possible
    #[arg(long)]
    resume: bool,

    /// How to read response bodies
    #[arg(long, value_enum, default_value_t = ReadArg::Decrypt)]
    read: ReadArg,

    /// Drop each connection after this many bytes of a body
    #[arg(long, value_name = "BYTES")]
    body_cap: Option<u64>,

    /// Cipher suite to offer; may be repeated, the first is preferred [default: all]
    #[arg(long, value_enum)]
    suite: Vec<SuiteArg>,

    /// Time limit of a request, including connect and handshake
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Cores to run the client threads on, e.g. 1,3
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    cores: Vec<usize>,

    /// Trust anchors, PEM [default: any certificate is accepted]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Show rate and failures on standard error meanwhile, each second [default: if it is a terminal]
    #[arg(long)]
    live: bool,

    /// Draw a flame graph of the server's CPU time during the load into this SVG file; needs perf(1)
    #[arg(long, value_name = "FILE", requires = "pid")]
    flame: Option<PathBuf>,

    /// The server's process on this machine, for --flame; its children belong to it
    #[arg(long, value_name = "PID", requires = "flame")]
    pid: Option<u32>,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReadArg {
    /// Decrypt, and compare each body's SHA-256 with the first one's
    Verify,
    /// Decrypt every record and discard its content
    Decrypt,
    /// Skip records without decrypting them, which keeps the client cheap; lengths are still checked
    Drain,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SuiteArg {
    #[value(name = "aes128")]
    Aes128Gcm,
    #[value(name = "aes256")]
    Aes256Gcm,
    #[value(name = "chacha20")]
    Chacha20Poly1305,
    #[value(name = "tls12-aes128")]
    Tls12Aes128Gcm,
    #[value(name = "tls12-aes256")]
    Tls12Aes256Gcm,
}

/// Exit code 1 if anything failed.
pub(crate) fn main(args: &LoadArgs) -> Result<ExitCode> {
    let plan = plan(args)?;
    let flame = match args.flame.as_ref().zip(args.pid) {
        Some((file, pid)) => {
            let recording = Recording::start(pid)?;
            fs::File::create(file).with_context(|| cannot_write(file))?;
            Some((file, recording))
        }
        None => None,
    };
    let outcome = if args.live || live::is_wanted() { live::run(&plan)? } else { load::run(&plan)? };
    if args.json {
        super::print(&(serde_json::to_string_pretty(&json(&plan, &outcome))? + "\n"))?;
    } else {
        super::print(&Shown(&outcome, plan.protocol).to_string())?;
    }
    if let Some((file, recording)) = flame {
        fs::write(file, recording.finish()?).with_context(|| cannot_write(file))?;
    }
    Ok(if outcome.failures.total() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

fn plan(args: &LoadArgs) -> Result<LoadPlan> {
    let Url { address, host, target } = Url::parse(&args.url)?;
    Ok(LoadPlan {
        address,
        server_name: host,
        roots: args.ca.clone(),
        target,
        popularity: args.files.map(|files| Popularity { files, seed: args.seed }),
        threads: args.threads,
        connections: args.connections,
        protocol: match (args.h2, args.h3) {
            (Some(streams), _) => Protocol::Http2 { streams },
            (_, Some(streams)) => Protocol::Http3 { streams },
            _ => Protocol::Http1,
        },
        calls: args.calls,
        resume: args.resume,
        arrival: args.rate.map_or(Arrival::Closed, |rate| Arrival::Open { rate }),
        extent: args.requests.map_or(Extent::Time(args.duration), Extent::Requests),
        read: match args.read {
            ReadArg::Verify => Read::Verify,
            ReadArg::Decrypt => Read::Decrypt,
            ReadArg::Drain => Read::Drain,
        },
        body_cap: args.body_cap,
        suites: args.suite.iter().copied().map(suite).collect(),
        timeout: args.timeout,
        cores: args.cores.clone(),
    })
}

fn suite(arg: SuiteArg) -> Suite {
    match arg {
        SuiteArg::Aes128Gcm => Suite::Aes128Gcm,
        SuiteArg::Aes256Gcm => Suite::Aes256Gcm,
        SuiteArg::Chacha20Poly1305 => Suite::Chacha20Poly1305,
        SuiteArg::Tls12Aes128Gcm => Suite::Tls12Aes128Gcm,
        SuiteArg::Tls12Aes256Gcm => Suite::Tls12Aes256Gcm,
    }
}

/// An https URL, its host looked up.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    address: SocketAddr,
    /// Without the brackets of IPv6.
    host: String,
    target: String,
}

impl Url {
    fn parse(url: &str) -> Result<Self> {
        let Some(rest) = url.strip_prefix("https://") else {
            bail!("{url:?} is not an https URL: give https://HOST[:PORT]/PATH");
        };
        let (authority, target) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("{port:?} in {url:?} is not a port"))?)
            }
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let cannot = || format!("cannot find the host {host:?} of {url:?}");
        let address = (host, port).to_socket_addrs().with_context(cannot)?.next().with_context(cannot)?;
        let target = target.split('#').next().unwrap_or(target);
        Ok(Self { address, host: host.to_owned(), target: target.to_owned() })
    }
}

/// The result as text.
struct Shown<'a>(&'a Outcome, Protocol);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outcome, protocol) = self;
        let protocol = protocol.name();
        let seconds = outcome.elapsed.as_secs_f64();
        writeln!(f, "{} requests in {seconds:.2} s, {protocol}, {}", outcome.requests, or_none(&outcome.suite))?;
        writeln!(f, "  {:.1} requests/s, {:.1} MB/s of bodies", per(outcome.requests, seconds), megabytes(outcome))?;
        writeln!(f, "  {} handshakes, {} of them resumed", outcome.handshakes, outcome.resumed)?;
        let cpu = per(outcome.client_cpu / 1000, outcome.requests as f64);
        writeln!(f, "  client CPU {:.2} s, {cpu:.2} µs per request", outcome.client_cpu as f64 / 1e9)?;
        if let Some(hash) = &outcome.body_sha256 {
            writeln!(f, "  body SHA-256 {hash}")?;
        }
        writeln!(f, "{:<12} {}", "", PERCENTILES.map(|(name, _)| format!("{name:>10}")).concat())?;
        for (name, histogram) in times(outcome) {
            let values = PERCENTILES.map(|(_, quantile)| format!("{:>10}", time(histogram, quantile)));
            writeln!(f, "{name:<12} {}", values.concat())?;
        }
        if outcome.failures.total() > 0 {
            let mut kinds = String::new();
            for (name, count) in failures(outcome).into_iter().filter(|(_, count)| *count > 0) {
                write!(kinds, " {name} {count}")?;
            }
            writeln!(f, "{} failures:{kinds}", outcome.failures.total())?;
            writeln!(f, "  the first: {}", outcome.failures.first.as_deref().unwrap_or("not known"))?;
        }
        Ok(())
    }
}

pub(super) const PERCENTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn times(outcome: &Outcome) -> [(&'static str, &Histogram<u64>); 7] {
    [
        ("latency", &outcome.latency),
        ("lag", &outcome.lag),
        ("connect", &outcome.connect),
        ("handshake", &outcome.handshake),
        ("first_byte", &outcome.first_byte),
        ("response", &outcome.response),
        ("body_began", &outcome.body_began),
    ]
}

fn failures(outcome: &Outcome) -> [(&'static str, u64); 7] {
    let failures = &outcome.failures;
    [
        ("connect", failures.connect),
        ("handshake", failures.handshake),
        ("timeout", failures.timeout),
        ("status", failures.status),
        ("body", failures.body),
        ("io", failures.io),
        ("unsent", failures.unsent),
    ]
}

pub(super) fn time(histogram: &Histogram<u64>, quantile: f64) -> String {
    if histogram.is_empty() {
        return "-".to_owned();
    }
    match histogram.value_at_quantile(quantile) as f64 {
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn json(plan: &LoadPlan, outcome: &Outcome) -> serde_json::Value {
    let times: serde_json::Map<_, _> = times(outcome)
        .into_iter()
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(name, histogram)| {
            let values =
                PERCENTILES.map(|(name, quantile)| (name.to_owned(), histogram.value_at_quantile(quantile).into()));
            (format!("{name}_ns"), serde_json::Value::Object(values.into_iter().collect()))
        })
        .collect();
    let failures: serde_json::Map<_, _> =
        failures(outcome).into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    serde_json::json!({
        "plan": plan,
        "suite": outcome.suite,
        "elapsed_ns": outcome.elapsed.as_nanos() as u64,
        "requests": outcome.requests,
        "requests_per_second": per(outcome.requests, outcome.elapsed.as_secs_f64()),
        "body_bytes": outcome.body_bytes,
        "body_sha256": outcome.body_sha256,
        "handshakes": outcome.handshakes,
        "resumed": outcome.resumed,
        "client_cpu_ns": outcome.client_cpu,
        "times": times,
        "failures": failures,
        "first_failure": outcome.failures.first,
    })
}

fn megabytes(outcome: &Outcome) -> f64 {
    per(outcome.body_bytes, outcome.elapsed.as_secs_f64()) / 1e6
}

fn per(count: u64, of: f64) -> f64 {
    if of > 0.0 { count as f64 / of } else { 0.0 }
}

fn or_none(suite: &str) -> &str {
    if suite.is_empty() { "no connection" } else { suite }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parsed = |url: &str| Url::parse(url).map(|u| (u.address.to_string(), u.host, u.target));
        let is = |url: &str, address: &str, host: &str, target: &str| {
            assert_eq!(parsed(url).unwrap(), (address.to_owned(), host.to_owned(), target.to_owned()), "{url}");
        };
        is("https://127.0.0.1:8443/a/b?c#d", "127.0.0.1:8443", "127.0.0.1", "/a/b?c");
        is("https://127.0.0.1", "127.0.0.1:443", "127.0.0.1", "/");
        is("https://[::1]:99/x", "[::1]:99", "::1", "/x");
        is("https://[::1]/x", "[::1]:443", "::1", "/x");
        for wrong in ["http://127.0.0.1/", "127.0.0.1", "https://127.0.0.1:x/", "https:///x"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
