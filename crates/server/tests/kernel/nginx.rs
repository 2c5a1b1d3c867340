//! nginx with kernel TLS on the same root: the same bodies, statuses, ranges and conditions, and a list of where we
//! differ on purpose.
//!
//! These tests fail, and never skip, where kernel TLS or nginx is missing.

use std::net::SocketAddr;

use sealion_testkit::Suite;
use sealion_testkit::http::{self, Response};
use sealion_testkit::ktls::Counters;
use sealion_testkit::server::Server;

use crate::support::nginx::Nginx;
use crate::support::{Site, content, curl, multipart};

const SIZES: [u64; 9] = [0, 1, 1000, 16_383, 16_384, 16_385, 65_536, 65_537, (1 << 20) + 7];

/// Both servers on one root.
struct Pair {
    site: Site,
    ours: Server,
    nginx: Nginx,
}

impl Pair {
    fn new() -> Self {
        let site = Site::new();
        for len in SIZES {
            site.add_large(&len.to_string(), len);
        }
        site.add("index.html", "<p>top");
        site.add("dir/index.html", "<p>inner");
        site.add("a b/\u{e9}.txt", "text");
        site.add("empty/x", "x");
        site.add(".hidden", "x");
        let ours = site.serve(&["--ktls", "always"]);
        let nginx = Nginx::serve(&site);
        Self { site, ours, nginx }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.ours.address(), self.nginx.address]
    }

    /// Asks ours and nginx, on connections of their own: nginx closes after many errors.
    #[track_caller]
    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> [Response; 2] {
        self.addresses().map(|address| self.ask_one(address, method, target, fields))
    }

    #[track_caller]
    fn ask_one(&self, address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        let mut client = self.site.connector(Suite::TLS13).connect(address);
        http::request(&mut client, method, target, fields)
            .unwrap_or_else(|e| panic!("{method} {target} {fields:?}: {e}"))
    }
}

#[test]
fn the_same_bodies_both_by_the_kernel() {
    let pair = Pair::new();
    for suite in [Suite::TLS12, Suite::TLS13] {
        for (address, name) in pair.addresses().into_iter().zip(["ours", "nginx"]) {
            let counters = Counters::now();
            let mut client = pair.site.connector(suite).connect(address);
            for len in SIZES {
                let got = http::get(&mut client, &format!("/{len}")).expect("an answer");
                assert_eq!(got.status, 200);
                content::assert_equal(&got.body, 0..len);
            }
            assert!(counters.tx_sw_since() >= 1, "{name} does not use kernel TLS with {suite}");
        }
    }
    for target in ["/", "/dir/", "/dir", "/a%20b/%C3%A9.txt", "/1048583"] {
        let [ours, theirs] = pair.addresses().map(|address| curl::get(&pair.site.pki, address, target, &["-L"]));
        assert_eq!((ours.status, ours.body), (theirs.status, theirs.body), "{target}");
    }
}

#[test]
fn the_same_statuses_and_descriptions() {
    let pair = Pair::new();
    for (method, target) in [
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/dir/"),
        ("GET", "/dir"),
        ("GET", "/1000"),
        ("HEAD", "/1000"),
        ("GET", "/1000?query"),
        ("GET", "//1000"),
        ("GET", "/%31000"),
        ("GET", "/a%20b/%c3%a9.txt"),
        ("GET", "/none"),
        ("HEAD", "/none"),
        ("GET", "/1000/"),
        ("POST", "/1000"),
        ("PUT", "/1000"),
        ("DELETE", "/1000"),
    ] {
        let [ours, theirs] = pair.ask(method, target, &[]);
        assert_eq!(ours.status, theirs.status, "{method} {target}");
        if ours.status == 200 {
            assert_eq!(ours.body, theirs.body, "{method} {target}");
            for field in ["content-length", "last-modified", "accept-ranges"] {
                assert_eq!(ours.field(field), theirs.field(field), "{method} {target}: {field}");
            }
            let essence = |r: &Response| r.field("content-type").map(|t| t.split(';').next().unwrap_or(t).to_owned());
            assert_eq!(essence(&ours), essence(&theirs), "{method} {target}");
        }
    }
}

#[test]
fn the_same_ranges() {
    let pair = Pair::new();
    for target in ["/1048583", "/1000", "/1"] {
        for value in [
            "bytes=0-0",
            "bytes=0-",
            "bytes=7-16390",
            "bytes=1-70001",
            "bytes=-1",
            "bytes=-70001",
            "bytes=-99999999",
            "bytes=999-5000",
            "bytes=1048582-",
            "bytes=1048583-",
            "bytes=99999999-",
            "bytes=-0",
            "bytes=0-0,2-2",
            "bytes=5-5,16383-200001,-70001,2-3",
            "bytes=0-0,99999999-",
            "bytes=0-999999,0-999999",
            "lines=0-1",
        ] {
            let [ours, theirs] = pair.ask("GET", target, &[("Range", value)]);
            assert_eq!(ours.status, theirs.status, "{target} {value}");
            assert_eq!(ours.field("content-range"), theirs.field("content-range"), "{target} {value}");
            let is_multipart = |r: &Response| r.field("content-type").is_some_and(|t| t.starts_with("multipart/"));
            assert_eq!(is_multipart(&ours), is_multipart(&theirs), "{target} {value}");
            if is_multipart(&ours) {
                let [ours, theirs] = [&ours, &theirs].map(multipart::parts);
                assert_eq!(ours, theirs, "{target} {value}");
            } else if ours.status < 300 {
                assert!(ours.body == theirs.body, "{target} {value}: the bodies differ");
            }
        }
    }
}

#[test]
fn the_same_conditions() {
    let pair = Pair::new();
    let [our_tag, their_tag] = pair.ask("GET", "/1000", &[]).map(|got| {
        (got.field("etag").expect("a tag").to_owned(), got.field("last-modified").expect("a date").to_owned())
    });
    assert_eq!(our_tag.1, their_tag.1);
    // TAG and DATE stand for the server's own validators.
    for (status, fields) in [
        (304, &[("If-None-Match", "TAG")][..]),
        (304, &[("If-None-Match", "W/TAG")]),
        (304, &[("If-None-Match", "\"x\", TAG")]),
        (304, &[("If-None-Match", "*")]),
        (200, &[("If-None-Match", "\"x\"")]),
        (304, &[("If-Modified-Since", "DATE")]),
        (200, &[("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")]),
        (200, &[("If-Modified-Since", "no date")]),
        (200, &[("If-None-Match", "\"x\""), ("If-Modified-Since", "DATE")]),
        (200, &[("If-Match", "TAG")]),
        (200, &[("If-Match", "*")]),
        (412, &[("If-Match", "\"x\"")]),
        (412, &[("If-Match", "W/TAG")]),
        (200, &[("If-Unmodified-Since", "DATE")]),
        (412, &[("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")]),
        (412, &[("If-Match", "\"x\""), ("If-None-Match", "TAG")]),
        (304, &[("If-Match", "TAG"), ("If-None-Match", "TAG")]),
        (206, &[("If-Range", "TAG"), ("Range", "bytes=1-2")]),
        (206, &[("If-Range", "DATE"), ("Range", "bytes=1-2")]),
        (200, &[("If-Range", "\"x\""), ("Range", "bytes=1-2")]),
        (200, &[("If-Range", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Range", "bytes=1-2")]),
        (304, &[("If-None-Match", "TAG"), ("Range", "bytes=1-2")]),
    ] {
        for (n, (tag, date)) in [&our_tag, &their_tag].into_iter().enumerate() {
            let name = ["ours", "nginx"][n];
            let values: Vec<String> =
                fields.iter().map(|(_, value)| value.replace("TAG", tag).replace("DATE", date)).collect();
            let fields: Vec<(&str, &str)> =
                fields.iter().zip(&values).map(|((name, _), value)| (*name, value.as_str())).collect();
            let got = pair.ask_one(pair.addresses()[n], "GET", "/1000", &fields);
            assert_eq!(got.status, status, "{name}: {fields:?}");
            match status {
                200 => content::assert_equal(&got.body, 0..1000),
                206 => content::assert_equal(&got.body, 1..3),
                304 => assert_eq!(got.field("etag"), Some(tag.as_str()), "{name}"),
                _ => {}
            }
        }
    }
}

/// Where we differ on purpose: method, target, fields, our status, nginx's, and why.
#[test]
fn deliberate_differences() {
    type Difference = (&'static str, &'static str, &'static [(&'static str, &'static str)], u16, u16, &'static str);
    const LATE: &str = "Fri, 31 Dec 9999 23:59:59 GMT";
    let differences: [Difference; 8] = [
        ("BREW", "/1000", &[], 501, 405, "a method that nobody knows is not implemented (RFC 9110 §15.6.2)"),
        ("GET", "/.hidden", &[], 404, 200, "dotfiles are hidden unless asked for"),
        ("GET", "/empty/", &[], 404, 403, "without an index there is nothing there, forbidden or not"),
        ("GET", "/dir/../1000", &[], 400, 200, "clients resolve dot segments (RFC 3986 §5.2.4): who sends them probes"),
        ("GET", "/1000", &[("Range", "bytes=2-1")], 200, 416, "an invalid range is ignored (RFC 9110 §14.1.1)"),
        ("GET", "/1000", &[("Range", "bytes=x")], 200, 416, "likewise"),
        ("HEAD", "/1000", &[("Range", "bytes=0-0")], 200, 206, "Range is defined for GET alone (RFC 9110 §14.2)"),
        (
            "GET",
            "/1000",
            &[("If-Modified-Since", LATE)],
            304,
            200,
            "a date is compared, not matched (RFC 9110 §13.1.3)",
        ),
    ];
    let pair = Pair::new();
    for (method, target, fields, our_status, their_status, why) in differences {
        let statuses = pair.ask(method, target, fields).map(|got| got.status);
        assert_eq!(statuses, [our_status, their_status], "{method} {target} {fields:?}: {why}");
    }
    let [ours, theirs] = pair.ask("POST", "/1000", &[]);
    assert_eq!(ours.field("allow"), Some("GET, HEAD"), "405 has Allow (RFC 9110 §15.5.6)");
    assert_eq!(theirs.field("allow"), None);
    let [ours, theirs] = pair.ask("GET", "/dir", &[]);
    assert_eq!(ours.field("location"), Some("/dir/"), "a reference needs no host (RFC 9110 §10.2.2)");
    assert!(theirs.field("location").is_some_and(|l| l.starts_with("https://") && l.ends_with("/dir/")), "{theirs:?}");
    let [ours, theirs] = pair.addresses().map(|address| curl::get(&pair.site.pki, address, "/a%20b/%C3%A9.txt", &[]));
    assert_eq!(ours.field("content-type"), Some("text/plain; charset=utf-8"), "text says its charset");
    assert_eq!(theirs.field("content-type"), Some("text/plain"));
}
