//! `sealion top`: the numbers as text for scripts, and what it says when there is no server.

use std::process::{Command, Output};

use sealion_testkit::http;

use crate::support::watch::Watched;
use crate::support::{PROGRAM, Site, wait_until};

pub(crate) fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["top", "--every", "300ms"]).args(arguments).env_remove("SEALION_TOP_URL");
    command.output().expect("the program starts")
}

#[test]
fn once_prints_what_the_server_does() {
    let site = Site::new();
    site.add("often", "content");
    site.add("seldom", "content");
    let watched = Watched::serve(&site, &["--workers", "1"]);
    let mut client = site.connect(&watched.server);
    for _ in 0..20 {
        http::get(&mut client, "/often?x=1").expect("an answer");
    }
    http::get(&mut client, "/seldom").expect("an answer");
    let url = format!("http://{}", watched.address);
    let output = top(&["--once", "--url", &url]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    for topic in
        ["server ", "requests ", "sent ", "connections ", "handshakes ", "latency ", "file cache ", "access log "]
    {
        assert!(text.lines().any(|line| line.starts_with(topic)), "{topic}: {text}");
    }
    assert!(text.contains("idle 1  active 0"), "{text}");
    let paths: Vec<Vec<&str>> =
        text.lines().filter(|line| line.contains(" /")).map(|line| line.split_whitespace().collect()).collect();
    let requests = |path: &str| paths.iter().find(|row| row.last() == Some(&path)).map(|row| row[1]);
    assert_eq!((requests("/often"), requests("/seldom")), (Some("20"), Some("1")), "{text}");
}

#[test]
fn what_was_sent_is_counted_by_site() {
    const LONG: u64 = 64 << 20;
    let site = Site::new();
    site.add("f", "content");
    site.add_large("long", LONG);
    let other = site.outside().join("other");
    std::fs::create_dir(&other).expect("a directory");
    std::fs::write(other.join("f"), "of the other").expect("a file");
    let keys = "names = ['localhost']\ndefault = true\n";
    let config = site.config(keys).site(&other, &[&site.pki], "names = ['other.example']\n");
    let watched = Watched::of(config.table("[metrics]\nlisten = '127.0.0.1:0'").serve_from_user_space());
    let mut client = site.connect(&watched.server);
    http::get(&mut client, "/f").expect("an answer");
    client.send(b"GET /f HTTP/1.1\r\nHost: other.example\r\n\r\n").expect("it is sent");
    assert_eq!(http::read_response(&mut client, "GET").expect("an answer").body, b"of the other");
    let mut cut = site.connect(&watched.server);
    cut.send(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    drop(cut);
    wait_until("the response is cut", || watched.scrape().sum("sealion_site_responses_total") >= 3.0);
    let scrape = watched.scrape();
    let sent = scrape.get("sealion_site_response_bytes_total{site=\"localhost\"}");
    assert!(sent > 7.0 && sent < LONG as f64, "{sent}");
    assert_eq!(scrape.get("sealion_site_responses_total{site=\"localhost\",class=\"2xx\"}"), 2.0);
    assert_eq!(scrape.get("sealion_site_responses_total{site=\"other.example\",class=\"2xx\"}"), 1.0);
    let output = top(&["--once", "--url", &format!("http://{}", watched.address)]);
    let text = String::from_utf8(output.stdout).expect("text");
    for path in ["localhost/f", "localhost/long", "other.example/f"] {
        assert!(text.lines().any(|line| line.split_whitespace().last() == Some(path)), "{path}: {text}");
    }
}

#[test]
fn without_a_server_it_says_what_to_do() {
    // Port 1 (tcpmux) has no listener.
    for (url, words) in [("http://127.0.0.1:1", "--metrics"), ("https://x", "http://127.0.0.1:9443")] {
        let output = top(&["--once", "--url", url]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{text}");
    }
}
