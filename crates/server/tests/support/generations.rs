//! A load of the cache whose responses can be judged: each body says of which URL and generation it is, and its content follows from both.
//!
//! The origin has a generation of each URL. A purge that was acknowledged sets the least generation that a later request may get.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sealion_testkit::http::{self, Response};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Client, Suite};

use super::upstream::{Received, Upstream};
use super::{PROGRAM, Site, content};

/// The URLs `/0`, `/1` …, and what is right for each.
pub(crate) struct Generations {
    urls: Box<[Url]>,
    /// Whole bodies that were right, and how many of them were stored ones.
    checked: AtomicUsize,
    stored: AtomicUsize,
    /// Purges that were acknowledged.
    purged: AtomicUsize,
}

#[derive(Default)]
struct Url {
    /// What the origin has.
    current: AtomicU64,
    /// The least that a request may get from now on.
    least: AtomicU64,
}

/// What a load and its checks came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) checked: usize,
    pub(crate) stored: usize,
    pub(crate) purged: usize,
}

impl Generations {
    pub(crate) fn new() -> Arc<Self> {
        let urls = (0..URLS).map(|_| Url::default()).collect();
        Arc::new(Self { urls, checked: AtomicUsize::new(0), stored: AtomicUsize::new(0), purged: AtomicUsize::new(0) })
    }

    pub(crate) fn tally(&self) -> Tally {
        let [checked, stored, purged] =
            [&self.checked, &self.stored, &self.purged].map(|count| count.load(Ordering::Relaxed));
        Tally { checked, stored, purged }
    }

    /// The origin: bodies with a length, in chunks, stale on arrival, and with variants.
    pub(crate) fn origin(self: &Arc<Self>) -> Upstream {
        let all = Arc::clone(self);
        Upstream::answering(move |request| all.answer(request))
    }

    fn answer(&self, request: &Received) -> Vec<u8> {
        let number: usize =
            request.line().rsplit_once('/').and_then(|(_, number)| number.parse().ok()).expect("a number");
        let generation = self.urls[number].current.load(Ordering::SeqCst);
        let etag = etag(number, generation);
        let kind = match number % 4 {
            // Validations append to the stored file.
            1 => "Age: 2000\r\n",
            3 => "Vary: X-Variant\r\n",
            _ => "",
        };
        let fields =
            format!("Cache-Control: max-age=1000\r\nETag: {etag}\r\nCache-Tag: tag-{}\r\n{kind}", number % TAGS);
        if request.all("if-none-match") == [etag.as_str()] {
            return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
        }
        let body = body(number, generation);
        if number % 4 != 2 {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
            return [head.as_bytes(), &body].concat();
        }
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for part in body.chunks(100_003) {
            bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }

    /// Asks for everything that is stored, and for nothing else.
    #[track_caller]
    pub(crate) fn sweep(&self, site: &Site, server: &Server) {
        let mut client = site.connect(server);
        for number in 0..self.urls.len() {
            let fields = [("Cache-Control", "only-if-cached, max-stale"), ("X-Variant", "0")];
            self.ask(&mut client, number, &fields).expect("the server runs");
        }
    }

    /// Asks and purges from several clients until `end` has returned, which gets control of the server after `time`. Before, no connection may
    /// break.
    pub(crate) fn load(&self, site: &Site, server: &mut Server, time: Duration, end: impl FnOnce(&mut Server)) {
        let (address, pid) = (server.address(), server.pid());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let is_over = &is_over;
                scope.spawn(move || self.read(site, address, reader, is_over));
            }
            scope.spawn(|| self.purge(site, address, pid, &is_over));
            thread::sleep(time);
            // An acknowledgement that comes from now on counts for nothing.
            is_over.store(true, Ordering::SeqCst);
            end(server);
            server.signal(Signal::KILL);
            server.wait();
        });
    }

    fn read(&self, site: &Site, address: SocketAddr, reader: usize, is_over: &AtomicBool) {
        let mut random = Random::new();
        until_over(site, address, is_over, |client| {
            let number = random.below(URLS);
            let variant = reader.to_string();
            self.ask(client, number, &[("X-Variant", &variant)])
        });
    }

    fn purge(&self, site: &Site, address: SocketAddr, pid: u32, is_over: &AtomicBool) {
        let mut random = Random::new();
        until_over(site, address, is_over, |client| {
            thread::sleep(Duration::from_millis(random.below(10) as u64));
            if random.below(20) == 0 {
                let tag = random.below(TAGS);
                let of_tag = || (0..URLS).filter(|number| number % TAGS == tag);
                let made: Vec<_> = of_tag().map(|number| (number, self.renew(number))).collect();
                let mut command = Command::new(PROGRAM);
                command.args(["purge", "--tag", &format!("tag-{tag}"), "--pid", &pid.to_string()]);
                // Until the server owns the directory, it refuses.
                if command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                    self.acknowledged(&made, is_over);
                }
                return Ok(());
            }
            let number = random.below(URLS);
            let made = [(number, self.renew(number))];
            let response = http::request(client, "PURGE", &format!("/{number}"), &[])?;
            assert_eq!(response.status, 200, "PURGE /{number}");
            self.acknowledged(&made, is_over);
            Ok(())
        });
    }

    /// The origin has another body from now on. Returns its generation.
    fn renew(&self, number: usize) -> u64 {
        self.urls[number].current.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn acknowledged(&self, made: &[(usize, u64)], is_over: &AtomicBool) {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        for (number, generation) in made {
            self.urls[*number].least.fetch_max(*generation, Ordering::SeqCst);
        }
        self.purged.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for a URL and judges what comes. An error is a response that visibly broke off.
    fn ask(&self, client: &mut Client, number: usize, fields: &[(&str, &str)]) -> io::Result<()> {
        let least = self.urls[number].least.load(Ordering::SeqCst);
        let target = format!("/{number}");
        let response = http::request(client, "GET", &target, fields)?;
        if response.status == 504 && fields.iter().any(|(_, value)| value.contains("only-if-cached")) {
            return Ok(());
        }
        self.judge(&response, number, least);
        // Of what is stored, a part may be asked for too.
        if is_stored(&response) && number.is_multiple_of(3) {
            let (start, end) = (response.body.len() / 3, response.body.len() / 2);
            let range = format!("bytes={start}-{end}");
            let part = http::request(client, "GET", &target, &[fields, &[("Range", &range)]].concat())?;
            match part.status {
                206 => {
                    let generation = generation(&part, number);
                    assert!(generation >= least, "/{number}: a part of {generation}, purged before {least}");
                    assert!(part.body == body(number, generation)[start..=end], "/{number}: a wrong part");
                }
                // It was replaced meanwhile by one in chunks, whose length is not known yet.
                200 => self.judge(&part, number, least),
                // It was evicted meanwhile.
                504 => {}
                status => panic!("/{number}: status {status} for {range}"),
            }
        }
        Ok(())
    }

    fn judge(&self, response: &Response, number: usize, least: u64) {
        let current = self.urls[number].current.load(Ordering::SeqCst);
        let fields = &response.fields;
        assert_eq!(response.status, 200, "/{number}: {fields:?}");
        let generation = generation(response, number);
        assert!(
            (least..=current).contains(&generation),
            "/{number}: a body of generation {generation}, where {least} to {current} are right: {fields:?}"
        );
        let expected = body(number, generation);
        assert_eq!(response.body.len(), expected.len(), "/{number}: a body that was cut, or too long: {fields:?}");
        assert!(response.body == expected, "/{number}: a wrong body of generation {generation}: {fields:?}");
        self.checked.fetch_add(1, Ordering::Relaxed);
        if is_stored(response) {
            self.stored.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Calls `ask` again and again, with a new connection now and then, until the connection breaks, which it may after the end alone.
fn until_over(
    site: &Site,
    address: SocketAddr,
    is_over: &AtomicBool,
    mut ask: impl FnMut(&mut Client) -> io::Result<()>,
) {
    let check = |error: io::Error| assert!(is_over.load(Ordering::SeqCst), "a connection broke: {error}");
    loop {
        let mut client = match site.connector(Suite::TLS13).try_connect(address) {
            Ok(client) => client,
            Err(error) => return check(error),
        };
        for _ in 0..50 {
            if let Err(error) = ask(&mut client) {
                return check(error);
            }
        }
    }
}

fn etag(number: usize, generation: u64) -> String {
    format!("\"{number}-{generation}\"")
}

/// The generation that a response says it has.
#[track_caller]
fn generation(response: &Response, number: usize) -> u64 {
    let etag = response.field("etag").expect("a validator").trim_matches('"');
    let (of, generation) = etag.split_once('-').expect("a number and a generation");
    assert_eq!(of.parse(), Ok(number), "/{number}: a response of another URL");
    generation.parse().expect("a generation")
}

fn is_stored(response: &Response) -> bool {
    response.field("cache-status").is_some_and(|status| status.contains("; hit"))
}

/// 1 kB to 4 MB. No two generations of a URL are alike, and no two URLs.
fn body(number: usize, generation: u64) -> Vec<u8> {
    let length = (1000 << (number % 13)) + generation % 101;
    let start = number as u64 * 7919 + generation * 13;
    let mut body = format!("/{number} {generation} ").into_bytes();
    body.extend_from_slice(&content::bytes(start..start + length));
    body
}

/// Numbers that differ from run to run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        Self(now.as_nanos() as u64 | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        // xorshift64 (Marsaglia, 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

/// How often a test does its worst: as the environment says, or as fits into the suite.
pub(crate) fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number"))
}

/// Prints how far a long run has come.
pub(crate) fn progress(began: Instant, n: usize, of: usize, tally: Tally) {
    if n.is_multiple_of(50) {
        println!("{n} of {of} in {} s: {tally:?}", began.elapsed().as_secs());
    }
}

const URLS: usize = 52;
const TAGS: usize = 5;
const READERS: usize = 4;
