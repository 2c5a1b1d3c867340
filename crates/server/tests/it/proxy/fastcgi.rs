//! Scripts: which file is run for a path, what it learns, and what clients get.

use std::sync::{Arc, Mutex};

use sealion_testkit::server::Server;
use sealion_testkit::{Client, Suite, http};

use super::{is_orderly, post};
use crate::support::fastcgi::{Asked, PhpFpm, end, of_type, read_request, stderr, stdout};
use crate::support::port::free_port;
use crate::support::upstream::{Accepted, Upstream};
use crate::support::{Site, access_line, exchange, get, read_until_cut, wait_for_message, wait_until};

/// A site whose scripts lie beneath its root.
pub(super) fn serve(site: &Site, url: &str, rules: &str, keys: &str) -> Server {
    let upstream =
        format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{url}' }}]\n{keys}\n");
    site.config(rules).table(&upstream).serve_from_user_space()
}

/// A rule whose contents for scripts wait in memory alone.
pub(super) const IN_MEMORY: &str =
    "proxy = { to = 'php', files_first = true, buffer_request = {}, fastcgi = { front = '/index.php' } }";

pub(super) const FILES_FIRST: &str = "proxy = { to = 'php', files_first = true, fastcgi = { front = '/index.php' } }";

pub(super) fn url(upstream: &Upstream) -> String {
    upstream.url().replace("http://", "fastcgi://")
}

/// A server that answers every request alike, and keeps what was asked.
pub(super) fn answering(
    answer: impl Fn(&mut Accepted, &Asked) + Send + Sync + 'static,
) -> (Upstream, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&asked);
    let upstream = Upstream::start(move |accepted| {
        if let Some(request) = read_request(accepted) {
            all.lock().expect("no panic").push(request.clone());
            answer(accepted, &request);
        }
    });
    (upstream, asked)
}

pub(super) fn body(client: &mut Client, target: &str) -> (u16, String) {
    let response = http::get(client, target).expect("a response");
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

#[test]
fn a_script_learns_the_request_as_cgi_has_it() {
    let site = Site::new();
    site.add("a/x.php", "");
    let (upstream, asked) = answering(|accepted, request| {
        let answer = format!("Content-Type: text/plain\r\n\r\n{}", request.content.len());
        accepted.write(&[stdout(answer), end()].concat());
    });
    let rules =
        "route = [{ path = '~ \\.php(/|$)', proxy = { to = 'php', fastcgi = { params = { APP_ENV = 'test' } } } }]";
    let server = serve(&site, &url(&upstream), rules, "");
    let mut client = site.connect(&server);
    let fields = [
        ("Content-Length", "3"),
        ("Content-Type", "text/x"),
        ("Cookie", "a=1"),
        ("Proxy", "http://evil.example/"),
        ("X_Real_IP", "10.0.0.1"),
    ];
    let response = post(&mut client, "/a/x.php/in%20fo?q=1&r=%20", &fields, b"abc");
    assert_eq!((response.status, response.body.as_slice()), (200, &b"3"[..]));
    assert_eq!(response.field("content-type"), Some("text/plain"));
    let asked = asked.lock().expect("no panic").pop().expect("a request");
    let root = site.root().display().to_string();
    for (name, value) in [
        ("SCRIPT_FILENAME", format!("{root}/a/x.php").as_str()),
        ("DOCUMENT_ROOT", &root),
        ("SCRIPT_NAME", "/a/x.php"),
        ("PATH_INFO", "/in fo"),
        ("DOCUMENT_URI", "/a/x.php/in fo"),
        ("REQUEST_URI", "/a/x.php/in%20fo?q=1&r=%20"),
        ("QUERY_STRING", "q=1&r=%20"),
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_TYPE", "text/x"),
        ("CONTENT_LENGTH", "3"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", &server.address().port().to_string()),
        ("SERVER_ADDR", "127.0.0.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("HTTPS", "on"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "localhost"),
        ("HTTP_COOKIE", "a=1"),
        ("HTTP_X_REAL_IP", "127.0.0.1"),
        ("APP_ENV", "test"),
    ] {
        assert_eq!(asked.param(name), value, "{name}");
    }
    assert!(!asked.params.contains_key("HTTP_PROXY") && !asked.params.contains_key("HTTP_CONTENT_LENGTH"));
    assert_eq!(asked.content, b"abc");
    let line = access_line(&server, 1);
    assert_eq!((line.get("upstream"), line.get("upstream_status")), (&*url(&upstream), "200"));
}

/// As RFC 3875 spells it, with a minor version.
#[test]
fn a_script_learns_the_protocol_of_its_client() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let server =
        serve(&site, &url(&upstream), "route = [{ path = '~ \\.php$', proxy = { to = 'php', fastcgi = {} } }]", "");
    let learned = || asked.lock().expect("no panic").pop().expect("a request").param("SERVER_PROTOCOL").to_owned();
    let mut client = site.connect(&server);
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let head = format!("GET /index.php {version}\r\nHost: localhost\r\n\r\n");
        client.send(head.as_bytes()).expect("the request leaves");
        assert_eq!(http::read_response(&mut client, "GET").expect("a response").status, 200);
        assert_eq!(learned(), version);
        client = site.connect(&server);
    }
}

/// A client could name any port in Host.
#[test]
fn the_port_that_a_script_learns_is_that_of_the_connection_unless_a_proxy_stands_in_front() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let [direct, behind] = [free_port(), free_port()];
    let php =
        format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{}' }}]\n", url(&upstream));
    let listen = |port| format!("address = '127.0.0.1:{port}'");
    let trusting = "trusted_proxies = ['127.0.0.0/8']\nclient_address = 'x-forwarded-for'";
    let _server = site
        .config(FILES_FIRST)
        .listen(&listen(direct))
        .listen(&format!("{}\n{trusting}", listen(behind)))
        .table(&php)
        .serve_from_user_space();
    let own = direct.to_string();
    for (port, host, expected) in [
        (direct, "localhost", &*own),
        (direct, "localhost:81", &own),
        (behind, "localhost", "443"),
        (behind, "localhost:81", "81"),
    ] {
        let mut client = site.connector(Suite::TLS13).connect(([127, 0, 0, 1], port).into());
        assert_eq!(http::request(&mut client, "GET", "/", &[("Host", host)]).expect("a response").status, 200);
        let asked = asked.lock().expect("no panic").pop().expect("a request");
        let found = [asked.param("SERVER_PORT"), asked.param("SERVER_NAME"), asked.param("HTTP_HOST")];
        assert_eq!(found, [expected, "localhost", host], "{port}");
    }
}

/// Each of these ran a file by mistake, somewhere.
#[test]
fn only_a_script_that_is_a_file_beneath_the_root_is_run() {
    let site = Site::new();
    for name in ["index.php", "x.php", "a/index.php", "upload/x.jpg", ".git/x.php", "b/c.php/d.php"] {
        site.add(name, "<?php secret();");
    }
    std::fs::write(site.outside().join("out.php"), "").expect("it is written");
    site.link("link.php", site.outside().join("out.php").to_str().expect("UTF-8"));
    let (upstream, asked) = answering(|accepted, request| {
        accepted.write(&[stdout(format!("X-A: 1\r\n\r\n{}", request.param("SCRIPT_NAME"))), end()].concat());
    });
    for rules in [
        "proxy = { to = 'php', fastcgi = {} }",
        "proxy = { to = 'php', files_first = true, fastcgi = {} }",
        "route = [{ path = '~ \\.php(/|$)', proxy = { to = 'php', fastcgi = {} } }, { path = '~ /$', proxy = { to = 'php', fastcgi = {} } }]",
    ] {
        let server = serve(&site, &url(&upstream), rules, "");
        let mut client = site.connect(&server);
        for (target, expected) in [
            ("/x.php", Some("/x.php")),
            ("/x.php/a/b", Some("/x.php")),
            ("/%78.php", Some("/x.php")),
            ("//x.php", Some("/x.php")),
            ("/", Some("/index.php")),
            ("/a/", Some("/a/index.php")),
            ("/upload/x.jpg/y.php", None),
            ("/upload/x.jpg/.php", None),
            ("/upload/x.jpg%00.php", None),
            ("/upload/x.jpg%2Fy.php", None),
            ("/upload/x.jpg/%2e%2e/x.php", None),
            ("/%2e%2e/out.php", None),
            ("/link.php", None),
            ("/missing.php", None),
            ("/missing.php/x.php", None),
            ("/b/c.php/d.php", None),
            ("/.git/x.php", None),
            ("/x.php.", None),
            ("/x.php%20", None),
            ("/x.PHP", None),
            ("/x.php;a", None),
            ("/x.php::$DATA", None),
            ("/x.php%5c", None),
        ] {
            let response = http::get(&mut client, target);
            let Ok(response) = response else {
                client = site.connect(&server);
                continue;
            };
            let text = String::from_utf8_lossy(&response.body).into_owned();
            assert!(!text.contains("secret"), "{rules}: {target}: the source of a script");
            match expected {
                Some(script) => assert_eq!((response.status, text.as_str()), (200, script), "{rules}: {target}"),
                None => assert!(response.status >= 400, "{rules}: {target}: {} {text}", response.status),
            }
        }
        for target in ["/x.php", "/a/index.php"] {
            let head = http::request(&mut client, "HEAD", target, &[]).expect("a response");
            assert_eq!((head.status, head.field("x-a")), (200, Some("1")), "{target}");
        }
    }
    for request in asked.lock().expect("no panic").iter() {
        let script = request.param("SCRIPT_NAME");
        assert!(["/x.php", "/index.php", "/a/index.php"].contains(&script), "{script}");
    }
}

#[test]
fn a_file_goes_before_and_all_else_to_the_front_script_whose_source_nobody_sees() {
    let site = Site::new();
    for name in ["index.php", "x.php", "x.php.br", "x.php.gz", "m/y.php", "page.php"] {
        site.add(name, "<?php secret();");
    }
    for name in ["m/z.php.", "m/z.php.gz. "] {
        site.add(name, "<?php secret();");
    }
    site.add("style.css", "css");
    let (upstream, _) = answering(|accepted, request| {
        let (script, uri) = (request.param("SCRIPT_NAME"), request.param("REQUEST_URI"));
        accepted.write(&[stdout(format!("X-A: 1\r\n\r\n{script} {uri}")), end()].concat());
    });
    let more = "index = ['index.html', 'index.php']\nextensions = ['php']\nerror_pages = { 404 = '/page.php' }\nprecompressed = ['br', 'gzip']";
    let server = serve(&site, &url(&upstream), &format!("{FILES_FIRST}\n{more}"), "");
    let mut client = site.connect(&server);
    for (target, expected) in [
        ("/style.css", "css"),
        ("/", "/index.php /"),
        ("/blog/post?x=1", "/index.php /blog/post?x=1"),
        ("/x.php", "/x.php /x.php"),
        ("/x", "/index.php /x"),
        ("/m/y.php?a", "/m/y.php /m/y.php?a"),
    ] {
        assert_eq!(body(&mut client, target), (200, expected.to_owned()), "{target}");
    }
    let (status, text) = body(&mut client, "/missing.php");
    assert!(status == 404 && !text.contains("secret"), "{status} {text}");
    // Where no rule has the path, a script is no file either.
    let beside = format!(
        "fallback = '/index.php'\n\
         route = [{{ path = '/app/', proxy = {{ to = 'php', fastcgi = {{}} }} }}, {{ path = '/mounted/', alias = '{}' }}]",
        site.root().join("m").display()
    );
    let server = serve(&site, &url(&upstream), &beside, "");
    let mut client = site.connect(&server);
    for target in [
        "/x.php",
        "/x.php.br",
        "/x.php.gz",
        "/X.PHP.GZ",
        "/mounted/y.php",
        "/mounted/z.php.",
        "/mounted/z.php.gz.%20",
        "/nothing",
        "/index.php",
    ] {
        let (status, text) = body(&mut client, target);
        assert!(status == 404 && !text.contains("secret"), "{target}: {status} {text}");
    }
}

#[test]
fn scripts_and_files_are_the_index_of_a_directory_in_the_order_of_the_site() {
    let site = Site::new();
    for (name, content) in [
        ("index.php", "<?php secret();"),
        ("both/index.php", "<?php secret();"),
        ("both/index.html", "page"),
        ("page/index.html", "page"),
        ("script/index.php", "<?php secret();"),
    ] {
        site.add(name, content);
    }
    let (upstream, _) = answering(|accepted, request| {
        accepted.write(&[stdout(format!("X-A: 1\r\n\r\n{}", request.param("SCRIPT_NAME"))), end()].concat());
    });
    let [script, front] = ["/script/index.php", "/index.php"];
    for (index, expected) in [
        ("['index.php', 'index.html']", ["/both/index.php", "page", script, front]),
        ("['index.html', 'index.php']", ["page", "page", script, front]),
        ("['index.htm', 'index.php', 'index.html']", ["/both/index.php", "page", script, front]),
        ("['index.php']", ["/both/index.php", front, script, front]),
        ("['index.html']", ["page", "page", script, front]),
    ] {
        let server = serve(&site, &url(&upstream), &format!("{FILES_FIRST}\nindex = {index}"), "");
        let mut client = site.connect(&server);
        for (target, expected) in ["/both/", "/page/", "/script/", "/none/"].into_iter().zip(expected) {
            assert_eq!(body(&mut client, target), (200, expected.to_owned()), "{index} {target}");
        }
    }
}

#[test]
fn the_front_script_alone_runs_where_others_are_refused() {
    let site = Site::new();
    for name in ["index.php", "x.php", "a/index.php"] {
        site.add(name, "<?php secret();");
    }
    let (upstream, asked) = answering(|accepted, request| {
        let ran = [request.param("SCRIPT_NAME"), request.param("PATH_INFO")].concat();
        accepted.write(&[stdout(format!("X-A: 1\r\n\r\n{ran}")), end()].concat());
    });
    let rules = "proxy = { to = 'php', files_first = true, fastcgi = { front = '/index.php', only_front = true } }";
    let server = serve(&site, &url(&upstream), rules, "");
    let mut client = site.connect(&server);
    for (target, expected) in [
        ("/", "/index.php"),
        ("/a/", "/index.php"),
        ("/blog", "/index.php"),
        ("/index.php", "/index.php"),
        ("/index.php/x.php", "/index.php/x.php"),
    ] {
        assert_eq!(body(&mut client, target), (200, expected.to_owned()), "{target}");
    }
    let before = asked.lock().expect("no panic").len();
    for target in ["/x.php", "/x.php/y", "/a/index.php", "//x.php", "/%78.php", "/x.php/index.php", "/missing.php"] {
        let (status, text) = body(&mut client, target);
        assert!(status == 404 && !text.contains("secret"), "{target}: {status} {text}");
    }
    assert_eq!(asked.lock().expect("no panic").len(), before, "none of them asks for a script");
}

#[test]
fn a_script_learns_the_length_of_a_content_with_trailers() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let server = serve(&site, &url(&upstream), FILES_FIRST, "");
    let mut client = site.connect(&server);
    let content = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n";
    client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{content}").as_bytes()).expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 200);
    let asked = asked.lock().expect("no panic");
    assert_eq!((asked[0].param("CONTENT_LENGTH"), asked[0].content.as_slice()), ("3", &b"abc"[..]));
}

/// A part of the request that the key does not have must not change the stored response.
#[test]
fn a_script_gets_the_query_and_the_host_as_the_key_has_them() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, asked) = answering(|accepted, _| {
        accepted.write(&[stdout("Cache-Control: max-age=1000\r\n\r\nran"), end()].concat());
    });
    let scratch = tempfile::tempdir().expect("a directory");
    let rule = "proxy = { to = 'php', fastcgi = { front = '/index.php' }, cache = { drop_parameters = ['utm_*'] } }";
    let cache = format!("[cache]\ndirectories = ['{}']\nfree = '0B'\n", scratch.path().join("cache").display());
    let server = serve(&site, &url(&upstream), rule, &cache);
    let mut client = site.connect(&server);
    client.send(b"GET /c?utm_a=EVIL&b=1 HTTP/1.1\r\nHost: LocalHost\r\n\r\n").expect("it leaves");
    assert_eq!(http::read_response(&mut client, "GET").expect("a response").status, 200);
    let asked = asked.lock().expect("no panic");
    for (name, expected) in [("QUERY_STRING", "b=1"), ("REQUEST_URI", "/c?b=1"), ("SERVER_NAME", "localhost")] {
        assert_eq!(asked[0].param(name), expected, "{name}");
    }
}

#[test]
fn each_fault_has_its_status_and_nothing_incomplete_looks_complete() {
    type Fault = fn(&mut Accepted);
    let before: [(&str, Fault, u16); 15] = [
        ("/closes", |_| {}, 502),
        ("/resets", |accepted| accepted.reset(), 502),
        ("/silent", |accepted| drop(accepted.read_to_end()), 504),
        ("/no-record", |accepted| accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), 502),
        ("/other-type", |accepted| accepted.write(&of_type(9, b"x")), 502),
        ("/half-a-record", |accepted| accepted.write(&stdout("X-A: 1\r\n\r\nabc")[..10]), 502),
        ("/no-head", |accepted| accepted.write(&[stdout("X-A: 1\r\n"), end()].concat()), 502),
        ("/nothing", |accepted| accepted.write(&end()), 502),
        ("/no-cgi", |accepted| accepted.write(&[stdout("hello\r\n\r\n"), end()].concat()), 502),
        ("/long-head", |accepted| accepted.write(&stdout(format!("X-A: {}\r\n", "x".repeat(100)).repeat(1000))), 502),
        ("/busy", |accepted| accepted.write(&of_type(3, &[0, 0, 0, 0, 2, 0, 0, 0])), 503),
        ("/one-at-a-time", |accepted| accepted.write(&of_type(3, &[0, 0, 0, 0, 1, 0, 0, 0])), 503),
        ("/no-responder", |accepted| accepted.write(&of_type(3, &[0, 0, 0, 0, 3, 0, 0, 0])), 502),
        ("/unknown-end", |accepted| accepted.write(&of_type(3, &[0, 0, 0, 0, 9, 0, 0, 0])), 502),
        ("/exits", |accepted| accepted.write(&of_type(3, &[0, 0, 0, 255, 0, 0, 0, 0])), 502),
    ];
    let within: [(&str, Fault); 6] = [
        ("/refused-late", |accepted| {
            accepted.write(&[stdout("X-A: 1\r\n\r\nabc"), of_type(3, &[0, 0, 0, 0, 2, 0, 0, 0])].concat());
        }),
        ("/no-end", |accepted| accepted.write(&stdout("X-A: 1\r\n\r\nabc"))),
        ("/short", |accepted| accepted.write(&[stdout("Content-Length: 10\r\n\r\nabc"), end()].concat())),
        ("/bad", |accepted| accepted.write(&[stdout("X-A: 1\r\n\r\nabc"), b"HTTP/1.1 200".to_vec()].concat())),
        ("/part", |accepted| accepted.write(&stdout("X-A: 1\r\n\r\nabcdefgh")[..20])),
        ("/stalls", |accepted| {
            accepted.write(&stdout("X-A: 1\r\n\r\nabc"));
            drop(accepted.read_to_end());
        }),
    ];
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, _) = answering(move |accepted, request| {
        let uri = request.param("REQUEST_URI");
        if let Some((_, fault, _)) = before.iter().find(|(target, ..)| *target == uri) {
            return fault(accepted);
        }
        if let Some((_, fault)) = within.iter().find(|(target, _)| *target == uri) {
            return fault(accepted);
        }
        accepted.write(&[stdout("X-A: 1\r\n\r\ngood"), stderr("PHP Warning:  oh\nno"), end()].concat());
    });
    let keys = "answer_timeout = '2s'\nstall_timeout = '300ms'\ntries = 1\nmax_fails = 1000";
    let server = serve(&site, &url(&upstream), FILES_FIRST, keys);
    let mut client = site.connect(&server);
    assert_eq!(body(&mut client, "/good"), (200, "good".to_owned()));
    wait_for_message(&server, "the application says: PHP Warning:  oh\\nno");
    for (target, _, status) in before {
        assert_eq!(body(&mut client, target).0, status, "{target}");
        assert_eq!(body(&mut client, "/good"), (200, "good".to_owned()), "after {target}");
    }
    for (target, _) in within {
        let mut client = site.connect(&server);
        client.send(get(target).as_bytes()).expect("it leaves");
        match read_until_cut(&mut client) {
            Ok(ending) => assert!(!ending.data.ends_with(b"0\r\n\r\n") && !is_orderly(&ending), "{target}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
    }
}

#[test]
fn an_application_that_ends_otherwise_than_with_status_0_has_a_line_with_the_cause() {
    for (end, status, cause) in [
        ([0, 0, 1, 2, 0, 0, 0, 0], 200, "the application ended with status 258"),
        ([0, 0, 0, 0, 1, 0, 0, 0], 503, "FCGI_CANT_MPX_CONN"),
        ([0, 0, 0, 0, 2, 0, 0, 0], 503, "FCGI_OVERLOADED"),
        ([0, 0, 0, 0, 3, 0, 0, 0], 502, "FCGI_UNKNOWN_ROLE"),
    ] {
        let site = Site::new();
        site.add("index.php", "");
        let (upstream, _) = answering(move |accepted, _| {
            let answer = if status == 200 { stdout("X-A: 1\r\n\r\nwhole") } else { Vec::new() };
            accepted.write(&[answer, of_type(3, &end)].concat());
        });
        let server = serve(&site, &url(&upstream), FILES_FIRST, "tries = 1");
        let (found, text) = body(&mut site.connect(&server), "/");
        assert!(found == status && (found != 200 || text == "whole"), "{end:?}: {found} {text}");
        wait_for_message(&server, cause);
    }
}

#[test]
fn a_request_that_breaks_off_never_arrives_as_whole() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let server = serve(&site, &url(&upstream), IN_MEMORY, "");
    for head in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"] {
        let mut client = site.connect(&server);
        exchange(&mut client, format!("POST / HTTP/1.1\r\nHost: localhost\r\n{head}").as_bytes());
    }
    // Longer than what waits: a script would run with a part of it.
    let mut client = site.connect(&server);
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\nabc").expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 413);
    wait_for_message(&server, "set buffer_request");
    let large = vec![b'x'; 900_000];
    let mut client = site.connect(&server);
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n").expect("it leaves");
    client.send(&large).expect("it leaves");
    drop(client);
    wait_until("it is logged", || server.lines().iter().any(|line| line.text.contains("status=499")));
    assert!(asked.lock().expect("no panic").is_empty());
}

const PHP: &str = r#"<?php
if (isset($_GET['large'])) { for ($i = 0; $i < 1024; $i++) echo str_repeat(chr(65 + $i % 26), 8192); exit; }
if (isset($_GET['status'])) { http_response_code(418); header('X-Powered-By: '); setcookie('a', 'b'); setcookie('c', 'd'); }
if (isset($_GET['log'])) error_log('said by the script');
if (isset($_GET['location'])) { header('Location: /there'); exit; }
if (isset($_GET['dies'])) { echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9); }
$content = file_get_contents('php://input');
echo $_SERVER['SCRIPT_NAME'], '|', $_SERVER['PATH_INFO'] ?? '', '|', $_SERVER['REQUEST_METHOD'], '|', strlen($content), '|', md5($content), '|', $_POST['f'] ?? '';
"#;

#[test]
fn php_answers() {
    let site = Site::new();
    site.add("index.php", PHP);
    site.add("a/x.php", PHP);
    site.add("upload/x.jpg", PHP);
    let directory = tempfile::tempdir().expect("a directory");
    let php = PhpFpm::start(directory.path());
    let server = serve(&site, &php.url(), FILES_FIRST, "tries = 1");
    let mut client = site.connect(&server);
    const EMPTY: &str = "d41d8cd98f00b204e9800998ecf8427e";
    for (target, expected) in [
        ("/", format!("/index.php||GET|0|{EMPTY}|")),
        ("/some/where", format!("/index.php||GET|0|{EMPTY}|")),
        ("/a/x.php/in/fo", format!("/a/x.php|/in/fo|GET|0|{EMPTY}|")),
    ] {
        assert_eq!(body(&mut client, target), (200, expected), "{target}");
    }
    for target in ["/upload/x.jpg/y.php", "/upload/x.jpg/.php", "/none.php"] {
        let (status, text) = body(&mut client, target);
        assert!((status == 404 || text.starts_with("/index.php|")) && !text.contains("x.jpg"), "{target}: {text}");
    }
    let form = [("Content-Length", "7"), ("Content-Type", "application/x-www-form-urlencoded")];
    let response = post(&mut client, "/", &form, b"f=a+b%21");
    assert_eq!(response.status, 200);
    client = site.connect(&server);
    let form = [("Content-Length", "8"), ("Content-Type", "application/x-www-form-urlencoded")];
    let response = post(&mut client, "/", &form, b"f=a+b%21");
    assert!(response.body.ends_with(b"|a b!"), "{}", String::from_utf8_lossy(&response.body));
    let large = vec![b'z'; 300_000];
    let response = post(&mut client, "/", &[("Content-Length", "300000")], &large);
    assert!(String::from_utf8_lossy(&response.body).contains("|POST|300000|"));
    // CGI needs a length, which chunks do not have.
    let chunks = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let response = post(&mut client, "/", &[("Transfer-Encoding", "chunked")], chunks);
    assert!(String::from_utf8_lossy(&response.body).contains("|POST|11|5eb63bbbe01eeed093cb22bb8f5acdc3|"));
    let response = http::get(&mut client, "/?large").expect("a response");
    assert_eq!((response.status, response.body.len()), (200, 8 << 20));
    assert!(
        response.body.chunks(8192).enumerate().all(|(n, part)| part.iter().all(|o| usize::from(*o) == 65 + n % 26))
    );
    let response = http::get(&mut client, "/?status").expect("a response");
    assert_eq!(response.status, 418);
    assert_eq!(response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).count(), 2);
    let response = http::get(&mut client, "/?location").expect("a response");
    assert_eq!((response.status, response.field("location")), (302, Some("/there")));
    assert_eq!(http::request(&mut client, "HEAD", "/", &[]).expect("a response").status, 200);
    assert_eq!(body(&mut client, "/?log").0, 200);
    wait_for_message(&server, "the application says: PHP message: said by the script");
    client.send(get("/?dies").as_bytes()).expect("it leaves");
    if let Ok(ending) = read_until_cut(&mut client) {
        assert!(!ending.data.ends_with(b"0\r\n\r\n") && !is_orderly(&ending));
    }
    assert_eq!(body(&mut site.connect(&server), "/").0, 200);
}

/// The number and method of the next request on a connection that is kept. `None`: the client has closed it.
fn kept_request(accepted: &mut Accepted) -> Option<(u16, String)> {
    let (mut number, mut params) = (0, Vec::new());
    loop {
        let head = accepted.read(8)?;
        let content = accepted.read(usize::from(u16::from_be_bytes([head[4], head[5]])))?;
        number = if number == 0 { u16::from_be_bytes([head[2], head[3]]) } else { number };
        assert_eq!(number, u16::from_be_bytes([head[2], head[3]]), "one number for all records");
        match head[1] {
            1 => assert_eq!(content[..3], [0, 1, 1], "a responder, whose connection is kept"),
            4 => params.extend_from_slice(&content),
            5 if content.is_empty() => {
                let is_post = memchr::memmem::find(&params, b"REQUEST_METHODPOST").is_some();
                return Some((number, if is_post { "POST" } else { "GET" }.to_owned()));
            }
            5 => {}
            kind => panic!("a record of type {kind}"),
        }
    }
}

/// Records of a response to the request of this number.
fn numbered(number: u16, records: Vec<u8>) -> Vec<u8> {
    let mut numbered = records;
    let mut at = 0;
    while at < numbered.len() {
        numbered[at + 2..at + 4].copy_from_slice(&number.to_be_bytes());
        at += 8 + usize::from(u16::from_be_bytes([numbered[at + 4], numbered[at + 5]])) + usize::from(numbered[at + 6]);
    }
    numbered
}

#[test]
fn connections_are_kept_where_the_upstream_says_how_many() {
    let site = Site::new();
    site.add("x.php", "");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let upstream = Upstream::start(move |accepted| {
        while let Some((number, method)) = kept_request(accepted) {
            let connection = accepted.number;
            all.lock().expect("no panic").push((connection, number, method));
            let text = format!("Content-Type: text/plain\r\n\r\n{connection} {number}");
            let late = if number == 3 { numbered(2, stdout("late")) } else { Vec::new() };
            accepted.write(&[late, numbered(number, [stdout(text), end()].concat())].concat());
        }
    });
    let rules = "proxy = { to = 'php', fastcgi = {} }";
    let server = serve(&site, &url(&upstream), rules, "max_idle = 4");
    let workers = "each worker keeps its own";
    let mut client = site.connect(&server);
    let next = |client: &mut Client| body(client, "/x.php");
    assert_eq!(next(&mut client), (200, "0 1".to_owned()));
    assert_eq!(next(&mut client), (200, "0 2".to_owned()), "{workers}");
    // A record of the request before is no part of the response, and ends the connection.
    assert_eq!(next(&mut client).0, 502);
    assert_eq!(next(&mut client), (200, "1 1".to_owned()));
    assert_eq!(next(&mut client), (200, "1 2".to_owned()));
    // One that may not be repeated opens a connection, which is kept too.
    let posted = post(&mut client, "/x.php", &[("Content-Length", "1")], b"x");
    assert_eq!((posted.status, posted.body.as_slice()), (200, &b"2 1"[..]));
    assert_eq!(next(&mut client), (200, "2 2".to_owned()));
    assert_eq!(seen.lock().expect("no panic").len(), 7);
}

#[test]
fn php_answers_many_requests_on_one_connection() {
    let site = Site::new();
    site.add("x.php", "<?php header('Content-Type: text/plain'); echo str_repeat($_GET['c'] ?? 'p', 100000), $_SERVER['REQUEST_METHOD'];");
    let directory = tempfile::tempdir().expect("a directory");
    let php = PhpFpm::start(directory.path());
    let server = serve(&site, &php.url(), "proxy = { to = 'php', fastcgi = {} }", "max_idle = 2");
    let mut client = site.connect(&server);
    for n in 0..30 {
        let letter = char::from(b'a' + n % 26).to_string();
        let (status, text) = body(&mut client, &format!("/x.php?c={letter}"));
        assert!(status == 200 && text == letter.repeat(100_000) + "GET", "{n}: {status}");
        if n % 10 == 0 {
            let posted = post(&mut client, "/x.php?c=q", &[("Content-Length", "3")], b"a=b");
            assert_eq!(posted.body, ["q".repeat(100_000), "POST".to_owned()].concat().as_bytes());
        }
    }
}

#[test]
fn what_cannot_be_run_is_refused_at_start() {
    let site = Site::new();
    let php = "[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{ url = 'fastcgi://127.0.0.1:1' }]\n";
    let app = "[[upstream]]\nname = 'php'\nservers = [{ url = 'http://127.0.0.1:1' }]\n";
    for (rule, upstream, words) in [
        ("", php, "add fastcgi = {}"),
        (", fastcgi = {}", app, "does not speak FastCGI"),
        (", fastcgi = {}, strip_prefix = true", php, "found by the whole path"),
        (", fastcgi = {}, upgrade = ['websocket']", php, "upgrade: has no effect"),
        (", fastcgi = {}, interim = 'all'", php, "interim: has no effect"),
        (", fastcgi = { index = 'index.html' }", php, "is not a script"),
        (", fastcgi = { index = 'a/index.php' }", php, "is not a script"),
        (", fastcgi = { front = '/../x.php' }", php, "is not a script"),
        (", fastcgi = { only_front = true }", php, "set front"),
        (", fastcgi = { extensions = ['php'] }", php, "with their dot"),
        (", fastcgi = { params = { SCRIPT_FILENAME = '/x' } }", php, "is made for each request"),
        (", fastcgi = { params = { HTTP_X = '1' } }", php, "request_headers"),
        (", fastcgi = { root = '/does/not/exist' }", php, "/does/not/exist"),
        (
            ", fastcgi = {}",
            "[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{ url = 'http://a:1' }]\n",
            "fastcgi://",
        ),
        (
            ", fastcgi = {}",
            "[[upstream]]\nname = 'php'\nservers = [{ url = 'fastcgi://a:1' }]\n",
            "protocol = \"fastcgi\"",
        ),
        (", fastcgi = {}", &format!("{php}proxy_protocol = 'v1'\n"), "remove it"),
        (", fastcgi = {}", &format!("{php}connection_age = '1s'\n"), "connection_age: has no effect"),
        (", fastcgi = {}", &format!("{php}idle_timeout = '1s'\n"), "idle_timeout: has no effect"),
        (", fastcgi = {}", &format!("{php}tunnel_timeout = '1s'\n"), "tunnel_timeout: has no effect"),
        (", fastcgi = {}", &format!("{php}tls = {{ server_name = 'a' }}\n"), "tls: has no effect"),
        (", fastcgi = {}", &format!("{php}health = {{ path = '/' }}\n"), "over HTTP"),
    ] {
        let config = site.config(&format!("proxy = {{ to = 'php'{rule} }}")).table(upstream);
        let problems = config.problems();
        assert!(problems.contains(words), "{rule}: {words:?} is not in {problems}");
    }
}
