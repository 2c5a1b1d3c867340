//! A load for the cache whose responses can be verified: each body contains its URL and generation, from which its
//! content follows.
//!
//! The origin has a generation for each URL. A purge that was acknowledged sets the minimum generation that later
//! requests may get.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::http::{self, Response};
use crate::random::Random;
use crate::server::{Server, Signal};
use crate::upstream::{Received, Upstream};
use crate::{Client, Connector, Course, Fault, PATIENCE, content};

/// The URLs `/0`, `/1` …, and their valid generations.
pub struct Generations {
    /// The path prefix of the numbers.
    above: &'static str,
    urls: Box<[Url]>,
    counts: Counts,
}

#[derive(Default)]
struct Url {
    /// The origin's generation.
    current: AtomicU64,
    /// The minimum generation that requests may get from now on.
    least: AtomicU64,
}

#[derive(Default)]
struct Counts {
    checked: AtomicU64,
    bytes: AtomicU64,
    stored: AtomicU64,
    purged: AtomicU64,
    cut: AtomicU64,
}

/// The counts of a load and its checks.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    /// Whole bodies that were correct.
    pub checked: u64,
    /// Bytes of these bodies, and of correct parts.
    pub bytes: u64,
    /// Correct bodies that came from the cache.
    pub stored: u64,
    /// Purges that were acknowledged.
    pub purged: u64,
    /// Connections that broke visibly while that was allowed.
    pub cut: u64,
}

/// The clients of a load.
pub struct Load<'a> {
    /// Makes their connections.
    pub connector: &'a Connector,
    /// The server.
    pub address: SocketAddr,
    /// The number of reading clients.
    pub readers: usize,
    /// The purges of one more client, if any.
    pub purges: Option<Purges<'a>>,
    /// Whether a response may be cut off visibly at any time.
    pub may_cut: bool,
}

/// Purges by PURGE and by `sealion purge`.
pub struct Purges<'a> {
    /// The program.
    pub program: &'a Path,
    /// The process of the server.
    pub pid: u32,
    /// Whether PURGE may have a status other than 200. Such a purge does not count.
    pub may_be_refused: bool,
}

impl<'a> Load<'a> {
    /// Four readers and a purging client.
    pub fn new(connector: &'a Connector, server: &Server, program: &'a Path) -> Self {
        let purges = Purges { program, pid: server.pid(), may_be_refused: false };
        Self { connector, address: server.address(), readers: 4, purges: Some(purges), may_cut: false }
    }
}

impl Generations {
    /// Generation 1 of each URL.
    pub fn new() -> Arc<Self> {
        Self::beneath("")
    }

    /// As [`Self::new`], for URLs below a path without a trailing slash.
    pub fn beneath(above: &'static str) -> Arc<Self> {
        let urls = (0..URLS).map(|_| Url::default()).collect();
        Arc::new(Self { above, urls, counts: Counts::default() })
    }

    /// The counts so far.
    pub fn tally(&self) -> Tally {
        let Counts { checked, bytes, stored, purged, cut } = &self.counts;
        let [checked, bytes, stored, purged, cut] =
            [checked, bytes, stored, purged, cut].map(|count| count.load(Ordering::Relaxed));
        Tally { checked, bytes, stored, purged, cut }
    }

    /// The origin: bodies with a length, in chunks, stale on arrival, and with variants.
    pub fn origin(self: &Arc<Self>) -> Upstream {
        let all = Arc::clone(self);
        // Requests are not recorded, because there may be millions.
        Upstream::start(move |accepted| {
            while let Some(head) = accepted.head() {
                accepted.write(&all.answer(&Received { head, body: Vec::new() }));
            }
        })
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

    /// Requests every stored response with only-if-cached, and verifies it.
    ///
    /// # Errors
    /// The first fault.
    pub fn sweep(&self, connector: &Connector, address: SocketAddr) -> Result<(), Fault> {
        let mut client = connector.try_connect(address).map_err(|error| failed("a connection", &error))?;
        for number in 0..self.urls.len() {
            let fields = [("Cache-Control", "only-if-cached, max-stale"), ("X-Variant", "0")];
            match self.ask(&mut client, number, &fields)? {
                Asked::Stays => {}
                Asked::Closes => {
                    client = connector.try_connect(address).map_err(|error| failed("a connection", &error))?;
                }
                Asked::Broke(error) => return Err(failed(&format!("/{number}"), &error)),
            }
        }
        Ok(())
    }

    /// Requests and purges from several clients while `steer` runs. Before [`Course::may_break`], no connection may
    /// break.
    ///
    /// # Errors
    /// The first fault.
    pub fn load<T>(&self, load: &Load<'_>, steer: impl FnOnce(&Course) -> T) -> Result<T, Fault> {
        let course = Course::default();
        let first = Mutex::new(None);
        let note = |outcome: Result<(), Fault>| {
            if let Err(fault) = outcome {
                first.lock().expect("no panic").get_or_insert(fault);
                course.end();
            }
        };
        let steered = thread::scope(|scope| {
            // Clients also end when `steer` panics.
            let _end = course.ending();
            for reader in 0..load.readers {
                let (course, note) = (&course, &note);
                scope.spawn(move || note(self.read(load, reader, course)));
            }
            if let Some(purges) = &load.purges {
                let (course, note) = (&course, &note);
                scope.spawn(move || note(self.purge(load, purges, course)));
            }
            steer(&course)
        });
        match first.into_inner().expect("no panic") {
            Some(fault) => Err(fault),
            None => Ok(steered),
        }
    }

    /// Runs [`Self::load`] for `time`. Then `end` gets control of the server and kills it.
    ///
    /// # Errors
    /// The first fault.
    pub fn load_until_killed(
        &self,
        load: &Load<'_>,
        server: &mut Server,
        time: Duration,
        end: impl FnOnce(),
    ) -> Result<(), Fault> {
        self.load(load, |course| {
            course.run(time);
            course.may_break();
            end();
            server.signal(Signal::KILL);
            server.wait();
        })
    }

    fn read(&self, load: &Load<'_>, reader: usize, course: &Course) -> Result<(), Fault> {
        let mut random = Random::new();
        let variant = reader.to_string();
        self.until_end(load, course, |client| self.ask(client, random.below(URLS), &[("X-Variant", &variant)]))
    }

    fn purge(&self, load: &Load<'_>, purges: &Purges<'_>, course: &Course) -> Result<(), Fault> {
        let mut random = Random::new();
        self.until_end(load, course, |client| {
            thread::sleep(Duration::from_millis(random.below(10) as u64));
            if random.below(20) == 0 {
                let tag = random.below(TAGS);
                let of_tag = (0..URLS).filter(|number| number % TAGS == tag);
                let tag = format!("tag-{tag}");
                // Until the server owns the directory, it refuses purges.
                self.order_purge(purges, &["--tag", &tag], of_tag, course);
                return Ok(Asked::Stays);
            }
            let number = random.below(URLS);
            let made = [(number, self.renew(number))];
            let response = match http::request(client, "PURGE", &self.target(number), &[]) {
                Ok(response) => response,
                Err(error) => return broke(&format!("PURGE /{number}"), error),
            };
            match response.status {
                200 => self.acknowledged(&made, course),
                _ if purges.may_be_refused => {}
                status => return Err(Fault::Failed(format!("PURGE /{number}: status {status}"))),
            }
            Ok(Asked::after(&response))
        })
    }

    /// Purges everything by a command. Returns whether it succeeded.
    pub fn purge_all(&self, purges: &Purges<'_>, course: &Course) -> bool {
        self.order_purge(purges, &["--all"], 0..URLS, course)
    }

    /// Renews the URLs that `sealion purge` will remove, and runs it.
    fn order_purge(
        &self,
        purges: &Purges<'_>,
        what: &[&str],
        numbers: impl Iterator<Item = usize>,
        course: &Course,
    ) -> bool {
        let made: Vec<_> = numbers.map(|number| (number, self.renew(number))).collect();
        let mut command = Command::new(purges.program);
        command.arg("purge").args(what).args(["--pid", &purges.pid.to_string()]);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the program starts");
        if status.success() {
            self.acknowledged(&made, course);
        }
        status.success()
    }

    /// Makes the origin change a body. Returns the new generation.
    fn renew(&self, number: usize) -> u64 {
        self.urls[number].current.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn acknowledged(&self, made: &[(usize, u64)], course: &Course) {
        if course.is_breaking() {
            return;
        }
        for (number, generation) in made {
            self.urls[*number].least.fetch_max(*generation, Ordering::SeqCst);
        }
        self.counts.purged.fetch_add(1, Ordering::Relaxed);
    }

    fn target(&self, number: usize) -> String {
        format!("{}/{number}", self.above)
    }

    /// Requests a URL and verifies the response.
    fn ask(&self, client: &mut Client, number: usize, fields: &[(&str, &str)]) -> Result<Asked, Fault> {
        let least = self.urls[number].least.load(Ordering::SeqCst);
        let target = self.target(number);
        let response = match http::request(client, "GET", &target, fields) {
            Ok(response) => response,
            Err(error) => return broke(&target, error),
        };
        if response.status == 504 && fields.iter().any(|(_, value)| value.contains("only-if-cached")) {
            return Ok(Asked::after(&response));
        }
        self.judge(&response, number, least)?;
        // Requests a part of a stored response, too.
        if Asked::after(&response).stays() && is_stored(&response) && number.is_multiple_of(3) {
            let (start, end) = (response.body.len() / 3, response.body.len() / 2);
            let range = format!("bytes={start}-{end}");
            let part = match http::request(client, "GET", &target, &[fields, &[("Range", &range)]].concat()) {
                Ok(part) => part,
                Err(error) => return broke(&target, error),
            };
            match part.status {
                206 => {
                    let generation = generation(&part, number)?;
                    let whole = body(number, generation);
                    if generation < least {
                        return Err(Fault::Wrong(format!("{target}: a part of {generation}, purged before {least}")));
                    }
                    if whole.get(start..=end) != Some(&part.body) {
                        return Err(Fault::Wrong(format!("{target}: a wrong part of {generation}")));
                    }
                    self.counts.bytes.fetch_add(part.body.len() as u64, Ordering::Relaxed);
                }
                // A response in chunks has replaced it in the meantime, whose length is not known yet.
                200 => self.judge(&part, number, least)?,
                // It was evicted in the meantime.
                504 => {}
                status => return Err(Fault::Failed(format!("{target}: status {status} for {range}"))),
            }
            return Ok(Asked::after(&part));
        }
        Ok(Asked::after(&response))
    }

    fn judge(&self, response: &Response, number: usize, least: u64) -> Result<(), Fault> {
        let current = self.urls[number].current.load(Ordering::SeqCst);
        let fields = &response.fields;
        if response.status != 200 {
            return Err(Fault::Failed(format!("/{number}: status {}: {fields:?}", response.status)));
        }
        let generation = generation(response, number)?;
        if !(least..=current).contains(&generation) {
            return Err(Fault::Wrong(format!(
                "/{number}: a body of generation {generation}, where {least} to {current} are right: {fields:?}"
            )));
        }
        let expected = body(number, generation);
        if response.body != expected {
            let (came, due) = (response.body.len(), expected.len());
            let same = response.body.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            return Err(Fault::Wrong(format!(
                "/{number}: generation {generation} has {due} bytes, {came} came, {same} of them right: {fields:?}"
            )));
        }
        self.counts.checked.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(expected.len() as u64, Ordering::Relaxed);
        if is_stored(response) {
            self.counts.stored.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Calls `ask` repeatedly, with a new connection now and then, until the load ends or a connection breaks when it
    /// may.
    fn until_end(
        &self,
        load: &Load<'_>,
        course: &Course,
        mut ask: impl FnMut(&mut Client) -> Result<Asked, Fault>,
    ) -> Result<(), Fault> {
        while !course.has_ended() {
            let mut client = match load.connector.try_connect(load.address) {
                Ok(client) => client,
                Err(_) if course.is_breaking() => return Ok(()),
                Err(error) => return Err(failed("a connection", &error)),
            };
            for _ in 0..50 {
                match ask(&mut client)? {
                    Asked::Stays if course.has_ended() => break,
                    Asked::Stays => {}
                    Asked::Closes => break,
                    Asked::Broke(_) if course.is_breaking() => {
                        self.counts.cut.fetch_add(1, Ordering::Relaxed);
                        return Ok(());
                    }
                    Asked::Broke(_) if load.may_cut => {
                        self.counts.cut.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Asked::Broke(error) => return Err(failed("a connection broke", &error)),
                }
            }
        }
        Ok(())
    }
}

/// The state of a connection after a request.
enum Asked {
    Stays,
    Closes,
    /// It broke visibly.
    Broke(io::Error),
}

impl Asked {
    fn after(response: &Response) -> Self {
        let closes = response.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if closes { Self::Closes } else { Self::Stays }
    }

    fn stays(&self) -> bool {
        matches!(self, Self::Stays)
    }
}

/// Classifies an error of a connection: a timeout and a malformed response are faults, all others are visible breaks.
fn broke(what: &str, error: io::Error) -> Result<Asked, Fault> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Err(Fault::Failed(format!("{what}: nothing came for {} s", PATIENCE.as_secs())))
        }
        io::ErrorKind::InvalidData => Err(Fault::Wrong(format!("{what}: {error}"))),
        _ => Ok(Asked::Broke(error)),
    }
}

fn failed(what: &str, error: &io::Error) -> Fault {
    Fault::Failed(format!("{what}: {error}"))
}

fn etag(number: usize, generation: u64) -> String {
    format!("\"{number}-{generation}\"")
}

/// The generation stated in a response.
fn generation(response: &Response, number: usize) -> Result<u64, Fault> {
    let of_number = |etag: &str| {
        let (of, generation) = etag.trim_matches('"').split_once('-')?;
        (of.parse() == Ok(number)).then(|| generation.parse().ok())?
    };
    let found = response.field("etag").and_then(of_number);
    found.ok_or_else(|| Fault::Wrong(format!("/{number}: a response of another URL: {:?}", response.fields)))
}

fn is_stored(response: &Response) -> bool {
    response.field("cache-status").is_some_and(|status| status.contains("; hit"))
}

/// A body of 1 kB to 4 MB. All URLs and generations have different bodies.
fn body(number: usize, generation: u64) -> Vec<u8> {
    let length = (1000 << (number % 13)) + generation % 101;
    let start = number as u64 * 7919 + generation * 13;
    let mut body = format!("/{number} {generation} ").into_bytes();
    body.extend_from_slice(&content::bytes(start..start + length));
    body
}

const URLS: usize = 52;
const TAGS: usize = 5;
