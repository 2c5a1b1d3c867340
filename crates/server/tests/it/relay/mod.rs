//! Exchanges that another server feeds go on in the new process after an upgrade. The process before keeps the leg to that server, and ends with the last of them.

mod bounds;
mod half_closed;
mod uploads;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, kill_process};
use sealion_testkit::server::Signal;
use sealion_testkit::service::Service;
use sealion_testkit::websocket::{connect_block, switch};
use sealion_testkit::{Client, PATIENCE, Suite, http, pattern};

use crate::support::http2::{DATA, END_STREAM, Ended, Http2, INTERNAL_ERROR, frame, headers};
use crate::support::port::free_port;
use crate::support::process::wait_until_it_rests;
use crate::support::upstream::{Accepted, Upstream};
use crate::support::watch::{Watched, scrape};
use crate::support::{Site, access_line, access_lines, begin, wait_for_message, wait_until};

/// Upgrades in each test.
const UPGRADES: usize = 3;

/// A service that forwards everything, and the listener that tells how many connections a process took.
struct Relayed {
    service: Service,
    metrics: SocketAddr,
}

impl Relayed {
    fn serve(site: &Site, upstream: &Upstream) -> Self {
        let rule = format!("proxy = {{ to = '{}', upgrade = ['websocket', 'echo'] }}", upstream.url());
        let options = ["--ktls", "never", "--metrics", "127.0.0.1:0", "--grace", "1h"];
        let Watched { server, address } = Watched::of(site.config(&rule).serve_with(&options));
        Relayed { service: Service { first: server }, metrics: address }
    }

    /// Makes another process take over, and waits until it has taken `connections`.
    #[track_caller]
    fn upgrade(&self, connections: usize) {
        self.service.upgrade();
        wait_until("the connections have passed", || {
            scrape(self.metrics).get("sealion_connections_taken_over_total") == connections as f64
        });
    }

    /// The first process ends when nothing is left to do.
    #[track_caller]
    fn assert_first_ends(&mut self) {
        assert!(self.service.first.wait().success());
    }
}

/// The test's next order to an upstream.
fn steps<T: Send + 'static>() -> (Sender<T>, Arc<Mutex<Receiver<T>>>) {
    let (sender, receiver) = channel();
    (sender, Arc::new(Mutex::new(receiver)))
}

fn next<T>(steps: &Mutex<Receiver<T>>) -> Option<T> {
    steps.lock().expect("no panic").recv_timeout(PATIENCE).ok()
}

/// An upstream that sends each text of the test as a chunk, and ends the response with an empty one.
fn chunks(steps: Arc<Mutex<Receiver<Vec<u8>>>>) -> Upstream {
    Upstream::start(move |accepted| {
        while accepted.request().is_some() {
            accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
            while let Some(chunk) = next(&steps).filter(|chunk| !chunk.is_empty()) {
                accepted.write(format!("{:x}\r\n", chunk.len()).as_bytes());
                accepted.write(&chunk);
                accepted.write(b"\r\n");
            }
            accepted.write(b"0\r\nX-Sum: 7\r\n\r\n");
        }
    })
}

fn read_chunk(client: &mut Client, expected: &[u8]) {
    let size = client.read_until(b"\r\n").expect("a size");
    assert_eq!(String::from_utf8_lossy(&size).trim_end(), format!("{:x}", expected.len()));
    assert_eq!(client.read(expected.len()).expect("a chunk"), expected);
    assert_eq!(client.read(2).expect("its end"), b"\r\n");
}

#[test]
fn a_response_that_an_upstream_streams_goes_on_through_upgrades() {
    let site = Site::new();
    let (step, steps) = steps();
    let upstream = chunks(steps);
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    client.send(http::head("GET", "/a", &[("TE", "trailers")]).as_bytes()).expect("it leaves");
    let mut body = 0;
    for round in 0..=UPGRADES {
        let chunk = format!("chunk {round}").into_bytes();
        step.send(chunk.clone()).expect("the upstream waits");
        if round == 0 {
            client.read_until(b"\r\n\r\n").expect("a head");
        }
        read_chunk(&mut client, &chunk);
        body += chunk.len();
        if round < UPGRADES {
            relayed.upgrade(1);
        }
    }
    step.send(Vec::new()).expect("the upstream waits");
    let end = client.read_until(b"\r\n\r\n").expect("the last chunk");
    assert_eq!(String::from_utf8_lossy(&end).to_ascii_lowercase(), "0\r\nx-sum: 7\r\n\r\n");
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("target"), line.get("bytes")), ("/a", body.to_string().as_str()));
    assert!(line.find("aborted").is_none() && line.get("upstream_status") == "200");
    // The connection goes on.
    step.send(Vec::new()).expect("the upstream waits");
    assert_eq!(http::get(&mut client, "/b").expect("an answer").status, 200);
    assert_eq!(upstream.connections(), 2, "the first process had the first leg");
}

/// A client that reads slowly: what waits for it, within a record and between, goes along.
#[test]
fn a_large_response_of_an_upstream_goes_on_through_upgrades() {
    const LENGTH: u64 = (24 << 20) + 3;
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        while accepted.request().is_some() {
            accepted.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
            accepted.write(&pattern::bytes(0..LENGTH));
        }
    });
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect_slow_reader(&relayed.service.first);
    begin(&mut client, "/large");
    let mut read = 0;
    for round in 1..=UPGRADES {
        relayed.upgrade(1);
        let more = round as u64 * 1_000_001;
        pattern::assert_equal(&client.read(more as usize).expect("it goes on"), read..read + more);
        read += more;
    }
    pattern::assert_equal(&client.read((LENGTH - read) as usize).expect("the rest"), read..LENGTH);
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!(line.get("bytes"), LENGTH.to_string());
    assert!(line.find("aborted").is_none());
}

/// An upstream that breaks off, and a process before that is killed: neither ends the response as if it were whole.
#[test]
fn a_response_that_breaks_off_behind_an_upgrade_is_cut() {
    for is_killed in [false, true] {
        let site = Site::new();
        let (step, steps) = steps::<Vec<u8>>();
        let upstream = Upstream::start(move |accepted| {
            accepted.request();
            accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            let _ = next(&steps);
        });
        let relayed = Relayed::serve(&site, &upstream);
        let mut client = site.connect(&relayed.service.first);
        begin(&mut client, "/a");
        read_chunk(&mut client, b"first");
        relayed.upgrade(1);
        match is_killed {
            true => {
                let first = Pid::from_raw(relayed.service.first.pid() as i32).expect("a process");
                kill_process(first, Signal::KILL).expect("it lives");
            }
            false => step.send(Vec::new()).expect("the upstream waits"),
        }
        let ending = client.read_to_end().expect("whole records");
        assert!(ending.data.is_empty(), "{ending:?}");
        let line = access_line(&relayed.service.first, 1);
        let expected = if is_killed { "process before an upgrade" } else { "broke off" };
        assert!(line.get("aborted").contains(expected), "{line:?}");
    }
}

/// Reads the counters that a client sends through a tunnel, and echoes each.
fn echo_tunnel(accepted: &mut Accepted) {
    if accepted.request().is_none() {
        return;
    }
    accepted.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
    while let Some(octets) = accepted.read(4) {
        accepted.write(&octets);
    }
    accepted.write(b"bye");
}

#[test]
fn a_tunnel_goes_on_through_upgrades() {
    let site = Site::new();
    let upstream = Upstream::start(echo_tunnel);
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    let asks = [("Connection", "Upgrade"), ("Upgrade", "echo")];
    client.send(http::head("GET", "/chat", &asks).as_bytes()).expect("it leaves");
    let head = String::from_utf8(client.read_until(b"\r\n\r\n").expect("a head")).expect("text");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut counter = 0_u32;
    let mut count = |client: &mut Client| {
        for _ in 0..50 {
            client.send(&counter.to_be_bytes()).expect("it leaves");
            assert_eq!(client.read(4).expect("the echo"), counter.to_be_bytes());
            counter += 1;
        }
    };
    count(&mut client);
    for _ in 0..UPGRADES {
        // Half of a counter is on its way.
        client.send(&[0, 0]).expect("it leaves");
        relayed.upgrade(1);
        client.send(&[0, 7]).expect("it leaves");
        assert_eq!(client.read(4).expect("the echo"), [0, 0, 0, 7]);
        count(&mut client);
    }
    client.close_notify().expect("it leaves");
    let ending = client.read_to_end().expect("an end");
    assert_eq!(ending.data, b"bye");
    ending.assert_orderly();
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("status"), line.get("upstream_status")), ("101", "101"));
    assert!(line.find("aborted").is_none());
}

#[test]
fn an_upload_goes_on_through_upgrades() {
    const PART: u64 = 3_000_001;
    let site = Site::new();
    let upstream = Upstream::echo();
    for is_chunked in [false, true] {
        let mut relayed = Relayed::serve(&site, &upstream);
        let mut client = site.connect(&relayed.service.first);
        let length = (PART * (UPGRADES as u64 + 1)).to_string();
        let framing = if is_chunked { ("Transfer-Encoding", "chunked") } else { ("Content-Length", length.as_str()) };
        client.send(http::head("POST", "/upload", &[framing]).as_bytes()).expect("it leaves");
        for round in 0..=UPGRADES as u64 {
            for piece in pattern::bytes(round * PART..(round + 1) * PART).chunks(10_000) {
                if is_chunked {
                    client.send(format!("{:x}\r\n", piece.len()).as_bytes()).expect("it leaves");
                }
                client.send(piece).expect("it leaves");
                if is_chunked {
                    client.send(b"\r\n").expect("it leaves");
                }
            }
            if round < UPGRADES as u64 {
                relayed.upgrade(1);
            }
        }
        if is_chunked {
            client.send(b"0\r\n\r\n").expect("it leaves");
        }
        let answer = http::read_response(&mut client, "POST").expect("an answer");
        pattern::assert_equal(&answer.body, 0..PART * (UPGRADES as u64 + 1));
        assert_eq!((answer.status, answer.field("connection")), (200, None));
        relayed.assert_first_ends();
        let line = access_line(&relayed.service.first, 1);
        assert_eq!((line.get("status"), line.get("target")), ("200", "/upload"));
        assert_eq!(http::get(&mut client, "/next").expect("the connection goes on").status, 200);
    }
}

/// The response has not begun: the process that has the client then sends all of it.
#[test]
fn an_answer_that_is_awaited_goes_on_through_upgrades() {
    let site = Site::new();
    let (step, steps) = steps::<&'static [u8]>();
    let upstream = Upstream::start(move |accepted| {
        while accepted.head().is_some() {
            while let Some(said) = next(&steps) {
                accepted.write(said);
                if said.ends_with(b"answer") {
                    break;
                }
            }
        }
    });
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    client.send(http::head("GET", "/slow", &[]).as_bytes()).expect("it leaves");
    wait_until("the upstream has the request", || upstream.connections() == 1);
    for _ in 0..UPGRADES {
        relayed.upgrade(1);
    }
    step.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Own: 1\r\n\r\nanswer").expect("the upstream waits");
    let answer = http::read_response(&mut client, "GET").expect("an answer");
    assert_eq!((answer.status, answer.body.as_slice(), answer.field("x-own")), (200, &b"answer"[..], Some("1")));
    assert_eq!(answer.field("connection"), None);
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("status"), line.get("bytes"), line.get("upstream_status")), ("200", "6", "200"));
}

/// A client that leaves while its answer is awaited ends what is forwarded, and has one line.
#[test]
fn a_client_that_leaves_behind_an_upgrade_ends_what_is_forwarded() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.read_to_end();
    });
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    client.send(http::head("GET", "/slow", &[]).as_bytes()).expect("it leaves");
    wait_until("the upstream has the request", || upstream.connections() == 1);
    relayed.upgrade(1);
    client.reset().expect("it leaves");
    relayed.assert_first_ends();
    wait_until("the request to the upstream has ended", || upstream.has_ended(1));
    assert_eq!(access_line(&relayed.service.first, 1).get("status"), "499");
}

/// The process that has the client is killed: the first one has nothing left to feed.
#[test]
fn exchanges_whose_client_was_lost_with_its_process_are_let_go() {
    for target in ["/slow", "/begun"] {
        let site = Site::new();
        let upstream = Upstream::start(|accepted| {
            if accepted.head().is_some_and(|head| head.contains("/begun")) {
                accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            }
            accepted.read_to_end();
        });
        let mut relayed = Relayed::serve(&site, &upstream);
        let mut client = site.connect(&relayed.service.first);
        client.send(http::head("GET", target, &[]).as_bytes()).expect("it leaves");
        match target {
            "/begun" => drop(client.read_until(b"first").expect("its beginning")),
            _ => wait_until("the upstream has the request", || upstream.connections() == 1),
        }
        relayed.upgrade(1);
        relayed.service.signal(Signal::KILL);
        relayed.assert_first_ends();
        wait_until("the request to the upstream has ended", || upstream.has_ended(1));
    }
}

/// An answer that is awaited when the process with its upstream is killed is answered by the other one.
#[test]
fn an_awaited_answer_whose_process_is_killed_is_refused() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.read_to_end();
    });
    let relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    client.send(http::head("GET", "/slow", &[]).as_bytes()).expect("it leaves");
    wait_until("the upstream has the request", || upstream.connections() == 1);
    relayed.upgrade(1);
    let first = Pid::from_raw(relayed.service.first.pid() as i32).expect("a process");
    kill_process(first, Signal::KILL).expect("it lives");
    let answer = http::read_response(&mut client, "GET").expect("an answer");
    assert_eq!((answer.status, answer.field("connection")), (502, Some("close")));
    wait_for_message(&relayed.service.first, "the process before an upgrade, which had the rest, has ended");
    assert_eq!(access_lines(&relayed.service.first, 1)[0].get("status"), "502");
}

/// An upstream that answers nothing.
fn silent() -> Upstream {
    Upstream::start(|accepted| {
        accepted.head();
        accepted.read_to_end();
    })
}

/// A request over HTTP/2 whose response is awaited, behind an upgrade.
#[track_caller]
fn awaited_stream(site: &Site, upstream: &Upstream, method: &str) -> (Relayed, Http2, u32) {
    let relayed = Relayed::serve(site, upstream);
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    let stream = http.request(method, "/slow", &[], true);
    wait_until("the upstream has the request", || upstream.connections() == 1);
    relayed.upgrade(1);
    (relayed, http, stream)
}

/// The new process has the request: its refusal has the form of the method, and its line the request.
#[test]
fn an_awaited_stream_whose_process_is_killed_is_refused_as_any_request() {
    let site = Site::new();
    let upstream = silent();
    let (relayed, mut http, stream) = awaited_stream(&site, &upstream, "HEAD");
    let first = Pid::from_raw(relayed.service.first.pid() as i32).expect("a process");
    kill_process(first, Signal::KILL).expect("it lives");
    assert_eq!(http.response(stream).whole(), (502, &b""[..]));
    let cause = "/slow: answered 502: the process before an upgrade, which had the rest, has ended";
    wait_for_message(&relayed.service.first, cause);
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("method"), line.get("target"), line.get("status")), ("HEAD", "/slow", "502"));
}

/// The process with the upstream hangs: a client that leaves has its line at once, and the upstream learns it later.
#[test]
fn clients_that_leave_need_nothing_of_the_process_before() {
    for is_http2 in [false, true] {
        let site = Site::new();
        let upstream = silent();
        let mut relayed = match is_http2 {
            true => {
                let (relayed, http, _) = awaited_stream(&site, &upstream, "GET");
                relayed.service.first.pause();
                drop(http);
                relayed
            }
            false => {
                let relayed = Relayed::serve(&site, &upstream);
                let mut client = site.connect(&relayed.service.first);
                client.send(http::head("GET", "/slow", &[]).as_bytes()).expect("it leaves");
                wait_until("the upstream has the request", || upstream.connections() == 1);
                relayed.upgrade(1);
                relayed.service.first.pause();
                client.reset().expect("it leaves");
                relayed
            }
        };
        let line = access_line(&relayed.service.first, 1);
        assert_eq!((line.get("target"), line.get("status")), ("/slow", "499"));
        relayed.service.first.resume();
        relayed.assert_first_ends();
        wait_until("the request to the upstream has ended", || upstream.has_ended(1));
    }
}

#[test]
fn an_awaited_stream_of_a_process_that_is_stopped_has_its_line() {
    let site = Site::new();
    let upstream = silent();
    let (relayed, _http, _) = awaited_stream(&site, &upstream, "GET");
    relayed.service.signal(Signal::TERM);
    wait_for_message(&relayed.service.first, "SIGTERM: no new connections");
    relayed.service.signal(Signal::INT);
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("target"), line.get("aborted")), ("/slow", "a second signal ended the server"));
}

/// A thread of the process before makes it.
#[test]
fn an_archive_goes_on_through_an_upgrade() {
    let site = Site::new();
    site.add("d/first", "content");
    for n in 0..40 {
        site.add_pattern(&format!("d/{n}"), 500_000);
    }
    let config = site.config("listing = { archive = {} }\n");
    let Watched { server, address } =
        Watched::of(config.serve_with(&["--ktls", "never", "--metrics", "127.0.0.1:0", "--grace", "1h"]));
    let mut relayed = Relayed { service: Service { first: server }, metrics: address };
    let whole = http::get(&mut site.connect(&relayed.service.first), "/d/?archive=tar").expect("an archive");
    assert_eq!(whole.status, 200);
    let mut client = site.connect_slow_reader(&relayed.service.first);
    let head = begin(&mut client, "/d/?archive=tar");
    relayed.upgrade(1);
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => {
            let mut body = Vec::new();
            loop {
                let size = client.read_until(b"\r\n").expect("a size");
                let size = usize::from_str_radix(String::from_utf8_lossy(&size).trim_end(), 16).expect("hexadecimal");
                body.extend(client.read(size).expect("a chunk"));
                client.read(2).expect("its end");
                if size == 0 {
                    break body;
                }
            }
        }
        false => client.read(whole.body.len()).expect("the rest"),
    };
    assert!(body == whole.body);
    relayed.assert_first_ends();
}

/// An upstream whose requests do different things by their paths: `/stream` is sent in steps, `/slow` is answered by one, `/chat` becomes a tunnel, and others get
/// their content back.
fn several(stream: Arc<Mutex<Receiver<Vec<u8>>>>, slow: Arc<Mutex<Receiver<Vec<u8>>>>) -> Upstream {
    Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if request.line().starts_with("GET /chat") {
                accepted.write(switch(&request).as_bytes());
                while let Some(octets) = accepted.read(4) {
                    accepted.write(&octets);
                }
                return;
            }
            let body = match request.line() {
                "GET /stream" => {
                    accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    while let Some(chunk) = next(&stream).filter(|chunk| !chunk.is_empty()) {
                        accepted.write(format!("{:x}\r\n", chunk.len()).as_bytes());
                        accepted.write(&[&chunk[..], b"\r\n"].concat());
                    }
                    accepted.write(b"0\r\n\r\n");
                    continue;
                }
                "GET /slow" => next(&slow).unwrap_or_default(),
                _ => request.body,
            };
            accepted.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
            accepted.write(&body);
        }
    })
}

/// Sends content as far as the windows have room.
fn send_content(http: &mut Http2, stream: u32, range: std::ops::Range<u64>, end: bool) {
    const FIRST_WINDOW: u64 = 65_535;
    let granted = |http: &Http2, of: u32| FIRST_WINDOW + http.granted.get(&of).copied().unwrap_or(0);
    let mut at = range.start;
    while at < range.end {
        let next = range.end.min(at + 16_000);
        http.read_until("room", |http| granted(http, stream) >= next && granted(http, 0) >= next + 1000);
        let last = if end && next == range.end { END_STREAM } else { 0 };
        http.send(&frame(DATA, last, stream, &pattern::bytes(at..next)));
        at = next;
    }
}

#[test]
fn streams_that_another_server_feeds_go_on_through_upgrades() {
    const PART: u64 = 400_001;
    let site = Site::new();
    let (step, stream_steps) = steps::<Vec<u8>>();
    let (answer, slow_steps) = steps::<Vec<u8>>();
    let upstream = several(stream_steps, slow_steps);
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    let streamed = http.get("/stream");
    let slow = http.get("/slow");
    let upload = http.request("POST", "/upload", &[], false);
    let chat = http.stream();
    http.send(&headers(chat, false, &connect_block("/chat", "websocket", &[])));
    http.read_until("the tunnel opens", |http| http.streams.get(&chat).is_some_and(|got| got.status == 200));
    let (mut body, mut counters) = (Vec::new(), Vec::new());
    for round in 0..=UPGRADES {
        let chunk = format!("chunk {round}").into_bytes();
        step.send(chunk.clone()).expect("the upstream waits");
        body.extend(chunk);
        let counter = (round as u32).to_be_bytes();
        http.send(&frame(DATA, 0, chat, &counter));
        counters.extend(counter);
        let round = round as u64;
        send_content(&mut http, upload, round * PART..(round + 1) * PART, round == UPGRADES as u64);
        let has_all = |http: &Http2| {
            let of = |stream: u32| http.streams.get(&stream).map_or(0, |got| got.body.len());
            of(streamed) >= body.len() && of(chat) >= counters.len()
        };
        http.read_until("the echo and the chunk", has_all);
        if round < UPGRADES as u64 {
            relayed.upgrade(1);
        }
    }
    step.send(Vec::new()).expect("the upstream waits");
    answer.send(b"at last".to_vec()).expect("the upstream waits");
    assert_eq!(http.response(streamed).whole(), (200, &body[..]));
    assert_eq!(http.response(slow).whole(), (200, &b"at last"[..]));
    let (status, content) = http.response(upload).whole();
    assert_eq!(status, 200);
    pattern::assert_equal(content, 0..PART * (UPGRADES as u64 + 1));
    http.send(&frame(DATA, END_STREAM, chat, &[]));
    assert_eq!(http.response(chat).whole(), (200, &counters[..]));
    relayed.assert_first_ends();
    assert_eq!(http.go_aways, []);
    let mut logged: Vec<_> = access_lines(&relayed.service.first, 4)
        .iter()
        .map(|line| (line.get("target").to_owned(), line.get("status").to_owned(), line.find("aborted").is_some()))
        .collect();
    logged.sort();
    let expected = ["/chat", "/slow", "/stream", "/upload"].map(|path| (path.to_owned(), "200".to_owned(), false));
    assert_eq!(logged, expected);
}

/// Each stream that the killed process fed is reset, and those that it had not begun to answer get 502: the others go on.
#[test]
fn streams_of_a_process_that_is_killed_break_off_alone() {
    let site = Site::new();
    let (step, stream_steps) = steps::<Vec<u8>>();
    let (_answer, slow_steps) = steps::<Vec<u8>>();
    let upstream = several(stream_steps, slow_steps);
    let relayed = Relayed::serve(&site, &upstream);
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    let (streamed, slow) = (http.get("/stream"), http.get("/slow"));
    step.send(b"begin".to_vec()).expect("the upstream waits");
    http.read_until("its beginning", |http| http.streams.get(&streamed).is_some_and(|got| got.body == b"begin"));
    wait_until("the upstream has both", || upstream.connections() == 2);
    relayed.upgrade(1);
    let first = Pid::from_raw(relayed.service.first.pid() as i32).expect("a process");
    kill_process(first, Signal::KILL).expect("it lives");
    assert_eq!(http.response(streamed).ended, Some(Ended::Reset(INTERNAL_ERROR)));
    assert_eq!(http.response(slow).whole().0, 502);
    assert_eq!(http.fetch("/other").0, 200);
    assert_eq!(http.go_aways, []);
}

/// The new process has no place for the connections: what was packed goes on here, by both ends of its relays.
#[test]
fn exchanges_of_connections_that_are_refused_go_on_in_the_process_before() {
    for is_http2 in [false, true] {
        let site = Site::new();
        let (step, stream_steps) = steps::<Vec<u8>>();
        let (answer, slow_steps) = steps::<Vec<u8>>();
        let upstream = several(stream_steps, slow_steps);
        let rule = format!("proxy = {{ to = '{}' }}", upstream.url());
        let ports = [free_port(), free_port()];
        let listening = |ports: &[u16]| {
            let listen = |port: &u16| format!("address = '127.0.0.1:{port}'");
            ports.iter().fold(site.config(&rule), |config, port| config.listen(&listen(port)))
        };
        let first = listening(&ports).serve_with(&["--ktls", "never", "--grace", "1h"]);
        let mut service = Service { first };
        let address = SocketAddr::from(([127, 0, 0, 1], ports[1]));
        let connector = || site.connector(Suite::TLS13);
        let ask = |target: &str| {
            let mut client = connector().connect(address);
            client.send(http::head("GET", target, &[]).as_bytes()).expect("it leaves");
            client
        };
        step.send(b"begin".to_vec()).expect("the upstream waits");
        let mut plain = (!is_http2).then(|| [ask("/stream"), ask("/slow")]);
        let mut streams = is_http2.then(|| {
            let mut http = Http2::connect(connector(), address, &[]);
            http.ping();
            let streams = [http.get("/stream"), http.get("/slow")];
            (http, streams)
        });
        if let Some([streamed, _]) = &mut plain {
            streamed.read_until(b"\r\n\r\n").expect("a head");
            read_chunk(streamed, b"begin");
        }
        if let Some((http, [streamed, _])) = &mut streams {
            http.read_until("its beginning", |http| http.streams.get(streamed).is_some_and(|got| got.body == b"begin"));
        }
        wait_until("the upstream has both", || upstream.connections() == 2);
        listening(&ports[..1]).write();
        service.upgrade();
        wait_until_it_rests(&service.first);
        for said in [&b"middle"[..], b""] {
            step.send(said.to_vec()).expect("the upstream waits");
        }
        answer.send(b"at last".to_vec()).expect("the upstream waits");
        if let Some([streamed, slow]) = &mut plain {
            read_chunk(streamed, b"middle");
            assert_eq!(streamed.read(5).expect("the last chunk"), b"0\r\n\r\n");
            assert_eq!(http::read_response(slow, "GET").expect("an answer").body, b"at last");
        }
        if let Some((http, [streamed, slow])) = &mut streams {
            assert_eq!(http.response(*streamed).whole(), (200, &b"beginmiddle"[..]));
            assert_eq!(http.response(*slow).whole(), (200, &b"at last"[..]));
        }
        drop((plain, streams));
        assert!(service.first.wait().success());
        wait_for_message(&service.first, "their listener is gone");
        let lines = access_lines(&service.first, 2);
        assert!(lines.iter().all(|line| line.get("status") == "200" && line.find("aborted").is_none()), "{lines:?}");
    }
}
