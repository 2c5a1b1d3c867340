//! What log and metrics say, and files that are truncated.

use std::fs;
use std::time::Duration;

use sealion_testkit::pattern;

use super::{connect, connect_slow_reader, serve};
use crate::support::http2::{CANCEL, Ended, INITIAL_WINDOW_SIZE, PING, block, frame, headers, reset, window_update};
use crate::support::watch::Watched;
use crate::support::{Site, access_line, access_lines};

#[test]
fn a_file_that_is_truncated_never_ends_its_stream() {
    let (site, server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    http.send(&window_update(0, 1 << 30));
    let stream = http.get("/large");
    http.read_until("its head", |http| http.streams.contains_key(&stream));
    let file = fs::File::options().write(true).open(site.root().join("large")).expect("it opens");
    file.set_len(1000).expect("it is truncated");
    let how = http.read_to_end();
    assert!(how.starts_with("Alert(internal_error)"), "{how}");
    let got = &http.streams[&stream];
    assert_eq!(got.ended, None, "{} octets", got.body.len());
    pattern::assert_starts(&got.body, 0);
    let aborted = access_line(&server, 1).get("aborted").to_owned();
    assert!(aborted.contains("were promised"), "{aborted}");
}

#[test]
fn log_and_metrics_know_what_was_sent_on_each_stream() {
    const FIELDS: &str = "time,method,target,protocol,status,bytes,path,why";
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("one", 100_000);
    let watched = Watched::of(site.serve_from_user_space(&["--metrics", "127.0.0.1:0", "--access-log-fields", FIELDS]));
    let mut http = connect(&site, &watched.server, &[]);
    let streams = [http.get("/f"), http.get("/one"), http.get("/none"), http.request("HEAD", "/one", &[], true)];
    for stream in streams {
        http.response(stream).whole();
    }
    let lines = access_lines(&watched.server, 4);
    let line = |method: &str, path: &str| {
        let of = |line: &&crate::support::LogLine| line.get("method") == method && line.get("target") == path;
        lines.iter().find(of).unwrap_or_else(|| panic!("no line of {method} {path}: {lines:#?}"))
    };
    for (method, path, status, bytes) in
        [("GET", "/f", "200", "7"), ("GET", "/one", "200", "100000"), ("HEAD", "/one", "200", "0")]
    {
        let line = line(method, path);
        assert_eq!((line.get("status"), line.get("bytes"), line.find("aborted")), (status, bytes, None));
        assert_eq!((line.get("protocol"), line.way()), ("HTTP/2", ("user", "never")), "{}", line.text);
    }
    assert_eq!(line("GET", "/none").get("status"), "404");
    let scrape = watched.scrape();
    assert_eq!(scrape.get("sealion_http_responses_total{code=\"200\"}"), 3.0);
    assert_eq!(scrape.get("sealion_http_responses_total{code=\"404\"}"), 1.0);
    assert_eq!(scrape.get("sealion_responses_total{path=\"user\",reason=\"never\"}"), 4.0);
}

#[test]
fn wrong_passwords_of_a_client_that_does_not_wait_are_logged() {
    let site = Site::new();
    site.add("in/x", "secret");
    let hash = bcrypt::hash_with_result("right", 8).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("written");
    let server = site.config("basic_auth = [{ path = '/in/', users = 'users' }]\n").serve_from_user_space();
    // ada:wrong
    let fields = [("authorization", "Basic YWRhOndyb25n")];
    let mut http = connect(&site, &server, &[]);
    let stream = http.stream();
    http.send(&[headers(stream, true, &block("GET", "/in/x", &fields)), reset(stream, CANCEL)].concat());
    http.request("GET", "/in/x", &fields, true);
    http.ping();
    http.client.reset().expect("it is reset");
    for line in access_lines(&server, 2) {
        assert_eq!((line.get("status"), line.find("aborted").is_some()), ("401", true), "{}", line.text);
    }
}

#[test]
fn refused_requests_have_lines_with_what_is_known() {
    let (site, server) = serve(&["--request-timeout", "300ms"]);
    let mut http = connect(&site, &server, &[]);
    let many: Vec<(String, String)> = (0..120).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let stream = http.request("HEAD", "/f", &many, true);
    assert_eq!(http.response(stream).whole(), (431, &b""[..]), "HEAD has no content");
    let stream = http.request("POST", "/f", &[], false);
    assert_eq!(http.response(stream).whole().0, 408);
    // It is reset before it has a stream.
    let stream = http.request("GET", "/f", &[("connection", "close")], true);
    assert!(matches!(http.response(stream).ended, Some(Ended::Reset(_))));
    let lines = access_lines(&server, 3);
    let shown: Vec<_> = lines.iter().map(|line| (line.get("status"), line.get("method"), line.get("target"))).collect();
    assert_eq!(shown, [("431", "HEAD", "/f"), ("408", "POST", "/f"), ("400", "-", "-")]);
    assert!(lines[2].find("aborted").is_some(), "{}", lines[2].text);
}

#[test]
fn an_idle_connection_stays_idle_whatever_it_sends_but_requests() {
    let (site, server) = serve(&["--idle-timeout", "500ms"]);
    let mut http = connect(&site, &server, &[]);
    http.fetch("/f");
    http.client.socket().set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(20));
        // The server may have closed already.
        let _ = http.client.send(&frame(PING, 0, 0, b"tests888"));
        let read = http.read();
        if !http.go_aways.is_empty() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof) {
            return;
        }
    }
    panic!("PINGs renew the idle time");
}
