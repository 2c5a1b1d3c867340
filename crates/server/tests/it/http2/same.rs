//! Responses equal the responses of HTTP/1.1.

use std::fs;
use std::process::Command;

use sealion_testkit::http::{Response, request};
use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Connector, Suite, pattern};

use super::{connect, serve};
use crate::support::Site;
use crate::support::config::Config;
use crate::support::configured::Configured;
use crate::support::http2::{
    DATA, END_STREAM, Ended, Http2, MAX_CONCURRENT_STREAMS, PROTOCOL_ERROR, REFUSED_STREAM, frame,
};

/// Asks with curl over both versions, and returns the second response.
#[track_caller]
fn same(served: &Configured, target: &str, options: &[&str]) -> Response {
    let [one, two] = ["--http1.1", "--http2"].map(|version| served.get(target, &[&[version], options].concat()));
    let fields = |response: &Response| {
        let mut fields: Vec<_> =
            response.fields.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
        // Fields that belong to one version or to the moment, and the boundary between parts.
        fields.retain(|(name, _)| !["connection", "date", "transfer-encoding", "keep-alive"].contains(&name.as_str()));
        fields.sort();
        fields
    };
    assert_eq!(two.status, one.status, "{target} {options:?}");
    assert_eq!(fields(&two), fields(&one), "{target} {options:?}");
    assert!(two.body == one.body, "{target} {options:?}: {} and {} octets", two.body.len(), one.body.len());
    let is_lower = |(name, _): &(String, String)| name.bytes().all(|octet| !octet.is_ascii_uppercase());
    assert!(two.fields.iter().all(is_lower), "{:?}", two.fields);
    two
}

const SIZES: [u64; 12] = [0, 1, 1000, 16_374, 16_375, 16_376, 16_384, 65_535, 65_536, 131_073, 1 << 20, (8 << 20) + 3];

#[test]
fn files_of_every_size_and_their_ranges_are_the_same_as_over_http_1() {
    let site = Site::new();
    for len in SIZES {
        site.add_pattern(&len.to_string(), len);
    }
    let served = Configured::serve(site, "");
    for len in SIZES {
        let target = format!("/{len}");
        let got = same(&served, &target, &[]);
        pattern::assert_equal(&got.body, 0..len);
        let tag = format!("If-None-Match: {}", got.field("etag").expect("a tag"));
        assert_eq!(same(&served, &target, &["-H", &tag]).status, 304);
        same(&served, &target, &["--head"]);
        if len > 1000 {
            for (range, start, end) in [("0-0", 0, 1), ("7-16390", 7, 16_391.min(len)), ("-1000", len - 1000, len)] {
                let got = same(&served, &target, &["--range", range]);
                assert_eq!(got.status, 206);
                pattern::assert_equal(&got.body, start..end);
            }
            let refused = same(&served, &target, &["--range", "99999999-"]);
            assert_eq!((refused.status, refused.field("vary")), (416, Some("Accept")));
        }
    }
}

/// Several ranges: the boundary differs from response to response.
#[test]
fn several_ranges_come_in_parts() {
    let site = Site::new();
    site.add_pattern("f", (1 << 20) + 7);
    let served = Configured::serve(site, "");
    let got = served.get("/f", &["--http2", "--range", "3-3,16383-200001,-70001"]);
    assert_eq!(got.status, 206);
    let parts = crate::support::multipart::parts(&got);
    for (part, range) in parts.iter().zip([3..4, 16_383..200_002, (1 << 20) + 7 - 70_001..(1 << 20) + 7]) {
        pattern::assert_equal(&part.bytes, range);
    }
    assert_eq!(parts.len(), 3);
}

#[test]
fn everything_a_site_does_is_the_same_as_over_http_1() {
    let site = Site::new();
    let text: String = (0..5000).map(|line| format!("line {line} of a text that can be compressed\n")).collect();
    for name in ["index.html", "style.css", "in/x", "closed/x", "listed/a", "listed/b"] {
        site.add(name, &text);
    }
    site.add("sibling.css", &text);
    let output =
        Command::new("gzip").args(["-k"]).arg(site.root().join("sibling.css")).status().expect("gzip is needed");
    assert!(output.success());
    site.add("missing.html", "nothing here");
    let hash = bcrypt::hash_with_result("right", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("written");
    let served = Configured::serve(
        site,
        "precompressed = ['gzip']\nerror_pages = { 404 = '/missing.html' }\n\
         route = [\n\
           { path = '= /old', redirect = '/style.css' },\n\
           { path = '/in/', basic_auth = { realm = 'inside', users = 'users' } },\n\
           { path = '/closed/', access = { deny = ['127.0.0.0/8'] } },\n\
         ]\n\
         listing = true\ncompress = true\n",
    );
    for (target, options, status) in [
        ("/", &[][..], 200),
        ("/style.css", &["-H", "Accept-Encoding: zstd"], 200),
        ("/style.css", &["-H", "Accept-Encoding: gzip", "--head"], 200),
        ("/sibling.css", &["-H", "Accept-Encoding: gzip"], 200),
        ("/sibling.css", &["-H", "Accept-Encoding: gzip, br", "--range", "5-90"], 206),
        ("/none", &[], 404),
        ("/none", &["--head"], 404),
        ("/old", &[], 308),
        ("/listed", &[], 301),
        ("/listed/", &[], 200),
        ("/listed/", &["-H", "Accept: application/json"], 200),
        ("/in/x", &[], 401),
        ("/in/x", &["-u", "ada:wrong"], 401),
        ("/in/x", &["-u", "ada:right"], 200),
        ("/%69n/x", &[], 401),
        ("//in//x", &[], 401),
        ("/closed/x", &[], 403),
        ("//closed/x", &[], 403),
        ("/%63losed/x", &[], 403),
        ("/in/../closed/x", &[], 400),
        ("/closed//x?y=z", &[], 403),
        ("/closed%2fx", &[], 404),
        ("/closed/x%00", &[], 400),
        ("/..%2f..%2fusers", &[], 404),
        ("/../users", &[], 400),
        ("/f", &["-X", "DELETE"], 405),
        ("/style.css", &["-d", "some content"], 405),
        ("/style.css", &["-X", "GET", "-d", "some content"], 200),
        ("/", &["-X", "OPTIONS"], 405),
        ("/", &["-H", "Host: other.example"], 200),
    ] {
        let response = same(&served, target, options);
        assert_eq!(response.status, status, "{target} {options:?}");
        assert!(status < 400 || !response.body.starts_with(b"line"), "{target}");
    }
    let coded = same(&served, "/style.css", &["-H", "Accept-Encoding: zstd"]);
    assert_eq!(coded.field("content-encoding"), Some("zstd"));
}

#[test]
fn a_request_whose_host_and_authority_differ_is_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("GET", "/f", &[("host", "other.example")], true);
    let got = http.response(stream);
    assert!(got.status == 400 || got.ended == Some(Ended::Reset(PROTOCOL_ERROR)), "{got:?}");
    let stream = http.request("GET", "/f", &[("host", "localhost")], true);
    assert_eq!(http.response(stream).whole(), (200, &b"content"[..]));
}

#[test]
fn content_that_is_too_long_is_answered_and_not_wanted() {
    let (site, server) = serve(&["--max-discarded-body", "10KiB"]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("POST", "/f", &[], false);
    http.send(&frame(DATA, 0, stream, &[b'x'; 16_000]));
    assert_eq!(http.response(stream).whole().0, 405);
    let stream = http.request("POST", "/f", &[("content-length", "20")], false);
    http.send(&frame(DATA, 0, stream, &[b'x'; 10]));
    http.ping();
    assert!(!http.streams.contains_key(&stream), "its content has not ended");
    http.send(&frame(DATA, END_STREAM, stream, &[b'x'; 10]));
    assert_eq!(http.response(stream).whole().0, 405);
    assert_eq!(http.fetch("/f").0, 200);
}

#[test]
fn http_2_can_be_turned_off_and_its_streams_be_limited() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("[http2]\nenabled = false\n").serve_from_user_space();
    let client = site.connector(Suite::TLS13).alpn(&[b"h2", b"http/1.1"]).connect(server.address());
    assert_eq!(client.info().alpn.as_deref(), Some(&b"http/1.1"[..]));
    let server = site.config("[http2]\nmax_streams = 3\n").serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    let streams: Vec<u32> = (0..4).map(|_| http.request("POST", "/f", &[], false)).collect();
    assert_eq!(http.response(streams[3]).ended, Some(Ended::Reset(REFUSED_STREAM)));
    assert!(http.settings.contains(&(MAX_CONCURRENT_STREAMS, 3)), "{:?}", http.settings);
    for stream in &streams[..3] {
        http.send(&frame(DATA, END_STREAM, *stream, b""));
        assert_eq!(http.response(*stream).whole().0, 405);
    }
    assert_eq!(http.fetch("/f").0, 200);
}

#[test]
fn http_2_can_be_turned_off_for_a_listener_and_for_a_site() {
    let site = Site::new();
    site.add("f", "content");
    let both = Pki::for_names(&["a.test", "b.test"]);
    let connector = |name: &str| Connector::new(&both, Suite::TLS13).name(name).alpn(&[b"h2", b"http/1.1"]);
    let chosen = |server: &Server, name| connector(name).connect(server.address()).info().alpn.clone();
    let sites = |second: &str| {
        let config = Config::within(site.outside()).site("root", &[&both], "names = ['a.test']\ndefault = true");
        config.site("root", &[], &format!("names = ['b.test']\n{second}"))
    };

    let server = sites("").listen("address = '127.0.0.1:0'\nhttp2 = false").serve_from_user_space();
    assert_eq!(chosen(&server, "a.test").as_deref(), Some(&b"http/1.1"[..]));

    let server = sites("http2 = false").serve_from_user_space();
    assert_eq!(chosen(&server, "a.test").as_deref(), Some(&b"h2"[..]));
    assert_eq!(chosen(&server, "b.test").as_deref(), Some(&b"http/1.1"[..]));
    // A connection that the client uses for both, because its certificate covers both.
    let mut http = Http2::connect(connector("a.test").alpn(&[b"h2"]), server.address(), &[]);
    for (name, length, status) in [("a.test", None, 200), ("b.test", None, 421), ("b.test", Some("2"), 421)] {
        let mut fields = vec![(":authority", name)];
        fields.extend(length.map(|length| ("content-length", length)));
        let stream = http.request("GET", "/f", &fields, length.is_none());
        if length.is_some() {
            http.send(&frame(DATA, END_STREAM, stream, b"ab"));
        }
        assert_eq!(http.response(stream).whole().0, status, "{name} {length:?}");
    }
    let mut client = connector("b.test").connect(server.address());
    let got = request(&mut client, "GET", "/f", &[("Host", "b.test")]).expect("a response");
    assert_eq!((got.status, &got.body[..]), (200, &b"content"[..]));
}
