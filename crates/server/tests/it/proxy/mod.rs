//! Requests that are forwarded to a server.

mod accel;
mod auth;
mod bounds;
mod buffers;
pub(crate) mod connect;
mod connections;
mod content;
mod disk;
mod fastcgi;
mod fastcgi_contents;
mod fastcgi_guards;
mod faults;
mod forwarded;
mod grpc;
mod guards;
mod http2;
mod interim;
mod mirror;
mod piped;
mod proxy_protocol;
mod random;
mod real_servers;
mod rules;
mod shared_connection;
mod smuggling;
mod sticky;
mod trailers;
mod tunnel;
mod uwsgi;
mod websocket;

use sealion_testkit::server::Server;
use sealion_testkit::{Client, Ending, Event, http};
use sealion_tls::AlertDescription;

use crate::support::Site;
use crate::support::config::Config;
use crate::support::upstream::Upstream;

/// A site that forwards everything to `upstream`, with these further keys of its upstream.
#[track_caller]
fn serve(site: &Site, upstream: &Upstream, keys: &str) -> Server {
    serve_to(site, &[&upstream.url()], keys)
}

/// The same, for servers by their URLs.
#[track_caller]
fn serve_to(site: &Site, urls: &[&str], keys: &str) -> Server {
    serve_config(site, urls, keys).serve_from_user_space()
}

pub(crate) fn serve_config(site: &Site, urls: &[&str], keys: &str) -> Config {
    let servers: Vec<_> = urls.iter().map(|url| format!("{{ url = '{url}' }}")).collect();
    let upstream = format!("[[upstream]]\nname = 'app'\nservers = [{}]\n{keys}\n", servers.join(", "));
    site.config("proxy = { to = 'app' }").table(&upstream)
}

/// Sends a request with a body in one record and reads the response.
#[track_caller]
fn post(client: &mut Client, target: &str, fields: &[(&str, &str)], body: &[u8]) -> http::Response {
    let mut bytes = http::head("POST", target, fields).into_bytes();
    bytes.extend_from_slice(body);
    client.send(&bytes).expect("the request leaves");
    http::read_response(client, "POST").expect("a response")
}

/// Whether a connection ended by close_notify.
fn is_orderly(ending: &Ending) -> bool {
    ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY))
}
