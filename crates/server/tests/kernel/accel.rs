//! Downloads that an application authorises, from the kernel.

use std::fs;

use sealion_testkit::ktls::Counters;
use sealion_testkit::{Suite, http};

use crate::support::http2::{Http2, INITIAL_WINDOW_SIZE};
use crate::support::upstream::Upstream;
use crate::support::{Site, access_lines, content};

const LEN: u64 = (8 << 20) + 3;

#[test]
fn a_download_that_an_application_authorises_goes_by_sendfile() {
    let site = Site::new();
    site.add_large("large", LEN);
    let private = site.outside().join("private");
    fs::create_dir(&private).expect("a directory");
    content::write(&private.join("large"), LEN);
    let named = format!("X-Sendfile: {}/large", private.display());
    let upstream = Upstream::answering(move |request| {
        let field = if request.line().contains("sendfile") { &named } else { "X-Accel-Redirect: /protected/large" };
        format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let keys = format!(
        "accel = {{ sendfile_from = ['private'] }}\nproxy = {{ to = '{}' }}\n\
         route = [{{ path = '/protected/', internal = true, files = true, alias = 'root' }}]",
        upstream.url()
    );
    let server = site.config(&keys).table("[server]\nktls = 'always'\n").serve();
    let counters = Counters::now();
    let mut client = site.connector(Suite::TLS13).connect(server.address());
    for target in ["/", "/sendfile"] {
        let whole = http::get(&mut client, target).expect("a response");
        assert_eq!(whole.status, 200);
        content::assert_equal(&whole.body, 0..LEN);
        let range = [("Range", "bytes=777-5000000")];
        let part = http::request(&mut client, "GET", target, &range).expect("a response");
        assert_eq!(part.status, 206);
        content::assert_equal(&part.body, 777..5_000_001);
    }
    let settings = [(INITIAL_WINDOW_SIZE, 1 << 24)];
    let mut http2 = Http2::connect(site.connector(Suite::TLS13), server.address(), &settings);
    let (status, body) = http2.fetch("/");
    assert_eq!(status, 200);
    content::assert_equal(&body, 0..LEN);
    assert_eq!(counters.tx_sw_since(), 2, "a connection each");
    let lines = access_lines(&server, 5);
    assert!(lines.iter().all(|line| line.way().0 == "kernel" && line.find("upstream").is_some()), "{lines:#?}");
}
