//! Responses that are stored and sent again. The origin of each test counts what reaches it.

mod damage;
mod disk;
mod ending;
mod fleet;
mod kill;
mod orders;
mod queries;
mod replaced;
mod reuse;
mod rewritten;
mod room;
mod searches;
mod security;
mod sharing;
mod slices;
mod spellings;
mod trouble;
mod warm;
mod withdrawn;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Server;
use tempfile::TempDir;

use crate::support::config::Config;
use crate::support::upstream::{Received, Upstream};
use crate::support::{Site, wait_for_cache};

/// A server with a cache in front of an origin.
struct Cached {
    site: Site,
    _scratch: TempDir,
    directory: PathBuf,
    origin: Upstream,
    /// Further keys of `[cache]` and of the rule's `cache`.
    keys: (&'static str, &'static str),
    /// The path of the rule; all others are forwarded without a cache.
    path: &'static str,
    /// A further route, before the rule.
    more: &'static str,
    server: Option<Server>,
}

impl Cached {
    #[track_caller]
    fn new(origin: Upstream) -> Self {
        Self::with(origin, "", "")
    }

    /// `table`: further keys of `[cache]`. `rule`: the keys of the rule's `cache`.
    #[track_caller]
    fn with(origin: Upstream, table: &'static str, rule: &'static str) -> Self {
        let mut cached = Self::stopped(origin, table, rule);
        cached.restart();
        cached
    }

    /// For this path alone; others are forwarded too.
    #[track_caller]
    fn below(path: &'static str, origin: Upstream, rule: &'static str) -> Self {
        let mut cached = Self { path, ..Self::stopped(origin, "", rule) };
        cached.restart();
        cached
    }

    fn stopped(origin: Upstream, table: &'static str, rule: &'static str) -> Self {
        let scratch = TempDir::new().expect("a directory");
        let directory = scratch.path().join("cache");
        Cached {
            site: Site::new(),
            _scratch: scratch,
            directory,
            origin,
            keys: (table, rule),
            path: "/",
            more: "",
            server: None,
        }
    }

    /// Stops the server in order, if it runs, and starts another.
    #[track_caller]
    fn restart(&mut self) {
        self.restart_without_waiting();
        wait_for_cache(self.server(), &self.directory);
    }

    /// The same, without waiting until the server stores responses.
    #[track_caller]
    fn restart_without_waiting(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.signal(Signal::TERM);
            server.wait();
        }
        self.server = Some(self.config().serve_from_user_space());
    }

    fn config(&self) -> Config {
        let (table, rule) = self.keys;
        let cached = format!("proxy = {{ to = 'app', cache = {{ {rule} }} }}");
        let keys = match self.path {
            "/" if self.more.is_empty() => cached,
            "/" => format!("{cached}\nroute = [{}]", self.more),
            path => format!("proxy = {{ to = 'app' }}\nroute = [{{ path = '{path}', {cached} }}]"),
        };
        let config = self.site.config(&format!("default = true\n{keys}"));
        let path = self.directory.display();
        let tables = format!(
            "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{path}']\n{table}\n",
            self.origin.url()
        );
        config.table(&tables)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// A GET over a connection of its own.
    #[track_caller]
    fn get(&self, target: &str, fields: &[(&str, &str)]) -> Response {
        self.ask("GET", target, fields)
    }

    #[track_caller]
    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        let mut client = self.site.connect(self.server());
        client.send(http::head(method, target, fields).as_bytes()).expect("the request leaves");
        http::read_response(&mut client, method).expect("a response")
    }

    /// Requests that reached the origin.
    fn fetches(&self) -> usize {
        self.origin.requests().len()
    }
}

/// An origin that answers each request with another body, and with these fields.
fn counting(fields: &'static str) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_| {
        let body = format!("body {}", count.fetch_add(1, Ordering::Relaxed));
        answer(200, fields, body.as_bytes())
    })
}

/// An answer of an origin. `fields`: lines that end with CRLF.
fn answer(status: u16, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Status\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The word of the cache in Cache-Status: `hit`, or why the request was forwarded.
fn status(response: &Response) -> String {
    let value = response.field("cache-status").unwrap_or("none").to_owned();
    let word = value.split(';').nth(1).unwrap_or(&value).trim();
    word.trim_start_matches("fwd=").to_owned()
}

fn has_field(request: &Received, name: &str) -> bool {
    !request.all(name).is_empty()
}
