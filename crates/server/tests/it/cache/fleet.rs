//! Several nodes: purges by a stream, an edge in front of shields, and nodes behind HAProxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;
use sealion_testkit::http::{self, Response};
use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Connector, Suite};
use tempfile::TempDir;

use super::disk::objects;
use super::{answer, counting};
use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, wait_for_cache, wait_for_message, wait_until};

/// A server with a cache on a port that it keeps.
struct Node {
    scratch: TempDir,
    address: SocketAddr,
    config: Config,
    pki: Arc<Pki>,
    server: Option<Server>,
}

impl Node {
    /// `upstream`: the keys of its `[[upstream]]`. `cache`: further keys of `[cache]`.
    #[track_caller]
    fn start(pki: &Arc<Pki>, upstream: &str, cache: &str) -> Self {
        let scratch = TempDir::new().expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (directory, root) = (scratch.path().join("cache"), scratch.path().join("root"));
        fs::create_dir(&root).expect("a directory");
        let tables = format!(
            "[[upstream]]\nname = 'up'\n{upstream}\n[cache]\ndirectories = ['{}']\n{cache}\n",
            directory.display()
        );
        let config = Config::within(scratch.path())
            .listen(&format!("address = '{address}'"))
            .site(&root, &[pki], "proxy = { to = 'up', cache = {} }")
            .table(&tables);
        let mut node = Node { scratch, address, config, pki: Arc::clone(pki), server: None };
        node.start_again();
        node
    }

    #[track_caller]
    fn start_again(&mut self) {
        let server = self.server.insert(self.config.serve_from_user_space());
        wait_for_cache(server, &self.scratch.path().join("cache"));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn stop(&mut self, signal: Signal) {
        let mut server = self.server.take().expect("it runs");
        server.signal(signal);
        server.wait();
    }

    #[track_caller]
    fn get(&self, target: &str, fields: &[(&str, &str)]) -> Response {
        let mut client = self.connector().connect(self.address);
        http::request(&mut client, "GET", target, &[&[("Host", "localhost")], fields].concat()).expect("an answer")
    }

    #[track_caller]
    fn body(&self, target: &str) -> String {
        String::from_utf8(self.get(target, &[]).body).expect("text")
    }

    fn connector(&self) -> Connector {
        Connector::new(&self.pki, Suite::TLS13)
    }

    fn purge(&self, arguments: &[&str]) -> Output {
        let pid = self.server().pid().to_string();
        Command::new(PROGRAM).arg("purge").args(arguments).args(["--pid", &pid]).output().expect("the program runs")
    }

    #[track_caller]
    fn purges(&self, arguments: &[&str]) {
        let output = self.purge(arguments);
        assert!(output.status.success(), "{output:?}");
    }
}

fn server_keys(url: &str) -> String {
    format!("servers = [{{ url = '{url}' }}]")
}

/// Nodes with an origin each, which counts its answers.
fn nodes<const N: usize>(redis: &Redis) -> [Node; N] {
    let pki = Arc::new(Pki::ecdsa());
    let stream = format!("purge_stream = '{}'", redis.url());
    std::array::from_fn(|_| {
        Node::start(&pki, &server_keys(&counting("Cache-Control: max-age=1000\r\nCache-Tag: news\r\n").url()), &stream)
    })
}

#[test]
fn a_purge_at_one_node_reaches_the_others() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    for purge in [&["https://localhost/a"][..], &["--tag", "news"], &["--all"]] {
        let before = [&one, &other].map(|node| node.body("/a"));
        one.purges(purge);
        // At once where it was ordered.
        assert_ne!(one.body("/a"), before[0], "{purge:?}");
        wait_until("the purge is applied", || other.body("/a") != before[1]);
    }
}

#[test]
fn a_node_that_was_away_purges_before_it_serves() {
    let redis = Redis::start();
    let [one, mut other] = nodes(&redis);
    let bodies = |node: &Node| ["/a", "/b"].map(|target| node.body(target));
    assert_eq!(bodies(&other), ["body 0", "body 1"]);
    wait_until("both are written", || objects(&other.scratch.path().join("cache")).len() == 2);
    for signal in [Signal::TERM, Signal::KILL] {
        other.stop(signal);
        other.start_again();
        assert_eq!(bodies(&other)[1], "body 1", "what was not purged is still stored");
    }
    for (signal, new) in [(Signal::TERM, "body 2"), (Signal::KILL, "body 3")] {
        wait_until("the place in the stream is written down", || {
            let place = std::fs::read_to_string(other.scratch.path().join("cache/purge-stream")).unwrap_or_default();
            place.trim() == "0-0" || redis.call(&["XREVRANGE", "purges", "+", "-", "COUNT", "1"]).contains(place.trim())
        });
        other.stop(signal);
        one.purges(&["https://localhost/a"]);
        other.start_again();
        assert_eq!(bodies(&other), [new, "body 1"]);
    }
}

#[test]
fn without_the_stream_a_node_serves_on_and_says_so_once() {
    let mut redis = Redis::start();
    let [one, other] = nodes(&redis);
    assert_eq!((one.body("/a"), other.body("/a")), ("body 0".to_owned(), "body 0".to_owned()));
    redis.stop();
    wait_for_message(other.server(), "cannot read the purge stream");
    assert_eq!(other.body("/a"), "body 0");
    let output = one.purge(&["https://localhost/a"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("order it again"), "{output:?}");
    assert_eq!(one.body("/a"), "body 1");
    assert_eq!(other.body("/a"), "body 0");
    redis.start_again();
    for node in [&one, &other] {
        wait_for_message(node.server(), "is read again");
    }
    one.purges(&["https://localhost/a"]);
    wait_until("the purge is applied", || other.body("/a") == "body 1");
    let told = other.server().lines().iter().filter(|line| line.text.contains("cannot read the purge stream")).count();
    assert_eq!(told, 1);
}

#[test]
fn where_entries_are_gone_everything_is_purged() {
    let redis = Redis::start();
    let [one, mut other] = nodes(&redis);
    one.purges(&["https://localhost/none"]);
    let place = || std::fs::read_to_string(other.scratch.path().join("cache/purge-stream")).unwrap_or_default();
    wait_until("the entry is applied", || place().len() > 5);
    assert_eq!(other.body("/a"), "body 0");
    // Trimmed while it was away, removed, and with ids from the past.
    let one_more = || one.purges(&["https://localhost/none"]);
    let changes: [(&str, &dyn Fn()); 3] = [
        ("entries that were not read are gone", &|| {
            one_more();
            one_more();
            redis.call(&["XTRIM", "purges", "MAXLEN", "1"]);
        }),
        ("older ids", &|| drop(redis.call(&["DEL", "purges"]))),
        ("entries that were not read are gone", &|| {
            one_more();
            redis.call(&["XTRIM", "purges", "MAXLEN", "0"]);
        }),
    ];
    for (n, (why, change)) in changes.into_iter().enumerate() {
        other.stop(Signal::TERM);
        change();
        other.start_again();
        wait_for_message(other.server(), why);
        assert_eq!(other.body("/a"), format!("body {}", n + 1), "{why}");
        wait_until("the place is written down", || {
            let place = std::fs::read_to_string(other.scratch.path().join("cache/purge-stream")).unwrap_or_default();
            match redis.call(&["EXISTS", "purges"]).trim() {
                "0" => place == "0-0",
                _ => redis.call(&["XINFO", "STREAM", "purges"]).contains(&place),
            }
        });
    }
}

#[test]
fn what_is_no_stream_is_refused() {
    let scratch = TempDir::new().expect("a directory");
    for (url, message) in [
        ("redis://127.0.0.1", "write for instance redis://10.0.0.9:6379/sealion-purges"),
        ("rediss://127.0.0.1/a", "write for instance"),
        ("redis://:secret@127.0.0.1/a", "purge_stream_password"),
    ] {
        let cache = format!("[cache]\ndirectories = ['c']\npurge_stream = '{url}'");
        let problems = Config::within(scratch.path()).table(&cache).problems();
        assert!(problems.contains("cache.purge_stream") && problems.contains(message), "{url}: {problems}");
        assert!(!problems.contains("secret"), "{problems}");
    }
}

/// An origin whose bodies are their path and its generation.
struct Origin {
    upstream: Upstream,
    generation: Arc<AtomicUsize>,
}

impl Origin {
    fn new() -> Self {
        let generation = Arc::new(AtomicUsize::new(0));
        let current = Arc::clone(&generation);
        let upstream = Upstream::answering(move |request| {
            let path = request.head.split(' ').nth(1).unwrap_or_default();
            let tag = format!("\"{}\"", current.load(Ordering::SeqCst));
            if request.all("if-none-match") == [tag.as_str()] {
                return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n").into_bytes();
            }
            let fields = format!("Cache-Control: max-age=1000\r\nETag: {tag}\r\n");
            answer(200, &fields, format!("{path} {}", current.load(Ordering::SeqCst)).as_bytes())
        });
        Origin { upstream, generation }
    }
}

/// Two edges in front of two shields, by the hash of the URL.
fn pair(origin: &Origin, redis: &Redis) -> ([Node; 2], [Node; 2]) {
    let pki = Arc::new(Pki::ecdsa());
    let stream = format!("purge_stream = '{}'", redis.url());
    let shields = std::array::from_fn(|_| Node::start(&pki, &server_keys(&origin.upstream.url()), &stream));
    let [a, b] = [0, 1].map(|n: usize| shields[n].address.port());
    let upstream = format!(
        "servers = [{{ url = 'https://localhost:{a}' }}, {{ url = 'https://localhost:{b}' }}]\nbalance = 'hash-uri'\nmax_fails = 1\n\
         fail_time = '1s'\ntls = {{ roots = '{}' }}",
        pki.certificate_file().display()
    );
    (std::array::from_fn(|_| Node::start(&pki, &upstream, &stream)), shields)
}

fn cache_status(response: &Response) -> Vec<String> {
    let lines = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cache-status"));
    lines.flat_map(|(_, value)| value.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn an_edge_asks_the_shield_that_has_the_url() {
    let origin = Origin::new();
    let redis = Redis::start();
    let (edges, shields) = pair(&origin, &redis);
    let fetches = || origin.upstream.requests().len();
    for n in 0..20 {
        let target = format!("/{n}");
        let first = edges[0].get(&target, &[]);
        assert_eq!((first.status, cache_status(&first).len()), (200, 2), "{:?}", first.fields);
        // The shield has it, whichever edge asks.
        let second = edges[1].get(&target, &[]);
        let status = cache_status(&second);
        assert!(status[0].contains("; hit") && status[1].contains("fwd=uri-miss"), "{status:?}");
        assert_eq!(first.body, second.body);
        assert!(second.field("age").is_some(), "{:?}", second.fields);
        assert!(cache_status(&edges[1].get(&target, &[])).last().is_some_and(|status| status.contains("; hit")));
    }
    assert_eq!(fetches(), 20);
    let stored = |node: &Node| {
        let pid = node.server().pid().to_string();
        let output = Command::new(PROGRAM).args(["cache", "--pid", &pid]).output().expect("the program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Each shield has a part.
    for shield in &shields {
        assert!(!stored(shield).contains(": 20 responses"), "{}", stored(shield));
    }
    // A validation goes through both.
    let validated = edges[0].get("/1", &[("Cache-Control", "no-cache")]);
    assert_eq!((validated.status, validated.body), (200, b"/1 0".to_vec()));
    assert_eq!(origin.upstream.last().all("if-none-match"), ["\"0\""]);
    assert_eq!(edges[0].get("/1", &[("If-None-Match", "\"0\"")]).status, 304);
    // A purge at an edge reaches shields and edges.
    origin.generation.store(1, Ordering::SeqCst);
    edges[0].purges(&["https://localhost/1"]);
    for edge in &edges {
        wait_until("the purge is applied everywhere", || edge.body("/1") == "/1 1");
    }
    assert_eq!(edges[1].body("/2"), "/2 0");
}

/// Requests that clients of several threads send while something happens.
#[derive(Default)]
struct Load {
    all: AtomicUsize,
    /// Answers that are no 200.
    failed: AtomicUsize,
    has_ended: AtomicBool,
}

impl Load {
    /// Asks by turns for 40 URLs, whose bodies have to be theirs.
    fn run(&self, mut ask: impl FnMut(usize, &str) -> Option<(u16, Vec<u8>)>) {
        for n in (0..).take_while(|_| !self.has_ended.load(Ordering::SeqCst)) {
            let path = format!("/{}", n * 7 % 40);
            match ask(n, &path) {
                Some((200, body)) => {
                    let body = String::from_utf8(body).expect("text");
                    assert!(body.starts_with(&format!("{path} ")), "{path}: {body}");
                }
                _ => drop(self.failed.fetch_add(1, Ordering::SeqCst)),
            }
            self.all.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until so many more were answered.
    fn more(&self, count: usize) {
        let before = self.all.load(Ordering::SeqCst);
        wait_until("requests are answered", || self.all.load(Ordering::SeqCst) >= before + count);
    }

    /// Says how it went: the failures, and how many requests the origin was spared.
    fn report(&self, name: &str, origin: &Origin) {
        let (all, failed) = (self.all.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst));
        let fetches = origin.upstream.requests().len();
        let spared = 100.0 - 100.0 * fetches as f64 / all as f64;
        println!("{name}: {all} requests, {failed} without 200, {fetches} fetches: {spared:.2} % from caches");
    }
}

/// Ends the load where the test fails, too.
struct Ending<'a>(&'a Load);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_shield_that_is_killed_and_comes_back_costs_no_wrong_body() {
    let origin = Origin::new();
    let redis = Redis::start();
    let (edges, mut shields) = pair(&origin, &redis);
    let load = Load::default();
    std::thread::scope(|scope| {
        let _ending = Ending(&load);
        for edge in &edges {
            let (load, connector, address) = (&load, edge.connector(), edge.address);
            scope.spawn(move || {
                let mut client: Option<Client> = None;
                load.run(|n, path| {
                    // Now and then past the edge's own cache.
                    let fields = if n % 5 == 0 { &[("Cache-Control", "no-cache")][..] } else { &[] };
                    let mut connected = client.take().or_else(|| connector.try_connect(address).ok())?;
                    let response =
                        http::request(&mut connected, "GET", path, &[&[("Host", "localhost")], fields].concat());
                    let response = response.ok()?;
                    client = Some(connected);
                    Some((response.status, response.body))
                });
            });
        }
        load.more(400);
        shields[0].stop(Signal::KILL);
        load.more(400);
        // Purged while one shield is away.
        origin.generation.store(1, Ordering::SeqCst);
        edges[1].purges(&["--all"]);
        for n in 0..40 {
            let path = format!("/{n}");
            for edge in &edges {
                wait_until("the purge is applied", || edge.body(&path) == format!("{path} 1"));
            }
        }
        shields[0].start_again();
        for n in 0..40 {
            let path = format!("/{n}");
            assert_eq!(shields[0].body(&path), format!("{path} 1"), "purged before it serves");
        }
        load.more(800);
        for n in 0..40 {
            let path = format!("/{n}");
            edges.iter().for_each(|edge| assert_eq!(edge.body(&path), format!("{path} 1")));
        }
    });
    load.report("edges and shields", &origin);
    assert_eq!(load.failed.load(Ordering::SeqCst), 0);
}

struct HaProxy(Child);

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// HAProxy as docs/fleet.md has it, but for its port and certificate: clients come without TLS.
fn haproxy(nodes: &[Node], directory: &Path) -> (HaProxy, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let roots = nodes[0].pki.certificate_file().display().to_string();
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md")).expect("a page");
    let config = page.split("```haproxy\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a configuration");
    let mut lines: Vec<String> = Vec::new();
    for line in config.lines() {
        match line.trim() {
            bind if bind.starts_with("bind ") => lines.push(format!("    bind {address}")),
            server if server.starts_with("server ") => {
                let number: usize = server
                    .split(' ')
                    .nth(1)
                    .and_then(|name| name.strip_prefix("node")?.parse().ok())
                    .expect("a number");
                let options = server.split_once("ssl ").expect("TLS").1.replace("/etc/haproxy/nodes.pem", &roots);
                lines.push(format!("    server node{number} {} ssl {options}", nodes[number - 1].address));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let file: PathBuf = directory.join("haproxy.cfg");
    std::fs::write(&file, lines.join("\n") + "\n").expect("it is written");
    let mut command = Command::new("haproxy");
    let process =
        command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let haproxy = HaProxy(process.spawn().expect("haproxy is needed: apt-get install haproxy"));
    wait_until("HAProxy listens", || TcpStream::connect(address).is_ok());
    (haproxy, address)
}

/// A GET without TLS on a connection of its own.
fn plain(address: SocketAddr, path: &str) -> Option<(u16, Vec<u8>)> {
    let mut io = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).ok()?;
    let mut said = Vec::new();
    io.read_to_end(&mut said).ok()?;
    let end = said.windows(4).position(|end| end == b"\r\n\r\n")?;
    let status = std::str::from_utf8(said.get(9..12)?).ok()?.parse().ok()?;
    Some((status, said[end + 4..].to_vec()))
}

#[test]
fn nodes_behind_haproxy_share_the_urls_and_one_may_be_killed() {
    let origin = Origin::new();
    let redis = Redis::start();
    let pki = Arc::new(Pki::ecdsa());
    let stream = format!("purge_stream = '{}'", redis.url());
    let mut nodes: [Node; 3] =
        std::array::from_fn(|_| Node::start(&pki, &server_keys(&origin.upstream.url()), &stream));
    let scratch = TempDir::new().expect("a directory");
    let (_haproxy, address) = haproxy(&nodes, scratch.path());
    wait_until("HAProxy has servers", || plain(address, "/0").is_some_and(|(status, _)| status == 200));
    let load = Load::default();
    let everything = |generation: usize| {
        for n in 0..40 {
            let path = format!("/{n}");
            let expected = Some((200, format!("{path} {generation}").into_bytes()));
            wait_until("the purge is applied", || plain(address, &path) == expected);
        }
    };
    std::thread::scope(|scope| {
        let _ending = Ending(&load);
        for _ in 0..2 {
            scope.spawn(|| load.run(|_, path| plain(address, path)));
        }
        load.more(200);
        // A URL is stored at one node. Health checks ask for another.
        let fetches = origin.upstream.requests().iter().filter(|request| !request.head.starts_with("GET / ")).count();
        assert!((40..45).contains(&fetches), "{fetches}");
        nodes[2].stop(Signal::KILL);
        load.more(200);
        origin.generation.store(1, Ordering::SeqCst);
        nodes[0].purges(&["--all"]);
        everything(1);
        nodes[2].start_again();
        for n in 0..40 {
            let path = format!("/{n}");
            assert_eq!(nodes[2].body(&path), format!("{path} 1"), "purged before it serves");
        }
        load.more(400);
        everything(1);
    });
    load.report("behind HAProxy", &origin);
    assert_eq!(load.failed.load(Ordering::SeqCst), 0);
}
