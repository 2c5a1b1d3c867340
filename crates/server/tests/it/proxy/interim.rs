//! Interim responses of servers.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use ::http::{HeaderMap, Request, Response};
use sealion_testkit::{Client, PATIENCE, http};

use crate::support::Site;
use crate::support::http2_upstream::{Http2Upstream, connect, read, run};
use crate::support::upstream::{Upstream, ok};

const NAVIGATE: (&str, &str) = ("Sec-Fetch-Mode", "navigate");

/// Fields that pass, fields of the connection, and fields that the rule of [`serve`] removes or sets.
const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 7\r\n\
    X-Secret: 1\r\nX_Secret: 1\r\nX-Set: theirs\r\n\r\n";

/// An upstream that sends `interim`, and its answer once the test says so.
fn holding(interim: &'static str) -> (Upstream, Sender<()>) {
    let (go, may_go): (_, Receiver<()>) = channel();
    let may_go = Mutex::new(may_go);
    let upstream = Upstream::start(move |accepted| {
        while accepted.request().is_some() {
            accepted.write(interim.as_bytes());
            may_go.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test goes on");
            accepted.write(&ok(b"page"));
        }
    });
    (upstream, go)
}

fn serve(site: &Site, url: &str, keys: &str) -> sealion_testkit::server::Server {
    let fields = "response_headers = [{ name = 'X-Secret', value = '' }, { name = 'X-Set', value = 'ours' }]";
    site.config(&format!("proxy = {{ to = '{url}', {fields}, {keys} }}")).serve_from_user_space()
}

/// The statuses that a GET is answered with, up to the final one.
#[track_caller]
fn statuses(client: &mut Client, fields: &[(&str, &str)]) -> Vec<u16> {
    let mut all = vec![http::request(client, "GET", "/", fields).expect("a response").status];
    while all.last().is_some_and(|status| *status < 200) {
        all.push(http::read_response(client, "GET").expect("a response").status);
    }
    all
}

#[test]
fn early_hints_of_a_server_reach_the_client_before_the_answer() {
    let (upstream, go) = holding(HINTS);
    let site = Site::new();
    let server = serve(&site, &upstream.url(), "");
    let mut client = site.connect(&server);
    let hints = http::request(&mut client, "GET", "/", &[NAVIGATE]).expect("hints");
    assert_eq!((hints.status, &*hints.reason), (103, "Early Hints"));
    assert_eq!(hints.fields, [("link".to_owned(), "</a.css>; rel=preload".to_owned())]);
    go.send(()).expect("the upstream waits");
    let answer = http::read_response(&mut client, "GET").expect("an answer");
    assert_eq!((answer.status, &*answer.body), (200, &b"page"[..]));
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let request = Request::get("https://localhost/").header(NAVIGATE.0, NAVIGATE.1).body(()).expect("a request");
        let (mut response, _) = client.send_request(request, true).expect("it leaves");
        let hints = poll_fn(|cx| response.poll_informational(cx)).await.expect("hints").expect("no error");
        assert_eq!(hints.status(), 103);
        let expected = [(::http::header::LINK, "</a.css>; rel=preload".parse().expect("a value"))];
        assert_eq!(*hints.headers(), HeaderMap::from_iter(expected));
        go.send(()).expect("the upstream waits");
        let mut answer = response.await.expect("an answer");
        assert_eq!((answer.status().as_u16(), &answer.headers()["x-set"]), (200, &"ours".parse().expect("a value")));
        assert_eq!(read(answer.body_mut()).await.expect("content").0, b"page");
    });
}

#[test]
fn interim_responses_that_come_with_the_answer_go_before_it() {
    const ALL: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 199 \r\n\r\n";
    let site = Site::new();
    let upstream = Upstream::answering(|_| [ALL.as_bytes(), &ok(b"page")].concat());
    let server = serve(&site, &upstream.url(), "interim = 'all'");
    let mut client = site.connect(&server);
    for _ in 0..3 {
        assert_eq!(statuses(&mut client, &[]), [102, 103, 199, 200]);
    }
    assert_eq!(upstream.connections(), 1);
    run(async {
        let mut client = connect(server.address(), &site.pki).await;
        let request = Request::get("https://localhost/").body(()).expect("a request");
        let (mut response, _) = client.send_request(request, true).expect("it leaves");
        for expected in [102, 103, 199] {
            let interim = poll_fn(|cx| response.poll_informational(cx)).await.expect("one").expect("no error");
            assert_eq!(interim.status(), expected);
        }
        assert_eq!(response.await.expect("an answer").status(), 200);
    });
}

#[test]
fn interim_responses_pass_for_the_requests_of_the_rule_alone() {
    let upstream = Upstream::answering(|_| [HINTS.as_bytes(), &ok(b"page")].concat());
    let site = Site::new();
    for (keys, fields, passes) in [
        ("", &[NAVIGATE][..], true),
        ("", &[("Sec-Fetch-Mode", "no-cors")], false),
        ("", &[], false),
        ("interim = 'all'", &[], true),
        ("interim = 'none'", &[NAVIGATE], false),
    ] {
        let server = serve(&site, &upstream.url(), keys);
        let expected = if passes { &[103, 200][..] } else { &[200] };
        assert_eq!(statuses(&mut site.connect(&server), fields), expected, "{keys} {fields:?}");
    }
    // HTTP/1.0 knows no response but the final one.
    let server = serve(&site, &upstream.url(), "interim = 'all'");
    let mut client = site.connect(&server);
    client.send(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it leaves");
    assert_eq!(http::read_response(&mut client, "GET").expect("a response").status, 200);
}

#[test]
fn a_server_cannot_send_interim_responses_without_end() {
    let upstream = Upstream::answering(|_| [HINTS.repeat(1000).as_bytes(), &ok(b"page")].concat());
    let site = Site::new();
    let server = serve(&site, &upstream.url(), "");
    let mut client = site.connect(&server);
    for _ in 0..2 {
        let found = statuses(&mut client, &[NAVIGATE]);
        assert_eq!((found.len(), found.last()), (17, Some(&200)));
    }
}

/// The library gives none of HTTP/2. They must not be taken for the answer.
#[test]
fn interim_responses_of_a_server_of_http2_are_dropped() {
    let upstream = Http2Upstream::start(|_, mut respond| {
        Box::pin(async move {
            respond.send_informational(Response::builder().status(103).body(()).expect("hints"))?;
            let mut body = respond.send_response(Response::new(()), false)?;
            body.send_data("page".into(), true)
        })
    });
    let site = Site::new();
    let table =
        format!("[[upstream]]\nname = 'app'\nprotocol = 'http2'\nservers = [{{ url = '{}' }}]\n", upstream.url());
    let rule = "proxy = { to = 'app' }";
    let server = site.config(rule).table(&table).serve_from_user_space();
    assert_eq!(statuses(&mut site.connect(&server), &[NAVIGATE]), [200]);
}
