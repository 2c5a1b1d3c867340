//! Studies: which cells are measured, how long, how often, and on which arms. Declarations only.

mod container;
mod crossover;
mod deployed;
mod mix;
mod netdev;
mod nginx_article;
mod peers;
mod rate_sweep;
mod size_by_calls;

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::load::{Extent, Protocol, Read, Suite};

/// Defines the studies with their names and modules, so that the command line, the list and the declarations agree.
macro_rules! studies {
    ($($(#[$doc:meta])* $study:ident = $name:literal in $module:ident,)*) => {
        /// A study, published or our own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum StudyName { $($(#[$doc])* $study,)* }

        impl StudyName {
            /// Every study, in the order of the command line.
            pub const ALL: &[Self] = &[$(Self::$study),*];

            /// As on the command line and in `raw.csv`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$study => $name),* }
            }

            /// The measurements of this scale.
            pub fn study(self, scale: Scale) -> Study {
                match self { $(Self::$study => $module::study(scale)),* }
            }
        }
    };
}

studies! {
    /// One connection, one file of 1 GB from the page cache, TLS 1.3 AES-256-GCM (NGINX article, 2021)
    NginxArticle = "nginx-article" in nginx_article,
    /// File size × requests per connection, 4 threads and 4 connections (2023)
    SizeByCalls = "size-by-calls" in size_by_calls,
    /// 2 connections, 1 KB to 1 GB, requests per connection, CPU, return on investment, set-up cost (netdev talk, 2022)
    Netdev = "netdev" in netdev,
    /// 500 and 1500 clients on 10 MB, 1 MB and 512 KB, over connections that stay open (container test, 2023)
    Container = "container" in container,
    /// The size from which the kernel path is cheaper, by suite and requests per connection
    Crossover = "crossover" in crossover,
    /// Ours against nginx in user space: CPU by size, handshakes, latency, fairness, memory of idle connections
    Peers = "peers" in peers,
    /// Ours against nginx as both are deployed: logs, metrics, sites, many files, half the load, large files
    Deployed = "deployed" in deployed,
    /// Latency over throughput: open loops at shares of each server's own rate
    RateSweep = "rate-sweep" in rate_sweep,
    /// A site's mix of sizes on connections of 20 requests; `sealion-lab advise` takes the mix of an access log
    Mix = "mix" in mix,
}

impl StudyName {
    /// The studies that repeat a source.
    pub const PUBLISHED: [Self; 4] = [Self::NginxArticle, Self::SizeByCalls, Self::Netdev, Self::Container];
}

/// How extensive a study is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// A test of seconds; the figures mean nothing.
    Smoke,
    /// A minute or so.
    Quick,
    /// Rounds for usual confidence intervals.
    Default,
    /// Sizes, durations and rounds as published.
    Full,
}

/// The measurements of a study at one scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// The name that the report and `raw.csv` use.
    pub name: StudyName,
    /// Its cells, each measured on every arm in every round.
    pub cells: Vec<Cell>,
    /// Measurements of a cell on an arm.
    pub rounds: u32,
    /// Arms to compare; the operator may add others.
    pub arms: Vec<String>,
    /// Whether it includes the cost of the hand-over's system calls.
    pub setup_cost: bool,
}

/// One set of conditions, equal for all arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Body bytes of the requested file.
    pub size: u64,
    /// Requests on a connection; `None`: unlimited.
    pub calls: Option<u64>,
    /// Connections open at a time.
    pub connections: usize,
    /// The version of HTTP, and the requests at a time on a connection.
    #[serde(default)]
    pub protocol: Protocol,
    /// Threads of the client, each with a share of the connections.
    pub threads: usize,
    /// Requests per second in an open loop; `None`: closed loop.
    pub rate: Option<f64>,
    /// Whether sessions are resumed.
    pub resume: bool,
    /// How the client reads bodies.
    pub read: Read,
    /// The only suite that the client offers.
    pub suite: Suite,
    /// When the load ends.
    pub extent: Extent,
    /// Time that a request may take.
    pub timeout: Duration,
    /// Another load, and the quantities to measure.
    pub scene: Scene,
}

/// Another load beside a cell's requests, and the quantities to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scene {
    /// No other load. Cost and latency of the requests.
    Alone,
    /// Another load on the same server. Latency of the requests; the server's cost includes both loads and is not
    /// recorded.
    Beside {
        /// Body bytes of its file.
        size: u64,
        /// Its connections, in a closed loop.
        connections: usize,
    },
    /// Each request is for one of many files of the cell's size, by Zipf's law with the exponent 1.
    Many {
        /// Number of files.
        files: u32,
    },
    /// An open loop at half of nginx' rate in a closed loop. The rate is measured once per run, on the study's last
    /// nginx arm.
    HalfLoad,
    /// An open loop at a share of the arm's own rate in a closed loop, which is measured once per run.
    Share {
        /// Percent of that rate.
        percent: u32,
    },
    /// Connections stay open after one request each, on a freshly started server. Measures the growth of its memory.
    Idle,
}

impl Cell {
    /// A closed loop with new handshakes and a cheap client.
    pub(crate) fn closed(size: u64, calls: Option<u64>, connections: usize, extent: Extent) -> Self {
        Self {
            size,
            calls,
            connections,
            protocol: Protocol::Http1,
            threads: 1,
            rate: None,
            resume: false,
            read: Read::Drain,
            suite: Suite::Aes128Gcm,
            extent,
            timeout: TIMEOUT,
            scene: Scene::Alone,
        }
    }

    /// The sizes of the files that it requests.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        let beside = match self.scene {
            Scene::Beside { size, .. } => Some(size),
            _ => None,
        };
        std::iter::once(self.size).chain(beside)
    }

    /// A name that is the same for all arms and rounds, and unique within a study.
    pub fn name(&self) -> String {
        let calls = self.calls.map_or("unlimited".to_owned(), |calls| calls.to_string());
        let mut name = format!(
            "size={} calls={calls} connections={} suite={}",
            self.size,
            self.connections,
            suite_name(self.suite)
        );
        if let Some(rate) = self.rate {
            name += &format!(" rate={rate}");
        }
        match self.protocol {
            Protocol::Http1 => {}
            Protocol::Http2 { streams } => name += &format!(" streams={streams}"),
            Protocol::Http3 { streams } => name += &format!(" http3 streams={streams}"),
        }
        if self.resume {
            name += " resume";
        }
        match self.scene {
            Scene::Alone => {}
            Scene::Beside { size, connections } => name += &format!(" beside={connections}x{size}"),
            Scene::Many { files } => name += &format!(" files={files}"),
            Scene::HalfLoad => name += " half-load",
            Scene::Share { percent } => name += &format!(" share={percent}"),
            Scene::Idle => name += " idle",
        }
        name
    }

    /// Estimated time of one measurement.
    pub(crate) fn estimate(&self) -> Duration {
        match self.extent {
            Extent::Time(time) => time,
            // About 1 GB/s and 1 ms per request; for the progress bar only.
            Extent::Requests(requests) => Duration::from_nanos(self.size * requests) + Duration::from_millis(requests),
        }
    }
}

/// As in a cell's name and on the command line.
pub fn suite_name(suite: Suite) -> String {
    serde_json::to_value(suite).ok().and_then(|value| value.as_str().map(str::to_owned)).expect("a suite is a word")
}

/// Longer than any response takes on a healthy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Several requests on each connection.
const SMOKE_REQUESTS: u64 = 40;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

/// The arms that most studies compare.
fn both_servers() -> Vec<String> {
    ["user", "kernel", "auto", "nginx", "nginx-ktls", "nic"].map(str::to_owned).into()
}

/// [`both_servers`], and further arms.
fn both_servers_and(others: &[&str]) -> Vec<String> {
    both_servers().into_iter().chain(others.iter().map(|&arm| arm.to_owned())).collect()
}

/// A duration. At the smoke scale it is a number of requests, so that every machine completes some.
fn extent(scale: Scale, time: f64) -> Extent {
    if scale == Scale::Smoke { Extent::Requests(SMOKE_REQUESTS) } else { seconds(time) }
}

fn seconds(seconds: f64) -> Extent {
    Extent::Time(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SCALES: [Scale; 4] = [Scale::Smoke, Scale::Quick, Scale::Default, Scale::Full];

    #[test]
    fn names_are_unique_and_as_on_the_command_line() {
        for study in StudyName::ALL {
            assert_eq!(study.to_possible_value().expect("none is hidden").get_name(), study.name());
            for scale in SCALES {
                let cells = study.study(scale).cells;
                let names: HashSet<String> = cells.iter().map(Cell::name).collect();
                assert_eq!(names.len(), cells.len(), "{} {scale:?}", study.name());
                assert!(!cells.is_empty());
            }
        }
    }

    /// All conditions of a cell, for a comparison with the published ones.
    fn said(cell: &Cell) -> String {
        let extent = match cell.extent {
            Extent::Time(time) => format!("{} s", time.as_secs_f64()),
            Extent::Requests(requests) => format!("{requests} requests"),
        };
        format!("{} threads={} {:?} {extent}", cell.name(), cell.threads, cell.read)
    }

    #[track_caller]
    fn expect(study: StudyName, scale: Scale, rounds: u32, cells: &[String]) {
        let study = study.study(scale);
        assert_eq!(study.rounds, rounds);
        let is: Vec<String> = study.cells.iter().map(said).collect();
        for (is, expected) in is.iter().zip(cells) {
            assert_eq!(is, expected);
        }
        assert_eq!(is.len(), cells.len());
    }

    const K: u64 = 1024;

    #[test]
    fn nginx_article_has_exactly_its_parameters() {
        let cell = "size=1073741824 calls=unlimited connections=1 suite=aes256-gcm threads=1 Decrypt 1 requests";
        expect(StudyName::NginxArticle, Scale::Default, 10, &[cell.to_owned()]);
        expect(StudyName::NginxArticle, Scale::Full, 100, &[cell.to_owned()]);
    }

    #[test]
    fn size_by_calls_has_exactly_its_parameters() {
        let mut cells = Vec::new();
        for size in [K, 8 * K, 64 * K, 128 * K, 1024 * K, 8192 * K, 65536 * K] {
            for calls in ["1", "10", "20", "50", "100", "500", "2000", "unlimited"] {
                cells.push(format!("size={size} calls={calls} connections=4 suite=aes256-gcm threads=4 Drain 10 s"));
            }
        }
        expect(StudyName::SizeByCalls, Scale::Full, 5, &cells);
    }

    #[test]
    fn netdev_has_exactly_its_parameters() {
        let cell = |size: u64, calls: &str| {
            format!("size={size} calls={calls} connections=2 suite=tls12-aes128-gcm threads=2 Drain 25 s")
        };
        let sizes =
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384, 131_072, 1_048_576].map(|kb| cell(kb * K, "1000"));
        let mut cells = Vec::from(sizes);
        for size in [K, 16 * K, 128 * K] {
            cells.extend(["1", "10", "100", "10000", "unlimited"].map(|calls| cell(size, calls)));
        }
        expect(StudyName::Netdev, Scale::Full, 5, &cells);
        assert!(StudyName::Netdev.study(Scale::Full).setup_cost);
    }

    #[test]
    fn container_has_exactly_its_parameters() {
        let cell = |size: u64, workers: u64, time: &str| {
            format!("size={size} calls=unlimited connections={workers} suite=aes128-gcm threads=1 Decrypt {time}")
        };
        let cells =
            |few, many, time| [cell(10_240 * K, few, time), cell(1024 * K, few, time), cell(512 * K, many, time)];
        expect(StudyName::Container, Scale::Full, 5, &cells(500, 1500, "30 s"));
        expect(StudyName::Container, Scale::Default, 5, &cells(500, 1500, "10 s"));
        expect(StudyName::Container, Scale::Quick, 5, &cells(50, 150, "1 s"));
    }

    #[test]
    fn crossover_has_exactly_its_parameters() {
        let mut cells = Vec::new();
        for suite in ["aes128-gcm", "aes256-gcm", "chacha20-poly1305", "tls12-aes128-gcm", "tls12-aes256-gcm"] {
            for calls in ["1", "10", "100", "unlimited"] {
                for size in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map(|kb| kb * K) {
                    cells.push(format!("size={size} calls={calls} connections=4 suite={suite} threads=1 Drain 3 s"));
                }
            }
        }
        expect(StudyName::Crossover, Scale::Full, 7, &cells);
        assert!(StudyName::Crossover.study(Scale::Default).rounds >= 5, "an interval takes five rounds");
    }

    #[test]
    fn peers_and_deployed_have_exactly_their_parameters() {
        let cell = |size: u64, calls: &str, connections: u64, rest: &str, extent: &str| {
            format!(
                "size={size} calls={calls} connections={connections} suite=aes128-gcm{rest} threads=1 Drain {extent}"
            )
        };
        let mut peers: Vec<String> = [1, 16, 64, 128, 1024].map(|kb| cell(kb * K, "unlimited", 64, "", "2 s")).into();
        peers.extend([1, 16].map(|kb| cell(kb * K, "unlimited", 64, " half-load", "2 s")));
        peers.push(cell(K, "1", 64, "", "2 s"));
        peers.push(cell(K, "1", 64, " resume", "2 s"));
        peers.push(cell(K, "unlimited", 64, " beside=1x67108864", "2 s"));
        peers.push(cell(K, "1", 1000, " idle", "1000 requests"));
        expect(StudyName::Peers, Scale::Default, 7, &peers);
        let deployed = [
            cell(K, "unlimited", 64, "", "2 s"),
            cell(16 * K, "unlimited", 64, "", "2 s"),
            cell(4 * K, "unlimited", 64, " files=100000", "2 s"),
            cell(K, "unlimited", 64, " half-load", "2 s"),
            cell(16 * K, "unlimited", 64, " half-load", "2 s"),
            cell(1024 * K, "unlimited", 2, "", "2 s"),
            cell(65536 * K, "unlimited", 2, "", "2 s"),
        ];
        expect(StudyName::Deployed, Scale::Default, 7, &deployed);
    }

    /// Studies that compare times have the rounds that a claim takes.
    #[test]
    fn every_scale_of_a_published_study_may_claim_something() {
        for study in StudyName::PUBLISHED {
            for scale in [Scale::Quick, Scale::Default, Scale::Full] {
                let rounds = study.study(scale).rounds;
                assert!(rounds as usize >= crate::statistics::CLAIM_ROUNDS, "{} {scale:?}: {rounds}", study.name());
            }
        }
        assert_eq!(StudyName::NginxArticle.study(Scale::Full).rounds, 100);
    }

    #[test]
    fn a_larger_scale_takes_longer() {
        for study in StudyName::ALL {
            let times = SCALES.map(|scale| {
                let study = study.study(scale);
                study.cells.iter().map(Cell::estimate).sum::<Duration>() * study.rounds
            });
            assert!(times.is_sorted(), "{}: {times:?}", study.name());
            assert!(times[0] < Duration::from_secs(1), "{}: {:?}", study.name(), times[0]);
            assert!(times[1] < Duration::from_secs(16), "{}: {:?}", study.name(), times[1]);
        }
    }
}
