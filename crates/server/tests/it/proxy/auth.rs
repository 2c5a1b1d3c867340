//! Another server is asked whether a request may pass.

use sealion_testkit::Suite;
use sealion_testkit::http::{self, Response};
use sealion_testkit::http2::reset;

use super::post;
use crate::guards::add_users;
use crate::support::http2::Http2;
use crate::support::upstream::{Received, Upstream, ok};
use crate::support::{Site, access_line, access_lines, curl, wait_until};

/// Lets requests pass that have a field `X-Pass`, with a user; others are led to a login.
fn gatekeeper() -> Upstream {
    Upstream::answering(|request| match request.all("x-pass")[..] {
        [user] => {
            let fields = format!("Remote-User: {user}\r\nRemote-Groups: a\r\nRemote-Groups: b\r\nX-Other: 1\r\n");
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok").into_bytes()
        }
        _ => {
            let fields = "Location: https://login.example/\r\nSet-Cookie: from=here\r\nContent-Length: 5\r\n";
            format!("HTTP/1.1 302 Found\r\n{fields}\r\nlogin").into_bytes()
        }
    })
}

const PASS: (&str, &str) = ("X-Pass", "ada");

fn is_refused(response: &Response) -> bool {
    (response.status, response.field("location")) == (302, Some("https://login.example/")) && response.body == b"login"
}

#[test]
fn what_the_server_says_decides_on_files_listings_and_forwarded_requests() {
    let site = Site::new();
    for (name, content) in [
        ("a.txt", "a file"),
        ("a.txt.br", "br"),
        ("dir/x.txt", "x"),
        ("index/index.html", "index"),
        ("app.html", "app"),
    ] {
        site.add(name, content);
    }
    let (auth, upstream) = (gatekeeper(), Upstream::answering(|request| ok(request.line().as_bytes())));
    let keys = format!(
        "fallback = '/app.html'\nprecompressed = ['br']\nforward_auth = {{ to = '{}/verify?from=1' }}\n\
         route = [{{ path = '/api/', proxy = {{ to = '{}' }} }}]\nlisting = true",
        auth.url(),
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for protocol in ["--http1.1", "--http2"] {
        for target in ["/a.txt", "/a.txt", "/dir/", "/dir", "/index/", "/none", "/a.txt.br", "/api/x?y=1"] {
            let accept = ["-H", "Accept: text/html", protocol];
            let refused = curl::get(&site.pki, server.address(), target, &accept);
            assert!(is_refused(&refused), "{protocol} {target}: {refused:?}");
            assert_eq!(refused.field("set-cookie"), Some("from=here"));
            let asked = auth.last();
            assert_eq!(asked.line(), "GET /verify?from=1");
            assert_eq!((asked.field("x-forwarded-method"), asked.field("x-forwarded-uri")), ("GET", target));
            assert_eq!((asked.field("x-original-method"), asked.field("x-original-uri")), ("GET", target));
            assert_eq!(asked.field("x-original-url"), format!("https://{}{target}", server.address()));
            assert_eq!(asked.field("host"), auth.address().to_string());
            assert_eq!(asked.field("x-forwarded-host"), server.address().to_string());
            assert_eq!((asked.field("x-forwarded-proto"), asked.field("x-forwarded-for")), ("https", "127.0.0.1"));
            let passed = [&accept[..], &["-H", "X-Pass: ada"]].concat();
            let passed = curl::get(&site.pki, server.address(), target, &passed);
            assert!(
                [200, 301].contains(&passed.status) && passed.field("set-cookie").is_none(),
                "{target}: {passed:?}"
            );
            let head = curl::get(&site.pki, server.address(), target, &[&accept[..], &["--head"]].concat());
            assert_eq!(head.status, 302, "{target}");
        }
    }
    assert_eq!(upstream.requests().len(), 2);
    // The sub-request has no content and no conditions, whatever the request has.
    let mut client = site.connect(&server);
    let fields =
        [("Content-Length", "3"), ("If-None-Match", "*"), ("Range", "bytes=0-0"), ("X-Forwarded_Uri", "/x"), PASS];
    assert_eq!(post(&mut client, "/api/p", &fields, b"abc").body, b"POST /api/p");
    assert_eq!(upstream.last().body, b"abc");
    assert_eq!((upstream.last().field("if-none-match"), upstream.last().field("range")), ("*", "bytes=0-0"));
    let asked = auth.last();
    for name in ["content-length", "if-none-match", "range", "transfer-encoding", "x-forwarded_uri"] {
        assert_eq!(asked.all(name), [""; 0], "{name}");
    }
    assert_eq!(asked.field("x-forwarded-method"), "POST");
    // The connection survives a refusal of a request without content.
    assert!(is_refused(&http::get(&mut client, "/a.txt").expect("a response")));
    assert_eq!(http::request(&mut client, "GET", "/a.txt", &[PASS]).expect("a response").body, b"a file");
}

#[test]
fn a_field_has_the_user_of_the_password_and_never_what_a_client_says() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| ok(b""));
    add_users(&site, "users", &["ada"]);
    let keys = format!(
        "route = [{{ path = '/in/', basic_auth = {{ users = 'users' }} }}]\n\
         proxy = {{ to = '{}', request_headers = [\n\
           {{ name = 'X-User', value = '{{user}}' }}, {{ name = 'X-Who', value = 'user={{user}}' }}] }}",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let forged = [("X-User", "root"), ("x_user", "root"), ("X-User", "wheel"), ("X-Who", "root")];
    let with_password = [&forged[..], &[("Authorization", "Basic YWRhOmFkYQ==")]].concat();
    for (target, fields, user) in
        [("/in/x", &with_password[..], &["ada"][..]), ("/x", &with_password[..], &[]), ("/x", &forged[..], &[])]
    {
        assert_eq!(http::request(&mut client, "GET", target, fields).expect("a response").status, 200);
        let asked = upstream.last();
        assert_eq!(asked.all("x-user"), user, "{target}");
        assert_eq!(asked.all("x_user"), [""; 0], "{target}");
        assert_eq!(asked.all("x-who"), [format!("user={}", user.concat())], "{target}");
    }
    assert_eq!(http::request(&mut client, "GET", "/in/x", &forged).expect("a response").status, 401);
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn fields_of_the_answer_are_copied_and_no_client_can_forge_them() {
    let site = Site::new();
    let (auth, upstream) = (gatekeeper(), Upstream::answering(|_| ok(b"")));
    let keys = format!(
        "route = [{{ path = '/in/', route = [{{ path = '/in/open/', forward_auth = false }}],\n\
           forward_auth = {{ to = '{}/verify', copy = ['Remote-User', 'Remote-Groups', 'Remote-Mail'] }} }}]\n\
         proxy = {{ to = '{}' }}",
        auth.url(),
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let forged = [
        ("Remote-User", "root"),
        ("Remote_User", "root"),
        ("REMOTE-groups", "wheel"),
        ("Remote_Mail", "root@localhost"),
        ("Connection", "Remote-User, Remote-Groups"),
        PASS,
    ];
    let all = |received: &Received, name: &str| received.all(name).join("; ");
    for (target, user, groups) in [("/in/x", "ada", "a, b"), ("/in/open/x", "", ""), ("/out", "", "")] {
        assert_eq!(http::request(&mut client, "GET", target, &forged).expect("a response").status, 200, "{target}");
        let sent = upstream.last();
        assert_eq!((&*all(&sent, "remote-user"), &*all(&sent, "remote-groups")), (user, groups), "{target}");
        for name in ["remote_user", "remote_groups", "remote-mail", "remote_mail", "x-other"] {
            assert_eq!(sent.all(name), [""; 0], "{target} {name}");
        }
    }
    assert_eq!(auth.requests().len(), 1, "it is asked for what it guards alone");
    assert_eq!(auth.connections(), 1);
    // Nor by trailers.
    let head = http::head("POST", "/in/x", &[("Transfer-Encoding", "chunked"), ("Trailer", "Remote-User, X-A"), PASS]);
    client
        .send((head + "0\r\nRemote-User: root\r\nRemote_Mail: root\r\nX-A: 1\r\n\r\n").as_bytes())
        .expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 200);
    assert_eq!(all(&upstream.last(), "remote-user"), "ada");
}

#[test]
fn it_is_asked_with_the_host_and_fields_of_the_guard() {
    let site = Site::new();
    let auth = gatekeeper();
    let keys = format!(
        r#"
        forward_auth.to = '{url}/verify'
        forward_auth.host = 'auth.test'
        forward_auth.request_headers = [
            {{ name = 'X-Api-Key', value = 'k123' }},
            {{ name = 'Cookie', value = '' }},
            {{ name = 'X-About', value = '{{method}} {{path}} {{host}} {{client}} {{query.x}}' }},
        ]
        [[site.route]]
        path = '/bare/'
        forward_auth = {{ to = '{url}/verify', host = 'client', pass_fields = false }}
        "#,
        url = auth.url()
    );
    site.add("a.txt", "a file");
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let fields = [("Cookie", "secret=1"), ("X_Api_Key", "forged"), ("X-Own", "kept"), PASS];
    let response = http::request(&mut client, "GET", "/a.txt?x=1", &fields).expect("a response");
    assert_eq!((response.status, &*response.body), (200, &b"a file"[..]));
    let asked = auth.last();
    assert_eq!((asked.field("host"), asked.field("x-api-key"), asked.field("x-own")), ("auth.test", "k123", "kept"));
    assert_eq!((asked.all("cookie"), asked.all("x_api_key")), (vec![], vec![]));
    assert_eq!(asked.field("x-about"), "GET /a.txt localhost 127.0.0.1 1");
    assert_eq!(asked.field("x-original-uri"), "/a.txt?x=1");
    assert!(is_refused(&http::request(&mut client, "GET", "/bare/x", &fields).expect("a response")));
    let asked = auth.last();
    assert_eq!(asked.field("host"), "localhost");
    assert_eq!((asked.all("cookie"), asked.all("x-pass"), asked.all("x-own")), (vec![], vec![], vec![]));
    assert_eq!(asked.field("x-forwarded-for"), "127.0.0.1");
}

#[test]
fn a_server_that_cannot_be_asked_lets_nothing_pass() {
    let site = Site::new();
    site.add("a.txt", "a file");
    let upstream = Upstream::echo();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let silent = Upstream::start(|accepted| {
        accepted.request();
        accepted.read_to_end();
    });
    let broken = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(b"HTTP/1.1 20");
    });
    let busy = Upstream::answering(|_| b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec());
    for (url, status) in
        [(format!("http://{closed}"), 502), (silent.url(), 504), (broken.url(), 502), (busy.url(), 500)]
    {
        let table = format!("[[upstream]]\nname = 'auth'\nservers = [{{ url = '{url}' }}]\nanswer_timeout = '200ms'\n");
        let proxy = format!("route = [{{ path = '/api/', proxy = {{ to = '{}' }} }}]", upstream.url());
        let keys = format!("{proxy}\nforward_auth = {{ upstream = 'auth', to = '/verify' }}");
        let server = site.config(&keys).table(&table).serve_from_user_space();
        for protocol in ["--http1.1", "--http2"] {
            for target in ["/a.txt", "/api/", "/none"] {
                let response = curl::get(&site.pki, server.address(), target, &[protocol, "-H", "X-Pass: ada"]);
                assert_eq!(response.status, status, "{url} {target}");
                assert_ne!(response.body, b"a file");
            }
        }
        assert_eq!(access_line(&server, 6).get("upstream"), url);
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn no_spelling_of_a_guarded_path_passes_without_being_asked() {
    let site = Site::new();
    let (auth, upstream) = (gatekeeper(), Upstream::answering(|request| ok(request.line().as_bytes())));
    let keys = format!(
        "proxy = {{ to = '{}' }}\n\
         route = [{{ path = '/admin/', forward_auth = {{ to = '{auth}/1' }} }}, {{ path = '~ \\.key$', forward_auth = {{ to = '{auth}/2' }} }}]",
        upstream.url(),
        auth = auth.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in [
        "/admin",
        "/admin/",
        "//admin/x",
        "/%61dmin/x",
        "/%2561dmin/x",
        "/admin%2Fx",
        "/%2Fadmin%2fx",
        "/admin%252Fx",
        "/admin;a=b/x",
        "/;a/admin/x",
        "\\admin\\x",
        "/%5Cadmin%5Cx",
        "/x/..;/admin/x",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/x%2F..%2Fadmin",
        "/a.key",
        "/a.key;x",
        "/a%2Ekey",
        "/a.ke%2579",
        "/admin?x",
        "/admin%00",
    ] {
        let response = http::get(&mut client, target);
        let status = response.map(|response| {
            if response.field("connection") == Some("close") {
                client = site.connect(&server);
            }
            response.status
        });
        assert!(matches!(status, Ok(302 | 400 | 404)), "{target}: {status:?}");
    }
    assert_eq!(upstream.requests().len(), 0);
    // Under two spellings, it is asked once.
    let before = auth.requests().len();
    let response = http::request(&mut client, "GET", "/admin/a%252Fb", &[PASS]).expect("a response");
    assert_eq!(response.body, b"GET /admin/a%252Fb");
    assert_eq!(auth.requests().len() - before, 1);
    assert_eq!(http::get(&mut client, "/administrator").expect("a response").status, 200);
}

/// A server that decides by the beginning of the path gets the one that the application gets, and of a file its name.
#[test]
fn it_is_asked_about_the_path_that_is_forwarded() {
    let site = Site::new();
    for name in ["files/admin/x", "both/admin/x"] {
        site.add(name, "secret");
    }
    let auth = Upstream::answering(|request| {
        let places = ["/admin", "/api/admin", "/files/admin", "/both/admin"];
        let about = ["x-forwarded-uri", "x-original-uri", "x-original-url"].map(|name| request.field(name).to_owned());
        let path = |uri: &String| uri.trim_start_matches("https://localhost").to_owned();
        assert!(about.iter().all(|uri| path(uri) == about[0]), "{about:?}");
        match places.iter().any(|place| about[0].starts_with(place)) {
            true => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
            false => ok(b""),
        }
    });
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "forward_auth = {{ to = '{auth}' }}\n\
         proxy = {{ to = '{url}' }}\n\
         route = [\n\
           {{ path = '/api/', proxy = {{ to = '{url}', strip_prefix = true }} }},\n\
           {{ path = '/both/', proxy = {{ to = '{url}', files_first = true }} }},\n\
           {{ path = '/files/', files = true }},\n\
         ]",
        auth = auth.url(),
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut over_http2 = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    for target in [
        "//admin/x",
        "///admin/x?y",
        "/\\admin/x",
        "/\\/admin",
        "/api//admin/x",
        "//api/\\admin/x",
        "/api///admin",
        "/files//admin/x",
        "//files///admin//x",
        "/%66iles/admin/x",
        "/both/admin/x",
    ] {
        assert_eq!(http::get(&mut site.connect(&server), target).expect("a response").status, 403, "{target}");
        assert_eq!(over_http2.fetch(target).0, 403, "{target}");
    }
    let absolute = http::get(&mut site.connect(&server), "http://localhost//admin/x").expect("a response");
    assert_eq!(absolute.status, 403);
    assert_eq!(upstream.requests().len(), 0);
    // A file has one spelling; with another, the application is asked.
    assert_eq!(over_http2.fetch("/both//admin/x"), (200, b"GET /both//admin/x".to_vec()));
    for (target, forwarded, asked) in [
        ("/open/a;b=c/%2561?q=1", "/open/a;b=c/%2561?q=1", "/open/a;b=c/%2561?q=1"),
        ("//open//x", "/open//x", "/open//x"),
        ("/open/a\"b<c>", "/open/a%22b%3Cc%3E", "/open/a%22b%3Cc%3E"),
        ("/api", "/", "/api"),
        ("/api//x//y?q", "/x//y?q", "/api/x//y?q"),
    ] {
        let line = format!("GET {forwarded}").into_bytes();
        assert_eq!(over_http2.fetch(target), (200, line.clone()), "{target}");
        assert_eq!(auth.last().field("x-forwarded-uri"), asked, "{target}");
        assert_eq!(http::get(&mut site.connect(&server), target).expect("a response").body, line, "{target}");
        assert_eq!(auth.last().field("x-forwarded-uri"), asked, "{target}");
    }
}

/// Refuses what begins with `/admin`, and tells in `X-Asked` what it was asked about.
fn guard_of_admin() -> Upstream {
    Upstream::answering(|request| match request.field("x-forwarded-uri") {
        uri if uri.starts_with("/admin") => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
        uri => format!("HTTP/1.1 200 OK\r\nX-Asked: {uri}\r\nContent-Length: 0\r\n\r\n").into_bytes(),
    })
}

/// The URIs that a server was asked about since it had been asked so often.
fn asked_since(auth: &Upstream, before: usize) -> Vec<String> {
    auth.requests()[before..].iter().map(|request| request.field("x-forwarded-uri").to_owned()).collect()
}

#[test]
fn it_is_asked_about_the_path_that_a_rewrite_makes() {
    let site = Site::new();
    let (auth, upstream) = (guard_of_admin(), Upstream::answering(|request| ok(request.head.as_bytes())));
    let keys = format!(
        "forward_auth = {{ to = '{auth}', copy = ['X-Asked'] }}\n\
         proxy = {{ to = '{url}' }}\n\
         route = [\n\
           {{ path = '~ ^/r(/.*)$', rewrite = '{{1}}' }},\n\
           {{ path = '~ ^/q(/.*)$', rewrite = '/open{{1}}?a=b' }},\n\
           {{ path = '~ ^/s(/.*)$', rewrite = '/strip{{1}}' }},\n\
           {{ path = '/strip/', proxy = {{ to = '{url}', strip_prefix = true }} }},\n\
         ]",
        auth = auth.url(),
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in ["/r/admin/x", "/r//admin/x", "/r/admin"] {
        assert_eq!(http::get(&mut client, target).expect("a response").status, 403, "{target}");
    }
    assert_eq!(upstream.requests().len(), 0);
    for (target, forwarded, asked) in [
        ("/r/open/x?q", "/open/x?q", vec!["/r/open/x?q", "/open/x?q"]),
        ("/q/x", "/open/x?a=b", vec!["/q/x", "/open/x?a=b"]),
        ("/s/x", "/x", vec!["/s/x", "/strip/x"]),
        ("/open/x", "/open/x", vec!["/open/x"]),
    ] {
        let before = auth.requests().len();
        let seen = http::request(&mut client, "GET", target, &[("X-Asked", "forged")]).expect("a response").body;
        let seen = String::from_utf8(seen).expect("text");
        assert!(seen.starts_with(&format!("GET {forwarded} ")), "{target}: {seen}");
        // The last answer is the one for what is forwarded.
        let last = asked.last().expect("it is asked");
        let copied = format!("x-asked: {last}");
        assert!(seen.lines().any(|line| line.eq_ignore_ascii_case(&copied)), "{target}: {seen}");
        assert_eq!(asked_since(&auth, before), asked, "{target}");
    }
}

#[test]
fn a_prefix_whose_end_an_encoded_slash_hides_is_refused() {
    let site = Site::new();
    let (auth, upstream) = (guard_of_admin(), Upstream::answering(|request| ok(request.line().as_bytes())));
    let keys = format!(
        "forward_auth = {{ to = '{auth}' }}\n\
         route = [\n\
           {{ path = '/p/', proxy = {{ to = '{url}', strip_prefix = true }} }},\n\
           {{ path = '/a/b/', proxy = {{ to = '{url}', strip_prefix = true }} }},\n\
         ]",
        auth = auth.url(),
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for target in ["/p%2F/admin/x", "/p%2f/x", "/%2Fp/x", "/p%2Fx", "/a%2F/b/x", "/a%2Fb/x", "/a/b%2F/x"] {
        let response = http::get(&mut site.connect(&server), target).expect("a response");
        assert_eq!(response.status, 400, "{target}: {:?}", String::from_utf8_lossy(&response.body));
    }
    assert_eq!(upstream.requests().len(), 0);
    let mut client = site.connect(&server);
    for (target, forwarded, asked) in [
        ("/p/x", "/x", "/p/x"),
        ("/%70//x/", "/x/", "/p/x/"),
        ("/p", "/", "/p"),
        ("/p/", "/", "/p/"),
        ("//a//b/x%2Fy", "/x%2Fy", "/a/b/x%2Fy"),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(String::from_utf8_lossy(&response.body), format!("GET {forwarded}"), "{target}");
        assert_eq!(auth.last().field("x-forwarded-uri"), asked, "{target}");
    }
}

#[test]
fn the_file_that_is_sent_must_pass_under_its_own_name() {
    let site = Site::new();
    for name in ["private/index.html", "open/index.html", "app.html"] {
        site.add(name, "secret");
    }
    let auth = gatekeeper();
    let keys = format!(
        "fallback = '/app.html'\nroute = [{{ path = '= /to', rewrite = '/private/index.html' }},\
           {{ path = '~ ^/private/index|^/open/index|^/app', forward_auth = {{ to = '{}' }} }}]",
        auth.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for target in ["/private/", "/open/", "/to", "/none"] {
        let options = ["-H", "Accept: text/html"];
        assert!(is_refused(&curl::get(&site.pki, server.address(), target, &options)), "{target}");
        let passed = [&options[..], &["-H", "X-Pass: ada"]].concat();
        assert_eq!(curl::get(&site.pki, server.address(), target, &passed).body, b"secret", "{target}");
    }
}

#[test]
fn content_of_a_request_that_is_refused_is_not_taken_for_the_next_request() {
    let site = Site::new();
    let (auth, upstream) = (gatekeeper(), Upstream::echo());
    let keys = format!("proxy = {{ to = '{}' }}\nforward_auth = {{ to = '{}' }}", upstream.url(), auth.url());
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let smuggled = crate::support::get("/smuggled");
    let length = smuggled.len().to_string();
    let response = post(&mut client, "/", &[("Content-Length", &length)], smuggled.as_bytes());
    assert!(is_refused(&response));
    client.read_to_end().expect("an end").assert_orderly();
    assert_eq!((upstream.requests().len(), auth.requests().len()), (0, 1));
    assert_eq!(access_lines(&server, 1)[0].get("upstream_status"), "302");
}

#[test]
fn what_is_wrong_with_the_keys_is_said() {
    for (keys, words) in [
        ("{ }", "site.forward_auth.to: is not a URL: write for instance http://127.0.0.1:9091/verify"),
        ("{ to = '/verify' }", "is not a URL"),
        ("{ to = 'ftp://a/x' }", "is not the URL of a server"),
        ("{ to = 'unix:/run/auth.sock' }", "has no path"),
        ("{ to = 'http://a/', host = 'a b' }", "site.forward_auth.host: write client, upstream, or a host"),
        (
            "{ to = 'http://a/', request_headers = [{ name = 'X', value = '{1}' }] }",
            "site.forward_auth.request_headers: ",
        ),
        ("{ to = 'verify', upstream = 'http://a' }", "has no path"),
        ("{ to = '/verify', upstream = 'auth' }", "there is no [[upstream]] with the name \"auth\""),
        ("{ to = 'http://a/x', copy = ['Host'] }", "\"Host\" cannot be copied"),
    ] {
        let problems = Site::new().config(&format!("forward_auth = {keys}")).problems();
        assert!(problems.contains(words), "{words:?} is not in {problems:?}");
    }
}

#[test]
fn a_refusal_leads_to_the_page_that_the_server_names_and_sets_its_cookies() {
    let site = Site::new();
    site.add("a.txt", "a file");
    let auth = Upstream::answering(|request| match request.all("x-pass").is_empty() {
        false => b"HTTP/1.1 200 OK\r\nSet-Cookie: fresh=1\r\nContent-Length: 0\r\n\r\n".to_vec(),
        true => {
            b"HTTP/1.1 401 No\r\nLocation: https://login.example/\r\nSet-Cookie: from=here\r\nContent-Length: 0\r\n\r\n"
                .to_vec()
        }
    });
    let cookies_of = |cookies: &str, pass: &[&str]| {
        let keys = format!("forward_auth = {{ to = '{}/v', refusal = 'redirect', cookies = '{cookies}' }}", auth.url());
        let server = site.config(&keys).serve_from_user_space();
        let response = curl::get(&site.pki, server.address(), "/a.txt", pass);
        assert_eq!(response.field("location").is_some(), pass.is_empty());
        (response.status, response.field("set-cookie").map(str::to_owned))
    };
    let pass = ["-H", "X-Pass: ada"];
    assert_eq!(cookies_of("none", &[]), (302, None));
    assert_eq!(cookies_of("refused", &[]), (302, Some("from=here".to_owned())));
    assert_eq!(cookies_of("refused", &pass), (200, None));
    assert_eq!(cookies_of("all", &pass), (200, Some("fresh=1".to_owned())));
}

#[test]
fn a_client_has_the_cookies_of_each_server_that_was_asked() {
    let site = Site::new();
    site.add("open/x.txt", "a file");
    let of_server = |name: &'static str| {
        Upstream::answering(move |_| {
            let cookies = format!("Set-Cookie: {name}=1\r\nSet-Cookie: {name}-b=2\r\n");
            format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n").into_bytes()
        })
    };
    let (first, second) = (of_server("first"), of_server("second"));
    let keys = format!(
        "[[site.route]]
        path = '/in/'
        rewrite = {{ to = '/open/x.txt' }}
        forward_auth = {{ to = '{}/v', cookies = 'all' }}

        [[site.route]]
        path = '/open/'
        forward_auth = {{ to = '{}/v', cookies = 'all' }}
        ",
        first.url(),
        second.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let response = http::get(&mut site.connect(&server), "/in/x").expect("a response");
    let cookies: Vec<_> = response
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!((response.status, &*response.body), (200, &b"a file"[..]));
    assert_eq!(cookies, ["first=1", "first-b=2", "second=1", "second-b=2"]);
}

/// A cache that kept the redirect to the login would give its cookie to others.
#[test]
fn a_refusal_keeps_its_cache_control() {
    let site = Site::new();
    site.add("a.txt", "a file");
    let auth = Upstream::answering(|request| match request.all("x-pass").is_empty() {
        false => ok(b""),
        true => {
            let fields = "Location: https://login.example/\r\nSet-Cookie: from=here\r\nCache-Control: no-store\r\nExpires: 0\r\n";
            format!("HTTP/1.1 302 Found\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
        }
    });
    let upstream = Upstream::answering(|_| ok(b"of the application"));
    let keys = format!(
        "forwarded_cache_control = 'public, max-age=3600'\nforward_auth = {{ to = '{}/v' }}\n\
         route = [{{ path = '/api/', proxy = {{ to = '{}' }} }}]",
        auth.url(),
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for target in ["/a.txt", "/api/x"] {
        let refused = curl::get(&site.pki, server.address(), target, &[]);
        assert_eq!((refused.status, refused.field("set-cookie")), (302, Some("from=here")), "{target}");
        assert_eq!(
            (refused.field("cache-control"), refused.field("expires")),
            (Some("no-store"), Some("0")),
            "{target}"
        );
    }
    let passed = curl::get(&site.pki, server.address(), "/api/x", &["-H", "X-Pass: ada"]);
    assert_eq!((passed.status, passed.field("cache-control")), (200, Some("public, max-age=3600")));
}

/// A server that is asked about the rewritten path too sets cookies by the first answer, by the second, or by both.
#[test]
fn the_cookies_of_both_answers_of_a_server_reach_the_client() {
    let site = Site::new();
    let auth = Upstream::answering(|request| {
        let cookies = match request.field("x-forwarded-uri") {
            "/in/x" => "Set-Cookie: first=1; Path=/\r\nSet-Cookie: both=old\r\n",
            "/x" => "Set-Cookie: both=new; Path=/\r\nSet-Cookie: second=1\r\n",
            other => panic!("{other}"),
        };
        format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let upstream = Upstream::answering(|_| ok(b""));
    let keys = format!(
        "[[site.route]]\npath = '~ ^/in/(.*)$'\nrewrite = '/{{1}}'\nforward_auth = {{ to = '{}/v', cookies = 'all' }}\n\
         [[site.route]]\npath = '/'\nproxy = {{ to = '{}' }}\n",
        auth.url(),
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let response = http::get(&mut site.connect(&server), "/in/x").expect("a response");
    assert_eq!((response.status, auth.requests().len()), (200, 2));
    let cookies = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<_> = cookies.map(|(_, value)| value.as_str()).collect();
    assert_eq!(cookies, ["first=1; Path=/", "both=new; Path=/", "second=1"]);
}

/// A server that is asked does not go on for a client that has left, whatever the route does with the request.
#[test]
fn a_client_that_leaves_ends_the_question_whether_it_may_pass() {
    let site = Site::new();
    site.add("a.txt", "a file");
    let slow = Upstream::start(|accepted| {
        let _ = accepted.request();
        accepted.read_to_end();
    });
    let application = Upstream::answering(|_| ok(b""));
    let auth = format!("forward_auth = {{ to = '{}/v' }}\n", slow.url());
    let forwards = format!("{auth}route = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]", application.url());
    let mut asked = 0;
    for (keys, target) in [(&auth, "/a.txt"), (&forwards, "/app/x"), (&forwards, "/a.txt")] {
        let server = site.config(keys).serve_from_user_space();
        for over_http2 in [false, true] {
            let has_been_asked = || wait_until("the server is asked", || slow.requests().len() == asked + 1);
            if over_http2 {
                let mut client = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
                let stream = client.get(target);
                has_been_asked();
                client.send(&reset(stream, 8));
                asked += 1;
                wait_until("its connection is closed", || slow.has_ended(asked));
            } else {
                let mut client = site.connect(&server);
                client.send(http::head("GET", target, &[]).as_bytes()).expect("it leaves");
                has_been_asked();
                drop(client);
                asked += 1;
                wait_until("its connection is closed", || slow.has_ended(asked));
            }
        }
        for line in access_lines(&server, 2) {
            assert_eq!(line.get("status"), "499", "{}", line.text);
        }
    }
    assert!(application.requests().is_empty());
}
