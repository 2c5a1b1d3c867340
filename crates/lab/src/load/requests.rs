//! The requests of a load: all the same, or for one of many files by Zipf's law.

use std::ops::Range;
use std::time::Instant;

use super::LoadPlan;
use super::http2::Frames;
use crate::splitmix::SplitMix64;

/// The requests of a thread, one after another.
pub(super) struct Requests {
    /// The request in plain text. With many files, the number is overwritten for each request.
    text: Vec<u8>,
    /// The ranges of target and authority in the text.
    target: Range<usize>,
    authority: Range<usize>,
    many: Option<Many>,
}

struct Many {
    /// The range of the file's number in the text.
    number: Range<usize>,
    law: Zipf,
    random: SplitMix64,
}

impl Requests {
    /// The requests of the thread `thread` of a load.
    pub(super) fn new(plan: &LoadPlan, thread: usize) -> Self {
        let name = match plan.server_name.parse() {
            Ok(std::net::IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => plan.server_name.clone(),
        };
        let (target, port) = (&plan.target, plan.address.port());
        let Some(popularity) = plan.popularity else {
            let text = format!("GET {target} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n").into_bytes();
            return Self::of(text, None);
        };
        let before = format!("GET {target}/");
        let number = before.len()..before.len() + DIGITS;
        let text = format!("{before}{} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n", file_number(0)).into_bytes();
        let random = SplitMix64::new(popularity.seed << 8 | thread as u64);
        Self::of(text, Some(Many { number, law: Zipf::new(popularity.files), random }))
    }

    fn of(text: Vec<u8>, many: Option<Many>) -> Self {
        let between = |start: &[u8], end: &[u8]| {
            let find = |from: usize, what: &[u8]| {
                text[from..].windows(what.len()).position(|at| at == what).map_or(text.len(), |at| from + at)
            };
            let at = find(0, start) + start.len();
            at..find(at, end)
        };
        let (target, authority) = (between(b"GET ", b" HTTP/1.1"), between(b"Host: ", b"\r\n"));
        Self { text, target, authority, many }
    }

    /// Puts the next request on a stream.
    pub(super) fn ask(&mut self, frames: &mut Frames, due: Instant) {
        let (authority, target) = self.next_parts();
        frames.request(authority, target, due);
    }

    /// Authority and target of the next request.
    pub(super) fn next_parts(&mut self) -> (&[u8], &[u8]) {
        let (target, authority) = (self.target.clone(), self.authority.clone());
        let text = self.next();
        (&text[authority], &text[target])
    }

    /// The next request.
    pub(super) fn next(&mut self) -> &[u8] {
        if let Some(Many { number, law, random }) = &mut self.many {
            let file = file_number(law.rank(random.unit()));
            self.text[number.clone()].copy_from_slice(file.as_bytes());
        }
        &self.text
    }
}

/// The name of one of many files.
pub(crate) fn file_number(number: usize) -> String {
    format!("{number:0DIGITS$}")
}

/// The digits of a file's name, so that all requests have the same length.
const DIGITS: usize = 6;

/// The maximum number of files that names of that length distinguish.
pub(crate) const MAX_FILES: u32 = 1_000_000;

/// Zipf's law with the exponent 1: the file of rank r, from 0, is drawn in proportion to 1 / (r + 1).
struct Zipf {
    /// The probability of a rank up to this one.
    up_to: Vec<f64>,
}

impl Zipf {
    fn new(files: u32) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=files)
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|up_to| *up_to /= sum);
        Self { up_to }
    }

    /// The rank for a number between 0 and 1.
    fn rank(&self, unit: f64) -> usize {
        self.up_to.partition_point(|up_to| *up_to <= unit).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::{Arrival, Extent, Popularity, Protocol, Read};

    fn first(popularity: Option<Popularity>, thread: usize) -> Vec<String> {
        let plan = LoadPlan {
            address: ([127, 0, 0, 1], 8443).into(),
            server_name: "localhost".into(),
            roots: None,
            target: "/x".into(),
            protocol: Protocol::Http1,
            popularity,
            threads: 1,
            connections: 1,
            calls: None,
            resume: false,
            arrival: Arrival::Closed,
            extent: Extent::Requests(1),
            read: Read::Drain,
            body_cap: None,
            suites: Vec::new(),
            timeout: Duration::from_secs(1),
            cores: Vec::new(),
        };
        let mut requests = Requests::new(&plan, thread);
        (0..50).map(|_| String::from_utf8(requests.next().to_vec()).expect("ASCII")).collect()
    }

    #[test]
    fn one_target_is_asked_for_each_time() {
        let one = "GET /x HTTP/1.1\r\nHost: localhost:8443\r\n\r\n";
        assert!(first(None, 0).iter().all(|request| request == one));
    }

    #[test]
    fn many_files_are_asked_for_in_the_order_of_the_seed() {
        let of = |seed, thread| first(Some(Popularity { files: 100, seed }), thread);
        let requests = of(1, 0);
        for request in &requests {
            let number = request
                .strip_prefix("GET /x/")
                .and_then(|rest| rest.strip_suffix(" HTTP/1.1\r\nHost: localhost:8443\r\n\r\n"));
            assert!(number.is_some_and(|number| ("000000"..="000099").contains(&number)), "{request:?}");
        }
        assert!(requests.iter().filter(|request| request.contains("/000000 ")).count() > 1, "{requests:?}");
        assert_eq!(of(1, 0), requests);
        assert_ne!(of(2, 0), requests);
        assert_ne!(of(1, 1), requests, "threads do not ask in step");
    }

    #[test]
    fn ranks_are_drawn_in_proportion_to_their_inverse() {
        let law = Zipf::new(100_000);
        let (mut random, mut drawn) = (SplitMix64::new(1), vec![0u32; 100_000]);
        for _ in 0..1_000_000 {
            drawn[law.rank(random.unit())] += 1;
        }
        // 1 / (1 + 1/2 + … + 1/100000) = 0.08271.
        for (rank, expected) in [(0, 82_711.0), (1, 41_355.0), (9, 8_271.0), (99, 827.0)] {
            let ratio = f64::from(drawn[rank]) / expected;
            assert!((0.85..1.15).contains(&ratio), "rank {rank}: {} of {expected}", drawn[rank]);
        }
        let first = drawn[..1000].iter().sum::<u32>();
        assert!((615_000..625_000).contains(&first), "{first} for the first thousand");
        assert_eq!((law.rank(0.0), law.rank(0.999_999_999_999)), (0, 99_999));
    }
}
