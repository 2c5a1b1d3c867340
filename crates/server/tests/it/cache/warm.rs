//! `sealion warm`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Cached, answer, counting, status};
use crate::support::PROGRAM;
use crate::support::upstream::Upstream;

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// Runs the command against the server of the test, whatever the hosts of the URLs are.
fn warm(cached: &Cached, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("warm").args(arguments).args(["--rate", "1000", "--connect", &cached.server().address().to_string()]);
    command.arg("--roots").arg(cached.site.pki.certificate_file());
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("the program runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn said(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn urls_are_in_the_cache_once_they_were_asked_for() {
    let cached = Cached::new(counting(FRESH));
    let urls = ["https://localhost/a", "https://localhost/b?c#d"];
    assert_eq!(said(&warm(&cached, &urls, "")), (Some(0), "2 stored, 0 there already, 0 failed\n", ""));
    let list = "https://localhost/a\n\n# a comment\n  https://localhost/new  \n";
    let output = warm(&cached, &["--list", "-"], list);
    assert_eq!(said(&output), (Some(0), "1 stored, 1 there already, 0 failed\n", ""));
    let browser = [("Accept-Encoding", "gzip, deflate, br, zstd")];
    for target in ["/a", "/b?c", "/new"] {
        assert_eq!(status(&cached.get(target, &browser)), "hit", "{target}");
    }
    assert_eq!(cached.fetches(), 3);
    assert_eq!(cached.origin.last().all("accept-encoding"), ["br, gzip, zstd"]);
}

#[test]
fn what_is_not_stored_is_told_with_the_reason() {
    let origin = Upstream::answering(|request| match request.line() {
        "GET /private" => answer(200, "Cache-Control: private\r\n", b"mine"),
        "GET /missing" => answer(404, FRESH, b"none"),
        _ => answer(200, FRESH, request.all("x-lang").concat().as_bytes()),
    });
    let cached = Cached::new(origin);
    let urls = [
        "https://localhost/private",
        "https://localhost/missing",
        "/a",
        "https://localhost/b",
        "https://other.example/",
    ];
    let output = warm(&cached, &[&["--header", "X-Lang: de"], &urls[..]].concat(), "");
    let (code, counts, reasons) = said(&output);
    assert_eq!((code, counts), (Some(1), "1 stored, 0 there already, 4 failed\n"), "{reasons}");
    for expected in [
        "/private: it is not stored: private",
        "/missing: its status is 404",
        "/a: it is not a whole URL",
        "https://other.example/: ",
    ] {
        assert!(reasons.contains(expected), "{expected}: {reasons}");
    }
    assert_eq!(cached.get("/b", &[]).body, b"de");
}

#[test]
fn a_sitemap_names_what_is_asked_for() {
    let origin = Upstream::answering(|request| match request.line() {
        "GET /sitemap.xml" => {
            let entry = |name| format!("<sitemap><loc>https://localhost/{name}</loc></sitemap>");
            let entries = ["1.xml", "2.xml.gz", "1.xml", "sitemap.xml", "3.xml"].map(entry).concat();
            answer(200, "", format!("<sitemapindex>{entries}</sitemapindex>").as_bytes())
        }
        "GET /1.xml" => answer(200, "", b"<urlset><url><loc>https://localhost/a</loc></url></urlset>"),
        "GET /2.xml.gz" => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(b"<urlset><url><loc>https://localhost/b</loc></url></urlset>").expect("memory");
            answer(200, "", &packed.finish().expect("memory"))
        }
        "GET /3.xml" => answer(500, "", b""),
        _ => answer(200, FRESH, b"the body"),
    });
    let cached = Cached::new(origin);
    let output = warm(&cached, &["--sitemap", "https://localhost/sitemap.xml"], "");
    let (code, counts, reasons) = said(&output);
    assert_eq!((code, counts), (Some(1), "2 stored, 0 there already, 1 failed\n"), "{reasons}");
    assert!(reasons.contains("https://localhost/3.xml: the sitemap's status is 500"), "{reasons}");
    for target in ["/a", "/b"] {
        assert_eq!(status(&cached.get(target, &[("Accept-Encoding", "br, gzip, zstd")])), "hit", "{target}");
    }
}

#[test]
fn arguments_that_cannot_be_honoured_are_refused_with_an_example() {
    for (arguments, expected) in [
        (&["warm"][..], "required"),
        (&["warm", "--rate", "5"], "required"),
        (&["warm", "https://a.example/", "--rate", "0"], "for instance 10"),
        (&["warm", "https://a.example/", "--header", "Accept-Language"], "Accept-Language: de"),
        (&["warm", "https://a.example/", "--header", "Host: b.example"], "hosts in the URLs"),
        (&["warm", "--list", "/nonexistent"], "cannot read /nonexistent"),
    ] {
        let output = Command::new(PROGRAM).args(arguments).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}
