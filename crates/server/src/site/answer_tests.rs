use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{HeadLimits, RequestHead, find};
use sealion_http::http1::write::{Connection, write_head};

use super::*;
use crate::files::cache::{CacheLimits, FileCache};
use crate::response::Body;

use crate::files::resolve::Wait;
use crate::site::{SiteConfig, SiteContext};
use crate::upstream::Upstreams;
use crate::values::Problems;

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const NOW: &str = "Mon, 07 Nov 1994 08:49:37 GMT";
const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz";

struct Place {
    directory: tempfile::TempDir,
    site: Site,
}

struct Answer {
    head: String,
    body: String,
}

impl Place {
    fn new() -> Self {
        Self::configured("")
    }

    /// A site with keys of its own.
    fn configured(keys: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config: SiteConfig = toml::from_str(keys).unwrap();
        let config = SiteConfig { root: Some(directory.path().to_owned().into()), ..config };
        let mut problems = Problems::of_arguments();
        let cache = FileCache::new(CacheLimits::default());
        let site = config.build(&mut SiteContext::new(&cache, &mut Upstreams::default()), &mut problems);
        let site = Place { directory, site: site.unwrap_or_else(|| panic!("{problems}")) };
        site.write("letters.txt", ALPHABET);
        site.write("empty", "");
        site.write("sub/index.html", "<p>sub");
        site.write(".hidden", "");
        site
    }

    /// Writes a file with modification time [`MODIFIED`].
    fn write(&self, name: &str, content: &str) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
        File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }

    /// Sends a request with request line `line`, such as `GET /`, and further field lines.
    fn ask(&self, line: &str, fields: &[&str]) -> Answer {
        let mut text = format!("{line} HTTP/1.1\r\nHost: a\r\n");
        fields.iter().for_each(|field| text.extend([field, "\r\n"]));
        text.push_str("\r\n");
        let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let head = RequestHead::parse(text.as_bytes(), span).unwrap();
        Answer::of(&head, &ask(&head.request, &self.site))
    }

    fn etag(&self, path: &str) -> String {
        self.ask(&format!("HEAD {path}"), &[]).field("ETag").unwrap().to_string()
    }
}

impl Answer {
    fn of(head: &RequestHead<'_>, response: &Response) -> Self {
        let framing = ResponseFraming::of(head.version, head.request.method, response.status, response.body.len());
        let mut bytes = Vec::new();
        let date = NOW.parse().unwrap();
        write_head(&mut bytes, response.status, &response.fields, framing, Connection::KeepAlive, &date);
        let body = read(&response.body);
        assert_eq!(Some(body.len() as u64), response.body.len(), "{:?}", head.request.raw_target);
        let body = if framing.has_content() { body } else { String::new() };
        Answer { head: String::from_utf8(bytes).unwrap(), body }
    }

    fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn ask(request: &Request<'_>, site: &Site) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (client, now) = (Client::default(), NOW.parse().unwrap());
    answer_at_once(site, request, client, now)
        .unwrap_or_else(|| *runtime.block_on(answer(site, request, client, now, Inbound::default())))
}

fn read(body: &Body) -> String {
    let bytes = match body {
        Body::Empty => Vec::new(),
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Shared(shared) => shared.bytes.to_vec(),
        Body::File { file, range } => file.read(range.clone()),
        Body::Multipart { file, parts, closing } => {
            let mut bytes: Vec<u8> =
                parts.iter().flat_map(|each| [each.head.clone(), file.read(each.range.clone())].concat()).collect();
            bytes.extend_from_slice(closing);
            bytes
        }
        Body::Stream(_) => panic!("a file is no stream"),
    };
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_file_in_full() {
    let site = Place::new();
    let answer = site.ask("GET /letters.txt?query", &[]);
    let etag = site.etag("/letters.txt");
    assert_eq!(
        answer.head,
        format!(
            "HTTP/1.1 200 OK\r\nServer: sealion\r\nDate: {NOW}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 26\r\nLast-Modified: {MODIFIED}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n\r\n"
        )
    );
    assert_eq!(answer.body, ALPHABET);
}

#[test]
fn head_has_the_fields_of_get_and_no_content() {
    let site = Place::new();
    for path in ["/letters.txt", "/empty", "/sub", "/sub/", "/nowhere", "/%00", "/.hidden", "/%2f"] {
        let get = site.ask(&format!("GET {path}"), &[]);
        let head = site.ask(&format!("HEAD {path}"), &[]);
        assert_eq!(head.head, get.head, "{path}");
        assert_eq!(head.body, "");
        assert_eq!(get.field("Content-Length"), Some(get.body.len().to_string().as_str()));
    }
    // Range is not defined for HEAD (RFC 9110 §14.2), and preconditions are.
    let head = site.ask("HEAD /letters.txt", &["Range: bytes=0-0"]);
    assert_eq!((head.status(), head.field("Content-Length")), (200, Some("26")));
    assert_eq!(site.ask("HEAD /letters.txt", &["If-None-Match: *"]).status(), 304);
}

#[test]
fn methods() {
    let site = Place::new();
    for (line, status, allow) in [
        ("POST /letters.txt", 405, Some("GET, HEAD")),
        ("DELETE /nowhere", 405, Some("GET, HEAD")),
        ("TRACE /", 405, Some("GET, HEAD")),
        ("OPTIONS *", 405, Some("GET, HEAD")),
        ("BREW /pot", 501, None),
        ("get /letters.txt", 501, None),
    ] {
        let answer = site.ask(line, &["If-None-Match: *"]);
        assert_eq!((answer.status(), answer.field("Allow")), (status, allow), "{line}");
        assert!(answer.body.starts_with(&status.to_string()), "{}", answer.body);
    }
}

#[test]
fn paths() {
    let site = Place::new();
    for (path, status, location) in [
        ("/sub/", 200, None),
        ("/sub", 301, Some("/sub/")),
        ("/sub?a=b&c", 301, Some("/sub/?a=b&c")),
        ("//sub", 301, Some("/sub/")),
        ("/%73ub", 301, Some("/sub/")),
        ("/", 404, None),
        ("/nowhere", 404, None),
        ("/letters.txt/", 404, None),
        ("/.hidden", 404, None),
        ("/sub%2findex.html", 404, None),
        ("/../secret", 400, None),
        ("/%2e%2e/secret", 400, None),
        ("/%00", 400, None),
        ("/%", 400, None),
    ] {
        // Preconditions apply only where the response would be 2xx (RFC 9110 §13.2.1).
        for fields in [&[][..], &["If-Match: \"x\"", "If-None-Match: *"][..]] {
            let answer = site.ask(&format!("GET {path}"), fields);
            let expected = if status == 200 && !fields.is_empty() { 412 } else { status };
            assert_eq!((answer.status(), answer.field("Location")), (expected, location), "{path} {fields:?}");
        }
    }
}

#[test]
fn not_modified_carries_only_the_validators() {
    let site = Place::new();
    let etag = site.etag("/letters.txt");
    let answer = site.ask("GET /letters.txt", &[&format!("If-None-Match: {etag}"), "Range: bytes=0-0"]);
    assert_eq!(
        answer.head,
        format!(
            "HTTP/1.1 304 Not Modified\r\nServer: sealion\r\nDate: {NOW}\r\nLast-Modified: {MODIFIED}\r\nETag: {etag}\r\n\
             Accept-Ranges: bytes\r\n\r\n"
        )
    );
    assert_eq!(answer.body, "");
}

#[test]
fn ranges_come_after_preconditions() {
    let site = Place::new();
    let etag = site.etag("/letters.txt");
    let if_range = &format!("If-Range: {etag}");
    let if_match = &format!("If-Match: {etag}");
    let rows: &[(&[&str], u16, Option<&str>, &str)] = &[
        (&["Range: bytes=0-2"], 206, Some("bytes 0-2/26"), "abc"),
        (&["Range: bytes=-2"], 206, Some("bytes 24-25/26"), "yz"),
        (&["Range: bytes=25-"], 206, Some("bytes 25-25/26"), "z"),
        (&["Range: bytes=26-"], 416, Some("bytes */26"), "416 Range Not Satisfiable\n"),
        (&["Range: bytes=2-1"], 200, None, ALPHABET),
        (&["Range: bytes=0-0", "Range: bytes=1-1"], 200, None, ALPHABET),
        (&["Range: bytes=0-,0-"], 200, None, ALPHABET),
        (&["Range: bytes=0-2", if_range], 206, Some("bytes 0-2/26"), "abc"),
        (&["Range: bytes=0-2", "If-Range: \"x\""], 200, None, ALPHABET),
        (&["Range: bytes=26-", "If-Range: \"x\""], 200, None, ALPHABET),
        (&["Range: bytes=0-2", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], 206, Some("bytes 0-2/26"), "abc"),
        (&["Range: bytes=0-2", "If-Range: Sun, 06 Nov 1994 08:49:38 GMT"], 200, None, ALPHABET),
        (&[if_range], 200, None, ALPHABET),
        (&["Range: bytes=0-2", if_match], 206, Some("bytes 0-2/26"), "abc"),
        (&["Range: bytes=26-", "If-Match: \"x\""], 412, None, "412 Precondition Failed\n"),
        (&["Range: bytes=26-", "If-None-Match: *"], 304, None, ""),
    ];
    for (fields, status, content_range, body) in rows {
        let answer = site.ask("GET /letters.txt", fields);
        assert_eq!((answer.status(), answer.field("Content-Range")), (*status, *content_range), "{fields:?}");
        assert_eq!(answer.body, *body, "{fields:?}");
    }
    assert_eq!(site.ask("GET /empty", &["Range: bytes=0-"]).status(), 200);
}

#[test]
fn several_ranges() {
    let site = Place::new();
    let answer = site.ask("GET /letters.txt", &["Range: bytes=-1,0-1,100-"]);
    let etag = site.etag("/letters.txt");
    let boundary = etag.trim_matches('"');
    assert_eq!(answer.status(), 206);
    assert_eq!(answer.field("Content-Type"), Some(format!("multipart/byteranges; boundary={boundary}").as_str()));
    assert_eq!(answer.field("Content-Range"), None);
    assert_eq!(answer.field("ETag"), Some(etag.as_str()));
    let part = |range: &str, content: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/26\r\n\r\n{content}"
        )
    };
    assert_eq!(answer.body, format!("{}{}\r\n--{boundary}--\r\n", part("25-25", "z"), part("0-1", "ab")));
    assert_eq!(answer.field("Content-Length"), Some(answer.body.len().to_string().as_str()));
}

#[test]
fn a_future_modification_time_is_sent_as_date() {
    let site = Place::new();
    let file = File::options().write(true).open(site.directory.path().join("empty")).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(4_000_000_000)).unwrap();
    assert_eq!(site.ask("GET /empty", &[]).field("Last-Modified"), Some(NOW));
    // A date equal to Date is not a strong validator, since the file may still change this second.
    site.write("a", "ab");
    let file = File::options().write(true).open(site.directory.path().join("a")).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(4_000_000_000)).unwrap();
    assert_eq!(site.ask("GET /a", &["Range: bytes=0-0", &format!("If-Range: {NOW}")]).status(), 200);
}

#[test]
fn the_cause_comes_with_the_response() {
    let site = Place::new();
    std::os::unix::fs::symlink("/etc/passwd", site.directory.path().join("out")).unwrap();
    let text = "GET /out HTTP/1.0\r\n\r\n";
    let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    let head = RequestHead::parse(text.as_bytes(), span).unwrap();
    let response = ask(&head.request, &site.site);
    assert_eq!(response.status, Status::NOT_FOUND);
    assert!(response.cause.unwrap().to_string().contains("symbolic link"));
}

/// A password, then a link out of the root, then an error page that is compressed first.
#[test]
fn the_cause_survives_later_blocking_steps() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("404.html"), "<p>not here</p>\n".repeat(500)).unwrap();
    std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
    let hash = bcrypt::hash_with_result("a", 4).unwrap().format_for_version(bcrypt::Version::TwoY);
    fs::write(place.path().join("users"), format!("ada:{hash}\n")).unwrap();
    let text = format!(
        "root = {root:?}\nerror_pages = {{ 404 = '/404.html' }}\nbasic_auth = {{ users = {:?} }}\n[compress]",
        place.path().join("users")
    );
    let config: SiteConfig = toml::from_str(&text).unwrap();
    let mut problems = Problems::of_arguments();
    let site = config.build(
        &mut SiteContext::new(&FileCache::new(CacheLimits::default()), &mut Upstreams::default()),
        &mut problems,
    );
    let site = site.unwrap_or_else(|| panic!("{problems}"));
    // A file that changed within this tick of the file system's clock is not compressed.
    let is_settled = || match site.root.files.root().resolve(b"404.html", 0, Wait::Yes) {
        Ok(Found::File(file)) => file.is_settled(),
        other => panic!("{other:?}"),
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !is_settled() {
        assert!(std::time::Instant::now() < deadline, "the file system clock stands still");
        std::thread::yield_now();
    }
    let credentials = STANDARD.encode("ada:a");
    let text =
        format!("GET /out HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\nAccept-Encoding: gzip\r\n\r\n");
    let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    let head = RequestHead::parse(text.as_bytes(), span).unwrap();
    let mut answering =
        Box::pin(answer(&site, &head.request, Client::default(), NOW.parse().unwrap(), Inbound::default()));
    // The only thread for blocking tasks is kept busy during every poll: each task parks the request at least once.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let mut parked = 0;
    let response = runtime.block_on(std::future::poll_fn(|cx| {
        let (until_polled, polled) = std::sync::mpsc::channel::<()>();
        spawn_blocking(move || polled.recv());
        let poll = answering.as_mut().poll(cx);
        parked += usize::from(poll.is_pending());
        drop(until_polled);
        poll
    }));
    assert_eq!((response.status, parked >= 2), (Status::NOT_FOUND, true));
    assert!(response.fields.content_encoding.is_some());
    assert!(response.cause.unwrap().to_string().contains("leads out of the root"));
}

/// A name that was never asked for is not at hand; what a thread has looked up decides then.
#[test]
fn a_condition_about_a_path_is_not_waited_for_by_the_worker() {
    let place = Place::configured("[[route]]\npath = '/'\nmatch = { exists = '{path}.there' }\nrespond = 204");
    let Place { directory, site } = &place;
    fs::write(directory.path().join("y.there"), "").unwrap();
    for (target, expected) in [("/x", 404), ("/y", 204)] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let head = RequestHead::parse(text.as_bytes(), span).unwrap();
        if expected == 404 {
            assert!(site.locate_at_hand(&head.request, Client::default()).is_err(), "it was never looked up");
            let now = NOW.parse().unwrap();
            assert!(answer_at_once(site, &head.request, Client::default(), now).is_none());
        }
        assert_eq!(ask(&head.request, site).status.code(), expected, "{target}");
    }
}

#[test]
fn a_route_that_answers_by_itself_is_not_waited_for() {
    let place = Place::configured(
        r##"
        headers = { set = { X-Path = "{path}" } }
        compress = true
        error_pages = { 404 = "/sub/index.html", 410 = "/letters.txt" }
        [[route]]
        path = "/long"
        respond = { text = "~", type = "text/plain" }
        cors = { origins = ["*"] }
        [[route]]
        path = "/missing"
        respond = 410
        [[route]]
        path = "/worded"
        respond = { status = 410, text = "gone {query.to}" }
        [[route]]
        path = "/old"
        redirect = "/new/{query.to}"
        [[route]]
        path = "/near.gz"
        respond = { text = "an archive" }
        [[route]]
        path = "/near"
        access = { allow = ["192.0.2.0/24"] }
        respond = { text = "kept" }
        [[route]]
        path = "/known"
        forward_auth = { to = "http://127.0.0.1:9/" }
        respond = { text = "known" }
        "##
        .replace('~', &"x".repeat(4000))
        .as_str(),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, now) = (Client::default(), NOW.parse().unwrap());
    for (line, is_at_once) in [
        ("GET /long", true),
        ("HEAD /long", true),
        ("POST /long", false),
        ("OPTIONS /long", false),
        ("GET /missing", false),
        ("GET /worded?to=x", true),
        ("GET /old?to=x%20y", true),
        ("GET /old?to=%0a", true),
        ("GET /near.gz", false),
        ("GET /near", false),
        ("GET /known", false),
        ("GET /%2e%2e/long", false),
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: a\r\nOrigin: https://b\r\nAccept-Encoding: gzip\r\n\r\n");
        let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let head = RequestHead::parse(text.as_bytes(), span).unwrap();
        let waited = runtime.block_on(answer(&place.site, &head.request, client, now, Inbound::default()));
        let at_once = answer_at_once(&place.site, &head.request, client, now);
        assert_eq!(at_once.is_some(), is_at_once, "{line}");
        let Some(at_once) = at_once else { continue };
        assert_eq!(at_once.route, waited.route, "{line}");
        let [at_once, waited] = [&at_once, &*waited].map(|response| Answer::of(&head, response));
        assert_eq!((at_once.head, at_once.body), (waited.head, waited.body), "{line}");
    }
}

#[test]
fn the_bandwidth_is_of_the_route_that_answers() {
    let place = Place::configured(
        "route = [{ path = '= /lead', rewrite = '/sub/index.html' }, { path = '= /own', limits = { bandwidth = '8KiB' }, rewrite = '/letters.txt' }, \
         { path = '/sub/', limits = { bandwidth = '4KiB' } }]",
    );
    for (path, rate) in [("/lead", Some(4096)), ("/sub/index.html", None), ("/own", None)] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let head = RequestHead::parse(text.as_bytes(), span).unwrap();
        let response = ask(&head.request, &place.site);
        // The connection of a client is paced by the route that it asks for.
        assert_eq!((response.status, response.rate.map(std::num::NonZeroU64::get)), (Status::OK, rate), "{path}");
    }
}

#[test]
fn error_pages_that_no_file_and_no_route_has_are_named() {
    let place = Place::configured("error_pages = { 404 = '/typo.html?' }\nroute = [{ path = '/app/', respond = 200 }]");
    assert_eq!(
        place.site.missing_pages(),
        ["default: error_pages.404 leads to /typo.html?, where no file and no route is"]
    );
    place.write("typo.html", "");
    assert!(place.site.missing_pages().is_empty());
    let place = Place::configured("error_pages = { 404 = '/app/x?' }\nroute = [{ path = '/app/', respond = 200 }]");
    assert!(place.site.missing_pages().is_empty());
}
