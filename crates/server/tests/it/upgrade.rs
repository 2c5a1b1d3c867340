//! A new process takes over, and the configuration is read again, while requests come: none fails, and no byte is wrong.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Pid;
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::service::Service;
use sealion_testkit::{PATIENCE, Suite, http, pattern};

use crate::support::config::Config;
use crate::support::http2::{Http2, MAX_WINDOW, block, headers, window_update};
use crate::support::port::free_port;
use crate::support::process::wait_until_it_rests;
use crate::support::watch::{Watched, scrape};
use crate::support::{
    LARGE, PROGRAM, SMALL_WINDOW, Site, access_line, access_lines, begin, messages, read_until_cut, wait_for_message,
    wait_until,
};

/// Reloads and upgrades of the test under load. The full run is made by hand:
/// `SEALION_TEST_RELOADS=100 SEALION_TEST_UPGRADES=20 cargo test -p sealion --test it under_load`.
fn times(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn under_load_no_request_fails_by_reloads_and_upgrades() {
    const SIZES: [u64; 4] = [100, 20_000, 150_000, 2_000_001];
    let site = Site::new();
    for len in SIZES {
        site.add_pattern(&len.to_string(), len);
    }
    let service = Service { first: site.serve(&["--workers", "2", "--access-log", "off", "--grace", "20s"]) };
    let address = service.first.address();
    let over = AtomicBool::new(false);
    let (requests, connections) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..6_usize {
            let (site, over, requests, connections) = (&site, &over, &requests, &connections);
            scope.spawn(move || {
                let connector = site.connector(if client % 3 == 2 { Suite::TLS12 } else { Suite::TLS13 });
                while !over.load(Ordering::Relaxed) {
                    let mut connection = connector.connect(address);
                    connections.fetch_add(1, Ordering::Relaxed);
                    for n in 0..40 {
                        let len = SIZES[(client + n) % SIZES.len()];
                        let got = http::get(&mut connection, &format!("/{len}")).expect("every request is answered");
                        assert_eq!(got.status, 200);
                        pattern::assert_equal(&got.body, 0..len);
                        requests.fetch_add(1, Ordering::Relaxed);
                        if got.field("connection") == Some("close") || over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        let (reloads, upgrades) = (times("SEALION_TEST_RELOADS", 10), times("SEALION_TEST_UPGRADES", 3));
        // Stops the clients when something below panics, too.
        let stop = Stop(&over);
        for round in 0..reloads.max(upgrades) {
            if round * upgrades / reloads.max(upgrades) != (round + 1) * upgrades / reloads.max(upgrades) {
                service.upgrade();
            }
            if round < reloads {
                let before = messages(&service.first, " is in use");
                service.signal(Signal::HUP);
                service.first.wait_for_lines(before + 1, "word of a reload", |line| line.text.contains(" is in use"));
            }
            let goal = requests.load(Ordering::Relaxed) + 6;
            while requests.load(Ordering::Relaxed) < goal && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(stop);
        assert_eq!(service.successors().len(), upgrades);
    });
    eprintln!("{} requests on {} connections", requests.into_inner(), connections.into_inner());
    assert_eq!(messages(&service.first, "ERROR"), 0);
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The connection goes on: its next responses come from the new process, and the old one has nothing left to do.
#[test]
fn idle_connections_pass_to_the_new_process() {
    let site = Site::new();
    site.add("f", "content");
    let mut service = Service { first: site.serve(&["--grace", "1h", "--workers", "2"]) };
    let suites = Suite::all();
    let mut idle: Vec<_> = suites.iter().map(|suite| site.connector(*suite).connect(service.first.address())).collect();
    // One has not asked anything yet.
    for client in &mut idle[1..] {
        http::get(client, "/f").expect("an answer");
    }
    for round in 1..=3 {
        service.upgrade();
        if round == 1 {
            assert!(service.first.wait().success(), "nothing is left to do");
        }
        for client in &mut idle {
            let answer = http::get(client, "/f").expect("the connection goes on");
            assert_eq!((answer.body.as_slice(), answer.field("connection")), (&b"content"[..], None));
        }
    }
    wait_for_message(&service.first, "6 connections went on in process");
}

/// Streams, windows and the table of HPACK go on where they were.
#[test]
fn idle_connections_of_http2_pass_to_the_new_process() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let site = Site::new();
    site.add_pattern("small", 100);
    site.add_pattern("large", 200_000);
    let mut service = Service { first: site.serve(&["--grace", "1h"]) };
    let address = service.first.address();
    let connect = |suite, settings: &[_]| Http2::connect(site.connector(suite), address, settings);
    let mut clients =
        [connect(Suite::TLS13, &[]), connect(Suite::TLS12, &[(INITIAL_WINDOW_SIZE, 1000)]), connect(Suite::TLS13, &[])];
    for client in &mut clients[..2] {
        // A field that the client names by its number in the table from now on (RFC 7541 section 6.2.1).
        let (stream, field) = (client.stream(), [&[0x40, 6][..], b"x-test", &[5], b"value"].concat());
        client.send(&headers(stream, true, &[block("GET", "/small", &[]), field].concat()));
        pattern::assert_equal(client.response(stream).whole().1, 0..100);
    }
    // They have no frame under way, and have acknowledged the settings.
    clients.iter_mut().for_each(Http2::ping);
    for round in 1..=2 {
        service.upgrade();
        if round == 1 {
            assert!(service.first.wait().success(), "nothing is left to do");
        }
        for client in &mut clients[..2] {
            let stream = client.stream();
            // The newest entry of the table (RFC 7541 section 2.3.3).
            client.send(&headers(stream, true, &[block("GET", "/large", &[]), vec![0x80 | 62]].concat()));
            pattern::assert_equal(client.response(stream).whole().1, 0..200_000);
        }
        assert_eq!(clients[2].fetch("/small").1.len(), 100);
        for client in &mut clients {
            assert_eq!(client.go_aways, []);
            client.ping();
        }
    }
    wait_for_message(&service.first, "3 connections went on in process");
}

/// The rest of each response comes from the new process, and so does its line in the access log: the old one has nothing left to do.
#[test]
fn responses_under_way_pass_to_the_new_process() {
    let site = Site::new();
    site.add("small", "content");
    site.add_pattern("large", LARGE);
    let mut service = Service { first: site.serve_from_user_space(&["--grace", "1h", "--workers", "2"]) };
    let connect = |suite| site.connector(suite).receive_buffer(SMALL_WINDOW).connect(service.first.address());
    let mut downloads: Vec<_> = Suite::all().into_iter().map(connect).collect();
    for client in &mut downloads {
        begin(client, "/large");
    }
    // Of the first two, some has been read, the end of a record or not.
    let mut read = vec![0; downloads.len()];
    for round in 1..=3 {
        service.upgrade();
        if round == 1 {
            assert!(service.first.wait().success(), "nothing is left to do");
        }
        for (n, (client, read)) in downloads.iter_mut().zip(&mut read).enumerate() {
            let more = 1 + n as u64 * 50_001;
            pattern::assert_equal(&client.read(more as usize).expect("it goes on"), *read..*read + more);
            *read += more;
        }
    }
    for (client, read) in downloads.iter_mut().zip(read) {
        pattern::assert_equal(&client.read((LARGE - read) as usize).expect("the rest"), read..LARGE);
        let answer = http::get(client, "/small").expect("the connection goes on");
        assert_eq!((answer.body.as_slice(), answer.field("connection")), (&b"content"[..], None));
    }
    let count = downloads.len();
    wait_for_message(&service.first, &format!("{count} connections went on in process"));
    let lines = access_lines(&service.first, 2 * count);
    let of = |path: &str| {
        lines
            .iter()
            .filter(|line| line.get("target") == path)
            .map(|line| line.get("bytes").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("/large"), vec![LARGE.to_string(); count]);
    assert_eq!(of("/small"), vec!["7"; count]);
    assert!(lines.iter().all(|line| line.find("aborted").is_none()));
}

/// Streams that wait for TCP, within a frame, and streams that wait for a window: all go on.
#[test]
fn responses_under_way_of_http2_pass_to_the_new_process() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    const STREAMS: usize = 20;
    let site = Site::new();
    site.add("small", "content");
    site.add_pattern("large", LARGE);
    site.add_pattern("other", LARGE / 4);
    let mut service = Service { first: site.serve_from_user_space(&["--grace", "1h", "--workers", "2"]) };
    let connect = |suite, settings: &[_]| {
        let connector = site.connector(suite).receive_buffer(SMALL_WINDOW);
        let mut client = Http2::connect(connector, service.first.address(), settings);
        // The server's settings are acknowledged.
        client.ping();
        client
    };
    let mut clients = Vec::new();
    for suite in [Suite::TLS13, Suite::TLS12] {
        let mut wide = connect(suite, &[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]);
        wide.send(&window_update(0, MAX_WINDOW - 65_535));
        wide.credit = 0;
        let streams: Vec<_> = ["/large", "/other", "/large"].into_iter().map(|path| (path, wide.get(path))).collect();
        clients.push((wide, streams));
        let mut narrow = connect(suite, &[]);
        let streams: Vec<_> = (0..STREAMS).map(|_| ("/other", narrow.get("/other"))).collect();
        clients.push((narrow, streams));
    }
    for (client, _) in &mut clients {
        client.read_until("a frame of content", |client| !client.data.is_empty());
    }
    for round in 1..=3 {
        service.upgrade();
        if round == 1 {
            assert!(service.first.wait().success(), "nothing is left to do");
        }
        for (client, _) in &mut clients {
            let seen = client.data.len();
            client.read_until("more content", |client| client.data.len() > seen + 5);
        }
    }
    let mut expected = Vec::new();
    for (client, streams) in &mut clients {
        for (path, stream) in streams {
            let length = if *path == "/large" { LARGE } else { LARGE / 4 };
            pattern::assert_equal(client.response(*stream).whole().1, 0..length);
            expected.push((path.to_string(), length.to_string()));
        }
        assert_eq!(client.fetch("/small"), (200, b"content".to_vec()));
        expected.push(("/small".to_owned(), "7".to_owned()));
        assert_eq!(client.go_aways, []);
    }
    let lines = access_lines(&service.first, expected.len());
    assert!(lines.iter().all(|line| line.find("aborted").is_none()));
    let mut logged: Vec<_> =
        lines.iter().map(|line| (line.get("target").to_owned(), line.get("bytes").to_owned())).collect();
    logged.sort();
    expected.sort();
    assert_eq!(logged, expected);
}

#[test]
fn a_response_without_tls_passes_to_the_new_process() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let config = Config::within(site.outside()).listen("address = '127.0.0.1:0'\ntls = false\nplain = 'serve'");
    let mut service = Service { first: config.site(site.root(), &[], "").serve() };
    let mut client = TcpStream::connect(service.first.address()).expect("the kernel accepts it");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(http::head("GET", "/large", &[("Connection", "close")]).as_bytes()).expect("the request leaves");
    // Nothing more is read: the response waits.
    client.read_exact(&mut [0; 16]).expect("its beginning");
    service.upgrade();
    assert!(service.first.wait().success(), "nothing is left to do");
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("an orderly end");
    let head = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head");
    pattern::assert_equal(&received[head + 4..], 0..LARGE);
    assert_eq!(access_line(&service.first, 1).get("bytes"), LARGE.to_string());
}

/// Content in memory goes along, however much of it is sealed already.
#[test]
fn a_response_in_memory_passes_to_the_new_process() {
    let site = Site::new();
    let text: String = (0..150_000).map(|n| format!("{n} ")).collect();
    fs::write(site.outside().join("text"), &text).expect("the text");
    let config = site.config("[[site.route]]\npath = '/text'\nrespond = { file = 'text' }\n");
    let mut service = Service { first: config.serve_from_user_space() };
    let mut client = site.connect_slow_reader(&service.first);
    begin(&mut client, "/text");
    service.upgrade();
    assert!(service.first.wait().success(), "nothing is left to do");
    assert!(client.read(text.len()).expect("the rest") == text.as_bytes());
    assert_eq!(access_line(&service.first, 1).get("bytes"), text.len().to_string());
}

/// The first process has the beginning of a request, and two others take over: the connection passes to the newest one.
#[test]
fn a_connection_that_outlasts_two_upgrades_passes_to_the_newest_process() {
    let site = Site::new();
    site.add("f", "content");
    let config = site.config("").table("[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n");
    let mut service = Service { first: config.serve_from_user_space() };
    let mut client = site.connect(&service.first);
    http::get(&mut client, "/f").expect("an answer");
    client.send(b"G").expect("it leaves");
    wait_until_it_rests(&service.first);
    service.upgrade();
    service.upgrade();
    client.send(&http::head("GET", "/f", &[]).as_bytes()[1..]).expect("it leaves");
    let answer = http::read_response(&mut client, "GET").expect("of the first process");
    assert_eq!((answer.body.as_slice(), answer.field("connection")), (&b"content"[..], None));
    assert!(service.first.wait().success(), "nothing is left to do");
    assert_eq!(http::get(&mut client, "/f").expect("of the newest process").body, b"content");
    wait_for_message(&service.first, "1 connections went on in process");
}

/// Without an access log no head is kept, and the site is known by its name.
#[test]
fn a_response_over_http2_counts_for_its_site_behind_an_upgrade() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let config = Config::within(site.outside()).site("root", &[&site.pki], "names = ['other.test']").site(
        "root",
        &[&site.pki],
        "names = ['localhost']",
    );
    let options = ["--ktls", "never", "--metrics", "127.0.0.1:0", "--access-log", "off", "--grace", "1h"];
    let Watched { server, address } = Watched::of(config.serve_with(&options));
    let mut service = Service { first: server };
    let connector = site.connector(Suite::TLS13).receive_buffer(SMALL_WINDOW);
    let mut client = Http2::connect(connector, service.first.address(), &[]);
    client.ping();
    let stream = client.get("/large");
    client.read_until("a frame of content", |client| !client.data.is_empty());
    service.upgrade();
    assert!(service.first.wait().success(), "nothing is left to do");
    pattern::assert_equal(client.response(stream).whole().1, 0..LARGE);
    wait_until("it counts for its site", || {
        scrape(address).get("sealion_site_responses_total{site=\"localhost\",class=\"2xx\"}") == 1.0
    });
}

/// A server whose responses are fed by the process that began them: the bandwidth of their site paces them.
fn serve_paced(site: &Site, options: &[&str]) -> Server {
    let keys = "[site.limits]\nsite_bandwidth = '1GB'\n";
    site.config(keys).serve_with(&[&["--ktls", "never"], options].concat())
}

/// The grace of an upgrade has no bound by default. The grace of a stop counts from the order to stop.
#[test]
fn what_outlasts_an_upgrade_goes_on_until_the_old_process_is_stopped() {
    let site = Site::new();
    site.add("small", "content");
    site.add_pattern("large", LARGE);
    let mut service = Service { first: serve_paced(&site, &["--grace", "100ms"]) };
    let mut downloads = [site.connect_slow_reader(&service.first), site.connect_slow_reader(&service.first)];
    downloads.iter_mut().for_each(|client| drop(begin(client, "/large")));
    service.upgrade();
    wait_for_message(&service.first, "no new connections; responses under way go on to their end");
    let [mut first, second] = downloads;
    // Longer than the grace: there is no other way to see that nothing ends.
    std::thread::sleep(Duration::from_millis(300));
    pattern::assert_equal(&first.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    // However late, the connection goes on in the new process when it is idle.
    let answer = http::get(&mut first, "/small").expect("the connection goes on");
    assert_eq!((answer.body.as_slice(), answer.field("connection")), (&b"content"[..], None));
    drop(first);
    assert!(service.first.is_running());
    service.first.signal(Signal::TERM);
    assert!(service.first.wait().success());
    wait_for_message(&service.first, "1 connections were cut");
    drop(second);
}

#[test]
fn processes_that_have_been_replaced_are_shown_until_they_end() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let Watched { server, address } = Watched::of(serve_paced(&site, &["--metrics", "127.0.0.1:0"]));
    let mut service = Service { first: server };
    let shown = |count: f64, active: f64| {
        wait_until("the metrics show it", || {
            let samples = scrape(address);
            let active_now = samples.get("sealion_predecessor_connections{state=\"active\"}");
            (samples.get("sealion_predecessors"), active_now) == (count, active)
        });
    };
    let mut downloads = Vec::new();
    for count in 1..=2 {
        let mut download = site.connect_slow_reader(&service.first);
        begin(&mut download, "/large");
        downloads.push(download);
        service.upgrade();
        shown(f64::from(count), f64::from(count));
    }
    drop(downloads);
    shown(0.0, 0.0);
    assert!(service.first.wait().success());
}

#[test]
fn the_grace_of_an_upgrade_can_be_bounded() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let mut service = Service { first: serve_paced(&site, &["--upgrade-grace", "100ms", "--grace", "100ms"]) };
    let mut download = site.connect_slow_reader(&service.first);
    begin(&mut download, "/large");
    service.upgrade();
    assert!(service.first.wait().success());
    wait_for_message(
        &service.first,
        "1 connections were cut: their responses took longer than limits.grace or limits.upgrade_grace",
    );
    // The new process has the client, and learns that no more comes when the client has taken what did.
    assert!(!read_until_cut(&mut download).is_ok_and(|ending| ending.data.len() as u64 >= LARGE));
    let line = access_line(&service.first, 1);
    assert!(line.get("aborted").starts_with("reading the response body failed: the "), "{line:?}");
}

#[test]
fn a_successor_that_cannot_serve_changes_nothing_and_says_why() {
    let site = Site::new();
    site.add("f", "content");
    let config = |root: &str, workers| {
        let server = format!("[server]\nworkers = {workers}");
        Config::within(site.outside()).site(root, &[&site.pki], "").table(&server)
    };
    let service = Service { first: config("root", 3).serve() };
    config("missing", 3).write();
    service.signal(Signal::USR2);
    let failed = wait_for_message(&service.first, "the upgrade failed: ");
    assert!(failed.contains("sealion.toml:4: site.root: cannot serve"), "{failed}");
    assert_eq!(http::get(&mut site.connect(&service.first), "/f").expect("of the old one").body, b"content");
    // An upgrade can change settings that a reload cannot.
    config("root", 1).write();
    service.upgrade();
    assert_eq!(http::get(&mut site.connect(&service.first), "/f").expect("of the new one").body, b"content");
}

/// A bare chroot has no /proc.
#[test]
fn a_server_without_proc_serves() {
    let site = Site::new();
    site.add("f", "content");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh", PROGRAM]);
    command.args(site.arguments(&["--ktls", "never", "--metrics", "127.0.0.1:0"]));
    let server = Server::spawn(command);
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").status, 200);
}

/// The program as systemd starts it with `listener`: descriptor 3, and LISTEN_PID its own number.
fn activated(listener: OwnedFd, arguments: &[std::ffi::OsString]) -> Command {
    let mut command = Command::new("/bin/sh");
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    command.args(["-c", script, PROGRAM]).args(arguments).stdin(Stdio::from(listener));
    command
}

#[test]
fn a_socket_of_systemd_is_served_and_handed_on() {
    let site = Site::new();
    site.add("f", "content");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let command = activated(listener.into(), &site.arguments_at(&address, &["--workers", "3"]));
    let service = Service { first: Server::spawn_with_input(command) };
    assert_eq!(service.first.address().to_string(), address);
    for _ in 0..2 {
        for _ in 0..8 {
            assert_eq!(http::get(&mut site.connect(&service.first), "/f").expect("an answer").body, b"content");
        }
        service.upgrade();
    }
}

#[test]
fn a_socket_of_systemd_that_nobody_asked_for_is_an_error() {
    let site = Site::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let output = activated(listener.into(), &site.arguments(&[])).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&address) && said.contains("[[listen]]"), "{said}");
}

#[test]
fn the_service_manager_is_told() {
    let site = Site::new();
    let path = site.outside().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(sealion_testkit::PATIENCE)).expect("a timeout");
    let mut said = [0; 512];
    let mut next = || {
        let len = manager.recv(&mut said).expect("a message");
        String::from_utf8(said[..len].to_vec()).expect("text")
    };
    let mut command = Command::new(PROGRAM);
    command.args(site.arguments(&[])).env("NOTIFY_SOCKET", &path);
    let service = Service { first: Server::spawn(command) };
    assert!(next().contains("READY=1"));
    service.signal(Signal::HUP);
    let reloading = next();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(next().contains("READY=1"));
    service.upgrade();
    let pid = service.newest().as_raw_nonzero();
    assert!(next().contains(&format!("MAINPID={pid}")));
    assert!(next().contains("READY=1"), "the new one is ready when it is the service");
    service.signal(Signal::TERM);
    assert!(next().contains("STOPPING=1"));
}

/// The exit code, standard output and standard error of a command to the server.
#[track_caller]
fn order(what: &str, pid: Pid) -> (Option<i32>, String, String) {
    let pid = pid.as_raw_nonzero().to_string();
    let output = Command::new(PROGRAM).args([what, "--pid", &pid]).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn commands_reload_and_upgrade_and_tell_the_outcome() {
    let site = Site::new();
    site.add("f", "content");
    let config = site.config("");
    let service = Service { first: config.serve() };
    assert_eq!(order("reload", service.newest()), (Some(0), "configuration 1 is in use\n".into(), String::new()));

    // Confined as under systemd: only a process of another user is refused, which a test cannot be.
    config.clone().table("[limits]\ngrace = 1").write();
    for what in ["reload", "upgrade"] {
        let (code, out, err) = order(what, service.newest());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{what}: {err}");
        assert!(err.contains("limits.grace: ") && err.contains("write \"1s\" for seconds"), "{what}: {err}");
        assert!(err.contains("before"), "{what}: the operator is told what goes on: {err}");
    }

    config.write();
    let first = service.newest();
    let (code, out, err) = order("upgrade", first);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    service.wait_for_upgrades(1);
    let newest = service.newest();
    assert!(newest != first && out == format!("process {newest} has taken over\n"), "{out}");
    assert_eq!(order("reload", newest).0, Some(0));
    // The first one drains, and takes no more orders.
    let (code, _, err) = order("reload", first);
    assert!(code == Some(2) && err.contains("takes no orders"), "{code:?} {err}");
}

#[test]
fn a_confined_server_takes_orders_too() {
    let site = Site::new();
    let privileges = "[privileges]\nno_new_privileges = true\nlandlock = true\nseccomp = 'refuse'\n";
    let service = Service { first: site.config("").table(privileges).serve() };
    assert_eq!(order("reload", service.newest()).0, Some(0));
    let (code, _, err) = order("upgrade", service.newest());
    assert_eq!(code, Some(0), "{err}");
    service.wait_for_upgrades(1);
    assert_eq!(order("reload", service.newest()).0, Some(0));
}

#[test]
fn a_reload_by_command_adds_and_removes_listeners() {
    let site = Site::new();
    site.add("f", "content");
    let ports = [free_port(), free_port()];
    let listen = |port: u16| format!("address = '127.0.0.1:{port}'");
    let service = Service { first: site.config("").listen(&listen(ports[0])).serve() };
    let get = |port: u16| {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        std::net::TcpStream::connect(address)
            .is_ok()
            .then(|| http::get(&mut site.connector(Suite::TLS13).connect(address), "/f").expect("an answer").body)
    };
    assert_eq!(get(ports[1]), None);
    site.config("").listen(&listen(ports[0])).listen(&listen(ports[1])).write();
    let (code, out, err) = order("reload", service.newest());
    assert!(code == Some(0) && out.ends_with(" has taken over\n"), "{out}{err}");
    service.wait_for_upgrades(1);
    for port in ports {
        assert_eq!(get(port).as_deref(), Some(&b"content"[..]));
    }
    site.config("").listen(&listen(ports[1])).write();
    let (code, _, err) = order("reload", service.newest());
    assert_eq!(code, Some(0), "{err}");
    service.wait_for_upgrades(2);
    assert_eq!(get(ports[1]).as_deref(), Some(&b"content"[..]));
    let first = std::net::SocketAddr::from(([127, 0, 0, 1], ports[0]));
    wait_until("the first port is closed", || std::net::TcpStream::connect(first).is_err());
}
