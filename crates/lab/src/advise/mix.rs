//! The traffic of a log: a few classes of sizes, requests on a connection, protocols, rate.

use std::collections::HashMap;

use super::log::{Entry, parse};
use crate::load::{Extent, Protocol, Suite};
use crate::study::Cell;

/// The traffic of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Classes of responses by ascending size.
    pub classes: Vec<Class>,
    /// Responses that were counted.
    pub responses: u64,
    /// Lines that could not be read.
    pub skipped: u64,
    /// Responses without TLS, which are left out.
    pub plain: u64,
    /// Requests on a connection, in the mean.
    pub calls: f64,
    /// Whether the log names connections. If not, requests of one address are taken for one connection.
    pub knows_connections: bool,
    /// The share of HTTP/2.
    pub http2: f64,
    /// The most frequent suite, or the default where the log has none.
    pub suite: Suite,
    /// Responses in a second, in the mean; `None`: the log has no times.
    pub rate: Option<f64>,
}

/// Responses of similar size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Bytes of the body that stands for them: their mean.
    pub size: u64,
    /// Their share of all responses.
    pub share: f64,
    /// Responses of this size that one of theirs costs; above 1 for bodies larger than [`LARGEST`].
    pub weight: f64,
}

/// Reads a log. `calls`: requests on a connection, if the operator knows better.
///
/// # Errors
/// No line has the size of a response.
pub fn read(text: impl Iterator<Item = String>, calls: Option<f64>) -> Result<Mix, String> {
    let (mut entries, mut skipped, mut plain) = (Vec::new(), 0, 0);
    for line in text {
        match parse(&line) {
            None if line.trim().is_empty() => {}
            None => skipped += 1,
            Some(entry) if entry.has_tls == Some(false) => plain += 1,
            Some(entry) => entries.push(entry),
        }
    }
    if entries.is_empty() {
        return Err(format!(
            "no line of the log is a response with TLS and its bytes ({skipped} lines of another format, {plain} without TLS): \
             logfmt, json and combined are read, with the fields of docs/logs.md"
        ));
    }
    let responses = entries.len() as u64;
    let known = entries.iter().filter_map(|entry| entry.is_http2).count();
    let http2 = entries.iter().filter(|entry| entry.is_http2 == Some(true)).count();
    let knows_connections = entries.iter().all(|entry| entry.names_connection);
    Ok(Mix {
        classes: classes(&entries),
        responses,
        skipped,
        plain,
        calls: calls.unwrap_or_else(|| responses as f64 / connections(&entries) as f64),
        knows_connections: knows_connections || calls.is_some(),
        http2: if known > 0 { http2 as f64 / known as f64 } else { 0.0 },
        suite: suite(&entries),
        rate: rate(&entries),
    })
}

impl Mix {
    pub(super) fn join_equal_sizes(&mut self) {
        join_equal_sizes(&mut self.classes);
    }

    /// The cells that stand for the mix: each class over HTTP/1.1 and over HTTP/2, where the log has them.
    pub fn cells(&self, extent: Extent) -> Vec<Cell> {
        let calls = (self.calls.round() as u64).max(1);
        let cell =
            |class: &Class| Cell { suite: self.suite, ..Cell::closed(class.size, Some(calls), CONNECTIONS, extent) };
        let by_http1 = self.classes.iter().map(cell).filter(|_| self.http2 < 1.0 - NEGLIGIBLE);
        // A load by HTTP/2 has no limit of requests on a connection.
        let by_http2 =
            |class: &Class| Cell { calls: None, protocol: Protocol::Http2 { streams: STREAMS }, ..cell(class) };
        let by_http2 = self.classes.iter().map(by_http2).filter(|_| self.http2 > NEGLIGIBLE);
        by_http1.chain(by_http2).collect()
    }

    /// How often the requests of a cell occur for each response of the mix.
    pub fn weight(&self, cell: &Cell) -> f64 {
        let class = self.classes.iter().find(|class| class.size == cell.size);
        let protocol = match cell.protocol {
            _ if self.http2 <= NEGLIGIBLE || self.http2 >= 1.0 - NEGLIGIBLE => 1.0,
            Protocol::Http1 => 1.0 - self.http2,
            _ => self.http2,
        };
        class.map_or(0.0, |class| class.share * class.weight) * protocol
    }
}

/// At most [`CLASSES`] classes: powers of two, of which the rarest by bytes and number join their neighbours.
fn classes(entries: &[Entry]) -> Vec<Class> {
    let mut sums: Vec<(u64, u128)> = Vec::new();
    let mut powers: HashMap<u32, (u64, u128)> = HashMap::new();
    for entry in entries {
        let power = powers.entry(64 - entry.bytes.leading_zeros()).or_default();
        *power = (power.0 + 1, power.1 + u128::from(entry.bytes));
    }
    let mut keys: Vec<u32> = powers.keys().copied().collect();
    keys.sort_unstable();
    sums.extend(keys.iter().map(|key| powers[key]));
    let all_bytes: f64 = sums.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>().max(1.0);
    let all = entries.len() as f64;
    // Both weigh: small responses cost by their number, large ones by their bytes.
    let weight = |(count, bytes): &(u64, u128)| *count as f64 / all + *bytes as f64 / all_bytes;
    while sums.len() > CLASSES {
        let least = (0..sums.len()).min_by(|a, b| weight(&sums[*a]).total_cmp(&weight(&sums[*b]))).unwrap_or(0);
        let (count, bytes) = sums.remove(least);
        let neighbour = least.min(sums.len() - 1);
        sums[neighbour] = (sums[neighbour].0 + count, sums[neighbour].1 + bytes);
    }
    let mut classes: Vec<Class> = sums
        .into_iter()
        .map(|(count, bytes)| {
            let mean = (bytes as f64 / count as f64).max(1.0);
            let size = rounded(mean).min(LARGEST);
            Class { size, share: count as f64 / all, weight: (mean / size as f64).max(1.0) }
        })
        .collect();
    join_equal_sizes(&mut classes);
    classes
}

/// Two means may be one size.
fn join_equal_sizes(classes: &mut Vec<Class>) {
    classes.sort_by_key(|class| class.size);
    classes.dedup_by(|other, class| {
        let is_same = other.size == class.size;
        if is_same {
            let share = class.share + other.share;
            class.weight = (class.weight * class.share + other.weight * other.share) / share;
            class.share = share;
        }
        is_same
    });
}

/// To two digits, so that runs share their files.
fn rounded(size: f64) -> u64 {
    let unit = 10f64.powf((size.log10().floor() - 1.0).max(0.0));
    ((size / unit).round() * unit).max(1.0) as u64
}

/// Connections: a client's requests belong to one unless they are further apart than servers keep a connection open.
fn connections(entries: &[Entry]) -> usize {
    let mut last: HashMap<&str, Option<f64>> = HashMap::new();
    let mut count = 0;
    for entry in entries {
        let before = last.insert(&entry.client, entry.time);
        let is_new = match (before, entry.time) {
            (None, _) => true,
            (Some(Some(before)), Some(now)) => now - before > KEPT_OPEN,
            _ => false,
        };
        count += usize::from(is_new);
    }
    count.max(1)
}

fn suite(entries: &[Entry]) -> Suite {
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    for entry in entries.iter().filter(|entry| !entry.suite.is_empty()) {
        *counts.entry((&entry.tls, &entry.suite)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(suite, _)| suite);
    match most {
        Some(("1.2", suite)) if suite.contains("AES_256") => Suite::Tls12Aes256Gcm,
        Some(("1.2", suite)) if suite.contains("AES_128") => Suite::Tls12Aes128Gcm,
        Some((_, suite)) if suite.contains("CHACHA20") => Suite::Chacha20Poly1305,
        Some((_, suite)) if suite.contains("AES_256") => Suite::Aes256Gcm,
        _ => Suite::Aes128Gcm,
    }
}

fn rate(entries: &[Entry]) -> Option<f64> {
    let times = || entries.iter().filter_map(|entry| entry.time);
    let (first, last) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    (last > first).then(|| entries.len() as f64 / (last - first))
}

/// More classes take longer and change the answer little.
const CLASSES: usize = 8;

/// The largest body that is sent for a class; a larger one costs in proportion to its bytes.
pub const LARGEST: u64 = 16 << 20;

/// Connections of the replay at a time.
const CONNECTIONS: usize = 4;

/// Requests at a time on a connection with HTTP/2.
const STREAMS: usize = 8;

/// Seconds. Servers close an idle connection after 75 (nginx) or about that.
const KEPT_OPEN: f64 = 75.0;

/// A protocol with a smaller share than this is not replayed.
const NEGLIGIBLE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, port: u32, bytes: u64, rest: &str) -> String {
        let minute = format!("{:02}:{:02}", second / 60, second % 60);
        format!("time=2026-11-21T15:{minute}Z peer=192.0.2.7:{port} status=200 bytes={bytes} tls=1.3{rest} path=user")
    }

    #[test]
    fn a_log_becomes_classes_calls_protocols_and_a_rate() {
        let mut lines = Vec::new();
        for second in 0..100 {
            let http2 = if second < 25 { "HTTP/2" } else { "HTTP/1.1" };
            let rest = format!(" suite=TLS_AES_256_GCM_SHA384 protocol={http2}");
            lines.push(line(second, 1000 + second / 10, if second % 10 == 0 { 1_000_000 } else { 2_000 }, &rest));
        }
        lines.push("time=2026-11-21T15:00:00Z peer=192.0.2.7:1 bytes=5 tls=- path=plain".into());
        lines.push("something else".into());
        let mix = read(lines.into_iter(), None).expect("a mix");
        assert_eq!((mix.responses, mix.plain, mix.skipped), (100, 1, 1));
        assert_eq!(
            mix.classes.iter().map(|class| (class.size, class.share)).collect::<Vec<_>>(),
            [(2_000, 0.9), (1_000_000, 0.1)]
        );
        assert_eq!((mix.calls, mix.knows_connections, mix.http2, mix.suite), (10.0, true, 0.25, Suite::Aes256Gcm));
        assert!((mix.rate.expect("times") - 100.0 / 99.0).abs() < 1e-9);
        let cells = mix.cells(Extent::Requests(1));
        assert_eq!(cells.len(), 4, "two sizes, each by both protocols");
        let weights: f64 = cells.iter().map(|cell| mix.weight(cell)).sum();
        assert!((weights - 1.0).abs() < 1e-9, "{weights}");
        assert!(cells.iter().all(|cell| cell.protocol != Protocol::Http1 || cell.calls == Some(10)));
    }

    #[test]
    fn many_sizes_become_a_few_classes_with_all_bytes() {
        let sizes: Vec<u64> = (0..30).map(|power| 3 << power).collect();
        let mix = read(sizes.iter().map(|size| line(0, 1, *size, "")), Some(3.0)).expect("a mix");
        assert!(mix.classes.len() <= CLASSES && mix.calls == 3.0);
        let (is, was): (f64, f64) = (
            mix.classes.iter().map(|class| class.share * class.weight * class.size as f64).sum(),
            sizes.iter().map(|size| *size as f64).sum::<f64>() / sizes.len() as f64,
        );
        assert!((is / was - 1.0).abs() < 0.05, "{is} of {was}");
        assert!(mix.classes.iter().all(|class| class.size <= LARGEST));
    }

    #[test]
    fn without_ports_connections_are_guessed_by_time() {
        let line = |time: &str, bytes: u32| {
            format!("192.0.2.7 - - [21/Nov/2026:{time} +0000] \"GET / HTTP/1.1\" 200 {bytes} \"-\" \"-\"")
        };
        let lines = [line("15:00:00", 9), line("15:00:01", 9), line("15:02:00", 9)];
        let mix = read(lines.into_iter(), None).expect("a mix");
        assert_eq!((mix.calls, mix.knows_connections), (1.5, false));
    }

    #[test]
    fn a_log_of_another_format_is_refused() {
        let why = read(["a", "b"].map(str::to_owned).into_iter(), None).unwrap_err();
        assert!(why.contains("2 lines of another format") && why.contains("combined"), "{why}");
    }
}
