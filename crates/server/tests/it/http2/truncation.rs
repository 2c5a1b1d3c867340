//! Files that are truncated while they are sent.

use std::fs;

use sealion_testkit::pattern;

use super::{connect_slow_reader, serve};
use crate::support::access_line;
use crate::support::http2::{INITIAL_WINDOW_SIZE, window_update};

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
