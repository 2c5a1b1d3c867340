//! Uploads whose client leaves behind an upgrade: the process before learns it at once, even if the upstream takes nothing.

use sealion_testkit::pattern;

use super::*;
use crate::support::http2::RST_STREAM;

/// An upstream that reads nothing of an upload until the test says so, and then all of it. It answers other requests by a step.
fn stubborn(upload: Arc<Mutex<Receiver<()>>>, slow: Arc<Mutex<Receiver<()>>>) -> Upstream {
    Upstream::start(move |accepted| {
        while let Some(head) = accepted.head() {
            if head.starts_with("POST ") {
                next(&upload);
                accepted.read_to_end();
                return;
            }
            next(&slow);
            accepted.write(&sealion_testkit::upstream::ok(b"at last"));
        }
    })
}

/// Sends content until neither the upstream nor the way to it has room.
fn fill(http: &mut Http2, stream: u32, server: &sealion_testkit::server::Server) {
    const FRAME: u64 = 16_000;
    const FIRST_WINDOW: u64 = 65_535;
    let mut sent = 0;
    let room = |http: &Http2, sent: u64| {
        let granted = |of: u32| FIRST_WINDOW + http.granted.get(&of).copied().unwrap_or(0);
        granted(stream).min(granted(0)) - sent >= FRAME
    };
    loop {
        while room(http, sent) {
            http.send(&frame(DATA, 0, stream, &pattern::bytes(sent..sent + FRAME)));
            sent += FRAME;
        }
        http.ping();
        if !room(http, sent) {
            wait_until_it_rests(server);
            http.ping();
        }
        if !room(http, sent) {
            return;
        }
    }
}

/// A connection with an upload that its upstream does not read, and with a request whose response is awaited, behind an upgrade.
struct Blocked {
    relayed: Relayed,
    http: Http2,
    upload: u32,
    slow: u32,
}

impl Blocked {
    fn start(site: &Site, upstream: &Upstream) -> Self {
        let relayed = Relayed::serve(site, upstream);
        let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
        http.ping();
        let upload = http.request("POST", "/upload", &[], false);
        let slow = http.get("/slow");
        wait_until("the upstream has both", || upstream.connections() == 2);
        fill(&mut http, upload, &relayed.service.first);
        relayed.upgrade(1);
        Blocked { relayed, http, upload, slow }
    }
}

#[test]
fn an_upload_that_is_reset_behind_an_upgrade_ends_alone_and_at_once() {
    let site = Site::new();
    let ((read, upload_steps), (answer, slow_steps)) = (steps(), steps());
    let upstream = stubborn(upload_steps, slow_steps);
    let Blocked { mut relayed, mut http, upload, slow } = Blocked::start(&site, &upstream);
    http.send(&frame(RST_STREAM, 0, upload, &8_u32.to_be_bytes()));
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("target"), line.get("status")), ("/upload", "499"));
    // The connection passes again.
    relayed.upgrade(1);
    answer.send(()).expect("the upstream waits");
    assert_eq!(http.response(slow).whole(), (200, &b"at last"[..]));
    // The upstream has read nothing.
    relayed.assert_first_ends();
    read.send(()).expect("the upstream waits");
    wait_until("the upload has ended", || upstream.has_ended(2));
    assert_eq!(access_lines(&relayed.service.first, 2)[1].get("target"), "/slow");
}

#[test]
fn an_upload_whose_connection_ends_behind_an_upgrade_ends_at_once() {
    for is_orderly in [false, true] {
        let site = Site::new();
        let ((read, upload_steps), (answer, slow_steps)) = (steps(), steps());
        let upstream = stubborn(upload_steps, slow_steps);
        let Blocked { mut relayed, mut http, .. } = Blocked::start(&site, &upstream);
        match is_orderly {
            true => http.client.close_notify().expect("it leaves"),
            false => http.client.reset().expect("it leaves"),
        }
        relayed.assert_first_ends();
        drop(answer);
        read.send(()).expect("the upstream waits");
        wait_until("both have ended", || upstream.has_ended(2));
        let lines = access_lines(&relayed.service.first, 2);
        assert!(lines.iter().all(|line| line.get("status") == "499"), "{lines:?}");
    }
}

/// The client closes its direction within an upload whose response has begun: the stream goes on, and the upstream learns that no more content comes.
#[test]
fn the_process_before_is_told_of_an_upload_that_breaks_off() {
    let site = Site::new();
    let (step, stream_steps) = steps::<Vec<u8>>();
    let upstream = Upstream::start(move |accepted| {
        accepted.head();
        accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        // Chunks, without the last one.
        accepted.read_to_end();
        if let Some(chunk) = next(&stream_steps) {
            accepted.write(format!("{:x}\r\n", chunk.len()).as_bytes());
            accepted.write(&[&chunk[..], b"\r\n0\r\n\r\n"].concat());
        }
    });
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    let stream = http.request("POST", "/upload", &[], false);
    http.send(&frame(DATA, 0, stream, b"begin"));
    http.read_until("its beginning", |http| http.streams.get(&stream).is_some_and(|got| got.body == b"first"));
    relayed.upgrade(1);
    http.client.close_notify().expect("it leaves");
    drop(step);
    relayed.assert_first_ends();
    wait_until("the upstream has seen the end", || upstream.has_ended(1));
    assert!(access_line(&relayed.service.first, 1).find("aborted").is_some());
}
