//! Files that an application has sent by X-Accel-Redirect and X-Sendfile.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Suite, pattern};

use super::post;
use crate::support::fastcgi::PhpFpm;
use crate::support::http2::{Http2, INITIAL_WINDOW_SIZE};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, get as get_of, wait_for_cache, wait_for_message, wait_until};

/// An application that answers with the fields that a request names in X-Answer, between bars.
fn application() -> Upstream {
    Upstream::answering(|request| {
        let lines = request.field("x-answer").replace('|', "\r\n");
        let body = if request.line().starts_with("HEAD") { "" } else { "application" };
        format!("HTTP/1.1 200 OK\r\nX-Secret: 1\r\nContent-Length: 11\r\n{lines}\r\n\r\n{body}").into_bytes()
    })
}

const ROUTES: &str = "accel = true
proxy = { to = 'app' }
error_pages = { 404 = '/404.html' }
route = [
    { path = '/protected/', internal = true, files = true, alias = 'root/files' },
    { path = '/open/', files = true },
    { path = '/closed/', deny = true },
    { path = '/networks/', internal = true, files = true, access = { deny = ['0.0.0.0/0'] } },
    { path = '/app/', internal = true, proxy = { to = 'app' } },
    { name = '@pages', respond = { text = 'pages {path}' } },
    { name = '@closed', files = true, access = { deny = ['0.0.0.0/0'] } },
]";

fn site() -> Site {
    let site = Site::new();
    for name in ["files/a.txt", "files/a b.txt", "files/ä.txt", "files/.hidden", "open/a.txt", "closed/a.txt"] {
        site.add(name, name);
    }
    site.add("networks/a.txt", "of networks");
    site.add("404.html", "no such file");
    site.add_pattern("files/large", 1_000_003);
    site.add("files/empty", "");
    site.add("files/directory/x", "");
    site
}

fn serve(site: &Site, upstream: &Upstream, keys: &str) -> Server {
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n", upstream.url());
    site.config(keys).table(&table).serve_from_user_space()
}

/// The response to a request whose application answers with these fields.
#[track_caller]
fn ask(client: &mut Client, method: &str, answer: &str, fields: &[(&str, &str)]) -> Response {
    let fields = [&[("X-Answer", answer)], fields].concat();
    http::request(client, method, "/download", &fields).expect("a response")
}

#[track_caller]
fn get(client: &mut Client, answer: &str) -> Response {
    ask(client, "GET", answer, &[])
}

#[test]
fn the_file_comes_as_every_file_does() {
    let (site, upstream) = (site(), application());
    let server = serve(&site, &upstream, ROUTES);
    let mut client = site.connect(&server);
    let large = "X-Accel-Redirect: /protected/large";
    let whole = get(&mut client, large);
    assert_eq!((whole.status, whole.body.len()), (200, 1_000_003));
    pattern::assert_equal(&whole.body, 0..1_000_003);
    assert_eq!((whole.field("x-secret"), whole.field("x-accel-redirect")), (None, None));
    let tag = whole.field("etag").expect("a tag").to_owned();
    let part = ask(&mut client, "GET", large, &[("Range", "bytes=777-900000"), ("If-Range", &tag)]);
    assert_eq!((part.status, part.field("content-range")), (206, Some("bytes 777-900000/1000003")));
    pattern::assert_equal(&part.body, 777..900_001);
    let several = ask(&mut client, "GET", &format!("{large}|Content-Type: x/y"), &[("Range", "bytes=0-1, 5-6")]);
    let text = String::from_utf8_lossy(&several.body);
    assert_eq!((several.status, text.matches("Content-Type: x/y\r\n").count()), (206, 2), "{text}");
    let unchanged = ask(&mut client, "GET", large, &[("If-None-Match", &tag)]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let beyond = ask(&mut client, "GET", large, &[("Range", "bytes=2000000-")]);
    assert_eq!((beyond.status, beyond.field("content-range")), (416, Some("bytes */1000003")));
    let refusing = ask(&mut client, "GET", &format!("{large}|Accept-Ranges: none"), &[("Range", "bytes=0-1")]);
    assert_eq!((refusing.status, refusing.field("accept-ranges")), (200, Some("none")));
    let head = ask(&mut client, "HEAD", large, &[]);
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("1000003"), 0));
    for (to, content) in [
        ("/protected/empty", ""),
        ("/protected/a%20b.txt", "files/a b.txt"),
        ("/protected/a b.txt", "files/a b.txt"),
        ("/protected/%C3%A4.txt", "files/ä.txt"),
        ("/protected%2Fa.txt", "files/a.txt"),
        ("//protected///a.txt?x=1", "files/a.txt"),
        ("/open/a.txt", "open/a.txt"),
        ("@pages", "pages /download"),
    ] {
        let response = get(&mut client, &format!("X-Accel-Redirect: {to}"));
        assert_eq!((response.status, String::from_utf8_lossy(&response.body).as_ref()), (200, content), "{to}");
    }
    // The content of a POST was for the application.
    let fields = [("X-Answer", "X-Accel-Redirect: /protected/a.txt"), ("Content-Length", "3")];
    let posted = post(&mut client, "/download", &fields, b"abc");
    assert_eq!((posted.status, posted.body.as_slice()), (200, &b"files/a.txt"[..]));
    assert_eq!(upstream.last().body, b"abc");
}

#[test]
fn fields_of_the_application_that_nginx_keeps_come_with_the_file() {
    let (site, upstream) = (site(), application());
    let server = serve(&site, &upstream, &format!("cache_control = 'public'\n{ROUTES}"));
    let mut client = site.connect(&server);
    let to = "X-Accel-Redirect: /protected/a.txt";
    let own = get(&mut client, to);
    assert_eq!(
        (own.field("content-type"), own.field("cache-control")),
        (Some("text/plain; charset=utf-8"), Some("public"))
    );
    let all = "Content-Type: application/pdf|Content-Disposition: attachment; filename=\"b.pdf\"|Set-Cookie: a=1|Set-Cookie: b=2\
               |Cache-Control: private|Expires: 0|ETag: \"app\"|Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT|Content-Language: de\
               |X-Accel-Expires: 9|X-Accel-Buffering: no|X-Accel-Charset: koi8-r";
    let response = get(&mut client, &format!("{to}|{all}"));
    for (name, value) in [
        ("content-type", Some("application/pdf")),
        ("content-disposition", Some("attachment; filename=\"b.pdf\"")),
        ("cache-control", Some("private")),
        ("expires", Some("0")),
        ("etag", own.field("etag")),
        ("last-modified", own.field("last-modified")),
        ("content-length", Some("11")),
        ("content-language", None),
        ("x-accel-expires", None),
        ("x-accel-buffering", None),
        ("x-accel-charset", None),
    ] {
        assert_eq!(response.field(name), value, "{name}");
    }
    let cookies = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).count();
    assert_eq!(cookies, 2);
    let charset = get(&mut client, &format!("{to}|X-Accel-Charset: koi8-r"));
    assert_eq!(charset.field("content-type"), Some("text/plain; charset=koi8-r"));
    // A file that is missing has neither the name nor the lifetime of the download.
    let missing = get(&mut client, &format!("X-Accel-Redirect: /protected/none|{all}"));
    assert_eq!((missing.status, missing.body.as_slice()), (404, &b"no such file"[..]));
    assert_eq!((missing.field("cache-control"), missing.field("content-disposition")), (None, None));
    assert_eq!(missing.field("set-cookie"), Some("a=1"));
    // Fields that have an effect reach no client without a file either.
    let plain =
        get(&mut client, "Content-Type: text/html|X-Accel-Charset: utf-8|X-Accel-Limit-Rate: 0|X-Accel-Buffering: no");
    assert_eq!((plain.status, plain.body.as_slice()), (200, &b"application"[..]));
    assert_eq!((plain.field("content-type"), plain.field("x-secret")), (Some("text/html; charset=utf-8"), Some("1")));
    assert!(plain.fields.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("x-accel")));
}

#[test]
fn no_target_leads_past_a_guard_or_out_of_the_site() {
    let (site, upstream) = (site(), application());
    fs::write(site.outside().join("secret"), "secret").expect("it is written");
    site.link("files/link", "../../secret");
    let server = serve(&site, &upstream, ROUTES);
    let mut client = site.connect(&server);
    for (to, status) in [
        ("/protected/none", 404),
        ("/protected/../open/a.txt", 404),
        ("/protected/%2e%2e/open/a.txt", 404),
        ("/protected/..%2f..%2fsecret", 404),
        ("/protected/a.txt%00", 404),
        ("/protected/.hidden", 404),
        ("/protected/directory", 404),
        ("/protected/directory/", 404),
        ("http://evil.example/", 404),
        ("a.txt", 404),
        ("", 404),
        ("/closed/a.txt", 403),
        ("/%63losed/a.txt", 403),
        ("//closed/a.txt", 403),
        ("/networks/a.txt", 403),
        ("@closed", 403),
        ("@none", 500),
    ] {
        let response = get(&mut client, &format!("X-Accel-Redirect: {to}"));
        assert_eq!(response.status, status, "{to}");
        assert_eq!(response.field("location"), None, "{to}");
    }
    assert!(get(&mut client, "X-Accel-Redirect: /protected/link").status >= 400);
    wait_for_message(&server, "X-Accel-Redirect names no path of the site");
    wait_for_message(&server, "X-Accel-Redirect names no route: @none");
    // An application that leads to itself.
    let before = upstream.requests().len();
    let circle = get(&mut client, "X-Accel-Redirect: /again");
    assert_eq!((circle.status, upstream.requests().len() - before), (500, 11));
    wait_for_message(&server, "the routes lead in a circle");
    // Clients reach none of the internal routes.
    for target in ["/protected/a.txt", "/protected%2Fa.txt", "/networks/a.txt", "/app/"] {
        let response = http::get(&mut client, target).expect("a response");
        assert!(response.status >= 400, "{target}: {}", response.status);
    }
}

#[test]
fn another_application_may_be_the_target() {
    let site = site();
    let upstream = Upstream::answering(|request| {
        let line = request.line().to_owned();
        let lines = match line.contains("/app/") {
            true => "Content-Type: text/second\r\nCache-Control: public\r\nSet-Cookie: second=1",
            false => {
                "X-Accel-Redirect: /app/x%20y?a=b\r\nContent-Type: text/first\r\nCache-Control: private\r\nSet-Cookie: first=1"
            }
        };
        format!("HTTP/1.1 200 OK\r\n{lines}\r\nContent-Length: {}\r\n\r\n{line}", line.len()).into_bytes()
    });
    let server = serve(&site, &upstream, ROUTES);
    let mut client = site.connect(&server);
    let response = http::get(&mut client, "/download?of=client").expect("a response");
    assert_eq!((response.status, String::from_utf8_lossy(&response.body).as_ref()), (200, "GET /app/x%20y?a=b"));
    assert_eq!(
        (response.field("content-type"), response.field("cache-control")),
        (Some("text/second"), Some("private"))
    );
    let posted = post(&mut client, "/download", &[("Content-Length", "3")], b"abc");
    assert_eq!((posted.status, posted.body.as_slice()), (200, &b"GET /app/x%20y?a=b"[..]));
    assert_eq!(upstream.last().body, b"");
}

#[test]
fn without_the_setting_the_fields_pass() {
    let (site, upstream) = (site(), application());
    let keys = "proxy = { to = 'app' }\nroute = [{ path = '/protected/', internal = true, files = true, alias = 'root/files' },\
                { path = '/ignoring/', accel = { ignore = ['x-accel-redirect'] } }]";
    let server = serve(&site, &upstream, keys);
    let mut client = site.connect(&server);
    let answer = "X-Accel-Redirect: /protected/a.txt|X-Sendfile: /etc/passwd";
    let response = get(&mut client, answer);
    assert_eq!((response.status, response.body.as_slice()), (200, &b"application"[..]));
    assert_eq!(response.field("x-accel-redirect"), Some("/protected/a.txt"));
    let ignoring = http::request(&mut client, "GET", "/ignoring/", &[("X-Answer", answer)]).expect("a response");
    assert_eq!((ignoring.status, ignoring.body.as_slice()), (200, &b"application"[..]));
    assert_eq!((ignoring.field("x-accel-redirect"), ignoring.field("x-sendfile")), (None, Some("/etc/passwd")));
}

#[test]
fn x_sendfile_sends_files_beneath_the_directories_of_the_route() {
    let (site, upstream) = (site(), application());
    let private = site.outside().join("private");
    fs::create_dir_all(private.join("in")).expect("a directory");
    fs::write(private.join("in/a b.pdf"), "a download").expect("it is written");
    fs::write(private.join("x.php"), "<?php").expect("it is written");
    fs::write(private.join(".hidden"), "hidden").expect("it is written");
    fs::write(site.outside().join("secret"), "secret").expect("it is written");
    std::os::unix::fs::symlink("../secret", private.join("link")).expect("a link");
    let keys = "accel = { sendfile_from = ['private'] }\nproxy = { to = 'app' }\nerror_pages = { 404 = '/404.html' }";
    let server = serve(&site, &upstream, keys);
    let mut client = site.connect(&server);
    let at = private.display().to_string();
    let response = get(&mut client, &format!("X-Sendfile: {at}/in/a b.pdf|Content-Disposition: attachment"));
    assert_eq!((response.status, response.body.as_slice()), (200, &b"a download"[..]));
    assert_eq!(
        (response.field("content-type"), response.field("content-disposition")),
        (Some("application/pdf"), Some("attachment"))
    );
    assert_eq!((response.field("x-sendfile"), response.field("x-secret")), (None, None));
    let part = ask(&mut client, "GET", &format!("X-Sendfile: {at}/in/a b.pdf"), &[("Range", "bytes=2-5")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"down"[..]));
    assert_eq!(get(&mut client, &format!("X-Sendfile: {at}/x.php")).body, b"<?php");
    for path in
        ["/none", "/in", "/in/", "", "/", "/../secret", "/in/../x.php", "/link", "/.hidden", "te/x", "/in/a%20b.pdf"]
    {
        let response = get(&mut client, &format!("X-Sendfile: {at}{path}"));
        assert!(matches!(response.status, 403 | 404), "{path}: {}", response.status);
    }
    let outside = get(&mut client, "X-Sendfile: /etc/passwd");
    assert_eq!((outside.status, outside.body.as_slice()), (404, &b"no such file"[..]));
    wait_for_message(&server, "X-Sendfile names no file beneath a directory of sendfile_from: /etc/passwd");
}

#[test]
fn an_answer_that_leads_to_a_file_is_not_stored() {
    let (site, upstream) = (site(), application());
    let directory = site.outside().join("cache");
    let table = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
        upstream.url(),
        directory.display()
    );
    let keys = ROUTES.replace("proxy = { to = 'app' }\nerror", "proxy = { to = 'app', cache = {} }\nerror");
    let server = site.config(&keys).table(&table).serve_from_user_space();
    wait_for_cache(&server, &directory);
    let mut client = site.connect(&server);
    for turn in 1..=3 {
        let response = get(&mut client, "X-Accel-Redirect: /protected/a.txt|Cache-Control: max-age=1000");
        assert_eq!((response.status, response.body.as_slice()), (200, &b"files/a.txt"[..]));
        assert_eq!((response.field("cache-control"), upstream.requests().len()), (Some("max-age=1000"), turn));
    }
    // Stored responses have none of the fields either.
    let fields = [("X-Answer", "Cache-Control: max-age=1000|X-Accel-Charset: utf-8|Content-Type: text/html")];
    for _ in 0..4 {
        let response = http::request(&mut client, "GET", "/stored", &fields).expect("a response");
        assert_eq!((response.status, response.field("x-accel-charset")), (200, None));
        assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
    }
    assert_eq!(upstream.requests().len(), 4);
}

/// The application's connection has the next request, unless its answer is long.
#[test]
fn the_answer_of_the_application_is_discarded_within_a_bound() {
    let site = site();
    let was_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&was_cut);
    let upstream = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            let is_long = request.line().contains("long");
            let length = if is_long { 10 << 20 } else { 50_000 };
            let head =
                format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/a.txt\r\nContent-Length: {length}\r\n\r\n");
            if !accepted.try_write(&[head.into_bytes(), vec![b'x'; length]].concat()) {
                cut.fetch_or(is_long, Ordering::Relaxed);
                return;
            }
        }
    });
    let server = serve(&site, &upstream, ROUTES);
    let mut client = site.connect(&server);
    // A connection that is not free yet has a second one beside it.
    wait_until("a connection has two requests", || {
        assert_eq!(http::get(&mut client, "/short").expect("a response").body, b"files/a.txt");
        upstream.requests().len() > upstream.connections()
    });
    assert_eq!(http::get(&mut client, "/long").expect("a response").body, b"files/a.txt");
    wait_until("its connection is closed", || was_cut.load(Ordering::Relaxed));
}

#[test]
fn http2_gets_the_same_and_a_rate_of_its_own() {
    let site = site();
    let upstream = Upstream::answering(|request| {
        let rate = if request.line().contains("slow") { "X-Accel-Limit-Rate: 1000\r\n" } else { "" };
        format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/large\r\n{rate}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let server = serve(&site, &upstream, ROUTES);
    let windows = [(INITIAL_WINDOW_SIZE, 1 << 24)];
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &windows);
    let slow = http.get("/slow");
    http.read_until("a part of it", |http| http.streams.get(&slow).is_some_and(|got| !got.body.is_empty()));
    for _ in 0..3 {
        let (status, body) = http.fetch("/fast");
        assert_eq!(status, 200);
        pattern::assert_equal(&body, 0..1_000_003);
    }
    assert!(!http.has_ended(slow), "it has a thousand bytes a second");
}

const PHP: &str = "<?php
ob_end_clean();
header('X-Accel-Redirect: /protected/' . rawurlencode($_GET['file']));
if (isset($_GET['type'])) header('Content-Type: ' . $_GET['type']);
setcookie('seen', '1');
echo str_repeat('x', 200000);
";

#[test]
fn php_authorises_a_download() {
    let site = site();
    site.add("get.php", PHP);
    let directory = tempfile::tempdir().expect("a directory");
    let php = PhpFpm::start(directory.path());
    let table = format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{}' }}]\n", php.url());
    let keys = "accel = true\nroute = [{ path = '~ \\.php$', fastcgi = { to = 'php' } },\
                { path = '/protected/', internal = true, alias = 'root/files' }]";
    let server = site.config(keys).table(&table).serve_from_user_space();
    let mut client = site.connect(&server);
    let response = http::get(&mut client, "/get.php?file=large&type=application/x-own").expect("a response");
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/x-own")));
    assert!(response.field("set-cookie").is_some_and(|cookie| cookie.starts_with("seen=1")));
    assert_eq!(response.field("x-powered-by"), None);
    pattern::assert_equal(&response.body, 0..1_000_003);
    // PHP says text/html where a script says nothing, and nothing where it says so.
    let spaced = http::get(&mut client, "/get.php?file=a%20b.txt").expect("a response");
    assert_eq!(spaced.body, b"files/a b.txt");
    assert_eq!(spaced.field("content-type"), Some("text/html; charset=UTF-8"));
    let untyped = http::get(&mut client, "/get.php?file=a.txt&type=").expect("a response");
    assert_eq!(untyped.field("content-type"), Some("text/plain; charset=utf-8"));
    let part = http::request(&mut client, "GET", "/get.php?file=large", &[("Range", "bytes=-9")]).expect("a response");
    assert_eq!(part.status, 206);
    pattern::assert_equal(&part.body, 999_994..1_000_003);
}

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    let site = site();
    for (value, words) in [
        ("{ sendfile_from = ['/does/not/exist'] }", "site.accel.sendfile_from"),
        ("{ ignore = ['x-accel-buffering'] }", "site.accel.ignore"),
    ] {
        let problems = site.config(&format!("accel = {value}")).problems();
        assert!(problems.contains(words), "{value}: {problems}");
    }
}

/// Only the application knows under which path clients see a file.
#[test]
fn a_path_without_its_file_redirects_no_client() {
    let (site, upstream) = (site(), application());
    site.add("files/x.html", "x");
    let server = serve(&site, &upstream, &format!("extensions = ['html']\n{ROUTES}"));
    let mut client = site.connect(&server);
    for (method, target, to, status) in [
        ("GET", "/download/", "/protected/x/", 404),
        ("GET", "/download", "/protected/x/", 404),
        ("GET", "/download/", "/protected/x", 200),
    ] {
        let response = http::request(&mut client, method, target, &[("X-Answer", &format!("X-Accel-Redirect: {to}"))]);
        let response = response.expect("a response");
        assert_eq!((response.status, response.field("location")), (status, None), "{target} {to}");
    }
}

/// A named route forwards the path that its guards have seen: the rewritten one.
#[test]
fn a_named_route_gets_the_rewritten_path_of_the_application() {
    let site = Site::new();
    let application =
        Upstream::answering(|_| b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: @behind\r\nContent-Length: 0\r\n\r\n".to_vec());
    let behind = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "accel = true
        [[site.route]]
        path = '/app/'
        rewrite = '/run?of={{path}}'

        [[site.route]]
        path = '= /run'
        internal = true
        proxy = {{ to = '{application}' }}

        [[site.route]]
        path = '/admin/'
        deny = true

        [[site.route]]
        name = '@behind'
        proxy = {{ to = '{behind}' }}
        ",
        application = application.url(),
        behind = behind.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for path in
        ["x", "..;/admin/secret", "..%3B/admin/secret", "..%5cadmin/secret", "..%255cadmin", "%252e%252e/admin/"]
    {
        let response = http::get(&mut site.connect(&server), &format!("/app/{path}")).expect("a response");
        let body = String::from_utf8_lossy(&response.body).into_owned();
        assert!(!body.contains("admin") || body.starts_with("GET /run?"), "{path}: {body}");
        assert!(response.status == 400 || body.starts_with("GET /run?of="), "{path}: {} {body}", response.status);
    }
    assert!(behind.last().line().starts_with("GET /run?of="));
}

/// A server that is asked behind the first one does not go on for a client that has left.
#[test]
fn a_client_that_leaves_ends_what_an_answer_led_to() {
    let site = Site::new();
    let application = Upstream::answering(|request| match request.line().starts_with("GET /led") {
        true => b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /slow/x\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let slow = Upstream::start(|accepted| {
        let _ = accepted.request();
        accepted.read_to_end();
    });
    let keys = format!(
        "accel = true
        error_pages = {{ 404 = '/slow/page' }}

        [[site.route]]
        path = '/'
        proxy = {{ to = '{}', intercept_errors = true }}

        [[site.route]]
        path = '/slow/'
        internal = true
        proxy = {{ to = '{}' }}
        ",
        application.url(),
        slow.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (ended, target) in ["/led", "/missing"].into_iter().enumerate() {
        let mut client = site.connect(&server);
        client.send(get_of(target).as_bytes()).expect("it leaves");
        wait_until("the second server is asked", || slow.requests().len() == ended + 1);
        drop(client);
        wait_until("its connection is closed", || slow.has_ended(ended + 1));
    }
}
