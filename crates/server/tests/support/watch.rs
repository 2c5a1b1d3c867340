//! The listener for monitoring, and a strict reader of its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use sealion_testkit::PATIENCE;
use sealion_testkit::server::Server;

use super::{Site, wait_for_message};

/// A server with its listener for metrics.
pub(crate) struct Watched {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Watched {
    /// Seals in user space.
    #[track_caller]
    pub(crate) fn serve(site: &Site, more: &[&str]) -> Self {
        Self::of(site.serve_from_user_space(&[&["--metrics", "127.0.0.1:0", "--access-log", "off"], more].concat()))
    }

    /// Finds the listener of a server that has one.
    #[track_caller]
    pub(crate) fn of(server: Server) -> Self {
        let line = wait_for_message(&server, "metrics on http://");
        let (_, rest) = line.split_once("http://").expect("the line was chosen for it");
        let address = rest.split('/').next().expect("there is a first").parse().expect("an address");
        Self { server, address }
    }

    /// Status and body of a GET.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, "")
    }

    #[track_caller]
    pub(crate) fn get_with(&self, path: &str, fields: &str) -> (u16, String) {
        get(self.address, path, fields)
    }

    #[track_caller]
    pub(crate) fn scrape(&self) -> Scrape {
        scrape(self.address)
    }
}

#[track_caller]
pub(crate) fn scrape(address: SocketAddr) -> Scrape {
    let (status, body) = get(address, "/metrics", "");
    assert_eq!(status, 200, "{body}");
    Scrape::parse(&body)
}

#[track_caller]
fn get(address: SocketAddr, path: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// The content of `/metrics`.
pub(crate) struct Scrape {
    /// Names with their types.
    pub(crate) families: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    /// Reads the text format, version 0.0.4, and takes no liberties.
    ///
    /// # Panics
    /// At whatever is not as it should be.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut scrape = Scrape { families: BTreeMap::new(), samples: BTreeMap::new() };
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(line);
            assert!(help.len() > 5 && help.ends_with('.'), "{line}");
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(line);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_of_name) && !name.starts_with(|first: char| first.is_ascii_digit()), "{name}");
            assert!(scrape.families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
            let mut samples = 0;
            let mut histograms: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
                assert!(value >= 0.0 && value.is_finite(), "{line}");
                let (sample, labels) = match series.split_once('{') {
                    Some((sample, labels)) => (sample, labels.strip_suffix('}').expect(line)),
                    None => (series, ""),
                };
                let labels = read_labels(labels);
                match (kind, sample.strip_prefix(name)) {
                    ("histogram", Some("_bucket")) => {
                        let (_, le) = labels.iter().find(|(name, _)| name == "le").expect(line);
                        let others = labels.iter().filter(|(name, _)| name != "le");
                        let others: Vec<_> = others.map(|(name, value)| format!("{name}=\"{value}\"")).collect();
                        let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().expect(line) };
                        histograms.entry(others.join(",")).or_default().push((bound, value));
                    }
                    ("histogram", Some("_sum" | "_count")) => {}
                    ("counter" | "gauge", Some("")) => {}
                    _ => panic!("{line} is no sample of {name}"),
                }
                assert!(scrape.samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
                samples += 1;
            }
            assert!(samples > 0, "{name} has no sample");
            for (labels, buckets) in histograms {
                assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let (last, all) = *buckets.last().expect("there are buckets");
                assert_eq!((last, all), (f64::INFINITY, scrape.get(&format!("{name}_count{labels}"))), "{name}");
            }
        }
        scrape
    }

    /// A series, as it is written.
    #[track_caller]
    pub(crate) fn get(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.samples))
    }

    /// The values of all series.
    pub(crate) fn samples(&self) -> &BTreeMap<String, f64> {
        &self.samples
    }

    /// Whether there is one.
    pub(crate) fn has(&self, series: &str) -> bool {
        self.samples.contains_key(series)
    }

    /// The sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let of_name = |series: &str| series.split('{').next() == Some(name);
        self.samples.iter().filter(|(series, _)| of_name(series)).map(|(_, value)| value).sum()
    }

    /// The family of a name that a query can use. A name without samples here is a family of its own.
    pub(crate) fn family<'a>(&self, name: &'a str) -> &'a str {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        of_histogram.filter(|family| self.families.contains_key(*family)).unwrap_or(name)
    }

    /// Every name that a query can use.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.samples.keys().map(|series| series.split('{').next().unwrap_or(series).to_owned()).collect()
    }
}

fn read_labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect(text);
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{text}");
        let end = value.find('"').expect(text);
        assert!(!value[..end].contains('\\'), "no label of ours needs escaping: {text}");
        labels.push((name.to_owned(), value[..end].to_owned()));
        rest = &value[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) => more,
            None => {
                assert!(rest.is_empty(), "{text}");
                rest
            }
        };
    }
    labels
}
