//! Files that are truncated while they are sent.

use std::fs;

use sealion_testkit::pattern;

use super::{connect_slow_reader, serve};
use crate::support::http2::{Ended, Got, Http2, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, window_update};
use crate::support::process::wait_until_it_rests;
use crate::support::{LARGE, access_lines};

#[test]
fn a_file_that_is_truncated_resets_its_stream_and_no_other() {
    let (site, server) = serve(&[]);
    site.add_pattern("other", LARGE);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    http.send(&window_update(0, 1 << 30));
    // Incremental: both are in each batch.
    let [broken, whole] = ["/large", "/other"].map(|path| http.request("GET", path, &[("priority", "i")], true));
    let has_begun = |http: &Http2, stream| http.streams.get(&stream).is_some_and(|got: &Got| !got.body.is_empty());
    http.read_until("both have begun", |http| has_begun(http, broken) && has_begun(http, whole));
    wait_until_it_rests(&server);
    let file = fs::File::options().write(true).open(site.root().join("large")).expect("it opens");
    file.set_len(1000).expect("it is truncated");
    let got = http.response(broken).clone();
    assert_eq!(got.ended, Some(Ended::Reset(INTERNAL_ERROR)), "{} octets", got.body.len());
    pattern::assert_starts(&got.body, 0);
    // The other one lacks nothing, and the connection's window has what was not sent.
    pattern::assert_equal(http.response(whole).whole().1, 0..LARGE);
    assert_eq!(http.fetch("/f"), (200, b"content".to_vec()));
    assert!(http.go_aways.is_empty());
    let lines = access_lines(&server, 3);
    let [line, other, _] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.get("aborted").contains("were promised"), "{}", line.text);
    assert_eq!(line.get("bytes"), got.body.len().to_string());
    assert_eq!((other.get("bytes"), other.find("aborted")), (LARGE.to_string().as_str(), None));
}

/// A client whose windows are small would stall if bytes that were not sent counted as sent.
#[test]
fn what_a_truncated_file_had_of_the_windows_is_given_back() {
    let (site, server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 60_000)]);
    http.credit = 0;
    for _ in 0..20 {
        let file = fs::File::options().write(true).open(site.root().join("large")).expect("it opens");
        file.set_len(LARGE).expect("it is long again");
        let broken = http.get("/large");
        http.read_until("its window is used", |http| {
            http.streams.get(&broken).is_some_and(|got| got.body.len() == 60_000)
        });
        file.set_len(1000).expect("it is truncated");
        http.send(&[window_update(0, 60_000), window_update(broken, 60_000)].concat());
        let got = http.response(broken);
        assert_eq!((got.ended, got.body.len()), (Some(Ended::Reset(INTERNAL_ERROR)), 60_000));
    }
    assert_eq!(http.fetch("/f"), (200, b"content".to_vec()));
}
