//! A configuration with `gzip`, served by nginx and, converted, by this server: which responses of an application are compressed, and their fields.

use std::io::Read;
use std::net::SocketAddr;

use sealion_testkit::http::{self, Response};
use sealion_testkit::{Connector, Suite};

use super::nginx_corpus::Corpus;
use crate::support::upstream::Upstream;

const CONFIGURATION: &str = "
gzip on;
gzip_vary on;
gzip_proxied any;
gzip_min_length 1000;
gzip_comp_level 5;
gzip_types text/plain application/json image/svg+xml;
server {
    listen @A@ ssl;
    server_name a.example;
    location / { proxy_pass http://@U@; }
    location /out/ { gzip off; proxy_pass http://@U@; }
    location /json/ { gzip_types application/json; proxy_pass http://@U@; }
}
";

/// Path and Accept-Encoding, length and fields of the application's response, and whether both compress it.
const ROWS: [(&str, &str, usize, &str, bool); 22] = [
    ("/", "gzip", 5000, "Content-Type: text/html", true),
    ("/", "gzip", 5000, "Content-Type: text/html; charset=utf-8", true),
    ("/", "gzip", 5000, "Content-Type: text/plain", true),
    ("/", "gzip", 5000, "Content-Type: application/json", true),
    ("/", "gzip", 5000, "Content-Type: image/png", false),
    ("/", "gzip", 5000, "Content-Type: text/css", false),
    ("/", "gzip", 1000, "Content-Type: text/html", true),
    ("/", "gzip", 999, "Content-Type: text/html", false),
    ("/", "gzip", 0, "Content-Type: text/html", false),
    ("/", "gzip, deflate, br", 5000, "Content-Type: text/html", true),
    ("/", "br;q=1.0, gzip;q=0.8", 5000, "Content-Type: text/html", true),
    ("/", "gzip;q=0", 5000, "Content-Type: text/html", false),
    ("/", "deflate", 5000, "Content-Type: text/html", false),
    ("/", "identity", 5000, "Content-Type: text/html", false),
    ("/", "gzip", 5000, "Content-Type: text/html\r\nContent-Encoding: br", false),
    ("/", "gzip", 5000, "Content-Type: text/html\r\nETag: \"v1\"", true),
    ("/", "gzip", 5000, "Content-Type: text/html\r\nETag: W/\"v1\"", true),
    ("/", "gzip", 5000, "Content-Type: text/html\r\nAccept-Ranges: bytes", true),
    ("/", "deflate", 5000, "Content-Type: text/html\r\nETag: \"v1\"\r\nAccept-Ranges: bytes", false),
    ("/out/", "gzip", 5000, "Content-Type: text/html", false),
    ("/json/", "gzip", 5000, "Content-Type: application/json", true),
    ("/json/", "gzip", 5000, "Content-Type: text/plain", false),
];

fn text(length: usize) -> Vec<u8> {
    b"words that come again and again, ".iter().copied().cycle().take(length).collect()
}

/// Status, coding, whether it depends on Accept-Encoding, validator, ranges, whether the length is known, content.
type Summary = (u16, Option<String>, bool, Option<String>, Option<String>, bool, Vec<u8>);

fn summary(response: &Response) -> Summary {
    let field = |name: &str| response.field(name).map(str::to_owned);
    let coding = field("content-encoding");
    let varies =
        response.fields.iter().any(|(name, value)| name.eq_ignore_ascii_case("vary") && value == "Accept-Encoding");
    let mut content = response.body.clone();
    if coding.as_deref() == Some("gzip") {
        content.clear();
        flate2::read::GzDecoder::new(&*response.body).read_to_end(&mut content).expect("complete gzip");
    }
    let has_length = response.field("content-length").is_some();
    (response.status, coding, varies, field("etag"), field("accept-ranges"), has_length, content)
}

#[test]
fn responses_of_applications_are_compressed_where_nginx_compresses_them() {
    let corpus = Corpus::new();
    let application = Upstream::answering(|request| {
        let row: usize = request
            .head
            .lines()
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .unwrap_or_default()
            .rsplit('-')
            .next()
            .and_then(|row| row.parse().ok())
            .expect("a row");
        let (_, _, length, fields, _) = ROWS[row];
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        [head.as_bytes(), &text(length)].concat()
    });
    let text_of = CONFIGURATION.replace("@U@", &application.address().to_string());
    let both = corpus.serve_both("compression", &text_of, CONFIGURATION);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let ask = |address: SocketAddr, method: &str, target: &str, accept: &str| {
        let mut client = connector.connect(address);
        let fields = [("Host", "a.example"), ("Accept-Encoding", accept)];
        summary(&http::request(&mut client, method, target, &fields).expect("a response"))
    };
    let mut wrong = Vec::new();
    for (row, (location, accept, length, fields, is_compressed)) in ROWS.into_iter().enumerate() {
        let target = format!("{location}row-{row}");
        let their = ask(both.theirs.address("@A@"), "GET", &target, accept);
        let our = ask(both.ours.address("@A@"), "GET", &target, accept);
        if their != our || (our.1.as_deref() == Some("gzip")) != is_compressed || our.6 != text(length) {
            let but_content = |(a, b, c, d, e, f, content): Summary| (a, b, c, d, e, f, content.len());
            let (their, our) = (but_content(their), but_content(our));
            wrong.push(format!("{location} {accept} {length} {fields}: nginx {their:?}, here {our:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
