//! Secrets in the configuration: no message shows one.

use std::process::Command;

use sealion_testkit::server::{Server, Signal};

use crate::support::{PROGRAM, Site, wait_for_message};

/// Values that each contain the secret `hunter1`.
const KEYS: &str = "
headers = { set = { X-Token = 'hunter1' } }
[[site.route]]
path = '/c/'
forward_auth = { to = 'http://127.0.0.1:9/verify?token=hunter1' }
[[site.route]]
path = '/a/'
[site.route.proxy]
to = 'http://127.0.0.1:9'
request_headers = [{ name = 'Authorization', value = 'Bearer hunter1' }]
response_headers = [{ name = 'X-Key', value = 'hunter1' }]
[[site.route]]
path = '/b/'
[site.route.proxy]
to = 'fastcgi://127.0.0.1:9'
fastcgi = { params = { APP_KEY = 'hunter1' } }
[[site.route]]
path = '/d/'
match = { header = { x-tok = 'hunter1' }, cookie = { s = ['hunter1'] }, query = { q = '~ ^hunter1' } }
respond = { text = 'hunter1' }
[[site.route]]
path = '/e/'
redirect = 'https://a.example/?key=hunter1'
[[site.route]]
path = '/f/'
rewrite = { to = '/c/x?key=hunter1' }
[[map]]
name = 't'
from = '{header.a}'
default = 'hunter1'
entries = { a = 'hunter1' }
";

#[test]
fn a_reload_names_the_secrets_that_changed_and_shows_none() {
    let site = Site::new();
    let server = site.config(KEYS).serve();
    site.config(&KEYS.replace("hunter1", "hunter2")).write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    for key in [
        "site[0].headers.set.X-Token",
        "site[0].route[0].forward_auth.to",
        "site[0].route[1].proxy.request_headers[0].value",
        "site[0].route[1].proxy.response_headers[0].value",
        "site[0].route[2].proxy.fastcgi.params.APP_KEY",
        "site[0].route[3].match.header.x-tok",
        "site[0].route[3].match.cookie.s",
        "site[0].route[3].match.query.q",
        "site[0].route[3].respond.text",
        "site[0].route[4].redirect",
        "site[0].route[5].rewrite.to",
        "map[0].default",
        "map[0].entries.a",
    ] {
        let changed = wait_for_message(&server, &format!("{key}: "));
        assert!(changed.contains(" becomes "), "{changed}");
    }
    let to = wait_for_message(&server, "site[0].route[0].forward_auth.to: ");
    assert!(to.contains("http://127.0.0.1:9/verify?…"), "the rest of a URL is shown: {to}");
    assert_hides(&written(&server));
}

#[test]
fn a_reload_that_is_refused_shows_no_secret() {
    let site = Site::new();
    let config = site.config("");
    let server = config.serve();
    for (table, key) in [
        ("[otlp]\nendpoint = 'http://127.0.0.1:9'\nheaders = { Authorization = 'Bearer hunter1' }", "otlp.headers."),
        ("[otlp]\nendpoint = 'http://name:hunter1@127.0.0.1:9'", "otlp.endpoint"),
        ("[cache]\ndirectories = ['c']\npurge_stream = 'redis://:hunter1@127.0.0.1:9/key'", "cache.purge_stream"),
    ] {
        config.clone().table(table).write();
        server.signal(Signal::HUP);
        wait_for_message(&server, key);
    }
    // The order of messages shows that all of them were written.
    config.write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert_hides(&written(&server));
}

#[test]
fn what_is_wrong_with_a_secret_does_not_show_it() {
    let site = Site::new();
    for (keys, table, words) in [
        ("proxy = { to = 'http://name:hunter1@host' }", "", "has a user"),
        ("proxy = { to = 'name:hunter1@host' }", "", "is not the URL of a server"),
        ("forward_auth = { to = 'ftp://name:hunter1@host/' }", "", "is not the URL of a server"),
        (
            "proxy = { to = 'http://a', request_headers = [{ name = 'A', value = \"hunter1\\n\" }] }",
            "",
            "A: its value has characters that no field may have",
        ),
        (
            "proxy = { to = 'http://a', request_headers = [{ name = 'A', value = 1907 }] }",
            "",
            "request_headers.value: ",
        ),
        ("headers = { set = { A = 1907 } }", "", "headers.set.A: "),
        ("", "[[upstream]]\nname = 'a'\nservers = [{ url = 'http://name:hunter1@host' }]", "has a user"),
        ("", "[otlp]\nendpoint = 'name:hunter1@host'", "otlp.endpoint: "),
        ("", "[cache]\ndirectories = ['c']\npurge_stream = 'name:hunter1@host'", "is not a stream"),
        (
            "names = ['a.test']\nacme = true",
            "[tls.acme]\nagree_to_terms = true\ndirectory = 'http://name:hunter1@host/'",
            "is not an https:// address",
        ),
    ] {
        let problems = site.config(keys).table(table).problems();
        assert!(problems.contains(words), "{keys}{table}: {problems}");
        assert_hides(&problems);
        assert!(!problems.contains("1907"), "{problems}");
    }
}

#[test]
fn the_commands_of_an_operator_show_no_secret() {
    let site = Site::new();
    let config = site.config(KEYS);
    let server = config.serve();
    config.clone().table("[otlp]\nendpoint = 'http://name:hunter1@127.0.0.1:9'").write();
    let pid = server.pid().to_string();
    let reload = Command::new(PROGRAM).args(["reload", "--pid", &pid]).output().expect("it starts");
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    assert_hides(&format!("{reload:?}{}", written(&server)));
}

fn written(server: &Server) -> String {
    server.lines().into_iter().map(|line| line.text + "\n").collect()
}

#[track_caller]
fn assert_hides(text: &str) {
    assert!(!text.contains("hunter"), "{text}");
}
