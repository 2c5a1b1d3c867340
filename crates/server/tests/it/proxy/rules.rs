//! Rules: which requests are forwarded, and what is changed on the way.

use std::net::SocketAddr;

use sealion_testkit::{Suite, http};

use super::{post, serve};
use crate::support::port::free_port;
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, curl, wait_for_message};

#[test]
fn the_route_of_a_path_forwards_it_and_files_serve_the_rest() {
    let site = Site::new();
    site.add("index.html", "the page");
    site.add("api/file", "hidden by the rule");
    let api = Upstream::answering(|request| ok(format!("api {}", request.line()).as_bytes()));
    let php = Upstream::answering(|request| ok(format!("php {}", request.line()).as_bytes()));
    let keys = format!(
        "route = [{{ path = '/api/', proxy = {{ to = 'api', strip_prefix = true }} }}, {{ path = '~ \\.php$', proxy = {{ to = '{}' }} }},\
           {{ path = '= /users', rewrite = '/api/v1/users' }}]",
        php.url()
    );
    let config =
        site.config(&keys).table(&format!("[[upstream]]\nname = 'api'\nservers = [{{ url = '{}' }}]", api.url()));
    let server = config.serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, body) in [
        ("/", "the page"),
        ("/api", "api GET /"),
        ("/api/", "api GET /"),
        ("/api/file?q=1", "api GET /file?q=1"),
        ("/%61pi/a%2Fb", "api GET /a%2Fb"),
        ("//api//x", "api GET /x"),
        ("/apis", "404 Not Found\n"),
        ("/a/b.php?c", "php GET /a/b.php?c"),
        ("/users?a", "api GET /v1/users?a"),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(String::from_utf8_lossy(&response.body), body, "{target}");
    }
    assert_eq!(post(&mut client, "/users", &[("Content-Length", "1")], b"x").body, b"api POST /v1/users");
    // An encoded slash hides where the prefix ends.
    assert_eq!(http::get(&mut client, "/api%2Fx").expect("a response").status, 400);
    assert_eq!(post(&mut client, "/", &[("Content-Length", "1")], b"x").status, 405);
}

#[test]
fn another_path_goes_before_the_forwarded_one() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let line = request.line();
        let fields = "Location: /app%20x/v1/login\r\nSet-Cookie: a=1; Path=/app%20x/v1";
        format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n{line}", line.len()).into_bytes()
    });
    let url = upstream.url();
    let keys = format!(
        "proxy = {{ to = '{url}', to_prefix = '/all' }}\nroute = [{{ path = '/api/', proxy = {{ to = '{url}', strip_prefix = true, to_prefix = '/app%20x/v1/', redirects = 'rewrite' }} }}]"
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, line) in [
        ("/api", "GET /app%20x/v1/"),
        ("/api/x%2Fy?q=1", "GET /app%20x/v1/x%2Fy?q=1"),
        ("//api//x", "GET /app%20x/v1//x"),
        ("/", "GET /all/"),
        ("/apis?q", "GET /all/apis?q"),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(String::from_utf8_lossy(&response.body), line, "{target}");
    }
    let response = http::get(&mut client, "/api/").expect("a response");
    assert_eq!(
        (response.field("location"), response.field("set-cookie")),
        (Some("/api/login"), Some("a=1; Path=/api"))
    );
    // A path that would leave the prefix again is refused, in any spelling.
    for target in ["/api/../x", "/api/%2e%2e/x", "/api/..%2Fx"] {
        let status = http::get(&mut client, target).expect("a response").status;
        assert!(matches!(status, 400 | 404), "{target}: {status}");
    }
}

#[test]
fn fields_and_host_are_changed_as_the_rule_says() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| {
        b"HTTP/1.1 200 OK\r\nX-Powered-By: app\r\nServer: app\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let keys = format!(
        "headers = {{ set = {{ X-Site = '1', X-Powered-By = 'not this' }} }}\n\
         [site.proxy]\nto = '{}'\nhost = 'upstream'\n\
         request_headers = [{{ name = 'X-Key', value = 'secret' }}, {{ name = 'Cookie', value = '' }}]\n\
         response_headers = [{{ name = 'Server', value = '' }}, {{ name = 'X-Via', value = 'proxy' }}]",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let response =
        http::request(&mut client, "GET", "/", &[("Cookie", "a=b"), ("X-Key", "forged"), ("X_Key", "forged")])
            .expect("a response");
    let field = |name| response.field(name);
    assert_eq!((field("x-powered-by"), field("server"), field("x-via")), (Some("app"), None, Some("proxy")));
    assert_eq!(field("x-site"), Some("1"));
    let received = upstream.last();
    assert_eq!(received.field("host"), upstream.address().to_string());
    assert_eq!((received.field("x-key"), received.all("cookie")), ("secret", vec![]));
    assert_eq!(received.all("x_key"), [""; 0], "a server by CGI would take it for X-Key");
}

#[test]
fn error_pages_replace_those_of_the_server_only_where_told() {
    for intercept in [true, false] {
        let site = Site::new();
        site.add("404.html", "not here");
        site.add("502.html", "sorry");
        let upstream = Upstream::start(|accepted| {
            while let Some(request) = accepted.request() {
                if request.line().ends_with("broken") {
                    return;
                }
                accepted.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nof it");
            }
        });
        let keys = format!(
            "error_pages = {{ 404 = '/404.html', 502 = '/502.html' }}\nproxy = {{ to = '{}', intercept_errors = {intercept} }}",
            upstream.url()
        );
        let server = site.config(&keys).serve_from_user_space();
        let mut client = site.connect(&server);
        let response = http::get(&mut client, "/none").expect("a response");
        let body = if intercept { "not here" } else { "of it" };
        assert_eq!((response.status, response.body.as_slice()), (404, body.as_bytes()));
        let response = http::get(&mut client, "/broken").expect("a response");
        assert_eq!((response.status, response.body.as_slice()), (502, &b"sorry"[..]));
    }
}

#[test]
fn content_that_is_too_long_is_refused() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!("proxy = {{ to = '{}', max_body = 10 }}", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    assert_eq!(post(&mut site.connect(&server), "/", &[("Content-Length", "10")], b"0123456789").status, 200);
    let response = post(&mut site.connect(&server), "/", &[("Content-Length", "11")], b"0123456789a");
    assert_eq!((response.status, response.field("connection")), (413, Some("close")));
    let chunked =
        post(&mut site.connect(&server), "/", &[("Transfer-Encoding", "chunked")], b"b\r\n0123456789a\r\n0\r\n\r\n");
    assert_eq!(chunked.status, 413);
    assert_eq!(upstream.requests().len(), 1);
}

/// Some of the first read of HTTP/2 comes before the rule is known.
#[test]
fn content_that_is_too_long_is_refused_over_http2() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!("proxy = {{ to = '{}', max_body = 10 }}", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    let file = site.add_pattern("upload", 16_000);
    let upload = format!("@{}", file.display());
    for framing in ["X-Framing: length", "Content-Length:"] {
        let options = ["--http2", "--data-binary", &upload, "-H", framing, "-H", "Expect:"];
        assert_eq!(curl::get(&site.pki, server.address(), "/", &options).status, 413, "{framing}");
    }
    assert!(upstream.requests().is_empty());
}

/// Characters that no URI has are what browsers send, and no fault of the servers.
#[test]
fn every_visible_character_is_forwarded() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let server = serve(&site, &upstream, "max_fails = 1");
    let mut client = site.connect(&server);
    for octet in (b'!'..=b'~').filter(|octet| !b"#%?/abc=".contains(octet)).map(char::from) {
        let raw = format!("/a{octet}b?c={octet}");
        let encoded = raw.replace(octet, &format!("%{:02X}", octet as u32));
        let response = http::get(&mut client, &raw).expect("a response");
        let body = String::from_utf8(response.body).expect("text");
        assert!(body == format!("GET {raw}") || body == format!("GET {encoded}"), "{raw}: {} {body}", response.status);
    }
}

#[test]
fn a_site_of_rules_alone_needs_no_root() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let mut config = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroute = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]\n",
        upstream.url()
    );
    let certificate = (site.pki.certificate_file(), site.pki.key_file());
    config +=
        &format!("certificates = [{{ cert = '{}', key = '{}' }}]\n", certificate.0.display(), certificate.1.display());
    let file = site.outside().join("sealion.toml");
    std::fs::write(&file, config).expect("written");
    let arguments = ["serve", "--ktls", "never", "--config", file.to_str().expect("a path in UTF-8")];
    let server = sealion_testkit::server::Server::start(crate::support::PROGRAM.as_ref(), arguments);
    let mut client = site.connect(&server);
    assert_eq!(http::get(&mut client, "/app").expect("a response").status, 200);
    assert_eq!(http::get(&mut client, "/").expect("a response").status, 404);
}

#[test]
fn one_line_starts_a_proxy() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let mut arguments = site.arguments(&["--ktls", "never", "--to", &upstream.url()]);
    arguments[0] = "proxy".into();
    let root = arguments.remove(1);
    let server = sealion_testkit::server::Server::start(crate::support::PROGRAM.as_ref(), &arguments);
    wait_for_message(&server, &format!("serving {} on https://", upstream.url()));
    assert_eq!(http::get(&mut site.connect(&server), "/a").expect("a response").body, b"GET /a");
    // With a directory, its files go before.
    site.add("a", "a file");
    arguments.insert(1, root);
    let server = sealion_testkit::server::Server::start(crate::support::PROGRAM.as_ref(), &arguments);
    let mut client = site.connect(&server);
    assert_eq!(http::get(&mut client, "/a").expect("a response").body, b"a file");
    assert_eq!(http::get(&mut client, "/b").expect("a response").body, b"GET /b");
    // A server whose certificate an authority of its own signed.
    let server = site.serve_from_user_space(&[]);
    let to = format!("https://{}", server.address());
    for (more, status) in
        [(&[][..], 502), (&["--roots", site.pki.certificate_file().to_str().expect("a path in UTF-8")], 200)]
    {
        // The first URL of its lines belongs to the other server.
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let options = [&["--ktls", "never", "--to", &to], more].concat();
        let mut arguments = site.arguments_at(&address.to_string(), &options);
        arguments[0] = "proxy".into();
        arguments.remove(1);
        let _proxy = sealion_testkit::server::Server::start(crate::support::PROGRAM.as_ref(), &arguments);
        let mut client = site.connector(Suite::TLS13).connect(address);
        assert_eq!(http::get(&mut client, "/a").expect("a response").status, status);
    }
}

/// Files are sent, browsers that navigate get the page, and the application gets the rest.
#[test]
fn one_line_serves_the_pages_of_an_application_beside_it() {
    let site = Site::new();
    site.add("index.html", "the page");
    site.add("app.js", "a script");
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let to = upstream.url().trim_start_matches("http://").to_owned();
    let mut arguments = site.arguments(&["--ktls", "never", "--to", &to, "--spa"]);
    arguments[0] = "proxy".into();
    let server = sealion_testkit::server::Server::start(crate::support::PROGRAM.as_ref(), &arguments);
    let mut client = site.connect(&server);
    let (navigation, any) = ("text/html,application/xhtml+xml,*/*;q=0.8", "*/*");
    for (method, target, accept, body) in [
        ("GET", "/", navigation, "the page"),
        ("GET", "/app.js", any, "a script"),
        ("GET", "/users/1", navigation, "the page"),
        ("GET", "/users/1", any, "GET /users/1"),
        ("GET", "/users/1", "application/json", "GET /users/1"),
        ("POST", "/users/1", navigation, "POST /users/1"),
        ("GET", "/api/export", navigation, "GET /api/export"),
        ("GET", "/api", navigation, "GET /api"),
        ("GET", "/apis", navigation, "the page"),
    ] {
        let response = http::request(&mut client, method, target, &[("Accept", accept)]).expect("a response");
        let got = String::from_utf8_lossy(&response.body);
        assert_eq!((response.status, &*got), (200, body), "{method} {target} {accept}");
        let varies = response.field("vary").is_some_and(|names| names.contains("Accept"));
        assert_eq!(varies, target == "/users/1" || target == "/apis", "{method} {target} {accept}");
    }
    // Without a directory there is no page.
    let output = std::process::Command::new(crate::support::PROGRAM).args(["proxy", "--to", &to, "--spa"]).output();
    let text = String::from_utf8(output.expect("the program starts").stderr).expect("text");
    assert!(text.contains("--spa needs the directory of the pages"), "{text}");
}

#[test]
fn methods_that_a_rule_does_not_name_are_refused_under_every_spelling_of_its_path() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "proxy = {{ to = '{url}' }}\nroute = [{{ path = '/read/', proxy = {{ to = '{url}', methods = ['GET', 'REPORT'] }} }}]",
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (method, target, status) in [
        ("GET", "/read/x", 200),
        ("HEAD", "/read/x", 200),
        ("REPORT", "/read/x", 200),
        ("DELETE", "/read/x", 405),
        ("DELETE", "/x/..;/read/x", 400),
        ("DELETE", "/read;a/x", 405),
        ("DELETE", "/%2572ead/x", 405),
        ("DELETE", "/read%2Fx", 405),
        ("DELETE", "/write/x", 200),
    ] {
        let response = http::request(&mut client, method, target, &[]).expect("a response");
        assert_eq!(response.status, status, "{method} {target}");
        if status == 405 {
            assert_eq!(response.field("allow"), Some("GET, REPORT"));
        }
        if response.field("connection") == Some("close") {
            client = site.connect(&server);
        }
    }
    assert!(upstream.requests().iter().all(|request| !request.line().contains("DELETE /read")));
}

#[test]
fn redirects_and_cookies_of_an_application_suit_the_client() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let host = request.field("host");
        let fields =
            format!("Location: http://{host}/login?a\r\nSet-Cookie: s=1; Path=/; Domain=127.0.0.1; HttpOnly\r\n");
        format!("HTTP/1.1 302 Found\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let keys = format!(
        "proxy = {{ to = '{url}' }}\nroute = [{{ path = '/my app/', proxy = {{ to = '{url}', strip_prefix = true, redirects = 'rewrite' }} }}, {{ path = '/own/', proxy = {{ to = '{url}', host = 'upstream', redirects = 'rewrite' }} }}]",
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, location, cookie) in [
        ("/my%20app/x", "/my%20app/login?a", "s=1; Path=/my%20app; HttpOnly"),
        ("/own/x", "/login?a", "s=1; Path=/; HttpOnly"),
        ("/x", "http://localhost/login?a", "s=1; Path=/; Domain=127.0.0.1; HttpOnly"),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!((response.field("location"), response.field("set-cookie")), (Some(location), Some(cookie)));
    }
}

/// Browsers read `/\host` and a tab between two slashes as `//host`.
#[test]
fn a_location_of_the_application_names_no_other_host() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let path = match request.line() {
            "GET /backslash" => "/\\evil.example/",
            "GET /tab" => "/\t/evil.example/",
            _ => "//evil.example/",
        };
        let fields =
            ["Location", "Content-Location"].map(|name| format!("{name}: http://{}{path}", request.field("host")));
        format!("HTTP/1.1 302 Found\r\n{}\r\nContent-Length: 0\r\n\r\n", fields.join("\r\n")).into_bytes()
    });
    let keys = format!("proxy = {{ to = '{}', host = 'upstream', redirects = 'rewrite' }}", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    for protocol in ["--http1.1", "--http2"] {
        for (target, location) in
            [("/backslash", "/%5Cevil.example/"), ("/tab", "/%09/evil.example/"), ("/slash", "/evil.example/")]
        {
            let response = curl::get(&site.pki, server.address(), target, &[protocol]);
            assert_eq!(response.field("location"), Some(location), "{protocol} {target}");
            assert_eq!(response.field("content-location"), Some(location), "{protocol} {target}");
        }
    }
}

#[test]
fn a_rule_makes_a_trace_where_the_client_has_none() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!(
        "proxy = {{ to = '{url}' }}\nroute = [{{ path = '/traced/', proxy = {{ to = '{url}', trace_context = true }} }}]",
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    http::get(&mut client, "/").expect("a response");
    assert_eq!(upstream.last().all("traceparent"), [""; 0]);
    let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    for (given, passes) in [(valid, true), ("made up", false)] {
        http::request(&mut client, "GET", "/traced/", &[("Traceparent", given)]).expect("a response");
        assert_eq!(upstream.last().field("traceparent") == given, passes);
        assert_eq!(upstream.last().field("traceparent").len(), valid.len());
    }
}

#[test]
fn what_is_wrong_with_the_keys_is_said() {
    for (site_keys, table, words) in [
        ("proxy = {}", "", "site.proxy.to: is missing: name an [[upstream]]"),
        ("proxy = { to = 'app' }", "", "there is no [[upstream]] with the name \"app\": add it"),
        ("proxy = { to = 'ftp://a' }", "", "is not the URL of a server: write http://host:port"),
        ("route = [{ path = 'x/', proxy = { to = 'http://a' } }]", "", "begins with a slash"),
        ("route = [{ path = '~ ^x', proxy = { to = 'http://a' } }]", "", "never matches"),
        (
            "route = [{ path = '~ /x', proxy = { to = 'http://a', strip_prefix = true } }]",
            "",
            "needs a route whose path ends in a slash",
        ),
        (
            "proxy = { to = 'http://a', to_prefix = 'v1' }",
            "",
            "site.proxy.to_prefix: is not a path: write for instance /v1",
        ),
        ("proxy = { to = 'http://a', to_prefix = '/a?b' }", "", "is not a path"),
        ("proxy = { to = 'http://a', to_prefix = '/a b' }", "", "is not a path"),
        ("proxy = { to = 'http://a', to_prefix = '/a/../b' }", "", "is not a path"),
        ("proxy = { to = 'http://a', host = 'a b' }", "", "write client, upstream, or a host"),
        ("proxy = { to = 'http://a', methods = ['TRACE'] }", "", "site.proxy.methods: \"TRACE\" cannot be forwarded"),
        ("proxy = { to = 'http://a', methods = ['get'] }", "", "write methods as [\"GET\", \"POST\"]"),
        ("proxy = { to = 'http://a', request_headers = [{ name = 'Host', value = 'x' }] }", "", "set the rule's host"),
        (
            "proxy = { to = 'http://a', response_headers = [{ name = 'Upgrade', value = 'x' }] }",
            "",
            "belongs to the connection",
        ),
        ("proxy = { to = 'http://a', upgrade = ['h2c'] }", "", "\"h2c\" cannot be a tunnel"),
        ("proxy = { to = 'http://a', cache = { ttl = '5m' } }", "", "for instance { 200 = \"5m\", 404 = \"10s\" }"),
        ("", "[[upstream]]\nname = 'a'\nservers = []", "upstream.servers: is empty for upstream a"),
        ("", "[[upstream]]\nname = 'a'\nservers = [{ url = 'http://a/b' }]", "has a path"),
        ("", "[[upstream]]\nname = 'a'\nservers = [{ url = 'http://a', backup = true }]", "has only backups"),
        (
            "",
            "[[upstream]]\nname = 'a'\nservers = [{ url = 'https://a' }]\ntls = { roots = '/none' }",
            "upstream.tls.roots: /none:",
        ),
        (
            "",
            "[[upstream]]\nname = 'a'\nservers = [{ url = 'https://a' }]\ntls = { cert = '/none' }",
            "needs both cert and key",
        ),
    ] {
        let problems = Site::new().config(site_keys).table(table).problems();
        assert!(problems.contains(words), "{words:?} is not in {problems:?}");
    }
}
