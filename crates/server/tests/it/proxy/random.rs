//! Many requests at once, to servers that die at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sealion_testkit::http;

use super::serve_to;
use crate::support::Site;
use crate::support::upstream::Upstream;

/// Each body names its request, so that an answer to another one would show.
#[test]
fn no_answer_is_mixed_up_while_servers_die() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 500;
    let site = Site::new();
    let dying = |seed: usize| {
        let count = AtomicUsize::new(seed);
        Upstream::start(move |accepted| {
            while let Some(request) = accepted.request() {
                let body = request.line().repeat(1 + request.line().len() % 7);
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let n = count.fetch_add(1, Ordering::Relaxed);
                match n % 11 {
                    // Before, within and behind an answer.
                    3 => return,
                    5 => return accepted.reset(),
                    7 => return accepted.write(&response.as_bytes()[..n % response.len()]),
                    8 => {
                        accepted.write(response.as_bytes());
                        return;
                    }
                    _ => accepted.write(response.as_bytes()),
                }
            }
        })
    };
    let servers = [dying(0), dying(4), dying(9)];
    let urls = servers.each_ref().map(Upstream::url);
    let server = serve_to(&site, &urls.each_ref().map(String::as_str), "max_fails = 1000\ntries = 3");
    let site = Arc::new(site);
    let good: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (site, server) = (&site, &server);
                scope.spawn(move || {
                    let mut connection = site.connect(server);
                    let mut good = 0;
                    for n in 0..REQUESTS {
                        let line = format!("GET /{client}/{n}");
                        match http::get(&mut connection, &line[4..]) {
                            Ok(response) if response.status == 200 => {
                                assert_eq!(response.body, line.repeat(1 + line.len() % 7).as_bytes());
                                good += 1;
                            }
                            Ok(response) => assert_eq!(response.status, 502),
                            // Cut short, and so shown.
                            Err(_) => connection = site.connect(server),
                        }
                    }
                    good
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum()
    });
    assert!(good > CLIENTS * REQUESTS / 2, "{good} of {}", CLIENTS * REQUESTS);
}
