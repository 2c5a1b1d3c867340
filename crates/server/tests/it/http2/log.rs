//! The log and the metrics of HTTP/2.

use std::fs;

use super::{connect, serve};
use crate::support::http2::{CANCEL, DATA, Ended, INITIAL_WINDOW_SIZE, REFUSED_STREAM, block, frame, headers, reset};
use crate::support::watch::Watched;
use crate::support::{Site, access_lines};

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
    let server = site.config("route = [{ path = '/in/', basic_auth = { users = 'users' } }]\n").serve_from_user_space();
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
fn streams_resets_waits_and_floods_are_counted() {
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("one", 100_000);
    let options = ["--metrics", "127.0.0.1:0", "--http2-max-streams", "2", "--access-log-fields", "time,stream,status"];
    let watched = Watched::of(site.serve_from_user_space(&options));
    let before = watched.scrape();
    for series in ["streams_total", "resets_total", "floods_total", "stalls_total"] {
        assert_eq!(before.sum(&format!("sealion_http2_{series}")), 0.0, "{series}");
    }
    let mut http = connect(&site, &watched.server, &[(INITIAL_WINDOW_SIZE, 1000)]);
    http.credit = 0;
    http.fetch("/f");
    // A response that waits for a window, and a request that waits for content: no slot is left for a third.
    let waiting = http.get("/one");
    http.read_until("the window is used", |http| http.streams.get(&waiting).is_some_and(|got| got.body.len() == 1000));
    let open = http.request("POST", "/f", &[], false);
    let refused = http.get("/f");
    assert_eq!(http.response(refused).ended, Some(Ended::Reset(REFUSED_STREAM)));
    http.send(&[reset(open, CANCEL), reset(waiting, 0x99)].concat());
    http.request("GET", "/f", &[("connection", "close")], true);
    http.ping();
    let empty = http.request("POST", "/f", &[], false);
    for _ in 0..1000 {
        if http.client.send(&frame(DATA, 0, empty, &[])).is_err() {
            break;
        }
    }
    http.read_to_end();
    let scrape = watched.scrape();
    for (series, value) in [
        ("streams_total{result=\"accepted\"}", 4.0),
        ("streams_total{result=\"refused\"}", 1.0),
        ("streams_total{result=\"malformed\"}", 1.0),
        ("resets_total{by=\"client\",code=\"CANCEL\"}", 1.0),
        ("resets_total{by=\"client\",code=\"other\"}", 1.0),
        ("resets_total{by=\"server\",code=\"REFUSED_STREAM\"}", 1.0),
        ("resets_total{by=\"server\",code=\"PROTOCOL_ERROR\"}", 1.0),
        ("stalls_total", 1.0),
        ("floods_total{limit=\"empty-data\"}", 1.0),
    ] {
        assert_eq!(scrape.get(&format!("sealion_http2_{series}")), value, "{series}");
    }
    assert_eq!(scrape.sum("sealion_http2_resets_total"), 4.0);
    assert_eq!(scrape.sum("sealion_http2_floods_total"), 1.0);
    let lines = access_lines(&watched.server, 4);
    let shown: Vec<_> = lines.iter().map(|line| (line.get("stream"), line.get("status"))).collect();
    assert_eq!(shown, [("1", "200"), ("7", "503"), ("3", "200"), ("9", "400")]);
}
