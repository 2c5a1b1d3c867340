//! One line for each response, with everything in it, wherever it goes.

mod support;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Suite, http};
use support::{LARGE, LogLine, Site, access_line, access_lines, begin, exchange, wait_for_message};

const FIELDS: [&str; 12] =
    ["time", "peer", "method", "target", "status", "bytes", "ms", "tls", "suite", "resumed", "path", "why"];

/// Method, target and fields of a request, and status and body bytes of its line.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

#[test]
fn every_response_has_a_line_with_every_field() {
    let site = Site::new();
    site.add("f", "content");
    site.add("dir/f", "");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let etag = http::get(&mut client, "/f").expect("an answer").field("etag").expect("a tag").to_owned();
    let requests: [Case<'_>; 8] = [
        ("GET", "/f", &[], "200", "7"),
        ("HEAD", "/f", &[], "200", "0"),
        ("GET", "/f", &[("If-None-Match", &etag)], "304", "0"),
        ("GET", "/f", &[("Range", "bytes=1-3")], "206", "3"),
        ("GET", "/f", &[("Range", "bytes=9-")], "416", "26"),
        ("GET", "/none?q=\"a\\b", &[], "404", "14"),
        ("GET", "/dir", &[], "301", "22"),
        ("POST", "/f", &[], "405", "23"),
    ];
    for (n, (method, target, fields, status, bytes)) in requests.into_iter().enumerate() {
        http::request(&mut client, method, target, fields).expect("an answer");
        let line = access_line(&server, n + 2);
        assert_eq!(line.names(), FIELDS, "{}", line.text);
        let shown = [line.get("method"), line.get("target"), line.get("status"), line.get("bytes")];
        assert_eq!(shown, [method, target, status, bytes], "{}", line.text);
        assert_eq!(line.get("peer"), client.socket().local_addr().expect("an address").to_string());
        assert_eq!((line.get("tls"), line.get("suite")), ("1.3", "TLS_AES_128_GCM_SHA256"), "{}", line.text);
        assert_eq!((line.get("resumed"), line.way()), ("no", ("user", "never")), "{}", line.text);
        let millis: f64 = line.get("ms").parse().expect("a number");
        assert!(millis >= 0.0);
        let time = line.get("time");
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
}

#[test]
fn what_is_no_request_has_a_line_too() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    exchange(&mut site.connect(&server), b"nonsense\r\n\r\n").assert_orderly();
    let line = access_line(&server, 1);
    assert_eq!([line.get("method"), line.get("target"), line.get("status")], ["-", "-", "400"], "{}", line.text);
}

#[test]
fn lines_name_the_suite_and_a_resumed_session() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut lines = 0;
    for suite in Suite::all() {
        let connector = site.connector(suite);
        for resumed in ["no", "yes"] {
            let mut client = connector.connect(server.address());
            http::get(&mut client, "/f").expect("an answer");
            lines += 1;
            let line = access_line(&server, lines);
            let offered = client.info().suite.replace("TLS13_", "TLS_");
            assert_eq!((line.get("suite"), line.get("resumed")), (offered.as_str(), resumed), "{}", line.text);
            assert_eq!(line.get("tls"), if suite.to_string().contains("1.2") { "1.2" } else { "1.3" }, "{suite}");
        }
    }
}

#[test]
fn a_client_that_goes_away_is_in_the_line() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    client.reset().expect("the connection is reset");
    let line = access_line(&server, 1);
    let sent: u64 = line.get("bytes").parse().expect("a number");
    assert!(sent < LARGE && line.get("aborted").contains("connection lost"), "{}", line.text);
    assert_eq!(line.get("status"), "200");
}

#[test]
fn a_file_is_appended_to_and_whole_at_the_end() {
    let site = Site::new();
    site.add("f", "content");
    let log = site.outside().join("access.log");
    for run in 1..=2 {
        let name = log.display().to_string();
        let mut server = site.serve_from_user_space(&["--access-log", &name]);
        let mut client = site.connect(&server);
        for _ in 0..100 {
            http::get(&mut client, "/f").expect("an answer");
        }
        server.signal(Signal::TERM);
        client.read_to_end().expect("the server closes").assert_orderly();
        drop(client);
        assert_eq!(server.wait().code(), Some(0));
        assert!(server.lines().iter().all(|line| line.stderr), "standard output stays empty");
        let text = std::fs::read_to_string(&log).expect("the log is text");
        assert_eq!(text.lines().count(), run * 100);
        assert!(text.lines().all(|line| LogLine::parse(line).names() == FIELDS));
    }
}

/// Standard output is a pipe that nobody reads, as behind a pager: responses go on, and so does the end.
#[test]
fn a_destination_that_takes_nothing_holds_up_nothing() {
    let site = Site::new();
    site.add("f", "content");
    let fifo = site.outside().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    let _never_read = std::fs::File::options().read(true).write(true).open(&fifo).expect("it opens");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "log=$1; shift; exec \"$@\" >\"$log\"", "sh"]).arg(&fifo).arg(support::PROGRAM);
    command.args(site.arguments(&["--ktls", "never"]));
    let mut server = Server::spawn(command);
    let mut client = site.connect(&server);
    // More than a pipe and the writer's buffer hold.
    for _ in 0..1000 {
        http::get(&mut client, "/f").expect("an answer");
    }
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
    wait_for_message(&server, "the access log lost its last lines");
}

#[test]
fn off_means_off() {
    let site = Site::new();
    site.add("f", "content");
    let mut server = site.serve_from_user_space(&["--access-log", "off"]);
    let mut client = site.connect(&server);
    http::get(&mut client, "/f").expect("an answer");
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    server.wait();
    assert!(server.lines().iter().all(|line| line.stderr));
}

#[test]
fn the_default_is_standard_output() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&[]);
    http::get(&mut site.connect(&server), "/f").expect("an answer");
    assert_eq!(access_lines(&server, 1)[0].names(), FIELDS);
}
