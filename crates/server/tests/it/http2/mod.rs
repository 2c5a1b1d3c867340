//! HTTP/2: responses equal the responses of HTTP/1.1, streams share a connection, and no client harms another.

mod abuse;
mod deadlines;
mod end;
mod flow;
mod log;
mod same;
mod truncation;

use std::process::Command;

use sealion_testkit::Suite;
use sealion_testkit::server::Server;

use crate::support::http2::Http2;
use crate::support::{LARGE, Site, built_program};

#[track_caller]
fn connect(site: &Site, server: &Server, settings: &[(u16, u32)]) -> Http2 {
    Http2::connect(site.connector(Suite::TLS13), server.address(), settings)
}

#[track_caller]
fn connect_slow_reader(site: &Site, server: &Server, settings: &[(u16, u32)]) -> Http2 {
    let connector = site.connector(Suite::TLS13).receive_buffer(crate::support::SMALL_WINDOW);
    Http2::connect(connector, server.address(), settings)
}

/// A server in user space with `f`, which says "content", and `large`.
fn serve(options: &[&str]) -> (Site, Server) {
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(options);
    (site, server)
}

/// Another client is answered.
#[track_caller]
fn assert_serves(site: &Site, server: &Server) {
    assert_eq!(connect(site, server, &[]).fetch("/f"), (200, b"content".to_vec()));
}

#[test]
fn h2spec_finds_no_violation() {
    let site = Site::new();
    site.add("index.html", "content");
    let server = site.serve_from_user_space(&[]);
    let mut command = Command::new(built_program("h2spec"));
    command.args(["--tls", "--insecure", "--strict", "--timeout", "20", "--host", "127.0.0.1", "--port"]);
    let output = command.arg(server.address().port().to_string()).output().expect("h2spec starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" 0 failed"), "{text}");
    assert!(text.contains("146 tests, 146 passed"), "{text}");
}
