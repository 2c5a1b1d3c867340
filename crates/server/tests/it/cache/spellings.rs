//! URLs in several spellings: which of them share a response, and what purges and writes reach.

use rustix::process::Signal;

use super::disk::wait_for_objects;
use super::{Cached, answer, counting, status};
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, wait_for_cache, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

fn by_line() -> Upstream {
    Upstream::answering(|request| answer(200, FRESH, request.line().as_bytes()))
}

/// The server gets one slash in their place.
#[test]
fn slashes_at_the_beginning_are_one_in_the_key_as_for_the_server() {
    let cached = Cached::new(by_line());
    assert_eq!(cached.get("//x?a=//b", &[]).body, b"GET /x?a=//b");
    wait_until("it is stored", || status(&cached.get("/x?a=//b", &[])) == "hit");
    for target in ["/x?a=//b", "//x?a=//b", "////x?a=//b"] {
        let response = cached.get(target, &[]);
        assert_eq!((response.body.as_slice(), status(&response).as_str()), (&b"GET /x?a=//b"[..], "hit"), "{target}");
    }
    assert_eq!(cached.get("/x//y", &[]).body, b"GET /x//y");
    assert_eq!(cached.get("/x/y", &[]).body, b"GET /x/y");
}

/// With a prefix too, the server gets the same for all requests that share a response.
#[test]
fn slashes_at_the_beginning_are_one_before_a_prefix_is_added() {
    let cached = Cached::stopped(by_line(), "", "");
    let rule = "default = true\nproxy = { to = 'app', to_prefix = '/v1', cache = {} }";
    let tables = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\n",
        cached.origin.url(),
        cached.directory.display()
    );
    let server = cached.site.config(rule).table(&tables).serve_from_user_space();
    wait_for_cache(&server, &cached.directory);
    let cached = Cached { server: Some(server), ..cached };
    for target in ["//x", "/x", "///x"] {
        assert_eq!(cached.get(target, &[]).body, b"GET /v1/x", "{target}");
    }
}

#[test]
fn a_purge_and_a_write_reach_a_url_however_many_slashes_it_has() {
    let cached = Cached::with(counting(FRESH), "", "purge_from = ['127.0.0.1']");
    let spellings = ["/N/y", "//N/y", "/N//y", "/N///y", "/\\N/y"];
    let pairs = spellings.iter().flat_map(|stored| spellings.iter().map(move |by| (stored, by)));
    for (n, (stored, by)) in pairs.enumerate() {
        let [stored, by] = [stored, by].map(|spelling| spelling.replace('N', &n.to_string()));
        for method in ["PURGE", "POST"] {
            wait_until("it is stored", || status(&cached.get(&stored, &[])) == "hit");
            assert_eq!(cached.ask(method, &by, &[]).status, 200);
            assert_ne!(status(&cached.get(&stored, &[])), "hit", "{method} {by} of {stored}");
        }
    }
    let cached = Cached::new(counting(FRESH));
    let host = [("Host", "localhost")];
    cached.get("//x", &host);
    wait_until("it is stored", || status(&cached.get("//x", &host)) == "hit");
    let output = std::process::Command::new(PROGRAM)
        .args(["purge", "https://localhost/x", "--pid"])
        .arg(cached.server().pid().to_string())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(cached.get("//x", &host).body, b"body 1");
}

/// The write names the URL in another way than the request whose response is stored.
#[test]
fn a_write_under_another_spelling_outlasts_a_server_that_is_killed() {
    let mut cached = Cached::new(counting(FRESH));
    let rows = [("/%61b", "/ab"), ("/c?d=%2f", "/c?d=%2F"), ("/e~f", "/e%7Ef"), ("/g//h", "/g/h")];
    for (stored, _) in rows {
        cached.get(stored, &[]);
    }
    wait_for_objects(&cached, rows.len());
    for (_, written) in rows {
        assert_eq!(cached.ask("POST", written, &[]).status, 200);
    }
    let mut server = cached.server.take().expect("it runs");
    server.signal(Signal::KILL);
    server.wait();
    cached.restart();
    for (stored, _) in rows {
        assert_eq!(status(&cached.get(stored, &[])), "uri-miss", "{stored}");
    }
}

/// Nobody may purge, and the server may take the method for one of its own.
#[test]
fn purge_is_neither_forwarded_nor_heeded_where_no_network_may_purge() {
    let cached = Cached::new(counting(FRESH));
    cached.get("/a", &[]);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    for target in ["/a", "/b", "*"] {
        let status = cached.ask("PURGE", target, &[]).status;
        assert!(status == 403 || target == "*" && (400..500).contains(&status), "{target}: {status}");
    }
    assert_eq!((status(&cached.get("/a", &[])).as_str(), cached.fetches()), ("hit", 1));
}

#[test]
fn a_rule_can_keep_what_is_stored_when_clients_write() {
    let origin = Upstream::answering(|_| {
        answer(200, &format!("{FRESH}Cache-Groups: \"a\"\r\nCache-Group-Invalidation: \"a\"\r\n"), b"the body")
    });
    let cached = Cached::with(origin, "", "invalidate = false, purge_from = ['127.0.0.1']");
    cached.get("/a", &[]);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    for method in ["POST", "PUT", "DELETE", "PATCH", "FOO"] {
        assert_eq!(cached.ask(method, "/a", &[]).status, 200);
        assert_eq!(status(&cached.get("/a", &[])), "hit", "{method}");
    }
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    assert_eq!(status(&cached.get("/a", &[])), "uri-miss");
}
