//! Routes: paths of a site with settings and an action of their own.

mod actions;
mod conditions;
mod error_pages;
mod explained;
mod guards;
mod redirects;
mod values;

use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Suite};

use crate::support::Site;
use crate::support::http2::Http2;
use crate::support::upstream::{Upstream, ok};

/// The statuses of a target over HTTP/1.1 and HTTP/2.
#[track_caller]
fn statuses(site: &Site, server: &Server, target: &str) -> [u16; 2] {
    let over_http1 = http::get(&mut site.connect(server), target).expect("a response").status;
    let (over_http2, _) = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]).fetch(target);
    [over_http1, over_http2]
}

/// The status and the content of a target, which are the same over HTTP/1.1 and HTTP/2.
#[track_caller]
fn fetched(site: &Site, server: &Server, target: &str) -> (u16, String) {
    let response = http::get(&mut site.connect(server), target).expect("a response");
    let (status, content) = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]).fetch(target);
    assert_eq!((response.status, &response.body), (status, &content), "{target}");
    (status, text(&response))
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).expect("text")
}

/// A request with these fields.
#[track_caller]
fn request(client: &mut Client, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    http::request(client, method, target, fields).expect("a response")
}

/// A server that answers with the request line that it got.
fn echo() -> Upstream {
    Upstream::answering(|request| ok(request.line().as_bytes()))
}
