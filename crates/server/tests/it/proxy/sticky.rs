//! Clients that stay with a server by a cookie, and servers that drain.

use std::process::Command;

use sealion_testkit::Client;
use sealion_testkit::http::{self, Response};
use sealion_testkit::server::{Server, Signal};

use crate::support::config::Config;
use crate::support::upstream::{Upstream, ok};
use crate::support::watch::Watched;
use crate::support::{PROGRAM, Site, messages, wait_for_cache, wait_until};

fn servers() -> [Upstream; 3] {
    ["a", "b", "c"].map(|name| Upstream::answering(move |_| ok(name.as_bytes())))
}

/// `states`: keys of each server.
fn config(site: &Site, servers: &[Upstream], states: [&str; 3], keys: &str) -> Config {
    let servers = servers.iter().zip(states).map(|(server, keys)| format!("{{ url = '{}'{keys} }}", server.url()));
    let servers: Vec<_> = servers.collect();
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{}]\n{keys}\n", servers.join(", "));
    site.config("proxy = { to = 'app' }").table(&table)
}

#[track_caller]
fn get(client: &mut Client, cookie: &str) -> Response {
    let fields: &[_] = if cookie.is_empty() { &[] } else { &[("Cookie", cookie)] };
    let response = http::request(client, "GET", "/", fields).expect("a response");
    assert_eq!(response.status, 200);
    response
}

/// The pair of name and value in Set-Cookie.
#[track_caller]
fn cookie(response: &Response) -> String {
    response.field("set-cookie").and_then(|value| value.split(';').next()).expect("a cookie").to_owned()
}

#[track_caller]
fn reload(server: &Server, config: &Config) {
    config.write();
    let before = messages(server, " is in use");
    server.signal(Signal::HUP);
    wait_until("it has reloaded", || messages(server, " is in use") > before);
}

/// Runs `sealion drain` or `sealion ready`. The outcome, and what it says.
fn order(server: &Server, arguments: &[&str]) -> (bool, String) {
    let pid = server.pid().to_string();
    let output = Command::new(PROGRAM).args(arguments).args(["--pid", &pid]).output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

#[test]
fn a_server_drains_by_order_and_no_session_is_lost() {
    let (site, servers) = (Site::new(), servers());
    let with = |keys: &str| {
        config(&site, &servers, [", id = 'one'", "", ""], keys).table("[metrics]\nlisten = '127.0.0.1:0'\n")
    };
    let watched = Watched::of(with("sticky = true").serve_from_user_space());
    let server = &watched.server;
    let mut client = site.connect(server);
    let mut sessions = Vec::new();
    wait_until("each server has a session", || {
        let response = get(&mut client, "");
        sessions.push((response.body.clone(), cookie(&response)));
        [b"a", b"b", b"c"].iter().all(|name| sessions.iter().any(|(body, _)| body == *name))
    });
    let of_a = sessions.iter().find(|(body, _)| body == b"a").expect("a session").1.clone();
    let is_drained = |client: &mut Client| (0..12).all(|_| get(client, "").body != b"a");
    let (done, text) = order(server, &["drain", "app", "other"]);
    assert!(!done && text.contains(&format!("it has one ({}), {}", servers[0].url(), servers[1].url())), "{text}");
    let (done, text) = order(server, &["drain", "app", "one"]);
    assert!(done && text.contains("no new clients"), "{text}");
    assert!(is_drained(&mut client));
    assert_eq!(get(&mut client, &of_a).body, b"a", "its session goes on");
    let labels = |server: &Upstream| format!("{{upstream=\"app\",server=\"{}\"}}", server.url());
    let draining = |of: &Upstream| watched.scrape().get(&format!("sealion_upstream_draining{}", labels(of)));
    assert_eq!([&servers[0], &servers[1]].map(draining), [1.0, 0.0]);
    let shown = Command::new(PROGRAM)
        .args(["top", "--once", "--every", "100ms", "--url", &format!("http://{}", watched.address)])
        .output()
        .expect("the program runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let line = |of: &Upstream| shown.lines().find(|line| line.contains(&of.url())).unwrap_or_default().to_owned();
    assert!(line(&servers[0]).contains(" drain, ") && line(&servers[1]).contains(" up, "), "{shown}");
    // Also where the upstream is built again.
    reload(server, &with("sticky = true\ntries = 2"));
    assert!(is_drained(&mut client), "the order holds through a reload");
    assert_eq!(get(&mut client, &of_a).body, b"a");
    assert!(order(server, &["drain", "app", &servers[1].url()]).0);
    for (arguments, words) in [
        (["drain", "app", &servers[2].url()], "no other server"),
        (["drain", "app", "http://127.0.0.1:1"], "no such server"),
        (["ready", "other", "one"], "no [[upstream]]"),
    ] {
        let (done, text) = order(server, &arguments);
        assert!(!done && text.contains(words), "{arguments:?}: {text}");
    }
    assert!(order(server, &["ready", "app", &servers[0].url()]).0);
    wait_until("it gets new clients", || get(&mut client, "").body == b"a");
}

#[test]
fn a_client_stays_with_the_server_that_its_cookie_names() {
    let (site, servers) = (Site::new(), servers());
    let server = config(&site, &servers, [""; 3], "sticky = true").serve_from_user_space();
    let mut client = site.connect(&server);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let first = get(&mut client, "");
        let value = first.field("set-cookie").expect("a cookie");
        assert!(
            value.starts_with("sealion_app=") && value.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"),
            "{value}"
        );
        assert!(!servers.iter().any(|server| value.contains(&server.address().port().to_string())), "{value}");
        let own = cookie(&first);
        for _ in 0..5 {
            let next = get(&mut client, &format!("theme=dark; {own}"));
            assert_eq!((&next.body, next.field("set-cookie")), (&first.body, None));
        }
        seen.push(first.body);
    }
    seen.sort();
    assert_eq!(seen, [b"a", b"b", b"c"], "new clients go to the servers in turn");
    // A client whose cookie names no server is a new one.
    assert!(get(&mut client, "sealion_app=none").field("set-cookie").is_some());
}

/// Each upstream has a cookie of its own.
#[test]
fn a_client_stays_with_a_server_of_each_upstream_that_a_placeholder_chooses() {
    let site = Site::new();
    let servers = ["a1", "a2", "b1", "b2"].map(|name| Upstream::answering(move |_| ok(name.as_bytes())));
    let table = |name: &str, of: &[Upstream]| {
        let urls: Vec<_> = of.iter().map(|server| format!("{{ url = '{}' }}", server.url())).collect();
        format!("[[upstream]]\nname = '{name}'\nservers = [{}]\nsticky = true\n", urls.join(", "))
    };
    let tables = table("a", &servers[..2]) + &table("b", &servers[2..]);
    let server = site.config("proxy = { to = '{header.x-pool}' }").table(&tables).serve_from_user_space();
    let mut client = site.connect(&server);
    let mut ask = |pool: &str, cookies: &str| {
        let fields = [("X-Pool", pool), ("Cookie", cookies)];
        http::request(&mut client, "GET", "/", &fields).expect("a response")
    };
    let first = ["a", "b"].map(|pool| ask(pool, "x=1"));
    let cookies = format!("{}; {}", cookie(&first[0]), cookie(&first[1]));
    assert!(cookies.starts_with("sealion_a=") && cookies.contains("; sealion_b="), "{cookies}");
    for _ in 0..6 {
        for (pool, first) in ["a", "b"].iter().zip(&first) {
            let again = ask(pool, &cookies);
            assert_eq!((again.status, &again.body), (200, &first.body));
            assert_eq!(again.field("set-cookie"), None);
        }
    }
}

#[test]
fn a_client_whose_server_is_away_gets_another_one_and_stays_there() {
    let site = Site::new();
    let servers = servers();
    let gone = Upstream::start(|_| {});
    let all = [servers[0].url(), gone.url()].map(|url| format!("{{ url = '{url}', id = 'ID' }}"));
    let [first, second] = all.each_ref().map(String::as_str);
    let table = format!(
        "[[upstream]]\nname = 'app'\nservers = [{}, {}]\nsticky = {{ cookie = 'srv', max_age = '1h' }}\n",
        first.replace("ID", "good"),
        second.replace("ID", "gone")
    );
    let server = site.config("proxy = { to = 'app' }").table(&table).serve_from_user_space();
    let mut client = site.connect(&server);
    for _ in 0..5 {
        let response = get(&mut client, "srv=gone");
        assert_eq!(response.body, b"a");
        let expected = "srv=good; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(response.field("set-cookie"), Some(expected));
    }
    assert_eq!(get(&mut client, "srv=good").field("set-cookie"), None);
}

#[test]
fn a_server_that_drains_keeps_its_sessions_and_gets_no_new_ones() {
    let (site, servers) = (Site::new(), servers());
    let server = config(&site, &servers, [""; 3], "sticky = true").serve_from_user_space();
    let mut client = site.connect(&server);
    let sessions: Vec<_> = (0..3).map(|_| get(&mut client, "")).collect();
    let drained = sessions.iter().find(|session| session.body == b"b").expect("a session of b");
    reload(&server, &config(&site, &servers, ["", ", state = 'drain'", ""], "sticky = true"));
    let mut client = site.connect(&server);
    for session in &sessions {
        let next = get(&mut client, &cookie(session));
        assert_eq!((&next.body, next.field("set-cookie")), (&session.body, None));
    }
    for _ in 0..12 {
        assert_ne!(get(&mut client, "").body, b"b");
    }
    // Without the server, its sessions go elsewhere.
    let rest = [servers[0].url(), servers[2].url()].map(|url| format!("{{ url = '{url}' }}")).join(", ");
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{rest}]\nsticky = true\n");
    reload(&server, &site.config("proxy = { to = 'app' }").table(&table));
    let mut client = site.connect(&server);
    let moved = get(&mut client, &cookie(drained));
    assert!(moved.body != b"b" && moved.field("set-cookie").is_some());
    for session in sessions.iter().filter(|session| session.body != b"b") {
        assert_eq!(get(&mut client, &cookie(session)).body, session.body, "names stay");
    }
}

/// A stored response is for many clients.
#[test]
fn no_stored_response_has_the_cookie_of_a_client() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| {
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 1\r\n\r\na".to_vec()
    });
    let directory = site.outside().join("cache");
    let table = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\nsticky = true\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
        upstream.url(),
        directory.display()
    );
    let server = site.config("proxy = { to = 'app', cache = {} }").table(&table).serve_from_user_space();
    wait_for_cache(&server, &directory);
    let mut client = site.connect(&server);
    for _ in 0..3 {
        assert_eq!(get(&mut client, "").field("set-cookie"), None);
    }
    assert_eq!(upstream.requests().len(), 1);
    let posted = super::post(&mut client, "/", &[("Content-Length", "1")], b"x");
    assert!(posted.field("set-cookie").is_some());
}

/// A response that the cache does not store is for the client that asked.
#[test]
fn a_response_for_one_client_has_its_cookie_beside_a_cache() {
    let (site, servers) = (Site::new(), servers());
    let directory = site.outside().join("cache");
    let all: Vec<_> = servers.iter().map(|server| format!("{{ url = '{}' }}", server.url())).collect();
    let table = format!(
        "[[upstream]]\nname = 'app'\nservers = [{}]\nsticky = true\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
        all.join(", "),
        directory.display()
    );
    let server = site.config("proxy = { to = 'app', cache = {} }").table(&table).serve_from_user_space();
    wait_for_cache(&server, &directory);
    let mut client = site.connect(&server);
    for _ in 0..3 {
        let first = get(&mut client, "");
        let own = cookie(&first);
        for _ in 0..5 {
            let next = get(&mut client, &own);
            assert_eq!((&next.body, next.field("set-cookie")), (&first.body, None));
        }
    }
}

#[test]
fn an_upstream_that_drains_all_of_its_servers_is_refused() {
    let (site, servers) = (Site::new(), servers());
    let problems = config(&site, &servers, [", state = 'drain'"; 3], "").problems();
    assert!(problems.contains("drains all of its servers"), "{problems}");
}
